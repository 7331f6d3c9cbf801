//! `delete`, `compact` and `seal`: changing a store that is there.

use std::ops::ControlFlow;
use std::path::Path;

use indicatif::HumanBytes;
use zrfs::store::{Compaction, Move};
use zrfs::{Error, Store, Version};

use super::live::{self, Live};
use super::output::{Output, count};
use super::signals::Stop;
use super::{DeleteArgs, Failure, Outcome, progress};

/// `zrfs delete`
pub(super) fn delete(args: &DeleteArgs) -> Outcome {
    if !args.with.is_empty() {
        for path in std::iter::once(&args.store).chain(&args.with) {
            if Live::at(path)?.is_some() {
                let text = "--with takes stores that are not mounted: labels follow where they were given at mount, by";
                return Err(Failure::Usage(format!("{}: {text} zrfs mount -o labels=STORE", path.display())));
            }
        }
    } else if let Some(live) = Live::at(&args.store)? {
        return live::delete(&live, &args.records);
    }
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
            tell_deleted(&mut out, store.path(), before - left, left)?;
        }
        out.finish()
    };
    tell().map_err(Failure::after_delete)
}

/// The line that ends a delete.
pub(super) fn tell_deleted(out: &mut Output, path: &Path, deleted: u64, left: u64) -> Outcome {
    out.line(format_args!("{}: deleted {}, {left} left", path.display(), count(deleted, "record")))
}

impl Failure {
    /// A failure to tell what a delete has done.
    pub(super) fn after_delete(self) -> Failure {
        match self {
            Failure::Failed(e) => {
                let text = format!("the records are deleted, but the moves were not told: {e}");
                Failure::Failed(Error::new(e.kind(), text))
            }
            other => other,
        }
    }
}

/// One line for each record that has another index now.
pub(super) fn tell_moves(out: &mut Output, moves: &[Move]) -> Outcome {
    moves.iter().try_for_each(|Move { from, to }| out.line(format_args!("{from} -> {to}")))
}

/// `zrfs compact`
pub(super) fn compact(path: &Path, accept: bool) -> Outcome {
    if let Some(live) = Live::at(path)? {
        if accept {
            let text = "--accept takes a store that is not mounted; zrfs umount comes first";
            return Err(Failure::Usage(format!("{}: {text}", path.display())));
        }
        return live::compact(&live);
    }
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
    tell_compaction(path, &done?)
}

/// What a compaction has done.
pub(super) fn tell_compaction(path: &Path, done: &Compaction) -> Outcome {
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
            "{} stayed behind gaps, as the disk has no room to move them: free some of it and compact again",
            count(done.left, "record")
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
