//! `c*`: streams of indices. A stream is one thread's at a time.

use super::errors::guard;
use super::pointers::{array_mut, opaque_mut};
use crate::error::{Error, ErrorKind, Result};
use crate::sampler::{Mode, Sampler, SamplerOptions};

/// Most indices of a batch: 32 GiB of them.
const MOST: usize = 1 << 32;

/// An endless stream of indices. To C it is opaque.
pub struct Indices {
    sampler: Sampler,
    batch_size: usize,
    /// A batch for callers that have room for less.
    spare: Vec<u64>,
}

impl Indices {
    fn new(length: u64, batch_size: u64, mode: u8, seed: u64) -> Result<Indices> {
        let wrong = |text| Error::new(ErrorKind::Geometry, text);
        let mode = Mode::from_number(mode).ok_or_else(|| wrong(format!("no mode has the number {mode}")))?;
        let batch_size = usize::try_from(batch_size).ok().filter(|&size| size <= MOST).ok_or_else(|| {
            wrong(format!("a batch of {batch_size} indices is more than the {MOST} of one"))
        })?;
        let options = SamplerOptions { mode, seed, batch_size, ..SamplerOptions::default() };
        Ok(Indices { sampler: Sampler::new(length, &options)?, batch_size, spare: Vec::new() })
    }

    /// Writes the next batch to `out`, as far as it has room. The stream goes on by a whole batch.
    fn next(&mut self, out: &mut [u64]) -> Result<()> {
        if let Some(batch) = out.get_mut(..self.batch_size) {
            return self.sampler.next(batch);
        }
        if self.spare.is_empty() {
            self.spare.try_reserve_exact(self.batch_size).map_err(|_| {
                Error::new(ErrorKind::Memory, format!("there is no memory for {} indices", self.batch_size))
            })?;
            self.spare.resize(self.batch_size, 0);
        }
        self.sampler.next(&mut self.spare)?;
        out.iter_mut().zip(&self.spare).for_each(|(out, index)| *out = *index);
        Ok(())
    }
}

/// Starts a stream of indices below `length`: `mode` 0 is sequential, 1 uniform with replacement, the same numbers as
/// loaderx 0.5.0's for each seed, 2 shuffled (not in loaderx). NULL for a length or batch size of 0, for a batch
/// size over 2^32, and an unknown mode.
#[unsafe(no_mangle)]
pub extern "C" fn cinit(length: u64, batch_size: u64, mode: u8, seed: u64) -> *mut Indices {
    guard(
        |_| std::ptr::null_mut(),
        || Ok(Box::into_raw(Box::new(Indices::new(length, batch_size, mode, seed)?))),
    )
}

/// Writes the next batch to `indices_ptr`: at most `indices_len` indices, and the stream goes on by a whole batch, which is
/// drawn in any case. Where it fails, nothing is written, and `zr_last_error` says why.
///
/// # Safety
/// `s` is NULL or comes from [`cinit`] and was not given to [`cdeinit`]; no other thread uses it during the call. Where
/// `indices_len` is not 0: `indices_ptr` is valid for writing `indices_len` elements and aligned, and nobody else uses them.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cnext(s: *mut Indices, indices_ptr: *mut u64, indices_len: usize) {
    guard(
        |_| (),
        || {
            // SAFETY: the caller's promises for both.
            let (indices, out) =
                unsafe { (opaque_mut(s, "s")?, array_mut(indices_ptr, indices_len, "indices_ptr")?) };
            indices.next(out)
        },
    );
}

/// Ends a stream. NULL is let pass.
///
/// # Safety
/// `s` is NULL or comes from [`cinit`], is not in use, and is used no more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cdeinit(s: *mut Indices) {
    if s.is_null() {
        return;
    }
    guard(
        |_| (),
        || {
            // SAFETY: it was made by `Box::into_raw` in `cinit`, and the caller uses it no more.
            drop(unsafe { Box::from_raw(s) });
            Ok(())
        },
    );
}
