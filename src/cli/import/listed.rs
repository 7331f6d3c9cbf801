//! `@FILE`: a list of paths as a source, in the list's order.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use zrfs::storage::open_regular;
use zrfs::store::FolderId;
use zrfs::{Error, ErrorKind, Result};

use super::files::{Files, modified_ns};
use super::folder::{LeftOut, Only, cannot_look};
use super::stores;

/// Longest path that the system takes, in bytes, its NUL included.
const MAX_PATH: u64 = 4096;

/// The list that the source `source` names, if it names one: `@FILE`.
pub(super) fn list_of(source: &Path) -> Option<&Path> {
    source.as_os_str().as_bytes().strip_prefix(b"@").map(|list| Path::new(OsStr::from_bytes(list)))
}

/// Adds the files that `list` names, one a line, or with a NUL byte behind each; `-` is standard input. A record's path is
/// the one in the list without `./` or `/` at its beginning. Empty lines name nothing. Returns what `only` does not pick.
///
/// # Errors
/// By its line: what is not there, what is no regular file, a path with `..` in it.
pub(super) fn read(list: &Path, null: bool, only: Option<&Only>, files: &mut Files) -> Result<LeftOut> {
    if list.as_os_str() == "-" {
        return read_from(std::io::stdin().lock(), "the list", null, only, files);
    }
    let name = format!("the list {}", list.display());
    let file = open_list(list).map_err(|e| Error::io(format!("can't open {name}"), e))?;
    read_from(BufReader::new(file), &name, null, only, files)
}

/// A pipe is taken, too, as a shell's `<(find …)` gives one.
fn open_list(list: &Path) -> std::io::Result<File> {
    open_regular(list).or_else(|_| File::open(list))
}

fn read_from(
    mut from: impl BufRead,
    name: &str,
    null: bool,
    only: Option<&Only>,
    files: &mut Files,
) -> Result<LeftOut> {
    let end = if null { 0 } else { b'\n' };
    let mut listed =
        Listed { files, only, absolute: None, folders: HashMap::new(), left_out: LeftOut::default() };
    let first = listed.files.len();
    let (mut path, mut line) = (Vec::new(), 0u64);
    loop {
        path.clear();
        line += 1;
        let read = from.by_ref().take(MAX_PATH + 1).read_until(end, &mut path);
        if read.map_err(|e| Error::io(format!("can't read {name}"), e))? == 0 {
            break;
        }
        if path.last() == Some(&end) {
            path.pop();
        } else if path.len() as u64 > MAX_PATH {
            let text = format!("line {line} of {name} is longer than a path");
            let help = "it takes one path a line; with -0 a NUL byte behind each";
            return Err(Error::new(ErrorKind::Unsupported, text).with_help(help));
        }
        if !path.is_empty() {
            listed.add(&path).map_err(|e| at_line(&e, line, name))?;
        }
    }
    listed.files.end_run(FolderId::ROOT, first, false);
    Ok(listed.left_out)
}

fn at_line(e: &Error, line: u64, name: &str) -> Error {
    Error::new(e.kind(), format!("line {line} of {name}: {e}"))
}

/// What to do about a relative path that leads nowhere.
fn from_here() -> String {
    let here = std::env::current_dir().map(|here| format!(", {}", here.display()));
    format!("the paths of a list start at the current folder{}, not at the list's", here.unwrap_or_default())
}

/// A list that is being read.
struct Listed<'a> {
    files: &'a mut Files,
    only: Option<&'a Only>,
    /// Whether the last path was absolute.
    absolute: Option<bool>,
    /// Folders by their paths, absolute ones apart from the others.
    folders: HashMap<(bool, Vec<u8>), FolderId>,
    left_out: LeftOut,
}

