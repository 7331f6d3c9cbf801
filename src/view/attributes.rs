//! What stat says of each node.

use std::sync::atomic::Ordering;
use std::time::{Duration, SystemTime};

use super::{Node, View, pages, tree};
use crate::error::Result;
use crate::store::{NamedNode, NodeKind};

/// What a node is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A directory.
    Directory,
    /// A regular file.
    File,
    /// A symbolic link.
    Link,
}

/// Attributes of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attributes {
    /// Which node.
    pub node: Node,
    /// Directory, file or link.
    pub kind: Kind,
    /// Exact size in bytes; of a link that of its target.
    pub size: u64,
    /// Permission bits.
    pub mode: u16,
    /// Number of names; of a directory 2 and the directories in it.
    pub links: u32,
    /// When its contents were modified: where it was imported, what it had then.
    pub modified: SystemTime,
    /// When anything of it changed last: the store's time.
    pub changed: SystemTime,
    /// Whether the kernel may keep these attributes and the file's pages.
    pub stable: bool,
}

impl View {
    /// Attributes of a node.
    ///
    /// # Errors
    /// [`ErrorKind::OutOfRange`](crate::ErrorKind::OutOfRange) where no such record is,
    /// [`ErrorKind::NotFound`](crate::ErrorKind::NotFound) where no such folder or link is,
    /// [`ErrorKind::Damaged`](crate::ErrorKind::Damaged) where a record's entry is.
    pub fn attributes(&self, node: Node) -> Result<Attributes> {
        let now = self.modified();
        match node {
            Node::Root => {
                let tree = self.names_or_none().map_or(0, |_| 1);
                Ok(self.directory(node, 1 + tree, now))
            }
            Node::Records => Ok(self.directory(node, 0, now)),
            Node::Tree | Node::Folder(_) | Node::Link(_) => self.attributes_of(&self.named(node)?),
            Node::Stats => Ok(self.page(node, pages::STATS_BYTES)),
            Node::Readme => Ok(self.page(node, pages::readme(self).len())),
            Node::Record(index) => self.record(index, self.name_of(index).as_ref()),
        }
    }

    /// Attributes of what has a name.
    pub(super) fn attributes_of(&self, named: &NamedNode) -> Result<Attributes> {
        let node = tree::node(named);
        match &named.kind {
            NodeKind::Folder { folders } => Ok(self.directory(node, *folders, time(named.modified_ns))),
            NodeKind::Record { index, .. } => self.record(tree::index(*index), Some(named)),
            NodeKind::Link { target } => Ok(Attributes {
                node,
                kind: Kind::Link,
                size: target.len() as u64,
                mode: 0o777,
                links: 1,
                modified: time(named.modified_ns),
                changed: self.mounted,
                stable: true,
            }),
        }
    }

    /// Attributes of record `index`, which has the name `named`, or none.
    pub(super) fn record(&self, index: u32, named: Option<&NamedNode>) -> Result<Attributes> {
        let loc = self.location(index)?;
        let executable =
            named.is_some_and(|named| matches!(named.kind, NodeKind::Record { executable: true, .. }));
        Ok(Attributes {
            node: Node::Record(index),
            kind: Kind::File,
            size: self.head(named).len() as u64 + u64::from(loc.logic_length),
            mode: if executable { 0o555 } else { 0o444 } & !self.options.umask,
            links: 1 + u32::from(named.is_some()),
            modified: named.map_or(self.mounted, |named| time(named.modified_ns)),
            changed: self.mounted,
            stable: true,
        })
    }

    /// Attributes of an entry of a listing whose own are not known. They are not to be kept.
    pub(super) fn attributes_unknown(&self, node: Node, kind: Kind) -> Attributes {
        let now = self.modified();
        Attributes { node, kind, size: 0, mode: 0, links: 1, modified: now, changed: now, stable: false }
    }

    fn directory(&self, node: Node, folders: u32, modified: SystemTime) -> Attributes {
        Attributes {
            node,
            kind: Kind::Directory,
            size: 0,
            mode: 0o555 & !self.options.umask,
            links: folders.saturating_add(2),
            modified,
            changed: self.modified(),
            stable: true,
        }
    }

    fn page(&self, node: Node, size: usize) -> Attributes {
        let now = self.modified();
        Attributes {
            node,
            kind: Kind::File,
            size: size as u64,
            mode: 0o444 & !self.options.umask,
            links: 1,
            modified: now,
            changed: now,
            stable: false,
        }
    }

    pub(super) fn refresh_modified(&self) -> Result<()> {
        let since = self.store.modified()?.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        // Never zero: some tools take a time of 0 for a missing one.
        let nanos = i64::try_from(since.as_nanos()).unwrap_or(i64::MAX).max(1_000_000_000);
        self.modified.store(nanos, Ordering::Relaxed);
        Ok(())
    }

    /// When the store changed last.
    pub(super) fn modified(&self) -> SystemTime {
        time(self.modified.load(Ordering::Relaxed))
    }
}

/// The time so many nanoseconds after 1970, or before. Never zero: some tools take that for a missing one.
fn time(nanos: i64) -> SystemTime {
    let nanos = if nanos == 0 { 1 } else { nanos };
    let distance = Duration::from_nanos(nanos.unsigned_abs());
    if nanos < 0 { SystemTime::UNIX_EPOCH - distance } else { SystemTime::UNIX_EPOCH + distance }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_before_1970_are_shown_and_zero_is_not() {
        let epoch = SystemTime::UNIX_EPOCH;
        assert_eq!(time(1_500_000_001), epoch + Duration::new(1, 500_000_001));
        assert_eq!(time(-1_500_000_001), epoch - Duration::new(1, 500_000_001));
        assert_eq!(time(-1), epoch - Duration::from_nanos(1));
        assert_eq!(time(0), epoch + Duration::from_nanos(1));
        assert!(time(i64::MIN) < time(i64::MAX));
    }
}
