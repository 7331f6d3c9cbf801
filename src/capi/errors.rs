//! Codes as loaderx 0.5.0 has them, and the text of each thread's last failure.

use std::any::Any;
use std::cell::RefCell;
use std::ffi::{CString, c_char};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr;

use crate::error::{Error, ErrorKind, Result};

/// What a function returns where it failed; 0 or more is success.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
pub(super) enum Code {
    /// A buffer does not fit in memory.
    Memory = -1,
    /// The system refused, others are in the way, or what happened has no code of its own.
    Io = -2,
    /// An index at or past the number of records.
    Index = -3,
    /// A record that is too long, or empty.
    RecordSize = -4,
    /// No record slot or no chunk is left.
    Full = -5,
    /// Pointers, lengths, strides or offsets that do not fit each other.
    Geometry = -6,
    /// A record, or what leads to it, is damaged.
    Damaged = -7,
    /// No record store, or one that this release does not read.
    NotAStore = -8,
}

impl Code {
    pub(super) fn of(e: &Error) -> Code {
        match e.kind() {
            ErrorKind::Memory => Code::Memory,
            ErrorKind::Io
            | ErrorKind::NotFound
            | ErrorKind::Exists
            | ErrorKind::Busy
            | ErrorKind::ReadOnly
            | ErrorKind::Unsupported
            | ErrorKind::Interrupted
            | ErrorKind::Stale
            | ErrorKind::Worker => Code::Io,
            ErrorKind::OutOfRange => Code::Index,
            ErrorKind::RecordSize => Code::RecordSize,
            ErrorKind::Full => Code::Full,
            ErrorKind::Geometry => Code::Geometry,
            ErrorKind::Damaged => Code::Damaged,
            ErrorKind::NotAStore | ErrorKind::Version => Code::NotAStore,
        }
    }

    /// As [`Code::of`], for an opening: what a damaged header says is not to be believed, the magic included.
    pub(super) fn of_opening(e: &Error) -> Code {
        match Code::of(e) {
            Code::Damaged => Code::NotAStore,
            other => other,
        }
    }

    pub(super) fn number(self) -> i32 {
        self as i32
    }
}

thread_local! {
    static LAST: RefCell<Option<CString>> = const { RefCell::new(None) };
}

/// Keeps the text of an error for [`zr_last_error`].
fn keep(e: &Error) {
    let mut text = e.to_string();
    text.retain(|c| c != '\0');
    // A thread that ends has no place for it any more, and nobody who would ask.
    let _ = LAST.try_with(|last| *last.borrow_mut() = CString::new(text).ok());
}

/// Runs the body of a function that C calls; where it fails, keeps the text, and `failed` makes what is returned of the
/// error. A panic counts as an error.
pub(super) fn guard<T>(failed: impl FnOnce(&Error) -> T, body: impl FnOnce() -> Result<T>) -> T {
    // A panic leaves nothing half done in a store: an append that was not committed is not there, and what is shared with
    // readers is replaced as a whole.
    let done = catch_unwind(AssertUnwindSafe(body)).unwrap_or_else(|payload| Err(of_panic(payload.as_ref())));
    done.unwrap_or_else(|e| {
        keep(&e);
        failed(&e)
    })
}

/// As [`guard`], for functions that return nothing but a code.
pub(super) fn guard_code(body: impl FnOnce() -> Result<()>) -> i32 {
    guard(|e| Code::of(e).number(), || body().map(|()| 0))
}

fn of_panic(payload: &(dyn Any + Send)) -> Error {
    let said = payload.downcast_ref::<&str>().copied();
    let said =
        said.or_else(|| payload.downcast_ref::<String>().map(String::as_str)).unwrap_or("no reason given");
    Error::new(ErrorKind::Io, format!("zrfs has panicked, which is a fault of zrfs: {said}"))
}

/// The text of the calling thread's last failure: what failed, where, and what to do about it. NULL where it had none.
/// UTF-8, one line, ended by a zero byte. Not in loaderx.
///
/// The pointer is valid until the thread's next failing call of this library, or its end. A call that succeeds changes
/// nothing.
#[unsafe(no_mangle)]
pub extern "C" fn zr_last_error() -> *const c_char {
    let text =
        |last: &RefCell<Option<CString>>| last.borrow().as_ref().map_or(ptr::null(), |text| text.as_ptr());
    LAST.try_with(text).unwrap_or(ptr::null())
}
