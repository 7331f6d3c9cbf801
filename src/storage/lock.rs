//! Locks on one byte of a file, which belong to the open file (OFD locks): they die with its last descriptor, and two
//! openings in one process exclude each other as two processes do.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;

use super::Lock;

/// Takes the lock on `byte`, or changes what is held; `false` where another open file is in the way, and what was held
/// stays. Never waits.
pub(super) fn try_lock(file: &File, byte: u64, lock: Lock) -> io::Result<bool> {
    let kind = match lock {
        Lock::Shared => libc::F_RDLCK,
        Lock::Exclusive => libc::F_WRLCK,
    };
    match set(file, byte, 1, kind) {
        Ok(()) => Ok(true),
        Err(e) if matches!(e.raw_os_error(), Some(libc::EAGAIN | libc::EACCES)) => Ok(false),
        Err(e) => Err(e),
    }
}

/// Gives the lock back.
pub(super) fn unlock(file: &File, byte: u64) -> io::Result<()> {
    set(file, byte, 1, libc::F_UNLCK)
}

/// Gives all locks of the open file back.
pub(super) fn unlock_all(file: &File) -> io::Result<()> {
    // A length of 0 reaches to the end of all files.
    set(file, 0, 0, libc::F_UNLCK)
}

fn set(file: &File, start: u64, len: libc::off_t, kind: libc::c_int) -> io::Result<()> {
    let start = libc::off_t::try_from(start).map_err(io::Error::other)?;
    // SAFETY: all-zero bytes are a valid flock; l_pid has to be 0 for OFD locks.
    let mut range: libc::flock = unsafe { std::mem::zeroed() };
    range.l_type = libc::c_short::try_from(kind).map_err(io::Error::other)?;
    range.l_whence = libc::c_short::try_from(libc::SEEK_SET).map_err(io::Error::other)?;
    range.l_start = start;
    range.l_len = len;
    // SAFETY: the descriptor is open as long as `file` is borrowed, and `range` outlives the call.
    match unsafe { libc::fcntl(file.as_raw_fd(), libc::F_OFD_SETLK, &raw const range) } {
        -1 => Err(io::Error::last_os_error()),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::storage::own_process;

    fn open(dir: &Path) -> File {
        File::options().read(true).write(true).create(true).truncate(false).open(dir.join("f")).unwrap()
    }

    #[test]
    fn two_openings_exclude_each_other_and_closing_frees() {
        // A child that another test is about to start would keep the file open for a moment.
        if !own_process::is_here("storage::lock::tests::two_openings_exclude_each_other_and_closing_frees") {
            return;
        }
        let dir = tempfile::tempdir().unwrap();
        let (a, b) = (open(dir.path()), open(dir.path()));
        assert!(try_lock(&a, 1 << 62, Lock::Exclusive).unwrap());
        assert!(!try_lock(&b, 1 << 62, Lock::Exclusive).unwrap());
        assert!(try_lock(&b, 7, Lock::Exclusive).unwrap(), "another byte is another lock");
        unlock(&a, 1 << 62).unwrap();
        assert!(try_lock(&b, 1 << 62, Lock::Exclusive).unwrap());
        drop(b);
        assert!(try_lock(&a, 1 << 62, Lock::Exclusive).unwrap());
    }

    #[test]
    fn many_share_and_a_refused_change_leaves_what_was_held() {
        let dir = tempfile::tempdir().unwrap();
        let (a, b, c) = (open(dir.path()), open(dir.path()), open(dir.path()));
        assert!(try_lock(&a, 5, Lock::Shared).unwrap());
        assert!(try_lock(&b, 5, Lock::Shared).unwrap());
        assert!(!try_lock(&a, 5, Lock::Exclusive).unwrap(), "another shares it");
        unlock(&b, 5).unwrap();
        assert!(!try_lock(&c, 5, Lock::Exclusive).unwrap(), "what was held stays");
        assert!(try_lock(&c, 5, Lock::Shared).unwrap(), "and is shared still");
        unlock(&c, 5).unwrap();
        assert!(try_lock(&a, 5, Lock::Exclusive).unwrap());
        assert!(!try_lock(&b, 5, Lock::Shared).unwrap());
        assert!(try_lock(&a, 5, Lock::Shared).unwrap(), "exclusive becomes shared");
        assert!(try_lock(&b, 5, Lock::Shared).unwrap());
    }

    #[test]
    fn all_locks_go_at_once() {
        let dir = tempfile::tempdir().unwrap();
        let (a, b) = (open(dir.path()), open(dir.path()));
        let bytes = [0, 9, 1 << 62, i64::MAX.cast_unsigned() - 1];
        assert!(bytes.iter().all(|&byte| try_lock(&a, byte, Lock::Exclusive).unwrap()));
        unlock_all(&a).unwrap();
        assert!(bytes.iter().all(|&byte| try_lock(&b, byte, Lock::Exclusive).unwrap()));
    }

    #[test]
    fn what_the_system_says_is_passed_up() {
        let dir = tempfile::tempdir().unwrap();
        File::create(dir.path().join("f")).unwrap();
        let readable = File::open(dir.path().join("f")).unwrap();
        let e = try_lock(&readable, 5, Lock::Exclusive).unwrap_err();
        assert_eq!(e.raw_os_error(), Some(libc::EBADF));
    }
}
