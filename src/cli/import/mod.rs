//! `import`: folders and arrays into a store.
//!
//! First everything is looked at and checked against the store (see `plan`); then one thread reads ahead while this
//! one appends (see `feed`), all within one append that becomes visible at its end. A new store grows in
//! STORE.partial and is renamed when it is durable; whatever stops the command leaves no STORE, or the old one.

mod feed;
mod files;
mod folder;
mod hints;
mod order;
mod plan;

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use indicatif::HumanBytes;
use zrfs::dataset::Schema;
use zrfs::{Appender, Codec, Error, ErrorKind, Result, Store, Version};

use super::output::Output;
use super::signals::Stop;
use super::{CodecName, Failure, ImportArgs, Links, Outcome, progress};
use feed::{Feed, Records};
use folder::Only;
use plan::{Look, Plan};

/// `zrfs import`
pub(super) fn run(args: &ImportArgs) -> Outcome {
    let Some((path, sources)) = args.paths.split_last() else {
        return Err(Failure::Usage("import needs a source and a store".into()));
    };
    if sources.is_empty() {
        return Err(Failure::Usage("import needs a source and a store".into()));
    }
    let Links::Follow = args.links;
    let codec = match args.codec {
        CodecName::Flate => Codec::Flate(args.level),
        CodecName::Raw => Codec::Raw,
    };
    let only = Only::new(&args.only).map_err(Failure::Usage)?;
    let stop = Stop::on_signals()?;
    let import = Import { path, codec, v1: args.v1, large: args.large, stop };
    if args.large && !args.append {
        return Err(Failure::Usage(
            "--large goes with --append; a new store becomes what it needs to be".into(),
        ));
    }
    let (plan, notes) = Plan::make(sources, &Look { only: only.as_ref(), codec })?;
    let done = if args.append { import.append(&plan)? } else { import.create(&plan)? };
    done.tell(path, &notes)
}

/// What is to be done, beside the sources.
struct Import<'a> {
    path: &'a Path,
    codec: Codec,
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
}

/// Packs `source` into the new store `path` with the defaults, for the demo.
pub(super) fn folder_into(source: PathBuf, path: &Path, stop: Stop) -> std::result::Result<Done, Failure> {
    let codec = Codec::default();
    let import = Import { path, codec, v1: false, large: false, stop };
    let (plan, _) = Plan::make(&[source], &Look { only: None, codec })?;
    import.create(&plan)
}

