//! What a forked child has of our files: it reads on, and holds no lock and no lease.
//!
//! A fork shares its parent's open files, and with them what is held on them: a child that lives on would keep the
//! locks of a parent that is gone. So every file of ours is in a list, and in a child, before `fork` returns there,
//! each is opened anew for reading, under its number as a descriptor and in the place of its mappings.
//!
//! That begins when a file is opened, not when it is first locked: a child forked in between shares it, too.
//!
//! Shared: the list, walked by the child without a lock. All that happens there is async-signal-safe: atomic loads
//! and stores and system calls. A process that was cloned by other means than `fork` is only told apart. `gate` keeps
//! forks out while a mapping can't be found.

use std::ffi::CStr;
use std::fs::File;
use std::io;
use std::mem::ManuallyDrop;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, IntoRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, Ordering};

use once_cell::race::OnceBox;
use rustix::fs::{MemfdFlags, Mode, OFlags};
use rustix::io::DupFlags;

use super::list::{List, Taken};
use super::{gate, sigbus};

/// An open file of ours. A free node's descriptor is negative.
struct Listed {
    fd: AtomicI32,
    /// Never used twice, other than descriptors and nodes.
    number: AtomicU64,
    device: AtomicU64,
    inode: AtomicU64,
    locked: AtomicBool,
    leased: AtomicBool,
}

static FILES: List<Listed> = List::new();
static NEXT: AtomicU64 = AtomicU64::new(1);
/// Forks between the process that loaded us and this one.
static FORKS: AtomicU64 = AtomicU64::new(0);
/// What `pthread_atfork` said. Two threads that ask at once both do: to do twice what the handlers do does no harm.
static WATCHED: OnceBox<i32> = OnceBox::new();

/// Keeps a file in the list. Drop it before the file is closed.
pub(super) struct Entry {
    node: Taken<Listed>,
    forks: u64,
    pid: u32,
}

impl Default for Listed {
    fn default() -> Listed {
        Listed {
            fd: AtomicI32::new(-1),
            number: AtomicU64::new(0),
            device: AtomicU64::new(0),
            inode: AtomicU64::new(0),
            locked: AtomicBool::new(false),
            leased: AtomicBool::new(false),
        }
    }
}

impl Entry {
    /// Puts `file` into the list, for as long as it is open.
    pub(super) fn new(file: &File) -> io::Result<Entry> {
        // SAFETY: the child's handler does only what is async-signal-safe; the others take no lock.
        let watch = || unsafe {
            libc::pthread_atfork(Some(gate::before_fork), Some(gate::after_fork), Some(in_child))
        };
        let watched = *WATCHED.get_or_init(|| Box::new(watch()));
        if watched != 0 {
            return Err(io::Error::from_raw_os_error(watched));
        }
        let stat = rustix::fs::fstat(file)?;
        let node = FILES.take();
        node.number.store(NEXT.fetch_add(1, Ordering::SeqCst), Ordering::SeqCst);
        node.device.store(stat.st_dev, Ordering::SeqCst);
        node.inode.store(stat.st_ino, Ordering::SeqCst);
        node.locked.store(false, Ordering::SeqCst);
        node.leased.store(false, Ordering::SeqCst);
        // Last: from here on a child takes it for ours.
        node.fd.store(file.as_raw_fd(), Ordering::SeqCst);
        Ok(Entry { node, forks: FORKS.load(Ordering::SeqCst), pid: std::process::id() })
    }

    /// Tells the file's mappings from others.
    pub(super) fn number(&self) -> u64 {
        self.node.number.load(Ordering::SeqCst)
    }

    /// Whether this process is a fork of the one that made the entry.
    pub(super) fn is_inherited(&self) -> bool {
        // Forks are counted, since a number of a process may be used again; one that was cloned counted nothing.
        FORKS.load(Ordering::SeqCst) != self.forks || std::process::id() != self.pid
    }

