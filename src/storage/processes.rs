//! Who has a file open, holds a lock on it, or uses or serves a file system, as /proc tells. Every descriptor of every
//! process is looked at: for messages only.

use std::ffi::OsStr;
use std::fmt;
use std::fs::{self, File};
use std::os::fd::{AsFd, AsRawFd};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, StatxFlags, statx};

/// A process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Process {
    /// Process id.
    pub pid: u32,
    /// Name of its program.
    pub name: String,
}

impl fmt::Display for Process {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "process {} ({})", self.pid, self.name)
    }
}

/// Processes that have `file` open otherwise than by this descriptor.
pub(super) fn openers(file: &File) -> Vec<Process> {
    processes_with(file, |_, _| true)
}

/// Processes with a lock on that byte of `file` that was not taken by this descriptor.
pub(super) fn lock_holders(file: &File, byte: u64) -> Vec<Process> {
    // What is open under a number, and the locks on it, are named alike.
    processes_with(file, |process, fd| {
        let info = fs::read_to_string(process.join("fdinfo").join(fd));
        info.is_ok_and(|info| info.lines().any(|line| is_lock_on(line, byte)))
    })
}

/// Processes that use a file system, by the major and minor number of its device: by an open or a mapped file, their
/// working folder, root folder, or program. Of those that this user may not look into, nothing is known. Slow: for messages.
pub fn users(device: (u32, u32)) -> Vec<Process> {
    processes(|process| {
        let is_there = |path: &Path| device_of(path) == Some(device);
        ["cwd", "root", "exe"].iter().any(|name| is_there(&process.join(name)))
            || entries(&process.join("fd")).any(|fd| is_there(&fd))
            || maps(process).lines().any(|line| is_map_of(line, device))
    })
}

/// Processes that serve a FUSE connection, by the minor number of its mounts' device. Only newer kernels tell. Slow: for
/// messages.
pub fn servers(connection: u32) -> Vec<Process> {
    let line = format!("fuse_connection:\t{connection}");
    processes(|process| {
        entries(&process.join("fdinfo"))
            .filter_map(|info| fs::read_to_string(info).ok())
            .any(|info| info.lines().any(|told| told == line))
    })
}

/// Processes with a descriptor of `file`, other than this one, that counts.
fn processes_with(file: &File, counts: impl Fn(&Path, &OsStr) -> bool) -> Vec<Process> {
    let Some(wanted) = identity(file, Path::new("")) else { return Vec::new() };
    let own = Path::new("/proc").join(fs::read_link("/proc/self").unwrap_or_default());
    let own_fd = own.join("fd").join(file.as_raw_fd().to_string());
    processes(|process| {
        entries(&process.join("fd")).any(|fd| {
            fd != own_fd
                && identity(CWD, &fd) == Some(wanted)
                && fd.file_name().is_some_and(|name| counts(process, name))
        })
    })
}

/// Processes whose folder in /proc counts. Of those that we may not look into, nothing is known.
fn processes(counts: impl Fn(&Path) -> bool) -> Vec<Process> {
    let found = entries(Path::new("/proc")).filter_map(|process| {
        let pid = process.file_name()?.to_str()?.parse().ok()?;
        counts(&process).then(|| Process { pid, name: name(&process) })
    });
    found.collect()
}

/// What is in a folder, if it can be listed.
fn entries(folder: &Path) -> impl Iterator<Item = PathBuf> {
    fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path())
}

/// Device and inode. Does not ask a server, which may be gone, or be this very process.
fn identity(dir: impl AsFd, path: &Path) -> Option<(u32, u32, u64)> {
    let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC;
    let stat = statx(dir, path, flags, StatxFlags::INO).ok()?;
    Some((stat.stx_dev_major, stat.stx_dev_minor, stat.stx_ino))
}

/// Device number. Asked for nothing else, a server is not asked, nor does it matter whose mount it is.
fn device_of(path: &Path) -> Option<(u32, u32)> {
    let stat = statx(CWD, path, AtFlags::STATX_DONT_SYNC, StatxFlags::empty()).ok()?;
    Some((stat.stx_dev_major, stat.stx_dev_minor))
}

