//! What readers see of a store at one moment: the chunks, the length, and entries that are being rewritten.
//!
//! Shared: one `Arc<State>`, loaded without a lock at the start of each read and held to its end. A writer that moves
//! or deletes records puts a new state in its place and waits until the last reader of the old one is done
//! ([`Store::show`]). Then nobody reads the places that the old state named, nor the entries that the new one
//! overlays, so both may be written over. Readers never wait.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering, fence};
use std::time::Duration;

use arc_swap::{ArcSwap, Guard};

use super::Store;
use super::chunks::Chunks;
use crate::format::{Header, Version};

/// Entries that stand for those of the table, by index.
pub(super) type Overlay = Vec<(u32, [u64; 2])>;

/// Records on their way to another index.
#[derive(Default)]
pub(super) struct Moves {
    /// Index after and before, sorted.
    by_hole: Vec<(u32, u32)>,
    /// Index before and after, sorted.
    by_origin: Vec<(u32, u32)>,
}

impl Moves {
    /// `moves` holds the index after and before, sorted.
    pub(super) fn new(moves: &[(u32, u32)]) -> Moves {
        let mut by_origin: Vec<_> = moves.iter().map(|&(hole, from)| (from, hole)).collect();
        by_origin.sort_unstable();
        Moves { by_hole: moves.to_vec(), by_origin }
    }
}

pub(super) struct State {
    pub(super) chunks: Arc<Chunks>,
    overlay: Overlay,
    /// What a delete that is under way moves: where what is kept beside the records may not have followed them yet.
    moves: Moves,
    /// The header that this state goes by.
    header: ArcSwap<Header>,
    /// Version number in the high half, live records in the low one, of that header.
    published: AtomicU64,
    /// Grows with each state in which indices name other records than in the one before.
    epoch: u64,
}

/// A version and a length, read at one moment.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Published(u64);

impl Published {
    pub(super) fn new(header: &Header) -> Published {
        Published(u64::from(header.version.number()) << 32 | u64::from(header.length))
    }

    /// As the first 16 bytes of meta.zr have them, given as two words.
    pub(super) fn of_words([low, high]: [u64; 2]) -> Published {
        Published((low & 0xffff_0000_0000) | high >> 32)
    }

    #[inline]
    pub(super) fn length(self) -> u32 {
        (self.0 & 0xffff_ffff) as u32
    }

    #[inline]
    pub(super) fn version(self) -> Version {
        if self.0 >> 32 == 1 { Version::V1 } else { Version::V2 }
    }
}

impl State {
    /// `overlay` is sorted by index.
    pub(super) fn new(chunks: Arc<Chunks>, overlay: Overlay, header: &Header) -> State {
        let published = AtomicU64::new(Published::new(header).0);
        State {
            chunks,
            overlay,
            moves: Moves::default(),
            header: ArcSwap::from_pointee(*header),
            published,
            epoch: 0,
        }
    }

    #[inline]
    pub(super) fn published(&self) -> Published {
        Published(self.published.load(Ordering::Acquire))
    }

    pub(super) fn publish(&self, header: &Header) {
        self.header.store(Arc::new(*header));
        self.published.store(Published::new(header).0, Ordering::Release);
    }

    /// The header that was published last.
    pub(super) fn header(&self) -> Header {
        **self.header.load()
    }

    /// Bytes that the records take in the chunks.
    pub(super) fn stored(&self) -> u64 {
        self.header().chunk_bytes()
    }

    /// Whether entries stand for the table's.
    #[inline]
    pub(super) fn has_overlay(&self) -> bool {
        !self.overlay.is_empty()
    }

    /// The entry that stands for the table's.
    #[inline(always)]
    pub(super) fn overlaid(&self, index: u32) -> Option<[u64; 2]> {
        if self.overlay.is_empty() { None } else { self.search(index) }
    }

    /// Where what is kept beside record `index` is sure to stand.
    pub(super) fn origin_of(&self, index: u32) -> u32 {
        find(&self.moves.by_hole, index)
    }

    /// The index of the record that was `index` before the delete that is under way.
    pub(super) fn index_now(&self, index: u32) -> u32 {
        find(&self.moves.by_origin, index)
    }

    #[cold]
    fn search(&self, index: u32) -> Option<[u64; 2]> {
        let at = self.overlay.binary_search_by_key(&index, |&(index, _)| index).ok()?;
        self.overlay.get(at).map(|&(_, words)| words)
    }
}

fn find(moves: &[(u32, u32)], index: u32) -> u32 {
    let at = moves.binary_search_by_key(&index, |&(from, _)| from).ok();
    at.and_then(|at| moves.get(at)).map_or(index, |&(_, to)| to)
}

impl Store {
    /// What this reader sees, until it drops it.
    #[inline]
    pub(super) fn state(&self) -> Guard<Arc<State>> {
        self.state.load()
    }

    /// A number that grows whenever indices come to name other records, for this handle: a delete, or one that is taken
    /// back. Whoever reads it before and after some calls, and finds it the same, has had one index space in all of them.
    #[inline]
    pub fn epoch(&self) -> u64 {
        self.state().epoch
    }

    /// Shows readers these entries in the place of the table's, sorted by index, and waits until the last reader of what was
    /// shown before is done. The caller must not be one: it holds no state.
    pub(super) fn show(&self, overlay: Overlay, header: &Header) {
        let (chunks, epoch) = self.with_state(|state| (Arc::clone(&state.chunks), state.epoch));
        self.replace(State { epoch, ..State::new(chunks, overlay, header) });
    }

    /// As [`Store::show`], for a delete that moves records.
    pub(super) fn show_moves(&self, overlay: Overlay, moves: Moves, header: &Header) {
        let (chunks, epoch) = self.with_state(|state| (Arc::clone(&state.chunks), state.epoch + 1));
        self.replace(State { moves, epoch, ..State::new(chunks, overlay, header) });
    }

    /// As [`Store::show`], for a delete that is taken back.
    pub(super) fn show_restored(&self, header: &Header) {
        let (chunks, epoch) = self.with_state(|state| (Arc::clone(&state.chunks), state.epoch + 1));
        self.replace(State { epoch, ..State::new(chunks, Overlay::new(), header) });
    }

    /// As [`Store::show`], with no chunk open: files that went are not found open later.
    pub(super) fn show_anew(&self, header: &Header) {
        let (chunks, epoch) = self.with_state(|state| (Arc::new(state.chunks.anew()), state.epoch));
        self.replace(State { epoch, ..State::new(chunks, Overlay::new(), header) });
    }

    fn with_state<T>(&self, look: impl FnOnce(&State) -> T) -> T {
        look(&self.state())
    }

    fn replace(&self, state: State) {
        let old = self.state.swap(Arc::new(state));
        // The swap has turned every reader's claim into a reference.
        while Arc::strong_count(&old) > 1 {
            std::thread::sleep(Duration::from_micros(50));
        }
        // What those readers did comes before what this thread does next.
        fence(Ordering::Acquire);
    }
}
