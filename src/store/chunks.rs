//! The chunk files, opened when first used, each with one mapping of the largest size that a chunk can have.
//!
//! Shared: a slot a chunk, set once. Nobody waits for another thread, which might be gone in a forked child: two that
//! open the same chunk at once both do, and one of them uses the other's.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use once_cell::race::OnceBox;

use super::ahead::Ahead;
use crate::error::{Error, ErrorKind, Result};
use crate::format::{MAX_CHUNK_BYTES, MAX_CHUNKS};
use crate::storage::{Access, Attributes, Directory, Map, StorageFile};

/// Name of chunk `id`.
pub(super) fn name(id: u16) -> String {
    format!("{id}.zr")
}

pub(super) struct Chunks {
    path: PathBuf,
    access: Access,
    slots: Box<[OnceBox<Chunk>]>,
}

/// An open chunk file.
pub(super) struct Chunk {
    path: PathBuf,
    file: Arc<dyn StorageFile>,
    /// `None` where the address space is limited; everything is read from the file then.
    map: Option<Map>,
    /// Size in bytes when it was last looked at. It only has to be looked at again for what lies behind it.
    len: AtomicU64,
    ahead: Ahead,
}

impl Chunks {
    pub(super) fn new(path: &Path, access: Access) -> Chunks {
        Chunks { path: path.to_path_buf(), access, slots: (0..MAX_CHUNKS).map(|_| OnceBox::new()).collect() }
    }

    /// Chunk `id`, opened if need be. A failure is not kept: the next call tries again.
    #[inline]
    pub(super) fn get(&self, dir: &dyn Directory, id: u16) -> Result<&Chunk> {
        match self.slots.get(usize::from(id)).and_then(OnceBox::get) {
            Some(chunk) => Ok(chunk),
            None => self.open(dir, id),
        }
    }

    #[cold]
    fn open(&self, dir: &dyn Directory, id: u16) -> Result<&Chunk> {
        let path = self.path.join(name(id));
        let slot = self.slots.get(usize::from(id)).ok_or_else(|| {
            Error::new(ErrorKind::Damaged, format!("{}: no store has a chunk {id}", self.path.display()))
        })?;
        let file = dir.open(&name(id), self.access).map_err(|e| match e.kind() {
            std::io::ErrorKind::NotFound => {
                Error::new(ErrorKind::Damaged, format!("{} is missing", path.display()))
            }
            _ => Error::io(format!("can't open {}", path.display()), e),
        })?;
        let map = file.map(MAX_CHUNK_BYTES).ok();
        let chunk = Chunk { path, file, map, len: AtomicU64::new(0), ahead: Ahead::default() };
        chunk.current_len()?;
        Ok(slot.get_or_init(|| Box::new(chunk)))
    }

    /// Creates the file of chunk `id`, which must not be open. One that is there already (left by an append that
    /// was killed, or preallocated) is used as it is: nothing live lies behind the frontier.
    pub(super) fn create(&self, dir: &dyn Directory, id: u16) -> Result<()> {
        match dir.create(&name(id)) {
            Ok(_) => Ok(()),
            Err(e) if e.kind() == std::io::ErrorKind::AlreadyExists => Ok(()),
            Err(e) => Err(Error::io(format!("can't create {}", self.path.join(name(id)).display()), e)),
        }
    }
}

impl Chunks {
    /// Removes the files of all chunks behind `last`, which nobody may read any more, also such as an append that was
    /// killed has left; the last first, so that an interruption leaves no gap. Returns whether there were any.
    pub(super) fn remove_behind(&self, dir: &dyn Directory, last: u16) -> Result<bool> {
        let mut found = false;
        for id in (last.saturating_add(1)..MAX_CHUNKS).rev() {
            match dir.open(&name(id), self.access) {
                Err(e) if e.kind() == std::io::ErrorKind::NotFound => continue,
                _ => found = true,
            }
            dir.remove(&name(id))
                .map_err(|e| Error::io(format!("can't remove {}", self.path.join(name(id)).display()), e))?;
        }
        Ok(found)
    }

    /// As these, with none open.
    pub(super) fn anew(&self) -> Chunks {
        Chunks::new(&self.path, self.access)
    }
}

impl Chunk {
    /// The file's size now, in bytes.
    pub(super) fn current_len(&self) -> Result<u64> {
        let len = self.attributes()?.len;
        self.len.store(len, Ordering::Relaxed);
        Ok(len)
    }

    /// Checks that the file reaches to byte `end`, as far as is known without a system call.
    #[inline]
    pub(super) fn reaches(&self, end: u64) -> Result<()> {
        if end <= self.len.load(Ordering::Relaxed) { Ok(()) } else { self.still_reaches(end) }
    }

    /// Checks that the file reaches to byte `end` at this moment.
    pub(super) fn still_reaches(&self, end: u64) -> Result<()> {
        let len = self.current_len()?;
        if end <= len { Ok(()) } else { Err(self.short(end, len)) }
    }

