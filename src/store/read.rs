//! Reading records: into the caller's memory, batch by batch, or piece by piece for a reply.
//!
//! Decoding goes straight into the destination. Raw records are copied from the mapped chunk, and so is what is to be
//! decoded, since a decoder must not run on bytes that can vanish under it; a record that is read alone is read from the file.

use std::cell::RefCell;
use std::ops::Range;

use super::chunks::Chunk;
use super::state::{Published, State};
use super::{Store, out_of_range, shards};
use crate::codec::{self, Inflaters, Undecodable};
use crate::error::{Error, ErrorKind, Result};
use crate::format::{Compress, RecordLoc};
use crate::storage;

/// Raw records from this many bytes on are read from the file: a copy from the mapping gains nothing then, and
/// costs a page fault each 64 KiB where the pages were not mapped yet.
const READ_FROM_FILE: usize = 1 << 20;

/// How many records ahead the processor is asked for an entry, and for a record's first bytes. Records are drawn at
/// random, so each is a miss in every cache, and the wait for one is that of many at once.
pub(super) const AHEAD: usize = 16;

/// Scratch that a thread keeps between records, in bytes.
const KEPT: usize = 8 << 20;

thread_local! {
    /// Stored bytes of the record that is being decoded; at most [`KEPT`] bytes stay between calls.
    static STORED: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// One record on its way to its place in the destination.
struct Job<'a> {
    index: u64,
    loc: RecordLoc,
    dst: &'a mut [u8],
}

impl Store {
    /// The bytes of one record, in memory of its own. For many records [`Store::gather`] is the faster way.
    ///
    /// # Errors
    /// As for [`Store::gather`]; [`ErrorKind::Memory`] where there is not enough.
    pub fn read(&self, index: u64) -> Result<Vec<u8>> {
        // One state for all of it: a delete may give the index to another record.
        let state = self.state();
        let loc = self.locate(&state, index, self.published_for(&state, Some(index)))?;
        self.table_reaches(Some(index))?;
        self.read_located(&state, index, loc)
    }

    /// The bytes of the record at `loc`, in memory of its own.
    pub(super) fn read_located(&self, state: &State, index: u64, loc: RecordLoc) -> Result<Vec<u8>> {
        let mut record = Vec::new();
        resize(&mut record, loc.logic_length as usize).map_err(|e| self.name_record(index, e))?;
        self.run(state, &mut [Job { index, loc, dst: &mut record }], 0)?;
        Ok(record)
    }

    /// Decodes records into `dst`: record `indices[i]` to `dst[i * stride..]`. Bytes between a record's end and the
    /// next multiple of `stride` are left as they are. Indices may repeat and come in any order.
    ///
    /// Takes no lock and allocates 40 bytes a record; large batches are decoded on all cores.
    ///
    /// # Errors
    /// [`ErrorKind::OutOfRange`] for an index, [`ErrorKind::Geometry`] where a record is longer than `stride` or
    /// `dst` is too short, before anything is written; [`ErrorKind::Damaged`] or [`ErrorKind::Io`] with the
    /// record's index, after which the contents of `dst` are unspecified.
    ///
    /// ```
    /// # fn main() -> zrfs::Result<()> {
    /// # let folder = tempfile::tempdir().unwrap();
    /// # let store = zrfs::Store::create(folder.path().join("s.zr"), zrfs::Version::V1)?;
    /// store.append(b"aaabbbccc", 3, zrfs::Codec::Raw)?;
    /// let mut dst = [0; 8];
    /// store.gather(&[2, 0], &mut dst, 4)?;
    /// assert_eq!(&dst, b"ccc\0aaa\0");
    /// # Ok(())
    /// # }
    /// ```
    pub fn gather(&self, indices: &[u64], dst: &mut [u8], stride: usize) -> Result<()> {
        self.gather_strided(indices, dst, stride, |len| len <= stride)
    }

    /// As [`Store::gather`], of records that have `item_len` bytes each: so every byte of `dst` is written, up to
    /// `indices.len() * item_len`.
    ///
    /// # Errors
    /// As for [`Store::gather`]; [`ErrorKind::Geometry`] where a record has another length.
    pub fn gather_equal(&self, indices: &[u64], dst: &mut [u8], item_len: usize) -> Result<()> {
        self.gather_strided(indices, dst, item_len, |len| len == item_len)
    }

