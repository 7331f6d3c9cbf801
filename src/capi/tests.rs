//! The functions as C calls them.

use std::ffi::CStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::ptr::{null, null_mut};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use super::errors::{Code, guard, guard_code};
use super::*;
use crate::error::{Error, ErrorKind};
use crate::format::Version;
use crate::storage::own_process::{self, Child};
use crate::store::Store;

/// A handle that is closed when it is dropped.
struct Handle(*mut Zrecord);

// SAFETY: as the interface has it: any thread may use a handle.
unsafe impl Send for Handle {}
// SAFETY: as above.
unsafe impl Sync for Handle {}

impl Drop for Handle {
    fn drop(&mut self) {
        // SAFETY: it comes from zr_open, and nobody else has it.
        unsafe { zr_close(self.0) };
    }
}

fn try_open(path: &Path) -> Result<Handle, i32> {
    let bytes = path.as_os_str().as_bytes();
    let mut code = 77;
    // SAFETY: both pointers are to what lives.
    let zr = unsafe { zr_open(bytes.as_ptr(), bytes.len(), &raw mut code) };
    if zr.is_null() {
        return Err(code);
    }
    assert_eq!(code, 0);
    Ok(Handle(zr))
}

/// Safe calls, for slices.
impl Handle {
    fn open(path: &Path) -> Handle {
        try_open(path).unwrap()
    }

    fn len(&self) -> u32 {
        // SAFETY: an open handle.
        unsafe { zr_len(self.0) }
    }

    fn sync(&self) -> i32 {
        // SAFETY: an open handle.
        unsafe { zr_sync(self.0) }
    }

    fn lengths(&self, idxs: &[u64], out: &mut [u32]) -> i32 {
        assert_eq!(idxs.len(), out.len());
        // SAFETY: slices of that length.
        unsafe { zr_lengths(self.0, idxs.as_ptr(), idxs.len(), out.as_mut_ptr()) }
    }

    fn gather(&self, idxs: &[u64], dst: &mut [u8], stride: usize) -> i32 {
        // SAFETY: slices of that length.
        unsafe { zr_gather(self.0, idxs.as_ptr(), idxs.len(), dst.as_mut_ptr(), dst.len(), stride) }
    }

    fn gather_var(&self, idxs: &[u64], dst: &mut [u8], offsets: &[u64]) -> i32 {
        assert_eq!(idxs.len(), offsets.len());
        let (from, to) = ((idxs.as_ptr(), idxs.len()), (dst.as_mut_ptr(), dst.len()));
        // SAFETY: slices of that length.
        unsafe { zr_gather_var(self.0, from.0, from.1, to.0, to.1, offsets.as_ptr()) }
    }

    fn append_as(&self, src: &[u8], n: usize, stride: usize, item_len: usize, codec: u8) -> i64 {
        // SAFETY: a slice of that length.
        unsafe { zr_append(self.0, src.as_ptr(), src.len(), n, stride, item_len, codec) }
    }

    fn append(&self, src: &[u8], item_len: usize) -> i64 {
        self.append_as(src, src.len() / item_len, item_len, item_len, 1)
    }

    fn append_var(&self, src: &[u8], offsets: &[u64], lens: &[u32]) -> i64 {
        assert_eq!(offsets.len(), lens.len());
        let n = offsets.len();
        // SAFETY: slices of that length.
        unsafe { zr_append_var(self.0, src.as_ptr(), src.len(), n, offsets.as_ptr(), lens.as_ptr(), 1) }
    }

    fn delete(&self, idxs: &[u64]) -> i32 {
        // SAFETY: a slice of that length.
        unsafe { zr_delete(self.0, idxs.as_ptr(), idxs.len()) }
    }

    fn compact(&self) -> i32 {
        // SAFETY: an open handle.
        unsafe { zr_compact(self.0) }
    }

    fn stats(&self) -> (u32, u64, u64) {
        let (mut records, mut live, mut chunk) = (9, 9, 9);
        // SAFETY: to what lives.
        unsafe { zr_stats(self.0, &raw mut records, &raw mut live, &raw mut chunk) };
        (records, live, chunk)
    }

    /// Every record, each of one byte.
    fn all(&self) -> Vec<u8> {
        let idxs: Vec<u64> = (0..u64::from(self.len())).collect();
        let mut dst = vec![0; idxs.len()];
        assert_eq!(self.gather(&idxs, &mut dst, 1), 0);
        dst
    }
}

