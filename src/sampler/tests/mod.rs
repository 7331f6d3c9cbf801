//! Streams as callers see them, and what statistics say about the shuffle.

mod far;
mod orders;
mod shares;
mod statistics;

use super::iid::Iid;
use super::stream::Draws;
use super::{Mode, Sampler, SamplerOptions, SamplerState};

const MODES: [Mode; 3] = [Mode::Sequential, Mode::Iid, Mode::Shuffle];

fn options(mode: Mode, seed: u64, batch_size: usize) -> SamplerOptions {
    SamplerOptions { mode, seed, batch_size, ..Default::default() }
}

/// The next `steps` steps, one after another.
fn take(sampler: &mut Sampler, steps: usize) -> Vec<u64> {
    let mut indices = vec![0; steps * sampler.options().batch_size];
    for step in indices.chunks_mut(sampler.options().batch_size) {
        sampler.next(step).unwrap();
    }
    indices
}

/// The first draws of a stream.
fn stream(mode: Mode, seed: u64, length: u64, draws: usize) -> Vec<u64> {
    take(&mut Sampler::new(length, &options(mode, seed, draws)).unwrap(), 1)
}