/// The mappings of a process.
fn maps(process: &Path) -> String {
    let bytes = fs::read(process.join("maps")).unwrap_or_default();
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Whether a line of maps tells of that device, as
/// `7f0c…-7f0d… r--s 00000000 fd:00 12345   /path`.
fn is_map_of(line: &str, device: (u32, u32)) -> bool {
    let number = |hex| u32::from_str_radix(hex, 16).ok();
    let told = line.split_ascii_whitespace().nth(3).and_then(|told| told.split_once(':'));
    told.is_some_and(|(major, minor)| (number(major), number(minor)) == (Some(device.0), Some(device.1)))
}

/// Whoever runs a program chooses its name: what would steer a terminal is left out.
fn name(process: &Path) -> String {
    let name = fs::read(process.join("comm")).unwrap_or_default();
    String::from_utf8_lossy(&name).trim_end().replace(char::is_control, "?")
}

/// Whether a line of fdinfo tells of a lock on that byte, as
/// `lock:\t1: OFDLCK  ADVISORY  WRITE -1 fd:00:12345 4096 EOF`.
fn is_lock_on(line: &str, byte: u64) -> bool {
    let Some(lock) = line.strip_prefix("lock:") else { return false };
    let mut words = lock.split_ascii_whitespace().skip(1);
    let kind = words.next();
    let (first, last) = (words.nth(4), words.next());
    let covers = first.and_then(|first| first.parse().ok()).is_some_and(|first: u64| first <= byte)
        && last.is_some_and(|last| last == "EOF" || last.parse().is_ok_and(|last: u64| byte <= last));
    // A process's own locks (POSIX) are in the way of those of open files as well.
    matches!(kind, Some("OFDLCK" | "POSIX")) && covers
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader};
    use std::process::{Command, Stdio};

    use super::*;
    use crate::storage::own_process::{self, Child};
    use crate::storage::{Access, Directory, Disk, Lock};

    #[test]
    fn lines_of_fdinfo() {
        let line = "lock:\t1: OFDLCK  ADVISORY  WRITE -1 fd:00:12345 100 200";
        assert!([100, 150, 200].iter().all(|&byte| is_lock_on(line, byte)));
        assert!(![99, 201].iter().any(|&byte| is_lock_on(line, byte)));
        assert!(is_lock_on("lock:\t1: POSIX  ADVISORY  READ 77 fd:00:12345 0 EOF", 1 << 62));
        assert!(!is_lock_on("lock:\t1: LEASE  ACTIVE    WRITE 77 fd:00:12345 0 EOF", 5));
        assert!(!is_lock_on("lock:\t1: FLOCK  ADVISORY  WRITE 77 fd:00:12345 0 EOF", 5));
        assert!(!is_lock_on("pos:\t0", 0) && !is_lock_on("lock:\t1: OFDLCK", 0));
    }

    #[test]
    fn lines_of_maps() {
        let line = "7f0c1000-7f0d2000 r--s 00000000 00:2a 12345                      /mnt/a 00:2b";
        assert!(is_map_of(line, (0, 42)));
        assert!(!is_map_of(line, (0, 43)) && !is_map_of(line, (42, 0)));
        assert!(!is_map_of("", (0, 42)) && !is_map_of("7f0c1000-7f0d2000 r--s 00000000 x:2a 12345", (0, 42)));
    }

    #[test]
    fn those_that_use_a_file_system_are_named() {
        // Of the one that programs lie on, this program is.
        let own = device_of(Path::new("/proc/self/exe")).unwrap();
        let name = name(Path::new("/proc/self"));
        assert!(users(own).contains(&Process { pid: std::process::id(), name }));
        assert_eq!(users((u32::MAX, 0)), []);
        assert_eq!(servers(u32::MAX), []);
    }

    #[test]
    fn those_that_hold_a_lock_are_named() {
        if !own_process::is_here("storage::processes::tests::those_that_hold_a_lock_are_named") {
            return;
        }
        let dir = tempfile::tempdir().unwrap();
        let disk = Disk::open(dir.path()).unwrap();
        let file = disk.create("f").unwrap();
        let name = name(Path::new("/proc/self"));
        assert!(file.lock(1 << 62, Lock::Shared).unwrap());
        assert_eq!(file.lock_holders(1 << 62), [], "one is in nobody's way oneself");
        let second = disk.open("f", Access::Read).unwrap();
        let own = Process { pid: std::process::id(), name };
        assert_eq!(second.lock_holders(1 << 62), std::slice::from_ref(&own));
        assert_eq!(second.lock_holders(7), []);
        let child = Child::new(|| {
            let third = Box::leak(Box::new(disk.open("f", Access::Read).unwrap()));
            third.lock(1 << 62, Lock::Shared).unwrap()
        });
        let pids = |found: Vec<Process>| found.iter().map(|process| process.pid).collect::<Vec<_>>();
        assert_eq!(pids(file.lock_holders(1 << 62)), [child.pid()]);
        assert!(second.lock(1 << 62, Lock::Shared).unwrap());
        let found = pids(file.lock_holders(1 << 62));
        assert!(found.len() == 2 && found.contains(&child.pid()) && found.contains(&own.pid), "{found:?}");
    }

    #[test]
    fn those_that_have_a_file_open_are_named() {
        if !own_process::is_here("storage::processes::tests::those_that_have_a_file_open_are_named") {
            return;
        }
        let dir = tempfile::tempdir().unwrap();
        let disk = Disk::open(dir.path()).unwrap();
        let file = disk.create("f").unwrap();
        assert_eq!(file.openers(), []);
        fs::hard_link(dir.path().join("f"), dir.path().join("g")).unwrap();
        let mut shell = Command::new("/bin/sh")
            .args(["-c", r#"exec 3<"$0"; echo opened; read line"#])
            .arg(dir.path().join("g"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        BufReader::new(shell.stdout.take().unwrap()).read_line(&mut String::new()).unwrap();
        assert_eq!(file.openers(), [Process { pid: shell.id(), name: "sh".to_owned() }]);
        assert_eq!(file.openers()[0].to_string(), format!("process {} (sh)", shell.id()));
        drop(shell.stdin.take());
        shell.wait().unwrap();
        let second = disk.open("f", Access::Read).unwrap();
        assert_eq!(file.openers()[0].pid, std::process::id());
        drop(second);
        assert_eq!(file.openers(), []);
    }
}
