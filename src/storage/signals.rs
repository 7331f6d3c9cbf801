//! Signals that whoever started the program has blocked.

use std::io;
use std::mem::MaybeUninit;

/// Has `signals` reach this thread, and the threads that it starts from now on. A process inherits which signals are blocked.
///
/// # Errors
/// For a number that is no signal.
pub fn unblock(signals: &[i32]) -> io::Result<()> {
    let mut set = MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: sigemptyset makes the set what it has to be before it is used; both outlive the calls.
    unsafe {
        libc::sigemptyset(set.as_mut_ptr());
        for &signal in signals {
            if libc::sigaddset(set.as_mut_ptr(), signal) != 0 {
                return Err(io::Error::last_os_error());
            }
        }
        match libc::pthread_sigmask(libc::SIG_UNBLOCK, set.as_ptr(), std::ptr::null_mut()) {
            0 => Ok(()),
            errno => Err(io::Error::from_raw_os_error(errno)),
        }
    }
}
