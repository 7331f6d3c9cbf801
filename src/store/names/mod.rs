//! Names of records: the folder that was imported, as a tree of folders, records and links beside the records.
//!
//! What is on disk is in `format::names`; how it stays aligned with the records is said there, too.

mod check;
mod follow;
mod fresh;
mod layout;
mod lookup;
mod mend;
mod read;
#[cfg(test)]
mod tests;
mod window;
mod write;

pub use fresh::{FolderId, NewNames};
pub(super) use read::Seen;
pub(super) use write::NameFiles;

use std::sync::Arc;

use super::Store;
use crate::format::ROOT_NODE;

/// A folder, a named record or a link. It keeps its number as long as the store lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeId(u32);

impl NodeId {
    /// The folder that all paths start from.
    pub const ROOT: NodeId = NodeId(ROOT_NODE);

    /// The number, at least 32.
    pub fn number(self) -> u32 {
        self.0
    }

    /// The node of a number; [`Names::node`] says whether there is one.
    pub fn from_number(number: u32) -> NodeId {
        NodeId(number)
    }
}

/// What a node is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NodeKind {
    /// A folder, with the number of folders in it.
    Folder {
        /// Folders in it.
        folders: u32,
    },
    /// A record.
    Record {
        /// Its index.
        index: u64,
        /// Whether the file that it came from could be executed.
        executable: bool,
    },
    /// A symbolic link.
    Link {
        /// Where it leads.
        target: Vec<u8>,
    },
}

/// A node and what is known of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamedNode {
    /// Which one.
    pub id: NodeId,
    /// The folder that it is in; the root's is itself.
    pub parent: NodeId,
    /// Its name in that folder, 1 to 255 bytes without `/` and NUL, neither `.` nor `..`; the root's is empty.
    pub name: Vec<u8>,
    /// When it was modified, in nanoseconds since 1970.
    pub modified_ns: i64,
    /// What it is.
    pub kind: NodeKind,
}

/// The names of a store, as they are at this moment: what is not there any more, or not to be trusted, is left out.
pub struct Names<'a> {
    store: &'a Store,
    tree: Arc<read::Tree>,
}
