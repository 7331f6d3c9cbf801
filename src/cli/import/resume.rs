//! `--resume`: the append of an import with its checkpoints, and going on behind the last one.
//!
//! A checkpoint notes the options that shape the result and, for each record, the mark of its source (see
//! [`mark`](super::files::mark)). An import that goes on makes its plan anew and compares: where a source was changed,
//! added or removed among those that are done, or an option is another one, the result would not be that of one import.

use std::collections::HashSet;
use std::ffi::{OsStr, OsString};
use std::fmt::Write;
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use zrfs::dataset::Schema;
use zrfs::storage::open_regular;
use zrfs::store::{Interrupted, NewNames, NodeKind};
use zrfs::{Appender, Codec, Error, ErrorKind, Result, Store, Version};

use super::feed::{Batch, Records};
use super::listed::list_of;
use super::plan::Plan;
use crate::cli::output::count;
use crate::cli::{CodecName, ImportArgs, Links, one_line};

/// So much work may be lost at most: that of so long, or of so many bytes of the sources.
const MOST_TIME: Duration = Duration::from_secs(5);
const MOST_BYTES: u64 = 1 << 30;
/// A checkpoint comes no earlier than this after the one before it,
const LEAST_TIME: Duration = Duration::from_millis(200);
/// nor than so many times what that one took, but for the most above.
const WORTH: u32 = 20;
/// Options of which a longer value is noted by its beginning and a checksum.
const LONGEST: usize = 1 << 10;

/// The options that shape the result of an import, by name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Options {
    values: Vec<(&'static str, String)>,
    /// How many sources there are, and their names as far as there is room.
    sources: String,
}

/// What the note calls the sources.
const SOURCES: &str = "sources";
/// Bytes of their names that are noted.
const NAMES: usize = 300;

impl Options {
    /// Those of a command.
    pub(super) fn of(args: &ImportArgs) -> Options {
        let (codec, level) = match args.codec {
            CodecName::Flate => ("flate", args.level.to_string()),
            CodecName::Raw => ("raw", String::new()),
        };
        let links = match args.links {
            Links::Follow => "follow",
            Links::Keep => "keep",
        };
        let given = |given: bool| if given { "given" } else { "" };
        // Without the folder, so that a store and its labels may be moved to a disk that has room.
        let labels = args.labels.as_deref().and_then(Path::file_name).map(OsStr::to_string_lossy);
        Options::of_sources(args.paths.split_last().map_or(&[][..], |(_, sources)| sources))
            .with("--codec", codec)
            .with("--level", level)
            .with("--only", args.only.join(" "))
            .with("--links", links)
            .with("--stack", given(args.stack))
            .with("--rows", args.rows.map(|rows| rows.to_string()).unwrap_or_default())
            .with("--labels", labels.unwrap_or_default())
    }

    /// Those sources, and no options.
    pub(super) fn of_sources(sources: &[PathBuf]) -> Options {
        Options { values: Vec::new(), sources: sources_noted(sources) }
    }

    /// Adds an option; `value` is empty where it is not given.
    pub(super) fn with(mut self, name: &'static str, value: impl Into<String>) -> Options {
        let mut value = value.into();
        if value.len() > LONGEST {
            let sum = zrfs::format::checksum(value.as_bytes());
            value = format!("{}… (checksum {sum:08x})", value.chars().take(LONGEST / 8).collect::<String>());
        }
        self.values.push((name, value.escape_default().to_string()));
        self
    }

    /// What a checkpoint notes.
    fn to_note(&self) -> Vec<u8> {
        let mut note = String::new();
        let sources = [(SOURCES, &self.sources)];
        for (name, value) in self.values.iter().map(|(name, value)| (*name, value)).chain(sources) {
            // Writing to a string does not fail.
            let _ = writeln!(note, "{name} {value}");
        }
        note.into_bytes()
    }

