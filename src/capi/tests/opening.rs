//! What `zr_open` finds, and what it leaves alone.

use std::fs;
use std::ptr::{null, null_mut};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use super::*;
use crate::codec::Codec;
use crate::error::ErrorKind;
use crate::format::Version;
use crate::store::Store;

#[test]
fn nothing_is_created_before_the_first_append() {
    let (folder, path) = folder();
    let inner = path.join("a/b");
    for path in [&inner, &folder.path().to_path_buf()] {
        let zr = Handle::open(path);
        assert_eq!((zr.len(), zr.stats(), zr.sync(), zr.compact()), (0, (0, 0, 0), 0, 0));
        assert_eq!((zr.gather(&[], &mut [], 1), zr.gather_var(&[], &mut [], &[]), zr.delete(&[])), (0, 0, 0));
        assert_eq!((zr.gather(&[0], &mut [0], 1), zr.gather_var(&[0], &mut [0], &[0])), (-3, -3));
        assert_eq!((zr.lengths(&[0], &mut [0]), zr.delete(&[0])), (-3, -3));
        assert!(last().contains("there is no store"), "{}", last());
        assert_eq!(zr.append_as(&[], 0, 0, 0, 0), 0);
    }
    assert_eq!(fs::read_dir(&folder).unwrap().count(), 0);

    let (first, second) = (Handle::open(&inner), Handle::open(&inner));
    assert_eq!(first.append(b"ab", 1), 0);
    assert_eq!(first.sync(), 0);
    assert_eq!(Store::open_read_only(&inner).unwrap().version(), Version::V1);
    // The other one finds it.
    assert_eq!((second.len(), second.all()), (2, b"ab".to_vec()));
    assert_eq!(second.append(b"c", 1), 2);
    drop(second);
    assert_eq!(first.all(), b"abc");
}

#[test]
fn other_files_in_the_folder_stay() {
    let (_folder, path) = folder();
    fs::create_dir(&path).unwrap();
    fs::write(path.join("schema.json"), "{}").unwrap();
    let zr = Handle::open(&path);
    assert_eq!(zr.append(b"a", 1), 0);
    assert_eq!(fs::read(path.join("schema.json")).unwrap(), b"{}");
}

#[test]
fn what_is_no_store_is_refused() {
    let (folder, path) = folder();
    let file = folder.path().join("file");
    fs::write(&file, "x").unwrap();
    assert_eq!(try_open(&file).err(), Some(-8));
    assert_eq!(try_open(&file.join("below")).err(), Some(-8));
    assert_eq!(try_open(Path::new("")).err(), Some(-6));
    assert_eq!(try_open(Path::new("a\0b")).err(), Some(-2));
    // SAFETY: neither pointer is looked at.
    assert!(unsafe { zr_open(null(), 3, null_mut()) }.is_null());
    assert!(last().contains("path_ptr is NULL"), "{}", last());

    drop(Store::create(&path, Version::V1).unwrap());
    let meta = path.join("meta.zr");
    let good = fs::read(&meta).unwrap()[..16].to_vec();
    for (at, byte) in [(0, b'X'), (4, 9), (5, 1), (7, 0xff), (15, 0xff)] {
        let mut header = good.clone();
        header[at] = byte;
        fs::write(&meta, header).unwrap();
        assert_eq!(try_open(&path).err(), Some(-8), "byte {at}");
    }
    for short in [0, 15] {
        fs::write(&meta, &good[..short]).unwrap();
        assert_eq!(try_open(&path).err(), Some(-8), "{short} bytes");
    }
    fs::remove_file(&meta).unwrap();
    assert_eq!(try_open(&path).err(), Some(-8));
    assert!(last().contains("no meta.zr"), "{}", last());
    assert_eq!(fs::read_dir(&path).unwrap().count(), 1);
}

#[test]
fn where_writing_is_refused_it_reads() {
    let (_folder, path) = folder();
    let zr = Handle::open(&path);
    assert_eq!(zr.append(b"abcd", 1), 0);
    drop(zr);
    // Room for three of the four entries.
    fs::OpenOptions::new().write(true).open(path.join("meta.zr")).unwrap().set_len(16 + 3 * 16).unwrap();
    let zr = Handle::open(&path);
    let mut dst = [0; 3];
    assert_eq!((zr.gather(&[0, 1, 2], &mut dst, 1), &dst), (0, b"abc"));
    assert_eq!(zr.gather(&[3], &mut dst, 1), -7);
    for code in [zr.append(b"e", 1), zr.delete(&[0]).into(), zr.compact().into()] {
        assert_eq!(code, -7);
        assert!(last().contains("reading only") && last().contains("field length"), "{}", last());
    }
    assert_eq!(zr.sync(), 0);
    assert_eq!(zr.append_as(&[], 0, 0, 0, 0), 4);
}

#[test]
fn many_may_create_a_store_at_once() {
    for _ in 0..40 {
        let (_folder, path) = folder();
        thread::scope(|scope| {
            for byte in *b"abc" {
                let path = &path;
                scope.spawn(move || {
                    let zr = Handle::open(path);
                    let first = zr.append(&[byte], 1);
                    assert!((0..3).contains(&first), "{first}: {}", last());
                    assert_eq!(zr.sync(), 0);
                });
            }
        });
        let mut all = Handle::open(&path).all();
        all.sort_unstable();
        assert_eq!(all, b"abc");
    }
}

#[test]
fn an_opening_waits_for_who_changes_the_store_and_can_write_then() {
    let (_folder, path) = folder();
    let store = Store::create(&path, Version::V1).unwrap();
    store.append(&[1; 1000], 1, Codec::Raw).unwrap();
    store.sync().unwrap();
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let changes = scope.spawn(|| {
            let mut done = 0;
            while !stop.load(Ordering::Relaxed) {
                match store.delete(&[3]) {
                    Ok(_) => done += 1,
                    Err(e) => assert_eq!(e.kind(), ErrorKind::Busy, "{e}"),
                }
                thread::sleep(Duration::from_millis(3));
            }
            done
        });
        for _ in 0..100 {
            let zr = Handle::open(&path);
            assert_eq!(zr.compact(), -2, "the other one has it open");
            assert!(!last().contains("reading only"), "{}", last());
            drop(zr);
            thread::sleep(Duration::from_millis(3));
        }
        stop.store(true, Ordering::Relaxed);
        assert!(changes.join().unwrap() > 0);
    });
}
