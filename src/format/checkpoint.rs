//! `.zrfs/checkpoint`: how far an append had come that may be continued.

use super::checksum::checksum;
use super::header::Header;
use super::limits::HEADER_BYTES;

const MAGIC: [u8; 4] = *b"ZRCP";
const VERSION: u16 = 1;

/// Size of a slot in bytes. The file has two, which are written in turn: so one is whole whatever becomes of the other.
pub const CHECKPOINT_SLOT: usize = 16 << 10;
/// Size of the fields in front of the note.
const FIELDS: usize = 64;
/// Longest note in bytes.
pub const MAX_NOTE: usize = CHECKPOINT_SLOT - FIELDS;
/// Size in bytes of what `.zrfs/marks` holds for each record.
pub const MARK_BYTES: usize = 8;

/// How far an append had come. Everything that it names was on disk before it was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Checkpoint {
    /// Rises with each checkpoint of an append.
    pub sequence: u64,
    /// The header of meta.zr, which knows nothing of the append.
    pub before: Header,
    /// The header as it would be if the append ended here.
    pub after: Header,
    /// CRC32C of the marks of the records between the two.
    pub marks_sum: u32,
    /// What the caller noted.
    pub note: Vec<u8>,
}

impl Checkpoint {
    /// Byte offset in the file of the slot that it goes to.
    pub fn at(&self) -> u64 {
        (self.sequence % 2) * CHECKPOINT_SLOT as u64
    }

    /// Records of the append so far.
    pub fn records(&self) -> u32 {
        self.after.length.saturating_sub(self.before.length)
    }

    /// The slot's bytes. A note over [`MAX_NOTE`] is cut, which spoils it: the caller has looked.
    pub fn to_bytes(&self) -> Vec<u8> {
        let note = self.note.get(..MAX_NOTE).unwrap_or(&self.note);
        let mut bytes = Vec::with_capacity(FIELDS + note.len());
        bytes.extend_from_slice(&MAGIC);
        bytes.extend_from_slice(&VERSION.to_le_bytes());
        bytes.extend_from_slice(&[0; 2]);
        bytes.extend_from_slice(&self.sequence.to_le_bytes());
        bytes.extend_from_slice(&self.before.to_bytes());
        bytes.extend_from_slice(&self.after.to_bytes());
        bytes.extend_from_slice(&self.marks_sum.to_le_bytes());
        bytes.extend_from_slice(&u32::try_from(note.len()).unwrap_or(u32::MAX).to_le_bytes());
        bytes.extend_from_slice(&checksum(note).to_le_bytes());
        let sum = checksum(&bytes);
        bytes.extend_from_slice(&sum.to_le_bytes());
        bytes.extend_from_slice(note);
        bytes
    }

    /// Decodes a slot; `None` where it is damaged, unfinished or of another release.
    pub fn parse(slot: &[u8]) -> Option<Checkpoint> {
        let (fields, behind) = slot.split_first_chunk::<FIELDS>()?;
        let (head, sum) = fields.split_at(FIELDS - 4);
        let known = head.starts_with(&MAGIC)
            && head.get(4..6) == Some(&VERSION.to_le_bytes())
            && sum == checksum(head).to_le_bytes();
        if !known {
            return None;
        }
        let word = |at: usize| Some(u32::from_le_bytes(*head.get(at..)?.first_chunk()?));
        let header = |at: usize| Header::parse(head.get(at..)?.first_chunk::<HEADER_BYTES>()?).ok();
        let note = behind.get(..word(52)? as usize)?;
        if checksum(note) != word(56)? {
            return None;
        }
        Some(Checkpoint {
            sequence: u64::from_le_bytes(*head.get(8..)?.first_chunk()?),
            before: header(16)?,
            after: header(32)?,
            marks_sum: word(48)?,
            note: note.to_vec(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::Version;

    #[test]
    fn checkpoints_go_both_ways_and_a_flipped_bit_or_a_cut_spoils_them() {
        let header = |length| Header { version: Version::V2, tail_chunk: 1, tail_offset: 7 * length, length };
        let checkpoint = Checkpoint {
            sequence: 3,
            before: header(5),
            after: header(9),
            marks_sum: 0x0102_0304,
            note: b"level 9".to_vec(),
        };
        assert_eq!((checkpoint.records(), checkpoint.at()), (4, 16384));
        let bytes = checkpoint.to_bytes();
        assert_eq!(bytes.len(), 64 + 7);
        let mut slot = bytes.clone();
        slot.resize(CHECKPOINT_SLOT, 0xee);
        assert_eq!(Checkpoint::parse(&slot), Some(checkpoint));
        for bit in 0..bytes.len() * 8 {
            let mut bad = slot.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(Checkpoint::parse(&bad), None, "bit {bit}");
        }
        for len in 0..bytes.len() {
            assert_eq!(Checkpoint::parse(&bytes[..len]), None, "cut to {len}");
        }
        assert_eq!(Checkpoint::parse(&[0; CHECKPOINT_SLOT]), None);
    }
}
