//! One entry of the record table: where a record's bytes are and how they are stored.

use super::Fault;
use super::header::Version;
use super::limits::{HEADER_BYTES, MAX_CHUNK_BYTES, MAX_CHUNKS, MAX_INFLATION};

/// How a record's bytes are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Compress {
    /// As they are.
    Raw,
    /// Raw Deflate, without a zlib header.
    Deflate,
}

impl Compress {
    /// The name that commands and schema.json use.
    pub fn name(self) -> &'static str {
        match self {
            Compress::Raw => "raw",
            Compress::Deflate => "flate",
        }
    }
}

/// A record's location, decoded and checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordLoc {
    /// Byte offset in the chunk.
    pub offset: u32,
    /// Stored length in bytes.
    pub phys_length: u32,
    /// Length after decoding in bytes.
    pub logic_length: u32,
    /// Chunk file.
    pub chunk_id: u16,
    /// How the bytes are stored.
    pub compress: Compress,
}

impl RecordLoc {
    /// Decodes and checks an entry, given as its two little-endian words.
    ///
    /// What passes has: an end below 2^32, so offset arithmetic in u64 cannot overflow; a chunk number below
    /// [`MAX_CHUNKS`]; a length that the version holds; a decoded length of at most [`MAX_INFLATION`] times the
    /// stored one, so that a few hostile bytes cannot ask for a large buffer. Whether the chunk file is that long
    /// is not known here.
    ///
    /// # Errors
    /// The first field that contradicts the format.
    #[inline]
    pub fn parse(words: [u64; 2], version: Version) -> Result<RecordLoc, Fault> {
        RecordLoc::decode(words, version).ok_or_else(|| fault(words, version))
    }

    /// As [`RecordLoc::parse`], for those who count the damaged ones and need not know why: it costs the same for
    /// every entry.
    #[inline]
    pub fn decode(words: [u64; 2], version: Version) -> Option<RecordLoc> {
        let [low, high] = words;
        let offset = low32(low);
        let phys_length = low32(low >> 32);
        let logic_length = low32(high);
        let chunk_id = low16(high >> 32);
        let plain = match (high >> 48) & 0xffff {
            0 => Some(Compress::Raw),
            1 => Some(Compress::Deflate),
            _ => None,
        };
        let sizes_fit = match plain {
            Some(Compress::Raw) => phys_length == logic_length,
            Some(Compress::Deflate) => {
                phys_length < logic_length
                    && u64::from(logic_length) <= u64::from(phys_length) * MAX_INFLATION
            }
            None => false,
        };
        let bounded = sizes_fit
            && chunk_id < MAX_CHUNKS
            && u64::from(offset) + u64::from(phys_length) < MAX_CHUNK_BYTES
            && version.record_bytes().contains(&logic_length)
            && (low | high) != 0;
        plain.filter(|_| bounded).map(|compress| RecordLoc {
            offset,
            phys_length,
            logic_length,
            chunk_id,
            compress,
        })
    }

    /// The entry's two little-endian words.
    pub fn to_words(&self) -> [u64; 2] {
        let compress = match self.compress {
            Compress::Raw => 0,
            Compress::Deflate => 1u64,
        };
        [
            u64::from(self.offset) | u64::from(self.phys_length) << 32,
            u64::from(self.logic_length) | u64::from(self.chunk_id) << 32 | compress << 48,
        ]
    }

    /// The entry's bytes.
    pub fn to_bytes(&self) -> [u8; HEADER_BYTES] {
        words_to_bytes(self.to_words())
    }

    /// Byte offset in the chunk just past the record.
    #[inline]
    pub fn end(&self) -> u64 {
        u64::from(self.offset) + u64::from(self.phys_length)
    }
}

/// Half of an entry, in bytes: one word.
pub(super) const HALF: usize = HEADER_BYTES / 2;

/// The bytes of an entry given as its two words.
#[inline]
pub fn words_to_bytes([low, high]: [u64; 2]) -> [u8; HEADER_BYTES] {
    (u128::from(low) | u128::from(high) << 64).to_le_bytes()
}

/// The two words of an entry given as its bytes.
#[inline]
pub fn bytes_to_words(bytes: &[u8; HEADER_BYTES]) -> [u64; 2] {
    let both = u128::from_le_bytes(*bytes);
    let low = |half: u128| u64::try_from(half & u128::from(u64::MAX)).unwrap_or(0);
    [low(both), low(both >> 64)]
}

