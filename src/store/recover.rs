//! A store whose header is marked was left by a process that was killed while it deleted or compacted, or by a power cut.
//! Opened for writing, the step is finished or undone; opened for reading, readers see what it comes to.
//!
//! A compaction leaves every record whole at every moment, so there the mark is all that has to go. A delete is finished
//! where it was decided: where the store's own header is marked, or, for one that follows another, where the leader's is.

use std::path::PathBuf;

use super::delete::{self, Plan};
use super::sidecars::{JournalFile, Sums};
use super::state::Overlay;
use super::{Store, meta};
use crate::error::{Error, ErrorKind, Result};
use crate::format::{HEADER_BYTES, Header, Journal, Partner, Partners, RecordLoc, Row, Slot, Work, checksum};
use crate::storage::{Access, Directory};

/// What the journal of a marked store comes to.
enum Verdict {
    /// The table is right as it is; what that means for the step.
    Keep(&'static str),
    /// Records go.
    Delete(Plan, Part),
}

/// This store's part in a delete.
enum Part {
    /// It leads these, or nobody, in a step of that number: they come first.
    Leads(Vec<Partner>, u64),
    /// It follows another.
    Follows,
}

impl Store {
    /// Shows readers what the unfinished step comes to. `header` is the one on disk, without its mark.
    pub(super) fn show_finished(&self, header: &Header) -> Result<()> {
        if let Verdict::Delete(plan, _) = self.judge(header)? {
            plan.show(self)?;
        }
        Ok(())
    }

    /// Finishes or undoes the unfinished step. `header` is the one on disk, without its mark.
    pub(super) fn finish_step(&self, header: &Header) -> Result<()> {
        if let Verdict::Delete(plan, Part::Leads(partners, step)) = self.judge(header)? {
            // They look here for what was decided, so they come first, and before this file is taken alone.
            for partner in &partners {
                let (dir, path) = self.find(partner)?;
                let took_part = JournalFile::read(dir.as_ref()).is_some_and(|journal| journal.step == step);
                let follower = Store::open_in(dir, &path, Access::Write)?;
                // One that has done its part may have been changed since, and then has another journal.
                if !took_part && follower.header_now()?.length != plan.new.length {
                    let text = format!(
                        "{}: a delete from this store and another was cut off, and {} is not that other one",
                        self.path.display(),
                        path.display()
                    );
                    return Err(Error::new(ErrorKind::Damaged, text)
                        .with_help("put that one back in its place; the delete is finished then"));
                }
            }
        }
        let mut alone = self.alone()?;
        let (header, unfinished) = self.meta.any_header()?;
        if !unfinished {
            // Another process was faster.
            self.state().publish(&header);
            return self.meta.check_room(&header);
        }
        let verdict = self.judge(&header)?;
        let sidecars = alone.writer.sidecars(self, &header)?;
        match verdict {
            Verdict::Keep(undone) => {
                if let Some(sums) = &sidecars.sums {
                    self.follow_moves(&header, sums)?;
                }
                self.meta.write_header(&header)?;
                self.meta.sync()?;
                sidecars.journal.clear()?;
                log::info!("{}: {undone}", self.path.display());
            }
            Verdict::Delete(plan, part) => {
                delete::move_entries(self, &plan, sidecars.sums.as_ref(), sidecars.names.as_ref())?;
                self.meta.write_header(&plan.new)?;
                self.meta.sync()?;
                self.show(Overlay::new(), &plan.new);
                delete::clean_up(self, sidecars, &plan, matches!(part, Part::Follows))?;
                let count = plan.old.length - plan.new.length;
                let text = format!(
                    "{}: a delete that was cut off is finished: {count} records went",
                    self.path.display()
                );
                match delete::keep_moves(self, sidecars, &plan) {
                    Ok(moves) => log::info!("{text}, the moves are in {}", moves.display()),
                    Err(e) => log::warn!("{text}; what moved is not kept: {e}"),
                }
            }
        }
        Ok(())
    }