fn last() -> String {
    let text = zr_last_error();
    assert!(!text.is_null());
    // SAFETY: not null, so a string that lives until the next failing call.
    unsafe { CStr::from_ptr(text) }.to_str().unwrap().to_owned()
}

fn folder() -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("s.zr");
    (folder, path)
}

#[test]
fn records_come_back_as_they_went_in() {
    let (_folder, path) = folder();
    let zr = Handle::open(&path);
    let src: Vec<u8> = (0..100).flat_map(|i| [i; 50]).collect();
    assert_eq!(zr.append(&src, 50), 0);
    assert_eq!(zr.append_as(&src, 2, 50, 50, 0), 100);
    assert_eq!(zr.append_as(&src, 2, 50, 50, 200), 102, "an unknown codec is raw");
    assert_eq!(zr.append_as(&src, 0, 7, 0, 1), 104, "no record: the length");
    let (records, live, chunk) = zr.stats();
    assert!(records == 104 && live == chunk && live < 100 * 50 + 200, "{live} bytes: it is not deflated");
    assert_eq!(live % 100, 200 % 100, "raw ones take all their bytes");

    let mut dst = [7; 130];
    assert_eq!(zr.gather(&[99, 3, 103], &mut dst[..2 * 40 + 50], 40), -6, "longer than the stride");
    assert_eq!(zr.gather(&[99, 3], &mut dst, 60), 0);
    let expected = [[99; 50].as_slice(), &[7; 10], &[3; 50], &[7; 20]].concat();
    assert_eq!(dst.as_slice(), expected);
    assert_eq!(zr.gather(&[1, 3], &mut dst[..109], 60), -6);
    assert!(last().contains("109 bytes"), "{}", last());
    assert_eq!(zr.gather(&[1, 104], &mut dst, 50), -3);
    assert_eq!(zr.gather(&[u64::MAX], &mut dst, 50), -3);
    assert!(last().contains("no record 18446744073709551615"), "{}", last());
    assert_eq!(zr.gather(&[1], &mut dst, usize::MAX), 0);
    assert_eq!(zr.gather(&[1, 1], &mut dst, usize::MAX), -6);
    assert_eq!(zr.gather(&[], &mut [], 0), 0);

    let mut lens = [0; 2];
    assert_eq!((zr.lengths(&[5, 101], &mut lens), lens), (0, [50, 50]));
    assert_eq!(zr.lengths(&[5, 104], &mut lens), -3);
    assert_eq!(zr_max_record_len(), 1 << 20);
}

#[test]
fn ragged_and_strided_records() {
    let (_folder, path) = folder();
    let zr = Handle::open(&path);
    // They may overlap where they come from, and not where they go.
    assert_eq!(zr.append_var(b"abcdef", &[4, 0, 1], &[2, 1, 3]), 0);
    let mut lens = [0; 3];
    assert_eq!((zr.lengths(&[0, 1, 2], &mut lens), lens), (0, [2, 1, 3]));
    let mut dst = *b"..........";
    assert_eq!(zr.gather_var(&[2, 0, 0, 1], &mut dst, &[5, 0, 2, 9]), 0);
    assert_eq!(&dst, b"efef.bcd.a");
    assert_eq!(zr.gather_var(&[2, 0], &mut dst, &[5, 6]), -6);
    assert_eq!(zr.gather_var(&[2], &mut dst, &[8]), -6);
    assert_eq!(zr.gather_var(&[2], &mut dst, &[u64::MAX]), -6);
    assert_eq!(zr.gather_var(&[3], &mut dst, &[0]), -3);
    assert_eq!(zr.gather_var(&[], &mut [], &[]), 0);

    assert_eq!(zr.append_as(b"ab.cd.ef", 3, 3, 2, 1), 3);
    assert_eq!(zr.append_as(b"gh", 2, 0, 2, 1), 6, "the same bytes twice");
    let mut dst = [0; 10];
    assert_eq!(zr.gather(&[3, 4, 5, 6, 7], &mut dst, 2), 0);
    assert_eq!(&dst, b"abcdefghgh");
    // More than are packed at a time.
    assert_eq!(zr.append_as(&[b"x".repeat(2), b"yz".repeat(70_000)].concat(), 70_001, 2, 1, 0), 8);
    let mut dst = [0; 3];
    assert_eq!(zr.gather(&[8, 9, 70_008], &mut dst, 1), 0);
    assert_eq!((&dst, zr.len()), (b"xyy", 70_009));
}

