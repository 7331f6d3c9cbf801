//! The 16 bytes at the head of meta.zr.

use super::limits::{HEADER_BYTES, MAX_CHUNK_BYTES, MAX_CHUNKS, MAX_RECORDS, V1_MAX_RECORD, V2_MAX_RECORD};
use super::{Fault, entry_at};

const MAGIC: [u8; 4] = *b"ZREC";
/// Set in the version field while delete, compact or repair runs; loaderx refuses such a store.
const IN_PROGRESS: u16 = 0x8000;

/// The format version of a store: which record lengths it holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Version {
    /// Records of 1 B to 1 MiB; loaderx 0.5.0 reads and writes it.
    V1,
    /// Records of 0 B to 1 GiB; loaderx 0.5.0 refuses it.
    V2,
}

impl Version {
    /// The number in the header.
    pub fn number(self) -> u16 {
        match self {
            Version::V1 => 1,
            Version::V2 => 2,
        }
    }

    /// Shortest and longest record, in bytes.
    pub fn record_bytes(self) -> std::ops::RangeInclusive<u32> {
        match self {
            Version::V1 => 1..=V1_MAX_RECORD,
            Version::V2 => 0..=V2_MAX_RECORD,
        }
    }
}

/// The header, decoded and checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Format version.
    pub version: Version,
    /// Chunk that holds the write frontier.
    pub tail_chunk: u16,
    /// Write frontier: byte offset in that chunk.
    pub tail_offset: u32,
    /// Live records; the index space is exactly `0..length`.
    pub length: u32,
}

impl Header {
    /// The header of an empty store.
    pub fn empty(version: Version) -> Header {
        Header { version, tail_chunk: 0, tail_offset: 0, length: 0 }
    }

    /// Bytes of the chunks up to the frontier.
    pub fn chunk_bytes(&self) -> u64 {
        u64::from(self.tail_chunk) * MAX_CHUNK_BYTES + u64::from(self.tail_offset)
    }

    /// As [`Header::parse`], also for a store in which delete, compact or repair has not finished: then the second is
    /// `true`, and the first what the header said, or says apart from that.
    ///
    /// # Errors
    /// As for [`Header::parse`].
    pub fn parse_any(bytes: &[u8; HEADER_BYTES]) -> Result<(Header, bool), Fault> {
        let [m0, m1, m2, m3, v0, v1, rest @ ..] = *bytes;
        let [c0, c1, o0, o1, o2, o3, l0, l1, l2, l3] = rest;
        let [u0, u1] = (u16::from_le_bytes([v0, v1]) & !IN_PROGRESS).to_le_bytes();
        let plain = [m0, m1, m2, m3, u0, u1, c0, c1, o0, o1, o2, o3, l0, l1, l2, l3];
        Ok((Header::parse(&plain)?, plain != *bytes))
    }

    /// Decodes and checks a header. Whether its file has room for `length` entries is [`Header::check_room`]'s to say.
    ///
    /// # Errors
    /// The first field that contradicts the format. `version` is the field for versions of other releases
    /// and for a store in which delete, compact or repair has not finished.
    pub fn parse(bytes: &[u8; HEADER_BYTES]) -> Result<Header, Fault> {
        let [m0, m1, m2, m3, v0, v1, c0, c1, o0, o1, o2, o3, l0, l1, l2, l3] = *bytes;
        if [m0, m1, m2, m3] != MAGIC {
            return Err(Fault::new("magic", "is not ZREC"));
        }
        let version = match u16::from_le_bytes([v0, v1]) {
            1 => Version::V1,
            2 => Version::V2,
            n if n & IN_PROGRESS != 0 => {
                return Err(Fault::new("version", "a delete, compact or repair has not finished"));
            }
            n => return Err(Fault::new("version", format!("is {n}; this release reads 1 and 2"))),
        };
        let header = Header {
            version,
            tail_chunk: u16::from_le_bytes([c0, c1]),
            tail_offset: u32::from_le_bytes([o0, o1, o2, o3]),
            length: u32::from_le_bytes([l0, l1, l2, l3]),
        };
        // Bounds every index and so every offset in the table.
        if header.length > MAX_RECORDS {
            return Err(Fault::new(
                "length",
                format!("is {}; a store holds at most {MAX_RECORDS} records", header.length),
            ));
        }
        if header.tail_chunk >= MAX_CHUNKS {
            return Err(Fault::new(
                "tail_chunk",
                format!("is {}; a store has at most {MAX_CHUNKS} chunks", header.tail_chunk),
            ));
        }
        Ok(header)
    }

