//! Names in the mount: fixed ones in the root, eight digits and an extension in `records/`.

use super::inode::Node;

/// Digits of a record's name. Enough for every index.
const DIGITS: usize = 8;
/// The longest extension that is taken over from a record's name, in bytes.
const MAX_EXTENSION: usize = 16;

/// The fixed files and directories of the root, with their names, in the order of a listing. The last one is only there
/// where the store has names. Behind them comes `array.npy`, where the records are dense.
pub(super) const ROOT: [(&str, Node); 7] = [
    ("README", Node::Readme),
    ("batches", Node::Batches),
    ("compact", Node::Compact),
    ("delete", Node::Delete),
    ("records", Node::Records),
    ("stats", Node::Stats),
    ("tree", Node::Tree),
];

/// The node of a name in the root.
pub(super) fn in_root(name: &[u8]) -> Option<Node> {
    ROOT.iter().find(|(known, _)| known.as_bytes() == name).map(|&(_, node)| node)
}

/// The index that a name in `records/` stands for, and the extension behind it: exactly eight digits, a dot, the rest.
pub(super) fn record(name: &[u8]) -> Option<(u32, &[u8])> {
    let (digits, rest) = name.split_at_checked(DIGITS)?;
    let ext = rest.strip_prefix(b".")?;
    let index = digits
        .iter()
        .try_fold(0u32, |index, &digit| digit.is_ascii_digit().then(|| index * 10 + u32::from(digit - b'0')));
    Some((index?, ext))
}

/// The extension of a file name, if it looks like one: 1 to 16 ASCII letters or digits behind the last dot, which is not
/// the first byte.
pub(super) fn extension(name: &[u8]) -> Option<&[u8]> {
    let dot = name.iter().rposition(|&b| b == b'.').filter(|&dot| dot > 0)?;
    let ext = name.get(dot + 1..)?;
    let sound = (1..=MAX_EXTENSION).contains(&ext.len()) && ext.iter().all(u8::is_ascii_alphanumeric);
    sound.then_some(ext)
}

/// Names of `records/`, written into one buffer that is used again for each.
pub(super) struct RecordName(Vec<u8>);

impl RecordName {
    pub(super) fn new() -> RecordName {
        let mut name = vec![b'0'; DIGITS];
        name.push(b'.');
        RecordName(name)
    }

    /// The name of record `index`, whose extension is `ext`.
    pub(super) fn of(&mut self, mut index: u32, ext: &[u8]) -> &[u8] {
        for digit in self.0.iter_mut().take(DIGITS).rev() {
            *digit = b'0' + u8::try_from(index % 10).unwrap_or(0);
            index /= 10;
        }
        self.0.truncate(DIGITS + 1);
        self.0.extend_from_slice(ext);
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_go_both_ways() {
        let mut name = RecordName::new();
        for (index, ext) in [(0, "npy"), (7, "c"), (42, "jpeg"), (12_345_678, "npy"), (16_777_215, "x")] {
            assert_eq!(name.of(index, ext.as_bytes()), format!("{index:08}.{ext}").as_bytes());
            assert_eq!(record(name.of(index, ext.as_bytes())), Some((index, ext.as_bytes())));
        }
    }

    #[test]
    fn other_spellings_are_no_names() {
        for name in ["", "0", "00000000", "0000000.bin", "000000000.bin", "00000000xbin", " 0000000.bin"] {
            assert_eq!(record(name.as_bytes()), None, "{name}");
        }
        for name in [&b"0000000a.bin"[..], b"+0000000.bin", b"0000000\xff.bin", b"-0000001.bin"] {
            assert_eq!(record(name), None);
        }
    }

    #[test]
    fn an_extension_is_a_short_word_behind_the_last_dot() {
        for (name, ext) in [
            ("a.png", "png"),
            ("a.tar.gz", "gz"),
            (".a.JPG", "JPG"),
            ("..7z", "7z"),
            ("a.0123456789abcdef", "0123456789abcdef"),
        ] {
            assert_eq!(extension(name.as_bytes()), Some(ext.as_bytes()), "{name}");
        }
        for name in [
            &b""[..],
            b"a",
            b".png",
            b"a.",
            b"a.png.",
            b"a.p g",
            b"a.p\ng",
            b"a.p-g",
            b"a.p\xff",
            b"a.0123456789abcdefg",
        ] {
            assert_eq!(extension(name), None, "{name:?}");
        }
    }
}
