//! The functions as C calls them.

mod arguments;
mod forks;
mod indices;
mod opening;
mod records;

use std::ffi::CStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use super::*;

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
