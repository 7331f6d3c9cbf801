//! An open file: what it is made of, where its reader is, and the parts that are kept for it.
//!
//! Shared by the requests for it: where the last ones were; the parts; where steps of an endless archive begin. Each is
//! behind a mutex of its own, held for a look-up.

use std::collections::VecDeque;
use std::mem::take;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::archive::Table;
use super::dense::Dense;
use super::engine::{Engine, Epoch};
use super::parts::{Bytes, PartKey};
use crate::error::{Error, ErrorKind, Result};
use crate::view::Node;

/// How far from where the last request ended one of the same reader may begin: the kernel reads ahead in pieces, which come
/// in any order.
const NEAR: u64 = 2 << 20;
/// How far behind the reader an endless archive can still be asked for, at least: a reply may be lost.
const BEHIND: u64 = 8 << 20;
/// A reader that has asked for nothing so long is idle.
const IDLE: Duration = Duration::from_secs(10);

/// Where everything is in a file.
pub(super) enum Layout {
    Dense(Dense),
    /// That of a step, and its size. Its table is asked for each time: open files hold none.
    Archive {
        step: u64,
        size: u64,
    },
    /// An archive that goes on for ever: pieces of it, each where the one before it ends.
    Endless(Mutex<VecDeque<Group>>),
}

/// Some steps of an endless archive, and where they begin.
pub(super) struct Group {
    number: u64,
    begin: u64,
    table: Arc<Table>,
}

/// What is made in one go.
pub(super) struct Part {
    pub(super) key: PartKey,
    /// Where it is in the file.
    pub(super) range: Range<u64>,
    /// Of an archive, and where that begins in the file.
    table: Option<(Arc<Table>, u64)>,
}

/// A part that is kept, and its place in the file.
type Held = (PartKey, Range<u64>, Arc<Bytes>);

pub(super) struct Reader {
    pub(super) engine: Arc<Engine>,
    pub(super) epoch: Arc<Epoch>,
    pub(super) node: Node,
    pub(super) layout: Layout,
    track: Mutex<Track>,
    /// The parts that are kept for it; those that came last behind.
    window: Mutex<VecDeque<Held>>,
    is_closed: AtomicBool,
}

/// Where requests were.
struct Track {
    begin: u64,
    /// The furthest that this run of requests has come.
    end: u64,
    /// Requests that went on from the ones before them; 0 where the last one did not.
    run: usize,
    when: Instant,
}

/// Parts that are made ahead of a reader: so that all cores have one, and another.
pub(super) fn depth() -> usize {
    2 * std::thread::available_parallelism().map_or(1, |cores| cores.get().min(16)) + 1
}

impl Reader {
    pub(super) fn new(engine: Arc<Engine>, epoch: Arc<Epoch>, node: Node, layout: Layout) -> Reader {
        Reader {
            engine,
            epoch,
            node,
            layout,
            track: Mutex::new(Track { begin: 0, end: 0, run: 0, when: Instant::now() }),
            window: Mutex::default(),
            is_closed: AtomicBool::new(false),
        }
    }

    /// `None` where it never ends.
    pub(super) fn size(&self) -> Option<u64> {
        match &self.layout {
            Layout::Dense(dense) => dense.size(),
            Layout::Archive { size, .. } => Some(*size),
            Layout::Endless(_) => None,
        }
    }

