//! The record store: create, open, append, gather. Knows records, not how a mount names them.
//!
//! Shared by all threads: the mapped record table and chunks, which only grow; `published`, the version and the
//! number of records that readers may use, an atomic; `writer`, behind a mutex that one [`Appender`] holds from its
//! first byte to its commit. Across processes the same is held by a lock on one byte of meta.zr. Readers take no
//! lock: what they see is complete before `published` names it, because data is written before the table and the
//! table before the header.

mod append;
mod chunks;
mod meta;
mod pack;
mod read;
mod shards;
mod stats;
#[cfg(test)]
mod tests;

pub use append::Appender;
pub use read::resize;
pub use stats::Stats;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::SystemTime;

use crate::error::{Error, ErrorKind, Result};
use crate::format::{Fault, Header, META_BYTES, RecordLoc, Version};
use crate::storage::{Access, Directory, Disk};
use append::Writer;
use chunks::Chunks;
use meta::Meta;

/// A record store, open for reading or for both. All methods take `&self` and may be called from many threads.
pub struct Store {
    path: PathBuf,
    dir: Box<dyn Directory>,
    meta: Meta,
    chunks: Chunks,
    access: Access,
    /// Version number in the high half, live records in the low one, as last read from the header.
    published: AtomicU64,
    writer: Mutex<Writer>,
}

impl Store {
    /// Creates an empty store at `path`: the folder, or the store in an empty folder that is there.
    ///
    /// meta.zr gets its full apparent size of 256 MiB and takes 4 KiB of disk.
    ///
    /// # Errors
    /// [`ErrorKind::Exists`] where the folder holds anything, and what the system refuses.
    pub fn create(path: impl AsRef<Path>, version: Version) -> Result<Store> {
        let path = path.as_ref();
        match std::fs::create_dir(path) {
            Ok(()) => {}
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {
                let mut entries =
                    std::fs::read_dir(path).map_err(|e| Error::io(format!("{}", path.display()), e))?;
                if entries.next().is_some() {
                    return Err(Error::new(ErrorKind::Exists, format!("{} is not empty", path.display())));
                }
            }
            Err(e) => return Err(Error::io(format!("can't create {}", path.display()), e)),
        }
        let dir = Disk::open(path).map_err(|e| Error::io(format!("can't open {}", path.display()), e))?;
        Store::create_in(Box::new(dir), path, version)
    }

    /// Creates an empty store in `dir`, which `path` names in messages.
    pub(crate) fn create_in(dir: Box<dyn Directory>, path: &Path, version: Version) -> Result<Store> {
        let failed = |name: &str, e| Error::io(format!("can't create {}", path.join(name).display()), e);
        let created = || -> Result<()> {
            let meta = dir.create(meta::NAME).map_err(|e| failed(meta::NAME, e))?;
            dir.create(&chunks::name(0)).map_err(|e| failed("0.zr", e))?;
            meta.set_len(META_BYTES).map_err(|e| failed(meta::NAME, e))?;
            meta.write_at(&Header::empty(version).to_bytes(), 0).map_err(|e| failed(meta::NAME, e))
        };
        created()?;
        let store = Store::open_in(dir, path, Access::Write)?;
        store.writer().dirty.mark_created(0);
        Ok(store)
    }

    /// Opens a store for reading and writing.
    ///
    /// Cost: no more for a full store than for an empty one; entries are checked when they are used.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`], [`ErrorKind::NotAStore`], [`ErrorKind::Version`] or [`ErrorKind::Damaged`] (a header
    /// that contradicts the format or promises more entries than meta.zr has), and what the system refuses.
    pub fn open(path: impl AsRef<Path>) -> Result<Store> {
        Store::open_on_disk(path.as_ref(), Access::Write)
    }

    /// Opens a store for reading. Creates and writes nothing, now or later.
    ///
    /// # Errors
    /// As for [`Store::open`]; where meta.zr is too short only the records whose entries are gone are lost.
    pub fn open_read_only(path: impl AsRef<Path>) -> Result<Store> {
        Store::open_on_disk(path.as_ref(), Access::Read)
    }

    fn open_on_disk(path: &Path, access: Access) -> Result<Store> {
        let dir = Disk::open(path).map_err(|e| match e.kind() {
            io::ErrorKind::NotFound => {
                Error::new(ErrorKind::NotFound, format!("no store at {}: no such folder", path.display()))
            }
            io::ErrorKind::NotADirectory => Error::new(
                ErrorKind::NotAStore,
                format!("{} is not a store: a store is a folder that holds meta.zr", path.display()),
            ),
            _ => Error::io(format!("can't open {}", path.display()), e),
        })?;
        Store::open_in(Box::new(dir), path, access)
    }

    /// Opens the store in `dir`, which `path` names in messages.
    pub(crate) fn open_in(dir: Box<dyn Directory>, path: &Path, access: Access) -> Result<Store> {
        let (meta, header) = Meta::open(dir.as_ref(), path, access)?;
        Ok(Store {
            path: path.to_path_buf(),
            dir,
            meta,
            chunks: Chunks::new(path, access),
            access,
            published: AtomicU64::new(publish(&header)),
            writer: Mutex::new(Writer::default()),
        })
    }

    /// The folder that the store was opened at.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The format version.
    pub fn version(&self) -> Version {
        version_of(self.published.load(Ordering::Acquire))
    }

    /// Live records: the index space is exactly `0..len()`. Looks at the header, so it sees what other processes
    /// have appended.
    pub fn len(&self) -> u64 {
        u64::from(length_of(self.refresh()))
    }

    /// Whether no record is live.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// When the store last changed, as the file system has it.
    ///
    /// # Errors
    /// What the system refuses.
    pub fn modified(&self) -> Result<SystemTime> {
        self.meta.modified()
    }

