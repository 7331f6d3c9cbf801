//! The store library through its public interface: against a plain list, with hostile bytes, with many threads.

#![allow(
    clippy::cast_possible_truncation,
    clippy::unwrap_used,
    reason = "a test that goes wrong should stop"
)]

use std::fs;
use std::ops::ControlFlow;
use std::os::unix::fs::FileExt;
use std::path::Path;

use proptest::prelude::*;
use zrfs::store::{Durability, Move};
use zrfs::{Codec, ErrorKind, Store, Version};

fn read(store: &Store, index: u64) -> zrfs::Result<Vec<u8>> {
    let record = store.read(index)?;
    let mut len = [0];
    store.lengths(&[index], &mut len)?;
    assert_eq!(record.len(), len[0] as usize);
    Ok(record)
}

/// Records of every kind: empty, one byte, compressible, random, around the size where Deflate begins.
fn record() -> impl Strategy<Value = Vec<u8>> {
    let random = proptest::collection::vec(any::<u8>(), 0..40);
    let repeated = (any::<u8>(), 0usize..5000).prop_map(|(byte, len)| vec![byte; len]);
    let steps =
        (1usize..3000, 1usize..9).prop_map(|(len, step)| (0..len).map(|i| (i / step) as u8).collect());
    prop_oneof![random, repeated, steps]
}

fn codec() -> impl Strategy<Value = Codec> {
    prop_oneof![Just(Codec::Raw), (1u8..=12).prop_map(Codec::Flate)]
}

#[derive(Clone, Debug)]
enum Step {
    Ragged(Vec<Vec<u8>>, Codec),
    Equal(usize, Vec<u8>, Codec),
    AbandonedAppend(Vec<u8>),
    Reopen,
    Sync,
    Delete(Vec<prop::sample::Index>),
    Compact,
    Seal,
    Verify,
    Gather(Vec<prop::sample::Index>),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        (proptest::collection::vec(record(), 0..12), codec()).prop_map(|(r, c)| Step::Ragged(r, c)),
        (1usize..500, proptest::collection::vec(any::<u8>(), 1..2000), codec())
            .prop_map(|(len, bytes, c)| Step::Equal(len, bytes, c)),
        record().prop_map(Step::AbandonedAppend),
        Just(Step::Reopen),
        Just(Step::Sync),
        proptest::collection::vec(any::<prop::sample::Index>(), 0..8).prop_map(Step::Delete),
        Just(Step::Compact),
        Just(Step::Seal),
        Just(Step::Verify),
        proptest::collection::vec(any::<prop::sample::Index>(), 1..20).prop_map(Step::Gather),
    ]
}

fn ragged(records: &[Vec<u8>]) -> (Vec<u8>, Vec<u64>, Vec<u32>) {
    let (mut bytes, mut offsets, mut lens) = (Vec::new(), Vec::new(), Vec::new());
    for record in records {
        offsets.push(bytes.len() as u64);
        lens.push(u32::try_from(record.len()).unwrap());
        bytes.extend_from_slice(record);
    }
    (bytes, offsets, lens)
}

