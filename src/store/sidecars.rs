//! The folder `.zrfs/`: checksums and the journal. Made by the first append of zrfs; readers make nothing.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use super::names::NameFiles;
use super::{checkpoint, rows};
use crate::error::{Error, Result};
use crate::format::{
    HEADER_BYTES, Header, JOURNAL_HEADER_BYTES, Journal, ROW_BYTES, Row, SUMS_HEADER_BYTES, Slot, SumsHeader,
    left_at, row_at, stamp_unit,
};
use crate::storage::{Access, Directory, StorageFile};

/// Name of the folder.
pub(super) const FOLDER: &str = ".zrfs";
const SUMS: &str = "checksums";
const JOURNAL: &str = "journal";

/// Disk that the journal keeps for a compaction on a full disk, in bytes.
pub(super) const SPARE: u64 = 64 << 10;
/// Room for the paths of aligned stores, in bytes.
const PATHS: u64 = 4 << 10;
const BLOCK: u64 = 4 << 10;
/// Rows that are looked at together.
const ROWS_A_BLOCK: u32 = 1 << 14;
/// Times of two files that zrfs wrote together are closer than this, in nanoseconds.
const TOGETHER: u64 = 2_000_000_000;

/// What zrfs keeps beside the store's own files.
pub(super) struct Sidecars {
    pub(super) folder: Box<dyn Directory>,
    pub(super) path: PathBuf,
    /// `None` where the file is of a later format.
    pub(super) sums: Option<Sums>,
    pub(super) journal: JournalFile,
    /// `None` where no record was ever named.
    pub(super) names: Option<NameFiles>,
    /// Whether files were created since the last sync.
    pub(super) created: bool,
}

impl Sidecars {
    /// Opens the folder for writing; creates what is missing. `header` is what meta.zr holds.
    pub(super) fn open(dir: &dyn Directory, path: &Path, header: &Header) -> Result<Sidecars> {
        let path = path.join(FOLDER);
        let failed = |name: &str, e| Error::io(format!("can't open {}", path.join(name).display()), e);
        let folder = dir.make_folder(FOLDER).map_err(|e| failed("", e))?;
        let mut created = false;
        let mut open = |name: &str| match folder.open(name, Access::Write) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => {
                created = true;
                folder.create(name).map_err(|e| failed(name, e))
            }
            other => other.map_err(|e| failed(name, e)),
        };
        let journal = JournalFile { file: open(JOURNAL)?, path: path.join(JOURNAL) };
        let sums = Sums::adopt(open(SUMS)?, path.join(SUMS), header)?;
        if sums.is_none() {
            log::warn!("{} is of another release: no checksums are written", path.join(SUMS).display());
        }
        Ok(Sidecars { folder, path, sums, journal, names: None, created })
    }

    /// Opens the names, or looks at them again: another process may have given some. `header` is what meta.zr holds.
    pub(super) fn look_for_names(&mut self, header: &Header) -> Result<()> {
        match &mut self.names {
            // Without checksums nothing tells which record was named.
            _ if self.sums.is_none() => {}
            Some(names) => names.reload(self.folder.as_ref(), header)?,
            none => *none = NameFiles::open(self.folder.as_ref(), &self.path, header)?,
        }
        Ok(())
    }

    /// Makes the files durable, and the folder where files came to it.
    pub(super) fn sync(&mut self) -> Result<()> {
        if let Some(sums) = &self.sums {
            sums.sync()?;
        }
        if let Some(names) = &mut self.names {
            names.sync()?;
        }
        if self.created {
            self.folder
                .sync()
                .map_err(|e| Error::io(format!("can't sync the folder {FOLDER}"), e).of_sync())?;
            self.created = false;
        }
        Ok(())
    }
}

fn nanos(time: SystemTime) -> u64 {
    let since = time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}

/// The file of checksums.
pub(super) struct Sums {
    file: Arc<dyn StorageFile>,
    path: PathBuf,
    pub(super) header: SumsHeader,
    /// Which of the two headers is known to be on disk as it is here.
    durable: Option<usize>,
}

