//! Putting a tree right: after an append that was cut off, nodes behind the end that others lead to; after damage, places
//! where no node can be read. One pass over the nodes finds what leads astray.

use std::collections::HashMap;
use std::io;
use std::sync::Arc;

use super::Names;
use super::lookup::{self, Probe, Table};
use super::read::TREE;
use super::window::{Nodes, Walk};
use super::write::NameFiles;
use crate::error::Result;
use crate::format::{FIRST_AT, HEADER_BYTES, NEXT_AT, ROOT_NODE, TreeExtent, TreeKind, TreeNode, node_at};
use crate::storage::{Directory, StorageFile};

/// What leads astray.
pub(super) enum Fault {
    /// No node can be read between two numbers.
    Lost(u32, u32),
    /// Numbers of a node are wrong: the node, where in it, and what they should be.
    Astray(u32, u64, Vec<u32>),
}

/// A folder on the way through the nodes.
struct Folder {
    /// As the node has it: first and last child, and number of folders.
    noted: [u32; 3],
    /// As the children have it.
    found: [u32; 3],
    /// What the last child says comes behind it.
    next: u32,
}

/// Looks at all nodes below number `end`. Tells each fault, and each node that is whole with its folder and name.
pub(super) fn scan(
    tree: &Arc<dyn StorageFile>,
    end: u32,
    mut fault: impl FnMut(Fault) -> io::Result<()>,
    mut whole: impl FnMut(u32, &TreeNode<'_>),
) -> io::Result<()> {
    let mut nodes = Nodes::new(tree, end);
    let mut folders: HashMap<u32, Folder> = HashMap::new();
    let (mut walk, mut lost) = (Walk::from(ROOT_NODE), None);
    while let Some(number) = walk.at(end) {
        let Some((node, behind)) = nodes.get_with_next(number)? else {
            lost.get_or_insert(number);
            walk.step(None);
            continue;
        };
        walk.step(Some(behind));
        if let Some(from) = lost.take() {
            fault(Fault::Lost(from, number))?;
        }
        if node.kind != TreeKind::Blank {
            whole(number, &node);
        }
        if node.kind == TreeKind::Folder {
            let noted = [node.first, node.last, node.folders];
            folders.insert(number, Folder { noted, found: [0; 3], next: 0 });
        }
        // Where the folder is lost, nothing leads here.
        if number != ROOT_NODE
            && node.kind != TreeKind::Blank
            && let Some(folder) = folders.get_mut(&node.parent)
        {
            let [first, last, count] = &mut folder.found;
            if *first == 0 {
                *first = number;
            } else if folder.next != number {
                fault(Fault::Astray(*last, NEXT_AT, vec![number]))?;
            }
            *last = number;
            *count += u32::from(node.kind == TreeKind::Folder);
            folder.next = node.next;
        }
    }
    if let Some(from) = lost {
        fault(Fault::Lost(from, end))?;
    }
    for (number, folder) in folders {
        if folder.found != folder.noted {
            fault(Fault::Astray(number, FIRST_AT, folder.found.to_vec()))?;
        }
        let [_, last, _] = folder.found;
        if last != 0 && folder.next != 0 {
            fault(Fault::Astray(last, NEXT_AT, vec![0]))?;
        }
    }
    Ok(())
}

/// Hash and number of every node that is whole, but for the root; each fault is told, too.
fn hashed(
    tree: &Arc<dyn StorageFile>,
    key: &[u8; 16],
    end: u32,
    fault: impl FnMut(Fault) -> io::Result<()>,
) -> io::Result<Vec<(u32, u32)>> {
    let mut hashes = Vec::new();
    scan(tree, end, fault, |number, node| {
        if number != ROOT_NODE {
            hashes.push((lookup::hash(key, node.parent, node.name), number));
        }
    })?;
    Ok(hashes)
}

impl Names<'_> {
    /// What is wrong with the files of names, and what follows from it; `None` where nothing is. Reads all of them.
    ///
    /// # Errors
    /// What the system refuses.
    pub(in crate::store) fn fault(&self) -> Result<Option<String>> {
        let tree = self.tree.as_ref();
        let failed = |e| tree.io(self.store, TREE, e);
        if tree.unfinished {
            // The next writer puts it right.
            return Ok(None);
        }
        let (mut lost, mut astray, mut unfound) = (0u64, 0u64, 0u64);
        let fault = |fault: Fault| {
            match fault {
                Fault::Lost(..) => lost += 1,
                Fault::Astray(..) => astray += 1,
            }
            Ok(())
        };
        let mut hashes = hashed(&tree.tree, &tree.key, tree.extent.end, fault).map_err(failed)?;
        match &tree.lookup {
            None => unfound = hashes.len() as u64,
            Some(file) => {
                // In the order of the table.
                hashes.sort_unstable();
                let mut window = Probe::window(file, tree.extent.lookup_bits);
                for (hash, number) in hashes {
                    let is_found = Probe::finds(&mut window, tree.extent.lookup_bits, hash, number);
                    unfound += u64::from(!is_found.map_err(failed)?);
                }
            }
        }
        let parts = [
            (lost, "places in it hold no name that can be read"),
            (astray, "names in it are left out of listings"),
            (unfound, "names are not found"),
        ];
        let parts: Vec<_> =
            parts.iter().filter(|(n, _)| *n > 0).map(|(n, what)| format!("{n} {what}")).collect();
        if parts.is_empty() {
            return Ok(None);
        }
        Ok(Some(format!("the names are damaged (.zrfs/{TREE}): {}", parts.join(", "))))
    }
}

