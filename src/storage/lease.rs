//! Leases: who opens a leased file waits until the lease is given back.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;

use libc::c_int;

use super::Lease;

/// Which signal tells that somebody waits. The same on all of Linux; libc names it for musl only.
const F_SETSIG: c_int = 10;

/// Asks for a lease that every other opening of the file breaks. Never waits.
pub(super) fn take(file: &File) -> Lease {
    // We look for nobody who waits, and SIGIO, which would be sent, ends a process. SIGURG is ignored unless a program
    // handles it, and programs that do expect it at any time.
    if control(file, F_SETSIG, libc::SIGURG).is_err() {
        return Lease::Unknown;
    }
    match control(file, libc::F_SETLEASE, libc::F_WRLCK) {
        Ok(_) => Lease::Taken,
        Err(e) if e.raw_os_error() == Some(libc::EAGAIN) => Lease::InUse,
        Err(_) => Lease::Unknown,
    }
}

/// Gives the lease back, if the system has not taken it already.
pub(super) fn end(file: &File) {
    let _ = control(file, libc::F_SETLEASE, libc::F_UNLCK);
}

fn control(file: &File, command: c_int, argument: c_int) -> io::Result<c_int> {
    // SAFETY: the descriptor is open as long as `file` is borrowed, and these commands take a number.
    match unsafe { libc::fcntl(file.as_raw_fd(), command, argument) } {
        -1 => Err(io::Error::last_os_error()),
        answer => Ok(answer),
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::process::{Command, Stdio};
    use std::time::{Duration, Instant};

    use super::*;
    use crate::storage::{Access, Directory, Disk, Lock, own_process};

    #[test]
    fn a_lease_is_for_the_only_one_who_has_the_file_open() {
        // A child that another test is about to start would keep the file open for a moment.
        if !own_process::is_here("storage::lease::tests::a_lease_is_for_the_only_one_who_has_the_file_open") {
            return;
        }
        let dir = tempfile::tempdir().unwrap();
        let disk = Disk::open(dir.path()).unwrap();
        let file = disk.create("f").unwrap();
        let other = disk.open("f", Access::Read).unwrap();
        assert_eq!(file.lease(), Lease::InUse);
        drop(other);
        // Mappings of one's own, and locks, are in nobody's way.
        let map = file.map(1 << 22).unwrap();
        assert!(file.lock(5, Lock::Exclusive).unwrap());
        assert_eq!(file.lease(), Lease::Taken);
        let e = disk.open("f", Access::Read).err().unwrap();
        assert_eq!(e.kind(), io::ErrorKind::WouldBlock, "we never wait");
        assert_eq!(file.lease(), Lease::Taken, "still");
        file.end_lease();
        let other = disk.open("f", Access::Read).unwrap();
        drop((file, map));
        assert_eq!(other.lease(), Lease::Taken, "for one who only reads, too");
        drop(other);
        assert!(disk.open("f", Access::Write).is_ok(), "a lease goes with its file");
    }

    #[test]
    fn who_opens_waits_until_the_lease_ends_and_the_holder_is_not_disturbed() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("f");
        let file = File::create(&path).unwrap();
        assert_eq!(take(&file), Lease::Taken);
        // One thread waits in the kernel: nothing is to wake it but what it waits for.
        let (mut slept, mut wake) = io::pipe().unwrap();
        let sleeper = std::thread::spawn(move || slept.read(&mut [0; 1]));
        let mut opener = Command::new("/bin/sh")
            .args(["-c", r#"exec 3<"$0"; echo opened"#])
            .arg(&path)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let began = Instant::now();
        while control(&file, libc::F_GETLEASE, 0).unwrap() == libc::F_WRLCK {
            assert!(began.elapsed() < Duration::from_secs(30), "nobody opens it");
            std::thread::yield_now();
        }
        assert!(opener.try_wait().unwrap().is_none(), "the opener does not wait");
        end(&file);
        let opened = opener.wait_with_output().unwrap();
        assert_eq!(opened.stdout, b"opened\n");
        assert!(began.elapsed() < Duration::from_secs(40), "only the system ended the lease");
        wake.write_all(&[1]).unwrap();
        assert_eq!(sleeper.join().unwrap().unwrap(), 1, "a read was interrupted");
    }

    #[test]
    fn of_a_file_that_grants_none_nothing_is_known() {
        assert_eq!(take(&File::open("/dev/null").unwrap()), Lease::Unknown);
    }
}
