//! Appends that go on after they were interrupted.
//!
//! [`Appender::checkpoint`] makes durable what was appended so far and then notes how far that is, without touching the
//! header: nobody sees the records, and a store that is opened again is as it was before the append. [`Store::resume`]
//! goes on behind the last checkpoint, if nothing has come in between: every other append, and whoever takes the store
//! alone, first makes sure that there is no checkpoint any more. docs/FORMAT.md has the two files.

use std::io;
use std::path::Path;
use std::sync::Arc;

use super::append::Appender;
use super::place::Place;
use super::sidecars::{FOLDER, Sums};
use super::{Store, sync};
use crate::error::{Error, ErrorKind, Result};
use crate::format::{
    CHECKPOINT_SLOT, Checkpoint, Header, MARK_BYTES, MAX_NOTE, RecordLoc, Slot, checksum, checksum_on,
};
use crate::storage::{Access, Directory, StorageFile};

/// Names of the files in `.zrfs/`.
pub(super) const FILES: [&str; 2] = [MARKS, NOTED];
const NOTED: &str = "checkpoint";
const MARKS: &str = "marks";

/// Records at the beginning of an interrupted append that are held against their checksums.
const LOOKED_AT: usize = 64;

/// What an interrupted append has left.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interrupted {
    /// What the last checkpoint noted.
    pub note: Vec<u8>,
    /// The marks of the records that are done, from the first one of the append on.
    pub marks: Vec<u64>,
}

/// The files of an append that makes checkpoints.
pub(super) struct Noted {
    slots: Arc<dyn StorageFile>,
    marks: Arc<dyn StorageFile>,
    last: Checkpoint,
}

impl Appender<'_> {
    /// Makes durable what was appended so far, so that [`Store::resume`] can go on behind it if the append ends before
    /// its commit: dropped, killed, or cut off with the power. Other processes see none of it until the commit's sync.
    ///
    /// `note` is for the caller, at most 16,320 bytes. `marks` has one number for each record since the last
    /// checkpoint, by which the caller knows again what it was made of.
    ///
    /// Once a checkpoint names records, an appender that is dropped takes back only what came after it. One of no records
    /// serves as well, for an append that is killed; the appender that makes it takes it back, one that goes on behind it
    /// does not. Cost: that of a sync.
    ///
    /// # Errors
    /// [`ErrorKind::Geometry`] for another number of marks or a longer note; [`ErrorKind::Busy`] where earlier appends
    /// of this process were not synced. [`ErrorKind::Io`]: the appender takes nothing more then, and the last checkpoint
    /// is still good.
    pub fn checkpoint(&mut self, note: &[u8], marks: &[u64]) -> Result<()> {
        self.require_open()?;
        let records = self.after.length - self.kept.length;
        if marks.len() != records as usize {
            let text = format!(
                "{records} records were appended since the last checkpoint, {} have marks",
                marks.len()
            );
            return Err(Error::new(ErrorKind::Geometry, text));
        }
        if note.len() > MAX_NOTE {
            let text = format!("a checkpoint's note has at most {MAX_NOTE} bytes, this one {}", note.len());
            return Err(Error::new(ErrorKind::Geometry, text));
        }
        if self.writer.pending.is_some() {
            let text = format!("{} holds appends that were not synced", self.store.path.display());
            return Err(Error::new(ErrorKind::Busy, text).with_help("sync it before the append begins"));
        }
        let noted = self.note(note, marks);
        self.fail_if_failed(noted)
    }

    fn note(&mut self, note: &[u8], marks: &[u64]) -> Result<()> {
        sync::flush(self.store, &mut self.writer).inspect_err(|_| self.writer.failed = true)?;
        let noted = match &mut self.noted {
            Some(noted) => noted,
            none => none.insert(Noted::create(self.store, self.before)?),
        };
        noted.note(self.after, note, marks)?;
        self.kept = self.after;
        self.touched.clear();
        Ok(())
    }
}

