//! Repairing: a store that is damaged becomes a good one with every record that is good.
//!
//! Nothing good is at risk at any moment: a header and an entry are each replaced by one aligned write, from a value that
//! was found wrong to one that was found right, and what the header said is kept. Then the records that stay bad are set
//! aside and deleted, by the same step as any others (see `delete`).

use std::io;
use std::path::{Path, PathBuf};

use super::delete::{Move, delete_held, is_set};
use super::locks::Alone;
use super::place::Place;
use super::sidecars::{self, Sidecars, Sums};
use super::verify::{BadRecord, Diagnosis, Progress};
use super::{Store, chunks, history, meta, open_folder};
use crate::error::{Error, ErrorKind, Result};
use crate::format::{HEADER_BYTES, Header, META_BYTES, RecordLoc, Slot, Version, words_to_bytes};
use crate::storage::{Access, Directory};

/// The list of what a repair took out.
const LOST: &str = "lost.tsv";
/// Bytes of it that are written at a time.
const PIECE: usize = 64 << 10;

/// What a repair did.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Repair {
    /// Records of the store as it is now.
    pub records: u64,
    /// What was wrong with the header or the files, and is mended.
    pub faults: Vec<String>,
    /// Records whose entry was wrong and is mended.
    pub mended: u64,
    /// Records that were bad and are gone from the store.
    pub lost: u64,
    /// The first 100,000 of them, by the index that they had.
    pub bad: Vec<BadRecord>,
    /// Where the header as it was and what can be read of the lost records is kept; `None` where nothing was.
    pub set_aside: Option<PathBuf>,
    /// The records that have another index now, since the last ones moved into the holes.
    pub moves: Vec<Move>,
}

impl Store {
    /// Keeps every record of the store at `path` that is good, and takes the bad ones out; see [`Store::verify`] for
    /// what is bad. What can be read of those goes to a new folder `.zrfs/set-aside-N` in the store, one file for each
    /// index. A header that was lost is found again from the checksum file, or from the table.
    ///
    /// Cost: that of verifying, and of deleting. A store that is good is left as it is.
    ///
    /// # Errors
    /// As for [`Store::verify`] and [`Store::delete`].
    pub fn repair(path: impl AsRef<Path>, progress: impl Fn(Progress) + Sync) -> Result<Repair> {
        Store::repair_in(Box::new(open_folder(path.as_ref())?), path.as_ref(), &progress)
    }

    /// As [`Store::repair`], for the store in `dir`, which `path` names in messages.
    pub(crate) fn repair_in(
        dir: Box<dyn Directory>,
        path: &Path,
        progress: &(dyn Fn(Progress) + Sync),
    ) -> Result<Repair> {
        let (store, fault) = Store::open_damaged_in(dir, path, Access::Write)?;
        let mut done = Repair { faults: fault.iter().cloned().collect(), ..Repair::default() };
        let mut aside = Aside { store: &store, folder: None };
        let mut alone = store.alone()?;
        let doomed = {
            if store.meta.entries_there()? < store.state().header().length {
                done.faults.push(format!("{} ended before its last entry", store.meta.path.display()));
                store.meta.set_len(META_BYTES)?;
            }
            let seen = store.meta.header_bytes().ok();
            let header = store.state().header();
            let is_behind =
                matches!(store.frontier_in_chunk(&header), Err(e) if e.kind() == ErrorKind::Damaged);
            if fault.is_some() || is_behind {
                // Nothing else tells where the frontier was.
                store.state().publish(&store.reaching_frontier(&header)?);
            }
            store.refuse_missing_chunks()?;
            let diagnosis = store.diagnose(progress)?;
            if let Some(refused) = &diagnosis.refused {
                let text = format!("{} is not repaired: {refused}", path.display());
                return Err(
                    Error::new(ErrorKind::Io, text).with_help("its records may be good; nothing was changed")
                );
            }
            done.faults.extend(diagnosis.found.faults.iter().cloned());
            // Verifying may take longer than a lease keeps loaderx out.
            store.refuse_changed(seen)?;
            let mended = store.mend(diagnosis, &mut done, &mut aside);
            let mended = mended.and_then(|doomed| {
                store.take_over(&mut alone)?;
                store.mend_names(&mut alone)?;
                Ok(doomed)
            });
            alone.note(mended)?
        };
        let mended = store.meta.header_bytes().ok();
        aside.keep_all(&doomed, &done.bad)?;
        done.lost = doomed.len() as u64;
        if let Some((folder, _)) = &aside.folder {
            folder.sync().map_err(|e| Error::io("can't sync what was set aside", e))?;
        }
        done.set_aside = aside.folder.map(|(_, path)| path);
        store.refuse_changed(mended)?;
        done.moves = delete_held(vec![alone], &doomed, |_, _| ())?;
        done.records = store.len();
        Ok(done)
    }

