//! Pointers that are none, codes, and the text of the last failure.

use std::ptr::{null, null_mut};
use std::thread;

use super::*;
use crate::capi::errors::{Code, guard, guard_code};
use crate::error::{Error, ErrorKind};

#[test]
#[allow(clippy::cognitive_complexity, reason = "a list")]
fn null_and_misaligned_pointers_are_refused() {
    let (_folder, path) = folder();
    let zr = Handle::open(&path);
    assert_eq!(zr.append(b"abcd", 1), 0);
    let at = zr.0;
    let mut lens = [0u32; 4];
    let mut dst = [0u8; 8];
    let idxs = [0u64; 4];
    let odd = idxs.as_ptr().cast::<u8>().wrapping_add(1).cast::<u64>();
    let (no_idxs, no_lens) = (null::<u64>(), null::<u32>());
    // SAFETY: what is looked at is there.
    unsafe {
        assert_eq!(zr_lengths(at, no_idxs, 1, lens.as_mut_ptr()), -6);
        assert_eq!(zr_lengths(at, idxs.as_ptr(), 1, null_mut()), -6);
        assert_eq!(zr_lengths(at, odd, 1, lens.as_mut_ptr()), -6);
        assert!(last().contains("not aligned"), "{}", last());
        assert_eq!(zr_lengths(at, idxs.as_ptr(), usize::MAX / 8, lens.as_mut_ptr()), -6);
        assert_eq!(zr_lengths(at, null(), 0, null_mut()), 0);
        assert_eq!(zr_gather(at, no_idxs, 1, dst.as_mut_ptr(), 8, 1), -6);
        assert_eq!(zr_gather(at, idxs.as_ptr(), 1, null_mut(), 8, 1), -6);
        assert_eq!(zr_gather(at, idxs.as_ptr(), 1, null_mut(), 0, 1), -6);
        assert_eq!(zr_gather(at, idxs.as_ptr(), 1, dst.as_mut_ptr(), usize::MAX, 1), -6);
        assert_eq!(zr_gather(at, odd, 1, dst.as_mut_ptr(), 8, 1), -6);
        assert_eq!(zr_gather(at, null(), 0, null_mut(), 0, 0), 0);
        assert_eq!(zr_gather_var(at, idxs.as_ptr(), 1, dst.as_mut_ptr(), 8, no_idxs), -6);
        assert_eq!(zr_gather_var(at, idxs.as_ptr(), 1, dst.as_mut_ptr(), 8, odd), -6);
        assert_eq!(zr_gather_var(at, null(), 0, null_mut(), 0, null()), 0);
        assert_eq!(zr_append(at, null(), 4, 4, 1, 1, 0), -6);
        assert_eq!(zr_append(at, null(), 0, 1, 1, 1, 0), -6);
        assert_eq!(zr_append(at, dst.as_ptr(), isize::MAX as usize + 1, 1, 1, 1, 0), -6);
        assert_eq!(zr_append(at, null(), 0, 0, 0, 0, 0), 4);
        assert_eq!(zr_append_var(at, dst.as_ptr(), 8, 1, no_idxs, lens.as_ptr(), 0), -6);
        assert_eq!(zr_append_var(at, dst.as_ptr(), 8, 1, idxs.as_ptr(), no_lens, 0), -6);
        assert_eq!(zr_append_var(at, dst.as_ptr(), 8, usize::MAX, idxs.as_ptr(), lens.as_ptr(), 0), -6);
        assert_eq!(zr_append_var(at, null(), 0, 0, null(), null(), 0), 4);
        assert_eq!(zr_delete(at, no_idxs, 1), -6);
        assert_eq!(zr_delete(at, odd, 1), -6);
        assert_eq!(zr_delete(at, null(), 0), 0);
        zr_stats(at, null_mut(), null_mut(), null_mut());
        assert_eq!(zr.all(), b"abcd");

        let none = null_mut();
        let mut count = 9;
        zr_stats(none, &raw mut count, null_mut(), null_mut());
        assert_eq!((zr_len(none), zr_sync(none), count), (0, -2, 0));
        assert!(last().contains("zr is NULL"), "{}", last());
        assert_eq!(zr_lengths(none, idxs.as_ptr(), 1, lens.as_mut_ptr()), -2);
        assert_eq!(zr_gather(none, idxs.as_ptr(), 1, dst.as_mut_ptr(), 8, 1), -2);
        assert_eq!(zr_gather_var(none, idxs.as_ptr(), 1, dst.as_mut_ptr(), 8, idxs.as_ptr()), -2);
        assert_eq!(zr_append(none, dst.as_ptr(), 8, 8, 1, 1, 0), -2);
        assert_eq!(zr_append_var(none, dst.as_ptr(), 8, 1, idxs.as_ptr(), lens.as_ptr(), 0), -2);
        assert_eq!((zr_delete(none, idxs.as_ptr(), 1), zr_compact(none)), (-2, -2));
        zr_close(none);
    }
}

#[test]
fn every_kind_of_error_has_its_code() {
    let code = |kind| Code::of(&Error::new(kind, "")).number();
    assert_eq!(code(ErrorKind::Memory), -1);
    for kind in [ErrorKind::Io, ErrorKind::Busy, ErrorKind::ReadOnly, ErrorKind::NotFound, ErrorKind::Exists]
    {
        assert_eq!(code(kind), -2);
    }
    assert_eq!(code(ErrorKind::OutOfRange), -3);
    assert_eq!(code(ErrorKind::RecordSize), -4);
    assert_eq!(code(ErrorKind::Full), -5);
    assert_eq!(code(ErrorKind::Geometry), -6);
    assert_eq!(code(ErrorKind::Damaged), -7);
    assert_eq!((code(ErrorKind::NotAStore), code(ErrorKind::Version)), (-8, -8));
    assert_eq!(Code::of_opening(&Error::new(ErrorKind::Damaged, "")), Code::NotAStore);
    assert_eq!(Code::of_opening(&Error::new(ErrorKind::Io, "")), Code::Io);
}

#[test]
fn a_panic_is_a_code_and_its_text_is_the_threads_own() {
    thread::spawn(|| {
        assert!(zr_last_error().is_null(), "another thread's text");
        assert_eq!(guard_code(|| panic!("at {}", "once")), -2);
        assert!(last().contains("at once") && last().contains("panicked"), "{}", last());
        assert_eq!(guard_code(|| Ok(())), 0);
        assert!(last().contains("at once"), "success has changed the text");
        assert_eq!(guard(|_| 5, || Err(Error::new(ErrorKind::Full, "a\0b"))), 5);
        assert_eq!(last(), "ab");
    })
    .join()
    .unwrap();
}