impl Store {
    /// Goes on with the append that was interrupted after a checkpoint; `None` where there is none. The appender stands
    /// behind the records that the last checkpoint names: what came after it is to be appended again.
    ///
    /// Another append, delete, compact, repair or seal ends the possibility. Cost: reading the marks and the entries of
    /// the records that are done.
    ///
    /// # Errors
    /// As for [`Store::appender`]. [`ErrorKind::Damaged`] where the store is not any more as the append has left it:
    /// another program has changed it.
    pub fn resume(&self) -> Result<Option<(Appender<'_>, Interrupted)>> {
        self.require_write()?;
        let mut writer = self.writer();
        writer.require_sound(self)?;
        if writer.pending.is_some() {
            // Of an append since then.
            return Ok(None);
        }
        self.meta.lock_for_append()?;
        let mut ready = || {
            let header = self.meta.whole_header()?;
            // One that was committed may have been cut off before it could remove its checkpoint.
            let committed = |noted: &Noted| Ok(header != noted.last.before && !self.is_foreign(&header)?);
            let (noted, marks) = match Noted::open(self)? {
                Some((noted, marks)) if !committed(&noted)? => (noted, marks),
                _ => {
                    forget(self.dir.as_ref(), &self.path)?;
                    return Ok(None);
                }
            };
            self.check_interrupted(&noted.last, &header)?;
            writer.sidecars(self, &header)?;
            Ok(Some((noted, marks)))
        };
        match ready() {
            Ok(Some((noted, marks))) => {
                let interrupted = Interrupted { note: noted.last.note.clone(), marks };
                Ok(Some((Appender::resumed(self, writer, noted), interrupted)))
            }
            nothing => {
                self.meta.unlock_for_append();
                nothing.map(|_| None)
            }
        }
    }

    /// Whether another program has written `header`, which is the one on disk.
    fn is_foreign(&self, header: &Header) -> Result<bool> {
        Ok(Sums::open(self.dir.as_ref(), &self.path)?.is_none_or(|sums| sums.is_foreign(header)))
    }

    /// Checks that the records of a checkpoint are where they were.
    fn check_interrupted(&self, checkpoint: &Checkpoint, header: &Header) -> Result<()> {
        let changed = |what: &str| {
            let text = format!(
                "{}: an interrupted append can't be continued: {what}, as another program has changed the store since",
                self.path.display()
            );
            Error::new(ErrorKind::Damaged, text).with_help("append again from the start")
        };
        if *header != checkpoint.before {
            return Err(changed("the header is another one"));
        }
        self.meta.check_room(&checkpoint.after)?;
        let state = self.state();
        let mut place = Place::frontier(&checkpoint.before);
        let records = checkpoint.before.length..checkpoint.after.length;
        for index in records.clone() {
            let loc = RecordLoc::decode(self.meta.entry(index)?, checkpoint.after.version)
                .filter(|loc| Place::of(loc) == place.for_record(loc.phys_length))
                .ok_or_else(|| changed(&format!("record {index} is not where it was")))?;
            let chunk = state.chunks.get(self.dir.as_ref(), loc.chunk_id);
            chunk.and_then(|chunk| chunk.reaches(loc.end())).map_err(|e| match e.kind() {
                ErrorKind::Damaged => changed(&e.without_help()),
                _ => e,
            })?;
            place = Place::end_of(&loc);
        }
        if !records.is_empty() && place != Place::frontier(&checkpoint.after) {
            return Err(changed("it ends elsewhere"));
        }
        // Who appends begins at the frontier, and so writes over the first of these records.
        for index in records.clone().take(LOOKED_AT).chain(records.last()) {
            if !self.is_as_written(index, checkpoint)? {
                return Err(changed(&format!("record {index} is another one")));
            }
        }
        Ok(())
    }

    /// Whether a record of a checkpoint has the checksum that was written with it.
    fn is_as_written(&self, index: u32, checkpoint: &Checkpoint) -> Result<bool> {
        let Some(sums) = Sums::open(self.dir.as_ref(), &self.path)? else { return Ok(true) };
        let words = self.meta.entry(index)?;
        let Some(loc) = RecordLoc::decode(words, checkpoint.after.version) else { return Ok(false) };
        let mut bytes = Vec::new();
        super::resize(&mut bytes, loc.phys_length as usize)?;
        self.state().chunks.get(self.dir.as_ref(), loc.chunk_id)?.read(&mut bytes, loc.offset.into())?;
        Ok(matches!(sums.row(index)?, Slot::Row(row) if row.loc == words && row.sum == checksum(&bytes)))
    }
}

impl Noted {
    /// Makes the files, with nothing noted yet.
    fn create(store: &Store, before: Header) -> Result<Noted> {
        let failed = |e| Error::io(format!("can't make {}", shown(&store.path, NOTED)), e);
        let create = || -> io::Result<Noted> {
            let folder = store.dir.folder(FOLDER)?;
            let slots = folder.create(NOTED)?;
            let marks = match folder.open(MARKS, Access::Write) {
                Err(e) if e.kind() == io::ErrorKind::NotFound => folder.create(MARKS)?,
                // A power cut has left it.
                other => other?,
            };
            // A checkpoint on a full disk needs room for its marks only.
            slots.allocate(0, 2 * CHECKPOINT_SLOT as u64)?;
            folder.sync()?;
            let last = Checkpoint { sequence: 0, before, after: before, marks_sum: 0, note: Vec::new() };
            Ok(Noted { slots, marks, last })
        };
        create().map_err(failed)
    }

