//! `verify` and `repair`: what is wrong with a store, and making it good.

use std::path::Path;

use serde_json::json;
use zrfs::store::{BadRecord, Progress, Repair, Verification};
use zrfs::{Error, ErrorKind, Store};

use super::change::tell_moves;
use super::output::{Output, count};
use super::signals::Stop;
use super::{Outcome, progress};

/// `zrfs verify`
pub(super) fn verify(path: &Path, json: bool) -> Outcome {
    let bar = progress::bytes("verifying", 0);
    let found = Store::verify(path, |Progress { done, total, .. }| {
        bar.set_length(total);
        bar.set_position(done);
    });
    bar.finish_and_clear();
    let found = found?;
    let mut out = Output::new();
    if json {
        out.line(to_json(&found))?;
    } else {
        for fault in &found.faults {
            out.line(format_args!("fault: {fault}"))?;
        }
        tell_bad(&mut out, &found.bad)?;
        for note in &found.notes {
            out.line(format_args!("note: {note}"))?;
        }
        let Verification { records, checked, unchecked, bad_records, .. } = found;
        let path = path.display();
        out.line(format_args!(
            "{path}: {}: {checked} checked, {unchecked} unchecked, {bad_records} bad",
            count(records, "record")
        ))?;
    }
    out.finish()?;
    if found.is_good() {
        return Ok(());
    }
    let what = match (found.bad_records, found.faults.first()) {
        (0, Some(fault)) => fault.clone(),
        (1, None) => "1 record is bad".to_owned(),
        (n, None) => format!("{n} records are bad"),
        (n, Some(fault)) => format!("{fault}; bad records: {n}"),
    };
    Err(Error::new(ErrorKind::Damaged, format!("{}: {what}", path.display()))
        .with_help("`zrfs repair` keeps every good record")
        .into())
}

fn tell_bad(out: &mut Output, bad: &[BadRecord]) -> Outcome {
    bad.iter().try_for_each(|bad| out.line(format_args!("{}\t{}\t{}", bad.index, place(bad), bad.reason)))
}

/// Chunk, offset and stored length, or what there is instead.
fn place(bad: &BadRecord) -> String {
    match &bad.loc {
        Some(loc) => format!("{}.zr:{}+{}", loc.chunk_id, loc.offset, loc.phys_length),
        None => "meta.zr".to_owned(),
    }
}

fn to_json(found: &Verification) -> serde_json::Value {
    let bad: Vec<_> = found
        .bad
        .iter()
        .map(|bad| {
            json!({
                "index": bad.index,
                "chunk": bad.loc.map(|loc| loc.chunk_id),
                "offset": bad.loc.map(|loc| loc.offset),
                "stored_bytes": bad.loc.map(|loc| loc.phys_length),
                "reason": bad.reason,
            })
        })
        .collect();
    json!({
        "records": found.records,
        "checked": found.checked,
        "unchecked": found.unchecked,
        "bad_records": found.bad_records,
        "bad": bad,
        "faults": found.faults,
        "notes": found.notes,
    })
}

/// `zrfs repair`
pub(super) fn repair(path: &Path) -> Outcome {
    // A signal waits until the store is good.
    let _stop = Stop::on_signals()?;
    let bar = progress::bytes("verifying", 0);
    let done = Store::repair(path, |Progress { done, total, .. }| {
        bar.set_length(total);
        bar.set_position(done);
    });
    bar.finish_and_clear();
    let Repair { records, faults, mended, lost, bad, set_aside, moves, .. } = done?;
    let mut out = Output::new();
    for fault in &faults {
        out.line(format_args!("mended: {fault}"))?;
    }
    tell_bad(&mut out, &bad)?;
    tell_moves(&mut out, &moves)?;
    let path = path.display();
    if faults.is_empty() && mended == 0 && lost == 0 {
        out.line(format_args!("{path}: nothing is wrong with it; it is as it was"))?;
    } else {
        out.line(format_args!(
            "{path}: mended {}, took out {}; {} left",
            count(faults.len() as u64 + mended, "fault"),
            count(lost, "bad record"),
            count(records, "good record")
        ))?;
    }
    if let Some(folder) = set_aside {
        out.line(format_args!("What was there before is in {}", folder.display()))?;
    }
    out.finish()
}
