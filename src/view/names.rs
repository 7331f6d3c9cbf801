//! Names in the mount: fixed ones in the root, eight digits and an extension in `records/`.

use super::inode::Node;

/// Digits of a record's name. Enough for every index.
const DIGITS: usize = 8;

/// The fixed files and directories of the root, with their names, in the order of a listing.
pub(super) const ROOT: [(&str, Node); 3] =
    [("README", Node::Readme), ("records", Node::Records), ("stats", Node::Stats)];

/// The node of a name in the root.
pub(super) fn in_root(name: &[u8]) -> Option<Node> {
    ROOT.iter().find(|(known, _)| known.as_bytes() == name).map(|&(_, node)| node)
}

/// The index that a name in `records/` stands for: exactly eight digits, a dot and `ext`.
pub(super) fn record(name: &[u8], ext: &str) -> Option<u32> {
    let (digits, rest) = name.split_at_checked(DIGITS)?;
    if rest.strip_prefix(b".")? != ext.as_bytes() {
        return None;
    }
    digits
        .iter()
        .try_fold(0u32, |index, &digit| digit.is_ascii_digit().then(|| index * 10 + u32::from(digit - b'0')))
}

/// Names of `records/`, written into one buffer that is used again for each.
pub(super) struct RecordName(Vec<u8>);

impl RecordName {
    pub(super) fn new(ext: &str) -> RecordName {
        let mut name = vec![b'0'; DIGITS];
        name.push(b'.');
        name.extend_from_slice(ext.as_bytes());
        RecordName(name)
    }

    /// The name of record `index`.
    pub(super) fn of(&mut self, mut index: u32) -> &[u8] {
        for digit in self.0.iter_mut().take(DIGITS).rev() {
            *digit = b'0' + u8::try_from(index % 10).unwrap_or(0);
            index /= 10;
        }
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_go_both_ways() {
        let mut name = RecordName::new("npy");
        for index in [0, 7, 42, 12_345_678, 16_777_215] {
            assert_eq!(name.of(index), format!("{index:08}.npy").as_bytes());
            assert_eq!(record(name.of(index), "npy"), Some(index));
        }
    }

    #[test]
    fn other_spellings_are_no_names() {
        for name in
            ["", "0", "00000000", "00000000.", "00000000.bi", "00000000.bin2", "0000000.bin", "000000000.bin"]
        {
            assert_eq!(record(name.as_bytes(), "bin"), None, "{name}");
        }
        for name in
            [&b"0000000a.bin"[..], b"+0000000.bin", b"0000000\xff.bin", b"00000000xbin", b"-0000001.bin"]
        {
            assert_eq!(record(name, "bin"), None);
        }
    }
}
