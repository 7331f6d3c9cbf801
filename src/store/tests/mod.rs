//! The store on a disk that records what is written and fails when told to.

mod ahead;
mod checkpoint;
mod crash;
mod full;
mod opening;
mod uniform;

use std::path::Path;

use super::*;
use crate::codec::Codec;
use crate::storage::faulty::{Faulty, Op, Script};

fn create(path: &Path, script: &Script) -> Store {
    Store::create_in(Box::new(Faulty::open(path, script)), path, Version::V2).unwrap()
}

fn read(store: &Store, index: u64) -> Vec<u8> {
    store.read(index).unwrap()
}

#[test]
fn data_is_written_before_the_table_and_the_table_before_the_header() {
    let dir = tempfile::tempdir().unwrap();
    let script = Script::default();
    let store = create(dir.path(), &script);
    // The first append makes what zrfs keeps beside the store.
    store.append(b"abc", 3, Codec::Raw).unwrap();
    store.sync().unwrap();
    script.take();
    store.append(b"abcdef", 3, Codec::Raw).unwrap();
    let written: Vec<_> = script
        .take()
        .into_iter()
        .map(|op| match op {
            Op::Write { file, at, bytes } => (file, at, bytes.len()),
            other => panic!("{other:?}"),
        })
        .collect();
    let name = |s: &str| s.to_owned();
    let rows = (name(".zrfs/checksums"), 64 + 24, 48);
    assert_eq!(written, [(name("0.zr"), 3, 6), rows, (name("meta.zr"), 32, 32)]);
    store.sync().unwrap();
    let synced: Vec<_> = script
        .take()
        .into_iter()
        .map(|op| match op {
            Op::Write { file, at, .. } => format!("write {file} {at}"),
            Op::Sync(file) => format!("sync {file}"),
            other => panic!("{other:?}"),
        })
        .collect();
    let expected = [
        "sync 0.zr",
        "write .zrfs/checksums 16",
        "sync .zrfs/checksums",
        "sync meta.zr",
        "write meta.zr 0",
        "sync meta.zr",
        // What was left, and when, which nothing depends on.
        "write .zrfs/checksums 16",
    ];
    assert_eq!(synced, expected);
}

#[test]
fn appends_are_seen_by_others_at_the_sync_or_the_close_or_each_at_once() {
    let dir = tempfile::tempdir().unwrap();
    let others = || Store::open_read_only(dir.path()).unwrap().len();
    let store = create(dir.path(), &Script::default());
    store.append(b"one", 3, Codec::Raw).unwrap();
    assert_eq!((store.len(), others()), (1, 0));
    assert_eq!(store.stats().unwrap().chunk_bytes, 3);
    store.sync().unwrap();
    assert_eq!(others(), 1);
    store.append(b"two", 3, Codec::Raw).unwrap();
    drop(store);
    assert_eq!(others(), 2);
    let store = Store::open(dir.path()).unwrap();
    store.set_durability(Durability::EachAppend);
    store.append(b"three", 5, Codec::Raw).unwrap();
    assert_eq!(others(), 3);
}

#[test]
fn one_appends_at_a_time_until_it_has_synced() {
    let dir = tempfile::tempdir().unwrap();
    let store = create(dir.path(), &Script::default());
    let other = Store::open(dir.path()).unwrap();
    store.append(b"one", 3, Codec::Raw).unwrap();
    assert_eq!(other.append(b"two", 3, Codec::Raw).unwrap_err().kind(), ErrorKind::Busy);
    store.sync().unwrap();
    assert_eq!(other.append(b"two", 3, Codec::Raw).unwrap(), 1);
    assert_eq!(store.append(b"six", 3, Codec::Raw).unwrap_err().kind(), ErrorKind::Busy);
    drop(other);
    assert_eq!(store.append(b"six", 3, Codec::Raw).unwrap(), 2);
}

