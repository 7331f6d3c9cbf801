//! `.zrfs/journal`: what a delete or a compaction that was cut off was about to do.
//!
//! A delete moves entries from behind the new length into the holes below it, and writes nowhere else. So which
//! indices go, one bit a record, says all of it, and doing it twice does no harm.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use super::checksum::checksum;
use super::limits::{HEADER_BYTES, MAX_RECORDS};

const MAGIC: [u8; 4] = *b"ZRJL";
const VERSION: u16 = 1;

/// Size of the journal's header in bytes.
pub const JOURNAL_HEADER_BYTES: usize = 64;
/// Largest body that a reader takes: a bit for each record of a full store, and the paths of aligned stores.
pub const MAX_JOURNAL_BODY: u32 = MAX_RECORDS / 8 + (1 << 20);

/// A step that must be finished or undone as a whole.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Journal {
    /// Drawn at random: the stores of one step know each other by it.
    pub step: u64,
    /// The header of meta.zr before the step.
    pub old: [u8; HEADER_BYTES],
    /// The header of meta.zr after it.
    pub new: [u8; HEADER_BYTES],
    /// What is done.
    pub work: Work,
}

/// What a journal is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Work {
    /// Records go.
    Delete {
        /// Bit `i % 8` of byte `i / 8` is set where record `i` goes.
        doomed: Vec<u8>,
        /// Other stores that lose the same records.
        partners: Partners,
    },
    /// Records move closer together. Each is whole at any moment, so there is nothing to finish or undo.
    Compact,
}

/// A store's part in a step over several.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Partners {
    /// There are no others.
    None,
    /// The step is decided where this store's header is marked, and done when these have done it.
    Leads(Vec<Partner>),
    /// The step is decided by this one's header.
    Follows(Partner),
}

/// Where another store is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Partner {
    /// From the folder of the store that holds the journal, so that stores which move together still meet.
    pub relative: PathBuf,
    /// From the root.
    pub absolute: PathBuf,
}

impl Journal {
    /// The journal's bytes.
    pub fn to_bytes(&self) -> Vec<u8> {
        let (kind, body) = match &self.work {
            Work::Delete { doomed, partners } => (1u16, body(doomed, partners)),
            Work::Compact => (2, Vec::new()),
        };
        let mut bytes = Vec::with_capacity(JOURNAL_HEADER_BYTES + body.len());
        bytes.extend_from_slice(&MAGIC);
        bytes.extend_from_slice(&VERSION.to_le_bytes());
        bytes.extend_from_slice(&kind.to_le_bytes());
        bytes.extend_from_slice(&self.step.to_le_bytes());
        bytes.extend_from_slice(&self.old);
        bytes.extend_from_slice(&self.new);
        bytes.extend_from_slice(&u32::try_from(body.len()).unwrap_or(u32::MAX).to_le_bytes());
        bytes.extend_from_slice(&checksum(&body).to_le_bytes());
        bytes.extend_from_slice(&[0; 4]);
        let sum = checksum(&bytes);
        bytes.extend_from_slice(&sum.to_le_bytes());
        bytes.extend_from_slice(&body);
        bytes
    }

    /// How long the body is that belongs to a header; `None` where the header is no journal's.
    pub fn body_bytes(header: &[u8; JOURNAL_HEADER_BYTES]) -> Option<u32> {
        let (head, sum) = header.split_at(JOURNAL_HEADER_BYTES - 4);
        let known = head.starts_with(&MAGIC)
            && head.get(4..6) == Some(&VERSION.to_le_bytes())
            && sum == checksum(head).to_le_bytes();
        let len = u32::from_le_bytes(*head.get(48..)?.first_chunk()?);
        (known && len <= MAX_JOURNAL_BODY).then_some(len)
    }