    /// Refuses to go on where the header is not the one that was seen.
    fn refuse_changed(&self, seen: Option<[u8; HEADER_BYTES]>) -> Result<()> {
        if self.meta.header_bytes().ok() == seen {
            return Ok(());
        }
        let text = format!("{} was changed by another program while it was repaired", self.path.display());
        Err(Error::new(ErrorKind::Busy, text).with_help("repair it again when nothing else writes there"))
    }

    /// Puts header, table and entries right; returns the records that stay bad.
    fn mend(&self, diagnosis: Diagnosis, done: &mut Repair, aside: &mut Aside<'_>) -> Result<Vec<u64>> {
        let Diagnosis { found, mut doomed, mends, .. } = diagnosis;
        self.meta.write_scattered(&mends)?;
        self.meta.sync()?;
        let header = self.reaching_frontier(&self.state().header())?;
        let old = self.meta.header_bytes().unwrap_or_default();
        if old != header.to_bytes() {
            if done.faults.is_empty() {
                done.faults.push(format!("{}: the header was wrong", self.meta.path.display()));
            }
            aside.write("header", &old)?;
            self.meta.write_header(&header)?;
            self.meta.sync()?;
        }
        self.state().publish(&header);
        for &(index, _) in &mends {
            doomed.get_mut(index as usize / 8).into_iter().for_each(|byte| *byte &= !(1 << (index % 8)));
        }
        let is_lost = |index: u64| u32::try_from(index).is_ok_and(|index| is_set(&doomed, index));
        done.mended = mends.len() as u64;
        done.bad = found.bad.into_iter().filter(|bad| is_lost(bad.index)).collect();
        Ok((0..u64::from(header.length)).filter(|&index| is_lost(index)).collect())
    }

    /// Has the checksum file know the header that is right now.
    fn take_over(&self, alone: &mut Alone<'_>) -> Result<()> {
        let header = self.state().header();
        let is_foreign = |sums: Sums| sums.is_foreign(&header);
        if !Sums::open(self.dir.as_ref(), &self.path)?.is_some_and(is_foreign) {
            return Ok(());
        }
        let mut sidecars = Sidecars::open(self.dir.as_ref(), &self.path, &header)?;
        if let Some(sums) = &mut sidecars.sums {
            // What it knows better has just been put right.
            history::accept(self, &header, sums).or_else(|_| sums.accept(&header))?;
            sums.sync()?;
        }
        alone.writer.sidecars = Some(sidecars);
        Ok(())
    }

    /// Makes a damaged tree of names whole, without the names that are lost.
    fn mend_names(&self, alone: &mut Alone<'_>) -> Result<()> {
        if self.names()?.map(|names| names.fault()).transpose()?.flatten().is_none() {
            return Ok(());
        }
        let header = self.state().header();
        let sidecars = alone.writer.sidecars(self, &header)?;
        match &mut sidecars.names {
            Some(names) => names.mend(sidecars.folder.as_ref(), &header.to_bytes()),
            None => Ok(()),
        }
    }

    /// A chunk that is not there at all may be found again; its records must not be given up for that.
    fn refuse_missing_chunks(&self) -> Result<()> {
        for id in 0..=self.state().header().tail_chunk {
            let name = chunks::name(id);
            if self.dir.open(&name, Access::Read).is_err_and(|e| e.kind() == io::ErrorKind::NotFound) {
                let text = format!("{} is not repaired: {name} is missing", self.path.display());
                return Err(Error::new(ErrorKind::Damaged, text).with_help(
                    "bring the file back; to give its records up, make an empty one of that name",
                ));
            }
        }
        Ok(())
    }

