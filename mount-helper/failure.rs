//! Why nothing was mounted, and the exit status that tells mount(8).

use std::io::{self, Write};
use std::process::ExitCode;

/// Exit status: wrong usage or bad options.
pub(super) const USAGE: u8 = 1;
/// Exit status: the system does not let the program do its work.
pub(super) const SYSTEM: u8 = 2;
/// Exit status: the mount failed.
pub(super) const FAILED: u8 = 32;

#[derive(Debug)]
pub(super) enum Failure {
    /// The status and what to say.
    Says(u8, String),
    /// The status; what happened is on stderr already.
    Told(u8),
}

impl Failure {
    /// Says it on stderr, on one line whatever characters names have.
    pub(super) fn report(self) -> ExitCode {
        match self {
            Failure::Says(status, text) => {
                let escaped =
                    |c: char| if c.is_control() { c.escape_default().collect() } else { String::from(c) };
                // Where nobody can be told, the status still tells.
                let _ =
                    writeln!(io::stderr(), "mount.zrfs: {}", text.chars().map(escaped).collect::<String>());
                ExitCode::from(status)
            }
            Failure::Told(status) => ExitCode::from(status),
        }
    }
}
