//! Files on disk that become records, held compactly: two million of them take some 100 MiB.

use std::ffi::OsString;
use std::fs::Metadata;
use std::hash::Hasher;
use std::ops::Range;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rayon::slice::ParallelSliceMut;
use siphasher::sip::SipHasher13;
use zrfs::format::MAX_RECORDS;
use zrfs::store::{FolderId, NewNames};
use zrfs::{Error, ErrorKind, Result, Version};

use super::archive::Source;
use super::order::{Place, python_order};

/// What is known of a file beside its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Traits {
    /// Bytes.
    pub(super) size: u64,
    /// Nanoseconds since 1970.
    pub(super) modified_ns: i64,
    pub(super) executable: bool,
}

/// Where files come from.
#[derive(Clone, Debug)]
pub(super) enum Origin {
    /// A folder that was given.
    Folder,
    /// A folder that listed paths start from.
    Listed,
    /// An archive that was looked through. Its last files have the bytes of these, counted from its first.
    Archive(Source, Vec<u32>),
    /// An archive that can be read only once: its files are not known yet.
    Stream(Source),
}

/// Where files lie: those from `first` on, up to the next root, have their paths below it.
#[derive(Clone, Debug)]
struct Root {
    first: u32,
    path: PathBuf,
    origin: Origin,
}

/// Files that were added together.
#[derive(Clone, Copy, Debug)]
struct Run {
    folder: FolderId,
    first: u32,
    len: u32,
    /// Whether they are to be sorted by name.
    by_name: bool,
}

/// Files in the order of their records, with the folders and links around them.
#[derive(Clone, Debug)]
pub(super) struct Files {
    names: NewNames,
    /// Sizes in bytes, as they were looked at.
    sizes: Vec<u32>,
    bytes: u64,
    roots: Vec<Root>,
    runs: Vec<Run>,
    /// Files over 1 GiB, which no record holds, with their sizes.
    too_large: Vec<(PathBuf, u64)>,
    /// Links at the top that stay links and lead to folders.
    linked_classes: Vec<Vec<u8>>,
}

impl Files {
    pub(super) fn new() -> Files {
        Files {
            names: NewNames::new(0),
            sizes: Vec::new(),
            bytes: 0,
            roots: Vec::new(),
            runs: Vec::new(),
            too_large: Vec::new(),
            linked_classes: Vec::new(),
        }
    }

    /// The files that are added from here on lie below `path`. `walked` says whether that is a folder that was given.
    pub(super) fn start_at(&mut self, path: &Path, walked: bool) -> Result<()> {
        self.start(path, if walked { Origin::Folder } else { Origin::Listed })
    }

    /// The files that are added from here on come from `origin`; `path` is what messages call it.
    pub(super) fn start(&mut self, path: &Path, origin: Origin) -> Result<()> {
        let first = u32::try_from(self.len()).map_err(|_| too_many())?;
        self.roots.push(Root { first, path: path.to_path_buf(), origin });
        Ok(())
    }

    /// Says what the last origin has turned out to be.
    pub(super) fn set_origin(&mut self, origin: Origin) {
        if let Some(root) = self.roots.last_mut() {
            root.origin = origin;
        }
    }

    /// The folder `name` in `parent`, which was modified then.
    pub(super) fn folder(&mut self, parent: FolderId, name: &[u8], modified_ns: i64) -> Result<FolderId> {
        let folder = self.names.folder(parent, name)?;
        self.names.set_modified(folder, modified_ns);
        Ok(folder)
    }

    /// The folder at `path`, added with those that lead there.
    pub(super) fn folder_at(&mut self, path: &[u8]) -> Result<FolderId> {
        self.names.folder_at(path)
    }

    /// Says when a folder was modified.
    pub(super) fn set_modified(&mut self, folder: FolderId, modified_ns: i64) {
        self.names.set_modified(folder, modified_ns);
    }

    /// Adds a file. What is added together ends with [`Files::end_run`].
    pub(super) fn add(&mut self, folder: FolderId, name: &[u8], meta: &Metadata) -> Result<()> {
        let executable = meta.mode() & 0o111 != 0;
        self.add_as(folder, name, Traits { size: meta.len(), modified_ns: modified_ns(meta), executable })
    }

    /// Adds a file that is not one of the disk; else as [`Files::add`].
    pub(super) fn add_as(&mut self, folder: FolderId, name: &[u8], traits: Traits) -> Result<()> {
        if self.len() >= MAX_RECORDS as usize {
            return Err(too_many());
        }
        self.names.record(folder, name, traits.modified_ns, traits.executable)?;
        let most = u64::from(*Version::V2.record_bytes().end());
        let size = match u32::try_from(traits.size) {
            Ok(size) if u64::from(size) <= most => size,
            _ => {
                // Its size is not among the others yet.
                self.too_large.push((self.path(self.len()), traits.size));
                0
            }
        };
        self.sizes.push(size);
        self.bytes = self.bytes.saturating_add(u64::from(size));
        Ok(())
    }

    /// Adds a symbolic link that stays one.
    pub(super) fn add_link(
        &mut self,
        folder: FolderId,
        name: &[u8],
        target: &[u8],
        modified_ns: i64,
    ) -> Result<()> {
        self.names.link(folder, name, target, modified_ns)
    }

    /// Says that a link at the top leads to a folder, which is a class to whoever follows links.
    pub(super) fn add_linked_class(&mut self, name: &[u8]) {
        self.linked_classes.push(name.to_vec());
    }

    /// Says that the files from `first` on belong together: those of `folder`, to be sorted by name, a list, or an archive.
    pub(super) fn end_run(&mut self, folder: FolderId, first: usize, by_name: bool) {
        let number = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
        if self.len() > first {
            let len = number(self.len() - first);
            self.runs.push(Run { folder, first: number(first), len, by_name });
        }
    }

