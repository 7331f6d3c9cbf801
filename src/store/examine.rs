//! Examining records: blocks of neighbouring indices, in parallel, each read in the order of its places.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use super::history::History;
use super::place::Place;
use super::sidecars::Sums;
use super::state::State;
use super::verify::BadRecord;
use super::{Progress, Store, resize, shards};
use crate::codec;
use crate::error::{Error, ErrorKind, Result};
use crate::format::{Compress, Header, ROW_BYTES, RecordLoc, Row, Slot, checksum, is_one_flipped_bit};

/// Records that one thread looks at in one go.
const BLOCK: u32 = 1 << 12;
/// Bytes that are read in one go, where records are not longer.
const RUN: u64 = 4 << 20;
/// Bytes between records that are read along with them.
const GAP: u64 = 16 << 10;
/// Bad records that are listed. All are counted.
const LISTED: usize = 100_000;

/// What records are held against.
pub(super) struct Examiner<'a> {
    pub(super) store: &'a Store,
    pub(super) state: &'a State,
    pub(super) header: Header,
    pub(super) sums: Option<Sums>,
    pub(super) history: History,
    /// Sorted indices of records that overlap others.
    pub(super) overlapping: Vec<u32>,
    /// Sorted indices of records that are others as well: they need not be read again.
    pub(super) twins: Vec<u32>,
    pub(super) progress: &'a (dyn Fn(Progress) + Sync),
    pub(super) total: u64,
    pub(super) done: AtomicU64,
    /// Why records could not be looked at at all.
    pub(super) refused: Mutex<Option<String>>,
}

/// What examining has found.
#[derive(Default)]
pub(super) struct Outcome {
    pub(super) checked: u64,
    /// Records that differ from a checksum which may be that of another record.
    pub(super) doubtful: u64,
    pub(super) bad_records: u64,
    /// The first ones, by index.
    pub(super) bad: Vec<BadRecord>,
    /// All bad records, one bit each, from record `base` on.
    pub(super) doomed: Vec<u8>,
    base: u32,
    /// Bad records that are good under this entry.
    pub(super) mends: Vec<(u32, [u64; 2])>,
    /// Records that overlap others and are checked.
    pub(super) overlapping: Vec<u32>,
}

/// What is to be known of one record.
enum Finding {
    Checked,
    Unchecked,
    Doubtful,
    Bad { reason: String, mend: Option<RecordLoc> },
}

/// A record to be read.
struct Wanted {
    index: u32,
    loc: RecordLoc,
    words: [u64; 2],
    row: Slot,
}

impl Outcome {
    /// Nothing found yet in the records from `base` to `end`; `base` is a multiple of 8.
    fn new(base: u32, end: u32) -> Outcome {
        let bytes = (end.saturating_sub(base) as usize).div_ceil(8);
        Outcome { doomed: vec![0; bytes], base, ..Outcome::default() }
    }

    /// Notes a bad record.
    pub(super) fn bad(
        &mut self,
        index: u32,
        loc: Option<RecordLoc>,
        reason: String,
        mend: Option<RecordLoc>,
    ) {
        self.bad_records += 1;
        let bit = index.saturating_sub(self.base);
        if let Some(byte) = self.doomed.get_mut(bit as usize / 8) {
            *byte |= 1 << (bit % 8);
        }
        if let Some(mend) = mend {
            self.mends.push((index, mend.to_words()));
        }
        if self.bad.len() < LISTED {
            self.bad.push(BadRecord { index: index.into(), loc, reason });
        }
    }

    fn add(&mut self, block: Outcome) {
        self.checked += block.checked;
        self.doubtful += block.doubtful;
        self.bad_records += block.bad_records;
        self.mends.extend(block.mends);
        self.overlapping.extend(block.overlapping);
        self.bad.extend(block.bad);
        if self.bad.len() > 2 * LISTED {
            self.shorten();
        }
        let from = block.base as usize / 8;
        for (byte, more) in self.doomed.iter_mut().skip(from).zip(block.doomed) {
            *byte |= more;
        }
    }

    /// Keeps the first of the listed ones.
    fn shorten(&mut self) {
        self.bad.sort_by_key(|bad| bad.index);
        self.bad.truncate(LISTED);
    }
}