    /// Whether the file was ever locked. Set it before taking the first lock.
    pub(super) fn locked(&self) -> &AtomicBool {
        &self.node.locked
    }

    /// Whether a lease is held. Set it before taking one, and clear it after giving it back.
    pub(super) fn leased(&self) -> &AtomicBool {
        &self.node.leased
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        self.node.fd.store(-1, Ordering::SeqCst);
    }
}

extern "C" fn in_child() {
    gate::reset_in_child();
    FORKS.fetch_add(1, Ordering::SeqCst);
    for listed in FILES.iter() {
        let fd = listed.fd.load(Ordering::SeqCst);
        if fd >= 0 {
            listed.part(fd);
        }
    }
}

impl Listed {
    /// Parts the child's file from the parent's.
    fn part(&self, fd: RawFd) {
        // SAFETY: while the file is in the list, the descriptor is its own. The program may have closed it behind our
        // back, so it is looked at first. It is never dropped here.
        let mut old = ManuallyDrop::new(unsafe { OwnedFd::from_raw_fd(fd) });
        if !self.is(old.as_fd()) {
            return;
        }
        let leased = self.leased.load(Ordering::SeqCst);
        // Opening it would break the parent's lease.
        let opened = if leased { None } else { open_again(fd).filter(|new| self.is(new.as_fd())) };
        if let Some(new) = opened
            && rustix::io::dup3(&new, &mut old, DupFlags::CLOEXEC).is_ok()
        {
            sigbus::map_anew(self.number.load(Ordering::SeqCst), Some(new.as_fd()));
            self.locked.store(false, Ordering::SeqCst);
            return;
        }
        // A child that can read is worth more than what the parent has not asked for.
        if leased || self.locked.load(Ordering::SeqCst) {
            sigbus::map_anew(self.number.load(Ordering::SeqCst), None);
            empty(fd, &mut old);
        }
    }

    fn is(&self, fd: BorrowedFd<'_>) -> bool {
        rustix::fs::fstat(fd).is_ok_and(|stat| {
            stat.st_dev == self.device.load(Ordering::SeqCst)
                && stat.st_ino == self.inode.load(Ordering::SeqCst)
        })
    }
}

fn open_again(fd: RawFd) -> Option<OwnedFd> {
    let path = link(fd);
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
    rustix::fs::open(CStr::from_bytes_until_nul(&path).ok()?, flags, Mode::empty()).ok()
}

/// `/proc/self/fd/` and the number, ended by a zero.
fn link(fd: RawFd) -> [u8; 32] {
    let mut path = [0; 32];
    let mut places = path.iter_mut();
    for (byte, place) in b"/proc/self/fd/".iter().zip(&mut places) {
        *place = *byte;
    }
    // Ten digits at most.
    let mut divisor = 1_000_000_000;
    while divisor > 1 && fd < divisor {
        divisor /= 10;
    }
    while divisor > 0 {
        if let (Some(place), Ok(digit)) = (places.next(), u8::try_from(fd / divisor % 10)) {
            *place = b'0' + digit;
        }
        divisor /= 10;
    }
    path
}

/// Puts a file without a byte under a descriptor. It lies in memory, so it needs no path: not every process has one to
/// /dev/null.
fn empty(fd: RawFd, old: &mut OwnedFd) {
    let make = || rustix::fs::memfd_create(c"forked", MemfdFlags::CLOEXEC);
    let made = make().or_else(|_| {
        // There may be no number to spare. This one goes in any case, and is the lowest free one then.
        // SAFETY: the descriptor is our own, and the file must not stay open.
        unsafe { rustix::io::close(fd) };
        make()
    });
    match made {
        Ok(made) if made.as_raw_fd() == fd => _ = made.into_raw_fd(),
        Ok(made) => drop(rustix::io::dup3(&made, old, DupFlags::CLOEXEC)),
        Err(_) => {}
    }
}

#[cfg(test)]
mod tests;
