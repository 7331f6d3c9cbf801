//! A folder as a source: which files, in which order.

use std::ffi::{OsStr, OsString};
use std::fs::{DirEntry, Metadata};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use globset::{GlobBuilder, GlobSet, GlobSetBuilder};
use zrfs::store::FolderId;
use zrfs::{Error, ErrorKind, Result};

use super::files::{Files, modified_ns};
use super::order::python_order;
use super::{links, stores};
use crate::cli::Links;

/// Which files `--only` picks.
pub(super) struct Only {
    names: GlobSet,
    paths: GlobSet,
    /// The same, whatever the case of letters.
    any_case: (GlobSet, GlobSet),
}

/// Files that `--only` does not pick.
#[derive(Default)]
pub(super) struct LeftOut {
    pub(super) files: usize,
    /// Those of them that it would pick but for upper and lower case, and the first one.
    pub(super) for_case: usize,
    pub(super) first_for_case: Option<PathBuf>,
}

impl LeftOut {
    /// Counts the file at `path`, which `only` does not pick.
    pub(super) fn add(&mut self, path: &Path, only: Option<&Only>) {
        self.files += 1;
        if only.is_some_and(|only| only.picks_in_any_case(path)) {
            self.for_case += 1;
            self.first_for_case.get_or_insert_with(|| path.to_path_buf());
        }
    }
}

impl Only {
    /// `None` where there are no patterns: then every file is picked.
    pub(super) fn new(patterns: &[String]) -> std::result::Result<Option<Only>, String> {
        if patterns.is_empty() {
            return Ok(None);
        }
        let sets = |any_case: bool| {
            let (mut names, mut paths) = (GlobSetBuilder::new(), GlobSetBuilder::new());
            for pattern in patterns {
                let set = if pattern.contains('/') { &mut paths } else { &mut names };
                let mut glob = GlobBuilder::new(pattern);
                set.add(glob.literal_separator(true).case_insensitive(any_case).build()?);
            }
            Ok((names.build()?, paths.build()?))
        };
        let failed = |e: globset::Error| format!("--only: {e}");
        let (names, paths) = sets(false).map_err(failed)?;
        Ok(Some(Only { names, paths, any_case: sets(true).map_err(failed)? }))
    }

    pub(super) fn picks(&self, path: &Path) -> bool {
        self.names.is_match(path.file_name().unwrap_or_default()) || self.paths.is_match(path)
    }

    fn picks_in_any_case(&self, path: &Path) -> bool {
        let (names, paths) = &self.any_case;
        names.is_match(path.file_name().unwrap_or_default()) || paths.is_match(path)
    }
}

/// What a walk came across, beside the files.
#[derive(Default)]
pub(super) struct Walked {
    /// Names of the folders at the top, in order; links to folders that stay links are among them.
    pub(super) top: Vec<OsString>,
    /// Sockets, pipes and devices, which have no contents to pack.
    pub(super) special: usize,
    /// Links that stay links.
    pub(super) links: usize,
    pub(super) left_out: LeftOut,
    /// Names of the folders at the top of which all files were left out.
    pub(super) emptied: Vec<OsString>,
}

/// Adds the files of the folder `root` to `files`, in ImageFolder's order.
///
/// # Errors
/// What can't be looked at, with its path: an unreadable folder, a link to nothing, a link that leads back to a
/// folder above it. Leaving such a file out would shift the records behind it. So would packing a store or a mount of
/// one: but for those in `own`, which the import makes and leaves out, they are refused by name.
pub(super) fn walk(
    root: &Path,
    only: Option<&Only>,
    links: Links,
    own: &[PathBuf],
    files: &mut Files,
) -> Result<Walked> {
    let meta = std::fs::metadata(root).map_err(|e| cannot_look(root, e))?;
    files.start_at(root, true)?;
    files.set_modified(FolderId::ROOT, modified_ns(&meta));
    let first_run = files.runs();
    let (above, around, walked) = (vec![identity(&meta)], around(root)?, Walked::default());
    // What is not there yet is no matter.
    let own = own.iter().filter_map(|path| Some(identity(&std::fs::metadata(path).ok()?))).collect();
    let mut walk = Walk { root, only, links, own, files, above, around, walked };
    stores::check_no_mount(root, root, identity(&meta))?;
    walk.folder(&mut PathBuf::new(), FolderId::ROOT, false)?;
    let walked = walk.walked;
    files.sort_as_image_folder(first_run);
    Ok(walked)
}