impl Sums {
    /// Opens the checksums of the store in `dir` for reading; `None` where there are none that this release reads.
    pub(super) fn open(dir: &dyn Directory, path: &Path) -> Result<Option<Sums>> {
        let path = path.join(FOLDER).join(SUMS);
        let failed = |e| Error::io(format!("can't read {}", path.display()), e);
        let file = match dir.folder(FOLDER).and_then(|folder| folder.open(SUMS, Access::Read)) {
            Ok(file) => file,
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(e) => return Err(failed(e)),
        };
        let mut bytes = [0; SUMS_HEADER_BYTES];
        file.read_at(&mut bytes, 0).map_err(failed)?;
        Ok(SumsHeader::parse(&bytes).map(|header| Sums { file, path, header, durable: None }))
    }

    /// Disk and apparent size of all files of the folder, in bytes.
    pub(super) fn sizes(dir: &dyn Directory) -> (u64, u64) {
        let Ok(folder) = dir.folder(FOLDER) else { return (0, 0) };
        let files = [SUMS, JOURNAL]
            .into_iter()
            .chain(checkpoint::FILES)
            .filter_map(|name| folder.open(name, Access::Read).ok());
        let sizes = files.filter_map(|file| file.attributes().ok());
        let names = NameFiles::sizes(folder.as_ref());
        sizes.fold(names, |(disk, all), file| (disk + file.allocated, all + file.len))
    }

    /// Whether there is a file that holds something, read or not.
    pub(super) fn is_there(dir: &dyn Directory) -> bool {
        let file = dir.folder(FOLDER).and_then(|folder| folder.open(SUMS, Access::Read));
        file.and_then(|file| file.attributes()).is_ok_and(|attributes| attributes.len > 0)
    }

    /// Takes the file for writing, where meta.zr holds `disk`.
    fn adopt(file: Arc<dyn StorageFile>, path: PathBuf, disk: &Header) -> Result<Option<Sums>> {
        let mut bytes = [0; SUMS_HEADER_BYTES];
        file.read_at(&mut bytes, 0).map_err(|e| Error::io(format!("can't read {}", path.display()), e))?;
        let (header, is_new) = match SumsHeader::parse(&bytes) {
            Some(header) => (header, false),
            None if bytes == [0; SUMS_HEADER_BYTES] => (SumsHeader::default(), true),
            None => return Ok(None),
        };
        let mut sums = Sums { file, path, header, durable: None };
        if is_new {
            sums.accept(disk)?;
        }
        Ok(Some(sums))
    }

    /// Looks at the header again: another process of zrfs may have changed the store meanwhile.
    pub(super) fn reload(&mut self) -> Result<()> {
        let mut bytes = [0; SUMS_HEADER_BYTES];
        self.file.read_at(&mut bytes, 0).map_err(|e| self.io("read", e))?;
        match SumsHeader::parse(&bytes) {
            Some(header) if header != self.header => (self.header, self.durable) = (header, None),
            _ => {}
        }
        Ok(())
    }

    /// Whether another program has changed the store since zrfs wrote it, where meta.zr holds `disk` now.
    pub(super) fn is_foreign(&self, disk: &Header) -> bool {
        !self.header.left.contains(&Some(disk.to_bytes()))
    }

    /// Takes `disk` for what zrfs has left in meta.zr.
    pub(super) fn accept(&mut self, disk: &Header) -> Result<()> {
        let disk = disk.to_bytes();
        self.header = SumsHeader { left: [Some(disk), None], stamp: None };
        self.durable = None;
        let mut bytes = SumsHeader::FIRST_UNIT.to_vec();
        bytes.extend_from_slice(&SumsHeader::left_unit(disk));
        bytes.resize(SUMS_HEADER_BYTES, 0);
        self.file.write_at(&bytes, 0).map_err(|e| self.io("write", e))
    }

    /// Notes what zrfs has left in meta.zr, and when. Losing it does no harm.
    pub(super) fn stamp(&mut self, disk: [u8; HEADER_BYTES], changed: SystemTime) -> Result<()> {
        let header = SumsHeader { left: [Some(disk); 2], stamp: Some(nanos(changed)) };
        if self.header == header {
            return Ok(());
        }
        self.header = header;
        let left = SumsHeader::left_unit(disk);
        let units = [left, left, stamp_unit(nanos(changed))].concat();
        self.file.write_at(&units, left_at(0)).map_err(|e| self.io("write", e))
    }

