//! Decoded bytes of records that are asked for in pieces, as the kernel asks for large files; without this each piece
//! would decode the whole record again.
//!
//! Shared: counters, which are atomics; what is kept and what is being decoded, behind a mutex that is held only to find or
//! add. Who wants a record that another thread decodes leaves word with it, and goes: nobody waits for the other.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::RecordId;
use crate::error::{Error, ErrorKind};
use crate::format::RecordLoc;

/// Records up to this many bytes are small.
const SMALL: usize = 128 << 10;
/// Small records that are kept: those that readers are in the middle of. The list is searched from its end.
const MOST_SMALL: usize = 64;
/// Records of those that are not small which are kept whatever their size: two files can be compared.
const LEAST: usize = 2;
/// A record that nobody has asked for so long, and while so many others came, gives way to another one. Before, more readers
/// than there is room for would take each other's records away, and decode one for each piece. Time alone does not tell: where
/// records take seconds to decode, those who read others wait as long.
const IDLE: Duration = Duration::from_secs(1);
const OTHERS: u64 = 32;
/// A record that nobody has asked for so long goes.
const FORGOTTEN: Duration = Duration::from_secs(10);

/// Where a decoded record is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Whose {
    /// As a file.
    Record(RecordId),
    /// In files that are made of many records: its index, and the epoch that it has it in.
    Data(u64, u64),
    /// The same for labels.
    Label(u64, u64),
}

struct Entry {
    id: Whose,
    /// A compaction gives a record another place, and the place may come to another one.
    loc: RecordLoc,
    bytes: Arc<Vec<u8>>,
    used: Instant,
    /// How many records had come by then.
    came: u64,
    /// Its last piece was asked for. Others may still be on their way.
    is_done: bool,
}

/// What is done with a record that another thread has decoded, or could not decode.
pub(super) type Waiting = Box<dyn FnOnce(Result<&[u8], &Error>) + Send>;

/// What came of a look-up.
pub(super) enum Found<'a> {
    /// Here it is.
    Ready(Arc<Vec<u8>>),
    /// The caller decodes it.
    Claimed(Claim<'a>),
    /// Another thread decodes it, and does then what the caller would have done.
    Left,
}

/// A record that the holder decodes. Dropped, it can't be decoded.
pub(super) struct Claim<'a> {
    decoded: &'a Decoded,
    id: Whose,
    loc: RecordLoc,
}

#[derive(Default)]
struct Kept {
    /// Least recently used first. Short: most entries have more than 128 KiB.
    entries: Vec<Entry>,
    /// What is being decoded, and who wants it.
    making: Vec<(Whose, Vec<Waiting>)>,
    /// How many records have come.
    came: u64,
}

/// Records that are being read in pieces, at most `budget` bytes of them, or two larger ones.
pub(super) struct Decoded {
    budget: usize,
    kept: Mutex<Kept>,
    hits: AtomicU64,
    misses: AtomicU64,
}

impl Decoded {
    pub(super) fn new(budget: usize) -> Decoded {
        Decoded { budget, kept: Mutex::default(), hits: AtomicU64::new(0), misses: AtomicU64::new(0) }
    }

    /// How often a record was there.
    pub(super) fn hits(&self) -> u64 {
        self.hits.load(Ordering::Relaxed)
    }

    /// How often one was not.
    pub(super) fn misses(&self) -> u64 {
        self.misses.load(Ordering::Relaxed)
    }

    /// Bytes that are kept.
    pub(super) fn bytes(&self) -> u64 {
        self.kept().entries.iter().map(|entry| entry.bytes.len() as u64).sum()
    }

    fn kept(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn get(&self, id: Whose, loc: &RecordLoc) -> Option<Arc<Vec<u8>>> {
        let found = self.kept().find(id, loc);
        self.count(found.is_some());
        found
    }

    fn count(&self, is_hit: bool) {
        let count = if is_hit { &self.hits } else { &self.misses };
        count.fetch_add(1, Ordering::Relaxed);
    }

    /// As [`Decoded::get`]; where the record is not there, the caller decodes it, unless another thread does: `waiting` is taken
    /// then, and called by that one.
    pub(super) fn find(&self, id: Whose, loc: &RecordLoc, waiting: &mut Option<Waiting>) -> Found<'_> {
        let mut kept = self.kept();
        let found = match (kept.find(id, loc), kept.making.iter_mut().find(|(making, _)| *making == id)) {
            (Some(bytes), _) => Found::Ready(bytes),
            (None, Some((_, who))) => {
                who.extend(waiting.take());
                Found::Left
            }
            (None, None) => {
                kept.making.push((id, Vec::new()));
                Found::Claimed(Claim { decoded: self, id, loc: *loc })
            }
        };
        drop(kept);
        self.count(!matches!(found, Found::Claimed(_)));
        found
    }

    pub(super) fn keep(&self, id: Whose, loc: RecordLoc, bytes: Arc<Vec<u8>>) {
        self.keep_at(Instant::now(), id, loc, bytes);
    }

    fn keep_at(&self, used: Instant, id: Whose, loc: RecordLoc, bytes: Arc<Vec<u8>>) {
        let mut kept = self.kept();
        kept.came += 1;
        let came = kept.came;
        let entries = &mut kept.entries;
        entries.retain(|entry| entry.id != id);
        let mut total = entries.iter().map(|entry| entry.bytes.len()).sum::<usize>() + bytes.len();
        if bytes.len() <= SMALL {
            // The oldest small ones give way to another small one, whoever reads them.
            let mut small = entries.iter().filter(|entry| entry.bytes.len() <= SMALL).count();
            entries.retain(|entry| {
                let goes = entry.bytes.len() <= SMALL && (small >= MOST_SMALL || total > self.budget);
                small -= usize::from(goes);
                total -= if goes { entry.bytes.len() } else { 0 };
                !goes
            });
        }
        entries.retain(|entry| {
            let is_idle = used.duration_since(entry.used) > IDLE && came - entry.came > OTHERS;
            let gives_way = entry.is_done || is_idle;
            let stays = total <= self.budget || !gives_way;
            total -= if stays { 0 } else { entry.bytes.len() };
            stays
        });
        let large = entries.iter().filter(|entry| entry.bytes.len() > SMALL).count();
        if total <= self.budget || large < LEAST {
            entries.push(Entry { id, loc, bytes, used, came, is_done: false });
        }
    }

