//! Records on their way into a store: checked, then packed in parallel into shards, each laid out as it will lie in a
//! chunk. Knows no file: where a shard goes is `append`'s to say.

use std::borrow::Cow;

use super::shards;
use crate::codec::{self, Codec};
use crate::error::{Error, ErrorKind, Result};
use crate::format::{Compress, RecordLoc, Version};

/// Source bytes that are packed at a time, which bounds what an append of any size holds in memory.
const PIECE: usize = 64 << 20;

/// Shards that each thread packs of a piece.
const SHARDS_A_THREAD: usize = 4;

/// Records of one shard, packed as they will lie in the chunk.
pub(super) struct Shard<'a> {
    pub(super) bytes: Cow<'a, [u8]>,
    /// Placed only in part: chunk and offset are still to be filled in.
    pub(super) locs: Vec<RecordLoc>,
}

/// Records to append, checked: each lies in `src` and has a length that the version holds.
pub(super) struct Batch<'a> {
    src: &'a [u8],
    shape: Shape<'a>,
}

enum Shape<'a> {
    Equal(usize),
    Ragged { offsets: &'a [u64], lens: &'a [u32] },
}

impl<'a> Batch<'a> {
    pub(super) fn equal(src: &'a [u8], item_len: usize, version: Version) -> Result<Batch<'a>> {
        if item_len == 0 || !src.len().is_multiple_of(item_len) {
            return Err(Error::new(
                ErrorKind::Geometry,
                format!("{} bytes are no whole number of records of {item_len} bytes", src.len()),
            ));
        }
        check_len(item_len as u64, version)?;
        Ok(Batch { src, shape: Shape::Equal(item_len) })
    }

    pub(super) fn ragged(
        src: &'a [u8],
        offsets: &'a [u64],
        lens: &'a [u32],
        version: Version,
    ) -> Result<Batch<'a>> {
        if offsets.len() != lens.len() {
            return Err(Error::new(
                ErrorKind::Geometry,
                format!("{} offsets, but {} lengths", offsets.len(), lens.len()),
            ));
        }
        for (i, (&offset, &len)) in offsets.iter().zip(lens).enumerate() {
            check_len(u64::from(len), version)?;
            if offset.checked_add(u64::from(len)).is_none_or(|end| end > src.len() as u64) {
                return Err(Error::new(
                    ErrorKind::Geometry,
                    format!("record {i} of {len} bytes at offset {offset} is not in the {} given", src.len()),
                ));
            }
        }
        Ok(Batch { src, shape: Shape::Ragged { offsets, lens } })
    }

    fn count(&self) -> usize {
        match self.shape {
            Shape::Equal(len) => self.src.len() / len,
            Shape::Ragged { lens, .. } => lens.len(),
        }
    }

    fn record(&self, i: usize) -> &'a [u8] {
        let found = match self.shape {
            Shape::Equal(len) => self.src.get(i * len..(i + 1) * len),
            Shape::Ragged { offsets, lens } => match (offsets.get(i), lens.get(i)) {
                // Cannot overflow: the sum was checked against the length of a slice.
                (Some(&at), Some(&len)) => {
                    usize::try_from(at).ok().and_then(|at| self.src.get(at..at + len as usize))
                }
                _ => None,
            },
        };
        found.unwrap_or_default()
    }

    /// Cuts the batch into ranges of records that hold about [`PIECE`] bytes each.
    pub(super) fn pieces(&self) -> impl Iterator<Item = std::ops::Range<usize>> + '_ {
        let mut next = 0;
        std::iter::from_fn(move || {
            let start = next;
            match self.shape {
                Shape::Equal(len) => next = self.count().min(start + (PIECE / len).max(1)),
                Shape::Ragged { .. } => {
                    let mut bytes = 0;
                    while next < self.count() && (bytes == 0 || bytes + self.record(next).len() <= PIECE) {
                        bytes += self.record(next).len();
                        next += 1;
                    }
                }
            }
            (next > start).then_some(start..next)
        })
    }

    /// Compresses the records of `piece` on all cores into shards, each as it will lie in a chunk.
    pub(super) fn pack(&self, piece: std::ops::Range<usize>, codec: Codec) -> Result<Vec<Shard<'a>>> {
        let bytes: u64 = piece.clone().map(|i| self.record(i).len() as u64).sum();
        let cost = match codec {
            Codec::Raw => bytes / 8,
            Codec::Flate(_) => bytes * 8,
        };
        let count = piece.len();
        let threads = shards::threads_for(count, cost);
        // Enough shards to even out the threads' work, few enough that each is long. They are summed and written in parallel,
        // too, which is all the work where raw records stay where they are.
        let size = if threads == 1 { count } else { count.div_ceil(threads * SHARDS_A_THREAD) }.max(1);
        let mut packed: Vec<_> = (piece.start..piece.end)
            .step_by(size)
            .map(|start| (start..piece.end.min(start + size), None))
            .collect();
        shards::for_each_shard(&mut packed, threads, |parts| {
            for (range, shard) in parts {
                *shard = Some(self.pack_shard(range.clone(), codec)?);
            }
            Ok(())
        })?;
        Ok(packed.into_iter().filter_map(|(_, shard)| shard).collect())
    }

    fn pack_shard(&self, range: std::ops::Range<usize>, codec: Codec) -> Result<Shard<'a>> {
        let mut locs = Vec::with_capacity(range.len());
        // Lengths were checked against the version's, which fit.
        let length = |bytes: &[u8]| u32::try_from(bytes.len()).unwrap_or(u32::MAX);
        if let (Codec::Raw, Shape::Equal(len)) = (codec, &self.shape) {
            let bytes = self.src.get(range.start * len..range.end * len).unwrap_or_default();
            locs.extend(
                range.map(|i| unplaced(length(self.record(i)), length(self.record(i)), Compress::Raw)),
            );
            return Ok(Shard { bytes: Cow::Borrowed(bytes), locs });
        }
        let total: usize = range.clone().map(|i| self.record(i).len()).sum();
        let mut bytes = Vec::new();
        bytes.try_reserve_exact(total).map_err(|_| {
            Error::new(ErrorKind::Memory, format!("there is no memory to pack {total} bytes"))
        })?;
        codec::with_encoder(codec, |encoder| {
            for record in range.map(|i| self.record(i)) {
                let start = bytes.len();
                let deflated = encoder.encode(record, &mut bytes);
                let stored = bytes.get(start..).unwrap_or_default();
                let compress = if deflated { Compress::Deflate } else { Compress::Raw };
                locs.push(unplaced(length(stored), length(record), compress));
            }
        });
        Ok(Shard { bytes: Cow::Owned(bytes), locs })
    }
}

fn unplaced(phys_length: u32, logic_length: u32, compress: Compress) -> RecordLoc {
    RecordLoc { offset: 0, phys_length, logic_length, chunk_id: 0, compress }
}

/// Checks that a record of `len` bytes fits `version`.
fn check_len(len: u64, version: Version) -> Result<()> {
    let lengths = version.record_bytes();
    if len >= u64::from(*lengths.start()) && len <= u64::from(*lengths.end()) {
        return Ok(());
    }
    Err(Error::new(
        ErrorKind::RecordSize,
        format!(
            "a record of {len} bytes does not fit: version {} holds {} to {} bytes a record",
            version.number(),
            lengths.start(),
            lengths.end()
        ),
    ))
}
