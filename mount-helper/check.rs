//! The dry run: all that can be known without mounting.

use std::path::Path;

use rustix::io::Errno;
use zrfs::fuse::{MountOptions, mounted_at};
use zrfs::view::View;
use zrfs::{Error, ErrorKind, Result, Store};

use crate::args::Call;
use crate::failure::{FAILED, Failure};

/// Opens the stores for reading, and looks at the target.
pub(super) fn check(call: &Call, options: &MountOptions) -> std::result::Result<(), Failure> {
    can_be_mounted(call, options).map_err(|e| Failure::Says(FAILED, e.to_string()))
}

fn can_be_mounted(call: &Call, options: &MountOptions) -> Result<()> {
    let store = open(&call.source)?;
    let path = store.path().to_owned();
    let labels = options.labels.as_deref().map(open).transpose()?;
    View::new(store, labels, options.view(0, 0))?;
    is_free(&call.target, &path)
}

/// The store, or that behind the mount point of a live mount, as `zrfs mount` takes it.
fn open(path: &Path) -> Result<Store> {
    let path = mounted_at(path)?.unwrap_or_else(|| path.to_owned());
    // What can't be found, opening says better.
    Store::open_read_only(path.canonicalize().unwrap_or(path))
}

fn is_free(target: &Path, store: &Path) -> Result<()> {
    let failed = |e| Error::io(format!("mount point {}", target.display()), e);
    match target.metadata() {
        Ok(meta) if !meta.is_dir() => {
            let text = format!("mount point {} is not a folder", target.display());
            return Err(Error::new(ErrorKind::Unsupported, text));
        }
        Ok(_) => {}
        // A mount takes the place of one whose daemon is gone.
        Err(e) if e.raw_os_error() == Some(Errno::NOTCONN.raw_os_error()) => return Ok(()),
        Err(e) => return Err(failed(e)),
    }
    if mounted_at(target)?.is_some_and(|there| there == store) {
        let text = format!("{} is mounted at {} already", store.display(), target.display());
        return Err(Error::new(ErrorKind::Exists, text));
    }
    if target.canonicalize().map_err(failed)?.starts_with(store) {
        let text = format!("{} lies in the store {}", target.display(), store.display());
        return Err(Error::new(ErrorKind::Unsupported, text).with_help("mount it elsewhere"));
    }
    Ok(())
}
