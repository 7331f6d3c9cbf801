//! Reading ahead of need, around what is read.
//!
//! Records are drawn at random, but sooner or later all of them. So where a record is not in memory the system is asked for
//! all of the block that it lies in, in one request, and the reads that follow there find it in memory; where blocks are
//! read one after another, for more of them at a time. Who reads few records would wait for what nobody needs: the first
//! misses in a chunk, as many as a quarter of its blocks, read their record alone. Nothing is read around where the store is
//! too large to stay in memory: what was read along would be gone before it is needed.
//!
//! Where several records are read, all are asked for before the first is waited for, so that the disk has more than one to
//! do. Which are in memory is not known then; so a block is asked for once, until it turns out that it is gone again.
//!
//! Shared: counters and marks, which are hints: two threads that miss at once may both ask.

use std::ops::Range;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

use once_cell::race::OnceBox;

use crate::format::MAX_CHUNK_BYTES;
use crate::storage;

/// Bytes that are asked for together. Fewer make more requests of a whole store, more make the first reads wait longer.
const BLOCK: u64 = 256 << 10;
/// Blocks that are asked for at a time where they follow each other: records are being read in order, most likely.
const IN_ORDER: u64 = 4;
/// One miss in so many blocks reads its record alone.
const SPARSE: u64 = 4;

/// Longer records are not asked for: of one read in one go the system reads ahead by itself.
const LONG: u64 = 2 << 20;
/// Where a store is too large to stay in memory, so many records are asked for each time that one had to be waited for: who
/// finds all in memory asks for nothing.
const AFTER_A_WAIT: u64 = 512;
/// So many waits for what was asked for, without anything else being asked for meanwhile, tell that it is gone again.
const GONE: u64 = 64;
/// Words of a mark for each block of a chunk.
const MARKS: usize = (MAX_CHUNK_BYTES / BLOCK).div_ceil(64) as usize;

const UNDECIDED: u8 = 0;
const FITS: u8 = 1;
const IS_TOO_LARGE: u8 = 2;

/// What is known of the misses in a chunk.
#[derive(Default)]
pub(super) struct Ahead {
    misses: AtomicU64,
    /// Where the last range that was asked for ends.
    end: AtomicU64,
    decision: AtomicU8,
    /// The blocks that [`Ahead::coming`] has asked for.
    asked: OnceBox<[AtomicU64; MARKS]>,
    /// Waits for what was asked for, since something was asked for.
    waits: AtomicU64,
    /// How many records of a store that is too large are still asked for.
    left: AtomicU64,
}

impl Ahead {
    /// The bytes to ask for now that `len` bytes at `at` are read and not in memory: none where the record alone is to be
    /// read. The store has `stored` bytes.
    pub(super) fn around(&self, at: u64, len: u64, stored: u64) -> Range<u64> {
        let misses = self.misses.fetch_add(1, Ordering::Relaxed);
        if misses < few(stored) || !self.fits(stored) {
            return 0..0;
        }
        let start = at - at % BLOCK;
        let end = at.saturating_add(len).max(start + 1).checked_next_multiple_of(BLOCK).unwrap_or(u64::MAX);
        let further = if self.end.load(Ordering::Relaxed) == start { (IN_ORDER - 1) * BLOCK } else { 0 };
        let end = end.saturating_add(further);
        self.end.store(end, Ordering::Relaxed);
        start..end
    }

    /// The bytes to ask for, now that `len` bytes at `at` are to be read after others: none where they were asked for. The
    /// store has `stored()` bytes.
    #[inline]
    pub(super) fn coming(&self, at: u64, len: u64, stored: impl FnOnce() -> u64) -> Range<u64> {
        if len > LONG {
            return 0..0;
        }
        let asked = self.asked.get_or_init(|| Box::new([const { AtomicU64::new(0) }; MARKS]));
        let blocks = at / BLOCK..=at.saturating_add(len.saturating_sub(1)) / BLOCK;
        let mark = |block: u64| Some((asked.get(usize::try_from(block / 64).ok()?)?, 1 << (block % 64)));
        let is_asked = |block| mark(block).is_none_or(|(word, bit)| word.load(Ordering::Relaxed) & bit != 0);
        if blocks.clone().all(is_asked) {
            0..0
        } else {
            self.ask(at, len, stored(), blocks.clone().filter_map(mark))
        }
    }

    #[cold]
    fn ask<'a>(
        &self,
        at: u64,
        len: u64,
        stored: u64,
        marks: impl Iterator<Item = (&'a AtomicU64, u64)>,
    ) -> Range<u64> {
        let end = at.saturating_add(len);
        if !self.fits(stored) {
            let left = self.left.load(Ordering::Relaxed);
            self.left.store(left.saturating_sub(1), Ordering::Relaxed);
            return if left > 0 { at..end } else { 0..0 };
        }
        self.waits.store(0, Ordering::Relaxed);
        if self.misses.fetch_add(1, Ordering::Relaxed) < few(stored) {
            return at..end;
        }
        for (word, bit) in marks {
            word.fetch_or(bit, Ordering::Relaxed);
        }
        at - at % BLOCK..end.checked_next_multiple_of(BLOCK).unwrap_or(u64::MAX)
    }

