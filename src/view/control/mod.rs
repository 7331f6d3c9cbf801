//! `delete` and `compact`: what is written to them, what they say, and what is done.
//!
//! A handler takes what was written and says at once what is to be done; one thread then does it, in turn, and tells the
//! kernel what to forget. It alone deletes, and waits: for the store, and for handlers that are under way. No handler waits
//! for it. A compaction has a thread of its own, as records are served and deletes refused meanwhile.
//!
//! Shared: what the files say, each behind a mutex that is held to copy it; the list of an open `delete`, behind its own.

mod compact;
mod delete;
mod frame;

pub(super) use compact::COMPACT_BYTES;
use compact::Compacting;
pub use delete::Forget;
pub(super) use frame::DeleteList;

use std::sync::{Arc, Mutex, PoisonError};

use super::opening::Handle;
use super::{Node, View};
use crate::error::{Error, ErrorKind, Result};

/// What comes of a write to a control file.
#[derive(Debug)]
pub enum Written {
    /// It was taken; more may come.
    Taken,
    /// It asks for this to be done: by [`View::delete`].
    Delete(Deletion),
    /// It asks for a compaction: by [`View::compact`].
    Compact,
}

/// A whole list of records to delete.
#[derive(Debug)]
pub struct Deletion {
    list: Arc<Mutex<DeleteList>>,
    text: Vec<u8>,
}

/// What the control files say.
#[derive(Default)]
pub(super) struct Control {
    told: Mutex<delete::Told>,
    compacting: Compacting,
}

impl Control {
    pub(super) fn compact_page(&self) -> Vec<u8> {
        self.compacting.page()
    }

    pub(super) fn is_compacting(&self) -> bool {
        self.compacting.is_running()
    }
}

impl View {
    /// Whether the store is being compacted through the mount.
    pub fn is_compacting(&self) -> bool {
        self.control.is_compacting()
    }

    /// Takes what the thread `writer` wrote to `delete` or `compact`. It is one stream: where in the file it was written is
    /// all the same.
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`] for what is no list of records, or not whole; [`ErrorKind::Stale`] where a batch went in
    /// since the file was opened. The opening takes nothing more then, and says the same again.
    pub fn write(&self, node: Node, handle: u64, bytes: &[u8], writer: u32) -> Result<Written> {
        match node {
            Node::Delete => {
                let list = self.handles.get(handle, |handle| match handle {
                    Handle::Delete(list) => Some(Arc::clone(list)),
                    _ => None,
                })?;
                let taken = list.lock().unwrap_or_else(PoisonError::into_inner).take(
                    bytes,
                    self.store.epoch(),
                    writer,
                );
                match taken {
                    Ok(None) => Ok(Written::Taken),
                    Ok(Some(text)) => Ok(Written::Delete(Deletion { list, text })),
                    Err(e) => {
                        self.control.refused(&e);
                        Err(e)
                    }
                }
            }
            Node::Compact => {
                self.handles.get(handle, |handle| matches!(handle, Handle::Compact).then_some(()))?;
                if bytes.trim_ascii() == b"1" {
                    return Ok(Written::Compact);
                }
                Err(Error::new(ErrorKind::Unsupported, "`echo 1 > compact` begins a compaction"))
            }
            _ => Err(Error::new(ErrorKind::ReadOnly, "only `delete` and `compact` can be written")),
        }
    }

    /// Whether records can be deleted and the store compacted through this mount.
    pub fn can_change(&self) -> bool {
        let labels = self.labels.as_ref().is_none_or(|labels| labels.is_writable());
        !self.options.read_only && self.store.is_writable() && labels
    }

    /// Refuses changes where the mount or the store is read-only.
    pub(super) fn require_changes(&self) -> Result<()> {
        if self.can_change() {
            return Ok(());
        }
        Err(Error::new(ErrorKind::ReadOnly, "the mount is read-only"))
    }
}
