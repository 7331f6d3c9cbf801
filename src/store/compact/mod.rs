//! Compaction: the bytes of live records slide together, in the order of their places, and what is behind them goes.
//!
//! A record's entry changes only when its bytes are on disk at the new place, and its old place is written over only when
//! the new entry is: so every record is whole at every moment, by an entry that a single aligned write changes. That asks
//! for a new place which does not touch the old one, so where the gap in front of records is small they go by way of spare
//! room behind the frontier. The header stays marked meanwhile, to keep loaderx away.
//!
//! Readers of this process go on: the new places are shown to them by an overlay, and before the table changes, and so
//! before anything is written over, the last reader of the old places is done (see `state`).

mod moving;
mod spare;

use std::ops::ControlFlow;

use super::layout::{Layout, Placed};
use super::locks::Alone;
use super::place::Place;
use super::sidecars::Sums;
use super::state::Overlay;
use super::{Progress, Store, history};
use crate::error::{Error, ErrorKind, Result};
use crate::format::{Header, Journal, MAX_CHUNKS, RecordLoc, Work};
use moving::Moving;
use spare::is_full;

// In unit tests they are small, so that a small store meets every case.

/// Bytes that move before their entries change. Bounds memory, and how many waits for the disk a compaction takes.
const WINDOW: u64 = if cfg!(test) { 6 << 10 } else { 32 << 20 };
/// Records that move before their entries change.
const WINDOW_RECORDS: usize = if cfg!(test) { 5 } else { 1 << 18 };
/// Gaps below this are crossed by way of the spare room.
const SMALL_GAP: u64 = if cfg!(test) { 3 << 10 } else { 4 << 20 };

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
        history::refuse_lost_records(self, &self.meta.whole_header()?)?;
        loop {
            let before = self.allocated()?;
            let done = Compactor::new(&mut alone).and_then(|pass| pass.run(&mut progress));
            let done = alone.note(done)?;
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

impl Store {
    /// Takes the store for right as it is, where another program has deleted its last records: compacting is refused
    /// otherwise, since a damaged length looks the same.
    ///
    /// # Errors
    /// As for [`Store::compact`].
    pub fn accept(&self) -> Result<()> {
        let mut alone = self.alone()?;
        let header = self.meta.whole_header()?;
        alone.writer.sidecars(self, &header).map(drop)
    }
}

/// What a pass has to do.
#[derive(Default)]
struct Plan {
    /// Records that move.
    moves: u64,
    /// The longest of those whose new place touches the old one.
    largest_crossing: u64,
    /// Whether some are so close to their new place that they would move one by one.
    has_small_gaps: bool,
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
    /// The disk is full, and the gaps have given theirs back: what is copied into them needs disk.
    tight: bool,
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
        let frontier = Place::frontier(&header);
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
        Ok(Compactor { alone, header, layout, next: start, spare: (start, 0), tight: false, done, progress })
    }

    fn run(mut self, tell: &mut impl FnMut(Progress) -> ControlFlow<()>) -> Result<Compaction> {
        let plan = self.plan()?;
        if plan.moves > 0 {
            let before = self.header;
            if let Err(e) = self.begin(&plan) {
                // Nothing has moved, so nothing lies in the spare room.
                self.header = before;
                return Err(self.stop(e));
            }
            self.slide(tell).map_err(|e| self.stop(e))?;
        }
        self.end()?;
        Ok(self.done)
    }

    /// The record at place number `i`.
    fn record(&self, i: usize) -> Result<Option<Placed>> {
        self.layout.record(self.alone.store, &self.alone.store.state(), &self.header, i)
    }

    fn plan(&mut self) -> Result<Plan> {
        let mut plan = Plan::default();
        let mut next = Place { chunk: 0, offset: 0 };
        for i in 0..self.layout.len() {
            let Some(Placed { loc, .. }) = self.record(i)? else { continue };
            let len = u64::from(loc.phys_length);
            if len == 0 {
                continue;
            }
            let to = next.next_for(len);
            if to != Place::of(&loc) {
                plan.moves += 1;
                self.progress.total += len;
                if to.behind(len) > Place::of(&loc) {
                    plan.largest_crossing = plan.largest_crossing.max(len);
                }
                plan.has_small_gaps |= to.behind(SMALL_GAP) > Place::of(&loc);
            }
            next = to.behind(len);
        }
        Ok(plan)
    }

    /// Finds spare room, writes the journal, marks the header.
    fn begin(&mut self, plan: &Plan) -> Result<()> {
        let store = self.alone.store;
        let old = self.header;
        if plan.largest_crossing > 0 || plan.has_small_gaps {
            let wanted = self.progress.total.min(WINDOW).max(plan.largest_crossing);
            self.spare = self.find_spare(wanted, plan.largest_crossing)?;
        }
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
            let crossing = (self.tight || gap < SMALL_GAP.max(len)) && self.spare.1 >= len;
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
            i = self.skip(i, batch.len())?;
            if tell(self.progress).is_break() {
                let text = format!("the compaction of {} was interrupted", self.alone.store.path.display());
                return Err(Error::new(ErrorKind::Interrupted, text));
            }
            let moved = if crossing { self.cross(&batch) } else { self.step(&batch, &batch) };
            let stands = match moved {
                Ok(()) => last.to,
                // Nothing has changed but bytes in a gap. On a full disk others may still move.
                Err(e) if is_full(&e) && !crossing => {
                    self.done.left += batch.len() as u64;
                    last.from
                }
                Err(e) => return Err(e),
            };
            self.next = Place::of(&stands).behind(stands.phys_length.into());
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
        if new != self.header || store.meta.header_bytes()? != new.to_bytes() {
            if new != self.header && Sums::is_there(store.dir.as_ref()) {
                // Where nothing has moved they are not open yet.
                self.alone.writer.sidecars(store, &self.header)?;
            }
            if let Some(sidecars) = &mut self.alone.writer.sidecars {
                if let Some(sums) = &mut sidecars.sums {
                    sums.announce(self.header.to_bytes(), new.to_bytes())?;
                }
                sidecars.sync()?;
            }
            store.meta.write_header(&new)?;
            store.meta.sync()?;
        }
        for (id, end) in ends {
            let chunk = state.chunks.get(store.dir.as_ref(), id)?;
            if chunk.current_len()? > end {
                chunk.set_len(end)?;
            }
        }
        if state.chunks.remove_behind(store.dir.as_ref(), new.tail_chunk)? {
            store.sync_folder()?;
        }
        drop(state);
        // Files that went must not be found open by a later append.
        store.show_anew(&new);
        self.header = new;
        self.alone.writer.checked = Some(new);
        if let Some(sidecars) = &self.alone.writer.sidecars {
            // The compaction is done, whatever becomes of these.
            if let Err(e) = sidecars.journal.clear().and_then(|()| sidecars.journal.reserve(new.length)) {
                log::warn!("{e}");
            }
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
        let frontier = ends.last().map(|&(chunk, offset)| Place { chunk, offset }).unwrap_or_default();
        Ok((ends, frontier))
    }

    /// Brings empty records that lie behind the new frontier before it.
    fn place_empty_records(&self, new: &Header) -> Result<()> {
        let frontier = Place::frontier(new);
        let mut moved = Vec::new();
        for i in 0..self.layout.len() {
            let Some(Placed { index, loc }) = self.record(i)? else { continue };
            if loc.phys_length == 0 && Place::of(&loc) > frontier {
                moved.push(Moving { index, from: loc, to: frontier.put(&loc) });
            }
        }
        if moved.is_empty() {
            return Ok(());
        }
        self.change_entries(moved.iter().map(|moving| (moving.index, moving.to.to_words())).collect())?;
        self.move_rows(&moved)
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
