//! What a user may want to know of a folder: said at the end, in plain sentences.

use std::path::Path;

use zrfs::store::FolderId;

use super::files::Files;
use super::folder::LeftOut;

/// Suffixes of torchvision's `IMG_EXTENSIONS`.
const IMAGES: [&str; 9] = [".jpg", ".jpeg", ".png", ".ppm", ".bmp", ".pgm", ".tif", ".tiff", ".webp"];

/// The notes on the folder `root`, whose files are those of `files` from `first` on.
pub(super) fn of_folder(root: &Path, files: &Files, first: usize, left_out: &LeftOut) -> Vec<String> {
    let (name, mut notes) = (root.display(), Vec::new());
    match skipped_by_image_folder(files, first) {
        None | Some(0) => {}
        Some(n) => notes.push(format!(
            "{n} of the files in {name} are not images in a class folder. ImageFolder skips them, so its numbers \
             differ (--only '*.png' would pick one kind)."
        )),
    }
    if (first..files.len()).all(|i| files.names().name(i).ends_with(b".npy")) && files.len() > first {
        notes.push(format!(
            "All files in {name} are .npy files. Each is a record as it is; a dense store comes from one .npy \
             file that holds all samples."
        ));
    }
    if left_out.special > 0 {
        notes.push(format!(
            "Left out of {name}, as no files: {} (sockets, pipes, devices).",
            left_out.special
        ));
    }
    notes
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
