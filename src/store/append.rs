//! Appending: compress in parallel, place serially, write in parallel, commit.
//!
//! An [`Appender`] holds the store's writer mutex and its lock against other processes. Its records become visible to
//! this process all at once at [`Appender::commit`], to others at the next sync (see `sync`); dropped before, it takes
//! its bytes back, as far as the last checkpoint (see `checkpoint`). Data, checksums and entries are written where nothing live lies, so a process killed at any moment
//! leaves the store as it was. Compression needs no lock: for small batches it runs before the mutex is taken.

use std::sync::MutexGuard;
use std::sync::atomic::Ordering;

use super::checkpoint::{self, Noted};
use super::pack::{Batch, Shard};
use super::place::Place;
use super::segments::{self, Segment};
use super::sync::{Durability, Pending, Writer, sync};
use super::{Store, chunks, out_of_range, shards};
use crate::codec::Codec;
use crate::error::{Error, ErrorKind, Result};
use crate::format::{Header, MAX_RECORDS, RecordLoc, Row, Version, checksum};

/// Records whose entries and checksums are written together.
const SPAN: usize = 1 << 14;

/// Placed records with neighbouring indices.
struct Span<'a> {
    first: u32,
    locs: &'a [RecordLoc],
    sums: &'a [u32],
}

/// An append under way, over any number of batches. Nothing is visible before [`Appender::commit`].
pub struct Appender<'a> {
    pub(super) store: &'a Store,
    pub(super) writer: MutexGuard<'a, Writer>,
    /// The header as it was, with appends that were not synced.
    pub(super) before: Header,
    /// The header as it would be if all since the last checkpoint were taken back; at first that is `before`.
    pub(super) kept: Header,
    /// The header as it will be.
    pub(super) after: Header,
    /// Chunks written or created since the last checkpoint, each with the size to go back to.
    pub(super) touched: Vec<(u16, u64)>,
    /// Where checkpoints go, once there was one.
    pub(super) noted: Option<Noted>,
    /// Whether its first checkpoint is that of an appender before it.
    resumed: bool,
    state: State,
    /// Whether names were given, or begun to be.
    named: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Open,
    /// A write failed: nothing more can be appended or committed.
    Failed,
    Committed,
}

impl Store {
    /// Appends equal records of `item_len` bytes, laid one after another in `src`; returns the first one's index.
    ///
    /// Visible to this process when it returns; durable, and visible to others, after [`Store::sync`] (see
    /// [`Durability`] for the other choice). Memory: about 64 MiB beside `src`, or one larger record.
    ///
    /// # Errors
    /// Before anything is written: [`ErrorKind::ReadOnly`], [`ErrorKind::Geometry`] where `src` is no whole number
    /// of records, [`ErrorKind::RecordSize`], [`ErrorKind::Full`], [`ErrorKind::Busy`] where another process appends.
    /// [`ErrorKind::Io`], with the store as it was.
    pub fn append(&self, src: &[u8], item_len: usize, codec: Codec) -> Result<u64> {
        self.append_batch(&Batch::equal(src, item_len, self.version())?, codec)
    }

    /// Appends records of any lengths: record `i` is `src[offsets[i]..][..lens[i]]`.
    ///
    /// # Errors
    /// As for [`Store::append`]; [`ErrorKind::Geometry`] where a record does not lie in `src`.
    pub fn append_ragged(&self, src: &[u8], offsets: &[u64], lens: &[u32], codec: Codec) -> Result<u64> {
        self.append_batch(&Batch::ragged(src, offsets, lens, self.version())?, codec)
    }

    fn append_batch(&self, batch: &Batch<'_>, codec: Codec) -> Result<u64> {
        self.require_write()?;
        let mut pieces = batch.pieces();
        let first_piece = pieces.next();
        let rest: Vec<_> = pieces.collect();
        // Packed before the lock is taken, so that several threads pack at the same time.
        let packed = first_piece.map(|piece| batch.pack(piece, codec)).transpose()?;
        let mut appender = self.appender()?;
        if let Some(packed) = packed {
            appender.place(packed)?;
        }
        for piece in rest {
            appender.place(batch.pack(piece, codec)?)?;
        }
        appender.commit()
    }

