//! The call of `zrfs mount` that a call of mount(8) stands for, and running it.

use std::ffi::{OsStr, OsString};
use std::fmt::Arguments;
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{Command, ExitStatus, Stdio};

use rustix::thread::LinkNameSpaceType;
use zrfs::ErrorKind;
use zrfs::fuse::MountOptions;

use crate::args::Call;
use crate::failure::{FAILED, Failure, SYSTEM, USAGE};

/// What is to be mounted how.
pub(super) struct Mount {
    /// The options.
    pub(super) options: MountOptions,
    /// Options that are not known, under `-s`.
    pub(super) left_out: Vec<String>,
    /// The options as they are handed on, a list for each `-o`.
    lists: Vec<String>,
}

impl Mount {
    /// Reads the target and the options of a call.
    pub(super) fn of(call: &Call) -> Result<Mount, Failure> {
        // mount.fuse3 mounts by itself then, and names a descriptor of /dev/fuse.
        if call.target.starts_with("/dev/fd") {
            let text = "zrfs makes its mounts itself: leave drop_privileges out of the options, and unmount what is left";
            return Err(Failure::Says(USAGE, text.to_owned()));
        }
        let mut mount = Mount { options: MountOptions::default(), left_out: Vec::new(), lists: Vec::new() };
        for list in &call.options {
            let added = if call.sloppy {
                mount.options.add_known(list)
            } else {
                mount.options.add(list).map(|()| (list.clone(), Vec::new()))
            };
            let (known, unknown) = added.map_err(|e| {
                // A remount is no mistake in the call: it can't be done.
                let status = if e.kind() == ErrorKind::Exists { FAILED } else { USAGE };
                Failure::Says(status, format!("{}: {e}", call.target.display()))
            })?;
            mount.left_out.extend(unknown);
            if !known.is_empty() {
                mount.lists.push(known);
            }
        }
        Ok(mount)
    }

    /// What `zrfs` is called with.
    pub(super) fn arguments(&self, call: &Call) -> Vec<OsString> {
        let options = self.lists.iter().flat_map(|list| ["-o", list]).map(OsString::from);
        let paths = [call.source.clone(), call.target.clone()].map(PathBuf::into_os_string);
        [OsString::from("mount")].into_iter().chain(options).chain(["--".into()]).chain(paths).collect()
    }
}

/// Enters a mount namespace: mount(8) hands on a file under /proc; a process is what its own `-N` takes.
pub(super) fn enter(namespace: &OsStr) -> Result<(), Failure> {
    let is_process = namespace.as_encoded_bytes().iter().all(u8::is_ascii_digit);
    let path = match namespace.to_str().filter(|_| is_process) {
        Some(process) => PathBuf::from(format!("/proc/{process}/ns/mnt")),
        None => PathBuf::from(namespace),
    };
    let failed = |e| Failure::Says(SYSTEM, format!("can't enter mount namespace {}: {e}", path.display()));
    let file = File::open(&path).map_err(failed)?;
    // The kernel lets only a process of one thread in; this is one.
    rustix::thread::move_into_link_name_space(file.as_fd(), Some(LinkNameSpaceType::Mount))
        .map_err(|e| failed(e.into()))
}

/// Runs zrfs until the mount serves or has failed. One that succeeds says nothing, as mount(8) does, unless it is to be `verbose`.
/// The outer error is that zrfs can't be run.
pub(super) fn run(command: &mut Command, verbose: bool) -> io::Result<Result<(), Failure>> {
    if !verbose {
        command.stdout(Stdio::null());
    }
    command.status().map(outcome)
}

/// What zrfs's exit status is for mount(8). zrfs has said why on stderr.
pub(super) fn outcome(status: ExitStatus) -> Result<(), Failure> {
    match (status.code(), status.signal()) {
        (Some(0), _) => Ok(()),
        (Some(2), _) => Err(Failure::Told(USAGE)),
        (None, Some(signal)) => Err(Failure::Says(FAILED, format!("zrfs was killed by signal {signal}"))),
        _ => Err(Failure::Told(FAILED)),
    }
}

/// For `-v`. A closed standard output is no failure.
pub(super) fn say(text: Arguments<'_>) {
    let _ = writeln!(io::stdout(), "mount.zrfs: {text}");
}
