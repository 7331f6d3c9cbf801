//! Deleting: the last record moves into each hole, from the highest hole down.
//!
//! The step, for one store or several that lose the same records:
//! 1. a journal with the indices that go is made durable in each store;
//! 2. the header is marked, the leader's last: from here on the step is finished, whatever happens;
//! 3. entries and checksums move from behind the new length into the holes below it;
//! 4. the new header is written, the leader's last.
//!
//! What moves is never written over before step 4, so doing 3 again does no harm (see `recover`). Readers of this process
//! see the new state from step 3 on, through an overlay, and those who are reading when it comes see the old one to
//! their end.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::path::{Component, Path, PathBuf};

use super::locks::Alone;
use super::names::NameFiles;
use super::sidecars::{self, Sidecars, Sums};
use super::state::{Moves, Overlay};
use super::{Store, out_of_range, rows};
use crate::error::{Error, ErrorKind, Result};
use crate::format::{Header, Journal, Partner, Partners, ROW_BYTES, Work};

/// A record that a delete has given another index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Move {
    /// Its index before.
    pub from: u64,
    /// Its index after.
    pub to: u64,
}

/// What a delete does to a table.
pub(super) struct Plan {
    pub(super) old: Header,
    pub(super) new: Header,
    /// Hole and the index of the record that comes to it, by ascending hole.
    pub(super) moves: Vec<(u32, u32)>,
}

impl Plan {
    /// The plan for a store with header `old` that loses the records set in `doomed`, one bit a record.
    pub(super) fn new(old: Header, doomed: &[u8]) -> Plan {
        let holes: Vec<u32> = (0..old.length).rev().filter(|&i| is_set(doomed, i)).collect();
        let count = u32::try_from(holes.len()).unwrap_or(u32::MAX);
        let new = Header { length: old.length.saturating_sub(count), ..old };
        // Who lies in each hole, from the highest down. A hole may be the last place later on: then its record moves on.
        let mut within: Vec<u32> = Vec::with_capacity(holes.len());
        let mut higher = 0;
        for (step, &hole) in (1u32..).zip(&holes) {
            let last = old.length - step;
            while holes.get(higher).is_some_and(|&hole| hole > last) {
                higher += 1;
            }
            let from = match (holes.get(higher), within.get(higher)) {
                (Some(&at), Some(&from)) if at == last => from,
                _ => last,
            };
            within.push(if hole == last { hole } else { from });
        }
        let moved = holes.into_iter().zip(within).filter(|&(hole, _)| hole < new.length);
        let mut moves: Vec<_> = moved.collect();
        moves.reverse();
        Plan { old, new, moves }
    }

    /// Shows readers the store as it will be.
    pub(super) fn show(&self, store: &Store) -> Result<()> {
        store.show_moves(self.overlay(store)?, Moves::new(&self.moves), &self.new);
        Ok(())
    }

    /// The entries as they will be, for readers.
    fn overlay(&self, store: &Store) -> Result<Overlay> {
        self.moves.iter().map(|&(hole, from)| Ok((hole, store.meta.entry(from)?))).collect()
    }
}

/// One bit a record.
pub(super) fn is_set(bits: &[u8], index: u32) -> bool {
    bits.get(index as usize / 8).is_some_and(|byte| byte >> (index % 8) & 1 == 1)
}

impl Store {
    /// Deletes records: all of `indices`, in any order, each once however often it is named, or none. The last records
    /// move into the holes, from the highest hole down, so the index space stays `0..len()`. Returns the moves, by
    /// ascending new index; it is on disk then.
    ///
    /// Their bytes stay until [`Store::compact`]. Readers of this process go on; other processes must not have the store
    /// open. Cost: some waits for the disk, and 16 bytes of table for each hole.
    ///
    /// # Errors
    /// [`ErrorKind::OutOfRange`], [`ErrorKind::ReadOnly`], [`ErrorKind::Busy`] with the processes that have the store open;
    /// what the system refuses. The store is as it was then; where even that fails the error says so, and the next
    /// opening for writing finishes the delete.
    ///
    /// ```
    /// # fn main() -> zrfs::Result<()> {
    /// # let folder = tempfile::tempdir().unwrap();
    /// # let store = zrfs::Store::create(folder.path().join("s.zr"), zrfs::Version::V1)?;
    /// store.append(b"aaabbbcccddd", 3, zrfs::Codec::Raw)?;
    /// let moves = store.delete(&[1, 1])?;
    /// assert_eq!(moves, [zrfs::store::Move { from: 3, to: 1 }]);
    /// assert_eq!(store.read(1)?, b"ddd");
    /// # Ok(())
    /// # }
    /// ```
    pub fn delete(&self, indices: &[u64]) -> Result<Vec<Move>> {
        Store::delete_aligned(&[self], indices)
    }

