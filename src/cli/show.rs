//! `ls`, `cat` and `stats`: what a store holds, without mounting it.

use std::ops::Range;
use std::path::Path;

use indicatif::HumanBytes;
use serde_json::json;
use zrfs::dataset::Schema;
use zrfs::{Error, Store};

use super::output::Output;
use super::{Failure, Outcome, records};

/// Decoded bytes that `cat` gathers at a time.
const BATCH_BYTES: u64 = 16 << 20;

/// `zrfs ls`
pub(super) fn ls(path: &Path, words: &[String], json: bool) -> Outcome {
    let store = Store::open_read_only(path)?;
    let len = store.len();
    let all = std::iter::once(0..len).collect();
    let ranges: Vec<Range<u64>> = if words.is_empty() { all } else { records::parse(words, len)? };
    let mut out = Output::new();
    let mut failed = false;
    for index in ranges.into_iter().flatten() {
        match store.location(index) {
            Ok(loc) if json => out.line(json!({
                "index": index,
                "length": loc.logic_length,
                "stored": loc.phys_length,
                "codec": loc.compress.name(),
            }))?,
            Ok(loc) => out.line(format_args!("{index}\t{}\t{}", loc.logic_length, loc.compress.name()))?,
            Err(e) => failed |= tell(&e),
        }
    }
    out.finish()?;
    if failed { Err(Failure::Told) } else { Ok(()) }
}

/// `zrfs cat`
pub(super) fn cat(path: &Path, words: &[String]) -> Outcome {
    let store = Store::open_read_only(path)?;
    let mut out = Output::new();
    let mut failed = false;
    let mut batch = Batch::default();
    for index in records::parse(words, store.len())?.into_iter().flatten() {
        match store.location(index) {
            Ok(loc) => batch.push(index, loc.logic_length),
            // What comes before it goes out first.
            Err(e) => {
                failed |= batch.write(&store, &mut out)?;
                failed |= tell(&e);
            }
        }
        if batch.bytes >= BATCH_BYTES {
            failed |= batch.write(&store, &mut out)?;
        }
    }
    failed |= batch.write(&store, &mut out)?;
    out.finish()?;
    if failed { Err(Failure::Told) } else { Ok(()) }
}

/// Records that are gathered together.
#[derive(Default)]
struct Batch {
    indices: Vec<u64>,
    lens: Vec<u32>,
    offsets: Vec<u64>,
    bytes: u64,
    buffer: Vec<u8>,
}

impl Batch {
    fn push(&mut self, index: u64, len: u32) {
        self.indices.push(index);
        self.lens.push(len);
        self.offsets.push(self.bytes);
        self.bytes += u64::from(len);
    }

    /// Writes the records out and empties the batch; tells of each bad one. Returns whether there was any.
    fn write(&mut self, store: &Store, out: &mut Output) -> Result<bool, Error> {
        let mut failed = false;
        // As many bytes as records that are in memory one after another.
        self.buffer.resize(usize::try_from(self.bytes).unwrap_or(usize::MAX), 0);
        if store.gather_ragged(&self.indices, &mut self.buffer, &self.offsets).is_ok() {
            out.write(&self.buffer)?;
        } else {
            // At least one is bad: the others still come out.
            for (&index, &len) in self.indices.iter().zip(&self.lens) {
                let mut record = vec![0; len as usize];
                match store.gather(&[index], &mut record, len as usize) {
                    Ok(()) => out.write(&record)?,
                    Err(e) => failed |= tell(&e),
                }
            }
        }
        self.indices.clear();
        self.lens.clear();
        self.offsets.clear();
        self.bytes = 0;
        Ok(failed)
    }
}

/// `zrfs stats`
pub(super) fn stats(path: &Path, json: bool) -> Outcome {
    let store = Store::open_read_only(path)?;
    let stats = store.stats()?;
    let allocated = store.allocated()?;
    let schema = Schema::read(&store).unwrap_or_else(|e| {
        log::warn!("{e}");
        None
    });
    let mut out = Output::new();
    if json {
        let mut value = json!({
            "version": stats.version.number(),
            "records": stats.records,
            "live_bytes": stats.live_bytes,
            "logical_bytes": stats.logical_bytes,
            "chunk_bytes": stats.chunk_bytes,
            "reclaimable": stats.reclaimable(),
            "allocated_bytes": allocated,
            "damaged": stats.damaged,
        });
        if let (Some(schema), Some(map)) = (&schema, value.as_object_mut()) {
            map.insert("dtype".into(), json!(schema.dtype()));
            map.insert("shape".into(), json!(schema.shape()));
        }
        out.line(value)?;
    } else {
        out.line(format_args!("store        {}", path.display()))?;
        out.line(format_args!("version      {}", stats.version.number()))?;
        out.line(format_args!("records      {}", stats.records))?;
        if let Some(schema) = &schema {
            out.line(format_args!("each         {} {:?}", schema.dtype(), schema.shape()))?;
        }
        out.line(format_args!("decoded      {}", HumanBytes(stats.logical_bytes)))?;
        out.line(format_args!("stored       {}", HumanBytes(stats.live_bytes)))?;
        out.line(format_args!("on disk      {}", HumanBytes(allocated)))?;
        out.line(format_args!("reclaimable  {}", HumanBytes(stats.reclaimable())))?;
        if stats.damaged > 0 {
            out.line(format_args!("damaged      {} records: zrfs ls names them", stats.damaged))?;
        }
    }
    out.finish()?;
    Ok(())
}

/// Tells of one bad record; the command goes on and fails at its end.
fn tell(e: &Error) -> bool {
    eprintln!("zrfs: {e}");
    true
}
