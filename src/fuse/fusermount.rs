//! fusermount3, which is installed to mount and unmount for users other than root.

use std::ffi::{OsStr, OsString};
use std::io;
use std::io::IoSliceMut;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use rustix::io::Errno;
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags};

use super::mountinfo::mounts;
use super::mountpoint::is_dead;
use crate::error::{Error, ErrorKind, Result};

/// Where distributions put it.
const PLACES: [&str; 3] = ["/usr/bin", "/bin", "/usr/local/bin"];

/// What it says, and what to do about that.
const HELP: [(&str, &str); 10] = [
    ("failed to chdir", "mount on a folder that you may enter"),
    ("user_allow_other", "ask root for the line user_allow_other in /etc/fuse.conf"),
    ("device not found", "ask root to load it with `modprobe fuse`, or to pass /dev/fuse into the container"),
    ("failed to open /dev/fuse", "ask root to open it to users (chmod 666 /dev/fuse), or mount as root"),
    ("not owned by user", "mount on a folder of your own"),
    ("no write access", "mount on a folder that you may write to"),
    ("too many FUSE filesystems", "unmount one, or ask root for a larger mount_max in /etc/fuse.conf"),
    ("is forbidden", "mount on a folder of a usual file system"),
    (
        "mount failed: Operation not permitted",
        "fusermount3 has to be setuid root (chmod u+s), and to be started by a process that may gain privileges",
    ),
    ("not found in", "only who has mounted it and root can unmount it"),
];

/// Mounts `source` at `target`; returns the connection to the kernel, which it sends over a socket. `options` begin with
/// `ro` or `rw`.
pub(super) fn mount(source: &OsStr, target: &Path, options: &str) -> Result<OwnedFd> {
    let mut list = OsString::from(options);
    list.push(",subtype=zrfs,fsname=");
    list.push(escape_commas(source));
    let io = |e: io::Error| Error::io("can't talk to fusermount3", e);
    let (ours, theirs) = UnixStream::pair().map_err(io)?;
    // Its end is its standard input: descriptor 0 reaches it whatever else is closed on exec.
    let child = start(|command| {
        command.arg("-o").arg(&list).arg("--").arg(target).env("_FUSE_COMMFD", "0");
        let theirs = theirs.try_clone()?;
        command.stdin(OwnedFd::from(theirs)).stdout(Stdio::null()).stderr(Stdio::piped());
        command.spawn()
    })?;
    drop(theirs);
    let received = receive_descriptor(&ours);
    drop(ours);
    let output = child.wait_with_output().map_err(io)?;
    match received.map_err(io)? {
        Some(connection) => Ok(connection),
        None => Err(refused(&format!("can't mount at {}", target.display()), &output)),
    }
}

/// Takes the mount at `target` away; `lazy` detaches it, which ends it when its last file closes.
///
/// # Errors
/// [`ErrorKind::Busy`] where it is in use.
pub(super) fn unmount(target: &Path, lazy: bool) -> Result<()> {
    let output = start(|command| {
        command.arg("-u");
        if lazy {
            command.arg("-z");
        }
        command.arg("--").arg(target).stdin(Stdio::null()).output()
    })?;
    if output.status.success() {
        return Ok(());
    }
    Err(refused(&format!("can't unmount {}", target.display()), &output))
}

fn refused(what: &str, output: &Output) -> Error {
    let said = String::from_utf8_lossy(&output.stderr);
    // It begins with its name, as it was called.
    let said = said.trim().rsplit_once("fusermount3: ").map_or(said.trim(), |(_, said)| said);
    if said.ends_with("resource busy") {
        return Error::new(ErrorKind::Busy, format!("{what}: it is in use"));
    }
    let said = match said {
        "" => format!("fusermount3 ended with {}", output.status),
        said => format!("fusermount3 says: {said}"),
    };
    let error = Error::new(ErrorKind::Io, format!("{what}: {said}"));
    match HELP.iter().find(|(words, _)| said.contains(words)) {
        Some((_, help)) => error.with_help(*help),
        None => error,
    }
}

/// Starts it.
fn start<T>(start: impl Fn(&mut Command) -> io::Result<T>) -> Result<T> {
    let mut closed = None;
    for program in programs(std::env::var_os("PATH").unwrap_or_default()) {
        match start(&mut Command::new(&program)) {
            Err(e) if matches!(e.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {}
            // Only members of a group may run it on some systems.
            Err(e) if e.kind() == io::ErrorKind::PermissionDenied => closed = closed.or(Some((program, e))),
            // A folder of PATH may be in a dead mount.
            Err(e) if is_dead(&e) => {}
            done => return done.map_err(|e| Error::io(format!("can't run {}", program.display()), e)),
        }
    }
    Err(match closed {
        Some((program, e)) => Error::io(format!("can't run {}", program.display()), e)
            .with_help("users other than root need it to mount: ask root to let you run it"),
        None => Error::new(
            ErrorKind::NotFound,
            "fusermount3 was not found: users other than root need it to mount",
        )
        .with_help("install the package fuse3"),
    })
}

/// Where it may be. What PATH says comes last, and its folders in mounts of ours do not count: a mount would ask itself,
/// or one whose daemon is stopped.
fn programs(path: OsString) -> Vec<PathBuf> {
    let ours: Vec<_> = mounts().unwrap_or_default().into_iter().filter(|mount| mount.is_ours()).collect();
    let is_ours = |dir: &Path| ours.iter().any(|mount| dir.starts_with(&mount.target));
    let more = std::env::split_paths(&path).filter(|dir| dir.is_absolute() && !is_ours(dir));
    PLACES.iter().map(PathBuf::from).chain(more).map(|dir| dir.join("fusermount3")).collect()
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

/// It takes a backslash before what would end or escape the source's name.
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
    use std::os::unix::process::ExitStatusExt;
    use std::process::ExitStatus;

    use super::*;

    #[test]
    fn commas_and_backslashes_are_escaped() {
        assert_eq!(escape_commas(OsStr::new("/a,b\\c")), "/a\\,b\\\\c");
    }

    #[test]
    fn fixed_places_come_before_path_whose_relative_folders_do_not_count() {
        let found = programs("/opt/bin::bin:/nix/bin".into());
        let expected = ["/usr/bin", "/bin", "/usr/local/bin", "/opt/bin", "/nix/bin"];
        assert_eq!(found, expected.map(|dir| Path::new(dir).join("fusermount3")));
    }

    #[test]
    fn what_it_says_is_explained() {
        let error = |said: &str| {
            let (status, stdout) = (ExitStatus::from_raw(1 << 8), Vec::new());
            refused("can't unmount /m", &Output { status, stdout, stderr: said.into() })
        };
        let busy = error("fusermount3: failed to unmount /m: Device or resource busy\n");
        assert_eq!(busy.kind(), ErrorKind::Busy);
        assert_eq!(busy.to_string(), "can't unmount /m: it is in use");
        assert_eq!(error("").to_string(), "can't unmount /m: fusermount3 ended with exit status: 1");
        let closed = error("/usr/bin/fusermount3: failed to open /dev/fuse: Permission denied\n").to_string();
        assert!(
            closed.contains("says: failed to open") && closed.contains("; ask root to open it"),
            "{closed}"
        );
        assert!(!error("fusermount3: something new\n").to_string().contains(';'));
    }
}