impl Listed<'_> {
    fn add(&mut self, path: &[u8]) -> Result<()> {
        let shown = Path::new(OsStr::from_bytes(path));
        let components: Vec<_> =
            path.split(|&b| b == b'/').filter(|name| !matches!(*name, b"" | b".")).collect();
        let refused = |what: &str, help: &str| {
            let text = format!("{} {what}", shown.display());
            Err(Error::new(ErrorKind::Unsupported, text).with_help(help))
        };
        if components.contains(&&b".."[..]) {
            return refused(
                "leads up with ..",
                "name it from the current folder on, or by its absolute path",
            );
        }
        let looked = std::fs::metadata(shown).map_err(|e| {
            let error = cannot_look(shown, e);
            let is_link = shown.symlink_metadata().is_ok();
            match error.kind() {
                ErrorKind::NotFound if !is_link && !shown.is_absolute() => error.with_help(from_here()),
                ErrorKind::NotFound if !is_link => error.with_help("correct it, or leave it out of the list"),
                _ => error,
            }
        })?;
        let (name, folder) = match components.split_last() {
            Some((name, folder)) if !looked.is_dir() => (*name, folder.join(&b'/')),
            _ => return refused("is a folder", "list its files, or give it as a source of its own"),
        };
        if !looked.is_file() {
            return refused("is no regular file", "leave it out of the list");
        }
        if *name == *stores::TABLE.as_bytes() && shown.parent().is_some_and(stores::is_store) {
            return refused("belongs to a store", "leave the store's folder out of the list");
        }
        let absolute = path.starts_with(b"/");
        let below = components.join(&b'/');
        let below = Path::new(OsStr::from_bytes(&below));
        if !self.only.is_none_or(|only| only.picks(below)) {
            self.left_out.add(below, self.only);
            return Ok(());
        }
        if self.absolute != Some(absolute) {
            self.files.start_at(Path::new(if absolute { "/" } else { "" }), false)?;
            self.absolute = Some(absolute);
        }
        let folder = self.folder(absolute, &folder)?;
        self.files.add(folder, name, &looked)
    }

    /// The folder at `path`, with the time that it has.
    fn folder(&mut self, absolute: bool, path: &[u8]) -> Result<FolderId> {
        if path.is_empty() {
            return Ok(FolderId::ROOT);
        }
        let key = (absolute, path.to_vec());
        if let Some(&folder) = self.folders.get(&key) {
            return Ok(folder);
        }
        let slash = path.iter().rposition(|&b| b == b'/');
        let (above, name) = match slash.and_then(|at| path.split_at_checked(at)) {
            Some((above, name)) => (above, name.get(1..).unwrap_or_default()),
            None => (&[][..], path),
        };
        let above = self.folder(absolute, above)?;
        let here = Path::new(if absolute { "/" } else { "" }).join(OsStr::from_bytes(path));
        let looked = std::fs::metadata(&here).map_err(|e| cannot_look(&here, e))?;
        let folder = self.files.folder(above, name, modified_ns(&looked))?;
        self.folders.insert(key, folder);
        Ok(folder)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(list: &[u8], null: bool) -> Result<Files> {
        let mut files = Files::new();
        read_from(list, "the list", null, None, &mut files)?;
        files.settle();
        Ok(files)
    }

    #[test]
    fn paths_keep_their_order_and_lose_their_beginning() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path();
        std::fs::create_dir_all(root.join("b/c")).unwrap();
        for (name, len) in [("b/z", 1), ("b/c/y", 2), ("a\nb", 3)] {
            std::fs::write(root.join(name), vec![0; len]).unwrap();
        }
        let at = |name: &str| format!("{}/{name}", root.display());
        let list = format!("{}\n\n{}\n{}", at("b/z"), at("b//c/./y"), at("b/z"));
        let files = read(list.as_bytes(), false).unwrap();
        let below = |name: &str| at(name).as_bytes()[1..].to_vec();
        let paths: Vec<_> = (0..files.len()).map(|i| files.names().path(i)).collect();
        assert_eq!(paths, [below("b/z"), below("b/c/y"), below("b/z")]);
        assert_eq!((files.sizes(), files.path(1)), (&[1, 2, 1][..], root.join("b/c/y")));
        let files = read(format!("{}\0", at("a\nb")).as_bytes(), true).unwrap();
        assert_eq!(files.names().path(0), below("a\nb"));
        // Relative to the current folder, which is the package's.
        let files = read(format!("./src/main.rs\n{}\nsrc/lib.rs\n", at("b/z")).as_bytes(), false).unwrap();
        assert_eq!(files.names().path(0), b"src/main.rs");
        let on_disk: Vec<_> = (0..3).map(|i| files.path(i)).collect();
        assert_eq!(on_disk, [Path::new("src/main.rs"), &root.join("b/z"), Path::new("src/lib.rs")]);
    }

    #[test]
    fn what_is_no_file_below_is_refused_by_its_line() {
        for (list, words) in [
            ("src/lib.rs\nsrc\n", &["line 2", "src is a folder"][..]),
            ("/\n", &["line 1", "/ is a folder"]),
            ("src/../Cargo.toml\n", &["src/../Cargo.toml", ".."]),
            ("../x\n", &["../x", ".."]),
            ("/dev/null\n", &["/dev/null", "no regular file"]),
            ("src/nowhere.rs\n", &["src/nowhere.rs", "line 1", "start at the current folder, /"]),
            ("/nowhere/at all\n", &["/nowhere/at all", "line 1", "leave it out"]),
            (&"x".repeat(5000), &["line 1", "longer"]),
        ] {
            let text = read(list.as_bytes(), false).unwrap_err().to_string();
            assert!(words.iter().all(|word| text.contains(word)), "{text}");
        }
        let dir = tempfile::tempdir().unwrap();
        let table = dir.path().join("meta.zr");
        std::fs::write(&table, "ZREC").unwrap();
        let text = read(table.as_os_str().as_bytes(), false).unwrap_err().to_string();
        assert!(text.contains("line 1") && text.contains("belongs to a store"), "{text}");
    }
}
