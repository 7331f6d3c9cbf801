//! Steps as tar archives in WebDataset's layout: what each has where.
//!
//! A sample is up to three members whose names begin with the same key, of the step and the place in it: the data, the label,
//! the index. All that is said of them is the same in every mount, so that a step is the same bytes in every run.

use std::collections::HashMap;
use std::ops::Range;

use super::PART;

/// What members are padded to.
pub(super) const BLOCK: u64 = 512;
/// Two empty blocks end an archive.
pub(super) const END: u64 = 2 * BLOCK;
/// The extension of a label without one.
pub(super) const CLASS: &[u8] = b"cls";
/// The extension of the index.
const INDEX: &[u8] = b"idx";
/// Longest extension that a header has room for behind the longest key.
const MAX_EXTENSION: usize = 64;
/// The number of those that a table has no room for: they are shown as plain bytes.
const NO_EXTENSION: u16 = u16::MAX;
/// 1980-01-01, as old as archives may be. That of the records would not be the same in every run.
const MODIFIED: u64 = 315_532_800;

/// One sample of a step.
#[derive(Debug)]
pub(super) struct Sample {
    /// Where it begins.
    pub(super) at: u64,
    pub(super) index: u32,
    /// Bytes of its record; 0 where nobody knows, as its entry is damaged.
    pub(super) len: u32,
    /// The same of its label.
    pub(super) label_len: u32,
    /// Which of the table's extensions it has.
    pub(super) ext: u16,
    pub(super) label_ext: u16,
}

/// Extensions, each kept once.
#[derive(Debug, Default)]
pub(super) struct Extensions {
    list: Vec<Vec<u8>>,
    known: HashMap<Vec<u8>, u16>,
}

impl Extensions {
    /// The number of `ext`.
    pub(super) fn number(&mut self, ext: &[u8]) -> u16 {
        if let Some(&number) = self.known.get(ext) {
            return number;
        }
        let next = u16::try_from(self.list.len()).ok();
        let Some(number) = next.filter(|&next| next < NO_EXTENSION && ext.len() <= MAX_EXTENSION) else {
            return NO_EXTENSION;
        };
        self.list.push(ext.to_vec());
        self.known.insert(ext.to_vec(), number);
        number
    }

    pub(super) fn get(&self, number: u16) -> &[u8] {
        self.list.get(usize::from(number)).map_or(b"bin", Vec::as_slice)
    }
}

/// Some steps, one after another, as an archive or as a piece of one.
#[derive(Debug)]
pub(super) struct Table {
    /// The first of its steps, and samples in each.
    pub(super) first: u64,
    pub(super) batch: u64,
    pub(super) samples: Vec<Sample>,
    pub(super) extensions: Extensions,
    /// Where the last sample ends.
    pub(super) end: u64,
    /// An archive ends here.
    pub(super) is_whole: bool,
}

impl Table {
    pub(super) fn size(&self) -> u64 {
        self.end + if self.is_whole { END } else { 0 }
    }

    /// Memory that it takes.
    pub(super) fn bytes(&self) -> usize {
        self.samples.len() * size_of::<Sample>()
    }

    /// Which sample has the byte at `offset`; the last one what is behind it.
    pub(super) fn sample(&self, offset: u64) -> usize {
        self.samples.partition_point(|sample| sample.at <= offset).saturating_sub(1)
    }

    /// Where sample `at` begins, or what is behind the last.
    fn begin(&self, at: usize) -> u64 {
        self.samples.get(at).map_or(self.size(), |sample| sample.at)
    }

    /// The part that has the byte at `offset`.
    pub(super) fn part(&self, offset: u64) -> Range<u64> {
        let first = self.begin(self.sample(offset)) / PART * PART;
        let from = |at: u64| self.begin(self.samples.partition_point(|sample| sample.at < at));
        from(first)..from(first + PART)
    }

    /// What the names of a sample's members begin with.
    pub(super) fn key(&self, sample: usize) -> String {
        let sample = sample as u64;
        let batch = self.batch.max(1);
        format!("{:012}-{:04}", self.first.wrapping_add(sample / batch), sample % batch)
    }
}

/// Bytes of a member with its header, padded.
pub(super) fn member(len: u64) -> u64 {
    BLOCK + len.next_multiple_of(BLOCK)
}

/// The extension of a label: no two members of a sample have one name, in whatever case, as WebDataset takes them for the same.
pub(super) fn label_extension(ext: &[u8], data: &[u8]) -> Vec<u8> {
    if ext.eq_ignore_ascii_case(data) || ext.eq_ignore_ascii_case(INDEX) {
        [b"label.", ext].concat()
    } else {
        ext.to_vec()
    }
}

/// The extension of an index.
pub(super) fn index_extension(data: &[u8]) -> &'static [u8] {
    if data.eq_ignore_ascii_case(INDEX) { b"index.idx" } else { INDEX }
}

/// The header of a member, in POSIX's format.
pub(super) fn header(key: &str, ext: &[u8], len: u64) -> [u8; 512] {
    let mut header = [0; 512];
    let mut put = |at: usize, bytes: &[u8]| {
        header.iter_mut().skip(at).zip(bytes).for_each(|(to, from)| *to = *from);
    };
    let name = [key.as_bytes(), b".", ext].concat();
    put(0, &name);
    put(100, b"0000444\0");
    put(108, b"0000000\0");
    put(116, b"0000000\0");
    // A record has fewer bytes than eleven digits hold.
    put(124, format!("{len:011o}\0").as_bytes());
    put(136, format!("{MODIFIED:011o}\0").as_bytes());
    put(148, b"        ");
    put(156, b"0");
    put(257, b"ustar\x0000");
    let sum: u32 = header.iter().map(|&byte| u32::from(byte)).sum();
    let sum = format!("{sum:06o}\0 ");
    header.iter_mut().skip(148).zip(sum.as_bytes()).for_each(|(to, from)| *to = *from);
    header
}