fn go(_: zrfs::store::Progress) -> ControlFlow<()> {
    ControlFlow::Continue(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn the_store_is_a_list(steps in proptest::collection::vec(step(), 1..24)) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("s.zr");
        let mut store = Store::create(&path, Version::V2).unwrap();
        let mut list: Vec<Vec<u8>> = Vec::new();
        for step in steps {
            match step {
                Step::Ragged(records, codec) => {
                    let (bytes, offsets, lens) = ragged(&records);
                    let first = store.append_ragged(&bytes, &offsets, &lens, codec).unwrap();
                    prop_assert_eq!(first, list.len() as u64);
                    list.extend(records);
                }
                Step::Equal(len, mut bytes, codec) => {
                    bytes.truncate(bytes.len() / len * len);
                    store.append(&bytes, len, codec).unwrap();
                    list.extend(bytes.chunks(len).map(<[u8]>::to_vec));
                }
                Step::AbandonedAppend(record) => {
                    let mut appender = store.appender().unwrap();
                    let (bytes, offsets, lens) = ragged(&[record]);
                    appender.append_ragged(&bytes, &offsets, &lens, Codec::default()).unwrap();
                }
                Step::Reopen => {
                    // What was not synced is, when the store goes.
                    drop(store);
                    store = Store::open(&path).unwrap();
                }
                Step::Sync => store.sync().unwrap(),
                Step::Delete(picks) => {
                    if list.is_empty() {
                        continue;
                    }
                    let mut doomed: Vec<u64> = picks.iter().map(|pick| pick.index(list.len()) as u64).collect();
                    let moves = store.delete(&doomed).unwrap();
                    let before = list.clone();
                    doomed.sort_unstable();
                    doomed.dedup();
                    for &index in doomed.iter().rev() {
                        list.swap_remove(index as usize);
                    }
                    for Move { from, to } in moves {
                        prop_assert_eq!(&before[from as usize], &list[to as usize]);
                    }
                }
                Step::Compact => {
                    store.compact(go).unwrap();
                    let stats = store.stats().unwrap();
                    // Where there are empty records alone, one byte is left before them.
                    prop_assert!(stats.reclaimable() <= u64::from(stats.live_bytes == 0));
                    prop_assert_eq!(store.compact(go).unwrap().records_moved, 0);
                }
                Step::Seal => drop(store.seal().unwrap()),
                Step::Verify => {
                    store.sync().unwrap();
                    let found = Store::verify(&path, |_| ()).unwrap();
                    prop_assert!(found.is_good(), "{:?}", found);
                    prop_assert_eq!((found.checked, found.unchecked), (list.len() as u64, 0));
                }
                Step::Gather(picks) => {
                    if list.is_empty() {
                        continue;
                    }
                    let indices: Vec<u64> = picks.iter().map(|pick| pick.index(list.len()) as u64).collect();
                    let stride = list.iter().map(Vec::len).max().unwrap() + 3;
                    let mut strided = vec![0xee; stride * indices.len()];
                    store.gather(&indices, &mut strided, stride).unwrap();
                    // Ragged, laid out backwards with gaps.
                    let mut offsets = vec![0; indices.len()];
                    let mut end = 0;
                    for (offset, &index) in offsets.iter_mut().zip(&indices).rev() {
                        *offset = end + 1;
                        end = *offset + list[index as usize].len() as u64;
                    }
                    let mut packed = vec![0xee; end as usize];
                    store.gather_ragged(&indices, &mut packed, &offsets).unwrap();
                    for (i, &index) in indices.iter().enumerate() {
                        let expected = &list[index as usize];
                        let (slot, gap) = strided[i * stride..][..stride].split_at(expected.len());
                        prop_assert_eq!(slot, &expected[..]);
                        prop_assert!(gap.iter().all(|&b| b == 0xee), "bytes between records were touched");
                        prop_assert_eq!(&packed[offsets[i] as usize..][..expected.len()], &expected[..]);
                    }
                }
            }
            prop_assert_eq!(store.len(), list.len() as u64);
        }
        drop(store);
        let store = Store::open_read_only(&path).unwrap();
        for (i, expected) in list.iter().enumerate() {
            prop_assert_eq!(&read(&store, i as u64).unwrap(), expected);
        }
        let stats = store.stats().unwrap();
        prop_assert_eq!(stats.records, list.len() as u64);
        prop_assert_eq!(stats.logical_bytes, list.iter().map(|r| r.len() as u64).sum::<u64>());
        prop_assert_eq!(stats.damaged, 0);
    }

    #[test]
    fn hostile_bytes_are_errors(
        header in proptest::collection::vec(any::<u8>(), 16),
        entries in proptest::collection::vec(any::<[u8; 16]>(), 0..20),
        chunk in proptest::collection::vec(any::<u8>(), 0..200),
        sound in any::<bool>(),
        sums in proptest::collection::vec(any::<u8>(), 0..300),
        journal in proptest::collection::vec(any::<u8>(), 0..200),
        beside in 0u8..4,
    ) {
        let dir = tempfile::tempdir().unwrap();
        let mut meta = header;
        if sound {
            // A header that opens, so that the entries are looked at.
            meta[..6].copy_from_slice(b"ZREC\x02\0");
            meta[6..8].copy_from_slice(&[0, 0]);
            meta[12..].copy_from_slice(&(entries.len() as u32).to_le_bytes());
        }
        meta.extend(entries.iter().flatten());
        fs::write(dir.path().join("meta.zr"), meta).unwrap();
        fs::write(dir.path().join("0.zr"), chunk).unwrap();
        if beside > 0 {
            let folder = dir.path().join(".zrfs");
            fs::create_dir(&folder).unwrap();
            let begins = |magic: &[u8], mut bytes: Vec<u8>| {
                if beside > 1 {
                    let len = bytes.len().min(magic.len());
                    bytes[..len].copy_from_slice(&magic[..len]);
                }
                bytes
            };
            fs::write(folder.join("checksums"), begins(b"ZRCS\x01\0\0\0\0\0\0\0\0\0\0\0", sums)).unwrap();
            fs::write(folder.join("journal"), begins(b"ZRJL\x01\0\x01\0", journal)).unwrap();
            if beside == 3 && sound {
                // A step is said to be unfinished.
                let meta = fs::File::options().write(true).open(dir.path().join("meta.zr")).unwrap();
                meta.write_all_at(&[2, 0x80], 4).unwrap();
            }
        }
        if let Ok(store) = Store::open(dir.path()) {
            for index in 0..store.len().min(100) {
                let _ = read(&store, index);
            }
            let _ = store.stats();
            let _ = store.append(b"record", 6, Codec::Raw);
            let _ = store.sync();
            let _ = store.delete(&[0]);
            let _ = store.compact(go);
        }
        let _ = Store::verify(dir.path(), |_| ());
        if Store::repair(dir.path(), |_| ()).is_ok() {
            let found = Store::verify(dir.path(), |_| ()).unwrap();
            prop_assert!(found.is_good(), "after repair: {:?}", found);
            prop_assert!(Store::open(dir.path()).is_ok());
        }
    }
}

