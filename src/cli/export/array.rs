//! A .npy file as destination: dense records as one array.

use std::io::Write;
use std::ops::Range;

use zrfs::dataset::Schema;
use zrfs::store::resize;
use zrfs::{Codec, Error, ErrorKind, Result, Store};

use super::super::batch::confirm;
use super::{Bad, Done, Place, Stop, UNDONE, progress};

/// Bytes that are gathered at a time.
const BYTES: u64 = 32 << 20;

/// Writes the records in the order in which they are named, as often as they are named. Bad ones are noted, and make what is
/// written worthless; the others are still looked at.
pub(super) fn write(
    store: &Store,
    chosen: Option<Vec<Range<u64>>>,
    place: &Place,
    bad: &mut Bad,
    stop: &Stop,
) -> Result<Done> {
    let name = store.path().display();
    let schema = Schema::read(store)?.ok_or_else(|| {
        let text = format!("{name} has no schema: its records are no array");
        Error::new(ErrorKind::Unsupported, text).with_help("export it to a folder, or to NAME.tar")
    })?;
    let chosen = chosen.unwrap_or_else(|| std::iter::once(0..store.len()).collect());
    let records: u64 = chosen.iter().map(|range| range.end - range.start).sum();
    let shape: Vec<u64> = std::iter::once(records).chain(schema.shape().iter().copied()).collect();
    let header = Schema::new(schema.dtype(), &shape, Codec::Raw)?.npy_header();
    let each = schema.record_bytes();
    let failed = |e| Error::io(format!("can't write {}", place.name()), e);
    place.open().write_all(&header).map_err(failed)?;
    let bar = progress::bytes("exporting", records.saturating_mul(each));
    let mut buffer = Vec::new();
    let mut indices = chosen.into_iter().flatten().peekable();
    while indices.peek().is_some() {
        stop.check(UNDONE)?;
        let at_once = usize::try_from((BYTES / each.max(1)).max(1)).unwrap_or(1);
        let batch: Vec<u64> = indices.by_ref().take(at_once).collect();
        let each = usize::try_from(each).unwrap_or(usize::MAX);
        resize(&mut buffer, batch.len().saturating_mul(each))?;
        let all_decode = store.gather_equal(&batch, &mut buffer, each).is_ok();
        for (&index, fault) in batch.iter().zip(confirm(store, &batch)) {
            let mut one =
                || if all_decode { Ok(()) } else { store.gather_equal(&[index], &mut buffer, each) };
            if let Some(e) = fault.or_else(|| one().err()) {
                bad.push(index, e);
            }
        }
        if all_decode && bad.is_empty() {
            place.open().write_all(&buffer).map_err(failed)?;
        }
        bar.inc(buffer.len() as u64);
    }
    bar.finish_and_clear();
    Ok(Done { records, bytes: records.saturating_mul(schema.record_bytes()), links: 0 })
}
