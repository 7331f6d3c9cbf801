//! `--labels`: the class of each record, as ImageFolder numbers them, in a store of int64 beside the data's.
//!
//! A record's class is the first component of its path, its number the place of that name among the names of all folders
//! at the top, sorted as Python sorts them. classes.json in the labels' store has the names in their order.
//!
//! The labels are durable before the data are. A new labels' store is filled in LABELS.partial and gets its name right before
//! the data's store gets its own.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::fs::File;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};

use serde_core::de::{Deserialize, Deserializer, Visitor};
use zrfs::dataset::Schema;
use zrfs::storage::open_regular;
use zrfs::store::{FolderId, NewNames};
use zrfs::{Codec, Error, ErrorKind, Result, Store, Version};

use super::order::python_order;
use super::plan::tell;
use crate::cli::output::count;
use crate::cli::surrogates::JsonName;
use crate::cli::{Failure, one_line, partial};

/// Name of the list of classes in the labels' store.
const CLASSES: &str = "classes.json";
/// The same while it is being written.
const UNFINISHED: &str = "classes.json.new";
/// Longest list of classes that is read, in bytes.
const MAX_CLASSES: u64 = 1 << 30;
/// NumPy's name of a label's type.
const DTYPE: &str = "<i8";
/// Labels that are written together.
const PIECE: usize = 1 << 20;

/// A labels' store that is to be made or to grow.
pub(super) struct Labels<'a> {
    path: &'a Path,
    to: To,
}

enum To {
    /// A new store, which grows in this folder.
    New(PathBuf),
    /// A store that is there, its classes, and how many records have labels that are not of this import.
    Old { store: Box<Store>, classes: Vec<Vec<u8>>, len: u64 },
}

/// The labels of an append.
pub(super) struct Numbered {
    /// All classes in their order, with those that the store had.
    pub(super) classes: Vec<Vec<u8>>,
    /// The class of each record.
    labels: Vec<u32>,
    /// What the user may want to know of them.
    pub(super) note: Option<String>,
}

