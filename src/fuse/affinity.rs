//! Which processor a loop runs on.
//!
//! A program that opens file after file waits for each answer, so it and the loop that answers take turns. On two
//! processors each turn wakes one that has gone to sleep, which costs several times what the request does, most of
//! all in a virtual machine; on one processor a turn is a switch between two threads. The kernel's scheduler does
//! not know that they take turns and spreads them out. So a loop that has served one client alone for a while moves to
//! the processor where that client runs. As soon as another client asks, or a read is long enough to be worth a
//! processor of its own, the loop may run anywhere again.
//!
//! Shared: nothing. Each loop counts for itself.

use std::cell::RefCell;

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// Requests of one client after which a loop moves, and after which it looks where the client is now.
const LOOK_EVERY: u32 = 64;

/// What a loop knows of its clients.
struct Loop {
    /// Where it may run: what the process was started with.
    allowed: CpuSet,
    client: u32,
    /// Requests of that client since another one asked.
    streak: u32,
    moved: bool,
}

thread_local! {
    static LOOP: RefCell<Option<Loop>> = const { RefCell::new(None) };
}

/// Counts a short request of `client`, a thread's number as the kernel tells it.
pub(super) fn follow(client: u32) {
    with_loop(|this| {
        if this.client != client {
            this.client = client;
            this.streak = 0;
            this.roam();
            return;
        }
        this.streak = this.streak.saturating_add(1);
        if this.streak.is_multiple_of(LOOK_EVERY)
            && let Some(cpu) = processor_of(client)
            && this.allowed.is_set(cpu)
        {
            let mut there = CpuSet::new();
            there.set(cpu);
            this.moved |= sched_setaffinity(None, &there).is_ok();
        }
    });
}

/// Lets the loop run anywhere: what it does next takes long enough to go on beside its client.
pub(super) fn roam() {
    with_loop(|this| {
        this.streak = 0;
        this.roam();
    });
}

impl Loop {
    fn roam(&mut self) {
        if self.moved {
            self.moved = sched_setaffinity(None, &self.allowed).is_err();
        }
    }
}

/// Runs `work` with this thread's state. Where the system does not tell where a thread may run, nothing is done.
fn with_loop(work: impl FnOnce(&mut Loop)) {
    LOOP.with_borrow_mut(|this| {
        if this.is_none()
            && let Ok(allowed) = sched_getaffinity(None)
        {
            *this = Some(Loop { allowed, client: 0, streak: 0, moved: false });
        }
        if let Some(this) = this {
            work(this);
        }
    });
}

/// The processor on which a thread ran last; `None` where it is not to be seen (another container's, say).
fn processor_of(thread: u32) -> Option<usize> {
    let stat = std::fs::read(format!("/proc/{thread}/stat")).ok()?;
    parse_processor(&stat)
}

/// Field 39 of /proc/PID/stat. The second field, the program's name in brackets, may hold spaces and brackets.
fn parse_processor(stat: &[u8]) -> Option<usize> {
    let end_of_name = stat.iter().rposition(|&b| b == b')')?;
    let fields = std::str::from_utf8(stat.get(end_of_name + 1..)?).ok()?;
    fields.split_ascii_whitespace().nth(36)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_processor_is_found_behind_any_name() {
        let rest = (3..53).map(|field| if field == 39 { "7".to_owned() } else { field.to_string() });
        let stat = format!("12 (a) b 1) {}", rest.collect::<Vec<_>>().join(" "));
        assert_eq!(parse_processor(stat.as_bytes()), Some(7));
        assert_eq!(parse_processor(b"12 (a) S 1"), None);
        assert_eq!(parse_processor(b""), None);
        assert!(processor_of(std::process::id()).is_some());
    }
}
