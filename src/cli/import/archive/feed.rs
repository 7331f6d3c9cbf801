//! Reads archives in batches of records.

use std::ops::Range;
use std::path::Path;

use zrfs::{Error, ErrorKind, Result, Version};

use super::super::feed::{BATCH, BATCH_FILES, Feed, How, Learned, Records, has_changed};
use super::super::files::{Files, Traits};
use super::members::{Kind, Members};
use super::{Input, Reading, Source, shown};

/// Records of a batch that is being read.
#[derive(Default)]
struct Batch {
    bytes: Vec<u8>,
    offsets: Vec<u64>,
    lens: Vec<u32>,
    marks: Vec<u64>,
    /// Which file the first record is.
    first: usize,
}

impl Batch {
    /// Hands the batch over where it is full once a record of `size` bytes is in it.
    fn make_room(&mut self, size: u64, feed: &Feed<'_>, files: &Files) -> Result<()> {
        let full = self.bytes.len() as u64 + size > BATCH || self.lens.len() >= BATCH_FILES;
        if full { self.send(feed, files) } else { Ok(()) }
    }

    /// Takes note of the `i`-th file, whose bytes came last.
    fn add(&mut self, files: &Files, i: usize) {
        if self.lens.is_empty() {
            self.first = i;
        }
        let size = files.size(i);
        self.offsets.push(self.bytes.len() as u64 - u64::from(size));
        self.lens.push(size);
        self.marks.push(files.mark(i));
    }

    fn send(&mut self, feed: &Feed<'_>, files: &Files) -> Result<()> {
        let Batch { bytes, offsets, lens, marks, first } = std::mem::take(self);
        if lens.is_empty() {
            return Ok(());
        }
        feed.send(Records::Ragged { bytes, offsets, lens }, marks, |i| files.path(first + i))
    }
}

/// Reads the files `range`, which `source` was found to hold. `first` is the number of records before them.
pub(in crate::cli::import) fn read_known(
    feed: &Feed<'_>,
    files: &Files,
    range: Range<usize>,
    source: &Source,
    copies: &[u32],
    first: u64,
) -> Result<()> {
    let place = source.place();
    let mut members = Members::of(Input::open(source, false, feed.how().stop)?);
    let mut batch = Batch::default();
    let (mut next, end) = (range.start, range.end - copies.len());
    while let Some(member) = members.next()? {
        if next == end || member.kind != Kind::File || member.path != files.names().path(next) {
            continue;
        }
        let Traits { size, modified_ns, .. } = files.traits(next);
        if (member.size, member.modified_ns) != (size, modified_ns) {
            return Err(has_changed(Path::new(&place)));
        }
        batch.make_room(size, feed, files)?;
        members.read(size, &mut batch.bytes)?;
        batch.add(files, next);
        next += 1;
    }
    if next < end {
        return Err(has_changed(Path::new(&place)));
    }
    batch.send(feed, files)?;
    send_copies(feed, files, end, copies, first)
}

/// Hands over the records from `at` on, which have the bytes of earlier ones.
fn send_copies(feed: &Feed<'_>, files: &Files, at: usize, copies: &[u32], first: u64) -> Result<()> {
    let (mut of, mut marks, mut bytes) = (Vec::new(), Vec::new(), 0);
    for (i, &copy) in (at..).zip(copies) {
        if !of.is_empty() && (bytes + u64::from(files.size(i)) > BATCH || of.len() == BATCH_FILES) {
            let first = i - of.len();
            let copies = Records::Copies { of: std::mem::take(&mut of), bytes };
            feed.send(copies, std::mem::take(&mut marks), |i| files.path(first + i))?;
            bytes = 0;
        }
        of.push(first + u64::from(copy));
        marks.push(files.mark(i));
        bytes += u64::from(files.size(i));
    }
    if of.is_empty() {
        return Ok(());
    }
    let first = at + copies.len() - of.len();
    feed.send(Records::Copies { of, bytes }, marks, |i| files.path(first + i))
}

/// Files of which some are known only once they are read.
pub(in crate::cli::import) struct Streamed {
    /// Those that are known, then those that were read.
    files: Files,
    /// Which of them each record is.
    order: Vec<u32>,
    notes: Vec<String>,
}

impl Streamed {
    pub(in crate::cli::import) fn beside(known: &Files) -> Streamed {
        Streamed { files: known.clone(), order: Vec::new(), notes: Vec::new() }
    }

    /// Number of records so far.
    pub(in crate::cli::import) fn records(&self) -> u64 {
        self.order.len() as u64
    }

    /// Takes note that files were read, some of those that are known or the last ones.
    pub(in crate::cli::import) fn add(&mut self, range: Range<usize>) {
        self.order.extend(range.map(|i| u32::try_from(i).unwrap_or(u32::MAX)));
    }

    /// Reads an archive that can be read only once.
    pub(in crate::cli::import) fn read(&mut self, feed: &Feed<'_>, source: &Source) -> Result<()> {
        let How { choice, v1_only, stop, .. } = *feed.how();
        let (place, first, before) = (source.place(), self.files.len(), self.records());
        let mut reading = Reading::start(source, choice, &self.files, false, stop)?;
        let mut batch = Batch::default();
        while let Some(size) = reading.next_file(&mut self.files)? {
            let i = self.files.len() - 1;
            let version = if v1_only.is_some() { Version::V1 } else { Version::V2 };
            if !u32::try_from(size).is_ok_and(|size| version.record_bytes().contains(&size)) {
                let text = match version {
                    Version::V1 => "version 1 holds 1 to 1048576 bytes a record",
                    Version::V2 => "a record holds at most 1 GiB",
                };
                let path = self.files.names().path(i);
                let text = format!("{place} has {}, of {size} bytes: {text}", shown(&path));
                let help = v1_only.unwrap_or("leave it out with --only");
                return Err(Error::new(ErrorKind::RecordSize, text).with_help(help));
            }
            batch.make_room(size, feed, &self.files)?;
            reading.read(size, &mut batch.bytes)?;
            batch.add(&self.files, i);
        }
        batch.send(feed, &self.files)?;
        let of_archive = self.files.len();
        let (copies, notes) = reading.end(&mut self.files)?;
        self.notes.extend(notes);
        send_copies(feed, &self.files, of_archive, &copies, before)?;
        self.add(first..self.files.len());
        Ok(())
    }

    /// The names of all records, in order, and what the user may want to know.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`] where there is none.
    pub(in crate::cli::import) fn end(self) -> Result<Learned> {
        if self.order.is_empty() {
            return Err(Error::new(ErrorKind::NotFound, "there is no file to import"));
        }
        let linked_classes = self.files.linked_classes().to_vec();
        let names = Some(self.files.into_names(&self.order));
        Ok(Learned { names, linked_classes, notes: self.notes })
    }
}