    /// `header` with a frontier that lies behind every record that is there, and within its chunk.
    fn reaching_frontier(&self, header: &Header) -> Result<Header> {
        let state = self.state();
        let mut end = Place::default();
        for index in 0..header.length.min(self.meta.entries_there()?) {
            let Some(loc) = RecordLoc::decode(self.words(&state, index)?, header.version) else { continue };
            let chunk = state.chunks.get(self.dir.as_ref(), loc.chunk_id);
            match chunk.and_then(|chunk| chunk.reaches(loc.end())) {
                Ok(()) => end = end.max(Place::end_of(&loc)),
                Err(e) if e.kind() == ErrorKind::Damaged => {}
                // A chunk that may not be opened says nothing.
                Err(e) => return Err(e),
            }
        }
        if Place::frontier(header) >= end && self.frontier_in_chunk(header).is_ok() {
            return Ok(*header);
        }
        Ok(end.as_frontier_of(*header))
    }

    /// Opens the store at `path` for reading, whatever its header says; with it what is wrong with the header.
    pub(super) fn open_damaged(path: &Path) -> Result<(Store, Option<String>)> {
        Store::open_damaged_in(Box::new(open_folder(path)?), path, Access::Read)
    }

    fn open_damaged_in(
        dir: Box<dyn Directory>,
        path: &Path,
        access: Access,
    ) -> Result<(Store, Option<String>)> {
        let is_missing =
            || dir.open(meta::NAME, Access::Read).is_err_and(|e| e.kind() == io::ErrorKind::NotFound);
        if access == Access::Write && Sums::is_there(dir.as_ref()) && is_missing() {
            let failed = |e| Error::io(format!("can't create {}", path.join(meta::NAME).display()), e);
            dir.create(meta::NAME).and_then(|file| file.set_len(META_BYTES)).map_err(failed)?;
        }
        let store = Store::open_files(dir, path, access)?;
        let (header, fault) = match store.meta.any_header() {
            Ok((header, false)) => (header, None),
            Ok((header, true)) => {
                store.state().publish(&header);
                let finished = match access {
                    Access::Read => store.show_finished(&header),
                    Access::Write => store.finish_step(&header),
                };
                match finished {
                    Ok(()) => (store.state().header(), None),
                    Err(e) if e.kind() == ErrorKind::Busy => return Err(e),
                    Err(e) => (header, Some(e.without_help())),
                }
            }
            Err(e) => (store.lost_header(&e)?, Some(e.without_help())),
        };
        store.state().publish(&header);
        Ok((store, fault))
    }

    /// The header as it must have been, where the one on disk is none: `e` says why.
    fn lost_header(&self, e: &Error) -> Result<Header> {
        if let Some(sums) = Sums::open(self.dir.as_ref(), &self.path)? {
            let left = sums.header.left.iter().flatten();
            let mut left: Vec<Header> = left.filter_map(|bytes| Header::parse(bytes).ok()).collect();
            // The longer one may have been written or not, or be the one before a delete, which clears what goes.
            left.sort_by_key(|header| std::cmp::Reverse(header.length));
            let last = left.last().copied();
            for header in left {
                if Some(header) == last || self.has_entries(&header)? || has_rows(&sums, &header)? {
                    return Ok(header);
                }
            }
        }
        self.header_of_table().and_then(|found| {
            found.ok_or_else(|| {
                Error::new(ErrorKind::NotAStore, format!("{e}, and its table holds no record"))
            })
        })
    }

    fn has_entries(&self, header: &Header) -> Result<bool> {
        let last = header.length.checked_sub(1);
        match last {
            Some(last) if last < self.meta.entries_there()? => {
                Ok(RecordLoc::decode(self.meta.entry(last)?, header.version).is_some())
            }
            Some(_) => Ok(false),
            None => Ok(true),
        }
    }

    /// The header that goes with the entries up to the last one that is not empty; `None` where all are.
    fn header_of_table(&self) -> Result<Option<Header>> {
        let (mut length, mut end, mut version) = (0, Place::default(), Version::V1);
        let there = self.meta.entries_there()?.min(crate::format::MAX_RECORDS);
        for index in 0..there {
            let words = self.meta.entry(index)?;
            let Some(loc) = RecordLoc::decode(words, Version::V2) else { continue };
            if RecordLoc::decode(words, Version::V1).is_none() {
                version = Version::V2;
            }
            end = end.max(Place::end_of(&loc));
            length = index + 1;
        }
        Ok((length > 0).then(|| end.as_frontier_of(Header { length, ..Header::empty(version) })))
    }
}

