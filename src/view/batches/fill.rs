//! The bytes of any range of a file, made in place.
//!
//! Records that the range has as a whole go straight into it, in as few calls of the store as there can be. Of those that
//! it cuts, the decoded bytes are kept for who asks for the rest.

use std::ops::Range;
use std::sync::Arc;

use super::archive::{self, Sample, Table};
use super::dense::{Dense, What};
use super::engine::{Engine, Epoch, LabelKind, Source};
use super::scalar;
use crate::error::{Error, ErrorKind, Result};
use crate::format::Compress;
use crate::view::decoded::Whose;

/// Records up to so many bytes are gathered by one thread, in one go of few enough: to wake others takes longer.
const TINY: u64 = 256;
const TINY_AT_ONCE: usize = 1 << 10;
/// Other records that are gathered in one go. The store has a note of each meanwhile.
const AT_ONCE: usize = 1 << 16;

/// Records that are gathered in one go.
#[derive(Default)]
struct Whole {
    indices: Vec<u64>,
    /// Where each goes.
    offsets: Vec<u64>,
}

impl Engine {
    /// Makes the bytes `range` of a file of dense records.
    pub(super) fn fill_dense(
        &self,
        epoch: &Epoch,
        dense: &Dense,
        range: &Range<u64>,
        dst: &mut [u8],
    ) -> Result<()> {
        let head = dense.head.len() as u64;
        let mut drawing = epoch.draws.as_ref().map(|draws| draws.begin());
        let mut records = Vec::new();
        let mut whole = Vec::new();
        let mut whole_at = 0;
        let mut at = range.start;
        while at < range.end {
            let (step, within) = (at / dense.unit, at % dense.unit);
            let begin = at - range.start;
            let until = range.end.min(at - within + dense.unit);
            if within < head {
                self.gather(dense.what, &mut whole, dense.item, part(dst, whole_at..begin)?)?;
                let len = (head - within).min(until - at);
                copy(part(dst, begin..begin + len)?, &dense.head, within);
                at += len;
                whole_at = begin + len;
                continue;
            }
            let (first, skipped) = ((within - head) / dense.item, (within - head) % dense.item);
            let indices = match (dense.what, &mut drawing) {
                (What::All, _) | (_, None) => None,
                (_, Some(drawing)) => Some(drawing.step(dense.first.wrapping_add(step))?),
            };
            let index = |at: u64| match indices {
                None => Some(at),
                Some(indices) => indices.get(usize::try_from(at).ok()?).copied(),
            };
            if skipped > 0 || until - at < dense.item {
                self.gather(dense.what, &mut whole, dense.item, part(dst, whole_at..begin)?)?;
                let len = (dense.item - skipped).min(until - at);
                let index = index(first).ok_or_else(no_step)?;
                self.piece(epoch, dense.what, index, dense.item, skipped, part(dst, begin..begin + len)?)?;
                at += len;
                whole_at = begin + len;
                continue;
            }
            let n = (until - at) / dense.item;
            records.clear();
            records.extend((first..first + n).map_while(index));
            if records.len() as u64 != n {
                return Err(no_step());
            }
            whole.append(&mut records);
            at += n * dense.item;
        }
        self.gather(dense.what, &mut whole, dense.item, part(dst, whole_at..range.end - range.start)?)
    }

    /// Gathers whole records of one length, which fill `dst`, and clears the list.
    fn gather(&self, what: What, whole: &mut Vec<u64>, item: u64, dst: &mut [u8]) -> Result<()> {
        let len = usize::try_from(item).unwrap_or(usize::MAX);
        if what == What::Index {
            let bytes = whole.iter().flat_map(|index| index.to_le_bytes());
            dst.iter_mut().zip(bytes).for_each(|(to, from)| *to = from);
        } else if !whole.is_empty() {
            let source = self.source(what)?;
            let at_once = if item <= TINY { TINY_AT_ONCE } else { AT_ONCE };
            for (indices, dst) in
                whole.chunks(at_once).zip(dst.chunks_mut(len.saturating_mul(at_once).max(1)))
            {
                source.store.gather_equal(indices, dst, len).map_err(|e| source.damaged(e))?;
            }
        }
        whole.clear();
        Ok(())
    }

    fn source(&self, what: What) -> Result<&Source> {
        match what {
            What::Labels => self.labels.as_ref().map(|(source, _)| source).ok_or_else(no_step),
            _ => Ok(&self.data),
        }
    }

