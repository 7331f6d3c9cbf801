//! What a store holds, in numbers.

use super::Store;
use super::sidecars::Sums;
use crate::error::Result;
use crate::format::{MAX_CHUNK_BYTES, RecordLoc, Version};

/// Disk is given in blocks of this many bytes, by most file systems.
const BLOCK: u64 = 4 << 10;

/// Figures of a store. All sizes are bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stats {
    /// Format version.
    pub version: Version,
    /// Live records.
    pub records: u64,
    /// What the live records take, as stored.
    pub live_bytes: u64,
    /// What the live records decode to.
    pub logical_bytes: u64,
    /// How far the chunk files are used, to the write frontier.
    pub chunk_bytes: u64,
    /// Disk that a compaction gives back.
    pub freeable: u64,
    /// Records whose table entry contradicts the format; they are in none of the sums.
    pub damaged: u64,
    /// Records that have a name.
    pub named: u64,
}

impl Stats {
    /// What lies before the frontier and belongs to no live record: loaderx's figure, an upper bound on what a
    /// compaction gives back.
    pub fn reclaimable(&self) -> u64 {
        self.chunk_bytes.saturating_sub(self.live_bytes)
    }

    /// The figures as commands and mounts tell them.
    pub fn to_json(&self) -> serde_json::Map<String, serde_json::Value> {
        let figures = [
            ("version", u64::from(self.version.number())),
            ("records", self.records),
            ("live_bytes", self.live_bytes),
            ("logical_bytes", self.logical_bytes),
            ("chunk_bytes", self.chunk_bytes),
            ("reclaimable", self.reclaimable()),
            ("freeable", self.freeable),
            ("damaged", self.damaged),
            ("named", self.named),
        ];
        figures.into_iter().map(|(name, figure)| (name.to_owned(), figure.into())).collect()
    }
}

impl Store {
    /// Reads the whole record table and sums it up: tens of milliseconds for 2^24 records, seconds where they have names.
    ///
    /// # Errors
    /// What the system refuses. Damaged entries are counted, not errors.
    pub fn stats(&self) -> Result<Stats> {
        let header = self.header_now()?;
        let state = self.state();
        // Of a table that was cut, the entries that are gone are damaged; the others are looked at.
        let there = self.meta.entries_there()?.min(header.length);
        let mut stats = Stats {
            version: header.version,
            records: u64::from(header.length),
            live_bytes: 0,
            logical_bytes: 0,
            chunk_bytes: header.chunk_bytes(),
            freeable: 0,
            damaged: u64::from(header.length - there),
            named: self.names()?.map_or(Ok(0), |names| names.named())?,
        };
        for index in 0..there {
            match RecordLoc::decode(self.words(&state, index)?, header.version) {
                Some(loc) => {
                    stats.live_bytes += u64::from(loc.phys_length);
                    stats.logical_bytes += u64::from(loc.logic_length);
                }
                None => stats.damaged += 1,
            }
        }
        // Chunks are filled up to one record, which no compaction can tell before it has sorted them.
        let full = stats.live_bytes / MAX_CHUNK_BYTES;
        let kept = full * MAX_CHUNK_BYTES + (stats.live_bytes % MAX_CHUNK_BYTES).next_multiple_of(BLOCK);
        stats.freeable = self.chunk_sizes()?.0.saturating_sub(kept);
        Ok(stats)
    }

    /// Number of chunk files. Each is held open from its first use on.
    ///
    /// # Errors
    /// What the system refuses.
    pub fn chunk_files(&self) -> Result<u64> {
        Ok(u64::from(self.header_now()?.tail_chunk) + 1)
    }

    /// Bytes that the store's files take on disk. Looks at each chunk file.
    ///
    /// # Errors
    /// What the system refuses; missing chunks count as nothing.
    pub fn allocated(&self) -> Result<u64> {
        Ok(self.meta.attributes()?.allocated + self.chunk_sizes()?.0 + Sums::sizes(self.dir.as_ref()).0)
    }

    /// Bytes that the store's files seem to have, holes included. Looks at each chunk file.
    ///
    /// # Errors
    /// As for [`Store::allocated`].
    pub fn apparent(&self) -> Result<u64> {
        Ok(self.meta.attributes()?.len + self.chunk_sizes()?.1 + Sums::sizes(self.dir.as_ref()).1)
    }

    /// Bytes of disk, and apparent bytes, of all chunks.
    fn chunk_sizes(&self) -> Result<(u64, u64)> {
        let tail = self.header_now()?.tail_chunk;
        let state = self.state();
        let (mut allocated, mut apparent) = (0, 0);
        for id in 0..=tail {
            if let Ok(chunk) = state.chunks.get(self.dir.as_ref(), id) {
                let attributes = chunk.attributes()?;
                allocated += attributes.allocated;
                apparent += attributes.len;
            }
        }
        Ok((allocated, apparent))
    }
}
