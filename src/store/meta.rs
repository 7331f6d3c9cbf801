//! meta.zr: the header and the record table, read through one mapping.
//!
//! The mapping always has the full size, so a table that grows in the file grows in the mapping. Where the file
//! was cut while it is open, entries are read from the file instead, and those behind its end are errors.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use crate::error::{Error, ErrorKind, Result};
use crate::format::{Fault, HEADER_BYTES, Header, META_BYTES, entry_at};
use crate::storage::{Access, Directory, Lock, Map, StorageFile};

/// Name of the file.
pub(super) const NAME: &str = "meta.zr";

/// The byte of meta.zr whose lock an appender holds. Far behind the end, so that it never is a byte of the table.
const APPEND_LOCK: u64 = 1 << 62;

pub(super) struct Meta {
    path: PathBuf,
    file: Arc<dyn StorageFile>,
    /// `None` where the address space is limited; everything is read from the file then.
    map: Option<Map>,
}

impl Meta {
    /// Opens meta.zr of the store at `path` and checks its header.
    pub(super) fn open(dir: &dyn Directory, path: &Path, access: Access) -> Result<(Meta, Header)> {
        let file = dir.open(NAME, access).map_err(|e| match e.kind() {
            std::io::ErrorKind::NotFound => Error::new(
                ErrorKind::NotAStore,
                format!("{} is not a store: it holds no meta.zr", path.display()),
            ),
            _ => Error::io(format!("can't open {}", path.join(NAME).display()), e),
        })?;
        let map = file.map(META_BYTES).ok();
        let meta = Meta { path: path.join(NAME), file, map };
        // A reader goes on with what a cut table still has.
        let header = match access {
            Access::Read => meta.header()?,
            Access::Write => meta.whole_header()?,
        };
        Ok((meta, header))
    }

    /// The header, and the certainty that the table has every entry that it promises.
    pub(super) fn whole_header(&self) -> Result<Header> {
        let header = self.header()?;
        header.check_room(self.len()?).map_err(|fault| self.fault(&fault))?;
        Ok(header)
    }

    /// The header, read from the file and checked.
    pub(super) fn header(&self) -> Result<Header> {
        let mut bytes = [0; HEADER_BYTES];
        let n = self.file.read_at(&mut bytes, 0).map_err(|e| self.io("read", e))?;
        if n < HEADER_BYTES {
            return Err(Error::new(
                ErrorKind::NotAStore,
                format!(
                    "{} is not a store's: it has {n} bytes, a header has {HEADER_BYTES}",
                    self.path.display()
                ),
            ));
        }
        Header::parse(&bytes).map_err(|fault| self.fault(&fault))
    }

    fn fault(&self, fault: &Fault) -> Error {
        let kind = match fault.field {
            "magic" => ErrorKind::NotAStore,
            "version" => ErrorKind::Version,
            _ => ErrorKind::Damaged,
        };
        Error::new(kind, format!("{}: the header's {fault}", self.path.display()))
    }

    fn len(&self) -> Result<u64> {
        Ok(self.file.attributes().map_err(|e| self.io("read", e))?.len)
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
        let text = format!("record {index} is lost: {} ends before its entry", self.path.display());
        Error::new(ErrorKind::Damaged, text)
    }

    /// The header, where it is sound and its version or length differ from what `published` holds.
    pub(super) fn changed_header(&self, published: u64) -> Option<Header> {
        let seen = match &self.map {
            Some(map) => map.words(0).ok().map(|[low, high]| (low & 0xffff_0000_0000) | high >> 32),
            None => None,
        };
        // A mapped look costs nanoseconds; only a change is worth the system calls of a full check.
        if seen == Some(published) {
            return None;
        }
        self.whole_header().ok().filter(|header| super::publish(header) != published)
    }

    /// The two words of entry `index`, which the caller has checked against the length.
    #[inline(always)]
    pub(super) fn entry(&self, index: u32) -> Result<[u64; 2]> {
        match self.map.as_ref().map(|map| map.words(entry_at(index))) {
            Some(Ok(words)) => Ok(words),
            _ => self.entry_from_file(index),
        }
    }

    /// Asks the processor for entry `index`, ahead of [`Meta::entry`].
    #[inline(always)]
    pub(super) fn prefetch(&self, index: u64) {
        if let Some(map) = &self.map {
            map.prefetch(HEADER_BYTES as u64 + index.saturating_mul(HEADER_BYTES as u64));
        }
    }

    #[cold]
    fn entry_from_file(&self, index: u32) -> Result<[u64; 2]> {
        let mut bytes = [0; HEADER_BYTES];
        let n = self.file.read_at(&mut bytes, entry_at(index)).map_err(|e| self.io("read", e))?;
        if n < HEADER_BYTES {
            return Err(self.lost(index));
        }
        let (low, high) = bytes.split_at(HEADER_BYTES / 2);
        let word = |half: &[u8]| half.iter().rev().fold(0, |word, &byte| word << 8 | u64::from(byte));
        Ok([word(low), word(high)])
    }

    /// Writes entries from `first` on; makes room in a trimmed file first.
    pub(super) fn write_entries(&self, first: u32, bytes: &[u8]) -> Result<()> {
        if self.len()? < META_BYTES {
            self.file.set_len(META_BYTES).map_err(|e| self.io("grow", e))?;
        }
        self.file.write_at(bytes, entry_at(first)).map_err(|e| self.io("write", e))
    }

    /// Writes the header.
    pub(super) fn write_header(&self, header: &Header) -> Result<()> {
        self.file.write_at(&header.to_bytes(), 0).map_err(|e| self.io("write", e))
    }

    /// Makes table and header durable.
    pub(super) fn sync(&self) -> Result<()> {
        self.file.sync().map_err(|e| self.io("sync", e))
    }

    pub(super) fn modified(&self) -> Result<SystemTime> {
        Ok(self.file.attributes().map_err(|e| self.io("read", e))?.modified)
    }

    pub(super) fn allocated(&self) -> Result<u64> {
        Ok(self.file.attributes().map_err(|e| self.io("read", e))?.allocated)
    }

    /// Takes the appenders' lock, or says who is in the way.
    pub(super) fn lock_for_append(&self) -> Result<()> {
        match self.file.lock(APPEND_LOCK, Lock::Exclusive) {
            Ok(true) => Ok(()),
            Ok(false) => Err(Error::new(
                ErrorKind::Busy,
                format!("{} is being appended to by another process", self.path.display()),
            )
            .with_help("try again when it is done")),
            Err(e) => Err(self.io("lock", e)),
        }
    }

    /// Gives the appenders' lock back.
    pub(super) fn unlock(&self) {
        if let Err(e) = self.file.unlock(APPEND_LOCK) {
            log::warn!("can't unlock {}: {e}", self.path.display());
        }
    }

    fn io(&self, verb: &str, e: std::io::Error) -> Error {
        Error::io(format!("can't {verb} {}", self.path.display()), e)
    }
}