    /// As [`Store::delete`], from several stores of equal length (data and labels, say) in one step: whatever happens, all of
    /// them lose the records or none does. The first one leads: after a crash the others look to it.
    ///
    /// # Errors
    /// As for [`Store::delete`]; [`ErrorKind::Geometry`] where the lengths differ.
    pub fn delete_aligned(stores: &[&Store], indices: &[u64]) -> Result<Vec<Move>> {
        Store::delete_announced(stores, indices, |_, _| ())
    }

    /// As [`Store::delete_aligned`]. `announce` is called with the moves and the new length once nothing is left that would
    /// refuse the delete, and before any reader sees it; [`Store::epoch`] of the first store grows by one then, and by another
    /// one where the delete fails after all and is taken back.
    ///
    /// # Errors
    /// As for [`Store::delete_aligned`].
    pub fn delete_announced(
        stores: &[&Store],
        indices: &[u64],
        announce: impl FnOnce(&[Move], u64),
    ) -> Result<Vec<Move>> {
        // Refused before anything is touched, such as what an interrupted append has left.
        if let Some((leader, others)) = stores.split_first() {
            let length = leader.len();
            others.iter().try_for_each(|other| check_same_length(leader, length, other, other.len()))?;
            let beyond = indices.iter().find(|&&index| index >= length);
            if let Some(&index) = beyond {
                return Err(out_of_range(&leader.path, index, u32::try_from(length).unwrap_or(u32::MAX)));
            }
        }
        delete_held(take_alone(stores)?, indices, announce)
    }
}

/// Deletes from stores that are held alone; see [`Store::delete_announced`].
pub(super) fn delete_held(
    held: Vec<Alone<'_>>,
    indices: &[u64],
    announce: impl FnOnce(&[Move], u64),
) -> Result<Vec<Move>> {
    let first = held.first().map(|alone| alone.store.path.clone()).unwrap_or_default();
    let Some(leader) = held.first().map(|alone| alone.store) else { return Ok(Vec::new()) };
    let length = leader.meta.whole_header()?.length;
    let mut doomed = vec![0u8; (length as usize).div_ceil(8)];
    for &index in indices {
        let bit = u32::try_from(index).ok().filter(|&index| index < length);
        let bit = bit.ok_or_else(|| out_of_range(&first, index, length))?;
        if let Some(byte) = doomed.get_mut(bit as usize / 8) {
            *byte |= 1 << (bit % 8);
        }
    }
    let mut steps = Vec::with_capacity(held.len());
    for alone in held {
        let old = alone.store.meta.whole_header()?;
        check_same_length(leader, length.into(), alone.store, old.length.into())?;
        steps.push(Step::new(alone, Plan::new(old, &doomed)));
    }
    let (moves, left) = match steps.first() {
        Some(step) => (told(&step.plan.moves), u64::from(step.plan.new.length)),
        None => Default::default(),
    };
    if !indices.is_empty()
        && let Err(e) = run(&mut steps, &doomed, || announce(&moves, left))
    {
        steps.iter_mut().for_each(|step| step.alone.writer.failed |= e.is_of_sync());
        return Err(e);
    }
    Ok(moves)
}

fn told(moves: &[(u32, u32)]) -> Vec<Move> {
    moves.iter().map(|&(to, from)| Move { from: from.into(), to: to.into() }).collect()
}

/// Refuses stores that are not aligned.
fn check_same_length(leader: &Store, length: u64, other: &Store, others: u64) -> Result<()> {
    if others == length {
        return Ok(());
    }
    let (name, leader) = (other.path.display(), leader.path.display());
    let text = format!("{name} holds {others} records, {leader} holds {length}");
    Err(Error::new(ErrorKind::Geometry, text).with_help("aligned stores have one length"))
}

