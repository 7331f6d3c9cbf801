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
        ErrorKind::Unsupported => Errno::ENOTSUP,
        ErrorKind::Memory => Errno::ENOMEM,
        ErrorKind::Interrupted => Errno::EINTR,
    }
}
