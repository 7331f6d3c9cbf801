//! Times of folders that an archive has only by the paths of its files: that of the newest file below.

use std::collections::{HashMap, HashSet};

use zrfs::Result;
use zrfs::store::FolderId;

use super::super::files::Files;

/// What an archive says of its folders' times.
pub(super) struct Times {
    /// Number of folders that have their times from elsewhere.
    known: usize,
    /// Folders that are members.
    told: HashSet<FolderId>,
    /// Time of the newest file in a folder.
    newest: HashMap<FolderId, i64>,
}

impl Times {
    /// The times of folders that are added to `files` from here on.
    pub(super) fn beside(files: &Files) -> Times {
        let folders = files.names().folders().count();
        // The folder of all is there from the beginning; what comes before this archive gives it a time.
        let known = if files.are_begun() { folders } else { 0 };
        Times { known, told: HashSet::new(), newest: HashMap::new() }
    }

    /// Takes note that a folder is a member.
    pub(super) fn tell(&mut self, folder: FolderId) {
        self.told.insert(folder);
    }

    /// Takes note of a file in a folder.
    pub(super) fn see(&mut self, folder: FolderId, modified_ns: i64) {
        let newest = self.newest.entry(folder).or_insert(modified_ns);
        *newest = modified_ns.max(*newest);
    }

    /// Gives the folders that are no members their times.
    pub(super) fn settle(&mut self, files: &mut Files) -> Result<()> {
        let folders: Vec<_> = files.names().folders().skip(self.known).collect();
        // Children come behind their parents.
        for folder in folders.into_iter().rev() {
            let Some(&newest) = self.newest.get(&folder) else { continue };
            if !self.told.contains(&folder) {
                files.set_modified(folder, newest);
            }
            let path = files.names().folder_path(folder);
            if folder != FolderId::ROOT {
                let above = path.iter().rposition(|&b| b == b'/').and_then(|slash| path.get(..slash));
                self.see(files.folder_at(above.unwrap_or_default())?, newest);
            }
        }
        Ok(())
    }
}
