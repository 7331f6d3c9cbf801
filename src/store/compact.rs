//! Compaction: the bytes of live records slide together, in the order of their places, and what is behind them goes.
//!
//! A record's entry changes only when its bytes are on disk at the new place, and its old place is written over only when
//! the new entry is: so every record is whole at every moment, by an entry that a single aligned write changes. That asks
//! for a new place which does not touch the old one, so where the gap in front of records is small they go by way of spare
//! room behind the frontier. The header stays marked meanwhile, to keep loaderx away.
//!
//! Readers of this process go on: the new places are shown to them by an overlay, and before the table changes, and so
//! before anything is written over, the last reader of the old places is done (see `state`).

use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::sync::Arc;

use super::layout::{Layout, Placed};
use super::locks::Alone;
use super::sidecars::SPARE;
use super::state::Overlay;
use super::{Progress, Store};
use crate::error::{Error, ErrorKind, Result};
use crate::format::{Header, Journal, MAX_CHUNK_BYTES, MAX_CHUNKS, RecordLoc, Row, Slot, Work};

// In unit tests they are small, so that a small store meets every case.

/// Bytes that move before their entries change. Bounds memory, and how many waits for the disk a compaction takes.
const WINDOW: u64 = if cfg!(test) { 6 << 10 } else { 32 << 20 };
/// Records that move before their entries change.
const WINDOW_RECORDS: usize = if cfg!(test) { 5 } else { 1 << 18 };
/// Gaps below this are crossed by way of the spare room.
const SMALL_GAP: u64 = if cfg!(test) { 3 << 10 } else { 4 << 20 };
/// Bytes that are copied at a time.
const PIECE: u64 = if cfg!(test) { 1 << 10 } else { 4 << 20 };

/// What a compaction did. Sizes are bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Compaction {
    /// Records that have a new place.
    pub records_moved: u64,
    /// Their bytes.
    pub bytes_moved: u64,
    /// Disk that was given back.
    pub freed: u64,
    /// Records that stayed behind a gap, since a full disk had no room to move them through.
    pub left: u64,
}

impl Store {
    /// Slides the live records together and gives the disk behind them back.
    ///
    /// Readers of this process go on; other processes must not have the store open. Whatever happens, each record is
    /// whole: a compaction that was cut off is done by the next one. Cost: reading and writing what moves, some of it
    /// twice; memory: 8 bytes a record of the store and some 64 MiB. A second run moves nothing. `progress` is called
    /// between steps, and ends the compaction where it breaks.
    ///
    /// # Errors
    /// [`ErrorKind::Damaged`] where an entry is damaged, records overlap, or a chunk is too short: repair the store first.
    /// [`ErrorKind::ReadOnly`], [`ErrorKind::Busy`] with the processes that have the store open, [`ErrorKind::Memory`],
    /// [`ErrorKind::Interrupted`] where `progress` broke, and what the system refuses.
    pub fn compact(&self, mut progress: impl FnMut(Progress) -> ControlFlow<()>) -> Result<Compaction> {
        let mut total = Compaction::default();
        let mut alone = self.alone()?;
        loop {
            let before = self.allocated()?;
            let done = Compactor::new(&mut alone)?.run(&mut progress)?;
            let freed = before.saturating_sub(self.allocated()?);
            total.records_moved += done.records_moved;
            total.bytes_moved += done.bytes_moved;
            total.freed += freed;
            total.left = done.left;
            // What stays behind for want of disk may find it now.
            if done.left == 0 || freed == 0 {
                return Ok(total);
            }
        }
    }
}

/// A place in the chunks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Place {
    chunk: u16,
    offset: u64,
}

impl Place {
    fn of(loc: &RecordLoc) -> Place {
        Place { chunk: loc.chunk_id, offset: u64::from(loc.offset) }
    }

    /// Where a record of `len` bytes goes that comes next here.
    fn next_for(self, len: u64) -> Place {
        if self.offset + len < MAX_CHUNK_BYTES { self } else { Place { chunk: self.chunk + 1, offset: 0 } }
    }

