//! The text files of the mount: `stats` and `README`.

use std::sync::atomic::Ordering;

use serde_json::{Value, json};

use super::View;
use crate::error::Result;

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

/// The contents of `README` at this moment.
pub(super) fn readme(view: &View) -> String {
    let first = view.name_of(0);
    let ext = String::from_utf8_lossy(view.extension(first.as_ref()));
    let (tree, all) = if view.names_or_none().is_some() { (TREE, "tree") } else { ("", "records") };
    let nameless = match view.nameless() {
        0 => String::new(),
        n => format!(
            "           {n} of {} records have no name and are in records/ only: another
           program than zrfs has changed the store.
",
            view.store.len()
        ),
    };
    let which = match view.options.ext {
        Some(_) => "the extension that -o ext= gave",
        None => "the extension of its name, if it has one",
    };
    format!(
        "This is the record store {store} as files, mounted by zrfs. Nothing here can be written.

{tree}{nameless}records/   every record by its index: records/00000000.{ext} is the first one.
           Eight digits, then {which}. Sizes are exact, reads
           give the decoded bytes; a record that is found damaged gives an I/O
           error. Records that are appended to the store show up within a second.
stats      JSON: records, live_bytes (stored size of all records), logical_bytes
           (their decoded size), chunk_bytes (space used in the chunk files),
           reclaimable (chunk_bytes - live_bytes), freeable (disk that a compaction
           gives back), damaged (records whose table entry is bad), named (records
           that have a name), version, counters (reads, bytes, errors of this mount).
           Fixed when the file is opened, padded with spaces.
README     this page.

Copy them all:   cp -r {all} /somewhere/
Unmount:         zrfs umount MOUNTPOINT
",
        store = view.store.path().display(),
    )
}

/// What `README` says of `tree/`.
const TREE: &str = "\
tree/      the folder that was imported: paths, times, executable files, symbolic
           links. Train from it, for example with torchvision:
               ImageFolder(\"MOUNTPOINT/tree\")
           A file in tree/ and the record in records/ are one file, by hard links.
";