    /// Refuses to go on with other options than those of `note`.
    fn check(&self, note: &[u8], anew: &str) -> Result<()> {
        let note = String::from_utf8_lossy(note);
        let noted: Vec<_> = note.lines().filter_map(|line| line.split_once(' ')).collect();
        let now = self.values.iter().map(|(name, value)| (*name, value.as_str()));
        for (name, value) in now.clone() {
            let before = noted.iter().find(|(noted, _)| *noted == name).map_or("", |(_, value)| *value);
            if before != value {
                let shown =
                    |value: &str| if value.is_empty() { "not given".into() } else { value.to_owned() };
                let text = format!(
                    "the import was begun with another {name} ({}, now {})",
                    shown(before),
                    shown(value)
                );
                let help = format!("give it as it was, or {anew}");
                return Err(Error::new(ErrorKind::Unsupported, text).with_help(help));
            }
        }
        // Of another release, say.
        let known: HashSet<_> = now.map(|(name, _)| name).chain([SOURCES]).collect();
        match noted.iter().find(|(name, value)| !known.contains(name) && !value.is_empty()) {
            None => Ok(()),
            Some((name, _)) => {
                let text = format!("the import was begun with {name}, which this release does not know");
                Err(Error::new(ErrorKind::Unsupported, text).with_help(anew))
            }
        }
    }
}

/// The sources as a checkpoint notes them: where they lie, whatever the current folder is.
fn sources_noted(sources: &[PathBuf]) -> String {
    let place = |source: &PathBuf| match list_of(source) {
        _ if source.as_os_str() == "-" => "standard input".to_owned(),
        Some(list) if list.as_os_str() == "-" => "a list on standard input".to_owned(),
        Some(list) => format!("@{}", absolute(list).display()),
        None => absolute(source).display().to_string(),
    };
    let mut names = String::new();
    for (i, source) in sources.iter().enumerate() {
        let name = one_line(place(source));
        if names.len() + name.len() > NAMES {
            names.push_str(if i > 0 { ", …" } else { "a long path" });
            break;
        }
        names.push_str(if i > 0 { ", " } else { "" });
        names.push_str(&name);
    }
    format!("{} {names}", sources.len())
}

fn absolute(path: &Path) -> PathBuf {
    std::path::absolute(path).unwrap_or_else(|_| path.to_path_buf())
}

/// The sources that an import was begun with, where those that are given now have other names.
pub(super) struct Others {
    names: String,
    /// How to begin anew.
    anew: String,
}

