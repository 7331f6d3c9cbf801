//! What a mount shows: inode numbers, names, attributes and the bytes of each file. Knows no FUSE: everything here
//! runs, and is tested, without a mount.
//!
//! Shared by all threads: the store; counters, which are atomics; snapshots of open `stats` files and the cache of
//! decoded records, each behind a mutex of its own that is held for a look-up and never while decoding or reading.
//! No call waits for another thread.

mod decoded;
mod inode;
mod listing;
mod names;
mod pages;

pub use inode::Node;
pub use listing::{ListEntry, Listing};

use std::cell::RefCell;
use std::collections::HashMap;
use std::ops::Range;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use crate::dataset::Schema;
use crate::error::{Error, ErrorKind, Result};
use crate::format::{Compress, RecordLoc};
use crate::store::Store;
use decoded::Decoded;

/// How a mount shows a store.
#[derive(Clone, Debug)]
pub struct ViewOptions {
    /// Extension of the files in `records/`, without the dot; `None`: `npy` where the store has a schema, else
    /// `bin`.
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
    pub const DEFAULT_CACHE: usize = 64 << 20;
}

/// What a node is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A directory.
    Directory,
    /// A regular file.
    File,
}

/// Attributes of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attributes {
    /// Which node.
    pub node: Node,
    /// Directory or file.
    pub kind: Kind,
    /// Exact size in bytes.
    pub size: u64,
    /// Permission bits.
    pub mode: u16,
    /// Number of names.
    pub links: u32,
    /// Time of the last change.
    pub modified: SystemTime,
    /// Whether the kernel may keep these attributes and the file's pages.
    pub stable: bool,
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
    /// What stands before each record's bytes: a .npy header where the store is dense.
    head: Vec<u8>,
    ext: String,
    options: ViewOptions,
    readme: String,
    /// The store's time of change when it was mounted: that of every record, so that it stands still.
    mounted: SystemTime,
    /// The store's time of change, in nanoseconds since 1970: looked up now and then, not for each file.
    modified: AtomicI64,
    counters: Counters,
    snapshots: Mutex<HashMap<u64, Arc<Vec<u8>>>>,
    next_handle: AtomicU64,
    decoded: Decoded,
}

/// What a mount has served since it began.
#[derive(Default)]
struct Counters {
    reads: AtomicU64,
    bytes: AtomicU64,
    errors: AtomicU64,
}

