//! Asking work to stop: the signals that ask a program to end raise a flag, which the work looks at between steps.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use zrfs::{Error, ErrorKind, Result};

/// A flag that signals raise.
#[derive(Clone, Default)]
pub(super) struct Stop(Arc<AtomicBool>);

impl Stop {
    /// A flag that SIGINT, SIGTERM and SIGHUP raise from here on, instead of ending the process.
    pub(super) fn on_signals() -> Result<Stop> {
        let stop = Stop::default();
        for signal in [SIGINT, SIGTERM, SIGHUP] {
            signal_hook::flag::register(signal, Arc::clone(&stop.0))
                .map_err(|e| Error::io("can't wait for signals", e))?;
        }
        Ok(stop)
    }

    /// Whether the flag is raised.
    pub(super) fn is_raised(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    /// An error that says what became of the work, where the flag is raised.
    pub(super) fn check(&self, outcome: &str) -> Result<()> {
        if self.is_raised() {
            return Err(Error::new(ErrorKind::Interrupted, format!("interrupted: {outcome}")));
        }
        Ok(())
    }
}