#[test]
fn appends_are_checked_in_loaderxs_order_before_anything_is_created() {
    let (_folder, path) = folder();
    let zr = Handle::open(&path);
    let mib = 1 << 20;
    // (bytes of src, n, stride, item_len) and the code
    let cases = [
        (10, 1, 0, 0, -4),
        (10, 1, 1, mib + 1, -4),
        (10, usize::MAX, 1, mib + 1, -4),
        (10, 2, 6, 5, -6),
        (10, 2, usize::MAX, 5, -6),
        (10, usize::MAX, usize::MAX, 5, -6),
        (10, usize::MAX, 5, 5, -6),
        (0, 1, 1, 1, -6),
        (10, (1 << 24) + 1, 0, 5, -5),
        (10, usize::MAX, 0, 5, -5),
    ];
    for (bytes, n, stride, item_len, code) in cases {
        let got = zr.append_as(&vec![1; bytes], n, stride, item_len, 1);
        assert_eq!(got, code, "{n} of {item_len} bytes, {stride} apart, in {bytes}");
    }
    assert_eq!(zr.append_var(b"ab", &[0, 3], &[1, 0]), -4);
    assert_eq!(zr.append_var(b"ab", &[0, 3], &[1, 1]), -6);
    assert_eq!(zr.append_var(b"ab", &[u64::MAX], &[1]), -6);
    let many = vec![0; (1 << 24) + 1];
    assert_eq!(zr.append_var(b"ab", &many, &vec![1; many.len()]), -5);
    assert!(!path.exists(), "a refused append has created the store");
    assert_eq!(zr.append(&vec![3; mib], mib), 0);
    assert_eq!(zr.append(&vec![3; 2 * (mib + 1)], mib + 1), -4);
    drop(zr);
    // As if it were full, of records that nobody reads here.
    let meta = fs::OpenOptions::new().write(true).open(path.join("meta.zr")).unwrap();
    meta.write_all_at(&(1u32 << 24).to_le_bytes(), 12).unwrap();
    let zr = Handle::open(&path);
    assert_eq!(zr.append(b"x", 1), -5);
    assert_eq!(zr.append_as(b"x", 1, 2, 1, 0), -5);
    assert_eq!(zr.len(), 1 << 24);
}

#[test]
fn a_store_of_version_2_takes_its_own_sizes() {
    let (_folder, path) = folder();
    drop(Store::create(&path, Version::V2).unwrap());
    let zr = Handle::open(&path);
    assert_eq!(zr.append_as(&[], 3, 0, 0, 1), 0);
    let large = vec![5; (1 << 20) + 1];
    assert_eq!(zr.append(&large, large.len()), 3);
    let mut lens = [0; 2];
    assert_eq!((zr.lengths(&[2, 3], &mut lens), lens), (0, [0, (1 << 20) + 1]));
    assert_eq!(zr.append_as(&[], usize::MAX, 0, 0, 1), -5);
}

#[test]
fn nothing_is_created_before_the_first_append() {
    let (folder, path) = folder();
    let inner = path.join("a/b");
    for path in [&inner, &folder.path().to_path_buf()] {
        let zr = Handle::open(path);
        assert_eq!((zr.len(), zr.stats(), zr.sync(), zr.compact()), (0, (0, 0, 0), 0, 0));
        assert_eq!((zr.gather(&[], &mut [], 1), zr.gather_var(&[], &mut [], &[]), zr.delete(&[])), (0, 0, 0));
        assert_eq!((zr.gather(&[0], &mut [0], 1), zr.gather_var(&[0], &mut [0], &[0])), (-3, -3));
        assert_eq!((zr.lengths(&[0], &mut [0]), zr.delete(&[0])), (-3, -3));
        assert!(last().contains("there is no store"), "{}", last());
        assert_eq!(zr.append_as(&[], 0, 0, 0, 0), 0);
    }
    assert_eq!(fs::read_dir(&folder).unwrap().count(), 0);

    let (first, second) = (Handle::open(&inner), Handle::open(&inner));
    assert_eq!(first.append(b"ab", 1), 0);
    assert_eq!(first.sync(), 0);
    assert_eq!(Store::open_read_only(&inner).unwrap().version(), Version::V1);
    // The other one finds it.
    assert_eq!((second.len(), second.all()), (2, b"ab".to_vec()));
    assert_eq!(second.append(b"c", 1), 2);
    drop(second);
    assert_eq!(first.all(), b"abc");
}

