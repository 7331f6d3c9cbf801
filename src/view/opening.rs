//! Opening and closing: what an open file holds, and who needs the index space to hold still.
//!
//! Shared: the handles, behind a mutex; the [`Gate`], behind another; which records are open, in shards, each behind its
//! own. Each is held for a look-up, and none while another is taken. A close reaches us after the program's call has returned:
//! so who finds files open that need the records to stay looks again when word of closes has had time to come, off the
//! handlers' threads.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::control::DeleteList;
use super::decoded::Whose;
use super::{Node, RecordId, View, pages};
use crate::error::{Error, ErrorKind, Result};

/// What a program opens a file for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Reading.
    Read,
    /// Writing, or both.
    Write,
}

/// A file that was opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Opened {
    /// What [`View::read`], [`View::write`] and [`View::release`] take.
    pub handle: u64,
    /// How its bytes get to programs.
    pub paging: Paging,
}

/// How the bytes of a file get to programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Paging {
    /// By the page cache, which outlives the opening.
    Cached,
    /// Past it.
    Direct,
    /// Past it, from the first byte on: there is no seeking.
    Stream,
}

/// What comes of an opening.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Opening {
    /// It is open.
    Done(Opened),
    /// The index space is changing, or is held still by files that may be closed already: the thread that changes it opens the
    /// file, by [`View::open_late`].
    Later,
}

/// What an open file holds. Records and directories hold nothing.
pub(super) enum Handle {
    /// What it said when it was opened.
    Page(Arc<Vec<u8>>),
    /// A list of records that are to be deleted.
    Delete(Arc<Mutex<DeleteList>>),
    /// `compact`, opened for writing.
    Compact,
    /// A file that is made of the whole index space.
    Sampled(super::batches::Open),
}

#[derive(Default)]
pub(super) struct Handles {
    open: Mutex<HashMap<u64, Handle>>,
    next: AtomicU64,
}

impl Handles {
    fn open(&self) -> MutexGuard<'_, HashMap<u64, Handle>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn add(&self, handle: Handle) -> u64 {
        // 0 is for those that hold nothing.
        let number = self.next.fetch_add(1, Ordering::Relaxed) + 1;
        self.open().insert(number, handle);
        number
    }

    /// What `pick` takes from an open file.
    pub(super) fn get<T>(&self, handle: u64, pick: impl FnOnce(&Handle) -> Option<T>) -> Result<T> {
        let found = self.open().get(&handle).and_then(pick);
        found.ok_or_else(|| Error::new(ErrorKind::Unsupported, "the file was not opened for this"))
    }
}

/// Whether the index space may change, and whether it has to hold still.
#[derive(Default)]
pub(super) struct Gate {
    held: Mutex<Held>,
    /// No file needs it to hold still any more.
    unpinned: Condvar,
}

/// How long word of a close may take: the kernel sends it on after close(2) has returned, and a thread of ours that has it may be
/// waiting for a processor.
const CLOSES: Duration = Duration::from_millis(250);

#[derive(Default)]
struct Held {
    /// Open files that need it to hold still.
    pins: usize,
    /// A delete is being done.
    deleting: bool,
    /// A compaction is running.
    compacting: bool,
}

impl Gate {
    fn held(&self) -> MutexGuard<'_, Held> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Has it hold still; `false` where it is changing.
    fn pin(&self) -> bool {
        let mut held = self.held();
        held.pins += usize::from(!held.deleting);
        !held.deleting
    }

    fn unpin(&self) {
        let mut held = self.held();
        held.pins = held.pins.saturating_sub(1);
        if held.pins == 0 {
            self.unpinned.notify_all();
        }
    }

    fn is_pinned(&self) -> bool {
        self.held().pins > 0
    }

    /// Waits until no file needs it to hold still, for as long as word of closes may take.
    fn await_closes(&self) {
        let waited = self.unpinned.wait_timeout_while(self.held(), CLOSES, |held| held.pins > 0);
        drop(waited.unwrap_or_else(PoisonError::into_inner));
    }

    /// Whether a delete could begin now.
    pub(super) fn check(&self) -> Result<()> {
        self.held().check()
    }

    /// Begins a delete, which [`Gate::end_delete`] ends. Waits for word of closes.
    pub(super) fn begin_delete(&self) -> Result<()> {
        self.await_closes();
        let mut held = self.held();
        held.check()?;
        held.deleting = true;
        Ok(())
    }

    pub(super) fn end_delete(&self) {
        self.held().deleting = false;
    }

    /// Begins a compaction, which [`Gate::end_compaction`] ends.
    pub(super) fn begin_compaction(&self) -> Result<()> {
        let mut held = self.held();
        if held.compacting || held.deleting {
            let what = if held.compacting {
                "the store is being compacted already"
            } else {
                "records are being deleted"
            };
            return Err(Error::new(ErrorKind::Busy, what));
        }
        held.compacting = true;
        Ok(())
    }

    pub(super) fn end_compaction(&self) {
        self.held().compacting = false;
    }
}

impl Held {
    fn check(&self) -> Result<()> {
        if self.compacting {
            return Err(Error::new(ErrorKind::Busy, "the store is being compacted")
                .with_help("read `compact` for how far it is"));
        }
        if self.pins > 0 {
            let text = format!(
                "{} open files in batches/, endless ones or array.npy need the records to stay",
                self.pins
            );
            return Err(Error::new(ErrorKind::Busy, text).with_help("close them first"));
        }
        Ok(())
    }
}

