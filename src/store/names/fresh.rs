//! Names that an append is about to give its records, in memory: 40 bytes a name and the name itself.

use std::collections::HashMap;
use std::ops::Range;

use crate::error::{Error, ErrorKind, Result};
use crate::format::{MAX_NAME, MAX_TARGET};

/// A folder in a [`NewNames`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FolderId(pub(super) u32);

impl FolderId {
    /// The folder that all paths start from.
    pub const ROOT: FolderId = FolderId(0);
}

/// A stretch of the bytes of all names.
#[derive(Clone, Copy, Debug)]
pub(super) struct Text {
    at: u32,
    len: u16,
}

#[derive(Clone, Debug)]
pub(super) struct Folder {
    pub(super) parent: FolderId,
    pub(super) name: Text,
    pub(super) modified_ns: i64,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Record {
    pub(super) folder: FolderId,
    pub(super) name: Text,
    pub(super) executable: bool,
    pub(super) modified_ns: i64,
}

#[derive(Clone, Debug)]
pub(super) struct Link {
    pub(super) folder: FolderId,
    pub(super) name: Text,
    pub(super) target: Vec<u8>,
    pub(super) modified_ns: i64,
}

/// The names that an append gives its records, and the folders and links around them. Record i of the append is the i-th
/// that was added.
///
/// Paths are relative, `/` between their components; a component is any bytes that a Linux file name may hold. Times are
/// nanoseconds since 1970.
///
/// ```
/// use zrfs::store::{FolderId, NewNames};
///
/// # fn main() -> zrfs::Result<()> {
/// let mut names = NewNames::new(0);
/// let cats = names.folder(FolderId::ROOT, b"cats")?;
/// names.record(cats, b"a.png", 1_700_000_000_000_000_000, false)?;
/// assert_eq!(names.path(0), b"cats/a.png");
/// assert!(names.record(cats, b"..", 0, false).is_err());
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct NewNames {
    pub(super) folders: Vec<Folder>,
    pub(super) records: Vec<Record>,
    pub(super) links: Vec<Link>,
    bytes: Vec<u8>,
    known: HashMap<(FolderId, Box<[u8]>), FolderId>,
}

impl NewNames {
    /// No names yet, and the root, which was modified then.
    pub fn new(modified_ns: i64) -> NewNames {
        let root = Folder { parent: FolderId::ROOT, name: Text { at: 0, len: 0 }, modified_ns };
        NewNames {
            folders: vec![root],
            records: Vec::new(),
            links: Vec::new(),
            bytes: Vec::new(),
            known: HashMap::new(),
        }
    }

