//! Work on many records, cut into contiguous shards for all cores.
//!
//! Shared: the queue of shards, and the first error, each behind a mutex that is held for a moment. Small work stays
//! on the calling thread: waking another costs more than it.
//!
//! The threads are a pool of the store's own. A worker of another pool would take up that pool's tasks while it waits for
//! these, under whatever the caller holds; so such a caller, who is parallel already, does the work itself. So does a
//! thread that said so by [`stay_on_this_thread`].

use std::cell::Cell;
use std::slice::ChunksMut;
use std::sync::{Mutex, PoisonError};

use once_cell::race::OnceBox;
use rayon::slice::ParallelSliceMut;
use rayon::{ThreadPool, ThreadPoolBuilder};

use crate::error::Result;

/// Estimated work, in nanoseconds of one core, from which other cores are woken.
const WORTH_WAKING: u64 = 60_000;

/// Shards that each thread finds, so that the last ones even out what the first ones cost.
const SHARDS_A_THREAD: usize = 8;

/// The pool, for this process; `None` where no thread can be had.
fn pool() -> Option<&'static ThreadPool> {
    static POOL: OnceBox<(u32, Option<ThreadPool>)> = OnceBox::new();
    let (process, pool) = POOL.get_or_init(|| {
        let named = ThreadPoolBuilder::new().thread_name(|i| format!("zrfs-{i}"));
        Box::new((std::process::id(), named.build().ok()))
    });
    // A forked child has the pool and not its threads.
    pool.as_ref().filter(|_| *process == std::process::id())
}

thread_local! {
    static STAYS: Cell<bool> = const { Cell::new(false) };
}

/// From now on this thread does all work on records itself: for one of several that keep all cores busy already.
pub(crate) fn stay_on_this_thread() {
    STAYS.set(true);
}

/// Whether the caller is parallel already.
fn stays() -> bool {
    rayon::current_thread_index().is_some() || STAYS.get()
}

/// How many threads work of `cost` nanoseconds on `items` records is worth.
pub(super) fn threads_for(items: usize, cost: u64) -> usize {
    if cost < WORTH_WAKING || stays() {
        return 1;
    }
    pool().map_or(1, ThreadPool::current_num_threads).min(items).max(1)
}

/// Sorts on all cores.
pub(super) fn sort(keys: &mut [u64]) {
    match pool().filter(|_| keys.len() as u64 * 50 > WORTH_WAKING && !stays()) {
        Some(pool) => pool.install(|| keys.par_sort_unstable()),
        None => keys.sort_unstable(),
    }
}

/// Where the threads of [`share`] take shards from.
pub(super) struct Shards<'q, 'i, T>(&'q Mutex<ChunksMut<'i, T>>);

impl<'i, T> Shards<'_, 'i, T> {
    /// The next shard, until there is none.
    pub(super) fn next(&self) -> Option<&'i mut [T]> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).next()
    }
}

/// Runs `work` on `threads` threads, of which the caller's is one, to take contiguous shards of `items` until there is none.
///
/// Each thread takes the next shard when it has done one, so a thread that wakes late, or meets larger records, does
/// not keep the others waiting.
///
/// # Errors
/// One of the threads' errors. The others still finish.
pub(super) fn share<'i, T: Send>(
    items: &'i mut [T],
    threads: usize,
    work: impl Fn(&Shards<'_, 'i, T>) -> Result<()> + Sync,
) -> Result<()> {
    let pool = pool().filter(|_| threads > 1);
    let many = if pool.is_some() { threads * SHARDS_A_THREAD } else { 1 };
    let size = items.len().div_ceil(many).max(1);
    let queue = Mutex::new(items.chunks_mut(size));
    let Some(pool) = pool else { return work(&Shards(&queue)) };
    let failed = Mutex::new(None);
    let run = || {
        if let Err(e) = work(&Shards(&queue)) {
            failed.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(e);
        }
    };
    pool.in_place_scope(|scope| {
        for _ in 1..threads {
            scope.spawn(|_| run());
        }
        run();
    });
    failed.into_inner().unwrap_or_else(PoisonError::into_inner).map_or(Ok(()), Err)
}

/// As [`share`], of work that is one shard's alone.
///
/// # Errors
/// As for [`share`].
pub(super) fn for_each_shard<T: Send>(
    items: &mut [T],
    threads: usize,
    work: impl Fn(&mut [T]) -> Result<()> + Sync,
) -> Result<()> {
    share(items, threads, |shards| {
        while let Some(shard) = shards.next() {
            work(shard)?;
        }
        Ok(())
    })
}

/// Estimated nanoseconds to read a record of `stored` bytes that decodes to `len`.
#[inline]
pub(super) fn read_cost(stored: u32, len: u32) -> u64 {
    // Copying runs at some 10 bytes a nanosecond, Deflate at 0.4 after a system call.
    if stored == len { 20 + u64::from(len) / 10 } else { 1000 + u64::from(len) * 5 / 2 }
}
