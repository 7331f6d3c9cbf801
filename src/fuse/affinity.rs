//! Which processor a loop runs on.
//!
//! A program that opens file after file waits for each answer, so it and the loop that answers take turns. On two
//! processors each turn wakes one that has gone to sleep, which costs several times what the request does, most of
//! all in a virtual machine; on one processor a turn is a switch between two threads. The kernel's scheduler does
//! not know that they take turns and spreads them out. So a loop that has looked up file after file for one client
//! alone moves to the processor where that client runs. It may run anywhere again as soon as another client asks, a
//! read is long enough to be worth a processor of its own, or the files are all known to the kernel: then opening one
//! is a single short turn, and moving was measured to lose.
//!
//! Shared: nothing. Each loop counts for itself.

use std::cell::RefCell;

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// Look-ups for one client after which a loop moves, and after which it looks where the client is now; opens without
/// a look-up after which it lets go.
const LOOK_EVERY: u32 = 64;

/// What a loop knows of its clients.
struct Loop {
    /// Where it may run: what the process was started with.
    allowed: CpuSet,
    client: u32,
    /// Look-ups for that client since another one asked.
    streak: u32,
    /// Opens since the last look-up.
    opens: u32,
    moved: bool,
}

thread_local! {
    static LOOP: RefCell<Option<Loop>> = const { RefCell::new(None) };
}

/// Counts a look-up for `client`, a thread's number as the kernel tells it.
pub(super) fn looked_up(client: u32) {
    with_loop(|this| {
        this.opens = 0;
        if this.meet(client) {
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

/// Counts an open for `client`.
pub(super) fn opened(client: u32) {
    with_loop(|this| {
        this.opens = this.opens.saturating_add(1);
        if !this.meet(client) && this.opens > LOOK_EVERY {
            this.roam();
        }
    });
}

/// Lets the loop run anywhere: what it does next takes long enough to go on beside its client.
pub(super) fn roam() {
    with_loop(|this| {
        this.roam();
    });
}

impl Loop {
    /// Notes who asks; `true`, and the loop roams, where it is not who asked before.
    fn meet(&mut self, client: u32) -> bool {
        let new = self.client != client;
        if new {
            self.client = client;
            self.roam();
        }
        new
    }

    fn roam(&mut self) {
        self.streak = 0;
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
            *this = Some(Loop { allowed, client: 0, streak: 0, opens: 0, moved: false });
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
