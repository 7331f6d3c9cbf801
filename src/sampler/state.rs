//! Where a sampler stands, to be kept across processes and machines.

use serde_json::{Value, json};

use super::{Mode, SamplerOptions};
use crate::error::{Error, ErrorKind, Result};

/// Marks the JSON as a state of ours.
const FORMAT: &str = "zrfs";
const VERSION: u64 = 1;
/// A state takes some hundred bytes; what is larger is something else.
const MAX_BYTES: usize = 64 << 10;

/// All that a [`Sampler`](super::Sampler) needs to go on: see [`Sampler::state`](super::Sampler::state) and
/// [`Sampler::restore`](super::Sampler::restore), which has an example.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SamplerState {
    /// The order of the indices.
    pub mode: Mode,
    /// The seed.
    pub seed: u64,
    /// Indices a step.
    pub batch_size: usize,
    /// Number of records.
    pub length: u64,
    /// The step that comes next, counted by this rank.
    pub step: u64,
    /// Which part of the steps.
    pub rank: u64,
    /// Number of ranks.
    pub world: u64,
    /// The generator's words, where an iid stream can't be entered without them.
    pub(super) generator: Option<[u64; 4]>,
}

impl SamplerState {
    /// The state for a store that now has `length` records: the step stays, and what comes is another stream.
    #[must_use]
    pub fn with_length(self, length: u64) -> SamplerState {
        SamplerState { length, ..self }
    }

    /// The state of another rank of the same world at the same step. Not for iid streams past 2^32 draws, where each rank
    /// has to keep its own.
    #[must_use]
    pub fn with_rank(self, rank: u64) -> SamplerState {
        // The generator's words are those of this rank's next draw.
        let generator = self.generator.filter(|_| rank == self.rank);
        SamplerState { rank, generator, ..self }
    }

    /// What the sampler was made with.
    pub fn options(&self) -> SamplerOptions {
        let SamplerState { mode, seed, batch_size, rank, world, .. } = *self;
        SamplerOptions { mode, seed, batch_size, rank, world }
    }

    /// The state as one flat JSON object, on one line. All numbers are exact: a reader has to take them as 64-bit integers.
    ///
    /// ```
    /// use zrfs::{Sampler, SamplerOptions, SamplerState};
    ///
    /// # fn main() -> zrfs::Result<()> {
    /// let state = Sampler::new(10, &SamplerOptions::default())?.state();
    /// assert_eq!(
    ///     state.to_json(),
    ///     r#"{"batch_size":256,"length":10,"mode":"iid","rank":0,"sampler":"zrfs","seed":42,"step":0,"version":1,"world":1}"#
    /// );
    /// assert_eq!(SamplerState::from_json(state.to_json().as_bytes())?, state);
    /// # Ok(())
    /// # }
    /// ```
    pub fn to_json(&self) -> String {
        let mut value = json!({
            "sampler": FORMAT,
            "version": VERSION,
            "mode": self.mode.to_string(),
            "seed": self.seed,
            "batch_size": self.batch_size,
            "rank": self.rank,
            "world": self.world,
            "length": self.length,
            "step": self.step,
        });
        if let (Some(words), Some(fields)) = (self.generator, value.as_object_mut()) {
            fields.insert("generator".to_owned(), json!(words));
        }
        value.to_string()
    }

    /// Parses what [`SamplerState::to_json`] wrote. Whether a sampler can be in that state is
    /// [`Sampler::restore`](super::Sampler::restore)'s to say.
    ///
    /// # Errors
    /// [`ErrorKind::Damaged`] for what is no such JSON, [`ErrorKind::Version`] for that of another release.
    pub fn from_json(bytes: &[u8]) -> Result<SamplerState> {
        let damaged = |text: String| Error::new(ErrorKind::Damaged, format!("the sampler's state {text}"));
        if bytes.len() > MAX_BYTES {
            return Err(damaged(format!("has {} bytes, which is too many", bytes.len())));
        }
        let value: Value = serde_json::from_slice(bytes).map_err(|e| damaged(format!("is not JSON: {e}")))?;
        if value.get("sampler").and_then(Value::as_str) != Some(FORMAT) {
            return Err(damaged(format!("is not marked as one of {FORMAT}")));
        }
        let number = |name: &str| {
            let number = value.get(name).and_then(Value::as_u64);
            number.ok_or_else(|| damaged(format!("has no {name} that is a 64-bit number")))
        };
        let version = number("version")?;
        if version != VERSION {
            let text = format!("the sampler's state has version {version}; this release reads {VERSION}");
            return Err(Error::new(ErrorKind::Version, text));
        }
        let mode = value.get("mode").and_then(Value::as_str).unwrap_or_default();
        let generator = match value.get("generator") {
            None => None,
            Some(words) => {
                let words: Option<Vec<u64>> =
                    words.as_array().and_then(|words| words.iter().map(Value::as_u64).collect());
                let words = words.and_then(|words| words.try_into().ok());
                Some(words.ok_or_else(|| damaged("has a generator that is not four words".to_owned()))?)
            }
        };
        Ok(SamplerState {
            mode: mode.parse().map_err(|_| damaged("has no mode that is known".to_owned()))?,
            seed: number("seed")?,
            batch_size: usize::try_from(number("batch_size")?)
                .map_err(|_| damaged("has a batch size that no memory holds".to_owned()))?,
            length: number("length")?,
            step: number("step")?,
            rank: number("rank")?,
            world: number("world")?,
            generator,
        })
    }
}
