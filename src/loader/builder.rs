//! How a loader is set up, and checked before its first thread starts.

use std::num::NonZero;
use std::sync::Arc;
use std::thread;

use super::Loader;
use super::batch::{Batch, Streams};
use super::buffers::Pool;
use super::queue::Queue;
use super::stream::Stream;
use super::worker::{Transform, TransformError, Work};
use crate::error::{Error, ErrorKind, Result};
use crate::sampler::{Sampler, SamplerOptions, SamplerState};

/// Workers and batches ahead where nothing is said: loaderx's, but no more workers than cores.
const WORKERS: usize = 4;
const PREFETCH: usize = 4;
/// More threads than any machine has cores are a slip of the pen, and may be more than the system can give.
const MOST_WORKERS: usize = 1024;
/// Largest part of a batch where nothing is said, in bytes.
const MAX_BATCH_BYTES: usize = 1 << 30;

/// Sets up a [`Loader`].
#[must_use = "it does nothing before `build`"]
pub struct LoaderBuilder<T = Batch> {
    streams: Vec<(String, Stream)>,
    sampler: Option<SamplerOptions>,
    start_at: Option<u64>,
    resume: Option<SamplerState>,
    length: Option<u64>,
    workers: Option<usize>,
    prefetch: Option<usize>,
    max_batch_bytes: usize,
    transform: Arc<Transform<T>>,
}

impl LoaderBuilder {
    pub(super) fn new() -> LoaderBuilder {
        LoaderBuilder {
            streams: Vec::new(),
            sampler: None,
            start_at: None,
            resume: None,
            length: None,
            workers: None,
            prefetch: None,
            max_batch_bytes: MAX_BATCH_BYTES,
            transform: Arc::new(Ok),
        }
    }
}

