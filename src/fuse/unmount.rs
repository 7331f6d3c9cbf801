//! Detaching from the tree: umount(2), fusermount3 where that is not permitted, and who is in the way.

use std::path::Path;

use rustix::io::Errno;
use rustix::mount::UnmountFlags;

use super::fusermount;
use super::mountinfo::{MountEntry, around, mounts, topmost};
use super::mountpoint::locate;
use crate::error::{Error, ErrorKind, Result};
use crate::storage;

/// Most processes that a message names.
const NAMED: usize = 3;

/// How a mount is taken away.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unmount {
    /// Only where nobody uses it.
    Unused,
    /// From its place at once; it ends when its last file closes.
    Lazy,
}

/// Unmounts what zrfs has mounted at `path`, on behalf of `zrfs umount`. Asks its daemon nothing, which may be gone or
/// stopped.
///
/// # Errors
/// [`ErrorKind::NotFound`] where no zrfs mount is there; [`ErrorKind::Busy`], with who is in the way, while it is in use;
/// what else the system refuses.
pub fn unmount(path: &Path, how: Unmount) -> Result<()> {
    let target = locate(path)?;
    match topmost(&target)? {
        Some(entry) if entry.is_ours() => {
            detach(&target, how).map_err(|e| if e.kind() == ErrorKind::Busy { in_use(&entry) } else { e })
        }
        Some(entry) => {
            let text = format!("what is mounted at {} is {}, not zrfs", target.display(), entry.fstype);
            Err(Error::new(ErrorKind::NotFound, text)
                .with_help(format!("unmount it with: umount {}", target.display())))
        }
        None => {
            let error = Error::new(ErrorKind::NotFound, format!("no zrfs mount is at {}", target.display()));
            Err(match around(&target)?.filter(MountEntry::is_ours) {
                Some(outer) => error.with_help(format!("it lies in the one at {}", outer.target.display())),
                None => error,
            })
        }
    }
}

/// Takes the topmost mount at `target` away.
///
/// # Errors
/// [`ErrorKind::Busy`] where it is in use.
pub(super) fn detach(target: &Path, how: Unmount) -> Result<()> {
    let flags = match how {
        Unmount::Unused => UnmountFlags::NOFOLLOW,
        Unmount::Lazy => UnmountFlags::NOFOLLOW | UnmountFlags::DETACH,
    };
    match rustix::mount::unmount(target, flags) {
        Ok(()) => Ok(()),
        Err(Errno::PERM) => {
            if let Some(owner) = topmost(target)?.and_then(|entry| entry.stranger()) {
                let text = format!("can't unmount {}: {owner} has mounted it", target.display());
                let help = "only that user and root can unmount it";
                return Err(Error::new(ErrorKind::Io, text).with_help(help));
            }
            fusermount::unmount(target, how == Unmount::Lazy)
        }
        Err(Errno::BUSY) => {
            Err(Error::new(ErrorKind::Busy, format!("can't unmount {}: it is in use", target.display())))
        }
        Err(e) => Err(Error::io(format!("can't unmount {}", target.display()), e.into())),
    }
}

/// Who is in the way, as far as this user may see.
fn in_use(entry: &MountEntry) -> Error {
    let target = entry.target.display();
    let busy = |why: String| Error::new(ErrorKind::Busy, format!("can't unmount {target}: {why}"));
    let lazily = format!("or detach it with: zrfs umount --lazy {target}");
    let nested = mounts().unwrap_or_default();
    let nested =
        nested.iter().rfind(|on_it| on_it.target != entry.target && on_it.target.starts_with(&entry.target));
    if let Some(nested) = nested {
        let nested = nested.target.display();
        return busy(format!("another mount is on it, at {nested}"))
            .with_help(format!("unmount that first, {lazily}"));
    }
    let mut users = entry.numbers().map(storage::users).unwrap_or_default();
    // Called from inside, this program is one of them, and gone when somebody reads of it.
    users.retain(|user| user.pid != std::process::id());
    let named: Vec<_> = users.iter().take(NAMED).map(ToString::to_string).collect();
    match (named.as_slice(), users.len().saturating_sub(named.len())) {
        ([], _) => busy("a program has a file or its working folder there".to_owned())
            .with_help(format!("end it, {lazily}")),
        ([one], _) => busy(format!("{one} uses it")).with_help(format!("end that, {lazily}")),
        ([first @ .., last], 0) => {
            busy(format!("{} and {last} use it", first.join(", "))).with_help(format!("end them, {lazily}"))
        }
        (all, more) => busy(format!("{} and {more} more use it", all.join(", ")))
            .with_help(format!("end them, {lazily}")),
    }
}