    fn behind(self, len: u64) -> Place {
        Place { offset: self.offset + len, ..self }
    }

    /// `loc` at this place.
    fn put(self, loc: &RecordLoc) -> RecordLoc {
        // Places lie below the largest chunk, whose offsets fit.
        RecordLoc { offset: u32::try_from(self.offset).unwrap_or(u32::MAX), chunk_id: self.chunk, ..*loc }
    }
}

/// A record on its way.
#[derive(Clone, Copy)]
struct Moving {
    index: u32,
    from: RecordLoc,
    to: RecordLoc,
}

/// One pass over a store.
struct Compactor<'a, 'b> {
    alone: &'a mut Alone<'b>,
    header: Header,
    layout: Layout,
    /// Where the next record goes.
    next: Place,
    /// The spare room: its start and size.
    spare: (Place, u64),
    done: Compaction,
    progress: Progress,
}

impl<'a, 'b> Compactor<'a, 'b> {
    /// Reads the layout of the store and refuses what would lose records.
    fn new(alone: &'a mut Alone<'b>) -> Result<Compactor<'a, 'b>> {
        let store = alone.store;
        let header = store.meta.whole_header()?;
        store.frontier_in_chunk(&header)?;
        let state = store.state();
        let layout = Layout::read(store, &state, &header)?;
        let refused = |text: String| {
            let text = format!("{} is not compacted: {text}", store.path.display());
            Err(Error::new(ErrorKind::Damaged, text)
                .with_help("`zrfs verify` lists what is bad, `zrfs repair` mends it"))
        };
        if let Some(index) = layout.damaged.first() {
            return refused(format!("the entry of record {index} is damaged"));
        }
        let frontier = Place { chunk: header.tail_chunk, offset: header.tail_offset.into() };
        for (id, places) in layout.chunks() {
            let len = state.chunks.get(store.dir.as_ref(), id)?.current_len()?;
            let mut end = 0;
            for i in places {
                let Some(Placed { index, loc }) = layout.record(store, &state, &header, i)? else { continue };
                if loc.phys_length == 0 {
                    continue;
                }
                if u64::from(loc.offset) < end {
                    return refused(format!("record {index} overlaps another"));
                }
                end = loc.end();
                if end > len || Place::of(&loc).behind(loc.phys_length.into()) > frontier {
                    return refused(format!("record {index} ends behind its chunk or the frontier"));
                }
            }
        }
        let start = Place { chunk: 0, offset: 0 };
        let (done, progress) = (Compaction::default(), Progress::default());
        Ok(Compactor { alone, header, layout, next: start, spare: (start, 0), done, progress })
    }

    fn run(mut self, tell: &mut impl FnMut(Progress) -> ControlFlow<()>) -> Result<Compaction> {
        let (moves, largest_crossing) = self.plan()?;
        if moves > 0 {
            self.begin(largest_crossing)?;
            if let Err(e) = self.slide(tell) {
                return Err(self.stop(e));
            }
        }
        self.end()?;
        Ok(self.done)
    }

    /// The record at place number `i`.
    fn record(&self, i: usize) -> Result<Option<Placed>> {
        self.layout.record(self.alone.store, &self.alone.store.state(), &self.header, i)
    }

    /// How many records move, and the largest of those whose new place touches the old one.
    fn plan(&mut self) -> Result<(u64, u64)> {
        let (mut moves, mut largest) = (0, 0);
        let mut next = Place { chunk: 0, offset: 0 };
        for i in 0..self.layout.len() {
            let Some(Placed { loc, .. }) = self.record(i)? else { continue };
            let len = u64::from(loc.phys_length);
            if len == 0 {
                continue;
            }
            let to = next.next_for(len);
            if to != Place::of(&loc) {
                moves += 1;
                self.progress.total += len;
                if to.behind(len) > Place::of(&loc) {
                    largest = largest.max(len);
                }
            }
            next = to.behind(len);
        }
        Ok((moves, largest))
    }

