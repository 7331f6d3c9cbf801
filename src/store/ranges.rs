//! Lists of records as people write them: `7 12,100-199`.

use std::ops::Range;

use crate::error::{Error, ErrorKind, Result};

/// Reads a list of records of a store that holds `length`: indices and ranges such as `100-199`, which has both ends,
/// separated by spaces, commas or newlines. Gives ranges in the order of the list; every index is below `length`.
///
/// ```
/// assert_eq!(zrfs::store::parse_records("7 12,100-199\n", 1000).unwrap(), [7..8, 12..13, 100..200]);
/// ```
///
/// # Errors
/// [`ErrorKind::Unsupported`] for a word that is no record or a range that runs backwards, [`ErrorKind::OutOfRange`] for
/// a record that is not there.
pub fn parse_records(list: &str, length: u64) -> Result<Vec<Range<u64>>> {
    let separates = |c: char| c == ',' || c.is_ascii_whitespace();
    list.split(separates).filter(|word| !word.is_empty()).map(|word| range(word, length)).collect()
}

fn range(word: &str, length: u64) -> Result<Range<u64>> {
    let (first, last) = word.split_once('-').unwrap_or((word, word));
    let (Some(first), Some(last)) = (number(first), number(last)) else {
        let text = format!("{word:?} is no record; records look like 7 or 100-199");
        return Err(Error::new(ErrorKind::Unsupported, text));
    };
    if first > last {
        return Err(Error::new(ErrorKind::Unsupported, format!("{word} runs backwards")));
    }
    if last >= length {
        return Err(Error::new(ErrorKind::OutOfRange, format!("no record {last}: the store holds {length}")));
    }
    Ok(first..last + 1)
}

/// A number of digits only; one that is too large for u64 is larger than any index.
fn number(text: &str) -> Option<u64> {
    let digits = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    digits.then(|| text.parse().unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn separators_mix_and_order_stays() {
        let ranges = |text| parse_records(text, 1000).unwrap();
        assert_eq!(ranges("7 12,100-199\n\n3,,\t7"), [7..8, 12..13, 100..200, 3..4, 7..8]);
        assert_eq!(ranges(""), Vec::<Range<u64>>::new());
        assert_eq!(ranges("0999"), std::slice::from_ref(&(999..1000)));
    }

    #[test]
    fn bad_words_and_bad_indices_are_told_apart() {
        let kind = |text| parse_records(text, 1000).unwrap_err().kind();
        for text in ["x", "1-", "-1", "1-2-3", "+1", "1.9", "5-3", "0x1", "１"] {
            assert_eq!(kind(text), ErrorKind::Unsupported, "{text}");
        }
        for text in ["1000", "0-1000", "99999999999999999999999", "0-18446744073709551615"] {
            assert_eq!(kind(text), ErrorKind::OutOfRange, "{text}");
        }
    }
}
