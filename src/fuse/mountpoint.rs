//! Attaching to and detaching from the tree: mount(2) for root, fusermount3 for others, /proc/self/mountinfo to see
//! what is there.

use std::ffi::{CString, OsStr, OsString};
use std::io;
use std::io::IoSliceMut;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::mount::{MountFlags, UnmountFlags};
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags};

use super::{FSTYPE, MountOptions};
use crate::error::{Error, ErrorKind, Result};

/// Inode number of a mount's root.
const ROOT: u64 = 1;

/// One line of /proc/self/mountinfo.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MountEntry {
    /// Device number, `major:minor`: one for each mounted file system.
    pub device: String,
    /// Where it is mounted.
    pub target: PathBuf,
    /// File system type, `fuse.zrfs` for ours.
    pub fstype: String,
    /// What is mounted: the store's path for ours.
    pub source: OsString,
}

/// What is mounted, as this process sees it, the topmost last.
///
/// # Errors
/// Where /proc is not there.
pub fn mounts() -> Result<Vec<MountEntry>> {
    let path = "/proc/self/mountinfo";
    let bytes = std::fs::read(path).map_err(|e| Error::io(format!("can't read {path}"), e))?;
    Ok(bytes.split(|&b| b == b'\n').filter_map(parse_mountinfo).collect())
}

/// `36 35 98:0 /root /target options optional… - fstype source super`
fn parse_mountinfo(line: &[u8]) -> Option<MountEntry> {
    let mut fields = line.split(|&b| b == b' ');
    let device = fields.nth(2)?;
    let target = fields.nth(1)?;
    let mut behind_dash = fields.skip_while(|&field| field != b"-").skip(1);
    Some(MountEntry {
        device: String::from_utf8_lossy(device).into_owned(),
        target: PathBuf::from(OsString::from_vec(unescape(target))),
        fstype: String::from_utf8_lossy(behind_dash.next()?).into_owned(),
        source: OsString::from_vec(unescape(behind_dash.next()?)),
    })
}

/// Undoes the kernel's `\040` for a space.
fn unescape(field: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((&first, behind)) = rest.split_first() {
        let octal = behind
            .get(..3)
            .filter(|_| first == b'\\')
            .and_then(|digits| u8::from_str_radix(std::str::from_utf8(digits).ok()?, 8).ok());
        out.push(octal.unwrap_or(first));
        rest = if octal.is_some() { behind.get(3..).unwrap_or_default() } else { behind };
    }
    out
}

/// A folder to mount on, found fit for it.
#[derive(Clone, Debug)]
pub struct Mountpoint {
    path: PathBuf,
}

impl Mountpoint {
    /// Looks at `path`. A mount that a killed daemon left dead there is taken away first.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`]; [`ErrorKind::Unsupported`] where it is no folder; [`ErrorKind::Exists`] where `source`
    /// is mounted there and alive.
    pub fn prepare(path: &Path, source: &Path) -> Result<Mountpoint> {
        // More than one dead mount can lie on top of another.
        for _ in 0..16 {
            // The kernel may answer a stat of a dead mount from memory; statfs always asks the daemon.
            let looked = rustix::fs::statfs(path).map_err(io::Error::from);
            match looked.and_then(|_| std::fs::metadata(path)) {
                Ok(meta) if !meta.is_dir() => {
                    let text = format!("mount point {} is not a folder", path.display());
                    return Err(Error::new(ErrorKind::Unsupported, text));
                }
                Ok(_) => {
                    let path = path
                        .canonicalize()
                        .map_err(|e| Error::io(format!("mount point {}", path.display()), e))?;
                    let top = topmost(&path)?;
                    if top
                        .as_ref()
                        .is_some_and(|top| top.fstype == FSTYPE && top.source == source.as_os_str())
                    {
                        let text = format!("{} is mounted at {} already", source.display(), path.display());
                        return Err(Error::new(ErrorKind::Exists, text)
                            .with_help("to mount it with other options, `zrfs umount` it first"));
                    }
                    if let Some(top) = top.filter(|top| top.fstype == FSTYPE) {
                        log::warn!(
                            "the mount of {} at {} is covered from now on",
                            top.source.display(),
                            path.display()
                        );
                    }
                    return Ok(Mountpoint { path });
                }
                Err(e) if is_dead(&e) => {
                    let path = absolute(path)?;
                    if topmost(&path)?.is_none_or(|top| top.fstype != FSTYPE) {
                        let text =
                            format!("mount point {} is a dead mount of something else", path.display());
                        return Err(Error::io(text, e).with_help("unmount it first"));
                    }
                    detach(&path, UnmountFlags::DETACH)?;
                    log::info!("took over {}: the daemon of the mount there was gone", path.display());
                }
                Err(e) => {
                    let error = Error::io(format!("mount point {}", path.display()), e);
                    let help = format!("make it with: mkdir -p {}", path.display());
                    return Err(if error.kind() == ErrorKind::NotFound {
                        error.with_help(help)
                    } else {
                        error
                    });
                }
            }
        }
        Err(Error::new(ErrorKind::Busy, format!("{} stays covered by dead mounts", path.display())))
    }

