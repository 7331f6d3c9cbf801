//! Archives whose samples are several members each, as WebDataset has them: records of one store would tear them apart.

use std::collections::HashSet;
use std::hash::{DefaultHasher, Hash, Hasher};

use zrfs::{Error, ErrorKind, Result};

use super::shown;

/// Suffixes of a key that a message names.
const NAMED: usize = 8;

/// Looks for keys with several suffixes among members that follow each other. A key is all of a path but what follows the
/// first dot of its last component.
#[derive(Default)]
pub(super) struct Samples {
    key: Vec<u8>,
    /// The first suffixes of the key.
    suffixes: Vec<Vec<u8>>,
    /// Number of its suffixes, and the sum of their hashes, which is the same in any order.
    count: u64,
    set: u64,
    /// Sets of two or more suffixes that a key had.
    seen: HashSet<u64>,
}

impl Samples {
    /// Takes note of a member; an error where it and those before it are a sample of several members, or the second key
    /// with the same several suffixes was complete.
    ///
    /// That pictures are numbered before their suffix, `img.001.png` and `img.002.png`, makes no sample of them: so suffixes
    /// count where their last parts differ, or where two keys have the same ones.
    pub(super) fn add(&mut self, path: &[u8], place: &str) -> Result<()> {
        // What has no suffix, or nothing before it, belongs to no sample.
        let Some((key, suffix)) = split(path) else { return Ok(()) };
        if key != self.key {
            self.end(place)?;
            self.key = key.to_vec();
        }
        let differs = self.suffixes.first().is_some_and(|first| last_part(first) != last_part(suffix));
        if self.suffixes.len() < NAMED || differs {
            self.suffixes.push(suffix.to_vec());
        }
        let mut hash = DefaultHasher::new();
        suffix.hash(&mut hash);
        self.count += 1;
        self.set = self.set.wrapping_add(hash.finish());
        if differs { Err(self.torn(place)) } else { Ok(()) }
    }

    /// Takes note that no more members of the key follow.
    pub(super) fn end(&mut self, place: &str) -> Result<()> {
        if self.count > 1 && !self.seen.insert(self.set) {
            return Err(self.torn(place));
        }
        self.suffixes.clear();
        (self.count, self.set) = (0, 0);
        Ok(())
    }

    fn torn(&self, place: &str) -> Error {
        let suffixes: Vec<_> = self.suffixes.iter().map(|suffix| format!(".{}", shown(suffix))).collect();
        let and_more = if self.count > self.suffixes.len() as u64 { ", …" } else { "" };
        let text = format!(
            "{place} holds samples of several files each, which a store would tear apart: {} has {}{and_more}",
            shown(&self.key),
            suffixes.join(", ")
        );
        let first = suffixes.first().map(String::as_str).unwrap_or_default();
        let help =
            format!("take one kind with --only '*{first}', and each other one into a store of its own");
        Error::new(ErrorKind::Unsupported, text).with_help(help)
    }
}

/// Key and suffix.
fn split(path: &[u8]) -> Option<(&[u8], &[u8])> {
    let name = path.iter().rposition(|&b| b == b'/').map_or(0, |slash| slash + 1);
    let dot = name + path.get(name..)?.iter().position(|&b| b == b'.')?;
    if dot == name {
        return None;
    }
    Some((path.get(..dot)?, path.get(dot + 1..)?))
}

fn last_part(suffix: &[u8]) -> &[u8] {
    suffix.rsplit(|&b| b == b'.').next().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn looked_at(paths: &[&str]) -> std::result::Result<(), String> {
        let mut samples = Samples::default();
        let mut look = || -> Result<()> {
            paths.iter().try_for_each(|path| samples.add(path.as_bytes(), "x.tar"))?;
            samples.end("x.tar")
        };
        look().map_err(|e| e.to_string())
    }

    #[test]
    fn samples_of_several_files_are_told_with_key_and_suffixes() {
        let text = looked_at(&["a/0.jpg", "a/1.jpg", "a/1.cls", "a/1.json"]).unwrap_err();
        assert!(text.contains("a/1 has .jpg, .cls") && text.contains("--only '*.jpg'"), "{text}");
        // Of the same last part: only the second key with the same ones shows what they are.
        let text = looked_at(&["0.left.png", "0.right.png", "1.right.png", "1.left.png"]).unwrap_err();
        assert!(text.contains("1 has .right.png, .left.png"), "{text}");
    }

    #[test]
    fn other_archives_are_no_samples() {
        for paths in [
            &["img.001.png", "img.002.png", "img.003.png"][..],
            &["a/x.jpg", "b/x.cls", "a/x.png"],
            &["0.jpg", "1.jpg", "0.cls", "1.cls"],
            &["README", "README.md", ".bashrc", ".bash.profile", "a.d/x", "a.e/x"],
            &["a.1.png", "a.2.png", "b.1.png", "b.3.png", "c.1.png", "d.1.png"],
            &[],
        ] {
            assert_eq!(looked_at(paths), Ok(()));
        }
    }
}