impl Import<'_> {
    /// Makes a new store.
    fn create(&self, plan: &Plan) -> std::result::Result<Done, Failure> {
        let taken = |path: &Path| path.symlink_metadata().is_ok();
        let name = self.path.display();
        if taken(self.path) {
            let text = format!("{name} exists already");
            let help = "choose another name, or add to a store with --append";
            return Err(Error::new(ErrorKind::Exists, text).with_help(help).into());
        }
        let partial = partial(self.path)?;
        plan.check_fits(0)?;
        let version = plan.version_for(Version::V1);
        if self.v1 && version > Version::V1 {
            plan.tell_oversized("without --v1 the store becomes version 2");
            return Err(Failure::Told);
        }
        // Made here or refused: what another import has made is not ours to fill, nor to remove.
        std::fs::create_dir(&partial).map_err(|e| {
            let name = partial.display();
            if e.kind() != std::io::ErrorKind::AlreadyExists {
                return Error::io(format!("can't create {name}"), e);
            }
            let text = format!("{name} is in the way: an import was killed, or is still running");
            Error::new(ErrorKind::Exists, text)
                .with_help(format!("where none is running, remove it: rm -r {name}"))
        })?;
        let done = self.fill(&partial, version, plan);
        if done.is_err() {
            // Half a store is of no use to anybody; what can't be removed is named at the next import.
            let _ = std::fs::remove_dir_all(&partial);
        }
        Ok(done?)
    }

    fn fill(&self, partial: &Path, version: Version, plan: &Plan) -> Result<Done> {
        let store = Store::create(partial, version)?;
        if let Some(schema) = plan.schema() {
            schema.write(&store)?;
        }
        let done = self.pour(&store, plan)?;
        store.sync()?;
        let failed = |e: rustix::io::Errno| {
            Error::io(format!("can't rename {} to {}", partial.display(), self.path.display()), e.into())
        };
        let here = rustix::fs::CWD;
        let renamed =
            rustix::fs::renameat_with(here, partial, here, self.path, rustix::fs::RenameFlags::NOREPLACE);
        match renamed {
            // File systems without it have no other way than to look first, which was done.
            Err(rustix::io::Errno::INVAL | rustix::io::Errno::NOSYS) => {
                rustix::fs::rename(partial, self.path).map_err(failed)?;
            }
            other => other.map_err(failed)?,
        }
        sync_parent(self.path)?;
        Ok(done)
    }

    /// Adds to a store that is there.
    fn append(&self, plan: &Plan) -> std::result::Result<Done, Failure> {
        let store = Store::open(self.path)?;
        plan.check_apart(self.path)?;
        plan.check_fits(store.len())?;
        check_schema(&store, plan.schema())?;
        let needed = plan.version_for(store.version());
        let beyond_v1 = plan.version_for(Version::V1) > Version::V1;
        if (needed > store.version() && !self.large) || (self.v1 && beyond_v1) {
            plan.tell_oversized(if self.v1 {
                "leave out --v1"
            } else {
                "--large changes the store to version 2"
            });
            return Err(Failure::Told);
        }
        let done = self.pour(&store, plan)?;
        store.sync()?;
        Ok(done)
    }

    /// Appends everything that the plan names.
    fn pour(&self, store: &Store, plan: &Plan) -> Result<Done> {
        let before = store.stats()?;
        if let Some(names) = plan.names() {
            store.check_names(names)?;
        }
        let mut appender = store.appender()?;
        appender.set_version(plan.version_for(store.version()));
        let bar = progress::bytes("importing", plan.bytes());
        let first = appender.len();
        let poured = Feed::over(plan, &self.stop, |batch| {
            put(&mut appender, &batch.records, self.codec)?;
            bar.inc(batch.records.bytes());
            Ok(())
        });
        bar.finish_and_clear();
        let read = poured?;
        if let Some(names) = read.as_ref().or(plan.names()) {
            appender.set_names(names)?;
        }
        let total = appender.len();
        appender.commit()?;
        Ok(Done {
            records: total - first,
            bytes: plan.bytes(),
            total,
            stored: store.stats()?.live_bytes.saturating_sub(before.live_bytes),
            became_v2: store.version() == Version::V2
                && (before.version == Version::V1 || before.records == 0),
        })
    }
}

fn put(appender: &mut Appender<'_>, records: &Records, codec: Codec) -> Result<()> {
    match records {
        Records::Equal { bytes, len } => appender.append(bytes, *len, codec),
        Records::Ragged { bytes, offsets, lens } => appender.append_ragged(bytes, offsets, lens, codec),
    }
}

impl Done {
    /// Says what was done, on standard output.
    pub(super) fn tell(&self, path: &Path, notes: &[String]) -> Outcome {
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
        if self.became_v2 {
            out.line("The store has format version 2, since a record is empty or over 1 MiB: loaderx 0.5.0 refuses it.")?;
        }
        for note in notes {
            out.line(note)?;
        }
        out.finish()
    }
}

/// STORE.partial, beside STORE.
fn partial(path: &Path) -> Result<PathBuf> {
    let name = path.file_name().ok_or_else(|| {
        Error::new(ErrorKind::Unsupported, format!("{} is no name for a store", path.display()))
    })?;
    let mut partial = OsString::from(name);
    partial.push(".partial");
    Ok(path.with_file_name(partial))
}

fn sync_parent(path: &Path) -> Result<()> {
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    std::fs::File::open(parent)
        .and_then(|dir| dir.sync_all())
        .map_err(|e| Error::io(format!("can't sync the folder {}", parent.display()), e))
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
