//! Records in and out.

use std::fs;
use std::thread;
use std::time::Duration;

use super::*;
use crate::format::Version;
use crate::store::Store;

#[test]
fn records_come_back_as_they_went_in() {
    let (_folder, path) = folder();
    let zr = Handle::open(&path);
    let src: Vec<u8> = (0..100).flat_map(|i| [i; 50]).collect();
    assert_eq!(zr.append(&src, 50), 0);
    let (_, deflated, _) = zr.stats();
    assert!(deflated < 100 * 50, "{deflated} bytes: it is not deflated");
    assert_eq!(zr.append_as(&src, 2, 50, 50, 0), 100);
    assert_eq!(zr.append_as(&src, 2, 50, 50, 200), 102, "an unknown codec is raw");
    assert_eq!(zr.append_as(&src, 0, 7, 0, 1), 104, "no record: the length");
    assert_eq!(zr.stats(), (104, deflated + 4 * 50, deflated + 4 * 50));

    let mut dst = [7; 130];
    assert_eq!(zr.gather(&[99, 3, 103], &mut dst[..2 * 40 + 50], 40), -6, "longer than the stride");
    assert_eq!(zr.gather(&[99, 3], &mut dst, 60), 0);
    let expected = [[99; 50].as_slice(), &[7; 10], &[3; 50], &[7; 20]].concat();
    assert_eq!(dst.as_slice(), expected);
    assert_eq!(zr.gather(&[1, 3], &mut dst[..109], 60), -6);
    assert!(last().contains("109 bytes"), "{}", last());
    assert_eq!(zr.gather(&[1, 104], &mut dst, 50), -3);
    assert_eq!(zr.gather(&[u64::MAX], &mut dst, 50), -3);
    assert!(last().contains("no record 18446744073709551615"), "{}", last());
    assert_eq!(zr.gather(&[1], &mut dst, usize::MAX), 0);
    assert_eq!(zr.gather(&[1, 1], &mut dst, usize::MAX), -6);
    assert_eq!(zr.gather(&[], &mut [], 0), 0);

    let mut lens = [0; 2];
    assert_eq!((zr.lengths(&[5, 101], &mut lens), lens), (0, [50, 50]));
    assert_eq!(zr.lengths(&[5, 104], &mut lens), -3);
    assert_eq!(zr_max_record_len(), 1 << 20);
}

#[test]
fn ragged_and_strided_records() {
    let (_folder, path) = folder();
    let zr = Handle::open(&path);
    // They may overlap where they come from, and not where they go.
    assert_eq!(zr.append_var(b"abcdef", &[4, 0, 1], &[2, 1, 3]), 0);
    let mut lens = [0; 3];
    assert_eq!((zr.lengths(&[0, 1, 2], &mut lens), lens), (0, [2, 1, 3]));
    let mut dst = *b"..........";
    assert_eq!(zr.gather_var(&[2, 0, 0, 1], &mut dst, &[5, 0, 2, 9]), 0);
    assert_eq!(&dst, b"efef.bcd.a");
    assert_eq!(zr.gather_var(&[2, 0], &mut dst, &[5, 6]), -6);
    assert_eq!(zr.gather_var(&[2], &mut dst, &[8]), -6);
    assert_eq!(zr.gather_var(&[2], &mut dst, &[u64::MAX]), -6);
    assert_eq!(zr.gather_var(&[3], &mut dst, &[0]), -3);
    assert_eq!(zr.gather_var(&[], &mut [], &[]), 0);

    assert_eq!(zr.append_as(b"ab.cd.ef", 3, 3, 2, 1), 3);
    assert_eq!(zr.append_as(b"gh", 2, 0, 2, 1), 6, "the same bytes twice");
    let mut dst = [0; 10];
    assert_eq!(zr.gather(&[3, 4, 5, 6, 7], &mut dst, 2), 0);
    assert_eq!(&dst, b"abcdefghgh");
    // More than are packed at a time.
    assert_eq!(zr.append_as(&[b"x".repeat(2), b"yz".repeat(70_000)].concat(), 70_001, 2, 1, 0), 8);
    let mut dst = [0; 4];
    assert_eq!(zr.gather(&[8, 9, 8 + (1 << 16), 70_008], &mut dst, 1), 0);
    assert_eq!((&dst, zr.len()), (b"xyyy", 70_009));
}

