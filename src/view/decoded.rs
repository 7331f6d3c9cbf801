//! Decoded bytes of large records. The kernel asks for a large file in pieces; without this each piece would
//! decode the whole record again.
//!
//! Shared: one list behind a mutex, held only to find or add. Two threads that want the same record at the same
//! moment may both decode it: neither waits for the other.

use std::sync::{Arc, Mutex, PoisonError};

use crate::format::RecordLoc;

struct Entry {
    index: u32,
    /// With the index the record's identity: after a change of the store another location is another record.
    loc: RecordLoc,
    bytes: Arc<Vec<u8>>,
}

/// The last used records, at most `budget` bytes of them, or one larger one.
pub(super) struct Decoded {
    budget: usize,
    /// Least recently used first. Short: each entry has more than 128 KiB.
    entries: Mutex<Vec<Entry>>,
}

impl Decoded {
    pub(super) fn new(budget: usize) -> Decoded {
        Decoded { budget, entries: Mutex::default() }
    }

    pub(super) fn get(&self, index: u32, loc: &RecordLoc) -> Option<Arc<Vec<u8>>> {
        let mut entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        let at = entries.iter().rposition(|entry| entry.index == index && entry.loc == *loc)?;
        if let Some(from_here) = entries.get_mut(at..) {
            from_here.rotate_left(1);
        }
        entries.last().map(|entry| Arc::clone(&entry.bytes))
    }

    pub(super) fn keep(&self, index: u32, loc: RecordLoc, bytes: Arc<Vec<u8>>) {
        let mut entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        entries.retain(|entry| entry.index != index);
        entries.push(Entry { index, loc, bytes });
        let mut total: usize = entries.iter().map(|entry| entry.bytes.len()).sum();
        while total > self.budget && entries.len() > 1 {
            total -= entries.remove(0).bytes.len();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::Compress;

    #[test]
    fn the_budget_holds_and_the_last_used_stay() {
        let loc = |offset| RecordLoc {
            offset,
            phys_length: 1,
            logic_length: 100,
            chunk_id: 0,
            compress: Compress::Deflate,
        };
        let cache = Decoded::new(250);
        for i in 0..2u8 {
            cache.keep(u32::from(i), loc(0), Arc::new(vec![i; 100]));
        }
        assert_eq!(cache.get(0, &loc(0)).unwrap()[0], 0);
        cache.keep(2, loc(0), Arc::new(vec![2; 100]));
        assert!(cache.get(1, &loc(0)).is_none(), "the least recently used went");
        assert!(cache.get(0, &loc(0)).is_some() && cache.get(2, &loc(0)).is_some());
        assert!(cache.get(2, &loc(9)).is_none(), "another location is another record");
        cache.keep(3, loc(0), Arc::new(vec![3; 1000]));
        assert!(cache.get(3, &loc(0)).is_some(), "one larger than the budget is kept alone");
        assert!(cache.get(2, &loc(0)).is_none());
    }
}
