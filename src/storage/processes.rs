//! Who has a file open, or holds a lock on it, as /proc tells. Every descriptor of every process is looked at: for
//! messages only.

use std::ffi::OsStr;
use std::fmt;
use std::fs::{self, File};
use std::os::fd::{AsFd, AsRawFd};
use std::path::Path;

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

/// Processes with a descriptor of `file`, other than this one, that counts. Those that we may not look into are left
/// out.
fn processes_with(file: &File, counts: impl Fn(&Path, &OsStr) -> bool) -> Vec<Process> {
    let (Some(wanted), Ok(listing)) = (identity(file, Path::new("")), fs::read_dir("/proc")) else {
        return Vec::new();
    };
    let own = fs::read_link("/proc/self").unwrap_or_default();
    let own_fd = file.as_raw_fd().to_string();
    let mut found = Vec::new();
    for entry in listing.flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else { continue };
        let process = entry.path();
        let Ok(fds) = fs::read_dir(process.join("fd")) else { continue };
        let is_own = own.as_os_str() == entry.file_name();
        let has_it = fds.flatten().map(|fd| fd.file_name()).any(|fd| {
            !(is_own && fd.to_str() == Some(own_fd.as_str()))
                && identity(CWD, &process.join("fd").join(&fd)) == Some(wanted)
                && counts(&process, &fd)
        });
        if has_it {
            found.push(Process { pid, name: name(&process) });
        }
    }
    found
}

/// Device and inode. Does not ask a server, which may be gone, or be this very process.
fn identity(dir: impl AsFd, path: &Path) -> Option<(u32, u32, u64)> {
    let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC;
    let stat = statx(dir, path, flags, StatxFlags::INO).ok()?;
    Some((stat.stx_dev_major, stat.stx_dev_minor, stat.stx_ino))
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
