//! Archives as sources: which members become records, in which order.
//!
//! A plain archive in a file is looked through once before anything is written, then read. What can be read only once, a
//! packed archive or standard input, is checked while it is read: all of an import is one append, so an error leaves
//! nothing. Records come in the archive's order; behind all others come those whose bytes are another record's: hard links,
//! and symbolic links that are followed.

mod feed;
mod input;
mod later;
mod members;
mod pax;
mod samples;
mod times;

use std::collections::HashSet;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use zrfs::format::MAX_RECORDS;
use zrfs::store::FolderId;
use zrfs::{Error, ErrorKind, Result};

use super::files::{Files, Origin, Traits};
use super::folder::Only;
use crate::cli::signals::Stop;
use input::Input;
use later::{Later, Leads};
use members::{Kind, Member, Members};
use samples::Samples;
use times::Times;

pub(super) use feed::{Streamed, read_known};
pub(super) use input::Source;

/// Longest path, in bytes: the system takes none that is longer.
const MAX_PATH: usize = 4096;

/// Which members are taken, and what becomes of links.
#[derive(Clone, Copy, Default)]
pub(super) struct Choice<'a> {
    pub(super) only: Option<&'a Only>,
    /// Symbolic links stay links.
    pub(super) keep_links: bool,
}

/// Looks at an archive and adds it to `files`, with its files where it can be read twice. `notes` gets what the user may
/// want to know.
///
/// # Errors
/// What can't be read or is no archive, with its place; members that no store takes, with their names.
pub(super) fn look_at(
    source: &Source,
    choice: Choice<'_>,
    files: &mut Files,
    notes: &mut Vec<String>,
    stop: &Stop,
) -> Result<()> {
    files.start(Path::new(&source.place()), Origin::Stream(source.clone()))?;
    if !source.is_plain()? {
        return Ok(());
    }
    let mut reading = Reading::start(source, choice, files, true, stop)?;
    while reading.next_file(files)?.is_some() {}
    let (copies, more) = reading.end(files)?;
    notes.extend(more);
    files.set_origin(Origin::Archive(source.clone(), copies));
    Ok(())
}

/// An archive that is being read. What is learned of its members goes to a [`Files`].
pub(super) struct Reading<'a> {
    members: Members,
    choice: Choice<'a>,
    place: String,
    /// The archive's first record.
    first: usize,
    /// The folder of the last member, which the next one mostly is in, too.
    folder: (Vec<u8>, FolderId),
    later: Later,
    samples: Samples,
    times: Times,
    /// Links at the top that stay links, with where they lead.
    linked: Vec<(Vec<u8>, Vec<u8>)>,
    kept: u64,
    special: u64,
    unknown: u64,
}

