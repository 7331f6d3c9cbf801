//! Reading ahead of need, around what is read.
//!
//! Records are drawn at random, but sooner or later all of them. So where a record is not in memory the system is asked for
//! all of the block that it lies in, in one request, and the reads that follow there find it in memory; where blocks are
//! read one after another, for more of them at a time. Who reads few records would wait for what nobody needs: the first
//! misses in a chunk, as many as a quarter of its blocks, read their record alone. Nothing is read around where the store is
//! too large to stay in memory: what was read along would be gone before it is needed. Mapped reads need none of this, the
//! system reads around those by itself.
//!
//! Shared: counters, which are hints: two threads that miss at once may both ask.

use std::ops::Range;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

use crate::format::MAX_CHUNK_BYTES;
use crate::storage;

/// Bytes that are asked for together. Fewer make more requests of a whole store, more make the first reads wait longer.
const BLOCK: u64 = 256 << 10;
/// Blocks that are asked for at a time where they follow each other: records are being read in order, most likely.
const IN_ORDER: u64 = 4;
/// One miss in so many blocks reads its record alone.
const SPARSE: u64 = 4;

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
}

impl Ahead {
    /// The bytes to ask for now that `len` bytes at `at` are read and not in memory: none where the record alone is to be
    /// read. The store has `stored` bytes.
    pub(super) fn around(&self, at: u64, len: u64, stored: u64) -> Range<u64> {
        let misses = self.misses.fetch_add(1, Ordering::Relaxed);
        if misses < stored.min(MAX_CHUNK_BYTES) / BLOCK / SPARSE || !self.fits(stored) {
            return 0..0;
        }
        let start = at - at % BLOCK;
        let end = at.saturating_add(len).max(start + 1).checked_next_multiple_of(BLOCK).unwrap_or(u64::MAX);
        let further = if self.end.load(Ordering::Relaxed) == start { (IN_ORDER - 1) * BLOCK } else { 0 };
        let end = end.saturating_add(further);
        self.end.store(end, Ordering::Relaxed);
        start..end
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
}
