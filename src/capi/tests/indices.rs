//! Streams of indices.

use std::ptr::null_mut;

use super::*;

#[test]
fn index_streams() {
    let batch = |s: *mut Indices, room: usize| {
        let mut out = vec![u64::MAX; room];
        // SAFETY: a stream, and a slice of that length.
        unsafe { cnext(s, out.as_mut_ptr(), room) };
        out
    };
    let s = cinit(10, 4, 1, 42);
    assert_eq!(
        (batch(s, 4), batch(s, 4), batch(s, 4)),
        (vec![5, 4, 4, 6], vec![1, 7, 1, 2], vec![1, 8, 6, 1])
    );
    // SAFETY: it comes from cinit.
    unsafe { cdeinit(s) };
    let s = cinit(10, 4, 0, 0);
    assert_eq!(batch(s, 2), [0, 1], "as much as there is room for");
    assert_eq!(batch(s, 6), [4, 5, 6, 7, u64::MAX, u64::MAX], "no more than a batch");
    assert!(batch(s, 0).is_empty());
    // SAFETY: a stream; the pointer is looked at in neither call.
    unsafe {
        cnext(s, null_mut(), 0);
        cnext(s, null_mut(), 4);
    }
    assert!(last().contains("indices_ptr is NULL"), "{}", last());
    assert_eq!(batch(s, 4), [6, 7, 8, 9], "a refused call does not go on");
    // SAFETY: it comes from cinit; NULL is let pass.
    unsafe {
        cdeinit(s);
        cdeinit(null_mut());
        cnext(null_mut(), [0u64; 1].as_mut_ptr(), 1);
    }
    for (length, batch_size, mode) in [(0, 4, 1), (10, 0, 1), (10, 4, 3), (10, 4, 255)] {
        assert!(cinit(length, batch_size, mode, 1).is_null(), "{length} {batch_size} {mode}");
    }
    let s = cinit(7, 7, 2, 1);
    let mut pass = batch(s, 7);
    pass.sort_unstable();
    // SAFETY: it comes from cinit.
    unsafe { cdeinit(s) };
    assert_eq!(pass, [0, 1, 2, 3, 4, 5, 6]);
    let s = cinit(7, 1 << 60, 0, 1);
    if !s.is_null() {
        assert_eq!(batch(s, 1), [u64::MAX], "no memory: nothing is written");
        // SAFETY: it comes from cinit.
        unsafe { cdeinit(s) };
    }
}
