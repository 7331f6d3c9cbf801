//! `mount` and `umount`.

use std::fmt::Write as _;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::io::Errno;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use zrfs::fuse::{Ending, MountOptions, Mountpoint, Session, Unmounter};
use zrfs::view::View;
use zrfs::{Error, ErrorKind, Store};

use super::{MountArgs, Outcome, daemon, live};

/// How long after its unmount a session has to end by itself.
const GRACE: Duration = Duration::from_secs(1);

/// `zrfs mount`
pub(super) fn mount(args: &MountArgs) -> Outcome {
    let mut options = MountOptions::default();
    args.options.iter().try_for_each(|list| options.add(list))?;
    if !args.foreground && !args.detached {
        return daemon::start(args);
    }
    let streams = if args.detached { Some(daemon::Streams::open(options.log.as_deref())?) } else { None };
    let session = start(&args.store, &args.mountpoint, &options)?;
    if args.detached {
        // Only now: autofs, where it lies below, knows by the process group who mounts on it. Any other process that looks at the
        // mount point waits for the mount, and the daemon would wait for itself.
        daemon::leave_terminal()?;
    }
    end_on_signals(session.unmounter())?;
    let (store, target, len) = (args.store.display(), session.target().display(), session.records());
    let mut ready = format!("{store} is mounted at {target}: {len} records");
    if !session.can_change() && !options.is_read_only() {
        ready.push_str(" (read-only)");
    }
    match session.nameless() {
        0 => {}
        nameless => {
            let text = format!("{nameless} of {len} records have no name and are in records/ only");
            log::warn!("{store}: {text}: another program than zrfs has changed the store");
            let _ = write!(ready, "; {text}");
        }
    }
    match streams {
        Some(streams) => streams.let_go(&ready)?,
        // A closed standard output does not end a mount that serves.
        None => drop(writeln!(std::io::stdout(), "{ready}")),
    }
    session.wait()?;
    Ok(())
}

/// Mounts `store` at `mountpoint` and serves it.
pub(super) fn start(store: &Path, mountpoint: &Path, options: &MountOptions) -> Result<Session, Error> {
    let path = full(store)?;
    let store = open(&path, options)?;
    if let Err(e) = store.check_header() {
        log::warn!("{e}");
    }
    let target = Mountpoint::prepare(mountpoint, &path)?;
    if target.path().starts_with(&path) {
        let text = format!("{} lies in the store {}", target.path().display(), path.display());
        return Err(Error::new(ErrorKind::Unsupported, text).with_help("mount it elsewhere"));
    }
    let (uid, gid) = (rustix::process::getuid().as_raw(), rustix::process::getgid().as_raw());
    let labels = options.labels.clone().map(live::store).transpose()?;
    let labels = labels.map(|labels| open(&full(&labels)?, options)).transpose()?;
    let view = View::new(store, labels, options.view(uid, gid))?;
    Session::mount(view, &target, options)
}

/// The full path of a store, as it is shown in /proc/mounts. A delete looks for the store by it, when the daemon has left the
/// folder in which the command was given.
fn full(store: &Path) -> Result<PathBuf, Error> {
    // What can't be found, opening says better.
    store.canonicalize().or_else(|e| {
        Store::open_read_only(store)?;
        Err(Error::io(format!("can't look at {}", store.display()), e))
    })
}

/// Opens a store that is to be mounted: for writing, too, unless that is not wanted or can't be.
fn open(path: &Path, options: &MountOptions) -> Result<Store, Error> {
    if options.is_read_only() {
        return Store::open_read_only(path);
    }
    Store::open(path).or_else(|e| {
        let store = Store::open_read_only(path)?;
        // Who may not write to it knows, and the command's own line says so.
        let is_usual = matches!(
            e.raw_os_error().map(Errno::from_raw_os_error),
            Some(Errno::ACCESS | Errno::PERM | Errno::ROFS)
        );
        if !is_usual {
            log::warn!("{e}; it is mounted read-only");
        }
        Ok(store)
    })
}

/// Unmounts on SIGTERM, SIGINT and SIGHUP. Where files are open, or another mount covers this one, the process ends at
/// once all the same: readers get an error.
fn end_on_signals(unmounter: Unmounter) -> Result<(), Error> {
    let failed = |e| Error::io("can't wait for signals", e);
    let mut signals = Signals::new([SIGTERM, SIGINT, SIGHUP]).map_err(failed)?;
    let wait = move || {
        for signal in signals.forever() {
            log::debug!("signal {signal}");
            match unmounter.unmount() {
                Ok(Ending::Now) => {
                    // The process ends with the main thread, at once: unless a copy of the mount lives on in another
                    // mount namespace.
                    std::thread::sleep(GRACE);
                    log::warn!("ended by a signal while another mount namespace used the mount");
                    std::process::exit(0);
                }
                Ok(Ending::WhenUnused) => {
                    log::warn!("ended by a signal while the mount was in use: its readers get an error");
                    std::process::exit(0);
                }
                Err(e) => log::error!("{e}"),
            }
        }
    };
    std::thread::Builder::new().name("zrfs-signals".into()).spawn(wait).map_err(failed).map(drop)
}

/// `zrfs umount`
pub(super) fn umount(mountpoint: &Path) -> Outcome {
    zrfs::fuse::unmount(mountpoint)?;
    Ok(())
}
