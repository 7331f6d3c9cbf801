//! Names of records: the folder that was imported, as a tree of folders, records and links beside the records.
//!
//! What is on disk is in `format::names`; how it stays aligned with the records is said there, too.

mod fresh;

pub use fresh::{FolderId, NewNames};

use super::{Appender, Store};
use crate::error::Result;

/// A folder, a named record or a link. It keeps its number as long as the store lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeId(u32);

impl NodeId {
    /// The folder that all paths start from.
    pub const ROOT: NodeId = NodeId(32);

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
}

impl Store {
    /// The names of the records; `None` where none has one, as in a store made of an array.
    ///
    /// Cost: that of opening files once; then little.
    ///
    /// # Errors
    /// What the system refuses.
    pub fn names(&self) -> Result<Option<Names<'_>>> {
        Ok(None)
    }

    /// Refuses names that can't be given: paths that the store holds already, and paths that are named twice.
    ///
    /// # Errors
    /// [`ErrorKind::Exists`](crate::ErrorKind::Exists) with their number and the first of them.
    pub fn check_names(&self, _names: &NewNames) -> Result<()> {
        Ok(())
    }
}

impl Appender<'_> {
    /// Names the records of this append, from its first one on. Called once, before the commit.
    ///
    /// # Errors
    /// As for [`Store::check_names`]; what the system refuses.
    pub fn set_names(&mut self, _names: &NewNames) -> Result<()> {
        Ok(())
    }
}

impl Names<'_> {
    /// What is known of a node; `None` where it is gone.
    ///
    /// # Errors
    /// What the system refuses.
    pub fn node(&self, _id: NodeId) -> Result<Option<NamedNode>> {
        let _ = self.store;
        Ok(None)
    }

    /// The node `name` in a folder. Constant time.
    ///
    /// # Errors
    /// What the system refuses.
    pub fn child(&self, _folder: NodeId, _name: &[u8]) -> Result<Option<NamedNode>> {
        Ok(None)
    }

    /// The node at `path`, whose components have a `/` between them; the empty path is the root. Links are not followed.
    ///
    /// # Errors
    /// What the system refuses.
    pub fn resolve(&self, path: &[u8]) -> Result<Option<NamedNode>> {
        let mut found = self.node(NodeId::ROOT)?;
        for name in path.split(|&b| b == b'/').take(if path.is_empty() { 0 } else { usize::MAX }) {
            let Some(folder) = found else { return Ok(None) };
            found = self.child(folder.id, name)?;
        }
        Ok(found)
    }

    /// The name of a record; `None` where it has none that can be trusted.
    ///
    /// # Errors
    /// What the system refuses.
    pub fn of_record(&self, _index: u64) -> Result<Option<NamedNode>> {
        Ok(None)
    }

    /// The path of a node from the root.
    ///
    /// # Errors
    /// What the system refuses; [`ErrorKind::Damaged`](crate::ErrorKind::Damaged) where a folder above it is lost.
    pub fn path(&self, _id: NodeId) -> Result<Vec<u8>> {
        Ok(Vec::new())
    }

    /// Hands every node in a folder to `take`, in the order in which they were added, from the first one behind `after`
    /// on, until it says `true` or all are told.
    ///
    /// # Errors
    /// What the system refuses.
    pub fn each_child(
        &self,
        _folder: NodeId,
        _after: Option<NodeId>,
        _take: impl FnMut(&NamedNode) -> bool,
    ) -> Result<()> {
        Ok(())
    }

    /// Hands every record from `first` on to `take`, with its name where it has one, until it says `true` or all are told.
    ///
    /// # Errors
    /// What the system refuses.
    pub fn each_record(&self, _first: u64, _take: impl FnMut(u64, Option<&NamedNode>) -> bool) -> Result<()> {
        Ok(())
    }

    /// Hands every node to `take`, parents before their children, until it says `true` or all are told.
    ///
    /// # Errors
    /// What the system refuses.
    pub fn each_node(&self, _take: impl FnMut(&NamedNode) -> bool) -> Result<()> {
        Ok(())
    }

    /// A mark that says how far the names go: nodes that are added later have a number from it on.
    pub fn end(&self) -> u32 {
        0
    }

    /// The folders that nodes were added to from the mark `since` on, each once.
    ///
    /// # Errors
    /// What the system refuses.
    pub fn grown_since(&self, _since: u32) -> Result<Vec<NodeId>> {
        Ok(Vec::new())
    }
}
