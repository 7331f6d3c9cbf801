//! What C hands over, looked at as far as it can be, then taken for slices and references.

use std::path::PathBuf;
use std::{ffi::OsStr, os::unix::ffi::OsStrExt, slice};

use crate::error::{Error, ErrorKind, Result};

fn refused(text: String) -> Error {
    Error::new(ErrorKind::Geometry, text)
}

/// Checks an array of `n` elements: it is at no null pointer, aligned, and of a size that memory can have.
fn check<T>(at: *const T, n: usize, name: &str) -> Result<()> {
    let bytes = n.checked_mul(size_of::<T>()).filter(|&bytes| isize::try_from(bytes).is_ok());
    // The end of an array must not lie behind that of memory either.
    if bytes.is_none_or(|bytes| at.addr().checked_add(bytes).is_none()) {
        return Err(refused(format!("{name}: no memory holds {n} elements of {} bytes", size_of::<T>())));
    }
    if at.is_null() {
        return Err(refused(format!("{name} is NULL, with {n} elements")));
    }
    if !at.is_aligned() {
        return Err(refused(format!("{name} is not aligned to {} bytes", align_of::<T>())));
    }
    Ok(())
}

/// The `n` elements at `at`; without any, the pointer is not looked at.
///
/// # Safety
/// Where `n` is not 0 and `at` passes the checks: `n` elements can be read there, and nobody writes to them in `'a`.
pub(super) unsafe fn array<'a, T>(at: *const T, n: usize, name: &str) -> Result<&'a [T]> {
    if n == 0 {
        return Ok(&[]);
    }
    check(at, n, name)?;
    // SAFETY: not null, aligned and no larger than memory: that was checked. The rest is what the caller promises.
    Ok(unsafe { slice::from_raw_parts(at, n) })
}

/// As [`array`], to write to.
///
/// # Safety
/// Where `n` is not 0 and `at` passes the checks: `n` elements can be read and written there, and nobody else does in
/// `'a`. They need not have been written before: to Rust, memory that C hands over holds some value.
pub(super) unsafe fn array_mut<'a, T>(at: *mut T, n: usize, name: &str) -> Result<&'a mut [T]> {
    if n == 0 {
        return Ok(&mut []);
    }
    check(at, n, name)?;
    // SAFETY: as in `array`, and nobody else uses them, which the caller promises, too.
    Ok(unsafe { slice::from_raw_parts_mut(at, n) })
}

/// What an opaque pointer points to.
///
/// # Safety
/// A pointer that is not null comes from the function that makes a `T` for C, and was not given back yet, nor is in `'a`.
pub(super) unsafe fn opaque<'a, T>(at: *const T, name: &str) -> Result<&'a T> {
    // SAFETY: what the caller promises.
    unsafe { at.as_ref() }.ok_or_else(|| null(name))
}

/// As [`opaque`], to change it.
///
/// # Safety
/// As for [`opaque`], and nobody else uses it in `'a`.
pub(super) unsafe fn opaque_mut<'a, T>(at: *mut T, name: &str) -> Result<&'a mut T> {
    // SAFETY: what the caller promises.
    unsafe { at.as_mut() }.ok_or_else(|| null(name))
}

/// A handle that is NULL has a code of its own: it mostly comes from an opening that failed.
fn null(name: &str) -> Error {
    Error::new(ErrorKind::Io, format!("{name} is NULL"))
}

/// A path of `len` bytes.
///
/// # Safety
/// As for [`array`]; nothing is kept of it.
pub(super) unsafe fn path(at: *const u8, len: usize) -> Result<PathBuf> {
    // SAFETY: what the caller promises.
    let bytes = unsafe { array(at, len, "path_ptr") }?;
    if bytes.is_empty() {
        return Err(refused("the path is empty".to_owned()));
    }
    Ok(PathBuf::from(OsStr::from_bytes(bytes)))
}

/// Writes `value` to where C wants it; NULL means that it does not.
///
/// # Safety
/// A pointer that is not null is valid for writing a `T`; it need not be aligned.
pub(super) unsafe fn put<T>(at: *mut T, value: T) {
    if !at.is_null() {
        // SAFETY: not null; the rest is what the caller promises.
        unsafe { at.write_unaligned(value) };
    }
}
