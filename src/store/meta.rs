//! meta.zr: the header and the record table, read through one mapping.
//!
//! The mapping always has the full size, so a table that grows in the file grows in the mapping. Where the file
//! was cut while it is open, entries are read from the file instead, and those behind its end are errors.

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::read::AHEAD;
use super::state::Published;
use super::{locks, rows};
use crate::error::{Error, ErrorKind, Result};
use crate::format::{Fault, HEADER_BYTES, Header, META_BYTES, bytes_to_words, entry_at, words_to_bytes};
use crate::storage::{Access, Attributes, Directory, Map, StorageFile};

/// Name of the file.
pub(super) const NAME: &str = "meta.zr";

pub(super) struct Meta {
    pub(super) path: PathBuf,
    pub(super) file: Arc<dyn StorageFile>,
    /// `None` where the address space is limited; everything is read from the file then.
    map: Option<Map>,
}

impl Meta {
    /// Opens meta.zr of the store at `path`.
    pub(super) fn open(dir: &dyn Directory, path: &Path, access: Access) -> Result<Meta> {
        let file = match dir.open(NAME, access) {
            Ok(file) => file,
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => {
                return Err(Error::new(
                    ErrorKind::NotAStore,
                    format!("{} is not a store: it holds no meta.zr", path.display()),
                ));
            }
            Err(e) if e.kind() == std::io::ErrorKind::WouldBlock => {
                // Who changes the store holds a lease on the file.
                return Err(locks::busy(&path.join(NAME), "is being changed", &dir.openers(NAME)));
            }
            Err(e) => return Err(Error::io(format!("can't open {}", path.join(NAME).display()), e)),
        };
        let map = file.map(META_BYTES).ok();
        Ok(Meta { path: path.join(NAME), file, map })
    }

    /// The header, and the certainty that the table has every entry that it promises.
    pub(super) fn whole_header(&self) -> Result<Header> {
        let header = self.header()?;
        self.check_room(&header)?;
        Ok(header)
    }

    /// Checks that the table has every entry that `header` promises.
    pub(super) fn check_room(&self, header: &Header) -> Result<()> {
        header.check_room(self.len()?).map_err(|fault| self.fault(&fault))
    }

    /// The header, read from the file and checked.
    pub(super) fn header(&self) -> Result<Header> {
        Header::parse(&self.header_bytes()?).map_err(|fault| self.fault(&fault))
    }

    /// The header, and whether a step has not finished.
    pub(super) fn any_header(&self) -> Result<(Header, bool)> {
        Header::parse_any(&self.header_bytes()?).map_err(|fault| self.fault(&fault))
    }

    /// The header's bytes, whatever they are.
    pub(super) fn header_bytes(&self) -> Result<[u8; HEADER_BYTES]> {
        let mut bytes = [0; HEADER_BYTES];
        let n = self.file.read_at(&mut bytes, 0).map_err(|e| self.io("read", e))?;
        if n < HEADER_BYTES {
            if self.is_gone_by_fork() {
                return Err(self.gone_by_fork());
            }
            return Err(Error::new(
                ErrorKind::NotAStore,
                format!(
                    "{} is not a store's: it has {n} bytes, a header has {HEADER_BYTES}",
                    self.path.display()
                ),
            ));
        }
        Ok(bytes)
    }

    fn fault(&self, fault: &Fault) -> Error {
        let kind = match fault.field {
            "magic" => ErrorKind::NotAStore,
            "version" => ErrorKind::Version,
            _ => ErrorKind::Damaged,
        };
        let e = Error::new(kind, format!("{}: the header's {fault}", self.path.display()));
        match kind {
            ErrorKind::Version => e,
            _ => e.with_help("if this is a store whose header was damaged, `zrfs repair` finds it again"),
        }
    }

    fn len(&self) -> Result<u64> {
        Ok(self.attributes()?.len)
    }

    /// How many whole entries the file has room for.
    pub(super) fn entries_there(&self) -> Result<u32> {
        let entries = self.len()?.saturating_sub(HEADER_BYTES as u64) / HEADER_BYTES as u64;
        Ok(u32::try_from(entries).unwrap_or(u32::MAX))
    }

    /// Checks that the file still reaches behind entry `index`. Call it after reading entries: those of a file that was
    /// cut read as zeros to the end of its last page, and some zeros are sound.
    pub(super) fn still_reaches(&self, index: u32) -> Result<()> {
        if self.len()? >= entry_at(index.saturating_add(1)) { Ok(()) } else { Err(self.lost(index)) }
    }

    #[cold]
    fn lost(&self, index: u32) -> Error {
        if self.is_gone_by_fork() {
            return self.gone_by_fork();
        }
        let text = format!("record {index} is lost: {} ends before its entry", self.path.display());
        Error::new(ErrorKind::Damaged, text)
    }

    /// Whether this process was forked while its parent changed the store alone. It has an empty file then, in the place of
    /// one with its parent's lease.
    fn is_gone_by_fork(&self) -> bool {
        self.is_inherited() && self.len().is_ok_and(|len| len == 0)
    }