/// A walk under way.
struct Walk<'a> {
    root: &'a Path,
    only: Option<&'a Only>,
    links: Links,
    /// Folders that the import itself makes.
    own: Vec<Identity>,
    files: &'a mut Files,
    /// The folder that is looked at and those above it.
    above: Vec<Identity>,
    /// Folders on disk above the root, and above each folder that a followed link on the way here leads to.
    around: Vec<(Identity, PathBuf)>,
    walked: Walked,
}

/// Device and inode number of a folder.
pub(super) type Identity = (u64, u64);

/// A folder in the one that is looked at.
struct Subfolder {
    name: OsString,
    identity: Identity,
    modified_ns: i64,
    linked: bool,
}

impl Walk<'_> {
    /// Where `path` below the root lies on disk.
    fn at(&self, path: &Path) -> PathBuf {
        if path.as_os_str().is_empty() { self.root.to_path_buf() } else { self.root.join(path) }
    }

    /// Adds what is in the folder at `path` below the root. `expanded` says whether a link that was followed leads there.
    /// The longest path that the system takes bounds the depth.
    fn folder(&mut self, path: &mut PathBuf, id: FolderId, expanded: bool) -> Result<()> {
        let here = self.at(path);
        let first = self.files.len();
        let (mut folders, mut links) = (Vec::new(), Vec::new());
        for entry in std::fs::read_dir(&here).map_err(|e| cannot_look(&here, e))? {
            let entry = entry.map_err(|e| cannot_look(&here, e))?;
            let name = entry.file_name();
            if name == stores::TABLE && stores::is_store(&here) {
                return Err(stores::refused(self.root, &here));
            }
            path.push(&name);
            let kind = entry.file_type().map_err(|e| cannot_look(&entry.path(), e))?;
            if kind.is_symlink()
                && let Some(target) = self.kept(path, expanded)?
            {
                links.push((name, target));
            } else if let Some(folder) = self.entry(&entry, name, kind.is_symlink(), path, id)? {
                folders.push(folder);
            }
            path.pop();
        }
        self.files.end_run(id, first, true);
        links.sort_by(|(a, _), (b, _)| python_order(a.as_bytes(), b.as_bytes()));
        for (name, target) in links {
            self.link(path, id, &name, &target)?;
        }
        folders.sort_by(|a, b| python_order(a.name.as_bytes(), b.name.as_bytes()));
        for folder in folders {
            path.push(&folder.name);
            self.subfolder(path, id, folder, expanded)?;
            path.pop();
        }
        Ok(())
    }

    /// The target of the link at `path`, where it stays a link.
    fn kept(&self, path: &Path, expanded: bool) -> Result<Option<OsString>> {
        match self.links {
            Links::Follow => Ok(None),
            Links::Keep => links::kept(self.root, path, expanded).map_err(|e| cannot_look(&self.at(path), e)),
        }
    }

    fn picks(&self, path: &Path) -> bool {
        self.only.is_none_or(|only| only.picks(path))
    }

    /// Adds a file, or what a link leads to; a folder is returned.
    fn entry(
        &mut self,
        entry: &DirEntry,
        name: OsString,
        linked: bool,
        path: &Path,
        id: FolderId,
    ) -> Result<Option<Subfolder>> {
        let picked = self.picks(path);
        let looked = if linked {
            match std::fs::metadata(entry.path()) {
                // A link to nothing that is not picked is no concern.
                Err(e) if e.kind() == std::io::ErrorKind::NotFound && !picked => return Ok(None),
                looked => looked,
            }
        } else if picked || entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            entry.metadata()
        } else {
            if entry.file_type().is_ok_and(|kind| kind.is_file()) {
                self.walked.left_out.add(path, self.only);
            }
            return Ok(None);
        };
        let meta = looked.map_err(|e| cannot_look(&entry.path(), e))?;
        if meta.is_dir() {
            let (identity, modified_ns) = (identity(&meta), modified_ns(&meta));
            return Ok(Some(Subfolder { name, identity, modified_ns, linked }));
        }
        if picked && meta.is_file() {
            self.files.add(id, name.as_bytes(), &meta)?;
        } else if picked {
            self.walked.special += 1;
        } else if meta.is_file() {
            self.walked.left_out.add(path, self.only);
        }
        Ok(None)
    }

    /// Adds a link that stays one, where its name is picked or it leads to a folder.
    fn link(&mut self, path: &mut PathBuf, id: FolderId, name: &OsStr, target: &OsStr) -> Result<()> {
        path.push(name);
        let here = self.at(path);
        let leads_to_folder = here.is_dir();
        if leads_to_folder || self.picks(path) {
            let meta = here.symlink_metadata().map_err(|e| cannot_look(&here, e))?;
            self.files.add_link(id, name.as_bytes(), target.as_bytes(), modified_ns(&meta))?;
            self.walked.links += 1;
            if leads_to_folder && id == FolderId::ROOT {
                self.files.add_linked_class(name.as_bytes());
                self.walked.top.push(name.to_owned());
            }
        }
        path.pop();
        Ok(())
    }

    fn subfolder(
        &mut self,
        path: &mut PathBuf,
        parent: FolderId,
        folder: Subfolder,
        expanded: bool,
    ) -> Result<()> {
        let Subfolder { name, identity, modified_ns, linked } = folder;
        if self.own.contains(&identity) {
            return Ok(());
        }
        let outer = self.around.len();
        if linked {
            let link = self.at(path);
            if let Some(above) = self.leads_back(path, identity) {
                let text = format!(
                    "the link {} leads back to {}, a folder above it",
                    link.display(),
                    above.display()
                );
                return Err(Error::new(ErrorKind::Unsupported, text).with_help("remove the link"));
            }
            self.around.extend(around(&link)?);
        }
        stores::check_no_mount(self.root, &self.at(path), identity)?;
        let id = self.files.folder(parent, name.as_bytes(), modified_ns)?;
        let taken = |walk: &Walk<'_>| (walk.files.len(), walk.walked.links);
        let (taken_before, left_out_before) = (taken(self), self.walked.left_out.files);
        self.above.push(identity);
        self.folder(path, id, expanded || linked)?;
        self.above.pop();
        if parent == FolderId::ROOT {
            if taken(self) == taken_before && self.walked.left_out.files > left_out_before {
                self.walked.emptied.push(name.clone());
            }
            self.walked.top.push(name);
        }
        self.around.truncate(outer);
        Ok(())
    }

    /// The folder `to`, where it holds the link at `path` or the way there: who follows the link comes to it again.
    fn leads_back(&self, path: &Path, to: Identity) -> Option<PathBuf> {
        if let Some(depth) = self.above.iter().position(|&above| above == to) {
            let above = path.ancestors().nth(self.above.len() - depth).unwrap_or(Path::new(""));
            return Some(self.at(above));
        }
        self.around.iter().find(|(around, _)| *around == to).map(|(_, path)| path.clone())
    }
}

