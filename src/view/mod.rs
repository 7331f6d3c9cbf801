//! What a mount shows: inode numbers, names, attributes and the bytes of each file. Knows no FUSE: everything here
//! runs, and is tested, without a mount.
//!
//! Shared by all threads: the store; which record each file is (see `identity`); counters, which are atomics; what open
//! files hold, and the cache of decoded records, each behind a mutex of its own that is held for a look-up and never while
//! decoding or reading. No call waits for another thread, but for those that say so: they are for the thread that deletes
//! and compacts. Of the names nothing is kept here: the store is asked each time.
//!
//! Deletes change what indices mean while others read. So whatever goes by an index is done in one epoch of the store:
//! see `View::steady`.

mod attributes;
mod batches;
mod complaints;
mod control;
mod decoded;
mod growth;
mod identity;
mod inode;
mod listing;
mod names;
mod opening;
mod pages;
mod reading;
#[cfg(test)]
mod tests;
mod tree;
mod xattr;

pub use attributes::{Attributes, Keep, Kind};
pub use control::{Deletion, Forget, Written};
pub use growth::Seen;
pub use identity::RecordId;
pub use inode::{Epoch, Node, Sampled, StepFile};
pub use listing::{ListEntry, Listing};
pub use opening::{Access, Opened, Opening, Paging};
pub use reading::Reply;

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64};
use std::time::{Duration, SystemTime};

use arc_swap::{ArcSwap, Guard};

use crate::dataset::Schema;
use crate::error::{Error, ErrorKind, Result};
use crate::format::RecordLoc;
use crate::sampler::SamplerOptions;
use crate::store::{NodeId, Store};
use batches::{Batches, Engine};
use complaints::Complaints;
use control::Control;
use decoded::Decoded;
use identity::{Ids, Lineage};
use opening::{Gate, Handles, OpenRecords};

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
    /// Bytes of decoded records to keep between the requests for their pieces, and of parts of batches that are made ahead
    /// or being read: each of the two up to so many.
    pub cache: usize,
    /// Whether `delete` and `compact` refuse to be written.
    pub read_only: bool,
    /// Files are data alone: no control files and no endless ones, and `stats` has no counters, so that files can be read
    /// without being opened here.
    pub data_only: bool,
    /// The stream of the endless files and of `batches/`.
    pub sampler: SamplerOptions,
    /// The step that endless files begin with.
    pub start: u64,
    /// How many records the stream is of; `None`: all that are there at the beginning.
    pub length: Option<u64>,
    /// How many steps `batches/` lists.
    pub steps: u64,
}

impl ViewOptions {
    /// What `cache` is where nothing is said, in bytes.
    pub const DEFAULT_CACHE: usize = 512 << 20;
}

impl Default for ViewOptions {
    fn default() -> ViewOptions {
        ViewOptions {
            ext: None,
            uid: 0,
            gid: 0,
            umask: 0,
            cache: ViewOptions::DEFAULT_CACHE,
            read_only: false,
            data_only: false,
            sampler: SamplerOptions::default(),
            start: 0,
            length: None,
            steps: 0,
        }
    }
}

/// Figures for statfs, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Space {
    /// What the store takes on disk.
    pub bytes: u64,
    /// Number of records, and of files and directories beside them; without what is in `tree/`.
    pub files: u64,
}

/// A store as a tree of files.
pub struct View {
    store: Arc<Store>,
    /// The store of the labels, record by record.
    labels: Option<Arc<Store>>,
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
    counters: Arc<Counters>,
    handles: Handles,
    open_records: OpenRecords,
    gate: Gate,
    control: Control,
    batches: Batches,
    decoded: Arc<Decoded>,
    lineage: ArcSwap<Lineage>,
    /// Held by every handler whose answer the kernel keeps.
    passage: ArcSwap<()>,
    /// When folders of `tree/` have lost records, by deletes of this mount, in nanoseconds since 1970.
    touched: ArcSwap<HashMap<NodeId, i64>>,
    /// Whether it was logged that names can't be read.
    nameless: AtomicBool,
}

/// What a mount has served since it began.
#[derive(Default)]
struct Counters {
    reads: AtomicU64,
    bytes: AtomicU64,
    errors: AtomicU64,
    complaints: Complaints,
}

