//! `zrfs compact` through the file `compact` of a live mount.

use std::io::{self, Write};
use std::time::Duration;

use serde_json::{Map, Value};
use zrfs::store::Compaction;
use zrfs::{Error, ErrorKind};

use super::Live;
use crate::cli::change::tell_compaction;
use crate::cli::signals::Stop;
use crate::cli::{Outcome, progress};

/// How often the mount is asked how far it is.
const ASK_EVERY: Duration = Duration::from_millis(100);

const BUSY: &str = "the store is being compacted already; its contents say how far that is";

/// `zrfs compact`, where the store is a live mount: has it begin and waits for the end. A signal ends the waiting alone.
pub(in crate::cli) fn compact(live: &Live) -> Outcome {
    let stop = Stop::on_signals()?;
    let mut file = live.open_to_write("compact", BUSY)?;
    file.write_all(b"1\n").map_err(|e| refused(live, e))?;
    drop(file);
    let bar = progress::bytes("compacting", 0);
    let status = loop {
        let status = live.read_json("compact")?;
        bar.set_length(figure(&status, "total"));
        bar.set_position(figure(&status, "done"));
        if text(&status, "state") != "running" {
            break status;
        }
        let path = live.file("compact");
        stop.check(&format!("the compaction goes on, and {} says how far it is", path.display()))?;
        std::thread::sleep(ASK_EVERY);
    };
    bar.finish_and_clear();
    if text(&status, "state") != "done" {
        return Err(failed(live, &status).into());
    }
    let mut done = Compaction::default();
    done.records_moved = figure(&status, "records_moved");
    done.bytes_moved = figure(&status, "bytes_moved");
    done.freed = figure(&status, "freed");
    done.left = figure(&status, "left");
    tell_compaction(live.point(), &done)
}

/// Why it did not begin: in the words of the mount, if it had any.
fn refused(live: &Live, e: io::Error) -> Error {
    match live.read_json("compact") {
        Ok(status) if text(&status, "state") == "failed" => failed(live, &status),
        _ => Error::io(format!("can't write to {}", live.file("compact").display()), e),
    }
}

fn failed(live: &Live, status: &Map<String, Value>) -> Error {
    let text = format!("{}: the compaction failed: {}", live.point().display(), text(status, "error"));
    Error::new(ErrorKind::Io, text)
}

fn text<'a>(status: &'a Map<String, Value>, name: &str) -> &'a str {
    status.get(name).and_then(Value::as_str).unwrap_or_default()
}

fn figure(status: &Map<String, Value>, name: &str) -> u64 {
    status.get(name).and_then(Value::as_u64).unwrap_or_default()
}