#[test]
fn an_append_that_fails_at_any_write_leaves_the_store_as_it_was() {
    for errno in [libc::ENOSPC, libc::EIO, libc::EDQUOT] {
        for failing in 0..3 {
            let dir = tempfile::tempdir().unwrap();
            let script = Script::default();
            let store = create(dir.path(), &script);
            store.append(b"before", 6, Codec::Raw).unwrap();
            store.sync().unwrap();
            script.fail_after(failing, errno);
            let e = store.append(&[7; 4000], 1000, Codec::Raw).unwrap_err();
            assert_eq!(e.raw_os_error(), Some(errno), "write {failing}");
            assert_eq!((store.len(), read(&store, 0)), (1, b"before".to_vec()));
            script.heal();
            // Also for those who open it now, and for the next append.
            assert_eq!(Store::open_read_only(dir.path()).unwrap().len(), 1);
            assert_eq!(store.append(b"after", 5, Codec::Raw).unwrap(), 1);
            assert_eq!((read(&store, 0), read(&store, 1)), (b"before".to_vec(), b"after".to_vec()));
        }
    }
}

#[test]
fn an_append_that_fails_gives_its_space_back() {
    let dir = tempfile::tempdir().unwrap();
    let script = Script::default();
    let store = create(dir.path(), &script);
    store.append(b"before", 6, Codec::Raw).unwrap();
    let mut appender = store.appender().unwrap();
    appender.append(&[7; 4000], 1000, Codec::Raw).unwrap();
    drop(appender);
    assert_eq!(dir.path().join("0.zr").metadata().unwrap().len(), 6);
    assert_eq!(store.len(), 1);
}

#[test]
fn a_preallocated_chunk_gives_its_blocks_back_too() {
    let dir = tempfile::tempdir().unwrap();
    let script = Script::default();
    let store = create(dir.path(), &script);
    store.append(b"before", 6, Codec::Raw).unwrap();
    let chunk = store.dir.open("0.zr", Access::Write).unwrap();
    chunk.set_len(1 << 32).unwrap();
    let before = chunk.attributes().unwrap().allocated;
    let mut appender = store.appender().unwrap();
    appender.append(&vec![7; 4 << 20], 1 << 20, Codec::Raw).unwrap();
    assert!(chunk.attributes().unwrap().allocated > before);
    drop(appender);
    let after = chunk.attributes().unwrap();
    assert_eq!((after.len, after.allocated), (1 << 32, before));
    assert_eq!(read(&store, 0), b"before");
}

#[test]
fn an_append_gives_a_trimmed_table_its_full_size() {
    let dir = tempfile::tempdir().unwrap();
    let script = Script::default();
    let store = create(dir.path(), &script);
    store.append(b"one", 3, Codec::Raw).unwrap();
    store.sync().unwrap();
    store.dir.open(meta::NAME, Access::Write).unwrap().set_len(32).unwrap();
    drop(store);
    let store = Store::open(dir.path()).unwrap();
    store.append(b"two", 3, Codec::Raw).unwrap();
    assert_eq!(dir.path().join(meta::NAME).metadata().unwrap().len(), META_BYTES);
    assert_eq!((read(&store, 0), read(&store, 1)), (b"one".to_vec(), b"two".to_vec()));
}

#[test]
fn after_a_failed_sync_the_store_takes_no_more_writes() {
    for failing in 0..9 {
        let dir = tempfile::tempdir().unwrap();
        let script = Script::default();
        let store = create(dir.path(), &script);
        store.append(b"record", 6, Codec::Raw).unwrap();
        script.fail_after(failing, libc::EIO);
        assert!(store.sync().is_err());
        script.heal();
        assert!(store.sync().is_err(), "a second sync would report what it can't know");
        assert!(store.append(b"record", 6, Codec::Raw).is_err());
        assert_eq!(read(&store, 0), b"record", "reading goes on");
        drop(store);
        assert!(Store::open(dir.path()).unwrap().append(b"record", 6, Codec::Raw).is_ok());
    }
}