    #[inline]
    fn gather_strided(
        &self,
        indices: &[u64],
        dst: &mut [u8],
        stride: usize,
        fits: impl Fn(usize) -> bool,
    ) -> Result<()> {
        let highest = indices.iter().copied().max();
        let state = self.state();
        let published = self.published_for(&state, highest);
        if self.gather_uniform(&state, highest, indices, dst, stride, &fits)? {
            return Ok(());
        }
        let room = dst.len();
        let mut rest = dst;
        let mut jobs = Vec::with_capacity(indices.len());
        let mut cost = 0;
        for (i, &index) in indices.iter().enumerate() {
            self.prefetch_entry(indices, i);
            let loc = self.locate(&state, index, published)?;
            let len = loc.logic_length as usize;
            if !fits(len) {
                return Err(Error::new(
                    ErrorKind::Geometry,
                    format!("record {index} has {len} bytes, its place in the batch {stride}"),
                ));
            }
            let (slot, behind) = std::mem::take(&mut rest).split_at_mut_checked(len).ok_or_else(|| {
                Error::new(
                    ErrorKind::Geometry,
                    format!("the destination has {room} bytes: too few for record {index} in place {i} of the batch"),
                )
            })?;
            rest = behind.get_mut(stride.saturating_sub(len)..).unwrap_or_default();
            cost += shards::read_cost(loc.phys_length, loc.logic_length);
            jobs.push(Job { index, loc, dst: slot });
        }
        self.table_reaches(highest)?;
        self.run(&state, &mut jobs, cost)
    }

    /// Decodes records of any lengths into `dst`: record `indices[i]` to `dst[offsets[i]..]`.
    ///
    /// # Errors
    /// As for [`Store::gather`]; [`ErrorKind::Geometry`] also where two records would overlap or `offsets` is not as
    /// long as `indices`. See [`Store::lengths`] for planning.
    pub fn gather_ragged(&self, indices: &[u64], dst: &mut [u8], offsets: &[u64]) -> Result<()> {
        let geometry = |text| Err(Error::new(ErrorKind::Geometry, text));
        if indices.len() != offsets.len() {
            return geometry(format!("{} indices, but {} offsets", indices.len(), offsets.len()));
        }
        let highest = indices.iter().copied().max();
        let state = self.state();
        let published = self.published_for(&state, highest);
        let mut placed = Vec::with_capacity(indices.len());
        let mut cost = 0;
        for (i, (&index, &offset)) in indices.iter().zip(offsets).enumerate() {
            self.prefetch_entry(indices, i);
            let loc = self.locate(&state, index, published)?;
            cost += shards::read_cost(loc.phys_length, loc.logic_length);
            placed.push((offset, index, loc));
        }
        self.table_reaches(highest)?;
        // In order of their places, so that the destination can be cut into disjoint slices.
        placed.sort_by_key(|&(offset, _, loc)| (offset, loc.logic_length));
        let room = dst.len();
        let (mut rest, mut at) = (dst, 0u64);
        let mut jobs = Vec::with_capacity(placed.len());
        for (offset, index, loc) in placed {
            let Some(gap) = offset.checked_sub(at) else {
                return geometry(format!("record {index} at offset {offset} overlaps the one before it"));
            };
            let len = loc.logic_length as usize;
            let slot = usize::try_from(gap)
                .ok()
                .and_then(|gap| std::mem::take(&mut rest).split_at_mut_checked(gap))
                .and_then(|(_, behind)| behind.split_at_mut_checked(len));
            let Some((slot, behind)) = slot else {
                return geometry(format!(
                    "the destination has {room} bytes: too few for the {len} of record {index} at offset {offset}"
                ));
            };
            rest = behind;
            at = offset + len as u64;
            jobs.push(Job { index, loc, dst: slot });
        }
        self.run(&state, &mut jobs, cost)
    }

