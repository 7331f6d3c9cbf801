//! Parts of files, each made once and kept while a reader needs it.
//!
//! Shared: which parts there are, behind a mutex that is held to look one up. A part is made without it, by whoever has
//! claimed it; who asks for one that another thread makes leaves the request with it, and goes.

use std::collections::HashMap;
use std::mem::take;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use super::serve::Request;
use crate::error::{Error, ErrorKind, Result};
use crate::view::Node;

/// How long it is known that a part can't be made.
const FAILED: Duration = Duration::from_secs(10);
/// Buffers that are kept for the next parts, and the largest of them in bytes.
const SPARE: usize = 8;
const MAX_SPARE: usize = 2 << 20;

/// A part: of which file, which of its archive's pieces, and where in that it begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct PartKey {
    pub(super) node: Node,
    pub(super) group: u64,
    pub(super) begin: u64,
}

/// The bytes of a part. Where nobody has them any more their memory is free for others.
pub(super) struct Bytes {
    bytes: Vec<u8>,
    /// Of the budget.
    taken: usize,
    room: Arc<Room>,
}

impl Bytes {
    pub(super) fn get(&self) -> &[u8] {
        &self.bytes
    }
}

impl Drop for Bytes {
    fn drop(&mut self) {
        self.room.used.fetch_sub(self.taken, Ordering::Relaxed);
        if self.bytes.capacity() <= MAX_SPARE && self.bytes.capacity() > 0 {
            let mut spare = lock(&self.room.spare);
            if spare.len() < SPARE {
                spare.push(take(&mut self.bytes));
            }
        }
    }
}

/// The memory of all parts.
#[derive(Default)]
struct Room {
    budget: usize,
    used: AtomicUsize,
    spare: Mutex<Vec<Vec<u8>>>,
}

enum State {
    /// A thread makes it; these want it.
    Making(Vec<Request>),
    /// As long as a reader has it.
    Ready(Weak<Bytes>),
    /// It can't be made as a whole: a record is damaged.
    Failed(Instant),
}

pub(super) struct Parts {
    map: Mutex<HashMap<PartKey, State>>,
    room: Arc<Room>,
}

/// What came of a look-up.
pub(super) enum Found {
    /// Here it is.
    Ready(Arc<Bytes>),
    /// The caller makes it.
    Claimed(Claim),
    /// Another thread makes it; the request waits there.
    Parked,
    /// It can't be made as a whole, or there is no room for it: what is asked for is made alone.
    Alone,
}

/// A part that the holder makes. Dropped, it can't be made.
pub(super) struct Claim {
    parts: Arc<Parts>,
    key: PartKey,
    /// Its place in the budget.
    bytes: Option<Bytes>,
    is_settled: bool,
}

impl Parts {
    pub(super) fn new(budget: usize) -> Parts {
        Parts { map: Mutex::default(), room: Arc::new(Room { budget, ..Room::default() }) }
    }

    /// Looks for a part of `len` bytes for `request`, which is taken where it has to wait.
    pub(super) fn find(self: &Arc<Parts>, key: PartKey, len: u64, request: &mut Option<Request>) -> Found {
        let mut map = lock(&self.map);
        match map.get_mut(&key) {
            Some(State::Making(parked)) => {
                parked.extend(request.take());
                return Found::Parked;
            }
            Some(State::Failed(_)) => return Found::Alone,
            Some(State::Ready(bytes)) => {
                if let Some(bytes) = bytes.upgrade() {
                    return Found::Ready(bytes);
                }
            }
            None => {}
        }
        match self.claim(&mut map, key, len, self.room.budget) {
            Some(claim) => Found::Claimed(claim),
            None => Found::Alone,
        }
    }

    /// Claims a part that will be asked for, if nobody has, and a quarter of the room is left for those that are.
    pub(super) fn ahead(self: &Arc<Parts>, key: PartKey, len: u64) -> Option<Claim> {
        let mut map = lock(&self.map);
        match map.get(&key) {
            Some(State::Ready(bytes)) if bytes.strong_count() == 0 => {}
            Some(_) => return None,
            None => {}
        }
        self.claim(&mut map, key, len, self.room.budget / 4 * 3)
    }

