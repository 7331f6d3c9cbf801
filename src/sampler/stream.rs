//! The sampler: a stream, cut into steps, and where it stands.

use super::iid::{Iid, MAX_BETWEEN};
use super::shuffle::Shuffle;
use super::{Mode, SamplerOptions, SamplerState};
use crate::error::{Error, ErrorKind, Result};

/// An endless stream of indices, one batch a step.
///
/// The stream depends on the number of records, [`SamplerOptions::mode`] and [`SamplerOptions::seed`] alone, and is the same in
/// every release. In memory it is a few hundred bytes, whatever the number of records (iid: 32 KiB, and up to 256 KiB
/// more as it runs, which clones share).
///
/// ```
/// use zrfs::{Mode, Sampler, SamplerOptions};
///
/// # fn main() -> zrfs::Result<()> {
/// let options = SamplerOptions { mode: Mode::Shuffle, seed: 7, batch_size: 4, ..Default::default() };
/// let mut sampler = Sampler::new(10, &options)?;
/// let mut seen = Vec::new();
/// for _ in 0..5 {
///     let mut indices = [0; 4];
///     sampler.next(&mut indices)?;
///     seen.extend(indices);
/// }
/// // 20 draws from 10 records: two passes, each with every index once.
/// for pass in seen.chunks(10) {
///     let mut sorted = pass.to_vec();
///     sorted.sort();
///     assert_eq!(sorted, [0, 1, 2, 3, 4, 5, 6, 7, 8, 9]);
/// }
///
/// sampler.seek(3)?;
/// let mut again = [0; 4];
/// sampler.next(&mut again)?;
/// assert_eq!(again, seen[12..16]);
/// # Ok(())
/// # }
/// ```
///
/// Ranks share a stream: each takes the steps that the others leave. In shuffle mode all of them together see every index
/// once a pass.
///
/// ```
/// use zrfs::{Mode, Sampler, SamplerOptions};
///
/// # fn main() -> zrfs::Result<()> {
/// let mut seen = Vec::new();
/// for rank in 0..3 {
///     let options = SamplerOptions { mode: Mode::Shuffle, batch_size: 2, rank, world: 3, ..Default::default() };
///     let mut sampler = Sampler::new(12, &options)?;
///     let mut indices = [0; 2];
///     for _ in 0..2 {
///         sampler.next(&mut indices)?;
///         seen.extend(indices);
///     }
/// }
/// seen.sort();
/// assert_eq!(seen, [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11]);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Sampler {
    length: u64,
    options: SamplerOptions,
    /// The step that comes next, counted by this rank.
    step: u64,
    pub(super) draws: Draws,
}

#[derive(Clone, Debug)]
pub(super) enum Draws {
    Sequential,
    /// Stands at the first draw of the next step.
    Iid(Iid),
    Shuffle(Shuffle),
}

impl Sampler {
    /// A stream over the indices `0..length`, before its step 0.
    ///
    /// Costs a few microseconds; in iid mode also a nanosecond for each draw of the ranks before this one.
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`] for a length of 0, and in iid mode where the other ranks' draws in a step are more
    /// than 2^28; [`ErrorKind::Geometry`] for a batch size or world of 0 and for a rank that is not below world.
    pub fn new(length: u64, options: &SamplerOptions) -> Result<Sampler> {
        Sampler::with_iid(length, options, Iid::new)
    }

    /// As [`Sampler::new`], with a stream of draws with replacement that `iid` makes.
    pub(super) fn with_iid(
        length: u64,
        options: &SamplerOptions,
        iid: impl FnOnce(u64, u64) -> Iid,
    ) -> Result<Sampler> {
        options.check(length)?;
        let draws = match options.mode {
            Mode::Sequential => Draws::Sequential,
            Mode::Iid => Draws::Iid(iid(length, options.seed)),
            Mode::Shuffle => Draws::Shuffle(Shuffle::new(length, options.seed)),
        };
        // Other ranks' iid draws have to be drawn to be passed over. Without a bound a step might never end.
        if options.mode == Mode::Iid && options.draws_between().is_none_or(|draws| draws > MAX_BETWEEN) {
            let text = format!(
                "{} ranks of {} indices a step are more than iid mode can pass over",
                options.world, options.batch_size
            );
            return Err(Error::new(ErrorKind::Unsupported, text)
                .with_help("give each rank a seed of its own, or take mode shuffle"));
        }
        let mut sampler = Sampler { length, options: options.clone(), step: 0, draws };
        sampler.seek(0)?;
        Ok(sampler)
    }

    /// The sampler that was in `state`, over `length` records: its next step is the one that would have come.
    ///
    /// Costs as much as [`Sampler::seek`]; past 2^32 iid draws, where the state has the generator's words, microseconds.
    ///
    /// ```
    /// use zrfs::{Sampler, SamplerOptions, SamplerState};
    ///
    /// # fn main() -> zrfs::Result<()> {
    /// let mut sampler = Sampler::new(1000, &SamplerOptions { batch_size: 8, ..Default::default() })?;
    /// let mut expected = [0; 8];
    /// sampler.next(&mut expected)?; // step 0
    /// let saved = sampler.state().to_json();
    /// sampler.next(&mut expected)?; // step 1, lost in a crash
    ///
    /// let state = SamplerState::from_json(saved.as_bytes())?;
    /// let mut resumed = Sampler::restore(&state, 1000)?;
    /// let mut indices = [0; 8];
    /// resumed.next(&mut indices)?;
    /// assert_eq!(indices, expected);
    ///
    /// // More records have come: to go on over all of them is another stream, and has to be asked for.
    /// assert!(Sampler::restore(&state, 1200).is_err());
    /// let longer = Sampler::restore(&state.with_length(1200), 1200)?;
    /// assert_eq!(longer.step(), 1);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`ErrorKind::Geometry`] where `length` is not the state's; [`ErrorKind::Damaged`] where the generator's words are not
    /// those of the state's step; and as [`Sampler::new`] and [`Sampler::seek`].
    pub fn restore(state: &SamplerState, length: u64) -> Result<Sampler> {
        Sampler::restore_with(state, length, Iid::new)
    }

