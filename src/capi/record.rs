//! `zr_*`: records. The handle may be used by many threads at once, but for `zr_close`.

use super::errors::{Code, guard, guard_code};
use super::handle::{Records, Zrecord};
use super::pointers::{array, array_mut, opaque, path, put};
use crate::codec::Codec;
use crate::error::Result;
use crate::format::Version;

/// The number that stands for Deflate; every other one is raw, as in loaderx.
const FLATE: u8 = 1;

fn codec_of(number: u8) -> Codec {
    if number == FLATE { Codec::default() } else { Codec::Raw }
}

/// Opens the store at a path of `path_len` bytes. Creates nothing: where no store is yet, the handle is that of an empty one,
/// each call looks again whether one is there by now, and the first append creates it, as version 1.
///
/// It is opened for reading and writing; where that is refused (by a read-only medium, permissions, a file system without
/// locks, a cut table) for reading only, and each change gives the reason. Waits up to 5 s for another process that is
/// changing the store.
///
/// Returns NULL where it fails, with the reason in `*code`: -8 also for a file in the store's place and for a damaged header.
/// Sets `*code` to 0 otherwise.
///
/// # Safety
/// `path_ptr` is valid for reading `path_len` bytes during the call, which need not end with a zero. `code` is NULL or
/// valid for writing an `int32_t`. The handle is valid until [`zr_close`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zr_open(path_ptr: *const u8, path_len: usize, code: *mut i32) -> *mut Zrecord {
    let opened = guard(
        |e| Err(Code::of_opening(e)),
        || {
            // SAFETY: the caller's promise for `path_ptr`.
            let path = unsafe { path(path_ptr, path_len) }?;
            Ok(Ok(Box::into_raw(Box::new(Zrecord::open(&path)?))))
        },
    );
    // SAFETY: the caller's promise for `code`.
    unsafe { put(code, opened.map_or_else(Code::number, |_| 0)) };
    opened.unwrap_or(std::ptr::null_mut())
}

/// Syncs what was appended, and closes. A failure of the sync is only told by [`zr_last_error`](super::zr_last_error): call
/// [`zr_sync`] first. In a forked child it lets go of what the child inherited. NULL is let pass.
///
/// # Safety
/// `zr` is NULL or comes from [`zr_open`] and was not closed yet in this process; no other call on it is under way, and none
/// comes later.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zr_close(zr: *mut Zrecord) {
    if zr.is_null() {
        return;
    }
    guard(
        |_| (),
        || {
            // SAFETY: it was made by `Box::into_raw` in `zr_open`, and the caller uses it no more.
            unsafe { Box::from_raw(zr) }.close()
        },
    );
}

/// Live records: indices are `0..zr_len(zr)`. Sees what other processes have appended and synced. 0 for NULL, where no
/// store is yet, and where it fails.
///
/// # Safety
/// `zr` is NULL or an open handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zr_len(zr: *const Zrecord) -> u32 {
    let len = guard(
        |_| 0,
        || {
            // SAFETY: the caller's promise for `zr`.
            unsafe { opaque(zr, "zr") }?.len()
        },
    );
    // A store holds 2^24 records at most.
    u32::try_from(len).unwrap_or(u32::MAX)
}

/// Makes what was appended through this handle durable, and visible to other processes and handles. 0 where nothing was.
/// After a failure the handle takes no more changes: what the system has dropped is not known.
///
/// # Safety
/// `zr` is NULL or an open handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zr_sync(zr: *const Zrecord) -> i32 {
    guard_code(|| {
        // SAFETY: the caller's promise for `zr`.
        unsafe { opaque(zr, "zr") }?.sync()
    })
}

/// The longest record of a version 1 store, in bytes: 1 MiB. Those of version 2, which zrfs makes, hold up to 1 GiB.
#[unsafe(no_mangle)]
pub extern "C" fn zr_max_record_len() -> u32 {
    *Version::V1.record_bytes().end()
}

