//! Stores and mounts of stores where samples are looked for: packed as files, their records would be there twice.

use std::io::Read;
use std::path::Path;

use rustix::fs::{FsWord, statfs};
use zrfs::storage::open_regular;
use zrfs::{Error, ErrorKind, Result};

use super::folder::Identity;

/// Name of a store's table.
pub(super) const TABLE: &str = "meta.zr";
/// The type of a FUSE file system.
const FUSE: FsWord = 0x6573_5546;
/// Inode number of the top of a FUSE file system.
const TOP: u64 = 1;

/// Whether a folder holds a store's table, that of one which is being made included.
pub(super) fn is_store(folder: &Path) -> bool {
    let mut magic = [0; 4];
    let read = open_regular(&folder.join(TABLE)).and_then(|mut file| file.read_exact(&mut magic));
    read.is_ok() && magic == *b"ZREC"
}

/// The error for the store in `folder`, which is `root` or below it.
pub(super) fn refused(root: &Path, folder: &Path) -> Error {
    let name = folder.display();
    if folder == root {
        let text = format!("{name} is a store, not a folder of samples");
        return Error::new(ErrorKind::Unsupported, text).with_help("copy the folder itself instead");
    }
    let text =
        format!("{name} is a store, and would be packed as files with what else is in {}", root.display());
    Error::new(ErrorKind::Unsupported, text)
        .with_help("move it out of that folder, and make stores elsewhere")
}

/// Refuses `folder`, which is `root` or below it, where it is the top of a mounted store.
pub(super) fn check_no_mount(root: &Path, folder: &Path, (_, inode): Identity) -> Result<()> {
    let is_fuse = || statfs(folder).is_ok_and(|fs| fs.f_type == FUSE);
    let holds = |name: &str| folder.join(name).exists();
    if inode != TOP || !is_fuse() || !holds("records") || !holds("stats") {
        return Ok(());
    }
    let name = folder.display();
    let text = format!("{name} is a mounted store, which shows each record more than once");
    let samples = if holds("tree") { "tree" } else { "records" };
    let help = if folder == root {
        format!("import {} instead", folder.join(samples).display())
    } else {
        format!("unmount it, or mount it outside {}", root.display())
    };
    Err(Error::new(ErrorKind::Unsupported, text).with_help(help))
}