    /// Notes a request. Gives how many before it it goes on from: `None` for one that comes from anywhere else.
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`] for one that an endless archive can't answer.
    pub(super) fn note(&self, range: &Range<u64>) -> Result<Option<usize>> {
        let mut track = lock(&self.track);
        let is_stream = matches!(self.layout, Layout::Endless(_));
        if is_stream && !(range.start..=range.start.saturating_add(BEHIND)).contains(&track.end) {
            return Err(not_sought());
        }
        let is_near = range.start.abs_diff(track.end) <= NEAR;
        let goes_on = track.run > 0 && is_near;
        let begins = range.start == 0 || (track.begin < range.start && range.start <= track.end);
        let is_new = !goes_on && begins;
        track.run = if goes_on { track.run + 1 } else { usize::from(begins) };
        track.end = if goes_on || is_stream { track.end.max(range.end) } else { range.end };
        track.begin = range.start;
        track.when = Instant::now();
        let (run, end) = (track.run, track.end);
        drop(track);
        if run == 0 {
            return Ok(None);
        }
        // Parts that it has left behind, and all of those that it has where it begins anew elsewhere.
        let behind = end.saturating_sub(NEAR).min(range.start);
        let mut window = lock(&self.window);
        let (gone, kept) = take(&mut *window).into_iter().partition(|(_, at, _)| {
            at.end <= behind || (is_new && (at.start > range.end || at.end <= range.start))
        });
        *window = kept;
        drop(window);
        self.let_go(gone);
        Ok(Some(run))
    }

    /// Keeps a part until the reader has left it behind.
    pub(super) fn hold(&self, part: &Part, bytes: &Arc<Bytes>) {
        let mut gone = VecDeque::new();
        if self.is_closed.load(Ordering::Relaxed) {
            return;
        }
        let mut window = lock(&self.window);
        if !window.iter().any(|(key, ..)| *key == part.key) {
            window.push_back((part.key, part.range.clone(), Arc::clone(bytes)));
            // Those before and behind the reader, and what it stands in.
            while window.len() > 2 * depth() + 4 {
                gone.extend(window.pop_front());
            }
        }
        drop(window);
        self.let_go(gone);
    }

    fn let_go(&self, parts: VecDeque<Held>) {
        if !parts.is_empty() {
            let keys: Vec<PartKey> = parts.iter().map(|(key, ..)| *key).collect();
            drop(parts);
            self.engine.parts.forget(keys.into_iter());
        }
    }

    /// Nobody asks for anything any more.
    pub(super) fn close(&self) {
        self.is_closed.store(true, Ordering::Relaxed);
        let window = take(&mut *lock(&self.window));
        self.let_go(window);
    }

    pub(super) fn is_closed(&self) -> bool {
        self.is_closed.load(Ordering::Relaxed)
    }

    /// Gives up what a reader that has gone quiet would come back for.
    pub(super) fn tidy(&self) {
        if lock(&self.track).when.elapsed() > IDLE {
            let window = take(&mut *lock(&self.window));
            self.let_go(window);
        }
    }

    /// The part that has the byte at `offset`, which lies in the file.
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`] where an endless archive has left it behind; what
    /// [`Engine::table`](super::engine::Engine::table) gives.
    pub(super) fn part_at(&self, offset: u64) -> Result<Part> {
        let key = |group, begin| PartKey { node: self.node, group, begin };
        let of_table = |group, table: &Arc<Table>, begin: u64| {
            let local = table.part(offset - begin);
            let range = local.start + begin..local.end + begin;
            Part { key: key(group, local.start), range, table: Some((Arc::clone(table), begin)) }
        };
        match &self.layout {
            Layout::Dense(dense) => {
                let range = dense.part(offset);
                Ok(Part { key: key(0, range.start), range, table: None })
            }
            Layout::Archive { step, .. } => {
                Ok(of_table(0, &self.engine.table(&self.epoch, *step, 1, true)?, 0))
            }
            Layout::Endless(groups) => loop {
                let known = lock(groups);
                if known.front().is_some_and(|first| offset < first.begin) {
                    return Err(not_sought());
                }
                let at = known.partition_point(|group| group.begin <= offset);
                let group = at.checked_sub(1).and_then(|at| known.get(at));
                if let Some(group) = group.filter(|group| offset < group.begin + group.table.size()) {
                    return Ok(of_table(group.number, &group.table, group.begin));
                }
                let last = known.back();
                let (number, begin) =
                    last.map_or((0, 0), |last| (last.number + 1, last.begin + last.table.size()));
                drop(known);
                let together = self.engine.together();
                let first = self.engine.start().wrapping_add(number.wrapping_mul(together));
                let table = self.engine.table(&self.epoch, first, together, false)?;
                let mut known = lock(groups);
                // Unless another thread was faster.
                if known.back().map_or(0, |last| last.number + 1) == number {
                    known.push_back(Group { number, begin, table });
                }
            },
        }
    }

    /// Forgets where steps of an endless archive begin that the reader will not ask for again.
    pub(super) fn forget_behind(&self, offset: u64) {
        if let Layout::Endless(groups) = &self.layout {
            let mut known = lock(groups);
            while known.len() > 4
                && known.get(1).is_some_and(|second| second.begin.saturating_add(BEHIND) < offset)
            {
                known.pop_front();
            }
        }
    }

    /// Makes the bytes of a part, or those of `range` of it.
    pub(super) fn fill(&self, part: &Part, range: &Range<u64>, dst: &mut [u8]) -> Result<()> {
        match (&part.table, &self.layout) {
            (Some((table, begin)), _) => {
                let local = range.start - begin..range.end - begin;
                self.engine.fill_archive(&self.epoch, table, &local, dst)
            }
            (None, Layout::Dense(dense)) => self.engine.fill_dense(&self.epoch, dense, range, dst),
            (None, _) => Err(Error::new(ErrorKind::Unsupported, "an archive has a table")),
        }
    }
}

fn not_sought() -> Error {
    Error::new(ErrorKind::Unsupported, "an endless archive is read from its beginning on, without seeking")
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
