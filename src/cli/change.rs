//! `delete`, `compact` and `seal`: changing a store that is there.

use std::ops::ControlFlow;
use std::path::Path;

use indicatif::HumanBytes;
use zrfs::store::Move;
use zrfs::{Error, Store, Version};

use super::output::{Output, count};
use super::signals::Stop;
use super::{DeleteArgs, Failure, Outcome, progress};

/// `zrfs delete`
pub(super) fn delete(args: &DeleteArgs) -> Outcome {
    // A signal waits until the delete is done: that is a moment.
    let _stop = Stop::on_signals()?;
    let store = Store::open(&args.store)?;
    let all = || std::iter::once(&args.store).chain(&args.with);
    let mut real: Vec<_> = all().filter_map(|path| path.canonicalize().ok()).collect();
    real.sort();
    if let Some([twice, _]) = real.windows(2).find(|pair| pair.first() == pair.last()) {
        return Err(Failure::Usage(format!("{} is named twice", twice.display())));
    }
    let others = args.with.iter().map(Store::open).collect::<Result<Vec<_>, _>>()?;
    // No other process can delete from the store while it is open here, so they stay what they are.
    let indices: Vec<u64> = args.records.find(&store)?.into_iter().flatten().flatten().collect();
    let before = store.len();
    let stores: Vec<&Store> = std::iter::once(&store).chain(&others).collect();
    let moves = Store::delete_aligned(&stores, &indices)?;
    let tell = || -> Outcome {
        let mut out = Output::new();
        tell_moves(&mut out, &moves)?;
        for store in &stores {
            let left = store.len();
            let path = store.path().display();
            out.line(format_args!("{path}: deleted {}, {left} left", count(before - left, "record")))?;
        }
        out.finish()
    };
    tell().map_err(|failure| match failure {
        Failure::Failed(e) => {
            let text = format!("the records are deleted, but the moves were not told: {e}");
            Failure::Failed(Error::new(e.kind(), text))
        }
        other => other,
    })
}

/// One line for each record that has another index now.
pub(super) fn tell_moves(out: &mut Output, moves: &[Move]) -> Outcome {
    moves.iter().try_for_each(|Move { from, to }| out.line(format_args!("{from} -> {to}")))
}

/// `zrfs compact`
pub(super) fn compact(path: &Path, accept: bool) -> Outcome {
    let stop = Stop::on_signals()?;
    let store = Store::open(path)?;
    if accept {
        store.accept()?;
    }
    let bar = progress::bytes("compacting", 0);
    let done = store.compact(|progress| {
        bar.set_length(progress.total);
        bar.set_position(progress.done);
        if stop.is_raised() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    });
    bar.finish_and_clear();
    let done = done?;
    let mut out = Output::new();
    out.line(format_args!(
        "{}: moved {}, {}; freed {} of disk",
        path.display(),
        count(done.records_moved, "record"),
        HumanBytes(done.bytes_moved),
        HumanBytes(done.freed),
    ))?;
    if done.left > 0 {
        out.line(format_args!(
            "{} records stayed behind gaps, since the disk is full: free some of it and compact again",
            done.left
        ))?;
    }
    out.finish()
}

/// `zrfs seal`
pub(super) fn seal(path: &Path, undo: bool) -> Outcome {
    let store = Store::open(path)?;
    let done = if undo { store.unseal()? } else { store.seal()? };
    let mut out = Output::new();
    let sizes = format!("apparent size {}, was {}", HumanBytes(done.after), HumanBytes(done.before));
    if undo {
        out.line(format_args!("{}: meta.zr has its full size; {sizes}", path.display()))?;
    } else {
        out.line(format_args!("{}: sealed; {sizes}", path.display()))?;
        out.line(match store.version() {
            Version::V1 => {
                "loaderx 0.5.0 can read it, but must not append to it: `zrfs seal --undo`, or an append by zrfs, comes \
                 first."
            }
            Version::V2 => "loaderx 0.5.0 refuses it, as every store of version 2.",
        })?;
    }
    out.finish()
}
