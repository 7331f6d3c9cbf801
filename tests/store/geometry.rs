//! Lengths, limits and versions.

use std::fs;
use std::os::unix::fs::FileExt;

use zrfs::{Codec, ErrorKind, Store, Version};

use super::{go, read, small_store};

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