/// The decoded lengths of `n` records in bytes, from the table alone. After an error `out` is unspecified.
///
/// # Safety
/// `zr` is NULL or an open handle. Where `n` is not 0: `idxs` is valid for reading and `out` for writing `n` elements
/// during the call, both are aligned, do not overlap, and no other thread uses `out` or writes to `idxs`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zr_lengths(zr: *const Zrecord, idxs: *const u64, n: usize, out: *mut u32) -> i32 {
    guard_code(|| {
        // SAFETY: the caller's promises for each of the three.
        let (zr, idxs, out) =
            unsafe { (opaque(zr, "zr")?, array(idxs, n, "idxs")?, array_mut(out, n, "out")?) };
        if n == 0 { Ok(()) } else { zr.lengths(idxs, out) }
    })
}

/// Decodes record `idxs[i]` to `dst[i * stride]`. Indices may repeat and come in any order. Bytes between a record's end and
/// the next multiple of `stride` are left as they are; after an error `dst` is unspecified.
///
/// -3 for an index, -6 where a record is longer than `stride` or does not lie in `dst_len` bytes, -7 for a damaged record
/// or a missing or cut chunk.
///
/// # Safety
/// `zr` is NULL or an open handle. Where its length is not 0: `idxs` is valid for reading `n` elements and aligned, `dst`
/// is valid for writing `dst_len` bytes, during the call; they do not overlap, and no other thread uses `dst` or writes to
/// `idxs`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zr_gather(
    zr: *const Zrecord,
    idxs: *const u64,
    n: usize,
    dst: *mut u8,
    dst_len: usize,
    stride: usize,
) -> i32 {
    guard_code(|| {
        // SAFETY: the caller's promises for each of the three.
        let (zr, idxs, dst) =
            unsafe { (opaque(zr, "zr")?, array(idxs, n, "idxs")?, array_mut(dst, dst_len, "dst")?) };
        if n == 0 { Ok(()) } else { zr.gather(idxs, dst, stride) }
    })
}

/// Decodes record `idxs[i]`, of any length, to `dst[offsets[i]]`; see [`zr_lengths`]. As [`zr_gather`], and -6 also where two
/// records would overlap.
///
/// # Safety
/// As for [`zr_gather`]; where `n` is not 0, `offsets` is as `idxs` is.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zr_gather_var(
    zr: *const Zrecord,
    idxs: *const u64,
    n: usize,
    dst: *mut u8,
    dst_len: usize,
    offsets: *const u64,
) -> i32 {
    guard_code(|| {
        // SAFETY: the caller's promises for each of the four.
        let (zr, idxs, dst, offsets) = unsafe {
            let idxs = array(idxs, n, "idxs")?;
            (opaque(zr, "zr")?, idxs, array_mut(dst, dst_len, "dst")?, array(offsets, n, "offsets")?)
        };
        if n == 0 { Ok(()) } else { zr.gather_ragged(idxs, dst, offsets) }
    })
}

/// Appends `n` records of `item_len` bytes, one every `stride` bytes of `src`; returns the first one's index, or a code.
/// `codec` 1 is Deflate, where that saves something; every other number is raw. `n` 0 returns the length.
///
/// The records are visible to this handle at once, durable and visible to others after [`zr_sync`]; until then no other
/// process or handle can append. Waits up to 5 s for one that does. Creates the store where there is none.
///
/// -4 for a record of no bytes or too many (for the store's version), -6 where one does not lie in `src_len` bytes, -5 where
/// the store would be full; -2 names who is in the way. Nothing is appended then.
///
/// # Safety
/// `zr` is NULL or an open handle. Where `src_len` is not 0: `src` is valid for reading `src_len` bytes during the call, and
/// nobody writes to them.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zr_append(
    zr: *const Zrecord,
    src: *const u8,
    src_len: usize,
    n: usize,
    stride: usize,
    item_len: usize,
    codec: u8,
) -> i64 {
    guard_append(|| {
        // SAFETY: the caller's promises for both.
        let (zr, src) = unsafe { (opaque(zr, "zr")?, array(src, src_len, "src")?) };
        if n == 0 {
            return zr.len();
        }
        let packed = n.checked_mul(item_len).filter(|_| stride == item_len && item_len > 0);
        let records = match packed.and_then(|len| src.get(..len)) {
            Some(src) => Records::Equal { src, item_len },
            None => Records::Strided { src, n, stride, item_len },
        };
        zr.append(&records, codec_of(codec))
    })
}

