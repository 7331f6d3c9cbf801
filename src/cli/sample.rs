//! `sample`: the indices that a training run would draw, without reading a record.

use std::fmt;

use zrfs::{Error, ErrorKind, Sampler, SamplerOptions, Store};

use super::output::Output;
use super::{Failure, Outcome, SampleArgs};

/// `zrfs sample`
pub(super) fn run(args: &SampleArgs) -> Outcome {
    if args.rank >= args.world {
        let text = format!("there is no rank {} in a world of {}: ranks count from 0", args.rank, args.world);
        return Err(Failure::Usage(text));
    }
    let options = SamplerOptions {
        mode: args.mode.into(),
        seed: args.seed,
        batch_size: usize::try_from(args.batch_size).unwrap_or(usize::MAX),
        rank: args.rank,
        world: args.world,
    };
    let mut sampler = Sampler::new(length(args)?, &options)?;
    sampler.seek(args.start)?;
    let mut indices = vec![0; options.batch_size];
    let mut out = Output::new();
    for _ in 0..args.steps {
        sampler.next(&mut indices)?;
        out.line(Spaced(&indices))?;
    }
    out.finish()
}

/// Number of records to draw from.
fn length(args: &SampleArgs) -> Result<u64, Error> {
    let len = Store::open_read_only(&args.store)?.len();
    let store = args.store.display();
    if len == 0 {
        let text = format!("{store} holds no records: there is nothing to sample");
        return Err(Error::new(ErrorKind::Unsupported, text).with_help("zrfs import --append adds some"));
    }
    match args.length {
        Some(first) if first > len => {
            let text = format!("{store} holds {len} records, not {first}");
            Err(Error::new(ErrorKind::OutOfRange, text).with_help("--length takes that many or fewer"))
        }
        first => Ok(first.unwrap_or(len)),
    }
}

/// Indices as RECORDS of other commands. Never in memory as text: a batch may be large.
struct Spaced<'a>(&'a [u64]);

impl fmt::Display for Spaced<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut indices = self.0.iter();
        if let Some(first) = indices.next() {
            write!(f, "{first}")?;
        }
        indices.try_for_each(|index| write!(f, " {index}"))
    }
}
