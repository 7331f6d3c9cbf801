//! What the checksum file tells of the past: which header zrfs left, and what another program may have changed since.
//!
//! A flipped bit and a change by another program both make the store differ from what zrfs left. They are told apart by
//! what else differs: loaderx moves the frontier when it appends, entries when it deletes, and entries and bytes when it
//! compacts. It writes over bytes below the frontier in a compaction alone, and then from the first gap on; so only from
//! there on a checksum that does not fit may be that of a record which is gone.

use std::collections::HashSet;

use super::layout::{Layout, Placed};
use super::sidecars::Sums;
use super::state::State;
use super::{Store, resize};
use crate::error::Result;
use crate::format::{HEADER_BYTES, Header, RecordLoc, Row, Slot, checksum};

/// Rows that are read at a time.
const BLOCK: u32 = 1 << 14;

/// A chunk and an offset in it.
pub(super) type Place = (u16, u64);

#[derive(Default)]
pub(super) struct History {
    /// What has changed, where another program has changed something.
    pub(super) foreign: Option<String>,
    /// From here on other bytes may lie where zrfs has written.
    pub(super) doubt_from: Option<Place>,
    /// What contradicts the header on disk, and the header that zrfs left.
    pub(super) fault: Option<(String, Header)>,
    /// Rows that contradict their own checksum.
    pub(super) damaged_rows: u64,
    /// Entries that differ from their row, but are those of records which are not at their own index any more: another
    /// program has moved them.
    pub(super) moved: HashSet<[u64; 2]>,
    /// Where zrfs had written up to.
    pub(super) frontier: Place,
}

/// How entries and rows compare.
#[derive(Default)]
struct Glance {
    /// Entries that differ from their row.
    differing: u64,
    /// Those of them that differ in more than one bit.
    rewritten: u64,
    /// The first place that those name, or their rows.
    first_place: Option<Place>,
    damaged_rows: u64,
    entries: HashSet<[u64; 2]>,
}

impl History {
    /// Compares `header` and the entries of `layout` with what zrfs has noted.
    pub(super) fn read(
        store: &Store,
        state: &State,
        header: &Header,
        layout: &Layout,
        sums: Option<&Sums>,
    ) -> Result<History> {
        let Some(sums) = sums else { return Ok(History::default()) };
        let there = store.meta.entries_there()?.min(header.length);
        let glance = glance(store, state, header, there, sums)?;
        let moved = moved(store, state, header, there, sums, &glance.entries)?;
        let mut history = History { damaged_rows: glance.damaged_rows, moved, ..History::default() };
        // A compaction of ours that was cut off leaves entries that their rows do not know yet.
        let unfinished = matches!(store.meta.any_header(), Ok((_, true)));
        if glance.rewritten > 0 && !unfinished {
            history.foreign = Some(format!("{} entries are not those that zrfs wrote", glance.rewritten));
            history.doubt_from = glance.first_place;
        }
        let left: Vec<Header> =
            sums.header.left.iter().flatten().filter_map(|bytes| Header::parse(bytes).ok()).collect();
        history.frontier =
            left.iter().map(|left| (left.tail_chunk, left.tail_offset.into())).max().unwrap_or_default();
        if left.contains(header) && glance.rewritten == 0 && sums.is_older_than(store.modified()?)? {
            // The last records may have gone, and others of the same lengths have come.
            history.doubt_from = replaced_end(store, state, header, layout, sums)?;
        }
        // Where neither can be read, nothing is known.
        let Some(last) = left.first().filter(|_| !left.contains(header)) else { return Ok(history) };
        if let Some(left) = left.iter().find(|left| is_flipped(header, left)) {
            history.fault =
                contradiction(store, state, header, left, &glance, sums)?.map(|text| (text, *left));
        }
        if history.fault.is_none() {
            history.foreign =
                Some(format!("the header's length was {} and is {}", last.length, header.length));
            if glance.rewritten == 0 {
                history.doubt_from = replaced_end(store, state, header, layout, sums)?;
            }
        }
        Ok(history)
    }
}