    /// Starts an append of many batches that become visible together.
    ///
    /// Other appends and [`Store::sync`] wait until it is committed or dropped: on the thread that holds one they would
    /// never return. The first one after the store has changed checks that the frontier lies behind every record: tens
    /// of milliseconds for 2^24 records.
    ///
    /// # Errors
    /// [`ErrorKind::ReadOnly`], [`ErrorKind::Busy`] where another process appends, [`ErrorKind::Damaged`] where the
    /// header's frontier would let an append overwrite records, [`ErrorKind::Io`] also after a failed sync.
    pub fn appender(&self) -> Result<Appender<'_>> {
        self.require_write()?;
        let mut writer = self.writer();
        writer.require_sound(self)?;
        if let Some(pending) = writer.pending {
            let header = pending.after;
            return Ok(Appender::new(self, writer, header));
        }
        self.meta.lock_for_append()?;
        let mut ready = || -> Result<Header> {
            let header = self.meta.whole_header()?;
            if writer.checked != Some(header) {
                self.frontier_in_chunk(&header)?;
                self.check_no_record_behind_frontier(&header)?;
            }
            writer.checked = Some(header);
            let sidecars = writer.sidecars(self, &header)?;
            // What is appended goes over what an interrupted append has left.
            checkpoint::forget_in(sidecars.folder.as_ref(), &self.path)?;
            Ok(header)
        };
        match ready() {
            Ok(header) => Ok(Appender::new(self, writer, header)),
            Err(e) => {
                self.meta.unlock_for_append();
                Err(e)
            }
        }
    }

    /// An append at a frontier that lies too early would overwrite live records.
    fn check_no_record_behind_frontier(&self, header: &Header) -> Result<()> {
        let frontier = Place::frontier(header);
        for index in 0..header.length {
            let Some(loc) = RecordLoc::decode(self.meta.entry(index)?, header.version) else { continue };
            if Place::end_of(&loc) > frontier {
                return Err(Error::new(
                    ErrorKind::Damaged,
                    format!(
                        "{}: record {index} ends at byte {} of {}, behind the header's frontier (fields tail_chunk \
                         {}, tail_offset {}): an append would overwrite it",
                        self.path.display(),
                        loc.end(),
                        chunks::name(loc.chunk_id),
                        header.tail_chunk,
                        header.tail_offset,
                    ),
                )
                .with_help("it can be read; `zrfs repair` makes it sound"));
            }
        }
        Ok(())
    }
}

