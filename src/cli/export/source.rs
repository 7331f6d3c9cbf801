//! What is to be exported: which records, under which names, beside which folders and links.

use std::cell::Cell;
use std::ops::Range;
use std::time::UNIX_EPOCH;

use zrfs::dataset::Schema;
use zrfs::store::{NamedNode, Names, NodeId, NodeKind};
use zrfs::{Error, ErrorKind, Result, Store};

use super::super::names::Quoted;
use super::lineage::{self, Nodes};
use super::{Outcome, count};

/// Records whose names are looked up together.
const PAGE: usize = 4096;
/// Digits of the name of a record that has none. Enough for every index.
const DIGITS: usize = 8;

/// A file to be.
#[derive(Debug)]
pub(super) struct Item<'a> {
    pub(super) folder: NodeId,
    pub(super) name: Vec<u8>,
    pub(super) modified_ns: i64,
    pub(super) executable: bool,
    /// What comes before the record's bytes.
    pub(super) header: &'a [u8],
}

pub(super) struct Source<'a> {
    store: &'a Store,
    names: Option<Names<'a>>,
    /// Each record once, in order.
    chosen: Vec<Range<u64>>,
    /// Whether that is everything, with folders and links.
    whole: bool,
    /// What a record is that has no name.
    ext: &'static str,
    /// NumPy's header, in each file of a dense store, as in a mount.
    header: Vec<u8>,
    /// When the store was modified.
    modified_ns: i64,
    /// The folder that was looked at last, and whether all that lead there are known.
    last: Cell<Option<(NodeId, bool)>>,
    lost: Cell<u64>,
    /// Records that have no name.
    nameless: Cell<u64>,
}

impl<'a> Source<'a> {
    /// # Errors
    /// [`ErrorKind::Exists`] where a record without a name would get one that another file has; what the system refuses.
    pub(super) fn new(store: &'a Store, chosen: Option<Vec<Range<u64>>>) -> Result<Source<'a>> {
        let schema = Schema::read(store)?;
        let since = store.modified()?.duration_since(UNIX_EPOCH).unwrap_or_default();
        let source = Source {
            store,
            names: store.names()?,
            whole: chosen.is_none(),
            chosen: once_each(chosen.unwrap_or_else(|| std::iter::once(0..store.len()).collect())),
            ext: if schema.is_some() { "npy" } else { "bin" },
            header: schema.map(|schema| schema.npy_header()).unwrap_or_default(),
            modified_ns: i64::try_from(since.as_nanos()).unwrap_or(i64::MAX),
            last: Cell::new(None),
            lost: Cell::new(0),
            nameless: Cell::new(0),
        };
        source.check_free()?;
        Ok(source)
    }

    pub(super) fn store(&self) -> &'a Store {
        self.store
    }

    /// Decoded bytes of what is chosen, as far as they are known.
    pub(super) fn bytes(&self) -> Result<u64> {
        if self.whole {
            return Ok(self.store.stats()?.logical_bytes);
        }
        let lens = self.chosen.iter().cloned().flatten().filter_map(|index| self.store.location(index).ok());
        Ok(lens.map(|loc| u64::from(loc.logic_length)).sum())
    }

    /// Folders, parents before their children, and links, where everything is exported; else none.
    pub(super) fn folders_and_links(&self) -> Result<(Vec<NodeId>, Vec<NodeId>)> {
        let (mut folders, mut links) = (Vec::new(), Vec::new());
        if let Some(names) = self.names.as_ref().filter(|_| self.whole) {
            names.each_node(|node| {
                match node.kind {
                    NodeKind::Folder { .. } => folders.push(node.id),
                    NodeKind::Link { .. } => links.push(node.id),
                    NodeKind::Record { .. } => {}
                }
                false
            })?;
        }
        Ok((folders, links))
    }

    /// Hands every record that is chosen to `take`, in order.
    pub(super) fn each_record<'s>(&'s self, mut take: impl FnMut(u64, Item<'s>) -> Outcome) -> Outcome {
        let Some(names) = &self.names else {
            let mut chosen = self.chosen.iter().cloned().flatten();
            return chosen.try_for_each(|index| take(index, self.item(index, None)?));
        };
        for range in &self.chosen {
            let mut next = range.start;
            while next < range.end {
                let mut page = Vec::new();
                names.each_record(next, |index, node| {
                    page.push((index, node.cloned()));
                    page.len() >= PAGE || index + 1 >= range.end
                })?;
                // There are no fewer records than there were: nobody deletes while the store is open.
                let Some(&(last, _)) = page.last() else { break };
                next = last + 1;
                page.into_iter().try_for_each(|(index, node)| take(index, self.item(index, node)?))?;
            }
        }
        Ok(())
    }

    /// Whether the folders that lead to one are all known. Where not, it is counted as lost.
    pub(super) fn leads_to(&self, folder: NodeId) -> Result<bool> {
        let leads = match self.last.get() {
            Some((last, leads)) if last == folder => leads,
            _ => match lineage::of(self, folder) {
                Ok(_) => true,
                Err(e) if e.kind() == ErrorKind::Damaged => false,
                Err(e) => return Err(e),
            },
        };
        self.last.set(Some((folder, leads)));
        self.lost.set(self.lost.get() + u64::from(!leads));
        Ok(leads)
    }

