//! Reads the sources ahead of the append, in batches.
//!
//! One thread reads batch after batch, the files of one in parallel, and hands each over through a channel of one
//! place: so at most three batches are in memory, each of about [`BATCH`] bytes or one larger record.

use std::io::Read;
use std::path::Path;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

use rayon::iter::{IntoParallelIterator, ParallelIterator};
use zrfs::dataset::{NpyFile, Schema};
use zrfs::storage::open_regular;
use zrfs::store::resize;
use zrfs::{Error, ErrorKind, Result};

use super::folder::File;
use super::plan::Plan;
use crate::cli::signals::Stop;

/// Bytes of a batch. Large enough for both cores to pack for a while, small enough to keep several.
const BATCH: u64 = 32 << 20;
/// Files of a batch, where they are small.
const BATCH_FILES: usize = 1 << 14;

/// What an interruption leaves.
const NOTHING: &str = "nothing was imported";

/// Records that were read together.
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
    to: SyncSender<Result<Records>>,
}

impl Feed<'_> {
    /// Calls `take` with every batch of `plan`, in order, until all are taken, one fails, or `stop` is raised.
    pub(super) fn over(plan: &Plan, stop: &Stop, mut take: impl FnMut(&Records) -> Result<()>) -> Result<()> {
        let (to, from): (_, Receiver<Result<Records>>) = sync_channel(1);
        std::thread::scope(|scope| {
            scope.spawn(move || {
                let feed = Feed { plan, stop, to };
                if let Err(e) = feed.read_all() {
                    // Where nobody listens any more, the append has failed already.
                    let _ = feed.to.send(Err(e));
                }
            });
            for records in from {
                take(&records?)?;
            }
            stop.check(NOTHING)
        })
    }

    fn read_all(&self) -> Result<()> {
        match self.plan {
            Plan::Folders(_) => self.read_files(),
            Plan::Arrays(paths, schema, _) => paths.iter().try_for_each(|path| self.read_array(path, schema)),
        }
    }

    /// Hands a batch over; an error where nobody listens any more or the import was asked to stop.
    fn send(&self, records: Records) -> Result<()> {
        self.stop.check(NOTHING)?;
        self.to.send(Ok(records)).map_err(|_| Error::new(ErrorKind::Interrupted, "the append has failed"))
    }

    fn read_files(&self) -> Result<()> {
        let mut files = self.plan.files().peekable();
        while files.peek().is_some() {
            self.stop.check(NOTHING)?;
            let (mut batch, mut bytes) = (Vec::new(), 0);
            while let Some(&(_, file)) = files.peek() {
                if !batch.is_empty() && (bytes + file.size > BATCH || batch.len() == BATCH_FILES) {
                    break;
                }
                bytes += file.size;
                batch.extend(files.next());
            }
            self.send(read_batch(&batch, bytes)?)?;
        }
        Ok(())
    }

    fn read_array(&self, path: &Path, schema: &Schema) -> Result<()> {
        let npy = NpyFile::open(path, schema.codec())?;
        let (mut left, record_bytes) = (npy.records(), schema.record_bytes());
        let mut records = npy.into_records(schema)?;
        let rows = BATCH.checked_div(record_bytes).unwrap_or(BATCH_FILES as u64).max(1);
        while left > 0 {
            let n = rows.min(left);
            left -= n;
            let too_large = |_| Error::new(ErrorKind::RecordSize, "a batch does not fit in memory");
            let n = usize::try_from(n).map_err(too_large)?;
            let len = usize::try_from(record_bytes).map_err(too_large)?;
            if len == 0 {
                self.send(Records::Ragged { bytes: Vec::new(), offsets: vec![0; n], lens: vec![0; n] })?;
                continue;
            }
            let mut bytes = Vec::new();
            resize(&mut bytes, n * len)?;
            records
                .read_exact(&mut bytes)
                .map_err(|e| Error::io(format!("can't read {}", path.display()), e))?;
            self.send(Records::Equal { bytes, len })?;
        }
        Ok(())
    }
}

/// Reads files in parallel, each into its place.
fn read_batch(batch: &[(&Path, &File)], bytes: u64) -> Result<Records> {
    let too_large = |_| Error::new(ErrorKind::RecordSize, "a batch does not fit in memory");
    let mut buffer = Vec::new();
    resize(&mut buffer, usize::try_from(bytes).map_err(too_large)?)?;
    let (mut offsets, mut lens) = (Vec::with_capacity(batch.len()), Vec::with_capacity(batch.len()));
    let mut jobs = Vec::with_capacity(batch.len());
    let (mut rest, mut at) = (buffer.as_mut_slice(), 0);
    for &(root, file) in batch {
        let len = u32::try_from(file.size).unwrap_or(u32::MAX);
        // The buffer was made of the sum of these sizes.
        let (slot, behind) = std::mem::take(&mut rest).split_at_mut_checked(len as usize).unwrap_or_default();
        rest = behind;
        offsets.push(at);
        lens.push(len);
        at += u64::from(len);
        jobs.push((root, file, slot));
    }
    jobs.into_par_iter().try_for_each(|(root, file, slot)| read_file(&root.join(&file.path), slot))?;
    Ok(Records::Ragged { bytes: buffer, offsets, lens })
}

/// Reads a file that has exactly as many bytes as `slot`.
fn read_file(path: &Path, slot: &mut [u8]) -> Result<()> {
    let failed = |e| Error::io(format!("can't read {}", path.display()), e);
    let changed = || {
        let text = format!("{} has changed its size since it was looked at", path.display());
        Error::new(ErrorKind::Io, text).with_help("import again when nothing writes there")
    };
    let mut file = open_regular(path).map_err(failed)?;
    match file.read_exact(slot) {
        Ok(()) => {}
        Err(e) if e.kind() == std::io::ErrorKind::UnexpectedEof => return Err(changed()),
        Err(e) => return Err(failed(e)),
    }
    match file.read(&mut [0]).map_err(failed)? {
        0 => Ok(()),
        _ => Err(changed()),
    }
}
