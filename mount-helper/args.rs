//! The call that mount(8) makes, as util-linux documents it: `mount.zrfs source target [-sfnv] [-N namespace] [-o options] [-t type]`.
//! Nothing is done here, so that a man page is made of this file alone (packaging/pages.rs).

use std::path::PathBuf;

use clap::Parser;
use zrfs::fuse::MountOptions;

/// Mount a zrfs store; called by mount(8) for the types zrfs and fuse.zrfs
#[derive(Parser)]
#[command(name = "mount.zrfs", version, after_help = format!("Options (-o), as in /etc/fstab:\n{}", MountOptions::HELP))]
pub(super) struct Call {
    /// The store
    pub(super) source: PathBuf,
    /// An existing folder
    pub(super) target: PathBuf,
}