    /// As [`Sampler::restore`], with a stream of draws with replacement that `iid` makes.
    pub(super) fn restore_with(
        state: &SamplerState,
        length: u64,
        iid: impl FnOnce(u64, u64) -> Iid,
    ) -> Result<Sampler> {
        if state.length != length {
            let text = format!("the sampler's state is that of {} records, here are {length}", state.length);
            return Err(Error::new(ErrorKind::Geometry, text)
                .with_help(
                    "resume with the length that it had (`LoaderBuilder::length` keeps to it), or give the state its new one \
                     by `SamplerState::with_length`",
                ));
        }
        let mut sampler = Sampler::with_iid(length, &state.options(), iid)?;
        let draw = sampler.first_draw(state.step);
        match &mut sampler.draws {
            Draws::Iid(iid) => iid.resume(draw, state.generator)?,
            Draws::Sequential | Draws::Shuffle(_) => {}
        }
        sampler.step = state.step;
        Ok(sampler)
    }

    /// Fills `indices` with the next step and goes on to the one after it. After step `u64::MAX` comes step 0.
    ///
    /// Costs nanoseconds for each index; in iid mode also for each index of the other ranks. Never allocates in
    /// proportion to the number of records.
    ///
    /// # Errors
    /// [`ErrorKind::Geometry`] where `indices` is not one batch long. Then no step is taken.
    pub fn next(&mut self, indices: &mut [u64]) -> Result<()> {
        if indices.len() != self.options.batch_size {
            let text =
                format!("a step has {} indices, the buffer {}", self.options.batch_size, indices.len());
            return Err(
                Error::new(ErrorKind::Geometry, text).with_help("it has to be as long as the batch size")
            );
        }
        let (pass, place) = self.pass_and_place(self.step);
        match &mut self.draws {
            Draws::Sequential => count_up(place, self.length, indices),
            Draws::Iid(iid) => iid.draw(indices),
            Draws::Shuffle(shuffle) => shuffle.draw(pass, place, indices),
        }
        let Some(step) = self.step.checked_add(1) else { return self.seek(0) };
        self.step = step;
        if let Draws::Iid(iid) = &mut self.draws {
            // The constructor has checked that they can be counted.
            iid.skip(self.options.draws_between().unwrap_or_default());
        }
        Ok(())
    }

    /// Goes to `step`: what [`Sampler::next`] gives then is what it gives after that many steps from the start.
    ///
    /// Costs nanoseconds in sequential and shuffle mode. In iid mode all draws before it have to be drawn once, about
    /// a nanosecond each; the sampler and its clones keep the generator's state every 2^20 draws, so going anywhere up to
    /// where one of them has been takes a millisecond.
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`] in iid mode for steps past draw 2^32 of all ranks together. [`Sampler::next`] goes on past
    /// it, and [`Sampler::restore`] comes back there.
    pub fn seek(&mut self, step: u64) -> Result<()> {
        let draw = self.first_draw(step);
        if let Draws::Iid(iid) = &mut self.draws {
            iid.seek(draw)?;
        }
        self.step = step;
        Ok(())
    }

    /// The step that comes next, counted by this rank from 0.
    pub fn step(&self) -> u64 {
        self.step
    }

    /// Number of records: every index is below it.
    pub fn length(&self) -> u64 {
        self.length
    }

    /// What the sampler was made with.
    pub fn options(&self) -> &SamplerOptions {
        &self.options
    }

    /// Where the sampler stands, to be kept and given to [`Sampler::restore`]. Costs nanoseconds.
    pub fn state(&self) -> SamplerState {
        let SamplerOptions { mode, seed, batch_size, rank, world } = self.options;
        let generator = match &self.draws {
            Draws::Iid(iid) => iid.words(),
            Draws::Sequential | Draws::Shuffle(_) => None,
        };
        SamplerState { mode, seed, batch_size, length: self.length, step: self.step, rank, world, generator }
    }

    /// The step among those of all ranks. No step of no rank overflows a u128.
    fn global(&self, step: u64) -> u128 {
        u128::from(step) * u128::from(self.options.world) + u128::from(self.options.rank)
    }

    /// Draws before `step`; `None` where no u128 holds them.
    fn first_draw(&self, step: u64) -> Option<u128> {
        self.global(step).checked_mul(self.options.batch_size as u128)
    }

    /// Where the first draw of `step` is: the pass, modulo 2^128, and the place in it.
    fn pass_and_place(&self, step: u64) -> (u128, u64) {
        let (batch, length) = (self.options.batch_size as u128, u128::from(self.length));
        let global = self.global(step);
        // global · batch may need 192 bits. As global = whole · length + part, it is whole · batch passes, which may wrap,
        // and part · batch draws, which fit.
        let (whole, part) = (global / length, global % length);
        let draws = part * batch;
        let pass = whole.wrapping_mul(batch).wrapping_add(draws / length);
        (pass, u64::try_from(draws % length).unwrap_or_default())
    }
}

/// Fills `indices` from `place` on, modulo `length`.
fn count_up(place: u64, length: u64, indices: &mut [u64]) {
    let mut next = place;
    for index in indices {
        *index = next;
        next = if next == length - 1 { 0 } else { next + 1 };
    }
}
