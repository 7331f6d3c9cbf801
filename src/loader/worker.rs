//! A worker: draws a step, gathers its records, has the transform see them, puts the result in its place.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use super::batch::{Batch, Streams};
use super::buffers::Pool;
use super::queue::{Delivery, Queue};
use crate::error::{Error, ErrorKind, Result};
use crate::store::stay_on_this_thread;

/// What a transform may fail with: `?` turns any error into it, and so does `.into()` a text.
pub type TransformError = Box<dyn std::error::Error + Send + Sync>;

/// What is done with each batch, by the worker that made it.
pub(super) type Transform<T> = dyn Fn(Batch) -> std::result::Result<T, TransformError> + Send + Sync;

/// What all workers of a loader have.
pub(super) struct Work<T> {
    pub(super) queue: Arc<Queue<T>>,
    pub(super) streams: Arc<Streams>,
    pub(super) pool: Arc<Pool>,
    pub(super) transform: Arc<Transform<T>>,
    /// Largest part of a batch, in bytes.
    pub(super) max_batch_bytes: usize,
    /// Whether the workers keep all cores busy between them.
    pub(super) serial: bool,
}

impl<T> Work<T> {
    /// What a worker's thread does until the loader stops.
    pub(super) fn run(&self) {
        if self.serial {
            stay_on_this_thread();
        }
        loop {
            let mut buffers = self.pool.take();
            let Some(drawn) = self.queue.draw(&mut buffers.indices) else { return };
            let batch = Batch::new(drawn.step, Arc::clone(&self.streams), buffers, Arc::clone(&self.pool));
            let made = catch_unwind(AssertUnwindSafe(|| {
                drawn.result?;
                self.make(batch)
            }));
            let result = match made {
                Ok(Ok(Some(value))) => Ok(value),
                Ok(Ok(None)) => return,
                Ok(Err(e)) => Err(e.within(&format!("step {}", drawn.step))),
                Err(panic) => Err(panicked(drawn.step, panic)),
            };
            self.queue.put(drawn.step, Delivery { result, after: drawn.after });
        }
    }

    /// The batch, transformed; `None` where the loader stops.
    fn make(&self, mut batch: Batch) -> Result<Option<T>> {
        if !batch.fill(self.max_batch_bytes, || self.queue.is_stopped())? {
            return Ok(None);
        }
        let transformed = (self.transform)(batch);
        transformed.map(Some).map_err(|e| Error::of_caller(ErrorKind::Worker, "the transform failed", e))
    }
}

fn panicked(step: u64, panic: Box<dyn Any + Send>) -> Error {
    let text = match panic.downcast::<String>() {
        Ok(text) => *text,
        Err(panic) => match panic.downcast::<&str>() {
            Ok(text) => (*text).to_owned(),
            Err(panic) => {
                // To drop what is not known might panic again, and end the worker.
                std::mem::forget(panic);
                "without a message".to_owned()
            }
        },
    };
    Error::new(ErrorKind::Worker, format!("step {step}: a worker panicked: {text}"))
}
