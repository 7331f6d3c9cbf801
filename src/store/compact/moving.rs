//! Records on their way: bytes first, then entries, then checksums.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::Compactor;
use super::place::Moving;
use super::spare::is_full;
use crate::error::Result;
use crate::format::{Row, Slot};
use crate::store::resize;
use crate::store::state::Overlay;

/// Bytes that are copied at a time.
const PIECE: u64 = if cfg!(test) { 1 << 10 } else { 4 << 20 };

impl Compactor<'_, '_> {
    /// Moves records by way of the spare room.
    pub(super) fn cross(&mut self, batch: Vec<Moving>) -> Result<()> {
        let (mut at, _) = self.spare;
        let mut there = Vec::with_capacity(batch.len());
        for moving in &batch {
            there.push(Moving { to: at.put(&moving.from), ..*moving });
            at = at.behind(moving.from.phys_length.into());
        }
        self.switch(&there)?;
        let back: Vec<Moving> =
            there.iter().zip(&batch).map(|(there, moving)| Moving { from: there.to, ..*moving }).collect();
        self.step(&back, &batch)
    }

    /// Moves records to their new places for good. `origins` has where the checksums know them.
    pub(super) fn step(&mut self, batch: &[Moving], origins: &[Moving]) -> Result<()> {
        self.switch(batch)?;
        self.move_rows(origins)?;
        let bytes: u64 = batch.iter().map(|moving| u64::from(moving.to.phys_length)).sum();
        self.done.records_moved += batch.len() as u64;
        self.done.bytes_moved += bytes;
        self.progress.done += bytes;
        Ok(())
    }

    /// Copies records, then changes their entries.
    pub(super) fn switch(&self, batch: &[Moving]) -> Result<()> {
        let store = self.alone.store;
        let chunks = Arc::clone(&store.state().chunks);
        match self.copy(batch) {
            Err(e) if is_full(&e) => {
                // Gaps that were freed are taken again: what lies there now is read by nobody.
                self.free_behind(batch)?;
                self.copy(batch)?;
            }
            other => other?,
        }
        let written: BTreeSet<u16> = batch.iter().map(|moving| moving.to.chunk_id).collect();
        for id in written {
            chunks.get(store.dir.as_ref(), id)?.sync()?;
        }
        let mut entries: Overlay = batch.iter().map(|moving| (moving.index, moving.to.to_words())).collect();
        entries.sort_unstable_by_key(|&(index, _)| index);
        store.show(entries.clone(), &self.header);
        store.meta.write_scattered(&entries)?;
        store.meta.sync()?;
        store.show(Overlay::new(), &self.header);
        Ok(())
    }

    /// Copies the bytes of records, neighbours together.
    pub(super) fn copy(&self, batch: &[Moving]) -> Result<()> {
        let store = self.alone.store;
        let state = store.state();
        let mut buffer = Vec::new();
        let neighbours = |a: &Moving, b: &Moving| {
            a.from.end() == u64::from(b.from.offset) && a.to.end() == u64::from(b.to.offset)
        };
        for run in batch.chunk_by(neighbours) {
            let (Some(first), Some(last)) = (run.first(), run.last()) else { continue };
            let from = state.chunks.get(store.dir.as_ref(), first.from.chunk_id)?;
            let to = state.chunks.get(store.dir.as_ref(), first.to.chunk_id)?;
            let (len, mut at) = (last.from.end() - u64::from(first.from.offset), 0);
            while at < len {
                let piece = PIECE.min(len - at);
                resize(&mut buffer, usize::try_from(PIECE.min(len)).unwrap_or(0))?;
                let bytes = buffer.get_mut(..usize::try_from(piece).unwrap_or(0)).unwrap_or_default();
                from.read(bytes, u64::from(first.from.offset) + at)?;
                to.write(bytes, u64::from(first.to.offset) + at)?;
                at += piece;
            }
        }
        Ok(())
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
