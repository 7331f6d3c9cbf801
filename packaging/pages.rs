//! Makes the man pages and the shell completions of both programs, of the descriptions that their `--help` shows:
//! `cargo run --example pages -- FOLDER`.

#[allow(dead_code, reason = "only what is described is used, not what is given")]
#[path = "../mount-helper/args.rs"]
mod helper;
#[allow(dead_code, reason = "only what is described is used, not what is given")]
#[path = "../src/cli/args.rs"]
mod program;

use std::io;

use clap::CommandFactory;

fn main() -> io::Result<()> {
    clap_mangen::Man::new(helper::Call::command()).render(&mut io::stdout())?;
    clap_mangen::Man::new(program::Cli::command()).render(&mut io::stdout())
}