#[test]
fn appends_are_checked_in_loaderxs_order_before_anything_is_created() {
    let (_folder, path) = folder();
    let zr = Handle::open(&path);
    let mib = 1 << 20;
    // (bytes of src, n, stride, item_len) and the code
    let cases = [
        (10, 1, 0, 0, -4),
        (10, 1, 1, mib + 1, -4),
        (10, usize::MAX, 1, mib + 1, -4),
        (10, 2, 6, 5, -6),
        (10, 2, usize::MAX, 5, -6),
        (10, usize::MAX, usize::MAX, 5, -6),
        (10, usize::MAX, 5, 5, -6),
        (0, 1, 1, 1, -6),
        (10, (1 << 24) + 1, 0, 5, -5),
        (10, usize::MAX, 0, 5, -5),
    ];
    for (bytes, n, stride, item_len, code) in cases {
        let got = zr.append_as(&vec![1; bytes], n, stride, item_len, 1);
        assert_eq!(got, code, "{n} of {item_len} bytes, {stride} apart, in {bytes}");
    }
    assert_eq!(zr.append_var(b"ab", &[0, 3], &[1, 0]), -4);
    assert_eq!(zr.append_var(b"ab", &[0, 3], &[1, 1]), -6);
    assert_eq!(zr.append_var(b"ab", &[u64::MAX], &[1]), -6);
    let many = vec![0; (1 << 24) + 1];
    assert_eq!(zr.append_var(b"ab", &many, &vec![1; many.len()]), -5);
    assert!(!path.exists(), "a refused append has created the store");
    assert_eq!(zr.append(&vec![3; mib], mib), 0);
    assert_eq!(zr.append(&vec![3; 2 * (mib + 1)], mib + 1), -4);
}

#[test]
fn a_store_of_version_2_takes_its_own_sizes() {
    let (_folder, path) = folder();
    drop(Store::create(&path, Version::V2).unwrap());
    let zr = Handle::open(&path);
    assert_eq!(zr.append_as(&[], 3, 0, 0, 1), 0);
    let large = vec![5; (1 << 20) + 1];
    assert_eq!(zr.append(&large, large.len()), 3);
    let mut lens = [0; 2];
    assert_eq!((zr.lengths(&[2, 3], &mut lens), lens), (0, [0, (1 << 20) + 1]));
    assert_eq!(zr.append_as(&[], usize::MAX, 0, 0, 1), -5);
}

#[test]
fn damage_has_its_code() {
    let (_folder, path) = folder();
    let zr = Handle::open(&path);
    assert_eq!(zr.append(&[1; 300], 100), 0);
    drop(zr);
    let chunk = path.join("0.zr");
    let bytes = fs::read(&chunk).unwrap();
    fs::write(&chunk, &bytes[..bytes.len() - 1]).unwrap();
    let zr = Handle::open(&path);
    let mut dst = [0; 100];
    assert_eq!((zr.gather(&[0], &mut dst, 100), dst), (0, [1; 100]));
    assert_eq!(zr.gather(&[2], &mut dst, 100), -7);
    assert!(last().contains("record 2"), "{}", last());
    fs::remove_file(&chunk).unwrap();
    drop(zr);
    let zr = Handle::open(&path);
    assert_eq!(zr.gather_var(&[0], &mut dst, &[0]), -7);
    assert!(last().contains("0.zr is missing"), "{}", last());
}

#[test]
fn who_holds_appends_that_are_not_synced_is_waited_for() {
    let (_folder, path) = folder();
    let (first, second) = (Handle::open(&path), Handle::open(&path));
    assert_eq!(first.append(b"a", 1), 0);
    assert_eq!(second.append(b"b", 1), -2);
    assert!(last().contains(&format!("process {}", std::process::id())), "{}", last());
    thread::scope(|scope| {
        let waiting = scope.spawn(|| second.append_as(b"bx", 1, 2, 1, 0));
        thread::sleep(Duration::from_millis(100));
        assert_eq!(first.append(b"A", 1), 1);
        assert_eq!(first.sync(), 0);
        assert_eq!(waiting.join().unwrap(), 2);
    });
    assert_eq!(second.append_var(b"cc", &[0, 1], &[1, 1]), 3);
    // Closing syncs.
    drop(second);
    assert_eq!(first.all(), b"aAbcc");
}

#[test]
fn a_delete_waits_for_nobody_and_says_who_is_in_the_way() {
    let (_folder, path) = folder();
    let zr = Handle::open(&path);
    assert_eq!(zr.append(b"abcdef", 1), 0);
    assert_eq!(zr.sync(), 0);
    let other = Handle::open(&path);
    for code in [zr.delete(&[1]), zr.compact()] {
        assert_eq!(code, -2);
        assert!(last().contains(&format!("process {}", std::process::id())), "{}", last());
    }
    drop(other);
    assert_eq!(zr.delete(&[6, 1]), -3);
    assert_eq!(zr.all(), b"abcdef");
    assert_eq!(zr.delete(&[1, 5, 1]), 0);
    assert_eq!(zr.all(), b"aecd");
    let before = zr.stats();
    assert_eq!(zr.compact(), 0);
    assert_eq!((before, zr.stats(), zr.all()), ((4, 4, 6), (4, 4, 4), b"aecd".to_vec()));
}
