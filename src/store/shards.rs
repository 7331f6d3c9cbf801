//! Work on many records, cut into contiguous shards for all cores.
//!
//! Nothing is shared between shards. Small work stays on the calling thread: waking another costs more than it.

use crate::error::Result;

/// Estimated work, in nanoseconds of one core, from which other cores are woken.
const WORTH_WAKING: u64 = 60_000;

/// How many shards to cut work of `cost` nanoseconds on `items` records into.
pub(super) fn shards_for(items: usize, cost: u64) -> usize {
    if cost < WORTH_WAKING { 1 } else { rayon::current_num_threads().min(items).max(1) }
}

/// Runs `work` on each contiguous shard of `items`; the caller's thread takes the first one.
///
/// # Errors
/// One of the shards' errors. Shards that are under way then still finish.
pub(super) fn for_each_shard<T: Send>(
    items: &mut [T],
    shards: usize,
    work: impl Fn(&mut [T]) -> Result<()> + Sync,
) -> Result<()> {
    if shards <= 1 {
        return work(items);
    }
    let mut results: Vec<Result<()>> = (0..shards).map(|_| Ok(())).collect();
    let size = items.len().div_ceil(shards).max(1);
    let work = &work;
    rayon::in_place_scope(|scope| {
        let mut parts = items.chunks_mut(size).zip(&mut results);
        let first = parts.next();
        for (part, result) in parts {
            scope.spawn(move |_| *result = work(part));
        }
        if let Some((part, result)) = first {
            *result = work(part);
        }
    });
    results.into_iter().collect()
}

/// Estimated nanoseconds to read a record of `stored` bytes that decodes to `len`.
#[inline]
pub(super) fn read_cost(stored: u32, len: u32) -> u64 {
    // Copying runs at some 10 bytes a nanosecond, Deflate at 0.4 after a system call.
    if stored == len { 20 + u64::from(len) / 10 } else { 1000 + u64::from(len) * 5 / 2 }
}
