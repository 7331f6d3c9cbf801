//! `zrfs delete` through the file `delete` of a live mount.

use std::fs::File;
use std::io::{self, Write};
use std::ops::Range;

use rustix::io::Errno;
use zrfs::{Error, ErrorKind, Result, Store};

use super::Live;
use super::told::Told;
use crate::cli::args::RecordsArgs;
use crate::cli::change::{tell_deleted, tell_moves};
use crate::cli::output::Output;
use crate::cli::signals::Stop;
use crate::cli::{Failure, Outcome};

/// Bytes of a write: few enough for one request of the kernel, so that the first refusal is the one that is seen.
const PIECE: usize = 64 << 10;

const BUSY: &str = "the store is being compacted, or somebody has array.npy, a file of batches/ or an endless file open: \
                    wait for the one or close the other, and try again";

/// `zrfs delete`, where the store is a live mount. The labels of the mount lose the same records.
pub(in crate::cli) fn delete(live: &Live, records: &RecordsArgs) -> Outcome {
    // A signal waits until the delete is done: that is a moment.
    let _stop = Stop::on_signals()?;
    // First of all: what is written goes by the indices that the store had when the file was opened, or is refused.
    let list = live.open_to_write("delete", BUSY)?;
    let before = told(live)?.batches;
    let length = live.stats()?.get("records").and_then(serde_json::Value::as_u64).unwrap_or_default();
    // The store is closed again before anything is written, since the mount refuses where others have it open.
    let open = || live.store().and_then(Store::open_read_only);
    let ranges = merge(records.find_in(length, open)?.unwrap_or_default());
    write(list, &ranges).map_err(|e| refused(live, before, e))?;
    let told = told(live)?;
    if told.batches != before + 1 {
        let text =
            "the records are deleted, but the moves can't be told: another batch was applied right after";
        return Err(Error::new(ErrorKind::Stale, format!("{}: {text}", live.point().display())).into());
    }
    let tell = || -> Outcome {
        let mut out = Output::new();
        tell_moves(&mut out, &told.moves)?;
        tell_deleted(&mut out, live.point(), told.deleted, told.records)?;
        out.finish()
    };
    tell().map_err(Failure::after_delete)
}

fn told(live: &Live) -> Result<Told> {
    Told::parse(&live.read("delete")?).map_err(|e| live.not_understood("delete", &e))
}

/// Why a write was refused, in the words of the mount.
fn refused(live: &Live, before: u64, e: io::Error) -> Error {
    let point = live.point().display();
    // A list that another batch has made old was not applied; else a batch that was is this one.
    let is_old = e.raw_os_error().map(Errno::from_raw_os_error) == Some(Errno::STALE);
    match told(live) {
        Ok(Told { refused: Some(why), batches, .. }) if is_old || batches == before => {
            Error::new(ErrorKind::Io, format!("{point}: the list was not applied: {why}"))
        }
        Ok(Told { refused: Some(why), .. }) => Error::new(ErrorKind::Io, format!("{point}: {why}"))
            .with_help("the records are deleted all the same, as the mount shows"),
        _ => Error::io(format!("can't write to {}", live.file("delete").display()), e),
    }
}

/// Ranges in order, each record once: so a list is never longer than that of every record.
fn merge(mut ranges: Vec<Range<u64>>) -> Vec<Range<u64>> {
    ranges.sort_unstable_by_key(|range| range.start);
    let mut merged: Vec<Range<u64>> = Vec::new();
    for range in ranges {
        match merged.last_mut() {
            Some(last) if range.start <= last.end => last.end = last.end.max(range.end),
            _ => merged.push(range),
        }
    }
    merged
}

/// Writes the list between `begin` and `end`; the write that brings `end` applies it.
fn write(mut list: File, ranges: &[Range<u64>]) -> io::Result<()> {
    let mut piece = b"begin\n".to_vec();
    for &Range { start, end } in ranges {
        if start < end {
            writeln!(piece, "{start}-{}", end - 1)?;
        }
        if piece.len() >= PIECE - 64 {
            list.write_all(&piece)?;
            piece.clear();
        }
    }
    piece.extend_from_slice(b"end\n");
    list.write_all(&piece)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn merged_ranges_hold_each_record_once() {
        assert_eq!(merge(vec![7..8, 3..5, 7..8, 4..6, 6..7, 20..30, 22..24]), [3..8, 20..30]);
        assert_eq!(merge(Vec::new()), []);
    }

    #[test]
    fn a_list_is_framed_however_long_it_is() {
        for count in [0, 1, 5_000, 100_000] {
            let ranges: Vec<_> = (0..count).map(|i| i * 3..i * 3 + 2).collect();
            let file = tempfile::NamedTempFile::new().unwrap();
            write(file.reopen().unwrap(), &ranges).unwrap();
            let text = std::fs::read_to_string(file.path()).unwrap();
            let list = text.strip_prefix("begin\n").and_then(|rest| rest.strip_suffix("end\n")).unwrap();
            assert_eq!(zrfs::store::parse_records(list, count * 3 + 1).unwrap(), ranges);
        }
    }
}
