//! What an import will append, looked at and checked before anything is written.

use std::path::{Path, PathBuf};

use zrfs::dataset::{NpyFile, Schema};
use zrfs::format::MAX_RECORDS;
use zrfs::{Codec, Error, ErrorKind, Version};

use super::super::{Failure, one_line};
use super::folder::{File, Folder, Only};

/// How many names a message lists before it says how many more there are.
const LISTED: usize = 100;

/// The sources in their order: all folders, or all arrays of one dtype and shape.
pub(super) enum Plan {
    Folders(Vec<Folder>),
    Arrays(Vec<PathBuf>, Schema, u64),
}

impl Plan {
    /// Looks at the sources.
    pub(super) fn make(sources: &[PathBuf], only: Option<&Only>, codec: Codec) -> Result<Plan, Failure> {
        let mut folders = Vec::new();
        let mut arrays = Vec::new();
        for source in sources {
            let meta = std::fs::metadata(source)
                .map_err(|e| Error::io(format!("can't look at {}", source.display()), e))?;
            if meta.is_dir() {
                folders.push(Folder::walk(source, only)?);
            } else if source.extension().is_some_and(|ext| ext.eq_ignore_ascii_case("npy")) {
                arrays.push(source.clone());
            } else {
                let text = format!("{} is neither a folder nor a .npy file", source.display());
                return Err(Error::new(ErrorKind::Unsupported, text).into());
            }
        }
        match (folders.is_empty(), arrays.is_empty()) {
            (false, true) => Plan::folders(folders, only.is_some()),
            (true, false) if only.is_some() => {
                Err(Failure::Usage("--only picks files of a folder; an array is taken whole".into()))
            }
            (true, false) => Plan::arrays(arrays, codec),
            _ => Err(Failure::Usage("folders and arrays don't go into one store".into())),
        }
    }

    fn folders(folders: Vec<Folder>, picked: bool) -> Result<Plan, Failure> {
        if folders.iter().all(|folder| folder.files.is_empty()) {
            let names: Vec<_> = folders.iter().map(|folder| folder.root.display().to_string()).collect();
            let what = if picked { "no file that --only picks" } else { "no file" };
            let text = format!("there is {what} in {}", names.join(", "));
            return Err(Error::new(ErrorKind::NotFound, text).into());
        }
        let plan = Plan::Folders(folders);
        let most = u64::from(*Version::V2.record_bytes().end());
        if plan.files().any(|(_, file)| file.size > most) {
            plan.tell(most, "are over 1 GiB, the most that a record holds");
            return Err(Failure::Told);
        }
        Ok(plan)
    }

    fn arrays(paths: Vec<PathBuf>, codec: Codec) -> Result<Plan, Failure> {
        let mut all: Option<(Schema, u64)> = None;
        for path in &paths {
            let npy = NpyFile::open(path, codec)?;
            let (schema, records) = (npy.schema(), npy.records());
            match &mut all {
                None => all = Some((schema.clone(), records)),
                Some((first, sum)) if first == schema => *sum = sum.saturating_add(records),
                Some((first, _)) => {
                    let text = format!(
                        "{} has records of {} {:?}, the arrays before it of {} {:?}",
                        path.display(),
                        schema.dtype(),
                        schema.shape(),
                        first.dtype(),
                        first.shape()
                    );
                    return Err(Error::new(ErrorKind::Unsupported, text).into());
                }
            }
        }
        let (schema, records) = all.ok_or_else(|| Failure::Usage("there is no array".into()))?;
        let most = u64::from(*Version::V2.record_bytes().end());
        if records > 0 && schema.record_bytes() > most {
            let text =
                format!("a record of {} bytes is over 1 GiB, the most there is", schema.record_bytes());
            return Err(Error::new(ErrorKind::RecordSize, text).into());
        }
        Ok(Plan::Arrays(paths, schema, records))
    }

    /// What the records are, where they are all alike.
    pub(super) fn schema(&self) -> Option<&Schema> {
        match self {
            Plan::Folders(_) => None,
            Plan::Arrays(_, schema, _) => Some(schema),
        }
    }

    /// Number of records.
    pub(super) fn records(&self) -> u64 {
        match self {
            Plan::Folders(folders) => folders.iter().map(|folder| folder.files.len() as u64).sum(),
            Plan::Arrays(_, _, records) => *records,
        }
    }

