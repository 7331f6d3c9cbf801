//! `.zrfs/checksums`: one row a record, each with the location that it describes.

use super::limits::HEADER_BYTES;
use super::location::{HALF, RecordLoc, bytes_to_words, words_to_bytes};

const MAGIC: [u8; 4] = *b"ZRCS";
const VERSION: u16 = 1;

/// Size of the header of the checksum file in bytes.
pub const SUMS_HEADER_BYTES: usize = 64;
/// Size of one of its rows in bytes.
pub const ROW_BYTES: usize = 24;

/// Byte offset in the checksum file of the row of record `index`.
pub const fn row_at(index: u32) -> u64 {
    SUMS_HEADER_BYTES as u64 + index as u64 * ROW_BYTES as u64
}

/// The CRC32C (Castagnoli, as in iSCSI) of `bytes`.
#[inline]
pub fn checksum(bytes: &[u8]) -> u32 {
    crc32c::crc32c(bytes)
}

/// Whether bytes of which one bit is flipped explain that the checksum of `len` bytes is `found` instead of `expected`.
///
/// A CRC is linear: the difference of two depends on which bits differ alone. Cost: 8 steps of a nanosecond a byte.
pub fn is_one_flipped_bit(expected: u32, found: u32, len: u64) -> bool {
    const POLYNOMIAL: u32 = 0x82f6_3b78;
    let difference = expected ^ found;
    // That of the last bit of the last byte, then of the one before it, and so on.
    let mut flipped = POLYNOMIAL;
    for _ in 0..len.saturating_mul(8) {
        if flipped == difference {
            return true;
        }
        flipped = flipped >> 1 ^ if flipped & 1 == 1 { POLYNOMIAL } else { 0 };
    }
    false
}

/// The header of the checksum file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SumsHeader {
    /// Rows with a lower one are older than a change of the store by another program.
    pub epoch: u16,
    /// The header of meta.zr before zrfs last wrote it.
    pub before: [u8; HEADER_BYTES],
    /// The header of meta.zr as zrfs last wrote it, or was about to.
    pub after: [u8; HEADER_BYTES],
}

impl SumsHeader {
    /// Decodes a header; `None` where it is damaged or of another format.
    pub fn parse(bytes: &[u8; SUMS_HEADER_BYTES]) -> Option<SumsHeader> {
        let (body, sum) = bytes.split_at(SUMS_HEADER_BYTES - 4);
        let known = body.starts_with(&MAGIC)
            && body.get(4..6) == Some(&VERSION.to_le_bytes())
            && sum == checksum(body).to_le_bytes();
        let epoch = u16::from_le_bytes(*body.get(6..)?.first_chunk()?);
        let (before, after) = (*body.get(16..)?.first_chunk()?, *body.get(32..)?.first_chunk()?);
        known.then_some(SumsHeader { epoch, before, after })
    }

    /// The header's bytes.
    pub fn to_bytes(&self) -> [u8; SUMS_HEADER_BYTES] {
        let mut bytes = Vec::with_capacity(SUMS_HEADER_BYTES);
        bytes.extend_from_slice(&MAGIC);
        bytes.extend_from_slice(&VERSION.to_le_bytes());
        bytes.extend_from_slice(&self.epoch.to_le_bytes());
        bytes.extend_from_slice(&[0; 8]);
        bytes.extend_from_slice(&self.before);
        bytes.extend_from_slice(&self.after);
        bytes.resize(SUMS_HEADER_BYTES - 4, 0);
        let sum = checksum(&bytes);
        bytes.extend_from_slice(&sum.to_le_bytes());
        bytes.first_chunk().copied().unwrap_or([0; SUMS_HEADER_BYTES])
    }
}

/// A row of the checksum file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Row {
    /// The entry of the record table that it describes.
    pub loc: [u64; 2],
    /// CRC32C of the record's stored bytes.
    pub sum: u32,
    /// The file's epoch when it was written.
    pub epoch: u16,
}

