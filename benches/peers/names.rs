//! Names: listing a folder with all below it, and looking names up.

use std::fs;
use std::path::Path;
use std::time::Instant;

use crate::common::splitmix;
use crate::{Outcome, Words};

/// What a listing has seen.
#[derive(Default)]
struct Listed {
    names: u64,
    /// Of all regular files, where attributes were asked for.
    bytes: u64,
}

pub(crate) fn list(words: &mut Words<'_>) -> Outcome<Vec<u64>> {
    let dir = Path::new(words.text()?);
    let with_attributes = match words.text()? {
        "names" => false,
        "attributes" => true,
        other => return Err(format!("unknown listing {other}").into()),
    };
    let mut listed = Listed::default();
    let clock = Instant::now();
    list_below(dir, with_attributes, &mut listed).map_err(|e| format!("{}: {e}", dir.display()))?;
    Ok(vec![clock.elapsed().as_nanos() as u64, listed.names, listed.bytes])
}

fn list_below(dir: &Path, with_attributes: bool, listed: &mut Listed) -> Outcome<()> {
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        listed.names += 1;
        // Of the entry itself: no call.
        let is_folder = entry.file_type()?.is_dir();
        if with_attributes {
            let found = entry.metadata()?;
            listed.bytes += if is_folder { 0 } else { found.len() };
        }
        if is_folder {
            list_below(&entry.path(), with_attributes, listed)?;
        }
    }
    Ok(())
}

/// Each lookup is a stat of one random name.
pub(crate) fn look_up(words: &mut Words<'_>) -> Outcome<Vec<u64>> {
    let (dir, ext) = (Path::new(words.text()?), words.text()?);
    let (len, seed, count): (u64, u64, u64) = (words.number()?, words.number()?, words.number()?);
    let paths: Vec<_> =
        (0..count).map(|i| dir.join(format!("{:08}.{ext}", splitmix(seed, i) % len))).collect();
    let mut bytes = 0;
    let clock = Instant::now();
    for path in &paths {
        bytes += fs::symlink_metadata(path).map_err(|e| format!("{}: {e}", path.display()))?.len();
    }
    Ok(vec![clock.elapsed().as_nanos() as u64, bytes])
}
