//! Sealing: files as long as what they hold, for shipping. loaderx can read such a store, but must not append to it: it
//! maps all of meta.zr. An append by zrfs gives meta.zr its full size again.

use super::Store;
use super::locks::Alone;
use super::sidecars::Sums;
use crate::error::Result;
use crate::format::{Header, META_BYTES, RecordLoc, entry_at};

/// meta.zr is cut to a multiple of this many bytes.
const UNIT: u64 = 64 << 10;

/// What sealing did. Sizes are apparent ones, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Sealing {
    /// Size of all files of the store before.
    pub before: u64,
    /// And after.
    pub after: u64,
}

impl Store {
    /// Cuts meta.zr to a multiple of 64 KiB, and the chunks to the end of their last record. Takes no disk.
    ///
    /// # Errors
    /// [`ReadOnly`](crate::ErrorKind::ReadOnly), [`Busy`](crate::ErrorKind::Busy) with the processes that have the store
    /// open, [`Damaged`](crate::ErrorKind::Damaged) where the header promises what is not there, and what the system
    /// refuses.
    pub fn seal(&self) -> Result<Sealing> {
        let mut alone = self.alone()?;
        let sealed = self.seal_alone(&mut alone);
        alone.note(sealed)
    }

    fn seal_alone(&self, alone: &mut Alone<'_>) -> Result<Sealing> {
        let header = self.meta.whole_header()?;
        note_change(self, alone, &header)?;
        self.frontier_in_chunk(&header)?;
        let before = self.apparent()?;
        let state = self.state();
        let mut ends = vec![0u64; usize::from(header.tail_chunk) + 1];
        for index in 0..header.length {
            let Some(loc) = RecordLoc::decode(self.words(&state, index)?, header.version) else { continue };
            if let Some(end) = ends.get_mut(usize::from(loc.chunk_id)) {
                *end = loc.end().max(*end);
            }
        }
        if let Some(end) = ends.last_mut() {
            *end = header.tail_offset.into();
        }
        for (id, end) in (0..).zip(ends) {
            let chunk = state.chunks.get(self.dir.as_ref(), id)?;
            if chunk.current_len()? > end {
                chunk.set_len(end)?;
                chunk.sync()?;
            }
        }
        drop(state);
        self.state().chunks.remove_behind(self.dir.as_ref(), header.tail_chunk)?;
        self.show_anew(&header);
        self.set_table_len(entry_at(header.length).next_multiple_of(UNIT).min(META_BYTES))?;
        self.sync_folder()?;
        Ok(Sealing { before, after: self.apparent()? })
    }

    /// Gives meta.zr its full size again; it takes no more disk. loaderx can append then.
    ///
    /// # Errors
    /// As for [`Store::seal`].
    pub fn unseal(&self) -> Result<Sealing> {
        let mut alone = self.alone()?;
        note_change(self, &mut alone, &self.meta.whole_header()?)?;
        let before = self.apparent()?;
        let grown = self.set_table_len(META_BYTES);
        alone.note(grown)?;
        Ok(Sealing { before, after: self.apparent()? })
    }

    fn set_table_len(&self, len: u64) -> Result<()> {
        if self.meta.attributes()?.len != len {
            self.meta.set_len(len)?;
            self.meta.sync()?;
        }
        Ok(())
    }
}

/// Has the checksum file, where there is one, opened, so that it learns of the change when the store is let go.
fn note_change(store: &Store, alone: &mut Alone<'_>, header: &Header) -> Result<()> {
    if Sums::open(store.dir.as_ref(), &store.path)?.is_some() {
        alone.writer.sidecars(store, header)?;
    }
    Ok(())
}
