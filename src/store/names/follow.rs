//! Names follow the records that a delete moves.

use super::NameFiles;
use super::read::{NAMES, TREE};
use super::window::Nodes;
use crate::error::Result;
use crate::format::{FIRST_AT, NAMES_HEADER_BYTES, TreeKind, name_at};
use crate::store::delete::Plan;
use crate::store::rows;

impl NameFiles {
    /// Makes names follow the records that a delete moves. Doing it again does no harm.
    pub(in crate::store) fn move_names(&self, plan: &Plan) -> Result<()> {
        let moved = self.own_names(plan, |from, to| (from, to))?;
        let mut rows: Vec<_> = plan.moves.iter().map(|&(hole, _)| (hole, [0; 4])).collect();
        for moved in &moved {
            let at = rows.binary_search_by_key(&moved.to, |&(hole, _)| hole).ok();
            if let Some((_, row)) = at.and_then(|at| rows.get_mut(at)) {
                *row = moved.number.to_le_bytes();
            }
        }
        self.put_rows(&rows)?;
        self.put_indices(&moved)?;
        self.sync_moved()
    }

    /// Takes [`NameFiles::move_names`] back, where `before` are the rows that the holes had.
    pub(in crate::store) fn move_back(&self, plan: &Plan, before: &[rows::Indexed<4>]) -> Result<()> {
        self.put_rows(before)?;
        self.put_indices(&self.own_names(plan, |from, to| (to, from))?)?;
        self.sync_moved()
    }

    /// The rows of the holes of a delete.
    pub(in crate::store) fn rows_of_holes(&self, plan: &Plan) -> Result<Vec<rows::Indexed<4>>> {
        let holes = || plan.moves.iter().map(|&(hole, _)| hole);
        Ok(holes().zip(self.numbers(holes())?).collect())
    }

    fn numbers(&self, indices: impl Iterator<Item = u32>) -> Result<Vec<[u8; 4]>> {
        let base = NAMES_HEADER_BYTES as u64;
        rows::read_scattered(self.names.as_ref(), base, indices).map_err(|e| self.io("read", NAMES, e))
    }

    fn put_rows(&self, moved: &[rows::Indexed<4>]) -> Result<()> {
        let base = NAMES_HEADER_BYTES as u64;
        // Behind the end of the file there are no names: rows that say so need no disk.
        let len = self.names.attributes().map_err(|e| self.io("read", NAMES, e))?.len;
        let needed = |&&(hole, number): &&rows::Indexed<4>| number != [0; 4] || name_at(hole) < len;
        let moved: Vec<_> = moved.iter().filter(needed).copied().collect();
        rows::write_scattered(self.names.as_ref(), base, &moved).map_err(|e| self.io("write", NAMES, e))
    }

    /// The names of the records that `plan` moves, by node number; `way` says from which index to which, given those before
    /// and after. A row that another program's record has got from one that was deleted is no name of it.
    fn own_names(&self, plan: &Plan, way: impl Fn(u32, u32) -> (u32, u32)) -> Result<Vec<Renumbered>> {
        let mut origins: Vec<(u32, u32)> = plan.moves.iter().map(|&(hole, from)| (from, hole)).collect();
        origins.sort_unstable();
        let numbers = self.numbers(origins.iter().map(|&(from, _)| from))?;
        let mut moves: Vec<_> = origins
            .into_iter()
            .zip(numbers)
            .map(|((before, after), number)| {
                let (from, to) = way(before, after);
                Renumbered { number: u32::from_le_bytes(number), from, to }
            })
            .collect();
        moves.sort_unstable_by_key(|moved| moved.number);
        let mut there = Nodes::new(&self.tree, self.extent().end);
        let mut own = Vec::with_capacity(moves.len());
        for moved in moves {
            let node = there.get(moved.number).map_err(|e| self.io("read", TREE, e))?;
            // Where a delete is finished after a crash it may have its new index already.
            if node.is_some_and(|node| {
                node.kind == TreeKind::Record && (node.first == moved.from || node.first == moved.to)
            }) {
                own.push(moved);
            }
        }
        Ok(own)
    }

    /// Writes the new indices of records into their nodes.
    fn put_indices(&self, moved: &[Renumbered]) -> Result<()> {
        let written =
            moved.iter().try_for_each(|moved| self.put_numbers(moved.number, FIRST_AT, &[moved.to]));
        written.map_err(|e| self.io("write", TREE, e))
    }

    fn sync_moved(&self) -> Result<()> {
        self.names.sync().map_err(|e| self.io("sync", NAMES, e).of_sync())?;
        self.sync_tree()
    }
}

/// A named record that gets another index.
struct Renumbered {
    number: u32,
    from: u32,
    to: u32,
}
