//! Exclusive locks on one byte of a file, which belong to the open file (OFD locks): they die with its last
//! descriptor, and two openings in one process exclude each other as two processes do.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;

use super::Lock;

/// Takes the lock on `byte`; `false` where another open file holds it. Never waits.
pub(super) fn try_lock(file: &File, byte: u64, lock: Lock) -> io::Result<bool> {
    let kind = match lock {
        Lock::Shared => libc::F_RDLCK,
        Lock::Exclusive => libc::F_WRLCK,
    };
    match set(file, byte, kind) {
        Ok(()) => Ok(true),
        Err(e) if matches!(e.raw_os_error(), Some(libc::EAGAIN | libc::EACCES)) => Ok(false),
        Err(e) => Err(e),
    }
}

/// Gives the lock back.
pub(super) fn unlock(file: &File, byte: u64) -> io::Result<()> {
    set(file, byte, libc::F_UNLCK)
}

fn set(file: &File, byte: u64, kind: libc::c_int) -> io::Result<()> {
    let start = libc::off_t::try_from(byte).map_err(io::Error::other)?;
    // SAFETY: all-zero bytes are a valid flock; l_pid has to be 0 for OFD locks.
    let mut range: libc::flock = unsafe { std::mem::zeroed() };
    range.l_type = libc::c_short::try_from(kind).map_err(io::Error::other)?;
    range.l_whence = libc::c_short::try_from(libc::SEEK_SET).map_err(io::Error::other)?;
    range.l_start = start;
    range.l_len = 1;
    // SAFETY: the descriptor is open as long as `file` is borrowed, and `range` outlives the call.
    match unsafe { libc::fcntl(file.as_raw_fd(), libc::F_OFD_SETLK, &raw const range) } {
        -1 => Err(io::Error::last_os_error()),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_openings_exclude_each_other_and_closing_frees() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("f");
        let a = File::create(&path).unwrap();
        let b = File::create(&path).unwrap();
        assert!(try_lock(&a, 1 << 62, Lock::Exclusive).unwrap());
        assert!(!try_lock(&b, 1 << 62, Lock::Exclusive).unwrap());
        assert!(try_lock(&b, 7, Lock::Exclusive).unwrap(), "another byte is another lock");
        unlock(&a, 1 << 62).unwrap();
        assert!(try_lock(&b, 1 << 62, Lock::Exclusive).unwrap());
        drop(b);
        assert!(try_lock(&a, 1 << 62, Lock::Exclusive).unwrap());
    }
}
