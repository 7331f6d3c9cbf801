//! Zrecord on disk: the two structs, what zrfs keeps beside them, their limits and their checks.
//!
//! Knows bytes. Knows no file: where a header or an entry came from is the caller's to say.
//! docs/FORMAT.md is the specification; this module is its only reader and writer in the code.

mod checkpoint;
mod checksum;
mod header;
mod journal;
mod limits;
mod location;
mod names;

pub use checkpoint::{CHECKPOINT_SLOT, Checkpoint, MARK_BYTES, MAX_NOTE};
pub use checksum::{
    ROW_BYTES, Row, SUMS_HEADER_BYTES, Slot, SumsHeader, checksum, checksum_on, is_one_flipped_bit, left_at,
    row_at, stamp_unit,
};
pub use header::{Header, Version};
pub use journal::{JOURNAL_HEADER_BYTES, Journal, MAX_JOURNAL_BODY, Partner, Partners, Work};
pub use limits::{
    HEADER_BYTES, MAX_CHUNK_BYTES, MAX_CHUNKS, MAX_INFLATION, MAX_RECORDS, META_BYTES, entry_at,
};
pub use location::{Compress, RecordLoc, bytes_to_words, words_to_bytes};
pub use names::{
    FIRST_AT, MAX_NAME, MAX_TARGET, NAMES_FIRST_UNIT, NAMES_HEADER_BYTES, NEXT_AT, NODE_BYTES, ROOT_NODE,
    SLOT_BYTES, TREE_HEADER_BYTES, TreeExtent, TreeHeader, TreeKind, TreeNode, UNFINISHED_AT, is_file_name,
    name_at, node_at, node_stride,
};

use std::fmt;

/// A field of untrusted bytes that contradicts the format.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// The field's name as in docs/FORMAT.md.
    pub field: &'static str,
    /// What it says and what it may say.
    pub text: String,
}

impl Fault {
    fn new(field: &'static str, text: impl Into<String>) -> Fault {
        Fault { field, text: text.into() }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "field {}: {}", self.field, self.text)
    }
}