    /// The decoded lengths of records in bytes, without reading their data.
    ///
    /// # Errors
    /// [`ErrorKind::OutOfRange`], [`ErrorKind::Damaged`] with the record's index, [`ErrorKind::Geometry`] where
    /// `out` is not as long as `indices`.
    pub fn lengths(&self, indices: &[u64], out: &mut [u32]) -> Result<()> {
        if indices.len() != out.len() {
            return Err(Error::new(
                ErrorKind::Geometry,
                format!("{} indices, but room for {} lengths", indices.len(), out.len()),
            ));
        }
        let highest = indices.iter().copied().max();
        let state = self.state();
        let published = self.published_for(&state, highest);
        for (&index, out) in indices.iter().zip(out) {
            *out = self.locate(&state, index, published)?.logic_length;
        }
        self.table_reaches(highest)
    }

    /// Hands the bytes `range` of a raw record to `reply`, straight from the mapped chunk where there is one.
    ///
    /// Returns `None` without calling `reply` where the record is deflated: it is decoded as a whole then, by
    /// [`Store::gather`]. The bytes can change while another process damages the store, so `reply` may copy them to
    /// the kernel and nothing else; a compaction waits until it returns.
    ///
    /// # Errors
    /// As for [`Store::location`]; [`ErrorKind::Geometry`] where `range` does not lie within the record;
    /// [`ErrorKind::Damaged`] where the chunk is missing or too short, [`ErrorKind::Io`].
    pub fn with_raw_bytes<R>(
        &self,
        index: u64,
        range: Range<u32>,
        reply: impl FnOnce(&[u8]) -> R,
    ) -> Result<Option<R>> {
        let state = self.state();
        let loc = self.locate(&state, index, self.published_for(&state, Some(index)))?;
        self.table_reaches(Some(index))?;
        if loc.compress != Compress::Raw {
            return Ok(None);
        }
        check_range(index, &loc, &range)?;
        let len = range.len();
        if len == 0 {
            return Ok(Some(reply(&[])));
        }
        let at = u64::from(loc.offset) + u64::from(range.start);
        let name_record = |e: Error| self.name_record(index, e);
        let chunk = state.chunks.get(self.dir.as_ref(), loc.chunk_id).map_err(name_record)?;
        // Looked up each time: behind a cut file's end the mapping has zeros.
        chunk.still_reaches(loc.end()).map_err(name_record)?;
        if let Some(Ok(bytes)) = chunk.map().map(|map| map.bytes(at, len)) {
            return Ok(Some(reply(bytes)));
        }
        with_scratch(len, |scratch| {
            chunk.read(scratch, at).map_err(name_record)?;
            Ok(Some(reply(scratch)))
        })
    }

    /// Reads the bytes of a raw record from `start` on into `dst`.
    ///
    /// # Errors
    /// As for [`Store::with_raw_bytes`]; [`ErrorKind::Unsupported`] where the record is deflated.
    pub fn read_raw(&self, index: u64, start: u32, dst: &mut [u8]) -> Result<()> {
        let state = self.state();
        let loc = self.locate(&state, index, self.published_for(&state, Some(index)))?;
        self.table_reaches(Some(index))?;
        if loc.compress != Compress::Raw {
            let text = format!("record {index} of {} is deflated", self.path().display());
            return Err(Error::new(ErrorKind::Unsupported, text));
        }
        let len = u32::try_from(dst.len()).unwrap_or(u32::MAX);
        check_range(index, &loc, &(start..start.saturating_add(len)))?;
        if dst.is_empty() {
            return Ok(());
        }
        let chunk = state.chunks.get(self.dir.as_ref(), loc.chunk_id);
        let at = u64::from(loc.offset) + u64::from(start);
        chunk
            .and_then(|chunk| chunk.read_around(dst, at, || state.stored()))
            .map_err(|e| self.name_record(index, e))
    }

    /// What is published; looks at the header once more where `highest` lies behind it.
    #[inline]
    pub(super) fn published_for(&self, state: &State, highest: Option<u64>) -> Published {
        let published = state.published();
        match highest {
            Some(index) if index >= u64::from(published.length()) => self.refresh(state),
            _ => published,
        }
    }

    /// Checks, after entries up to `highest` were read, that the table was that long.
    #[inline]
    pub(super) fn table_reaches(&self, highest: Option<u64>) -> Result<()> {
        match highest.map(u32::try_from) {
            Some(Ok(index)) => self.meta.still_reaches(index),
            _ => Ok(()),
        }
    }

