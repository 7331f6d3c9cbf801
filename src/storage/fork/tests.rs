use std::io::{Read, Write};

use rustix::process::{
    Resource, Rlimit, WaitOptions, getpid, getrlimit, set_child_subreaper, setrlimit, waitpid,
};

use super::*;
use crate::storage::own_process::{self, Child};
use crate::storage::{Access, Directory, Disk, Lease, Lock, Process, StorageFile};

const BYTE: u64 = 1 << 62;
const BYTES: &[u8; 16] = b"0123456789abcdef";

fn reads(file: &dyn StorageFile) -> bool {
    let mut read = [0; 32];
    matches!(file.read_at(&mut read, 0), Ok(16)) && read.starts_with(BYTES)
}

fn maps(map: &crate::storage::Map) -> bool {
    let mut copied = [0; 16];
    map.copy_to(&mut copied, 0).is_ok() && copied == *BYTES
}

fn pids(found: &[Process]) -> Vec<u32> {
    found.iter().map(|process| process.pid).collect()
}

#[test]
fn links_are_those_of_proc() {
    for fd in [0, 7, 10, 1_000, 2_147_483_647] {
        let path = link(fd);
        let path = CStr::from_bytes_until_nul(&path).unwrap().to_str().unwrap();
        assert_eq!(path, format!("/proc/self/fd/{fd}"));
    }
}

