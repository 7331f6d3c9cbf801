//! `mount` without `-f`: a daemon that the caller can rely on once the command has returned.
//!
//! The program starts itself again with its output on pipes. The new process mounts, leaves for a session of its own, writes
//! its one line, then lets go of the pipes; their end tells the caller's process that the mount serves, or
//! that it failed and why. Nothing is forked with threads running.

use std::fs::File;
use std::io::{Read, Write};
use std::path::Path;
use std::process::{Command, Stdio};

use zrfs::Error;

use super::{Failure, MountArgs, Outcome};

/// Starts the daemon and waits until it serves or has failed.
pub(super) fn start(args: &MountArgs) -> Outcome {
    let failed = |e| Error::io("can't start the daemon", e);
    let mut command = Command::new(std::env::current_exe().map_err(failed)?);
    command.args(["mount", "--detached"]);
    for list in &args.options {
        command.arg("-o").arg(list);
    }
    // Absolute, so that a list of processes tells which mount is whose.
    let mountpoint = std::path::absolute(&args.mountpoint).map_err(failed)?;
    command.arg("--").arg(&args.store).arg(mountpoint);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    zrfs::storage::keep_from_children();
    let mut child = command.spawn().map_err(failed)?;
    let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
    let mut ready = Vec::new();
    std::thread::scope(|scope| -> Result<(), Error> {
        let warnings = scope.spawn(|| pass_on(stderr, &mut std::io::stderr()));
        if let Some(mut stdout) = stdout {
            stdout.read_to_end(&mut ready).map_err(failed)?;
        }
        // A failure to print warnings does not make the mount fail.
        let _ = warnings.join();
        Ok(())
    })?;
    if ready.is_empty() {
        // Its message is on stderr already. One that was killed has left none.
        let status = child.wait().map_err(failed)?;
        if status.code().is_none() {
            return Err(Error::io("the daemon ended", std::io::Error::other(status.to_string())).into());
        }
        return Err(Failure::Told);
    }
    // Like any print: a closed standard output does not make the mount fail.
    let _ = std::io::stdout().write_all(&ready);
    Ok(())
}

fn pass_on(from: Option<impl Read>, to: &mut impl Write) -> std::io::Result<()> {
    match from {
        Some(mut from) => std::io::copy(&mut from, to).map(drop),
        None => Ok(()),
    }
}

/// In the new process: a session of its own, so that no terminal's signals reach it.
pub(super) fn leave_terminal() -> Result<(), Error> {
    rustix::process::setsid().map(drop).map_err(|e| Error::io("can't start a session", e.into()))
}

/// Where the daemon's standard input and output go when it serves, opened before it mounts: a log file that can't be
/// opened is a failure of the command.
pub(super) struct Streams {
    nothing: File,
    log: File,
}

impl Streams {
    /// `log` takes log lines; without it they go nowhere.
    pub(super) fn open(log: Option<&Path>) -> Result<Streams, Error> {
        let failed = |path: &Path, e| Error::io(format!("can't open {}", path.display()), e);
        let null = Path::new("/dev/null");
        let nothing = File::options().read(true).write(true).open(null).map_err(|e| failed(null, e))?;
        let log = match log {
            Some(path) => {
                File::options().append(true).create(true).open(path).map_err(|e| failed(path, e))?
            }
            None => nothing.try_clone().map_err(|e| failed(null, e))?,
        };
        Ok(Streams { nothing, log })
    }

    /// Tells the caller that the mount serves and lets go of its pipes and its working directory.
    pub(super) fn let_go(&self, ready: &str) -> Result<(), Error> {
        std::env::set_current_dir("/").map_err(|e| Error::io("can't change to /", e))?;
        let io = |e: rustix::io::Errno| Error::io("can't let go of standard output", e.into());
        rustix::stdio::dup2_stdin(&self.nothing).map_err(io)?;
        rustix::stdio::dup2_stderr(&self.log).map_err(io)?;
        // Last, since it tells the caller that all is well. Who has gone away meanwhile needs no telling.
        let _ = writeln!(std::io::stdout(), "{ready}");
        rustix::stdio::dup2_stdout(&self.nothing).map_err(io)
    }
}
