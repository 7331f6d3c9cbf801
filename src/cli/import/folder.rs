//! A folder as a source: which files, in which order.

use std::ffi::OsStr;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use globset::{GlobBuilder, GlobSet, GlobSetBuilder};
use walkdir::WalkDir;
use zrfs::storage::open_regular;
use zrfs::{Error, ErrorKind, Result};

use super::order::python_order;

/// Suffixes of torchvision's `IMG_EXTENSIONS`.
const IMAGES: [&str; 9] = [".jpg", ".jpeg", ".png", ".ppm", ".bmp", ".pgm", ".tif", ".tiff", ".webp"];

/// A file to pack.
#[derive(Debug)]
pub(super) struct File {
    /// Path below the folder.
    pub(super) path: PathBuf,
    /// Size in bytes when it was looked at.
    pub(super) size: u64,
}

/// The files of a folder, in ImageFolder's order.
#[derive(Debug)]
pub(super) struct Folder {
    pub(super) root: PathBuf,
    pub(super) files: Vec<File>,
    /// Sockets, pipes and devices, which have no contents to pack.
    pub(super) special: usize,
}

/// Which files `--only` picks.
pub(super) struct Only {
    names: GlobSet,
    paths: GlobSet,
}

impl Only {
    /// `None` where there are no patterns: then every file is picked.
    pub(super) fn new(patterns: &[String]) -> std::result::Result<Option<Only>, String> {
        if patterns.is_empty() {
            return Ok(None);
        }
        let (mut names, mut paths) = (GlobSetBuilder::new(), GlobSetBuilder::new());
        for pattern in patterns {
            let set = if pattern.contains('/') { &mut paths } else { &mut names };
            let glob = GlobBuilder::new(pattern).literal_separator(true).build();
            set.add(glob.map_err(|e| format!("--only: {e}"))?);
        }
        let build = |set: &GlobSetBuilder| set.build().map_err(|e| format!("--only: {e}"));
        Ok(Some(Only { names: build(&names)?, paths: build(&paths)? }))
    }

    fn picks(&self, path: &Path) -> bool {
        self.names.is_match(path.file_name().unwrap_or_default()) || self.paths.is_match(path)
    }
}

impl Folder {
    /// Walks `root`, following symbolic links, and puts its files into ImageFolder's order: files at the top first,
    /// then class by class; in a class the directories of `sorted(os.walk(class, followlinks=True))`, in each the
    /// files by name.
    ///
    /// # Errors
    /// What can't be looked at, with its path: an unreadable folder, a link to nothing, a link that leads back to a
    /// folder above it. Leaving such a file out would shift the records behind it.
    pub(super) fn walk(root: &Path, only: Option<&Only>) -> Result<Folder> {
        if is_store(root) {
            let text = format!("{} is a store, not a folder of samples", root.display());
            return Err(Error::new(ErrorKind::Unsupported, text).with_help("copy the folder itself instead"));
        }
        let mut folder = Folder { root: root.to_path_buf(), files: Vec::new(), special: 0 };
        for entry in WalkDir::new(root).follow_links(true).min_depth(1) {
            let entry = match entry {
                Ok(entry) => entry,
                // A link to nothing that is not picked is no concern.
                Err(e)
                    if dangling(root, &e).is_some_and(|path| only.is_some_and(|only| !only.picks(path))) =>
                {
                    continue;
                }
                Err(e) => return Err(walk_error(root, &e)),
            };
            let path = entry.path().strip_prefix(root).unwrap_or(entry.path());
            if entry.file_type().is_dir() || !only.is_none_or(|only| only.picks(path)) {
                continue;
            }
            if !entry.file_type().is_file() {
                folder.special += 1;
                continue;
            }
            let size = entry.metadata().map_err(|e| walk_error(root, &e))?.len();
            folder.files.push(File { path: path.to_path_buf(), size });
        }
        folder.files.sort_by(|a, b| {
            let (a, b) = (place(&a.path), place(&b.path));
            python_order(a.class, b.class)
                .then_with(|| python_order(a.directory, b.directory))
                .then_with(|| python_order(a.name, b.name))
        });
        Ok(folder)
    }

    /// Whether all files are arrays, which the user may have meant to become dense records.
    pub(super) fn holds_only_arrays(&self) -> bool {
        self.files.iter().all(|file| file.path.extension().is_some_and(|ext| ext == "npy"))
    }

    /// How many files ImageFolder would leave out: those at the top and those whose suffix is no image's. `None` where
    /// it would take none at all, as for a folder that is not made for it.
    pub(super) fn skipped_by_image_folder(&self) -> Option<usize> {
        let taken = self.files.iter().filter(|file| {
            let name = file.path.file_name().unwrap_or_default().as_bytes().to_ascii_lowercase();
            let image = IMAGES.iter().any(|suffix| name.ends_with(suffix.as_bytes()));
            image && file.path.components().nth(1).is_some()
        });
        let taken = taken.count();
        (taken > 0).then(|| self.files.len() - taken)
    }
}

