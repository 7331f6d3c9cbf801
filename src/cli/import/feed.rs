//! Reads the sources ahead of the append, in batches.
//!
//! One thread reads batch after batch, the files of one in parallel, and hands each over through a channel of one
//! place: so at most three batches are in memory, each of about [`BATCH`] bytes or one larger record.

use std::io::Read;
use std::ops::Range;
use std::path::Path;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

use rayon::iter::{IntoParallelIterator, ParallelIterator};
use zrfs::dataset::{NpyFile, Schema};
use zrfs::storage::open_regular;
use zrfs::store::{NewNames, resize};
use zrfs::{Error, ErrorKind, Result};

use super::arrays::{Array, Arrays};
use super::files::{Files, modified_ns};
use super::plan::Plan;
use super::stack;
use crate::cli::signals::Stop;

/// Bytes of a batch. Large enough for both cores to pack for a while, small enough to keep several.
const BATCH: u64 = 32 << 20;
/// Files of a batch, where they are small.
const BATCH_FILES: usize = 1 << 14;
/// Records of a batch of an array, where they are small: each has a mark of 8 bytes.
const BATCH_ROWS: u64 = 1 << 20;

/// What an interruption leaves.
const NOTHING: &str = "nothing was imported";

/// Records that were read together.
pub(super) struct Batch {
    pub(super) records: Records,
    /// For each record a number that another run gives it, too, as long as its source is the same; see
    /// [`mark`](super::files::mark).
    pub(super) marks: Vec<u64>,
}

/// The bytes of records.
pub(super) enum Records {
    /// All of `len` bytes, one after another.
    Equal { bytes: Vec<u8>, len: usize },
    /// Record i is `bytes[offsets[i]..][..lens[i]]`.
    Ragged { bytes: Vec<u8>, offsets: Vec<u64>, lens: Vec<u32> },
}

impl Records {
    /// Bytes of all records.
    pub(super) fn bytes(&self) -> u64 {
        match self {
            Records::Equal { bytes, .. } | Records::Ragged { bytes, .. } => bytes.len() as u64,
        }
    }
}

/// The reading side of an import.
pub(super) struct Feed<'a> {
    plan: &'a Plan,
    stop: &'a Stop,
    to: SyncSender<Result<Batch>>,
}

