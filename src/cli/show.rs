//! `ls`, `cat` and `stats`: what a store holds, without mounting it.

use std::path::Path;

use indicatif::HumanBytes;
use serde_json::{Map, Value, json};

use zrfs::dataset::Schema;
use zrfs::store::{NamedNode, NodeKind};
use zrfs::{Error, ErrorKind, Store};

use super::batch::{Bad, Batch};
use super::live::Live;
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
    if let Some(live) = Live::at(path)? {
        let mut figures = live.stats()?;
        if !json {
            // What the file system says is the store's.
            let space = rustix::fs::statvfs(path)
                .map_err(|e| Error::io(format!("can't look at {}", path.display()), e.into()))?;
            let allocated = space.f_blocks.saturating_mul(space.f_frsize);
            figures.insert("allocated_bytes".to_owned(), json!(allocated));
        }
        return tell_figures(path, figures, json);
    }
    let store = Store::open_read_only(path)?;
    let mut figures = store.stats()?.to_json();
    figures.insert("allocated_bytes".to_owned(), json!(store.allocated()?));
    figures.insert("apparent_bytes".to_owned(), json!(store.apparent()?));
    let schema = Schema::read(&store).unwrap_or_else(|e| {
        log::warn!("{e}");
        None
    });
    if let Some(schema) = &schema {
        figures.insert("dtype".to_owned(), json!(schema.dtype()));
        figures.insert("shape".to_owned(), json!(schema.shape()));
    }
    tell_figures(path, figures, json)?;
    store.check_header()?;
    Ok(())
}

/// Figures as JSON, or as lines for people, of those that there are.
fn tell_figures(path: &Path, figures: Map<String, Value>, json: bool) -> Outcome {
    let mut out = Output::new();
    if json {
        out.line(Value::Object(figures))?;
        return out.finish();
    }
    let figure = |name: &str| figures.get(name).and_then(Value::as_u64);
    let mut line = |title: &str, text: Option<String>| match text {
        Some(text) => out.line(format_args!("{title:<13}{text}")),
        None => Ok(()),
    };
    let number = |name| figure(name).map(|n| n.to_string());
    let bytes = |name| figure(name).map(|n| HumanBytes(n).to_string());
    line("store", Some(path.display().to_string()))?;
    line("version", number("version"))?;
    line("records", number("records"))?;
    line("named", number("named").filter(|named| named != "0"))?;
    if let (Some(dtype), Some(shape)) = (figures.get("dtype").and_then(Value::as_str), figures.get("shape")) {
        let shape: Vec<String> = shape.as_array().into_iter().flatten().map(Value::to_string).collect();
        line("each", Some(format!("dtype {dtype}, shape [{}]", shape.join(", "))))?;
    }
    line("decoded", bytes("logical_bytes"))?;
    line("stored", bytes("live_bytes"))?;
    line("on disk", bytes("allocated_bytes"))?;
    line("apparent", bytes("apparent_bytes").map(|apparent| apparent + ", holes included"))?;
    line("reclaimable", bytes("reclaimable"))?;
    line("freeable", bytes("freeable").map(|freeable| freeable + " by zrfs compact"))?;
    line("damaged", number("damaged").filter(|n| n != "0").map(|n| n + " records"))?;
    out.finish()
}
