//! Packed records on their way into the chunks: a place for each, and one write after another of their bytes.

use super::chunks::Chunk;
use super::place::Place;
use crate::error::{Error, ErrorKind, Result};
use crate::format::{MAX_CHUNKS, RecordLoc, checksum_on};
use crate::storage;

/// Bytes that go to one place: packed records, one behind another, or the byte that an empty one leaves out.
pub(super) struct Segment<'a> {
    pub(super) chunk: u16,
    offset: u32,
    pub(super) bytes: &'a [u8],
    locs: &'a [RecordLoc],
    /// At first the checksum of no bytes each.
    sums: &'a mut [u32],
}

/// Places records one after another from `frontier` on; returns where the next one goes.
///
/// # Errors
/// [`ErrorKind::Full`] where the chunks don't suffice.
pub(super) fn place(locs: &mut [RecordLoc], mut frontier: Place) -> Result<Place> {
    for loc in locs {
        let place = frontier.for_record(loc.phys_length);
        if place.chunk >= MAX_CHUNKS {
            return Err(Error::new(
                ErrorKind::Full,
                format!("no chunk is left: a store has at most {MAX_CHUNKS}"),
            ));
        }
        *loc = place.put(loc);
        frontier = place.behind(loc.phys_length.into());
    }
    Ok(frontier)
}

/// Cuts records that were placed from `frontier` on into one segment for each stretch of a chunk. `bytes` are theirs, one
/// record after another; their checksums go to `sums`, which has that of no bytes for each.
pub(super) fn cut<'a>(
    mut locs: &'a [RecordLoc],
    mut bytes: &'a [u8],
    mut sums: &'a mut [u32],
    frontier: Place,
    segments: &mut Vec<Segment<'a>>,
) {
    if let Some(first) = locs.first()
        && frontier == Place::default()
        && Place::of(first) != frontier
    {
        // It is empty and leaves a byte out, which has to be there.
        segments.push(Segment { chunk: 0, offset: 0, bytes: &[0], locs: &[], sums: &mut [] });
    }
    while let Some(&RecordLoc { chunk_id: chunk, offset, .. }) = locs.first() {
        let (here, behind) = locs.split_at(locs.partition_point(|loc| loc.chunk_id == chunk));
        let len = here.last().map_or(0, |last| last.end() - u64::from(offset));
        let (bytes_here, bytes_behind) = bytes.split_at(usize::try_from(len).unwrap_or(0).min(bytes.len()));
        let (sums_here, sums_behind) = std::mem::take(&mut sums).split_at_mut(here.len());
        if !bytes_here.is_empty() {
            segments.push(Segment { chunk, offset, bytes: bytes_here, locs: here, sums: sums_here });
        }
        (locs, bytes, sums) = (behind, bytes_behind, sums_behind);
    }
}

impl Segment<'_> {
    /// Writes the bytes to `chunk`, and computes the checksums on the way: what is written at once was just summed, so it
    /// comes from memory once for both.
    pub(super) fn write(&mut self, chunk: &Chunk) -> Result<()> {
        let at = |byte: usize| u64::from(self.offset) + byte as u64;
        let (mut written, mut summed) = (0, 0);
        for (loc, sum) in self.locs.iter().zip(self.sums.iter_mut()) {
            let end = summed + loc.phys_length as usize;
            while summed < end {
                let room = storage::WRITTEN_AT_ONCE - at(summed) % storage::WRITTEN_AT_ONCE;
                let next = end.min(summed.saturating_add(usize::try_from(room).unwrap_or(usize::MAX)));
                *sum = checksum_on(*sum, self.bytes.get(summed..next).unwrap_or_default());
                summed = next;
                if at(summed).is_multiple_of(storage::WRITTEN_AT_ONCE) {
                    chunk.write(self.bytes.get(written..summed).unwrap_or_default(), at(written))?;
                    written = summed;
                }
            }
        }
        match self.bytes.get(written..) {
            Some(bytes) if !bytes.is_empty() => chunk.write(bytes, at(written)),
            _ => Ok(()),
        }
    }
}