/// A path's class, directory and name. A file at the top has an empty class, which sorts first.
struct Place<'a> {
    class: &'a [u8],
    directory: &'a [u8],
    name: &'a [u8],
}

fn place(path: &Path) -> Place<'_> {
    let directory = path.parent().map(Path::as_os_str).unwrap_or_default().as_bytes();
    Place {
        class: directory.split(|&b| b == b'/').next().unwrap_or_default(),
        directory,
        name: path.file_name().map(OsStr::as_bytes).unwrap_or_default(),
    }
}

/// Whether a folder holds a store's table.
fn is_store(root: &Path) -> bool {
    let mut magic = [0; 4];
    let read = open_regular(&root.join("meta.zr")).and_then(|mut file| file.read_exact(&mut magic));
    read.is_ok() && magic == *b"ZREC"
}

/// The path below `root` of a link to nothing, where that is the error.
fn dangling<'e>(root: &Path, e: &'e walkdir::Error) -> Option<&'e Path> {
    let missing = e.io_error().is_some_and(|e| e.kind() == std::io::ErrorKind::NotFound);
    e.path().filter(|_| missing)?.strip_prefix(root).ok()
}

fn walk_error(root: &Path, e: &walkdir::Error) -> Error {
    let path = e.path().unwrap_or(root).display();
    if let Some(above) = e.loop_ancestor() {
        let text = format!("the link {path} leads back to {}, a folder above it", above.display());
        return Error::new(ErrorKind::Unsupported, text).with_help("remove the link");
    }
    let source = e.io_error().map_or_else(
        || std::io::Error::other(e.to_string()),
        |e| {
            e.raw_os_error().map_or_else(|| std::io::Error::from(e.kind()), std::io::Error::from_raw_os_error)
        },
    );
    let error = Error::io(format!("can't look at {path}"), source);
    if error.kind() == ErrorKind::NotFound && path.to_string() != root.display().to_string() {
        return error.with_help("it is a link to nothing, or was removed meanwhile");
    }
    error
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_come_first_then_whole_directory_paths() {
        let dir = tempfile::tempdir().unwrap();
        // As sorted(os.walk) has it: "a-b" is a class of its own and comes after all of "a"; within "a", "a/x-y"
        // comes before "a/x/k" since "-" sorts before "/".
        let paths = [
            "top.txt",
            "a/0.png",
            "a/9.png",
            "a/x/1.png",
            "a/x-y/2.png",
            "a/x/k/3.png",
            "a-b/4.png",
            "B/5.png",
        ];
        for path in paths {
            let path = dir.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, "x").unwrap();
        }
        std::os::unix::fs::symlink("../a/x", dir.path().join("B/link")).unwrap();
        let folder = Folder::walk(dir.path(), None).unwrap();
        let found: Vec<_> = folder.files.iter().map(|f| f.path.to_str().unwrap()).collect();
        assert_eq!(
            found,
            [
                "top.txt",
                "B/5.png",
                "B/link/1.png",
                "B/link/k/3.png",
                "a/0.png",
                "a/9.png",
                "a/x/1.png",
                "a/x-y/2.png",
                "a/x/k/3.png",
                "a-b/4.png"
            ]
        );
        assert_eq!(folder.skipped_by_image_folder(), Some(1));
    }

    #[test]
    fn links_to_nothing_and_loops_are_named() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("a")).unwrap();
        std::os::unix::fs::symlink("nowhere", dir.path().join("a/gone")).unwrap();
        let text = Folder::walk(dir.path(), None).unwrap_err().to_string();
        assert!(text.contains("a/gone") && text.contains("link to nothing"), "{text}");
        std::fs::remove_file(dir.path().join("a/gone")).unwrap();
        std::os::unix::fs::symlink("..", dir.path().join("a/loop")).unwrap();
        let text = Folder::walk(dir.path(), None).unwrap_err().to_string();
        assert!(text.contains("a/loop") && text.contains("leads back"), "{text}");
    }

    #[test]
    fn only_matches_names_or_whole_paths() {
        let only = |patterns: &[&str]| {
            let patterns: Vec<_> = patterns.iter().map(|&p| p.to_owned()).collect();
            Only::new(&patterns).unwrap().unwrap()
        };
        let names = only(&["*.png", "*.jp*g"]);
        assert!(names.picks(Path::new("a/b/c.png")) && names.picks(Path::new("c.jpeg")));
        assert!(!names.picks(Path::new("a.png/c.txt")));
        let paths = only(&["train/*/c.png", "val/**/*.png"]);
        assert!(paths.picks(Path::new("train/x/c.png")) && paths.picks(Path::new("val/x/y/z.png")));
        assert!(!paths.picks(Path::new("train/x/y/c.png")));
        assert!(Only::new(&["[".to_owned()]).is_err());
    }
}
