//! Compacting while the store is served, and what `compact` says of it.

use std::ops::ControlFlow;
use std::sync::{Mutex, MutexGuard, PoisonError};

use serde_json::json;

use crate::error::Result;
use crate::store::{Compaction, Progress};
use crate::view::View;

/// Size of `compact`: padded with spaces, so that it is known before the file is opened.
pub(in crate::view) const COMPACT_BYTES: usize = 512;
/// Longest message in it.
const MAX_MESSAGE: usize = 200;

/// How the last compaction goes or went.
#[derive(Default)]
pub(in crate::view) struct Compacting(Mutex<Status>);

#[derive(Default)]
struct Status {
    state: State,
    progress: Progress,
    done: Compaction,
    error: String,
}

#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum State {
    #[default]
    Idle,
    Running,
    Done,
    Failed,
}

impl Compacting {
    fn status(&self) -> MutexGuard<'_, Status> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(in crate::view) fn is_running(&self) -> bool {
        self.status().state == State::Running
    }

    /// What `compact` says now.
    pub(in crate::view) fn page(&self) -> Vec<u8> {
        let status = self.status();
        let state = match status.state {
            State::Idle => "idle",
            State::Running => "running",
            State::Done => "done",
            State::Failed => "failed",
        };
        let mut page = format!(
            "{:#}",
            json!({
                "state": state,
                "done": status.progress.done,
                "total": status.progress.total,
                "records_moved": status.done.records_moved,
                "bytes_moved": status.done.bytes_moved,
                "freed": status.done.freed,
                "left": status.done.left,
                "error": status.error,
            })
        )
        .into_bytes();
        page.resize(COMPACT_BYTES - 1, b' ');
        page.push(b'\n');
        page
    }
}

impl View {
    /// Compacts the store to the end. `begun` is called once it is under way, or has failed before that: records are served
    /// meanwhile, and deletes refused.
    ///
    /// Waits for the disk and for readers of what has moved. For a thread of its own.
    ///
    /// # Errors
    /// [`ErrorKind::Busy`](crate::ErrorKind::Busy) where one is running; what
    /// [`Store::compact`](crate::store::Store::compact) gives.
    pub fn compact(&self, begun: impl FnOnce(std::result::Result<(), &crate::error::Error>)) -> Result<()> {
        let mut begun = Some(begun);
        let mut begun = |how: std::result::Result<(), &crate::error::Error>| {
            if let Some(begun) = begun.take() {
                begun(how);
            }
        };
        if let Err(e) = self.gate.begin_compaction() {
            begun(Err(&e));
            return Err(e);
        }
        let compacting = &self.control.compacting;
        *compacting.status() = Status { state: State::Running, ..Status::default() };
        let done = self.store.compact(|progress| {
            compacting.status().progress = progress;
            begun(Ok(()));
            ControlFlow::Continue(())
        });
        self.gate.end_compaction();
        let mut status = compacting.status();
        match &done {
            Ok(done) => (status.state, status.done) = (State::Done, *done),
            Err(e) => {
                status.state = State::Failed;
                status.error = e.to_string().chars().take(MAX_MESSAGE).collect();
            }
        }
        drop(status);
        if let Err(e) = self.refresh_modified() {
            log::warn!("{e}");
        }
        begun(done.as_ref().map(drop));
        done.map(drop)
    }
}
