//! Descriptors that a child process is not to inherit, and those that this one has inherited.

use std::io;
use std::os::fd::{FromRawFd, OwnedFd, RawFd};

/// Marks every descriptor but the three standard ones to be closed when a program is started.
///
/// For a daemon, which would otherwise hold its caller's files, locks and pipes open. Does nothing on kernels before
/// 5.11.
pub fn keep_from_children() {
    // SAFETY: with this flag the call closes nothing; it sets a flag on descriptors, whoever owns them.
    unsafe { libc::close_range(3, libc::c_uint::MAX, libc::CLOSE_RANGE_CLOEXEC.cast_signed()) };
}

/// A duplicate of the descriptor that whoever started the program has opened under `number`.
///
/// # Errors
/// Where nothing is open under it.
pub fn duplicate(number: RawFd) -> io::Result<OwnedFd> {
    // SAFETY: duplicating takes a number, and fails for one under which nothing is open.
    match unsafe { libc::fcntl(number, libc::F_DUPFD_CLOEXEC, 3) } {
        -1 => Err(io::Error::last_os_error()),
        // SAFETY: the new descriptor is nobody else's.
        new => Ok(unsafe { OwnedFd::from_raw_fd(new) }),
    }
}
