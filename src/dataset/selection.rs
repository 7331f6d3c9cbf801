//! Which records of a dataset are meant: NumPy's slices, lists and masks. Knows a length and nothing else.

use std::ops::{Range, RangeFrom, RangeFull, RangeInclusive, RangeTo, RangeToInclusive};

use crate::error::{Error, ErrorKind, Result};

/// Records of a dataset, chosen as NumPy's indexing chooses rows of an array.
///
/// | Rust | Python |
/// |---|---|
/// | `2..5`, `..-1`, `-10..`, `..` | `a[2:5]`, `a[:-1]`, `a[-10:]`, `a[:]` |
/// | `2..=5`, `..=-1` | `a[2:6]`, `a[:]`: the end is among them |
/// | [`Slice`] `{ start: None, stop: None, step: -2 }` | `a[::-2]` |
/// | `&[7, 7, -1]` | `a[[7, 7, -1]]` |
/// | `&[true, false, true]` | `a[[True, False, True]]` |
///
/// Negative numbers count from the end. Slices are clipped to what is there, as Python clips them; an index of a list
/// that names no record is an error, and so is a mask of another length. (Clippy takes the literal `2..-1` for a range by
/// mistake empty; a [`Slice`] or a variable it does not.)
///
/// ```
/// use zrfs::dataset::{Selection, Slice};
///
/// # fn main() -> zrfs::Result<()> {
/// assert_eq!(Selection::from(-3..).resolve(10)?, [7, 8, 9]);
/// assert_eq!(Selection::from(Slice { start: Some(8), stop: None, step: -3 }).resolve(10)?, [8, 5, 2]);
/// assert_eq!(Selection::from(&[7, 7, -1]).resolve(10)?, [7, 7, 9]);
/// assert_eq!(Selection::from(&[true, false, true]).resolve(3)?, [0, 2]);
/// # Ok(())
/// # }
/// ```
///
/// What is no integer is refused by the compiler:
///
/// ```compile_fail,E0277
/// zrfs::dataset::Selection::from(&[1.0, 2.0]);
/// ```
/// ```compile_fail,E0277
/// zrfs::dataset::Selection::from(0.0..2.0);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Selection<'a> {
    /// Every so many records from one to another.
    Slice(Slice),
    /// Records by their indices, in that order, as often as each is named.
    List(&'a [i64]),
    /// One bool for each record: those that are true.
    Mask(&'a [bool]),
}

/// Python's `slice(start, stop, step)`; `None` is an end that was left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slice {
    /// The first record, if there is one.
    pub start: Option<i64>,
    /// Where it ends; that record is not among them.
    pub stop: Option<i64>,
    /// From one to the next; negative goes backwards.
    pub step: i64,
}

impl Selection<'_> {
    /// The indices that are meant among `len` records. Memory and time are in proportion to their number, or to `len`
    /// for a mask.
    ///
    /// # Errors
    /// [`ErrorKind::OutOfRange`] with the index of a list that names no record; [`ErrorKind::Geometry`] for a mask that
    /// has not `len` bools, and for a step of 0; [`ErrorKind::Memory`].
    pub fn resolve(&self, len: u64) -> Result<Vec<u64>> {
        match self {
            Selection::Slice(slice) => slice.resolve(len),
            Selection::List(list) => list.iter().map(|&index| resolve_index(index, len)).collect(),
            Selection::Mask(mask) if mask.len() as u64 == len => {
                Ok((0..).zip(*mask).filter_map(|(index, &meant)| meant.then_some(index)).collect())
            }
            Selection::Mask(mask) => {
                let text = format!("a mask of {} bools does not fit {len} records", mask.len());
                Err(Error::new(ErrorKind::Geometry, text))
            }
        }
    }
}