/// Three raw and three deflated records.
fn small_store(path: &Path) -> Vec<Vec<u8>> {
    let records: Vec<Vec<u8>> = (0..6u8).map(|i| vec![i + 1; 200 + usize::from(i)]).collect();
    let store = Store::create(path, Version::V1).unwrap();
    for (i, record) in records.iter().enumerate() {
        let codec = if i % 2 == 0 { Codec::Raw } else { Codec::default() };
        store.append(record, record.len(), codec).unwrap();
    }
    store.sync().unwrap();
    records
}

#[test]
fn every_flipped_bit_of_the_header_is_noticed_or_harmless() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("s.zr");
    let records = small_store(&path);
    let meta = fs::File::options().read(true).write(true).open(path.join("meta.zr")).unwrap();
    let mut good = [0; 16];
    meta.read_exact_at(&mut good, 0).unwrap();
    for bit in 0..128 {
        let mut bad = good;
        bad[bit / 8] ^= 1 << (bit % 8);
        meta.write_all_at(&bad, 0).unwrap();
        let field = match bit / 8 {
            0..4 => "magic",
            4..6 => "version",
            6..8 => "tail_chunk",
            8..12 => "tail_offset",
            _ => "length",
        };
        match Store::open(&path) {
            Err(e) => assert!(e.to_string().contains(field), "bit {bit}: {e}"),
            Ok(store) => {
                // What lies within the length that it claims is readable and right.
                for (i, record) in records.iter().enumerate().take(store.len() as usize) {
                    assert_eq!(&read(&store, i as u64).unwrap(), record, "bit {bit}");
                }
                for i in (records.len() as u64..store.len()).take(10) {
                    assert_eq!(read(&store, i).unwrap_err().kind(), ErrorKind::Damaged, "bit {bit}");
                }
                // An append must not write over what is there.
                if field.starts_with("tail") {
                    let e = store.append(&[1], 1, Codec::Raw).unwrap_err();
                    assert_eq!(e.kind(), ErrorKind::Damaged, "bit {bit}: {e}");
                }
            }
        }
    }
}