/// Whether the last record of `header` has a checksum. A delete cuts those of records that go.
fn has_rows(sums: &Sums, header: &Header) -> Result<bool> {
    match header.length.checked_sub(1) {
        Some(last) => Ok(matches!(sums.row(last)?, Slot::Row(_))),
        None => Ok(false),
    }
}

/// The folder for what is taken out of a store, made when something is.
struct Aside<'a> {
    store: &'a Store,
    folder: Option<(Box<dyn Directory>, PathBuf)>,
}

impl Aside<'_> {
    /// Keeps the entries of records, why they go, and what can be read of their stored bytes.
    fn keep_all(&mut self, indices: &[u64], bad: &[BadRecord]) -> Result<()> {
        if indices.is_empty() {
            return Ok(());
        }
        let store = self.store;
        let (folder, path) = self.folder()?;
        let failed = |e| Error::io(format!("can't write {}", path.join(LOST).display()), e);
        let file = folder.create(LOST).map_err(failed)?;
        let (mut list, mut at) = (String::from("index\tentry\treason\n"), 0);
        for &index in indices {
            let words = u32::try_from(index).ok().and_then(|index| store.meta.entry(index).ok());
            // Of an empty entry there is nothing to keep.
            let Some(words) = words.filter(|&words| words != [0, 0]) else { continue };
            let hex: String = words_to_bytes(words).iter().map(|byte| format!("{byte:02x}")).collect();
            let known = bad.binary_search_by_key(&index, |bad| bad.index).ok().and_then(|at| bad.get(at));
            list += &format!("{index}\t{hex}\t{}\n", known.map_or("", |bad| bad.reason.as_str()));
            if list.len() > PIECE {
                file.write_at(list.as_bytes(), at).map_err(failed)?;
                at += list.len() as u64;
                list.clear();
            }
        }
        file.write_at(list.as_bytes(), at).and_then(|()| file.sync()).map_err(failed)?;
        indices.iter().try_for_each(|&index| self.keep(index))
    }

    /// Keeps what can be read of a record's stored bytes.
    fn keep(&mut self, index: u64) -> Result<()> {
        let Ok(loc) = self.store.location(index) else { return Ok(()) };
        let state = self.store.state();
        let Ok(chunk) = state.chunks.get(self.store.dir.as_ref(), loc.chunk_id) else { return Ok(()) };
        let mut bytes = Vec::new();
        super::resize(&mut bytes, loc.phys_length as usize)?;
        if chunk.read(&mut bytes, loc.offset.into()).is_err() {
            return Ok(());
        }
        self.write(&format!("{index:08}.{}", loc.compress.name()), &bytes)
    }

    fn folder(&mut self) -> Result<&(Box<dyn Directory>, PathBuf)> {
        match &mut self.folder {
            Some(folder) => Ok(folder),
            none => Ok(none.insert(new_folder(self.store)?)),
        }
    }

    /// Writes a new file and makes it durable.
    fn write(&mut self, name: &str, bytes: &[u8]) -> Result<()> {
        let (folder, path) = self.folder()?;
        let failed = |e| Error::io(format!("can't write {}", path.join(name).display()), e);
        let file = folder.create(name).map_err(failed)?;
        file.write_at(bytes, 0).and_then(|()| file.sync()).map_err(failed)
    }
}

/// Makes the first `.zrfs/set-aside-N` that is not there.
fn new_folder(store: &Store) -> Result<(Box<dyn Directory>, PathBuf)> {
    let all = store.path.join(sidecars::FOLDER);
    let failed = |e| Error::io(format!("can't make a folder in {}", all.display()), e);
    let folder = store.dir.make_folder(sidecars::FOLDER).map_err(failed)?;
    for n in 1..=u32::MAX {
        let name = format!("set-aside-{n}");
        if folder.folder(&name).is_err() {
            let made = folder.make_folder(&name).map_err(failed)?;
            folder.sync().map_err(failed)?;
            store.sync_folder()?;
            return Ok((made, all.join(name)));
        }
    }
    Err(Error::new(ErrorKind::Full, format!("{} holds too many folders", all.display())))
}