    /// Whether meta.zr, last changed then, was changed in its place after zrfs had done so. Of a copy, whose files have
    /// other times, nothing is known.
    pub(super) fn is_older_than(&self, changed: SystemTime) -> Result<bool> {
        let Some(stamp) = self.header.stamp else { return Ok(false) };
        let own = nanos(self.file.attributes().map_err(|e| self.io("read", e))?.modified);
        Ok(nanos(changed) != stamp && own.abs_diff(stamp) < TOGETHER)
    }

    /// Whether meta.zr, last changed then, was not written since zrfs had done so.
    pub(super) fn is_as_new_as(&self, changed: SystemTime) -> bool {
        self.header.stamp == Some(nanos(changed))
    }

    /// Notes that meta.zr holds `disk` and is about to get `next`. Only one unit changes, and not the one that is right
    /// now. The caller syncs before it writes `next`.
    pub(super) fn announce(&mut self, disk: [u8; HEADER_BYTES], next: [u8; HEADER_BYTES]) -> Result<()> {
        if self.header.left.contains(&Some(next)) {
            return Ok(());
        }
        let holds = |which: usize| self.header.left.get(which) == Some(&Some(disk));
        let kept = match self.durable.filter(|&which| holds(which)) {
            Some(which) => which,
            None => {
                // What was noted last may not be on disk, and then the older one is all that is right there.
                self.sync()?;
                usize::from(!holds(0))
            }
        };
        let which = 1 - kept;
        self.durable = Some(which);
        if let Some(left) = self.header.left.get_mut(which) {
            *left = Some(next);
        }
        let unit = SumsHeader::left_unit(next);
        self.file.write_at(&unit, left_at(which)).map_err(|e| self.io("write", e))
    }

    /// Writes rows from `first` on, given as their bytes.
    pub(super) fn write(&self, first: u32, rows: &[u8]) -> Result<()> {
        self.file.write_at(rows, row_at(first)).map_err(|e| self.io("write", e))
    }

    /// Writes rows at their places.
    pub(super) fn write_rows(&self, rows: &[rows::Indexed<ROW_BYTES>]) -> Result<()> {
        rows::write_scattered(self.file.as_ref(), row_at(0), rows).map_err(|e| self.io("write", e))
    }

    /// As [`Sums::write_rows`], also on a full disk: what can't be written where no row ever was says nothing then.
    pub(super) fn replace_rows(&self, rows: &[rows::Indexed<ROW_BYTES>]) -> Result<()> {
        match self.write_rows(rows) {
            Err(e) if matches!(e.raw_os_error(), Some(libc::ENOSPC | libc::EDQUOT)) => {}
            other => return other,
        }
        // A file with holes: what is there takes no more disk to write over, row by row.
        let old = self.read_rows(rows.iter().map(|&(index, _)| index))?;
        for ((index, row), old) in rows.iter().zip(old) {
            if *row == old {
                continue;
            }
            let written = self.write(*index, row);
            if old != [0; ROW_BYTES] {
                written?;
            }
        }
        Ok(())
    }

    /// The bytes of rows, by ascending index; zeros where none was written.
    pub(super) fn read_rows(&self, indices: impl Iterator<Item = u32>) -> Result<Vec<[u8; ROW_BYTES]>> {
        rows::read_scattered(self.file.as_ref(), row_at(0), indices).map_err(|e| self.io("read", e))
    }

    /// The rows of the first `most` records, as far as the file has room for them, block by block with their indices.
    pub(super) fn blocks(&self, most: u32) -> Result<impl Iterator<Item = Result<Vec<(u32, Slot)>>>> {
        let known = most.min(self.rows()?);
        Ok((0..known).step_by(ROWS_A_BLOCK as usize).map(move |first| {
            let indices = first..known.min(first.saturating_add(ROWS_A_BLOCK));
            let rows = self.read_rows(indices.clone())?;
            Ok(indices.zip(rows.iter().map(Row::parse)).collect())
        }))
    }

