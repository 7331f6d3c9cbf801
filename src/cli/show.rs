//! `ls`, `cat` and `stats`: what a store holds, without mounting it.

use std::ops::Range;
use std::path::Path;

use indicatif::HumanBytes;
use serde_json::json;
use zrfs::dataset::Schema;
use zrfs::store::resize;
use zrfs::{Error, Store};

use super::output::Output;
use super::{Failure, Outcome, one_line, records};

/// Decoded bytes that `cat` gathers at a time.
const BATCH_BYTES: u64 = 16 << 20;

/// `zrfs ls`
pub(super) fn ls(path: &Path, words: &[String], json: bool) -> Outcome {
    let store = Store::open_read_only(path)?;
    let len = store.len();
    let all = std::iter::once(0..len).collect();
    let ranges: Vec<Range<u64>> = if words.is_empty() { all } else { records::parse(words, len)? };
    let mut out = Output::new();
    let mut bad = Bad::default();
    for index in ranges.into_iter().flatten() {
        match store.location(index) {
            Ok(loc) if json => out.line(json!({
                "index": index,
                "length": loc.logic_length,
                "stored": loc.phys_length,
                "codec": loc.compress.name(),
            }))?,
            Ok(loc) => out.line(format_args!("{index}\t{}\t{}", loc.logic_length, loc.compress.name()))?,
            Err(e) => bad.push(index, e),
        }
    }
    out.finish()?;
    bad.tell()
}

/// `zrfs cat`
pub(super) fn cat(path: &Path, words: &[String]) -> Outcome {
    let store = Store::open_read_only(path)?;
    let mut out = Output::new();
    let mut bad = Bad::default();
    let mut batch = Batch::default();
    for index in records::parse(words, store.len())?.into_iter().flatten() {
        match store.location(index) {
            Ok(loc) => batch.push(index, loc.logic_length),
            Err(e) => bad.push(index, e),
        }
        if batch.bytes >= BATCH_BYTES {
            batch.write(&store, &mut out, &mut bad)?;
        }
    }
    batch.write(&store, &mut out, &mut bad)?;
    out.finish()?;
    bad.tell()
}

/// Records that are gathered together.
#[derive(Default)]
struct Batch {
    indices: Vec<u64>,
    offsets: Vec<u64>,
    bytes: u64,
    buffer: Vec<u8>,
}

impl Batch {
    fn push(&mut self, index: u64, len: u32) {
        self.indices.push(index);
        self.offsets.push(self.bytes);
        self.bytes += u64::from(len);
    }

    /// Writes the records out and empties the batch; notes the bad ones.
    fn write(&mut self, store: &Store, out: &mut Output, bad: &mut Bad) -> Outcome {
        let room = resize(&mut self.buffer, usize::try_from(self.bytes).unwrap_or(usize::MAX));
        if room.is_ok() && store.gather_ragged(&self.indices, &mut self.buffer, &self.offsets).is_ok() {
            out.write(&self.buffer)?;
        } else {
            // At least one is bad: the others still come out.
            for &index in &self.indices {
                match store.read(index) {
                    Ok(record) => out.write(&record)?,
                    Err(e) => bad.push(index, e),
                }
            }
        }
        self.indices.clear();
        self.offsets.clear();
        self.bytes = 0;
        Ok(())
    }
}

/// `zrfs stats`
pub(super) fn stats(path: &Path, json: bool) -> Outcome {
    let store = Store::open_read_only(path)?;
    let stats = store.stats()?;
    let (allocated, apparent) = (store.allocated()?, store.apparent()?);
    let schema = Schema::read(&store).unwrap_or_else(|e| {
        log::warn!("{e}");
        None
    });
    let mut out = Output::new();
    if json {
        let mut figures = stats.to_json();
        figures.insert("allocated_bytes".to_owned(), json!(allocated));
        figures.insert("apparent_bytes".to_owned(), json!(apparent));
        if let Some(schema) = &schema {
            figures.insert("dtype".to_owned(), json!(schema.dtype()));
            figures.insert("shape".to_owned(), json!(schema.shape()));
        }
        out.line(serde_json::Value::Object(figures))?;
    } else {
        out.line(format_args!("store        {}", path.display()))?;
        out.line(format_args!("version      {}", stats.version.number()))?;
        out.line(format_args!("records      {}", stats.records))?;
        if let Some(schema) = &schema {
            out.line(format_args!("each         dtype {}, shape {:?}", schema.dtype(), schema.shape()))?;
        }
        out.line(format_args!("decoded      {}", HumanBytes(stats.logical_bytes)))?;
        out.line(format_args!("stored       {}", HumanBytes(stats.live_bytes)))?;
        out.line(format_args!("on disk      {}", HumanBytes(allocated)))?;
        out.line(format_args!("apparent     {}, holes included", HumanBytes(apparent)))?;
        out.line(format_args!("reclaimable  {}", HumanBytes(stats.reclaimable())))?;
        out.line(format_args!("freeable     {} by zrfs compact", HumanBytes(stats.freeable)))?;
        if stats.damaged > 0 {
            out.line(format_args!("damaged      {} records", stats.damaged))?;
        }
    }
    out.finish()?;
    store.check_header()?;
    Ok(())
}

/// The records that could not be read. The command goes on without them and fails at its end, with one line.
#[derive(Default)]
struct Bad {
    first: Option<Error>,
    /// The others, neighbours joined.
    others: Vec<Range<u64>>,
}

impl Bad {
    /// How many ranges the line lists.
    const LISTED: usize = 20;

    fn push(&mut self, index: u64, e: Error) {
        if self.first.is_none() {
            self.first = Some(e);
            return;
        }
        match self.others.last_mut() {
            Some(range) if range.end == index => range.end += 1,
            _ => self.others.push(index..index + 1),
        }
    }

    fn tell(self) -> Outcome {
        let Some(first) = self.first else { return Ok(()) };
        let count: u64 = self.others.iter().map(|range| range.end - range.start).sum();
        let mut line = format!("zrfs: {first}");
        if count > 0 {
            let names = self.others.iter().take(Self::LISTED).map(|range| match range.end - range.start {
                1 => range.start.to_string(),
                _ => format!("{}-{}", range.start, range.end - 1),
            });
            let dots = if self.others.len() > Self::LISTED { " …" } else { "" };
            line += &format!("; and {count} more: {}{dots}", names.collect::<Vec<_>>().join(" "));
        }
        eprintln!("{}", one_line(line));
        Err(Failure::Told)
    }
}