#[test]
fn records_roll_over_to_the_next_chunk_and_never_straddle() {
    let dir = tempfile::tempdir().unwrap();
    let script = Script::default();
    let store = create(dir.path(), &script);
    let frontier = u32::MAX - 2500;
    let header = Header { version: Version::V1, tail_chunk: 0, tail_offset: frontier, length: 0 };
    store.meta.write_header(&header).unwrap();
    store.dir.open("0.zr", Access::Write).unwrap().set_len(u64::from(frontier)).unwrap();
    let records: Vec<u8> = (0..5u8).flat_map(|i| vec![i; 1000]).collect();
    store.append(&records, 1000, Codec::Raw).unwrap();
    store.sync().unwrap();
    let locs: Vec<_> = (0..5).map(|i| store.location(i).unwrap()).map(|l| (l.chunk_id, l.offset)).collect();
    assert_eq!(locs, [(0, frontier), (0, frontier + 1000), (1, 0), (1, 1000), (1, 2000)]);
    for i in 0..5u8 {
        assert_eq!(read(&store, u64::from(i)), vec![i; 1000]);
    }
    // A record that would end exactly at 2^32 goes to the next chunk, too.
    let header = Header { version: Version::V1, tail_chunk: 1, tail_offset: u32::MAX - 999, length: 5 };
    store.meta.write_header(&header).unwrap();
    store.dir.open("1.zr", Access::Write).unwrap().set_len(u64::from(u32::MAX)).unwrap();
    store.append(&[9; 1000], 1000, Codec::Raw).unwrap();
    let loc = store.location(5).unwrap();
    assert_eq!((loc.chunk_id, loc.offset), (2, 0));
}

#[test]
fn a_frontier_before_live_records_refuses_appends() {
    let dir = tempfile::tempdir().unwrap();
    let script = Script::default();
    let store = create(dir.path(), &script);
    store.append(&[5; 3000], 1000, Codec::Raw).unwrap();
    store.sync().unwrap();
    let header = store.meta.header().unwrap();
    store.meta.write_header(&Header { tail_offset: header.tail_offset ^ 1 << 10, ..header }).unwrap();
    // For one opened now, and for one that has appended before and so had looked at another header.
    for store in [&Store::open(dir.path()).unwrap(), &store] {
        let e = store.append(&[6; 1000], 1000, Codec::Raw).unwrap_err();
        assert!(e.kind() == ErrorKind::Damaged && e.to_string().contains("tail_offset"), "{e}");
        assert_eq!(read(store, 2), [5; 1000], "reading goes on");
    }
}

/// A store of 30 records of many lengths, and what they are.
fn filled(path: &Path, script: &Script) -> (Store, Vec<Vec<u8>>) {
    let store = create(path, script);
    let records: Vec<Vec<u8>> = (0..30u8).map(|i| vec![i; 100 + usize::from(i) * 37 % 500]).collect();
    for record in &records {
        store.append(record, record.len(), Codec::Raw).unwrap();
    }
    store.sync().unwrap();
    (store, records)
}

fn all(store: &Store) -> Vec<Vec<u8>> {
    (0..store.len()).map(|index| read(store, index)).collect()
}

fn go(_: Progress) -> std::ops::ControlFlow<()> {
    std::ops::ControlFlow::Continue(())
}

#[test]
fn a_delete_that_fails_at_any_change_leaves_the_store_as_it_was_or_says_so() {
    let doomed = [0, 7, 8, 29, 13];
    let mut failures = 0;
    for errno in [libc::ENOSPC, libc::EIO] {
        for failing in 0.. {
            let dir = tempfile::tempdir().unwrap();
            let script = Script::default();
            let (store, records) = filled(dir.path(), &script);
            let mut after = records.clone();
            for index in [29, 13, 8, 7, 0] {
                after.swap_remove(index);
            }
            // For this one change only: what puts things back goes through.
            script.fail_once_after(failing, errno);
            let (epoch, mut announced) = (store.epoch(), false);
            let result = Store::delete_announced(&[&store], &doomed, |_, _| announced = true);
            script.heal();
            let found = all(&store);
            match &result {
                // What fails behind the commit costs space, not data.
                Ok(_) => assert_eq!(found, after, "change {failing}"),
                Err(e) if e.to_string().contains("finished when the store is opened") => {}
                Err(e) => {
                    assert_eq!(e.raw_os_error(), Some(errno), "change {failing}: {e}");
                    assert_eq!(found, records, "change {failing}");
                    // It never looks as one that was done.
                    let back = if announced { 2 } else { 0 };
                    assert_eq!(store.epoch(), epoch + back, "change {failing}");
                    failures += 1;
                }
            }
            drop(store);
            let list = all(&Store::open_read_only(dir.path()).unwrap());
            let store = Store::open(dir.path()).unwrap();
            assert_eq!(all(&store), list, "change {failing}");
            let told = result.is_ok() || result.is_err_and(|e| e.to_string().contains("finished when"));
            assert!(list == if told { after } else { records }, "change {failing}");
            assert!(Store::verify(dir.path(), |_| ()).unwrap().is_good(), "change {failing}");
            if script.untouched() {
                break;
            }
        }
    }
    assert!(failures > 10, "{failures}");
}

