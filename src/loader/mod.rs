//! Endless batches of aligned streams, gathered ahead of who takes them. Knows indices, stores and schemas; no FUSE.
//!
//! Shared by the workers and the caller: the queue, behind one mutex that is held to draw a step's indices and to
//! put a batch in its place, never while a record is read; the pool of buffers, behind another that is held for a push
//! or a pop and never together with the first; the streams, which are only read. Step k is drawn by one worker, and
//! handed out when all before it were: so the batches are the same whatever the number of workers.
//!
//! ```
//! use zrfs::loader::Loader;
//! use zrfs::{Codec, Dataset, SamplerOptions};
//!
//! # fn main() -> zrfs::Result<()> {
//! # let folder = tempfile::tempdir().unwrap();
//! # let path = |name| folder.path().join(name);
//! let images = ndarray::Array3::<f32>::zeros((100, 8, 8));
//! let labels = ndarray::Array1::<i64>::from_iter(0..100);
//! let loader = Loader::builder()
//!     .stream("data", Dataset::write(path("data.zr"), &images, Codec::default())?)
//!     .stream("label", Dataset::write(path("label.zr"), &labels, Codec::default())?)
//!     .sampler(SamplerOptions { batch_size: 32, ..Default::default() })
//!     .build()?;
//! for batch in loader.take(3) {
//!     let batch = batch?;
//!     let (data, label) = (batch.view::<f32>("data")?, batch.view::<i64>("label")?);
//!     assert_eq!((data.shape(), label.shape()), (&[32, 8, 8][..], &[32][..]));
//!     assert_eq!(label[0], batch.indices()[0] as i64);
//! }
//! # Ok(())
//! # }
//! ```

mod batch;
mod buffers;
mod builder;
mod queue;
mod stream;
#[cfg(test)]
mod tests;
mod worker;

pub use batch::Batch;
pub use builder::LoaderBuilder;
pub use stream::Stream;
pub use worker::TransformError;

use std::sync::Arc;
use std::thread::JoinHandle;

use crate::error::{Error, ErrorKind, Result};
use crate::sampler::SamplerState;
use queue::Queue;

/// An endless loader: an iterator that always has a next batch, or an error in its place.
///
/// Its length is that of the stores when it was built: what is appended later joins in the next loader. A store that it
/// reads can't be deleted from meanwhile: the loader has taken it, and other processes are refused.
///
/// Dropping it stops the workers after the records that they are at (at most 8 MiB, or one larger record, each) and the
/// transforms that are running, and joins them. Batches outlive it, and keep the stores open until they are dropped.
pub struct Loader<T = Batch> {
    queue: Arc<Queue<T>>,
    workers: Vec<JoinHandle<()>>,
    /// Where to go on from, for who has taken what was delivered.
    state: SamplerState,
    process: u32,
}

impl Loader {
    /// Starts with the streams; see [`LoaderBuilder`].
    pub fn builder() -> LoaderBuilder {
        LoaderBuilder::new()
    }
}

impl<T> Loader<T> {
    /// The batch of the next step; waits until it is there.
    ///
    /// # Errors
    /// What failed at this step: [`ErrorKind::Damaged`] or [`ErrorKind::Io`] with the record,
    /// [`ErrorKind::Memory`] for a batch that is too large, [`ErrorKind::Worker`] with what the transform said, or where
    /// it panicked. The next call goes on with the step after it. [`ErrorKind::Unsupported`] in the child of a fork, which
    /// has no workers.
    pub fn next_batch(&mut self) -> Result<T> {
        if self.is_inherited() {
            let text = "the loader belongs to the process that this one was forked from";
            return Err(
                Error::new(ErrorKind::Unsupported, text).with_help("build another one in this process")
            );
        }
        let delivery = self.queue.take();
        let batch = delivery.result?;
        self.state = delivery.after;
        Ok(batch)
    }

    /// Where to go on from: what [`LoaderBuilder::resume`] takes. It counts the batches that were delivered, not those that
    /// were made ahead; a step that failed is tried again.
    pub fn state(&self) -> &SamplerState {
        &self.state
    }

    fn is_inherited(&self) -> bool {
        self.process != std::process::id()
    }
}

impl<T> Iterator for Loader<T> {
    type Item = Result<T>;

    /// [`Loader::next_batch`]; there always is one.
    fn next(&mut self) -> Option<Result<T>> {
        Some(self.next_batch())
    }
}

impl<T> Drop for Loader<T> {
    fn drop(&mut self) {
        // The threads are the parent's, and so is what they may have locked.
        if self.is_inherited() {
            self.workers.drain(..).for_each(std::mem::forget);
            return;
        }
        self.queue.stop();
        for worker in self.workers.drain(..) {
            // It has caught what a step's panic was.
            let _ = worker.join();
        }
    }
}

impl<T> std::fmt::Debug for Loader<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Loader")
            .field("state", &self.state)
            .field("workers", &self.workers.len())
            .finish_non_exhaustive()
    }
}
