//! Where zrfs is. The order is in `--help`.

use std::ffi::OsString;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::fs::{Mode, OFlags};

use crate::failure::{Failure, SYSTEM};

/// The program `zrfs`, opened: in another mount namespace its path may lead nowhere.
pub(super) struct Program {
    path: PathBuf,
    file: OwnedFd,
}

impl Program {
    /// Looks for it.
    pub(super) fn find() -> Result<Program, Failure> {
        // The kernel has followed links, so that /sbin/mount.zrfs can be one. Without /proc the fixed places are left.
        let own = std::env::current_exe().ok();
        let places = places(std::env::var_os("ZRFS_PROGRAM"), own.as_deref())?;
        let Some(path) = places.iter().find(|path| is_program(path)) else {
            let places: Vec<_> = places.iter().map(|path| path.display().to_string()).collect();
            let text = format!(
                "zrfs was not found at {}; install it there, or set ZRFS_PROGRAM to its path",
                places.join(", ")
            );
            return Err(Failure::Says(SYSTEM, text));
        };
        let file = rustix::fs::open(path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).map_err(|e| {
            Failure::Says(SYSTEM, format!("can't open {}: {}", path.display(), io::Error::from(e)))
        })?;
        Ok(Program { path: path.clone(), file })
    }

    /// Its path in the namespace where it was found.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Runs it; where this process is in `another` mount namespace by now, by its descriptor, as long as `self` lives.
    pub(super) fn command(&self, another: bool) -> Command {
        if !another {
            return Command::new(&self.path);
        }
        let mut command = Command::new(format!("/proc/self/fd/{}", self.file.as_raw_fd()));
        command.arg0(&self.path);
        command
    }

    /// Why there is no mount when it can't be run.
    pub(super) fn not_run(&self, e: &io::Error, another: bool) -> Failure {
        let needs = if another {
            "; the mount namespace needs /proc, and the shared libraries that zrfs uses"
        } else {
            ""
        };
        Failure::Says(SYSTEM, format!("can't run {}: {e}{needs}", self.path.display()))
    }
}

/// Where to look, the first first.
pub(super) fn places(named: Option<OsString>, own: Option<&Path>) -> Result<Vec<PathBuf>, Failure> {
    if let Some(named) = named.filter(|named| !named.is_empty()).map(PathBuf::from) {
        // What a relative path names depends on where mount(8) was started.
        if named.is_relative() {
            let text = format!("ZRFS_PROGRAM is {}, which is no absolute path", named.display());
            return Err(Failure::Says(SYSTEM, text));
        }
        return Ok(vec![named]);
    }
    let folder = own.and_then(Path::parent);
    let beside = folder.map(|folder| folder.join("zrfs"));
    // /usr/sbin/mount.zrfs and /usr/bin/zrfs.
    let in_bin = folder.and_then(Path::parent).map(|above| above.join("bin/zrfs"));
    let built = option_env!("ZRFS_PROGRAM").map(PathBuf::from);
    let fixed = ["/usr/local/bin/zrfs", "/usr/bin/zrfs"].map(PathBuf::from);
    let mut places: Vec<PathBuf> = Vec::new();
    for place in [beside, in_bin, built].into_iter().flatten().chain(fixed) {
        if !places.contains(&place) {
            places.push(place);
        }
    }
    Ok(places)
}

fn is_program(path: &Path) -> bool {
    path.metadata().is_ok_and(|meta| meta.is_file() && meta.permissions().mode() & 0o111 != 0)
}
