//! The memory of batches, used again and again.
//!
//! Shared: the free ones, behind a mutex that is held for a push or a pop. So many are kept as the workers may have in use.

use std::sync::{Mutex, PoisonError};

use crate::error::{Error, ErrorKind, Result};

/// Bytes at an address that is a multiple of 16, so that numbers of any type can be seen in them.
#[derive(Default)]
pub(super) struct AlignedBytes {
    words: Vec<u128>,
    len: usize,
}

impl AlignedBytes {
    /// Makes it `len` bytes long; what is in them is unspecified.
    ///
    /// # Errors
    /// [`ErrorKind::Memory`] where they can't be had.
    pub(super) fn resize(&mut self, len: usize) -> Result<()> {
        let words = len.div_ceil(size_of::<u128>());
        if let Some(more) = words.checked_sub(self.words.len()) {
            self.words.try_reserve_exact(more).map_err(|_| {
                Error::new(ErrorKind::Memory, format!("there is no memory for a batch of {len} bytes"))
                    .with_help("take smaller batches, or fewer ahead")
            })?;
            self.words.resize(words, 0);
        }
        self.len = len;
        Ok(())
    }

    pub(super) fn bytes(&self) -> &[u8] {
        bytemuck::cast_slice(&self.words).get(..self.len).unwrap_or_default()
    }

    pub(super) fn bytes_mut(&mut self) -> &mut [u8] {
        bytemuck::cast_slice_mut(&mut self.words).get_mut(..self.len).unwrap_or_default()
    }
}

/// The memory of one stream's part of a batch.
#[derive(Default)]
pub(super) struct Block {
    pub(super) bytes: AlignedBytes,
    /// Of ragged records: where each begins, and where the last one ends.
    pub(super) offsets: Vec<u64>,
    /// Of ragged records: their lengths.
    pub(super) lengths: Vec<u32>,
}

/// The memory of a batch.
#[derive(Default)]
pub(super) struct Buffers {
    pub(super) indices: Vec<u64>,
    /// One a stream.
    pub(super) blocks: Vec<Block>,
}

pub(super) struct Pool {
    free: Mutex<Vec<Buffers>>,
    /// How many are kept.
    most: usize,
    batch_size: usize,
    streams: usize,
}

impl Pool {
    pub(super) fn new(most: usize, batch_size: usize, streams: usize) -> Pool {
        Pool { free: Mutex::default(), most, batch_size, streams }
    }

    pub(super) fn take(&self) -> Buffers {
        let free = self.free.lock().unwrap_or_else(PoisonError::into_inner).pop();
        free.unwrap_or_else(|| Buffers {
            indices: vec![0; self.batch_size],
            blocks: (0..self.streams).map(|_| Block::default()).collect(),
        })
    }

    pub(super) fn give_back(&self, buffers: Buffers) {
        let mut free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
        if free.len() < self.most {
            free.push(buffers);
        }
    }
}
