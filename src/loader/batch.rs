//! A batch: the records of one step, in every stream.

use std::sync::Arc;

use ndarray::ArrayViewD;

use super::buffers::{Block, Buffers, Pool};
use super::stream::Stream;
use crate::dataset::{Element, Schema};
use crate::error::{Error, ErrorKind, Result};

/// The names of a loader's streams, and what each one is.
pub(super) struct Streams(Vec<(String, Stream)>);

impl Streams {
    pub(super) fn new(streams: Vec<(String, Stream)>) -> Streams {
        Streams(streams)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &(String, Stream)> {
        self.0.iter()
    }

    /// The stream `name`, and its place.
    fn find(&self, name: &str) -> Result<(usize, &Stream)> {
        let place = self.0.iter().position(|(known, _)| known == name);
        let found = place.and_then(|place| Some((place, &self.0.get(place)?.1)));
        found.ok_or_else(|| {
            let names: Vec<&str> = self.0.iter().map(|(name, _)| name.as_str()).collect();
            let text = format!("no stream is called {name:?}; there are {}", names.join(", "));
            Error::new(ErrorKind::NotFound, text)
        })
    }
}

/// The records of one step. Its memory goes back to the loader when it is dropped.
pub struct Batch {
    step: u64,
    streams: Arc<Streams>,
    buffers: Buffers,
    pool: Arc<Pool>,
}

impl Batch {
    pub(super) fn new(step: u64, streams: Arc<Streams>, buffers: Buffers, pool: Arc<Pool>) -> Batch {
        Batch { step, streams, buffers, pool }
    }

    /// Gathers the records of its indices; `false` where `stop` said so in between. A stream's part may have at most
    /// `most` bytes.
    pub(super) fn fill(&mut self, most: usize, stop: impl Fn() -> bool) -> Result<bool> {
        let Buffers { indices, blocks } = &mut self.buffers;
        for ((name, stream), block) in self.streams.iter().zip(blocks) {
            let gathered = stream.gather(indices, block, most, &stop);
            if !gathered.map_err(|e| e.within(&format!("stream {name:?}")))? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Which step it is.
    pub fn step(&self) -> u64 {
        self.step
    }

    /// Number of records.
    pub fn len(&self) -> usize {
        self.indices().len()
    }

    /// Whether it has no record, which no loader's batch is.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The index of each record, the same in every stream.
    pub fn indices(&self) -> &[u64] {
        &self.buffers.indices
    }

    /// dtype and shape of a dense stream's records; `None` of a ragged one.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`] where no stream has that name.
    pub fn schema(&self, name: &str) -> Result<Option<&Schema>> {
        Ok(self.streams.find(name)?.1.schema())
    }

    /// The records of a dense stream as an array of shape (batch size, shape of one), without a copy.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`]; [`ErrorKind::Unsupported`] where `T` is not the stream's dtype, and of a ragged stream;
    /// [`ErrorKind::Damaged`] where a byte of a bool is neither 0 nor 1.
    pub fn view<T: Element>(&self, name: &str) -> Result<ArrayViewD<'_, T>> {
        let (stream, block) = self.find(name)?;
        let schema = stream.schema().ok_or_else(|| {
            let text = format!("the records of stream {name:?} have no dtype");
            Error::new(ErrorKind::Unsupported, text).with_help("take their bytes")
        })?;
        schema.view(block.bytes.bytes(), self.len())
    }

    /// The bytes of a stream's records, one after another. They begin at a multiple of 16.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`].
    pub fn bytes(&self, name: &str) -> Result<&[u8]> {
        Ok(self.find(name)?.1.bytes.bytes())
    }

    /// As [`Batch::bytes`], to be changed in place by a transform.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`].
    pub fn bytes_mut(&mut self, name: &str) -> Result<&mut [u8]> {
        let (place, _) = self.streams.find(name)?;
        let block = self.buffers.blocks.get_mut(place);
        Ok(block.map(|block| block.bytes.bytes_mut()).unwrap_or_default())
    }

    /// Where each record of a ragged stream begins in [`Batch::bytes`], and behind them where the last one ends:
    /// `len() + 1` numbers.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`]; [`ErrorKind::Unsupported`] of a dense stream, whose records have one length.
    pub fn offsets(&self, name: &str) -> Result<&[u64]> {
        let (stream, block) = self.find(name)?;
        if stream.schema().is_some() {
            let text = format!("the records of stream {name:?} have one length and no offsets");
            return Err(Error::new(ErrorKind::Unsupported, text).with_help("take a view"));
        }
        Ok(&block.offsets)
    }

    /// The bytes of the record in place `i` of a stream.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`]; [`ErrorKind::OutOfRange`] where the batch has no such place.
    pub fn record(&self, name: &str, i: usize) -> Result<&[u8]> {
        let (stream, block) = self.find(name)?;
        let bytes = block.bytes.bytes();
        let range = match stream.schema() {
            Some(_) => {
                let item = bytes.len() / self.len().max(1);
                i.checked_mul(item).and_then(|begin| Some(begin..begin.checked_add(item)?))
            }
            None => {
                let offset = |i: usize| block.offsets.get(i).and_then(|&offset| usize::try_from(offset).ok());
                offset(i).zip(i.checked_add(1).and_then(offset)).map(|(begin, end)| begin..end)
            }
        };
        let found = range.filter(|_| i < self.len()).and_then(|range| bytes.get(range));
        found.ok_or_else(|| {
            Error::new(ErrorKind::OutOfRange, format!("no record {i}: the batch has {}", self.len()))
        })
    }

    fn find(&self, name: &str) -> Result<(&Stream, &Block)> {
        let (place, stream) = self.streams.find(name)?;
        // A block a stream: the pool makes no others.
        let block = self.buffers.blocks.get(place);
        block
            .map(|block| (stream, block))
            .ok_or_else(|| Error::new(ErrorKind::NotFound, "the batch is empty"))
    }
}

impl Drop for Batch {
    fn drop(&mut self) {
        self.pool.give_back(std::mem::take(&mut self.buffers));
    }
}

impl std::fmt::Debug for Batch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Batch").field("step", &self.step).field("len", &self.len()).finish_non_exhaustive()
    }
}