    /// Finds spare room, writes the journal, marks the header.
    fn begin(&mut self, largest_crossing: u64) -> Result<()> {
        let store = self.alone.store;
        let old = self.header;
        let wanted = self.progress.total.min(WINDOW).max(largest_crossing);
        self.spare =
            if largest_crossing == 0 { self.spare } else { self.find_spare(wanted, largest_crossing)? };
        let (place, room) = self.spare;
        if room > 0 {
            let end = place.behind(room);
            self.header.tail_chunk = end.chunk;
            self.header.tail_offset = u32::try_from(end.offset).unwrap_or(u32::MAX);
        }
        let sidecars = self.alone.writer.sidecars(store, &old)?;
        let (before, during) = (old.to_bytes(), self.header.to_bytes());
        sidecars.journal.write(&Journal { step: 0, old: before, new: during, work: Work::Compact })?;
        if let Some(sums) = &mut sidecars.sums {
            sums.announce(before, during)?;
        }
        sidecars.sync()?;
        if room > 0 {
            store.state().chunks.get(store.dir.as_ref(), place.chunk)?.sync()?;
        }
        store.sync_folder()?;
        store.meta.write_marked_header(&self.header)?;
        store.meta.sync()
    }

    /// Takes disk behind the frontier: as much as is wanted, or less on a full disk.
    fn find_spare(&mut self, wanted: u64, largest: u64) -> Result<(Place, u64)> {
        let frontier = Place { chunk: self.header.tail_chunk, offset: self.header.tail_offset.into() };
        let mut sizes: Vec<u64> = (0..5).map(|i| (wanted >> (2 * i)).max(largest)).collect();
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
        }
        for size in [largest.max(SPARE - SPARE / 8), largest] {
            if let Some(found) = self.take_spare(frontier, size)? {
                return Ok(found);
            }
        }
        Ok((frontier, 0))
    }

    /// Takes disk for `size` bytes behind `frontier`; `None` where there is not that much.
    fn take_spare(&mut self, frontier: Place, size: u64) -> Result<Option<(Place, u64)>> {
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
    fn free_gaps(&self) -> Result<()> {
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

    /// Moves all records that have a place to go to.
    fn slide(&mut self, tell: &mut impl FnMut(Progress) -> ControlFlow<()>) -> Result<()> {
        let mut i = 0;
        while i < self.layout.len() {
            let Some(Placed { index, loc }) = self.record(i)? else { break };
            let len = u64::from(loc.phys_length);
            let to = self.next.next_for(len);
            if len == 0 {
                i += 1;
                continue;
            }
            if to == Place::of(&loc) {
                (self.next, i) = (to.behind(len), i + 1);
                continue;
            }
            let gap = if to.chunk == loc.chunk_id { u64::from(loc.offset) - to.offset } else { u64::MAX };
            let crossing = gap < SMALL_GAP.max(len) && self.spare.1 >= len;
            let batch = if crossing {
                self.collect(i, self.spare.1.min(WINDOW.max(len)), None)?
            } else if gap >= len {
                self.collect(i, WINDOW.max(len), Some(Place::of(&loc)))?
            } else {
                log::debug!("record {index} stays: the disk is full");
                self.done.left += 1;
                (self.next, i) = (Place::of(&loc).behind(len), i + 1);
                continue;
            };
            let Some(last) = batch.last() else { break };
            self.next = Place::of(&last.to).behind(last.to.phys_length.into());
            i = self.skip(i, batch.len())?;
            if tell(self.progress).is_break() {
                let text = format!("the compaction of {} was interrupted", self.alone.store.path.display());
                return Err(Error::new(ErrorKind::Interrupted, text));
            }
            if crossing {
                self.cross(batch)?;
            } else {
                self.step(&batch, &batch)?;
            }
        }
        let _ = tell(self.progress);
        Ok(())
    }

    /// The place number behind the next `count` records that have bytes.
    fn skip(&self, mut i: usize, count: usize) -> Result<usize> {
        let mut seen = 0;
        while seen < count {
            if self.record(i)?.is_none_or(|record| record.loc.phys_length > 0) {
                seen += 1;
            }
            i += 1;
        }
        Ok(i)
    }

    /// Records from place number `i` on that move together: at most `most` bytes, in one chunk before and after, and with
    /// all new places before `limit`.
    fn collect(&self, i: usize, most: u64, limit: Option<Place>) -> Result<Vec<Moving>> {
        let mut batch: Vec<Moving> = Vec::new();
        let (mut next, mut bytes) = (self.next, 0);
        for i in i..self.layout.len() {
            let Some(Placed { index, loc }) = self.record(i)? else { break };
            let len = u64::from(loc.phys_length);
            if len == 0 {
                continue;
            }
            let to = next.next_for(len);
            let together = batch.first().is_none_or(|first| {
                first.from.chunk_id == loc.chunk_id && first.to.chunk_id == to.chunk && to != Place::of(&loc)
            });
            bytes += len;
            if !together
                || bytes > most
                || batch.len() == WINDOW_RECORDS
                || limit.is_some_and(|limit| to.behind(len) > limit)
            {
                break;
            }
            batch.push(Moving { index, from: loc, to: to.put(&loc) });
            next = to.behind(len);
        }
        Ok(batch)
    }

    /// Moves records by way of the spare room.
    fn cross(&mut self, batch: Vec<Moving>) -> Result<()> {
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
    fn step(&mut self, batch: &[Moving], origins: &[Moving]) -> Result<()> {
        self.switch(batch)?;
        self.move_rows(origins)?;
        let bytes: u64 = batch.iter().map(|moving| u64::from(moving.to.phys_length)).sum();
        self.done.records_moved += batch.len() as u64;
        self.done.bytes_moved += bytes;
        self.progress.done += bytes;
        Ok(())
    }

    /// Copies records, then changes their entries.
    fn switch(&self, batch: &[Moving]) -> Result<()> {
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

    /// Frees what lies between the new places of a batch and the records behind them.
    fn free_behind(&self, batch: &[Moving]) -> Result<()> {
        let store = self.alone.store;
        let (Some(first), Some(last)) = (batch.first(), batch.last()) else { return Ok(()) };
        let chunk = first.to.chunk_id;
        // The room between is dead only where the records come from elsewhere.
        if last.from.chunk_id == chunk && first.from.offset < last.to.offset {
            return Ok(());
        }
        let start = u64::from(first.to.offset);
        let state = store.state();
        for (id, places) in self.layout.chunks().filter(|&(id, _)| id == chunk) {
            for i in places {
                let Some(Placed { index, loc }) = self.record(i)? else { continue };
                let waits =
                    loc.chunk_id == id && u64::from(loc.offset) >= last.to.end() && loc.phys_length > 0;
                if waits && !batch.iter().any(|moving| moving.index == index) {
                    return state
                        .chunks
                        .get(store.dir.as_ref(), id)?
                        .free(start, u64::from(loc.offset) - start);
                }
            }
        }
        Ok(())
    }

    /// Copies the bytes of records, neighbours together.
    fn copy(&self, batch: &[Moving]) -> Result<()> {
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
                super::resize(&mut buffer, usize::try_from(PIECE.min(len)).unwrap_or(0))?;
                let bytes = buffer.get_mut(..usize::try_from(piece).unwrap_or(0)).unwrap_or_default();
                from.read(bytes, u64::from(first.from.offset) + at)?;
                to.write(bytes, u64::from(first.to.offset) + at)?;
                at += piece;
            }
        }
        Ok(())
    }

    /// Makes checksums follow their records. What a crash leaves undone here is done by the next opening (see `recover`).
    fn move_rows(&self, batch: &[Moving]) -> Result<()> {
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

    /// Writes the final header and cuts the files.
    fn end(&mut self) -> Result<()> {
        let store = self.alone.store;
        let (ends, frontier) = self.ends()?;
        let new = Header {
            tail_chunk: frontier.chunk,
            tail_offset: u32::try_from(frontier.offset).unwrap_or(u32::MAX),
            ..self.header
        };
        self.place_empty_records(&new)?;
        let state = store.state();
        let is_long =
            ends.iter().map(|&(id, end)| Ok(state.chunks.get(store.dir.as_ref(), id)?.current_len()? > end));
        let cuts = new != self.header || is_long.collect::<Result<Vec<_>>>()?.contains(&true);
        if new != self.header || store.meta.header_bytes()? != new.to_bytes() {
            if let Some(sidecars) = &mut self.alone.writer.sidecars {
                if let Some(sums) = &mut sidecars.sums {
                    sums.announce(self.header.to_bytes(), new.to_bytes())?;
                }
                sidecars.sync()?;
            }
            store.meta.write_header(&new)?;
            store.meta.sync()?;
        }
        if cuts {
            for (id, end) in ends {
                let chunk = state.chunks.get(store.dir.as_ref(), id)?;
                if chunk.current_len()? > end {
                    chunk.set_len(end)?;
                }
            }
            state.chunks.remove_behind(store.dir.as_ref(), new.tail_chunk)?;
            store.sync_folder()?;
        }
        drop(state);
        // Files that went must not be found open by a later append.
        store.show_anew(&new);
        self.header = new;
        self.alone.writer.checked = Some(new);
        if let Some(sidecars) = &self.alone.writer.sidecars {
            sidecars.journal.clear()?;
            sidecars.journal.reserve(new.length)?;
        }
        Ok(())
    }

    /// Where the live records end: in each chunk up to the last, and in all.
    fn ends(&self) -> Result<(Vec<(u16, u64)>, Place)> {
        let state = self.alone.store.state();
        // The records have moved, so they are looked at anew.
        let mut ends = vec![0u64; usize::from(MAX_CHUNKS)];
        for index in 0..self.header.length {
            let words = self.alone.store.words(&state, index)?;
            let Some(loc) = RecordLoc::decode(words, self.header.version) else { continue };
            if let Some(end) = ends.get_mut(usize::from(loc.chunk_id)).filter(|_| loc.phys_length > 0) {
                *end = loc.end().max(*end);
            }
        }
        let last = ends.iter().rposition(|&end| end > 0).unwrap_or(0);
        // An empty record never lies at the very start of a store, so where there is nothing else one byte is left.
        let all_empty = self.header.length > 0 && ends.iter().all(|&end| end == 0);
        if let Some(end) = ends.first_mut().filter(|_| all_empty) {
            *end = 1;
        }
        let ends: Vec<_> = (0..MAX_CHUNKS).zip(ends).take(last + 1).collect();
        let frontier = ends.last().map_or((0, 0), |&(id, end)| (id, end));
        Ok((ends, Place { chunk: frontier.0, offset: frontier.1 }))
    }

    /// Brings empty records that lie behind the new frontier before it.
    fn place_empty_records(&self, new: &Header) -> Result<()> {
        let store = self.alone.store;
        let frontier = Place { chunk: new.tail_chunk, offset: new.tail_offset.into() };
        let mut entries = Overlay::new();
        for i in 0..self.layout.len() {
            let Some(Placed { index, loc }) = self.record(i)? else { continue };
            if loc.phys_length == 0 && Place::of(&loc) > frontier {
                entries.push((index, frontier.put(&loc).to_words()));
            }
        }
        if entries.is_empty() {
            return Ok(());
        }
        entries.sort_unstable_by_key(|&(index, _)| index);
        store.show(entries.clone(), &self.header);
        store.meta.write_scattered(&entries)?;
        store.meta.sync()?;
        store.show(Overlay::new(), &self.header);
        Ok(())
    }

    /// Ends a compaction that failed. All records are whole, so the header's mark can go.
    fn stop(&mut self, e: Error) -> Error {
        let store = self.alone.store;
        let undone = store
            .meta
            .sync()
            .and_then(|()| store.meta.write_header(&self.header))
            .and_then(|()| store.meta.sync());
        store.show(Overlay::new(), &self.header);
        match undone {
            Ok(()) => e.with_help("every record is whole; compact again to go on"),
            Err(second) => {
                self.alone.writer.failed = true;
                e.with_help(format!("and the store could not be released ({second}): open it again"))
            }
        }
    }
}

/// Whether the system had no disk left.
fn is_full(e: &Error) -> bool {
    matches!(e.raw_os_error(), Some(libc::ENOSPC | libc::EDQUOT))
}