impl Feed<'_> {
    /// Calls `take` with every batch of `plan`, in order, until all are taken, one fails, or `stop` is raised. Returns
    /// the names that were read together with the records; those that were known before are the plan's.
    pub(super) fn over(
        plan: &Plan,
        stop: &Stop,
        mut take: impl FnMut(&Batch) -> Result<()>,
    ) -> Result<Option<NewNames>> {
        let (to, from): (_, Receiver<Result<Batch>>) = sync_channel(1);
        std::thread::scope(|scope| {
            let reader = scope.spawn(move || {
                let feed = Feed { plan, stop, to };
                feed.read_all().unwrap_or_else(|e| {
                    // Where nobody listens any more, the append has failed already.
                    let _ = feed.to.send(Err(e));
                    None
                })
            });
            for batch in from {
                take(&batch?)?;
            }
            stop.check(NOTHING)?;
            reader.join().map_err(|_| Error::new(ErrorKind::Worker, "the thread that reads has panicked"))
        })
    }

    fn read_all(&self) -> Result<Option<NewNames>> {
        match self.plan {
            Plan::Files(files, stacked) => self.read_files(files, stacked.as_ref())?,
            Plan::Arrays(arrays) => {
                arrays.files.iter().try_for_each(|array| self.read_array(arrays, array))?;
            }
        }
        Ok(None)
    }

    /// Hands a batch over; an error where nobody listens any more or the import was asked to stop.
    fn send(&self, records: Records, marks: Vec<u64>) -> Result<()> {
        self.stop.check(NOTHING)?;
        let gone = |_| Error::new(ErrorKind::Interrupted, "the append has failed");
        self.to.send(Ok(Batch { records, marks })).map_err(gone)
    }

    fn read_files(&self, files: &Files, stacked: Option<&Schema>) -> Result<()> {
        let size = |i| stacked.map_or(u64::from(files.size(i)), Schema::record_bytes);
        let mut next = 0;
        while next < files.len() {
            self.stop.check(NOTHING)?;
            let (first, mut bytes) = (next, 0);
            while next < files.len() {
                if next > first && (bytes + size(next) > BATCH || next - first == BATCH_FILES) {
                    break;
                }
                bytes += size(next);
                next += 1;
            }
            let marks = (first..next).into_par_iter().map(|i| files.mark(i)).collect();
            self.send(read_batch(files, stacked, first..next, bytes)?, marks)?;
        }
        Ok(())
    }

    fn read_array(&self, arrays: &Arrays, array: &Array) -> Result<()> {
        let schema = &arrays.schema;
        let npy = NpyFile::open(&array.path, schema.codec())?;
        if (npy.records(), npy.schema()) != (array.len, &arrays.item) {
            return Err(has_changed(&array.path));
        }
        let record_bytes = schema.record_bytes();
        let mut records = npy.into_records(&arrays.item)?;
        let rows = BATCH.checked_div(record_bytes).unwrap_or(u64::MAX).clamp(1, BATCH_ROWS);
        let mut first = 0;
        while first < array.records {
            let n = rows.min(array.records - first);
            let marks = (first..first + n).map(|record| array.mark(record)).collect();
            first += n;
            let too_large = |_| Error::new(ErrorKind::RecordSize, "a batch does not fit in memory");
            let n = usize::try_from(n).map_err(too_large)?;
            let len = usize::try_from(record_bytes).map_err(too_large)?;
            if len == 0 {
                let records = Records::Ragged { bytes: Vec::new(), offsets: vec![0; n], lens: vec![0; n] };
                self.send(records, marks)?;
                continue;
            }
            let mut bytes = Vec::new();
            resize(&mut bytes, n * len)?;
            records
                .read_exact(&mut bytes)
                .map_err(|e| Error::io(format!("can't read {}", array.path.display()), e))?;
            self.send(Records::Equal { bytes, len }, marks)?;
        }
        if array.is_unchanged()? { Ok(()) } else { Err(has_changed(&array.path)) }
    }
}

/// Reads files in parallel, each into its place.
fn read_batch(files: &Files, stacked: Option<&Schema>, range: Range<usize>, bytes: u64) -> Result<Records> {
    let too_large = |_| Error::new(ErrorKind::RecordSize, "a batch does not fit in memory");
    let mut buffer = Vec::new();
    resize(&mut buffer, usize::try_from(bytes).map_err(too_large)?)?;
    let (mut offsets, mut lens) = (Vec::with_capacity(range.len()), Vec::with_capacity(range.len()));
    let mut jobs = Vec::with_capacity(range.len());
    let (mut rest, mut at) = (buffer.as_mut_slice(), 0);
    // No record is over 1 GiB, as the plan has checked.
    let equal = stacked.map(|schema| u32::try_from(schema.record_bytes()).unwrap_or(u32::MAX));
    for i in range {
        let len = equal.unwrap_or_else(|| files.size(i));
        // The buffer was made of the sum of these sizes.
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
        Err(e) if e.kind() == std::io::ErrorKind::UnexpectedEof => return Err(has_changed(&path)),
        read => read.map_err(failed)?,
    }
    let meta = meta.map_err(failed)?;
    let as_seen = (u64::from(files.size(i)), files.names().modified_ns(i));
    if (meta.len(), modified_ns(&meta)) != as_seen { Err(has_changed(&path)) } else { Ok(()) }
}

fn has_changed(path: &Path) -> Error {
    let text = format!("{} has changed since it was looked at", path.display());
    Error::new(ErrorKind::Io, text).with_help("import again when nothing writes there")
}
