//! Ending a mount that nobody has used for some time.
//!
//! What the kernel answers from memory is not seen here. So such a mount lets it keep names and attributes for a quarter
//! of that time only: who opens, lists or looks at anything in it after that, by a cached listing too, asks for it first. A
//! look at its root alone, which all take that watch mounts, is no use. What is used for longer without a request, an open
//! file or a working folder, makes the unmount fail.
//!
//! Shared: one flag, which handlers raise and the watcher lowers.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use super::session::Unmounter;

/// What handlers say a use with; without `idle=` it says nothing.
#[derive(Clone, Default)]
pub(super) struct Mark(Option<Arc<AtomicBool>>);

impl Mark {
    /// A mark that tells where `wanted`.
    pub(super) fn new(wanted: bool) -> Mark {
        Mark(wanted.then(Arc::default))
    }

    /// Says that somebody uses the mount.
    pub(super) fn set(&self) {
        // Written only where it changes something: loops on other processors have it in their caches.
        if let Some(used) = &self.0
            && !used.load(Ordering::Relaxed)
        {
            used.store(true, Ordering::Relaxed);
        }
    }

    fn take(&self) -> bool {
        self.0.as_ref().is_some_and(|used| used.swap(false, Ordering::Relaxed))
    }
}

/// How long the kernel may answer from memory where a mount ends when it was unused for `limit`.
pub(super) fn kept_for(limit: Duration) -> Duration {
    limit / 4
}

/// The time that a mount was not used.
pub(super) struct Idle {
    limit: Duration,
    mark: Mark,
    since: Instant,
    /// Why it was not unmounted the last time, other than as it was in use: told once.
    refused: String,
}

impl Idle {
    pub(super) fn new(limit: Duration, mark: Mark) -> Idle {
        Idle { limit, mark, since: Instant::now(), refused: String::new() }
    }

    /// Unmounts where the time is over; `true` when that was done. `at_work`: the mount does what it was asked to, and
    /// nobody waits for it. To be called now and then.
    pub(super) fn end(&mut self, at_work: bool, unmounter: &Unmounter) -> bool {
        if !self.is_over(at_work) {
            return false;
        }
        // Where it is in use all the same, the time begins anew.
        self.since = Instant::now();
        match unmounter.unmount_unused() {
            Ok(true) => {
                log::info!("unused for {} s: unmounted", self.limit.as_secs());
                return true;
            }
            Ok(false) => {}
            Err(e) => {
                let refused = e.to_string();
                if refused != self.refused {
                    log::warn!("unused for {} s: {refused}", self.limit.as_secs());
                    self.refused = refused;
                }
            }
        }
        false
    }

    fn is_over(&mut self, at_work: bool) -> bool {
        if self.mark.take() || at_work {
            self.since = Instant::now();
        }
        // What came last may have been used from memory for so long again.
        self.since.elapsed() >= self.limit + kept_for(self.limit)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_tells_once_and_only_where_it_is_wanted() {
        let mark = Mark::new(true);
        assert!(!mark.take());
        mark.clone().set();
        assert!(mark.take() && !mark.take());
        let mark = Mark::default();
        mark.set();
        assert!(!mark.take());
    }

    #[test]
    fn the_time_begins_anew_with_each_use_and_while_there_is_work() {
        let mark = Mark::new(true);
        let long_unused = || {
            let since = Instant::now().checked_sub(Duration::from_secs(1251)).unwrap();
            Idle { since, ..Idle::new(Duration::from_secs(1000), mark.clone()) }
        };
        assert!(long_unused().is_over(false));
        let mut idle = long_unused();
        assert!(!idle.is_over(true) && !idle.is_over(false));
        let mut idle = long_unused();
        mark.set();
        assert!(!idle.is_over(false) && !idle.is_over(false));
    }
}
