//! Verifying: every record is read and held against its checksum, its entry, its neighbours and the header.
//!
//! A record is *checked* where a checksum of zrfs describes it and fits; *unchecked* where none does, because another
//! program appended or replaced it; *bad* where something contradicts something. Nothing is written.

use std::path::Path;
use std::sync::atomic::AtomicU64;
use std::sync::{Mutex, PoisonError};

use super::Store;
use super::examine::{Examiner, Outcome};
use super::history::History;
use super::layout::{Layout, Placed};
use super::names::NameFiles;
use super::sidecars::Sums;
use super::state::State;
use crate::error::Result;
use crate::format::{Header, RecordLoc};

/// How far work on all records has come. Sizes are stored bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Progress {
    /// Bytes that are done.
    pub done: u64,
    /// Bytes in all.
    pub total: u64,
}

/// What verifying has found.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Verification {
    /// Records in the store.
    pub records: u64,
    /// Records whose bytes are those that were appended.
    pub checked: u64,
    /// Records that no checksum of zrfs describes. What can be known without one was looked at.
    pub unchecked: u64,
    /// Records that are lost or altered.
    pub bad_records: u64,
    /// The first 100,000 of them, by index.
    pub bad: Vec<BadRecord>,
    /// What is wrong with the header or the files.
    pub faults: Vec<String>,
    /// What a reader should know and is not wrong.
    pub notes: Vec<String>,
}

/// A record that is lost or altered.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct BadRecord {
    /// Its index.
    pub index: u64,
    /// Where its entry says that it lies; `None` where the entry contradicts the format.
    pub loc: Option<RecordLoc>,
    /// What is wrong.
    pub reason: String,
}

/// What repairing needs to know beside a [`Verification`].
pub(super) struct Diagnosis {
    pub(super) found: Verification,
    /// All bad records, one bit each.
    pub(super) doomed: Vec<u8>,
    /// Bad records that are good under this entry.
    pub(super) mends: Vec<(u32, [u64; 2])>,
    /// Why records could not be looked at, where that says nothing of them.
    pub(super) refused: Option<String>,
}

/// What is known of a store before its records are read.
struct Survey {
    header: Header,
    /// Entries that the table has room for.
    there: u32,
    layout: Layout,
    history: History,
}

impl Verification {
    /// Whether nothing is wrong.
    pub fn is_good(&self) -> bool {
        self.bad_records == 0 && self.faults.is_empty()
    }
}

impl Store {
    /// Reads every record of the store at `path` and holds it against its checksum and the format. A store whose header
    /// is damaged is verified as far as the rest tells what it was.
    ///
    /// Decodes on all cores; holds 9 bytes a record, and some records for each core. `progress` is called from any thread.
    ///
    /// # Errors
    /// What the system refuses; [`NotFound`](crate::ErrorKind::NotFound), [`Busy`](crate::ErrorKind::Busy),
    /// [`NotAStore`](crate::ErrorKind::NotAStore) where there is neither a header nor a sign of one. What is bad is in
    /// the result, and no error.
    ///
    /// ```
    /// # fn main() -> zrfs::Result<()> {
    /// # let folder = tempfile::tempdir().unwrap();
    /// # let path = folder.path().join("s.zr");
    /// # let store = zrfs::Store::create(&path, zrfs::Version::V1)?;
    /// store.append(b"aaabbbccc", 3, zrfs::Codec::Raw)?;
    /// store.sync()?;
    /// let found = zrfs::Store::verify(&path, |progress| ())?;
    /// assert!(found.is_good() && found.checked == 3);
    /// # Ok(())
    /// # }
    /// ```
    pub fn verify(path: impl AsRef<Path>, progress: impl Fn(Progress) + Sync) -> Result<Verification> {
        let (store, fault) = Store::open_damaged(path.as_ref())?;
        let mut found = store.diagnose(&progress)?.found;
        found.faults.splice(0..0, fault);
        Ok(found)
    }

    /// Examines the store as its state has it; where the header contradicts the rest, as zrfs has left it, which the state
    /// then takes over.
    pub(super) fn diagnose(&self, progress: &(dyn Fn(Progress) + Sync)) -> Result<Diagnosis> {
        let state = self.state();
        let sums = Sums::open(self.dir.as_ref(), &self.path)?;
        let mut found = Verification::default();
        let mut survey = self.survey(&state, state.header(), sums.as_ref())?;
        if let Some((text, left)) = survey.history.fault.take() {
            found.faults.push(text);
            state.publish(&left);
            survey = self.survey(&state, left, sums.as_ref())?;
        }
        if sums.is_none() && Sums::is_there(self.dir.as_ref()) {
            found
                .notes
                .push("the checksum file is damaged, or of another release: nothing is checked".to_owned());
        }
        let Survey { header, there, layout, history } = survey;
        if there < header.length {
            found.faults.push(format!(
                "meta.zr has {there} entries, the header's field length says {}",
                header.length
            ));
        }
        if let Err(e) = self.frontier_in_chunk(&header) {
            found.faults.push(e.without_help());
        }
        if matches!(self.meta.any_header(), Ok((_, true))) {
            let text = "a delete or a compaction was cut off: the next change by zrfs finishes it, loaderx waits for that";
            found.notes.push(text.to_owned());
        }
        let (overlaps, total) = self.overlaps(&state, &header, &layout)?;
        drop(layout);
        let mut twins: Vec<u32> = overlaps
            .iter()
            .filter(|overlap| overlap.is_same)
            .map(|overlap| overlap.a.max(overlap.b))
            .collect();
        twins.sort_unstable();
        let mut overlapping: Vec<u32> = overlaps.iter().flat_map(|overlap| [overlap.a, overlap.b]).collect();
        overlapping.sort_unstable();
        overlapping.dedup();
        let examiner = Examiner {
            store: self,
            state: &state,
            header,
            sums,
            history,
            overlapping,
            twins,
            progress,
            total,
            done: AtomicU64::new(0),
            refused: Mutex::default(),
        };
        let mut outcome = examiner.all(there)?;
        let mend = |index| examiner.mend(index);
        settle(&overlaps, mend, &mut outcome);
        // Blocks are examined in any order.
        outcome.mends.sort_unstable_by_key(|&(index, _)| index);
        outcome.mends.dedup_by_key(|&mut (index, _)| index);
        for index in there..header.length {
            outcome.bad(index, None, "meta.zr ends before its entry".to_owned(), None);
        }
        note(&examiner.history, &outcome, &mut found);
        self.judge_names(&mut found)?;
        // Looking at the names has looked at the header on disk, which may be the damaged one.
        state.publish(&header);
        found.records = header.length.into();
        found.checked = outcome.checked;
        found.bad_records = outcome.bad_records;
        found.unchecked = found.records.saturating_sub(found.checked + found.bad_records);
        found.bad = outcome.bad;
        let refused = examiner.refused.into_inner().unwrap_or_else(PoisonError::into_inner);
        Ok(Diagnosis { found, doomed: outcome.doomed, mends: outcome.mends, refused })
    }