    fn claim(
        self: &Arc<Parts>,
        map: &mut HashMap<PartKey, State>,
        key: PartKey,
        len: u64,
        budget: usize,
    ) -> Option<Claim> {
        let taken = usize::try_from(len).ok()?;
        let fits = |used: usize| used.checked_add(taken).filter(|&used| used <= budget);
        self.room.used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, fits).ok()?;
        let bytes = Bytes { bytes: Vec::new(), taken, room: Arc::clone(&self.room) };
        map.insert(key, State::Making(Vec::new()));
        Some(Claim { parts: Arc::clone(self), key, bytes: Some(bytes), is_settled: false })
    }

    /// A part that is there already.
    pub(super) fn ready(&self, key: PartKey) -> Option<Arc<Bytes>> {
        match lock(&self.map).get(&key)? {
            State::Ready(bytes) => bytes.upgrade(),
            State::Making(_) | State::Failed(_) => None,
        }
    }

    /// Forgets parts that nobody has any more, of those with `keys`.
    pub(super) fn forget(&self, keys: impl Iterator<Item = PartKey>) {
        let mut map = lock(&self.map);
        for key in keys {
            if matches!(map.get(&key), Some(State::Ready(bytes)) if bytes.strong_count() == 0) {
                map.remove(&key);
            }
        }
    }

    /// Forgets all but those that are being made.
    pub(super) fn clear(&self) {
        lock(&self.map).retain(|_, state| matches!(state, State::Making(_)));
    }

    /// Forgets what nobody has, and gives memory back.
    pub(super) fn tidy(&self) {
        lock(&self.map).retain(|_, state| match state {
            State::Making(_) => true,
            State::Ready(bytes) => bytes.strong_count() > 0,
            State::Failed(when) => when.elapsed() < FAILED,
        });
        if self.room.used.load(Ordering::Relaxed) == 0 {
            lock(&self.room.spare).clear();
        }
    }

    /// Bytes that parts take, those that are being made included.
    #[cfg(test)]
    pub(super) fn used(&self) -> usize {
        self.room.used.load(Ordering::Relaxed)
    }
}

impl Claim {
    /// Has `fill` make the bytes. Gives them, and the requests that waited for them, or those that wait in vain.
    pub(super) fn make(
        mut self,
        fill: impl FnOnce(&mut [u8]) -> Result<()>,
    ) -> (Option<Arc<Bytes>>, Vec<Request>) {
        let Some(mut bytes) = self.bytes.take() else { return (None, Vec::new()) };
        let made = self.buffer(bytes.taken).and_then(|mut buffer| {
            let filled = fill(&mut buffer);
            bytes.bytes = buffer;
            filled
        });
        match made {
            Ok(()) => {
                let bytes = Arc::new(bytes);
                let parked = self.settle(State::Ready(Arc::downgrade(&bytes)));
                (Some(bytes), parked)
            }
            // Told by who asks for the record that is the reason.
            Err(e) => {
                log::debug!("{e}");
                (None, self.settle(State::Failed(Instant::now())))
            }
        }
    }

    fn buffer(&self, len: usize) -> Result<Vec<u8>> {
        let mut buffer = lock(&self.parts.room.spare).pop().unwrap_or_default();
        buffer.try_reserve_exact(len.saturating_sub(buffer.len())).map_err(|_| {
            Error::new(ErrorKind::Memory, format!("there is no memory for {len} bytes of a batch"))
        })?;
        buffer.resize(len, 0);
        Ok(buffer)
    }

    /// Gives the claim up, unless a request waits for it.
    pub(super) fn give_up(mut self) -> Option<Claim> {
        let mut map = lock(&self.parts.map);
        if matches!(map.get(&self.key), Some(State::Making(parked)) if !parked.is_empty()) {
            drop(map);
            return Some(self);
        }
        map.remove(&self.key);
        drop(map);
        self.is_settled = true;
        None
    }

    fn settle(&mut self, state: State) -> Vec<Request> {
        self.is_settled = true;
        match lock(&self.parts.map).insert(self.key, state) {
            Some(State::Making(parked)) => parked,
            _ => Vec::new(),
        }
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        if !self.is_settled {
            // Nobody waits for ever: requests answer with an error as they are dropped.
            drop(self.settle(State::Failed(Instant::now())));
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
