//! Results that are complete or not there: work goes on in NAME.partial, which becomes NAME at the end.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, RenameFlags, renameat_with};
use rustix::io::Errno;
use zrfs::{Error, ErrorKind, Result};

/// NAME.partial, beside NAME.
pub(super) fn beside(path: &Path) -> Result<PathBuf> {
    let name = path.file_name().ok_or_else(|| {
        Error::new(ErrorKind::Unsupported, format!("{} is no name for something new", path.display()))
    })?;
    let mut partial = OsString::from(name);
    partial.push(".partial");
    Ok(path.with_file_name(partial))
}

/// The error of making `partial`, which `what` (an import, an export) is making, too; `ways` says what to do about one
/// that was killed, which is to end with removing it.
pub(super) fn not_made(partial: &Path, what: &str, ways: &str, e: std::io::Error) -> Error {
    let name = partial.display();
    if e.kind() != std::io::ErrorKind::AlreadyExists {
        return Error::io(format!("can't create {name}"), e);
    }
    Error::new(ErrorKind::Exists, format!("{name} is in the way: {what} was killed, or is still running"))
        .with_help(format!("where none is running, {ways}: rm -r {name}"))
}

/// Gives what is complete its name, where nothing has that name, and makes that durable.
pub(super) fn rename(partial: &Path, path: &Path) -> Result<()> {
    let failed =
        |e: Errno| Error::io(format!("can't rename {} to {}", partial.display(), path.display()), e.into());
    match renameat_with(CWD, partial, CWD, path, RenameFlags::NOREPLACE) {
        // File systems without it have no other way than to look first.
        Err(Errno::INVAL | Errno::NOSYS) => match path.symlink_metadata() {
            Ok(_) => return Err(failed(Errno::EXIST)),
            Err(_) => rustix::fs::rename(partial, path).map_err(failed)?,
        },
        other => other.map_err(failed)?,
    }
    sync_parent(path)
}

/// Makes the name `path` outlast a power cut.
pub(super) fn sync_parent(path: &Path) -> Result<()> {
    let parent = parent(path);
    std::fs::File::open(parent)
        .and_then(|dir| dir.sync_all())
        .map_err(|e| Error::io(format!("can't sync the folder {}", parent.display()), e))
}

/// The folder that `path` lies in.
pub(super) fn parent(path: &Path) -> &Path {
    path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}
