//! What the checksum file tells of the past: which header zrfs left, and what another program may have changed since.
//!
//! A flipped bit and a change by another program both make the store differ from what zrfs left. They are told apart by
//! what else differs: loaderx moves the frontier when it appends, entries when it deletes, and entries and bytes when it
//! compacts. It writes over bytes below the frontier in a compaction alone, and then from the first gap on; so only from
//! there on a checksum that does not fit may be that of a record which is gone.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashSet};

use super::layout::{Layout, Placed};
use super::names::NameFiles;
use super::place::Place;
use super::sidecars::Sums;
use super::state::State;
use super::{Store, resize};
use crate::error::{Error, ErrorKind, Result};
use crate::format::{HEADER_BYTES, Header, ROW_BYTES, RecordLoc, Row, Slot, Version, checksum};

/// How many records tell whether a store was compacted. More than one, since neighbours may hold the same bytes.
const LAST: usize = 64;

#[derive(Default)]
pub(super) struct History {
    /// What has changed, where another program has changed something.
    pub(super) foreign: Option<String>,
    /// From here on other bytes may lie where zrfs has written.
    pub(super) doubt_from: Option<Place>,
    /// Nobody has written meta.zr since zrfs did.
    pub(super) is_untouched: bool,
    /// What contradicts the header on disk, and the header that zrfs left.
    pub(super) fault: Option<(String, Header)>,
    /// Rows that contradict their own checksum.
    pub(super) damaged_rows: u64,
    /// What rows say of entries that differ from their own row.
    pub(super) known: Known,
    /// Where zrfs had written up to.
    pub(super) frontier: Place,
}

/// Entries that differ from their row, but are those that other rows know.
#[derive(Default)]
pub(super) struct Known {
    /// Of records that are not at their own index any more: another program has moved them.
    pub(super) moved: HashSet<[u64; 2]>,
    /// Of records that are at their own index as well: no program does that.
    pub(super) doubled: HashSet<[u64; 2]>,
}

/// How entries and rows compare.
#[derive(Default)]
struct Glance {
    /// Entries that differ from their row, and what the row says.
    differing: Vec<[[u64; 2]; 2]>,
    /// The end of the last record whose entry is that of its row.
    end: Place,
    damaged_rows: u64,
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
        let glance = glance(store, state, there, sums)?;
        let known = known(store, state, header, there, sums, &glance)?;
        // Those that another program has written.
        let rewritten: Vec<_> = glance
            .differing
            .iter()
            .filter(|[words, row]| differing_bits(*words, *row) > 1 && !known.doubled.contains(words))
            .filter_map(|[words, _]| Some((*words, Place::of(&RecordLoc::decode(*words, header.version)?))))
            .collect();
        let mut history = History { damaged_rows: glance.damaged_rows, known, ..History::default() };
        // A compaction of ours that was cut off leaves entries that their rows do not know yet.
        let unfinished = matches!(store.meta.any_header(), Ok((_, true)));
        if !rewritten.is_empty() && !unfinished {
            history.foreign = Some(format!("{} entries are not those that zrfs wrote", rewritten.len()));
        }
        let left: Vec<Header> =
            sums.header.left.iter().flatten().filter_map(|bytes| Header::parse(bytes).ok()).collect();
        history.frontier = left.iter().map(Place::frontier).max().unwrap_or_default();
        // A delete names places that rows know, an append such as lie behind them. Any other came by a compaction, which
        // wrote over what lay there.
        let slid = rewritten
            .iter()
            .filter(|(words, place)| !history.known.moved.contains(words) && *place < history.frontier)
            .map(|&(_, place)| place);
        history.doubt_from = slid.min().filter(|_| !unfinished);
        if header.version == Version::V2 {
            // loaderx refuses these, so nobody else has changed anything: all that differs is damage.
            history.known = Known::default();
            (history.foreign, history.doubt_from) = (None, None);
            history.frontier = Place { chunk: u16::MAX, offset: u64::MAX };
        }
        if header.version == Version::V1
            && left.contains(header)
            && history.doubt_from.is_none()
            && sums.is_older_than(store.modified()?)?
        {
            // The last records may have gone, and others of the same lengths have come.
            history.doubt_from = replaced_end(store, state, header, layout, sums)?;
        }
        // Where neither can be read, nothing is known.
        let Some(last) = left.first().filter(|_| !left.contains(header)) else { return Ok(history) };
        history.is_untouched = header.version == Version::V2 || sums.is_as_new_as(store.modified()?);
        let is_damage = |left: &&Header| {
            history.is_untouched
                || is_flipped(header, left)
                || rewritten.is_empty()
                    && (is_shorter(header, left) || is_before_records(header, left, &glance))
        };
        if let Some(left) = left.iter().find(is_damage) {
            history.fault =
                contradiction(store, state, header, left, &glance, sums)?.map(|text| (text, *left));
        }
        if history.fault.is_none() {
            history.foreign = Some(format!(
                "{} records up to byte {} of chunk {} became {} up to byte {} of chunk {}",
                last.length,
                last.tail_offset,
                last.tail_chunk,
                header.length,
                header.tail_offset,
                header.tail_chunk
            ));
            if history.doubt_from.is_none() && header.version == Version::V1 {
                history.doubt_from = replaced_end(store, state, header, layout, sums)?;
            }
        }
        Ok(history)
    }
}