    /// Number of runs so far, for [`Files::sort_as_image_folder`].
    pub(super) fn runs(&self) -> usize {
        self.runs.len()
    }

    /// Puts the runs from `first_run` on into ImageFolder's order: files at the top first, then class by class; in a
    /// class the directories of `sorted(os.walk(class, followlinks=True))`.
    pub(super) fn sort_as_image_folder(&mut self, first_run: usize) {
        let Files { names, runs, .. } = self;
        let Some(runs) = runs.get_mut(first_run..) else { return };
        let mut paths: Vec<_> = runs.iter().map(|run| (names.folder_path(run.folder), *run)).collect();
        paths.sort_by(|(a, _), (b, _)| {
            let (a, b) = (Place::of_folder(a), Place::of_folder(b));
            python_order(a.class, b.class).then_with(|| python_order(a.folder, b.folder))
        });
        for (run, (_, sorted)) in runs.iter_mut().zip(paths) {
            *run = sorted;
        }
    }

    /// Puts the records into the order of the runs. Called once, when all files are there.
    pub(super) fn settle(&mut self) {
        let mut order: Vec<u32> = self.runs.iter().flat_map(|run| run.first..run.first + run.len).collect();
        let mut rest = order.as_mut_slice();
        for run in &self.runs {
            let (places, behind) =
                std::mem::take(&mut rest).split_at_mut_checked(run.len as usize).unwrap_or_default();
            rest = behind;
            if run.by_name {
                let name = |&i: &u32| self.names.name(i as usize);
                places.par_sort_unstable_by(|a, b| python_order(name(a), name(b)));
            }
        }
        self.names.reorder(&order);
        self.sizes = order.iter().filter_map(|&from| self.sizes.get(from as usize).copied()).collect();
        self.runs = Vec::new();
    }

    /// Number of files.
    pub(super) fn len(&self) -> usize {
        self.sizes.len()
    }

    /// Bytes of all files.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Links at the top that stay links and lead to folders.
    pub(super) fn linked_classes(&self) -> &[Vec<u8>] {
        &self.linked_classes
    }

    /// Paths of the records, and the folders and links around them.
    pub(super) fn names(&self) -> &NewNames {
        &self.names
    }

    /// Sizes of the files in bytes.
    pub(super) fn sizes(&self) -> &[u32] {
        &self.sizes
    }

    /// Size of the `i`-th file in bytes.
    pub(super) fn size(&self, i: usize) -> u32 {
        self.sizes.get(i).copied().unwrap_or_default()
    }

    /// What is known of the `i`-th file beside its name.
    pub(super) fn traits(&self, i: usize) -> Traits {
        let (modified_ns, executable) = (self.names.modified_ns(i), self.names.executable(i));
        Traits { size: u64::from(self.size(i)), modified_ns, executable }
    }

    /// The files by where they come from, in order.
    pub(super) fn origins(&self) -> impl Iterator<Item = (Range<usize>, &Origin)> {
        let ends = self.roots.iter().skip(1).map(|root| root.first as usize).chain([self.len()]);
        self.roots.iter().zip(ends).map(|(root, end)| (root.first as usize..end, &root.origin))
    }

    /// Whether there is more than one origin so far.
    pub(super) fn are_begun(&self) -> bool {
        self.roots.len() > 1
    }

    /// Whether all files are known.
    pub(super) fn are_known(&self) -> bool {
        !self.roots.iter().any(|root| matches!(root.origin, Origin::Stream(_)))
    }

    /// The names, with the record that is at `order[i]` at place i.
    pub(super) fn into_names(self, order: &[u32]) -> NewNames {
        let mut names = self.names;
        names.reorder(order);
        names
    }

    /// Files that no record holds, with their sizes.
    pub(super) fn too_large(&self) -> &[(PathBuf, u64)] {
        &self.too_large
    }

    /// Where the `i`-th file lies on disk.
    pub(super) fn path(&self, i: usize) -> PathBuf {
        let root = self.roots.partition_point(|root| root.first as usize <= i).saturating_sub(1);
        let below = OsString::from_vec(self.names.path(i));
        self.roots.get(root).map(|root| root.path.join(&below)).unwrap_or_default()
    }

    /// The folders that were given.
    pub(super) fn folders(&self) -> impl Iterator<Item = &Path> {
        self.roots.iter().filter(|root| matches!(root.origin, Origin::Folder)).map(|root| root.path.as_path())
    }

    /// A number that another run of the same command gives the same file, and hardly any other one.
    pub(super) fn mark(&self, i: usize) -> u64 {
        mark(&self.names.path(i), u64::from(self.size(i)), self.names.modified_ns(i), 0)
    }
}

/// A number for record `record` of a source of that path, size and time. It is the same in every release.
pub(super) fn mark(path: &[u8], size: u64, modified_ns: i64, record: u64) -> u64 {
    let mut hash = SipHasher13::new();
    hash.write(&size.to_le_bytes());
    hash.write(&modified_ns.to_le_bytes());
    hash.write(&record.to_le_bytes());
    hash.write(path);
    hash.finish()
}

/// When a file was modified, in nanoseconds since 1970.
pub(super) fn modified_ns(meta: &Metadata) -> i64 {
    meta.mtime().saturating_mul(1_000_000_000).saturating_add(meta.mtime_nsec())
}

fn too_many() -> Error {
    let text = format!("there are more than {MAX_RECORDS} files, the most that a store holds");
    Error::new(ErrorKind::Full, text).with_help("import them in parts, each into a store of its own")
}
