//! The `zrfs` program. Everything it does is in `cli`, which calls the library.

mod cli;

use std::process::ExitCode;

fn main() -> ExitCode {
    cli::run()
}