    /// Notes that somebody had to wait so many times for what was asked for.
    pub(super) fn waited(&self, times: u64) {
        self.left.store(AFTER_A_WAIT, Ordering::Relaxed);
        if self.waits.fetch_add(times, Ordering::Relaxed) + times < GONE {
            return;
        }
        self.waits.store(0, Ordering::Relaxed);
        for word in self.asked.get().into_iter().flatten() {
            word.store(0, Ordering::Relaxed);
        }
    }

    /// Decided once: whether the store stays in memory when it was read.
    fn fits(&self, stored: u64) -> bool {
        match self.decision.load(Ordering::Relaxed) {
            UNDECIDED => {
                let fits = stored <= storage::available_memory() / 2;
                self.decision.store(if fits { FITS } else { IS_TOO_LARGE }, Ordering::Relaxed);
                fits
            }
            decision => decision == FITS,
        }
    }
}

/// How many misses in a chunk read their record alone.
fn few(stored: u64) -> u64 {
    stored.min(MAX_CHUNK_BYTES) / BLOCK / SPARSE
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_is_asked_for_and_more_where_they_follow_each_other() {
        let ahead = Ahead::default();
        let around = |at, len| ahead.around(at, len, 3 * BLOCK);
        assert_eq!(around(BLOCK * 3 + 5, 100), BLOCK * 3..BLOCK * 4);
        assert_eq!(around(BLOCK * 4, 1), BLOCK * 4..BLOCK * 8, "in order");
        assert_eq!(around(BLOCK * 4 - 1, 2), BLOCK * 3..BLOCK * 5, "a record in two blocks");
        assert_eq!(around(BLOCK * 9, 1), BLOCK * 9..BLOCK * 10);
        assert_eq!(around(0, 0), 0..BLOCK);
        assert_eq!(around(u64::MAX - 1, 9).end, u64::MAX);
    }

    #[test]
    fn who_reads_few_records_reads_no_others() {
        let ahead = Ahead::default();
        let alone = (0..1000).take_while(|_| ahead.around(0, 1, 400 * BLOCK).is_empty()).count();
        assert_eq!(alone, 100);
    }

    #[test]
    fn a_store_that_is_larger_than_memory_is_not_read_around() {
        let ahead = Ahead::default();
        let misses = MAX_CHUNK_BYTES / BLOCK / SPARSE;
        assert!((0..=misses).all(|_| ahead.around(0, 1, u64::MAX).is_empty()));
        assert_eq!(ahead.around(0, 1, 0), 0..0, "that is decided once");
    }

    #[test]
    fn memory_is_known() {
        assert!((1 << 20..1 << 50).contains(&storage::available_memory()));
    }

    #[test]
    fn what_is_to_come_is_asked_for_once() {
        let ahead = Ahead::default();
        let stored = || 3 * BLOCK;
        assert_eq!(ahead.coming(BLOCK * 3 + 5, 100, stored), BLOCK * 3..BLOCK * 4);
        assert_eq!(ahead.coming(BLOCK * 3 + 500, BLOCK / 2, stored), 0..0);
        assert_eq!(ahead.coming(BLOCK * 4 - 1, 2, stored), BLOCK * 3..BLOCK * 5, "a record in two blocks");
        assert_eq!(ahead.coming(BLOCK * 4, 1, stored), 0..0);
        assert_eq!(ahead.coming(0, 1, stored), 0..BLOCK);
        let last = MAX_CHUNK_BYTES - 1;
        assert_eq!(ahead.coming(last, 1, stored).end, last.next_multiple_of(BLOCK));
        assert_eq!(ahead.coming(last, 1, stored), 0..0);
        assert_eq!(ahead.coming(u64::MAX - 1, u64::MAX, stored), 0..0, "no chunk reaches there");
    }

    #[test]
    fn what_is_gone_is_asked_for_again() {
        let ahead = Ahead::default();
        let asks = |at| !ahead.coming(at, 1, || 0).is_empty();
        assert!(asks(0));
        ahead.waited(GONE - 1);
        assert!(asks(BLOCK), "it is on its way, as others are");
        ahead.waited(GONE - 1);
        assert!(!asks(0) && !asks(BLOCK));
        ahead.waited(1);
        assert!(asks(0) && asks(BLOCK));
    }

    #[test]
    fn few_records_are_asked_for_alone() {
        let ahead = Ahead::default();
        assert!((0..100).all(|_| ahead.coming(7, 3, || 400 * BLOCK) == (7..10)));
        assert_eq!(ahead.coming(7, 3, || 400 * BLOCK), 0..BLOCK);
    }

    #[test]
    fn records_of_a_store_that_is_larger_than_memory_are_asked_for_alone_while_somebody_waits() {
        let ahead = Ahead::default();
        let coming = || ahead.coming(7, 3, || u64::MAX);
        assert_eq!(coming(), 0..0, "for all that is known it is in memory");
        ahead.waited(1);
        assert!((0..AFTER_A_WAIT).all(|_| coming() == (7..10)));
        assert_eq!(coming(), 0..0, "nobody waited any more");
    }
}
