//! What `zr_open` gives: a path, and the store there as soon as there is one. Safe code, and no pointers.
//!
//! Shared: `open` is set once, by whoever finds or creates the store first; nobody waits for another thread to do it, since
//! that one might be gone in a forked child. `unsynced` only decides whether closing has something to say.

use std::fs;
use std::io::{self, Read as _};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::sleep;
use std::time::{Duration, Instant};

use once_cell::race::OnceBox;

use crate::codec::Codec;
use crate::error::{Error, ErrorKind, Result};
use crate::format::{HEADER_BYTES, MAX_RECORDS, Version};
use crate::storage::open_regular;
use crate::store::{Appender, Stats, Store};

/// How long an opening or an append waits for who changes the store.
const PATIENCE: Duration = if cfg!(test) { Duration::from_secs(2) } else { Duration::from_secs(5) };
/// How long a store may have no header while another process creates it.
const CREATION: Duration = Duration::from_secs(1);
const PAUSE: Duration = Duration::from_millis(5);

/// Records of a strided append that are packed at a time: their offsets take memory.
const STRIDED: usize = 1 << 16;

/// A place where a store is, or may be. To C it is opaque.
pub struct Zrecord {
    path: PathBuf,
    open: OnceBox<Open>,
    /// Whether records were appended through this handle and not synced.
    unsynced: AtomicBool,
}

struct Open {
    store: Store,
    /// Why it is open for reading only.
    refused: Option<Error>,
}

