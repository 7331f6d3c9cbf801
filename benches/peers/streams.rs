//! Endless streams: of indices and of batches.

use std::hint::black_box;
use std::time::Instant;

use zrfs::{Dataset, Loader, Mode, Sampler, SamplerOptions};

use crate::common::{BATCH, checksum};
use crate::{Outcome, Words};

/// The loader that is running.
#[derive(Default)]
pub(crate) struct Streams {
    loader: Option<Loader>,
}

impl Streams {
    pub(crate) fn stream(&mut self, words: &mut Words<'_>) -> Outcome<Vec<u64>> {
        let clock = Instant::now();
        let data = Dataset::open_read_only(words.text()?)?;
        let label = Dataset::open_read_only(words.text()?)?;
        let mut builder = Loader::builder().stream("data", data).stream("label", label);
        let (workers, prefetch): (usize, usize) = (words.number()?, words.number()?);
        if workers > 0 {
            builder = builder.workers(workers);
        }
        if prefetch > 0 {
            builder = builder.prefetch(prefetch);
        }
        self.loader = Some(builder.sampler(options(Mode::Iid, words.number()?)).build()?);
        Ok(vec![clock.elapsed().as_nanos() as u64])
    }

    fn loader(&mut self) -> Outcome<&mut Loader> {
        self.loader.as_mut().ok_or_else(|| "no loader is running".into())
    }

    pub(crate) fn batches(&mut self, words: &mut Words<'_>) -> Outcome<Vec<u64>> {
        let (before, steps): (usize, usize) = (words.number()?, words.number()?);
        let loader = self.loader()?;
        for _ in 0..before {
            loader.next_batch()?;
        }
        let clock = Instant::now();
        for _ in 0..steps {
            black_box(loader.next_batch()?);
        }
        Ok(vec![clock.elapsed().as_nanos() as u64])
    }

    pub(crate) fn batch_sums(&mut self, words: &mut Words<'_>) -> Outcome<Vec<u64>> {
        let steps: usize = words.number()?;
        let loader = self.loader()?;
        let mut sums = Vec::new();
        for _ in 0..steps {
            let batch = loader.next_batch()?;
            sums.extend([checksum(batch.bytes("data")?), checksum(batch.bytes("label")?)]);
        }
        Ok(sums)
    }
}

fn options(mode: Mode, seed: u64) -> SamplerOptions {
    SamplerOptions { mode, seed, batch_size: BATCH, ..SamplerOptions::default() }
}

fn sampler(words: &mut Words<'_>) -> Outcome<Sampler> {
    let mode: u8 = words.number()?;
    let mode = Mode::from_number(mode).ok_or_else(|| format!("unknown mode {mode}"))?;
    let (length, seed): (u64, u64) = (words.number()?, words.number()?);
    Ok(Sampler::new(length, &options(mode, seed))?)
}

pub(crate) fn indices(words: &mut Words<'_>) -> Outcome<Vec<u64>> {
    let mut sampler = sampler(words)?;
    let mut indices = vec![0; BATCH * words.number::<usize>()?];
    indices.chunks_mut(BATCH).try_for_each(|batch| sampler.next(batch))?;
    Ok(indices)
}

pub(crate) fn draw(words: &mut Words<'_>) -> Outcome<Vec<u64>> {
    let mut sampler = sampler(words)?;
    let steps: usize = words.number()?;
    let mut batch = [0; BATCH];
    sampler.next(&mut batch)?;
    let clock = Instant::now();
    for _ in 0..steps {
        sampler.next(black_box(&mut batch))?;
    }
    let time = clock.elapsed();
    Ok(vec![time.as_nanos() as u64, checksum_of(&batch)])
}

pub(crate) fn seek(words: &mut Words<'_>) -> Outcome<Vec<u64>> {
    let mut sampler = sampler(words)?;
    let step: u64 = words.number()?;
    let mut answer = Vec::new();
    for _ in 0..2 {
        let clock = Instant::now();
        sampler.seek(step)?;
        answer.push(clock.elapsed().as_nanos() as u64);
        let mut batch = [0; BATCH];
        sampler.next(&mut batch)?;
        answer.push(checksum_of(&batch));
        sampler.seek(0)?;
    }
    Ok(answer)
}

fn checksum_of(batch: &[u64]) -> u64 {
    let bytes: Vec<u8> = batch.iter().flat_map(|index| index.to_le_bytes()).collect();
    checksum(&bytes)
}
