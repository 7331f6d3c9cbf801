//! What a user may want to know of a folder, in plain sentences.

use std::ffi::OsString;
use std::hash::{BuildHasher, RandomState};
use std::path::Path;

use zrfs::store::FolderId;

use super::files::Files;
use super::folder::{LeftOut, Walked};
use crate::cli::output::count;

/// Suffixes of torchvision's `IMG_EXTENSIONS`.
const IMAGES: [&str; 9] = [".jpg", ".jpeg", ".png", ".ppm", ".bmp", ".pgm", ".tif", ".tiff", ".webp"];

/// How many folders a note lists.
const LISTED: usize = 10;

/// Names of the folder that samples to learn from are in, and of those that others are in.
const TRAIN: &str = "train";
const OTHERS: [&str; 4] = ["val", "valid", "validation", "test"];

/// What is said of the sources.
#[derive(Default)]
pub(super) struct Notes {
    /// Said before the work begins: what may be a reason to import otherwise.
    pub(super) before: Vec<String>,
    /// Said at the end: what was done.
    pub(super) after: Vec<String>,
}

/// Adds the notes on the folder `root`, whose files are those of `files` from `first` on; `stacked` where the arrays in it
/// become a dense store, `labelled` where its folders become classes.
pub(super) fn of_folder(
    root: &Path,
    files: &Files,
    first: usize,
    walked: &Walked,
    (stacked, labelled): (bool, bool),
    notes: &mut Notes,
) {
    let (name, Notes { before, after }) = (root.display(), notes);
    if let Some(other) = splits(&walked.top) {
        let labels = if labelled {
            format!(" As it is, the classes of --labels are {TRAIN} and {other}.")
        } else {
            String::new()
        };
        before.push(format!(
            "{name} holds {TRAIN}/ and {other}/: import each into its own store, so that each has its own \
             classes.{labels}"
        ));
    } else if let Some(n @ 1..) = skipped_by_image_folder(files, first) {
        let (no_images, them) = if n == 1 { ("is no image", "it") } else { ("are no images", "them") };
        before.push(format!(
            "{n} of the files in {name} {no_images} in a class folder. ImageFolder skips {them}, so its numbers differ \
             (--only '*.png' would pick one kind)."
        ));
    }
    if let Some((n, a, b)) = pairs(files, first) {
        before.push(format!(
            "{n} of the files in {name} have the name of another one and another suffix, as {a} and {b}. A record is one \
             file: --only picks one suffix, and two imports make two aligned stores."
        ));
    }
    if !stacked
        && (first..files.len()).all(|i| files.names().name(i).ends_with(b".npy"))
        && files.len() > first
    {
        before.push(format!(
            "All files in {name} are .npy files. Each is a record as it is; --stack makes a dense store of them, where \
             they have one dtype and shape."
        ));
    }
    after.extend(left_out(&name.to_string(), &walked.left_out));
    if !walked.emptied.is_empty() {
        let (them, are) =
            if walked.emptied.len() == 1 { ("It is", "a class") } else { ("They are", "classes") };
        let names: Vec<_> =
            walked.emptied.iter().take(LISTED).map(|name| format!("{}/", name.display())).collect();
        let more = match walked.emptied.len().saturating_sub(LISTED) {
            0 => String::new(),
            n => format!(" and {n} more"),
        };
        after.push(format!(
            "--only left out all files in {}{more}. {them} {are} still, which ImageFolder refuses without images.",
            names.join(", ")
        ));
    }
    if walked.links > 0 {
        after.push(format!("Kept as links in {name}: {}.", walked.links));
    }
    if walked.special > 0 {
        after.push(format!("Left out of {name}, as no files: {} (sockets, pipes, devices).", walked.special));
    }
}

/// The note on files in `place` that `--only` does not pick.
pub(super) fn left_out(place: &str, left_out: &LeftOut) -> Option<String> {
    let LeftOut { files, for_case, first_for_case } = left_out;
    let mut text = format!("--only left out {} in {place}", count(*files as u64, "file"));
    if let Some(first) = first_for_case {
        let those = if for_case == files { "all".to_owned() } else { format!("{for_case}") };
        text.push_str(&format!(
            ", {those} for upper or lower case alone, as {}: give a pattern for these, too",
            first.display()
        ));
    }
    (*files > 0).then(|| text + ".")
}

/// The folder beside `train` that holds other samples, where the top level is cut that way.
fn splits(top: &[OsString]) -> Option<&'static str> {
    let holds = |name: &str| top.iter().any(|folder| folder == name);
    OTHERS.into_iter().find(|other| holds(TRAIN) && holds(other))
}

/// How many files differ only in their suffix from another one in their folder, and the first two of them.
fn pairs(files: &Files, first: usize) -> Option<(usize, String, String)> {
    let names = files.names();
    // Keyed, since names are whatever somebody gave them.
    let hasher = RandomState::new();
    let stem = |i: usize| {
        let name = names.name(i);
        let dot = name.iter().rposition(|&b| b == b'.').filter(|&dot| dot > 0)?;
        name.get(..dot)
    };
    let mut keys: Vec<(u64, u32)> = (first..files.len())
        .filter_map(|i| Some((hasher.hash_one((names.folder_of(i), stem(i)?)), u32::try_from(i).ok()?)))
        .collect();
    keys.sort_unstable();
    let (mut count, mut found) = (0, None);
    for group in keys.chunk_by(|(a, _), (b, _)| a == b) {
        if let [(_, a), (_, b), ..] = group {
            count += group.len();
            found = found.min(Some((a, b))).or(Some((a, b)));
        }
    }
    let (a, b) = found?;
    let shown = |&i: &u32| String::from_utf8_lossy(names.name(i as usize)).into_owned();
    Some((count, shown(a), shown(b)))
}

/// How many files ImageFolder would leave out: those at the top and those whose suffix is no image's. `None` where it
/// would take none at all, as for a folder that is not made for it.
fn skipped_by_image_folder(files: &Files, first: usize) -> Option<usize> {
    let names = files.names();
    let taken = (first..files.len()).filter(|&i| {
        let name = names.name(i).to_ascii_lowercase();
        let image = IMAGES.iter().any(|suffix| name.ends_with(suffix.as_bytes()));
        image && names.folder_of(i) != FolderId::ROOT
    });
    let taken = taken.count();
    (taken > 0).then(|| files.len() - first - taken)
}
