//! What an import will append, looked at and checked before anything is written.

use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use zrfs::dataset::{NpyFile, Schema};
use zrfs::format::MAX_RECORDS;
use zrfs::store::NewNames;
use zrfs::{Codec, Error, ErrorKind, Version};

use super::super::{Failure, one_line};
use super::files::{Files, mark, modified_ns};
use super::folder::{Only, walk};
use super::hints;

/// How many names a message lists before it says how many more there are.
const LISTED: usize = 100;

/// How to look at the sources.
pub(super) struct Look<'a> {
    pub(super) only: Option<&'a Only>,
    pub(super) codec: Codec,
}

/// What is to be appended, and what the user may want to know of it.
pub(super) enum Plan {
    /// Each file a record.
    Files(Files),
    /// Arrays of one dtype and shape.
    Arrays(Arrays),
}

/// Arrays, one after another.
pub(super) struct Arrays {
    pub(super) files: Vec<Array>,
    pub(super) schema: Schema,
    records: u64,
}

/// A .npy file.
pub(super) struct Array {
    pub(super) path: PathBuf,
    pub(super) records: u64,
    size: u64,
    modified_ns: i64,
}

impl Array {
    /// The mark of one of its records; see [`mark`].
    pub(super) fn mark(&self, record: u64) -> u64 {
        mark(self.path.as_os_str().as_bytes(), self.size, self.modified_ns, record)
    }

    /// Whether the file still has the size and the time that it had.
    pub(super) fn is_unchanged(&self) -> zrfs::Result<bool> {
        let meta = look_at(&self.path)?;
        Ok((meta.len(), modified_ns(&meta)) == (self.size, self.modified_ns))
    }
}

impl Plan {
    /// Looks at the sources; returns with the plan what the user may want to know of them.
    pub(super) fn make(sources: &[PathBuf], look: &Look<'_>) -> Result<(Plan, Vec<String>), Failure> {
        let mut folders = Vec::new();
        let mut arrays = Vec::new();
        for source in sources {
            if look_at(source)?.is_dir() {
                folders.push(source);
            } else if source.extension().is_some_and(|ext| ext.eq_ignore_ascii_case("npy")) {
                arrays.push(source.clone());
            } else {
                let text = format!("{} is neither a folder nor a .npy file", source.display());
                return Err(Error::new(ErrorKind::Unsupported, text).into());
            }
        }
        match (folders.is_empty(), arrays.is_empty()) {
            (false, true) => Plan::folders(&folders, look),
            (true, false) if look.only.is_some() => {
                Err(Failure::Usage("--only picks files of a folder; an array is taken whole".into()))
            }
            (true, false) => Ok((Plan::Arrays(Arrays::look_at(arrays, look.codec)?), Vec::new())),
            _ => Err(Failure::Usage("folders and arrays don't go into one store".into())),
        }
    }

    fn folders(folders: &[&PathBuf], look: &Look<'_>) -> Result<(Plan, Vec<String>), Failure> {
        let (mut files, mut notes) = (Files::new(), Vec::new());
        for root in folders {
            let first = files.len();
            let left_out = walk(root, look.only, &mut files)?;
            notes.extend(hints::of_folder(root, &files, first, &left_out));
        }
        files.settle();
        if files.len() == 0 {
            let names: Vec<_> = folders.iter().map(|folder| folder.display().to_string()).collect();
            let what = if look.only.is_some() { "no file that --only picks" } else { "no file" };
            let text = format!("there is {what} in {}", names.join(", "));
            return Err(Error::new(ErrorKind::NotFound, text).into());
        }
        let bad = files.too_large();
        if !bad.is_empty() {
            let bad = bad.iter().map(|(path, size)| (path.clone(), *size));
            tell(bad, files.len(), "are over 1 GiB, the most that a record holds");
            return Err(Failure::Told);
        }
        Ok((Plan::Files(files), notes))
    }

    /// What the records are, where they are all alike.
    pub(super) fn schema(&self) -> Option<&Schema> {
        match self {
            Plan::Files(_) => None,
            Plan::Arrays(arrays) => Some(&arrays.schema),
        }
    }

    /// The names that the records get, where they are known before they are read.
    pub(super) fn names(&self) -> Option<&NewNames> {
        match self {
            Plan::Files(files) => Some(files.names()),
            Plan::Arrays(_) => None,
        }
    }

