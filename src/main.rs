//! The `zrfs` program. Everything it does is in `cli`, which calls the library.

#![cfg_attr(test, allow(clippy::cast_possible_truncation, reason = "test data is small"))]

mod cli;

use std::process::ExitCode;

fn main() -> ExitCode {
    cli::run()
}
