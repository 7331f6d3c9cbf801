//! Looking at a path that may lead into a mount whose daemon is stopped. The kernel waits for it as long as it takes, so
//! another thread does the looking.

use std::io;
use std::path::Path;
use std::sync::mpsc::channel;
use std::time::Duration;

use super::mountinfo::{MountEntry, around};
use crate::error::{Error, ErrorKind, Result};
use crate::storage;

/// How long a mount of ours has to answer. Others, a network's or an automounter's, may take their time.
const PATIENCE: Duration = Duration::from_secs(5);

/// What `look` finds at `path`. Without an answer its thread is left behind.
///
/// # Errors
/// [`ErrorKind::Busy`] where `path` is or lies in a zrfs mount that does not answer for a few seconds.
pub(super) fn ask<T: Send + 'static>(
    path: &Path,
    look: impl FnOnce(&Path) -> T + Send + 'static,
) -> Result<T> {
    let failed = |e| Error::io(format!("can't look at {}", path.display()), e);
    let (sender, receiver) = channel();
    let asked = path.to_path_buf();
    let work = move || drop(sender.send(look(&asked)));
    let thread = std::thread::Builder::new().name("zrfs-look".to_owned());
    thread.spawn(work).map_err(failed)?;
    if let Ok(found) = receiver.recv_timeout(PATIENCE) {
        return Ok(found);
    }
    match mount_of_ours(path) {
        Some(entry) => Err(unanswered(path, &entry)),
        None => receiver.recv().map_err(|e| failed(io::Error::other(e))),
    }
}

/// The mount that `path` is or lies in, as far as its name tells, if it is one of ours.
fn mount_of_ours(path: &Path) -> Option<MountEntry> {
    let path = std::path::absolute(path).ok()?;
    around(&path).ok()?.filter(MountEntry::is_ours)
}

fn unanswered(path: &Path, entry: &MountEntry) -> Error {
    let (path, target) = (path.display(), entry.target.display());
    let daemons = entry.numbers().map(|(_, minor)| storage::servers(minor)).unwrap_or_default();
    let (daemon, end) = match daemons.first() {
        Some(daemon) => (format!("its daemon, {daemon},"), format!("kill -9 {}", daemon.pid)),
        None => ("its daemon".to_owned(), "kill -9".to_owned()),
    };
    let text = format!("{path}: the mount at {target} does not answer: {daemon} is stopped or hangs");
    Error::new(ErrorKind::Busy, text)
        .with_help(format!("end it with {end}, or take the mount away with: zrfs umount --lazy {target}"))
}