    /// Says what was lost, and what went by its index although others have names.
    pub(super) fn tell_lost(&self) {
        let nameless = self.nameless.get();
        if self.names.is_some() && nameless > 0 {
            let path = self.store.path().display();
            log::warn!(
                "{nameless} of the records of {path} have no name and went by their index; `zrfs verify` says whether names \
                 are damaged"
            );
        }
        let lost = self.lost.get();
        if lost > 0 {
            let path = self.store.path().display();
            log::warn!(
                "{lost} of the names of {path} lie in folders that are lost: records among them went by index"
            );
        }
    }

    /// A record as a file. One whose name, or a folder on the way to it, can't be trusted goes by its index.
    fn item(&self, index: u64, node: Option<NamedNode>) -> Result<Item<'_>> {
        let node = match node {
            Some(node) if self.leads_to(node.parent)? => Some(node),
            _ => None,
        };
        // One whose entry is damaged is told of as such.
        let goes_by_index = node.is_none() && self.store.location(index).is_ok();
        self.nameless.set(self.nameless.get() + u64::from(goes_by_index));
        let (folder, name, modified_ns, executable) = match node {
            Some(NamedNode { parent, name, modified_ns, kind, .. }) => {
                (parent, name, modified_ns, matches!(kind, NodeKind::Record { executable: true, .. }))
            }
            None => (NodeId::ROOT, name_of(index, self.ext), self.modified_ns, false),
        };
        Ok(Item { folder, name, modified_ns, executable, header: &self.header })
    }

    /// Refuses to give a record a name that a file beside it has.
    fn check_free(&self) -> Result<()> {
        let Some(names) = &self.names else { return Ok(()) };
        let mut candidates = Vec::new();
        names.each_child(NodeId::ROOT, None, |node| {
            let beside = match node.kind {
                NodeKind::Record { index, .. } => self.is_chosen(index),
                NodeKind::Folder { .. } => true,
                NodeKind::Link { .. } => self.whole,
            };
            let index = stands_for(&node.name, self.ext).filter(|&index| beside && self.is_chosen(index));
            candidates.extend(index);
            false
        })?;
        let mut taken = Vec::new();
        for index in candidates {
            match names.of_record(index)? {
                Some(node) if lineage::of(self, node.parent).is_ok() => {}
                _ => taken.push(index),
            }
        }
        let Some(&first) = taken.first() else { return Ok(()) };
        let text = format!(
            "{} of {} without a name would be called as other files are, the first one {}",
            count(taken.len() as u64, "record"),
            self.store.path().display(),
            Quoted(&name_of(first, self.ext)),
        );
        Err(Error::new(ErrorKind::Exists, text)
            .with_help("nothing was exported; name them by RECORDS, apart from the others"))
    }

    fn is_chosen(&self, index: u64) -> bool {
        let behind = self.chosen.partition_point(|range| range.end <= index);
        self.chosen.get(behind).is_some_and(|range| range.contains(&index))
    }
}

impl Nodes for Source<'_> {
    fn node(&self, id: NodeId) -> Result<Option<NamedNode>> {
        self.names.as_ref().map_or(Ok(None), |names| names.node(id))
    }
}

/// Ranges in order, joined: each index once.
fn once_each(mut ranges: Vec<Range<u64>>) -> Vec<Range<u64>> {
    ranges.sort_unstable_by_key(|range| range.start);
    let mut joined: Vec<Range<u64>> = Vec::new();
    for range in ranges {
        match joined.last_mut() {
            Some(last) if range.start <= last.end => last.end = last.end.max(range.end),
            _ => joined.push(range),
        }
    }
    joined
}

/// What a record is called that has no name.
fn name_of(index: u64, ext: &str) -> Vec<u8> {
    format!("{index:0DIGITS$}.{ext}").into_bytes()
}

/// The record that would be called `name`, if it has no name.
fn stands_for(name: &[u8], ext: &str) -> Option<u64> {
    let digits = name.strip_suffix(ext.as_bytes())?.strip_suffix(b".")?;
    let index = std::str::from_utf8(digits).ok()?.parse().ok()?;
    (name_of(index, ext) == name).then_some(index)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_nameless_records_go_both_ways() {
        for index in [0, 7, 42, 16_777_215] {
            assert_eq!(stands_for(&name_of(index, "bin"), "bin"), Some(index));
        }
        for name in [
            &b"7.bin"[..],
            b"00000007.npy",
            b"+0000007.bin",
            b"000000007.bin",
            b"00000007bin",
            b"00000007",
            b"",
        ] {
            assert_eq!(stands_for(name, "bin"), None);
        }
    }

    #[test]
    fn records_are_chosen_once_and_in_order() {
        assert_eq!(once_each(vec![9..10, 3..6, 4..5, 9..10, 6..7, 20..30, 25..40]), [3..7, 9..10, 20..40]);
        assert_eq!(once_each(Vec::new()), Vec::<Range<u64>>::new());
    }
}
