//! The dry run: all that can be known without mounting.

use std::path::Path;

use zrfs::fuse::{MountOptions, Mountpoint, mounted_at};
use zrfs::view::View;
use zrfs::{Result, Store};

use crate::args::Call;
use crate::failure::{FAILED, Failure};

/// Opens the stores for reading, and looks at the target.
pub(super) fn check(call: &Call, options: &MountOptions) -> std::result::Result<(), Failure> {
    can_be_mounted(call, options).map_err(|e| Failure::Says(FAILED, e.to_string()))
}

fn can_be_mounted(call: &Call, options: &MountOptions) -> Result<()> {
    let store = open(&call.source)?;
    let labels = options.labels.as_deref().map(open).transpose()?;
    Mountpoint::check(&call.target, &store, labels.as_ref())?;
    View::new(store, labels, options.view(0, 0)).map(drop)
}

/// The store, or that behind the mount point of a live mount, as `zrfs mount` takes it.
fn open(path: &Path) -> Result<Store> {
    let path = mounted_at(path)?.unwrap_or_else(|| path.to_owned());
    // What can't be found, opening says better.
    Store::open_read_only(path.canonicalize().unwrap_or(path))
}
