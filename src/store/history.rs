//! What the checksum file tells of the past: which header zrfs left, and whether another program changed the store since.
//!
//! A flipped bit and a change by another program both make the store differ from what zrfs left. They are told apart by
//! what else differs: loaderx moves the frontier when it appends, and entries when it deletes or compacts.

use super::Store;
use super::sidecars::Sums;
use super::state::State;
use crate::error::Result;
use crate::format::{HEADER_BYTES, Header, RecordLoc, Row, Slot};

/// Rows that are read at a time.
const BLOCK: u32 = 1 << 14;

#[derive(Default)]
pub(super) struct History {
    /// Another program has changed the store: a checksum that does not fit may be that of a record before it.
    pub(super) foreign: bool,
    /// What contradicts the header on disk, and the header that zrfs left.
    pub(super) fault: Option<(String, Header)>,
    /// Rows that contradict their own checksum.
    pub(super) damaged_rows: u64,
}

/// How entries and rows compare.
#[derive(Default)]
struct Glance {
    /// Entries that differ from their row.
    differing: u64,
    /// Those of them that differ in more than one bit.
    rewritten: u64,
    damaged_rows: u64,
}

impl History {
    /// Compares `header` and the first `there` entries with what zrfs has noted.
    pub(super) fn read(
        store: &Store,
        state: &State,
        header: &Header,
        there: u32,
        sums: Option<&Sums>,
    ) -> Result<History> {
        let Some(sums) = sums else { return Ok(History::default()) };
        let glance = glance(store, state, header, there, sums)?;
        let left: Vec<_> = sums.header.left.iter().flatten().copied().collect();
        let mut history = History { damaged_rows: glance.damaged_rows, ..History::default() };
        // A compaction of ours that was cut off leaves entries that their rows do not know yet.
        let unfinished = matches!(store.meta.any_header(), Ok((_, true)));
        history.foreign = glance.rewritten > 0 && !unfinished;
        // Where neither can be read, nothing is known.
        if !left.is_empty() && !left.contains(&header.to_bytes()) {
            history.fault = left
                .iter()
                .filter_map(|bytes| Header::parse(bytes).ok())
                .find(|left| is_flipped(header, left))
                .map(|left| Ok((left, contradiction(store, state, header, &left, &glance, sums)?)))
                .transpose()?
                .and_then(|(left, text)| Some((text?, left)));
            history.foreign |= history.fault.is_none();
        }
        Ok(history)
    }
}

fn glance(store: &Store, state: &State, header: &Header, there: u32, sums: &Sums) -> Result<Glance> {
    let mut glance = Glance::default();
    let known = there.min(sums.rows()?);
    let mut first = 0;
    while first < known {
        let end = known.min(first.saturating_add(BLOCK));
        for (index, row) in (first..end).zip(sums.read_rows(first..end)?) {
            let words = store.words(state, index)?;
            match Row::parse(&row) {
                Slot::Row(row) if row.loc != words && state.overlaid(index).is_none() => {
                    glance.differing += 1;
                    let bits = differing_bits(words, row.loc);
                    let sound = RecordLoc::decode(words, header.version).is_some();
                    glance.rewritten += u64::from(sound && bits > 1);
                }
                Slot::Damaged => glance.damaged_rows += 1,
                Slot::Row(_) | Slot::Empty => {}
            }
        }
        first = end;
    }
    Ok(glance)
}

/// How many bits of two entries differ.
pub(super) fn differing_bits([a, b]: [u64; 2], [c, d]: [u64; 2]) -> u32 {
    (a ^ c).count_ones() + (b ^ d).count_ones()
}

fn is_flipped(header: &Header, left: &Header) -> bool {
    let number = |bytes: [u8; HEADER_BYTES]| u128::from_le_bytes(bytes);
    (number(header.to_bytes()) ^ number(left.to_bytes())).count_ones() == 1
}

/// What shows that a header which differs in one bit from the one that zrfs left was not written by another program.
fn contradiction(
    store: &Store,
    state: &State,
    header: &Header,
    left: &Header,
    glance: &Glance,
    sums: &Sums,
) -> Result<Option<String>> {
    if header.length < left.length {
        // zrfs clears what it deletes.
        let there = store.meta.entries_there()?;
        for index in header.length..left.length.min(there) {
            let words = store.words(state, index)?;
            if !matches!(sums.row(index)?, Slot::Row(row) if row.loc == words) {
                return Ok(None);
            }
        }
        return Ok(Some(format!(
            "meta.zr: the header's field length is {}, but zrfs wrote {} and the entries behind it are whole: a bit has \
             flipped, or another program has deleted the last records",
            header.length, left.length
        )));
    }
    if header.length > left.length {
        // Only empty records come without moving the frontier.
        let there = store.meta.entries_there()?;
        for index in left.length..header.length.min(there) {
            let loc = RecordLoc::decode(store.words(state, index)?, header.version);
            if loc.is_none_or(|loc| loc.phys_length > 0) {
                return Ok(Some(format!(
                    "meta.zr: the header's field length is {}, but zrfs wrote {} and nothing was appended since",
                    header.length, left.length
                )));
            }
        }
        return Ok(None);
    }
    if glance.differing > 0 {
        return Ok(None);
    }
    Ok(Some(format!(
        "meta.zr: the header's frontier is byte {} of chunk {}, but zrfs wrote byte {} of chunk {} and no record has changed",
        header.tail_offset, header.tail_chunk, left.tail_offset, left.tail_chunk
    )))
}