impl Others {
    /// Those of `note`; `None` where they have the names of those of `options`.
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`] where they are another number.
    pub(super) fn of(note: &[u8], options: &Options, anew: &str) -> Result<Option<Others>> {
        let note = String::from_utf8_lossy(note);
        let mut lines = note.lines().filter_map(|line| line.split_once(' '));
        let Some((_, before)) = lines.find(|(name, _)| *name == SOURCES) else { return Ok(None) };
        if before == options.sources {
            return Ok(None);
        }
        let (number, names) = before.split_once(' ').unwrap_or_default();
        let others = Others { names: names.to_owned(), anew: anew.to_owned() };
        if options.sources.split(' ').next() == Some(number) { Ok(Some(others)) } else { Err(others.error()) }
    }

    /// The error for sources that give other records.
    pub(super) fn error(&self) -> Error {
        let text = format!("these are not the sources that the import was begun with: {}", self.names);
        Error::new(ErrorKind::Unsupported, text).with_help(format!("give those, or {}", self.anew))
    }
}

/// The append of an import.
pub(super) struct Append<'a> {
    /// `None` once it is committed.
    appender: Option<Appender<'a>>,
    /// Index of its first record.
    first: u64,
    note: Vec<u8>,
    /// Marks of the records since the last checkpoint.
    marks: Vec<u64>,
    /// Bytes of them.
    bytes: u64,
    /// Records that a checkpoint names.
    kept: u64,
    /// When the last checkpoint was made, and how long that took.
    last: (Instant, Duration),
}

impl<'a> Append<'a> {
    /// One that has no checkpoint yet.
    pub(super) fn new(appender: Appender<'a>, options: &Options) -> Append<'a> {
        Append {
            first: appender.len(),
            appender: Some(appender),
            note: options.to_note(),
            marks: Vec::new(),
            bytes: 0,
            kept: 0,
            last: (Instant::now(), Duration::ZERO),
        }
    }

    /// One that begins, with a checkpoint of no record: it tells `--resume` that it has, and with which options.
    pub(super) fn begin(mut appender: Appender<'a>, options: &Options) -> Result<Append<'a>> {
        appender.checkpoint(&options.to_note(), &[])?;
        Ok(Append::new(appender, options))
    }

    /// One that goes on, if the options are those that it was begun with. `anew` says how to begin anew.
    pub(super) fn go_on(
        appender: Appender<'a>,
        interrupted: &Interrupted,
        options: &Options,
        anew: &str,
    ) -> Result<Append<'a>> {
        options.check(&interrupted.note, anew)?;
        let kept = interrupted.marks.len() as u64;
        let begun = Append::new(appender, options);
        Ok(Append { kept, first: begun.first - kept, ..begun })
    }

    /// Changes the version that the commit writes.
    pub(super) fn set_version(&mut self, version: Version) {
        if let Some(appender) = &mut self.appender {
            appender.set_version(version);
        }
    }

    /// Keeps what can be kept where the import ends here; returns how many records are. `first` says whether that may
    /// be the first checkpoint.
    pub(super) fn keep(&mut self, first: bool) -> u64 {
        if (first || self.kept > 0)
            && let Err(e) = self.checkpoint()
        {
            log::debug!("{e}");
        }
        self.kept
    }

    /// Appends a batch.
    pub(super) fn put(&mut self, batch: &Batch, codec: Codec) -> Result<()> {
        let Some(appender) = &mut self.appender else { return Ok(()) };
        // What was known has been seen to; what was not is refused by the feed where it must not be.
        appender.set_version(batch.records.version());
        match &batch.records {
            Records::Equal { bytes, len } => appender.append(bytes, *len, codec)?,
            Records::Ragged { bytes, offsets, lens } => {
                appender.append_ragged(bytes, offsets, lens, codec)?;
            }
            Records::Copies { of, .. } => {
                let (mut bytes, mut offsets, mut lens) = (Vec::new(), Vec::new(), Vec::new());
                for &of in of {
                    let copy = appender.read(self.first + of)?;
                    offsets.push(bytes.len() as u64);
                    // No record is longer than 1 GiB.
                    lens.push(u32::try_from(copy.len()).unwrap_or(u32::MAX));
                    if bytes.is_empty() { bytes = copy } else { bytes.extend_from_slice(&copy) }
                }
                appender.append_ragged(&bytes, &offsets, &lens, codec)?;
            }
        }
        self.marks.extend_from_slice(&batch.marks);
        self.bytes += batch.records.bytes();
        let (made, took) = self.last;
        let due = (took * WORTH).clamp(LEAST_TIME, MOST_TIME);
        if made.elapsed() >= due || self.bytes >= MOST_BYTES { self.checkpoint() } else { Ok(()) }
    }

    /// Makes a checkpoint, where anything was appended since the last.
    fn checkpoint(&mut self) -> Result<()> {
        let Some(appender) = self.appender.as_mut().filter(|_| !self.marks.is_empty()) else { return Ok(()) };
        let begun = Instant::now();
        appender.checkpoint(&self.note, &self.marks)?;
        self.kept += self.marks.len() as u64;
        self.marks.clear();
        self.bytes = 0;
        self.last = (Instant::now(), begun.elapsed());
        Ok(())
    }

    /// Names the records.
    pub(super) fn set_names(&mut self, names: &NewNames) -> Result<()> {
        self.appender.as_mut().map_or(Ok(()), |appender| appender.set_names(names))
    }

    /// Makes the records visible.
    pub(super) fn commit(&mut self) -> Result<()> {
        self.appender.take().map_or(Ok(()), |appender| appender.commit().map(drop))
    }
}

/// Opens the store that an import has left in `partial`; begins it anew where the import was killed before it had one.
pub(super) fn reopen(partial: &Path, version: Version) -> Result<Store> {
    match Store::open_or_create(partial, version) {
        Err(e) if e.kind() == ErrorKind::NotAStore && has_no_header(partial) => {
            let failed = |e| Error::io(format!("can't begin {} anew", partial.display()), e);
            std::fs::remove_dir_all(partial).and_then(|()| std::fs::create_dir(partial)).map_err(failed)?;
            Store::create(partial, version)
        }
        opened => opened,
    }
}

/// Whether the table of the store in `partial` was made, and nothing written to it.
fn has_no_header(partial: &Path) -> bool {
    let mut head = Vec::new();
    let file = open_regular(&partial.join("meta.zr"));
    file.is_ok_and(|file| file.take(16).read_to_end(&mut head).is_ok()) && head.iter().all(|&b| b == 0)
}

/// Writes what the records are beside the empty `store`, in the place of what an import has left.
pub(super) fn write_schema(store: &Store, schema: Option<&Schema>) -> Result<()> {
    let path = store.path().join("schema.json");
    match std::fs::remove_file(&path) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => {
            Err(Error::io(format!("can't remove {}", path.display()), e))
        }
        _ => schema.map_or(Ok(()), |schema| schema.write(store)),
    }
}

/// Whether the store has a record for each name of the plan.
pub(super) fn holds_all(store: &Store, plan: &Plan) -> Result<bool> {
    let (Some(new), Some(old)) = (plan.names().filter(|_| plan.is_known()), store.names()?) else {
        return Ok(false);
    };
    for i in 0..new.len() {
        let found = old.resolve(&new.path(i))?;
        if !found.is_some_and(|node| matches!(node.kind, NodeKind::Record { .. })) {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Compares the marks of the records that are done with those that the plan gives. `begun_with` are the sources of
/// those that are done, where they have other names; `anew` says how to begin anew.
pub(super) fn check_sources(
    done: &[u64],
    plan: &Plan,
    begun_with: Option<&Others>,
    anew: &str,
) -> Result<()> {
    let Some(now) = plan.marks(done.len()) else { return Ok(()) };
    let Some(first) = first_difference(done, &now) else { return Ok(()) };
    if let (0, Some(others)) = (first, begun_with) {
        return Err(others.error());
    }
    let refused = |text: String| Err(Error::new(ErrorKind::Unsupported, text).with_help(anew));
    let kept = done.len();
    let among = format!("among the {} done", count(kept as u64, "record"));
    if first == now.len() {
        return refused(format!(
            "there are {} that are done, but the sources hold only {}: some were removed",
            count(kept as u64, "record"),
            now.len()
        ));
    }
    let name = plan.name_of(first);
    let all = plan.marks(usize::MAX).unwrap_or_default();
    let later = |marks: &[u64], mark: Option<&u64>| {
        mark.is_some_and(|mark| marks.iter().skip(first + 1).any(|later| later == mark))
    };
    refused(match (later(&all, done.get(first)), later(done, now.get(first))) {
        (true, false) => format!("{name} was added {among}"),
        (false, true) => {
            format!("a file before {name} was removed, which is {among}")
        }
        (true, true) => {
            format!("{name} has another place than before {among}")
        }
        (false, false) => {
            format!("{name} has changed (name, size or time), and is {among}")
        }
    })
}

/// The error for a source that is found to be another one than before only now that it is read.
pub(super) fn has_changed(path: &Path) -> Error {
    let text =
        format!("{} is not the file that was imported in its place before the interruption", path.display());
    Error::new(ErrorKind::Unsupported, text).with_help("import again without --resume")
}

/// Where the marks of records that are done differ first from those that come now, or go on where these end.
pub(super) fn first_difference(done: &[u64], now: &[u64]) -> Option<usize> {
    let differ = done.iter().zip(now).position(|(done, now)| done != now);
    differ.or((done.len() > now.len()).then_some(now.len()))
}

/// The command that goes on with this import: the one that was given, with `--resume`.
pub(super) fn command() -> String {
    command_of(std::env::args_os().skip(1).collect())
}

fn command_of(mut args: Vec<OsString>) -> String {
    let (flag, end) = (OsStr::new("--resume"), OsStr::new("--"));
    let options = args.iter().take_while(|arg| *arg != end).count();
    if !args.iter().take(options).any(|arg| arg == flag) {
        args.insert(options, flag.to_owned());
    }
    let quoted: Vec<_> = args.iter().map(|arg| quoted(arg)).collect();
    format!("zrfs {}", quoted.join(" "))
}

/// An argument as a shell takes it, on one line.
fn quoted(arg: &OsStr) -> String {
    let is_plain = |&b: &u8| b.is_ascii_alphanumeric() || b"-_./=:,+@%".contains(&b);
    match arg.to_str() {
        Some(text) if !text.is_empty() && text.as_bytes().iter().all(is_plain) => text.to_owned(),
        Some(text) if !text.contains(char::is_control) => format!("'{}'", text.replace('\'', "'\\''")),
        // A newline or no UTF-8: bash, zsh and ksh know this form.
        _ => {
            let mut quoted = String::from("$'");
            for &byte in arg.as_bytes() {
                match byte {
                    b'\'' | b'\\' => quoted.extend(['\\', char::from(byte)]),
                    b' '..=b'~' => quoted.push(char::from(byte)),
                    // Three octal digits end by themselves.
                    _ => quoted.push_str(&format!("\\{byte:03o}")),
                }
            }
            quoted.push('\'');
            quoted
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(args: &[&str]) -> String {
        command_of(args.iter().map(OsString::from).collect())
    }

    #[test]
    fn the_command_is_the_one_that_was_given() {
        assert_eq!(words(&["import", "a b", "s.zr"]), "zrfs import 'a b' s.zr --resume");
        assert_eq!(
            words(&["import", "a", "s", "--resume", "--only", "*.png"]),
            "zrfs import a s --resume --only '*.png'"
        );
        assert_eq!(words(&["import", "--", "-a", "--resume"]), "zrfs import --resume -- -a --resume");
        assert_eq!(words(&["import", "it's", ""]), "zrfs import 'it'\\''s' '' --resume");
        assert_eq!(words(&["import", "a\n1'\\", "s"]), "zrfs import $'a\\0121\\'\\\\' s --resume");
    }

    #[test]
    fn a_shell_reads_the_command_as_it_was_given() {
        let args = ["a b", "it's", "$HOME", "`x`", "", "a\nb", "\t'\\", "*", "!", "~", "a\u{fc}"];
        let mut args: Vec<_> = args.iter().map(OsString::from).collect();
        args.push(OsStr::from_bytes(b"\xff1\xfe").to_owned());
        let line = args.iter().map(|arg| quoted(arg)).collect::<Vec<_>>().join(" ");
        assert!(!line.contains(char::is_control), "{line}");
        let script = format!("printf '%s\\0' {line}");
        let out = std::process::Command::new("bash").args(["-c", &script]).output().unwrap();
        let read: Vec<_> = out.stdout.split(|&b| b == 0).collect();
        assert_eq!(read[..args.len()], args.iter().map(|arg| arg.as_bytes()).collect::<Vec<_>>()[..]);
    }

    #[test]
    fn another_option_is_named() {
        let begun =
            Options::default().with("--codec", "flate").with("--level", "5").with("--only", "*.png\n*.jpg");
        let note = begun.to_note();
        assert!(begun.check(&note, "anew").is_ok());
        let other =
            Options::default().with("--codec", "flate").with("--level", "6").with("--only", "*.png\n*.jpg");
        let text = other.check(&note, "import anew").unwrap_err().to_string();
        assert_eq!(
            text,
            "the import was begun with another --level (5, now 6); give it as it was, or import anew"
        );
        let other = Options::default().with("--codec", "flate").with("--level", "5").with("--only", "");
        let text = other.check(&note, "anew").unwrap_err().to_string();
        assert!(text.contains("another --only (*.png\\n*.jpg, now not given)"), "{text}");
        let text = Options::default().with("--codec", "flate").check(&note, "anew").unwrap_err().to_string();
        assert!(text.contains("--level, which this release does not know"), "{text}");
        // Sources are not options.
        let of = |sources: &[&str]| Options {
            sources: sources_noted(&sources.iter().map(PathBuf::from).collect::<Vec<_>>()),
            ..begun.clone()
        };
        let note = of(&["/a\nb/", "/c"]).to_note();
        let other = |sources: &[&str]| {
            assert!(of(sources).check(&note, "anew").is_ok());
            let others = Others::of(&note, &of(sources), "anew");
            others.map(|others| others.map(|others| others.names)).map_err(|e| e.to_string())
        };
        assert_eq!(other(&["/a\nb/", "/c"]), Ok(None));
        assert_eq!(other(&["/a", "/c"]), Ok(Some("/a\\nb/, /c".to_owned())));
        let text =
            "these are not the sources that the import was begun with: /a\\nb/, /c; give those, or anew";
        assert_eq!(other(&["/c"]), Err(text.to_owned()));
        let many: Vec<_> = (0..1000).map(|i| format!("/{i}")).collect();
        let long = sources_noted(&many.iter().map(PathBuf::from).collect::<Vec<_>>());
        assert!(long.len() < 400 && long.starts_with("1000 /0, /1, ") && long.ends_with(", …"), "{long}");
        // Of long ones a checksum is noted.
        let long = |end: &str| Options::default().with("--only", format!("{}{end}", "x".repeat(5000)));
        let note = long("a").to_note();
        assert!(
            note.len() < 1000 && long("a").check(&note, "").is_ok() && long("b").check(&note, "").is_err()
        );
    }

    #[test]
    fn the_first_difference_is_found() {
        for (done, now, at) in [
            (&[1, 2, 3][..], &[1, 2, 3, 4][..], None),
            (&[1, 2, 3], &[1, 9, 3], Some(1)),
            (&[1, 2, 3], &[1, 2], Some(2)),
            (&[], &[], None),
        ] {
            assert_eq!(first_difference(done, now), at);
        }
    }
}