impl<'a> Reading<'a> {
    pub(super) fn start(
        source: &Source,
        choice: Choice<'a>,
        files: &Files,
        scan: bool,
        stop: &Stop,
    ) -> Result<Reading<'a>> {
        Ok(Reading {
            members: Members::of(Input::open(source, scan, stop)?),
            choice,
            place: source.place(),
            first: files.len(),
            folder: (Vec::new(), FolderId::ROOT),
            later: Later::default(),
            samples: Samples::default(),
            times: Times::beside(files),
            linked: Vec::new(),
            kept: 0,
            special: 0,
            unknown: 0,
        })
    }

    /// Goes on to the next file that is taken, which is added to `files`; returns its size.
    pub(super) fn next_file(&mut self, files: &mut Files) -> Result<Option<u64>> {
        while let Some(member) = self.members.next()? {
            if self.take(&member, files)? {
                return Ok(Some(member.size));
            }
        }
        Ok(None)
    }

    /// Adds the contents of the last file to `into`.
    pub(super) fn read(&mut self, size: u64, into: &mut Vec<u8>) -> Result<()> {
        self.members.read(size, into)
    }

    /// Adds what comes behind all others to `files`. Returns for each of those the record, counted from the archive's first,
    /// that has its bytes; and what the user may want to know.
    pub(super) fn end(mut self, files: &mut Files) -> Result<(Vec<u32>, Vec<String>)> {
        self.samples.end(&self.place)?;
        let later = std::mem::take(&mut self.later);
        let mut copies = Vec::new();
        for link in later.resolved(files, self.first, &self.place)? {
            let (folder, name) = self.split(&link.path, files)?;
            files.add_as(folder, &name, link.traits).map_err(|e| self.refused(&link.path, &e))?;
            self.times.see(folder, link.traits.modified_ns);
            copies.push(link.of);
        }
        self.times.settle(files)?;
        files.end_run(FolderId::ROOT, self.first, false);
        self.add_linked_classes(files);
        let mut notes = Vec::new();
        if self.kept > 0 {
            notes.push(format!("Kept as links in {}: {}.", self.place, self.kept));
        }
        if self.special > 0 {
            notes
                .push(format!("Left out of {}, as no files: {} (pipes, devices).", self.place, self.special));
        }
        if self.unknown > 0 {
            let text = "members of a kind that zrfs does not know";
            notes.push(format!("Left out of {}: {} {text}.", self.place, self.unknown));
        }
        Ok((copies, notes))
    }

    /// Adds a member to `files`; whether it is a file that is taken.
    fn take(&mut self, member: &Member, files: &mut Files) -> Result<bool> {
        let path = &member.path;
        if member.kind == Kind::Folder {
            let folder = match path.as_slice() {
                b"." => FolderId::ROOT,
                b"" => return Err(self.refused(path, &"its name is empty")),
                path => self.folder_at(path, path, files)?,
            };
            files.set_modified(folder, member.modified_ns);
            self.times.tell(folder);
            return Ok(false);
        }
        if !self.choice.only.is_none_or(|only| only.picks(Path::new(OsStr::from_bytes(path)))) {
            return Ok(false);
        }
        let traits =
            Traits { size: member.size, modified_ns: member.modified_ns, executable: member.executable };
        match &member.kind {
            Kind::File => {
                self.samples.add(path, &self.place)?;
                let (folder, name) = self.split(path, files)?;
                files.add_as(folder, &name, traits).map_err(|e| self.refused(path, &e))?;
                self.times.see(folder, traits.modified_ns);
                return Ok(true);
            }
            Kind::Symbolic(target) if self.choice.keep_links => {
                let (folder, name) = self.split(path, files)?;
                let inside = later::inside(path, target);
                let leads = inside.ok_or_else(|| later::leads_out(&self.place, path, target, true))?;
                let link = files.add_link(folder, &name, target, member.modified_ns);
                link.map_err(|e| self.refused(path, &e))?;
                self.times.see(folder, member.modified_ns);
                self.kept += 1;
                if self.kept > u64::from(MAX_RECORDS) {
                    return Err(self.too_many("links"));
                }
                if folder == FolderId::ROOT {
                    self.linked.push((name, leads));
                }
            }
            Kind::Symbolic(target) => {
                let inside = later::inside(path, target);
                let target = inside.ok_or_else(|| later::leads_out(&self.place, path, target, false))?;
                self.add_later(path, Leads::Link(target), traits, files)?;
            }
            Kind::Hard(target) => {
                self.samples.add(path, &self.place)?;
                self.add_later(path, Leads::Same(target.clone()), traits, files)?;
            }
            Kind::Special => self.special += 1,
            Kind::Unknown | Kind::Folder => self.unknown += 1,
        }
        Ok(false)
    }

    fn add_later(&mut self, path: &[u8], leads: Leads, traits: Traits, files: &mut Files) -> Result<()> {
        // So that a path that is none is refused here, whatever it leads to.
        self.split(path, files)?;
        if self.later.len() + files.len() >= MAX_RECORDS as usize {
            return Err(self.too_many("files"));
        }
        self.later.add(path, leads, traits).map_err(|e| self.refused(path, &e))
    }

    /// The folder of a path, and the name in it.
    fn split(&mut self, path: &[u8], files: &mut Files) -> Result<(FolderId, Vec<u8>)> {
        let slash = path.iter().rposition(|&b| b == b'/');
        let (folder, name) = match slash.and_then(|slash| path.split_at_checked(slash)) {
            Some((b"", _)) => return Err(self.refused(path, &"its path is absolute")),
            Some((folder, name)) => (folder, name.get(1..).unwrap_or_default()),
            None => (&b""[..], path),
        };
        Ok((self.folder_at(folder, path, files)?, name.to_vec()))
    }

    /// The folder at `path`, which the member at `of` is or is in.
    fn folder_at(&mut self, path: &[u8], of: &[u8], files: &mut Files) -> Result<FolderId> {
        if self.folder.0 != path {
            if path.starts_with(b"/") {
                return Err(self.refused(of, &"its path is absolute"));
            }
            if path.len() > MAX_PATH {
                return Err(self.refused(of, &"its path is longer than 4096 bytes"));
            }
            let folder = files.folder_at(path).map_err(|e| self.refused(of, &e))?;
            if files.names().folders().size_hint().0 > MAX_RECORDS as usize {
                return Err(self.too_many("folders"));
            }
            self.folder = (path.to_vec(), folder);
        }
        Ok(self.folder.1)
    }

    /// Says which of the links that stay links lead to folders.
    fn add_linked_classes(&self, files: &mut Files) {
        if self.linked.is_empty() {
            return;
        }
        let names = files.names();
        let folders: HashSet<_> = names.folders().map(|folder| names.folder_path(folder)).collect();
        let lead_to_one = self.linked.iter().filter(|(_, leads)| folders.contains(leads));
        lead_to_one.for_each(|(name, _)| files.add_linked_class(name));
    }

    fn too_many(&self, what: &str) -> Error {
        let text = format!("{} has more than {MAX_RECORDS} {what}, the most that a store holds", self.place);
        Error::new(ErrorKind::Full, text).with_help("import it in parts, each into a store of its own")
    }

    /// The error for a member that no store takes.
    fn refused(&self, path: &[u8], why: &dyn std::fmt::Display) -> Error {
        let text = format!("{} has a member that can't be taken, {}: {why}", self.place, shown(path));
        Error::new(ErrorKind::Unsupported, text).with_help("pack it again under another name")
    }
}

#[cfg(test)]
mod tests;

/// A path as messages show it.
fn shown(path: &[u8]) -> String {
    match path {
        b"" => "one without a name".to_owned(),
        _ => Path::new(OsStr::from_bytes(path)).display().to_string(),
    }
}
