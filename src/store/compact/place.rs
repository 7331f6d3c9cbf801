//! Places, and records that go from one to another.

use crate::format::{MAX_CHUNK_BYTES, RecordLoc};

/// A place in the chunks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Place {
    pub(super) chunk: u16,
    pub(super) offset: u64,
}

impl Place {
    pub(super) fn of(loc: &RecordLoc) -> Place {
        Place { chunk: loc.chunk_id, offset: u64::from(loc.offset) }
    }

    /// Where a record of `len` bytes goes that comes next here.
    pub(super) fn next_for(self, len: u64) -> Place {
        if self.offset + len < MAX_CHUNK_BYTES { self } else { Place { chunk: self.chunk + 1, offset: 0 } }
    }

    pub(super) fn behind(self, len: u64) -> Place {
        Place { offset: self.offset + len, ..self }
    }

    /// `loc` at this place.
    pub(super) fn put(self, loc: &RecordLoc) -> RecordLoc {
        // Places lie below the largest chunk, whose offsets fit.
        RecordLoc { offset: u32::try_from(self.offset).unwrap_or(u32::MAX), chunk_id: self.chunk, ..*loc }
    }
}

/// A record on its way.
#[derive(Clone, Copy)]
pub(super) struct Moving {
    pub(super) index: u32,
    pub(super) from: RecordLoc,
    pub(super) to: RecordLoc,
}