    /// Reads from the file; an error where it ends early.
    pub(super) fn read(&self, dst: &mut [u8], at: u64) -> Result<()> {
        let n = self.file.read_at(dst, at).map_err(|e| self.io("read", e))?;
        if n == dst.len() { Ok(()) } else { Err(self.short(at + dst.len() as u64, at + n as u64)) }
    }

    /// As [`Chunk::read`], for records: where this one is not in memory, what lies around it is asked for, too, see
    /// [`Ahead`]. `stored` gives the bytes of the whole store.
    pub(super) fn read_around(&self, dst: &mut [u8], at: u64, stored: impl FnOnce() -> u64) -> Result<()> {
        let n = self.file.read_cached(dst, at);
        let Some(rest) = dst.get_mut(n..).filter(|rest| !rest.is_empty()) else { return Ok(()) };
        let (at, len) = (at + n as u64, rest.len() as u64);
        let wanted = self.ahead.around(at, len, stored());
        if !wanted.is_empty() {
            self.file.will_need(wanted.start, wanted.end.saturating_sub(wanted.start));
        }
        self.read(rest, at)
    }

    /// Asks for a record that is to be read when others have been, if it is not in memory for all that is known.
    #[inline]
    pub(super) fn coming(&self, at: u64, len: u64, stored: impl FnOnce() -> u64) {
        let wanted = self.ahead.coming(at, len, stored);
        if !wanted.is_empty() {
            self.file.will_need(wanted.start, wanted.end - wanted.start);
        }
    }

    /// Notes that what [`Chunk::coming`] was told of had to be waited for so many times.
    pub(super) fn waited(&self, times: u64) {
        self.ahead.waited(times);
    }

    /// Copies from the mapping where there is one. The caller calls [`Chunk::still_reaches`] after its last copy:
    /// a file cut meanwhile reads as zeros to the end of its last page.
    #[inline]
    pub(super) fn copy(&self, dst: &mut [u8], at: u64) -> Result<()> {
        match self.map.as_ref().map(|map| map.copy_to(dst, at)) {
            Some(Ok(())) => Ok(()),
            _ => self.read(dst, at),
        }
    }

    /// Copies `len` bytes from each of `offsets` to every `stride` bytes of `dst`; `end` is where the furthest one ends.
    /// `false` where that can't be done by the mapping: what is in `dst` is unspecified then.
    #[inline]
    pub(super) fn copy_each(
        &self,
        offsets: &[u32],
        len: usize,
        dst: &mut [u8],
        stride: usize,
        end: u64,
    ) -> bool {
        let Some(map) = self.map.as_ref().filter(|_| self.reaches(end).is_ok()) else { return false };
        map.copy_each(offsets, len, dst, stride).is_ok() && self.still_reaches(end).is_ok()
    }

    /// Asks the processor for the byte at `at`, ahead of [`Chunk::copy`].
    #[inline(always)]
    pub(super) fn prefetch(&self, at: u64) {
        if let Some(map) = &self.map {
            map.prefetch(at);
        }
    }

    /// The mapping, for replies to the kernel.
    pub(super) fn map(&self) -> Option<&Map> {
        self.map.as_ref()
    }

    pub(super) fn write(&self, bytes: &[u8], at: u64) -> Result<()> {
        self.file.write_at(bytes, at).map_err(|e| self.io("write", e))
    }

    /// Gives the disk of a range back.
    pub(super) fn free(&self, at: u64, len: u64) -> Result<()> {
        self.file.free(at, len).map_err(|e| self.io("free space in", e))
    }

    /// Takes disk for a range, so that writing there needs no more.
    pub(super) fn allocate(&self, at: u64, len: u64) -> Result<()> {
        self.file.allocate(at, len).map_err(|e| self.io("take disk for", e))?;
        self.current_len().map(drop)
    }

    /// Cuts or extends the file.
    pub(super) fn set_len(&self, len: u64) -> Result<()> {
        self.file.set_len(len).map_err(|e| self.io("resize", e))?;
        self.current_len().map(drop)
    }

    /// Takes back what was written from `frontier` on, since the file had `len` bytes. A file that was longer than
    /// the frontier then (loaderx makes them 4 GiB long at once) keeps its size and loses the blocks.
    pub(super) fn take_back(&self, frontier: u64, len: u64) -> Result<()> {
        if frontier < len {
            self.free(frontier, len - frontier)?;
        }
        if self.current_len()? > len {
            self.set_len(len)?;
        }
        Ok(())
    }

    pub(super) fn sync(&self) -> Result<()> {
        self.file.sync().map_err(|e| self.io("sync", e).of_sync())
    }

    pub(super) fn attributes(&self) -> Result<Attributes> {
        self.file.attributes().map_err(|e| self.io("read", e))
    }

    #[cold]
    fn short(&self, end: u64, len: u64) -> Error {
        Error::new(
            ErrorKind::Damaged,
            format!("{} ends at byte {len}, the record at byte {end}", self.path.display()),
        )
    }

    fn io(&self, verb: &str, e: std::io::Error) -> Error {
        Error::io(format!("can't {verb} {}", self.path.display()), e)
    }
}
