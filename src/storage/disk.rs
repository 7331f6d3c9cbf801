//! The real disk. Files are opened relative to the folder's descriptor, so a store keeps working while its folder
//! is renamed.

use std::fs::File;
use std::io::{self, IoSliceMut};
use std::num::NonZero;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, SystemTime};

use rustix::fs::{Advice, AtFlags, Mode, OFlags};
use rustix::io::ReadWriteFlags;

use super::{Access, Attributes, Directory, Lease, Lock, Map, Process, StorageFile};
use super::{fork, lease, lock, processes, space};

/// Bytes that [`StorageFile::write_at`] writes at once, which the system takes memory for as a whole where it can. Memory
/// in pieces of 2 MiB is what a virtual machine has given back to its host while it was free, and has to wait for. Smaller
/// ones come from what is at hand.
pub const WRITTEN_AT_ONCE: u64 = 512 << 10;

/// Opens the regular file at `path` for reading; never waits, on a FIFO for example.
///
/// # Errors
/// The system's, and [`io::ErrorKind::InvalidInput`] for what is no regular file.
pub fn open_regular(path: &Path) -> io::Result<File> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
    regular(rustix::fs::open(path, flags, Mode::empty())?)
}

fn regular(file: OwnedFd) -> io::Result<File> {
    let file = File::from(file);
    if file.metadata()?.is_file() {
        return Ok(file);
    }
    Err(io::Error::new(io::ErrorKind::InvalidInput, "is not a regular file"))
}

/// A folder on a real file system.
pub struct Disk(OwnedFd);

impl Disk {
    /// Opens the folder at `path`, which must exist.
    ///
    /// # Errors
    /// The system's, e.g. where `path` is no folder.
    pub fn open(path: &Path) -> io::Result<Disk> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        Ok(Disk(rustix::fs::open(path, flags, Mode::empty())?))
    }
}

impl Directory for Disk {
    fn open(&self, name: &str, access: Access) -> io::Result<Arc<dyn StorageFile>> {
        let mode = match access {
            Access::Read => OFlags::RDONLY,
            Access::Write => OFlags::RDWR,
        };
        // NONBLOCK: a FIFO in the file's place must not make us wait for its other end.
        let flags = mode | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
        DiskFile::shared(regular(rustix::fs::openat(&self.0, name, flags, Mode::empty())?)?)
    }

    fn create(&self, name: &str) -> io::Result<Arc<dyn StorageFile>> {
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        DiskFile::shared(File::from(rustix::fs::openat(&self.0, name, flags, Mode::from_raw_mode(0o666))?))
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        Ok(rustix::fs::unlinkat(&self.0, name, AtFlags::empty())?)
    }

    fn sync(&self) -> io::Result<()> {
        Ok(rustix::fs::fsync(&self.0)?)
    }

    fn openers(&self, name: &str) -> Vec<Process> {
        // Opened as a place only: that waits for nobody and is in nobody's way.
        let place = rustix::fs::openat(&self.0, name, OFlags::PATH | OFlags::CLOEXEC, Mode::empty());
        place.map(|place| processes::openers(&File::from(place))).unwrap_or_default()
    }

    fn folder(&self, name: &str) -> io::Result<Box<dyn Directory>> {
        self.neighbour(Path::new(name))
    }

    fn make_folder(&self, name: &str) -> io::Result<Box<dyn Directory>> {
        match rustix::fs::mkdirat(&self.0, name, Mode::from_raw_mode(0o777)) {
            Ok(()) | Err(rustix::io::Errno::EXIST) => self.folder(name),
            Err(e) => Err(e.into()),
        }
    }

    fn neighbour(&self, path: &Path) -> io::Result<Box<dyn Directory>> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        Ok(Box::new(Disk(rustix::fs::openat(&self.0, path, flags, Mode::empty())?)))
    }
}

struct DiskFile {
    // Declared first, so dropped first: the file leaves the list before its descriptor is closed.
    entry: fork::Entry,
    file: File,
}

impl DiskFile {
    fn shared(file: File) -> io::Result<Arc<dyn StorageFile>> {
        Ok(Arc::new(DiskFile { entry: fork::Entry::new(&file)?, file }))
    }

    /// An error in a forked child: others may be writing, since the locks are not its own.
    fn check_own(&self) -> io::Result<()> {
        if self.entry.is_inherited() {
            let text = "this process is a fork of the one that opened the file";
            return Err(io::Error::new(io::ErrorKind::PermissionDenied, text));
        }
        Ok(())
    }
}

