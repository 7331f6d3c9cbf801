//! Commands: arguments, progress, messages, exit status. Knows the library's interface, nothing behind it.
//!
//! Exit status: 0 done, 1 it failed (one line on stderr), 2 wrong usage.

mod args;
mod batch;
mod by_name;
mod change;
mod check;
mod daemon;
mod demo;
mod export;
mod import;
mod live;
mod mount;
mod names;
mod notify;
mod output;
mod partial;
mod progress;
mod records;
mod sample;
mod show;
mod signals;
mod surrogates;

use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use clap::Parser;
use zrfs::Error;

use args::{
    CatArgs, Cli, CodecName, Command, DeleteArgs, DemoArgs, ExportArgs, ImportArgs, Links, LsArgs, MountArgs,
    SampleArgs, UmountArgs,
};

/// Whether log lines say when they were written.
static WITH_TIME: AtomicBool = AtomicBool::new(false);

/// Why a command did not do what it was asked.
enum Failure {
    /// The call makes no sense: exit status 2.
    Usage(String),
    /// It failed: exit status 1.
    Failed(Error),
    /// It failed, and each failure has been told already: exit status 1.
    Told,
    /// Standard output was closed by whoever read it: the process ends as by SIGPIPE.
    NobodyReads,
}

impl From<Error> for Failure {
    fn from(e: Error) -> Failure {
        Failure::Failed(e)
    }
}

type Outcome = Result<(), Failure>;

/// Runs the program.
pub(crate) fn run() -> ExitCode {
    let cli = Cli::parse();
    // fuser reports each reply that a killed reader no longer waits for; that is no news.
    env_logger::Builder::new()
        .parse_filters("warn,zrfs=info,fuser=off")
        .format(|line, record| {
            use std::io::Write;
            if WITH_TIME.load(Ordering::Relaxed) {
                let now = line.timestamp_seconds();
                write!(line, "{now} ")?;
            }
            match record.level() {
                log::Level::Info => writeln!(line, "zrfs: {}", one_line(record.args())),
                level => {
                    writeln!(line, "zrfs: {}: {}", level.as_str().to_lowercase(), one_line(record.args()))
                }
            }
        })
        .init();
    raise_open_files();
    // Whoever ignores the ends of children hands that down, and a child's exit status is lost then.
    let _ = signal_hook::flag::register(signal_hook::consts::SIGCHLD, Arc::default());
    // A write past the file size limit then fails with an error instead of ending the process half way.
    let _ = signal_hook::flag::register(signal_hook::consts::SIGXFSZ, Arc::default());
    let outcome = run_command(cli.command);
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(Failure::Usage(text)) => {
            eprintln!("zrfs: {}", one_line(text));
            ExitCode::from(2)
        }
        Err(Failure::Failed(e)) => {
            eprintln!("zrfs: {}", one_line(e));
            ExitCode::FAILURE
        }
        Err(Failure::Told) => ExitCode::FAILURE,
        Err(Failure::NobodyReads) => {
            // Rust ignores the signal that ends other programs here. By now everything is cleaned up.
            let _ = signal_hook::low_level::emulate_default_handler(signal_hook::consts::SIGPIPE);
            ExitCode::FAILURE
        }
    }
}

/// What reads a store, or changes it with no help of a mount, takes the one behind a mount point.
fn run_command(command: Command) -> Outcome {
    match command {
        Command::Import(mut args) => {
            args.paths = match args.paths.pop() {
                Some(store) => args.paths.into_iter().chain([live::store(store)?]).collect(),
                None => Vec::new(),
            };
            args.labels = args.labels.map(live::store).transpose()?;
            import::run(&args)
        }
        Command::Export(args) => export::run(&ExportArgs { store: live::store(args.store)?, ..args }),
        Command::Ls(args) => show::ls(&LsArgs { store: live::store(args.store)?, ..args }),
        Command::Cat(args) => show::cat(&CatArgs { store: live::store(args.store)?, ..args }),
        Command::Sample(args) => sample::run(&SampleArgs { store: live::store(args.store)?, ..args }),
        Command::Stats(args) => show::stats(&args.store, args.json),
        Command::Delete(args) => {
            change::delete(&args).map_err(|e| live::mounted_meanwhile(&args.store, args.with.is_empty(), e))
        }
        Command::Compact(args) => change::compact(&args.store, args.accept)
            .map_err(|e| live::mounted_meanwhile(&args.store, !args.accept, e)),
        Command::Verify(args) => check::verify(&live::store(args.store)?, args.json),
        Command::Repair(args) => {
            let store = live::store(args.store)?;
            check::repair(&store).map_err(|e| live::mounted_meanwhile(&store, false, e))
        }
        Command::Seal(args) => {
            let store = live::store(args.store)?;
            change::seal(&store, args.undo).map_err(|e| live::mounted_meanwhile(&store, false, e))
        }
        Command::Mount(args) => mount::mount(&MountArgs { store: live::store(args.store)?, ..args }),
        Command::Umount(args) => mount::umount(&args),
        Command::Demo(DemoArgs {}) => demo::run(),
    }
}

/// Log lines go to a file from now on, where it matters when they were written.
fn log_with_time() {
    WITH_TIME.store(true, Ordering::Relaxed);
}

/// A message on one line, whatever characters the names in it have.
fn one_line(text: impl std::fmt::Display) -> String {
    let text = text.to_string();
    let escaped = |c: char| if c.is_control() { c.escape_default().collect() } else { String::from(c) };
    text.chars().map(escaped).collect()
}

/// A store opens up to 4096 chunk files; shells often allow 1024.
fn raise_open_files() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let now = getrlimit(Resource::Nofile);
    // Where it is refused, a store of that many chunks says so when it gets there.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: now.maximum, maximum: now.maximum });
}