    fn judge_names(&self, found: &mut Verification) -> Result<()> {
        let Some(names) = self.names()? else {
            if NameFiles::are_unreadable(self.dir.as_ref()) {
                let text = "the file of names is damaged, or of another release: no record has a name";
                found.notes.push(text.to_owned());
            }
            return Ok(());
        };
        found.faults.extend(names.fault()?);
        let (named, len) = (names.named()?, self.len());
        if named < len {
            found.notes.push(format!("{} of {len} records have no name", len - named));
        }
        Ok(())
    }

    fn survey(&self, state: &State, header: Header, sums: Option<&Sums>) -> Result<Survey> {
        let there = self.meta.entries_there()?.min(header.length);
        let layout = Layout::read(self, state, &Header { length: there, ..header })?;
        let history = History::read(self, state, &header, &layout, sums)?;
        Ok(Survey { header, there, layout, history })
    }

    /// Pairs of records that overlap, and the stored bytes of all.
    fn overlaps(&self, state: &State, header: &Header, layout: &Layout) -> Result<(Vec<Overlap>, u64)> {
        let (mut pairs, mut total) = (Vec::new(), 0);
        for (_, places) in layout.chunks() {
            // The record that reaches furthest so far.
            let mut furthest: Option<Placed> = None;
            for i in places {
                let Some(Placed { index, loc }) = layout.record(self, state, header, i)? else { continue };
                total += u64::from(loc.phys_length);
                if loc.phys_length == 0 {
                    continue;
                }
                match furthest {
                    Some(other) if u64::from(loc.offset) < other.loc.end() => {
                        pairs.push(Overlap { a: other.index, b: index, is_same: other.loc == loc });
                    }
                    _ => {}
                }
                if furthest.is_none_or(|other| loc.end() > other.loc.end()) {
                    furthest = Some(Placed { index, loc });
                }
            }
        }
        Ok((pairs, total))
    }
}

/// Two records that overlap.
struct Overlap {
    a: u32,
    b: u32,
    /// They are one record under two indices.
    is_same: bool,
}

/// Of two records that overlap, those are bad that no checksum confirms. Where it confirms both, and where they are one
/// record, the later one is too much.
fn settle(overlaps: &[Overlap], mend: impl Fn(u32) -> Option<RecordLoc>, outcome: &mut Outcome) {
    let mut confirmed = std::mem::take(&mut outcome.overlapping);
    confirmed.sort_unstable();
    let is_confirmed = |index: u32| confirmed.binary_search(&index).is_ok();
    for &Overlap { a, b, is_same } in overlaps {
        let (low, high) = (a.min(b), a.max(b));
        if super::delete::is_set(&outcome.doomed, a) || super::delete::is_set(&outcome.doomed, b) {
            // The entry of the one that is bad already was the wrong one.
            continue;
        }
        let one_is_good = is_same || is_confirmed(a) && is_confirmed(b);
        for (index, other) in [(low, high), (high, low)] {
            let bad = if one_is_good { index == high } else { !is_confirmed(index) };
            if bad && !super::delete::is_set(&outcome.doomed, index) {
                if is_confirmed(index) {
                    outcome.checked = outcome.checked.saturating_sub(1);
                }
                outcome.bad(index, None, format!("its bytes overlap those of record {other}"), mend(index));
            }
        }
    }
    outcome.bad.sort_by_key(|bad| bad.index);
}

fn note(history: &History, outcome: &Outcome, found: &mut Verification) {
    if history.damaged_rows > 0 {
        found
            .notes
            .push(format!("{} checksums are damaged: their records are unchecked", history.damaged_rows));
    }
    if let Some(change) = &history.foreign {
        found.notes.push(format!("another program has changed the store since zrfs wrote it: {change}"));
    }
    if outcome.doubtful > 0 {
        found.notes.push(format!(
            "{} unchecked records differ from checksums of what lay there before another program wrote there",
            outcome.doubtful
        ));
    }
}
