//! `mount.zrfs`: what mount(8) calls to mount a store.
//!
//! It turns the call into one of `zrfs mount`, in a process of its own, and its outcome into the exit status that mount(8) wants.
//! No shell, no PATH and no HOME is needed for it.

mod args;
mod check;
mod failure;
mod mount;
mod program;
#[cfg(test)]
mod tests;

use std::process::ExitCode;
use std::sync::Arc;

use clap::Parser;

use args::Call;
use failure::Failure;
use program::Program;

fn main() -> ExitCode {
    // A caller that ignores the signal hands that on, and the kernel then forgets how zrfs ended.
    let _ = signal_hook::flag::register(signal_hook::consts::SIGCHLD, Arc::default());
    let outcome = match Call::try_parse() {
        Ok(call) => run(&call),
        Err(e) => {
            // Help and version are printed like that, too. Nobody may read it any more.
            let _ = e.print();
            if e.use_stderr() { Err(Failure::Told(failure::USAGE)) } else { Ok(()) }
        }
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => e.report(),
    }
}

fn run(call: &Call) -> Result<(), Failure> {
    let mount = mount::Mount::of(call)?;
    if call.verbose && !mount.left_out.is_empty() {
        mount::say(format_args!("options that are not known are left out: {}", mount.left_out.join(", ")));
    }
    // Found and opened before the namespace changes, where it may have no path.
    let program = Program::find()?;
    let arguments = mount.arguments(call);
    if call.verbose {
        let words: Vec<_> = arguments.iter().map(|word| format!("{word:?}")).collect();
        let does = if call.fake { "would run" } else { "runs" };
        mount::say(format_args!("{does} {} {}", program.path().display(), words.join(" ")));
    }
    if let Some(namespace) = &call.namespace {
        mount::enter(namespace)?;
    }
    if mount.options.no_fail && matches!(call.source.try_exists(), Ok(false)) {
        return Ok(());
    }
    if call.fake {
        return check::check(call, &mount.options);
    }
    let another = call.namespace.is_some();
    let mut command = program.command(another);
    mount::run(command.args(arguments), call.verbose).map_err(|e| program.not_run(&e, another))?
}
