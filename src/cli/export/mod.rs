//! `export`: records out of a store again, as a folder, a tar archive or an array.
//!
//! What is to be written is known before anything is (see `source`). It goes to DEST.partial, which gets its name when it is
//! complete and is removed when it can't be (see `place`). The names come from a file beside the records, which may come
//! from anybody: whatever they are, nothing is written outside the destination (see `lineage` and `folder`).

mod archive;
mod array;
mod folder;
mod lineage;
mod place;
mod source;

use std::fs::File;
use std::io::{BufWriter, IsTerminal};
use std::os::fd::AsFd;
use std::path::Path;

use indicatif::HumanBytes;
use zrfs::store::{NamedNode, NodeId, NodeKind};
use zrfs::{Error, Store};

use super::batch::{Bad, Batch};
use super::output::{Output, count};
use super::signals::Stop;
use super::{ExportArgs, Failure, Outcome, partial, progress};
use archive::Archive;
use folder::Folder;
use lineage::Nodes;
use place::Place;
use source::{Item, Source};

/// Bytes that are written to an archive at a time.
const BUFFER: usize = 1 << 20;

/// What became of an export that is stopped.
const UNDONE: &str = "nothing was exported";

/// `zrfs export`
pub(super) fn run(args: &ExportArgs) -> Outcome {
    let (path, stop) = (&args.dest, Stop::on_signals()?);
    let store = Store::open_read_only(&args.store)?;
    let chosen = args.records.find(&store)?;
    let mut bad = Bad::default();
    if path == Path::new("-") {
        let source = Source::new(&store, chosen)?;
        pour(&source, &mut standard_output()?, &mut bad, &stop)?;
        return bad.tell("; the archive has all others");
    }
    let is_folder = path.as_os_str().as_encoded_bytes().ends_with(b"/");
    refuse_other_archives(path, is_folder)?;
    let done = match path.extension().and_then(|ext| ext.to_str()).filter(|_| !is_folder) {
        Some("npy") => {
            let place = Place::file(path, &store)?;
            let done = array::write(&store, chosen, &place, &mut bad, &stop)?;
            if !bad.is_empty() {
                return bad
                    .tell("; nothing was exported, as the rows behind would move up: name the good ones");
            }
            place.keep(&stop)?;
            done
        }
        Some("tar") => {
            let source = Source::new(&store, chosen)?;
            let place = Place::file(path, &store)?;
            let mut archive = Archive::new(BufWriter::with_capacity(BUFFER, place.open()), place.name());
            let done = pour(&source, &mut archive, &mut bad, &stop)?;
            drop(archive);
            place.keep(&stop)?;
            done
        }
        _ => {
            let source = Source::new(&store, chosen)?;
            let place = Place::folder(path, &store)?;
            let done = pour(&source, &mut Folder::new(place.open(), place.name(), &stop), &mut bad, &stop)?;
            place.keep(&stop)?;
            done
        }
    };
    let mut out = Output::new();
    let links = if done.links > 0 { format!(" and {}", count(done.links, "link")) } else { String::new() };
    let (records, bytes) = (count(done.records, "record"), HumanBytes(done.bytes));
    out.line(format_args!("{}: exported {records}{links}; {bytes}", path.display()))?;
    out.finish()?;
    bad.tell(&format!("; {} has all others", path.display()))
}

/// A name that promises what export does not make.
fn refuse_other_archives(path: &Path, is_folder: bool) -> Outcome {
    let name = path.as_os_str().as_encoded_bytes().to_ascii_lowercase();
    let gzipped = [&b".tar.gz"[..], b".tgz"].iter().any(|end| name.ends_with(end));
    let other =
        [&b".npz"[..], b".zip", b".tar.xz", b".tar.zst", b".tar.bz2"].iter().any(|end| name.ends_with(end));
    if is_folder || !(gzipped || other) {
        return Ok(());
    }
    let mut text = format!("{} is neither a folder's name nor NAME.tar or NAME.npy", path.display());
    if gzipped {
        text += "; export STORE - | gzip > NAME.tar.gz makes a packed archive";
    }
    Err(Failure::Usage(text))
}

