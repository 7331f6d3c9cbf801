//! `.zrfs/checksums`: one row a record, each with the location that it describes.

use super::limits::HEADER_BYTES;
use super::location::{HALF, RecordLoc, bytes_to_words, words_to_bytes};

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

/// The checksum of bytes whose beginning has the checksum `sum`, and which go on with `bytes`.
pub fn checksum_on(sum: u32, bytes: &[u8]) -> u32 {
    crc32c::crc32c_append(sum, bytes)
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

/// The header of the checksum file: four units of 16 bytes, each replaced by one aligned write.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SumsHeader {
    /// Two headers of meta.zr: the one that zrfs has left there, and the one before it or the one that it was about to write.
    pub left: [Option<[u8; HEADER_BYTES]>; 2],
    /// When meta.zr was changed last by zrfs, in nanoseconds since 1970.
    pub stamp: Option<u64>,
}

impl SumsHeader {
    /// Decodes a header; `None` where it is of another format. Units that are damaged say nothing.
    pub fn parse(bytes: &[u8; SUMS_HEADER_BYTES]) -> Option<SumsHeader> {
        if !bytes.starts_with(&SumsHeader::FIRST_UNIT) {
            return None;
        }
        let unit = |at: usize| bytes.get(at..)?.first_chunk().and_then(slot_to_header);
        let stamp = bytes.get(STAMP_AT..)?.first_chunk().and_then(unit_to_stamp);
        Some(SumsHeader { left: [unit(HEADER_BYTES), unit(2 * HEADER_BYTES)], stamp })
    }

    /// The first unit: magic, version, zeros.
    pub const FIRST_UNIT: [u8; HEADER_BYTES] = *b"ZRCS\x01\0\0\0\0\0\0\0\0\0\0\0";

    /// The unit that holds a header of meta.zr; its place is [`left_at`].
    pub fn left_unit(header: [u8; HEADER_BYTES]) -> [u8; HEADER_BYTES] {
        let mut unit = header;
        // The magic is the same in all of them: its place takes the checksum of the rest.
        if let Some((sum, rest)) = unit.split_first_chunk_mut::<4>() {
            *sum = checksum(rest).to_le_bytes();
        }
        unit
    }
}

/// Where the stamp's unit lies: behind the two headers.
const STAMP_AT: usize = 3 * HEADER_BYTES;

/// The unit that holds a stamp.
pub fn stamp_unit(stamp: u64) -> [u8; HEADER_BYTES] {
    let mut unit = [0; HEADER_BYTES];
    if let Some((sum, rest)) = unit.split_first_chunk_mut::<4>() {
        if let Some(place) = rest.first_chunk_mut() {
            *place = stamp.to_le_bytes();
        }
        *sum = checksum(rest).to_le_bytes();
    }
    unit
}

fn unit_to_stamp(unit: &[u8; HEADER_BYTES]) -> Option<u64> {
    let stamp = u64::from_le_bytes(*unit.get(4..)?.first_chunk()?);
    (stamp_unit(stamp) == *unit).then_some(stamp)
}

/// Byte offset in the checksum file of the first or second header of meta.zr.
pub const fn left_at(which: usize) -> u64 {
    (HEADER_BYTES * (1 + which)) as u64
}

fn slot_to_header(unit: &[u8; HEADER_BYTES]) -> Option<[u8; HEADER_BYTES]> {
    let (sum, rest) = unit.split_first_chunk::<4>()?;
    let mut header = *unit;
    *header.first_chunk_mut()? = *b"ZREC";
    (*sum == checksum(rest).to_le_bytes()).then_some(header)
}

/// A row of the checksum file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Row {
    /// The entry of the record table that it describes.
    pub loc: [u64; 2],
    /// CRC32C of the record's stored bytes.
    pub sum: u32,
    /// Another program may have put other bytes in the place since: where the sum differs, that need not be damage.
    pub doubtful: bool,
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
            let doubtful = *body.get(2 * HALF + 4)? != 0;
            (short(body) == *check.first_chunk()?).then_some(Row { loc, sum, doubtful })
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
            let tail = u64::from(self.sum) | u64::from(self.doubtful) << 32;
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
        assert_eq!(checksum_on(checksum(b"1234"), b"56789"), 0xe306_9283);
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
        let row = Row { loc: [0x0102_0304_0506_0708, 0x0a], sum: 0xdead_beef, doubtful: true };
        let bytes = row.to_bytes();
        assert_eq!(&bytes[..22], b"\x08\x07\x06\x05\x04\x03\x02\x01\x0a\0\0\0\0\0\0\0\xef\xbe\xad\xde\x01\0");
        assert_eq!(Row::parse(&bytes), Slot::Row(row));
        for bit in 0..ROW_BYTES * 8 {
            let mut bad = bytes;
            bad[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(Row::parse(&bad), Slot::Damaged, "bit {bit}");
        }
        assert_eq!(Row::parse(&[0; ROW_BYTES]), Slot::Empty);

        let headers = [*b"ZREC\x01\0\0\0\x09\0\0\0\x01\0\0\0", *b"ZREC\x01\0\0\0\x0c\0\0\0\x02\0\0\0"];
        let header = SumsHeader { left: headers.map(Some), stamp: Some(1 << 60) };
        let mut bytes = [0; SUMS_HEADER_BYTES];
        bytes[..16].copy_from_slice(&SumsHeader::FIRST_UNIT);
        bytes[16..32].copy_from_slice(&SumsHeader::left_unit(headers[0]));
        bytes[32..48].copy_from_slice(&SumsHeader::left_unit(headers[1]));
        bytes[48..].copy_from_slice(&stamp_unit(1 << 60));
        assert_eq!(SumsHeader::parse(&bytes), Some(header));
        for bit in 0..64 * 8 {
            let mut bad = bytes;
            bad[bit / 8] ^= 1 << (bit % 8);
            let expected = match bit / 8 {
                0..16 => None,
                16..32 => Some(SumsHeader { left: [None, header.left[1]], ..header }),
                32..48 => Some(SumsHeader { left: [header.left[0], None], ..header }),
                _ => Some(SumsHeader { stamp: None, ..header }),
            };
            assert_eq!(SumsHeader::parse(&bad), expected, "bit {bit}");
        }
        assert_eq!(SumsHeader::parse(&[0; SUMS_HEADER_BYTES]), None);
    }
}