    /// The folder `name` in `parent`, added where it is not there yet, with the time 0.
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`] for what is no file name; [`ErrorKind::Full`] at 4 GiB of names.
    pub fn folder(&mut self, parent: FolderId, name: &[u8]) -> Result<FolderId> {
        if let Some(&known) = self.known.get(&(parent, Box::from(name))) {
            return Ok(known);
        }
        let text = self.text(name)?;
        let id = FolderId(u32::try_from(self.folders.len()).map_err(|_| too_many())?);
        self.folders.push(Folder { parent, name: text, modified_ns: 0 });
        self.known.insert((parent, Box::from(name)), id);
        Ok(id)
    }

    /// The folder at `path`, added with those that lead there. An empty path is the root.
    ///
    /// # Errors
    /// As for [`NewNames::folder`]; an empty component is no name.
    pub fn folder_at(&mut self, path: &[u8]) -> Result<FolderId> {
        let mut components = path.split(|&b| b == b'/').take(if path.is_empty() { 0 } else { usize::MAX });
        components.try_fold(FolderId::ROOT, |parent, name| self.folder(parent, name))
    }

    /// Says when a folder was modified.
    pub fn set_modified(&mut self, folder: FolderId, modified_ns: i64) {
        if let Some(folder) = self.folders.get_mut(folder.0 as usize) {
            folder.modified_ns = modified_ns;
        }
    }

    /// Names the next record.
    ///
    /// # Errors
    /// As for [`NewNames::folder`].
    pub fn record(
        &mut self,
        folder: FolderId,
        name: &[u8],
        modified_ns: i64,
        executable: bool,
    ) -> Result<()> {
        let name = self.text(name)?;
        self.records.push(Record { folder, name, executable, modified_ns });
        Ok(())
    }

    /// Adds a symbolic link. Its target may be anything that a link holds; nothing here follows it.
    ///
    /// # Errors
    /// As for [`NewNames::folder`]; a target is 1 to 4095 bytes without NUL.
    pub fn link(&mut self, folder: FolderId, name: &[u8], target: &[u8], modified_ns: i64) -> Result<()> {
        if target.is_empty() || target.len() > MAX_TARGET || target.contains(&0) {
            let text = format!("{} has a target that no link has", shown(name));
            return Err(Error::new(ErrorKind::Unsupported, text));
        }
        let name = self.text(name)?;
        self.links.push(Link { folder, name, target: target.to_vec(), modified_ns });
        Ok(())
    }

    /// Number of records that have a name here.
    pub fn len(&self) -> usize {
        self.records.len()
    }

    /// Whether no record has a name here.
    pub fn is_empty(&self) -> bool {
        self.records.is_empty()
    }

    /// Path of the `i`-th record; empty where there is none.
    pub fn path(&self, i: usize) -> Vec<u8> {
        self.records.get(i).map(|record| self.joined(record.folder, record.name)).unwrap_or_default()
    }

    /// Name of the `i`-th record in its folder; empty where there is none.
    pub fn name(&self, i: usize) -> &[u8] {
        self.records.get(i).map(|record| self.bytes_of(record.name)).unwrap_or_default()
    }

    /// Folder of the `i`-th record; the root where there is none.
    pub fn folder_of(&self, i: usize) -> FolderId {
        self.records.get(i).map_or(FolderId::ROOT, |record| record.folder)
    }

    /// When the `i`-th record was modified.
    pub fn modified_ns(&self, i: usize) -> i64 {
        self.records.get(i).map_or(0, |record| record.modified_ns)
    }

    /// Whether the file of the `i`-th record can be executed.
    pub fn executable(&self, i: usize) -> bool {
        self.records.get(i).is_some_and(|record| record.executable)
    }

    /// Path of a folder; that of the root is empty.
    pub fn folder_path(&self, folder: FolderId) -> Vec<u8> {
        match self.folders.get(folder.0 as usize) {
            Some(found) if folder != FolderId::ROOT => self.joined(found.parent, found.name),
            _ => Vec::new(),
        }
    }

    /// All folders, parents before their children, the root first.
    pub fn folders(&self) -> impl Iterator<Item = FolderId> + use<> {
        // `folder` counts them in a u32.
        (0..u32::try_from(self.folders.len()).unwrap_or(u32::MAX)).map(FolderId)
    }

    /// Puts the records into another order: the one that was at `order[i]` comes to place i. `order` holds each place once.
    pub fn reorder(&mut self, order: &[u32]) {
        debug_assert_eq!(order.len(), self.records.len(), "each record has a place");
        let old = std::mem::take(&mut self.records);
        self.records = order.iter().filter_map(|&from| old.get(from as usize).copied()).collect();
    }

    pub(super) fn bytes_of(&self, text: Text) -> &[u8] {
        let range: Range<usize> = text.at as usize..text.at as usize + usize::from(text.len);
        self.bytes.get(range).unwrap_or_default()
    }

    fn text(&mut self, name: &[u8]) -> Result<Text> {
        check_name(name)?;
        let text = Text {
            at: u32::try_from(self.bytes.len()).map_err(|_| too_many())?,
            len: u16::try_from(name.len()).unwrap_or(u16::MAX),
        };
        self.bytes.extend_from_slice(name);
        Ok(text)
    }

    /// Whether a folder is there.
    pub(super) fn has_folder(&self, parent: FolderId, name: &[u8]) -> bool {
        self.known.contains_key(&(parent, Box::from(name)))
    }

    pub(super) fn joined(&self, folder: FolderId, name: Text) -> Vec<u8> {
        let mut names = vec![name];
        let mut at = folder;
        while let Some(found) = self.folders.get(at.0 as usize).filter(|_| at != FolderId::ROOT) {
            names.push(found.name);
            at = found.parent;
        }
        let names: Vec<_> = names.iter().rev().map(|&name| self.bytes_of(name)).collect();
        names.join(&b'/')
    }
}

/// Refuses what is no name of a file: it would lead out of its folder, or nowhere.
pub(super) fn check_name(name: &[u8]) -> Result<()> {
    let why = match name {
        b"" => "is empty",
        b"." | b".." => "leads to another folder",
        _ if name.len() > MAX_NAME => "is longer than 255 bytes",
        _ if name.contains(&b'/') => "holds a slash",
        _ if name.contains(&0) => "holds a NUL byte",
        _ => return Ok(()),
    };
    Err(Error::new(ErrorKind::Unsupported, format!("the file name {} {why}", shown(name))))
}

/// A name as messages show it.
pub(super) fn shown(name: &[u8]) -> String {
    format!("\"{}\"", name.escape_ascii())
}

fn too_many() -> Error {
    Error::new(ErrorKind::Full, "the names take more than 4 GiB").with_help("import the source in parts")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_name_is_refused() {
        let mut names = NewNames::new(0);
        for bad in [&b""[..], b".", b"..", b"a/b", b"/", b"a\0b", &[b'x'; 256]] {
            assert!(names.folder(FolderId::ROOT, bad).is_err(), "{bad:?}");
            assert!(names.record(FolderId::ROOT, bad, 0, false).is_err(), "{bad:?}");
            assert!(names.link(FolderId::ROOT, bad, b"x", 0).is_err(), "{bad:?}");
        }
        for path in [&b"/a"[..], b"a/", b"a//b", b"a/../b"] {
            assert!(names.folder_at(path).is_err(), "{path:?}");
        }
        for target in [&b""[..], b"a\0", &[b'x'; 4096]] {
            assert!(names.link(FolderId::ROOT, b"l", target, 0).is_err());
        }
        for good in [&b" "[..], b"...", b"-rf", b"a\nb", b"\xff\xfe", b"a.", &[b'x'; 255]] {
            names.record(FolderId::ROOT, good, 0, false).unwrap();
        }
        assert_eq!(names.path(3), b"a\nb");
    }

    #[test]
    fn folders_are_added_once_and_orders_change() {
        let mut names = NewNames::new(5);
        let deep = names.folder_at(b"a/b").unwrap();
        assert_eq!(names.folder_at(b"a/b").unwrap(), deep);
        assert_eq!(names.folder_at(b"").unwrap(), FolderId::ROOT);
        assert_eq!(names.folder_path(deep), b"a/b");
        names.record(deep, b"1", 1, true).unwrap();
        names.record(FolderId::ROOT, b"0", 2, false).unwrap();
        names.reorder(&[1, 0]);
        assert_eq!((names.path(0), names.path(1)), (b"0".to_vec(), b"a/b/1".to_vec()));
        assert_eq!((names.modified_ns(1), names.name(1)), (1, &b"1"[..]));
        assert_eq!(names.folders().count(), 3);
    }
}