#[test]
fn every_flipped_bit_of_an_entry_costs_at_most_that_record() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("s.zr");
    let records = small_store(&path);
    let meta = fs::File::options().read(true).write(true).open(path.join("meta.zr")).unwrap();
    for victim in 0..records.len() {
        let at = 16 + 16 * victim as u64;
        let mut good = [0; 16];
        meta.read_exact_at(&mut good, at).unwrap();
        for bit in 0..128 {
            let mut bad = good;
            bad[bit / 8] ^= 1 << (bit % 8);
            meta.write_all_at(&bad, at).unwrap();
            let store = Store::open_read_only(&path).unwrap();
            for (i, record) in records.iter().enumerate() {
                let found = read(&store, i as u64);
                if i != victim {
                    assert_eq!(&found.unwrap(), record, "bit {bit} of entry {victim}");
                } else if let Err(e) = found {
                    assert!(e.to_string().contains(&format!("record {victim} ")), "{e}");
                }
            }
            let batch: Vec<u64> = (0..records.len() as u64).filter(|&i| i != victim as u64).collect();
            store.gather(&batch, &mut vec![0; 300 * batch.len()], 300).unwrap();
        }
        meta.write_all_at(&good, at).unwrap();
    }
}

#[test]
fn missing_and_short_chunks_are_errors_never_zeros() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("s.zr");
    let records = small_store(&path);
    let store = Store::open_read_only(&path).unwrap();
    let chunk = fs::File::options().write(true).open(path.join("0.zr")).unwrap();
    let len = chunk.metadata().unwrap().len();
    // Under an open store and for one opened after it.
    for cut in (0..len).rev().step_by(37) {
        chunk.set_len(cut).unwrap();
        for store in [&store, &Store::open_read_only(&path).unwrap()] {
            for (i, record) in records.iter().enumerate() {
                let loc = store.location(i as u64).unwrap();
                match read(store, i as u64) {
                    Ok(found) => assert!(loc.end() <= cut && &found == record),
                    Err(e) => assert!(loc.end() > cut && e.kind() == ErrorKind::Damaged, "{e}"),
                }
            }
        }
    }
    fs::remove_file(path.join("0.zr")).unwrap();
    let e = read(&Store::open_read_only(&path).unwrap(), 0).unwrap_err();
    assert!(e.kind() == ErrorKind::Damaged && e.to_string().contains("0.zr is missing"), "{e}");
}

#[test]
fn a_table_cut_under_an_open_store_costs_the_records_behind_the_cut() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("s.zr");
    let store = Store::create(&path, Version::V1).unwrap();
    let records: Vec<u8> = (0..1000u32).flat_map(u32::to_le_bytes).collect();
    store.append(&records, 4, Codec::Raw).unwrap();
    store.sync().unwrap();
    let meta = fs::File::options().write(true).open(path.join("meta.zr")).unwrap();
    for kept in [600, 300, 10, 0] {
        meta.set_len(16 + 16 * kept).unwrap();
        for i in 0..1000 {
            match read(&store, i) {
                Ok(found) => assert!(i < kept && found == (i as u32).to_le_bytes(), "{i} of {kept}"),
                Err(e) => assert!(i >= kept && e.kind() == ErrorKind::Damaged, "{i} of {kept}: {e}"),
            }
        }
        // For writing it does not open; for reading it has what the table still has.
        let e = Store::open(&path).unwrap_err();
        if kept < 1000 && kept > 0 {
            assert!(e.kind() == ErrorKind::Damaged && e.to_string().contains("length"), "{e}");
            let store = Store::open_read_only(&path).unwrap();
            assert_eq!(read(&store, kept - 1).unwrap(), (kept as u32 - 1).to_le_bytes());
            assert_eq!(read(&store, kept).unwrap_err().kind(), ErrorKind::Damaged);
            assert_eq!(store.check_header().unwrap_err().kind(), ErrorKind::Damaged);
            assert_eq!(store.stats().unwrap().damaged, 1000 - kept);
        }
    }
}