/// Takes every store alone, in one order for all threads.
fn take_alone<'a>(stores: &[&'a Store]) -> Result<Vec<Alone<'a>>> {
    let mut order: Vec<(usize, &Store)> = stores.iter().copied().enumerate().collect();
    order.sort_by_key(|&(_, store)| std::ptr::from_ref(store));
    if order.windows(2).any(|pair| matches!(pair, [(_, a), (_, b)] if std::ptr::eq(*a, *b))) {
        return Err(Error::new(ErrorKind::Geometry, "a store is named twice"));
    }
    let mut held = order.into_iter().map(|(i, store)| Ok((i, store.alone()?))).collect::<Result<Vec<_>>>()?;
    held.sort_by_key(|&(i, _)| i);
    Ok(held.into_iter().map(|(_, alone)| alone).collect())
}

/// The step of one store.
struct Step<'a> {
    alone: Alone<'a>,
    plan: Plan,
    /// The entries of the holes as they were, to go back to.
    before: Overlay,
    /// And the checksums beside them.
    rows_before: Vec<rows::Indexed<ROW_BYTES>>,
    /// And whose names they had.
    names_before: Vec<rows::Indexed<4>>,
    /// Readers see the store as it is afterwards.
    is_shown: bool,
}

/// Does the step in all stores, or in none.
fn run(steps: &mut [Step<'_>], doomed: &[u8], announce: impl FnOnce()) -> Result<()> {
    let decided = prepare(steps, doomed);
    if let Err(e) = decided {
        return Err(go_back(steps, e));
    }
    announce();
    // The leader is the last: while its header is marked the others know that the step is to be finished.
    for step in steps.iter_mut().rev() {
        if let Err(e) = step.apply() {
            return Err(go_back(steps, e));
        }
    }
    for step in steps.iter_mut().rev() {
        if let Err(e) = step.commit() {
            // The header may be on disk or not: the step can't be taken back any more.
            steps.iter_mut().for_each(|step| step.alone.writer.failed = true);
            return Err(e.with_help("the delete is finished when the store is opened for writing next"));
        }
    }
    steps.iter_mut().for_each(Step::clean_up);
    Ok(())
}

/// Writes the journals and marks the headers. Nothing is decided before the leader's mark is on disk.
fn prepare(steps: &mut [Step<'_>], doomed: &[u8]) -> Result<()> {
    let id = RandomState::new().build_hasher().finish();
    // One alone needs to be found by nobody: it may have been renamed since it was opened.
    let paths: Vec<PathBuf> = match steps.len() {
        1 => Vec::new(),
        _ => steps.iter().map(|step| absolute(&step.alone.store.path)).collect::<Result<_>>()?,
    };
    let partner = |from: usize, to: usize| -> Option<Partner> {
        let (from, to) = (paths.get(from)?, paths.get(to)?);
        Some(Partner { relative: relative(from, to), absolute: to.clone() })
    };
    for (i, step) in steps.iter_mut().enumerate() {
        let partners = match (paths.len(), i, partner(i, 0)) {
            (0, _, _) => Partners::None,
            (n, 0, _) => Partners::Leads((1..n).filter_map(|to| partner(0, to)).collect()),
            (_, _, Some(leader)) => Partners::Follows(leader),
            (_, _, None) => Partners::None,
        };
        step.prepare(Journal {
            step: id,
            old: step.plan.old.to_bytes(),
            new: step.plan.new.to_bytes(),
            work: Work::Delete { doomed: doomed.to_vec(), partners },
        })?;
    }
    steps.iter().rev().try_for_each(Step::mark)
}

/// Puts everything back after `e`; tells where that failed.
fn go_back(steps: &mut [Step<'_>], e: Error) -> Error {
    let entries = steps.iter().try_for_each(Step::restore);
    // The leader first: once it is not marked, the others are taken back, too.
    match entries.and_then(|()| steps.iter().try_for_each(Step::unmark)) {
        Ok(()) => e,
        Err(second) => {
            steps.iter_mut().for_each(|step| step.alone.writer.failed = true);
            e.with_help(format!(
                "and it could not be taken back ({second}): the next opening for writing finishes or undoes it"
            ))
        }
    }
}

impl<'a> Step<'a> {
    fn new(alone: Alone<'a>, plan: Plan) -> Step<'a> {
        Step {
            alone,
            plan,
            before: Overlay::new(),
            rows_before: Vec::new(),
            names_before: Vec::new(),
            is_shown: false,
        }
    }

    fn prepare(&mut self, journal: Journal) -> Result<()> {
        let store = self.alone.store;
        let (old, new) = (journal.old, journal.new);
        let sidecars = self.alone.writer.sidecars(store, &self.plan.old)?;
        sidecars.journal.write(&journal)?;
        if let Some(sums) = &mut sidecars.sums {
            sums.announce(old, new)?;
        }
        sidecars.sync()?;
        if std::mem::take(&mut self.alone.writer.dirty.folder) {
            store.sync_folder()?;
        }
        // What moves must be on disk itself before the journal counts on it.
        store.meta.sync()
    }

    fn mark(&self) -> Result<()> {
        self.alone.store.meta.write_marked_header(&self.plan.old)?;
        self.alone.store.meta.sync()
    }

    fn apply(&mut self) -> Result<()> {
        let store = self.alone.store;
        let before: Result<Overlay> =
            self.plan.moves.iter().map(|&(hole, _)| Ok((hole, store.meta.entry(hole)?))).collect();
        self.before = before?;
        if let Some(sums) = self.sums() {
            let holes = || self.plan.moves.iter().map(|&(hole, _)| hole);
            self.rows_before = holes().zip(sums.read_rows(holes())?).collect();
        }
        if let Some(names) = self.names() {
            self.names_before = names.rows_of_holes(&self.plan)?;
        }
        self.plan.show(store)?;
        self.is_shown = true;
        move_entries(store, &self.plan, self.sums(), self.names())
    }

    fn names(&self) -> Option<&NameFiles> {
        self.alone.writer.sidecars.as_ref()?.names.as_ref()
    }

    fn sums(&self) -> Option<&Sums> {
        self.alone.writer.sidecars.as_ref()?.sums.as_ref()
    }

    fn commit(&self) -> Result<()> {
        let store = self.alone.store;
        store.meta.write_header(&self.plan.new)?;
        store.meta.sync()?;
        store.show(Overlay::new(), &self.plan.new);
        Ok(())
    }

    /// Puts the entries of the holes back.
    fn restore(&self) -> Result<()> {
        let store = self.alone.store;
        if !self.before.is_empty() {
            store.meta.write_scattered(&self.before)?;
            store.meta.sync()?;
        }
        if let (Some(sums), false) = (self.sums(), self.rows_before.is_empty()) {
            sums.replace_rows(&self.rows_before)?;
            sums.sync()?;
        }
        if let (Some(names), false) = (self.names(), self.names_before.is_empty()) {
            names.move_back(&self.plan, &self.names_before)?;
        }
        if self.is_shown {
            store.show_restored(&self.plan.old);
        }
        Ok(())
    }

    fn unmark(&self) -> Result<()> {
        let store = self.alone.store;
        // A header that was never written needs no second write: on a full disk or a failing one that matters.
        if store.meta.header_bytes()? != self.plan.old.to_bytes() {
            store.meta.write_header(&self.plan.old)?;
            store.meta.sync()?;
        }
        Ok(())
    }

    /// What is left to do when all is done. Failing at it costs space, not data.
    fn clean_up(&mut self) {
        let store = self.alone.store;
        self.alone.writer.checked = Some(self.plan.new);
        let Some(sidecars) = &self.alone.writer.sidecars else { return };
        if let Err(e) = clean_up(store, sidecars, &self.plan, false) {
            log::warn!("{e}; the records are deleted all the same");
        }
    }
}

/// Moves entries, and the checksums and names beside them, into the holes, and makes them durable. Doing it again does no
/// harm.
pub(super) fn move_entries(
    store: &Store,
    plan: &Plan,
    sums: Option<&Sums>,
    names: Option<&NameFiles>,
) -> Result<()> {
    if let Some(sums) = sums {
        // Read in the order of the file, written in that of the holes.
        let mut from: Vec<(u32, u32)> = plan.moves.iter().map(|&(hole, from)| (from, hole)).collect();
        from.sort_unstable();
        let rows = sums.read_rows(from.iter().map(|&(from, _)| from))?;
        let mut rows: Vec<_> = from.iter().zip(rows).map(|(&(_, hole), row)| (hole, row)).collect();
        rows.sort_unstable_by_key(|&(hole, _)| hole);
        sums.replace_rows(&rows)?;
        sums.sync()?;
    }
    if let Some(names) = names {
        names.move_names(plan)?;
    }
    store.meta.write_scattered(&plan.overlay(store)?)?;
    store.meta.sync()
}

/// Ends the journal, and clears what lies behind the new length, so that a damaged header can't bring it back.
/// The journal of one that follows another stays: the leader may still look for it.
pub(super) fn clean_up(store: &Store, sidecars: &Sidecars, plan: &Plan, follows: bool) -> Result<()> {
    if !follows {
        sidecars.journal.clear()?;
    }
    store.meta.clear_entries(plan.new.length..plan.old.length)?;
    sidecars.sums.as_ref().map_or(Ok(()), |sums| sums.cut(plan.new.length))
}

/// Writes the moves of a delete whose caller was not told to a new file `.zrfs/moves-N.tsv`; returns its path.
pub(super) fn keep_moves(store: &Store, sidecars: &Sidecars, plan: &Plan) -> Result<PathBuf> {
    let folder = store.path.join(sidecars::FOLDER);
    let mut text = String::from("from\tto\n");
    for (to, from) in &plan.moves {
        text += &format!("{from}\t{to}\n");
    }
    for n in 1..=u32::MAX {
        let name = format!("moves-{n}.tsv");
        let failed = |e| Error::io(format!("can't write {}", folder.join(&name).display()), e);
        let file = match sidecars.folder.create(&name) {
            Err(e) if e.kind() == std::io::ErrorKind::AlreadyExists => continue,
            other => other.map_err(failed)?,
        };
        file.write_at(text.as_bytes(), 0).and_then(|()| file.sync()).map_err(failed)?;
        return Ok(folder.join(name));
    }
    Err(Error::new(ErrorKind::Full, format!("{} holds too many files", folder.display())))
}

fn absolute(path: &Path) -> Result<PathBuf> {
    path.canonicalize().map_err(|e| Error::io(format!("can't find {}", path.display()), e))
}

/// The way from one absolute path to another.
fn relative(from: &Path, to: &Path) -> PathBuf {
    let shared = from.components().zip(to.components()).take_while(|(a, b)| a == b).count();
    let up = from.components().skip(shared).map(|_| Component::ParentDir);
    up.chain(to.components().skip(shared)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::Version;

    /// What loaderx 0.5.0 does, line by line.
    fn swap_last(length: u32, doomed: &[u8]) -> Vec<u32> {
        let mut table: Vec<u32> = (0..length).collect();
        for i in (0..length).rev().filter(|&i| is_set(doomed, i)) {
            let last = table.len() - 1;
            table[i as usize] = table[last];
            table.pop();
        }
        table
    }

    #[test]
    fn the_plan_is_swap_last_from_the_highest_down() {
        for length in 0..=10u32 {
            for bits in 0..1u32 << length {
                let doomed = bits.to_le_bytes();
                let old = Header { length, ..Header::empty(Version::V1) };
                let plan = Plan::new(old, &doomed);
                let mut table: Vec<u32> = (0..length).collect();
                assert!(plan.moves.is_sorted(), "{length} {bits:b}");
                for &(hole, from) in &plan.moves {
                    assert!(hole < plan.new.length && from >= plan.new.length, "{length} {bits:b}");
                    table[hole as usize] = from;
                }
                table.truncate(plan.new.length as usize);
                assert_eq!(table, swap_last(length, &doomed), "{length} {bits:b}");
            }
        }
    }

    #[test]
    fn the_way_between_two_stores() {
        let way = |from: &str, to: &str| relative(Path::new(from), Path::new(to));
        assert_eq!(way("/a/b/x.zr", "/a/b/y.zr"), Path::new("../y.zr"));
        assert_eq!(way("/a/x.zr", "/b/c/y.zr"), Path::new("../../b/c/y.zr"));
    }
}