    /// The folder's absolute path, without symbolic links.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Mounts; returns the connection to the kernel and the device number of the mount.
    pub(super) fn attach(
        &self,
        source: &OsStr,
        options: &MountOptions,
        read_only: bool,
    ) -> Result<(OwnedFd, String)> {
        let direct = if rustix::process::geteuid().is_root() {
            self.attach_by_mount(source, options, read_only)?
        } else {
            None
        };
        let connection = match direct {
            Some(connection) => connection,
            None => self.attach_by_fusermount(source, options, read_only)?,
        };
        let device = topmost(&self.path)?.map(|top| top.device).ok_or_else(|| {
            Error::new(ErrorKind::Io, format!("the mount at {} is gone already", self.path.display()))
        })?;
        Ok((connection, device))
    }

    /// mount(2); `None` where this process may not (in a container, say).
    fn attach_by_mount(
        &self,
        source: &OsStr,
        options: &MountOptions,
        read_only: bool,
    ) -> Result<Option<OwnedFd>> {
        let connection = rustix::fs::open("/dev/fuse", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())
            .map_err(|e| {
                Error::io("can't open /dev/fuse", e.into())
                    .with_help("load it with `modprobe fuse`, or pass the device into the container")
            })?;
        let (uid, gid) = (rustix::process::getuid().as_raw(), rustix::process::getgid().as_raw());
        let fd = connection.as_raw_fd();
        let mut data = format!("fd={fd},rootmode=40000,user_id={uid},group_id={gid},default_permissions");
        if options.allow_other || options.allow_root {
            data.push_str(",allow_other");
        }
        let mut flags = MountFlags::NODEV | MountFlags::NOSUID | MountFlags::NOATIME;
        flags.set(MountFlags::RDONLY, read_only);
        flags.set(MountFlags::NOEXEC, options.noexec);
        let data = CString::new(data).map_err(|e| Error::io("mount options", e.into()))?;
        match rustix::mount::mount(source, &self.path, FSTYPE, flags, data.as_c_str()) {
            Ok(()) => Ok(Some(connection)),
            Err(Errno::PERM) => Ok(None),
            Err(e) => Err(Error::io(format!("can't mount at {}", self.path.display()), e.into())),
        }
    }

