//! Hostile bytes, flipped bits, files that are cut or missing: errors, and never another record's bytes.

use std::fs;
use std::os::unix::fs::FileExt;

use proptest::prelude::*;
use zrfs::{Codec, ErrorKind, Store, Version};

use super::{go, read, small_store};

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

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
