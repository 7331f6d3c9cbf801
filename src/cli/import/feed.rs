//! Reads the sources ahead of the append, in batches.
//!
//! One thread reads batch after batch, the files of one in parallel, and hands each over through a channel of one
//! place: so at most three batches are in memory, and a buffer to be used again, each of about [`BATCH`] bytes or one
//! larger record.

use std::cell::Cell;
use std::io::{self, Read};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

use rayon::iter::{IntoParallelIterator, ParallelIterator};
use rayon::{ThreadPool, ThreadPoolBuilder};
use zrfs::dataset::{NpyFile, Schema};
use zrfs::storage::open_regular;
use zrfs::store::{NewNames, resize};
use zrfs::{Error, ErrorKind, Result, Version};

use super::archive::{self, Choice, Streamed};
use super::arrays::{Array, Arrays};
use super::files::{Files, Origin, modified_ns};
use super::plan::Plan;
use super::{npz, resume, stack};
use crate::cli::signals::Stop;

/// Bytes of a batch. Large enough for both cores to pack for a while, small enough to keep several.
pub(super) const BATCH: u64 = 32 << 20;
/// Files of a batch, where they are small.
pub(super) const BATCH_FILES: usize = 1 << 14;
/// Records of a batch of an array, where they are small: each has a mark of 8 bytes.
const BATCH_ROWS: u64 = 1 << 20;

/// Files that are read at the same time by each core: a disk answers many requests as fast as one.
const READERS_A_CORE: usize = 4;

/// What an interruption leaves.
pub(super) const NOTHING: &str = "nothing was imported";

/// Records that were read together.
pub(super) struct Batch {
    pub(super) records: Records,
    /// For each record a number that another run gives it, too, as long as its source is the same; see
    /// [`mark`](super::files::mark).
    pub(super) marks: Vec<u64>,
}

impl Batch {
    /// The batch without its first `count` records.
    fn behind(mut self, count: usize) -> Batch {
        self.marks.drain(..count);
        match &mut self.records {
            Records::Equal { bytes, len } => drop(bytes.drain(..count * *len)),
            Records::Ragged { offsets, lens, .. } => {
                offsets.drain(..count);
                lens.drain(..count);
            }
            Records::Copies { of, .. } => drop(of.drain(..count)),
        }
        self
    }
}

/// The bytes of records.
pub(super) enum Records {
    /// All of `len` bytes, one after another.
    Equal { bytes: Vec<u8>, len: usize },
    /// Record i is `bytes[offsets[i]..][..lens[i]]`.
    Ragged { bytes: Vec<u8>, offsets: Vec<u64>, lens: Vec<u32> },
    /// Record i has the bytes of record `of[i]` of this import; all have `bytes`.
    Copies { of: Vec<u64>, bytes: u64 },
}

impl Records {
    /// Bytes of all records.
    pub(super) fn bytes(&self) -> u64 {
        match self {
            Records::Equal { bytes, .. } | Records::Ragged { bytes, .. } => bytes.len() as u64,
            Records::Copies { bytes, .. } => *bytes,
        }
    }

    /// The lowest version that holds all of them, beside those that they are copies of.
    pub(super) fn version(&self) -> Version {
        let fits = |len: u32| Version::V1.record_bytes().contains(&len);
        let all_fit = match self {
            Records::Equal { len, .. } => u32::try_from(*len).is_ok_and(fits),
            Records::Ragged { lens, .. } => lens.iter().copied().all(fits),
            Records::Copies { .. } => true,
        };
        if all_fit { Version::V1 } else { Version::V2 }
    }

    fn into_bytes(self) -> Vec<u8> {
        match self {
            Records::Equal { bytes, .. } | Records::Ragged { bytes, .. } => bytes,
            Records::Copies { .. } => Vec::new(),
        }
    }
}