/// Appends `n` records of any lengths: record `i` is `src[offsets[i]..][..lens[i]]`. As [`zr_append`].
///
/// # Safety
/// As for [`zr_append`]. Where `n` is not 0: `offsets` and `lens` are valid for reading `n` elements during the call and
/// aligned, and nobody writes to them.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zr_append_var(
    zr: *const Zrecord,
    src: *const u8,
    src_len: usize,
    n: usize,
    offsets: *const u64,
    lens: *const u32,
    codec: u8,
) -> i64 {
    guard_append(|| {
        // SAFETY: the caller's promises for each of the four.
        let (zr, src, offsets, lens) = unsafe {
            let src = array(src, src_len, "src")?;
            (opaque(zr, "zr")?, src, array(offsets, n, "offsets")?, array(lens, n, "lens")?)
        };
        if n == 0 {
            return zr.len();
        }
        zr.append(&Records::Ragged { src, offsets, lens }, codec_of(codec))
    })
}

fn guard_append(body: impl FnOnce() -> Result<u64>) -> i64 {
    // An index is below 2^24.
    guard(
        |e| i64::from(Code::of(e).number()),
        || body().map(|first| i64::try_from(first).unwrap_or(i64::MAX)),
    )
}

/// Deletes `n` records, in any order, each once however often it is named; all of them or, with -3, none. The last records
/// move into the holes, so indices change. On disk when it returns. -2 at once where another process or handle has the
/// store open; the text names it.
///
/// # Safety
/// `zr` is NULL or an open handle. Where `n` is not 0: `idxs` is valid for reading `n` elements during the call and aligned,
/// and nobody writes to them.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zr_delete(zr: *const Zrecord, idxs: *const u64, n: usize) -> i32 {
    guard_code(|| {
        // SAFETY: the caller's promises for both.
        let (zr, idxs) = unsafe { (opaque(zr, "zr")?, array(idxs, n, "idxs")?) };
        if n == 0 { Ok(()) } else { zr.delete(idxs) }
    })
}

/// Gives the disk of deleted records back; cut off at any moment, it loses no record. Other threads may go on reading through
/// this handle. -2 at once where another process or handle has the store open; the text names it.
///
/// # Safety
/// `zr` is NULL or an open handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zr_compact(zr: *const Zrecord) -> i32 {
    guard_code(|| {
        // SAFETY: the caller's promise for `zr`.
        unsafe { opaque(zr, "zr") }?.compact()
    })
}

/// Live records, the bytes that they take as stored, and how far the chunk files are used. Reads the whole table. All zeros
/// for NULL, where no store is yet, and where it fails.
///
/// # Safety
/// `zr` is NULL or an open handle; each of the others is NULL or valid for writing its number.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zr_stats(
    zr: *const Zrecord,
    records: *mut u32,
    live_bytes: *mut u64,
    chunk_bytes: *mut u64,
) {
    let stats = guard(
        |_| None,
        || {
            // SAFETY: the caller's promise for `zr`.
            unsafe { opaque(zr, "zr") }?.stats()
        },
    );
    let (count, live, chunks) =
        stats.map_or((0, 0, 0), |stats| (stats.records, stats.live_bytes, stats.chunk_bytes));
    // SAFETY: the caller's promises for each of the three.
    unsafe {
        put(records, u32::try_from(count).unwrap_or(u32::MAX));
        put(live_bytes, live);
        put(chunk_bytes, chunks);
    }
}