#[test]
fn other_files_in_the_folder_stay() {
    let (_folder, path) = folder();
    fs::create_dir(&path).unwrap();
    fs::write(path.join("schema.json"), "{}").unwrap();
    let zr = Handle::open(&path);
    assert_eq!(zr.append(b"a", 1), 0);
    assert_eq!(fs::read(path.join("schema.json")).unwrap(), b"{}");
}

#[test]
fn what_is_no_store_is_refused() {
    let (folder, path) = folder();
    let file = folder.path().join("file");
    fs::write(&file, "x").unwrap();
    assert_eq!(try_open(&file).err(), Some(-8));
    assert_eq!(try_open(&file.join("below")).err(), Some(-8));
    assert_eq!(try_open(Path::new("")).err(), Some(-6));
    assert_eq!(try_open(Path::new("a\0b")).err(), Some(-2));
    // SAFETY: neither pointer is looked at.
    assert!(unsafe { zr_open(null(), 3, null_mut()) }.is_null());
    assert!(last().contains("path_ptr is NULL"), "{}", last());

    drop(Store::create(&path, Version::V1).unwrap());
    let meta = path.join("meta.zr");
    let good = fs::read(&meta).unwrap()[..16].to_vec();
    for (at, byte) in [(0, b'X'), (4, 9), (5, 1), (7, 0xff), (15, 0xff)] {
        let mut header = good.clone();
        header[at] = byte;
        fs::write(&meta, header).unwrap();
        assert_eq!(try_open(&path).err(), Some(-8), "byte {at}");
    }
    for short in [0, 15] {
        fs::write(&meta, &good[..short]).unwrap();
        assert_eq!(try_open(&path).err(), Some(-8), "{short} bytes");
    }
    fs::remove_file(&meta).unwrap();
    assert_eq!(try_open(&path).err(), Some(-8));
    assert!(last().contains("no meta.zr"), "{}", last());
    assert_eq!(fs::read_dir(&path).unwrap().count(), 1);
}

#[test]
fn where_writing_is_refused_it_reads() {
    let (_folder, path) = folder();
    let zr = Handle::open(&path);
    assert_eq!(zr.append(b"abcd", 1), 0);
    drop(zr);
    // Room for three of the four entries.
    fs::OpenOptions::new().write(true).open(path.join("meta.zr")).unwrap().set_len(16 + 3 * 16).unwrap();
    let zr = Handle::open(&path);
    let mut dst = [0; 3];
    assert_eq!((zr.gather(&[0, 1, 2], &mut dst, 1), &dst), (0, b"abc"));
    assert_eq!(zr.gather(&[3], &mut dst, 1), -7);
    for code in [zr.append(b"e", 1), zr.delete(&[0]).into(), zr.compact().into()] {
        assert_eq!(code, -7);
        assert!(last().contains("reading only") && last().contains("field length"), "{}", last());
    }
    assert_eq!(zr.sync(), 0);
    assert_eq!(zr.append_as(&[], 0, 0, 0, 0), 4);
}

#[test]
fn damage_has_its_code() {
    let (_folder, path) = folder();
    let zr = Handle::open(&path);
    assert_eq!(zr.append(&[1; 300], 100), 0);
    drop(zr);
    let chunk = path.join("0.zr");
    let bytes = fs::read(&chunk).unwrap();
    fs::write(&chunk, &bytes[..bytes.len() - 1]).unwrap();
    let zr = Handle::open(&path);
    let mut dst = [0; 100];
    assert_eq!((zr.gather(&[0], &mut dst, 100), dst), (0, [1; 100]));
    assert_eq!(zr.gather(&[2], &mut dst, 100), -7);
    assert!(last().contains("record 2"), "{}", last());
    fs::remove_file(&chunk).unwrap();
    drop(zr);
    let zr = Handle::open(&path);
    assert_eq!(zr.gather_var(&[0], &mut dst, &[0]), -7);
    assert!(last().contains("0.zr is missing"), "{}", last());
}

