//! `import`: folders, lists of files, archives and arrays into a store.
//!
//! First everything is looked at and checked against the store (see `plan`); then one thread reads ahead while this
//! one appends (see `feed`), all within one append that becomes visible at its end. A new store grows in
//! STORE.partial and is renamed when it is durable; whatever stops the command leaves no STORE, or the old one.

mod archive;
mod arrays;
mod feed;
mod files;
mod folder;
mod hints;
mod labels;
mod links;
mod listed;
mod npz;
mod order;
mod plan;
mod stack;
#[cfg(test)]
mod tests;

use std::path::{Path, PathBuf};

use indicatif::HumanBytes;
use zrfs::dataset::Schema;
use zrfs::{Appender, Codec, Error, ErrorKind, Result, Store, Version};

use super::output::Output;
use super::signals::Stop;
use super::{CodecName, Failure, ImportArgs, Links, Outcome, partial, progress};
use archive::Choice;
use feed::{Feed, How, Records};
use folder::Only;
use labels::Labels;
use plan::{Look, Plan};

/// `zrfs import`
pub(super) fn run(args: &ImportArgs) -> Outcome {
    let Some((path, sources)) = args.paths.split_last() else {
        return Err(Failure::Usage("import needs a source and a store".into()));
    };
    if sources.is_empty() {
        return Err(Failure::Usage("import needs a source and a store".into()));
    }
    let codec = match args.codec {
        CodecName::Flate => Codec::Flate(args.level),
        CodecName::Raw => Codec::Raw,
    };
    let only = Only::new(&args.only).map_err(Failure::Usage)?;
    let stop = Stop::on_signals()?;
    let labels = args.labels.as_deref();
    if args.large && !args.append {
        return Err(Failure::Usage(
            "--large goes with --append; a new store becomes what it needs to be".into(),
        ));
    }
    if labels == Some(path) {
        return Err(Failure::Usage("the labels need a store of their own".into()));
    }
    let look = Look {
        only: only.as_ref(),
        links: args.links,
        null: args.null,
        stack: args.stack,
        rows: args.rows,
        codec,
    };
    let import = Import { path, labels, codec, choice: look.choice(), v1: args.v1, large: args.large, stop };
    let (plan, notes) = Plan::make(sources, &look, &import.stop)?;
    if labels.is_some() && matches!(plan, Plan::Arrays(_)) {
        return Err(Failure::Usage("--labels goes with files: an array's records have no class".into()));
    }
    let done = if args.append { import.append(&plan)? } else { import.create(&plan)? };
    done.tell(path, labels, &notes)
}

/// What to do about records that version 1 does not hold.
const WITHOUT_V1: &str = "without --v1 the store becomes version 2";
const LEAVE_OUT_V1: &str = "leave out --v1";
const LARGE: &str = "--large changes the store to version 2";

/// What is to be done, beside the sources.
struct Import<'a> {
    path: &'a Path,
    labels: Option<&'a Path>,
    codec: Codec,
    choice: Choice<'a>,
    v1: bool,
    large: bool,
    stop: Stop,
}

/// What was done.
pub(super) struct Done {
    records: u64,
    bytes: u64,
    total: u64,
    stored: u64,
    became_v2: bool,
    classes: Option<usize>,
    /// What was learned while the sources were read.
    notes: Vec<String>,
}

/// Packs `source` into the new store `path` with the defaults, for the demo.
pub(super) fn folder_into(source: PathBuf, path: &Path, stop: Stop) -> std::result::Result<Done, Failure> {
    let codec = Codec::default();
    let links = Links::Follow;
    let look = Look { only: None, links, null: false, stack: false, rows: None, codec };
    let choice = look.choice();
    let import = Import { path, labels: None, codec, choice, v1: false, large: false, stop };
    let (plan, _) = Plan::make(&[source], &look, &import.stop)?;
    import.create(&plan)
}

