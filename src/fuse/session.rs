//! A running mount: its threads and its end.
//!
//! fuser runs the loops on a connection that this module makes, because fuser's own mounting would, at its end,
//! take its check for "still mounted" the wrong way round and could unmount something else at the same path; it
//! would also hand commas in the source's name to fusermount3 as options. So: we mount, fuser only reads and
//! answers, and at the end /proc/self/mountinfo says whether our mount, known by its device number, is still there.
//!
//! Threads: the loops, which share nothing but the view; the watcher, which looks for growth, tells the kernel what to
//! forget, and ends a mount that nobody uses (see `idle`); those that delete and compact (see `control`). Notifications wait for the kernel, and the kernel may wait for
//! a loop: so no loop sends one, nor waits for a thread that does.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use fuser::{Config, INodeNo, Notifier, SessionACL};

use super::adapter::Adapter;
use super::attach::Attached;
use super::control::{self, Jobs};
use super::idle::{Idle, Mark};
use super::kernel::Kernel;
use super::mountinfo::{mounts, topmost};
use super::mountpoint::is_dead;
use super::unmount::{Unmount, detach};
use super::{MountOptions, Mountpoint};
use crate::error::{Error, ErrorKind, Result};
use crate::view::View;

/// How often the watcher looks at the header. Growth shows within a second.
const LOOK_EVERY: Duration = Duration::from_millis(250);
/// Readahead of the mount in KiB, where the user may set it: a large record arrives in requests of up to 1 MiB.
const READ_AHEAD_KIB: &str = "1024";

/// A mount that is being served. Dropping it unmounts.
pub struct Session {
    loops: Option<JoinHandle<io::Result<()>>>,
    watcher: Option<JoinHandle<Cause>>,
    control: Option<JoinHandle<()>>,
    stop: Arc<Stop>,
    unmounter: Unmounter,
    view: Arc<View>,
    target: PathBuf,
}

/// Ends a session from another thread, a signal's for example.
#[derive(Clone, Debug)]
pub struct Unmounter {
    /// `None` where the caller has mounted.
    device: Option<String>,
    /// The loops have ended: the device number may be that of another mount by now.
    over: Arc<AtomicBool>,
}

/// Who took the mount of a session away.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// The session itself, as nobody had used it for the time that [`MountOptions::idle`] says. It is logged already.
    Unused,
    /// Somebody: an [`Unmounter`], or another program.
    Unmounted,
}

/// How a mount that was taken away ends its session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// At once: nobody used it.
    Now,
    /// When the last file is closed, or the mount that covers X
    WhenUnused,
    /// Not by this program: its caller has mounted.
    NotHere,
}

#[derive(Default)]
struct Stop {
    stopped: Mutex<bool>,
    changed: Condvar,
}

impl Session {
    /// Mounts `view` at `target` and serves it. When this returns the mount answers.
    ///
    /// # Errors
    /// What the system or fusermount3 refuses, with what to do about it.
    pub fn mount(view: View, target: &Mountpoint, options: &MountOptions) -> Result<Session> {
        options.warn();
        let view = Arc::new(view);
        let source = view.store().path().as_os_str().to_owned();
        let Attached { connection, device } = target.attach(&source, options, !view.can_change())?;
        let unmounter = Unmounter { device, over: Arc::default() };
        let target = target.path().to_path_buf();
        let session =
            Session::serve(view, connection, options, unmounter.clone(), target).inspect_err(|_| {
                if let Err(e) = unmounter.unmount() {
                    log::warn!("{e}");
                }
            })?;
        if session.unmounter.device.is_some() {
            // The kernel has whoever asks wait until it has met the loops. Another error is an answer, too.
            if let Err(e) = rustix::fs::statfs(&session.target).map_err(io::Error::from)
                && is_dead(&e)
            {
                return Err(Error::io(format!("the mount at {} ended at once", session.target.display()), e));
            }
        }
        Ok(session)
    }

