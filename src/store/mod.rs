//! The record store: create, open, append, gather. Knows records, not how a mount names them.
//!
//! Shared by all threads: the mapped record table; `state`, what readers see of the rest, replaced as a whole (see
//! `state`); `writer`, behind a mutex that one change at a time holds from its first byte to its last. Across processes
//! the same is held by locks on bytes of meta.zr (see `locks`). Readers take no lock: what they see is complete before
//! the state's length names it, because data is written before the table and the table before the header.

mod ahead;
mod append;
mod checkpoint;
mod chunks;
mod compact;
mod confirm;
mod delete;
mod examine;
mod history;
mod layout;
mod locks;
mod meta;
mod names;
mod pack;
mod place;
mod ranges;
mod read;
mod recover;
mod repair;
mod rows;
mod seal;
mod segments;
mod shards;
mod sidecars;
mod state;
mod stats;
mod sync;
#[cfg(test)]
mod tests;
mod uniform;
mod verify;

pub use append::Appender;
pub use checkpoint::Interrupted;
pub use compact::Compaction;
pub use confirm::Checksums;
pub use delete::Move;
pub use names::{FolderId, NamedNode, Names, NewNames, NodeId, NodeKind};
pub use ranges::parse_records;
pub use read::resize;
pub use repair::Repair;
pub use seal::Sealing;
pub(crate) use shards::stay_on_this_thread;
pub use stats::Stats;
pub use sync::Durability;
pub use verify::{BadRecord, Progress, Verification};

use std::io;
use std::mem::ManuallyDrop;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime};

use arc_swap::{ArcSwap, ArcSwapOption};

use crate::error::{Error, ErrorKind, Result};
use crate::format::{Fault, Header, META_BYTES, RecordLoc, Version};
use crate::storage::{Access, Directory, Disk};
use chunks::Chunks;
use meta::Meta;
use state::{Overlay, Published, State};
use sync::Writer;

/// How long a store may have no header while another process creates it.
const CREATION: Duration = Duration::from_secs(1);