/// Records to append, as C lays them out.
pub(super) enum Records<'a> {
    /// One after another, `item_len` bytes each.
    Equal { src: &'a [u8], item_len: usize },
    /// `n` of `item_len` bytes, one every `stride` bytes.
    Strided { src: &'a [u8], n: usize, stride: usize, item_len: usize },
    /// Record `i` is `src[offsets[i]..][..lens[i]]`.
    Ragged { src: &'a [u8], offsets: &'a [u64], lens: &'a [u32] },
}

impl Zrecord {
    /// Opens the store at `path`, or notes the place where none is yet. Creates nothing.
    pub(super) fn open(path: &Path) -> Result<Zrecord> {
        // The process may go to another folder before the store is created.
        let path = std::path::absolute(path)
            .map_err(|e| Error::io(format!("can't tell where {} is", path.display()), e))?;
        let found = find(&path, PATIENCE)?;
        let open = found.map_or_else(OnceBox::new, |open| OnceBox::with_value(Box::new(open)));
        Ok(Zrecord { path, open, unsynced: AtomicBool::new(false) })
    }

    fn opened(&self, patience: Duration) -> Result<Option<&Open>> {
        if let Some(open) = self.open.get() {
            return Ok(Some(open));
        }
        let found = find(&self.path, patience)?;
        Ok(found.map(|found| self.open.get_or_init(|| Box::new(found))))
    }

    /// The store; looks once more whether there is one.
    fn store(&self) -> Result<Option<&Store>> {
        Ok(self.opened(Duration::ZERO)?.map(|open| &open.store))
    }

    /// The store, open for reading and writing.
    fn writable(&self, patience: Duration) -> Result<Option<&Store>> {
        match self.opened(patience)? {
            Some(Open { refused: Some(why), .. }) => Err(Error::new(
                why.kind(),
                format!(
                    "{} is open for reading only, because it could not be opened for both: {why}",
                    self.path.display()
                ),
            )),
            open => Ok(open.map(|open| &open.store)),
        }
    }

    /// As [`Zrecord::writable`]; where there is none, an empty one of version 1, as loaderx creates it.
    fn created(&self) -> Result<&Store> {
        if let Some(store) = self.writable(PATIENCE)? {
            return Ok(store);
        }
        let store = patiently(|| Store::open_or_create(&self.path, Version::V1))?;
        Ok(&self.open.get_or_init(|| Box::new(Open { store, refused: None })).store)
    }

    /// The store, for reading these records of it, of which there is at least one.
    fn store_of(&self, indices: &[u64]) -> Result<&Store> {
        self.store()?.ok_or_else(|| self.no_record(indices))
    }

    /// The error for indices where there is no store.
    fn no_record(&self, indices: &[u64]) -> Error {
        let index = indices.first().copied().unwrap_or_default();
        let text = format!("no record {index}: there is no store at {} yet", self.path.display());
        Error::new(ErrorKind::OutOfRange, text)
    }

    pub(super) fn len(&self) -> Result<u64> {
        Ok(self.store()?.map_or(0, Store::len))
    }

    pub(super) fn lengths(&self, indices: &[u64], out: &mut [u32]) -> Result<()> {
        self.store_of(indices)?.lengths(indices, out)
    }

    pub(super) fn gather(&self, indices: &[u64], dst: &mut [u8], stride: usize) -> Result<()> {
        self.store_of(indices)?.gather(indices, dst, stride)
    }

    pub(super) fn gather_ragged(&self, indices: &[u64], dst: &mut [u8], offsets: &[u64]) -> Result<()> {
        self.store_of(indices)?.gather_ragged(indices, dst, offsets)
    }

    pub(super) fn stats(&self) -> Result<Option<Stats>> {
        self.store()?.map(Store::stats).transpose()
    }

    /// Appends records, of which there is at least one; returns the index of the first.
    pub(super) fn append(&self, records: &Records<'_>, codec: Codec) -> Result<u64> {
        let version = self.opened(PATIENCE)?.map_or(Version::V1, |open| open.store.version());
        // Before a store is created for them.
        records.check(version)?;
        let store = self.created()?;
        let first = match records.append_to(store, codec) {
            Err(e) if e.kind() == ErrorKind::Busy => {
                let mut appender = patiently(|| store.appender())?;
                records.add_to(&mut appender, codec)?;
                appender.commit()
            }
            done => done,
        }?;
        self.unsynced.store(true, Ordering::Relaxed);
        Ok(first)
    }

    pub(super) fn sync(&self) -> Result<()> {
        // Only what this handle has open can have anything to sync.
        let Some(Open { store, refused: None }) = self.open.get() else { return Ok(()) };
        // Before the sync: what is appended meanwhile may not be in it.
        let unsynced = self.unsynced.swap(false, Ordering::Relaxed);
        store.sync().inspect_err(|_| {
            self.unsynced.fetch_or(unsynced, Ordering::Relaxed);
        })
    }

    /// Deletes records, of which there is at least one.
    pub(super) fn delete(&self, indices: &[u64]) -> Result<()> {
        match self.writable(Duration::ZERO)? {
            Some(store) => store.delete(indices).map(|_| ()),
            None => Err(self.no_record(indices)),
        }
    }

    pub(super) fn compact(&self) -> Result<()> {
        match self.writable(Duration::ZERO)? {
            Some(store) => store.compact(|_| ControlFlow::Continue(())).map(|_| ()),
            None => Ok(()),
        }
    }

    /// Syncs what was appended, and closes.
    pub(super) fn close(self) -> Result<()> {
        if !self.unsynced.load(Ordering::Relaxed) {
            return Ok(());
        }
        match self.sync() {
            // The child of a fork: what was appended is its parent's, who syncs it.
            Err(e) if e.kind() == ErrorKind::ReadOnly => Ok(()),
            done => done,
        }
    }
}

impl<'a> Records<'a> {
    /// Checks sizes and places in loaderx's order, then the number.
    fn check(&self, version: Version) -> Result<()> {
        let n = match *self {
            Records::Equal { src, item_len } => {
                check_len(item_len as u64, version)?;
                src.len() / item_len
            }
            Records::Strided { src, n, stride, item_len } => {
                check_len(item_len as u64, version)?;
                // The last one lies furthest.
                let last = n.saturating_sub(1).checked_mul(stride);
                check_place(last.map(|at| at as u64), item_len as u64, src)?;
                n
            }
            // More than fit are not worth a look at each.
            Records::Ragged { lens, .. } if lens.len() > MAX_RECORDS as usize => lens.len(),
            Records::Ragged { src, offsets, lens } => {
                for (&at, &len) in offsets.iter().zip(lens) {
                    check_len(u64::from(len), version)?;
                    check_place(Some(at), u64::from(len), src)?;
                }
                lens.len()
            }
        };
        if n > MAX_RECORDS as usize {
            let text = format!("{n} records are more than a store holds, which is {MAX_RECORDS}");
            return Err(Error::new(ErrorKind::Full, text));
        }
        Ok(())
    }

    fn append_to(&self, store: &Store, codec: Codec) -> Result<u64> {
        match *self {
            Records::Equal { src, item_len } => store.append(src, item_len, codec),
            Records::Ragged { src, offsets, lens } => store.append_ragged(src, offsets, lens, codec),
            Records::Strided { .. } => {
                let mut appender = store.appender()?;
                self.add_to(&mut appender, codec)?;
                appender.commit()
            }
        }
    }

    fn add_to(&self, appender: &mut Appender<'_>, codec: Codec) -> Result<()> {
        match *self {
            Records::Equal { src, item_len } => appender.append(src, item_len, codec),
            Records::Ragged { src, offsets, lens } => appender.append_ragged(src, offsets, lens, codec),
            Records::Strided { src, n, stride, item_len } => {
                // It was checked to be a record's length.
                let len = u32::try_from(item_len).unwrap_or(u32::MAX);
                (0..n).step_by(STRIDED).try_for_each(|start| {
                    let offsets: Vec<u64> =
                        (start..n.min(start + STRIDED)).map(|i| i as u64 * stride as u64).collect();
                    appender.append_ragged(src, &offsets, &vec![len; offsets.len()], codec)
                })
            }
        }
    }
}

fn check_len(len: u64, version: Version) -> Result<()> {
    let fits = version.record_bytes();
    if u32::try_from(len).is_ok_and(|len| fits.contains(&len)) {
        return Ok(());
    }
    let text = format!("a record of {len} bytes does not fit: {} to {} bytes do", fits.start(), fits.end());
    Err(Error::new(ErrorKind::RecordSize, text))
}

/// Checks that `len` bytes from `at` on lie in `src`; `None` is a place behind all memory.
fn check_place(at: Option<u64>, len: u64, src: &[u8]) -> Result<()> {
    let end = at.and_then(|at| at.checked_add(len));
    if end.is_some_and(|end| end <= src.len() as u64) {
        return Ok(());
    }
    let place = at.map_or("the end of all memory".to_owned(), |at| format!("offset {at}"));
    let text = format!("a record of {len} bytes at {place} is not in the {} bytes given", src.len());
    Err(Error::new(ErrorKind::Geometry, text))
}

/// Does `work` again and again while others are in the way, at most for [`PATIENCE`].
fn patiently<T>(mut work: impl FnMut() -> Result<T>) -> Result<T> {
    let begun = Instant::now();
    loop {
        match work() {
            Err(e) if e.kind() == ErrorKind::Busy && begun.elapsed() < PATIENCE => sleep(PAUSE),
            done => return done,
        }
    }
}

/// Opens the store at `path`, if one is there: for reading and writing, or, where that is refused, for reading. Waits for
/// who changes it, at most for `patience`.
fn find(path: &Path, patience: Duration) -> Result<Option<Open>> {
    if !has_store(path)? {
        return Ok(None);
    }
    let begun = Instant::now();
    let (mut again, mut had_no_header) = (true, true);
    loop {
        let why = match Store::open(path) {
            Ok(store) => return Ok(Some(Open { store, refused: None })),
            Err(e) => e,
        };
        let e = match Store::open_read_only(path) {
            // What was in the way may be gone by now. For good reason it isn't held open meanwhile: to finish a step that was
            // cut off, the store has to be had alone.
            Ok(_) if again && matches!(why.kind(), ErrorKind::Busy | ErrorKind::NotAStore) => {
                again = false;
                continue;
            }
            Ok(store) => return Ok(Some(Open { store, refused: Some(why) })),
            Err(e) => e,
        };
        let wait = match e.kind() {
            ErrorKind::Busy => patience,
            // The header may have come since it was looked at, so one more look follows the last one that found none.
            ErrorKind::NotAStore if std::mem::replace(&mut had_no_header, has_no_header(path)) => CREATION,
            _ => return Err(e),
        };
        if begun.elapsed() >= wait {
            return Err(e);
        }
        sleep(PAUSE);
    }
}

/// Whether something is at `path` that an opening has to look at: a store, or what can be none.
fn has_store(path: &Path) -> Result<bool> {
    let is_there = |path: &Path| match fs::metadata(path) {
        Ok(_) => Ok(true),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(e) if e.kind() == io::ErrorKind::NotADirectory => Ok(true),
        Err(e) => Err(Error::io(format!("can't look at {}", path.display()), e)),
    };
    if !is_there(path)? {
        return Ok(false);
    }
    // In this order: a store that is being created has its table first.
    let (chunk, meta) = (is_there(&path.join("0.zr"))?, is_there(&path.join("meta.zr"))?);
    if chunk && !meta {
        let text = format!("{} holds 0.zr, but no meta.zr", path.display());
        return Err(Error::new(ErrorKind::Damaged, text)
            .with_help("if it is what is left of a store, its table is lost; else move it away"));
    }
    Ok(meta)
}

/// Whether meta.zr has no header yet, as while a store is being created.
fn has_no_header(path: &Path) -> bool {
    let mut header = Vec::new();
    let read = open_regular(&path.join("meta.zr"))
        .and_then(|file| file.take(HEADER_BYTES as u64).read_to_end(&mut header));
    read.is_ok() && (header.len() < HEADER_BYTES || header.iter().all(|&byte| byte == 0))
}
