//! The sizes that the format fixes, asserted at compile time.

/// Size of the header, and of one entry of the record table behind it, in bytes.
pub const HEADER_BYTES: usize = 16;
/// Most records that a store holds.
pub const MAX_RECORDS: u32 = 1 << 24;
/// Most chunk files that a store has.
pub const MAX_CHUNKS: u16 = 1 << 12;
/// Size that no chunk file reaches: a record that would end here or later goes to the next chunk.
pub const MAX_CHUNK_BYTES: u64 = 1 << 32;
/// Size of a full meta.zr in bytes: the header and every entry.
pub const META_BYTES: u64 = HEADER_BYTES as u64 + MAX_RECORDS as u64 * HEADER_BYTES as u64;
/// Most bytes that one byte of Deflate decodes to: a match of 258 bytes takes at least two bits.
pub const MAX_INFLATION: u64 = 1032;

/// Longest record of version 1, in bytes.
pub(super) const V1_MAX_RECORD: u32 = 1 << 20;
/// Longest record of version 2, in bytes.
pub(super) const V2_MAX_RECORD: u32 = 1 << 30;

/// Byte offset in meta.zr of the entry of record `index`.
pub const fn entry_at(index: u32) -> u64 {
    HEADER_BYTES as u64 + index as u64 * HEADER_BYTES as u64
}

const _: () = {
    assert!(META_BYTES == 268_435_472);
    assert!(entry_at(MAX_RECORDS) == META_BYTES);
    // A record never straddles chunks, so it has to fit in one.
    assert!((V1_MAX_RECORD as u64) < MAX_CHUNK_BYTES);
    assert!((V2_MAX_RECORD as u64) < MAX_CHUNK_BYTES);
    // Offsets and the frontier stay below the chunk size, so they fit their u32.
    assert!(MAX_CHUNK_BYTES - 1 == u32::MAX as u64);
    // Version 1 runs out of record slots before it runs out of chunks.
    assert!(MAX_RECORDS as u64 * V1_MAX_RECORD as u64 <= MAX_CHUNKS as u64 * MAX_CHUNK_BYTES);
};