    /// Notes that the last piece of a record was asked for: the kernel will have its pages.
    pub(super) fn done(&self, id: Whose) {
        self.kept().entries.iter_mut().filter(|entry| entry.id == id).for_each(|entry| entry.is_done = true);
    }

    /// Gives back the memory of records that nobody reads any more. To be called now and then.
    pub(super) fn forget_idle(&self) {
        self.forget_idle_at(Instant::now());
    }

    fn forget_idle_at(&self, now: Instant) {
        self.kept().entries.retain(|entry| now.saturating_duration_since(entry.used) <= FORGOTTEN);
    }
}

impl Kept {
    fn find(&mut self, id: Whose, loc: &RecordLoc) -> Option<Arc<Vec<u8>>> {
        let at = self.entries.iter().rposition(|entry| entry.id == id && entry.loc == *loc)?;
        if let Some(from_here) = self.entries.get_mut(at..) {
            from_here.rotate_left(1);
        }
        let entry = self.entries.last_mut()?;
        (entry.used, entry.came) = (Instant::now(), self.came);
        Some(Arc::clone(&entry.bytes))
    }
}

impl Claim<'_> {
    /// Gives the record to those who want it, and keeps it for more of them where `keeps` says so.
    pub(super) fn settle(self, made: Result<&Arc<Vec<u8>>, &Error>, keeps: bool) {
        // Before the claim ends: nobody may find it neither being decoded nor decoded.
        if let (Ok(bytes), true) = (made, keeps || self.is_wanted()) {
            self.decoded.keep(self.id, self.loc, Arc::clone(bytes));
        }
        for waiting in self.end() {
            waiting(made.map(|bytes| bytes.as_slice()));
        }
    }

    fn is_wanted(&self) -> bool {
        let kept = self.decoded.kept();
        kept.making.iter().any(|(id, who)| *id == self.id && !who.is_empty())
    }

    fn end(&self) -> Vec<Waiting> {
        let mut kept = self.decoded.kept();
        let at = kept.making.iter().position(|(id, _)| *id == self.id);
        at.map_or_else(Vec::new, |at| kept.making.swap_remove(at).1)
    }
}

impl Drop for Claim<'_> {
    fn drop(&mut self) {
        // After it was settled there are none.
        for waiting in self.end() {
            waiting(Err(&Error::new(ErrorKind::Io, "a record could not be decoded")));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::Compress;

    #[test]
    fn the_budget_holds_and_who_reads_is_not_disturbed() {
        let loc = |offset| RecordLoc {
            offset,
            phys_length: 1,
            logic_length: 100,
            chunk_id: 0,
            compress: Compress::Deflate,
        };
        let id = |i: u32| Whose::Record(RecordId::new(i, 0));
        // None of them is small.
        let size = |n: usize| n << 14;
        let cache = Decoded::new(size(350));
        let begin = Instant::now();
        let keep = |later: u64, i: u8, len: usize| {
            cache.keep_at(
                begin + Duration::from_secs(later),
                id(i.into()),
                loc(0),
                Arc::new(vec![i; size(len)]),
            );
        };
        let has = |i: u32| cache.get(id(i), &loc(0)).is_some();
        (0..4).for_each(|i| keep(0, i, 100));
        assert!(has(0) && has(1) && has(2), "there is room for three");
        assert!(!has(3), "a fourth takes nobody's place");
        assert!(cache.get(id(2), &loc(9)).is_none(), "another location is another record");
        cache.done(id(1));
        keep(0, 3, 100);
        assert!(has(3) && !has(1), "one that was read to its end gives way");
        cache.forget_idle_at(begin + Duration::from_secs(5));
        assert!(has(3));
        keep(60, 4, 100);
        assert!(has(0) && !has(4), "time alone does not tell that nobody reads");
        cache.forget_idle_at(begin);
        (100..140).for_each(|i| keep(60, i, 0));
        keep(60, 4, 300);
        keep(60, 5, 1000);
        keep(60, 6, 10);
        assert!(!has(0) && !has(2) && !has(3), "and so do those that nobody reads");
        assert!(has(4) && has(5) && !has(6), "two are kept whatever their size");
        cache.forget_idle_at(begin + Duration::from_secs(80));
        assert!(!has(4) && !has(5), "nothing is kept for nobody");
    }

    #[test]
    fn of_small_records_only_the_last_ones_are_kept() {
        let loc = RecordLoc {
            offset: 0,
            phys_length: 1,
            logic_length: 100,
            chunk_id: 0,
            compress: Compress::Deflate,
        };
        let cache = Decoded::new(1 << 20);
        let keep = |i: u64| cache.keep(Whose::Data(i, 0), loc, Arc::new(vec![0; 100]));
        let has = |i: u64| cache.get(Whose::Data(i, 0), &loc).is_some();
        (0..1000).for_each(keep);
        assert!(has(999) && has(1000 - MOST_SMALL as u64));
        assert_eq!((0..1000).filter(|&i| has(i)).count(), MOST_SMALL);
        assert!(
            cache.get(Whose::Label(999, 0), &loc).is_none() && cache.get(Whose::Data(999, 1), &loc).is_none()
        );
    }
}
