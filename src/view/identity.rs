//! Which record a file is, whatever index it has now.
//!
//! A record is known by the index and the epoch at which it was first there; that is its inode number. Deletes give
//! records other indices: where they went is kept here, for those that have moved and for no others.
//!
//! Shared: one [`Lineage`], loaded without a lock and replaced as a whole by the one thread that deletes. It is asked for
//! the epoch of the store that a caller goes by; while a delete is under way that may be the old one or the new one.

use std::collections::HashMap;
use std::sync::Arc;

use super::tree;
use crate::format::MAX_RECORDS;
use crate::store::Move;

/// A record, for as long as it lives in this mount.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RecordId(u64);

/// Bits of an index.
const INDEX_BITS: u32 = MAX_RECORDS.trailing_zeros();
/// Epochs from here on have no room in a number. No mount lives to see them.
const MAX_EPOCH: u64 = 1 << 35;

impl RecordId {
    /// The record that was first seen at `index` in `epoch`, a number of [`Store::epoch`](crate::store::Store::epoch).
    pub fn new(index: u32, epoch: u64) -> RecordId {
        RecordId(epoch.min(MAX_EPOCH) << INDEX_BITS | u64::from(index % MAX_RECORDS))
    }

    /// Its number, below 2^60.
    pub fn number(self) -> u64 {
        self.0
    }

    /// The record of a number; `None` for one that is never given out.
    pub fn from_number(number: u64) -> Option<RecordId> {
        (number >> INDEX_BITS <= MAX_EPOCH).then_some(RecordId(number))
    }

    /// The index that it had first.
    pub(super) fn first_index(self) -> u32 {
        tree::index(self.0 % u64::from(MAX_RECORDS))
    }

    fn epoch(self) -> u64 {
        self.0 >> INDEX_BITS
    }
}

/// What the indices of one epoch stand for.
#[derive(Clone, Debug, Default)]
pub(super) struct Ids {
    /// First index and epoch, both ascending: what has come to an index from there on came in that epoch, or later.
    births: Vec<(u32, u64)>,
    /// The records that a delete has moved, by the index that they have now, and when: in nanoseconds since 1970.
    moved_in: HashMap<u32, (RecordId, i64)>,
    /// And the other way round.
    moved_out: HashMap<RecordId, u32>,
}

impl Ids {
    /// The record that has `index`.
    pub(super) fn id_of(&self, index: u32) -> RecordId {
        match self.moved_in.get(&index) {
            Some(&(id, _)) => id,
            None => RecordId::new(index, self.birth(index)),
        }
    }

    /// The index that a record has; `None` where it was deleted. Whether the store is that long is not known here.
    pub(super) fn index_of(&self, id: RecordId) -> Option<u32> {
        if let Some(&index) = self.moved_out.get(&id) {
            return Some(index);
        }
        let index = id.first_index();
        let is_there = id.epoch() == self.birth(index) && !self.moved_in.contains_key(&index);
        is_there.then_some(index)
    }

    /// When the record that has `index` came there by a delete, in nanoseconds since 1970.
    pub(super) fn moved_at(&self, index: u32) -> Option<i64> {
        self.moved_in.get(&index).map(|&(_, since)| since)
    }

    fn birth(&self, index: u32) -> u64 {
        let behind = self.births.partition_point(|&(first, _)| first <= index);
        behind.checked_sub(1).and_then(|at| self.births.get(at)).map_or(0, |&(_, epoch)| epoch)
    }

    /// What the indices stand for after a delete that has made `moves`, left `length` records and begun `epoch` at `since`,
    /// in nanoseconds since 1970.
    pub(super) fn after(&self, moves: &[Move], length: u64, epoch: u64, since: i64) -> Ids {
        let length = tree::index(length);
        let moves: Vec<_> =
            moves.iter().map(|&Move { from, to }| (tree::index(to), self.id_of(tree::index(from)))).collect();
        let mut after = self.clone();
        after.births.retain(|&(first, _)| first < length);
        after.births.push((length, epoch));
        after.moved_in.retain(|&index, (id, _)| {
            let stays = index < length;
            if !stays {
                after.moved_out.remove(id);
            }
            stays
        });
        for &(to, id) in &moves {
            if let Some((gone, _)) = after.moved_in.insert(to, (id, since)) {
                after.moved_out.remove(&gone);
            }
        }
        after.moved_out.extend(moves.into_iter().map(|(to, id)| (id, to)));
        after
    }
}

/// What indices stand for, in each epoch that a caller may still see.
#[derive(Clone, Default)]
pub(super) struct Lineage {
    pub(super) now: Arc<Ids>,
    /// A delete that is under way, and the epoch that it begins.
    pub(super) next: Option<(u64, Arc<Ids>)>,
}

impl Lineage {
    pub(super) fn at(&self, epoch: u64) -> &Ids {
        match &self.next {
            Some((begins, next)) if *begins == epoch => next,
            _ => &self.now,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Swap-last from the highest down, on a table of names.
    fn delete(table: &mut Vec<u64>, mut doomed: Vec<usize>) -> Vec<Move> {
        let before = table.clone();
        doomed.sort_unstable();
        for hole in doomed.into_iter().rev() {
            table.swap_remove(hole);
        }
        let moved = |to: usize, name: &u64| {
            let from = before.iter().position(|old| old == name).unwrap();
            (from != to).then_some(Move { from: from as u64, to: to as u64 })
        };
        table.iter().enumerate().filter_map(|(to, name)| moved(to, name)).collect()
    }

    #[test]
    fn records_are_followed_through_deletes_and_appends() {
        let mut random = 7u64;
        let mut draw = |below: usize| {
            random = random.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (random >> 33) as usize % below
        };
        let (mut table, mut next_name): (Vec<u64>, u64) = ((0..50).collect(), 50);
        let mut ids = Ids::default();
        let mut known: HashMap<u64, RecordId> = HashMap::new();
        for epoch in 1..400u64 {
            for (index, &name) in (0u32..).zip(&table) {
                let id = ids.id_of(index);
                assert_eq!(*known.entry(name).or_insert(id), id, "a record keeps its number");
                assert_eq!(ids.index_of(id), Some(index));
                assert_eq!(RecordId::from_number(id.number()), Some(id));
            }
            for (&name, &id) in known.iter().filter(|(name, _)| !table.contains(name)) {
                let index = ids.index_of(id).filter(|&index| (index as usize) < table.len());
                assert_eq!(index, None, "{name} was deleted");
            }
            let mut distinct: Vec<_> = known.values().collect();
            distinct.sort();
            distinct.dedup();
            assert_eq!(distinct.len(), known.len(), "no number is given out twice");
            let mut doomed: Vec<usize> = (0..1 + draw(4)).map(|_| draw(table.len())).collect();
            doomed.sort_unstable();
            doomed.dedup();
            let moves = delete(&mut table, doomed);
            ids = ids.after(&moves, table.len() as u64, epoch, 0);
            for _ in 0..draw(6).max(usize::from(table.len() < 10) * 5) {
                table.push(next_name);
                next_name += 1;
            }
        }
    }
}
