//! Stores that are opened, created and forked while others do the same.

use std::sync::Barrier;
use std::sync::atomic::AtomicBool;

use super::*;
use crate::storage::own_process::{self, Child, Ends};

#[test]
fn what_is_not_there_is_created_with_its_folders_and_beside_other_files() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a/b/s.zr");
    let store = Store::open_or_create(&path, Version::V1).unwrap();
    store.append(b"abc", 3, Codec::Raw).unwrap();
    drop(store);
    assert_eq!(read(&Store::open_or_create(&path, Version::V2).unwrap(), 0), b"abc");

    let beside = dir.path().join("beside.zr");
    std::fs::create_dir(&beside).unwrap();
    std::fs::write(beside.join("schema.json"), "{}").unwrap();
    assert!(Store::open_or_create(&beside, Version::V1).unwrap().is_empty());
}

#[test]
fn chunks_without_a_table_are_not_written_over() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("0.zr"), "what was").unwrap();
    let e = Store::open_or_create(dir.path(), Version::V1).unwrap_err();
    assert_eq!(e.kind(), ErrorKind::Damaged, "{e}");
    assert_eq!(std::fs::read(dir.path().join("0.zr")).unwrap(), b"what was");
    assert!(!dir.path().join("meta.zr").exists());
}

#[test]
fn of_many_that_create_one_store_all_get_it() {
    let dir = tempfile::tempdir().unwrap();
    for round in 0..20 {
        let path = dir.path().join(format!("{round}/s.zr"));
        let start = Barrier::new(4);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    start.wait();
                    Store::open_or_create(&path, Version::V1).unwrap()
                });
            }
        });
    }
}

#[test]
fn equal_records_fill_a_batch_or_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let store = create(dir.path(), &Script::default());
    store.append_ragged(b"abcdefgh", &[0, 3, 6], &[3, 3, 2], Codec::Raw).unwrap();
    let mut batch = [0; 6];
    store.gather_equal(&[1, 0], &mut batch, 3).unwrap();
    assert_eq!(&batch, b"defabc");
    assert_eq!(store.gather_equal(&[0, 2], &mut batch, 3).unwrap_err().kind(), ErrorKind::Geometry);
    store.gather(&[0, 2], &mut batch, 3).unwrap();
}

#[test]
fn a_child_gathers_whatever_the_threads_of_its_parent_were_doing() {
    if !own_process::is_here(
        "store::tests::opening::a_child_gathers_whatever_the_threads_of_its_parent_were_doing",
    ) {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let source: Vec<u8> = (0..255).cycle().take(64 << 10).collect();
    let first = Store::create(dir.path().join("s.zr"), Version::V1).unwrap();
    first.append(&source, 1 << 10, Codec::default()).unwrap();
    first.sync().unwrap();
    let indices: Vec<u64> = (0..64).collect();
    let gathers = |store: &Store| {
        let mut batch = vec![0; 64 << 10];
        store.gather(&indices, &mut batch, 1 << 10).is_ok() && batch == source
    };
    for round in 0..200 {
        // Each round opens its chunk anew, in several threads, while the fork comes.
        let store = if round % 4 == 0 {
            Store::open(first.path()).unwrap()
        } else {
            Store::open_read_only(first.path()).unwrap()
        };
        let done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let _ends = Ends(&done);
            for _ in 0..2 {
                scope.spawn(|| {
                    while !done.load(Ordering::SeqCst) {
                        assert!(gathers(&store));
                    }
                });
            }
            scope.spawn(|| {
                while !done.load(Ordering::SeqCst) {
                    let _ = store.append(b"x", 1, Codec::Raw);
                    let _ = store.sync();
                }
            });
            drop(Child::new(|| {
                let refused =
                    store.append(b"y", 1, Codec::Raw).is_err_and(|e| e.kind() == ErrorKind::ReadOnly);
                refused && gathers(&store)
            }));
        });
    }
}
