//! Keeps forks out of the moments in which a file is mapped and not yet watched, or no longer: a child would not find
//! such a mapping, which holds the parent's open file.
//!
//! Shared: two counters, of threads in such a moment and of threads that fork. Each looks at the other's after it has
//! counted itself, so one of two sees the other and waits.

use std::sync::atomic::{AtomicU32, Ordering};
use std::thread::sleep;
use std::time::Duration;

static INSIDE: AtomicU32 = AtomicU32::new(0);
static FORKING: AtomicU32 = AtomicU32::new(0);

const PAUSE: Duration = Duration::from_micros(50);
/// A signal handler may fork and have interrupted the one that it waits for: a fork waits for 2000 pauses, no longer.
const PATIENCE: u32 = 2000;

/// No thread forks as long as this lives.
pub(super) struct Inside(());

/// Waits for forks that are under way.
pub(super) fn enter() -> Inside {
    loop {
        INSIDE.fetch_add(1, Ordering::SeqCst);
        if FORKING.load(Ordering::SeqCst) == 0 {
            return Inside(());
        }
        INSIDE.fetch_sub(1, Ordering::SeqCst);
        while FORKING.load(Ordering::SeqCst) > 0 {
            sleep(PAUSE);
        }
    }
}

impl Drop for Inside {
    fn drop(&mut self) {
        INSIDE.fetch_sub(1, Ordering::SeqCst);
    }
}

/// For `pthread_atfork`.
pub(super) extern "C" fn before_fork() {
    FORKING.fetch_add(1, Ordering::SeqCst);
    for _ in 0..PATIENCE {
        if INSIDE.load(Ordering::SeqCst) == 0 {
            return;
        }
        sleep(PAUSE);
    }
}

/// For `pthread_atfork`; also called where the fork failed.
pub(super) extern "C" fn after_fork() {
    FORKING.fetch_sub(1, Ordering::SeqCst);
}

/// In a child no other thread is left to be counted.
pub(super) fn reset_in_child() {
    INSIDE.store(0, Ordering::SeqCst);
    FORKING.store(0, Ordering::SeqCst);
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;

    use super::*;
    use crate::storage::own_process::{self, Child};
    use crate::storage::{Directory, Disk};

    #[test]
    fn no_child_is_forked_while_a_thread_is_inside() {
        if !own_process::is_here("storage::gate::tests::no_child_is_forked_while_a_thread_is_inside") {
            return;
        }
        let dir = tempfile::tempdir().unwrap();
        // The first file puts the handlers in place.
        let file = Disk::open(dir.path()).unwrap().create("f").unwrap();
        static OCCUPIED: AtomicBool = AtomicBool::new(false);
        static DONE: AtomicBool = AtomicBool::new(false);
        // Not scoped: a failure is not to wait for it.
        let thread = std::thread::spawn(|| {
            while !DONE.load(Ordering::SeqCst) {
                let gate = enter();
                OCCUPIED.store(true, Ordering::SeqCst);
                std::thread::yield_now();
                OCCUPIED.store(false, Ordering::SeqCst);
                drop(gate);
            }
        });
        for _ in 0..100 {
            // The gate is open in the child.
            drop(Child::new(|| !OCCUPIED.load(Ordering::SeqCst) && file.map(1 << 20).is_ok()));
        }
        DONE.store(true, Ordering::SeqCst);
        thread.join().unwrap();
        assert_eq!((INSIDE.load(Ordering::SeqCst), FORKING.load(Ordering::SeqCst)), (0, 0));
    }
}
