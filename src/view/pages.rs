//! The text files of the mount: `stats` and `README`.

use std::sync::atomic::Ordering;

use serde_json::{Value, json};

use super::View;
use crate::error::Result;
use crate::store::Store;

/// Size of `stats`: padded with spaces, so that it is known before the file is opened.
pub(super) const STATS_BYTES: usize = 1024;

/// The contents of `stats` at this moment.
pub(super) fn stats(view: &View) -> Result<Vec<u8>> {
    let stats = view.store.stats()?;
    let load = |counter: &std::sync::atomic::AtomicU64| counter.load(Ordering::Relaxed);
    let mut figures = stats.to_json();
    let counters = json!({
        "reads": load(&view.counters.reads),
        "bytes": load(&view.counters.bytes),
        "errors": load(&view.counters.errors),
    });
    figures.insert("counters".to_owned(), counters);
    let mut page = format!("{:#}", Value::Object(figures)).into_bytes();
    page.resize(STATS_BYTES - 1, b' ');
    page.push(b'\n');
    Ok(page)
}

/// The contents of `README`.
pub(super) fn readme(store: &Store, ext: &str) -> String {
    format!(
        "This is the record store {store} as files, mounted by zrfs. Nothing here can be written.

records/   every record by its index: records/00000000.{ext} is the first one.
           Eight digits, then the extension. Sizes are exact, reads give the
           decoded bytes; a record that is found damaged gives an I/O error.
           Records that are appended to the store show up within a second.
stats      JSON: records, live_bytes (stored size of all records), logical_bytes
           (their decoded size), chunk_bytes (space used in the chunk files),
           reclaimable (chunk_bytes - live_bytes), damaged (records whose table
           entry is bad), counters (reads, bytes, errors of this mount).
           Fixed when the file is opened, padded with spaces.
README     this page.

Copy them all:   cp -r records /somewhere/
Unmount:         zrfs umount MOUNTPOINT
",
        store = store.path().display(),
    )
}
