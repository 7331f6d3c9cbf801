//! `import`: folders, lists of files, archives and arrays into a store.
//!
//! First everything is looked at and checked against the store (see `plan`); then one thread reads ahead while this
//! one appends (see `feed`), all within one append that becomes visible at its end. A new store grows in
//! STORE.partial and is renamed when it is durable; whatever stops the command leaves no STORE, or the old one, and what
//! it has done so far, to go on with (see `resume`).

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
mod resume;
mod stack;
mod stores;
#[cfg(test)]
mod tests;
mod told;

use std::path::{Path, PathBuf};

use zrfs::dataset::Schema;
use zrfs::{Codec, Error, ErrorKind, Result, Stats, Store, Version};

use super::output::{Output, count};
use super::signals::Stop;
use super::{CodecName, Failure, ImportArgs, Links, Outcome, one_line, partial, progress};
use archive::Choice;
use feed::{Feed, How, Learned};
use folder::Only;
use labels::{Labels, Numbered};
use plan::{Look, Plan};
use resume::{Append, Options, Others};
use told::Beyond;
pub(super) use told::Done;

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
    let own = own(path, labels);
    let look = Look {
        only: only.as_ref(),
        links: args.links,
        null: args.null,
        stack: args.stack,
        rows: args.rows,
        codec,
        own: &own,
        labelled: labels.is_some(),
    };
    let import = Import {
        path,
        labels,
        codec,
        choice: look.choice(),
        v1: args.v1,
        large: args.large,
        resume: args.resume,
        options: Options::of(args),
        hints: &[],
        command: Some(resume::command()),
        stop,
    };
    if args.large && !args.append {
        return Err(Failure::Usage(
            "--large goes with --append; a new store becomes what it needs to be".into(),
        ));
    }
    if labels == Some(path) {
        return Err(Failure::Usage("the labels need a store of their own".into()));
    }
    let (plan, notes) = Plan::make(sources, &look, &import.stop)?;
    if labels.is_some() && matches!(plan, Plan::Arrays(_)) {
        return Err(Failure::Usage("--labels goes with files: an array's records have no class".into()));
    }
    let import = Import { hints: &notes.before, ..import };
    match if args.append { import.append(&plan)? } else { import.create(&plan)? } {
        Some(done) => done.tell(path, labels, &notes.after),
        None => {
            let mut out = Output::new();
            out.line(format_args!("nothing to resume: {} is complete", path.display()))?;
            out.finish()
        }
    }
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
    resume: bool,
    options: Options,
    /// What is said before the work begins.
    hints: &'a [String],
    /// The command that goes on with it; `None` where an interruption leaves nothing.
    command: Option<String>,
    stop: Stop,
}

/// Why an import was not completed, and whether a part of it stays to go on with.
struct Stopped {
    failure: Failure,
    kept: bool,
}

impl<E: Into<Failure>> From<E> for Stopped {
    fn from(e: E) -> Stopped {
        Stopped { failure: e.into(), kept: false }
    }
}

/// Where an append stands before anything is read.
struct Begun<'a> {
    append: Append<'a>,
    /// Marks of the records that are done.
    done: Vec<u64>,
    /// The sources of those, where they have other names than those that are given now.
    begun_with: Option<Others>,
    before: Stats,
    /// Where version 1 is to hold all records: what to do about what it does not hold.
    v1_only: Option<&'static str>,
}

/// Packs `source` into the new store `path` with the defaults, for the demo.
pub(super) fn folder_into(source: PathBuf, path: &Path, stop: Stop) -> std::result::Result<Done, Failure> {
    let codec = Codec::default();
    let links = Links::Follow;
    let own = own(path, None);
    let look =
        Look { only: None, links, null: false, stack: false, rows: None, codec, own: &own, labelled: false };
    let import = Import {
        path,
        labels: None,
        codec,
        choice: look.choice(),
        v1: false,
        large: false,
        resume: false,
        options: Options::default(),
        hints: &[],
        command: None,
        stop,
    };
    let (plan, _) = Plan::make(&[source], &look, &import.stop)?;
    import.make(&plan)
}

