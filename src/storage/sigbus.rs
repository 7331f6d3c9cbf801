//! Reading a mapped file past its end raises SIGBUS, and anybody may cut a file while it is mapped. A library must
//! not let that kill its process, and checking the size first leaves a moment between check and read.
//!
//! So each mapping is watched: when a read of it faults, the handler marks the mapping as broken, puts a page of
//! zeros where the file's page is missing, and lets the read go on. The reader looks at the mark after it has
//! read; a marked mapping gives errors, never bytes. Faults elsewhere go to whatever handled SIGBUS before.
//!
//! Shared: the list of watches, walked by the handler without a lock. Everything the handler does is
//! async-signal-safe: atomic loads and stores, `mmap`, `signal`, `raise`.

use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering, fence};

use super::list::{List, Taken};

/// One watched range of addresses. A free one has length 0.
#[derive(Default)]
struct Watch {
    start: AtomicUsize,
    len: AtomicUsize,
    /// The file that is mapped there, by its number in `fork`.
    file: AtomicU64,
    broken: AtomicBool,
}

static WATCHES: List<Watch> = List::new();
/// What handled SIGBUS before us; `None` where our handler could not be installed.
static PREVIOUS: OnceLock<Option<libc::sigaction>> = OnceLock::new();

/// Keeps a mapping watched until it is dropped, which has to be before the mapping goes.
pub(super) struct Guard(Taken<Watch>);

impl Guard {
    /// Watches `len` bytes from address `start`, where `file` is mapped.
    ///
    /// `None` where SIGBUS can't be handled; such a mapping must not be read.
    pub(super) fn new(start: usize, len: usize, file: u64) -> Option<Guard> {
        PREVIOUS.get_or_init(install).as_ref()?;
        let watch = WATCHES.take();
        watch.broken.store(false, Ordering::SeqCst);
        watch.file.store(file, Ordering::SeqCst);
        watch.start.store(start, Ordering::SeqCst);
        watch.len.store(len, Ordering::SeqCst);
        Some(Guard(watch))
    }

    /// Whether a read of the mapping has faulted. Call it after the read.
    #[inline]
    pub(super) fn is_broken(&self) -> bool {
        // Neither compiler nor processor may look at the mark before the read is done.
        fence(Ordering::Acquire);
        self.0.broken.load(Ordering::SeqCst)
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        self.0.len.store(0, Ordering::SeqCst);
    }
}

/// Maps what is watched of `file` anew, from `opened`. Without that the mappings are broken from now on.
///
/// For a child before `fork` returns there, while no other thread is. Async-signal-safe.
pub(super) fn map_anew(file: u64, opened: Option<BorrowedFd<'_>>) {
    for watch in WATCHES.iter().filter(|watch| watch.file.load(Ordering::SeqCst) == file) {
        let len = watch.len.load(Ordering::SeqCst);
        if len == 0 {
            continue;
        }
        let at = watch.start.load(Ordering::SeqCst) as *mut libc::c_void;
        let shared = libc::MAP_SHARED | libc::MAP_FIXED;
        // SAFETY: a watched range is a mapping of ours, so nothing else is replaced, and readers find a page wherever
        // there was one.
        let mapped = opened.is_some_and(|opened| unsafe {
            libc::mmap(at, len, libc::PROT_READ, shared, opened.as_raw_fd(), 0) != libc::MAP_FAILED
        });
        if !mapped {
            // The mark comes first, as in `patch`.
            watch.broken.store(true, Ordering::SeqCst);
            let zeros = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | libc::MAP_FIXED;
            // SAFETY: as above.
            unsafe { libc::mmap(at, len, libc::PROT_READ, zeros, -1, 0) };
        }
    }
}

/// Installs the handler, once for the process; returns what was there.
fn install() -> Option<libc::sigaction> {
    // SAFETY: an all-zero sigaction is valid; the handler has the signature that SA_SIGINFO asks for, and both
    // structs outlive the call.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = on_sigbus as *const () as usize;
        action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK | libc::SA_RESTART;
        let mut previous = MaybeUninit::<libc::sigaction>::zeroed();
        (libc::sigaction(libc::SIGBUS, &raw const action, previous.as_mut_ptr()) == 0)
            .then(|| previous.assume_init())
    }
}

extern "C" fn on_sigbus(signal: libc::c_int, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    // SAFETY: the kernel passes a valid siginfo to a SA_SIGINFO handler of SIGBUS. A code above 0 means a fault, which
    // has an address; others mean that somebody has sent the signal.
    let (sent, address) = unsafe { ((*info).si_code <= 0, (*info).si_addr() as usize) };
    let watched = |watch: &&Watch| {
        let start = watch.start.load(Ordering::SeqCst);
        let len = watch.len.load(Ordering::SeqCst);
        len > 0 && address >= start && address - start < len
    };
    if !sent && WATCHES.iter().filter(watched).any(|watch| patch(watch, address)) {
        return;
    }
    pass_on(signal, sent, info, context);
}

/// Gives a fault that is not ours to whatever handled SIGBUS before. Our handler stays where that one returns, since it
/// may have mended the fault.
fn pass_on(signal: libc::c_int, sent: bool, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    let previous = PREVIOUS.get().and_then(Option::as_ref);
    match previous {
        Some(previous) if !sent && !matches!(previous.sa_sigaction, libc::SIG_DFL | libc::SIG_IGN) => {
            // SAFETY: sigaction told that this is a handler, and its flags which of the two signatures it has.
            unsafe {
                if previous.sa_flags & libc::SA_SIGINFO != 0 {
                    type Informed = extern "C" fn(libc::c_int, *mut libc::siginfo_t, *mut libc::c_void);
                    std::mem::transmute::<usize, Informed>(previous.sa_sigaction)(signal, info, context);
                } else {
                    std::mem::transmute::<usize, extern "C" fn(libc::c_int)>(previous.sa_sigaction)(signal);
                }
            }
        }
        // The default action ends the process: when the fault happens again, or by the signal sent again.
        // SAFETY: both calls are async-signal-safe.
        _ => unsafe {
            libc::signal(signal, libc::SIG_DFL);
            if sent {
                libc::raise(signal);
            }
        },
    }
}

/// Marks the mapping and puts a page of zeros at the faulting address.
fn patch(watch: &Watch, address: usize) -> bool {
    // The mark comes first: who sees the zeros sees the mark.
    watch.broken.store(true, Ordering::SeqCst);
    // SAFETY: sysconf and mmap are async-signal-safe as Linux has them. The page lies in a live mapping of ours:
    // a guard is dropped before its mapping, so replacing the page takes nothing from anybody else.
    unsafe {
        let Ok(page) = usize::try_from(libc::sysconf(libc::_SC_PAGESIZE)) else { return false };
        let at = address & !(page - 1);
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED;
        libc::mmap(at as *mut libc::c_void, page, libc::PROT_READ, flags, -1, 0) != libc::MAP_FAILED
    }
}
