//! RECORDS, the grammar that all commands share: `7 12 100-199`, separated by spaces, commas or newlines; or `--names`.

use std::io::Read;
use std::ops::Range;
use std::path::PathBuf;

use clap::Args;
use zrfs::{Error, ErrorKind, Store};

use super::{Failure, by_name};

/// Longest list that is read from standard input, in bytes. Every record of a full store fits.
const MAX_LIST: u64 = 256 << 20;

#[derive(Args)]
pub(super) struct RecordsArgs {
    /// Records such as 7 12 100-199, separated by spaces, commas or newlines; - reads them from standard input
    records: Vec<String>,
    /// Take the records of the paths in FILE, one a line, byte for byte as in the folder that was imported (`ls` escapes
    /// control characters and backslashes, these are as they are); - reads them from standard input
    #[arg(long, value_name = "FILE", conflicts_with = "records")]
    names: Option<PathBuf>,
    /// In the list of --names a NUL byte ends each path, not a newline
    #[arg(short = '0', long, requires = "names")]
    null: bool,
}

impl RecordsArgs {
    /// Records in the order in which they are named, as ranges; every index is below the store's length. `None` where the
    /// command names none: that is not the same as an empty list.
    pub(super) fn find(&self, store: &Store) -> Result<Option<Vec<Range<u64>>>, Failure> {
        match &self.names {
            Some(list) => Ok(Some(by_name::resolve(store, list, self.null)?)),
            None if self.records.is_empty() => Ok(None),
            None => parse(&self.records, store.len()).map(Some),
        }
    }
}

fn parse(args: &[String], len: u64) -> Result<Vec<Range<u64>>, Failure> {
    let mut ranges = Vec::new();
    for arg in args {
        if arg == "-" {
            let mut text = String::new();
            let read = std::io::stdin().lock().take(MAX_LIST + 1).read_to_string(&mut text);
            read.map_err(|e| Error::io("can't read records from standard input", e))?;
            if text.len() as u64 > MAX_LIST {
                let text = format!("standard input holds more than {MAX_LIST} bytes of records");
                return Err(Failure::Failed(Error::new(ErrorKind::Unsupported, text)));
            }
            parse_list(&text, len, &mut ranges)?;
        } else {
            parse_list(arg, len, &mut ranges)?;
        }
    }
    Ok(ranges)
}

fn parse_list(text: &str, len: u64, ranges: &mut Vec<Range<u64>>) -> Result<(), Failure> {
    for word in text.split(|c: char| c == ',' || c.is_ascii_whitespace()).filter(|word| !word.is_empty()) {
        let (first, last) = word.split_once('-').unwrap_or((word, word));
        let (Some(first), Some(last)) = (number(first), number(last)) else {
            let text =
                format!("{word:?} is no record; records look like 7 or 100-199, paths go with --names");
            return Err(Failure::Usage(text));
        };
        if first > last {
            return Err(Failure::Usage(format!("{word} runs backwards")));
        }
        if last >= len {
            let text = format!("no record {last}: the store holds {len}");
            return Err(Failure::Failed(Error::new(ErrorKind::OutOfRange, text)));
        }
        ranges.push(first..last + 1);
    }
    Ok(())
}

/// A number of digits only; one that is too large for u64 is larger than any index.
fn number(text: &str) -> Option<u64> {
    let digits = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    digits.then(|| text.parse().unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ranges(text: &str) -> Vec<Range<u64>> {
        match parse(&[text.to_owned()], 1000) {
            Ok(ranges) => ranges,
            Err(Failure::Usage(text)) => panic!("usage: {text}"),
            Err(_) => panic!("failed"),
        }
    }

    #[test]
    fn separators_mix_and_order_stays() {
        assert_eq!(ranges("7 12,100-199\n\n3,,\t7"), [7..8, 12..13, 100..200, 3..4, 7..8]);
        assert_eq!(ranges(""), Vec::<Range<u64>>::new());
        assert_eq!(ranges("0999"), std::slice::from_ref(&(999..1000)));
    }

    #[test]
    fn bad_words_are_usage_and_bad_indices_failures() {
        for text in ["x", "1-", "-1", "1-2-3", "+1", "1.9", "5-3", "0x1", "１"] {
            assert!(matches!(parse(&[text.to_owned()], 1000), Err(Failure::Usage(_))), "{text}");
        }
        for text in ["1000", "0-1000", "99999999999999999999999", "0-18446744073709551615"] {
            assert!(matches!(parse(&[text.to_owned()], 1000), Err(Failure::Failed(_))), "{text}");
        }
    }
}