/// The low 32 bits.
#[inline]
fn low32(word: u64) -> u32 {
    (word & 0xffff_ffff) as u32
}

/// The low 16 bits.
#[inline]
fn low16(word: u64) -> u16 {
    (word & 0xffff) as u16
}

/// Says which field of an entry that did not pass is at fault.
#[cold]
fn fault([low, high]: [u64; 2], version: Version) -> Fault {
    let (offset, phys, logic, chunk) = (low32(low), low32(low >> 32), low32(high), low16(high >> 32));
    let (compress, reserved) = ((high >> 48) & 0xff, high >> 56);
    if low | high == 0 {
        return Fault::new("entry", "is empty: no record was written here");
    }
    if reserved != 0 {
        return Fault::new("reserved", format!("is {reserved}, not 0"));
    }
    if compress > 1 {
        return Fault::new("compress", format!("is {compress}; 0 is raw, 1 is Deflate"));
    }
    if chunk >= MAX_CHUNKS {
        return Fault::new("chunk_id", format!("is {chunk}; a store has at most {MAX_CHUNKS} chunks"));
    }
    let lengths = version.record_bytes();
    if !lengths.contains(&logic) {
        let (low, high) = (lengths.start(), lengths.end());
        return Fault::new(
            "logic_length",
            format!("is {logic}; version {} holds {low} to {high} bytes", version.number()),
        );
    }
    if u64::from(offset) + u64::from(phys) >= MAX_CHUNK_BYTES {
        return Fault::new("offset", format!("{offset} + {phys} bytes ends past the largest chunk"));
    }
    let stored = if compress == 0 { "raw" } else { "Deflate" };
    Fault::new("phys_length", format!("is {phys}, which can't be {logic} bytes as {stored}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn loc(compress: Compress) -> RecordLoc {
        RecordLoc { offset: 0x0403_0201, phys_length: 100, logic_length: 100, chunk_id: 0x0b0a, compress }
    }

    #[test]
    fn bytes_are_those_of_loaderx() {
        let bytes = loc(Compress::Raw).to_bytes();
        assert_eq!(&bytes, b"\x01\x02\x03\x04\x64\0\0\0\x64\0\0\0\x0a\x0b\0\0");
        let flate = RecordLoc { phys_length: 99, ..loc(Compress::Deflate) };
        assert_eq!(flate.to_bytes()[14], 1);
        assert_eq!(RecordLoc::parse(flate.to_words(), Version::V1), Ok(flate));
    }

    #[test]
    fn each_bad_field_is_named() {
        let field = |l: RecordLoc, v| RecordLoc::parse(l.to_words(), v).unwrap_err().field;
        let good = loc(Compress::Raw);
        let size = |n| RecordLoc { phys_length: n, logic_length: n, ..good };
        assert_eq!(field(RecordLoc { chunk_id: 4096, ..good }, Version::V1), "chunk_id");
        assert_eq!(field(RecordLoc { offset: u32::MAX - 99, ..good }, Version::V1), "offset");
        assert!(
            RecordLoc::parse(RecordLoc { offset: u32::MAX - 100, ..good }.to_words(), Version::V1).is_ok()
        );
        assert_eq!(field(size(0), Version::V1), "logic_length");
        assert_eq!(field(size((1 << 20) + 1), Version::V1), "logic_length");
        assert!(RecordLoc::parse(size(0).to_words(), Version::V2).is_ok());
        assert_eq!(field(size((1 << 30) + 1), Version::V2), "logic_length");
        assert_eq!(field(RecordLoc { phys_length: 99, ..good }, Version::V1), "phys_length");
        assert_eq!(field(RecordLoc { compress: Compress::Deflate, ..good }, Version::V1), "phys_length");
        let word = |low, high| RecordLoc::parse([low, high], Version::V2).unwrap_err().field;
        assert_eq!(word(0, 0), "entry");
        assert_eq!(word(1 << 32, 1 | 1 << 56), "reserved");
        assert_eq!(word(1 << 32, 1 | 2 << 48), "compress");
    }

    #[test]
    fn a_few_bytes_cannot_ask_for_a_gigabyte() {
        let bomb = RecordLoc { phys_length: 10, logic_length: 1 << 30, ..loc(Compress::Deflate) };
        assert_eq!(RecordLoc::parse(bomb.to_words(), Version::V2).unwrap_err().field, "phys_length");
    }
}