#[test]
fn a_table_cut_inside_an_entry_never_gives_another_record() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("s.zr");
    let store = Store::create(&path, Version::V2).unwrap();
    store.append(&vec![7; 300 * 100], 300, Codec::Raw).unwrap();
    store.sync().unwrap();
    let meta = fs::File::options().read(true).write(true).open(path.join("meta.zr")).unwrap();
    let mut whole = vec![0; 16 + 1600];
    meta.read_exact_at(&mut whole, 0).unwrap();
    for bytes in 0..16 {
        meta.set_len(16 + 16 * 60 + bytes).unwrap();
        for store in [&store, &Store::open_read_only(&path).unwrap()] {
            assert_eq!(
                read(store, 60).unwrap_err().kind(),
                ErrorKind::Damaged,
                "{bytes} bytes of it are left"
            );
            assert_eq!(store.location(60).unwrap_err().kind(), ErrorKind::Damaged);
            assert_eq!(store.gather(&[59, 60], &mut [0; 600], 300).unwrap_err().kind(), ErrorKind::Damaged);
            assert_eq!(read(store, 59).unwrap(), [7; 300]);
        }
    }
    meta.set_len(268_435_472).unwrap();
    meta.write_all_at(&whole, 0).unwrap();
    assert_eq!(read(&store, 60).unwrap(), [7; 300], "mended, it reads again");
}

#[test]
fn opening_what_is_no_store_is_an_error_that_names_it_and_creates_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    fs::create_dir(at("empty")).unwrap();
    fs::write(at("file"), "x").unwrap();
    fs::create_dir(at("other")).unwrap();
    fs::write(at("other/meta.zr"), b"ZREC").unwrap();
    fs::create_dir(at("text")).unwrap();
    fs::write(at("text/meta.zr"), "this is not a store at all").unwrap();
    fs::create_dir_all(at("folder/meta.zr")).unwrap();
    fs::create_dir(at("later")).unwrap();
    fs::write(at("later/meta.zr"), b"ZREC\x03\0\0\0\0\0\0\0\0\0\0\0").unwrap();
    for (name, kind) in [
        ("none", ErrorKind::NotFound),
        ("empty", ErrorKind::NotAStore),
        ("file", ErrorKind::NotAStore),
        ("other", ErrorKind::NotAStore),
        ("text", ErrorKind::NotAStore),
        ("folder", ErrorKind::Io),
        ("later", ErrorKind::Version),
    ] {
        for opened in [Store::open(at(name)), Store::open_read_only(at(name))] {
            let e = opened.err().unwrap();
            assert!(e.kind() == kind && e.to_string().contains(name), "{name}: {e:?}");
        }
    }
    assert!(!at("none").exists() && fs::read_dir(at("empty")).unwrap().next().is_none());
}

#[test]
fn reading_changes_nothing_on_disk() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("s.zr");
    small_store(&path);
    let state = || {
        let mut files: Vec<_> = fs::read_dir(&path)
            .unwrap()
            .map(|entry| {
                let meta = entry.as_ref().unwrap().metadata().unwrap();
                (entry.unwrap().file_name(), meta.len(), meta.modified().unwrap())
            })
            .collect();
        files.sort();
        (files, path.metadata().unwrap().modified().unwrap())
    };
    let before = state();
    let store = Store::open_read_only(&path).unwrap();
    for i in 0..store.len() {
        read(&store, i).unwrap();
    }
    store.stats().unwrap();
    for refused in [store.append(b"x", 1, Codec::Raw).map(drop), store.sync(), store.allow_large()] {
        assert_eq!(refused.unwrap_err().kind(), ErrorKind::ReadOnly);
    }
    drop(store);
    assert_eq!(state(), before);
}