#[test]
fn a_compaction_that_fails_at_any_change_leaves_every_record() {
    for errno in [libc::ENOSPC, libc::EIO] {
        for failing in 0.. {
            let dir = tempfile::tempdir().unwrap();
            let script = Script::default();
            let (store, mut records) = filled(dir.path(), &script);
            store.delete(&[3, 4, 20]).unwrap();
            [20, 4, 3].into_iter().for_each(|index| drop(records.swap_remove(index)));
            script.fail_once_after(failing, errno);
            let result = store.compact(go);
            script.heal();
            assert_eq!(all(&store), records, "change {failing}: {result:?}");
            drop(store);
            assert_eq!(all(&Store::open_read_only(dir.path()).unwrap()), records, "change {failing}");
            let store = Store::open(dir.path()).unwrap();
            assert!(Store::verify(dir.path(), |_| ()).unwrap().is_good(), "change {failing}");
            store.compact(go).unwrap();
            assert_eq!(store.stats().unwrap().reclaimable(), 0);
            assert_eq!(all(&store), records, "change {failing}, compacted again");
            if script.untouched() {
                break;
            }
        }
    }
}

#[test]
fn a_compaction_can_be_interrupted_and_goes_on() {
    let dir = tempfile::tempdir().unwrap();
    let (store, mut records) = filled(dir.path(), &Script::default());
    store.delete(&[0, 1, 2]).unwrap();
    [2, 1, 0].into_iter().for_each(|index| drop(records.swap_remove(index)));
    let mut steps = 0;
    let e = store.compact(|_| {
        steps += 1;
        if steps == 3 { std::ops::ControlFlow::Break(()) } else { std::ops::ControlFlow::Continue(()) }
    });
    assert_eq!(e.unwrap_err().kind(), ErrorKind::Interrupted);
    assert_eq!(all(&store), records);
    // The store is free again, and appends go on.
    store.append(b"more", 4, Codec::Raw).unwrap();
    records.push(b"more".to_vec());
    store.compact(go).unwrap();
    assert_eq!((all(&store), store.stats().unwrap().reclaimable()), (records, 0));
}

#[test]
fn readers_go_on_while_records_move_and_go() {
    let dir = tempfile::tempdir().unwrap();
    let (store, _) = filled(dir.path(), &Script::default());
    // Each record tells of itself: its first byte says which one it is, whatever its index.
    let bytes: Vec<u8> = (0..200u8).flat_map(|i| vec![i; 300]).collect();
    store.append(&bytes, 300, Codec::Raw).unwrap();
    let stop = AtomicBool::new(false);
    let sound = |record: &[u8]| {
        let first = record[0];
        record.iter().all(|&byte| byte == first)
            && (record.len() == 300 || record.len() == 100 + usize::from(first) * 37 % 500)
    };
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                let mut rounds = 0;
                while !stop.load(Ordering::Relaxed) || rounds == 0 {
                    rounds += 1;
                    let len = store.len();
                    let mut lens = vec![0; len as usize];
                    let indices: Vec<u64> = (0..len).collect();
                    if store.lengths(&indices, &mut lens).is_err() {
                        continue;
                    }
                    for index in 0..len {
                        match store.read(index) {
                            Ok(record) => assert!(sound(&record), "record {index}"),
                            Err(e) => assert_eq!(e.kind(), ErrorKind::OutOfRange, "{e}"),
                        }
                    }
                }
            });
        }
        for round in 0..40 {
            let len = store.len();
            let doomed: Vec<u64> = (0..5).map(|i| (round * 7 + i * 13) % len).collect();
            store.delete(&doomed).unwrap();
            store.compact(go).unwrap();
            let bytes = vec![round as u8; 900];
            store.append(&bytes, 300, Codec::Raw).unwrap();
        }
        stop.store(true, Ordering::Relaxed);
    });
    store.sync().unwrap();
    assert!(Store::verify(dir.path(), |_| ()).unwrap().is_good());
}

