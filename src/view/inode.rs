//! Inode numbers. They are computed, never stored: forgetting one costs nothing.
//!
//! | number | node |
//! |---|---|
//! | 1 | the root |
//! | 2 | `records/` |
//! | 4 | `stats` |
//! | 5 | `README` |
//! | 2^24 + i | record i |
//!
//! A record's number is made of its index alone, so it does not change when its bytes move.

use crate::format::MAX_RECORDS;

const FIRST_RECORD: u64 = MAX_RECORDS as u64;

/// A file or directory of the mount.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Node {
    /// The mount point.
    Root,
    /// `records/`.
    Records,
    /// `stats`.
    Stats,
    /// `README`.
    Readme,
    /// A record, by its index.
    Record(u32),
}

impl Node {
    /// The inode number.
    pub fn number(self) -> u64 {
        match self {
            Node::Root => 1,
            Node::Records => 2,
            Node::Stats => 4,
            Node::Readme => 5,
            Node::Record(index) => FIRST_RECORD + u64::from(index),
        }
    }

    /// The node of an inode number; `None` for a number that is never given out.
    pub fn from_number(number: u64) -> Option<Node> {
        match number {
            1 => Some(Node::Root),
            2 => Some(Node::Records),
            4 => Some(Node::Stats),
            5 => Some(Node::Readme),
            _ => {
                let index = number.checked_sub(FIRST_RECORD)?;
                u32::try_from(index).ok().filter(|&index| index < MAX_RECORDS).map(Node::Record)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_go_both_ways() {
        let fixed = [Node::Root, Node::Records, Node::Stats, Node::Readme];
        for node in fixed.into_iter().chain([0, 1, MAX_RECORDS - 1].map(Node::Record)) {
            assert_eq!(Node::from_number(node.number()), Some(node));
        }
        for number in [0, 3, 6, FIRST_RECORD - 1, 2 * FIRST_RECORD, u64::MAX] {
            assert_eq!(Node::from_number(number), None, "{number}");
        }
    }
}