#[test]
fn a_small_store_takes_little_disk_and_chunks_end_at_the_frontier() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("s.zr");
    small_store(&path);
    let store = Store::open_read_only(&path).unwrap();
    assert!(store.allocated().unwrap() <= 100 << 10, "{}", store.allocated().unwrap());
    assert_eq!(path.join("meta.zr").metadata().unwrap().len(), 268_435_472);
    assert_eq!(path.join("0.zr").metadata().unwrap().len(), store.stats().unwrap().chunk_bytes);
}

#[test]
fn readers_see_whole_batches_while_many_threads_append() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("s.zr");
    let store = Store::create(&path, Version::V1).unwrap();
    store.set_durability(Durability::EachAppend);
    // Record = its writer, its batch, and a checkable filling.
    let record = |writer: u8, batch: u8, n: u8| {
        let mut record = vec![writer, batch, n];
        record.extend(std::iter::repeat_n(writer ^ batch ^ n, 300 + usize::from(n)));
        record
    };
    let check = |store: &Store| {
        let len = store.len();
        for index in (0..len).step_by(7) {
            let found = read(store, index).unwrap();
            assert_eq!(found, record(found[0], found[1], found[2]), "record {index} of {len}");
        }
        assert!(len.is_multiple_of(20), "part of a batch is visible");
        len
    };
    std::thread::scope(|scope| {
        for writer in 0..4 {
            let store = &store;
            scope.spawn(move || {
                for batch in 0..25 {
                    let records: Vec<_> = (0..20).map(|n| record(writer, batch, n)).collect();
                    let (bytes, offsets, lens) = ragged(&records);
                    let codec = if batch % 2 == 0 { Codec::Raw } else { Codec::default() };
                    let first = store.append_ragged(&bytes, &offsets, &lens, codec).unwrap();
                    for (n, record) in records.iter().enumerate() {
                        assert_eq!(&read(store, first + n as u64).unwrap(), record);
                    }
                }
            });
        }
        // One reader shares the writers' store, one has opened it by itself, as another process would.
        for _ in 0..2 {
            scope.spawn(|| while check(&store) < 2000 {});
            scope.spawn(|| {
                let store = Store::open_read_only(&path).unwrap();
                while check(&store) < 2000 {}
            });
        }
    });
}

#[test]
fn two_openings_append_in_turn_and_never_at_once() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("s.zr");
    let a = Store::create(&path, Version::V1).unwrap();
    let b = Store::open(&path).unwrap();
    for i in 0..10u8 {
        let store = if i % 2 == 0 { &a } else { &b };
        assert_eq!(store.append(&[i], 1, Codec::Raw).unwrap(), u64::from(i));
        store.sync().unwrap();
    }
    for i in 0..10u8 {
        assert_eq!((read(&a, i.into()).unwrap(), read(&b, i.into()).unwrap()), (vec![i], vec![i]));
    }
    let mut appender = a.appender().unwrap();
    appender.append(&[1], 1, Codec::Raw).unwrap();
    let e = b.append(&[2], 1, Codec::Raw).unwrap_err();
    assert!(
        e.kind() == ErrorKind::Busy && e.to_string().contains(&format!("process {}", std::process::id())),
        "{e}"
    );
    appender.commit().unwrap();
    a.sync().unwrap();
    assert_eq!(b.append(&[2], 1, Codec::Raw).unwrap(), 11);
}

