//! Files: open, read, write, sync, lock, map. Knows no record.
//!
//! [`Directory`] and [`StorageFile`] are the seam between the store and the disk: [`Disk`] is the real thing, and
//! a twin for tests counts, records and fails what goes through it.
//!
//! This is the one room with `unsafe`, for what the standard library has no safe call for: reading mapped files
//! (`map`), the signal that a read behind the end of a mapped file raises (`sigbus`), locks that belong to an open
//! file (`lock`), and what children inherit (`descriptors`). Each use says why it is sound.

#[allow(unsafe_code, reason = "close_range has no safe call")]
mod descriptors;
mod disk;
#[cfg(test)]
pub(crate) mod faulty;
#[allow(unsafe_code, reason = "fcntl has no safe call for OFD locks")]
mod lock;
#[allow(unsafe_code, reason = "reads of mapped memory")]
mod map;
#[allow(unsafe_code, reason = "a signal handler")]
mod sigbus;

pub use descriptors::keep_from_children;
pub use disk::{Disk, open_regular};
pub use map::Map;

use std::io;
use std::sync::Arc;
use std::time::SystemTime;

/// What a file is opened for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Reading only.
    Read,
    /// Reading and writing.
    Write,
}

/// What the file system says of a file.
#[derive(Clone, Copy, Debug)]
pub struct Attributes {
    /// Apparent size in bytes.
    pub len: u64,
    /// Bytes that the file takes on disk.
    pub allocated: u64,
    /// Time of the last change of its contents.
    pub modified: SystemTime,
}

/// A folder of files, by name.
pub trait Directory: Send + Sync {
    /// Opens the regular file `name`; never creates it and never waits (on a FIFO, say).
    fn open(&self, name: &str, access: Access) -> io::Result<Arc<dyn StorageFile>>;
    /// Creates `name` for reading and writing; an error where it exists.
    fn create(&self, name: &str) -> io::Result<Arc<dyn StorageFile>>;
    /// Removes `name`.
    fn remove(&self, name: &str) -> io::Result<()>;
    /// Makes creations and removals durable.
    fn sync(&self) -> io::Result<()>;
}

/// An open file. All positions are byte offsets from its start.
pub trait StorageFile: Send + Sync {
    /// Reads into `buf` until it is full or the file ends; returns the bytes read.
    fn read_at(&self, buf: &mut [u8], at: u64) -> io::Result<usize>;
    /// Writes all of `bytes`.
    fn write_at(&self, bytes: &[u8], at: u64) -> io::Result<()>;
    /// Size, allocation and time of change.
    fn attributes(&self) -> io::Result<Attributes>;
    /// Cuts or extends the file to `len` bytes; what is new reads as zeros and takes no disk.
    fn set_len(&self, len: u64) -> io::Result<()>;
    /// Gives the disk of a range back; it reads as zeros then, and the size stays.
    fn free(&self, at: u64, len: u64) -> io::Result<()>;
    /// Makes contents and size durable.
    fn sync(&self) -> io::Result<()>;
    /// Maps the first `len` bytes, which may lie past the end of the file as it is now.
    fn map(&self, len: u64) -> io::Result<Map>;
    /// Takes the exclusive lock on one byte; `false` where another open file holds it. Never waits.
    fn try_lock(&self, byte: u64) -> io::Result<bool>;
    /// Gives that lock back.
    fn unlock(&self, byte: u64) -> io::Result<()>;
}