    /// fusermount3, which is installed to mount for users: it sends the connection over a socket.
    fn attach_by_fusermount(
        &self,
        source: &OsStr,
        options: &MountOptions,
        read_only: bool,
    ) -> Result<OwnedFd> {
        let mut list = OsString::from(if read_only { "ro" } else { "rw" });
        list.push(",nodev,nosuid,noatime,default_permissions,subtype=zrfs,fsname=");
        list.push(escape_commas(source));
        for (on, name) in
            [(options.allow_other || options.allow_root, ",allow_other"), (options.noexec, ",noexec")]
        {
            if on {
                list.push(name);
            }
        }
        let io = |e: io::Error| Error::io("can't talk to fusermount3", e);
        let (ours, theirs) = UnixStream::pair().map_err(io)?;
        // Its end is its standard input: descriptor 0 reaches it whatever else is closed on exec.
        let child = fusermount(|command| {
            command.arg("-o").arg(&list).arg("--").arg(&self.path).env("_FUSE_COMMFD", "0");
            let theirs = theirs.try_clone()?;
            command.stdin(OwnedFd::from(theirs)).stdout(Stdio::null()).stderr(Stdio::piped());
            command.spawn()
        })?;
        drop(theirs);
        let received = receive_descriptor(&ours);
        drop(ours);
        let output = child.wait_with_output().map_err(io)?;
        match received {
            Ok(Some(connection)) => Ok(connection),
            Ok(None) => {
                let said = String::from_utf8_lossy(&output.stderr);
                let said = said.trim().trim_start_matches("fusermount3: ");
                let error =
                    Error::new(ErrorKind::Io, format!("can't mount at {}: {said}", self.path.display()));
                Err(if said.contains("user_allow_other") {
                    error.with_help("ask root for the line user_allow_other in /etc/fuse.conf")
                } else if said.contains("/dev/fuse") {
                    error.with_help("ask root to open it to users (chmod 666 /dev/fuse), or mount as root")
                } else {
                    error
                })
            }
            Err(e) => Err(io(e)),
        }
    }
}

/// Takes a mount away. The kernel refuses a busy one unless it is detached, which ends it when its last file closes.
pub(super) fn detach(target: &Path, how: UnmountFlags) -> Result<()> {
    let failed = |e: io::Error| {
        let busy = e.raw_os_error() == Some(Errno::BUSY.raw_os_error());
        if busy {
            let text = format!("can't unmount {}: {e}", target.display());
            Error::new(ErrorKind::Busy, text)
                .with_help("a program has a file or its working folder there; close it and try again")
        } else {
            Error::io(format!("can't unmount {}", target.display()), e)
        }
    };
    match rustix::mount::unmount(target, how | UnmountFlags::NOFOLLOW) {
        Ok(()) => Ok(()),
        Err(Errno::PERM) => {
            let output = fusermount(|command| {
                command.arg("-u");
                if how.contains(UnmountFlags::DETACH) {
                    command.arg("-z");
                }
                command.arg("--").arg(target).stdin(Stdio::null()).output()
            })?;
            if output.status.success() {
                return Ok(());
            }
            let said = String::from_utf8_lossy(&output.stderr);
            let said = said.trim().trim_start_matches("fusermount3: ");
            let text = format!("can't unmount {}: {said}", target.display());
            Err(if said.contains("busy") {
                Error::new(ErrorKind::Busy, text)
                    .with_help("a program has a file or its working folder there; close it and try again")
            } else {
                Error::new(ErrorKind::Io, text)
            })
        }
        Err(e) => Err(failed(e.into())),
    }
}

/// What is mounted last at exactly `path`.
pub(super) fn topmost(path: &Path) -> Result<Option<MountEntry>> {
    Ok(mounts()?.into_iter().rfind(|entry| entry.target == path))
}

/// The store behind the zrfs mount whose root is `path`; `None` where it is something else, or is not there.
///
/// # Errors
/// One that says what to do where the mount's daemon is gone.
pub fn mounted_at(path: &Path) -> Result<Option<PathBuf>> {
    let target = match path.canonicalize() {
        Ok(target) => target,
        Err(e) if is_dead(&e) => absolute(path)?,
        Err(_) => return Ok(None),
    };
    // Without /proc no mount can be told from a folder, and stores are used all the same.
    let top = topmost(&target).unwrap_or_default();
    let Some(entry) = top.filter(|entry| entry.fstype == FSTYPE) else { return Ok(None) };
    // The kernel may answer a stat of a dead mount from memory; statfs always asks the daemon.
    let looked = rustix::fs::statfs(&target).map_err(io::Error::from);
    match looked.and_then(|_| std::fs::metadata(&target)) {
        // A folder of the mount that is bound elsewhere is no mount of the store.
        Ok(meta) if meta.ino() == ROOT => Ok(Some(entry.source.into())),
        Ok(_) => Ok(None),
        Err(e) if is_dead(&e) => {
            let text = format!("the mount at {} is dead: its daemon is gone", path.display());
            let help = format!("take it away with: zrfs umount {}", path.display());
            Err(Error::io(text, e).with_help(help))
        }
        Err(e) => Err(Error::io(format!("mount point {}", path.display()), e)),
    }
}

