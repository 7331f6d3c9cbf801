//! The memory of batches, used again and again.
//!
//! Shared: the free ones, behind a mutex that is held for a push or a pop. So many are kept as may be in use while the
//! caller has one batch at a time. They are used in turn, so that none stays large for long.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};

use crate::error::{Error, ErrorKind, Result};

/// Bytes at an address that is a multiple of 16, so that numbers of any type can be seen in them.
#[derive(Default)]
pub(super) struct AlignedBytes {
    words: Box<[u128]>,
    len: usize,
}

/// Memory is given back where it is more than so many times what is asked for now: a rare large batch takes it for a while
/// only.
const SPARE: usize = 4;
/// Words that are kept in any case.
const FLOOR: usize = (1 << 20) / size_of::<u128>();

impl AlignedBytes {
    /// Makes it `len` bytes long; what is in them is unspecified. New memory is not touched: that is left to who fills it,
    /// piece by piece.
    ///
    /// # Errors
    /// [`ErrorKind::Memory`] where they can't be had.
    pub(super) fn resize(&mut self, len: usize) -> Result<()> {
        let words = len.div_ceil(size_of::<u128>());
        if words > self.words.len() || self.words.len() / SPARE > words.max(FLOOR) {
            // The old memory goes first.
            self.words = Box::default();
            self.words = bytemuck::allocation::try_zeroed_slice_box(words).map_err(|()| {
                Error::new(ErrorKind::Memory, format!("there is no memory for a batch of {len} bytes"))
                    .with_help("take smaller batches, or fewer ahead")
            })?;
        }
        self.len = len;
        Ok(())
    }

    /// Bytes of memory that it has.
    #[cfg(test)]
    pub(super) fn room(&self) -> usize {
        size_of_val(&*self.words)
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
    free: Mutex<VecDeque<Buffers>>,
    /// How many are kept.
    most: usize,
    batch_size: usize,
    streams: usize,
    process: u32,
}

impl Pool {
    pub(super) fn new(most: usize, batch_size: usize, streams: usize) -> Pool {
        Pool { free: Mutex::default(), most, batch_size, streams, process: std::process::id() }
    }

    pub(super) fn take(&self) -> Buffers {
        let free = self.free.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
        free.unwrap_or_else(|| Buffers {
            indices: vec![0; self.batch_size],
            blocks: (0..self.streams).map(|_| Block::default()).collect(),
        })
    }

    /// How many are free.
    #[cfg(test)]
    pub(super) fn free(&self) -> usize {
        self.free.lock().unwrap_or_else(PoisonError::into_inner).len()
    }

    pub(super) fn give_back(&self, buffers: Buffers) {
        // In a forked child nobody makes batches, and a worker that is gone may hold the mutex.
        if self.process != std::process::id() {
            return;
        }
        let mut free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
        if free.len() < self.most {
            free.push_back(buffers);
        }
    }
}