impl Import<'_> {
    /// Makes a new store, or goes on with one; `None` where it is complete already.
    fn create(&self, plan: &Plan) -> std::result::Result<Option<Done>, Failure> {
        if self.resume && is_there(self.path) && !is_there(&partial::beside(self.path)?) {
            // It may be anything.
            Store::open_read_only(self.path)?;
            return Ok(None);
        }
        self.make(plan).map(Some)
    }

    fn make(&self, plan: &Plan) -> std::result::Result<Done, Failure> {
        // Labels that were named before an interruption are looked at when the data are there.
        for path in [self.path].into_iter().chain(self.labels.filter(|_| !self.resume)) {
            if is_there(path) {
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
        if self.resume {
            return self.go_on(&partial, version, plan).map_err(|stopped| stopped.failure);
        }
        // Made here or refused: what another import has made is not ours to fill, nor to remove.
        std::fs::create_dir(&partial).map_err(|e| {
            partial::not_made(&partial, "an import", "continue it with --resume, or remove it", e)
        })?;
        self.fill(&partial, version, plan).map_err(|stopped| {
            if !stopped.kept {
                // What can't be removed is named at the next import.
                let _ = std::fs::remove_dir_all(&partial);
            }
            stopped.failure
        })
    }

    /// Fills a store that was just begun.
    fn fill(&self, partial: &Path, version: Version, plan: &Plan) -> std::result::Result<Done, Stopped> {
        let store = Store::create(partial, version)?;
        let before = store.stats()?;
        let append = Append::begin(store.appender()?, &self.options)?;
        let v1_only = self.v1.then_some(WITHOUT_V1);
        let begun = Begun { append, done: Vec::new(), begun_with: None, before, v1_only };
        // Behind the checkpoint that says that there are labels: none are left that --resume does not know of.
        let labels = self.labels.map(Labels::create).transpose()?;
        let done = self.complete(&store, partial, plan, begun, labels.as_ref());
        done.inspect_err(|_| labels.iter().for_each(Labels::discard))
    }

    /// Goes on filling the store in `partial`.
    fn go_on(&self, partial: &Path, version: Version, plan: &Plan) -> std::result::Result<Done, Stopped> {
        if !is_there(partial) {
            let text = format!("nothing to resume: there is no {}", partial.display());
            let help = "import without --resume";
            return Err(Error::new(ErrorKind::NotFound, text).with_help(help).into());
        }
        let store = resume::reopen(partial, version)?;
        let before = store.stats()?;
        let anew = format!("remove {0} and import again: rm -r {0}", partial.display());
        let v1_only = self.v1.then_some(WITHOUT_V1);
        let begun = match self.resumed(&store, plan, before, &anew)? {
            Some(begun) => Begun { v1_only, ..begun },
            None => {
                if before.records > 0 {
                    // Held until the end, as by an import that is running.
                    let append = Append::new(store.appender()?, &self.options);
                    return self.name_complete(&store, partial, plan, append, &anew);
                }
                let append = Append::begin(store.appender()?, &self.options)?;
                Begun { append, done: Vec::new(), begun_with: None, before, v1_only }
            }
        };
        let labels = self.labels.map(Labels::create_anew).transpose()?;
        let done = self.complete(&store, partial, plan, begun, labels.as_ref());
        done.inspect_err(|_| labels.iter().for_each(Labels::discard))
    }

    /// Names a store that an import had completed before it was interrupted.
    fn name_complete(
        &self,
        store: &Store,
        partial: &Path,
        plan: &Plan,
        append: Append<'_>,
        anew: &str,
    ) -> std::result::Result<Done, Stopped> {
        let stats = store.stats()?;
        // What is read again is not appended: it has the names, which the labels need.
        let how = How { choice: self.choice, v1_only: None, stop: &self.stop, done: &[], begun_with: None };
        let read = if plan.is_known() { Learned::default() } else { Feed::over(plan, &how, |_| Ok(()))? };
        let names = read.names.as_ref().or(plan.names());
        let linked = if plan.is_known() { plan.linked_classes() } else { &read.linked_classes };
        let records = names.map_or(plan.records(), |names| names.len() as u64);
        if records != stats.records {
            let text = format!(
                "{} is complete with {}, but the sources hold {records}",
                partial.display(),
                count(stats.records, "record")
            );
            return Err(Error::new(ErrorKind::Unsupported, text).with_help(anew).into());
        }
        let (mut labels, mut numbered) = (None, None);
        if let (Some(path), Some(names)) = (self.labels, names) {
            let again =
                if is_there(path) { Labels::open(path, 0, true)? } else { Labels::create_anew(path)? };
            let numbers = again.number(names, linked)?;
            again.write(&numbers)?;
            (labels, numbered) = (Some(again), Some(numbers));
        }
        // Nothing was appended.
        drop(append);
        self.name(partial, labels.as_ref())?;
        Ok(Done {
            records,
            bytes: stats.logical_bytes,
            total: stats.records,
            stored: stats.live_bytes,
            beyond_v1: (stats.version == Version::V2).then(|| Beyond::among(store, 0)).transpose()?,
            classes: numbered.as_ref().map(|numbered| numbered.classes.len()),
            notes: read.notes.into_iter().chain(numbered.and_then(|numbered| numbered.note)).collect(),
        })
    }

    /// Appends everything to the new store in `partial`, and gives it its name.
    fn complete(
        &self,
        store: &Store,
        partial: &Path,
        plan: &Plan,
        begun: Begun<'_>,
        labels: Option<&Labels<'_>>,
    ) -> std::result::Result<Done, Stopped> {
        if begun.done.is_empty() {
            resume::write_schema(store, plan.schema())?;
        }
        let numbered = self.prepare(store, plan, labels)?;
        let done = self.pour(store, plan, begun, labels, numbered)?;
        self.name(partial, labels).map_err(|e| self.with_rest(e.into(), done.records, plan))?;
        Ok(done)
    }

    /// Gives the new stores their names, the labels first.
    fn name(&self, partial: &Path, labels: Option<&Labels<'_>>) -> Result<()> {
        labels.map_or(Ok(()), Labels::finish)?;
        partial::rename(partial, self.path).inspect_err(|_| labels.into_iter().for_each(Labels::take_back))
    }

    /// Adds to a store that is there; `None` where that was done already.
    fn append(&self, plan: &Plan) -> std::result::Result<Option<Done>, Failure> {
        let store = Store::open(self.path)?;
        for path in [self.path].into_iter().chain(self.labels) {
            plan.check_apart(path)?;
        }
        let before = store.stats()?;
        let begun = if self.resume {
            match self.resumed(&store, plan, before, "import without --resume")? {
                Some(begun) => Some(begun),
                None if resume::holds_all(&store, plan)? => return Ok(None),
                None => {
                    let text = format!(
                        "nothing to resume: no append to {} was interrupted, or another change has ended it",
                        self.path.display()
                    );
                    let help = "import without --resume";
                    return Err(Error::new(ErrorKind::NotFound, text).with_help(help).into());
                }
            }
        } else {
            None
        };
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
        let labels = self.labels.map(|path| Labels::open(path, store.len(), self.resume)).transpose()?;
        let numbered = self.prepare(&store, plan, labels.as_ref())?;
        let begun = match begun {
            Some(begun) => Begun { v1_only, ..begun },
            None => {
                let append = Append::begin(store.appender()?, &self.options)?;
                Begun { append, done: Vec::new(), begun_with: None, before, v1_only }
            }
        };
        let done = self.pour(&store, plan, begun, labels.as_ref(), numbered);
        done.map(Some).map_err(|stopped| stopped.failure)
    }

    /// Goes on with an interrupted append to `store`, where there is one and the sources are those that it had.
    fn resumed<'s>(
        &self,
        store: &'s Store,
        plan: &Plan,
        before: Stats,
        anew: &str,
    ) -> Result<Option<Begun<'s>>> {
        let Some((appender, interrupted)) = store.resume()? else { return Ok(None) };
        let append = Append::go_on(appender, &interrupted, &self.options, anew)?;
        let begun_with = Others::of(&interrupted.note, &self.options, anew)?;
        resume::check_sources(&interrupted.marks, plan, begun_with.as_ref(), anew)?;
        Ok(Some(Begun { append, done: interrupted.marks, begun_with, before, v1_only: None }))
    }

    /// Checks the names that are known before anything is read, and numbers their classes.
    fn prepare(
        &self,
        store: &Store,
        plan: &Plan,
        labels: Option<&Labels<'_>>,
    ) -> std::result::Result<Option<Numbered>, Failure> {
        let Some(names) = plan.names() else { return Ok(None) };
        store.check_names(names)?;
        let known = labels.filter(|_| plan.is_known());
        known.map(|labels| labels.number(names, plan.linked_classes())).transpose()
    }

    /// Appends everything that the plan names behind what is done, and makes it and its labels durable.
    fn pour(
        &self,
        store: &Store,
        plan: &Plan,
        begun: Begun<'_>,
        labels: Option<&Labels<'_>>,
        mut numbered: Option<Numbered>,
    ) -> std::result::Result<Done, Stopped> {
        let Begun { mut append, done, begun_with, before, v1_only } = begun;
        append.set_version(plan.version_for(store.version()));
        say(self.hints);
        let bar = if plan.is_known() {
            progress::bytes("importing", plan.bytes()).with_position(plan.bytes_of(done.len()))
        } else {
            progress::stream("importing")
        };
        let begun_with = begun_with.as_ref();
        let how = How { choice: self.choice, v1_only, stop: &self.stop, done: &done, begun_with };
        let (mut notes, mut went_on) = (Vec::new(), false);
        let mut pour = || -> std::result::Result<(), Failure> {
            let poured = Feed::over(plan, &how, |batch| {
                append.put(batch, self.codec)?;
                went_on = true;
                bar.inc(batch.records.bytes());
                Ok(())
            });
            bar.finish_and_clear();
            let learned = poured?;
            if let Some(names) = learned.names.as_ref().or(plan.names()) {
                append.set_names(names)?;
            }
            if let (Some(labels), Some(names)) = (labels, &learned.names) {
                numbered = Some(labels.number(names, &learned.linked_classes)?);
            }
            if let (Some(labels), Some(numbered)) = (labels, &numbered) {
                labels.write(numbered)?;
            }
            notes = learned.notes;
            append.commit()?;
            Ok(store.sync()?)
        };
        if let Err(failure) = pour() {
            // Refused before it came to anything new, it is so again: that command is not the one to continue with.
            let goes_on = went_on
                || done.is_empty()
                || !matches!(&failure, Failure::Failed(e) if e.kind() == ErrorKind::Unsupported);
            let kept =
                append.keep(matches!(&failure, Failure::Failed(e) if e.kind() == ErrorKind::Interrupted));
            return Err(if kept > 0 && goes_on {
                self.with_rest(failure, kept, plan)
            } else {
                failure.into()
            });
        }
        let after = store.stats()?;
        let became_v2 =
            store.version() == Version::V2 && (before.version == Version::V1 || before.records == 0);
        Ok(Done {
            records: after.records - before.records,
            bytes: after.logical_bytes.saturating_sub(before.logical_bytes),
            total: after.records,
            stored: after.live_bytes.saturating_sub(before.live_bytes),
            beyond_v1: became_v2.then(|| Beyond::among(store, before.records)).transpose()?,
            classes: numbered.as_ref().map(|numbered| numbered.classes.len()),
            notes: notes.into_iter().chain(numbered.and_then(|numbered| numbered.note)).collect(),
        })
    }

    /// A failure that leaves `kept` records, with the command that goes on behind them.
    fn with_rest(&self, failure: Failure, kept: u64, plan: &Plan) -> Stopped {
        let Some(command) = &self.command else { return failure.into() };
        let all = plan.records();
        let records = if plan.is_known() {
            format!("{kept} of {}", count(all, "record"))
        } else {
            count(kept, "record")
        };
        let are = if kept == 1 { "is" } else { "are" };
        let rest = format!("{records} {are} kept; continue with: {command}");
        let failure = match failure {
            Failure::Failed(e) if e.kind() == ErrorKind::Interrupted => {
                Error::new(e.kind(), format!("interrupted: {rest}")).into()
            }
            Failure::Failed(e) => Error::new(e.kind(), format!("{e}; {rest}")).into(),
            told => {
                eprintln!("zrfs: {}", one_line(rest));
                told
            }
        };
        Stopped { failure, kept: true }
    }
}

/// Says something on standard output at once. What can't be said there is no reason not to go on: at the end it is one.
fn say(lines: &[String]) {
    let mut out = Output::new();
    if lines.iter().try_for_each(|line| out.line(one_line(line))).is_ok() {
        let _ = out.finish();
    }
}

/// The folders that an import into these stores makes.
fn own(path: &Path, labels: Option<&Path>) -> Vec<PathBuf> {
    let stores = || [path].into_iter().chain(labels);
    stores().map(Path::to_path_buf).chain(stores().filter_map(|path| partial::beside(path).ok())).collect()
}

fn is_there(path: &Path) -> bool {
    path.symlink_metadata().is_ok()
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
