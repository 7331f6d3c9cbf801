//! Tests that fork or set limits, in processes of their own: in the program of the tests, others are running.

use std::io::{self, PipeWriter, Read, Write};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::process::{Pid, Signal, WaitOptions, kill_process, waitpid};

const MARK: &str = "ZRFS_TEST_IN_OWN_PROCESS";

/// Runs the test of that name in a process of its own. `true` there, where the test is to go on.
pub(crate) fn is_here(test: &str) -> bool {
    if std::env::var_os(MARK).is_some() {
        return true;
    }
    let program = std::env::current_exe().unwrap();
    let ran = Command::new(program)
        .args([test, "--exact", "--nocapture", "--include-ignored"])
        .env(MARK, "1")
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&ran.stdout);
    let all = format!("{text}\n{}", String::from_utf8_lossy(&ran.stderr));
    assert!(ran.status.success() && text.contains("1 passed"), "{test}, {}:\n{all}", ran.status);
    false
}

/// Tells threads to end when it is dropped, also by a test that has failed: who waits for them would wait for ever.
pub(crate) struct Ends<'a>(pub(crate) &'a AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

/// A forked child that has done something, and lives until it is dropped.
pub(crate) struct Child {
    pid: Pid,
    // The child ends when it is closed.
    _life: PipeWriter,
}

impl Child {
    /// Forks. The child does `work`, which has to be true.
    pub(crate) fn new(work: impl FnOnce() -> bool) -> Child {
        Child::new_after(|| {}, work)
    }

    /// As [`Child::new`]; the parent does `before` right before it forks.
    pub(crate) fn new_after(before: impl FnOnce(), work: impl FnOnce() -> bool) -> Child {
        let (mut ended, life) = io::pipe().unwrap();
        let (mut answered, mut answer) = io::pipe().unwrap();
        before();
        // SAFETY: the child runs only what a test gives it, beside no thread that would hold a lock it needs, and ends
        // without going back.
        match unsafe { libc::fork() } {
            0 => {
                drop(life);
                let good = catch_unwind(AssertUnwindSafe(work)).unwrap_or(false);
                let _ = answer.write_all(&[u8::from(good)]);
                let _ = ended.read(&mut [0; 1]);
                // SAFETY: ends the process, and runs nothing of it.
                unsafe { libc::_exit(0) }
            }
            pid => {
                drop(answer);
                let child = Child { pid: Pid::from_raw(pid).unwrap(), _life: life };
                let mut byte = [0; 1];
                answered.read_exact(&mut byte).unwrap();
                assert_eq!(byte, [1], "in the child");
                child
            }
        }
    }

    pub(crate) fn pid(&self) -> u32 {
        self.pid.as_raw_pid().cast_unsigned()
    }

    pub(crate) fn lives(&self) -> bool {
        waitpid(Some(self.pid), WaitOptions::NOHANG).unwrap().is_none()
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        let _ = kill_process(self.pid, Signal::KILL);
        let _ = waitpid(Some(self.pid), WaitOptions::empty());
    }
}