fn standard_output() -> Result<Archive<BufWriter<File>>, Failure> {
    let stdout = std::io::stdout();
    if stdout.is_terminal() {
        return Err(Failure::Usage(
            "standard output is a terminal: send the archive to a file or a program".into(),
        ));
    }
    // Not through the standard library's own buffer, which looks for ends of lines.
    let fd = stdout.as_fd().try_clone_to_owned();
    let fd = fd.map_err(|e| Error::io("can't write to standard output", e))?;
    Ok(Archive::new(BufWriter::with_capacity(BUFFER, File::from(fd)), "standard output".to_owned()))
}

/// What was exported.
#[derive(Default)]
struct Done {
    records: u64,
    bytes: u64,
    links: u64,
}

/// A symbolic link to be. Nothing here follows it.
struct Link {
    folder: NodeId,
    name: Vec<u8>,
    target: Vec<u8>,
    modified_ns: i64,
}

/// Where files go.
trait Tree {
    /// Makes a folder, and those that lead there.
    fn folder(&mut self, nodes: &dyn Nodes, id: NodeId) -> Outcome;

    /// Makes files, and the folders that lead there.
    fn records(&mut self, nodes: &dyn Nodes, records: &[(Item<'_>, &[u8])]) -> Outcome;

    /// Makes a link. Comes after all records: what is written later would go where it leads.
    fn link(&mut self, nodes: &dyn Nodes, link: Link) -> Outcome;

    /// Ends it; comes last.
    fn finish(&mut self, nodes: &dyn Nodes) -> Outcome;
}

/// Writes everything that is chosen to `tree`.
fn pour(source: &Source<'_>, tree: &mut dyn Tree, bad: &mut Bad, stop: &Stop) -> Result<Done, Failure> {
    let bar = progress::bytes("exporting", source.bytes()?);
    let poured = pour_with(source, tree, bad, stop, |bytes| bar.inc(bytes));
    bar.finish_and_clear();
    poured
}

fn pour_with(
    source: &Source<'_>,
    tree: &mut dyn Tree,
    bad: &mut Bad,
    stop: &Stop,
    wrote: impl Fn(u64),
) -> Result<Done, Failure> {
    let mut done = Done::default();
    let (folders, links) = source.folders_and_links()?;
    for folder in folders {
        stop.check(UNDONE)?;
        if source.leads_to(folder)? {
            tree.folder(source, folder)?;
        }
    }
    let mut batch = Batch::new();
    let mut write = |batch: &mut Batch<Item<'_>>, bad: &mut Bad| -> Outcome {
        stop.check(UNDONE)?;
        let records = batch.gather(source.store(), bad)?;
        tree.records(source, &records)?;
        let bytes = records.iter().map(|(_, record)| record.len() as u64).sum();
        done.records += records.len() as u64;
        done.bytes += bytes;
        wrote(bytes);
        Ok(())
    };
    source.each_record(|index, item| {
        let len = match source.store().location(index) {
            Ok(loc) => loc.logic_length,
            Err(e) => {
                bad.push(index, e);
                return Ok(());
            }
        };
        if !batch.takes(len) {
            write(&mut batch, bad)?;
        }
        batch.push(index, len, item);
        Ok(())
    })?;
    write(&mut batch, bad)?;
    for link in links {
        stop.check(UNDONE)?;
        let Some(NamedNode { parent, name, modified_ns, kind: NodeKind::Link { target }, .. }) =
            source.node(link)?
        else {
            continue;
        };
        if source.leads_to(parent)? {
            tree.link(source, Link { folder: parent, name, target, modified_ns })?;
            done.links += 1;
        }
    }
    tree.finish(source)?;
    source.tell_lost();
    Ok(done)
}