impl Import<'_> {
    /// Makes a new store.
    fn create(&self, plan: &Plan) -> std::result::Result<Done, Failure> {
        for path in [self.path].into_iter().chain(self.labels) {
            if path.symlink_metadata().is_ok() {
                let text = format!("{} exists already", path.display());
                let help = "choose another name, or add to a store with --append";
                return Err(Error::new(ErrorKind::Exists, text).with_help(help).into());
            }
        }
        let partial = partial::beside(self.path)?;
        plan.check_fits(0)?;
        let version = plan.version_for(Version::V1);
        if self.v1 && version > Version::V1 {
            plan.tell_oversized(WITHOUT_V1);
            return Err(Failure::Told);
        }
        // Made here or refused: what another import has made is not ours to fill, nor to remove.
        std::fs::create_dir(&partial).map_err(|e| partial::not_made(&partial, "an import", e))?;
        let done = self.fill(&partial, version, plan);
        if done.is_err() {
            // Half a store is of no use to anybody; what can't be removed is named at the next import.
            let _ = std::fs::remove_dir_all(&partial);
        }
        done
    }

    fn fill(&self, partial: &Path, version: Version, plan: &Plan) -> std::result::Result<Done, Failure> {
        let labels = self.labels.map(Labels::create).transpose()?;
        let filled = || {
            let store = Store::create(partial, version)?;
            if let Some(schema) = plan.schema() {
                schema.write(&store)?;
            }
            let done = self.pour(&store, plan, self.v1.then_some(WITHOUT_V1), labels.as_ref())?;
            store.sync()?;
            Ok(done)
        };
        let done = filled().and_then(|done| {
            self.name(partial, labels.as_ref())?;
            Ok(done)
        });
        if let (Err(_), Some(labels)) = (&done, &labels) {
            labels.discard();
        }
        done
    }

    /// Gives the new stores their names, the labels first.
    fn name(&self, partial: &Path, labels: Option<&Labels<'_>>) -> Result<()> {
        labels.map_or(Ok(()), Labels::finish)?;
        partial::rename(partial, self.path).inspect_err(|_| labels.into_iter().for_each(Labels::take_back))
    }

    /// Adds to a store that is there.
    fn append(&self, plan: &Plan) -> std::result::Result<Done, Failure> {
        let store = Store::open(self.path)?;
        for path in [self.path].into_iter().chain(self.labels) {
            plan.check_apart(path)?;
        }
        plan.check_fits(store.len())?;
        check_schema(&store, plan.schema())?;
        let needed = plan.version_for(store.version());
        let beyond_v1 = plan.version_for(Version::V1) > Version::V1;
        if (needed > store.version() && !self.large) || (self.v1 && beyond_v1) {
            plan.tell_oversized(if self.v1 { LEAVE_OUT_V1 } else { LARGE });
            return Err(Failure::Told);
        }
        let large = (store.version() == Version::V1 && !self.large).then_some(LARGE);
        let v1_only = if self.v1 { Some(LEAVE_OUT_V1) } else { large };
        let labels = self.labels.map(|path| Labels::open(path, store.len())).transpose()?;
        let done = self.pour(&store, plan, v1_only, labels.as_ref())?;
        store.sync()?;
        Ok(done)
    }

    /// Appends everything that the plan names, and makes its labels durable. Where version 1 is to hold all of it, `v1_only`
    /// says what to do about what it does not hold.
    fn pour(
        &self,
        store: &Store,
        plan: &Plan,
        v1_only: Option<&'static str>,
        labels: Option<&Labels<'_>>,
    ) -> std::result::Result<Done, Failure> {
        let before = store.stats()?;
        let mut numbered = None;
        if let Some(names) = plan.names() {
            store.check_names(names)?;
            if plan.is_known() {
                let number = |labels: &Labels<'_>| labels.number(names, plan.linked_classes());
                numbered = labels.map(number).transpose()?;
            }
        }
        let mut appender = store.appender()?;
        appender.set_version(plan.version_for(store.version()));
        let bar = if plan.is_known() {
            progress::bytes("importing", plan.bytes())
        } else {
            progress::stream("importing")
        };
        let (first, mut bytes) = (appender.len(), 0);
        let how = How { choice: self.choice, v1_only, stop: &self.stop };
        let poured = Feed::over(plan, &how, |batch| {
            // What was known has been seen to; what was not is refused by the feed where it must not be.
            appender.set_version(batch.records.version());
            put(&mut appender, first, &batch.records, self.codec)?;
            bytes += batch.records.bytes();
            bar.inc(batch.records.bytes());
            Ok(())
        });
        bar.finish_and_clear();
        let learned = poured?;
        if let Some(names) = learned.names.as_ref().or(plan.names()) {
            appender.set_names(names)?;
        }
        if let (Some(labels), Some(names)) = (labels, &learned.names) {
            numbered = Some(labels.number(names, &learned.linked_classes)?);
        }
        if let (Some(labels), Some(numbered)) = (labels, &numbered) {
            labels.write(numbered)?;
        }
        let total = appender.len();
        appender.commit()?;
        Ok(Done {
            records: total - first,
            bytes,
            total,
            stored: store.stats()?.live_bytes.saturating_sub(before.live_bytes),
            became_v2: store.version() == Version::V2
                && (before.version == Version::V1 || before.records == 0),
            classes: numbered.map(|numbered| numbered.classes.len()),
            notes: learned.notes,
        })
    }
}