    fn serve(
        view: Arc<View>,
        connection: std::os::fd::OwnedFd,
        options: &MountOptions,
        unmounter: Unmounter,
        target: PathBuf,
    ) -> Result<Session> {
        let failed = |e| Error::io("can't serve the mount", e);
        let mut config = Config::default();
        config.n_threads = Some(options.threads());
        // Who may ask is the kernel's check, by allow_other; fuser's own would refuse requests after a setuid. Only
        // allow_root is unknown to the kernel.
        let acl = if options.allow_root { SessionACL::RootAndOwner } else { SessionACL::All };
        let (jobs, receiver) = Jobs::new();
        let mark = Mark::new(options.idle.is_some());
        let adapter = Adapter::new(Arc::clone(&view), jobs, mark.clone(), options);
        let device = connection.try_clone().map_err(failed)?;
        let session = fuser::Session::from_fd(adapter, connection, acl, config).map_err(failed)?;
        // Root may; for others requests stay at the kernel's 128 KiB.
        if let Some(device) = &unmounter.device {
            let _ = std::fs::write(format!("/sys/class/bdi/{device}/read_ahead_kb"), READ_AHEAD_KIB);
        }
        let notifier = session.notifier();
        let stop = Arc::new(Stop::default());
        let spawn = |name: &str| std::thread::Builder::new().name(name.to_owned());
        let loops = {
            let over = Arc::clone(&unmounter.over);
            let run = move || {
                let ended = session.run();
                over.store(true, Ordering::Relaxed);
                ended
            };
            spawn("zrfs-session").spawn(run).map_err(failed)?
        };
        let control = {
            let (view, kernel) = (Arc::clone(&view), Kernel::new(notifier.clone(), device));
            spawn("zrfs-control").spawn(move || control::work(&view, &kernel, &receiver)).map_err(failed)?
        };
        let watcher = {
            let (view, stop, unmounter) = (Arc::clone(&view), Arc::clone(&stop), unmounter.clone());
            let idle = options.idle.map(|limit| Idle::new(limit, mark));
            let watch = move || watch(&view, &notifier, &stop, idle, &unmounter);
            spawn("zrfs-watcher").spawn(watch).map_err(failed)?
        };
        let (loops, watcher, control) = (Some(loops), Some(watcher), Some(control));
        Ok(Session { loops, watcher, control, stop, unmounter, view, target })
    }

    /// Records that the mount shows now.
    pub fn records(&self) -> u64 {
        self.view.store().len()
    }

    /// Records without a name, where another program has changed the store: see [`View::nameless`].
    pub fn nameless(&self) -> u64 {
        self.view.nameless()
    }

    /// Whether records can be deleted and the store compacted through the mount: see [`View::can_change`].
    pub fn can_change(&self) -> bool {
        self.view.can_change()
    }

    /// The full path of the store.
    pub fn store(&self) -> &Path {
        self.view.store().path()
    }

    /// Where it is mounted.
    pub fn target(&self) -> &Path {
        &self.target
    }

    /// A handle that ends it from another thread.
    pub fn unmounter(&self) -> Unmounter {
        self.unmounter.clone()
    }

    /// Serves until the mount is gone, whoever takes it away: that is what it returns.
    ///
    /// # Errors
    /// What ended the loops, other than an unmount.
    pub fn wait(mut self) -> Result<Cause> {
        self.join()
    }

    fn join(&mut self) -> Result<Cause> {
        let ended = match self.loops.take().map(JoinHandle::join) {
            None | Some(Ok(Ok(()))) => Ok(()),
            Some(Ok(Err(e))) => Err(Error::io("the mount ended", e)),
            Some(Err(_)) => Err(Error::new(ErrorKind::Io, "the mount ended: a thread panicked")),
        };
        *self.stop.stopped.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.stop.changed.notify_all();
        // They only fail by a panic, which has been printed.
        let cause = self.watcher.take().and_then(|watcher| watcher.join().ok());
        // A compaction that was begun is finished.
        let _ = self.control.take().map(JoinHandle::join);
        ended.map(|()| cause.unwrap_or(Cause::Unmounted))
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        if self.loops.is_none() {
            return;
        }
        match self.unmounter.unmount() {
            Ok(Ending::Now) => {
                if let Err(e) = self.join() {
                    log::warn!("{e}");
                }
            }
            // Somebody has a file open: the loops serve it until it is closed, and nobody waits here for that.
            Ok(Ending::WhenUnused | Ending::NotHere) => {}
            Err(e) => log::warn!("{e}"),
        }
    }
}