    /// Decodes a journal; `None` where it is damaged, unfinished, or none.
    pub fn parse(header: &[u8; JOURNAL_HEADER_BYTES], body: &[u8]) -> Option<Journal> {
        let len = Journal::body_bytes(header)?;
        let at = |offset: usize| header.get(offset..);
        let sum = u32::from_le_bytes(*at(52)?.first_chunk()?);
        if body.len() != len as usize || checksum(body) != sum {
            return None;
        }
        let work = match u16::from_le_bytes(*at(6)?.first_chunk()?) {
            1 => {
                let mut rest = body;
                let doomed = take(&mut rest)?.to_vec();
                let [role, ..] = *take(&mut rest)? else { return None };
                let mut partners = Vec::new();
                while !rest.is_empty() {
                    let mut path = || Some(PathBuf::from(OsStr::from_bytes(take(&mut rest)?)));
                    partners.push(Partner { relative: path()?, absolute: path()? });
                }
                let partners = match (role, partners.len()) {
                    (0, 0) => Partners::None,
                    (1, _) => Partners::Leads(partners),
                    (2, 1) => Partners::Follows(partners.pop()?),
                    _ => return None,
                };
                Work::Delete { doomed, partners }
            }
            2 => Work::Compact,
            _ => return None,
        };
        Some(Journal {
            step: u64::from_le_bytes(*at(8)?.first_chunk()?),
            old: *at(16)?.first_chunk()?,
            new: *at(32)?.first_chunk()?,
            work,
        })
    }
}

/// The body of a delete: length and bits, length and role, then the paths with theirs.
fn body(doomed: &[u8], partners: &Partners) -> Vec<u8> {
    let mut body = Vec::with_capacity(doomed.len() + 64);
    put(&mut body, doomed);
    let (role, partners) = match partners {
        Partners::None => (0, &[][..]),
        Partners::Leads(partners) => (1, partners.as_slice()),
        Partners::Follows(leader) => (2, std::slice::from_ref(leader)),
    };
    put(&mut body, &[role]);
    for Partner { relative, absolute } in partners {
        let bytes = |path: &Path| path.as_os_str().as_bytes().to_vec();
        put(&mut body, &bytes(relative));
        put(&mut body, &bytes(absolute));
    }
    body
}

fn put(out: &mut Vec<u8>, bytes: &[u8]) {
    out.extend_from_slice(&u32::try_from(bytes.len()).unwrap_or(u32::MAX).to_le_bytes());
    out.extend_from_slice(bytes);
}

fn take<'a>(rest: &mut &'a [u8]) -> Option<&'a [u8]> {
    let (len, behind) = rest.split_first_chunk()?;
    let (bytes, behind) = behind.split_at_checked(u32::from_le_bytes(*len) as usize)?;
    *rest = behind;
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(bytes: &[u8]) -> Option<Journal> {
        let (header, body) = bytes.split_first_chunk()?;
        Journal::parse(header, body)
    }

    #[test]
    fn journals_go_both_ways_and_a_flipped_bit_spoils_them() {
        let partner = |name: &str| Partner {
            relative: Path::new("..").join(name),
            absolute: Path::new("/data").join(name),
        };
        let delete = |partners| Work::Delete { doomed: vec![0b101, 0, 7], partners };
        for work in [
            Work::Compact,
            delete(Partners::None),
            delete(Partners::Leads(vec![partner("a.zr"), partner("b.zr")])),
            delete(Partners::Follows(partner("c\u{fc}\n.zr"))),
        ] {
            let journal = Journal { step: 99, old: [1; 16], new: [2; 16], work };
            let bytes = journal.to_bytes();
            assert_eq!(parse(&bytes), Some(journal));
            for bit in 0..bytes.len() * 8 {
                let mut bad = bytes.clone();
                bad[bit / 8] ^= 1 << (bit % 8);
                assert_eq!(parse(&bad), None, "bit {bit}");
            }
            for len in 0..bytes.len() {
                assert_eq!(parse(&bytes[..len]), None, "cut to {len}");
            }
        }
    }
}
