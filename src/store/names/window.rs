//! Reading a file in small steps: what lies close to what was just read is read along with it.

use std::io;
use std::sync::Arc;

use crate::format::{NODE_BYTES, ROOT_NODE, TreeNode, node_at};
use crate::storage::StorageFile;

/// Bytes that are read at a place that nothing else was read near.
const SINGLE: usize = 512;
/// Bytes that are read where one place follows another.
const RUN: usize = 16 << 10;
/// How far a place may lie behind another to follow it.
const NEAR: u64 = 64 << 10;

/// A piece of a file, in memory.
pub(super) struct Window {
    file: Arc<dyn StorageFile>,
    bytes: Vec<u8>,
    at: u64,
    /// Nothing is read from here on.
    limit: u64,
}

impl Window {
    pub(super) fn new(file: &Arc<dyn StorageFile>, limit: u64) -> Window {
        Window { file: Arc::clone(file), bytes: Vec::new(), at: 0, limit }
    }

    /// The bytes at `at`, at least `len` of them unless the file or the limit comes before.
    pub(super) fn get(&mut self, at: u64, len: usize) -> io::Result<&[u8]> {
        let end = self.at + self.bytes.len() as u64;
        let wanted = (at + len as u64).min(self.limit.max(at));
        if at < self.at || wanted > end {
            let follows = !self.bytes.is_empty() && (self.at..end + NEAR).contains(&at);
            let room = usize::try_from(self.limit.saturating_sub(at)).unwrap_or(usize::MAX);
            self.bytes.resize(len.max(if follows { RUN } else { SINGLE }).min(room), 0);
            self.at = at;
            let n = self.file.read_at(&mut self.bytes, at)?;
            self.bytes.truncate(n);
        }
        let skip = usize::try_from(at - self.at).unwrap_or(usize::MAX);
        Ok(self.bytes.get(skip..).unwrap_or_default())
    }
}

/// How far the next node is looked for behind one that is damaged, in numbers: none takes more than 5 KB, so where there is
/// nothing for so long there are no nodes.
const FURTHEST: u32 = 1 << 15;

/// The way through all nodes, over damaged ones.
pub(super) struct Walk {
    next: u32,
    /// Where the last whole node ends.
    whole: u32,
}

impl Walk {
    /// From a node on.
    pub(super) fn from(number: u32) -> Walk {
        Walk { next: number, whole: number }
    }

    /// The place to look at; `None` where the nodes have ended before `end`, or there.
    pub(super) fn at(&self, end: u32) -> Option<u32> {
        (self.next < end && self.next - self.whole < FURTHEST).then_some(self.next)
    }

    /// Goes on: `behind` is the place behind the node that is there, `None` where none is.
    pub(super) fn step(&mut self, behind: Option<u32>) {
        match behind {
            Some(behind) => (self.next, self.whole) = (behind, behind),
            None => self.next = self.next.saturating_add(1),
        }
    }
}

/// The nodes of a tree.
pub(super) struct Nodes {
    window: Window,
    end: u32,
}

impl Nodes {
    /// The nodes below number `end`.
    pub(super) fn new(tree: &Arc<dyn StorageFile>, end: u32) -> Nodes {
        Nodes { window: Window::new(tree, node_at(end)), end }
    }

    /// A node; `None` where there is none, or it is damaged.
    pub(super) fn get(&mut self, number: u32) -> io::Result<Option<TreeNode<'_>>> {
        Ok(self.bytes(number)?.and_then(TreeNode::parse))
    }

    /// As [`Nodes::get`], with the number of the place behind it.
    pub(super) fn get_with_next(&mut self, number: u32) -> io::Result<Option<(TreeNode<'_>, u32)>> {
        let end = self.end;
        let Some(bytes) = self.bytes(number)? else { return Ok(None) };
        let stride = TreeNode::stride(bytes).and_then(|stride| u32::try_from(stride / 8).ok());
        let next = stride.and_then(|stride| number.checked_add(stride)).filter(|&next| next > number);
        Ok(TreeNode::parse(bytes).zip(next.map(|next| next.min(end))))
    }

    fn bytes(&mut self, number: u32) -> io::Result<Option<&[u8]>> {
        if !(ROOT_NODE..self.end).contains(&number) {
            return Ok(None);
        }
        let at = node_at(number);
        let needs = TreeNode::needs(self.window.get(at, NODE_BYTES)?);
        Ok(Some(self.window.get(at, needs)?))
    }
}