impl<'a> Labels<'a> {
    /// Labels in a new store at `path`. Makes LABELS.partial.
    ///
    /// # Errors
    /// [`ErrorKind::Exists`] where one of the two is there.
    pub(super) fn create(path: &'a Path) -> Result<Labels<'a>> {
        let partial = partial::beside(path)?;
        std::fs::create_dir(&partial)
            .map_err(|e| partial::not_made(&partial, "an import", "remove it", e))?;
        Ok(Labels { path, to: To::New(partial) })
    }

    /// As [`Labels::create`], for an import that goes on, in the place of what it has left in LABELS.partial.
    pub(super) fn create_anew(path: &'a Path) -> Result<Labels<'a>> {
        let partial = partial::beside(path)?;
        match std::fs::remove_dir_all(&partial) {
            Err(e) if e.kind() != std::io::ErrorKind::NotFound => {
                Err(Error::io(format!("can't remove {}", partial.display()), e))
            }
            _ if path.symlink_metadata().is_ok() => {
                Err(Error::new(ErrorKind::Exists, format!("{} exists already", path.display())))
            }
            _ => Labels::create(path),
        }
    }

    /// Labels behind those in the store at `path`, which belong to the first `len` records. With `resume` those behind may
    /// be there already.
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`] where that is no such store, or has another length.
    pub(super) fn open(path: &'a Path, len: u64, resume: bool) -> Result<Labels<'a>> {
        let store = Store::open(path)?;
        let name = path.display();
        let schema = Schema::read(&store)?;
        let classes = read_classes(path)?;
        let (Some(classes), Some((DTYPE, []))) = (classes, schema.as_ref().map(|s| (s.dtype(), s.shape())))
        else {
            let text = format!("{name} was not made by --labels: it needs a {CLASSES}, and records of int64");
            return Err(Error::new(ErrorKind::Unsupported, text));
        };
        if store.len() < len || (store.len() > len && !resume) {
            let (labels, records) = (count(store.len(), "label"), count(len, "record"));
            let text = format!("{name} holds {labels} for {records}");
            let help = pair_again(path, store.len(), len);
            return Err(Error::new(ErrorKind::Unsupported, text).with_help(help));
        }
        Ok(Labels { path, to: To::Old { store: Box::new(store), classes, len } })
    }

    /// Numbers the classes of the records of `names`; `linked` are links at the top that lead to folders.
    ///
    /// # Errors
    /// Tells of all files that lie in no folder; [`ErrorKind::Unsupported`] where the classes that are there would get
    /// other numbers.
    pub(super) fn number(
        &self,
        names: &NewNames,
        linked: &[Vec<u8>],
    ) -> std::result::Result<Numbered, Failure> {
        let outside = (0..names.len()).filter(|&i| names.folder_of(i) == FolderId::ROOT);
        if outside.clone().next().is_some() {
            let paths = outside.map(|i| String::from_utf8_lossy(&names.path(i)).into_owned());
            tell(paths, names.len(), "in no folder that would be a class, so without a label");
            return Err(Failure::Told);
        }
        let class_of: Vec<(FolderId, Vec<u8>)> = names
            .folders()
            .filter(|&folder| folder != FolderId::ROOT)
            .map(|folder| {
                let mut path = names.folder_path(folder);
                path.truncate(path.iter().position(|&b| b == b'/').unwrap_or(path.len()));
                (folder, path)
            })
            .collect();
        let old = match &self.to {
            To::New(_) => &[][..],
            To::Old { classes, .. } => classes,
        };
        let new: HashSet<&[u8]> = class_of
            .iter()
            .map(|(_, class)| class.as_slice())
            .chain(linked.iter().map(Vec::as_slice))
            .collect();
        let classes = self.extend(old, new)?;
        let number: HashMap<&[u8], u32> = classes.iter().map(Vec::as_slice).zip(0..).collect();
        let of_folder: HashMap<FolderId, u32> = class_of
            .iter()
            .filter_map(|(folder, class)| Some((*folder, *number.get(class.as_slice())?)))
            .collect();
        let labels = (0..names.len()).filter_map(|i| of_folder.get(&names.folder_of(i)).copied()).collect();
        let note = one_class(&classes, names);
        Ok(Numbered { classes, labels, note })
    }

    /// The classes that are there and the new ones, in order.
    fn extend(&self, old: &[Vec<u8>], new: HashSet<&[u8]>) -> Result<Vec<Vec<u8>>> {
        let known: HashSet<&[u8]> = old.iter().map(Vec::as_slice).collect();
        let mut added: Vec<&[u8]> = new.into_iter().filter(|class| !known.contains(class)).collect();
        added.sort_by(|a, b| python_order(a, b));
        if let (Some(last), Some(first)) = (old.last(), added.first())
            && python_order(first, last).is_lt()
        {
            let between = added.iter().filter(|class| python_order(class, last).is_lt());
            let listed: Vec<_> = between.take(10).map(|class| shown(class)).collect();
            let text = format!(
                "{}: classes before {}, its last one, would shift the numbers that its labels have: {}",
                self.path.display(),
                shown(last),
                listed.join(", ")
            );
            let help = "give those folders names that sort behind it, or import everything into new stores";
            return Err(Error::new(ErrorKind::Unsupported, text).with_help(help));
        }
        Ok(old.iter().cloned().chain(added.into_iter().map(<[u8]>::to_vec)).collect())
    }

    /// Makes the labels durable: in LABELS.partial, or in the store that is there.
    pub(super) fn write(&self, numbered: &Numbered) -> Result<()> {
        match &self.to {
            To::New(folder) => {
                let store = Store::create(folder, Version::V1)?;
                Schema::new(DTYPE, &[], Codec::Raw)?.write(&store)?;
                write_classes(folder, &numbered.classes)?;
                append(&store, &numbered.labels)
            }
            To::Old { store, len, .. } if store.len() > *len => {
                self.check_written(store, *len, &numbered.labels)
            }
            To::Old { store, classes, .. } => {
                // The old ones keep their numbers, so that the list is right before and after.
                if *classes != numbered.classes {
                    write_classes(self.path, &numbered.classes)?;
                }
                append(store, &numbered.labels)
            }
        }
    }

    /// Accepts labels that were written before the import was interrupted.
    fn check_written(&self, store: &Store, len: u64, labels: &[u32]) -> Result<()> {
        let is_same = |(i, &label): (u64, &u32)| Ok(store.read(i)? == i64::from(label).to_le_bytes());
        let all = store.len() - len == labels.len() as u64;
        if all && (len..).zip(labels).map(is_same).collect::<Result<Vec<bool>>>()?.iter().all(|same| *same) {
            return Ok(());
        }
        let text = format!("{} holds other labels behind the first {len}", self.path.display());
        Err(Error::new(ErrorKind::Unsupported, text).with_help(pair_again(self.path, store.len(), len)))
    }

    /// Gives a new store its name.
    pub(super) fn finish(&self) -> Result<()> {
        match &self.to {
            To::New(folder) => partial::rename(folder, self.path),
            To::Old { .. } => Ok(()),
        }
    }

    /// Takes a new store away again that [`Labels::finish`] has named.
    pub(super) fn take_back(&self) {
        if let To::New(_) = self.to {
            let _ = std::fs::remove_dir_all(self.path);
        }
    }

    /// Removes what [`Labels::create`] and [`Labels::write`] have made, where it has no name yet.
    pub(super) fn discard(&self) {
        if let To::New(folder) = &self.to {
            let _ = std::fs::remove_dir_all(folder);
        }
    }
}

/// The note on classes that are a single one.
fn one_class(classes: &[Vec<u8>], names: &NewNames) -> Option<String> {
    let [class] = classes else { return None };
    let class = shown(class);
    let text = format!("There is one class, {class}: all records lie below {class}/, so all labels are 0.");
    let is_deeper = |folder| names.folder_path(folder).contains(&b'/');
    if !names.folders().any(is_deeper) {
        return Some(text);
    }
    Some(format!(
        "{text} For the folders in it as classes import {class} itself (an archive as `tar -C {class} .` makes it, a list \
         of paths that start in it)."
    ))
}

/// Appends labels in one step and makes them durable.
fn append(store: &Store, labels: &[u32]) -> Result<()> {
    let mut appender = store.appender()?;
    for piece in labels.chunks(PIECE) {
        let bytes: Vec<u8> = piece.iter().flat_map(|&label| i64::from(label).to_le_bytes()).collect();
        appender.append(&bytes, size_of::<i64>(), Codec::Raw)?;
    }
    appender.commit()?;
    store.sync()
}

/// Writes the list of classes, over one that is there, as a whole or not at all.
fn write_classes(folder: &Path, classes: &[Vec<u8>]) -> Result<()> {
    let (unfinished, path) = (folder.join(UNFINISHED), folder.join(CLASSES));
    let lines: Vec<_> = classes.iter().map(|class| JsonName(class).to_string()).collect();
    let json = format!("[\n{}\n]\n", lines.join(",\n"));
    let write = || {
        let mut file = File::create(&unfinished)?;
        file.write_all(json.as_bytes())?;
        file.sync_all()?;
        std::fs::rename(&unfinished, &path)?;
        File::open(folder)?.sync_all()
    };
    write().map_err(|e| Error::io(format!("can't write {}", path.display()), e))
}

/// Reads the list of classes in a labels' store; `None` where there is none.
fn read_classes(folder: &Path) -> Result<Option<Vec<Vec<u8>>>> {
    let path = folder.join(CLASSES);
    let failed = |e| Error::io(format!("can't read {}", path.display()), e);
    let file = match open_regular(&path) {
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        file => file.map_err(failed)?,
    };
    let mut json = Vec::new();
    file.take(MAX_CLASSES).read_to_end(&mut json).map_err(failed)?;
    let classes: Vec<ClassName> = serde_json::from_slice(&json).map_err(|e| {
        Error::new(ErrorKind::Damaged, format!("{} is no list of class names: {e}", path.display()))
    })?;
    Ok(Some(classes.into_iter().map(|class| class.0).collect()))
}

/// A name that JSON has as Python's `os.fsdecode` gives it; see [`JsonName`].
struct ClassName(Vec<u8>);

impl<'de> Deserialize<'de> for ClassName {
    fn deserialize<D: Deserializer<'de>>(from: D) -> std::result::Result<ClassName, D::Error> {
        // As bytes, since a string may hold no lone surrogates.
        from.deserialize_bytes(NameVisitor).map(ClassName)
    }
}

struct NameVisitor;

impl Visitor<'_> for NameVisitor {
    type Value = Vec<u8>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a name")
    }

    fn visit_bytes<E>(self, text: &[u8]) -> std::result::Result<Vec<u8>, E> {
        let (mut name, mut rest) = (Vec::with_capacity(text.len()), text);
        while let [first, behind @ ..] = rest {
            rest = match rest {
                // U+DC80 to U+DCFF, encoded as characters are: the byte that they stand for.
                [0xed, b @ 0xb2..=0xb3, c @ 0x80..=0xbf, behind @ ..] => {
                    name.push((b & 0x03) << 6 | (c & 0x3f));
                    behind
                }
                _ => {
                    name.push(*first);
                    behind
                }
            };
        }
        Ok(name)
    }

    fn visit_str<E>(self, text: &str) -> std::result::Result<Vec<u8>, E> {
        Ok(text.as_bytes().to_vec())
    }
}

fn shown(class: &[u8]) -> String {
    one_line(String::from_utf8_lossy(class))
}

/// What to do where there are more or fewer labels than records.
fn pair_again(path: &Path, labels: u64, records: u64) -> String {
    let other = "they are no pair, or another program has changed one of them";
    if labels <= records {
        return other.to_owned();
    }
    let last = labels - 1;
    format!(
        "where an import that was cut off has left them, `zrfs delete {} {records}-{last}` takes them away; else {other}",
        path.display()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(paths: &[&[u8]]) -> NewNames {
        let mut names = NewNames::new(0);
        for path in paths {
            let slash = path.iter().rposition(|&b| b == b'/').unwrap();
            let folder = names.folder_at(&path[..slash]).unwrap();
            names.record(folder, &path[slash + 1..], 0, false).unwrap();
        }
        names
    }

    #[test]
    fn class_names_of_any_bytes_are_read_as_they_were_written() {
        let dir = tempfile::tempdir().unwrap();
        let names: [&[u8]; 9] = [
            b"cats",
            "é🦀".as_bytes(),
            b"\xff",
            b"a\x80b",
            b"\xed\xb2\x80",
            b"\xc0\xaf",
            b"\"q\" \\udc80",
            b"\n\t",
            "\u{d7ff}".as_bytes(),
        ];
        let names: Vec<_> = names.iter().map(|name| name.to_vec()).collect();
        assert!(read_classes(dir.path()).unwrap().is_none());
        write_classes(dir.path(), &names).unwrap();
        assert_eq!(read_classes(dir.path()).unwrap().unwrap(), names);
        for bad in ["", "{}", "[1]", "[[\"a\"]]", "[\"a\"", "[\"\\ud8\"]"] {
            std::fs::write(dir.path().join(CLASSES), bad).unwrap();
            assert_eq!(read_classes(dir.path()).unwrap_err().kind(), ErrorKind::Damaged, "{bad}");
        }
    }

    #[test]
    fn classes_are_folders_at_the_top_as_python_sorts_them() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("l.zr");
        let labels = Labels::create(&path).unwrap();
        let mut names = names(&[b"b/1", b"a/x/2", b"\xff/3", b"a/4", "\u{ffee}/5".as_bytes()]);
        names.folder(FolderId::ROOT, b"empty").unwrap();
        let numbered = labels.number(&names, &[b"aa".to_vec()]).ok().unwrap();
        let sorted: [&[u8]; 6] = [b"a", b"aa", b"b", b"empty", b"\xff", "\u{ffee}".as_bytes()];
        assert_eq!(numbered.classes, sorted);
        assert_eq!(numbered.labels, [2, 0, 4, 0, 5]);
        names.record(FolderId::ROOT, b"outside", 0, false).unwrap();
        assert!(matches!(labels.number(&names, &[]), Err(Failure::Told)));
    }

    #[test]
    fn an_append_leaves_the_numbers_as_they_are() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("l.zr");
        let labels = Labels::create(&path).unwrap();
        labels.write(&labels.number(&names(&[b"b/1", b"d/2"]), &[]).ok().unwrap()).unwrap();
        labels.finish().unwrap();
        drop(labels);
        assert!(
            Labels::open(&path, 3, false).is_err_and(|e| e.to_string().contains("2 labels for 3 records"))
        );
        let labels = Labels::open(&path, 2, false).unwrap();
        let refused = labels.number(&names(&[b"d/3", b"c/4", b"a/5", b"e/6"]), &[]);
        let Err(Failure::Failed(e)) = refused else { panic!("the numbers would shift") };
        let text = e.to_string();
        assert!(text.contains("a, c") && !text.contains("a, c, e"), "{text}");
        labels.write(&labels.number(&names(&[b"d/3", b"f/4"]), &[]).ok().unwrap()).unwrap();
        let store = Store::open_read_only(&path).unwrap();
        let labels: Vec<_> = (0..4).map(|i| store.read(i).unwrap()).collect();
        assert_eq!(labels, [0i64, 1, 1, 2].map(|label| label.to_le_bytes().to_vec()));
        assert_eq!(read_classes(&path).unwrap().unwrap(), [b"b", b"d", b"f"]);
    }
}
