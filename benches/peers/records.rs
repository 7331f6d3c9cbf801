//! Records of one store: gathers and appends.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::time::Instant;

use zrfs::{Codec, Store, Version};

use crate::common::{batches, checksum};
use crate::{Outcome, Words};

/// The store that is open, and what is appended.
#[derive(Default)]
pub(crate) struct Records {
    store: Option<Store>,
    source: Vec<u8>,
}

impl Records {
    pub(crate) fn open(&mut self, words: &mut Words<'_>) -> Outcome<Vec<u64>> {
        let store = Store::open_read_only(words.text()?)?;
        let len = store.len();
        self.store = Some(store);
        Ok(vec![len])
    }

    pub(crate) fn close(&mut self) -> Outcome<Vec<u64>> {
        self.store = None;
        Ok(vec![])
    }

    fn store(&self) -> Outcome<&Store> {
        self.store.as_ref().ok_or_else(|| "no store is open".into())
    }

    pub(crate) fn gather(&self, words: &mut Words<'_>) -> Outcome<Vec<u64>> {
        let store = self.store()?;
        let (item_len, batch, rounds): (usize, usize, usize) =
            (words.number()?, words.number()?, words.number()?);
        let batches = batches(words.number()?, store.len(), batch, rounds);
        // Not of zeros: that memory would be mapped when it is written to, while the clock runs.
        let mut dst = vec![1u8; item_len * batch];
        match words.text()? {
            // Wakes the threads; all sides do it.
            "warm" => store.gather(batches.last().ok_or("no rounds")?, &mut dst, item_len)?,
            "cold" => {}
            other => return Err(format!("unknown mode {other}").into()),
        }
        let clock = Instant::now();
        for indices in &batches {
            store.gather(indices, &mut dst, item_len)?;
        }
        let time = clock.elapsed();
        Ok(vec![time.as_nanos() as u64, checksum(&dst)])
    }

    pub(crate) fn check(&self, words: &mut Words<'_>) -> Outcome<Vec<u64>> {
        let store = self.store()?;
        let (item_len, batch, rounds): (usize, usize, usize) =
            (words.number()?, words.number()?, words.number()?);
        let batches = batches(words.number()?, store.len(), batch, rounds);
        sums(store, item_len, batches.iter().map(Vec::as_slice))
    }

    pub(crate) fn whole(&self, words: &mut Words<'_>) -> Outcome<Vec<u64>> {
        let store = self.store()?;
        let (item_len, batch): (usize, usize) = (words.number()?, words.number()?);
        let indices: Vec<u64> = (0..store.len()).collect();
        sums(store, item_len, indices.chunks(batch))
    }

    pub(crate) fn load(&mut self, words: &mut Words<'_>) -> Outcome<Vec<u64>> {
        let file = File::open(words.text()?)?;
        let (offset, len): (u64, usize) = (words.number()?, words.number()?);
        self.source = vec![0; len];
        file.read_exact_at(&mut self.source, offset)?;
        Ok(vec![])
    }

    pub(crate) fn append(&self, words: &mut Words<'_>) -> Outcome<Vec<u64>> {
        let path = words.text()?;
        let codec = match words.text()? {
            "raw" => Codec::Raw,
            "flate" => Codec::default(),
            other => return Err(format!("unknown codec {other}").into()),
        };
        let (item_len, step): (usize, usize) = (words.number()?, words.number()?);
        let store = Store::create(path, Version::V1)?;
        let clock = Instant::now();
        for block in self.source.chunks(item_len * step) {
            store.append(block, item_len, codec)?;
        }
        let appended = clock.elapsed();
        let clock = Instant::now();
        store.sync()?;
        let synced = clock.elapsed();
        Ok(vec![appended.as_nanos() as u64, synced.as_nanos() as u64])
    }
}

/// An empty store, for a side that can't create one outside of its timing.
pub(crate) fn create(words: &mut Words<'_>) -> Outcome<Vec<u64>> {
    Store::create(words.text()?, Version::V1)?;
    Ok(vec![])
}

/// The checksum of each batch.
fn sums<'a>(store: &Store, item_len: usize, batches: impl Iterator<Item = &'a [u64]>) -> Outcome<Vec<u64>> {
    let mut dst = Vec::new();
    batches
        .map(|indices| {
            dst.resize(item_len * indices.len(), 0);
            store.gather(indices, &mut dst, item_len)?;
            Ok(checksum(&dst))
        })
        .collect()
}