#[test]
fn who_has_the_store_open_is_in_the_way_and_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let (store, _) = filled(dir.path(), &Script::default());
    let reader = Store::open_read_only(dir.path()).unwrap();
    let me = format!("process {} (", std::process::id());
    for result in [
        store.delete(&[0]).map(drop),
        store.compact(go).map(drop),
        store.seal().map(drop),
        Store::repair(dir.path(), |_| ()).map(drop),
    ] {
        let e = result.unwrap_err();
        assert!(e.kind() == ErrorKind::Busy && e.to_string().contains(&me), "{e}");
    }
    drop(reader);
    assert_eq!(store.delete(&[0]).unwrap().len(), 1);
    // While it is held alone nobody can open it.
    let alone = store.alone().unwrap();
    for result in [Store::open_read_only(dir.path()), Store::open(dir.path())] {
        let e = result.unwrap_err();
        assert!(e.kind() == ErrorKind::Busy && e.to_string().contains(&me), "{e}");
    }
    drop(alone);
    assert_eq!(Store::open_read_only(dir.path()).unwrap().len(), 29);
}

#[test]
fn a_delete_of_nothing_or_of_what_is_not_there_changes_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let script = Script::default();
    let (store, records) = filled(dir.path(), &script);
    script.take();
    assert_eq!(store.delete(&[]).unwrap(), []);
    assert_eq!(store.delete(&[3, 30]).unwrap_err().kind(), ErrorKind::OutOfRange);
    assert_eq!(store.delete(&[u64::MAX]).unwrap_err().kind(), ErrorKind::OutOfRange);
    assert_eq!(Store::delete_aligned(&[&store, &store], &[1]).unwrap_err().kind(), ErrorKind::Geometry);
    assert!(script.take().iter().all(|op| matches!(op, Op::Sync(_))));
    assert_eq!(all(&store), records);
    let reader = Store::open_read_only(dir.path()).unwrap();
    assert_eq!(reader.delete(&[1]).unwrap_err().kind(), ErrorKind::ReadOnly);
    assert_eq!(reader.compact(go).unwrap_err().kind(), ErrorKind::ReadOnly);
}

#[test]
fn without_locks_a_store_is_read_and_not_written() {
    let dir = tempfile::tempdir().unwrap();
    let script = Script::default();
    let (store, records) = filled(dir.path(), &script);
    drop(store);
    script.without_locks();
    let open = |access| Store::open_in(Box::new(Faulty::open(dir.path(), &script)), dir.path(), access);
    assert_eq!(all(&open(Access::Read).unwrap()), records);
    let e = open(Access::Write).unwrap_err();
    assert!(e.raw_os_error() == Some(libc::ENOLCK) && e.to_string().contains("can only be read here"), "{e}");
}

#[test]
fn two_entries_of_one_record_cost_one_of_them() {
    for has_sums in [true, false] {
        let dir = tempfile::tempdir().unwrap();
        let (store, records) = filled(dir.path(), &Script::default());
        let twin = store.meta.entry(4).unwrap();
        store.meta.write_scattered(&[(20, twin)]).unwrap();
        drop(store);
        if !has_sums {
            std::fs::remove_dir_all(dir.path().join(".zrfs")).unwrap();
        }
        let done = Store::repair(dir.path(), |_| ()).unwrap();
        let store = Store::open(dir.path()).unwrap();
        if has_sums {
            assert_eq!((done.mended, done.lost), (1, 0));
            assert_eq!(all(&store), records);
        } else {
            assert_eq!((done.mended, done.lost), (0, 1));
            assert_eq!(store.len(), 29);
            assert_eq!(read(&store, 4), records[4]);
        }
    }
}

