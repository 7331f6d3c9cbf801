//! `tree/`: the folder as it was imported. Nothing of the names is kept here; the store is asked each time, and shows
//! them as they are.

use std::sync::atomic::Ordering;

use super::identity::Ids;
use super::{Node, View, names, not_found};
use crate::error::{Error, ErrorKind, Result};
use crate::store::{NamedNode, Names, NodeId, NodeKind};

/// The node that a mount shows for what has a name.
pub(super) fn node(ids: &Ids, named: &NamedNode) -> Node {
    match named.kind {
        NodeKind::Folder { .. } => folder(named.id),
        NodeKind::Record { index, .. } => Node::Record(ids.id_of(self::index(index))),
        NodeKind::Link { .. } => Node::Link(named.id),
    }
}

/// The node of a folder of the names.
pub(super) fn folder(id: NodeId) -> Node {
    if id == NodeId::ROOT { Node::Tree } else { Node::Folder(id) }
}

/// A record's index as nodes have it. One that no store has is out of range here, too.
pub(super) fn index(index: u64) -> u32 {
    u32::try_from(index).unwrap_or(u32::MAX)
}

/// The number that the names have for a node in `tree/`. A record is known by its index alone.
fn id(node: Node) -> Option<NodeId> {
    match node {
        Node::Tree => Some(NodeId::ROOT),
        Node::Folder(id) | Node::Link(id) => Some(id),
        _ => None,
    }
}

impl View {
    /// Where a symbolic link leads.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`] where the link is gone, [`ErrorKind::Unsupported`] where the node is none; what the
    /// system refuses.
    pub fn link_target(&self, node: Node) -> Result<Vec<u8>> {
        match self.named(node)?.kind {
            NodeKind::Link { target } => Ok(target),
            NodeKind::Folder { .. } | NodeKind::Record { .. } => {
                Err(Error::new(ErrorKind::Unsupported, "only a link leads somewhere"))
            }
        }
    }

    /// How many records have no name, where another program than zrfs has changed the store: they have lost theirs, or never
    /// had one, and are in `records/` only. 0 where names can't be read.
    ///
    /// Cost: where another program has changed the store all names are read, once for each state of it.
    pub fn nameless(&self) -> u64 {
        let Some(names) = self.names_or_none().filter(Names::is_foreign) else { return 0 };
        match names.named() {
            Ok(named) => self.store.len().saturating_sub(named),
            Err(e) => self.without_names(&e).unwrap_or(0),
        }
    }

    /// What the names say of a folder or link in `tree/`.
    pub(super) fn named(&self, node: Node) -> Result<NamedNode> {
        let id = id(node).ok_or_else(not_found)?;
        let found = self.store.names()?.map(|names| names.node(id)).transpose()?.flatten();
        let is_it = |found: &NamedNode| match (&found.kind, node) {
            (NodeKind::Folder { .. }, Node::Tree | Node::Folder(_)) => true,
            (kind, Node::Link(_)) => matches!(kind, NodeKind::Link { .. }),
            _ => false,
        };
        found.filter(is_it).ok_or_else(not_found)
    }

    /// What is called `name` in a folder of `tree/`.
    pub(super) fn child(&self, folder: Node, name: &[u8]) -> Result<NamedNode> {
        let folder = id(folder).ok_or_else(not_found)?;
        let found = self.store.names()?.map(|names| names.child(folder, name)).transpose()?.flatten();
        found.ok_or_else(not_found)
    }

    /// The name of a record. A record whose name can't be read is shown as one that has none: its bytes are not lost.
    pub(super) fn name_of(&self, index: u32) -> Option<NamedNode> {
        let found = self.names_or_none()?.of_record(u64::from(index));
        found.unwrap_or_else(|e| self.without_names(&e))
    }

    /// The names, for what is shown without them, too.
    pub(super) fn names_or_none(&self) -> Option<Names<'_>> {
        self.store.names().unwrap_or_else(|e| self.without_names(&e))
    }

    /// Logs why names can't be read, once, as it would be said for each record.
    fn without_names<T>(&self, e: &Error) -> Option<T> {
        if !self.nameless.swap(true, Ordering::Relaxed) {
            log::error!("{e}; records are shown without their names");
        }
        None
    }

    /// The extension of a record in `records/`.
    pub(super) fn extension<'a>(&'a self, named: Option<&'a NamedNode>) -> &'a [u8] {
        let own =
            named.filter(|_| self.options.ext.is_none()).and_then(|named| names::extension(&named.name));
        own.unwrap_or(self.ext.as_bytes())
    }

    /// What stands before a record's bytes: a .npy header in a dense store, where the file in `records/` is a `.npy` one.
    pub(super) fn head(&self, named: Option<&NamedNode>) -> &[u8] {
        if !self.head.is_empty() && self.extension(named) == b"npy" { &self.head } else { &[] }
    }
}
