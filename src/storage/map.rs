//! A file mapped for reading, whose bytes other processes may change and cut at any moment.
//!
//! Nothing here hands out a plain `&[u8]` to be relied on: words are loaded atomically, longer stretches are
//! copied out, and both are followed by a look at the mapping's mark (see `sigbus`), so that a cut file is an
//! error. The one exception, [`Map::bytes`], says who may use it.

use std::fs::File;
use std::io;
use std::slice;
use std::sync::atomic::{AtomicU64, Ordering};

use memmap2::{MmapOptions, MmapRaw};
use rustix::process::{Resource, getrlimit};

use super::gate;
use super::sigbus::Guard;

/// A read-only mapping of the first bytes of a file. Reading behind the file's end is an error, not a signal.
pub struct Map {
    // Declared first, so dropped first: the watch ends before the mapping does.
    guard: Guard,
    raw: MmapRaw,
    /// Declared last: taken when the map is dropped, it keeps forks out until the mapping is gone.
    leaving: Option<gate::Inside>,
}

/// The part of a limited address space that one mapping may take is one in so many.
const SHARE: u64 = 16;

/// What a cut file gives.
fn cut() -> io::Error {
    io::Error::new(io::ErrorKind::UnexpectedEof, "the file was cut while it was open")
}

impl Map {
    /// Maps the first `len` bytes of `file`, which may reach past its end. `number` is the file's in `fork`.
    pub(super) fn new(file: &File, number: u64, len: u64) -> io::Result<Map> {
        let len = usize::try_from(len).map_err(io::Error::other)?;
        // A mapping that just fits would leave nothing for the memory that is allocated later.
        if getrlimit(Resource::As).current.is_some_and(|limit| len as u64 > limit / SHARE) {
            return Err(io::Error::other("the address space is limited (ulimit -v)"));
        }
        let _inside = gate::enter();
        let raw = MmapOptions::new().len(len).map_raw_read_only(file)?;
        let guard = Guard::new(raw.as_ptr() as usize, raw.len(), number)
            .ok_or_else(|| io::Error::other("SIGBUS can't be handled in this process"))?;
        Ok(Map { guard, raw, leaving: None })
    }

    /// The two little-endian words at byte `at`, a multiple of 16.
    ///
    /// Both are loaded atomically, so a concurrent 16-byte write gives old or new halves, nothing else.
    ///
    /// # Errors
    /// The file ends before them, or the mapping does.
    #[inline(always)]
    pub fn words(&self, at: u64) -> io::Result<[u64; 2]> {
        let at = usize::try_from(at).map_err(io::Error::other)?;
        if !at.is_multiple_of(16) || self.raw.len().checked_sub(16).is_none_or(|last| at > last) {
            return Err(cut());
        }
        // SAFETY: 16 bytes from `at` lie inside the mapping, which lives as long as `self`; a mapping starts at a
        // page boundary, so both words are aligned; files change under us, hence atomic loads. A fault is caught.
        let words = unsafe {
            let low = self.raw.as_ptr().add(at).cast::<AtomicU64>();
            [(*low).load(Ordering::Acquire), (*low.add(1)).load(Ordering::Acquire)]
        };
        if self.guard.is_broken() { Err(cut()) } else { Ok(words.map(u64::from_le)) }
    }

    /// Copies the bytes from `at` into `dst`.
    ///
    /// Between the end of a file and the end of its last page a mapping reads as zeros: the caller compares the
    /// file's size afterwards where that matters.
    ///
    /// # Errors
    /// The file ends before the page of the last byte, or the mapping does.
    #[inline]
    pub fn copy_to(&self, dst: &mut [u8], at: u64) -> io::Result<()> {
        let at = self.check(at, dst.len())?;
        // SAFETY: the source lies inside the mapping, which lives as long as `self`; `dst` is ours alone, so they
        // don't overlap. Other processes may write the source meanwhile: the bytes are plain data, and which of
        // them arrive does not matter for memory safety. A fault is caught.
        unsafe { self.raw.as_ptr().add(at).copy_to_nonoverlapping(dst.as_mut_ptr(), dst.len()) };
        if self.guard.is_broken() { Err(cut()) } else { Ok(()) }
    }

    /// Hands the two little-endian words at each of `places`, multiples of 16, to `take`, until it says `false`; returns
    /// whether it was all of them. As [`Map::words`], with one look at the mark behind all: what `take` saw counts only
    /// where this returns `true`.
    ///
    /// # Errors
    /// As for [`Map::words`].
    #[inline]
    pub fn each_words(
        &self,
        places: impl Iterator<Item = u64>,
        mut take: impl FnMut([u64; 2]) -> bool,
    ) -> io::Result<bool> {
        let last = self.raw.len().checked_sub(16).ok_or_else(cut)?;
        for at in places {
            let at = usize::try_from(at).map_err(io::Error::other)?;
            if !at.is_multiple_of(16) || at > last {
                return Err(cut());
            }
            // SAFETY: as in `words`.
            let words = unsafe {
                let low = self.raw.as_ptr().add(at).cast::<AtomicU64>();
                [(*low).load(Ordering::Acquire), (*low.add(1)).load(Ordering::Acquire)]
            };
            if !take(words.map(u64::from_le)) {
                return Ok(false);
            }
        }
        if self.guard.is_broken() { Err(cut()) } else { Ok(true) }
    }

    /// Copies `len` bytes from each of `offsets` to every `stride` bytes of `dst`, as [`Map::copy_to`] does.
    ///
    /// # Errors
    /// As for [`Map::copy_to`]; where `dst` has no room, or `stride` is less than `len`. What is in `dst` is unspecified
    /// then.
    #[inline]
    pub fn copy_each(&self, offsets: &[u32], len: usize, dst: &mut [u8], stride: usize) -> io::Result<()> {
        match len {
            4 => self.copy_each_of(offsets, 4, dst, stride),
            8 => self.copy_each_of(offsets, 8, dst, stride),
            len => self.copy_each_of(offsets, len, dst, stride),
        }
    }

