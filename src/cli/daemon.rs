//! `mount` without `-f`: a daemon that the caller can rely on once the command has returned.
//!
//! The program starts itself again with its output on pipes. The new process mounts, leaves for a session of its own, writes
//! its one line, then lets go of the pipes; their end tells the caller's process that the mount serves, or
//! that it failed and why. Nothing is forked with threads running.

use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use rustix::fs::OFlags;
use zrfs::Error;
use zrfs::fuse::Mountpoint;

use super::{Failure, MountArgs, Outcome, notify};

/// This program, also where its file has been replaced or is not to be seen any more.
const SELF: &str = "/proc/self/exe";

/// Starts the daemon and waits until it serves or has failed.
pub(super) fn start(args: &MountArgs) -> Outcome {
    let failed = |e| Error::io("can't start the daemon", e);
    let gone = |e| Error::io("can't tell the current folder", e).with_help("change to one that is there");
    let unable = |e| failed(e).with_help("it needs /proc and /dev/null, which a sandbox may lack");
    let mut command = Command::new(SELF);
    command.arg0("zrfs").args(["mount", "--detached"]);
    // It is for a mount in front: the service manager would take the daemon for the service.
    command.env_remove(notify::SOCKET);
    for list in &args.options {
        command.arg("-o").arg(list);
    }
    let (mountpoint, input) = match Mountpoint::handed_over(&args.mountpoint)? {
        // The one descriptor that the daemon inherits is its standard input.
        Some(connection) => (PathBuf::from("/dev/fd/0"), connection.into()),
        // Absolute, so that a list of processes tells which mount is whose.
        None => (std::path::absolute(&args.mountpoint).map_err(gone)?, Stdio::null()),
    };
    command.arg("--").arg(&args.store).arg(mountpoint);
    command.stdin(input).stdout(Stdio::piped()).stderr(Stdio::piped());
    zrfs::storage::keep_from_children();
    let mut child = command.spawn().map_err(unable)?;
    let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
    let mut ready = Vec::new();
    std::thread::scope(|scope| -> Result<(), Error> {
        let warnings = std::thread::Builder::new();
        let warnings =
            warnings.spawn_scoped(scope, || pass_on(stderr, &mut std::io::stderr())).map_err(failed)?;
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

/// In the new process: a session of its own, so that no terminal's signals reach it, and the program's name, which is that of
/// a link so far.
pub(super) fn leave_terminal() -> Result<(), Error> {
    rustix::thread::set_name(c"zrfs").map_err(|e| Error::io("can't set the daemon's name", e.into()))?;
    rustix::process::setsid().map(drop).map_err(|e| Error::io("can't start a session", e.into()))
}

/// Where standard input and output go when the mount serves, opened before it is there: a log file that can't be opened
/// is a failure of the command.
pub(super) struct Streams {
    /// A daemon's input and output.
    nothing: Option<File>,
    log: Option<File>,
}

impl Streams {
    /// `log` takes log lines. Without it those of a daemon go nowhere.
    pub(super) fn open(detached: bool, log: Option<&Path>) -> Result<Streams, Error> {
        let open = |path: &Path, how: &mut OpenOptions| {
            how.open(path).map_err(|e| Error::io(format!("can't open {}", path.display()), e))
        };
        let null = || open(Path::new("/dev/null"), File::options().read(true).write(true));
        // Appended to, so that it can be cut while it is open.
        // One that nobody reads from, a FIFO, is an error and no wait.
        let unwaiting = OFlags::NONBLOCK.bits().cast_signed();
        let log = log
            .map(|path| open(path, File::options().append(true).create(true).custom_flags(unwaiting)))
            .transpose()?;
        Ok(Streams { nothing: detached.then(null).transpose()?, log })
    }

    /// The mount serves: log lines go where they are to go, the first of which is `begun` in a file, and the caller is told
    /// `ready`. A daemon lets go of its caller's pipes and working directory.
    pub(super) fn serve(self, ready: &str, begun: &str) -> Result<(), Error> {
        let io = |e: rustix::io::Errno| Error::io("can't let go of standard output", e.into());
        if let Some(nothing) = &self.nothing {
            std::env::set_current_dir("/").map_err(|e| Error::io("can't change to /", e))?;
            rustix::stdio::dup2_stdin(nothing).map_err(io)?;
        }
        if let Some(stderr) = self.log.as_ref().or(self.nothing.as_ref()) {
            rustix::stdio::dup2_stderr(stderr).map_err(io)?;
        }
        if self.log.is_some() {
            super::log_with_time();
            log::info!("{begun}");
        }
        // Last, since it tells the caller that all is well. Who has gone away meanwhile needs no telling.
        let _ = writeln!(std::io::stdout(), "{ready}");
        match &self.nothing {
            Some(nothing) => rustix::stdio::dup2_stdout(nothing).map_err(io),
            None => Ok(()),
        }
    }
}
