//! Who may do what at the same time, across processes. OFD locks on single bytes of meta.zr, far behind its end:
//!
//! - [`USE`]: shared by everybody who has the store open; exclusive for who needs it alone.
//! - [`APPEND`]: exclusive for the one who appends, from before it reads the header to after it has written it.
//!
//! Who needs the store alone takes [`APPEND`], then [`USE`]; nobody waits for a lock, so no order can deadlock. loaderx
//! takes no locks; a write lease on meta.zr tells whether it has the store open, and makes its opening wait.

use std::io;
use std::path::Path;
use std::sync::MutexGuard;

use super::Store;
use super::meta::Meta;
use super::sync::Writer;
use crate::error::{Error, ErrorKind, Result};
use crate::storage::{Access, Lease, Lock, Process};

const APPEND: u64 = 1 << 62;
const USE: u64 = APPEND + 1;

/// Processes that a message names.
const NAMED: usize = 5;

/// How often a lock is asked for again where whoever was in the way is gone by the time that it is looked for.
const TRIES: usize = 20;

impl Meta {
    /// Takes a lock; `Err` has those who are in the way.
    fn take(&self, byte: u64, lock: Lock) -> io::Result<std::result::Result<(), Vec<Process>>> {
        for _ in 0..TRIES {
            if self.file.lock(byte, lock)? {
                return Ok(Ok(()));
            }
            let holders = self.file.lock_holders(byte);
            if !holders.is_empty() {
                return Ok(Err(holders));
            }
        }
        // Of another user, say.
        Ok(Err(Vec::new()))
    }

    /// Joins those who have the store open.
    pub(super) fn lock_for_use(&self, access: Access) -> Result<()> {
        match self.take(USE, Lock::Shared) {
            Ok(Ok(())) => Ok(()),
            Ok(Err(holders)) => Err(self.busy("is being changed", &holders)),
            Err(e) if access == Access::Read => {
                log::warn!(
                    "{} can't be locked ({e}): nothing keeps others from changing it while it is read",
                    self.path.display()
                );
                Ok(())
            }
            Err(e) => Err(self.no_locks(e)),
        }
    }

    /// Takes the appenders' lock, or says who is in the way.
    pub(super) fn lock_for_append(&self) -> Result<()> {
        match self.take(APPEND, Lock::Exclusive) {
            Ok(Ok(())) => Ok(()),
            Ok(Err(holders)) => Err(self.busy("is being appended to", &holders)),
            Err(e) => Err(self.no_locks(e)),
        }
    }

    /// Gives the appenders' lock back.
    pub(super) fn unlock_for_append(&self) {
        if let Err(e) = self.file.unlock(APPEND) {
            log::warn!("can't unlock {}: {e}", self.path.display());
        }
    }

    /// Turns the shared lock into an exclusive one, and the store away from loaderx.
    fn lock_alone(&self) -> Result<()> {
        match self.take(USE, Lock::Exclusive) {
            Ok(Ok(())) => {}
            Ok(Err(holders)) => return Err(self.busy("is open", &holders)),
            Err(e) => return Err(self.no_locks(e)),
        }
        let mut openers = Vec::new();
        for _ in 0..TRIES {
            if self.file.lease() != Lease::InUse {
                return Ok(());
            }
            openers = self.file.openers();
            if !openers.is_empty() {
                break;
            }
        }
        self.share_again();
        Err(self.busy("is open", &openers))
    }

    fn share_again(&self) {
        self.file.end_lease();
        // Going from exclusive to shared is never refused.
        if let Err(e) = self.file.lock(USE, Lock::Shared) {
            log::warn!("can't unlock {}: {e}", self.path.display());
        }
    }

    /// Refuses a change by the child of a fork.
    pub(super) fn refuse_forked(&self) -> Result<()> {
        if !self.file.is_inherited() {
            return Ok(());
        }
        let text = format!("{} was opened by the process that this one was forked from", self.path.display());
        Err(Error::new(ErrorKind::ReadOnly, text).with_help("open it again in this process to change it"))
    }

    fn busy(&self, how: &str, holders: &[Process]) -> Error {
        busy(&self.path, how, holders)
    }

    fn no_locks(&self, e: io::Error) -> Error {
        let unsupported = [libc::ENOLCK, libc::EOPNOTSUPP, libc::ENOSYS, libc::EINVAL];
        let known = e.raw_os_error().is_some_and(|errno| unsupported.contains(&errno));
        let e = Error::io(format!("can't lock {}", self.path.display()), e);
        if known {
            e.with_help(
                "this file system has no locks, so the store can only be read here; copy it to another",
            )
        } else {
            e
        }
    }
}

/// The error for a file of a store that others hold.
pub(super) fn busy(path: &Path, how: &str, holders: &[Process]) -> Error {
    let is_own = |holder: &Process| holder.pid == std::process::id();
    let name = |holder: &Process| match is_own(holder) {
        true => format!("this very {holder}"),
        false => holder.to_string(),
    };
    let mut names: Vec<_> = holders.iter().take(NAMED).map(name).collect();
    match holders.len() {
        0 => names.push("another process".to_owned()),
        n if n > NAMED => names.push(format!("{} more", n - NAMED)),
        _ => {}
    }
    let text = format!("{} {how} by {}", path.display(), names.join(", "));
    let help = match how {
        _ if !holders.is_empty() && holders.iter().all(is_own) => {
            "it has another handle on it, or a loader: sync or close that first"
        }
        "is open" => "it must be closed there first",
        _ => "try again when that is done",
    };
    Error::new(ErrorKind::Busy, text).with_help(help)
}

/// The store, held alone: no other process has it open, and this one reads only.
pub(super) struct Alone<'a> {
    pub(super) store: &'a Store,
    pub(super) writer: MutexGuard<'a, Writer>,
}

impl Store {
    /// Takes the store alone, with all that was appended so far made durable.
    pub(super) fn alone(&self) -> Result<Alone<'_>> {
        self.require_write()?;
        let mut writer = self.writer();
        super::sync::sync(self, &mut writer)?;
        self.meta.lock_for_append()?;
        if let Err(e) = self.meta.lock_alone() {
            self.meta.unlock_for_append();
            return Err(e);
        }
        let alone = Alone { store: self, writer };
        // What follows writes over what an interrupted append has left, or moves what it stands behind.
        super::checkpoint::forget(self.dir.as_ref(), &self.path)?;
        Ok(alone)
    }
}

impl Alone<'_> {
    /// Lets a result pass; after a failed sync the store takes no more changes until it is opened again.
    pub(super) fn note<T>(&mut self, result: Result<T>) -> Result<T> {
        self.writer.failed |= result.as_ref().is_err_and(Error::is_of_sync);
        result
    }
}

impl Drop for Alone<'_> {
    fn drop(&mut self) {
        super::sync::stamp(self.store, &mut self.writer);
        self.store.meta.share_again();
        self.store.meta.unlock_for_append();
    }
}
