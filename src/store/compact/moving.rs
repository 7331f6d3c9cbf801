//! Records on their way: bytes first, then entries, then checksums.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::Compactor;
use super::spare::is_full;
use crate::error::Result;
use crate::format::{RecordLoc, Row, Slot};
use crate::store::resize;
use crate::store::state::Overlay;

/// A record on its way.
#[derive(Clone, Copy)]
pub(super) struct Moving {
    pub(super) index: u32,
    pub(super) from: RecordLoc,
    pub(super) to: RecordLoc,
}

/// Bytes that are copied at a time.
const PIECE: u64 = if cfg!(test) { 1 << 10 } else { 4 << 20 };

impl Compactor<'_, '_> {
    /// Moves records by way of the spare room.
    pub(super) fn cross(&mut self, batch: &[Moving]) -> Result<()> {
        let (mut at, _) = self.spare;
        let mut there = Vec::with_capacity(batch.len());
        for moving in batch {
            there.push(Moving { to: at.put(&moving.from), ..*moving });
            at = at.behind(moving.from.phys_length.into());
        }
        self.copy(&there)?;
        self.switch(&there)?;
        let back: Vec<Moving> =
            there.iter().zip(batch).map(|(there, moving)| Moving { from: there.to, ..*moving }).collect();
        match self.copy(&back) {
            Err(e) if is_full(&e) => {
                // The gap gave its disk back, and so do the places that these records have left.
                self.free_behind(&back)?;
                self.copy(&back)?;
            }
            other => other?,
        }
        self.arrive(&back, batch)
    }

    /// Moves records to their new places for good. `origins` has where the checksums know them.
    pub(super) fn step(&mut self, batch: &[Moving], origins: &[Moving]) -> Result<()> {
        self.copy(batch)?;
        self.arrive(batch, origins)
    }

    /// Makes records that were copied stand at their new places.
    fn arrive(&mut self, batch: &[Moving], origins: &[Moving]) -> Result<()> {
        self.switch(batch)?;
        self.move_rows(origins)?;
        let bytes: u64 = batch.iter().map(|moving| u64::from(moving.to.phys_length)).sum();
        self.done.records_moved += batch.len() as u64;
        self.done.bytes_moved += bytes;
        self.progress.done += bytes;
        Ok(())
    }

    /// Makes the bytes durable that were copied, then changes the entries.
    fn switch(&self, batch: &[Moving]) -> Result<()> {
        let store = self.alone.store;
        let chunks = Arc::clone(&store.state().chunks);
        let written: BTreeSet<u16> = batch.iter().map(|moving| moving.to.chunk_id).collect();
        for id in written {
            chunks.get(store.dir.as_ref(), id)?.sync()?;
        }
        self.change_entries(batch.iter().map(|moving| (moving.index, moving.to.to_words())).collect())
    }

    /// Changes entries, under readers who see the new ones from here on.
    pub(super) fn change_entries(&self, mut entries: Overlay) -> Result<()> {
        let store = self.alone.store;
        entries.sort_unstable_by_key(|&(index, _)| index);
        store.show(entries.clone(), &self.header);
        store.meta.write_scattered(&entries)?;
        store.meta.sync()?;
        store.show(Overlay::new(), &self.header);
        Ok(())
    }

    /// Copies the bytes of records, whose new places are neighbours in one chunk.
    fn copy(&self, batch: &[Moving]) -> Result<()> {
        let store = self.alone.store;
        let state = store.state();
        let (Some(first), Some(last)) = (batch.first(), batch.last()) else { return Ok(()) };
        let from = state.chunks.get(store.dir.as_ref(), first.from.chunk_id)?;
        let to = state.chunks.get(store.dir.as_ref(), first.to.chunk_id)?;
        let end = last.from.end();
        // What was read, from byte `start` on, and what is to be written, up to byte `at`.
        let (mut read, mut start) = (Vec::new(), 0u64);
        let (mut write, mut at) = (Vec::new(), u64::from(first.to.offset));
        for moving in batch {
            let (mut place, record_end) = (u64::from(moving.from.offset), moving.from.end());
            while place < record_end {
                if place < start || place >= start + read.len() as u64 {
                    let len = PIECE.min(end - place);
                    read.clear();
                    resize(&mut read, usize::try_from(len).unwrap_or(0))?;
                    from.read(&mut read, place)?;
                    start = place;
                }
                let skip = usize::try_from(place - start).unwrap_or(usize::MAX);
                let bytes = read.get(skip..).unwrap_or_default();
                let len = usize::try_from(record_end - place).unwrap_or(usize::MAX).min(bytes.len());
                write.extend_from_slice(bytes.get(..len).unwrap_or_default());
                place += len as u64;
                if write.len() as u64 >= PIECE {
                    to.write(&write, at)?;
                    at += write.len() as u64;
                    write.clear();
                }
            }
        }
        to.write(&write, at)
    }

    /// Makes checksums follow their records. What a crash leaves undone here is done by the next opening (see `recover`).
    pub(super) fn move_rows(&self, batch: &[Moving]) -> Result<()> {
        let Some(sums) = self.alone.writer.sidecars.as_ref().and_then(|sidecars| sidecars.sums.as_ref())
        else {
            return Ok(());
        };
        let mut moved: Vec<&Moving> = batch.iter().collect();
        moved.sort_unstable_by_key(|moving| moving.index);
        let rows = sums.read_rows(moved.iter().map(|moving| moving.index))?;
        let mut changed = Vec::with_capacity(rows.len());
        for (moving, row) in moved.into_iter().zip(rows) {
            if let Slot::Row(row) = Row::parse(&row)
                && row.loc == moving.from.to_words()
            {
                changed.push((moving.index, Row { loc: moving.to.to_words(), ..row }.to_bytes()));
            }
        }
        sums.write_rows(&changed)?;
        sums.sync()
    }
}