    /// Bytes of all records.
    pub(super) fn bytes(&self) -> u64 {
        match self {
            Plan::Folders(_) => self.files().map(|(_, file)| file.size).sum(),
            // Checked against the files' sizes when they were opened.
            Plan::Arrays(_, schema, records) => schema.record_bytes().saturating_mul(*records),
        }
    }

    /// The files of all folders, each with its folder, in the order of their records.
    pub(super) fn files(&self) -> impl Iterator<Item = (&Path, &File)> {
        let folders = match self {
            Plan::Folders(folders) => folders.as_slice(),
            Plan::Arrays(..) => &[],
        };
        folders.iter().flat_map(|folder| folder.files.iter().map(|file| (folder.root.as_path(), file)))
    }

    /// Checks that the records find slots in a store of `len`.
    pub(super) fn check_fits(&self, len: u64) -> zrfs::Result<()> {
        if len.saturating_add(self.records()) <= u64::from(MAX_RECORDS) {
            return Ok(());
        }
        let held = if len > 0 { format!(" beside the {len} that it holds") } else { String::new() };
        let text = format!("{} records don't fit{held}: a store has at most {MAX_RECORDS}", self.records());
        let help = match self {
            Plan::Folders(_) => "split the folder",
            Plan::Arrays(..) => "reshape the array so that a record holds several of its rows",
        };
        Err(Error::new(ErrorKind::Full, text).with_help(help))
    }

    /// Checks that no folder holds the store that it is to go into.
    pub(super) fn check_apart(&self, store: &Path) -> zrfs::Result<()> {
        let failed = |path: &Path, e| Error::io(format!("can't look at {}", path.display()), e);
        let store = store.canonicalize().map_err(|e| failed(store, e))?;
        let Plan::Folders(folders) = self else { return Ok(()) };
        for folder in folders {
            let root = folder.root.canonicalize().map_err(|e| failed(&folder.root, e))?;
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
        let lengths = Version::V1.record_bytes();
        let fits = |len: u64| u32::try_from(len).is_ok_and(|len| lengths.contains(&len));
        let all_fit = match self {
            Plan::Folders(_) => self.files().all(|(_, file)| fits(file.size)),
            Plan::Arrays(_, schema, records) => *records == 0 || fits(schema.record_bytes()),
        };
        if all_fit { at_least } else { Version::V2 }
    }

    /// Lists what version 1 does not hold; `help` says what to do.
    pub(super) fn tell_oversized(&self, help: &str) {
        let why = format!("do not fit: version 1 holds 1 to 1048576 bytes a record; {help}");
        match self {
            Plan::Arrays(_, schema, _) => eprintln!("zrfs: records of {} bytes {why}", schema.record_bytes()),
            Plan::Folders(_) => self.tell(u64::from(*Version::V1.record_bytes().end()), &why),
        }
    }

    fn tell(&self, most: u64, why: &str) {
        let too_large = |file: &File| file.size > most || (file.size == 0 && most < 1 << 30);
        let bad: Vec<_> = self.files().filter(|(_, file)| too_large(file)).collect();
        eprintln!("zrfs: {} of {} files {why}:", bad.len(), self.records());
        for (root, file) in bad.iter().take(LISTED) {
            eprintln!("  {} ({} bytes)", one_line(root.join(&file.path).display()), file.size);
        }
        if bad.len() > LISTED {
            eprintln!("  and {} more", bad.len() - LISTED);
        }
    }

    /// What the user may want to know of the sources.
    pub(super) fn notes(&self) -> Vec<String> {
        let Plan::Folders(folders) = self else { return Vec::new() };
        let mut notes = Vec::new();
        for folder in folders {
            let name = folder.root.display();
            match folder.skipped_by_image_folder() {
                None | Some(0) => {}
                Some(n) => notes.push(format!(
                    "{n} of the files in {name} are not images in a class folder. ImageFolder skips them, so its numbers \
                     differ (--only '*.png' would pick one kind)."
                )),
            }
            if folder.holds_only_arrays() {
                notes.push(format!(
                    "All files in {name} are .npy files. Each is a record as it is; a dense store comes from one .npy \
                     file that holds all samples."
                ));
            }
            if folder.special > 0 {
                notes.push(format!(
                    "Left out of {name}, as no files: {} (sockets, pipes, devices).",
                    folder.special
                ));
            }
        }
        notes
    }
}
