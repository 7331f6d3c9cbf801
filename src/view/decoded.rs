//! Decoded bytes of records that are asked for in pieces, as the kernel asks for large files; without this each piece
//! would decode the whole record again.
//!
//! Shared: one list behind a mutex, held only to find or add. Two threads that want the same record at the same
//! moment may both decode it: neither waits for the other.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::RecordId;
use crate::format::RecordLoc;

/// Records up to this many bytes are small.
const SMALL: usize = 128 << 10;
/// Small records that are kept: those that readers are in the middle of. The list is searched from its end.
const MOST_SMALL: usize = 64;
/// Records that are kept whatever their size: two files can be compared.
const LEAST: usize = 2;
/// A record that nobody has asked for so long gives way to another one. Before, more readers than there is room for would
/// take each other's records away, and decode one for each piece.
const IDLE: Duration = Duration::from_secs(1);
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
    /// Its last piece was asked for. Others may still be on their way.
    is_done: bool,
}

/// Records that are being read in pieces, at most `budget` bytes of them, or two larger ones.
pub(super) struct Decoded {
    budget: usize,
    /// Least recently used first. Short: most entries have more than 128 KiB.
    entries: Mutex<Vec<Entry>>,
}

impl Decoded {
    pub(super) fn new(budget: usize) -> Decoded {
        Decoded { budget, entries: Mutex::default() }
    }

    pub(super) fn get(&self, id: Whose, loc: &RecordLoc) -> Option<Arc<Vec<u8>>> {
        let mut entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        let at = entries.iter().rposition(|entry| entry.id == id && entry.loc == *loc)?;
        if let Some(from_here) = entries.get_mut(at..) {
            from_here.rotate_left(1);
        }
        let entry = entries.last_mut()?;
        entry.used = Instant::now();
        Some(Arc::clone(&entry.bytes))
    }

    pub(super) fn keep(&self, id: Whose, loc: RecordLoc, bytes: Arc<Vec<u8>>) {
        self.keep_at(Instant::now(), id, loc, bytes);
    }

    fn keep_at(&self, used: Instant, id: Whose, loc: RecordLoc, bytes: Arc<Vec<u8>>) {
        let mut entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
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
            let gives_way = entry.is_done || used.duration_since(entry.used) > IDLE;
            let stays = total <= self.budget || !gives_way;
            total -= if stays { 0 } else { entry.bytes.len() };
            stays
        });
        if total <= self.budget || entries.len() < LEAST {
            entries.push(Entry { id, loc, bytes, used, is_done: false });
        }
    }

    /// Notes that the last piece of a record was asked for: the kernel will have its pages.
    pub(super) fn done(&self, id: Whose) {
        let mut entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        entries.iter_mut().filter(|entry| entry.id == id).for_each(|entry| entry.is_done = true);
    }

    /// Gives back the memory of records that nobody reads any more. To be called now and then.
    pub(super) fn forget_idle(&self) {
        self.forget_idle_at(Instant::now());
    }

    fn forget_idle_at(&self, now: Instant) {
        let mut entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        entries.retain(|entry| now.saturating_duration_since(entry.used) <= FORGOTTEN);
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