    #[cold]
    fn gone_by_fork(&self) -> Error {
        let text =
            format!("{} was being changed when this process was forked from another", self.path.display());
        Error::new(ErrorKind::Busy, text).with_help("open the store again in this process")
    }

    /// The header, where it is sound and its version or length differ from what `published` holds.
    pub(super) fn changed_header(&self, published: Published) -> Option<Header> {
        let seen = match &self.map {
            Some(map) => map.words(0).ok().map(Published::of_words),
            None => None,
        };
        // A mapped look costs nanoseconds; only a change is worth the system calls of a full check.
        if seen == Some(published) {
            return None;
        }
        self.whole_header().ok().filter(|header| Published::new(header) != published)
    }

    /// The two words of entry `index`, which the caller has checked against the length.
    #[inline(always)]
    pub(super) fn entry(&self, index: u32) -> Result<[u64; 2]> {
        match self.map.as_ref().map(|map| map.words(entry_at(index))) {
            Some(Ok(words)) => Ok(words),
            _ => self.entry_from_file(index),
        }
    }

    /// Hands the words of each entry to `take`, until it says `false` or one can't be had from the mapping; `true` where it
    /// was all of them. What `take` saw counts only then.
    #[inline]
    pub(super) fn each_entry(&self, indices: &[u64], take: impl FnMut([u64; 2]) -> bool) -> bool {
        let Some(map) = &self.map else { return false };
        let places = indices.iter().enumerate().map(|(i, &index)| {
            if let Some(&ahead) = indices.get(i + AHEAD) {
                self.prefetch(ahead);
            }
            HEADER_BYTES as u64 * index.saturating_add(1)
        });
        map.each_words(places, take).unwrap_or(false)
    }

    /// Asks the processor for entry `index`, ahead of [`Meta::entry`].
    #[inline(always)]
    pub(super) fn prefetch(&self, index: u64) {
        if let Some(map) = &self.map {
            map.prefetch((HEADER_BYTES as u64).saturating_mul(index.saturating_add(1)));
        }
    }

    #[cold]
    fn entry_from_file(&self, index: u32) -> Result<[u64; 2]> {
        let mut bytes = [0; HEADER_BYTES];
        let n = self.file.read_at(&mut bytes, entry_at(index)).map_err(|e| self.io("read", e))?;
        if n < HEADER_BYTES {
            return Err(self.lost(index));
        }
        Ok(bytes_to_words(&bytes))
    }

    /// Gives a trimmed file its full size.
    pub(super) fn make_room(&self) -> Result<()> {
        if self.len()? < META_BYTES { self.set_len(META_BYTES) } else { Ok(()) }
    }

    /// Writes entries from `first` on.
    pub(super) fn write_entries(&self, first: u32, bytes: &[u8]) -> Result<()> {
        self.file.write_at(bytes, entry_at(first)).map_err(|e| self.io("write", e))
    }

    /// Writes entries at their places, in ascending order.
    pub(super) fn write_scattered(&self, entries: &[(u32, [u64; 2])]) -> Result<()> {
        let rows: Vec<_> = entries.iter().map(|&(index, words)| (index, words_to_bytes(words))).collect();
        rows::write_scattered(self.file.as_ref(), entry_at(0), &rows).map_err(|e| self.io("write", e))
    }

    /// Makes entries hold nothing, and gives their disk back. They must mean nothing already.
    pub(super) fn clear_entries(&self, range: Range<u32>) -> Result<()> {
        let (start, end) = (entry_at(range.start), entry_at(range.end));
        self.file.free(start, end - start).map_err(|e| self.io("free space in", e))
    }

    /// Cuts or extends the file.
    pub(super) fn set_len(&self, len: u64) -> Result<()> {
        self.file.set_len(len).map_err(|e| self.io("resize", e))
    }

    /// Writes the header.
    pub(super) fn write_header(&self, header: &Header) -> Result<()> {
        self.file.write_at(&header.to_bytes(), 0).map_err(|e| self.io("write", e))
    }

    /// Writes the header as it is while a step runs.
    pub(super) fn write_marked_header(&self, header: &Header) -> Result<()> {
        self.file.write_at(&header.to_marked_bytes(), 0).map_err(|e| self.io("write", e))
    }

    /// Makes table and header durable.
    pub(super) fn sync(&self) -> Result<()> {
        self.file.sync().map_err(|e| self.io("sync", e).of_sync())
    }

    /// Size, allocation and time of change of the file.
    pub(super) fn attributes(&self) -> Result<Attributes> {
        self.file.attributes().map_err(|e| self.io("read", e))
    }

    /// Whether this process is a fork of the one that opened the file.
    pub(super) fn is_inherited(&self) -> bool {
        self.file.is_inherited()
    }

    fn io(&self, verb: &str, e: std::io::Error) -> Error {
        Error::io(format!("can't {verb} {}", self.path.display()), e)
    }
}
