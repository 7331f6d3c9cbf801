//! Draws with replacement, and how to enter their stream far from its beginning.
//!
//! Sfc64 can't jump. States of the generator are kept at intervals as it runs; a seek goes on from the nearest one.

use std::fmt;
use std::sync::Arc;

use once_cell::race::OnceBox;

use super::sfc64::Sfc64;
use crate::error::{Error, ErrorKind, Result};

/// States kept, each an interval of draws from the next.
const CHECKPOINTS: usize = 4096;
/// Draws from one kept state to the next, as a power of two: drawing that many takes about a millisecond.
const INTERVAL_BITS: u32 = 20;
/// Draws of other ranks that one step passes over, at most: some tenths of a second's work.
pub(super) const MAX_BETWEEN: u64 = 1 << 28;

/// A stream of draws below `length`, and where it stands.
#[derive(Clone)]
pub(super) struct Iid {
    length: u64,
    seed: u64,
    generator: Sfc64,
    /// Draws done.
    drawn: u128,
    interval_bits: u32,
    /// State i is that before draw i · interval. Clones share them. Setting one never waits: a forked child may draw on,
    /// whatever the parent's threads were doing.
    checkpoints: Arc<[OnceBox<Sfc64>]>,
}

/// Without the kept states: there are thousands.
impl fmt::Debug for Iid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Iid { generator, drawn, .. } = self;
        f.debug_struct("Iid").field("generator", generator).field("drawn", drawn).finish_non_exhaustive()
    }
}

impl Iid {
    /// The stream of `seed`, before its first draw.
    pub(super) fn new(length: u64, seed: u64) -> Iid {
        Iid::with_interval(length, seed, INTERVAL_BITS)
    }

    /// As [`Iid::new`], with states 2^`interval_bits` draws apart. Tests reach the last of them sooner.
    pub(super) fn with_interval(length: u64, seed: u64, interval_bits: u32) -> Iid {
        let checkpoints = std::iter::repeat_with(OnceBox::new).take(CHECKPOINTS).collect();
        Iid { length, seed, generator: Sfc64::seeded(seed), drawn: 0, interval_bits, checkpoints }
    }

    /// The last draw that can be entered by a seek.
    fn reach(&self) -> u128 {
        (CHECKPOINTS as u128) << self.interval_bits
    }

    /// Fills `indices` with the next draws. About a nanosecond each.
    pub(super) fn draw(&mut self, indices: &mut [u64]) {
        let mut rest = indices;
        while !rest.is_empty() {
            let (now, later) = rest.split_at_mut(rest.len().min(self.to_checkpoint()));
            // A copy that lives in registers.
            let mut generator = self.generator;
            for index in now.iter_mut() {
                *index = generator.below(self.length);
            }
            self.generator = generator;
            self.have_drawn(now.len());
            rest = later;
        }
    }

    /// Passes over the next `draws`. About a nanosecond each.
    pub(super) fn skip(&mut self, draws: u64) {
        let mut left = draws;
        while left > 0 {
            let now = self.to_checkpoint().min(usize::try_from(left).unwrap_or(usize::MAX));
            let mut generator = self.generator;
            for _ in 0..now {
                generator.word();
            }
            self.generator = generator;
            self.have_drawn(now);
            left -= now as u64;
        }
    }

    /// Draws until the next place whose state is kept.
    fn to_checkpoint(&self) -> usize {
        let interval = 1_u128 << self.interval_bits;
        usize::try_from(interval - self.drawn % interval).unwrap_or(usize::MAX)
    }

    fn have_drawn(&mut self, draws: usize) {
        self.drawn = self.drawn.saturating_add(draws as u128);
        if self.drawn.is_multiple_of(1 << self.interval_bits)
            && let Some(checkpoint) = self.checkpoint(self.drawn)
            && checkpoint.get().is_none()
        {
            // Refused where a clone was faster; it is the same state.
            let _ = checkpoint.set(Box::new(self.generator));
        }
    }

    /// Where the state of the last place up to `draw` is kept.
    fn checkpoint(&self, draw: u128) -> Option<&OnceBox<Sfc64>> {
        self.checkpoints.get(usize::try_from(draw >> self.interval_bits).ok()?)
    }

    /// Goes to the place before draw `draw` (`None`: further than can be counted). About a millisecond where the states are kept
    /// that far, else as drawing all those between.
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`] past 2^32 draws. Then it stands where it stood.
    pub(super) fn seek(&mut self, draw: Option<u128>) -> Result<()> {
        let reach = self.reach();
        let draw = draw.filter(|&draw| draw <= reach).ok_or_else(|| {
            let text = format!("an iid stream can't be entered past draw {reach}: its generator can't jump");
            Error::new(ErrorKind::Unsupported, text)
                .with_help("go there step by step and keep the state, or take mode shuffle, which can jump")
        })?;
        let nearest = self.nearest(draw);
        // Where it stands may be nearer still.
        if !(nearest.0..=draw).contains(&self.drawn) {
            (self.drawn, self.generator) = nearest;
        }
        // Fits: at most `reach` from the beginning.
        self.skip(u64::try_from(draw - self.drawn).unwrap_or(u64::MAX));
        Ok(())
    }

    /// The kept state nearest to `draw` and not past it: the draws before it, and the generator there.
    pub(super) fn nearest(&self, draw: u128) -> (u128, Sfc64) {
        let last = usize::try_from(draw >> self.interval_bits).unwrap_or(usize::MAX);
        let kept = self.checkpoints.iter().enumerate().take(last.saturating_add(1)).rev();
        let found = kept.filter_map(|(i, checkpoint)| Some((i, *checkpoint.get()?))).next();
        match found {
            Some((i, generator)) => ((i as u128) << self.interval_bits, generator),
            None => (0, Sfc64::seeded(self.seed)),
        }
    }

    /// The generator's state, where a seek can't come.
    pub(super) fn words(&self) -> Option<[u64; 4]> {
        (self.drawn > self.reach()).then(|| self.generator.words())
    }

    /// As [`Iid::seek`]; where a seek can't come, goes on from `words`.
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`] past 2^32 draws without `words`, [`ErrorKind::Damaged`] where they are those of another place.
    pub(super) fn resume(&mut self, draw: Option<u128>, words: Option<[u64; 4]>) -> Result<()> {
        let (Some(place), Some(words)) = (draw.filter(|&draw| draw > self.reach()), words) else {
            return self.seek(draw);
        };
        let text = "the state's generator does not stand where its step says";
        self.generator =
            Sfc64::from_words(words, place).ok_or_else(|| Error::new(ErrorKind::Damaged, text))?;
        self.drawn = place;
        Ok(())
    }
}