    /// The row of one record.
    pub(super) fn row(&self, index: u32) -> Result<Slot> {
        let mut bytes = [0; ROW_BYTES];
        self.file.read_at(&mut bytes, row_at(index)).map_err(|e| self.io("read", e))?;
        Ok(Row::parse(&bytes))
    }

    /// The file itself, for whom reads many rows one by one.
    pub(super) fn file(&self) -> &Arc<dyn StorageFile> {
        &self.file
    }

    /// How many records the file has room for.
    pub(super) fn rows(&self) -> Result<u32> {
        let len = self.file.attributes().map_err(|e| self.io("read", e))?.len;
        let rows = len.saturating_sub(SUMS_HEADER_BYTES as u64) / ROW_BYTES as u64;
        Ok(u32::try_from(rows).unwrap_or(u32::MAX))
    }

    /// Cuts the file behind `length` rows.
    pub(super) fn cut(&self, length: u32) -> Result<()> {
        let len = self.file.attributes().map_err(|e| self.io("read", e))?.len;
        if len > row_at(length) {
            self.file.set_len(row_at(length)).map_err(|e| self.io("cut", e))
        } else {
            Ok(())
        }
    }

    pub(super) fn sync(&self) -> Result<()> {
        self.file.sync().map_err(|e| self.io("sync", e).of_sync())
    }

    fn io(&self, verb: &str, e: io::Error) -> Error {
        Error::io(format!("can't {verb} {}", self.path.display()), e)
    }
}

/// The file of the journal. It is as long as the largest journal that may be needed, and more, so that a full disk can
/// still delete and compact.
pub(super) struct JournalFile {
    file: Arc<dyn StorageFile>,
    path: PathBuf,
}

impl JournalFile {
    /// Disk that a delete from a store of `length` records may need, in bytes.
    fn room(length: u32) -> u64 {
        (JOURNAL_HEADER_BYTES as u64 + PATHS + u64::from(length) / 8).next_multiple_of(BLOCK)
    }

    /// Takes disk for what a store of `length` records may need.
    pub(super) fn reserve(&self, length: u32) -> Result<()> {
        // A copy may have lost the disk and kept the size.
        let has = self.file.attributes().map_err(|e| self.io("read", e))?;
        let needs = JournalFile::room(length) + SPARE;
        if has.len >= needs && has.allocated >= needs {
            return Ok(());
        }
        self.file.allocate(0, needs).map_err(|e| self.io("take disk for", e))
    }

    /// Gives the disk back that is kept for compactions.
    pub(super) fn release_spare(&self, length: u32) -> Result<()> {
        let keeps = JournalFile::room(length);
        if self.len()? > keeps { self.file.set_len(keeps).map_err(|e| self.io("cut", e)) } else { Ok(()) }
    }

    /// Writes a journal and makes it durable.
    pub(super) fn write(&self, journal: &Journal) -> Result<()> {
        let bytes = journal.to_bytes();
        self.file.write_at(&bytes, 0).map_err(|e| self.io("write", e))?;
        self.file.sync().map_err(|e| self.io("sync", e).of_sync())
    }

    /// Makes the file hold no journal.
    pub(super) fn clear(&self) -> Result<()> {
        self.file.write_at(&[0; JOURNAL_HEADER_BYTES], 0).map_err(|e| self.io("write", e))
    }

    /// The journal of the store in `dir`; `None` where it holds none that is whole.
    pub(super) fn read(dir: &dyn Directory) -> Option<Journal> {
        let file = dir.folder(FOLDER).ok()?.open(JOURNAL, Access::Read).ok()?;
        let mut header = [0; JOURNAL_HEADER_BYTES];
        file.read_at(&mut header, 0).ok()?;
        let mut body = vec![0; Journal::body_bytes(&header)? as usize];
        file.read_at(&mut body, JOURNAL_HEADER_BYTES as u64).ok()?;
        Journal::parse(&header, &body)
    }

    fn len(&self) -> Result<u64> {
        Ok(self.file.attributes().map_err(|e| self.io("read", e))?.len)
    }

    fn io(&self, verb: &str, e: io::Error) -> Error {
        Error::io(format!("can't {verb} {}", self.path.display()), e)
    }
}
