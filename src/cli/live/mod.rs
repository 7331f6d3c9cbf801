//! A store that is named by the mount point of a live mount.
//!
//! `stats`, `delete` and `compact` go through the files of the mount, which has the store open; the other commands read the
//! store behind it, or are refused there as it is in use. What a control file refuses comes as an errno, and the reason is
//! read from the file: both end in one line.

mod compact;
mod delete;
mod told;

use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::io::Errno;
use serde_json::{Map, Value, json};
use zrfs::{Error, ErrorKind, Result};

use super::Failure;
pub(super) use compact::compact;
pub(super) use delete::delete;

/// A live mount.
pub(super) struct Live {
    point: PathBuf,
    store: PathBuf,
}

impl Live {
    /// The live mount whose root is `path`; `None` where it is a store, or anything else.
    ///
    /// # Errors
    /// Where a mount is there whose daemon is gone.
    pub(super) fn at(path: &Path) -> Result<Option<Live>> {
        let store = zrfs::fuse::mounted_at(path)?;
        Ok(store.map(|store| Live { point: path.to_path_buf(), store }))
    }

    /// The mount point, as it was named.
    pub(super) fn point(&self) -> &Path {
        &self.point
    }

    /// The path of the store behind it.
    ///
    /// # Errors
    /// Where it leads nowhere, or to another store than the one that is mounted.
    pub(super) fn store(&self) -> Result<&Path> {
        let (point, store) = (self.point.display(), self.store.display());
        let elsewhere =
            "it was renamed, or the mount was made in another mount namespace: name the store itself";
        match self.store.join("meta.zr").metadata() {
            Err(e) if e.kind() == io::ErrorKind::NotFound => {
                let text = format!("{point} shows the store {store}, which can't be reached from here");
                Err(Error::io(text, e).with_help(elsewhere))
            }
            Ok(there) if self.stats()?.get("identity") != Some(&json!([there.dev(), there.ino()])) => {
                let text = format!("{point} shows a store that was at {store}, where another one is now");
                Err(Error::new(ErrorKind::NotFound, text).with_help(elsewhere))
            }
            // What else is wrong with it, opening says.
            _ => Ok(&self.store),
        }
    }

    /// What `stats` says.
    ///
    /// # Errors
    /// What the mount refuses.
    pub(super) fn stats(&self) -> Result<Map<String, Value>> {
        self.read_json("stats")
    }

    fn file(&self, name: &str) -> PathBuf {
        self.point.join(name)
    }

    fn read(&self, name: &str) -> Result<Vec<u8>> {
        let path = self.file(name);
        std::fs::read(&path).map_err(|e| Error::io(format!("can't read {}", path.display()), e))
    }

    fn read_json(&self, name: &str) -> Result<Map<String, Value>> {
        serde_json::from_slice(&self.read(name)?).map_err(|e| self.not_understood(name, &e))
    }

    fn not_understood(&self, name: &str, e: &serde_json::Error) -> Error {
        let text = format!("{} is not what this release understands: {e}", self.file(name).display());
        Error::new(ErrorKind::Unsupported, text).with_help("was it mounted by another release of zrfs?")
    }

    /// Opens a control file for writing. `busy` is why that may not be now.
    fn open_to_write(&self, name: &str, busy: &str) -> Result<File> {
        let path = self.file(name);
        File::options().write(true).open(&path).map_err(|e| {
            let why = match e.raw_os_error().map(Errno::from_raw_os_error) {
                Some(Errno::BUSY) => busy,
                Some(Errno::ROFS | Errno::NOENT) => {
                    "the mount is read-only: it was mounted with -o ro or dataonly, or its store could not be opened for \
                     writing; unmount it and name the store itself"
                }
                Some(Errno::ACCESS | Errno::PERM) => {
                    "that is for the owner of the mount and for root"
                }
                _ => return Error::io(format!("can't open {}", path.display()), e),
            };
            Error::io(format!("can't open {}", path.display()), e).with_help(why)
        })
    }
}

/// A failure to change the store at `path`, which may be in use because it is mounted; `does_it`: the mount can do it itself.
pub(super) fn mounted_meanwhile(path: &Path, does_it: bool, failure: Failure) -> Failure {
    let busy = match failure {
        Failure::Failed(e) if e.kind() == ErrorKind::Busy => e,
        other => return other,
    };
    let Ok(real) = path.canonicalize() else { return Failure::Failed(busy) };
    let mounts = zrfs::fuse::mounts().unwrap_or_default();
    let mut places = mounts.iter().filter(|entry| entry.is_ours() && Path::new(&entry.source) == real);
    let Some(first) = places.next() else { return Failure::Failed(busy) };
    let target = first.target.display();
    let mut help = format!("it is mounted at {target}: unmount it with `zrfs umount {target}`");
    match places.next() {
        Some(second) => help.push_str(&format!(", and that at {}", second.target.display())),
        None if does_it => help.push_str(&format!(", or name {target} in the place of the store")),
        None => {}
    }
    Failure::Failed(busy.with_help(help))
}

/// The path of a store: `path` itself, or the store behind the live mount there.
///
/// # Errors
/// Where a mount is there whose daemon is gone, or whose store can't be reached.
pub(super) fn store(path: PathBuf) -> Result<PathBuf> {
    match Live::at(&path)? {
        Some(live) => live.store().map(Path::to_path_buf),
        None => Ok(path),
    }
}