#[test]
fn a_child_reads_on_changes_nothing_and_holds_no_lock() {
    if !own_process::is_here("storage::fork::tests::a_child_reads_on_changes_nothing_and_holds_no_lock") {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let disk = Disk::open(dir.path()).unwrap();
    let file = disk.create("f").unwrap();
    file.write_at(BYTES, 0).unwrap();
    let map = file.map(1 << 22).unwrap();
    assert!(file.lock(BYTE, Lock::Exclusive).unwrap());
    assert!(!file.is_inherited());
    let child = Child::new(|| {
        let refused = |done: io::Result<()>| done.is_err_and(|e| e.kind() == io::ErrorKind::PermissionDenied);
        assert!(file.is_inherited());
        assert!(reads(&*file) && maps(&map) && maps(&file.map(16).unwrap()));
        assert!(refused(file.write_at(b"x", 0)) && refused(file.set_len(0)));
        assert!(refused(file.free(0, 16)) && refused(file.allocate(16, 16)));
        assert!(refused(file.lock(BYTE, Lock::Shared).map(drop)));
        file.unlock(BYTE).unwrap();
        assert_eq!(file.lease(), Lease::Unknown);
        // What the child opens itself is its own.
        let own = disk.open("f", Access::Write).unwrap();
        !own.is_inherited() && !own.lock(BYTE, Lock::Shared).unwrap() && own.write_at(BYTES, 0).is_ok()
    });
    assert!(reads(&*file) && maps(&map) && !file.is_inherited());
    let other = disk.open("f", Access::Write).unwrap();
    assert!(!other.lock(BYTE, Lock::Exclusive).unwrap());
    assert_eq!(pids(&other.lock_holders(BYTE)), [std::process::id()]);
    assert!(pids(&other.openers()).contains(&child.pid()));
    // A lock that was taken after the fork is not the child's either.
    assert!(file.lock(7, Lock::Exclusive).unwrap());
    assert_eq!(pids(&other.lock_holders(7)), [std::process::id()]);
    drop(file);
    assert!(other.lock(BYTE, Lock::Exclusive).unwrap());
    assert!(child.lives());
}

#[test]
fn a_lock_dies_with_its_process_though_a_child_of_it_lives() {
    if !own_process::is_here("storage::fork::tests::a_lock_dies_with_its_process_though_a_child_of_it_lives")
    {
        return;
    }
    set_child_subreaper(Some(getpid())).unwrap();
    let dir = tempfile::tempdir().unwrap();
    let disk = Disk::open(dir.path()).unwrap();
    disk.create("f").unwrap().write_at(BYTES, 0).unwrap();
    let (mut told, tell) = io::pipe().unwrap();
    let (mut heard, mut say) = io::pipe().unwrap();
    let mut tell = Some(tell);
    let holder = Child::new(|| {
        // Of the pipe's ends for writing only the test's may be left, or its end would not be seen.
        tell.take();
        let file = disk.open("f", Access::Write).unwrap();
        let map = file.map(1 << 22).unwrap();
        // SAFETY: the child uses nothing that a thread may hold, and ends without going back.
        let forked = unsafe { libc::fork() };
        if forked == 0 {
            say.write_all(&[1]).unwrap();
            let good = told.read(&mut [0; 1]).unwrap() == 1 && reads(&*file) && maps(&map);
            let _ = say.write_all(&[u8::from(good)]);
            // SAFETY: ends the process, and runs nothing of it.
            unsafe { libc::_exit(0) }
        }
        // After the fork: not even such a lock may be the child's.
        let locked = file.lock(BYTE, Lock::Exclusive).unwrap();
        // Killed, the holder drops nothing.
        std::mem::forget((file, map));
        locked
    });
    drop(say);
    let mut byte = [0; 1];
    heard.read_exact(&mut byte).unwrap();
    let other = disk.open("f", Access::Write).unwrap();
    assert!(!other.lock(BYTE, Lock::Exclusive).unwrap());
    assert_eq!(pids(&other.lock_holders(BYTE)), [holder.pid()]);
    drop(holder);
    assert!(other.lock(BYTE, Lock::Exclusive).unwrap(), "the child keeps the lock");
    tell.unwrap().write_all(&[1]).unwrap();
    heard.read_exact(&mut byte).unwrap();
    assert_eq!(byte, [1], "the child does not read on");
    waitpid(None, WaitOptions::empty()).unwrap();
}

#[test]
fn a_child_that_cannot_open_anew_finds_a_locked_file_empty() {
    if !own_process::is_here("storage::fork::tests::a_child_that_cannot_open_anew_finds_a_locked_file_empty")
    {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let disk = Disk::open(dir.path()).unwrap();
    let files: Vec<_> = ["locked", "free"].iter().map(|name| disk.create(name).unwrap()).collect();
    let maps_of: Vec<_> = files.iter().map(|file| file.map(1 << 22).unwrap()).collect();
    files.iter().for_each(|file| file.write_at(BYTES, 0).unwrap());
    assert!(files[0].lock(BYTE, Lock::Exclusive).unwrap());
    // The child is to have no descriptor to spare.
    let limit = Rlimit { current: Some(64), ..getrlimit(Resource::Nofile) };
    setrlimit(Resource::Nofile, limit).unwrap();
    let mut spare = Vec::new();
    let use_up = || {
        while let Ok(fd) = rustix::io::dup(io::stdin()) {
            spare.push(fd);
        }
    };
    let child = Child::new_after(use_up, || {
        assert!(reads(&*files[1]) && maps(&maps_of[1]), "what is not locked may stay shared");
        let gone = files[0].read_at(&mut [0; 16], 0).unwrap() == 0;
        gone && maps_of[0].copy_to(&mut [0; 16], 0).is_err()
    });
    drop(spare);
    let other = disk.open("locked", Access::Write).unwrap();
    assert_eq!(pids(&other.lock_holders(BYTE)), [std::process::id()]);
    assert!(child.lives());
}

#[test]
fn a_fork_does_not_break_its_parents_lease() {
    if !own_process::is_here("storage::fork::tests::a_fork_does_not_break_its_parents_lease") {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let disk = Disk::open(dir.path()).unwrap();
    let file = disk.create("f").unwrap();
    file.write_at(BYTES, 0).unwrap();
    let map = file.map(1 << 22).unwrap();
    assert_eq!(file.lease(), Lease::Taken);
    let child = Child::new(|| {
        // Where the parent waits for others to go, the child may not have it open.
        file.read_at(&mut [0; 16], 0).unwrap() == 0 && map.copy_to(&mut [0; 16], 0).is_err()
    });
    let infos = std::fs::read_dir("/proc/self/fdinfo").unwrap().flatten();
    let infos: String = infos.filter_map(|info| std::fs::read_to_string(info.path()).ok()).collect();
    assert!(infos.contains(": LEASE  ACTIVE "), "{infos}");
    file.end_lease();
    assert!(disk.open("f", Access::Read).is_ok());
    assert!(child.lives());
}