#[test]
fn who_holds_appends_that_are_not_synced_is_waited_for() {
    let (_folder, path) = folder();
    let (first, second) = (Handle::open(&path), Handle::open(&path));
    assert_eq!(first.append(b"a", 1), 0);
    assert_eq!(second.append(b"b", 1), -2);
    assert!(last().contains(&format!("process {}", std::process::id())), "{}", last());
    thread::scope(|scope| {
        let waiting = scope.spawn(|| second.append_as(b"bx", 1, 2, 1, 0));
        thread::sleep(Duration::from_millis(100));
        assert_eq!(first.append(b"A", 1), 1);
        assert_eq!(first.sync(), 0);
        assert_eq!(waiting.join().unwrap(), 2);
    });
    assert_eq!(second.append_var(b"cc", &[0, 1], &[1, 1]), 3);
    // Closing syncs.
    drop(second);
    assert_eq!(first.all(), b"aAbcc");
}

#[test]
fn a_delete_waits_for_nobody_and_says_who_is_in_the_way() {
    let (_folder, path) = folder();
    let zr = Handle::open(&path);
    assert_eq!(zr.append(b"abcdef", 1), 0);
    assert_eq!(zr.sync(), 0);
    let other = Handle::open(&path);
    for code in [zr.delete(&[1]), zr.compact()] {
        assert_eq!(code, -2);
        assert!(last().contains(&format!("process {}", std::process::id())), "{}", last());
    }
    drop(other);
    assert_eq!(zr.delete(&[6, 1]), -3);
    assert_eq!(zr.all(), b"abcdef");
    assert_eq!(zr.delete(&[1, 5, 1]), 0);
    assert_eq!(zr.all(), b"aecd");
    let before = zr.stats();
    assert_eq!(zr.compact(), 0);
    assert_eq!((before, zr.stats(), zr.all()), ((4, 4, 6), (4, 4, 4), b"aecd".to_vec()));
}