#[test]
fn records_of_one_length_do_not_move_one_by_one() {
    let dir = tempfile::tempdir().unwrap();
    let script = Script::default();
    let store = create(dir.path(), &script);
    let bytes: Vec<u8> = (0..200u8).flat_map(|i| vec![i; 8]).collect();
    store.append(&bytes, 8, Codec::Raw).unwrap();
    store.delete(&[0]).unwrap();
    script.take();
    assert_eq!(store.compact(go).unwrap().records_moved, 199);
    // The window of the tests is of five records, and takes five waits for the disk: two there, two back, one for the
    // checksums.
    let syncs = script.take().iter().filter(|op| matches!(op, Op::Sync(_))).count();
    assert!(syncs <= 40 * 5 + 10, "{syncs}");
    assert_eq!(read(&store, 0), [199; 8]);
}

#[test]
fn after_a_failed_sync_in_any_change_the_store_takes_no_more() {
    let mut refused = 0;
    for failing in 0..60 {
        let dir = tempfile::tempdir().unwrap();
        let script = Script::default();
        let (store, _) = filled(dir.path(), &script);
        store.delete(&[3]).unwrap();
        script.fail_once_after(failing, libc::EIO);
        let result = store.delete(&[1]).map(drop).and_then(|()| store.compact(go).map(drop));
        let result = result.and_then(|()| store.seal().map(drop));
        script.heal();
        if result.is_err_and(|e| e.is_of_sync()) {
            refused += 1;
            assert!(store.append(b"more", 4, Codec::Raw).is_err(), "change {failing}");
            assert!(store.delete(&[0]).is_err(), "change {failing}");
        }
    }
    assert!(refused > 15, "{refused}");
}

#[test]
fn a_table_cut_to_nothing_comes_back_from_the_checksums() {
    for kept in [0, 8, 16, 100] {
        let dir = tempfile::tempdir().unwrap();
        let (store, records) = filled(dir.path(), &Script::default());
        drop(store);
        std::fs::File::options()
            .write(true)
            .open(dir.path().join(meta::NAME))
            .unwrap()
            .set_len(kept)
            .unwrap();
        let done = Store::repair(dir.path(), |_| ()).unwrap();
        assert_eq!((done.records, done.lost), (30, 0), "{kept} bytes kept: {done:?}");
        assert_eq!(all(&Store::open(dir.path()).unwrap()), records);
    }
}

#[test]
fn a_change_that_was_refused_accepts_nothing_that_another_program_wrote() {
    let dir = tempfile::tempdir().unwrap();
    let store =
        Store::create_in(Box::new(Faulty::open(dir.path(), &Script::default())), dir.path(), Version::V1)
            .unwrap();
    let records: Vec<u8> = (0..10u8).flat_map(|i| vec![i; 100]).collect();
    store.append(&records, 100, Codec::Raw).unwrap();
    store.sync().unwrap();
    let header = store.meta.header().unwrap();
    store.meta.write_header(&Header { length: 4, ..header }).unwrap();
    // However often it is asked for.
    for _ in 0..3 {
        let e = store.compact(go).unwrap_err();
        assert!(e.kind() == ErrorKind::Damaged && e.to_string().contains("--accept"), "{e}");
    }
    drop(store);
    assert_eq!(Store::repair(dir.path(), |_| ()).unwrap().records, 10);
}

#[test]
fn an_appender_reads_what_it_has_appended() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::create(dir.path().join("s"), Version::V2).unwrap();
    store.append(b"old", 3, Codec::Raw).unwrap();
    let long = vec![7; 3 << 20];
    let mut appender = store.appender().unwrap();
    assert_eq!(appender.read(1).unwrap_err().kind(), ErrorKind::OutOfRange);
    for codec in [Codec::Raw, Codec::default()] {
        appender.append(&long, long.len(), codec).unwrap();
        appender.append_ragged(b"abc", &[1, 3], &[2, 0], codec).unwrap();
    }
    let expected: [&[u8]; 7] = [b"old", &long, b"bc", b"", &long, b"bc", b""];
    for (index, record) in (0..).zip(expected) {
        assert!(appender.read(index).unwrap() == record, "record {index}");
    }
    assert_eq!(appender.read(7).unwrap_err().kind(), ErrorKind::OutOfRange);
    // Others don't see them yet.
    assert_eq!(store.len(), 1);
    drop(appender);
    assert_eq!(store.read(0).unwrap(), b"old");
}
