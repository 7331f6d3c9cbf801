//! Where everything is in a file of dense records: computed, whatever its length.
//!
//! Such a file is made of pieces: a record each, the first of a step with NumPy's header before it, where there is one.

use std::ops::Range;

use super::PART;
use crate::dataset::Schema;

/// Records up to so many bytes are cut where a part ends.
const CUT: u64 = PART / 64;

/// What the records of a file are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum What {
    /// All records, by their indices.
    All,
    /// The records of a step.
    Data,
    /// The labels of a step.
    Labels,
    /// The indices of a step, as int64.
    Index,
}

/// A file of one step after another, or of one alone.
#[derive(Debug)]
pub(super) struct Dense {
    pub(super) what: What,
    /// The first step.
    pub(super) first: u64,
    /// What stands before each step.
    pub(super) head: Vec<u8>,
    /// Bytes of a record.
    pub(super) item: u64,
    /// Bytes of a step.
    pub(super) unit: u64,
    /// It goes on for ever.
    endless: bool,
}

impl Dense {
    /// A file of the records of `schema`, `count` in a step, with NumPy's header where `header` says so; `None` where no file is
    /// that large.
    pub(super) fn new(
        what: What,
        schema: &Schema,
        count: u64,
        first: u64,
        header: bool,
        endless: bool,
    ) -> Option<Dense> {
        let shape: Vec<u64> = std::iter::once(count).chain(schema.shape().iter().copied()).collect();
        // Refuses what has more bytes than a file.
        let array = Schema::new(schema.dtype(), &shape, schema.codec()).ok()?;
        let head = if header { array.npy_header() } else { Vec::new() };
        let unit = array.record_bytes().checked_add(head.len() as u64)?;
        let sound = i64::try_from(unit).is_ok() && !(endless && unit == 0);
        sound.then_some(Dense { what, first, head, item: schema.record_bytes(), unit, endless })
    }

    /// `None` where it never ends.
    pub(super) fn size(&self) -> Option<u64> {
        (!self.endless).then_some(self.unit)
    }

    /// Where the piece begins that has the byte at `offset`.
    fn piece(&self, offset: u64) -> u64 {
        let (head, within) = (self.head.len() as u64, offset.checked_rem(self.unit).unwrap_or_default());
        let into =
            within.checked_sub(head).and_then(|within| within.checked_rem(self.item)).unwrap_or_default();
        if within < head + self.item { offset - within } else { offset - into }
    }

    /// Where the first piece begins from `offset` on.
    fn next_piece(&self, offset: u64) -> u64 {
        let begin = self.piece(offset);
        if begin == offset {
            return begin;
        }
        let within = begin.checked_rem(self.unit).unwrap_or_default();
        let head = if within == 0 { self.head.len() as u64 } else { 0 };
        let left = self.unit - within;
        begin.saturating_add(left.min(head + self.item))
    }

    /// The part that has the byte at `offset`, which lies in the file. Of small records it is one that programs ask for in one
    /// go, so that it is their answer as it is: the records that it cuts are made twice, which costs less than a copy of it.
    pub(super) fn part(&self, offset: u64) -> Range<u64> {
        if self.item <= CUT {
            let first = offset / PART * PART;
            let end = first.saturating_add(PART);
            return first..self.size().map_or(end, |size| end.min(size));
        }
        let first = self.piece(offset) / PART * PART;
        let end = self.next_piece(first.saturating_add(PART));
        self.next_piece(first)..self.size().map_or(end, |size| end.min(size))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codec::Codec;

    #[test]
    fn parts_tile_every_file_and_hold_whole_records_unless_they_are_small() {
        for (item, count, header, endless) in [
            (1, 3_000_000, true, false),
            (8, 1, true, true),
            (8, 5, false, true),
            (3_000_000, 2, true, true),
            (1 << 20, 3, false, true),
            (700_000, 7, true, false),
            (5, 0, true, false),
            (0, 9, true, false),
            (0, 9, true, true),
            (1_048_577, 1, false, true),
        ] {
            let schema = Schema::new("|u1", &[item], Codec::Raw).unwrap();
            let dense = Dense::new(What::Data, &schema, count, 0, header, endless).unwrap();
            assert_eq!(dense.unit, dense.head.len() as u64 + item * count);
            let mut at = 0;
            let end = dense.size().unwrap_or(20 << 20);
            while at < end {
                let part = dense.part(at);
                assert!(part.start == at && part.end > at, "{part:?} at {at} of {dense:?}");
                for inside in [at, at + (part.end - at) / 2, part.end - 1] {
                    assert_eq!(dense.part(inside), part);
                }
                let within = part.end % dense.unit;
                let head = dense.head.len() as u64;
                let is_between =
                    within == 0 || within.checked_sub(head).is_some_and(|at| at.is_multiple_of(item));
                let is_cut = item <= CUT && (part.end.is_multiple_of(PART) || Some(part.end) == dense.size());
                assert!(is_cut || (is_between && item > CUT), "{part:?} of {dense:?}");
                assert!(part.end - at < PART + item + dense.head.len() as u64);
                at = part.end;
            }
        }
        let schema = Schema::new("<f8", &[1 << 30], Codec::Raw).unwrap();
        assert!(Dense::new(What::Data, &schema, 1 << 31, 0, true, false).is_none(), "no file is that large");
        let empty = Schema::new("<f8", &[0], Codec::Raw).unwrap();
        assert!(Dense::new(What::Data, &empty, 9, 0, false, true).is_none(), "nothing for ever");
    }

    #[test]
    fn far_parts_are_where_they_belong() {
        let schema = Schema::new("|u1", &[3_000], Codec::Raw).unwrap();
        let dense = Dense::new(What::Data, &schema, 256, 0, true, true).unwrap();
        for at in [1 << 62, (1 << 62) + 12_345, i64::MAX as u64] {
            let part = dense.part(at);
            assert!(part.contains(&at) && part.end - part.start < PART + 6_000, "{part:?}");
        }
    }
}