    /// Asks for the entry of the record that is [`AHEAD`] places behind the `i`th.
    #[inline(always)]
    fn prefetch_entry(&self, indices: &[u64], i: usize) {
        if let Some(&index) = indices.get(i + AHEAD) {
            self.meta.prefetch(index);
        }
    }

    /// The location of a record among those of `published`.
    #[inline(always)]
    pub(super) fn locate(&self, state: &State, index: u64, published: Published) -> Result<RecordLoc> {
        match u32::try_from(index) {
            Ok(index) if index < published.length() => self.entry(state, index, published.version()),
            _ => Err(out_of_range(&self.path, index, published.length())),
        }
    }

    fn run(&self, state: &State, jobs: &mut [Job<'_>], cost: u64) -> Result<()> {
        let threads = shards::threads_for(jobs.len(), cost);
        let alone = jobs.len() == 1;
        // One shard after another without a pause between them: several records are being decoded at any time.
        shards::share(jobs, threads, |shards| {
            codec::with_inflaters(|inflaters| {
                let mut mapped = Mapped::default();
                // Who reads a record alone has asked for nothing that could be late.
                let before = (!alone).then(storage::waits_for_pages);
                while let Some(shard) = shards.next() {
                    if !alone {
                        self.ask_for(state, shard);
                    }
                    self.read_shard(state, shard, alone, inflaters, &mut mapped)?;
                }
                inflaters.finish().map_err(|e| self.undecodable(e))?;
                let waits = before.map_or(0, |before| storage::waits_for_pages().saturating_sub(before));
                mapped.check(self, state, waits)
            })
        })
    }

    fn read_shard<'a>(
        &self,
        state: &State,
        mut shard: &'a mut [Job<'_>],
        alone: bool,
        inflaters: &mut Inflaters<'_, 'a>,
        mapped: &mut Mapped,
    ) -> Result<()> {
        let mut chunk: Option<(u16, &Chunk)> = None;
        while let Some((job, behind)) = shard.split_first_mut() {
            let Job { index, loc, dst } = job;
            // Neighbours mostly share a chunk.
            let chunk = match chunk {
                Some((id, open)) if id == loc.chunk_id => open,
                _ => {
                    let open = state.chunks.get(self.dir.as_ref(), loc.chunk_id);
                    let open = open.map_err(|e| self.name_record(*index, e))?;
                    chunk = Some((loc.chunk_id, open));
                    open
                }
            };
            let ahead = behind.get(AHEAD - 1).map(|job| job.loc);
            if let Some(ahead) = ahead.filter(|ahead| ahead.chunk_id == loc.chunk_id) {
                chunk.prefetch(u64::from(ahead.offset));
            }
            match loc.compress {
                Compress::Raw => {
                    copy_raw(chunk, loc, dst, mapped).map_err(|e| self.name_record(*index, e))?;
                }
                Compress::Deflate => {
                    let stored = inflaters.buffer().map_err(|e| self.undecodable(e))?;
                    let stored = read_stored(chunk, loc, stored, |stored, at| {
                        if alone {
                            return chunk.read_around(stored, at, || state.stored());
                        }
                        mapped.note(loc);
                        chunk.copy(stored, at)
                    });
                    let stored = stored.map_err(|e| self.name_record(*index, e))?;
                    let len = loc.phys_length as usize;
                    inflaters.push(*index, stored, len, dst).map_err(|e| self.undecodable(e))?;
                }
            }
            shard = behind;
        }
        Ok(())
    }

    /// Asks the disk for all records of a shard that may not be in memory, before the first is waited for.
    fn ask_for(&self, state: &State, shard: &[Job<'_>]) {
        let mut chunk: Option<(u16, &Chunk)> = None;
        for Job { loc, .. } in shard {
            let open = match chunk {
                Some((id, open)) if id == loc.chunk_id => open,
                // What can't be opened is told by who reads it.
                _ => match state.chunks.get(self.dir.as_ref(), loc.chunk_id) {
                    Ok(open) => open,
                    Err(_) => return,
                },
            };
            chunk = Some((loc.chunk_id, open));
            open.coming(u64::from(loc.offset), u64::from(loc.phys_length), || state.stored());
        }
    }

    #[cold]
    fn undecodable(&self, Undecodable { number, stored, len }: Undecodable) -> Error {
        let text = format!("its {stored} stored bytes do not decode to {len} bytes");
        self.name_record(number, Error::new(ErrorKind::Damaged, text))
    }

    #[cold]
    fn name_record(&self, index: u64, e: Error) -> Error {
        e.within(&format!("record {index} of {} can't be read", self.path().display()))
    }
}