impl Slice {
    /// As `range(*slice.indices(len))`.
    fn resolve(self, len: u64) -> Result<Vec<u64>> {
        // In 128 bits nothing overflows.
        let (len, step) = (i128::from(len), i128::from(self.step));
        // Between these both ends are clipped: one past the last record, in the direction of the step.
        let (low, high) = if step > 0 { (0, len) } else { (-1, len - 1) };
        let clip = |end: i64| {
            let end = i128::from(end);
            if end < 0 { (end + len).max(low) } else { end.min(high) }
        };
        let start = self.start.map_or(if step > 0 { low } else { high }, clip);
        let stop = self.stop.map_or(if step > 0 { high } else { low }, clip);
        let count = match step {
            0 => return Err(Error::new(ErrorKind::Geometry, "the step of a slice can't be 0")),
            1.. => (stop - start + step - 1) / step,
            _ => (start - stop - step - 1) / -step,
        };
        let count = usize::try_from(count.max(0)).unwrap_or(usize::MAX);
        let mut indices = Vec::new();
        indices
            .try_reserve_exact(count)
            .map_err(|_| Error::new(ErrorKind::Memory, format!("there is no memory for {count} indices")))?;
        // Each lies within 0..len, for that is what the ends were clipped to.
        let index = |nth: usize| u64::try_from(start + nth as i128 * step).unwrap_or(u64::MAX);
        indices.extend((0..count).map(index));
        Ok(indices)
    }
}

/// The record that `index` names among `len`; a negative one counts from the end.
pub(super) fn resolve_index(index: i64, len: u64) -> Result<u64> {
    let from_end = || len.checked_sub(index.unsigned_abs());
    let found = u64::try_from(index).ok().or_else(from_end).filter(|&found| found < len);
    found.ok_or_else(|| Error::new(ErrorKind::OutOfRange, format!("no record {index}: there are {len}")))
}

impl From<Slice> for Selection<'_> {
    fn from(slice: Slice) -> Self {
        Selection::Slice(slice)
    }
}

/// From one end to the other, each where there is one.
fn between(start: Option<i64>, stop: Option<i64>) -> Selection<'static> {
    Selection::Slice(Slice { start, stop, step: 1 })
}

/// The end of a slice that has `last` among its records. Behind the last record there is no number.
fn after(last: i64) -> Option<i64> {
    last.checked_add(1).filter(|&stop| stop != 0)
}

impl From<Range<i64>> for Selection<'_> {
    fn from(range: Range<i64>) -> Self {
        between(Some(range.start), Some(range.end))
    }
}

impl From<RangeFrom<i64>> for Selection<'_> {
    fn from(range: RangeFrom<i64>) -> Self {
        between(Some(range.start), None)
    }
}

impl From<RangeTo<i64>> for Selection<'_> {
    fn from(range: RangeTo<i64>) -> Self {
        between(None, Some(range.end))
    }
}

impl From<RangeFull> for Selection<'_> {
    fn from(_: RangeFull) -> Self {
        between(None, None)
    }
}

impl From<RangeInclusive<i64>> for Selection<'_> {
    fn from(range: RangeInclusive<i64>) -> Self {
        between(Some(*range.start()), after(*range.end()))
    }
}

impl From<RangeToInclusive<i64>> for Selection<'_> {
    fn from(range: RangeToInclusive<i64>) -> Self {
        between(None, after(range.end))
    }
}

impl<'a> From<&'a [i64]> for Selection<'a> {
    fn from(list: &'a [i64]) -> Self {
        Selection::List(list)
    }
}

impl<'a, const N: usize> From<&'a [i64; N]> for Selection<'a> {
    fn from(list: &'a [i64; N]) -> Self {
        Selection::List(list)
    }
}

impl<'a> From<&'a Vec<i64>> for Selection<'a> {
    fn from(list: &'a Vec<i64>) -> Self {
        Selection::List(list)
    }
}

impl<'a> From<&'a [bool]> for Selection<'a> {
    fn from(mask: &'a [bool]) -> Self {
        Selection::Mask(mask)
    }
}

impl<'a, const N: usize> From<&'a [bool; N]> for Selection<'a> {
    fn from(mask: &'a [bool; N]) -> Self {
        Selection::Mask(mask)
    }
}

impl<'a> From<&'a Vec<bool>> for Selection<'a> {
    fn from(mask: &'a Vec<bool>) -> Self {
        Selection::Mask(mask)
    }
}

#[cfg(test)]
mod tests;
