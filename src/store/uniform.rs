//! The short way for batches of small raw records of one length: no more than two loads and a copy a record.
//!
//! The general way (`read`) decodes and checks each entry and cuts the destination for it, which takes longer than to copy
//! eight bytes. Here the first entry is checked in full, and the others by comparing them with it.

use std::cell::RefCell;

use super::state::State;
use super::{Store, shards};
use crate::error::Result;
use crate::format::{Compress, MAX_CHUNK_BYTES};
use crate::storage;

thread_local! {
    /// Where the records of a batch begin in their chunk; kept between calls, at most [`MOST`].
    static OFFSETS: RefCell<Vec<u32>> = const { RefCell::new(Vec::new()) };
}

/// Records of a batch that goes the short way.
const MOST: usize = 1 << 14;

/// Records from this length on are asked for before they are waited for. Of shorter ones many lie in what the system reads
/// for one, and to look whether they were asked for takes as long as to copy them.
const ASKED_FOR: usize = 512;

impl Store {
    /// Gathers as [`Store::gather`] does, if all records are raw, of one length, in one chunk, and so small that one thread
    /// does it best. `highest` is the largest of `indices`. Returns whether they were; nothing is written where they were not.
    pub(super) fn gather_uniform(
        &self,
        state: &State,
        highest: Option<u64>,
        indices: &[u64],
        dst: &mut [u8],
        stride: usize,
        fits: impl Fn(usize) -> bool,
    ) -> Result<bool> {
        let (Some(&first), Some(highest)) = (indices.first(), highest) else { return Ok(false) };
        let published = state.published();
        if indices.len() > MOST || highest >= u64::from(published.length()) || state.has_overlay() {
            return Ok(false);
        }
        let loc = self.locate(state, first, published)?;
        let len = loc.logic_length as usize;
        let cost = indices.len() as u64 * shards::read_cost(loc.phys_length, loc.logic_length);
        let last = stride.checked_mul(indices.len() - 1).and_then(|last| last.checked_add(len));
        if loc.compress != Compress::Raw
            || len == 0
            || len > stride
            || !fits(len)
            || last.is_none_or(|last| last > dst.len())
            || shards::threads_for(indices.len(), cost) > 1
        {
            return Ok(false);
        }
        // Where it can't be opened, the general way says for which record.
        let Ok(chunk) = state.chunks.get(self.dir.as_ref(), loc.chunk_id) else { return Ok(false) };
        OFFSETS.with_borrow_mut(|offsets| {
            let [low, high] = loc.to_words();
            let mut end = 0;
            offsets.clear();
            let alike = self.meta.each_entry(indices, |[low_here, high_here]| {
                let offset = low_here & 0xffff_ffff;
                let end_here = offset + len as u64;
                end = end.max(end_here);
                chunk.prefetch(offset);
                offsets.push(offset as u32);
                high_here == high && low_here >> 32 == low >> 32 && end_here < MAX_CHUNK_BYTES
            });
            if !alike {
                return Ok(false);
            }
            self.table_reaches(Some(highest))?;
            if len < ASKED_FOR || indices.len() == 1 {
                return Ok(chunk.copy_each(offsets, len, dst, stride, end));
            }
            for &offset in &*offsets {
                chunk.coming(u64::from(offset), len as u64, || state.stored());
            }
            let before = storage::waits_for_pages();
            let copied = chunk.copy_each(offsets, len, dst, stride, end);
            match storage::waits_for_pages().saturating_sub(before) {
                0 => {}
                waits => chunk.waited(waits),
            }
            Ok(copied)
        })
    }
}