    /// Inlined, so that a length known to the compiler is copied by one instruction.
    #[inline(always)]
    fn copy_each_of(&self, offsets: &[u32], len: usize, dst: &mut [u8], stride: usize) -> io::Result<()> {
        let room = || io::Error::new(io::ErrorKind::InvalidInput, "there is no room for a record");
        let last = self.raw.len().checked_sub(len).ok_or_else(cut)?;
        if dst.len().div_ceil(stride.max(1)) < offsets.len() {
            return Err(room());
        }
        for (slot, &offset) in dst.chunks_mut(stride.max(1)).zip(offsets) {
            let slot = slot.get_mut(..len).ok_or_else(room)?;
            if offset as usize > last {
                return Err(cut());
            }
            // SAFETY: as in `copy_to`: the source was just found to lie inside the mapping, the slot has `len` bytes.
            unsafe {
                self.raw.as_ptr().add(offset as usize).copy_to_nonoverlapping(slot.as_mut_ptr(), len);
            }
        }
        if self.guard.is_broken() { Err(cut()) } else { Ok(()) }
    }

    /// The mapped bytes themselves, for a system call that copies them (a reply to the kernel).
    ///
    /// The kernel reports a cut file as EFAULT instead of raising a signal. Nothing else may look at these bytes:
    /// they can change at any time.
    ///
    /// # Errors
    /// The mapping ends before them, or it is known to be cut.
    pub fn bytes(&self, at: u64, len: usize) -> io::Result<&[u8]> {
        let at = self.check(at, len)?;
        if self.guard.is_broken() {
            return Err(cut());
        }
        // SAFETY: the range lies inside the mapping, which lives as long as the borrow of `self`. That the bytes
        // may change while borrowed is the caller's to bear, as the documentation says: they go to a system call.
        Ok(unsafe { slice::from_raw_parts(self.raw.as_ptr().add(at), len) })
    }

    /// Asks the processor for the cache line at byte `at`, ahead of a read. Only a hint; never faults.
    #[inline(always)]
    pub fn prefetch(&self, at: u64) {
        #[cfg(target_arch = "x86_64")]
        if let Ok(at) = usize::try_from(at) {
            use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
            let address = self.raw.as_ptr().wrapping_add(at);
            // SAFETY: a prefetch reads nothing that the program sees, whatever the address.
            unsafe { _mm_prefetch::<_MM_HINT_T0>(address.cast::<i8>()) };
        }
        #[cfg(not(target_arch = "x86_64"))]
        let _ = at;
    }

    fn check(&self, at: u64, len: usize) -> io::Result<usize> {
        let at = usize::try_from(at).map_err(io::Error::other)?;
        match at.checked_add(len) {
            Some(end) if end <= self.raw.len() => Ok(at),
            _ => Err(cut()),
        }
    }
}

impl Drop for Map {
    fn drop(&mut self) {
        self.leaving = Some(gate::enter());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mapped(bytes: &[u8], len: u64) -> (File, Map) {
        let file = tempfile::tempfile().unwrap();
        std::os::unix::fs::FileExt::write_all_at(&file, bytes, 0).unwrap();
        let map = Map::new(&file, 0, len).unwrap();
        (file, map)
    }

    #[test]
    fn reads_within_the_file() {
        let bytes: Vec<u8> = (0..64).collect();
        let (_file, map) = mapped(&bytes, 1 << 20);
        assert_eq!(map.words(16).unwrap(), [0x1716_1514_1312_1110, 0x1f1e_1d1c_1b1a_1918]);
        let mut out = [0; 5];
        map.copy_to(&mut out, 7).unwrap();
        assert_eq!(out, [7, 8, 9, 10, 11]);
    }

    #[test]
    fn behind_the_end_is_an_error_not_a_signal() {
        let (_file, map) = mapped(&[1; 100], 1 << 20);
        // A copy that nobody looks at need not be made.
        let mut out = [0; 16];
        let copied = map.copy_to(&mut out, 500_000);
        std::hint::black_box(out);
        assert!(copied.is_err());
        let (_file, map) = mapped(&[1; 100], 1 << 20);
        assert!(map.words(8192).is_err());
        assert!(map.words((1 << 20) - 8).is_err());
        assert!(map.copy_to(&mut [0; 2], (1 << 20) - 1).is_err());
    }

    #[test]
    fn a_file_cut_under_many_readers_is_an_error_for_each() {
        let (file, map) = mapped(&[7; 1 << 20], 1 << 20);
        std::thread::scope(|scope| {
            let readers: Vec<_> = (0..4)
                .map(|_| {
                    scope.spawn(|| {
                        let mut out = [0; 4096];
                        loop {
                            for page in 0..256 {
                                match map.copy_to(&mut out, page * 4096) {
                                    Ok(()) => assert_eq!(out, [7; 4096], "zeros were handed out"),
                                    Err(_) => return,
                                }
                            }
                        }
                    })
                })
                .collect();
            file.set_len(0).unwrap();
            for reader in readers {
                reader.join().unwrap();
            }
        });
    }

    #[test]
    fn a_mapping_that_reuses_a_watch_starts_unbroken() {
        for _ in 0..3 {
            let (_file, map) = mapped(&[3; 64], 1 << 20);
            assert!(map.words(0).is_ok());
            assert!(map.words(8192).is_err());
            assert!(map.words(0).is_err(), "once broken, always an error");
        }
    }
}
