//! Answering requests: from parts that are there, from parts that are made now, or alone.
//!
//! Who asks for one piece after another is served from parts of about a MiB, and the next ones are made ahead by other
//! threads. Who asks for pieces here and there gets just those.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use super::parts::{Bytes, Claim, Found};
use super::reader::{Part, Reader, depth};
use crate::error::{Error, ErrorKind, Result};
use crate::view::Reply;

/// Memory that a thread keeps for answers that no part has as a whole.
const KEPT: usize = 2 << 20;

thread_local! {
    static ANSWER: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// Who asks for what.
pub(super) struct Request {
    reader: Arc<Reader>,
    range: Range<u64>,
    reply: Reply,
}

/// Answers a request for `size` bytes from `offset` on, now or later.
pub(super) fn serve(reader: Arc<Reader>, offset: u64, size: u32, reply: Reply) {
    let end = offset.saturating_add(size.into());
    let end = reader.size().map_or(end, |size| end.min(size));
    if end <= offset {
        return reply(Ok(&[]));
    }
    let range = offset..end;
    let run = match reader.note(&range) {
        Ok(run) => run,
        Err(e) => return reply(Err(e)),
    };
    let request = Request { reader, range, reply };
    match run {
        None => request.answer_alone(true),
        Some(run) => {
            request.reader.forget_behind(offset);
            request.reader.look_ahead(request.range.end, run);
            serve_all(VecDeque::from([request]));
        }
    }
}

/// Answers requests, and those that have waited for what is made meanwhile.
fn serve_all(mut requests: VecDeque<Request>) {
    while let Some(request) = requests.pop_front() {
        request.serve(&mut requests);
    }
}

impl Request {
    /// Serves it from parts. Those that have waited for one that it makes are added to `freed`.
    fn serve(self, freed: &mut VecDeque<Request>) {
        let reader = Arc::clone(&self.reader);
        let range = self.range.clone();
        let mut request = Some(self);
        let mut parts: Vec<(Range<u64>, Arc<Bytes>)> = Vec::new();
        let mut at = range.start;
        while at < range.end {
            let part = match reader.part_at(at) {
                Ok(part) => part,
                Err(e) => {
                    let Some(Request { reply, .. }) = request else { return };
                    return reply(Err(e));
                }
            };
            let len = part.range.end - part.range.start;
            let bytes = match reader.engine.parts.find(part.key, len, &mut request) {
                Found::Parked => return,
                Found::Ready(bytes) => Some(bytes),
                Found::Claimed(claim) => {
                    let (bytes, parked) = reader.make(&part, claim);
                    freed.extend(parked);
                    bytes
                }
                Found::Alone => None,
            };
            let Some(bytes) = bytes else {
                return request.into_iter().for_each(|request| request.answer_alone(false));
            };
            reader.hold(&part, &bytes);
            at = part.range.end;
            parts.push((part.range, bytes));
        }
        let Some(Request { reply, .. }) = request else { return };
        if let [(at, bytes)] = parts.as_slice() {
            return reply(piece(bytes, at, &range).ok_or_else(outside));
        }
        with_answer(&range, reply, |dst| {
            let mut rest = dst;
            for (at, bytes) in &parts {
                let piece = piece(bytes, at, &range).ok_or_else(outside)?;
                let (here, behind) = rest.split_at_mut_checked(piece.len()).ok_or_else(outside)?;
                here.copy_from_slice(piece);
                rest = behind;
            }
            Ok(())
        });
    }

    /// Makes just what is asked for, but for parts that are there, where `looks` says that there may be some.
    fn answer_alone(self, looks: bool) {
        let Request { reader, range, reply } = self;
        with_answer(&range, reply, |dst| {
            let mut rest = dst;
            let mut at = range.start;
            while at < range.end {
                let part = reader.part_at(at)?;
                let here = at..range.end.min(part.range.end);
                let len = usize::try_from(here.end - here.start).unwrap_or(usize::MAX);
                let (dst, behind) = rest.split_at_mut_checked(len).ok_or_else(outside)?;
                rest = behind;
                at = here.end;
                let ready = if looks { reader.engine.parts.ready(part.key) } else { None };
                match ready.as_deref().and_then(|bytes| piece(bytes, &part.range, &here)) {
                    Some(bytes) => dst.copy_from_slice(bytes),
                    None => reader.fill(&part, &here, dst)?,
                }
            }
            Ok(())
        });
    }
}

impl Reader {
    fn make(&self, part: &Part, claim: Claim) -> (Option<Arc<Bytes>>, Vec<Request>) {
        claim.make(|dst| self.fill(part, &part.range, dst))
    }

    /// Has other threads make the parts behind `end`: the more, the longer the reader has gone on already.
    fn look_ahead(self: &Arc<Reader>, end: u64, run: usize) {
        let mut left = depth().min(run.saturating_sub(1));
        // The one that the request ends in is its own matter.
        let mut at = match self.part_at(end - 1) {
            Ok(part) if left > 0 => part.range.end,
            _ => return,
        };
        while left > 0 && self.size().is_none_or(|size| at < size) {
            // What can't be made is told to who asks for it.
            let Ok(part) = self.part_at(at) else { return };
            at = part.range.end;
            left -= 1;
            let Some(claim) = self.engine.parts.ahead(part.key, part.range.end - part.range.start) else {
                continue;
            };
            let reader = Arc::clone(self);
            rayon::spawn_fifo(move || {
                let made = catch_unwind(AssertUnwindSafe(|| reader.make_ahead(&part, claim)));
                if made.is_err() {
                    log::error!("a bug in zrfs: a part of a batch panicked");
                }
            });
        }
    }

    fn make_ahead(&self, part: &Part, claim: Claim) {
        let claim = if self.is_closed() { claim.give_up() } else { Some(claim) };
        let Some(claim) = claim else { return };
        let (bytes, parked) = self.make(part, claim);
        if let Some(bytes) = &bytes {
            self.hold(part, bytes);
        }
        // While `bytes` is here: so it is there for them.
        serve_all(parked.into());
    }
}

/// What `range` has of the part that is `at`.
fn piece<'a>(bytes: &'a Bytes, at: &Range<u64>, range: &Range<u64>) -> Option<&'a [u8]> {
    let begin = range.start.max(at.start).checked_sub(at.start)?;
    let end = range.end.min(at.end).checked_sub(at.start)?;
    bytes.get().get(usize::try_from(begin).ok()?..usize::try_from(end).ok()?)
}

/// Answers with what `fill` makes.
fn with_answer(range: &Range<u64>, reply: Reply, fill: impl FnOnce(&mut [u8]) -> Result<()>) {
    let len = usize::try_from(range.end - range.start).unwrap_or(usize::MAX);
    let mut answer = ANSWER.take();
    // No request asks for more than a u32 says.
    answer.resize(len, 0);
    match fill(&mut answer) {
        Ok(()) => reply(Ok(&answer)),
        Err(e) => reply(Err(e)),
    }
    if answer.capacity() <= KEPT {
        ANSWER.set(answer);
    }
}

fn outside() -> Error {
    Error::new(ErrorKind::Geometry, "a part of a batch has fewer bytes than it should")
}
