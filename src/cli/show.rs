//! `ls`, `cat` and `stats`: what a store holds, without mounting it.

use std::path::Path;

use indicatif::HumanBytes;
use serde_json::json;

use zrfs::dataset::Schema;
use zrfs::store::{NamedNode, NodeKind};
use zrfs::{ErrorKind, Store};

use super::batch::{Bad, Batch};
use super::names::{self, Paths};
use super::output::Output;
use super::surrogates::JsonName;
use super::{CatArgs, Failure, LsArgs, Outcome};

/// `zrfs ls`
pub(super) fn ls(args: &LsArgs) -> Outcome {
    let store = Store::open_read_only(&args.store)?;
    let ranges = args.records.find(&store)?.unwrap_or_else(|| std::iter::once(0..store.len()).collect());
    let mut rows = Rows { store: &store, json: args.json, out: Output::new(), bad: Bad::default() };
    let Some(names) = store.names()? else {
        ranges.into_iter().flatten().try_for_each(|index| rows.put(index, None))?;
        return rows.end();
    };
    let mut paths = Paths::new(&names);
    for range in ranges {
        let mut told = Ok(());
        names.each_record(range.start, |index, node| {
            told = paths_of(&mut paths, node).and_then(|named| rows.put(index, named));
            told.is_err() || index + 1 >= range.end
        })?;
        told?;
    }
    rows.end()
}

/// A node and its path; `None` where a folder that leads there is lost.
fn paths_of<'n>(
    paths: &mut Paths<'_>,
    node: Option<&'n NamedNode>,
) -> Result<Option<(&'n NamedNode, Vec<u8>)>, Failure> {
    let Some(node) = node else { return Ok(None) };
    match paths.of(node) {
        Ok(path) => Ok(Some((node, path))),
        Err(e) if e.kind() == ErrorKind::Damaged => Ok(None),
        Err(e) => Err(e.into()),
    }
}

/// The lines of `ls`.
struct Rows<'a> {
    store: &'a Store,
    json: bool,
    out: Output,
    bad: Bad,
}

impl Rows<'_> {
    fn put(&mut self, index: u64, named: Option<(&NamedNode, Vec<u8>)>) -> Outcome {
        let loc = match self.store.location(index) {
            Ok(loc) => loc,
            Err(e) => {
                self.bad.push(index, e);
                return Ok(());
            }
        };
        let (length, stored, codec) = (loc.logic_length, loc.phys_length, loc.compress.name());
        if !self.json {
            let mut line = format!("{index}\t{length}\t{codec}\t").into_bytes();
            names::push_column(&mut line, &named.map(|(_, path)| path).unwrap_or_default());
            line.push(b'\n');
            return self.out.write(&line);
        }
        let mut line = format!(r#"{{"index":{index},"length":{length},"stored":{stored},"codec":"{codec}""#);
        if let Some((NamedNode { modified_ns, kind: NodeKind::Record { executable, .. }, .. }, path)) = named
        {
            let name = JsonName(&path);
            line += &format!(r#","name":{name},"modified":{modified_ns},"executable":{executable}"#);
        }
        self.out.line(line + "}")
    }

    fn end(self) -> Outcome {
        self.out.finish()?;
        self.bad.tell("")
    }
}

/// `zrfs cat`
pub(super) fn cat(args: &CatArgs) -> Outcome {
    let store = Store::open_read_only(&args.store)?;
    let mut out = Output::new();
    let mut bad = Bad::default();
    let mut batch = Batch::new();
    for index in args.records.find(&store)?.into_iter().flatten().flatten() {
        match store.location(index) {
            Ok(loc) => {
                if !batch.takes(loc.logic_length) {
                    write(&mut batch, &store, &mut out, &mut bad)?;
                }
                batch.push(index, loc.logic_length, ());
            }
            Err(e) => bad.push(index, e),
        }
    }
    write(&mut batch, &store, &mut out, &mut bad)?;
    out.finish()?;
    bad.tell("")
}

fn write(batch: &mut Batch<()>, store: &Store, out: &mut Output, bad: &mut Bad) -> Outcome {
    batch.gather(store, bad)?.iter().try_for_each(|(_, record)| out.write(record))
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
        if stats.named > 0 {
            out.line(format_args!("named        {}", stats.named))?;
        }
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
