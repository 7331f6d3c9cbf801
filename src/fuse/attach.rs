//! Attaching to the tree: mount(2) for root, fusermount3 for others, nothing where the caller has mounted already.

use std::ffi::{CString, OsStr};
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::Path;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{FileType, Mode, OFlags};
use rustix::io::Errno;
use rustix::mount::MountFlags;

use super::mountinfo::topmost;
use super::{FSTYPE, MountOptions, fusermount};
use crate::error::{Error, ErrorKind, Result};

/// Major and minor number of /dev/fuse.
const FUSE: (u32, u32) = (10, 229);

/// Links are not followed (Linux 5.10); `rustix::mount::MountFlags` has no name for it.
const NOSYMFOLLOW: u32 = 256;

/// A mount's connection to the kernel.
pub(super) struct Attached {
    pub(super) connection: OwnedFd,
    /// The mount's device number, by which it is found again; `None` where it is not ours to unmount.
    pub(super) device: Option<String>,
}

/// Mounts at a folder.
pub(super) fn at_folder(
    target: &Path,
    source: &OsStr,
    options: &MountOptions,
    read_only: bool,
) -> Result<Attached> {
    // Whoever has the capability may mount: root mostly, but also who is not root in a container.
    let connection = match by_mount(target, source, options, read_only)? {
        Some(connection) => connection,
        None => by_fusermount(target, source, options, read_only).map_err(|e| {
            let help = "in a container, root needs --device /dev/fuse and --cap-add SYS_ADMIN to mount";
            if rustix::process::geteuid().is_root() { e.with_help(help) } else { e }
        })?,
    };
    let device = topmost(target)?.map(|top| top.device).ok_or_else(|| {
        Error::new(ErrorKind::Io, format!("the mount at {} is gone already", target.display()))
    })?;
    Ok(Attached { connection, device: Some(device) })
}

/// Takes the connection that the caller has mounted with.
///
/// # Errors
/// Where `connection` is none, or nothing is mounted with it.
pub(super) fn at_connection(path: &Path, connection: OwnedFd) -> Result<Attached> {
    let error = |why: &str| {
        Error::new(ErrorKind::Unsupported, format!("mount point {}: {why}", path.display()))
            .with_help("give a folder, or the descriptor of /dev/fuse that the mount was made with")
    };
    let io = |e: Errno| Error::io(format!("mount point {}", path.display()), e.into());
    let stat = rustix::fs::fstat(&connection).map_err(io)?;
    let number = (rustix::fs::major(stat.st_rdev), rustix::fs::minor(stat.st_rdev));
    if FileType::from_raw_mode(stat.st_mode) != FileType::CharacterDevice || number != FUSE {
        return Err(error("that descriptor is not one of /dev/fuse"));
    }
    let mut asked = [PollFd::new(&connection, PollFlags::IN)];
    poll(&mut asked, Some(&Timespec::default())).map_err(io)?;
    if asked.iter().any(|fd| fd.revents().contains(PollFlags::ERR)) {
        return Err(error("nothing is mounted with that descriptor"));
    }
    Ok(Attached { connection, device: None })
}

/// mount(2); `None` where this process may not.
fn by_mount(
    target: &Path,
    source: &OsStr,
    options: &MountOptions,
    read_only: bool,
) -> Result<Option<OwnedFd>> {
    let opened = rustix::fs::open("/dev/fuse", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty());
    let connection = match opened {
        Ok(connection) => connection,
        // fusermount3 may be able to, and says what is wrong where it is not.
        Err(_) if !rustix::process::geteuid().is_root() => return Ok(None),
        Err(e) => {
            let help = match e {
                Errno::ACCESS | Errno::PERM => "whoever owns it may open it to you (chmod 666 /dev/fuse)",
                _ => "load it with `modprobe fuse`, or pass the device into the container",
            };
            return Err(Error::io("can't open /dev/fuse", e.into()).with_help(help));
        }
    };
    let (uid, gid) = (rustix::process::getuid().as_raw(), rustix::process::getgid().as_raw());
    let fd = connection.as_raw_fd();
    let mut data = format!("fd={fd},rootmode=40000,user_id={uid},group_id={gid},default_permissions");
    if options.allow_other || options.allow_root {
        data.push_str(",allow_other");
    }
    let mut flags = MountFlags::NODEV | MountFlags::NOSUID | MountFlags::NOATIME;
    flags.set(MountFlags::RDONLY, read_only);
    flags.set(MountFlags::NOEXEC, options.noexec);
    flags.set(MountFlags::from_bits_retain(NOSYMFOLLOW), options.no_symlinks);
    let data = CString::new(data).map_err(|e| Error::io("mount options", e.into()))?;
    match rustix::mount::mount(source, target, FSTYPE, flags, data.as_c_str()) {
        Ok(()) => Ok(Some(connection)),
        Err(Errno::PERM) => Ok(None),
        Err(e) => Err(Error::io(format!("can't mount at {}", target.display()), e.into())),
    }
}

fn by_fusermount(target: &Path, source: &OsStr, options: &MountOptions, read_only: bool) -> Result<OwnedFd> {
    if options.no_symlinks {
        let text = "mount option nosymfollow is only for those who mount without fusermount3";
        return Err(Error::new(ErrorKind::Unsupported, text).with_help("leave it out, or mount as root"));
    }
    let mut list =
        format!("{},nodev,nosuid,noatime,default_permissions", if read_only { "ro" } else { "rw" });
    for (on, name) in
        [(options.allow_other || options.allow_root, ",allow_other"), (options.noexec, ",noexec")]
    {
        if on {
            list.push_str(name);
        }
    }
    fusermount::mount(source, target, &list)
}
