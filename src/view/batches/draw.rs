//! Which records a step is of.
//!
//! Shared by all readers of an epoch: samplers that wait for their next use, and the indices of large steps, each behind a
//! mutex that is held to take one out or put it back, and never while drawing.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::error::{Error, ErrorKind, Result};
use crate::sampler::{Mode, Sampler, SamplerOptions};

/// Steps of at least so many indices are kept for a while, as many parts are made of one.
const LARGE: usize = 1 << 13;
/// Indices that are kept, or one step.
const KEPT: usize = 1 << 21;
/// Samplers that are kept, each where a reader is.
const SAMPLERS: usize = 16;
/// The last draw that a step of an iid stream may begin with: see [`Sampler::seek`].
const IID_REACH: u128 = 1 << 32;

type Step = (u64, Arc<Vec<u64>>);

/// The stream of one epoch.
pub(super) struct Draws {
    template: Sampler,
    samplers: Mutex<Vec<Sampler>>,
    /// Last used last.
    large: Mutex<Vec<Step>>,
}

impl Draws {
    pub(super) fn new(length: u64, options: &SamplerOptions) -> Result<Draws> {
        let template = Sampler::new(length, options)?;
        Ok(Draws { template, samplers: Mutex::default(), large: Mutex::default() })
    }

    /// Whether `step` can be drawn.
    pub(super) fn reaches(&self, step: u64) -> bool {
        let options = self.template.options();
        options.mode != Mode::Iid || u128::from(step) * options.batch_size as u128 <= IID_REACH
    }

    /// Begins to draw: best one step after another.
    pub(super) fn begin(&self) -> Drawing<'_> {
        Drawing { draws: self, sampler: None, at: None, indices: Arc::default() }
    }

    /// A sampler that is at `step`, or as near before it as there is one.
    fn take(&self, step: u64) -> Sampler {
        let mut samplers = lock(&self.samplers);
        let before = samplers.iter().enumerate().filter(|(_, sampler)| sampler.step() <= step);
        match before.max_by_key(|(_, sampler)| sampler.step()).map(|(at, _)| at) {
            Some(at) => samplers.swap_remove(at),
            None => self.template.clone(),
        }
    }

    fn large(&self, step: u64) -> Option<Arc<Vec<u64>>> {
        let mut large = lock(&self.large);
        let at = large.iter().position(|(kept, _)| *kept == step)?;
        let found = large.remove(at);
        let indices = Arc::clone(&found.1);
        large.push(found);
        Some(indices)
    }

    fn keep(&self, step: u64, indices: &Arc<Vec<u64>>) {
        let mut large = lock(&self.large);
        large.retain(|(kept, _)| *kept != step);
        large.push((step, Arc::clone(indices)));
        let most = (KEPT / indices.len().max(1)).max(1);
        let old = large.len().saturating_sub(most);
        large.drain(..old);
    }
}

/// Steps that are drawn one after another.
pub(super) struct Drawing<'a> {
    draws: &'a Draws,
    sampler: Option<Sampler>,
    at: Option<u64>,
    indices: Arc<Vec<u64>>,
}

impl Drawing<'_> {
    /// The indices of `step`. Costs nanoseconds an index; see [`Sampler::seek`] for what it costs to get there.
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`] past the last step of an iid stream, [`ErrorKind::Memory`].
    pub(super) fn step(&mut self, step: u64) -> Result<&[u64]> {
        if self.at != Some(step) {
            // Until it is drawn.
            self.at = None;
            self.draw(step)?;
            self.at = Some(step);
        }
        Ok(&self.indices)
    }

    fn draw(&mut self, step: u64) -> Result<()> {
        let batch = self.draws.template.options().batch_size;
        let is_large = batch >= LARGE;
        if is_large && let Some(indices) = self.draws.large(step) {
            self.indices = indices;
            return Ok(());
        }
        if !self.draws.reaches(step) {
            let text = format!(
                "step {step} of the iid stream lies past draw 2^32, the last one that can be entered"
            );
            return Err(Error::new(ErrorKind::Unsupported, text).with_help("mount with -o mode=shuffle"));
        }
        let sampler = self.sampler.get_or_insert_with(|| self.draws.take(step));
        if sampler.step() != step {
            sampler.seek(step)?;
        }
        let mut indices = Arc::try_unwrap(std::mem::take(&mut self.indices)).unwrap_or_default();
        indices.try_reserve_exact(batch.saturating_sub(indices.len())).map_err(|_| {
            Error::new(ErrorKind::Memory, format!("there is no memory for a step of {batch} indices"))
        })?;
        indices.resize(batch, 0);
        sampler.next(&mut indices)?;
        self.indices = Arc::new(indices);
        if is_large {
            self.draws.keep(step, &self.indices);
        }
        Ok(())
    }
}

impl Drop for Drawing<'_> {
    fn drop(&mut self) {
        let Some(sampler) = self.sampler.take() else { return };
        let mut samplers = lock(&self.draws.samplers);
        if samplers.len() >= SAMPLERS {
            samplers.remove(0);
        }
        samplers.push(sampler);
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