/// `path` made absolute without asking the mount point itself, which may be dead.
pub(super) fn absolute(path: &Path) -> Result<PathBuf> {
    let failed = |e| Error::io(format!("mount point {}", path.display()), e);
    let absolute = std::path::absolute(path).map_err(failed)?;
    match (absolute.parent(), absolute.file_name()) {
        (Some(parent), Some(name)) => Ok(parent.canonicalize().map_err(failed)?.join(name)),
        _ => Ok(absolute),
    }
}

/// Whether an error means a mount whose daemon is gone.
pub(super) fn is_dead(e: &io::Error) -> bool {
    e.raw_os_error()
        .is_some_and(|n| [Errno::NOTCONN, Errno::CONNABORTED].map(Errno::raw_os_error).contains(&n))
}

/// Starts fusermount3, from the PATH or where distributions put it.
fn fusermount<T>(start: impl Fn(&mut Command) -> io::Result<T>) -> Result<T> {
    for program in ["fusermount3", "/usr/bin/fusermount3", "/bin/fusermount3", "/usr/local/bin/fusermount3"] {
        match start(&mut Command::new(program)) {
            // A folder of the PATH that is a dead mount ends the search there.
            Err(e) if e.kind() == io::ErrorKind::NotFound || is_dead(&e) => {}
            done => return done.map_err(|e| Error::io("can't run fusermount3", e)),
        }
    }
    Err(Error::new(ErrorKind::NotFound, "fusermount3 was not found: users other than root need it to mount")
        .with_help("install the package fuse3"))
}

/// The descriptor that fusermount3 sends; `None` where it closes without sending one.
fn receive_descriptor(socket: &UnixStream) -> io::Result<Option<OwnedFd>> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut byte = [0];
    let mut parts = [IoSliceMut::new(&mut byte)];
    loop {
        match rustix::net::recvmsg(socket, &mut parts, &mut control, RecvFlags::CMSG_CLOEXEC) {
            Ok(_) => break,
            Err(Errno::INTR) => {}
            Err(e) => return Err(e.into()),
        }
    }
    Ok(control.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut descriptors) => descriptors.next(),
        _ => None,
    }))
}

/// fusermount3 takes a backslash before what would end or escape the source's name.
fn escape_commas(source: &OsStr) -> OsString {
    let mut out = Vec::new();
    for &byte in source.as_bytes() {
        if matches!(byte, b',' | b'\\') {
            out.push(b'\\');
        }
        out.push(byte);
    }
    OsString::from_vec(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mountinfo_lines_with_odd_names() {
        let line = b"36 35 0:42 / /mnt/a\\040b\\134c\\011 ro,nosuid shared:7 master:2 - fuse.zrfs /s\\040t\xff ro,user_id=0";
        let entry = parse_mountinfo(line).unwrap();
        assert_eq!(entry.device, "0:42");
        assert_eq!(entry.target, Path::new("/mnt/a b\\c\t"));
        assert_eq!(entry.fstype, "fuse.zrfs");
        assert_eq!(entry.source.as_bytes(), b"/s t\xff");
        for line in [&b""[..], b"36 35", b"36 35 0:42 / /mnt ro"] {
            assert_eq!(parse_mountinfo(line), None);
        }
        assert_eq!(unescape(b"a\\04"), b"a\\04", "too short to be an escape");
    }

    #[test]
    fn commas_and_backslashes_reach_fusermount_escaped() {
        assert_eq!(escape_commas(OsStr::new("/a,b\\c")), "/a\\,b\\\\c");
    }
}
