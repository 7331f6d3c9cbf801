//! Inode numbers. They are computed, never stored: forgetting one costs nothing.
//!
//! | number | node |
//! |---|---|
//! | 1 | the root |
//! | 2 | `records/` |
//! | 3 | `tree/` |
//! | 4 | `stats` |
//! | 5 | `README` |
//! | 2^24 + i | record i, in `records/` and in `tree/` |
//! | 2^40 + n | the folder in `tree/` that is node n of the names |
//! | 2^41 + n | the link in `tree/` that is node n of the names |
//!
//! A record's number is made of its index alone, so it does not change when its bytes move. The numbers of the names
//! stay as long as the store lives.

use crate::format::MAX_RECORDS;
use crate::store::NodeId;

const FIRST_RECORD: u64 = MAX_RECORDS as u64;
const FOLDERS: u64 = 1 << 40;
const LINKS: u64 = 1 << 41;

/// A file or directory of the mount.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Node {
    /// The mount point.
    Root,
    /// `records/`.
    Records,
    /// `tree/`, the root of the names.
    Tree,
    /// `stats`.
    Stats,
    /// `README`.
    Readme,
    /// A record, by its index. One file, also where it has two names.
    Record(u32),
    /// A folder below `tree/`. Not the root of the names, which is [`Node::Tree`].
    Folder(NodeId),
    /// A symbolic link below `tree/`.
    Link(NodeId),
}

impl Node {
    /// The inode number.
    pub fn number(self) -> u64 {
        match self {
            Node::Root => 1,
            Node::Records => 2,
            Node::Tree => 3,
            Node::Stats => 4,
            Node::Readme => 5,
            Node::Record(index) => FIRST_RECORD + u64::from(index),
            Node::Folder(id) => FOLDERS + u64::from(id.number()),
            Node::Link(id) => LINKS + u64::from(id.number()),
        }
    }

    /// The node of an inode number; `None` for a number that is never given out.
    pub fn from_number(number: u64) -> Option<Node> {
        match number {
            1 => Some(Node::Root),
            2 => Some(Node::Records),
            3 => Some(Node::Tree),
            4 => Some(Node::Stats),
            5 => Some(Node::Readme),
            FIRST_RECORD..FOLDERS => {
                let index = u32::try_from(number - FIRST_RECORD).ok();
                index.filter(|&index| index < MAX_RECORDS).map(Node::Record)
            }
            FOLDERS..LINKS => below_the_root(number - FOLDERS).map(Node::Folder),
            _ => below_the_root(number.checked_sub(LINKS)?).map(Node::Link),
        }
    }
}

/// The node of the names that has this number, if it may lie below their root.
fn below_the_root(number: u64) -> Option<NodeId> {
    let id = NodeId::from_number(u32::try_from(number).ok()?);
    (id > NodeId::ROOT).then_some(id)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_go_both_ways() {
        let ids = [NodeId::ROOT.number() + 1, 1 << 24, u32::MAX].map(NodeId::from_number);
        let nodes = [Node::Root, Node::Records, Node::Tree, Node::Stats, Node::Readme]
            .into_iter()
            .chain([0, 1, MAX_RECORDS - 1].map(Node::Record))
            .chain(ids.map(Node::Folder))
            .chain(ids.map(Node::Link));
        for node in nodes {
            assert_eq!(Node::from_number(node.number()), Some(node));
        }
        let no_folder = FOLDERS + u64::from(NodeId::ROOT.number());
        for number in [
            0,
            6,
            FIRST_RECORD - 1,
            2 * FIRST_RECORD,
            FOLDERS - 1,
            FOLDERS,
            no_folder,
            FOLDERS + (1 << 32),
            LINKS,
            LINKS + (1 << 32),
            u64::MAX,
        ] {
            assert_eq!(Node::from_number(number), None, "{number}");
        }
    }
}
