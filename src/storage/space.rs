//! Disk for a range of a file: taken and given back, also where the file system has no call for it; and the limit
//! that the process has on the size of its files.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use rustix::fs::{FallocateFlags, SeekFrom};
use rustix::io::{Errno, retry_on_intr};
use rustix::process::{Resource, getrlimit};

/// The end of a range, where the process may write up to there.
///
/// # Errors
/// EFBIG. The system would say so, too, but with a signal (SIGXFSZ) that ends the process.
pub(super) fn end_within_limit(at: u64, len: u64) -> io::Result<u64> {
    let limit = getrlimit(Resource::Fsize).current.unwrap_or(u64::MAX).min(i64::MAX.cast_unsigned());
    at.checked_add(len).filter(|&end| end <= limit).ok_or_else(|| Errno::FBIG.into())
}

/// Takes disk for a range; the size grows to its end.
pub(super) fn allocate(file: &File, at: u64, len: u64) -> io::Result<()> {
    let end = end_within_limit(at, len)?;
    if len == 0 {
        return Ok(());
    }
    match retry_on_intr(|| rustix::fs::fallocate(file, FallocateFlags::empty(), at, len)) {
        Err(e) if is_missing(e) => allocate_by_writing(file, at, end),
        done => Ok(done?),
    }
}

/// Gives the disk of a range back; it reads as zeros then, and the size stays.
pub(super) fn free(file: &File, at: u64, len: u64) -> io::Result<()> {
    if len == 0 {
        return Ok(());
    }
    let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    match retry_on_intr(|| rustix::fs::fallocate(file, flags, at, len)) {
        Err(e) if is_missing(e) => free_by_writing(file, at, at.saturating_add(len)),
        done => Ok(done?),
    }
}

fn is_missing(e: Errno) -> bool {
    matches!(e, Errno::OPNOTSUPP | Errno::NOSYS | Errno::INVAL)
}

/// Only behind the end of the file: what lies before it may be anybody's bytes.
fn allocate_by_writing(file: &File, at: u64, end: u64) -> io::Result<()> {
    write_zeros(file, at.max(file.metadata()?.len()), end)
}

/// Only where the file has bytes: zeros in its holes would take disk.
fn free_by_writing(file: &File, at: u64, end: u64) -> io::Result<()> {
    let end = end.min(file.metadata()?.len());
    let mut from = at;
    while from < end {
        let start = match rustix::fs::seek(file, SeekFrom::Data(from)) {
            Ok(start) => start,
            Err(Errno::NXIO) => break,
            Err(_) => from,
        };
        let hole = rustix::fs::seek(file, SeekFrom::Hole(start)).ok().filter(|&hole| hole > start);
        from = hole.unwrap_or(end).min(end);
        write_zeros(file, start, from)?;
    }
    Ok(())
}

fn write_zeros(file: &File, from: u64, end: u64) -> io::Result<()> {
    if from >= end {
        return Ok(());
    }
    end_within_limit(from, end - from)?;
    let zeros = vec![0; 1 << 20];
    let mut at = from;
    while at < end {
        let len = usize::try_from(end - at).unwrap_or(usize::MAX).min(zeros.len());
        file.write_all_at(zeros.get(..len).unwrap_or_default(), at)?;
        at += len as u64;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use super::*;
    use crate::storage::{Directory, Disk, own_process};

    fn contents(file: &File) -> Vec<u8> {
        let mut bytes = Vec::new();
        io::Seek::rewind(&mut &*file).unwrap();
        (&*file).read_to_end(&mut bytes).unwrap();
        bytes
    }

    #[test]
    fn allocating_grows_and_keeps_what_is_there() {
        for by_writing in [false, true] {
            let file = tempfile::tempfile().unwrap();
            file.write_all_at(b"abc", 0).unwrap();
            let allocate = |at: u64, len: u64| {
                if by_writing { allocate_by_writing(&file, at, at + len) } else { allocate(&file, at, len) }
            };
            allocate(1, 2).unwrap();
            assert_eq!(contents(&file), b"abc");
            allocate(2, 3 << 20).unwrap();
            assert_eq!(file.metadata().unwrap().len(), 2 + (3 << 20));
            allocate(4 << 20, 100).unwrap();
            let bytes = contents(&file);
            assert_eq!(bytes.len(), (4 << 20) + 100);
            assert!(bytes.starts_with(b"abc\0") && bytes[3..].iter().all(|&byte| byte == 0));
            allocate(9 << 20, 0).unwrap();
        }
    }

    #[test]
    fn freeing_leaves_zeros_and_the_size() {
        for by_writing in [false, true] {
            let file = tempfile::tempfile().unwrap();
            // Bytes, a hole of 62 MiB, and bytes.
            file.write_all_at(&[7; 1 << 20], 0).unwrap();
            file.write_all_at(&[7; 1 << 20], 63 << 20).unwrap();
            let free = |at: u64, end: u64| {
                if by_writing { free_by_writing(&file, at, end) } else { free(&file, at, end - at) }
            };
            free(1000, 63 << 20).unwrap();
            free((64 << 20) - 10, 90 << 20).unwrap();
            free(80 << 20, 90 << 20).unwrap();
            let bytes = contents(&file);
            let (start, end) = ((1000..63 << 20), ((63 << 20)..(64 << 20) - 10));
            assert_eq!(bytes.len(), 64 << 20);
            assert!(bytes[..1000].iter().all(|&byte| byte == 7));
            assert!(bytes[start].iter().all(|&byte| byte == 0));
            assert!(bytes[end].iter().all(|&byte| byte == 7));
            assert!(bytes.ends_with(&[0; 10]));
            let taken = std::os::unix::fs::MetadataExt::blocks(&file.metadata().unwrap()) * 512;
            assert!(taken < 4 << 20, "{taken} bytes: holes were filled");
        }
    }

    #[test]
    fn the_limit_on_sizes_is_an_error_not_a_signal() {
        if !own_process::is_here("storage::space::tests::the_limit_on_sizes_is_an_error_not_a_signal") {
            return;
        }
        let dir = tempfile::tempdir().unwrap();
        let file = Disk::open(dir.path()).unwrap().create("f").unwrap();
        file.set_len(5000).unwrap();
        let limit = rustix::process::Rlimit { current: Some(1000), maximum: None };
        rustix::process::setrlimit(Resource::Fsize, limit).unwrap();
        let too_big = |done: io::Result<()>| done.unwrap_err().raw_os_error() == Some(libc::EFBIG);
        assert!(too_big(file.write_at(&[1; 10], 991)));
        assert!(too_big(file.write_at(&[1; 10], u64::MAX)));
        assert!(too_big(file.set_len(5001)));
        assert!(too_big(file.allocate(0, 1001)));
        assert!(too_big(file.allocate(u64::MAX, 1)));
        assert_eq!(file.attributes().unwrap().len, 5000);
        file.write_at(&[1; 10], 990).unwrap();
        file.free(0, 5000).unwrap();
        file.set_len(4000).unwrap();
        file.set_len(0).unwrap();
        file.allocate(0, 1000).unwrap();
        assert_eq!(file.attributes().unwrap().len, 1000);
    }
}