    /// Number of records.
    pub(super) fn records(&self) -> u64 {
        match self {
            Plan::Files(files) => files.len() as u64,
            Plan::Arrays(arrays) => arrays.records,
        }
    }

    /// Bytes of all records.
    pub(super) fn bytes(&self) -> u64 {
        match self {
            Plan::Files(files) => files.bytes(),
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
        let text = format!("{} records don't fit{held}: a store has at most {MAX_RECORDS}", self.records());
        let help = match self {
            Plan::Files(_) => "import them in parts, each into a store of its own",
            Plan::Arrays(_) => "reshape the array so that a record holds several of its rows",
        };
        Err(Error::new(ErrorKind::Full, text).with_help(help))
    }

    /// Checks that no folder holds the store that it is to go into.
    pub(super) fn check_apart(&self, store: &Path) -> zrfs::Result<()> {
        let failed = |path: &Path, e| Error::io(format!("can't look at {}", path.display()), e);
        let store = store.canonicalize().map_err(|e| failed(store, e))?;
        let Plan::Files(files) = self else { return Ok(()) };
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
        let all_fit = match self {
            Plan::Files(files) => files.sizes().iter().all(|&size| fits_v1(u64::from(size))),
            Plan::Arrays(arrays) => arrays.records == 0 || fits_v1(arrays.schema.record_bytes()),
        };
        if all_fit { at_least } else { Version::V2 }
    }

    /// Lists what version 1 does not hold; `help` says what to do.
    pub(super) fn tell_oversized(&self, help: &str) {
        let why = format!("do not fit: version 1 holds 1 to 1048576 bytes a record; {help}");
        match self {
            Plan::Arrays(arrays) => {
                eprintln!("zrfs: records of {} bytes {why}", arrays.schema.record_bytes());
            }
            Plan::Files(files) => {
                let sizes = files.sizes().iter().map(|&size| u64::from(size)).enumerate();
                let bad = sizes.filter(|&(_, size)| !fits_v1(size)).map(|(i, size)| (files.path(i), size));
                tell(bad, files.len(), &why);
            }
        }
    }
}

impl Arrays {
    fn look_at(paths: Vec<PathBuf>, codec: Codec) -> Result<Arrays, Failure> {
        let mut all: Option<(Schema, u64)> = None;
        let mut files = Vec::new();
        for path in paths {
            let meta = look_at(&path)?;
            let npy = NpyFile::open(&path, codec)?;
            let (schema, records) = (npy.schema(), npy.records());
            match &mut all {
                None => all = Some((schema.clone(), records)),
                Some((first, sum)) if first == schema => *sum = sum.saturating_add(records),
                Some((first, _)) => {
                    let text = format!(
                        "{} has records of {schema}, the arrays before it of {first}",
                        path.display()
                    );
                    return Err(Error::new(ErrorKind::Unsupported, text).into());
                }
            }
            files.push(Array { path, records, size: meta.len(), modified_ns: modified_ns(&meta) });
        }
        let (schema, records) = all.ok_or_else(|| Failure::Usage("there is no array".into()))?;
        let most = u64::from(*Version::V2.record_bytes().end());
        if records > 0 && schema.record_bytes() > most {
            let text =
                format!("a record of {} bytes is over 1 GiB, the most there is", schema.record_bytes());
            return Err(Error::new(ErrorKind::RecordSize, text).into());
        }
        Ok(Arrays { files, schema, records })
    }
}

fn look_at(path: &Path) -> zrfs::Result<std::fs::Metadata> {
    std::fs::metadata(path).map_err(|e| Error::io(format!("can't look at {}", path.display()), e))
}

fn fits_v1(len: u64) -> bool {
    u32::try_from(len).is_ok_and(|len| Version::V1.record_bytes().contains(&len))
}

/// Lists files that have something wrong with their size.
fn tell(bad: impl Iterator<Item = (PathBuf, u64)>, of: usize, why: &str) {
    let mut bad: Vec<_> = bad.collect();
    let count = bad.len();
    eprintln!("zrfs: {count} of {of} files {why}:");
    bad.truncate(LISTED);
    for (path, size) in bad {
        eprintln!("  {} ({size} bytes)", one_line(path.display()));
    }
    if count > LISTED {
        eprintln!("  and {} more", count - LISTED);
    }
}
