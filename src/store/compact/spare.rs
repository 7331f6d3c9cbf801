//! Disk for a compaction: spare room behind the frontier, and on a full disk that of the gaps.

use std::collections::HashSet;

use super::Compactor;
use super::moving::Moving;
use crate::error::{Error, Result};
use crate::format::MAX_CHUNKS;
use crate::store::layout::Placed;
use crate::store::place::Place;
use crate::store::sidecars::SPARE;

impl Compactor<'_, '_> {
    /// Takes disk behind the frontier: as much as is wanted, or less on a full disk.
    pub(super) fn find_spare(&mut self, wanted: u64, largest: u64) -> Result<(Place, u64)> {
        let frontier = Place::frontier(&self.header);
        let mut sizes: Vec<u64> = (0..5).map(|i| (wanted >> (2 * i)).max(largest).max(1)).collect();
        sizes.dedup();
        for &size in &sizes {
            if let Some(found) = self.take_spare(frontier, size)? {
                return Ok(found);
            }
        }
        // The journal has kept some for this.
        if let Some(sidecars) = &self.alone.writer.sidecars {
            sidecars.journal.release_spare(self.header.length)?;
        }
        if largest > SPARE {
            self.free_gaps()?;
            self.tight = true;
        }
        for size in [largest.max(SPARE - SPARE / 8), largest.max(1)] {
            if let Some(found) = self.take_spare(frontier, size)? {
                return Ok(found);
            }
        }
        Ok((frontier, 0))
    }

    /// Takes disk for `size` bytes behind `frontier`; `None` where there is not that much.
    pub(super) fn take_spare(&mut self, frontier: Place, size: u64) -> Result<Option<(Place, u64)>> {
        let store = self.alone.store;
        let place = frontier.next_for(size);
        if place.chunk >= MAX_CHUNKS {
            return Ok(None);
        }
        let state = store.state();
        if place.chunk > self.header.tail_chunk {
            state.chunks.create(store.dir.as_ref(), place.chunk)?;
            self.alone.writer.dirty.mark_created(place.chunk);
        }
        let chunk = state.chunks.get(store.dir.as_ref(), place.chunk)?;
        let len = chunk.current_len()?;
        match chunk.allocate(place.offset, size) {
            Ok(()) => Ok(Some((place, size))),
            Err(e) if is_full(&e) => {
                chunk.set_len(len)?;
                Ok(None)
            }
            Err(e) => Err(e),
        }
    }

    /// Gives the disk of every gap back. They are read by nobody and written before they are read again.
    pub(super) fn free_gaps(&self) -> Result<()> {
        let store = self.alone.store;
        let state = store.state();
        for (id, places) in self.layout.chunks() {
            let chunk = state.chunks.get(store.dir.as_ref(), id)?;
            let mut end = 0;
            for i in places {
                let Some(Placed { loc, .. }) = self.record(i)? else { continue };
                let start = u64::from(loc.offset);
                if loc.phys_length > 0 && start > end {
                    chunk.free(end, start - end)?;
                }
                end = end.max(loc.end());
            }
        }
        Ok(())
    }

    /// Frees what lies between the new places of records, which are in the spare room now, and the records behind those:
    /// the gap, and the places that they have left.
    pub(super) fn free_behind(&self, batch: &[Moving]) -> Result<()> {
        let store = self.alone.store;
        let (Some(first), Some(last)) = (batch.first(), batch.last()) else { return Ok(()) };
        let chunk = first.to.chunk_id;
        let start = u64::from(first.to.offset);
        let moving: HashSet<u32> = batch.iter().map(|moving| moving.index).collect();
        let state = store.state();
        for (id, places) in self.layout.chunks().filter(|&(id, _)| id == chunk) {
            for i in places {
                let Some(Placed { index, loc }) = self.record(i)? else { continue };
                let waits =
                    loc.chunk_id == id && u64::from(loc.offset) >= last.to.end() && loc.phys_length > 0;
                if waits && !moving.contains(&index) {
                    return state
                        .chunks
                        .get(store.dir.as_ref(), id)?
                        .free(start, u64::from(loc.offset) - start);
                }
            }
        }
        Ok(())
    }
}

/// Whether the system had no disk left.
pub(super) fn is_full(e: &Error) -> bool {
    matches!(e.raw_os_error(), Some(libc::ENOSPC | libc::EDQUOT))
}
