//! Descriptors that a child process is not to inherit.

/// Marks every descriptor but the three standard ones to be closed when a program is started.
///
/// For a daemon, which would otherwise hold its caller's files, locks and pipes open. Does nothing on kernels before
/// 5.11.
pub fn keep_from_children() {
    // SAFETY: with this flag the call closes nothing; it sets a flag on descriptors, whoever owns them.
    unsafe { libc::close_range(3, libc::c_uint::MAX, libc::CLOSE_RANGE_CLOEXEC.cast_signed()) };
}