/// A record store, open for reading or for both. All methods take `&self` and may be called from many threads.
pub struct Store {
    path: PathBuf,
    dir: Box<dyn Directory>,
    meta: Meta,
    access: Access,
    state: ArcSwap<State>,
    /// Dropped by hand, and not in a forked child: a thread that is gone there may have been changing it.
    writer: ManuallyDrop<Mutex<Writer>>,
    /// Whether records were appended that the header on disk does not name yet.
    ahead: AtomicBool,
    /// The names as they were when they were last looked at.
    names: ArcSwapOption<names::Seen>,
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
        sync_parent(path)?;
        let dir = Disk::open(path).map_err(|e| Error::io(format!("can't open {}", path.display()), e))?;
        Store::create_in(Box::new(dir), path, version)
    }

    /// Opens the store at `path` for reading and writing, or creates it: the folders that lead there, and an empty store
    /// of `version` in the last one, which may hold other files, but no part of a store.
    ///
    /// Several processes may do it at once: one of them creates the store, the others open it.
    ///
    /// # Errors
    /// As for [`Store::open`] and [`Store::create`]; [`ErrorKind::Damaged`] where chunks are there without a table.
    pub fn open_or_create(path: impl AsRef<Path>, version: Version) -> Result<Store> {
        let path = path.as_ref();
        let failed = |e| Error::io(format!("can't create {}", path.display()), e);
        let give_up = Instant::now() + CREATION;
        loop {
            if !path.join(meta::NAME).try_exists().map_err(failed)? {
                let new: Vec<_> = path.ancestors().take_while(|folder| !folder.exists()).collect();
                std::fs::create_dir_all(path).map_err(failed)?;
                new.into_iter().try_for_each(sync_parent)?;
                let dir = open_folder(path)?;
                let part = chunks::name(0);
                if path.join(&part).try_exists().map_err(failed)? && !path.join(meta::NAME).exists() {
                    let text = format!("{} holds {part}, but no {}", path.display(), meta::NAME);
                    return Err(Error::new(ErrorKind::Damaged, text).with_help(
                        "if it is what is left of a store, its table is lost; else move it away",
                    ));
                }
                match Store::create_in(Box::new(dir), path, version) {
                    Err(e) if e.kind() == ErrorKind::Exists => {}
                    created => return created,
                }
            }
            match Store::open(path) {
                // Another process may be creating it: its table has no header yet.
                Err(e) if e.kind() == ErrorKind::NotAStore && Instant::now() < give_up => {
                    std::thread::sleep(Duration::from_millis(5));
                }
                Err(e) => return Err(e),
                Ok(store) => {
                    // Where nothing was synced yet, its files may be missing after a power cut, too.
                    store.writer().dirty.folder |= store.is_empty();
                    return Ok(store);
                }
            }
        }
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
        let dir = open_folder(path)?;
        Store::open_in(Box::new(dir), path, access)
    }

    /// Opens the store in `dir`, which `path` names in messages.
    pub(crate) fn open_in(dir: Box<dyn Directory>, path: &Path, access: Access) -> Result<Store> {
        let store = Store::open_files(dir, path, access)?;
        let (header, unfinished) = store.meta.any_header()?;
        store.state().publish(&header);
        match (unfinished, access) {
            (true, Access::Read) => store.show_finished(&header)?,
            (true, Access::Write) => store.finish_step(&header)?,
            (false, Access::Write) => store.meta.check_room(&header)?,
            // A reader goes on with what a cut table still has.
            (false, Access::Read) => {}
        }
        Ok(store)
    }

    /// Opens the files of the store in `dir`, and looks at nothing in them.
    fn open_files(dir: Box<dyn Directory>, path: &Path, access: Access) -> Result<Store> {
        let meta = Meta::open(dir.as_ref(), path, access)?;
        meta.lock_for_use(access)?;
        let state =
            State::new(Arc::new(Chunks::new(path, access)), Overlay::new(), &Header::empty(Version::V1));
        Ok(Store {
            path: path.to_path_buf(),
            dir,
            meta,
            access,
            state: ArcSwap::from_pointee(state),
            writer: ManuallyDrop::default(),
            ahead: AtomicBool::new(false),
            names: ArcSwapOption::empty(),
        })
    }

    /// The folder that the store was opened at.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The format version.
    pub fn version(&self) -> Version {
        self.state().published().version()
    }

    /// Live records: the index space is exactly `0..len()`. Looks at the header, so it sees what other processes
    /// have appended.
    pub fn len(&self) -> u64 {
        u64::from(self.refresh(&self.state()).length())
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
        Ok(self.meta.attributes()?.modified)
    }

    /// Device and inode number of its meta.zr: whatever its path, no other store has both.
    ///
    /// # Errors
    /// What the system refuses.
    pub fn identity(&self) -> Result<(u64, u64)> {
        Ok(self.meta.attributes()?.identity)
    }

    /// Changes an open store to version 2, so that it holds records of 0 B to 1 GiB. loaderx 0.5.0 refuses it then.
    ///
    /// # Errors
    /// As for [`Store::appender`] and [`Store::sync`].
    pub fn allow_large(&self) -> Result<()> {
        let mut appender = self.appender()?;
        appender.set_version(Version::V2);
        appender.commit()?;
        self.sync()
    }

    /// The checked location of record `index`.
    ///
    /// # Errors
    /// [`ErrorKind::OutOfRange`]; [`ErrorKind::Damaged`] with the field that contradicts the format.
    pub fn location(&self, index: u64) -> Result<RecordLoc> {
        let state = self.state();
        let loc = self.locate(&state, index, self.published_for(&state, Some(index)))?;
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
        file.write_at(bytes, 0).and_then(|()| file.sync()).map_err(failed)?;
        self.sync_folder()
    }

    /// Reads entry `index`, which the caller has checked against the length.
    #[inline(always)]
    fn entry(&self, state: &State, index: u32, version: Version) -> Result<RecordLoc> {
        let words = self.words(state, index)?;
        RecordLoc::parse(words, version).map_err(|fault| self.damaged(index, &fault))
    }

    /// The two words of entry `index`, as `state` has them.
    #[inline(always)]
    fn words(&self, state: &State, index: u32) -> Result<[u64; 2]> {
        match state.overlaid(index) {
            Some(words) => Ok(words),
            None => self.meta.entry(index),
        }
    }

    #[cold]
    fn damaged(&self, index: u32, fault: &Fault) -> Error {
        let text = format!("record {index} of {} is damaged: {fault}", self.path.display());
        // Zeros where the file has ended are no entry at all.
        self.meta.still_reaches(index).err().unwrap_or_else(|| Error::new(ErrorKind::Damaged, text))
    }

    /// Looks at the header and publishes what it says, if it is sound; returns what is published.
    fn refresh(&self, state: &State) -> Published {
        let before = state.published();
        // Of appends that were not synced the header knows nothing yet, and nobody else can append.
        if self.ahead.load(Ordering::Acquire) {
            return before;
        }
        match self.meta.changed_header(before) {
            Some(header) => {
                state.publish(&header);
                Published::new(&header)
            }
            None => before,
        }
    }

    /// The header as it is for this process: with appends that were not synced, and with the step that is under way.
    fn header_now(&self) -> Result<Header> {
        let (header, unfinished) = self.meta.any_header()?;
        if unfinished || self.ahead.load(Ordering::Acquire) {
            return Ok(self.state().header());
        }
        Ok(header)
    }

    /// Whether it was opened for writing, too.
    pub fn is_writable(&self) -> bool {
        self.access == Access::Write
    }

    fn require_write(&self) -> Result<()> {
        match self.access {
            // Before the writer's mutex: a thread that is gone in the child may have held it.
            Access::Write => self.meta.refuse_forked(),
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
        let header = self.header_now()?;
        self.meta.check_room(&header)?;
        self.frontier_in_chunk(&header)
    }

    fn sync_folder(&self) -> Result<()> {
        let failed = |e| Error::io(format!("can't sync the folder {}", self.path.display()), e).of_sync();
        self.dir.sync().map_err(failed)
    }

    fn frontier_in_chunk(&self, header: &Header) -> Result<()> {
        let state = self.state();
        let chunk = state.chunks.get(self.dir.as_ref(), header.tail_chunk)?;
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

/// Makes the folder at `path` outlast a power cut, by syncing the one that it lies in.
fn sync_parent(path: &Path) -> Result<()> {
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    std::fs::File::open(parent)
        .and_then(|parent| parent.sync_all())
        .map_err(|e| Error::io(format!("can't sync the folder {}", parent.display()), e))
}

/// Opens the folder of a store.
fn open_folder(path: &Path) -> Result<Disk> {
    if path.as_os_str().is_empty() {
        return Err(Error::new(ErrorKind::NotFound, "the path of the store is empty"));
    }
    Disk::open(path).map_err(|e| match e.kind() {
        io::ErrorKind::NotFound => {
            Error::new(ErrorKind::NotFound, format!("no store at {}: no such folder", path.display()))
        }
        io::ErrorKind::NotADirectory => Error::new(
            ErrorKind::NotAStore,
            format!("{} is not a store: a store is a folder that holds meta.zr", path.display()),
        ),
        _ => Error::io(format!("can't open {}", path.display()), e),
    })
}

/// The error for an index that names no record.
#[cold]
fn out_of_range(path: &Path, index: u64, length: u32) -> Error {
    Error::new(ErrorKind::OutOfRange, format!("no record {index}: {} holds {length}", path.display()))
}