/// Accepts what another program has made of the store: `header` is on disk. Checksums of bytes that it may have written
/// over are marked as doubtful.
pub(super) fn accept(store: &Store, header: &Header, sums: &mut Sums) -> Result<()> {
    let state = store.state();
    let layout = Layout::read(store, &state, header)?;
    let history = History::read(store, &state, header, &layout, Some(sums))?;
    if let Some(from) = history.doubt_from {
        let known = header.length.min(sums.rows()?);
        let mut first = 0;
        while first < known {
            let end = known.min(first.saturating_add(BLOCK));
            let mut doubtful = Vec::new();
            for (index, row) in (first..end).zip(sums.read_rows(first..end)?) {
                if let Slot::Row(row) = Row::parse(&row)
                    && RecordLoc::decode(row.loc, header.version).is_some_and(|loc| place(&loc) >= from)
                {
                    doubtful.push((index, Row { doubtful: true, ..row }.to_bytes()));
                }
            }
            sums.write_rows(&doubtful)?;
            first = end;
        }
        sums.sync()?;
    }
    sums.accept(header)
}

pub(super) fn place(loc: &RecordLoc) -> Place {
    (loc.chunk_id, loc.offset.into())
}

/// Where the records at the end of what zrfs wrote are not what it wrote: the first place of those. Another program may
/// have deleted the last ones and put others there.
fn replaced_end(
    store: &Store,
    state: &State,
    header: &Header,
    layout: &Layout,
    sums: &Sums,
) -> Result<Option<Place>> {
    let (mut from, mut bytes) = (None, Vec::new());
    for i in (0..layout.len()).rev() {
        let Some(Placed { index, loc }) = layout.record(store, state, header, i)? else { continue };
        let Slot::Row(row) = sums.row(index)? else { continue };
        if row.loc != loc.to_words() || loc.phys_length == 0 {
            continue;
        }
        bytes.clear();
        resize(&mut bytes, loc.phys_length as usize)?;
        let chunk = state.chunks.get(store.dir.as_ref(), loc.chunk_id);
        if chunk.is_ok_and(|chunk| chunk.read(&mut bytes, loc.offset.into()).is_ok())
            && checksum(&bytes) == row.sum
        {
            break;
        }
        from = Some(place(&loc));
    }
    Ok(from)
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
                    glance.entries.insert(words);
                    let Some(loc) = RecordLoc::decode(words, header.version) else { continue };
                    if differing_bits(words, row.loc) > 1 {
                        glance.rewritten += 1;
                        let old = RecordLoc::decode(row.loc, header.version);
                        let places = [Some(loc), old].into_iter().flatten().map(|loc| place(&loc));
                        glance.first_place = glance.first_place.into_iter().chain(places).min();
                    }
                }
                Slot::Damaged => glance.damaged_rows += 1,
                Slot::Row(_) | Slot::Empty => {}
            }
        }
        first = end;
    }
    Ok(glance)
}

/// Which of `entries` are those of records that a row knows at an index where they are not any more.
fn moved(
    store: &Store,
    state: &State,
    header: &Header,
    there: u32,
    sums: &Sums,
    entries: &HashSet<[u64; 2]>,
) -> Result<HashSet<[u64; 2]>> {
    let mut moved = HashSet::new();
    let rows = if entries.is_empty() { 0 } else { sums.rows()? };
    let mut first = 0;
    while first < rows {
        let end = rows.min(first.saturating_add(BLOCK));
        for (index, row) in (first..end).zip(sums.read_rows(first..end)?) {
            let Slot::Row(row) = Row::parse(&row) else { continue };
            let is_elsewhere = index >= header.length.min(there) || store.words(state, index)? != row.loc;
            if is_elsewhere && entries.contains(&row.loc) {
                moved.insert(row.loc);
            }
        }
        first = end;
    }
    Ok(moved)
}

/// How many bits of two entries differ.
fn differing_bits([a, b]: [u64; 2], [c, d]: [u64; 2]) -> u32 {
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
             flipped, or another program has deleted the last records, which a repair brings back",
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
