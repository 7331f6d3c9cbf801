//! Raw and Deflate, with scratch that each thread keeps. Knows no file.
//!
//! One record is encoded at a time, and decoded by [`inflate`]. Several are decoded together by [`Inflaters`], a decoder of our
//! own, which is the faster way.
//!
//! There are two backends, with the same results for all that is valid but for size and speed: libdeflate (feature
//! `libdeflate`, the default) and zlib-rs through flate2, which is pure Rust and the check on the other in tests.

mod backend;
mod bits;
mod huffman;
mod interleaved;

use backend::{Deflater, Inflater};
use std::cell::RefCell;

pub use interleaved::{Inflaters, Undecodable, with_inflaters};

/// How appended records are to be stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Codec {
    /// As they are.
    Raw,
    /// Deflate at a level of 1 (fast) to 12 (small), record by record, where it saves at least 2%; raw elsewhere.
    Flate(u8),
}

impl Codec {
    /// Level that [`Codec::default`] uses.
    pub const DEFAULT_LEVEL: u8 = 5;
    /// Highest level. The pure-Rust backend treats 10 to 12 as 9.
    pub const MAX_LEVEL: u8 = 12;
}

impl Default for Codec {
    fn default() -> Codec {
        Codec::Flate(Codec::DEFAULT_LEVEL)
    }
}

/// Shortest record that Deflate is tried on: below, block header and codes eat what it saves.
const MIN_DEFLATE: usize = 17;

/// Compresses records one after another; keep one for each thread, it is large.
pub struct Encoder(Option<Deflater>);

impl Encoder {
    /// An encoder for `codec`; levels outside 1 to 12 count as the nearest.
    pub fn new(codec: Codec) -> Encoder {
        Encoder(match codec {
            Codec::Raw => None,
            Codec::Flate(level) => Some(Deflater::new(level.clamp(1, Codec::MAX_LEVEL))),
        })
    }

    /// Appends `record` to `out` as it is to be stored: deflated where that saves at least 2%, else as it is.
    /// Returns whether it was deflated.
    pub fn encode(&mut self, record: &[u8], out: &mut Vec<u8>) -> bool {
        let start = out.len();
        // At 2% saved a read gains nothing for its decode, at less it loses.
        let most = record.len() - record.len().div_ceil(50);
        if let Some(deflater) = &mut self.0
            && record.len() >= MIN_DEFLATE
        {
            out.resize(start + most, 0);
            if let Some(n) = out.get_mut(start..).and_then(|slot| deflater.deflate(record, slot)) {
                out.truncate(start + n);
                return true;
            }
            out.truncate(start);
        }
        out.extend_from_slice(record);
        false
    }
}

thread_local! {
    static ENCODER: RefCell<Option<(Codec, Encoder)>> = const { RefCell::new(None) };
    static INFLATER: RefCell<Inflater> = RefCell::new(Inflater::new());
}

/// Lends this thread's encoder for `codec`. It is kept: its tables take about a MiB and a while to set up.
///
/// Calls may not be nested: an inner one makes an encoder for itself alone.
pub fn with_encoder<R>(codec: Codec, work: impl FnOnce(&mut Encoder) -> R) -> R {
    ENCODER.with(|kept| match kept.try_borrow_mut() {
        Ok(mut kept) => {
            if kept.as_ref().is_none_or(|(known, _)| *known != codec) {
                *kept = Some((codec, Encoder::new(codec)));
            }
            match &mut *kept {
                Some((_, encoder)) => work(encoder),
                None => work(&mut Encoder::new(codec)),
            }
        }
        Err(_) => work(&mut Encoder::new(codec)),
    })
}

/// Decodes raw Deflate; `true` where `stored` is valid and gives exactly `dst.len()` bytes.
///
/// Memory: a few tens of KiB, kept for the thread. Never reads or writes outside the two slices.
pub fn inflate(stored: &[u8], dst: &mut [u8]) -> bool {
    INFLATER.with(|inflater| match inflater.try_borrow_mut() {
        Ok(mut inflater) => inflater.inflate(stored, dst),
        Err(_) => Inflater::new().inflate(stored, dst),
    })
}

#[cfg(test)]
mod tests;
