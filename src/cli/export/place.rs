//! The destination: complete under its name, or not there.

use std::fs::{File, OpenOptions, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags};
use zrfs::{Error, ErrorKind, Result, Store};

use super::Stop;
use super::UNDONE;
use super::partial;

/// DEST.partial while it grows. Dropped, it is removed with all that is in it.
pub(super) struct Place {
    path: PathBuf,
    partial: PathBuf,
    open: File,
    kind: Kind,
    kept: bool,
}

#[derive(Clone, Copy)]
enum Kind {
    File,
    Folder,
    /// A folder that takes the place of an empty one of this mode.
    Over(u32),
}

impl Place {
    /// A new file.
    pub(super) fn file(path: &Path, store: &Store) -> Result<Place> {
        check_apart(path, store)?;
        if path.symlink_metadata().is_ok() {
            return Err(exists(path, "exists already"));
        }
        let partial = partial::beside(path)?;
        let made = OpenOptions::new().write(true).create_new(true).open(&partial);
        let open = made.map_err(|e| partial::not_made(&partial, "an export", "remove it", e))?;
        Ok(Place { path: path.to_path_buf(), partial, open, kind: Kind::File, kept: false })
    }

    /// A folder: a new one, or in the place of an empty one, whose owner and mode it takes over.
    pub(super) fn folder(path: &Path, store: &Store) -> Result<Place> {
        if path.file_name().is_none() {
            let text = format!("{} can't be replaced by what is exported", path.display());
            return Err(Error::new(ErrorKind::Unsupported, text).with_help("give the new folder a name"));
        }
        check_apart(path, store)?;
        let (path, old) = match path.symlink_metadata() {
            Err(_) => (path.to_path_buf(), None),
            Ok(_) => (path.canonicalize().map_err(|e| unusable(path, e))?, Some(empty(path)?)),
        };
        let partial = partial::beside(&path)?;
        // Made here or refused: what another export has made is not ours to fill, nor to remove.
        std::fs::create_dir(&partial)
            .map_err(|e| partial::not_made(&partial, "an export", "remove it", e))?;
        let kind = old.as_ref().map_or(Kind::Folder, |old| Kind::Over(old.mode() & 0o7777));
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let open = match rustix::fs::open(&partial, flags, Mode::empty()) {
            Ok(open) => File::from(open),
            Err(e) => {
                let _ = std::fs::remove_dir(&partial);
                return Err(unusable(&partial, e.into()));
            }
        };
        let place = Place { path, partial, open, kind, kept: false };
        if let Some(old) = old {
            place.take_over(&old).map_err(|e| unusable(&place.partial, e))?;
        }
        Ok(place)
    }

    fn take_over(&self, old: &std::fs::Metadata) -> std::io::Result<()> {
        let new = self.open.metadata()?;
        if (new.uid(), new.gid()) != (old.uid(), old.gid()) {
            std::os::unix::fs::fchown(&self.open, Some(old.uid()), Some(old.gid()))?;
        }
        // Nobody sees more of it meanwhile; its owner has to fill it.
        self.open.set_permissions(Permissions::from_mode(old.mode() & 0o7777 | 0o700))
    }

    /// The open file or folder.
    pub(super) fn open(&self) -> &File {
        &self.open
    }

    /// What messages call it.
    pub(super) fn name(&self) -> String {
        self.partial.display().to_string()
    }

    /// Makes it durable and gives it its name.
    pub(super) fn keep(mut self, stop: &Stop) -> Result<()> {
        let synced = match self.kind {
            Kind::File => self.open.sync_all(),
            Kind::Folder => rustix::fs::syncfs(&self.open).map_err(Into::into),
            Kind::Over(mode) => {
                let set = self.open.set_permissions(Permissions::from_mode(mode));
                set.and_then(|()| Ok(rustix::fs::syncfs(&self.open)?))
            }
        };
        synced.map_err(|e| Error::io(format!("can't sync {}", self.name()), e))?;
        stop.check(UNDONE)?;
        if let Kind::Over(_) = self.kind {
            // Refused by the system where it is not empty any more.
            rustix::fs::rename(&self.partial, &self.path)
                .map_err(|e| Error::io(format!("can't replace {}", self.path.display()), e.into()))?;
        } else {
            partial::rename(&self.partial, &self.path)?;
        }
        self.kept = true;
        partial::sync_parent(&self.path)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if !self.kept {
            // What can't be removed is named at the next export.
            let _ = match self.kind {
                Kind::File => std::fs::remove_file(&self.partial),
                Kind::Folder | Kind::Over(_) => std::fs::remove_dir_all(&self.partial),
            };
        }
    }
}

/// What is known of the empty folder at `path`.
fn empty(path: &Path) -> Result<std::fs::Metadata> {
    let old = path.metadata().map_err(|e| unusable(path, e))?;
    if !old.is_dir() {
        return Err(exists(path, "exists already"));
    }
    let mut entries = std::fs::read_dir(path).map_err(|e| unusable(path, e))?;
    if entries.next().is_some() {
        return Err(exists(path, "is not empty"));
    }
    let above = path.join("..").metadata().map_err(|e| unusable(path, e))?;
    if above.dev() != old.dev() {
        let text = format!("{} is a mount point, which can't be replaced", path.display());
        return Err(Error::new(ErrorKind::Exists, text).with_help("export to a new folder in it"));
    }
    Ok(old)
}

/// Refuses a destination in the store.
fn check_apart(path: &Path, store: &Store) -> Result<()> {
    let parent = partial::parent(path).canonicalize();
    let parent = parent.map_err(|e| Error::io(format!("can't create {}", path.display()), e))?;
    if store.path().canonicalize().is_ok_and(|store| parent.starts_with(store)) {
        let text = format!("{} lies in the store", path.display());
        return Err(Error::new(ErrorKind::Unsupported, text).with_help("export to somewhere else"));
    }
    Ok(())
}

fn exists(path: &Path, how: &str) -> Error {
    Error::new(ErrorKind::Exists, format!("{} {how}", path.display())).with_help("choose another name")
}

fn unusable(path: &Path, e: std::io::Error) -> Error {
    Error::io(format!("can't export to {}", path.display()), e)
}
