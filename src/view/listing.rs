//! Listings, resumable at any entry, without a table of names: what comes next is computed from the offset.

use super::names::{self, RecordName};
use super::{Attributes, Kind, Node, View};
use crate::error::{Error, ErrorKind, Result};

/// One entry of a listing.
#[derive(Debug)]
pub struct ListEntry<'a> {
    /// What it is.
    pub node: Node,
    /// Directory or file.
    pub kind: Kind,
    /// Its name.
    pub name: &'a [u8],
    /// Offset to go on behind this entry.
    pub next: u64,
}

/// The entries of one directory.
pub struct Listing<'a> {
    view: &'a View,
    directory: Node,
}

impl View {
    /// The listing of `directory`.
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`] where it is no directory.
    pub fn list(&self, directory: Node) -> Result<Listing<'_>> {
        match directory {
            Node::Root | Node::Records => Ok(Listing { view: self, directory }),
            Node::Stats | Node::Readme | Node::Record(_) => {
                Err(Error::new(ErrorKind::Unsupported, "a file has no entries"))
            }
        }
    }
}

impl Listing<'_> {
    /// Calls `emit` for each entry from `offset` (0 at first) on, until it returns `true` or all are told.
    pub fn each(&self, offset: u64, mut emit: impl FnMut(ListEntry<'_>) -> bool) {
        let dots = [(&b"."[..], self.directory), (b"..", Node::Root)];
        let mut next = offset;
        for (name, node) in dots.into_iter().skip(usize::try_from(offset).unwrap_or(usize::MAX)) {
            next += 1;
            if emit(ListEntry { node, kind: Kind::Directory, name, next }) {
                return;
            }
        }
        let Some(first) = next.checked_sub(2) else { return };
        match self.directory {
            Node::Records => {
                let mut name = RecordName::new(&self.view.ext);
                // An index fits u32: a store has fewer records.
                for index in first..self.view.store.len() {
                    let Ok(index) = u32::try_from(index) else { return };
                    next += 1;
                    let node = Node::Record(index);
                    if emit(ListEntry { node, kind: Kind::File, name: name.of(index), next }) {
                        return;
                    }
                }
            }
            _ => {
                for &(name, node) in names::ROOT.iter().skip(usize::try_from(first).unwrap_or(usize::MAX)) {
                    next += 1;
                    let kind = if node == Node::Records { Kind::Directory } else { Kind::File };
                    if emit(ListEntry { node, kind, name: name.as_bytes(), next }) {
                        return;
                    }
                }
            }
        }
    }

    /// Attributes of an entry. Those of a record whose table entry is damaged are not to be kept: asked for again,
    /// they are an error.
    pub fn attributes(&self, entry: &ListEntry<'_>) -> Attributes {
        self.view.attributes(entry.node).unwrap_or_else(|_| Attributes {
            node: entry.node,
            kind: entry.kind,
            size: 0,
            mode: 0,
            links: 1,
            modified: self.view.modified(),
            stable: false,
        })
    }
}