#[test]
fn tasks_of_a_callers_pool_gather_delete_and_compact_beside_each_other() {
    use rayon::prelude::*;
    let dir = tempfile::tempdir().unwrap();
    let store = Store::create(dir.path().join("s.zr"), Version::V1).unwrap();
    let records: Vec<u8> = (0..1000u32).flat_map(|i| vec![i as u8; 4000]).collect();
    store.append(&records, 4000, Codec::default()).unwrap();
    store.sync().unwrap();
    // Waiting for the work of one, a thread of the pool may take up another.
    (0..120u32).into_par_iter().with_max_len(1).for_each(|i| match i % 10 {
        5 => drop(store.delete(&[i.into()]).unwrap()),
        7 => drop(store.compact(go).unwrap()),
        _ => {
            let indices: Vec<u64> = (0..900).collect();
            let mut batch = vec![0; 900 * 4000];
            store.gather(&indices, &mut batch, 4000).unwrap();
            assert!(batch.chunks(4000).all(|record| record.iter().all(|&byte| byte == record[0])));
        }
    });
    assert_eq!(store.len(), 1000 - 12);
}

#[test]
fn records_at_the_end_of_a_chunk_roll_over() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("s.zr");
    let mib = 1u32 << 20;
    drop(Store::create(&path, Version::V1).unwrap());
    let frontier = u32::MAX - mib - mib / 2 + 1;
    let patch = |at: u64, bytes: &[u8]| {
        let meta = fs::File::options().write(true).open(path.join("meta.zr")).unwrap();
        meta.write_all_at(bytes, at).unwrap();
    };
    patch(8, &frontier.to_le_bytes());
    fs::File::options().write(true).open(path.join("0.zr")).unwrap().set_len(frontier.into()).unwrap();
    let store = Store::open(&path).unwrap();
    let records: Vec<u8> = (0..3u8).flat_map(|i| vec![i; mib as usize]).collect();
    store.append(&records, mib as usize, Codec::Raw).unwrap();
    store.sync().unwrap();
    let places: Vec<_> =
        (0..3).map(|i| store.location(i).unwrap()).map(|loc| (loc.chunk_id, loc.offset)).collect();
    assert_eq!(places, [(0, frontier), (1, 0), (1, mib)]);
    let found = Store::verify(&path, |_| ()).unwrap();
    assert!(found.is_good() && found.checked == 3, "{found:?}");
    assert_eq!(store.compact(go).unwrap().records_moved, 3);
    assert!(!path.join("1.zr").exists() && path.join("0.zr").metadata().unwrap().len() == 3 << 20);
    assert_eq!(store.read(1).unwrap(), vec![1; mib as usize]);
    drop(store);

    // The last chunk is full, then the last slot is taken.
    patch(6, &[0xff, 0x0f]);
    patch(8, &(u32::MAX - 10).to_le_bytes());
    fs::File::create(path.join("4095.zr")).unwrap().set_len((1 << 32) - 1).unwrap();
    let store = Store::open(&path).unwrap();
    assert_eq!(store.append(&[0; 11], 11, Codec::Raw).unwrap_err().kind(), ErrorKind::Full);
    assert_eq!(store.append(&[0; 5], 5, Codec::Raw).unwrap(), 3);
    drop(store);
    patch(12, &(1u32 << 24).to_le_bytes());
    let store = Store::open(&path).unwrap();
    let e = store.append(&[0; 1], 1, Codec::Raw).unwrap_err();
    assert!(e.kind() == ErrorKind::Full && e.to_string().contains("16777216"), "{e}");
}

#[test]
fn versions_hold_what_they_say() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::create(dir.path().join("s.zr"), Version::V1).unwrap();
    let mib = 1 << 20;
    store.append(&vec![1; mib], mib, Codec::Raw).unwrap();
    assert_eq!(
        store.append(&vec![1; mib + 1], mib + 1, Codec::Raw).unwrap_err().kind(),
        ErrorKind::RecordSize
    );
    assert_eq!(store.append_ragged(&[], &[0], &[0], Codec::Raw).unwrap_err().kind(), ErrorKind::RecordSize);
    store.allow_large().unwrap();
    assert_eq!(store.version(), Version::V2);
    let mut appender = store.appender().unwrap();
    appender.set_version(Version::V1);
    appender.commit().unwrap();
    assert_eq!(store.version(), Version::V2, "it never goes back");
    assert_eq!(store.append(&vec![2; mib + 1], mib + 1, Codec::default()).unwrap(), 1);
    assert_eq!(store.append_ragged(&[], &[0], &[0], Codec::default()).unwrap(), 2);
    store.sync().unwrap();
    let store = Store::open_read_only(store.path()).unwrap();
    assert_eq!((read(&store, 1).unwrap(), read(&store, 2).unwrap()), (vec![2; mib + 1], vec![]));
}