/// Refuses where the header on disk has lost records that are whole: what writes over them would lose them for good.
pub(super) fn refuse_lost_records(store: &Store, header: &Header) -> Result<()> {
    let Some(sums) = Sums::open(store.dir.as_ref(), &store.path)?.filter(|sums| sums.is_foreign(header))
    else {
        return Ok(());
    };
    let state = store.state();
    let layout = Layout::read(store, &state, header)?;
    match History::read(store, &state, header, &layout, Some(&sums))?.fault {
        Some((text, left)) if left.length > header.length => {
            Err(Error::new(ErrorKind::Damaged, format!("{} is not compacted: {text}", store.path.display()))
                .with_help("`zrfs compact --accept` gives them up"))
        }
        _ => Ok(()),
    }
}

/// Accepts what another program has made of the store: `header` is on disk. Checksums of records that
/// it has moved or replaced, or whose bytes it may have written over, are marked as doubtful.
pub(super) fn accept(store: &Store, header: &Header, sums: &mut Sums) -> Result<()> {
    let state = store.state();
    let layout = Layout::read(store, &state, header)?;
    let history = History::read(store, &state, header, &layout, Some(sums))?;
    if let Some((text, _)) = history.fault.as_ref().filter(|_| history.is_untouched) {
        return Err(Error::new(ErrorKind::Damaged, format!("{}: {text}", store.path.display()))
            .with_help("`zrfs repair` puts it right; until then nothing is written"));
    }
    // Whose bytes were named has to be told for sure.
    let look = NameFiles::are_there(store.dir.as_ref()) && may_be_compacted(store, &state, header, sums)?;
    let mut bytes = Vec::new();
    for block in sums.blocks(header.length)? {
        let mut changed = Vec::new();
        for (index, slot) in block? {
            let row = match slot {
                Slot::Row(row) => row,
                Slot::Empty => continue,
                Slot::Damaged => {
                    // Its record may be another one now, which nothing would tell any more.
                    changed.push((index, [0; ROW_BYTES]));
                    continue;
                }
            };
            let words = store.words(&state, index)?;
            let Some(loc) = RecordLoc::decode(words, header.version) else { continue };
            if row.loc == words {
                let in_doubt = history.doubt_from.is_some_and(|from| Place::of(&loc) >= from);
                let doubtful = if look {
                    !is_there(store, &state, &row, header.version, &mut bytes)?
                } else {
                    in_doubt || row.doubtful
                };
                if doubtful != row.doubtful {
                    changed.push((index, Row { doubtful, ..row }.to_bytes()));
                }
                continue;
            }
            if !row.doubtful {
                // The record that came here is another one; that the row is another's shows that a program was here.
                changed.push((index, Row { doubtful: true, ..row }.to_bytes()));
            }
        }
        sums.write_rows(&changed)?;
    }
    sums.sync()?;
    sums.accept(header)
}

/// Whether another program may have compacted the store: whether what lies behind all else that zrfs wrote, below the
/// frontier, is not what it wrote there. A compaction moves all that lies behind the first gap, so it would be other bytes.
///
/// Cost: reading all rows, and some records.
pub(super) fn may_be_compacted(store: &Store, state: &State, header: &Header, sums: &Sums) -> Result<bool> {
    let frontier = Place::frontier(header);
    let mut last = BinaryHeap::new();
    for block in sums.blocks(u32::MAX)? {
        for (index, slot) in block? {
            let Slot::Row(row) = slot else { continue };
            let Some(loc) = RecordLoc::decode(row.loc, header.version) else { continue };
            if loc.phys_length > 0 && Place::end_of(&loc) <= frontier {
                last.push(Reverse((Place::of(&loc), index)));
                if last.len() > LAST {
                    last.pop();
                }
            }
        }
    }
    let mut bytes = Vec::new();
    for Reverse((_, index)) in last {
        let Slot::Row(row) = sums.row(index)? else { continue };
        if !is_there(store, state, &row, header.version, &mut bytes)? {
            return Ok(true);
        }
    }
    Ok(false)
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
        if is_there(store, state, &row, header.version, &mut bytes)? {
            break;
        }
        from = Some(Place::of(&loc));
    }
    Ok(from)
}