#[inline]
fn copy_raw(chunk: &Chunk, loc: &RecordLoc, dst: &mut [u8], mapped: &mut Mapped) -> Result<()> {
    chunk.reaches(loc.end())?;
    if dst.len() < READ_FROM_FILE {
        mapped.note(loc);
        chunk.copy(dst, u64::from(loc.offset))
    } else {
        chunk.read(dst, u64::from(loc.offset))
    }
}

/// The stored bytes of a deflated record as the first of `buffer`, by `read`.
fn read_stored(
    chunk: &Chunk,
    loc: &RecordLoc,
    mut buffer: Vec<u8>,
    read: impl FnOnce(&mut [u8], u64) -> Result<()>,
) -> Result<Vec<u8>> {
    chunk.reaches(loc.end())?;
    let len = loc.phys_length as usize;
    if buffer.len() < len {
        resize(&mut buffer, len)?;
    }
    read(buffer.get_mut(..len).unwrap_or_default(), u64::from(loc.offset))?;
    Ok(buffer)
}

fn check_range(index: u64, loc: &RecordLoc, range: &Range<u32>) -> Result<()> {
    if range.start <= range.end && range.end <= loc.logic_length {
        return Ok(());
    }
    let (start, end, len) = (range.start, range.end, loc.logic_length);
    let text = format!("bytes {start} to {end} of record {index} are asked for, which has {len}");
    Err(Error::new(ErrorKind::Geometry, text))
}

/// Makes `buffer` `len` bytes long, new ones zero. For lengths that a store told: a hostile one may tell of more than
/// there is memory.
///
/// # Errors
/// [`ErrorKind::Memory`] where it does not fit.
pub fn resize(buffer: &mut Vec<u8>, len: usize) -> Result<()> {
    buffer.try_reserve_exact(len.saturating_sub(buffer.len())).map_err(|_| {
        Error::new(ErrorKind::Memory, format!("there is no memory for {len} bytes"))
            .with_help("records are decoded as a whole")
    })?;
    buffer.resize(len, 0);
    Ok(())
}

/// Lends `len` bytes of the thread's scratch, contents unspecified.
fn with_scratch<R>(len: usize, work: impl FnOnce(&mut [u8]) -> Result<R>) -> Result<R> {
    STORED.with_borrow_mut(|scratch| {
        if scratch.len() < len {
            resize(scratch, len)?;
        }
        let result = work(scratch.get_mut(..len).unwrap_or_default());
        if scratch.len() > KEPT {
            *scratch = Vec::new();
        }
        result
    })
}

/// The chunks that a shard copied from by mapping, each with the end of its furthest record. Their sizes are looked
/// at once after the last copy, because a file cut meanwhile reads as zeros to the end of its last page.
#[derive(Default)]
struct Mapped(Vec<(u16, u64)>);

impl Mapped {
    #[inline]
    fn note(&mut self, loc: &RecordLoc) {
        match self.0.last_mut() {
            Some((id, end)) if *id == loc.chunk_id => *end = loc.end().max(*end),
            _ => self.0.push((loc.chunk_id, loc.end())),
        }
    }

    /// `waits` is how many times pages of theirs had to be waited for.
    fn check(mut self, store: &Store, state: &State, waits: u64) -> Result<()> {
        self.0.sort_unstable_by_key(|&(id, end)| (id, std::cmp::Reverse(end)));
        self.0.dedup_by_key(|&mut (id, _)| id);
        self.0.iter().try_for_each(|&(id, end)| {
            let chunk = state.chunks.get(store.dir.as_ref(), id)?;
            if waits > 0 {
                chunk.waited(waits);
            }
            chunk.still_reaches(end)
        })
    }
}