#[test]
fn an_empty_record_can_be_the_first_of_a_store() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::create(dir.path().join("s.zr"), Version::V2).unwrap();
    store.append_ragged(b"ab", &[0, 0, 2], &[0, 2, 0], Codec::Raw).unwrap();
    store.sync().unwrap();
    let store = Store::open(store.path()).unwrap();
    store.check_header().unwrap();
    let all: Vec<_> = (0..3).map(|i| read(&store, i).unwrap()).collect();
    assert_eq!(all, [vec![], b"ab".to_vec(), vec![]]);
    assert_eq!(store.append(b"c", 1, Codec::Raw).unwrap(), 3);
}

#[test]
fn geometry_is_checked_before_anything_is_touched() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::create(dir.path().join("s.zr"), Version::V1).unwrap();
    store.append(b"aaabbb", 3, Codec::Raw).unwrap();
    let mut dst = [9; 6];
    let kind = |result: zrfs::Result<()>| result.unwrap_err().kind();
    assert_eq!(kind(store.gather(&[0, 1], &mut dst, 2)), ErrorKind::Geometry);
    assert_eq!(kind(store.gather(&[0], &mut dst, 2)), ErrorKind::Geometry);
    assert_eq!(kind(store.gather(&[0, 1], &mut dst, 4)), ErrorKind::Geometry);
    assert_eq!(kind(store.gather(&[0, 1], &mut dst, usize::MAX)), ErrorKind::Geometry);
    assert_eq!(kind(store.gather(&[0, 2], &mut dst, 3)), ErrorKind::OutOfRange);
    assert_eq!(kind(store.gather(&[u64::MAX], &mut dst, 3)), ErrorKind::OutOfRange);
    assert_eq!(kind(store.gather_ragged(&[0, 1], &mut dst, &[0, 2])), ErrorKind::Geometry);
    assert_eq!(kind(store.gather_ragged(&[0, 1], &mut dst, &[4, 0])), ErrorKind::Geometry);
    assert_eq!(kind(store.gather_ragged(&[0], &mut dst, &[u64::MAX])), ErrorKind::Geometry);
    assert_eq!(kind(store.gather_ragged(&[0], &mut dst, &[])), ErrorKind::Geometry);
    assert_eq!(kind(store.lengths(&[0], &mut [])), ErrorKind::Geometry);
    assert_eq!(dst, [9; 6]);
    let kind = |result: zrfs::Result<u64>| result.unwrap_err().kind();
    assert_eq!(kind(store.append(b"abcd", 3, Codec::Raw)), ErrorKind::Geometry);
    assert_eq!(kind(store.append(b"abcd", 0, Codec::Raw)), ErrorKind::Geometry);
    assert_eq!(kind(store.append_ragged(b"abcd", &[0, 2], &[2, 3], Codec::Raw)), ErrorKind::Geometry);
    assert_eq!(kind(store.append_ragged(b"abcd", &[u64::MAX], &[2], Codec::Raw)), ErrorKind::Geometry);
    assert_eq!(kind(store.append_ragged(b"abcd", &[0], &[], Codec::Raw)), ErrorKind::Geometry);
    assert_eq!(store.len(), 2);
    store.gather(&[], &mut [], 0).unwrap();
    store.gather(&[1], &mut dst[..3], 3).unwrap();
    assert_eq!(&dst, b"bbb\x09\x09\x09");
}