    /// Makes all that was appended so far durable: chunk data, then table and header, then the folder.
    ///
    /// Waits while an [`Appender`] lives: on the thread that holds one it would never return, so commit first.
    ///
    /// # Errors
    /// The first refusal of the system. After one the store takes no more appends: what the system has dropped is
    /// not known, so open the store again and check it.
    pub fn sync(&self) -> Result<()> {
        self.require_write()?;
        let mut writer = self.writer();
        append::sync(self, &mut writer)
    }

    /// Changes an open store to version 2, so that it holds records of 0 B to 1 GiB. loaderx 0.5.0 refuses it then.
    ///
    /// # Errors
    /// As for [`Store::appender`].
    pub fn allow_large(&self) -> Result<()> {
        let mut appender = self.appender()?;
        appender.set_version(Version::V2);
        appender.commit().map(drop)
    }

    /// The checked location of record `index`.
    ///
    /// # Errors
    /// [`ErrorKind::OutOfRange`]; [`ErrorKind::Damaged`] with the field that contradicts the format.
    pub fn location(&self, index: u64) -> Result<RecordLoc> {
        let loc = self.locate(index, self.published_for(Some(index)))?;
        self.table_reaches(Some(index))?;
        Ok(loc)
    }

    /// Reads the file `name` beside the store's own, at most `most` bytes of it; `None` where there is none.
    pub(crate) fn read_companion(&self, name: &str, most: usize) -> Result<Option<Vec<u8>>> {
        let failed = |e| Error::io(format!("can't read {}", self.path.join(name).display()), e);
        let file = match self.dir.open(name, Access::Read) {
            Ok(file) => file,
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(e) => return Err(failed(e)),
        };
        let mut bytes = vec![0; most.saturating_add(1)];
        let n = file.read_at(&mut bytes, 0).map_err(failed)?;
        if n > most {
            let path = self.path.join(name);
            return Err(Error::new(
                ErrorKind::Damaged,
                format!("{} is larger than {most} bytes", path.display()),
            ));
        }
        bytes.truncate(n);
        Ok(Some(bytes))
    }

    /// Writes the new file `name` beside the store's own and makes it durable.
    pub(crate) fn write_companion(&self, name: &str, bytes: &[u8]) -> Result<()> {
        self.require_write()?;
        let failed = |e| Error::io(format!("can't write {}", self.path.join(name).display()), e);
        let file = self.dir.create(name).map_err(failed)?;
        file.write_at(bytes, 0).and_then(|()| file.sync()).and_then(|()| self.dir.sync()).map_err(failed)
    }

    /// Reads entry `index`, which the caller has checked against the length.
    #[inline(always)]
    fn entry(&self, index: u32, version: Version) -> Result<RecordLoc> {
        let words = self.meta.entry(index)?;
        RecordLoc::parse(words, version).map_err(|fault| self.damaged(index, &fault))
    }

    #[cold]
    fn damaged(&self, index: u32, fault: &Fault) -> Error {
        let text = format!("record {index} of {} is damaged: {fault}", self.path.display());
        // Zeros where the file has ended are no entry at all.
        self.meta.still_reaches(index).err().unwrap_or_else(|| Error::new(ErrorKind::Damaged, text))
    }

    /// Looks at the header and publishes what it says, if it is sound; returns what is published.
    fn refresh(&self) -> u64 {
        let before = self.published.load(Ordering::Acquire);
        match self.meta.changed_header(before) {
            Some(header) => {
                let now = publish(&header);
                self.published.store(now, Ordering::Release);
                now
            }
            None => before,
        }
    }

    fn require_write(&self) -> Result<()> {
        match self.access {
            Access::Write => Ok(()),
            Access::Read => Err(Error::new(
                ErrorKind::ReadOnly,
                format!("{} was opened for reading only", self.path.display()),
            )),
        }
    }

    /// Compares what the header says with the files: whether the table has room for `length` entries, and the chunk of
    /// the frontier reaches to it. Reading needs no such check: each record is looked at when it is read.
    ///
    /// # Errors
    /// [`ErrorKind::Damaged`] with the field that promises more than there is.
    pub fn check_header(&self) -> Result<()> {
        self.frontier_in_chunk(&self.meta.whole_header()?)
    }

    fn frontier_in_chunk(&self, header: &Header) -> Result<()> {
        let chunk = self.chunks.get(self.dir.as_ref(), header.tail_chunk)?;
        let len = chunk.current_len()?;
        if u64::from(header.tail_offset) > len {
            return Err(Error::new(
                ErrorKind::Damaged,
                format!(
                    "{}: the header's field tail_offset says that {} holds {} bytes, but it has {len}",
                    self.path.display(),
                    chunks::name(header.tail_chunk),
                    header.tail_offset,
                ),
            )
            .with_help("records behind its end are lost, the others can be read"));
        }
        Ok(())
    }
}

impl std::fmt::Debug for Store {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Store")
            .field("path", &self.path)
            .field("access", &self.access)
            .finish_non_exhaustive()
    }
}

/// The error for an index that names no record.
#[cold]
fn out_of_range(index: u64, length: u32) -> Error {
    Error::new(ErrorKind::OutOfRange, format!("no record {index}: the store holds {length}"))
}

fn publish(header: &Header) -> u64 {
    u64::from(header.version.number()) << 32 | u64::from(header.length)
}

#[inline]
fn length_of(published: u64) -> u32 {
    (published & 0xffff_ffff) as u32
}

#[inline]
fn version_of(published: u64) -> Version {
    if published >> 32 == 1 { Version::V1 } else { Version::V2 }
}