/// What a row's bytes hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Slot {
    /// Nothing was written here.
    Empty,
    /// A sound row.
    Row(Row),
    /// Bytes that contradict their own checksum.
    Damaged,
}

impl Row {
    /// Decodes the bytes of a row.
    pub fn parse(bytes: &[u8; ROW_BYTES]) -> Slot {
        let row = || -> Option<Row> {
            let (body, check) = bytes.split_at(ROW_BYTES - 2);
            let loc = bytes_to_words(body.first_chunk()?);
            let sum = u32::from_le_bytes(*body.get(2 * HALF..)?.first_chunk()?);
            let epoch = u16::from_le_bytes(*body.get(2 * HALF + 4..)?.first_chunk()?);
            (short(body) == *check.first_chunk()?).then_some(Row { loc, sum, epoch })
        };
        if bytes == &[0; ROW_BYTES] { Slot::Empty } else { row().map_or(Slot::Damaged, Slot::Row) }
    }

    /// Whether it may describe the record at `loc` at another place: lengths and codec are the same.
    pub fn has_shape_of(&self, loc: &RecordLoc) -> bool {
        let shape = |[low, high]: [u64; 2]| (low >> 32, high & !(0xffff << 32));
        shape(self.loc) == shape(loc.to_words())
    }

    /// The row's bytes.
    #[inline]
    pub fn to_bytes(&self) -> [u8; ROW_BYTES] {
        let mut bytes = [0; ROW_BYTES];
        let (body, check) = bytes.split_at_mut(ROW_BYTES - 2);
        if let Some((loc, rest)) = body.split_first_chunk_mut::<HEADER_BYTES>() {
            *loc = words_to_bytes(self.loc);
            let tail = u64::from(self.sum) | u64::from(self.epoch) << 32;
            rest.copy_from_slice(tail.to_le_bytes().first_chunk::<6>().unwrap_or(&[0; 6]));
        }
        check.copy_from_slice(&short(body));
        bytes
    }
}

/// The low half of a checksum.
#[inline]
fn short(bytes: &[u8]) -> [u8; 2] {
    let [a, b, _, _] = checksum(bytes).to_le_bytes();
    [a, b]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_checksum_is_the_one_of_rfc_3720() {
        assert_eq!(checksum(b"123456789"), 0xe306_9283);
        assert_eq!(checksum(&[0; 32]), 0x8a91_36aa);
    }

    #[test]
    fn a_flipped_bit_is_told_from_other_changes() {
        let good: Vec<u8> = (0..100u8).collect();
        let sum = checksum(&good);
        for bit in 0..800 {
            let mut bad = good.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            assert!(is_one_flipped_bit(sum, checksum(&bad), 100), "bit {bit}");
            bad[50] ^= 0x55;
            assert!(!is_one_flipped_bit(sum, checksum(&bad), 100), "bit {bit} and others");
        }
    }

    #[test]
    fn rows_and_headers_go_both_ways_and_a_flipped_bit_spoils_them() {
        let row = Row { loc: [0x0102_0304_0506_0708, 0x0a], sum: 0xdead_beef, epoch: 0x1234 };
        let bytes = row.to_bytes();
        assert_eq!(
            &bytes[..22],
            b"\x08\x07\x06\x05\x04\x03\x02\x01\x0a\0\0\0\0\0\0\0\xef\xbe\xad\xde\x34\x12"
        );
        assert_eq!(Row::parse(&bytes), Slot::Row(row));
        for bit in 0..ROW_BYTES * 8 {
            let mut bad = bytes;
            bad[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(Row::parse(&bad), Slot::Damaged, "bit {bit}");
        }
        assert_eq!(Row::parse(&[0; ROW_BYTES]), Slot::Empty);

        let header = SumsHeader { epoch: 7, before: [1; 16], after: [2; 16] };
        let bytes = header.to_bytes();
        assert_eq!(SumsHeader::parse(&bytes), Some(header));
        for bit in 0..SUMS_HEADER_BYTES * 8 {
            let mut bad = bytes;
            bad[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(SumsHeader::parse(&bad), None, "bit {bit}");
        }
    }
}