impl NameFiles {
    /// Makes the tree end where it ends for `meta`, the header in meta.zr, and everything lead where it should.
    pub(in crate::store) fn mend(&mut self, folder: &dyn Directory, meta: &[u8; HEADER_BYTES]) -> Result<()> {
        let Some(kept) = self.header.extent_for(meta) else { return Ok(()) };
        self.put_unfinished(true)?;
        let fix = |fault: Fault| match fault {
            Fault::Lost(from, to) => {
                // A node takes 40 bytes or more; a shorter gap is none that this release left.
                let blank = TreeNode::blank((to - from).saturating_mul(8));
                if to - from >= 5 { self.tree.write_at(&blank, node_at(from)) } else { Ok(()) }
            }
            Fault::Astray(number, at, numbers) => self.put_numbers(number, at, &numbers),
        };
        let entries =
            hashed(&self.tree, &self.header.key, kept.end, fix).map_err(|e| self.io("mend", TREE, e))?;
        self.tree.set_len(node_at(kept.end)).map_err(|e| self.io("cut", TREE, e))?;
        let count = u32::try_from(entries.len()).unwrap_or(u32::MAX);
        let mut table = Table::for_entries(count)?;
        entries.into_iter().for_each(|(hash, number)| table.insert(hash, number));
        let numbers = self.header.extents.iter().flatten().map(|extent| extent.lookup);
        let used: Vec<u32> = numbers.filter(|&number| number != 0).collect();
        let number = self.write_table(folder, used.iter().copied().max().unwrap_or(0), &table)?;
        let extent = TreeExtent {
            meta: *meta,
            end: kept.end,
            lookup: number,
            lookup_bits: table.bits(),
            entries: count,
        };
        self.sync_tree()?;
        folder.sync().map_err(|e| self.io("sync", "", e).of_sync())?;
        // The one that counts now stays until the other one is on disk.
        let first = usize::from(self.header.extents[0] == Some(kept));
        self.put_extents(extent, first)?;
        self.put_unfinished(false)?;
        self.dirty = true;
        used.into_iter().for_each(|old| drop(folder.remove(&lookup::file_name(old))));
        Ok(())
    }
}
