//! The call that mount(8) makes, as util-linux documents it: `mount.zrfs source target [-sfnv] [-N namespace] [-o options] [-t type]`.
//! Nothing is done here, so that a man page is made of this file alone (packaging/pages.rs).

use std::ffi::OsString;
use std::path::PathBuf;

use clap::Parser;
use zrfs::fuse::MountOptions;

/// Mount a zrfs store; called by mount(8) for the types zrfs and fuse.zrfs
///
/// Installed as /sbin/mount.zrfs it serves `mount -t zrfs` and fstab; a link /sbin/mount.fuse.zrfs to it serves the type
/// fuse.zrfs. It runs `zrfs mount` and returns when the mount serves.
#[derive(Parser)]
#[command(
    name = "mount.zrfs",
    version,
    args_override_self = true,
    override_usage = "mount.zrfs <SOURCE> <TARGET> [-sfnv] [-N <NAMESPACE>] [-o <OPTIONS>] [-t <TYPE>]",
    after_help = format!("Example, in /etc/fstab:
  /data/photos.zr /mnt/photos zrfs ro,allow_other,nofail 0 0

Options (-o), as in /etc/fstab:
{}

zrfs is the program that the environment variable ZRFS_PROGRAM names by an absolute path. Without it: zrfs beside this \
program, behind links; or in bin/ beside this program's folder; or where this program was built to find it; or in \
/usr/local/bin or /usr/bin. PATH is not looked at.

Exit status, as mount(8) has it: 0 mounted, 1 wrong usage or options, 2 zrfs was not found or can't be run, or the \
namespace can't be entered, 32 the mount failed.", MountOptions::HELP)
)]
pub(super) struct Call {
    /// The store
    pub(super) source: PathBuf,
    /// An existing folder
    pub(super) target: PathBuf,
    /// Mount options, separated by commas; may be given again
    #[arg(short = 'o', value_name = "OPTIONS")]
    pub(super) options: Vec<String>,
    /// Leave out options that are not known
    #[arg(short = 's')]
    pub(super) sloppy: bool,
    /// Check all that can be checked, and mount nothing
    #[arg(short = 'f')]
    pub(super) fake: bool,
    /// Accepted and without effect: no mtab is written in any case
    #[arg(short = 'n')]
    pub(super) no_mtab: bool,
    /// Print the command that is run, and what it says
    #[arg(short = 'v')]
    pub(super) verbose: bool,
    /// Mount in another mount namespace: a file such as /proc/PID/ns/mnt, or a process
    ///
    /// Source, target and files among the options are those of that namespace. zrfs is this namespace's; the other needs
    /// /proc and, unless zrfs is static as in the packages, the shared libraries that it uses.
    #[arg(short = 'N', value_name = "NAMESPACE")]
    pub(super) namespace: Option<OsString>,
    /// The type of file system
    #[arg(short = 't', value_name = "TYPE", value_parser = ["zrfs", "fuse.zrfs", "fuse"])]
    pub(super) fstype: Option<String>,
}
