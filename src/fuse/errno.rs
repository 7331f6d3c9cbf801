//! The one place where an error becomes an errno.

use fuser::Errno;

use crate::error::{Error, ErrorKind};

/// What a program that reads the mount is told.
pub(super) fn errno(e: &Error) -> Errno {
    match e.kind() {
        // A number out of range names no file any more; damage and refusals of the disk are the same to a reader.
        ErrorKind::NotFound | ErrorKind::OutOfRange => Errno::ENOENT,
        ErrorKind::Io
        | ErrorKind::Damaged
        | ErrorKind::NotAStore
        | ErrorKind::Version
        | ErrorKind::Geometry
        | ErrorKind::RecordSize
        | ErrorKind::Worker => Errno::EIO,
        ErrorKind::Stale => Errno::ESTALE,
        ErrorKind::Exists => Errno::EEXIST,
        ErrorKind::Full => Errno::ENOSPC,
        ErrorKind::Busy => Errno::EBUSY,
        ErrorKind::ReadOnly => Errno::EROFS,
        ErrorKind::Unsupported => Errno::EINVAL,
        ErrorKind::Memory => Errno::ENOMEM,
        ErrorKind::Interrupted => Errno::EINTR,
    }
}

/// What a program that writes to the mount is told.
pub(super) fn refusal(e: &Error) -> Errno {
    match e.kind() {
        // A list names records that are not there; labels are not as many as records.
        ErrorKind::OutOfRange => Errno::ERANGE,
        ErrorKind::Geometry => Errno::EINVAL,
        _ => errno(e),
    }
}
