//! Files: open, read, write, sync, lock, map. Knows no record.
//!
//! [`Directory`] and [`StorageFile`] are the seam between the store and the disk: [`Disk`] is the real thing, and
//! a twin for tests counts, records and fails what goes through it.
//!
//! This is the one room with `unsafe`, for what the standard library has no safe call for: reading mapped files
//! (`map`), the signal that a read behind the end of a mapped file raises (`sigbus`), locks that belong to an open
//! file (`lock`), leases (`lease`), what a fork shares with its parent (`fork`), the list that both kinds of handlers
//! walk (`list`), and what is inherited, by children or by this process (`descriptors`, `signals`). Each use says why it is sound.

#[cfg(test)]
pub(crate) mod crash;
#[allow(unsafe_code, reason = "close_range has no safe call, numbers given to the program have no owner")]
mod descriptors;
mod disk;
#[cfg(test)]
pub(crate) mod faulty;
#[allow(unsafe_code, reason = "a fork handler")]
mod fork;
mod gate;
#[allow(unsafe_code, reason = "fcntl has no safe call for leases")]
mod lease;
#[allow(unsafe_code, reason = "nodes that are never freed")]
mod list;
#[allow(unsafe_code, reason = "fcntl has no safe call for OFD locks")]
mod lock;
#[allow(unsafe_code, reason = "reads of mapped memory")]
mod map;
#[allow(unsafe_code, reason = "getrusage has no safe call")]
mod memory;
#[cfg(test)]
#[allow(unsafe_code, reason = "tests that fork")]
pub(crate) mod own_process;
mod processes;
#[allow(unsafe_code, reason = "a signal handler")]
mod sigbus;
#[allow(unsafe_code, reason = "signal masks have no safe call")]
mod signals;
mod space;

pub use descriptors::{duplicate, keep_from_children};
pub use disk::{Disk, WRITTEN_AT_ONCE, open_regular};
pub use map::Map;
pub use memory::{available_memory, waits_for_pages};
pub use processes::{Process, servers, users};
pub use signals::unblock;

use std::io;
use std::path::Path;
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

/// How a byte of a file is locked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lock {
    /// Beside others that share it.
    Shared,
    /// Alone.
    Exclusive,
}

/// What came of asking for a lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lease {
    /// Nobody else has the file open, and who opens it waits.
    Taken,
    /// Somebody else has the file open.
    InUse,
    /// The file system grants none, or not to this user: nothing is known of others.
    Unknown,
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
    /// The file system, and the file in it: no two files have both.
    pub identity: (u64, u64),
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
    /// Processes that have the file `name` open, as far as the system tells.
    fn openers(&self, name: &str) -> Vec<Process>;
    /// Opens the folder `name` in this one.
    fn folder(&self, name: &str) -> io::Result<Box<dyn Directory>>;
    /// Opens the folder `name` in this one; creates it where it is missing.
    fn make_folder(&self, name: &str) -> io::Result<Box<dyn Directory>>;
    /// Opens the folder at `path`, wherever it is; a relative path starts at this folder.
    fn neighbour(&self, path: &Path) -> io::Result<Box<dyn Directory>>;
}

/// An open file. All positions are byte offsets from its start.
///
/// A forked child reads on in what its parent opened, and changes and locks nothing: that is an error there. Dropping
/// the file ends its locks and its lease.
pub trait StorageFile: Send + Sync {
    /// Reads into `buf` until it is full or the file ends; returns the bytes read.
    fn read_at(&self, buf: &mut [u8], at: u64) -> io::Result<usize>;
    /// Reads what is in memory of the bytes at `at`, without waiting for a disk; gives how many: none also where the file
    /// system can't tell.
    fn read_cached(&self, buf: &mut [u8], at: u64) -> usize;
    /// Asks the system to read a range into memory, and does not wait. What can't be read is told by who reads it.
    fn will_need(&self, at: u64, len: u64);
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
    /// Takes disk for a range, so that writing there needs no more; the size grows to its end.
    fn allocate(&self, at: u64, len: u64) -> io::Result<()>;
    /// Takes the lock on one byte, or changes the one that is held; `false` where another open file is in the way. What
    /// was held stays then. Never waits.
    fn lock(&self, byte: u64, lock: Lock) -> io::Result<bool>;
    /// Gives that lock back.
    fn unlock(&self, byte: u64) -> io::Result<()>;
    /// Processes with a lock on that byte through another open file, as far as the system tells. Slow: for messages.
    fn lock_holders(&self, byte: u64) -> Vec<Process>;
    /// Asks that others who open the file wait until [`StorageFile::end_lease`], at most for the system's lease-break
    /// time. Never waits.
    fn lease(&self) -> Lease;
    /// Ends the lease, if one was taken.
    fn end_lease(&self);
    /// Processes that have the file open, this one only if it has opened it twice, as far as the system tells. Slow: for
    /// messages.
    fn openers(&self) -> Vec<Process>;
    /// Whether this process is a fork of the one that opened the file. It has no locks then.
    fn is_inherited(&self) -> bool;
}