    /// Makes checksums follow records that a compaction has moved before it could write so: those whose bytes they fit.
    fn follow_moves(&self, header: &Header, sums: &Sums) -> Result<()> {
        let state = self.state();
        for block in sums.blocks(header.length)? {
            let mut changed = Vec::new();
            for (index, slot) in block? {
                let words = self.meta.entry(index)?;
                let Slot::Row(row) = slot else { continue };
                let loc = RecordLoc::decode(words, header.version);
                let Some(loc) = loc.filter(|loc| row.loc != words && row.has_shape_of(loc)) else { continue };
                let mut bytes = Vec::new();
                super::resize(&mut bytes, loc.phys_length as usize)?;
                state.chunks.get(self.dir.as_ref(), loc.chunk_id)?.read(&mut bytes, loc.offset.into())?;
                if checksum(&bytes) == row.sum {
                    changed.push((index, Row { loc: words, ..row }.to_bytes()));
                }
            }
            sums.write_rows(&changed)?;
        }
        sums.sync()
    }

    fn judge(&self, header: &Header) -> Result<Verdict> {
        let refused = |text: &str| {
            let text = format!(
                "{}: the header's field version says that a delete or a compaction was cut off, and {text}",
                self.path.display()
            );
            Err(Error::new(ErrorKind::Damaged, text).with_help("`zrfs repair` keeps every good record"))
        };
        let Some(journal) = JournalFile::read(self.dir.as_ref()) else {
            return refused("its journal is damaged or missing");
        };
        let Work::Delete { doomed, partners } = journal.work else {
            return Ok(Verdict::Keep(
                "a compaction was cut off; every record is whole, compact again to free the rest",
            ));
        };
        let plan = Plan::new(*header, &doomed);
        let fits = journal.old == header.to_bytes()
            && journal.new == plan.new.to_bytes()
            && doomed.len() == (header.length as usize).div_ceil(8);
        if !fits {
            return refused("its journal is about another state of the store");
        }
        match partners {
            Partners::None => Ok(Verdict::Delete(plan, Part::Leads(Vec::new(), journal.step))),
            Partners::Leads(partners) => Ok(Verdict::Delete(plan, Part::Leads(partners, journal.step))),
            Partners::Follows(leader) if self.is_decided(&leader, journal.step)? => {
                Ok(Verdict::Delete(plan, Part::Follows))
            }
            Partners::Follows(_) => {
                Ok(Verdict::Keep("a delete that was cut off before it was decided is undone"))
            }
        }
    }

    /// Whether the leader's header says that `step` is to be finished.
    fn is_decided(&self, leader: &Partner, step: u64) -> Result<bool> {
        let (dir, path) = self.find(leader)?;
        let failed = |e| Error::io(format!("can't read {}", path.join(meta::NAME).display()), e);
        let file = dir.open(meta::NAME, Access::Read).map_err(failed)?;
        let mut bytes = [0; HEADER_BYTES];
        file.read_at(&mut bytes, 0).map_err(failed)?;
        let marked = matches!(Header::parse_any(&bytes), Ok((_, true)));
        Ok(marked && JournalFile::read(dir.as_ref()).is_some_and(|journal: Journal| journal.step == step))
    }

    /// The folder of a store that takes part in a step with this one.
    fn find(&self, partner: &Partner) -> Result<(Box<dyn Directory>, PathBuf)> {
        let beside = self.path.join(&partner.relative);
        for (way, path) in [(&partner.relative, beside), (&partner.absolute, partner.absolute.clone())] {
            if let Ok(dir) = self.dir.neighbour(way) {
                return Ok((dir, path));
            }
        }
        let text = format!(
            "{}: a delete from this store and {} was cut off, and that one is not there",
            self.path.display(),
            partner.absolute.display()
        );
        Err(Error::new(ErrorKind::NotFound, text)
            .with_help("put it back in its place; the delete is finished then"))
    }
}