const SHARDS: usize = 16;

/// How often each record is open.
#[derive(Default)]
pub(super) struct OpenRecords {
    shards: [Mutex<HashMap<RecordId, u32>>; SHARDS],
    hash: RandomState,
}

impl OpenRecords {
    fn shard(&self, id: RecordId) -> Option<MutexGuard<'_, HashMap<RecordId, u32>>> {
        let at = usize::try_from(self.hash.hash_one(id)).unwrap_or_default() % SHARDS;
        Some(self.shards.get(at)?.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn add(&self, id: RecordId) {
        if let Some(mut shard) = self.shard(id) {
            *shard.entry(id).or_default() += 1;
        }
    }

    /// `true` where it is open no more.
    fn remove(&self, id: RecordId) -> bool {
        let Some(mut shard) = self.shard(id) else { return false };
        match shard.get_mut(&id) {
            Some(count) if *count > 1 => {
                *count -= 1;
                false
            }
            _ => shard.remove(&id).is_some(),
        }
    }

    /// Those that are open.
    pub(super) fn all(&self) -> Vec<RecordId> {
        let locked = self.shards.iter().map(|shard| shard.lock().unwrap_or_else(PoisonError::into_inner));
        locked.flat_map(|shard| shard.keys().copied().collect::<Vec<_>>()).collect()
    }
}

impl View {
    /// Opens a file.
    ///
    /// # Errors
    /// As for [`View::attributes`]; what [`Store::stats`](crate::store::Store::stats) gives where `stats` is opened. For
    /// writing, [`ErrorKind::ReadOnly`] for anything but `delete` and `compact`, and for those where the mount or the store
    /// can't be written; [`ErrorKind::Busy`] where open files need the records to stay, or a compaction is running.
    pub fn open(&self, node: Node, access: Access) -> Result<Opening> {
        if access == Access::Write {
            if node == Node::Delete && self.can_change() && self.gate.is_pinned() {
                return Ok(Opening::Later);
            }
            return self.open_to_write(node).map(Opening::Done);
        }
        if node.pins() {
            if !self.gate.pin() {
                return Ok(Opening::Later);
            }
            let opened = self.open_sampled(node).map(|(reader, paging)| {
                let handle = self.handles.add(Handle::Sampled(reader));
                Opening::Done(Opened { handle, paging })
            });
            return opened.inspect_err(|_| self.gate.unpin());
        }
        let page = match node {
            Node::Record(id) => {
                // First: whoever deletes it now finds it open.
                self.open_records.add(id);
                let there = self.steady(|ids| self.location(self.index_of(ids, id)?));
                let opened = Opened { handle: 0, paging: Paging::Cached };
                return there.map(|_| Opening::Done(opened)).inspect_err(|_| {
                    self.open_records.remove(id);
                });
            }
            Node::Stats => pages::stats(self)?,
            Node::Readme => pages::readme(self).into_bytes(),
            Node::Delete => self.control.delete_page().to_vec(),
            Node::Compact => self.control.compact_page(),
            _ => return Ok(Opening::Done(Opened { handle: 0, paging: Paging::Direct })),
        };
        let handle = self.handles.add(Handle::Page(Arc::new(page)));
        Ok(Opening::Done(Opened { handle, paging: Paging::Direct }))
    }

    /// Opens a file that [`View::open`] left to the thread that changes the index space, which calls this. Waits for word of
    /// closes, a quarter of a second at most.
    ///
    /// # Errors
    /// As for [`View::open`].
    pub fn open_late(&self, node: Node, access: Access) -> Result<Opened> {
        if access == Access::Write {
            self.gate.await_closes();
            return self.open_to_write(node);
        }
        match self.open(node, access)? {
            Opening::Done(opened) => Ok(opened),
            // Only the thread that is here deletes.
            Opening::Later => Err(Error::new(ErrorKind::Busy, "records are being deleted")),
        }
    }

    fn open_to_write(&self, node: Node) -> Result<Opened> {
        if !matches!(node, Node::Delete | Node::Compact) {
            return Err(Error::new(ErrorKind::ReadOnly, "only `delete` and `compact` can be written"));
        }
        self.require_changes()?;
        let handle = match node {
            Node::Delete => {
                self.gate.check().inspect_err(|e| self.control.refused(e))?;
                Handle::Delete(Arc::new(Mutex::new(DeleteList::new(self.store.epoch()))))
            }
            _ => {
                if self.control.is_compacting() {
                    return Err(Error::new(ErrorKind::Busy, "the store is being compacted already"));
                }
                Handle::Compact
            }
        };
        Ok(Opened { handle: self.handles.add(handle), paging: Paging::Direct })
    }

    /// Ends an opening.
    pub fn release(&self, node: Node, handle: u64) {
        match node {
            Node::Record(id) => {
                if self.open_records.remove(id) {
                    self.decoded.done(Whose::Record(id));
                }
            }
            _ if handle == 0 => {}
            _ => {
                let closed = self.handles.open().remove(&handle);
                match closed {
                    Some(Handle::Sampled(_)) => self.gate.unpin(),
                    Some(Handle::Delete(list)) => {
                        let dropped = list.lock().unwrap_or_else(PoisonError::into_inner).dropped();
                        dropped.iter().for_each(|e| self.control.refused(e));
                    }
                    _ => {}
                }
            }
        }
    }
}
