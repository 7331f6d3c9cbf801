//! Making appends durable, and visible to others.
//!
//! Appended records are visible to this process at once. Others see them when the header names them, and the header is
//! written only when data and table are on disk: so a power cut can lose records that were not synced, but never alter
//! one. Between the append and the sync the store holds the appenders' lock, and `Writer::pending` knows both headers.

use std::collections::BTreeSet;
use std::sync::atomic::Ordering;
use std::sync::{MutexGuard, PoisonError};

use super::sidecars::Sidecars;
use super::{Store, checkpoint, history};
use crate::error::{Error, ErrorKind, Result};
use crate::format::{Header, Version};

/// When appended records are on disk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Durability {
    /// When [`Store::sync`] has returned, or the store was dropped. Other processes see them then.
    #[default]
    AtSync,
    /// When the append has returned: each one waits for the disk.
    EachAppend,
}

/// What one writer at a time may touch.
#[derive(Default)]
pub(super) struct Writer {
    pub(super) durability: Durability,
    /// What has been written since the last sync.
    pub(super) dirty: Dirty,
    /// Set by a failed sync: what the system has dropped is not known then.
    pub(super) failed: bool,
    /// The header whose frontier was last found to lie behind every record.
    pub(super) checked: Option<Header>,
    /// Records that the header on disk does not name yet.
    pub(super) pending: Option<Pending>,
    /// Whether the pending append has made checkpoints.
    pub(super) noted: bool,
    /// Opened by the first change.
    pub(super) sidecars: Option<Sidecars>,
}

/// Appends that were not synced. While there are any, the appenders' lock is held.
#[derive(Clone, Copy)]
pub(super) struct Pending {
    /// The header on disk.
    pub(super) before: Header,
    /// The header that the next sync writes.
    pub(super) after: Header,
}

/// Files that a sync has to reach.
#[derive(Default)]
pub(super) struct Dirty {
    pub(super) chunks: BTreeSet<u16>,
    pub(super) folder: bool,
}

impl Dirty {
    pub(super) fn mark_created(&mut self, chunk: u16) {
        self.chunks.insert(chunk);
        self.folder = true;
    }
}

impl Store {
    /// Makes all that was appended so far durable and visible to other processes: chunk data, then checksums, table and
    /// folder, then the header.
    ///
    /// Waits while an [`Appender`](super::Appender) lives: on the thread that holds one it would never return, so commit
    /// first. Cost: the time that the disk takes, also where nothing was appended.
    ///
    /// # Errors
    /// [`ErrorKind::ReadOnly`] where the store was opened so, and in the child of a fork. The first refusal of the system. After one the store takes no more changes: what the system has dropped is
    /// not known, so open the store again and verify it. [`ErrorKind::Busy`] where another program has changed the store
    /// since the append: what was appended is lost then.
    pub fn sync(&self) -> Result<()> {
        self.require_write()?;
        let mut writer = self.writer();
        sync(self, &mut writer)
    }

    /// Chooses when appended records are on disk; [`Durability::AtSync`] where this is not called.
    pub fn set_durability(&self, durability: Durability) {
        self.writer().durability = durability;
    }

