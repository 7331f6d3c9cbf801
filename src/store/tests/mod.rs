//! The store on a disk that records what is written and fails when told to.

mod crash;

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
        "write .zrfs/checksums 0",
        "sync .zrfs/checksums",
        "sync meta.zr",
        "write meta.zr 0",
        "sync meta.zr",
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
fn a_full_store_says_so_before_it_writes() {
    let dir = tempfile::tempdir().unwrap();
    let script = Script::default();
    let store = create(dir.path(), &script);
    let last = crate::format::MAX_CHUNKS - 1;
    let header = Header { version: Version::V2, tail_chunk: last, tail_offset: u32::MAX - 10, length: 0 };
    store.meta.write_header(&header).unwrap();
    store.dir.create(&chunks::name(last)).unwrap().set_len(u64::from(u32::MAX)).unwrap();
    script.take();
    assert_eq!(store.append(&[1; 11], 11, Codec::Raw).unwrap_err().kind(), ErrorKind::Full);
    assert_eq!(script.take().iter().filter(|op| matches!(op, Op::Write { .. })).count(), 0);
    assert!(store.append(&[1; 9], 9, Codec::Raw).is_ok());
    store.sync().unwrap();

    let full = Header { length: crate::format::MAX_RECORDS, tail_offset: u32::MAX, ..header };
    drop(store);
    let store = Store::open(dir.path()).unwrap();
    store.meta.write_header(&full).unwrap();
    drop(store);
    // Open it anew: the scan for records behind the frontier meets empty entries only.
    let store = Store::open(dir.path()).unwrap();
    assert_eq!(store.append(&[1; 9], 9, Codec::Raw).unwrap_err().kind(), ErrorKind::Full);
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