thread_local! {
    /// Decoded bytes of the record that is being served.
    static RECORD: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
    /// The first bytes of a file that begins with a header.
    static PAGE: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// Deflated records up to this many bytes arrive in one request, so nothing is kept of them.
const ONE_REQUEST: u32 = 128 << 10;

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
            readme: pages::readme(&store, &ext),
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
        };
        view.refresh_modified()?;
        view.mounted = view.modified();
        Ok(view)
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
        let node = match parent {
            Node::Root => names::in_root(name),
            Node::Records => names::record(name, &self.ext).map(Node::Record),
            Node::Stats | Node::Readme | Node::Record(_) => None,
        };
        let node = node.ok_or_else(not_found)?;
        self.attributes(node).map_err(|e| if e.kind() == ErrorKind::OutOfRange { not_found() } else { e })
    }

    /// Attributes of a node.
    ///
    /// # Errors
    /// [`ErrorKind::OutOfRange`] where no such record is, [`ErrorKind::Damaged`] where its entry is.
    pub fn attributes(&self, node: Node) -> Result<Attributes> {
        let (kind, size, links, stable) = match node {
            Node::Root => (Kind::Directory, 0, 3, true),
            Node::Records => (Kind::Directory, 0, 2, true),
            Node::Stats => (Kind::File, pages::STATS_BYTES as u64, 1, false),
            Node::Readme => (Kind::File, self.readme.len() as u64, 1, false),
            Node::Record(index) => {
                let loc = self.location(index)?;
                (Kind::File, self.head.len() as u64 + u64::from(loc.logic_length), 1, true)
            }
        };
        let modified = if let Node::Record(_) = node { self.mounted } else { self.modified() };
        let mode = if kind == Kind::Directory { 0o555 } else { 0o444 } & !self.options.umask;
        Ok(Attributes { node, kind, size, mode, links, modified, stable })
    }

    /// Opens a file for reading; gives the handle that [`View::read`] and [`View::release`] take.
    ///
    /// # Errors
    /// As for [`View::attributes`]; what [`Store::stats`] gives where `stats` is opened.
    pub fn open(&self, node: Node) -> Result<u64> {
        match node {
            Node::Stats => {
                let page = pages::stats(self)?;
                let handle = self.next_handle.fetch_add(1, Ordering::Relaxed);
                self.snapshots().insert(handle, Arc::new(page));
                Ok(handle)
            }
            Node::Record(index) => self.location(index).map(|_| 0),
            Node::Root | Node::Records | Node::Readme => Ok(0),
        }
    }

    /// Ends a handle.
    pub fn release(&self, node: Node, handle: u64) {
        if node == Node::Stats {
            self.snapshots().remove(&handle);
        }
    }

    /// Hands the bytes of a file from `offset` on to `reply`, at most `size` and fewer only at its end.
    ///
    /// `reply` is called once, or not at all where an error is returned. It copies the bytes to the kernel; see
    /// [`Store::with_raw_bytes`] for why it must not do more.
    ///
    /// # Errors
    /// [`ErrorKind::Damaged`] or [`ErrorKind::Io`] with the record's index: never zeros for what is gone, never fewer
    /// bytes.
    pub fn read(
        &self,
        node: Node,
        handle: u64,
        offset: u64,
        size: u32,
        mut reply: impl FnMut(&[u8]),
    ) -> Result<()> {
        let count = |bytes: &[u8]| {
            self.counters.reads.fetch_add(1, Ordering::Relaxed);
            self.counters.bytes.fetch_add(bytes.len() as u64, Ordering::Relaxed);
            reply(bytes);
        };
        let result = match node {
            Node::Record(index) => self.read_record(index, offset, size, count),
            Node::Stats => {
                let page = self.snapshots().get(&handle).cloned().ok_or_else(not_found)?;
                reply(piece(&page, offset, size));
                Ok(())
            }
            Node::Readme => {
                reply(piece(self.readme.as_bytes(), offset, size));
                Ok(())
            }
            Node::Root | Node::Records => Err(Error::new(ErrorKind::Unsupported, "a directory has no bytes")),
        };
        if let Err(e) = &result {
            self.counters.errors.fetch_add(1, Ordering::Relaxed);
            log::error!("{e}");
        }
        result
    }

    /// Looks whether other processes have appended; `true` where the number of records has changed.
    pub fn refresh(&self, known: &mut u64) -> bool {
        let len = self.store.len();
        let grown = len != *known;
        if grown {
            *known = len;
            if let Err(e) = self.refresh_modified() {
                log::warn!("{e}");
            }
        }
        grown
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

    fn read_record(&self, index: u32, offset: u64, size: u32, mut reply: impl FnMut(&[u8])) -> Result<()> {
        let loc = self.location(index)?;
        if let Some(schema) = &self.schema
            && schema.record_bytes() != u64::from(loc.logic_length)
        {
            return Err(Error::new(
                ErrorKind::Damaged,
                format!(
                    "record {index} of {} has {} bytes, the schema says {}",
                    self.store.path().display(),
                    loc.logic_length,
                    schema.record_bytes()
                ),
            ));
        }
        let head = self.head.len() as u64;
        let wanted = clip(offset, u64::from(size), head + u64::from(loc.logic_length));
        let body = wanted.start.saturating_sub(head)..wanted.end.saturating_sub(head);
        // Both ends lie within a record, whose length is a u32.
        let body = u32::try_from(body.start).unwrap_or(u32::MAX)..u32::try_from(body.end).unwrap_or(u32::MAX);
        if wanted.start >= head {
            return self.read_body(index, &loc, body, reply);
        }
        PAGE.with_borrow_mut(|page| {
            page.clear();
            page.extend_from_slice(piece(&self.head, offset, size));
            if loc.compress == Compress::Raw {
                let at = page.len();
                page.resize(at + body.len(), 0);
                let dst = page.get_mut(at..).unwrap_or_default();
                self.store.read_raw(u64::from(index), body.start, dst)?;
            } else {
                self.read_body(index, &loc, body, |bytes| page.extend_from_slice(bytes))?;
            }
            reply(page);
            Ok(())
        })
    }

    /// Hands out the bytes `range` of a record.
    fn read_body(
        &self,
        index: u32,
        loc: &RecordLoc,
        range: Range<u32>,
        mut reply: impl FnMut(&[u8]),
    ) -> Result<()> {
        if loc.compress == Compress::Raw {
            return self.store.with_raw_bytes(u64::from(index), range, reply).map(drop);
        }
        let range = range.start as usize..range.end as usize;
        let len = loc.logic_length as usize;
        if loc.logic_length <= ONE_REQUEST {
            return RECORD.with_borrow_mut(|bytes| {
                bytes.resize(len, 0);
                self.store.gather(&[u64::from(index)], bytes, len)?;
                reply(bytes.get(range).unwrap_or_default());
                Ok(())
            });
        }
        let bytes = match self.decoded.get(index, loc) {
            Some(bytes) => bytes,
            None => {
                let bytes = Arc::new(self.store.read(u64::from(index))?);
                // The last piece is not asked for again: the kernel has its page.
                if range.end < len {
                    self.decoded.keep(index, *loc, Arc::clone(&bytes));
                }
                bytes
            }
        };
        reply(bytes.get(range).unwrap_or_default());
        Ok(())
    }

    fn location(&self, index: u32) -> Result<RecordLoc> {
        self.store.location(u64::from(index))
    }

    fn refresh_modified(&self) -> Result<()> {
        let since = self.store.modified()?.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        // Never zero: some tools take a time of 0 for a missing one.
        let nanos = i64::try_from(since.as_nanos()).unwrap_or(i64::MAX).max(1_000_000_000);
        self.modified.store(nanos, Ordering::Relaxed);
        Ok(())
    }

    fn modified(&self) -> SystemTime {
        let nanos = u64::try_from(self.modified.load(Ordering::Relaxed)).unwrap_or(0);
        SystemTime::UNIX_EPOCH + Duration::from_nanos(nanos)
    }

    fn snapshots(&self) -> std::sync::MutexGuard<'_, HashMap<u64, Arc<Vec<u8>>>> {
        self.snapshots.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn not_found() -> Error {
    Error::new(ErrorKind::NotFound, "no such file")
}

/// The part of `0..len` that a request for `size` bytes at `offset` is about.
fn clip(offset: u64, size: u64, len: u64) -> Range<u64> {
    let start = offset.min(len);
    start..offset.saturating_add(size).min(len)
}

fn piece(bytes: &[u8], offset: u64, size: u32) -> &[u8] {
    let start = usize::try_from(offset).unwrap_or(usize::MAX).min(bytes.len());
    let end = start.saturating_add(size as usize).min(bytes.len());
    bytes.get(start..end).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codec::Codec;
    use crate::format::Version;
    use std::os::unix::fs::FileExt;

    #[test]
    fn a_large_record_is_decoded_once_for_all_its_pieces() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("s.zr");
        let record: Vec<u8> = (0..1_000_000).map(|i| (i / 9) as u8).collect();
        let store = Store::create(&path, Version::V1).unwrap();
        store.append(&record, record.len(), Codec::default()).unwrap();
        store.sync().unwrap();
        let options = ViewOptions { ext: None, uid: 0, gid: 0, umask: 0, cache: ViewOptions::DEFAULT_CACHE };
        let view = View::new(Store::open_read_only(&path).unwrap(), options).unwrap();
        let piece = |at: usize| {
            let mut seen = Vec::new();
            view.read(Node::Record(0), 0, at as u64, 100_000, |bytes| seen.extend_from_slice(bytes))
                .map(|()| seen)
        };
        assert_eq!(piece(0).unwrap(), record[..100_000]);
        // What is on disk decodes no more; the other pieces come from memory.
        let chunk = std::fs::File::options().write(true).open(path.join("0.zr")).unwrap();
        chunk.write_all_at(&[0xff; 1000], 0).unwrap();
        for at in (100_000..1_000_000).step_by(100_000) {
            assert_eq!(piece(at).unwrap(), record[at..at + 100_000]);
        }
    }
}
