//! The bytes of each file.

use std::cell::RefCell;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::decoded::Whose;
use super::opening::Handle;
use super::{Node, RecordId, View, pages};
use crate::error::{Error, ErrorKind, Result};
use crate::format::{Compress, RecordLoc};

thread_local! {
    /// Decoded bytes of the record that is being served.
    static RECORD: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
    /// The first bytes of a file that begins with a header.
    static PAGE: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// Deflated records up to this many bytes mostly arrive in one request. Nothing is kept of those.
const ONE_REQUEST: u32 = 128 << 10;

impl View {
    /// Hands the bytes of a file from `offset` on to `reply`, at most `size` and fewer only at its end.
    ///
    /// `reply` is called once, or not at all where an error is returned. It copies the bytes to the kernel; see
    /// [`Store::with_raw_bytes`](crate::store::Store::with_raw_bytes) for why it must not do more.
    ///
    /// # Errors
    /// [`ErrorKind::Damaged`] or [`ErrorKind::Io`] with the record's index: never zeros for what is gone, never fewer
    /// bytes.
    pub fn read(
        &self,
        node: Node,
        handle: u64,
        offset: u64,
        size: u32,
        mut reply: impl FnMut(&[u8]),
    ) -> Result<()> {
        let count = |bytes: &[u8]| {
            self.counters.reads.fetch_add(1, Ordering::Relaxed);
            self.counters.bytes.fetch_add(bytes.len() as u64, Ordering::Relaxed);
            reply(bytes);
        };
        let result = match node {
            Node::Record(id) => self.read_record(id, offset, size, count),
            Node::Stats | Node::Readme if handle == 0 => self.page_now(node).map(|page| {
                reply(piece(&page, offset, size));
            }),
            Node::Stats | Node::Readme | Node::Delete | Node::Compact => {
                let page = self.handles.get(handle, |handle| match handle {
                    Handle::Page(page) => Some(Arc::clone(page)),
                    _ => None,
                })?;
                reply(piece(&page, offset, size));
                Ok(())
            }
            _ => Err(Error::new(ErrorKind::Unsupported, "only a file has bytes")),
        };
        if let Err(e) = &result {
            self.counters.errors.fetch_add(1, Ordering::Relaxed);
            log::error!("{e}");
        }
        result
    }

    /// What a page says now, for one that was not opened here.
    fn page_now(&self, node: Node) -> Result<Vec<u8>> {
        match node {
            Node::Stats => pages::stats(self),
            _ => Ok(pages::readme(self).into_bytes()),
        }
    }

    /// Reads a record, wherever it is, in one epoch: what was read while a delete came is not handed out, but read again.
    fn read_record(&self, id: RecordId, offset: u64, size: u32, mut reply: impl FnMut(&[u8])) -> Result<()> {
        loop {
            let epoch = self.store.epoch();
            let mut replied = false;
            let index = self.index_of(self.lineage.load().at(epoch), id);
            let read = index.and_then(|index| {
                self.read_index(id, index, offset, size, |bytes| {
                    if self.store.epoch() == epoch {
                        replied = true;
                        reply(bytes);
                    }
                })
            });
            if replied || self.store.epoch() == epoch {
                return read;
            }
        }
    }

    fn read_index(
        &self,
        id: RecordId,
        index: u32,
        offset: u64,
        size: u32,
        mut reply: impl FnMut(&[u8]),
    ) -> Result<()> {
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
        let body = wanted.start.saturating_sub(before)..wanted.end.saturating_sub(before);
        // Both ends lie within a record, whose length is a u32.
        let body = u32::try_from(body.start).unwrap_or(u32::MAX)..u32::try_from(body.end).unwrap_or(u32::MAX);
        if wanted.start >= before {
            return self.read_body(id, index, &loc, body, reply);
        }
        PAGE.with_borrow_mut(|page| {
            page.clear();
            page.extend_from_slice(piece(head, offset, size));
            if loc.compress == Compress::Raw {
                let at = page.len();
                page.resize(at + body.len(), 0);
                let dst = page.get_mut(at..).unwrap_or_default();
                self.store.read_raw(u64::from(index), body.start, dst)?;
            } else {
                self.read_body(id, index, &loc, body, |bytes| page.extend_from_slice(bytes))?;
            }
            reply(page);
            Ok(())
        })
    }

    /// Hands out the bytes `range` of a record.
    fn read_body(
        &self,
        id: RecordId,
        index: u32,
        loc: &RecordLoc,
        range: Range<u32>,
        mut reply: impl FnMut(&[u8]),
    ) -> Result<()> {
        if loc.compress == Compress::Raw {
            return self.store.with_raw_bytes(u64::from(index), range, reply).map(drop);
        }
        let range = range.start as usize..range.end as usize;
        let len = loc.logic_length as usize;
        if loc.logic_length <= ONE_REQUEST && range.len() == len {
            return RECORD.with_borrow_mut(|bytes| {
                bytes.resize(len, 0);
                self.store.gather(&[u64::from(index)], bytes, len)?;
                reply(bytes.get(range).unwrap_or_default());
                Ok(())
            });
        }
        let is_last = range.end == len;
        let id = Whose::Record(id);
        let bytes = match self.decoded.get(id, loc) {
            Some(bytes) => bytes,
            None => {
                let bytes = Arc::new(self.store.read(u64::from(index))?);
                if !is_last {
                    self.decoded.keep(id, *loc, Arc::clone(&bytes));
                }
                bytes
            }
        };
        if is_last {
            self.decoded.done(id);
        }
        reply(bytes.get(range).unwrap_or_default());
        Ok(())
    }
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
        let piece = |at: usize| {
            let mut seen = Vec::new();
            view.read(Node::Record(RecordId::new(0, 0)), 0, at as u64, size as u32, |bytes| {
                seen.extend_from_slice(bytes)
            })
            .map(|()| seen)
        };
        assert_eq!(piece(0).unwrap(), record[..size]);
        // What is on disk decodes no more; the other pieces come from memory.
        let chunk = std::fs::File::options().write(true).open(path.join("0.zr")).unwrap();
        chunk.write_all_at(&[0xff; 100], 0).unwrap();
        for at in (size..len).step_by(size) {
            assert_eq!(piece(at).unwrap(), record[at..(at + size).min(len)]);
        }
    }
}
