//! The live records of a store in the order of their places on disk.

use super::state::State;
use super::{Store, shards};
use crate::error::{Error, ErrorKind, Result};
use crate::format::{Header, MAX_CHUNKS, RecordLoc};

/// Bits of an index in a key.
const INDEX_BITS: u32 = 24;

/// Records by chunk and offset. Takes 8 bytes a record.
pub(super) struct Layout {
    /// Offset and index of each record, sorted within each chunk.
    keys: Vec<u64>,
    /// Where each chunk's records begin in `keys`, and where the last one's end.
    starts: Vec<usize>,
    /// Records whose entries contradict the format: they have no place.
    pub(super) damaged: Vec<u32>,
}

/// A record at its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Placed {
    pub(super) index: u32,
    pub(super) loc: RecordLoc,
}

impl Layout {
    /// Reads the table of `header`, as `state` has it. Two passes over it and a sort: a second for 2^24 records.
    pub(super) fn read(store: &Store, state: &State, header: &Header) -> Result<Layout> {
        let mut counts = vec![0usize; usize::from(MAX_CHUNKS)];
        let mut damaged = Vec::new();
        let locs = || {
            (0..header.length)
                .map(|index| Ok((index, RecordLoc::decode(store.words(state, index)?, header.version))))
        };
        for loc in locs() {
            match loc? {
                (_, Some(loc)) => {
                    counts.get_mut(usize::from(loc.chunk_id)).into_iter().for_each(|count| *count += 1);
                }
                (index, None) => damaged.push(index),
            }
        }
        let mut starts = vec![0];
        let mut total = 0;
        for count in counts {
            total += count;
            starts.push(total);
        }
        let mut keys = Vec::new();
        keys.try_reserve_exact(total).map_err(|_| {
            Error::new(ErrorKind::Memory, format!("there is no memory to sort {total} records"))
        })?;
        keys.resize(total, 0);
        let mut next = starts.clone();
        for loc in locs() {
            let (index, Some(loc)) = loc? else { continue };
            let Some(place) = next.get_mut(usize::from(loc.chunk_id)) else { continue };
            if let Some(key) = keys.get_mut(*place) {
                *key = u64::from(loc.offset) << INDEX_BITS | u64::from(index);
                *place += 1;
            }
        }
        for bounds in starts.windows(2) {
            if let [start, end] = *bounds {
                shards::sort(keys.get_mut(start..end).unwrap_or_default());
            }
        }
        Ok(Layout { keys, starts, damaged })
    }

    /// How many records have a place.
    pub(super) fn len(&self) -> usize {
        self.keys.len()
    }

    /// Chunk and first and last place number of each chunk that has records.
    pub(super) fn chunks(&self) -> impl Iterator<Item = (u16, std::ops::Range<usize>)> + '_ {
        (0..MAX_CHUNKS).zip(self.starts.windows(2)).filter_map(|(id, bounds)| match *bounds {
            [start, end] if start < end => Some((id, start..end)),
            _ => None,
        })
    }

    /// The index of the record at place number `i`.
    pub(super) fn index(&self, i: usize) -> Option<u32> {
        let key = self.keys.get(i)?;
        u32::try_from(key & ((1 << INDEX_BITS) - 1)).ok()
    }

    /// The record at place number `i`, as the table has it now.
    pub(super) fn record(
        &self,
        store: &Store,
        state: &State,
        header: &Header,
        i: usize,
    ) -> Result<Option<Placed>> {
        let Some(index) = self.index(i) else { return Ok(None) };
        let loc = RecordLoc::parse(store.words(state, index)?, header.version)
            .map_err(|fault| store.damaged(index, &fault))?;
        Ok(Some(Placed { index, loc }))
    }
}
