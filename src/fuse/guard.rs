//! Mounts that would hide the store they show, or lie in it.

use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use crate::error::{Error, ErrorKind, Result};
use crate::store::Store;

/// Checks that a mount at `target` and `store` leave each other alone. Folders are compared, not their names: a bind mount
/// is another name, and what is mounted at one name may show at the other.
///
/// # Errors
/// [`ErrorKind::Unsupported`] where one lies in the other.
pub(super) fn check(target: &Path, store: &Store) -> Result<()> {
    let folder = store.path();
    let path =
        folder.canonicalize().map_err(|e| Error::io(format!("can't look at {}", folder.display()), e))?;
    let refused = |text: String, help: &str| Err(Error::new(ErrorKind::Unsupported, text).with_help(help));
    let (shown, stored) = (target.display(), folder.display());
    match (is_in(target, &path), is_in(&path, target)) {
        (true, true) => {
            refused(format!("{shown} is the store {stored} itself"), "mount it on another folder")
        }
        (true, false) => refused(format!("{shown} lies in the store {stored}"), "mount it elsewhere"),
        (false, true) => refused(
            format!("a mount at {shown} would hide the store {stored}, which lies in that folder"),
            "mount it beside the store",
        ),
        // Mounts are looked up there.
        (false, false) if target == Path::new("/proc") => {
            refused("a mount at /proc would hide what all programs need".to_owned(), "mount it elsewhere")
        }
        (false, false) => Ok(()),
    }
}

/// Whether `path` is `folder` or lies in it. What can't be looked at is another folder.
fn is_in(path: &Path, folder: &Path) -> bool {
    let identity = |meta: Metadata| (meta.dev(), meta.ino());
    let Ok(wanted) = folder.metadata().map(identity) else { return false };
    path.ancestors().any(|above| above.metadata().is_ok_and(|meta| identity(meta) == wanted))
}
