//! Where new nodes go, and what leads to them: worked out before anything is written.

use super::fresh::{FolderId, NewNames};
use super::{Names, NodeId, NodeKind};
use crate::error::{Error, ErrorKind, Result};
use crate::format::{ROOT_NODE, node_stride};

/// Where new nodes go, and what leads to them.
pub(super) struct Layout {
    pub(super) folders: Vec<FolderPlace>,
    /// Node numbers of the records, and of the next node in each one's folder.
    pub(super) records: Vec<u32>,
    pub(super) next: Vec<u32>,
    /// Those of the links.
    pub(super) links: Vec<(u32, u32)>,
    /// New nodes in all, without the root.
    pub(super) count: u32,
    pub(super) end: u32,
}

/// A folder's node, and what of its children is new.
pub(super) struct FolderPlace {
    pub(super) number: u32,
    pub(super) is_new: bool,
    pub(super) next: u32,
    pub(super) first: u32,
    pub(super) last: u32,
    pub(super) folders: u32,
}

impl Layout {
    pub(super) fn new(end: u32, old: Option<&Names<'_>>, fresh: &NewNames) -> Result<Layout> {
        let mut cursor = end;
        let mut take = |name: usize, target: usize| -> Result<u32> {
            let number = cursor;
            let stride = u32::try_from(node_stride(name, target) / 8).unwrap_or(u32::MAX);
            cursor = cursor
                .checked_add(stride)
                .ok_or_else(|| Error::new(ErrorKind::Full, "the names of a store take more than 32 GiB"))?;
            Ok(number)
        };
        let mut folders: Vec<FolderPlace> = Vec::with_capacity(fresh.folders.len());
        for (i, folder) in fresh.folders.iter().enumerate() {
            let name = fresh.bytes_of(folder.name);
            let known = match (old, folders.get(folder.parent.0 as usize)) {
                (None, _) => None,
                (Some(_), _) if i == 0 => Some(NodeId::ROOT),
                (Some(old), Some(parent)) if !parent.is_new => {
                    let there = old.child(NodeId(parent.number), name)?;
                    there.filter(|node| matches!(node.kind, NodeKind::Folder { .. })).map(|node| node.id)
                }
                _ => None,
            };
            let (number, is_new) = match known {
                Some(id) => (id.0, false),
                None => (take(name.len(), 0)?, true),
            };
            folders.push(FolderPlace { number, is_new, next: 0, first: 0, last: 0, folders: 0 });
        }
        let records: Vec<u32> = fresh
            .records
            .iter()
            .map(|record| take(fresh.bytes_of(record.name).len(), 0))
            .collect::<Result<_>>()?;
        let mut links: Vec<(u32, u32)> = fresh
            .links
            .iter()
            .map(|link| Ok((take(fresh.bytes_of(link.name).len(), link.target.len())?, 0)))
            .collect::<Result<_>>()?;
        // From the last to the first, so that each knows the next one in its folder.
        let put = |folders: &mut Vec<FolderPlace>, parent: FolderId, number: u32| -> u32 {
            let Some(place) = folders.get_mut(parent.0 as usize) else { return 0 };
            if place.last == 0 {
                place.last = number;
            }
            std::mem::replace(&mut place.first, number)
        };
        for (link, (number, next)) in fresh.links.iter().zip(&mut links).rev() {
            *next = put(&mut folders, link.folder, *number);
        }
        let mut next = vec![0; records.len()];
        for ((record, &number), next) in fresh.records.iter().zip(&records).zip(&mut next).rev() {
            *next = put(&mut folders, record.folder, number);
        }
        let mut new_folders = 0;
        for (i, folder) in fresh.folders.iter().enumerate().skip(1).rev() {
            let Some(number) = folders.get(i).filter(|place| place.is_new).map(|place| place.number) else {
                continue;
            };
            let behind = put(&mut folders, folder.parent, number);
            if let Some(place) = folders.get_mut(i) {
                place.next = behind;
            }
            if let Some(parent) = folders.get_mut(folder.parent.0 as usize) {
                parent.folders += 1;
            }
            new_folders += 1;
        }
        let count = records.len() + links.len() + new_folders;
        let count = u32::try_from(count).unwrap_or(u32::MAX);
        Ok(Layout { folders, records, next, links, count, end: cursor })
    }

    pub(super) fn number(&self, folder: FolderId) -> u32 {
        self.folders.get(folder.0 as usize).map_or(ROOT_NODE, |place| place.number)
    }
}