impl View {
    /// Shows `store`. Where it was opened for writing, `delete` and `compact` may be written.
    ///
    /// A schema.json that can't be used is logged, and the records are shown as `.bin`.
    ///
    /// # Errors
    /// [`ErrorKind::Geometry`] where the labels are not as many as the records; what the system refuses.
    pub fn new(store: Store, labels: Option<Store>, options: ViewOptions) -> Result<View> {
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
        let (store, labels) = (Arc::new(store), labels.map(Arc::new));
        let decoded = Arc::new(Decoded::new(options.cache));
        let engine = Engine::new(
            Arc::clone(&store),
            labels.clone(),
            schema.clone(),
            head.clone(),
            ext.clone(),
            options.clone(),
            Arc::clone(&decoded),
        )?;
        let mut view = View {
            schema: schema.filter(|_| !head.is_empty()),
            mounted: SystemTime::UNIX_EPOCH,
            modified: AtomicI64::new(0),
            decoded,
            store,
            labels,
            head,
            ext,
            options,
            counters: Arc::default(),
            handles: Handles::default(),
            open_records: OpenRecords::default(),
            gate: Gate::default(),
            control: Control::default(),
            batches: Batches::new(engine),
            lineage: ArcSwap::default(),
            passage: ArcSwap::default(),
            touched: ArcSwap::default(),
            nameless: AtomicBool::new(false),
        };
        view.refresh_modified()?;
        view.mounted = view.modified();
        Ok(view)
    }

    /// Gives back memory that nobody needs any more. To be called now and then.
    pub fn tidy(&self) {
        self.decoded.forget_idle();
        self.batches.tidy();
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
        let found = self.steady(|ids| match parent {
            Node::Root => {
                self.in_root(name).ok_or_else(not_found).and_then(|node| self.attributes_at(ids, node))
            }
            Node::Batches => {
                let (file, step) = self.step_of(name).ok_or_else(not_found)?;
                self.sampled_attributes(Node::Step(file, step, self.store.epoch()))
            }
            Node::Records => self.lookup_record(ids, name),
            Node::Tree | Node::Folder(_) => {
                self.child(parent, name).and_then(|named| self.attributes_of(ids, &named))
            }
            _ => Err(not_found()),
        });
        found.map_err(|e| if e.kind() == ErrorKind::OutOfRange { not_found() } else { e })
    }

    /// The node of a name in the root.
    fn in_root(&self, name: &[u8]) -> Option<Node> {
        let sampled = || Some(Node::Sampled(self.sampled_in_root(name)?, self.store.epoch()));
        names::in_root(name).or_else(sampled).filter(|&node| self.shows(node))
    }

    /// Whether the mount has such a file.
    fn shows(&self, node: Node) -> bool {
        match node {
            Node::Delete | Node::Compact => !self.options.data_only,
            Node::Sampled(which, _) => which == Sampled::Array || !self.options.data_only,
            _ => true,
        }
    }

    fn lookup_record(&self, ids: &Ids, name: &[u8]) -> Result<Attributes> {
        let (index, ext) = names::record(name).ok_or_else(not_found)?;
        let named = self.name_of(index);
        if ext != self.extension(named.as_ref()) {
            return Err(not_found());
        }
        self.record(ids, index, named.as_ref())
    }

    /// Does what goes by indices in one epoch of the store: `work` is given what they stand for, and is done again where a
    /// delete came in between.
    fn steady<T>(&self, mut work: impl FnMut(&Ids) -> Result<T>) -> Result<T> {
        loop {
            let epoch = self.store.epoch();
            let done = work(self.lineage.load().at(epoch));
            if self.store.epoch() == epoch {
                return done;
            }
        }
    }

    /// The index that a record has.
    fn index_of(&self, ids: &Ids, id: RecordId) -> Result<u32> {
        ids.index_of(id).ok_or_else(|| {
            let text = format!("a record of {} was deleted while it was in use", self.store.path().display());
            Error::new(ErrorKind::Stale, text)
        })
    }

    /// To be held while a request is handled whose answer the kernel keeps, until it is answered.
    pub fn passage(&self) -> Guard<Arc<()>> {
        self.passage.load()
    }

    /// Waits until every request that was being handled is answered.
    fn wait_for_handlers(&self) {
        let before = self.passage.swap(Arc::new(()));
        while Arc::strong_count(&before) > 1 {
            std::thread::sleep(Duration::from_micros(50));
        }
    }

    /// Figures for statfs.
    ///
    /// # Errors
    /// What the system refuses.
    pub fn space(&self) -> Result<Space> {
        let tree = self.names_or_none().is_some();
        let shown = names::ROOT.iter().filter(|&&(_, node)| self.shows(node) && (tree || node != Node::Tree));
        let shown = shown.count() as u64 + u64::from(self.batches.has_array());
        // And the root itself. How many folders and links are in tree/ only a walk over all names would tell.
        let files = [shown + 1, self.batches.listed(self.options.steps)];
        let files = files.into_iter().fold(self.store.len(), u64::saturating_add);
        Ok(Space { bytes: self.store.allocated()?, files })
    }

    /// Owner and group of every file.
    pub fn owner(&self) -> (u32, u32) {
        (self.options.uid, self.options.gid)
    }

    fn location(&self, index: u32) -> Result<RecordLoc> {
        self.store.location(u64::from(index))
    }
}

fn not_found() -> Error {
    Error::new(ErrorKind::NotFound, "no such file")
}
