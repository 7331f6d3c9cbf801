//! Records that are read together, and those that can't be read.

use std::ops::Range;

use rayon::iter::{IntoParallelRefIterator, ParallelIterator};
use zrfs::store::resize;
use zrfs::{Error, ErrorKind, Result, Store};

use super::{Failure, Outcome, one_line};

/// Decoded bytes that are gathered at a time.
const BYTES: u64 = 32 << 20;
/// Records that are gathered at a time, where they are small.
const RECORDS: usize = 1 << 16;

/// Records to be gathered together, with what the caller keeps of each: up to 32 MiB, or one larger record alone.
pub(super) struct Batch<T> {
    kept: Vec<(T, Range<u64>)>,
    indices: Vec<u64>,
    offsets: Vec<u64>,
    bytes: u64,
    buffer: Vec<u8>,
}

impl<T> Batch<T> {
    pub(super) fn new() -> Batch<T> {
        Batch { kept: Vec::new(), indices: Vec::new(), offsets: Vec::new(), bytes: 0, buffer: Vec::new() }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.kept.is_empty()
    }

    /// Whether a record of `len` bytes goes with those that are in it. If not, gather them first.
    pub(super) fn takes(&self, len: u32) -> bool {
        self.is_empty() || (self.bytes + u64::from(len) <= BYTES && self.kept.len() < RECORDS)
    }

    /// Adds a record of `len` bytes.
    pub(super) fn push(&mut self, index: u64, len: u32, kept: T) {
        let start = self.bytes;
        self.bytes += u64::from(len);
        self.kept.push((kept, start..self.bytes));
        self.indices.push(index);
        self.offsets.push(start);
    }

    /// Decodes the records on all cores, holds them against their checksums, and takes them out of the batch, in order. A
    /// bad one is noted, and left out.
    ///
    /// # Errors
    /// [`ErrorKind::Memory`] where not even 32 MiB are there.
    pub(super) fn gather(&mut self, store: &Store, bad: &mut Bad) -> Result<Vec<(T, &[u8])>> {
        let (indices, offsets) = (std::mem::take(&mut self.indices), std::mem::take(&mut self.offsets));
        let mut kept = std::mem::take(&mut self.kept);
        let total = as_len(std::mem::take(&mut self.bytes));
        // What one large record took is given back; else memory is used again as it is.
        if self.buffer.len() > as_len(BYTES) && total <= as_len(BYTES) {
            self.buffer = Vec::new();
        }
        if self.buffer.len() < total
            && let Err(e) = resize(&mut self.buffer, total)
        {
            let [index] = indices[..] else { return Err(e) };
            bad.push(index, Error::new(ErrorKind::Memory, format!("record {index} can't be read: {e}")));
            return Ok(Vec::new());
        }
        let buffer = self.buffer.get_mut(..total).unwrap_or_default();
        let all_decode = store.gather_ragged(&indices, buffer, &offsets).is_ok();
        let mut faults = confirm(store, &indices).into_iter();
        let mut indices = indices.into_iter();
        kept.retain(|(_, place)| {
            let (Some(index), Some(mut fault)) = (indices.next(), faults.next()) else { return false };
            if !all_decode && fault.is_none() {
                // At least one is bad: the others still come out.
                let slot = buffer.get_mut(as_len(place.start)..as_len(place.end)).unwrap_or_default();
                fault = store.gather_ragged(&[index], slot, &[0]).err();
            }
            fault.map(|e| bad.push(index, e)).is_none()
        });
        let buffer = &self.buffer;
        let bytes =
            |place: Range<u64>| buffer.get(as_len(place.start)..as_len(place.end)).unwrap_or_default();
        Ok(kept.into_iter().map(|(kept, place)| (kept, bytes(place))).collect())
    }
}

/// What is wrong with each of these records, by their checksums.
pub(super) fn confirm(store: &Store, indices: &[u64]) -> Vec<Option<Error>> {
    // Where the checksums can't be had nothing is known of the records, which are there all the same.
    let Ok(sums) = store.checksums() else { return indices.iter().map(|_| None).collect() };
    indices.par_iter().map(|&index| sums.confirm(index).err()).collect()
}

fn as_len(bytes: u64) -> usize {
    usize::try_from(bytes).unwrap_or(usize::MAX)
}

/// The records that could not be read. The command goes on without them and fails at its end, with one line.
#[derive(Default)]
pub(super) struct Bad {
    first: Option<Error>,
    /// The others, neighbours joined.
    others: Vec<Range<u64>>,
}

impl Bad {
    /// How many ranges the line lists.
    const LISTED: usize = 20;

    pub(super) fn push(&mut self, index: u64, e: Error) {
        if self.first.is_none() {
            self.first = Some(e);
            return;
        }
        match self.others.last_mut() {
            Some(range) if range.end == index => range.end += 1,
            _ => self.others.push(index..index + 1),
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.first.is_none()
    }

    /// Fails where there are any, with a line that names them and ends in `outcome`: what became of the rest.
    pub(super) fn tell(self, outcome: &str) -> Outcome {
        let Some(first) = self.first else { return Ok(()) };
        let count: u64 = self.others.iter().map(|range| range.end - range.start).sum();
        let mut line = format!("zrfs: {first}");
        if count > 0 {
            let names = self.others.iter().take(Self::LISTED).map(|range| match range.end - range.start {
                1 => range.start.to_string(),
                _ => format!("{}-{}", range.start, range.end - 1),
            });
            let dots = if self.others.len() > Self::LISTED { " …" } else { "" };
            line += &format!("; and {count} more: {}{dots}", names.collect::<Vec<_>>().join(" "));
        }
        eprintln!("{}", one_line(line + outcome));
        Err(Failure::Told)
    }
}