fn glance(store: &Store, state: &State, there: u32, sums: &Sums) -> Result<Glance> {
    let mut glance = Glance::default();
    for block in sums.blocks(there)? {
        for (index, slot) in block? {
            let words = store.words(state, index)?;
            match slot {
                Slot::Row(row) if row.loc != words && state.overlaid(index).is_none() => {
                    glance.differing.push([words, row.loc]);
                }
                Slot::Damaged => glance.damaged_rows += 1,
                Slot::Row(row) => {
                    if let Some(loc) = RecordLoc::decode(row.loc, Version::V2) {
                        glance.end = glance.end.max(Place::end_of(&loc));
                    }
                }
                Slot::Empty => {}
            }
        }
    }
    Ok(glance)
}

/// Whether the record that a row describes is where the row says.
pub(super) fn is_there(
    store: &Store,
    state: &State,
    row: &Row,
    version: Version,
    bytes: &mut Vec<u8>,
) -> Result<bool> {
    let Some(loc) = RecordLoc::decode(row.loc, version) else { return Ok(false) };
    bytes.clear();
    resize(bytes, loc.phys_length as usize)?;
    let chunk = state.chunks.get(store.dir.as_ref(), loc.chunk_id);
    Ok(chunk.is_ok_and(|chunk| chunk.read(bytes, loc.offset.into()).is_ok()) && checksum(bytes) == row.sum)
}

/// What other rows say of the entries that differ from their own.
fn known(
    store: &Store,
    state: &State,
    header: &Header,
    there: u32,
    sums: &Sums,
    glance: &Glance,
) -> Result<Known> {
    let mut known = Known::default();
    let entries: HashSet<[u64; 2]> = glance.differing.iter().map(|[words, _]| *words).collect();
    for block in sums.blocks(if entries.is_empty() { 0 } else { u32::MAX })? {
        for (index, slot) in block? {
            let Slot::Row(row) = slot else { continue };
            if !entries.contains(&row.loc) {
                continue;
            }
            let is_elsewhere = index >= header.length.min(there) || store.words(state, index)? != row.loc;
            if is_elsewhere {
                known.moved.insert(row.loc)
            } else {
                known.doubled.insert(row.loc)
            };
        }
    }
    Ok(known)
}

/// How many bits of two entries differ.
fn differing_bits([a, b]: [u64; 2], [c, d]: [u64; 2]) -> u32 {
    (a ^ c).count_ones() + (b ^ d).count_ones()
}

fn is_flipped(header: &Header, left: &Header) -> bool {
    let number = |bytes: [u8; HEADER_BYTES]| u128::from_le_bytes(bytes);
    (number(header.to_bytes()) ^ number(left.to_bytes())).count_ones() == 1
}

/// Whether there are fewer records and no more bytes: the last records are gone, or the header is wrong.
fn is_shorter(header: &Header, left: &Header) -> bool {
    header.length < left.length && Place::frontier(header) <= Place::frontier(left)
}

/// Whether the frontier lies before records that are where zrfs wrote them. No program leaves it there.
fn is_before_records(header: &Header, left: &Header, glance: &Glance) -> bool {
    header.length == left.length && Place::frontier(header) < glance.end
}

/// What shows that a header was not written by another program.
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
        let mut bytes = Vec::new();
        let there = store.meta.entries_there()?;
        for index in header.length..left.length.min(there) {
            let words = store.words(state, index)?;
            let is_whole = match sums.row(index)? {
                Slot::Row(row) if row.loc == words => {
                    is_there(store, state, &row, header.version, &mut bytes)?
                }
                _ => false,
            };
            if !is_whole {
                return Ok(None);
            }
        }
        return Ok(Some(format!(
            "meta.zr: the header's field length is {}, but zrfs wrote {} and the {} records behind it are whole: it is \
             damaged, or another program has deleted the last records, which a repair brings back",
            header.length,
            left.length,
            left.length - header.length
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
    if !glance.differing.is_empty() {
        return Ok(None);
    }
    Ok(Some(format!(
        "meta.zr: the header's frontier is byte {} of chunk {}, but zrfs wrote byte {} of chunk {} and no record has changed",
        header.tail_offset, header.tail_chunk, left.tail_offset, left.tail_chunk
    )))
}