/// Appends a batch of an import whose first record is `first`.
fn put(appender: &mut Appender<'_>, first: u64, records: &Records, codec: Codec) -> Result<()> {
    match records {
        Records::Equal { bytes, len } => appender.append(bytes, *len, codec),
        Records::Ragged { bytes, offsets, lens } => appender.append_ragged(bytes, offsets, lens, codec),
        Records::Copies { of, .. } => {
            let (mut bytes, mut offsets, mut lens) = (Vec::new(), Vec::new(), Vec::new());
            for &of in of {
                let copy = appender.read(first + of)?;
                offsets.push(bytes.len() as u64);
                // No record is longer than 1 GiB.
                lens.push(u32::try_from(copy.len()).unwrap_or(u32::MAX));
                if bytes.is_empty() { bytes = copy } else { bytes.extend_from_slice(&copy) }
            }
            appender.append_ragged(&bytes, &offsets, &lens, codec)
        }
    }
}

impl Done {
    /// Says what was done, on standard output.
    pub(super) fn tell(&self, path: &Path, labels: Option<&Path>, notes: &[String]) -> Outcome {
        let mut out = Output::new();
        let total =
            if self.total == self.records { String::new() } else { format!(", {} in all", self.total) };
        out.line(format_args!(
            "{}: imported {} records{total}; {} stored as {}",
            path.display(),
            self.records,
            HumanBytes(self.bytes),
            HumanBytes(self.stored),
        ))?;
        if let (Some(labels), Some(classes)) = (labels, self.classes) {
            let labels = labels.display();
            out.line(format_args!("{labels}: a label for each record, {classes} classes in classes.json"))?;
        }
        if self.became_v2 {
            out.line("The store has format version 2, since a record is empty or over 1 MiB: loaderx 0.5.0 refuses it.")?;
        }
        for note in notes.iter().chain(&self.notes) {
            out.line(note)?;
        }
        out.finish()
    }
}

/// Records of one store are all dense and alike, or all free.
fn check_schema(store: &Store, new: Option<&Schema>) -> Result<()> {
    let name = store.path().display();
    let text = match (Schema::read(store)?, new) {
        (None, None) => return Ok(()),
        (Some(old), Some(new)) if (old.dtype(), old.shape()) == (new.dtype(), new.shape()) => return Ok(()),
        (Some(old), Some(new)) => format!(
            "{name} holds records of {} {:?}, the array has {} {:?}",
            old.dtype(),
            old.shape(),
            new.dtype(),
            new.shape()
        ),
        (Some(old), None) => {
            format!("{name} holds records of {} {:?}, not files", old.dtype(), old.shape())
        }
        (None, Some(_)) => format!("{name} holds files, not records of an array"),
    };
    Err(Error::new(ErrorKind::Unsupported, text).with_help("import it into a store of its own"))
}
