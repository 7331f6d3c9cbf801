//! What an import will append, looked at and checked before anything is written.

use std::path::{Path, PathBuf};

use rayon::iter::{IntoParallelIterator, ParallelIterator};
use zrfs::dataset::Schema;
use zrfs::format::MAX_RECORDS;
use zrfs::store::NewNames;
use zrfs::{Codec, Error, ErrorKind, Version};

use super::archive::{self, Choice};
use super::arrays::{Array, Arrays};
use super::files::Files;
use super::folder::{Only, walk};
use super::hints::Notes;
use super::{hints, listed, npz, stack};
use crate::cli::output::count;
use crate::cli::signals::Stop;
use crate::cli::{Failure, Links, one_line};

/// How many names a message lists before it says how many more there are.
const LISTED: usize = 100;

/// How to look at the sources.
pub(super) struct Look<'a> {
    pub(super) only: Option<&'a Only>,
    pub(super) links: Links,
    /// Whether a NUL byte ends each path of a list, not a newline.
    pub(super) null: bool,
    pub(super) stack: bool,
    pub(super) rows: Option<u64>,
    pub(super) codec: Codec,
    /// Folders that the import makes: where they lie in a source, they are left out.
    pub(super) own: &'a [PathBuf],
    /// Whether the folders at the top become the classes of labels.
    pub(super) labelled: bool,
}

/// What is to be appended.
pub(super) enum Plan {
    /// Each file a record; of a file with that dtype and shape its data, where there is one.
    Files(Files, Option<Schema>),
    /// Arrays of one dtype and shape.
    Arrays(Arrays),
}

/// A source of files.
enum Source<'a> {
    Folder(&'a Path),
    List(&'a Path),
    Archive(archive::Source),
}

impl Source<'_> {
    fn place(&self) -> String {
        match self {
            Source::Folder(path) | Source::List(path) => path.display().to_string(),
            Source::Archive(archive) => archive.place(),
        }
    }

    fn is_standard_input(&self) -> bool {
        match self {
            Source::Folder(_) => false,
            Source::List(path) => path.as_os_str() == "-",
            Source::Archive(archive) => *archive == archive::Source::StandardInput,
        }
    }
}

impl Plan {
    /// Looks at the sources; returns with the plan what the user may want to know of them.
    pub(super) fn make(sources: &[PathBuf], look: &Look<'_>, stop: &Stop) -> Result<(Plan, Notes), Failure> {
        let mut of_files = Vec::new();
        let mut arrays = Vec::new();
        for source in sources {
            if let Some(list) = listed::list_of(source) {
                of_files.push(Source::List(list));
            } else if let Some((path, member)) = npz::named(source) {
                let Some(member) = member else { return Err(npz::pick_one(&path, look.codec).into()) };
                arrays.push((path, Some(member)));
            } else if source.as_os_str() == "-" {
                of_files.push(Source::Archive(archive::Source::StandardInput));
            } else if look_at(source)?.is_dir() {
                of_files.push(Source::Folder(source));
            } else if let Some(archive) = archive::Source::of(source) {
                of_files.push(Source::Archive(archive));
            } else if source.extension().is_some_and(|ext| ext.eq_ignore_ascii_case("npy")) {
                arrays.push((source.clone(), None));
            } else {
                let text =
                    format!("{} is no folder, .tar, .tar.gz, .tgz, .npy or .npz file", source.display());
                return Err(Error::new(ErrorKind::Unsupported, text).into());
            }
        }
        look.check_options(&of_files, !arrays.is_empty())?;
        match (of_files.is_empty(), arrays.is_empty()) {
            (false, true) => Plan::files(&of_files, look, stop),
            (true, false) => {
                let arrays = Arrays::look_at(arrays, look.rows, look.codec)?;
                let after = arrays.notes();
                Ok((Plan::Arrays(arrays), Notes { before: Vec::new(), after }))
            }
            _ => Err(Failure::Usage("files and arrays don't go into one store".into())),
        }
    }

