//! What a stream is and how it is cut.

use std::fmt;
use std::str::FromStr;

use crate::error::{Error, ErrorKind, Result};

/// In what order a stream takes the indices.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Mode {
    /// One after another, from 0, round and round.
    Sequential,
    /// Uniform with replacement; the same numbers as loaderx 0.5.0 for the same seed.
    Iid,
    /// Without replacement: every index once a pass, in a new order each pass.
    Shuffle,
}

impl Mode {
    /// The mode of a number: 0 sequential, 1 iid (these two as in loaderx), 2 shuffle.
    ///
    /// ```
    /// assert_eq!(zrfs::Mode::from_number(2), Some(zrfs::Mode::Shuffle));
    /// assert_eq!(zrfs::Mode::from_number(3), None);
    /// ```
    pub fn from_number(number: u8) -> Option<Mode> {
        match number {
            0 => Some(Mode::Sequential),
            1 => Some(Mode::Iid),
            2 => Some(Mode::Shuffle),
            _ => None,
        }
    }

    /// The number that [`Mode::from_number`] takes.
    pub fn number(self) -> u8 {
        match self {
            Mode::Sequential => 0,
            Mode::Iid => 1,
            Mode::Shuffle => 2,
        }
    }
}

/// `sequential`, `iid` or `shuffle`.
impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Mode::Sequential => "sequential",
            Mode::Iid => "iid",
            Mode::Shuffle => "shuffle",
        })
    }
}

impl FromStr for Mode {
    type Err = Error;

    /// # Errors
    /// [`ErrorKind::Unsupported`] for anything but `sequential`, `iid` and `shuffle`.
    fn from_str(name: &str) -> Result<Mode> {
        match name {
            "sequential" => Ok(Mode::Sequential),
            "iid" => Ok(Mode::Iid),
            "shuffle" => Ok(Mode::Shuffle),
            _ => Err(Error::new(ErrorKind::Unsupported, format!("there is no sampling mode {name:?}"))
                .with_help("modes are sequential, iid and shuffle")),
        }
    }
}

/// How to draw: the arguments of [`Sampler::new`](super::Sampler::new) beside the number of records.
///
/// ```
/// use zrfs::{Mode, SamplerOptions};
///
/// let options = SamplerOptions { mode: Mode::Shuffle, seed: 7, ..Default::default() };
/// assert_eq!((options.batch_size, options.rank, options.world), (256, 0, 1));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SamplerOptions {
    /// The order of the indices. Default: [`Mode::Iid`].
    pub mode: Mode,
    /// Which of the streams of that mode; sequential has but one. Default: 42.
    pub seed: u64,
    /// Indices a step, at least 1. It may be larger than the number of records. Default: 256.
    pub batch_size: usize,
    /// Which part of the steps this sampler takes, below `world`. Default: 0.
    pub rank: u64,
    /// Number of samplers that share one stream, at least 1. Default: 1.
    pub world: u64,
}

impl Default for SamplerOptions {
    fn default() -> SamplerOptions {
        SamplerOptions { mode: Mode::Iid, seed: 42, batch_size: 256, rank: 0, world: 1 }
    }
}

impl SamplerOptions {
    /// What a stream over `length` records needs to hold.
    pub(super) fn check(&self, length: u64) -> Result<()> {
        let refuse = |kind, text: String, help: &str| Err(Error::new(kind, text).with_help(help));
        if length == 0 {
            let text = "there is nothing to sample: the length is 0".to_owned();
            return refuse(ErrorKind::Unsupported, text, "append records first");
        }
        if self.batch_size == 0 {
            let text = "a batch size of 0 makes no step".to_owned();
            return refuse(ErrorKind::Geometry, text, "it has to be at least 1");
        }
        if self.world == 0 {
            let text = "a world of 0 ranks takes no step".to_owned();
            return refuse(ErrorKind::Geometry, text, "without sharding, world is 1 and rank 0");
        }
        if self.rank >= self.world {
            let text = format!("there is no rank {} in a world of {}", self.rank, self.world);
            return refuse(ErrorKind::Geometry, text, "ranks count from 0 to world - 1");
        }
        Ok(())
    }

    /// Draws of the other ranks between two steps of this one; `None` where no u64 holds them.
    pub(super) fn draws_between(&self) -> Option<u64> {
        (self.world - 1).checked_mul(self.batch_size as u64)
    }
}