#[test]
#[allow(clippy::cognitive_complexity, reason = "a list")]
fn null_and_misaligned_pointers_are_refused() {
    let (_folder, path) = folder();
    let zr = Handle::open(&path);
    assert_eq!(zr.append(b"abcd", 1), 0);
    let at = zr.0;
    let mut lens = [0u32; 4];
    let mut dst = [0u8; 8];
    let idxs = [0u64; 4];
    let odd = idxs.as_ptr().cast::<u8>().wrapping_add(1).cast::<u64>();
    let (no_idxs, no_lens) = (null::<u64>(), null::<u32>());
    // SAFETY: what is looked at is there.
    unsafe {
        assert_eq!(zr_lengths(at, no_idxs, 1, lens.as_mut_ptr()), -6);
        assert_eq!(zr_lengths(at, idxs.as_ptr(), 1, null_mut()), -6);
        assert_eq!(zr_lengths(at, odd, 1, lens.as_mut_ptr()), -6);
        assert!(last().contains("not aligned"), "{}", last());
        assert_eq!(zr_lengths(at, idxs.as_ptr(), usize::MAX / 8, lens.as_mut_ptr()), -6);
        assert_eq!(zr_lengths(at, null(), 0, null_mut()), 0);
        assert_eq!(zr_gather(at, no_idxs, 1, dst.as_mut_ptr(), 8, 1), -6);
        assert_eq!(zr_gather(at, idxs.as_ptr(), 1, null_mut(), 8, 1), -6);
        assert_eq!(zr_gather(at, idxs.as_ptr(), 1, null_mut(), 0, 1), -6);
        assert_eq!(zr_gather(at, idxs.as_ptr(), 1, dst.as_mut_ptr(), usize::MAX, 1), -6);
        assert_eq!(zr_gather(at, odd, 1, dst.as_mut_ptr(), 8, 1), -6);
        assert_eq!(zr_gather(at, null(), 0, null_mut(), 0, 0), 0);
        assert_eq!(zr_gather_var(at, idxs.as_ptr(), 1, dst.as_mut_ptr(), 8, no_idxs), -6);
        assert_eq!(zr_gather_var(at, idxs.as_ptr(), 1, dst.as_mut_ptr(), 8, odd), -6);
        assert_eq!(zr_gather_var(at, null(), 0, null_mut(), 0, null()), 0);
        assert_eq!(zr_append(at, null(), 4, 4, 1, 1, 0), -6);
        assert_eq!(zr_append(at, null(), 0, 1, 1, 1, 0), -6);
        assert_eq!(zr_append(at, dst.as_ptr(), isize::MAX as usize + 1, 1, 1, 1, 0), -6);
        assert_eq!(zr_append(at, null(), 0, 0, 0, 0, 0), 4);
        assert_eq!(zr_append_var(at, dst.as_ptr(), 8, 1, no_idxs, lens.as_ptr(), 0), -6);
        assert_eq!(zr_append_var(at, dst.as_ptr(), 8, 1, idxs.as_ptr(), no_lens, 0), -6);
        assert_eq!(zr_append_var(at, dst.as_ptr(), 8, usize::MAX, idxs.as_ptr(), lens.as_ptr(), 0), -6);
        assert_eq!(zr_append_var(at, null(), 0, 0, null(), null(), 0), 4);
        assert_eq!(zr_delete(at, no_idxs, 1), -6);
        assert_eq!(zr_delete(at, odd, 1), -6);
        assert_eq!(zr_delete(at, null(), 0), 0);
        zr_stats(at, null_mut(), null_mut(), null_mut());
        assert_eq!(zr.all(), b"abcd");

        let none = null_mut();
        let mut count = 9;
        zr_stats(none, &raw mut count, null_mut(), null_mut());
        assert_eq!((zr_len(none), zr_sync(none), count), (0, -2, 0));
        assert!(last().contains("zr is NULL"), "{}", last());
        assert_eq!(zr_lengths(none, idxs.as_ptr(), 1, lens.as_mut_ptr()), -2);
        assert_eq!(zr_gather(none, idxs.as_ptr(), 1, dst.as_mut_ptr(), 8, 1), -2);
        assert_eq!(zr_gather_var(none, idxs.as_ptr(), 1, dst.as_mut_ptr(), 8, idxs.as_ptr()), -2);
        assert_eq!(zr_append(none, dst.as_ptr(), 8, 8, 1, 1, 0), -2);
        assert_eq!(zr_append_var(none, dst.as_ptr(), 8, 1, idxs.as_ptr(), lens.as_ptr(), 0), -2);
        assert_eq!((zr_delete(none, idxs.as_ptr(), 1), zr_compact(none)), (-2, -2));
        zr_close(none);
    }
}

#[test]
fn every_kind_of_error_has_its_code() {
    let code = |kind| Code::of(&Error::new(kind, "")).number();
    assert_eq!(code(ErrorKind::Memory), -1);
    for kind in [ErrorKind::Io, ErrorKind::Busy, ErrorKind::ReadOnly, ErrorKind::NotFound, ErrorKind::Exists]
    {
        assert_eq!(code(kind), -2);
    }
    assert_eq!(code(ErrorKind::OutOfRange), -3);
    assert_eq!(code(ErrorKind::RecordSize), -4);
    assert_eq!(code(ErrorKind::Full), -5);
    assert_eq!(code(ErrorKind::Geometry), -6);
    assert_eq!(code(ErrorKind::Damaged), -7);
    assert_eq!((code(ErrorKind::NotAStore), code(ErrorKind::Version)), (-8, -8));
    assert_eq!(Code::of_opening(&Error::new(ErrorKind::Damaged, "")), Code::NotAStore);
    assert_eq!(Code::of_opening(&Error::new(ErrorKind::Io, "")), Code::Io);
}

#[test]
fn a_panic_is_a_code_and_its_text_is_the_threads_own() {
    thread::spawn(|| {
        assert!(zr_last_error().is_null(), "another thread's text");
        assert_eq!(guard_code(|| panic!("at {}", "once")), -2);
        assert!(last().contains("at once") && last().contains("panicked"), "{}", last());
        assert_eq!(guard_code(|| Ok(())), 0);
        assert!(last().contains("at once"), "success has changed the text");
        assert_eq!(guard(|_| 5, || Err(Error::new(ErrorKind::Full, "a\0b"))), 5);
        assert_eq!(last(), "ab");
    })
    .join()
    .unwrap();
}