    fn files(sources: &[Source<'_>], look: &Look<'_>, stop: &Stop) -> Result<(Plan, Notes), Failure> {
        let (mut files, mut notes) = (Files::new(), Notes::default());
        for source in sources {
            let first = files.len();
            match source {
                Source::Archive(archive) => {
                    archive::look_at(archive, look.choice(), &mut files, &mut notes.after, stop)?;
                }
                Source::List(list) => {
                    let left_out = listed::read(list, look.null, look.only, &mut files)?;
                    notes.after.extend(hints::left_out(&source.place(), &left_out));
                }
                Source::Folder(root) => {
                    let walked = walk(root, look.only, look.links, look.own, &mut files)?;
                    hints::of_folder(root, &files, first, &walked, (look.stack, look.labelled), &mut notes);
                }
            }
        }
        files.settle();
        if files.len() == 0 && files.are_known() {
            let names: Vec<_> = sources.iter().map(Source::place).collect();
            let what = if look.only.is_some() { "no file that --only picks" } else { "no file" };
            let text = format!("there is {what} in {}", names.join(", "));
            return Err(Error::new(ErrorKind::NotFound, text).into());
        }
        let bad = files.too_large();
        if !bad.is_empty() {
            let bad = bad.iter().map(|(path, size)| with_size(path, *size));
            tell(bad, files.len(), "over 1 GiB, the most that a record holds");
            return Err(Failure::Told);
        }
        let stacked = if look.stack { Some(stack::schema_of(&files, look.codec)?) } else { None };
        Ok((Plan::Files(files, stacked), notes))
    }

    /// What the records are, where they are all alike.
    pub(super) fn schema(&self) -> Option<&Schema> {
        match self {
            Plan::Files(_, stacked) => stacked.as_ref(),
            Plan::Arrays(arrays) => Some(&arrays.schema),
        }
    }

    /// Whether all records are known before they are read.
    pub(super) fn is_known(&self) -> bool {
        match self {
            Plan::Files(files, _) => files.are_known(),
            Plan::Arrays(_) => true,
        }
    }

    /// The names that the records get, as far as they are known before they are read.
    pub(super) fn names(&self) -> Option<&NewNames> {
        match self {
            Plan::Files(files, _) => Some(files.names()),
            Plan::Arrays(_) => None,
        }
    }

    /// Links at the top that stay links and lead to folders: classes to whoever follows links.
    pub(super) fn linked_classes(&self) -> &[Vec<u8>] {
        match self {
            Plan::Files(files, _) => files.linked_classes(),
            Plan::Arrays(_) => &[],
        }
    }

    /// Number of records, as far as they are known.
    pub(super) fn records(&self) -> u64 {
        match self {
            Plan::Files(files, _) => files.len() as u64,
            Plan::Arrays(arrays) => arrays.records,
        }
    }

    /// Marks of the first `most` records, or of all, where they are known before they are read.
    pub(super) fn marks(&self, most: usize) -> Option<Vec<u64>> {
        match self {
            Plan::Files(files, _) if !files.are_known() => None,
            Plan::Files(files, _) => {
                Some((0..files.len().min(most)).into_par_iter().map(|i| files.mark(i)).collect())
            }
            Plan::Arrays(arrays) => {
                let marks =
                    |array: &Array| (0..array.records).map(|record| array.mark(record)).collect::<Vec<_>>();
                Some(arrays.files.iter().flat_map(marks).take(most).collect())
            }
        }
    }

    /// What the `i`-th record is made of, for messages.
    pub(super) fn name_of(&self, i: usize) -> String {
        match self {
            Plan::Files(files, _) => files.path(i).display().to_string(),
            Plan::Arrays(arrays) => {
                let mut first = 0;
                let array = arrays.files.iter().find(|array| {
                    first += array.records;
                    first > i as u64
                });
                array.map(|array| array.path.display().to_string()).unwrap_or_default()
            }
        }
    }

    /// Bytes of the first `count` records.
    pub(super) fn bytes_of(&self, count: usize) -> u64 {
        match self {
            Plan::Files(files, None) => files.sizes().iter().take(count).map(|&size| u64::from(size)).sum(),
            Plan::Files(_, Some(schema)) => schema.record_bytes().saturating_mul(count as u64),
            Plan::Arrays(arrays) => arrays.schema.record_bytes().saturating_mul(count as u64),
        }
    }

    /// Bytes of all records, as far as they are known.
    pub(super) fn bytes(&self) -> u64 {
        match self {
            Plan::Files(files, None) => files.bytes(),
            // Each is at most 1 GiB, and there are at most 2^24 of them.
            Plan::Files(files, Some(schema)) => schema.record_bytes().saturating_mul(files.len() as u64),
            // Checked against the files' sizes when they were opened.
            Plan::Arrays(arrays) => arrays.schema.record_bytes().saturating_mul(arrays.records),
        }
    }

    /// Checks that the records find slots in a store of `len`.
    pub(super) fn check_fits(&self, len: u64) -> zrfs::Result<()> {
        if len.saturating_add(self.records()) <= u64::from(MAX_RECORDS) {
            return Ok(());
        }
        let held = if len > 0 { format!(" beside the {len} that it holds") } else { String::new() };
        let records = count(self.records(), "record");
        let text = format!("no room for {records}{held}: a store has at most {MAX_RECORDS}");
        let help = match self {
            Plan::Files(..) => "import them in parts, each into a store of its own".into(),
            Plan::Arrays(arrays) => arrays.help_with_many(),
        };
        Err(Error::new(ErrorKind::Full, text).with_help(help))
    }

    /// Checks that no folder holds the store that it is to go into.
    pub(super) fn check_apart(&self, store: &Path) -> zrfs::Result<()> {
        let failed = |path: &Path, e| Error::io(format!("can't look at {}", path.display()), e);
        let store = store.canonicalize().map_err(|e| failed(store, e))?;
        let Plan::Files(files, _) = self else { return Ok(()) };
        for folder in files.folders() {
            let root = folder.canonicalize().map_err(|e| failed(folder, e))?;
            if store.starts_with(&root) {
                let text =
                    format!("{} lies in {}: it would be packed into itself", store.display(), root.display());
                return Err(Error::new(ErrorKind::Unsupported, text).with_help("move it out of the folder"));
            }
        }
        Ok(())
    }

    /// The lowest version, from `at_least` on, that holds every record.
    pub(super) fn version_for(&self, at_least: Version) -> Version {
        let all_fit = match (self, self.schema()) {
            (_, Some(schema)) => self.records() == 0 || fits_v1(schema.record_bytes()),
            (Plan::Files(files, _), None) => files.sizes().iter().all(|&size| fits_v1(u64::from(size))),
            (Plan::Arrays(_), None) => true,
        };
        if all_fit { at_least } else { Version::V2 }
    }

    /// Lists what version 1 does not hold; `help` says what to do.
    pub(super) fn tell_oversized(&self, help: &str) {
        let why = format!("not of 1 to 1048576 bytes, which version 1 holds; {help}");
        match (self, self.schema()) {
            (_, Some(schema)) => eprintln!("zrfs: records of {} bytes {why}", schema.record_bytes()),
            (Plan::Files(files, _), None) => {
                let sizes = files.sizes().iter().map(|&size| u64::from(size)).enumerate();
                let bad = sizes.filter(|&(_, size)| !fits_v1(size));
                let bad = bad.map(|(i, size)| with_size(&files.path(i), size));
                tell(bad, files.len(), &why);
            }
            (Plan::Arrays(_), None) => {}
        }
    }
}

impl Look<'_> {
    /// What is taken of archives.
    pub(super) fn choice(&self) -> Choice<'_> {
        Choice { only: self.only, keep_links: matches!(self.links, Links::Keep) }
    }

    /// Refuses options that say nothing of these sources.
    fn check_options(&self, of_files: &[Source<'_>], arrays: bool) -> Result<(), Failure> {
        let wrong = if arrays && self.only.is_some() {
            "--only picks files; an array is taken whole"
        } else if arrays && self.stack {
            "--stack is for a folder of .npy files; an array's records are those of its first axis"
        } else if self.stack && of_files.iter().any(|source| matches!(source, Source::Archive(_))) {
            "--stack is for .npy files on disk; unpack the archive first"
        } else if of_files.iter().filter(|source| source.is_standard_input()).count() > 1 {
            "standard input can be one source only"
        } else if !of_files.is_empty() && self.rows.is_some() {
            "--rows cuts 1-D arrays; files are records as they are"
        } else if self.null && !of_files.iter().any(|source| matches!(source, Source::List(_))) {
            "--null is about the paths of a list: @FILE"
        } else {
            return Ok(());
        };
        Err(Failure::Usage(wrong.into()))
    }
}

pub(super) fn look_at(path: &Path) -> zrfs::Result<std::fs::Metadata> {
    std::fs::metadata(path).map_err(|e| Error::io(format!("can't look at {}", path.display()), e))
}

fn fits_v1(len: u64) -> bool {
    u32::try_from(len).is_ok_and(|len| Version::V1.record_bytes().contains(&len))
}

/// Lists files that have something wrong with them, on stderr.
pub(super) fn tell(bad: impl Iterator<Item = String>, of: usize, why: &str) {
    let (mut found, mut listed) = (0, Vec::new());
    for name in bad {
        found += 1;
        if listed.len() < LISTED {
            listed.push(name);
        }
    }
    eprintln!("zrfs: {found} of {}, {why}:", count(of as u64, "file"));
    listed.iter().for_each(|name| eprintln!("  {}", one_line(name)));
    if found > LISTED {
        eprintln!("  and {} more", found - LISTED);
    }
}

fn with_size(path: &Path, size: u64) -> String {
    format!("{} ({size} bytes)", path.display())
}
