//! Reading ahead of need, around what is read.
//!
//! Records are drawn at random, but sooner or later all of them: so the first read in a block of a chunk asks the system for
//! all of the block, in one request, and the reads that follow there find it in memory. A block that follows one that was
//! asked for is asked for with some behind it, so who reads in order waits less often. Each block is asked for once, so no
//! more than the store is read in addition; and none at all where the store is too large to stay in memory: what was read
//! along would be gone before it is needed. Mapped reads need none of this, the system reads around those by itself.
//!
//! Shared: bits, set by whoever comes first.

use std::ops::Range;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

use crate::format::MAX_CHUNK_BYTES;
use crate::storage;

/// Bytes that are asked for together. Fewer make more requests of a whole store, more make the first reads wait longer.
const BLOCK: u64 = 256 << 10;

/// Blocks that are asked for beyond one that follows another: records are being read in order, most likely.
const FURTHER: usize = 3;

const UNDECIDED: u8 = 0;
const FITS: u8 = 1;
const IS_TOO_LARGE: u8 = 2;

/// The blocks of a chunk that were asked for. Takes 2 KiB.
pub(super) struct Asked {
    blocks: Box<[AtomicU64]>,
    decision: AtomicU8,
}

impl Asked {
    pub(super) fn new() -> Asked {
        let words = (MAX_CHUNK_BYTES / BLOCK).div_ceil(64);
        Asked { blocks: (0..words).map(|_| AtomicU64::new(0)).collect(), decision: AtomicU8::new(UNDECIDED) }
    }

    /// The bytes to ask for now that `len` bytes at `at` are read: none where that was done already. `stored` gives the bytes of
    /// the whole store.
    #[inline]
    pub(super) fn around(&self, at: u64, len: u64, stored: impl FnOnce() -> u64) -> Range<u64> {
        let blocks = at / BLOCK..at.saturating_add(len).div_ceil(BLOCK);
        if blocks.clone().all(|block| self.is_set(block)) || !self.fits(stored) {
            return 0..0;
        }
        // From the first to the last that nobody has asked for; others between them are in memory, which costs little.
        let mut wanted = blocks.filter(|&block| self.set(block));
        let Some(first) = wanted.next() else { return 0..0 };
        let last = wanted.last().unwrap_or(first);
        let follows = first.checked_sub(1).is_some_and(|before| self.is_set(before));
        let further =
            (last + 1..).take(if follows { FURTHER } else { 0 }).take_while(|&block| self.set(block));
        first * BLOCK..(further.last().unwrap_or(last) + 1) * BLOCK
    }

    /// Decided once: whether the store stays in memory when it was read.
    fn fits(&self, stored: impl FnOnce() -> u64) -> bool {
        match self.decision.load(Ordering::Relaxed) {
            UNDECIDED => {
                let fits = stored() <= storage::available_memory() / 2;
                self.decision.store(if fits { FITS } else { IS_TOO_LARGE }, Ordering::Relaxed);
                fits
            }
            decision => decision == FITS,
        }
    }

    fn word(&self, block: u64) -> Option<&AtomicU64> {
        self.blocks.get(usize::try_from(block / 64).ok()?)
    }

    /// Behind the last one there is nothing to ask for.
    fn is_set(&self, block: u64) -> bool {
        self.word(block).is_none_or(|word| word.load(Ordering::Relaxed) & 1 << (block % 64) != 0)
    }

    /// `true` where it was not set before.
    fn set(&self, block: u64) -> bool {
        let bit = 1 << (block % 64);
        self.word(block).is_some_and(|word| word.fetch_or(bit, Ordering::Relaxed) & bit == 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_block_is_asked_for_once() {
        let asked = Asked::new();
        let around = |at, len| asked.around(at, len, || 0);
        assert_eq!(around(BLOCK * 3 + 5, 100), BLOCK * 3..BLOCK * 4);
        assert_eq!(around(BLOCK * 3, BLOCK), 0..0);
        assert_eq!(
            around(BLOCK * 4 - 1, 2),
            BLOCK * 4..BLOCK * 8,
            "the second block of two: they follow each other"
        );
        assert_eq!(around(BLOCK * 8, 1), BLOCK * 8..BLOCK * 12);
        assert_eq!(around(BLOCK * 2, BLOCK * 11), BLOCK * 2..BLOCK * 13, "those between are in memory");
        assert_eq!(around(BLOCK * 14, 1), BLOCK * 14..BLOCK * 15);
        assert_eq!(around(BLOCK * 13, 1), BLOCK * 13..BLOCK * 14, "up to what was asked for");
        assert_eq!(around(MAX_CHUNK_BYTES - BLOCK - 1, 2), MAX_CHUNK_BYTES - 2 * BLOCK..MAX_CHUNK_BYTES);
        assert_eq!(around(MAX_CHUNK_BYTES - 1, 1), 0..0);
        assert_eq!(around(MAX_CHUNK_BYTES, 9), 0..0, "no chunk goes so far");
        assert_eq!(around(7, 0), 0..BLOCK);
        assert_eq!(around(0, 0), 0..0);
    }

    #[test]
    fn a_store_that_is_larger_than_memory_is_not_read_around() {
        let asked = Asked::new();
        assert_eq!(asked.around(0, 1, || u64::MAX), 0..0);
        assert_eq!(asked.around(0, 1, || 0), 0..0, "that is decided once");
    }

    #[test]
    fn memory_is_known() {
        assert!((1 << 20..1 << 50).contains(&storage::available_memory()));
    }
}