    pub(super) fn writer(&self) -> MutexGuard<'_, Writer> {
        // A panic while it was held leaves an append that was not committed: the header does not name it.
        self.writer.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Writer {
    /// Refuses to go on after a failed sync.
    pub(super) fn require_sound(&self, store: &Store) -> Result<()> {
        if !self.failed {
            return Ok(());
        }
        let text = format!("{} takes no more changes: a sync has failed", store.path.display());
        Err(Error::new(ErrorKind::Io, text).with_help("open it again and verify it"))
    }

    /// What zrfs keeps beside the store's files, made where it is missing. `header` is the one on disk.
    pub(super) fn sidecars(&mut self, store: &Store, header: &Header) -> Result<&mut Sidecars> {
        let sidecars = match &mut self.sidecars {
            Some(open) => open,
            none => {
                let open = Sidecars::open(store.dir.as_ref(), &store.path, header)?;
                self.dirty.folder |= open.created;
                none.insert(open)
            }
        };
        if let Some(sums) = &mut sidecars.sums {
            sums.reload()?;
            // The header may be the same and the records others; but not where loaderx can't have been.
            // While a step of ours is unfinished its mark has kept loaderx out.
            let rewritten = || {
                let may_be =
                    header.version == Version::V1 && matches!(store.meta.any_header(), Ok((_, false)));
                Ok::<_, Error>(may_be && sums.is_older_than(store.modified()?)?)
            };
            if sums.is_foreign(header) || rewritten()? {
                history::accept(store, header, sums)?;
            }
        }
        sidecars.look_for_names(header)?;
        Ok(sidecars)
    }

    /// Appends are no longer ahead of the disk.
    fn settle(&mut self, store: &Store) {
        if self.pending.take().is_some() {
            store.ahead.store(false, Ordering::Release);
            if std::mem::take(&mut self.noted)
                && let Err(e) = checkpoint::forget(store.dir.as_ref(), &store.path)
            {
                // The header is not the one before the append any more, so it says nothing.
                log::warn!("{e}");
            }
            store.meta.unlock_for_append();
        }
    }
}

/// Makes everything written so far durable; see [`Store::sync`].
pub(super) fn sync(store: &Store, writer: &mut Writer) -> Result<()> {
    writer.require_sound(store)?;
    let result = write_back(store, writer);
    writer.failed = result.is_err();
    if result.is_ok() {
        if writer.pending.is_some() {
            stamp(store, writer);
            if let Some(sidecars) = &mut writer.sidecars
                && let Some(names) = &mut sidecars.names
            {
                names.settle(sidecars.folder.as_ref());
            }
        }
        writer.settle(store);
    }
    result
}

/// Notes the time of the last change of meta.zr, so that a later one by another program is known.
pub(super) fn stamp(store: &Store, writer: &mut Writer) {
    let Some(sums) = writer.sidecars.as_mut().and_then(|sidecars| sidecars.sums.as_mut()) else { return };
    let mut stamped = || -> Result<()> {
        match store.meta.any_header()? {
            // What another program has written is not taken for ours without a look at what it changed.
            (header, false) if sums.is_foreign(&header) => Ok(()),
            (header, false) => sums.stamp(header.to_bytes(), store.modified()?),
            // A step that has failed half way.
            (_, true) => Ok(()),
        }
    };
    if let Err(e) = stamped() {
        log::debug!("{e}");
    }
}

/// Makes everything written so far durable, without naming it in the header.
pub(super) fn flush(store: &Store, writer: &mut Writer) -> Result<()> {
    flush_chunks(store, writer)?;
    flush_table(store, writer)
}

fn flush_chunks(store: &Store, writer: &Writer) -> Result<()> {
    let state = store.state();
    writer.dirty.chunks.iter().try_for_each(|&id| state.chunks.get(store.dir.as_ref(), id)?.sync())
}

/// Makes checksums, table and folder durable.
fn flush_table(store: &Store, writer: &mut Writer) -> Result<()> {
    if let Some(sidecars) = &mut writer.sidecars {
        sidecars.sync()?;
    }
    store.meta.sync()?;
    if writer.dirty.folder {
        store.sync_folder()?;
    }
    writer.dirty = Dirty::default();
    Ok(())
}

fn write_back(store: &Store, writer: &mut Writer) -> Result<()> {
    flush_chunks(store, writer)?;
    if let (Some(pending), Some(sidecars)) = (&writer.pending, &mut writer.sidecars) {
        sidecars.journal.reserve(pending.after.length)?;
        if let Some(sums) = &mut sidecars.sums {
            sums.announce(pending.before.to_bytes(), pending.after.to_bytes())?;
        }
        if let Some(names) = &mut sidecars.names {
            names.announce(pending.after.to_bytes())?;
        }
    }
    flush_table(store, writer)?;
    let Some(pending) = writer.pending else { return Ok(()) };
    if store.meta.header()? != pending.before {
        // Its bytes may lie where ours do.
        store.state().publish(&store.meta.header()?);
        let text = format!("{} was changed by another program since the last append", store.path.display());
        return Err(Error::new(ErrorKind::Busy, text).with_help(
            "what was appended since the last sync is lost: open the store again and append it once more",
        ));
    }
    store.meta.write_header(&pending.after)?;
    store.meta.sync()
}

impl Drop for Store {
    fn drop(&mut self) {
        // The child of a fork has nothing to write, and a thread that is gone there may have held the mutex and been
        // changing what it guards: that is left as it is.
        if self.meta.is_inherited() {
            return;
        }
        let mut writer = self.writer.lock().unwrap_or_else(PoisonError::into_inner);
        if writer.pending.is_some()
            && !writer.failed
            && let Err(e) = sync(self, &mut writer)
        {
            log::error!("{e}; what was appended since the last sync is lost");
        }
        // Closes what it has open.
        *writer = Writer::default();
    }
}
