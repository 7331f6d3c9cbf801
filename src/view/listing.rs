//! Listings, resumable at any entry, without a table of names: what comes next is computed from the offset.

use super::identity::{Ids, Lineage};
use super::names::{self, RecordName};
use super::{Attributes, Kind, Node, Sampled, View, batches, tree};
use std::sync::Arc;

use arc_swap::Guard;

use crate::error::{Error, ErrorKind, Result};
use crate::store::{NamedNode, NodeId, NodeKind};

/// Entries before those of the directory itself: `.` and `..`.
const DOTS: u64 = 2;

/// One entry of a listing.
#[derive(Debug)]
pub struct ListEntry<'a> {
    /// What it is.
    pub node: Node,
    /// Directory, file or link.
    pub kind: Kind,
    /// Its name in this directory.
    pub name: &'a [u8],
    /// Offset to go on behind this entry.
    pub next: u64,
    /// What the names say of it.
    named: Option<&'a NamedNode>,
    /// Of a record in `records/`.
    index: Option<u32>,
}

/// The entries of one directory.
pub struct Listing<'a> {
    view: &'a View,
    directory: Node,
    /// The epoch that it goes by, and what indices stand for in it.
    epoch: u64,
    lineage: Guard<Arc<Lineage>>,
}

impl View {
    /// The listing of `directory`.
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`] where it is no directory.
    pub fn list(&self, directory: Node) -> Result<Listing<'_>> {
        match directory {
            Node::Root | Node::Records | Node::Batches | Node::Tree | Node::Folder(_) => {
                let epoch = self.store.epoch();
                Ok(Listing { view: self, directory, epoch, lineage: self.lineage.load() })
            }
            _ => Err(Error::new(ErrorKind::Unsupported, "a file has no entries")),
        }
    }
}

impl Listing<'_> {
    /// Calls `emit` for each entry from `offset` (0 at first) on, with its attributes where `with_attributes` asks for them,
    /// until it returns `true`, which means that it has not taken that one, or all are told.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`] where the directory is gone; what the system refuses, where no entry was taken. Else the
    /// entries stand, and whoever comes back for the rest gets the error.
    pub fn each(
        mut self,
        offset: u64,
        with_attributes: bool,
        mut emit: impl FnMut(ListEntry<'_>, Option<Attributes>) -> bool,
    ) -> Result<()> {
        loop {
            let mut told = false;
            let told_all = self.entries(offset, &mut |entry| {
                let attributes = with_attributes.then(|| self.attributes(&entry));
                // Once a delete has come, what an index says is not what it said before: who comes back is told anew.
                let full = self.is_old() || emit(entry, attributes);
                told |= !full;
                full
            });
            if told {
                return Ok(());
            }
            if !self.is_old() {
                return told_all;
            }
            (self.epoch, self.lineage) = (self.view.store.epoch(), self.view.lineage.load());
        }
    }

    fn is_old(&self) -> bool {
        self.view.store.epoch() != self.epoch
    }

    fn ids(&self) -> &Ids {
        self.lineage.at(self.epoch)
    }

    fn entries(&self, offset: u64, emit: &mut dyn FnMut(ListEntry<'_>) -> bool) -> Result<()> {
        if offset < DOTS {
            let parent = match self.directory {
                Node::Folder(_) => tree::folder(self.view.named(self.directory)?.parent),
                _ => Node::Root,
            };
            let dots = [(&b"."[..], self.directory), (b"..", parent)];
            for ((name, node), next) in dots.into_iter().zip(1..).skip_while(|&(_, next)| next <= offset) {
                if emit(ListEntry { node, kind: Kind::Directory, name, next, named: None, index: None }) {
                    return Ok(());
                }
            }
        }
        match self.directory {
            Node::Records => self.records(offset.saturating_sub(DOTS), emit),
            Node::Root => {
                self.root(offset, emit);
                Ok(())
            }
            Node::Batches => {
                self.steps(offset.saturating_sub(DOTS), emit);
                Ok(())
            }
            _ => self.folder(offset, emit),
        }
    }

    fn root(&self, offset: u64, emit: &mut dyn FnMut(ListEntry<'_>) -> bool) {
        let tree = self.view.names_or_none().is_some();
        for (&(name, node), next) in names::ROOT.iter().zip(DOTS + 1..) {
            let kind = match node {
                Node::Records | Node::Tree | Node::Batches => Kind::Directory,
                _ => Kind::File,
            };
            let shown = next > offset && (tree || node != Node::Tree) && self.view.shows(node);
            if shown && emit(ListEntry { node, kind, name: name.as_bytes(), next, named: None, index: None })
            {
                return;
            }
        }
        let next = DOTS + names::ROOT.len() as u64 + 1;
        if next > offset && self.view.batches.has_array() {
            let node = Node::Sampled(Sampled::Array, self.epoch);
            emit(ListEntry { node, kind: Kind::File, name: b"array.npy", next, named: None, index: None });
        }
    }

    /// The files of each step that is listed, `told` of which are told already.
    fn steps(&self, told: u64, emit: &mut dyn FnMut(ListEntry<'_>) -> bool) {
        let files: Vec<_> = self.view.batches.step_files().collect();
        let a_step = files.len().max(1) as u64;
        for at in told..self.view.batches.listed(self.view.options.steps) {
            let step = at / a_step;
            let Some(&file) = usize::try_from(at % a_step).ok().and_then(|at| files.get(at)) else { return };
            let name = format!("{step}{}", batches::suffix(file));
            let (node, next) = (Node::Step(file, step, self.epoch), at + DOTS + 1);
            let name = name.as_bytes();
            if emit(ListEntry { node, kind: Kind::File, name, next, named: None, index: None }) {
                return;
            }
        }
    }

    fn records(&self, first: u64, emit: &mut dyn FnMut(ListEntry<'_>) -> bool) -> Result<()> {
        let mut name = RecordName::new();
        let mut tell = |index: u64, named: Option<&NamedNode>| {
            // An index fits u32: a store has fewer records.
            let record = tree::index(index);
            let node = Node::Record(self.ids().id_of(record));
            let name = name.of(record, self.view.extension(named));
            let index = Some(record);
            emit(ListEntry { node, kind: Kind::File, name, next: u64::from(record) + DOTS + 1, named, index })
        };
        match self.view.names_or_none() {
            Some(names) => names.each_record(first, tell),
            None => {
                let _ = (first..self.view.store.len()).any(|index| tell(index, None));
                Ok(())
            }
        }
    }

    /// A node's offset is its number: it stays what it is when others are added, and the first ones are free for the dots.
    fn folder(&self, offset: u64, emit: &mut dyn FnMut(ListEntry<'_>) -> bool) -> Result<()> {
        let Some(names) = self.view.store.names()? else { return Ok(()) };
        let Ok(after) = u32::try_from(offset) else { return Ok(()) };
        let after = Some(NodeId::from_number(after)).filter(|&after| after > NodeId::ROOT);
        let folder = match self.directory {
            Node::Folder(id) => id,
            _ => NodeId::ROOT,
        };
        names.each_child(folder, after, |named| {
            let kind = match named.kind {
                NodeKind::Folder { .. } => Kind::Directory,
                NodeKind::Record { .. } => Kind::File,
                NodeKind::Link { .. } => Kind::Link,
            };
            let next = u64::from(named.id.number());
            let node = tree::node(self.ids(), named);
            emit(ListEntry { node, kind, name: &named.name, next, named: Some(named), index: None })
        })
    }

    /// Attributes of an entry. Those that can't be had now are not to be kept: asked for again, they are an error. Nor are
    /// those of `.` and `..`, of which only the node is said: the kernel takes nothing else from there.
    fn attributes(&self, entry: &ListEntry<'_>) -> Attributes {
        if entry.next <= DOTS {
            return self.view.attributes_unknown(entry.node, entry.kind);
        }
        let found = match (entry.index, entry.named) {
            (None, Some(named)) => self.view.attributes_of(self.ids(), named),
            (Some(index), named) => self.view.record(self.ids(), index, named),
            (None, None) => self.view.attributes_at(self.ids(), entry.node),
        };
        found.unwrap_or_else(|_| self.view.attributes_unknown(entry.node, entry.kind))
    }
}
