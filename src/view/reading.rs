//! The bytes of each file.

use std::cell::RefCell;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::decoded::{Found, Waiting, Whose};
use super::opening::Handle;
use super::{Node, RecordId, View, pages};
use crate::error::{Error, ErrorKind, Result};
use crate::format::{Compress, RecordLoc};

thread_local! {
    /// The bytes that are being served.
    static PAGE: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// Deflated records up to this many bytes mostly arrive in one request. Nothing is kept of those.
const ONE_REQUEST: u32 = 128 << 10;

/// How a request for bytes is answered: once, from any thread.
pub type Reply = Box<dyn FnOnce(Result<&[u8]>) + Send>;

/// A request for a piece of a record that is decoded once for all its pieces.
struct Piece {
    loc: RecordLoc,
    /// What stands before the record.
    head: Vec<u8>,
    /// What is asked for, of both.
    wanted: Range<u64>,
}

impl View {
    /// Gives the bytes of a file from `offset` on to `reply`, at most `size` and fewer only at its end. That may be called
    /// later, by a thread that decodes them; it copies the bytes to the kernel, see
    /// [`Store::with_raw_bytes`](crate::store::Store::with_raw_bytes) for why it must not do more.
    ///
    /// `reply` is given [`ErrorKind::Damaged`] or [`ErrorKind::Io`] with the record's index where it can't be read (never
    /// zeros for what is gone, never fewer bytes), [`ErrorKind::Stale`] where it was deleted, and
    /// [`ErrorKind::Unsupported`] where an endless file can't go on from `offset`.
    pub fn read(&self, node: Node, handle: u64, offset: u64, size: u32, reply: Reply) {
        match node {
            Node::Record(id) => self.read_record(id, offset, size, self.counted(reply)),
            Node::Sampled(..) | Node::Step(..) => {
                self.read_sampled(node, handle, offset, size, self.counted(reply));
            }
            _ => match self.page_of(node, handle) {
                Ok(page) => reply(Ok(piece(&page, offset, size))),
                Err(e) => self.counted(reply)(Err(e)),
            },
        }
    }

    /// `reply`, and counts what it is given.
    fn counted(&self, reply: Reply) -> Reply {
        let counters = Arc::clone(&self.counters);
        Box::new(move |answer| {
            match &answer {
                Ok(bytes) => {
                    counters.reads.fetch_add(1, Ordering::Relaxed);
                    counters.bytes.fetch_add(bytes.len() as u64, Ordering::Relaxed);
                }
                // Nothing is wrong with the store where a record was deleted, or a stream is sought in.
                Err(e) if matches!(e.kind(), ErrorKind::Stale | ErrorKind::Unsupported) => log::debug!("{e}"),
                Err(e) => {
                    counters.errors.fetch_add(1, Ordering::Relaxed);
                    counters.complaints.log(e);
                }
            }
            reply(answer);
        })
    }

    /// What a page said when it was opened; or says now, where it was not opened here.
    fn page_of(&self, node: Node, handle: u64) -> Result<Arc<Vec<u8>>> {
        match node {
            Node::Stats if handle == 0 => pages::stats(self).map(Arc::new),
            Node::Readme if handle == 0 => Ok(Arc::new(pages::readme(self).into_bytes())),
            Node::Stats | Node::Readme | Node::Delete | Node::Compact => {
                self.handles.get(handle, |handle| match handle {
                    Handle::Page(page) => Some(Arc::clone(page)),
                    _ => None,
                })
            }
            _ => Err(Error::new(ErrorKind::Unsupported, "only a file has bytes")),
        }
    }

    /// Reads a record, wherever it is, in one epoch: what was read while a delete came is not handed out, but read again.
    fn read_record(&self, id: RecordId, offset: u64, size: u32, reply: Reply) {
        let mut reply = Some(reply);
        loop {
            let epoch = self.store.epoch();
            let index = self.index_of(self.lineage.load().at(epoch), id);
            let mut answer = |bytes: &[u8]| {
                if self.store.epoch() == epoch
                    && let Some(reply) = reply.take()
                {
                    reply(Ok(bytes));
                }
            };
            let read = index.and_then(|index| self.read_index(index, offset, size, &mut answer));
            let is_over = self.store.epoch() == epoch;
            let Some(answered) = reply.take() else { return };
            match read {
                Ok(Some(piece)) if is_over => return self.read_piece(id, piece, answered),
                Err(e) if is_over => return answered(Err(e)),
                _ => reply = Some(answered),
            }
        }
    }

    /// Gives the bytes of the record that has `index` to `reply`, or the piece of it that has to be decoded as a whole.
    fn read_index(
        &self,
        index: u32,
        offset: u64,
        size: u32,
        reply: &mut dyn FnMut(&[u8]),
    ) -> Result<Option<Piece>> {
        let loc = self.location(index)?;
        // The name is only asked for where it decides something.
        let named = if self.head.is_empty() { None } else { self.name_of(index) };
        let head = self.head(named.as_ref());
        if let Some(schema) = self.schema.as_ref().filter(|_| !head.is_empty())
            && schema.record_bytes() != u64::from(loc.logic_length)
        {
            return Err(Error::new(
                ErrorKind::Damaged,
                format!(
                    "record {index} of {} has {} bytes, the schema says {}",
                    self.store.path().display(),
                    loc.logic_length,
                    schema.record_bytes()
                ),
            ));
        }
        let before = head.len() as u64;
        let wanted = clip(offset, u64::from(size), before + u64::from(loc.logic_length));
        let body = body(&wanted, before);
        let is_whole = body == (0..loc.logic_length);
        if loc.compress != Compress::Raw && !(is_whole && loc.logic_length <= ONE_REQUEST) {
            return Ok(Some(Piece { loc, head: head.to_vec(), wanted }));
        }
        if wanted.start >= before && loc.compress == Compress::Raw {
            return self.store.with_raw_bytes(u64::from(index), body, reply).map(|_| None);
        }
        PAGE.with_borrow_mut(|page| {
            page.clear();
            page.extend_from_slice(piece(head, offset, size));
            let at = page.len();
            page.resize(at + body.len(), 0);
            let dst = page.get_mut(at..).unwrap_or_default();
            match loc.compress {
                Compress::Raw => self.store.read_raw(u64::from(index), body.start, dst)?,
                Compress::Deflate => {
                    let len = dst.len();
                    self.store.gather(&[u64::from(index)], dst, len)?;
                }
            }
            reply(page);
            Ok(None)
        })
    }

    /// Reads a piece of a record that is decoded once for all of them.
    fn read_piece(&self, id: RecordId, piece: Piece, reply: Reply) {
        let is_last = piece.wanted.end == piece.head.len() as u64 + u64::from(piece.loc.logic_length);
        let loc = piece.loc;
        let mut waiting: Option<Waiting> = Some(Box::new(move |decoded| match decoded {
            Ok(bytes) => piece.answer(bytes, reply),
            Err(e) => reply(Err(Error::new(e.kind(), e.to_string()))),
        }));
        let whose = Whose::Record(id);
        match self.decoded.find(whose, &loc, &mut waiting) {
            Found::Left => {}
            Found::Ready(bytes) => {
                if let Some(answer) = waiting {
                    answer(Ok(&bytes));
                }
            }
            Found::Claimed(claim) => {
                let made = self.decode(id).map(Arc::new);
                claim.settle(made.as_ref(), !is_last);
                if let Some(answer) = waiting {
                    answer(made.as_ref().map(|bytes| bytes.as_slice()));
                }
            }
        }
        if is_last {
            self.decoded.done(whose);
        }
    }

    /// All bytes of a record, wherever it is.
    fn decode(&self, id: RecordId) -> Result<Vec<u8>> {
        self.steady(|ids| self.store.read(u64::from(self.index_of(ids, id)?)))
    }
}

impl Piece {
    fn answer(&self, bytes: &[u8], reply: Reply) {
        let before = self.head.len() as u64;
        let body = body(&self.wanted, before);
        let Some(bytes) = bytes.get(body.start as usize..body.end as usize) else {
            return reply(Err(Error::new(
                ErrorKind::Damaged,
                "a record has fewer bytes than its entry says",
            )));
        };
        if self.wanted.start >= before {
            return reply(Ok(bytes));
        }
        let size = u32::try_from(self.wanted.end - self.wanted.start).unwrap_or(u32::MAX);
        let mut page = piece(&self.head, self.wanted.start, size).to_vec();
        page.extend_from_slice(bytes);
        reply(Ok(&page));
    }
}

/// The part of a record that is wanted, which stands behind `before` bytes.
fn body(wanted: &Range<u64>, before: u64) -> Range<u32> {
    let within = |at: u64| u32::try_from(at.saturating_sub(before)).unwrap_or(u32::MAX);
    // Both ends lie within a record, whose length is a u32.
    within(wanted.start)..within(wanted.end)
}

/// The part of `0..len` that a request for `size` bytes at `offset` is about.
fn clip(offset: u64, size: u64, len: u64) -> Range<u64> {
    let start = offset.min(len);
    start..offset.saturating_add(size).min(len)
}

fn piece(bytes: &[u8], offset: u64, size: u32) -> &[u8] {
    let start = usize::try_from(offset).unwrap_or(usize::MAX).min(bytes.len());
    let end = start.saturating_add(size as usize).min(bytes.len());
    bytes.get(start..end).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codec::Codec;
    use crate::format::Version;
    use crate::store::Store;
    use crate::view::ViewOptions;
    use crate::view::tests::read;
    use std::os::unix::fs::FileExt;

    #[test]
    fn a_record_is_decoded_once_for_all_its_pieces() {
        pieces(1_000_000, 100_000);
        pieces(50_000, 4096);
    }

    fn pieces(len: usize, size: usize) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("s.zr");
        let record: Vec<u8> = (0..len).map(|i| (i / 9) as u8).collect();
        let store = Store::create(&path, Version::V1).unwrap();
        store.append(&record, record.len(), Codec::default()).unwrap();
        store.sync().unwrap();
        let view = View::new(Store::open_read_only(&path).unwrap(), None, ViewOptions::default()).unwrap();
        let piece = |at: usize| read(&view, Node::Record(RecordId::new(0, 0)), 0, at as u64, size as u32);
        assert_eq!(piece(0).unwrap(), record[..size]);
        // What is on disk decodes no more; the other pieces come from memory.
        let chunk = std::fs::File::options().write(true).open(path.join("0.zr")).unwrap();
        chunk.write_all_at(&[0xff; 100], 0).unwrap();
        for at in (size..len).step_by(size) {
            assert_eq!(piece(at).unwrap(), record[at..(at + size).min(len)]);
        }
    }

    #[test]
    fn pieces_that_are_asked_for_at_once_are_decoded_once() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("s.zr");
        let store = Store::create(&path, Version::V2).unwrap();
        let records: Vec<Vec<u8>> =
            (0..5usize).map(|n| (0..3_000_000).map(|i| (i / 7 * (n + 1)) as u8).collect()).collect();
        for record in &records {
            store.append(record, record.len(), Codec::default()).unwrap();
        }
        store.sync().unwrap();
        let view = View::new(Store::open_read_only(&path).unwrap(), None, ViewOptions::default()).unwrap();
        std::thread::scope(|scope| {
            for reader in 0..8 {
                let (view, records) = (&view, &records);
                scope.spawn(move || {
                    for (index, record) in (0..).zip(records) {
                        // All but the last piece, in an order of its own.
                        for at in (0..29).map(|i| (i * 11 + reader * 5) % 29 * 100_000) {
                            let node = Node::Record(RecordId::new(index, 0));
                            let seen = read(view, node, 0, at as u64, 100_000).unwrap();
                            assert!(seen == record[at..at + 100_000]);
                        }
                    }
                });
            }
        });
        assert_eq!(view.decoded.misses(), 5);
    }
}
