//! RECORDS, the grammar that all commands share: `7 12 100-199`, separated by spaces, commas or newlines; or `--names`.

use std::io::Read;
use std::ops::Range;

use zrfs::store::parse_records;
use zrfs::{Error, ErrorKind, Store};

use super::args::RecordsArgs;
use super::{Failure, by_name};

/// Longest list that is read from standard input, in bytes. Every record of a full store fits.
const MAX_LIST: u64 = 256 << 20;

impl RecordsArgs {
    /// Records in the order in which they are named, as ranges; every index is below the store's length. `None` where the
    /// command names none: that is not the same as an empty list.
    pub(super) fn find(&self, store: &Store) -> Result<Option<Vec<Range<u64>>>, Failure> {
        match &self.names {
            Some(list) => Ok(Some(by_name::resolve(store, list, self.null)?)),
            None => self.find_indices(store.len()),
        }
    }

    /// The same where the store has `length` records and is opened by `open`, for its names alone. It is closed again.
    pub(super) fn find_in(
        &self,
        length: u64,
        open: impl FnOnce() -> zrfs::Result<Store>,
    ) -> Result<Option<Vec<Range<u64>>>, Failure> {
        match &self.names {
            Some(_) => self.find(&open()?),
            None => self.find_indices(length),
        }
    }

    fn find_indices(&self, length: u64) -> Result<Option<Vec<Range<u64>>>, Failure> {
        if self.records.is_empty() { Ok(None) } else { parse(&self.records, length).map(Some) }
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
            ranges.extend(parse_list(&text, len)?);
        } else {
            ranges.extend(parse_list(arg, len)?);
        }
    }
    Ok(ranges)
}

fn parse_list(text: &str, len: u64) -> Result<Vec<Range<u64>>, Failure> {
    parse_records(text, len).map_err(|e| match e.kind() {
        ErrorKind::Unsupported => Failure::Usage(format!("{e} (paths go with --names)")),
        _ => Failure::Failed(e),
    })
}