impl<T: Send + 'static> LoaderBuilder<T> {
    /// Adds a stream: a [`Dataset`](crate::Dataset) for dense batches, a [`Store`](crate::Store) for ragged ones, opened for
    /// reading or both. All streams have one length; record i of each belongs to record i of the others.
    pub fn stream(mut self, name: impl Into<String>, records: impl Into<Stream>) -> LoaderBuilder<T> {
        self.streams.push((name.into(), records.into()));
        self
    }

    /// The index stream: mode, seed, batch size, rank and world.
    pub fn sampler(mut self, options: SamplerOptions) -> LoaderBuilder<T> {
        self.sampler = Some(options);
        self
    }

    /// Begins at step `step` of the index stream.
    pub fn start_at(mut self, step: u64) -> LoaderBuilder<T> {
        self.start_at = Some(step);
        self
    }

    /// Goes on where another loader was ([`Loader::state`]), in place of [`LoaderBuilder::sampler`] and
    /// [`LoaderBuilder::start_at`]. The streams must have the length that they had then; [`LoaderBuilder::length`] keeps to
    /// it where they have grown.
    ///
    /// The state is that of one rank. Where rank 0 saves for all, the others take
    /// [`state.with_rank(rank)`](SamplerState::with_rank): all of them are at the same step then.
    pub fn resume(mut self, state: SamplerState) -> LoaderBuilder<T> {
        self.resume = Some(state);
        self
    }

    /// Takes only the first `length` records of each stream.
    pub fn length(mut self, length: u64) -> LoaderBuilder<T> {
        self.length = Some(length);
        self
    }

    /// Number of threads that make batches: 4 where this is not called, or as many as there are cores where those are
    /// fewer. While there are fewer workers than cores, each uses several to decode a batch.
    pub fn workers(mut self, workers: usize) -> LoaderBuilder<T> {
        self.workers = Some(workers);
        self
    }

    /// Most batches that are ready or in the making: 4 where this is not called, or one a worker where those are more.
    /// Memory: so many batches, one a worker, and those that the caller keeps.
    pub fn prefetch(mut self, batches: usize) -> LoaderBuilder<T> {
        self.prefetch = Some(batches);
        self
    }

    /// Largest size of a stream's part of a batch, in bytes; 1 GiB where this is not called. A larger one is an error in
    /// its step's place.
    pub fn max_batch_bytes(mut self, bytes: usize) -> LoaderBuilder<T> {
        self.max_batch_bytes = bytes;
        self
    }

    /// Has the workers do `transform` with each batch: what it returns is what the loader gives. A transform that was set
    /// before is replaced.
    ///
    /// ```
    /// # use zrfs::{Codec, Dataset, loader::Loader};
    /// # fn main() -> zrfs::Result<()> {
    /// # let folder = tempfile::tempdir().unwrap();
    /// # let dataset = Dataset::write(folder.path().join("d.zr"), &ndarray::arr1(&[1u8, 2, 3]), Codec::Raw)?;
    /// let mut sums = Loader::builder()
    ///     .stream("data", dataset)
    ///     .transform(|batch| Ok(batch.view::<u8>("data")?.iter().map(|&x| u64::from(x)).sum::<u64>()))
    ///     .build()?;
    /// assert!((256..=768).contains(&sums.next_batch()?));
    /// # Ok(())
    /// # }
    /// ```
    pub fn transform<U>(
        self,
        transform: impl Fn(Batch) -> std::result::Result<U, TransformError> + Send + Sync + 'static,
    ) -> LoaderBuilder<U> {
        LoaderBuilder {
            streams: self.streams,
            sampler: self.sampler,
            start_at: self.start_at,
            resume: self.resume,
            length: self.length,
            workers: self.workers,
            prefetch: self.prefetch,
            max_batch_bytes: self.max_batch_bytes,
            transform: Arc::new(transform),
        }
    }

    /// Checks everything and starts the workers, which begin with the first batches at once.
    ///
    /// # Errors
    /// [`ErrorKind::Geometry`] where the streams have no record, or different lengths, or fewer records than
    /// [`LoaderBuilder::length`] says; [`ErrorKind::Unsupported`] without a stream, for two of one name, without workers
    /// or room or with more than 1024, for a state to resume beside a sampler or a start, and what [`Sampler::new`], [`Sampler::restore`] and [`Sampler::seek`] refuse; [`ErrorKind::Memory`] where
    /// a batch would pass [`LoaderBuilder::max_batch_bytes`]; [`ErrorKind::Io`] where no thread can be had.
    pub fn build(self) -> Result<Loader<T>> {
        let unsupported = |text: &str| Err(Error::new(ErrorKind::Unsupported, text));
        let cores = thread::available_parallelism().map_or(1, NonZero::get);
        let workers = self.workers.unwrap_or(cores.min(WORKERS));
        let prefetch = self.prefetch.unwrap_or(PREFETCH.max(workers));
        if workers == 0 || prefetch == 0 {
            return unsupported("a loader needs one worker and room for one batch at least");
        }
        if workers > MOST_WORKERS {
            return unsupported(&format!("{workers} workers are more than the {MOST_WORKERS} of a loader"));
        }
        if self.resume.is_some() && (self.sampler.is_some() || self.start_at.is_some()) {
            return unsupported(
                "a loader that resumes has its sampler and its step from the state: give it no others",
            );
        }
        let length = self.checked_length()?;
        let sampler = match &self.resume {
            Some(state) => Sampler::restore(state, length)?,
            None => {
                let mut sampler = Sampler::new(length, &self.sampler.clone().unwrap_or_default())?;
                sampler.seek(self.start_at.unwrap_or(0))?;
                sampler
            }
        };
        let batch_size = sampler.options().batch_size;
        self.check_batch(batch_size)?;
        let (streams, state) = (Arc::new(Streams::new(self.streams)), sampler.state());
        let queue = Arc::new(Queue::new(sampler, prefetch));
        let work = Arc::new(Work {
            queue: Arc::clone(&queue),
            // The batches ahead, one that each worker waits with, and the caller's.
            pool: Arc::new(Pool::new(
                prefetch.saturating_add(workers).saturating_add(1),
                batch_size,
                streams.iter().count(),
            )),
            streams,
            transform: self.transform,
            max_batch_bytes: self.max_batch_bytes,
            serial: workers >= cores,
        });
        // From here on dropping it ends the threads that were started.
        let mut loader =
            Loader { queue, workers: Vec::with_capacity(workers), state, process: std::process::id() };
        for i in 0..workers {
            let work = Arc::clone(&work);
            let thread = thread::Builder::new().name(format!("zrfs-loader-{i}")).spawn(move || work.run());
            let thread = thread.map_err(|e| Error::io(format!("can't start worker {i} of {workers}"), e))?;
            loader.workers.push(thread);
        }
        Ok(loader)
    }

    /// The one length of all streams.
    fn checked_length(&self) -> Result<u64> {
        let Some((first_name, first)) = self.streams.first() else {
            return Err(Error::new(ErrorKind::Unsupported, "a loader needs a stream")
                .with_help("give it one by `LoaderBuilder::stream`"));
        };
        for (i, (name, _)) in self.streams.iter().enumerate() {
            if self.streams.iter().take(i).any(|(other, _)| other == name) {
                return Err(Error::new(ErrorKind::Unsupported, format!("two streams are called {name:?}")));
            }
        }
        let geometry = |text: String, help: &str| Err(Error::new(ErrorKind::Geometry, text).with_help(help));
        let first_len = first.store().len();
        for (name, stream) in &self.streams {
            let (len, path) = (stream.store().len(), stream.store().path().display());
            if len == 0 {
                return geometry(
                    format!("stream {name:?}: {path} holds no record"),
                    "there is nothing to draw from; append first",
                );
            }
            if let Some(length) = self.length.filter(|&length| length > len) {
                return geometry(
                    format!("stream {name:?}: {path} holds {len} records, {length} are asked for"),
                    "take a smaller length",
                );
            }
            if self.length.is_none() && len != first_len {
                return geometry(
                    format!(
                        "stream {name:?} ({path}) has {len} records, stream {first_name:?} has {first_len}"
                    ),
                    "aligned streams have one length; `LoaderBuilder::length` takes the first records of each",
                );
            }
        }
        Ok(self.length.unwrap_or(first_len))
    }

    /// Whether a batch keeps to its bound, as far as that is known before it is drawn.
    fn check_batch(&self, batch_size: usize) -> Result<()> {
        for (name, stream) in &self.streams {
            // Indices and offsets take 16 bytes a record themselves.
            let item = stream.schema().map_or(0, |schema| schema.record_bytes()).max(16);
            let bytes = item.checked_mul(batch_size as u64);
            if bytes.is_none_or(|bytes| bytes > self.max_batch_bytes as u64) {
                let text = format!(
                    "stream {name:?}: a batch of {batch_size} records takes {} bytes or more, the most is {}",
                    bytes.map_or("2^64".to_owned(), |bytes| bytes.to_string()),
                    self.max_batch_bytes
                );
                return Err(Error::new(ErrorKind::Memory, text)
                    .with_help("take smaller batches, or raise `LoaderBuilder::max_batch_bytes`"));
            }
        }
        Ok(())
    }
}