/// What the reading side is to know beside the plan.
pub(super) struct How<'a> {
    /// Which members are taken of an archive that is looked at only now.
    pub(super) choice: Choice<'a>,
    /// Where version 1 is to hold all records: what to do about one of those that it does not.
    pub(super) v1_only: Option<&'static str>,
    pub(super) stop: &'a Stop,
    /// Marks of the first records, which are in the store already: they are left out.
    pub(super) done: &'a [u64],
    /// The sources that those came from, where they have other names than those that are given now.
    pub(super) begun_with: Option<&'a resume::Others>,
}

/// What was learned while records were read, where a source can be read only once.
#[derive(Default)]
pub(super) struct Learned {
    /// The names of all records.
    pub(super) names: Option<NewNames>,
    /// All links at the top that stay links and lead to folders.
    pub(super) linked_classes: Vec<Vec<u8>>,
    /// What the user may want to know.
    pub(super) notes: Vec<String>,
}

/// The reading side of an import.
pub(super) struct Feed<'a> {
    plan: &'a Plan,
    how: &'a How<'a>,
    /// How many records were handed over or left out so far.
    passed: Cell<usize>,
    to: SyncSender<Result<Batch>>,
    /// Buffers of batches that were taken.
    spare: Receiver<Vec<u8>>,
    readers: ThreadPool,
}