    /// Checks that a meta.zr of `meta_bytes` bytes has room for every entry. Where it has not, the records whose entries
    /// are gone are lost.
    ///
    /// # Errors
    /// The field `length`.
    pub fn check_room(&self, meta_bytes: u64) -> Result<(), Fault> {
        if entry_at(self.length) <= meta_bytes {
            return Ok(());
        }
        let text = format!("is {}, but a file of {meta_bytes} bytes has no room for them", self.length);
        Err(Fault::new("length", text))
    }

    /// The header's bytes while delete, compact or repair runs: loaderx refuses such a store.
    pub fn to_marked_bytes(&self) -> [u8; HEADER_BYTES] {
        let [m0, m1, m2, m3, v0, v1, rest @ ..] = self.to_bytes();
        let [v0, v1] = (u16::from_le_bytes([v0, v1]) | IN_PROGRESS).to_le_bytes();
        let [c0, c1, o0, o1, o2, o3, l0, l1, l2, l3] = rest;
        [m0, m1, m2, m3, v0, v1, c0, c1, o0, o1, o2, o3, l0, l1, l2, l3]
    }

    /// The header's bytes.
    pub fn to_bytes(&self) -> [u8; HEADER_BYTES] {
        let [m0, m1, m2, m3] = MAGIC;
        let [v0, v1] = self.version.number().to_le_bytes();
        let [c0, c1] = self.tail_chunk.to_le_bytes();
        let [o0, o1, o2, o3] = self.tail_offset.to_le_bytes();
        let [l0, l1, l2, l3] = self.length.to_le_bytes();
        [m0, m1, m2, m3, v0, v1, c0, c1, o0, o1, o2, o3, l0, l1, l2, l3]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_those_of_loaderx() {
        let header = Header { version: Version::V1, tail_chunk: 0x0102, tail_offset: 0x0304_0506, length: 7 };
        let bytes = header.to_bytes();
        assert_eq!(&bytes, b"ZREC\x01\x00\x02\x01\x06\x05\x04\x03\x07\x00\x00\x00");
        assert_eq!(Header::parse(&bytes), Ok(header));
    }

    #[test]
    fn a_marked_header_is_known_by_those_who_ask() {
        let header = Header { version: Version::V2, tail_chunk: 1, tail_offset: 2, length: 3 };
        let marked = header.to_marked_bytes();
        assert_eq!(marked[4..6], [2, 0x80]);
        assert!(Header::parse(&marked).is_err());
        assert_eq!(Header::parse_any(&marked), Ok((header, true)));
        assert_eq!(Header::parse_any(&header.to_bytes()), Ok((header, false)));
    }

    #[test]
    fn each_bad_field_is_named() {
        let good = Header { version: Version::V2, tail_chunk: 0, tail_offset: 9, length: 3 }.to_bytes();
        let field = |at: usize, value: u8| {
            let mut bytes = good;
            bytes[at] = value;
            Header::parse(&bytes).unwrap_err().field
        };
        assert_eq!(field(0, b'z'), "magic");
        assert_eq!(field(4, 3), "version");
        assert_eq!(field(5, 0x80), "version");
        assert_eq!(field(7, 0x10), "tail_chunk");
        assert_eq!(field(15, 2), "length");
        let header = Header::parse(&good).unwrap();
        assert_eq!(header.check_room(entry_at(3)), Ok(()));
        assert_eq!(header.check_room(entry_at(3) - 1).unwrap_err().field, "length");
    }
}