    /// Makes the bytes of record `index` from `skipped` on. It has `item` bytes.
    fn piece(
        &self,
        epoch: &Epoch,
        what: What,
        index: u64,
        item: u64,
        skipped: u64,
        dst: &mut [u8],
    ) -> Result<()> {
        if what == What::Index {
            copy(dst, &index.to_le_bytes(), skipped);
            return Ok(());
        }
        self.source(what)?.piece(self, epoch, index, item, skipped, dst)
    }

    /// Makes the bytes `range` of an archive.
    pub(super) fn fill_archive(
        &self,
        epoch: &Epoch,
        table: &Table,
        range: &Range<u64>,
        dst: &mut [u8],
    ) -> Result<()> {
        // The padding, and the end.
        dst.fill(0);
        let first = table.sample(range.start);
        let touched = table.samples.get(first..).unwrap_or_default();
        let touched = touched.split_at(touched.partition_point(|sample| sample.at < range.end)).0;
        // What is behind the last sample needs none.
        if range.start >= table.end {
            return Ok(());
        }
        let texts = self.check(touched)?;
        let mut data = Whole::default();
        let mut labels = Whole::default();
        for (place, sample) in (first..).zip(touched) {
            let key = table.key(place);
            let ext = table.extensions.get(sample.ext);
            let (data_len, label_len) = self.member_lengths(sample, ext);
            let mut member = Member { range, dst: &mut *dst, at: sample.at };
            member.literal(&archive::header(&key, ext, data_len));
            let head = self.head(ext);
            member.literal(head);
            member.record(self, epoch, &self.data, sample.index, sample.len, &mut data)?;
            member.pad(sample.at);
            if let (Some((source, kind)), Some(label_len)) = (&self.labels, label_len) {
                let begin = member.at;
                let label_ext = table.extensions.get(sample.label_ext);
                let text = texts.get(place - first);
                let len = text.map_or(label_len, |text| text.len() as u64);
                member.literal(&archive::header(&key, label_ext, len));
                match kind {
                    LabelKind::Text(_) => member.literal(text.map_or(&[], |text| text.as_bytes())),
                    LabelKind::Npy(head) => {
                        member.literal(head);
                        member.record(self, epoch, source, sample.index, sample.label_len, &mut labels)?;
                    }
                    LabelKind::Bytes => {
                        member.record(self, epoch, source, sample.index, sample.label_len, &mut labels)?;
                    }
                }
                member.pad(begin);
            }
            let index = sample.index.to_string();
            member.literal(&archive::header(&key, archive::index_extension(ext), index.len() as u64));
            member.literal(index.as_bytes());
        }
        data.gather(&self.data, dst)?;
        match &self.labels {
            Some((source, _)) => labels.gather(source, dst),
            None => Ok(()),
        }
    }

    /// Checks that records have the lengths that the table has. Gives the labels that are texts.
    fn check(&self, samples: &[Sample]) -> Result<Vec<String>> {
        let indices: Vec<u64> = samples.iter().map(|sample| sample.index.into()).collect();
        let mut lengths = vec![0; indices.len()];
        self.data.store.lengths(&indices, &mut lengths)?;
        let expected = samples.iter().map(|sample| sample.len);
        self.data.check(&indices, &lengths, expected)?;
        let Some((source, kind)) = &self.labels else { return Ok(Vec::new()) };
        source.store.lengths(&indices, &mut lengths)?;
        source.check(&indices, &lengths, samples.iter().map(|sample| sample.label_len))?;
        let LabelKind::Text(schema) = kind else { return Ok(Vec::new()) };
        let item = usize::try_from(schema.record_bytes()).unwrap_or(usize::MAX);
        // A number has few bytes.
        let mut bytes = vec![0; indices.len().saturating_mul(item)];
        source.store.gather_equal(&indices, &mut bytes, item).map_err(|e| source.damaged(e))?;
        Ok(bytes.chunks(item.max(1)).map(|bytes| scalar::text(schema, bytes).unwrap_or_default()).collect())
    }
}

impl Whole {
    fn gather(&self, source: &Source, dst: &mut [u8]) -> Result<()> {
        if self.indices.is_empty() {
            return Ok(());
        }
        source.store.gather_ragged(&self.indices, dst, &self.offsets).map_err(|e| source.damaged(e))
    }
}

impl Source {
    /// A record that does not fit its place is damaged: where it goes was laid out by what the schema or its entry said.
    fn damaged(&self, e: Error) -> Error {
        match e.kind() {
            ErrorKind::Geometry => Error::new(ErrorKind::Damaged, e.without_help())
                .within(&format!("the schema or the table of {} was broken", self.store.path().display())),
            _ => e,
        }
    }