impl Feed<'_> {
    /// Calls `take` with every batch of `plan`, in order, until all are taken, one fails, or `how.stop` is
    /// raised. What was known before is the plan's. A record whose mark is another one than that in `how.done` is an
    /// error.
    pub(super) fn over(
        plan: &Plan,
        how: &How<'_>,
        mut take: impl FnMut(&Batch) -> Result<()>,
    ) -> Result<Learned> {
        let (to, from): (_, Receiver<Result<Batch>>) = sync_channel(1);
        let (give_back, spare) = sync_channel(1);
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let readers = ThreadPoolBuilder::new().num_threads(cores * READERS_A_CORE).build();
        let readers =
            readers.map_err(|e| Error::io("can't start the threads that read", io::Error::other(e)))?;
        std::thread::scope(|scope| {
            let reader = scope.spawn(move || {
                let feed = Feed { plan, how, passed: Cell::new(0), to, spare, readers };
                feed.read_all().unwrap_or_else(|e| {
                    // Where nobody listens any more, the append has failed already.
                    let _ = feed.to.send(Err(e));
                    Learned::default()
                })
            });
            for batch in from {
                let batch = batch?;
                how.stop.check(NOTHING)?;
                take(&batch)?;
                let buffer = batch.records.into_bytes();
                // That of one large record is more than is to be kept, and not every source takes buffers back.
                if buffer.capacity() as u64 <= 2 * BATCH {
                    let _ = give_back.try_send(buffer);
                }
            }
            how.stop.check(NOTHING)?;
            reader.join().map_err(|_| Error::new(ErrorKind::Worker, "the thread that reads has panicked"))
        })
    }

    fn read_all(&self) -> Result<Learned> {
        match self.plan {
            Plan::Files(files, stacked) => self.read_files(files, stacked.as_ref()),
            Plan::Arrays(arrays) => {
                arrays.files.iter().try_for_each(|array| self.read_array(arrays, array))?;
                Ok(Learned::default())
            }
        }
    }

    pub(super) fn how(&self) -> &How<'_> {
        self.how
    }

    /// Hands a batch over, but for those of its records that are done; `name` names the one at a place in it. An error where
    /// nobody listens any more or the import was asked to stop.
    pub(super) fn send(
        &self,
        records: Records,
        marks: Vec<u64>,
        name: impl Fn(usize) -> PathBuf,
    ) -> Result<()> {
        self.how.stop.check(NOTHING)?;
        let done = self.leave_out(&marks, name)?;
        self.passed.set(self.passed.get() + marks.len() - done);
        if done == marks.len() {
            return Ok(());
        }
        let gone = |_| Error::new(ErrorKind::Interrupted, "the append has failed");
        self.to.send(Ok(Batch { records, marks }.behind(done))).map_err(gone)
    }

    /// Passes those of the next records, which have these marks, that are done; returns how many.
    fn leave_out(&self, marks: &[u64], name: impl Fn(usize) -> PathBuf) -> Result<usize> {
        let done = self.how.done.get(self.passed.get()..).unwrap_or_default();
        let done = done.get(..marks.len()).unwrap_or(done);
        if let Some(i) = resume::first_difference(done, marks) {
            return Err(match self.how.begun_with {
                Some(others) if self.passed.get() + i == 0 => others.error(),
                _ => resume::has_changed(&name(i)),
            });
        }
        self.passed.set(self.passed.get() + done.len());
        Ok(done.len())
    }

    /// How many records are done of those that come next.
    fn left_to_leave_out(&self) -> usize {
        self.how.done.len().saturating_sub(self.passed.get())
    }

    /// A buffer of `len` bytes, whatever they are: one that was used before, so that the system need not clear another.
    fn buffer(&self, len: u64) -> Result<Vec<u8>> {
        let too_large = |_| Error::new(ErrorKind::RecordSize, "a batch does not fit in memory");
        let mut bytes = self.spare.try_recv().unwrap_or_default();
        resize(&mut bytes, usize::try_from(len).map_err(too_large)?)?;
        Ok(bytes)
    }

    fn read_files(&self, files: &Files, stacked: Option<&Schema>) -> Result<Learned> {
        let mut streamed = (!files.are_known()).then(|| Streamed::beside(files));
        for (range, origin) in files.origins() {
            let first = streamed.as_ref().map_or(range.start as u64, Streamed::records);
            match (origin, &mut streamed) {
                (Origin::Stream(source), Some(streamed)) => {
                    streamed.read(self, source)?;
                    continue;
                }
                (Origin::Archive(source, copies), _) => {
                    archive::read_known(self, files, range.clone(), source, copies, first)?;
                }
                _ => self.read_from_disk(files, stacked, range.clone())?,
            }
            if let Some(streamed) = &mut streamed {
                streamed.add(range);
            }
        }
        streamed.map_or_else(|| Ok(Learned::default()), Streamed::end)
    }

    fn read_from_disk(&self, files: &Files, stacked: Option<&Schema>, range: Range<usize>) -> Result<()> {
        let size = |i| stacked.map_or(u64::from(files.size(i)), Schema::record_bytes);
        let name = |first: usize| move |i: usize| files.path(first + i);
        let known: Vec<_> = range.clone().take(self.left_to_leave_out()).map(|i| files.mark(i)).collect();
        let mut next = range.start + self.leave_out(&known, name(range.start))?;
        while next < range.end {
            self.how.stop.check(NOTHING)?;
            let (first, mut bytes) = (next, 0);
            while next < range.end {
                if next > first && (bytes + size(next) > BATCH || next - first == BATCH_FILES) {
                    break;
                }
                bytes += size(next);
                next += 1;
            }
            let mark = |i| files.mark(i);
            let marks = self.readers.install(|| (first..next).into_par_iter().map(mark).collect());
            let buffer = self.buffer(bytes)?;
            let records = self.readers.install(|| read_batch(files, stacked, first..next, buffer))?;
            self.send(records, marks, name(first))?;
        }
        Ok(())
    }

    fn read_array(&self, arrays: &Arrays, array: &Array) -> Result<()> {
        let codec = arrays.schema.codec();
        match &array.member {
            None => drop(self.read_records(arrays, array, NpyFile::open(&array.path, codec)?)?),
            Some(name) => {
                let mut npz = npz::open(&array.path)?;
                let npy = npz::array(&mut npz, &array.path, name, codec)?;
                npz::finish(self.read_records(arrays, array, npy)?, &array.path)?;
            }
        }
        if array.is_unchanged()? { Ok(()) } else { Err(has_changed(&array.path)) }
    }

    /// Reads an array's records; returns what it was read from.
    fn read_records<R: Read>(&self, arrays: &Arrays, array: &Array, npy: NpyFile<R>) -> Result<R> {
        let schema = &arrays.schema;
        if (npy.records(), npy.schema()) != (array.len, &arrays.item) {
            return Err(has_changed(&array.path));
        }
        let record_bytes = schema.record_bytes();
        let mut records = npy.into_records(&arrays.item)?;
        let rows = BATCH.checked_div(record_bytes).unwrap_or(u64::MAX).clamp(1, BATCH_ROWS);
        let failed = |e| array.cannot_read(e);
        let name = |_| array.path.clone();
        let known: Vec<_> =
            (0..array.records).take(self.left_to_leave_out()).map(|record| array.mark(record)).collect();
        let mut first = self.leave_out(&known, name)? as u64;
        let skipped = record_bytes.saturating_mul(first);
        io::copy(&mut records.by_ref().take(skipped), &mut io::sink()).map_err(failed)?;
        while first < array.records {
            let n = rows.min(array.records - first);
            let marks = (first..first + n).map(|record| array.mark(record)).collect();
            first += n;
            let too_large = |_| Error::new(ErrorKind::RecordSize, "a batch does not fit in memory");
            let n = usize::try_from(n).map_err(too_large)?;
            let len = usize::try_from(record_bytes).map_err(too_large)?;
            if len == 0 {
                let records = Records::Ragged { bytes: Vec::new(), offsets: vec![0; n], lens: vec![0; n] };
                self.send(records, marks, name)?;
                continue;
            }
            let mut bytes = self.buffer(n as u64 * record_bytes)?;
            records.read_exact(&mut bytes).map_err(failed)?;
            self.send(Records::Equal { bytes, len }, marks, name)?;
        }
        Ok(records.into_inner())
    }
}