#[test]
fn a_forked_child_reads_and_closes_what_it_inherited() {
    if !own_process::is_here("capi::tests::a_forked_child_reads_and_closes_what_it_inherited") {
        return;
    }
    let (_folder, path) = folder();
    let zr = Handle::open(&path);
    let src: Vec<u8> = (0..2000).flat_map(|i| [i as u8; 100]).collect();
    assert_eq!(zr.append(&src, 100), 0);
    let idxs: Vec<u64> = (0..2000).rev().collect();
    let expected: Vec<u8> = (0..2000).rev().flat_map(|i| [i as u8; 100]).collect();
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        // Threads that a child does not have, in the middle of reading and of appending.
        scope.spawn(|| {
            let mut dst = vec![0; src.len()];
            while !stop.load(Ordering::Relaxed) {
                assert_eq!(zr.gather(&idxs, &mut dst, 100), 0);
            }
        });
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                assert!(zr.append(b"x", 1) > 0);
            }
        });
        for _ in 0..20 {
            let in_child = || {
                // SAFETY: ends the child where it hangs.
                unsafe { libc::alarm(20) };
                let mut dst = vec![0; src.len()];
                let read = zr.gather(&idxs, &mut dst, 100) == 0 && dst == expected;
                let refused = zr.append(b"y", 1) == -2 && zr.delete(&[0]) == -2 && zr.sync() == -2;
                // SAFETY: the child ends without dropping the handle.
                unsafe { zr_close(zr.0) };
                let own = Handle::open(&path);
                read && refused && own.gather(&[], &mut [], 1) == 0
            };
            drop(Child::new(in_child));
        }
        stop.store(true, Ordering::Relaxed);
    });
    assert_eq!(zr.sync(), 0);
}

#[test]
fn a_child_opens_what_its_parent_had_not_found() {
    if !own_process::is_here("capi::tests::a_child_opens_what_its_parent_had_not_found") {
        return;
    }
    let (_folder, path) = folder();
    let zr = Handle::open(&path);
    drop(Child::new(|| zr.len() == 0 && zr.append(b"ab", 1) == 0 && zr.sync() == 0));
    assert_eq!(zr.all(), b"ab");
}

#[test]
fn index_streams() {
    let batch = |s: *mut Indices, room: usize| {
        let mut out = vec![u64::MAX; room];
        // SAFETY: a stream, and a slice of that length.
        unsafe { cnext(s, out.as_mut_ptr(), room) };
        out
    };
    let s = cinit(10, 4, 1, 42);
    assert_eq!(
        (batch(s, 4), batch(s, 4), batch(s, 4)),
        (vec![5, 4, 4, 6], vec![1, 7, 1, 2], vec![1, 8, 6, 1])
    );
    // SAFETY: it comes from cinit.
    unsafe { cdeinit(s) };
    let s = cinit(10, 4, 0, 0);
    assert_eq!(batch(s, 2), [0, 1], "as much as there is room for");
    assert_eq!(batch(s, 6), [4, 5, 6, 7, u64::MAX, u64::MAX], "no more than a batch");
    assert!(batch(s, 0).is_empty());
    // SAFETY: a stream; the pointer is looked at in neither call.
    unsafe {
        cnext(s, null_mut(), 0);
        cnext(s, null_mut(), 4);
    }
    assert!(last().contains("indices_ptr is NULL"), "{}", last());
    assert_eq!(batch(s, 4), [6, 7, 8, 9], "a refused call does not go on");
    // SAFETY: it comes from cinit; NULL is let pass.
    unsafe {
        cdeinit(s);
        cdeinit(null_mut());
        cnext(null_mut(), [0u64; 1].as_mut_ptr(), 1);
    }
    for (length, batch_size, mode) in [(0, 4, 1), (10, 0, 1), (10, 4, 3), (10, 4, 255)] {
        assert!(cinit(length, batch_size, mode, 1).is_null(), "{length} {batch_size} {mode}");
    }
    let s = cinit(7, 7, 2, 1);
    let mut pass = batch(s, 7);
    pass.sort_unstable();
    // SAFETY: it comes from cinit.
    unsafe { cdeinit(s) };
    assert_eq!(pass, [0, 1, 2, 3, 4, 5, 6]);
    let s = cinit(7, 1 << 60, 0, 1);
    if !s.is_null() {
        assert_eq!(batch(s, 1), [u64::MAX], "no memory: nothing is written");
        // SAFETY: it comes from cinit.
        unsafe { cdeinit(s) };
    }
}
