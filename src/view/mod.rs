//! What a mount shows: inode numbers, names, attributes and the bytes of each file. Knows no FUSE: everything here
//! runs, and is tested, without a mount.
//!
//! Shared by all threads: the store; counters, which are atomics; snapshots of open `stats` and `README` files and the
//! cache of decoded records, each behind a mutex of its own that is held for a look-up and never while decoding or
//! reading. No call waits for another thread. Of the names nothing is kept here: the store is asked each time.

mod attributes;
mod decoded;
mod growth;
mod inode;
mod listing;
mod names;
mod pages;
mod reading;
#[cfg(test)]
mod tests;
mod tree;

pub use attributes::{Attributes, Kind};
pub use growth::Seen;
pub use inode::Node;
pub use listing::{ListEntry, Listing};

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::SystemTime;

use crate::dataset::Schema;
use crate::error::{Error, ErrorKind, Result};
use crate::format::RecordLoc;
use crate::store::Store;
use decoded::Decoded;

/// How a mount shows a store.
#[derive(Clone, Debug)]
pub struct ViewOptions {
    /// Extension of the files in `records/`, without the dot; `None`: that of the record's name, else `npy` where the
    /// store has a schema, else `bin`.
    pub ext: Option<String>,
    /// Owner of every file.
    pub uid: u32,
    /// Group of every file.
    pub gid: u32,
    /// Permission bits that are taken away from 0444 and 0555.
    pub umask: u16,
    /// Bytes of decoded records to keep between the requests for their pieces.
    pub cache: usize,
}

impl ViewOptions {
    /// What `cache` is where nothing is said, in bytes.
    pub const DEFAULT_CACHE: usize = 512 << 20;
}

/// Figures for statfs, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Space {
    /// What the store takes on disk.
    pub bytes: u64,
    /// Number of files and directories.
    pub files: u64,
}

/// A store as a tree of files.
pub struct View {
    store: Store,
    schema: Option<Schema>,
    /// What stands before a record's bytes in a `.npy` file: NumPy's header where the store is dense.
    head: Vec<u8>,
    /// Extension of the records that have none of their own.
    ext: String,
    options: ViewOptions,
    /// The store's time of change when it was mounted: that of every record without a name, so that it stands
    /// still.
    mounted: SystemTime,
    /// The store's time of change, in nanoseconds since 1970: looked up now and then, not for each file.
    modified: AtomicI64,
    counters: Counters,
    snapshots: Mutex<HashMap<u64, Arc<Vec<u8>>>>,
    next_handle: AtomicU64,
    decoded: Decoded,
    /// Whether it was logged that names can't be read.
    nameless: AtomicBool,
}

/// What a mount has served since it began.
#[derive(Default)]
struct Counters {
    reads: AtomicU64,
    bytes: AtomicU64,
    errors: AtomicU64,
}

impl View {
    /// Shows `store`, opened for reading.
    ///
    /// A schema.json that can't be used is logged, and the records are shown as `.bin`.
    ///
    /// # Errors
    /// What the system refuses.
    pub fn new(store: Store, options: ViewOptions) -> Result<View> {
        let schema = Schema::read(&store).unwrap_or_else(|e| {
            log::warn!("{e}; records are shown without a .npy header");
            None
        });
        let ext =
            options.ext.clone().unwrap_or_else(|| if schema.is_some() { "npy" } else { "bin" }.to_owned());
        // Under another extension a record is its bytes alone.
        let head = match &schema {
            Some(schema) if ext == "npy" => schema.npy_header(),
            _ => Vec::new(),
        };
        let mut view = View {
            schema: schema.filter(|_| !head.is_empty()),
            mounted: SystemTime::UNIX_EPOCH,
            modified: AtomicI64::new(0),
            decoded: Decoded::new(options.cache),
            store,
            head,
            ext,
            options,
            counters: Counters::default(),
            snapshots: Mutex::default(),
            next_handle: AtomicU64::new(1),
            nameless: AtomicBool::new(false),
        };
        view.refresh_modified()?;
        view.mounted = view.modified();
        Ok(view)
    }

    /// Gives back memory that nobody needs any more. To be called now and then.
    pub fn tidy(&self) {
        self.decoded.forget_idle();
    }

    /// The store that is shown.
    pub fn store(&self) -> &Store {
        &self.store
    }

    /// Finds `name` in directory `parent`.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`] where no such name is; [`ErrorKind::Damaged`] where its record's entry is.
    pub fn lookup(&self, parent: Node, name: &[u8]) -> Result<Attributes> {
        let found = match parent {
            Node::Root => names::in_root(name).ok_or_else(not_found).and_then(|node| self.attributes(node)),
            Node::Records => self.lookup_record(name),
            Node::Tree | Node::Folder(_) => {
                self.child(parent, name).and_then(|named| self.attributes_of(&named))
            }
            Node::Stats | Node::Readme | Node::Record(_) | Node::Link(_) => Err(not_found()),
        };
        found.map_err(|e| if e.kind() == ErrorKind::OutOfRange { not_found() } else { e })
    }

    fn lookup_record(&self, name: &[u8]) -> Result<Attributes> {
        let (index, ext) = names::record(name).ok_or_else(not_found)?;
        let named = self.name_of(index);
        if ext != self.extension(named.as_ref()) {
            return Err(not_found());
        }
        self.record(index, named.as_ref())
    }

    /// Opens a file for reading; gives the handle that [`View::read`] and [`View::release`] take.
    ///
    /// # Errors
    /// As for [`View::attributes`]; what [`Store::stats`] gives where `stats` is opened.
    pub fn open(&self, node: Node) -> Result<u64> {
        let page = match node {
            Node::Record(index) => return self.location(index).map(|_| 0),
            Node::Stats => pages::stats(self)?,
            Node::Readme => pages::readme(self).into_bytes(),
            Node::Root | Node::Records | Node::Tree | Node::Folder(_) | Node::Link(_) => return Ok(0),
        };
        let handle = self.next_handle.fetch_add(1, Ordering::Relaxed);
        self.snapshots().insert(handle, Arc::new(page));
        Ok(handle)
    }

    /// Ends a handle.
    pub fn release(&self, node: Node, handle: u64) {
        if matches!(node, Node::Stats | Node::Readme) {
            self.snapshots().remove(&handle);
        }
    }

    /// Figures for statfs.
    ///
    /// # Errors
    /// What the system refuses.
    pub fn space(&self) -> Result<Space> {
        Ok(Space { bytes: self.store.allocated()?, files: self.store.len() + 4 })
    }

    /// Owner and group of every file.
    pub fn owner(&self) -> (u32, u32) {
        (self.options.uid, self.options.gid)
    }

    fn location(&self, index: u32) -> Result<RecordLoc> {
        self.store.location(u64::from(index))
    }

    fn snapshots(&self) -> std::sync::MutexGuard<'_, HashMap<u64, Arc<Vec<u8>>>> {
        self.snapshots.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn not_found() -> Error {
    Error::new(ErrorKind::NotFound, "no such file")
}
