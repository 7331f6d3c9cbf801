//! Handles in forked children.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use super::*;
use crate::storage::own_process::{self, Child};

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
        stop.store(true, Ordering::Relaxed);
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
