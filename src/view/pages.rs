//! The text files of the mount: `stats` and `README`.

use std::sync::atomic::Ordering;

use serde_json::{Value, json};

use super::{View, batches};
use crate::error::Result;
use crate::sampler::Mode;

/// Size of `stats`: padded with spaces, so that it is known before the file is opened.
pub(super) const STATS_BYTES: usize = 2048;

/// The contents of `stats` at this moment.
pub(super) fn stats(view: &View) -> Result<Vec<u8>> {
    let stats = view.store.stats()?;
    let load = |counter: &std::sync::atomic::AtomicU64| counter.load(Ordering::Relaxed);
    let mut figures = stats.to_json();
    // What is read without being opened is to be the same for each of its readers, and the kernel keeps it.
    if !view.options.data_only {
        let counters = json!({
            "reads": load(&view.counters.reads),
            "bytes": load(&view.counters.bytes),
            "errors": load(&view.counters.errors),
            "cache_hits": view.decoded.hits(),
            "cache_misses": view.decoded.misses(),
            "cache_bytes": view.decoded.bytes(),
        });
        figures.insert("counters".to_owned(), counters);
    }
    let (device, inode) = view.store.identity()?;
    figures.insert("identity".to_owned(), json!([device, inode]));
    let sampler = &view.options.sampler;
    figures.insert("mode".to_owned(), sampler.mode.to_string().into());
    figures.insert("seed".to_owned(), sampler.seed.into());
    figures.insert("batch_size".to_owned(), sampler.batch_size.into());
    figures.insert("start".to_owned(), view.options.start.into());
    figures.insert("length".to_owned(), view.batches.length().into());
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
    let batches = batches(view);
    let which = match view.options.ext {
        Some(_) => "the extension that -o ext= gave",
        None => "the extension of its name, if it has one",
    };
    format!(
        "This is the record store {store} as files, mounted by zrfs. {writable}

{tree}{nameless}{batches}records/   every record by its index: records/00000000.{ext} is the first one.
           Eight digits, then {which}. Sizes are exact, reads
           give the decoded bytes; a record that is found damaged gives an I/O
           error. Records that are appended to the store show up within a second.
stats      JSON: records, live_bytes (stored size of all records), logical_bytes
           (their decoded size), chunk_bytes (space used in the chunk files),
           reclaimable (chunk_bytes - live_bytes), freeable (disk that a compaction
           gives back), damaged (records whose table entry is bad), named (records
           that have a name), version, identity (device and inode of meta.zr), {counters}
           mode, seed, batch_size, start and length of the batches.
           Fixed when the file is opened, padded with spaces.
{control}README     this page.

Copy them all:   cp -r {all} /somewhere/
Unmount:         zrfs umount MOUNTPOINT
",
        counters = if view.options.data_only { "and" } else { "counters (what this mount has read)," },
        writable = match (view.can_change(), view.options.data_only) {
            (true, _) => "Nothing here can be written but\ndelete and compact.",
            (false, _) => "Nothing here can be written.",
        },
        control = if view.can_change() { CONTROL } else { "" },
        store = view.store.path().display(),
    )
}

/// What `README` says of `batches/`, `array.npy` and the endless files.
fn batches(view: &View) -> String {
    let files: Vec<String> =
        view.batches.step_files().map(|file| format!("17{}", batches::suffix(file))).collect();
    let (array, npy) = if view.batches.has_array() { (ARRAY, NPY) } else { ("", "") };
    let sampler = &view.options.sampler;
    let load = if npy.is_empty() { "" } else { ", np.load" };
    let endless = format!(
        "\
endless    open, though they are not listed: {npy}batch.tar, the steps one after
           another. They never end, though their size is 0: f.read() does not return,
           and cp fills the disk. Take head -c, WebDataset{load}.
"
    );
    let endless = if view.options.data_only { String::new() } else { endless };
    format!(
        "\
batches/   {files}: step 17 of an endless stream of
           batches (mode {mode}, seed {seed}, {batch_size} records each), and so for every
           step{last}, though only the first ones that -o steps= says are listed.
           Train from them, by as many processes as you like. A step is the same in
           each mount with these options over as many records, {length} here: keep
           that with a checkpoint, and mount with -o length={length} to go on. A delete
           makes other steps; records that are appended join at the next mount. A
           .tar is in WebDataset's layout.
{array}{endless}",
        files = files.join(", "),
        mode = sampler.mode,
        seed = sampler.seed,
        batch_size = sampler.batch_size,
        length = view.batches.length(),
        last = if sampler.mode == Mode::Iid { " up to draw 2^32" } else { "" },
    )
}

/// What `README` says of `array.npy`.
const ARRAY: &str = "\
array.npy  all records as one array: np.load(\"MOUNTPOINT/array.npy\", mmap_mode=\"r\")
";

/// The endless files of dense records.
const NPY: &str = "batch.npy (np.load again and again),
           batch (bytes alone), ";

/// What `README` says of the control files.
const CONTROL: &str = "\
delete     takes lists of records, by index. One write that ends a line is one batch:
               echo 7 12 100-199 > delete
           A longer list stands between the lines begin and end:
               (echo begin; cat list; echo end) > delete
           The last records move into the holes, so after a batch an index may name
           another record: look indices up again. No file of batches/, no endless one
           and no array.npy may be open. Read it for what the last batch did.
           `zrfs delete MOUNTPOINT --names FILE` deletes by path.
compact    `echo 1 > compact` gives the disk of deleted records back, while all of
           this is served. Read it for how far it is.
";

/// What `README` says of `tree/`.
const TREE: &str = "\
tree/      the folder that was imported: paths, times, executable files, symbolic
           links. Train from it, for example with torchvision:
               ImageFolder(\"MOUNTPOINT/tree\")
           A file in tree/ and the record in records/ are one file, by hard links.
";
