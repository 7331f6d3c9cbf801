//! Handles in forked children.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use super::*;
use crate::storage::own_process::{self, Child, Ends};

#[test]
fn a_forked_child_reads_and_closes_what_it_inherited() {
    if !own_process::is_here("capi::tests::forks::a_forked_child_reads_and_closes_what_it_inherited") {
        return;
    }
    let (_folder, path) = folder();
    let zr = Handle::open(&path);
    let src: Vec<u8> = (0..2000).flat_map(|i| [i as u8; 100]).collect();
    assert_eq!(zr.append(&src, 100), 0);
    let idxs: Vec<u64> = (0..2000).rev().collect();
    let expected: Vec<u8> = (0..2000).rev().flat_map(|i| [i as u8; 100]).collect();
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let _ends = Ends(&stop);
        // Threads that a child does not have, in the middle of reading and of appending.
        scope.spawn(|| {
            let mut dst = vec![0; src.len()];
            while !stop.load(Ordering::Relaxed) {
                assert_eq!(zr.gather(&idxs, &mut dst, 100), 0);
            }
        });
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                assert!(zr.append(b"x", 1) > 0);
            }
        });
        for _ in 0..20 {
            let in_child = || {
                // SAFETY: ends the child where it hangs.
                unsafe { libc::alarm(20) };
                let mut dst = vec![0; src.len()];
                let read = zr.gather(&idxs, &mut dst, 100) == 0 && dst == expected;
                let refused = zr.append(b"y", 1) == -2 && zr.delete(&[0]) == -2 && zr.sync() == -2;
                // SAFETY: the child ends without dropping the handle.
                unsafe { zr_close(zr.0) };
                let own = Handle::open(&path);
                read && refused && own.gather(&[], &mut [], 1) == 0
            };
            drop(Child::new(in_child));
        }
    });
    assert_eq!(zr.sync(), 0);
}

#[test]
fn a_child_opens_what_its_parent_had_not_found() {
    if !own_process::is_here("capi::tests::forks::a_child_opens_what_its_parent_had_not_found") {
        return;
    }
    let (_folder, path) = folder();
    let zr = Handle::open(&path);
    drop(Child::new(|| zr.len() == 0 && zr.append(b"ab", 1) == 0 && zr.sync() == 0));
    assert_eq!(zr.all(), b"ab");
}

#[test]
fn a_child_closes_what_its_parent_was_changing() {
    if !own_process::is_here("capi::tests::forks::a_child_closes_what_its_parent_was_changing") {
        return;
    }
    let (_folder, path) = folder();
    let zr = Handle::open(&path);
    assert_eq!(zr.append(&[7; 300], 100), 0);
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let _ends = Ends(&stop);
        // One changes what the store's mutex guards, all the time, and now and then has the store alone.
        scope.spawn(|| {
            for i in 0.. {
                assert!(zr.append(&[8; 100], 100) > 0);
                assert_eq!(zr.sync(), 0);
                if i % 50 == 0 {
                    // Refused while a child has the store open.
                    assert!([0, -2].contains(&zr.delete(&[3])), "{}", last());
                }
                if stop.load(Ordering::Relaxed) {
                    break;
                }
            }
        });
        for _ in 0..1500 {
            drop(Child::new(|| {
                // SAFETY: ends the child where it hangs.
                unsafe { libc::alarm(20) };
                let mut dst = [0; 300];
                let code = zr.gather(&[2, 0, 1], &mut dst, 100);
                let right = match code {
                    0 => dst == [7; 300],
                    // It had the store alone.
                    _ => code == -2 && last().contains("was being changed when this process was forked"),
                };
                // SAFETY: the child ends without dropping the handle.
                unsafe { zr_close(zr.0) };
                right
            }));
        }
    });
}
