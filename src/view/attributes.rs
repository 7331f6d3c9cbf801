//! What stat says of each node.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, SystemTime};

use super::identity::Ids;
use super::{Node, View, pages, tree};
use crate::error::Result;
use crate::store::{NamedNode, NodeId, NodeKind};

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
    /// Bytes of disk that it is said to take.
    pub stored: u64,
    /// What the kernel may keep.
    pub keep: Keep,
    /// Tells files apart that have one number.
    pub generation: u64,
}

/// What may be kept of a file until we say otherwise.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keep {
    /// Its name, its attributes and its pages.
    All,
    /// That the name is there.
    Name,
    /// Nothing: it is looked up each time.
    Nothing,
}

impl View {
    /// Attributes of a node.
    ///
    /// # Errors
    /// [`ErrorKind::OutOfRange`](crate::ErrorKind::OutOfRange) where no such record is,
    /// [`ErrorKind::NotFound`](crate::ErrorKind::NotFound) where no such folder or link is,
    /// [`ErrorKind::Damaged`](crate::ErrorKind::Damaged) where a record's entry is.
    pub fn attributes(&self, node: Node) -> Result<Attributes> {
        self.steady(|ids| self.attributes_at(ids, node))
    }

    pub(super) fn attributes_at(&self, ids: &Ids, node: Node) -> Result<Attributes> {
        let now = self.modified();
        match node {
            Node::Root => {
                // Beside records/ and batches/.
                let tree = self.names_or_none().map_or(0, |_| 1);
                Ok(self.directory(node, 2 + tree, now))
            }
            Node::Records | Node::Batches => Ok(self.directory(node, 0, now)),
            Node::Tree | Node::Folder(_) | Node::Link(_) => self.attributes_of(ids, &self.named(node)?),
            Node::Stats => Ok(self.page(node, pages::STATS_BYTES)),
            Node::Readme => Ok(self.page(node, pages::readme(self).len())),
            Node::Delete => Ok(self.control_file(node, self.control.delete_page().len())),
            Node::Compact => Ok(self.control_file(node, super::control::COMPACT_BYTES)),
            Node::Sampled(..) | Node::Step(..) => self.sampled_attributes(node),
            Node::Record(id) => {
                let index = self.index_of(ids, id)?;
                self.record(ids, index, self.name_of(index).as_ref())
            }
        }
    }

    /// Attributes of what has a name.
    pub(super) fn attributes_of(&self, ids: &Ids, named: &NamedNode) -> Result<Attributes> {
        let node = tree::node(ids, named);
        match &named.kind {
            NodeKind::Folder { folders } => Ok(self.directory(node, *folders, self.folder_time(named))),
            NodeKind::Record { index, .. } => self.record(ids, tree::index(*index), Some(named)),
            NodeKind::Link { target } => Ok(Attributes {
                mode: 0o777,
                modified: time(named.modified_ns),
                ..self.kept(node, Kind::Link, target.len() as u64)
            }),
        }
    }

    /// Attributes of record `index`, which has the name `named`, or none.
    pub(super) fn record(&self, ids: &Ids, index: u32, named: Option<&NamedNode>) -> Result<Attributes> {
        let loc = self.location(index)?;
        let executable =
            named.is_some_and(|named| matches!(named.kind, NodeKind::Record { executable: true, .. }));
        let size = self.head(named).len() as u64 + u64::from(loc.logic_length);
        // Another record than before: programs that compare times are to see that.
        let moved = ids.moved_at(index).map(time);
        Ok(Attributes {
            mode: if executable { 0o555 } else { 0o444 } & !self.options.umask,
            links: 1 + u32::from(named.is_some()),
            modified: named.map_or(moved.unwrap_or(self.mounted), |named| time(named.modified_ns)),
            changed: moved.unwrap_or(self.mounted),
            ..self.kept(Node::Record(ids.id_of(index)), Kind::File, size)
        })
    }

    /// Attributes of an entry of a listing whose own are not known. They are not to be kept.
    pub(super) fn attributes_unknown(&self, node: Node, kind: Kind) -> Attributes {
        Attributes { mode: 0, keep: Keep::Name, ..self.passing(node, kind, 0) }
    }

    /// What stands still unless we say otherwise.
    fn kept(&self, node: Node, kind: Kind, size: u64) -> Attributes {
        Attributes {
            modified: self.mounted,
            changed: self.mounted,
            keep: Keep::All,
            ..self.passing(node, kind, size)
        }
    }

    /// What may change at any time.
    pub(super) fn passing(&self, node: Node, kind: Kind, size: u64) -> Attributes {
        let now = self.modified();
        Attributes {
            node,
            kind,
            size,
            mode: 0o444 & !self.options.umask,
            links: 1,
            modified: now,
            changed: now,
            stored: size,
            keep: Keep::Nothing,
            generation: 0,
        }
    }

    fn directory(&self, node: Node, folders: u32, modified: SystemTime) -> Attributes {
        Attributes {
            mode: 0o555 & !self.options.umask,
            links: folders.saturating_add(2),
            modified,
            keep: Keep::All,
            ..self.passing(node, Kind::Directory, 0)
        }
    }

    /// When a folder of `tree/` changed last.
    fn folder_time(&self, named: &NamedNode) -> SystemTime {
        let touched = self.touched.load().get(&named.id).copied();
        time(touched.map_or(named.modified_ns, |touched| touched.max(named.modified_ns)))
    }

    /// Notes that folders have lost records just now.
    pub(super) fn touch_folders(&self, folders: &BTreeSet<NodeId>) {
        let now = nanoseconds(SystemTime::now());
        let mut touched = HashMap::clone(&self.touched.load());
        touched.extend(folders.iter().map(|&folder| (folder, now)));
        self.touched.store(Arc::new(touched));
    }

    fn control_file(&self, node: Node, size: usize) -> Attributes {
        Attributes { mode: 0o644 & !self.options.umask, ..self.page(node, size) }
    }

    fn page(&self, node: Node, size: usize) -> Attributes {
        Attributes { keep: Keep::Name, ..self.passing(node, Kind::File, size as u64) }
    }

    pub(super) fn refresh_modified(&self) -> Result<()> {
        // Never zero: some tools take a time of 0 for a missing one.
        let nanos = nanoseconds(self.store.modified()?).max(1_000_000_000);
        self.modified.store(nanos, Ordering::Relaxed);
        Ok(())
    }

    /// When the store changed last.
    pub(super) fn modified(&self) -> SystemTime {
        time(self.modified.load(Ordering::Relaxed))
    }
}

/// Nanoseconds since 1970.
pub(super) fn nanoseconds(time: SystemTime) -> i64 {
    let since = time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_nanos()).unwrap_or(i64::MAX)
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