fn identity(meta: &Metadata) -> Identity {
    (meta.dev(), meta.ino())
}

/// The folders on disk above `folder`.
fn around(folder: &Path) -> Result<Vec<(Identity, PathBuf)>> {
    let real = folder.canonicalize().map_err(|e| cannot_look(folder, e))?;
    let above = real.ancestors().skip(1);
    // What may not be looked at can't be walked, either.
    Ok(above.filter_map(|path| Some((identity(&std::fs::metadata(path).ok()?), path.into()))).collect())
}

pub(super) fn cannot_look(path: &Path, e: std::io::Error) -> Error {
    let error = Error::io(format!("can't look at {}", path.display()), e);
    match error.kind() {
        ErrorKind::NotFound => error.with_help("it is a link to nothing, or was removed meanwhile"),
        _ => error,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn walked(root: &Path) -> Result<Files> {
        let mut files = Files::new();
        walk(root, None, Links::Follow, &[], &mut files)?;
        files.settle();
        Ok(files)
    }

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
            std::fs::write(&path, path.as_os_str().as_bytes()).unwrap();
        }
        std::os::unix::fs::symlink("../a/x", dir.path().join("B/link")).unwrap();
        let files = walked(dir.path()).unwrap();
        let found: Vec<_> =
            (0..files.len()).map(|i| String::from_utf8(files.names().path(i)).unwrap()).collect();
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
        for (i, name) in found.iter().enumerate() {
            let path = files.path(i);
            assert_eq!(path, dir.path().join(name));
            assert_eq!(std::fs::read(path).unwrap().len(), files.size(i) as usize);
        }
    }

    #[test]
    fn links_to_nothing_and_loops_are_named() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("a")).unwrap();
        std::os::unix::fs::symlink("nowhere", dir.path().join("a/gone")).unwrap();
        let text = walked(dir.path()).unwrap_err().to_string();
        assert!(text.contains("a/gone") && text.contains("link to nothing"), "{text}");
        std::fs::remove_file(dir.path().join("a/gone")).unwrap();
        std::os::unix::fs::symlink("..", dir.path().join("a/loop")).unwrap();
        let text = walked(dir.path()).unwrap_err().to_string();
        assert!(text.contains("a/loop") && text.contains("leads back"), "{text}");
    }

    #[test]
    fn no_link_leads_to_a_folder_that_holds_the_way_there() {
        let top = tempfile::tempdir().unwrap();
        let at = |name: &str| top.path().join(name);
        for folder in ["tree/a", "outside/deep", "tree/b"] {
            std::fs::create_dir_all(at(folder)).unwrap();
            std::fs::write(at(folder).join("file"), "x").unwrap();
        }
        let link = |target: &Path, name: &str| std::os::unix::fs::symlink(target, at(name)).unwrap();
        let (up, down) = (Path::new(".."), Path::new("../../outside/deep"));
        for (name, links) in [
            // The root's parent, by a relative path and an absolute one, and the root of all.
            ("up", &[(up, "tree/up")][..]),
            ("a/up", &[(top.path(), "tree/a/up")]),
            ("up", &[(Path::new("/"), "tree/up")]),
            // By way of another link.
            ("up", &[(top.path(), "outside/top"), (Path::new("../outside/top"), "tree/up")]),
            // From a folder outside to one that holds that, to the root, and to the root's parent.
            ("a/out/l", &[(down, "tree/a/out"), (up, "outside/deep/l")]),
            ("a/out/l", &[(down, "tree/a/out"), (&at("tree"), "outside/deep/l")]),
            ("a/out/l", &[(down, "tree/a/out"), (Path::new("../.."), "outside/deep/l")]),
        ] {
            links.iter().for_each(|(target, name)| link(target, name));
            for kept in [Links::Follow, Links::Keep] {
                let root = at("tree");
                let text = walk(&root, None, kept, &[], &mut Files::new()).err().unwrap().to_string();
                let words = format!("the link {} leads back to ", root.join(name).display());
                assert!(text.starts_with(&words), "{text}");
            }
            links.iter().for_each(|(_, name)| std::fs::remove_file(at(name)).unwrap());
        }
        // Beside the way, a folder may be taken twice.
        link(down, "tree/a/out");
        link(&at("outside"), "tree/b/out");
        assert_eq!(walked(&at("tree")).unwrap().len(), 4);
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
