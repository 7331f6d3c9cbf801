//! What a handler must not do itself, because it takes long or waits: deleting, compacting, and opening files while records
//! are being deleted. The handler gives its reply away with the job, and is free.
//!
//! Threads: one for the jobs, in turn; one for each compaction, so that the others go on. The first one answers a delete when
//! the kernel has forgotten what it made wrong. Telling the kernel waits for handlers, and no handler waits for these threads.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;

use fuser::{ReplyOpen, ReplyWrite};

use super::adapter::{guarded, opened};
use super::errno::{errno, refusal};
use super::kernel::Kernel;
use crate::view::{Access, Deletion, Node, View};

/// Names that are told to the kernel one by one: a few milliseconds.
const FEW: usize = 4096;

/// Something to do, and whom to answer.
pub(super) enum Job {
    /// Open a file when no delete is under way, and word of closes has come.
    Open(Node, Access, ReplyOpen),
    /// Delete records; so many bytes were written.
    Delete(Deletion, u32, ReplyWrite),
    /// Compact; so many bytes were written.
    Compact(u32, ReplyWrite),
}

/// Takes jobs.
pub(super) struct Jobs(Sender<Job>);

impl Jobs {
    /// Jobs, and the end where they come out.
    pub(super) fn new() -> (Jobs, Receiver<Job>) {
        let (sender, receiver) = channel();
        (Jobs(sender), receiver)
    }

    /// Adds a job. Never waits. Where the thread is gone the reply is dropped, which answers EIO.
    pub(super) fn add(&self, job: Job) {
        let _ = self.0.send(job);
    }
}

/// Does jobs until no more can come, and all compactions are done.
pub(super) fn work(view: &Arc<View>, kernel: &Kernel, jobs: &Receiver<Job>) {
    let mut compactions: Vec<JoinHandle<()>> = Vec::new();
    for job in jobs {
        compactions.retain(|compaction| !compaction.is_finished());
        guarded("a change", || match job {
            Job::Open(node, access, reply) => open(view, node, access, reply),
            Job::Delete(deletion, len, reply) => delete(view, kernel, &deletion, len, reply),
            Job::Compact(len, reply) => compactions.extend(compact(view, len, reply)),
        });
    }
    for compaction in compactions {
        // Its panics are caught.
        let _ = compaction.join();
    }
}

fn open(view: &View, node: Node, access: Access, reply: ReplyOpen) {
    match view.open_late(node, access) {
        Ok(done) => opened(reply, done),
        Err(e) => reply.error(errno(&e)),
    }
}

fn delete(view: &View, kernel: &Kernel, deletion: &Deletion, len: u32, reply: ReplyWrite) {
    let few = if kernel.forgets_all_names() { FEW } else { usize::MAX };
    let (forget, done) = view.delete(deletion, few);
    kernel.forget(&forget);
    match done {
        Ok(()) => reply.written(len),
        Err(e) => {
            log::info!("a list of records to delete: {e}");
            reply.error(refusal(&e));
        }
    }
}

fn compact(view: &Arc<View>, len: u32, reply: ReplyWrite) -> Option<JoinHandle<()>> {
    let view = Arc::clone(view);
    let compact = move || {
        guarded("a compaction", || {
            let done = view.compact(|begun| match begun {
                Ok(()) => reply.written(len),
                Err(e) => reply.error(refusal(e)),
            });
            if let Err(e) = done {
                log::error!("{e}");
            }
        });
    };
    let spawned = std::thread::Builder::new().name("zrfs-compact".to_owned()).spawn(compact);
    spawned.inspect_err(|e| log::error!("can't start a thread to compact: {e}")).ok()
}
