//! What others have appended since the mount was looked at last.

use super::{Node, View, tree};
use crate::store::Names;

/// How much of the store the mount's listings have shown.
#[derive(Debug)]
pub struct Seen {
    records: u64,
    epoch: u64,
    /// The end of the names; `None` where there were none.
    names: Option<u32>,
}

impl View {
    /// How much of the store there is now.
    pub fn seen(&self) -> Seen {
        let names = self.names_or_none().map(|names| names.end());
        Seen { records: self.store.len(), epoch: self.store.epoch(), names }
    }

    /// Looks whether other processes have appended; gives the directories whose entries or attributes have changed since
    /// `seen`, which is brought up to date.
    ///
    /// Cost: nothing worth naming where nothing was appended.
    pub fn grown(&self, seen: &mut Seen) -> Vec<Node> {
        let names = self.names_or_none();
        // Before the records: what comes in between is seen the next time, and not missed.
        let end = names.as_ref().map(Names::end);
        // As many may have come as a delete has taken away.
        let (epoch, records) = (self.store.epoch(), self.store.len());
        if records == seen.records && epoch == seen.epoch && end == seen.names {
            return Vec::new();
        }
        if let Err(e) = self.refresh_modified() {
            log::warn!("{e}");
        }
        // The two pages, as the kernel keeps what was read of a file that was not opened here.
        let mut grown = vec![Node::Root, Node::Records, Node::Stats, Node::Readme];
        // What had no names yet has shown none of their folders.
        if let Some(since) = seen.names.filter(|_| end != seen.names) {
            grown.push(Node::Tree);
            match names.map(|names| names.grown_since(since)).transpose() {
                Ok(folders) => grown.extend(folders.into_iter().flatten().map(tree::folder)),
                Err(e) => log::warn!("{e}"),
            }
        }
        *seen = Seen { records, epoch, names: end };
        grown
    }
}