    /// Notes that all before `after` is on disk.
    fn note(&mut self, after: Header, note: &[u8], marks: &[u64]) -> Result<()> {
        let failed = |e| Error::io("can't write the checkpoint of an append".to_owned(), e);
        let bytes: Vec<u8> = marks.iter().flat_map(|mark| mark.to_le_bytes()).collect();
        let next = Checkpoint {
            sequence: self.last.sequence + 1,
            before: self.last.before,
            after,
            marks_sum: checksum_on(self.last.marks_sum, &bytes),
            note: note.to_vec(),
        };
        if !bytes.is_empty() {
            let at = u64::from(self.last.records()) * MARK_BYTES as u64;
            self.marks.write_at(&bytes, at).and_then(|()| self.marks.sync()).map_err(failed)?;
        }
        // The other slot stays as it is until this one is on disk.
        let written = self.slots.write_at(&next.to_bytes(), next.at()).and_then(|()| self.slots.sync());
        written.map_err(failed)?;
        self.last = next;
        Ok(())
    }

    /// The last checkpoint of the store, and its marks.
    fn open(store: &Store) -> Result<Option<(Noted, Vec<u64>)>> {
        let failed = |name: &str, e| Error::io(format!("can't read {}", shown(&store.path, name)), e);
        let open = |name| store.dir.folder(FOLDER).and_then(|folder| folder.open(name, Access::Write));
        let slots = match open(NOTED) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
            other => other.map_err(|e| failed(NOTED, e))?,
        };
        let mut bytes = vec![0; 2 * CHECKPOINT_SLOT];
        slots.read_at(&mut bytes, 0).map_err(|e| failed(NOTED, e))?;
        let last = bytes.chunks(CHECKPOINT_SLOT).filter_map(Checkpoint::parse);
        // None is whole where the first was being written.
        let Some(last) = last.max_by_key(|checkpoint| checkpoint.sequence) else { return Ok(None) };
        let file = match open(MARKS) {
            // Both were being removed.
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
            other => other.map_err(|e| failed(MARKS, e))?,
        };
        let mut bytes = Vec::new();
        super::resize(&mut bytes, last.records() as usize * MARK_BYTES)?;
        let n = file.read_at(&mut bytes, 0).map_err(|e| failed(MARKS, e))?;
        if n < bytes.len() || checksum(&bytes) != last.marks_sum {
            let text = format!("{} does not fit the checkpoint beside it", shown(&store.path, MARKS));
            return Err(Error::new(ErrorKind::Damaged, text).with_help("append again from the start"));
        }
        let (marks, _) = bytes.as_chunks();
        let marks = marks.iter().map(|mark| u64::from_le_bytes(*mark)).collect();
        Ok(Some((Noted { slots, marks: file, last }, marks)))
    }

    /// The header when the append began, and at its last checkpoint.
    pub(super) fn headers(&self) -> (Header, Header) {
        (self.last.before, self.last.after)
    }
}

/// Makes sure, also after a power cut, that no append is continued that was interrupted in the store in `dir` before.
pub(super) fn forget(dir: &dyn Directory, path: &Path) -> Result<()> {
    match dir.folder(FOLDER) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(()),
        folder => {
            let failed = |e| Error::io(format!("can't open {}", path.join(FOLDER).display()), e);
            forget_in(folder.map_err(failed)?.as_ref(), path)
        }
    }
}

/// As [`forget`], given the folder `.zrfs/`.
pub(super) fn forget_in(folder: &dyn Directory, path: &Path) -> Result<()> {
    let is_missing = |e: &io::Error| e.kind() == io::ErrorKind::NotFound;
    if folder.open(NOTED, Access::Read).is_err_and(|e| is_missing(&e)) {
        return Ok(());
    }
    for name in FILES {
        match folder.remove(name) {
            Err(e) if !is_missing(&e) => {
                return Err(Error::io(format!("can't remove {}", shown(path, name)), e));
            }
            _ => {}
        }
    }
    folder.sync().map_err(|e| Error::io(format!("can't sync {}", path.join(FOLDER).display()), e).of_sync())
}

fn shown(path: &Path, name: &str) -> String {
    path.join(FOLDER).join(name).display().to_string()
}
