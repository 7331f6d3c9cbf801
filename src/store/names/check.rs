//! Whether new names can be given: no path is taken, none is named twice.

use std::cmp::Ordering;

use super::fresh::{FolderId, NewNames, shown};
use super::{NodeId, NodeKind};
use crate::error::{Error, ErrorKind, Result};
use crate::store::Store;

/// How many paths a message names.
const NAMED: usize = 5;

impl Store {
    /// Refuses names that can't be given: paths that the store holds already, and paths that are named twice.
    ///
    /// Cost: a sort of the new names, and a look-up of each where the store has names.
    ///
    /// # Errors
    /// [`ErrorKind::Exists`] with their number and the first of them; what the system refuses.
    pub fn check_names(&self, names: &NewNames) -> Result<()> {
        let twice = named_twice(names);
        let all = names.records.len() + names.links.len();
        if !twice.is_empty() {
            let text = format!("{} of {all} paths are named twice: {}", twice.len(), listed(&twice));
            return Err(Error::new(ErrorKind::Exists, text).with_help("leave one of each out"));
        }
        let taken = self.taken(names)?;
        if !taken.is_empty() {
            let name = self.path.display();
            let text = format!("{} of {all} paths are in {name} already: {}", taken.len(), listed(&taken));
            return Err(
                Error::new(ErrorKind::Exists, text).with_help("leave them out, or delete the old ones")
            );
        }
        Ok(())
    }

    /// Paths that are there and are not folders on both sides.
    fn taken(&self, names: &NewNames) -> Result<Vec<Vec<u8>>> {
        let mut taken = Vec::new();
        let Some(old) = self.names()? else { return Ok(taken) };
        // Folders that are there already.
        let mut known: Vec<Option<NodeId>> = vec![Some(NodeId::ROOT)];
        for (i, folder) in names.folders.iter().enumerate().skip(1) {
            let parent = known.get(folder.parent.0 as usize).copied().flatten();
            let name = names.bytes_of(folder.name);
            let there = parent.map(|parent| old.child(parent, name)).transpose()?.flatten();
            let is_folder = there.as_ref().map(|node| matches!(node.kind, NodeKind::Folder { .. }));
            if is_folder == Some(false) {
                taken.push(names.folder_path(FolderId(u32::try_from(i).unwrap_or(u32::MAX))));
            }
            known.push(there.filter(|_| is_folder == Some(true)).map(|node| node.id));
        }
        let records = names.records.iter().map(|record| (record.folder, record.name));
        for (folder, name) in records.chain(names.links.iter().map(|link| (link.folder, link.name))) {
            let Some(parent) = known.get(folder.0 as usize).copied().flatten() else { continue };
            if old.child(parent, names.bytes_of(name))?.is_some() {
                taken.push(names.joined(folder, name));
            }
        }
        Ok(taken)
    }
}

/// Paths that two of the new records, links and folders have.
fn named_twice(names: &NewNames) -> Vec<Vec<u8>> {
    let key = |i: u32| {
        let record = names.records.get(i as usize)?;
        Some((record.folder, names.bytes_of(record.name)))
    };
    let mut order: Vec<u32> = (0..u32::try_from(names.records.len()).unwrap_or(u32::MAX)).collect();
    // Mostly in order already.
    order.sort_by(|&a, &b| key(a).cmp(&key(b)));
    let mut twice: Vec<Vec<u8>> = order
        .windows(2)
        .filter_map(|pair| match *pair {
            [a, b] if key(a) == key(b) => Some(names.path(a as usize)),
            _ => None,
        })
        .collect();
    let is_record = |folder: FolderId, name: &[u8]| {
        order.binary_search_by(|&i| key(i).map_or(Ordering::Less, |key| key.cmp(&(folder, name)))).is_ok()
    };
    let folders = names.folders.iter().skip(1).map(|folder| (folder.parent, folder.name));
    let links = || names.links.iter().map(|link| (link.folder, link.name));
    for (folder, name) in folders.chain(links()) {
        if is_record(folder, names.bytes_of(name)) {
            twice.push(names.joined(folder, name));
        }
    }
    let mut seen = std::collections::HashSet::new();
    for (folder, name) in links() {
        let bytes = names.bytes_of(name);
        if !seen.insert((folder, bytes)) || names.has_folder(folder, bytes) {
            twice.push(names.joined(folder, name));
        }
    }
    twice
}

fn listed(paths: &[Vec<u8>]) -> String {
    let mut named: Vec<_> = paths.iter().take(NAMED).map(|path| shown(path)).collect();
    if paths.len() > NAMED {
        named.push("…".to_owned());
    }
    named.join(", ")
}
