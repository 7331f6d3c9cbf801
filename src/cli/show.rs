//! `ls`, `cat` and `stats`: what a store holds, without mounting it.

use std::path::Path;

use indicatif::HumanBytes;
use serde_json::json;
use zrfs::Store;
use zrfs::dataset::Schema;
use zrfs::store::{NamedNode, Names, NodeKind};

use super::batch::{Bad, Batch};
use super::output::Output;
use super::surrogates::JsonName;
use super::{CatArgs, LsArgs, Outcome, names};

/// `zrfs ls`
pub(super) fn ls(args: &LsArgs) -> Outcome {
    let store = Store::open_read_only(&args.store)?;
    let len = store.len();
    let ranges = args.records.find(&store)?;
    let names = store.names()?;
    let mut rows = Rows {
        store: &store,
        names: names.as_ref(),
        json: args.json,
        out: Output::new(),
        bad: Bad::default(),
    };
    match (ranges, &names) {
        (Some(ranges), _) => ranges.into_iter().flatten().try_for_each(|index| rows.look_up(index))?,
        (None, None) => (0..len).try_for_each(|index| rows.put(index, None))?,
        (None, Some(names)) => {
            let mut told = Ok(());
            names.each_record(0, |index, node| {
                told = rows.put(index, node);
                told.is_err()
            })?;
            told?;
        }
    }
    rows.out.finish()?;
    rows.bad.tell("")
}

/// The lines of `ls`.
struct Rows<'a> {
    store: &'a Store,
    names: Option<&'a Names<'a>>,
    json: bool,
    out: Output,
    bad: Bad,
}

impl Rows<'_> {
    fn look_up(&mut self, index: u64) -> Outcome {
        let node = self.names.map(|names| names.of_record(index)).transpose()?.flatten();
        self.put(index, node.as_ref())
    }

    fn put(&mut self, index: u64, node: Option<&NamedNode>) -> Outcome {
        let loc = match self.store.location(index) {
            Ok(loc) => loc,
            Err(e) => {
                self.bad.push(index, e);
                return Ok(());
            }
        };
        let (length, codec) = (loc.logic_length, loc.compress.name());
        let path = match (self.names, node) {
            (Some(names), Some(node)) => Some(names.path(node.id)?),
            _ => None,
        };
        if !self.json {
            let mut line = format!("{index}\t{length}\t{codec}\t").into_bytes();
            names::push_column(&mut line, &path.unwrap_or_default());
            line.push(b'\n');
            return self.out.write(&line);
        }
        let stored = loc.phys_length;
        let mut line = format!(r#"{{"index":{index},"length":{length},"stored":{stored},"codec":"{codec}""#);
        if let (Some(path), Some(NamedNode { modified_ns, kind: NodeKind::Record { executable, .. }, .. })) =
            (path, node)
        {
            let name = JsonName(&path);
            line += &format!(r#","name":{name},"modified":{modified_ns},"executable":{executable}"#);
        }
        self.out.line(line + "}")
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