impl Examiner<'_> {
    /// Examines the first `there` records.
    pub(super) fn all(&self, there: u32) -> Result<Outcome> {
        let mut blocks: Vec<u32> = (0..there.div_ceil(BLOCK)).collect();
        let outcome = Mutex::new(Outcome::new(0, self.header.length));
        let threads = shards::threads_for(blocks.len(), self.total);
        shards::for_each_shard(&mut blocks, threads, |blocks| {
            for block in blocks {
                let first = *block * BLOCK;
                let found = self.block(first, there.min(first.saturating_add(BLOCK)))?;
                outcome.lock().unwrap_or_else(PoisonError::into_inner).add(found);
            }
            Ok(())
        })?;
        let mut outcome = outcome.into_inner().unwrap_or_else(PoisonError::into_inner);
        outcome.shorten();
        Ok(outcome)
    }

    fn block(&self, first: u32, end: u32) -> Result<Outcome> {
        let mut out = Outcome::new(first, end);
        let rows = match &self.sums {
            Some(sums) => sums.read_rows(first..end)?,
            None => vec![[0; ROW_BYTES]; (end - first) as usize],
        };
        let mut wanted = Vec::with_capacity(rows.len());
        for (index, row) in (first..end).zip(rows) {
            let words = self.store.words(self.state, index)?;
            let row = Row::parse(&row);
            match RecordLoc::parse(words, self.header.version) {
                Ok(_) if self.is_twin(index, words, row) => {}
                Ok(loc) => wanted.push(Wanted { index, loc, words, row }),
                Err(fault) => out.bad(index, None, format!("its entry's {fault}"), self.under_row(row)),
            }
        }
        wanted.retain(|wanted| match self.out_of_bounds(&wanted.loc) {
            Some(reason) => {
                out.bad(wanted.index, Some(wanted.loc), reason, self.under_row(wanted.row));
                false
            }
            None => true,
        });
        wanted.sort_unstable_by_key(|wanted| (wanted.loc.chunk_id, wanted.loc.offset));
        let mut rest = wanted.as_slice();
        let (mut stored, mut decoded) = (Vec::new(), Vec::new());
        while let Some(run) = next_run(&mut rest) {
            self.run(run, &mut stored, &mut decoded, &mut out)?;
        }
        Ok(out)
    }

    /// Whether a record is another one as well, and no checksum says that it is the right one. It is called bad later.
    fn is_twin(&self, index: u32, words: [u64; 2], row: Slot) -> bool {
        self.twins.binary_search(&index).is_ok() && !matches!(row, Slot::Row(row) if row.loc == words)
    }

    /// Examines records that are read in one go.
    fn run(
        &self,
        run: &[Wanted],
        stored: &mut Vec<u8>,
        decoded: &mut Vec<u8>,
        out: &mut Outcome,
    ) -> Result<()> {
        let (Some(first), Some(end)) = (run.first(), run.iter().map(|wanted| wanted.loc.end()).max()) else {
            return Ok(());
        };
        let start = u64::from(first.loc.offset);
        let chunk = self.state.chunks.get(self.store.dir.as_ref(), first.loc.chunk_id)?;
        stored.clear();
        resize(stored, usize::try_from(end - start).unwrap_or(usize::MAX))?;
        let all = chunk.read(stored, start);
        let mut single = Vec::new();
        for wanted in run {
            let len = wanted.loc.phys_length as usize;
            let at = usize::try_from(u64::from(wanted.loc.offset) - start).unwrap_or(usize::MAX);
            let bytes = match &all {
                Ok(()) => stored.get(at..at.saturating_add(len)).unwrap_or_default(),
                // Where a part of the run can't be read, each is read alone.
                Err(_) => {
                    single.clear();
                    resize(&mut single, len)?;
                    if let Err(e) = chunk.read(&mut single, wanted.loc.offset.into()) {
                        self.note_refusal(&e);
                        out.bad(wanted.index, Some(wanted.loc), e.to_string(), self.under_row(wanted.row));
                        continue;
                    }
                    &single
                }
            };
            match self.judge(wanted, bytes, decoded)? {
                Finding::Checked => {
                    out.checked += 1;
                    if self.overlapping.binary_search(&wanted.index).is_ok() {
                        out.overlapping.push(wanted.index);
                    }
                }
                Finding::Unchecked => {}
                Finding::Doubtful => out.doubtful += 1,
                Finding::Bad { reason, mend } => out.bad(wanted.index, Some(wanted.loc), reason, mend),
            }
        }
        let bytes: u64 = run.iter().map(|wanted| u64::from(wanted.loc.phys_length)).sum();
        let done = self.done.fetch_add(bytes, Ordering::Relaxed) + bytes;
        (self.progress)(Progress { done, total: self.total });
        Ok(())
    }

    /// Says what is known of a record with these stored bytes.
    fn judge(&self, wanted: &Wanted, bytes: &[u8], decoded: &mut Vec<u8>) -> Result<Finding> {
        let Wanted { loc, words, row, .. } = wanted;
        let bad = |reason: &str, mend| Ok(Finding::Bad { reason: reason.to_owned(), mend });
        let decodes = self.decodes(loc, bytes, decoded)?;
        let Slot::Row(row) = row else {
            return if decodes { Ok(Finding::Unchecked) } else { bad(UNDECODABLE, None) };
        };
        let sum = checksum(bytes);
        if row.sum == sum && row.has_shape_of(loc) {
            // Also where the row knows another place: a record that has moved is the same record.
            return if decodes { Ok(Finding::Checked) } else { bad(UNDECODABLE, None) };
        }
        if row.loc == *words {
            if is_one_flipped_bit(row.sum, sum, bytes.len() as u64) {
                return bad("one bit of its bytes has flipped: the checksum differs", None);
            }
            let doubtful = row.doubtful || self.history.doubt_from.is_some_and(|from| Place::of(loc) >= from);
            return match (doubtful, decodes) {
                (true, true) => Ok(Finding::Doubtful),
                (true, false) => bad(UNDECODABLE, None),
                (false, _) => bad("its bytes have changed: the checksum differs", None),
            };
        }
        // The entry is not the one that was written. Another program has moved a record here, or put one behind what zrfs
        // wrote; otherwise, if what was written is still in its place, the entry is wrong.
        let known = &self.history.known;
        let may_be_foreign = !known.doubled.contains(words)
            && (known.moved.contains(words)
                || Place::of(loc) >= self.history.frontier
                || self.history.doubt_from.is_some_and(|from| Place::of(loc) >= from));
        if !may_be_foreign
            && self.state.overlaid(wanted.index).is_none()
            && let Some(mend) = self.under_row(Slot::Row(*row))
        {
            return bad("its entry has changed: the record is at another place", Some(mend));
        }
        if decodes { Ok(Finding::Unchecked) } else { bad(UNDECODABLE, None) }
    }

    fn decodes(&self, loc: &RecordLoc, stored: &[u8], decoded: &mut Vec<u8>) -> Result<bool> {
        if loc.compress == Compress::Raw {
            return Ok(true);
        }
        decoded.clear();
        resize(decoded, loc.logic_length as usize)?;
        Ok(codec::inflate(stored, decoded))
    }

    /// The entry that makes a record good, where the one in the table does not.
    pub(super) fn mend(&self, index: u32) -> Option<RecordLoc> {
        let row = self.sums.as_ref()?.row(index).ok()?;
        let loc = self.under_row(row)?;
        (self.store.words(self.state, index).ok()? != loc.to_words()).then_some(loc)
    }

    /// The entry that a row describes, where the record is there and fits the checksum.
    fn under_row(&self, row: Slot) -> Option<RecordLoc> {
        let Slot::Row(row) = row else { return None };
        let loc = RecordLoc::decode(row.loc, self.header.version)?;
        if self.out_of_bounds(&loc).is_some() {
            return None;
        }
        let mut bytes = Vec::new();
        resize(&mut bytes, loc.phys_length as usize).ok()?;
        let chunk = self.state.chunks.get(self.store.dir.as_ref(), loc.chunk_id).ok()?;
        chunk.read(&mut bytes, loc.offset.into()).ok()?;
        (checksum(&bytes) == row.sum).then_some(loc)
    }

    fn out_of_bounds(&self, loc: &RecordLoc) -> Option<String> {
        if Place::end_of(loc) > Place::frontier(&self.header) {
            return Some("it lies behind the frontier".to_owned());
        }
        let chunk = self.state.chunks.get(self.store.dir.as_ref(), loc.chunk_id);
        let e = chunk.and_then(|chunk| chunk.reaches(loc.end())).err()?;
        self.note_refusal(&e);
        Some(e.to_string())
    }

    /// Keeps the first error that says nothing of the record: a file that may not be opened, say.
    fn note_refusal(&self, e: &Error) {
        if e.kind() == ErrorKind::Io && e.raw_os_error() != Some(libc::EIO) {
            let mut refused = self.refused.lock().unwrap_or_else(PoisonError::into_inner);
            refused.get_or_insert_with(|| e.to_string());
        }
    }
}

const UNDECODABLE: &str = "its bytes do not decode to its length";

/// Takes the records from the front that are read in one go.
fn next_run<'a>(rest: &mut &'a [Wanted]) -> Option<&'a [Wanted]> {
    let first = rest.first()?;
    let start = u64::from(first.loc.offset);
    let mut end = first.loc.end();
    let count = rest
        .iter()
        .take_while(|next| {
            let near = next.loc.chunk_id == first.loc.chunk_id
                && u64::from(next.loc.offset) <= end.saturating_add(GAP);
            let fits = near && (next.loc.end() <= end || next.loc.end() - start <= RUN);
            if fits {
                end = end.max(next.loc.end());
            }
            fits
        })
        .count();
    let (run, behind) = rest.split_at_checked(count.max(1))?;
    *rest = behind;
    Some(run)
}
