//! Places in the chunks, in the order of their bytes.

use crate::format::{Header, MAX_CHUNK_BYTES, RecordLoc};

/// A place in the chunks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Place {
    pub(super) chunk: u16,
    pub(super) offset: u64,
}

impl Place {
    pub(super) fn of(loc: &RecordLoc) -> Place {
        Place { chunk: loc.chunk_id, offset: u64::from(loc.offset) }
    }

    /// Where an append would go on.
    pub(super) fn frontier(header: &Header) -> Place {
        Place { chunk: header.tail_chunk, offset: u64::from(header.tail_offset) }
    }

    /// `header` with its frontier here.
    pub(super) fn as_frontier_of(self, header: Header) -> Header {
        // An end lies below the largest chunk, whose offsets fit.
        let tail_offset = u32::try_from(self.offset).unwrap_or(u32::MAX);
        Header { tail_chunk: self.chunk, tail_offset, ..header }
    }

    /// Just past a record.
    pub(super) fn end_of(loc: &RecordLoc) -> Place {
        Place { chunk: loc.chunk_id, offset: loc.end() }
    }

    /// Where a record of `len` bytes goes that comes next here.
    pub(super) fn next_for(self, len: u64) -> Place {
        if self.offset + len < MAX_CHUNK_BYTES { self } else { Place { chunk: self.chunk + 1, offset: 0 } }
    }

    /// Where an append puts a record of that stored length that comes next here. An entry of nothing but zeros means that no
    /// record was written, so an empty one does not lie at the very start of a store.
    pub(super) fn for_record(self, phys_length: u32) -> Place {
        match self.next_for(u64::from(phys_length)) {
            Place { chunk: 0, offset: 0 } if phys_length == 0 => Place { chunk: 0, offset: 1 },
            place => place,
        }
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