impl Drop for DiskFile {
    fn drop(&mut self) {
        // Closing would do, but for a child that is about to start a program: it has the file open until then.
        if self.entry.locked().load(Ordering::SeqCst) && !self.entry.is_inherited() {
            let _ = lock::unlock_all(&self.file);
        }
        self.end_lease();
    }
}

impl StorageFile for DiskFile {
    fn read_at(&self, buf: &mut [u8], at: u64) -> io::Result<usize> {
        let mut done = 0;
        while let Some(rest) = buf.get_mut(done..).filter(|rest| !rest.is_empty()) {
            match self.file.read_at(rest, at + done as u64) {
                Ok(0) => break,
                Ok(n) => done += n,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
        Ok(done)
    }

    fn read_cached(&self, buf: &mut [u8], at: u64) -> usize {
        rustix::io::preadv2(&self.file, &mut [IoSliceMut::new(buf)], at, ReadWriteFlags::NOWAIT).unwrap_or(0)
    }

    fn will_need(&self, at: u64, len: u64) {
        // Where the file system can't, nothing is lost.
        let _ = rustix::fs::fadvise(&self.file, at, NonZero::new(len), Advice::WillNeed);
    }

    fn write_at(&self, bytes: &[u8], at: u64) -> io::Result<()> {
        self.check_own()?;
        space::end_within_limit(at, bytes.len() as u64)?;
        let (mut at, mut rest) = (at, bytes);
        while !rest.is_empty() {
            let room = WRITTEN_AT_ONCE - at % WRITTEN_AT_ONCE;
            let (piece, behind) = rest.split_at(rest.len().min(usize::try_from(room).unwrap_or(usize::MAX)));
            self.file.write_all_at(piece, at)?;
            at += piece.len() as u64;
            rest = behind;
        }
        Ok(())
    }

    fn attributes(&self) -> io::Result<Attributes> {
        let stat = rustix::fs::fstat(&self.file)?;
        let seconds = u64::try_from(stat.st_mtime).unwrap_or(0);
        let since = Duration::new(seconds, u32::try_from(stat.st_mtime_nsec).unwrap_or(0));
        Ok(Attributes {
            len: u64::try_from(stat.st_size).unwrap_or(0),
            allocated: u64::try_from(stat.st_blocks).unwrap_or(0) * 512,
            modified: SystemTime::UNIX_EPOCH + since,
            identity: (stat.st_dev, stat.st_ino),
        })
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.check_own()?;
        if len > self.file.metadata()?.len() {
            space::end_within_limit(0, len)?;
        }
        self.file.set_len(len)
    }

    fn free(&self, at: u64, len: u64) -> io::Result<()> {
        self.check_own()?;
        space::free(&self.file, at, len)
    }

    fn sync(&self) -> io::Result<()> {
        self.file.sync_all()
    }

    fn map(&self, len: u64) -> io::Result<Map> {
        Map::new(&self.file, self.entry.number(), len)
    }

    fn allocate(&self, at: u64, len: u64) -> io::Result<()> {
        self.check_own()?;
        space::allocate(&self.file, at, len)
    }

    fn lock(&self, byte: u64, lock: Lock) -> io::Result<bool> {
        self.check_own()?;
        self.entry.locked().store(true, Ordering::SeqCst);
        lock::try_lock(&self.file, byte, lock)
    }

    fn unlock(&self, byte: u64) -> io::Result<()> {
        // A process that was cloned by other means than `fork` would give back its parent's.
        if self.entry.is_inherited() { Ok(()) } else { lock::unlock(&self.file, byte) }
    }

    fn lock_holders(&self, byte: u64) -> Vec<Process> {
        processes::lock_holders(&self.file, byte)
    }

    fn lease(&self) -> Lease {
        if self.entry.is_inherited() {
            return Lease::Unknown;
        }
        let had = self.entry.leased().swap(true, Ordering::SeqCst);
        let lease = lease::take(&self.file);
        // One that was taken before stays, though somebody may wait for its end.
        self.entry.leased().store(had || lease == Lease::Taken, Ordering::SeqCst);
        lease
    }

    fn end_lease(&self) {
        if self.entry.leased().load(Ordering::SeqCst) && !self.entry.is_inherited() {
            lease::end(&self.file);
            self.entry.leased().store(false, Ordering::SeqCst);
        }
    }

    fn openers(&self) -> Vec<Process> {
        processes::openers(&self.file)
    }

    fn is_inherited(&self) -> bool {
        self.entry.is_inherited()
    }
}