impl<'a> Appender<'a> {
    fn new(store: &'a Store, writer: MutexGuard<'a, Writer>, header: Header) -> Appender<'a> {
        Appender {
            store,
            writer,
            before: header,
            kept: header,
            after: header,
            touched: Vec::new(),
            noted: None,
            resumed: false,
            state: State::Open,
            named: false,
        }
    }

    /// An appender that stands behind the records of the last checkpoint.
    pub(super) fn resumed(store: &'a Store, writer: MutexGuard<'a, Writer>, noted: Noted) -> Appender<'a> {
        let (before, kept) = noted.headers();
        let mut appender = Appender::new(store, writer, before);
        (appender.kept, appender.after, appender.noted) = (kept, kept, Some(noted));
        appender.resumed = true;
        appender
    }

    /// Adds equal records of `item_len` bytes, laid one after another in `src`.
    ///
    /// # Errors
    /// As for [`Store::append`]. After an error of the system, or in the middle of a batch (of more than 64 MiB), the
    /// appender takes nothing more and commits nothing.
    pub fn append(&mut self, src: &[u8], item_len: usize, codec: Codec) -> Result<()> {
        let batch = Batch::equal(src, item_len, self.after.version)?;
        self.append_batch(&batch, codec)
    }

    /// Adds records of any lengths: record `i` is `src[offsets[i]..][..lens[i]]`.
    ///
    /// # Errors
    /// As for [`Appender::append`].
    pub fn append_ragged(&mut self, src: &[u8], offsets: &[u64], lens: &[u32], codec: Codec) -> Result<()> {
        let batch = Batch::ragged(src, offsets, lens, self.after.version)?;
        self.append_batch(&batch, codec)
    }

    fn append_batch(&mut self, batch: &Batch<'_>, codec: Codec) -> Result<()> {
        let before = self.after;
        let placed = batch.pieces().try_for_each(|piece| self.place(batch.pack(piece, codec)?));
        // Part of a batch is not what was asked for.
        if self.after == before { placed } else { self.fail_if_failed(placed) }
    }

    /// Records that the store will hold after the commit.
    pub fn len(&self) -> u64 {
        u64::from(self.after.length)
    }

    /// Whether the store will hold no record after the commit.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The bytes of a record that the store will hold after the commit, of this append or from before it.
    ///
    /// Cost: that of [`Store::read`].
    ///
    /// # Errors
    /// As for [`Store::read`], with [`ErrorKind::OutOfRange`] from [`Appender::len`] on.
    ///
    /// ```
    /// # fn main() -> zrfs::Result<()> {
    /// # let folder = tempfile::tempdir().unwrap();
    /// # let store = zrfs::Store::create(folder.path().join("s.zr"), zrfs::Version::V1)?;
    /// let mut appender = store.appender()?;
    /// appender.append(b"aaabbb", 3, zrfs::Codec::Raw)?;
    /// let first = appender.read(0)?;
    /// appender.append(&first, 3, zrfs::Codec::Raw)?;
    /// assert_eq!(appender.read(2)?, b"aaa");
    /// # Ok(())
    /// # }
    /// ```
    pub fn read(&self, index: u64) -> Result<Vec<u8>> {
        let state = self.store.state();
        let loc = match u32::try_from(index) {
            Ok(index) if index < self.after.length => self.store.entry(&state, index, self.after.version)?,
            _ => return Err(out_of_range(&self.store.path, index, self.after.length)),
        };
        self.store.read_located(&state, index, loc)
    }

    /// Changes the version that the commit writes. A store never goes back to a lower one.
    pub fn set_version(&mut self, version: Version) {
        self.after.version = self.after.version.max(version);
    }

    /// Makes the records visible; returns the index of the first one.
    ///
    /// # Errors
    /// [`ErrorKind::Io`], also where an earlier write of this appender has failed; the store is as it was. With
    /// [`Durability::EachAppend`] also those of [`Store::sync`].
    pub fn commit(mut self) -> Result<u64> {
        self.require_open()?;
        if self.after != self.before {
            self.leave_nameless()?;
            let before = self.writer.pending.map_or(self.before, |pending| pending.before);
            self.writer.pending = Some(Pending { before, after: self.after });
            self.writer.checked = Some(self.after);
            self.store.ahead.store(true, Ordering::Release);
            self.store.state().publish(&self.after);
            self.writer.noted |= self.noted.is_some();
        } else if self.noted.is_some() {
            checkpoint::forget(self.store.dir.as_ref(), &self.store.path)?;
        }
        self.state = State::Committed;
        if self.named || self.writer.durability == Durability::EachAppend {
            sync(self.store, &mut self.writer)?;
        }
        Ok(u64::from(self.before.length))
    }

    /// Records without names must not get those of records that were deleted.
    fn leave_nameless(&mut self) -> Result<()> {
        match self.writer.sidecars.as_mut().and_then(|sidecars| sidecars.names.as_mut()) {
            Some(names) if !self.named => names.clear(self.before.length, self.after.length),
            _ => Ok(()),
        }
    }

    pub(super) fn store(&self) -> &'a Store {
        self.store
    }

    /// Index of the first record of this append.
    pub(super) fn first(&self) -> u32 {
        self.before.length
    }

    pub(super) fn writer(&mut self) -> &mut Writer {
        &mut self.writer
    }

    /// Notes that names were given, or could not all be.
    pub(super) fn note_named(&mut self, whole: bool) {
        self.named = true;
        if !whole {
            self.state = State::Failed;
        }
    }

    /// Refuses to go on after a write has failed.
    pub(super) fn require_open(&self) -> Result<()> {
        if self.state != State::Failed {
            return Ok(());
        }
        let text = format!("the append to {} has failed already", self.store.path.display());
        Err(Error::new(ErrorKind::Io, text))
    }

    /// Lets a result pass; after a failure nothing more can be appended or committed.
    pub(super) fn fail_if_failed<T>(&mut self, result: Result<T>) -> Result<T> {
        if result.is_err() {
            self.state = State::Failed;
        }
        result
    }

    /// Gives packed records their places and writes them and their entries.
    fn place(&mut self, mut shards: Vec<Shard<'_>>) -> Result<()> {
        self.require_open()?;
        let records: usize = shards.iter().map(|shard| shard.locs.len()).sum();
        if records as u64 > u64::from(MAX_RECORDS - self.after.length) {
            return Err(Error::new(
                ErrorKind::Full,
                format!(
                    "{} holds {} records; with {records} more it would pass {MAX_RECORDS}, the most of a store",
                    self.store.path.display(),
                    self.after.length
                ),
            )
            .with_help("put them into a store of their own"));
        }
        let mut frontier = Place::frontier(&self.after);
        let mut placed = Vec::with_capacity(shards.len());
        for Shard { bytes, locs } in &mut shards {
            let from = frontier;
            frontier = segments::place(locs, from)?;
            placed.push((from, &**bytes, &**locs));
        }
        let mut sums = vec![checksum(&[]); records];
        let written = self.write(&placed, &mut sums);
        self.fail_if_failed(written)?;
        self.after = frontier.as_frontier_of(self.after);
        self.after.length += u32::try_from(records).unwrap_or(0);
        Ok(())
    }

    /// Writes the bytes of placed records, and then their entries and checksums, for which `sums` has the room.
    fn write(&mut self, placed: &[(Place, &[u8], &[RecordLoc])], sums: &mut [u32]) -> Result<()> {
        let mut segments = Vec::new();
        let mut rest = &mut *sums;
        for &(from, bytes, locs) in placed {
            let (sums, behind) = std::mem::take(&mut rest).split_at_mut(locs.len());
            segments::cut(locs, bytes, sums, from, &mut segments);
            rest = behind;
        }
        self.write_bytes(&mut segments)?;

        let mut spans = Vec::new();
        let (mut first, mut rest) = (self.after.length, &*sums);
        for locs in placed.iter().flat_map(|(.., locs)| locs.chunks(SPAN)) {
            let (sums, behind) = rest.split_at(locs.len());
            spans.push(Span { first, locs, sums });
            first += u32::try_from(locs.len()).unwrap_or(0);
            rest = behind;
        }
        self.write_entries(&mut spans)
    }

    fn write_bytes(&mut self, segments: &mut [Segment<'_>]) -> Result<()> {
        for segment in &*segments {
            self.touch(segment.chunk)?;
        }
        let store = self.store;
        let state = store.state();
        let cost = segments.iter().map(|segment| 2000 + segment.bytes.len() as u64 / 4).sum();
        let threads = shards::threads_for(segments.len(), cost);
        shards::for_each_shard(segments, threads, |shard| {
            shard
                .iter_mut()
                .try_for_each(|segment| segment.write(state.chunks.get(store.dir.as_ref(), segment.chunk)?))
        })
    }

    fn write_entries(&self, spans: &mut [Span<'_>]) -> Result<()> {
        let store = self.store;
        let sums = self.writer.sidecars.as_ref().and_then(|sidecars| sidecars.sums.as_ref());
        store.meta.make_room()?;
        let cost = spans.iter().map(|span| span.locs.len() as u64 * 40).sum();
        shards::for_each_shard(spans, shards::threads_for(spans.len(), cost), |spans| {
            let (mut entries, mut rows) = (Vec::new(), Vec::new());
            spans.iter().try_for_each(|span| {
                entries.clear();
                entries.extend(span.locs.iter().flat_map(RecordLoc::to_bytes));
                if let Some(sums) = sums {
                    rows.clear();
                    let row =
                        |(loc, &sum): (&RecordLoc, &u32)| Row { loc: loc.to_words(), sum, doubtful: false };
                    span.locs
                        .iter()
                        .zip(span.sums)
                        .map(row)
                        .for_each(|row| rows.extend_from_slice(&row.to_bytes()));
                    sums.write(span.first, &rows)?;
                }
                store.meta.write_entries(span.first, &entries)
            })
        })
    }

    /// Makes sure that chunk `id` exists, and remembers its size to go back to.
    fn touch(&mut self, id: u16) -> Result<()> {
        if self.touched.iter().any(|&(seen, _)| seen == id) {
            return Ok(());
        }
        let state = self.store.state();
        if id > self.kept.tail_chunk {
            state.chunks.create(self.store.dir.as_ref(), id)?;
            self.writer.dirty.mark_created(id);
        }
        let chunk = state.chunks.get(self.store.dir.as_ref(), id)?;
        self.touched.push((id, chunk.current_len()?));
        self.writer.dirty.chunks.insert(id);
        Ok(())
    }

    /// Gives the disk back what was written since the last checkpoint and not committed. Failing at it loses space, not data.
    fn roll_back(&mut self) {
        let state = self.store.state();
        for &(id, len) in &self.touched {
            let frontier = if id == self.kept.tail_chunk { u64::from(self.kept.tail_offset) } else { 0 };
            let chunk = state.chunks.get(self.store.dir.as_ref(), id);
            if let Err(e) = chunk.and_then(|chunk| chunk.take_back(frontier, len)) {
                log::warn!("{e}; the space of an append that failed stays taken until the next append");
            }
        }
    }
}

impl Drop for Appender<'_> {
    fn drop(&mut self) {
        if self.state != State::Committed {
            if self.named {
                self.drop_names();
            }
            self.roll_back();
            if self.noted.is_some()
                && !self.resumed
                && self.kept.length == self.before.length
                && let Err(e) = checkpoint::forget(self.store.dir.as_ref(), &self.store.path)
            {
                // It names no record.
                log::warn!("{e}");
            }
        }
        if self.writer.pending.is_none() {
            self.store.meta.unlock_for_append();
        }
    }
}