    fn check(&self, indices: &[u64], lengths: &[u32], expected: impl Iterator<Item = u32>) -> Result<()> {
        let mut pairs = indices.iter().zip(lengths).zip(expected);
        match pairs.find(|((_, has), expected)| *has != expected) {
            Some(((index, has), expected)) => {
                Err(self.wrong_length(*index, u64::from(*has), expected.into()))
            }
            None => Ok(()),
        }
    }

    fn wrong_length(&self, index: u64, has: u64, expected: u64) -> Error {
        let path = self.store.path().display();
        let text = match self.schema {
            Some(_) => format!("record {index} of {path} has {has} bytes, the schema says {expected}"),
            None => format!("record {index} of {path} has {has} bytes, and had {expected} before"),
        };
        Error::new(ErrorKind::Damaged, text)
    }

    /// Makes the bytes of a record of `len` bytes from `skipped` on. What it decodes for that is kept.
    fn piece(
        &self,
        engine: &Engine,
        epoch: &Epoch,
        index: u64,
        len: u64,
        skipped: u64,
        dst: &mut [u8],
    ) -> Result<()> {
        let loc = self.store.location(index)?;
        if u64::from(loc.logic_length) != len {
            return Err(self.wrong_length(index, loc.logic_length.into(), len));
        }
        // Within the record, whose length is a u32.
        let start = u32::try_from(skipped).unwrap_or(u32::MAX);
        if loc.compress == Compress::Raw {
            return self.store.read_raw(index, start, dst);
        }
        let whose =
            if self.is_labels { Whose::Label(index, epoch.number) } else { Whose::Data(index, epoch.number) };
        let bytes = match engine.decoded.get(whose, &loc) {
            Some(bytes) => bytes,
            None => {
                let bytes = Arc::new(self.store.read(index)?);
                engine.decoded.keep(whose, loc, Arc::clone(&bytes));
                bytes
            }
        };
        if skipped + dst.len() as u64 == len {
            engine.decoded.done(whose);
        }
        copy(dst, &bytes, skipped);
        Ok(())
    }
}

/// A sample on its way to where the range is that was asked for.
struct Member<'a> {
    range: &'a Range<u64>,
    dst: &'a mut [u8],
    /// Where in the archive it is.
    at: u64,
}

impl Member<'_> {
    /// Which of the next `len` bytes are asked for, and where they go. Goes on behind them.
    fn next(&mut self, len: u64) -> (u64, Range<u64>) {
        let begin = self.at.clamp(self.range.start, self.range.end);
        let end = (self.at + len).clamp(self.range.start, self.range.end);
        let skipped = begin.saturating_sub(self.at);
        self.at += len;
        (skipped, begin - self.range.start..end - self.range.start)
    }

    fn literal(&mut self, bytes: &[u8]) {
        let (skipped, to) = self.next(bytes.len() as u64);
        if let Ok(dst) = part(self.dst, to) {
            copy(dst, bytes, skipped);
        }
    }

    fn record(
        &mut self,
        engine: &Engine,
        epoch: &Epoch,
        source: &Source,
        index: u32,
        len: u32,
        whole: &mut Whole,
    ) -> Result<()> {
        let len = u64::from(len);
        let (skipped, to) = self.next(len);
        match to.end - to.start {
            0 => Ok(()),
            asked if asked == len => {
                whole.indices.push(index.into());
                whole.offsets.push(to.start);
                Ok(())
            }
            _ => source.piece(engine, epoch, index.into(), len, skipped, part(self.dst, to)?),
        }
    }

    /// Goes on with the next block of a member that began at `begin`.
    fn pad(&mut self, begin: u64) {
        self.at = begin + (self.at - begin).next_multiple_of(archive::BLOCK);
    }
}

fn part(dst: &mut [u8], range: Range<u64>) -> Result<&mut [u8]> {
    let range = usize::try_from(range.start).ok().zip(usize::try_from(range.end).ok());
    range.and_then(|(start, end)| dst.get_mut(start..end)).ok_or_else(no_step)
}

/// Fills `dst` with the bytes of `src` from `skipped` on, as far as there are any.
fn copy(dst: &mut [u8], src: &[u8], skipped: u64) {
    let from = usize::try_from(skipped).ok().and_then(|skipped| src.get(skipped..)).unwrap_or_default();
    let len = dst.len().min(from.len());
    if let (Some(dst), Some(from)) = (dst.get_mut(..len), from.get(..len)) {
        dst.copy_from_slice(from);
    }
}

/// What would be a bug, and is an error.
fn no_step() -> Error {
    Error::new(ErrorKind::Geometry, "a part of a batch lies outside it")
}
