//! `delete`, `compact` and `seal`: changing a store that is there.

use std::ops::ControlFlow;
use std::path::Path;

use indicatif::HumanBytes;
use zrfs::Store;
use zrfs::store::Move;

use super::output::Output;
use super::signals::Stop;
use super::{DeleteArgs, Outcome, progress, records};

/// `zrfs delete`
pub(super) fn delete(args: &DeleteArgs) -> Outcome {
    // A signal waits until the delete is done: that is a moment.
    let _stop = Stop::on_signals()?;
    let store = Store::open(&args.store)?;
    let others = args.with.iter().map(Store::open).collect::<Result<Vec<_>, _>>()?;
    let ranges = records::parse(&args.records, store.len())?;
    let indices: Vec<u64> = ranges.into_iter().flatten().collect();
    let before = store.len();
    let stores: Vec<&Store> = std::iter::once(&store).chain(&others).collect();
    let moves = Store::delete_aligned(&stores, &indices)?;
    let mut out = Output::new();
    tell_moves(&mut out, &moves)?;
    for store in stores {
        let left = store.len();
        let path = store.path().display();
        out.line(format_args!("{path}: deleted {} records, {left} left", before - left))?;
    }
    out.finish()
}

/// One line for each record that has another index now.
pub(super) fn tell_moves(out: &mut Output, moves: &[Move]) -> Outcome {
    moves.iter().try_for_each(|Move { from, to }| out.line(format_args!("{from} -> {to}")))
}

/// `zrfs compact`
pub(super) fn compact(path: &Path) -> Outcome {
    let stop = Stop::on_signals()?;
    let store = Store::open(path)?;
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
        "{}: moved {} records, {}; freed {} of disk",
        path.display(),
        done.records_moved,
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
        out.line("loaderx 0.5.0 can read it, but must not append to it: `zrfs seal --undo`, or an append by zrfs, comes first.")?;
    }
    out.finish()
}