impl Unmounter {
    /// Takes the mount away, wherever it is now; detaches it where it is busy.
    ///
    /// Does nothing where the mount is gone already, or was made by the caller of the program (`/dev/fd/N`).
    ///
    /// # Errors
    /// What the system or fusermount3 refuses.
    pub fn unmount(&self) -> Result<Ending> {
        if self.over.load(Ordering::Relaxed) {
            return Ok(Ending::WhenUnused);
        }
        let Some(device) = &self.device else { return Ok(Ending::NotHere) };
        // A bind mount is a second entry of the same device.
        let mut endings = Vec::new();
        for entry in mounts()?.iter().rev().filter(|entry| entry.device == *device) {
            // A path means the topmost mount there: one that covers ours is not ours to take away.
            if topmost(&entry.target)?.is_none_or(|top| top.device != *device) {
                log::warn!("the mount at {} stays: another mount covers it", entry.target.display());
                endings.push(Ending::WhenUnused);
            } else if detach(&entry.target, Unmount::Unused).is_ok() {
                endings.push(Ending::Now);
            } else {
                detach(&entry.target, Unmount::Lazy)?;
                endings.push(Ending::WhenUnused);
            }
        }
        let all_now = !endings.is_empty() && endings.iter().all(|&ending| ending == Ending::Now);
        Ok(if all_now { Ending::Now } else { Ending::WhenUnused })
    }

    /// Takes the mount away where nobody uses it. `false` where somebody does, by an open file, a mapping, a working folder
    /// or a mount in it or over it; or where it is gone from here.
    ///
    /// # Errors
    /// [`ErrorKind::Exists`] where it is at a second place, too, as by a bind mount: whether both are unused can't be told
    /// before one of them is gone. What else the system or fusermount3 refuses.
    pub(super) fn unmount_unused(&self) -> Result<bool> {
        let Some(device) = &self.device else { return Ok(false) };
        let mounts = mounts()?;
        let mut ours = mounts.iter().filter(|entry| entry.device == *device);
        let Some(entry) = ours.next() else { return Ok(false) };
        if let Some(second) = ours.next() {
            let text = format!("it stays, as it is at {}, too", second.target.display());
            return Err(Error::new(ErrorKind::Exists, text));
        }
        let top = mounts.iter().rfind(|other| other.target == entry.target);
        if top.is_none_or(|top| top.device != *device) {
            return Ok(false);
        }
        match detach(&entry.target, Unmount::Unused) {
            Ok(()) => Ok(true),
            Err(e) if e.kind() == ErrorKind::Busy => Ok(false),
            Err(e) => Err(e),
        }
    }
}

/// Looks for growth until it is stopped, and tells the kernel which listings and attributes to forget; unmounts when the
/// mount was unused for long enough. Returns whether it has.
fn watch(
    view: &View,
    notifier: &Notifier,
    stop: &Stop,
    mut idle: Option<Idle>,
    unmounter: &Unmounter,
) -> Cause {
    let mut cause = Cause::Unmounted;
    let mut seen = view.seen();
    let mut stopped = stop.stopped.lock().unwrap_or_else(PoisonError::into_inner);
    loop {
        let waited = stop.changed.wait_timeout(stopped, LOOK_EVERY);
        stopped = waited.unwrap_or_else(PoisonError::into_inner).0;
        if *stopped {
            return cause;
        }
        view.tidy();
        // A copy in another mount namespace may keep the session alive: here is nothing more to end.
        if idle.as_mut().is_some_and(|idle| idle.end(view.is_compacting(), unmounter)) {
            (idle, cause) = (None, Cause::Unused);
        }
        for node in view.grown(&mut seen) {
            // Fails only where the mount is going away, or the kernel does not know the directory.
            let _ = notifier.inval_inode(INodeNo(node.number()), 0, -1);
        }
    }
}
