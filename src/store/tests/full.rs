//! Stores that have no room for what is appended.

use super::*;

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
    let is_change = |op: &Op| matches!(op, Op::Write { file, .. } if !file.starts_with(".zrfs"));
    assert_eq!(script.take().iter().filter(|op| is_change(op)).count(), 0);
    assert!(store.append(&[1; 9], 9, Codec::Raw).is_ok());
    store.sync().unwrap();

    let full = Header { length: crate::format::MAX_RECORDS, tail_offset: u32::MAX, ..header };
    drop(store);
    let store = Store::open(dir.path()).unwrap();
    store.meta.write_header(&full).unwrap();
    drop(store);
    // Without what knows better.
    std::fs::remove_dir_all(dir.path().join(".zrfs")).unwrap();
    // Open it anew: the scan for records behind the frontier meets empty entries only.
    let store = Store::open(dir.path()).unwrap();
    assert_eq!(store.append(&[1; 9], 9, Codec::Raw).unwrap_err().kind(), ErrorKind::Full);
}

#[test]
fn what_is_full_in_the_middle_of_a_batch_commits_none_of_it() {
    const LEN: u32 = 60 << 20;
    let dir = tempfile::tempdir().unwrap();
    let store = Store::create(dir.path(), Version::V2).unwrap();
    let last = crate::format::MAX_CHUNKS - 1;
    let header =
        Header { version: Version::V2, tail_chunk: last, tail_offset: u32::MAX - LEN - 9, length: 0 };
    store.meta.write_header(&header).unwrap();
    store.dir.create(&chunks::name(last)).unwrap().set_len(u64::from(header.tail_offset)).unwrap();
    // Packed and placed one after the other, as together they are too long.
    let src = vec![5; LEN as usize];
    let mut appender = store.appender().unwrap();
    let e = appender.append_ragged(&src, &[0, 0], &[LEN, LEN], Codec::Raw).unwrap_err();
    assert_eq!(e.kind(), ErrorKind::Full);
    assert!(appender.append(&[1; 3], 3, Codec::Raw).is_err(), "it has failed");
    assert!(appender.commit().is_err());
    assert_eq!(store.len(), 0);

    let mut appender = store.appender().unwrap();
    assert_eq!(appender.append(&src[..1 << 26 >> 1], 1, Codec::Raw).unwrap_err().kind(), ErrorKind::Full);
    appender.append(&[1; 3], 3, Codec::Raw).unwrap();
    assert_eq!(appender.commit().unwrap(), 0);
    assert_eq!(read(&store, 0), [1; 3]);
}