/// Reads files in parallel, each into its place in `buffer`, which has as many bytes as they have.
fn read_batch(
    files: &Files,
    stacked: Option<&Schema>,
    range: Range<usize>,
    mut buffer: Vec<u8>,
) -> Result<Records> {
    let (mut offsets, mut lens) = (Vec::with_capacity(range.len()), Vec::with_capacity(range.len()));
    let mut jobs = Vec::with_capacity(range.len());
    let (mut rest, mut at) = (buffer.as_mut_slice(), 0);
    // No record is over 1 GiB, as the plan has checked.
    let equal = stacked.map(|schema| u32::try_from(schema.record_bytes()).unwrap_or(u32::MAX));
    for i in range {
        let len = equal.unwrap_or_else(|| files.size(i));
        // The buffer has the sum of these sizes.
        let (slot, behind) = std::mem::take(&mut rest).split_at_mut_checked(len as usize).unwrap_or_default();
        rest = behind;
        offsets.push(at);
        lens.push(len);
        at += u64::from(len);
        jobs.push((i, slot));
    }
    jobs.into_par_iter().try_for_each(|(i, slot)| read_file(files, i, stacked, slot))?;
    Ok(Records::Ragged { bytes: buffer, offsets, lens })
}

/// Reads the `i`-th file, or the data of the array in it, which fills `slot`. It must have its size and its time still when
/// it has been read.
fn read_file(files: &Files, i: usize, stacked: Option<&Schema>, slot: &mut [u8]) -> Result<()> {
    let path = files.path(i);
    let failed = |e| Error::io(format!("can't read {}", path.display()), e);
    let (read, meta) = match stacked {
        Some(schema) => (stack::record_in(&path, schema)?.read_exact(slot), std::fs::metadata(&path)),
        None => {
            let mut file = open_regular(&path).map_err(failed)?;
            (file.read_exact(slot), file.metadata())
        }
    };
    match read {
        Err(e) if e.kind() == io::ErrorKind::UnexpectedEof => return Err(has_changed(&path)),
        read => read.map_err(failed)?,
    }
    let meta = meta.map_err(failed)?;
    let as_seen = (u64::from(files.size(i)), files.names().modified_ns(i));
    if (meta.len(), modified_ns(&meta)) != as_seen { Err(has_changed(&path)) } else { Ok(()) }
}

pub(super) fn has_changed(path: &Path) -> Error {
    let text = format!("{} has changed since it was looked at", path.display());
    Error::new(ErrorKind::Io, text).with_help("import again when nothing writes there")
}
