//! `mount` and `umount`.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use indicatif::HumanBytes;
use rustix::io::Errno;
use rustix::process::{Resource, getrlimit};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use signal_hook::low_level::signal_name;
use zrfs::fuse::{Cause, Ending, MountOptions, Mountpoint, Session, Unmount, Unmounter};
use zrfs::view::View;
use zrfs::{Error, ErrorKind, Store};

use super::{Failure, MountArgs, Outcome, UmountArgs, daemon, live, notify, one_line};

/// Files that a mount has open at most beside its chunks.
const OTHER_FILES: u64 = 64;
/// Bytes of addresses that a mount wants, little of which becomes memory: what all threads share, and what each has of its own (a
/// stack, an allocator's arena and the buffer for requests).
const ADDRESSES: u64 = 384 << 20;
const ADDRESSES_A_THREAD: u64 = 128 << 20;
/// How long after its unmount a session has to end by itself.
const GRACE: Duration = Duration::from_secs(1);

/// `zrfs mount`
pub(super) fn mount(args: &MountArgs) -> Outcome {
    let mut options = MountOptions::default();
    args.options.iter().try_for_each(|list| options.add(list)).map_err(|e| match e.kind() {
        // A remount is understood, and can't be done.
        ErrorKind::Exists => Failure::Failed(e),
        _ => Failure::Usage(e.to_string()),
    })?;
    if !args.foreground && !args.detached {
        return daemon::start(args);
    }
    let streams = daemon::Streams::open(args.detached, options.log.as_deref())?;
    let session = start(&args.store, &args.mountpoint, &options)?;
    if args.detached {
        // Only now: autofs, where it lies below, knows by the process group who mounts on it. Any other process that looks at the
        // mount point waits for the mount, and the daemon would wait for itself.
        daemon::leave_terminal()?;
    }
    let signalled = end_on_signals(session.unmounter())?;
    let shown = describe(&session, &options);
    let ready = one_line(format!("{} {shown}", args.store.display()));
    // By its full path, as others may log to the same file.
    let begun = format!("{} {shown}; options: {}", session.store().display(), args.options.join(","));
    streams.serve(&ready, &begun)?;
    notify::serving(&ready);
    let ended = session.wait();
    let signal = signalled.get();
    if signal.is_none() {
        notify::stopping();
    }
    match (ended, signal) {
        (Ok(_), Some(signal)) => log::info!("{signal}: unmounted"),
        (Ok(Cause::Unmounted), None) => log::info!("unmounted from outside, by umount or the like"),
        (Ok(Cause::Unused), None) => {}
        (Err(e), _) => {
            // Here and not with the command's failures, so that a log file has its time.
            log::error!("{e}");
            return Err(Failure::Told);
        }
    }
    Ok(())
}

/// What a session shows, and where.
fn describe(session: &Session, options: &MountOptions) -> String {
    let (store, target, len) = (session.store().display(), session.target().display(), session.records());
    let mut shown = format!("is mounted at {target}: {len} records");
    if !session.can_change() && !options.is_read_only() {
        shown.push_str(" (read-only)");
    }
    match session.nameless() {
        0 => {}
        nameless => {
            let text = format!("{nameless} of {len} records have no name and are in records/ only");
            log::warn!("{store}: {text}: another program than zrfs has changed the store");
            let _ = write!(shown, "; {text}");
        }
    }
    shown
}

/// Mounts `store` at `mountpoint` and serves it.
pub(super) fn start(store: &Path, mountpoint: &Path, options: &MountOptions) -> Result<Session, Error> {
    let path = full(store)?;
    let store = open(&path, options)?;
    if let Err(e) = store.check_header() {
        log::warn!("{e}");
    }
    let labels = options.labels.clone().map(live::store).transpose()?;
    let labels = labels.map(|labels| open(&full(&labels)?, options)).transpose()?;
    check_open_files(&store, labels.as_ref())?;
    check_address_space(options.threads())?;
    let target = Mountpoint::prepare(mountpoint, &store, labels.as_ref())?;
    let (uid, gid) = (rustix::process::getuid().as_raw(), rustix::process::getgid().as_raw());
    let view = View::new(store, labels, options.view(uid, gid))?;
    Session::mount(view, &target, options)
}

/// Refuses what would fail later, in the middle of reading: more chunk files than this process may have open.
fn check_open_files(store: &Store, labels: Option<&Store>) -> Result<(), Error> {
    let chunks = store.chunk_files()? + labels.map_or(Ok(0), Store::chunk_files)?;
    let Some(limit) = getrlimit(Resource::Nofile).current else { return Ok(()) };
    if chunks + OTHER_FILES <= limit {
        return Ok(());
    }
    let path = store.path().display();
    let whose = if labels.is_some() { " and its labels have" } else { " has" };
    let text = format!("{path}{whose} {chunks} chunk files, and this process may have {limit} files open");
    let help = format!("raise the limit to {} (ulimit -n, LimitNOFILE=)", chunks + OTHER_FILES);
    Err(Error::new(ErrorKind::Unsupported, text).with_help(help))
}

/// Refuses what would end the daemon later, when it is out of addresses.
fn check_address_space(threads: usize) -> Result<(), Error> {
    let wanted = ADDRESSES + ADDRESSES_A_THREAD * threads as u64;
    let Some(limit) = getrlimit(Resource::As).current.filter(|&limit| limit < wanted) else { return Ok(()) };
    let text = format!("this process may use {} of address space", HumanBytes(limit));
    let help = format!(
        "a mount with {threads} threads wants {}: raise it (ulimit -v, LimitAS=)",
        HumanBytes(wanted)
    );
    Err(Error::new(ErrorKind::Memory, text).with_help(help))
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
/// once all the same: readers get an error. Returns where the name of the signal will be.
fn end_on_signals(unmounter: Unmounter) -> Result<Arc<OnceLock<&'static str>>, Error> {
    let failed = |e| Error::io("can't wait for signals", e);
    const ENDING: [i32; 3] = [SIGTERM, SIGINT, SIGHUP];
    let mut signals = Signals::new(ENDING).map_err(failed)?;
    let signalled = Arc::new(OnceLock::new());
    let name = Arc::clone(&signalled);
    let wait = move || {
        // The caller may have blocked them.
        if let Err(e) = zrfs::storage::unblock(&ENDING) {
            log::warn!("signals may not end the mount: {e}");
        }
        for signal in signals.forever() {
            let signal = signal_name(signal).unwrap_or("a signal");
            // Before the mount is gone, with which the process ends.
            if name.set(signal).is_ok() {
                notify::stopping();
            }
            match unmounter.unmount() {
                Ok(Ending::Now) => {
                    // The process ends with the main thread, at once: unless a copy of the mount lives on in another
                    // mount namespace, or a compaction is to be finished, as the next opening will.
                    std::thread::sleep(GRACE);
                    log::warn!(
                        "{signal}: ended while another mount namespace used the mount, or it was compacting"
                    );
                    std::process::exit(0);
                }
                Ok(Ending::WhenUnused) => {
                    log::warn!("{signal}: ended while the mount was in use: its readers get an error");
                    std::process::exit(0);
                }
                Ok(Ending::NotHere) => {
                    log::info!("{signal}: ended; the mount is for its maker to take away");
                    std::process::exit(0);
                }
                Err(e) => log::error!("{signal}: {e}"),
            }
        }
    };
    std::thread::Builder::new().name("zrfs-signals".into()).spawn(wait).map_err(failed)?;
    Ok(signalled)
}

/// `zrfs umount`
pub(super) fn umount(args: &UmountArgs) -> Outcome {
    let how = if args.lazy { Unmount::Lazy } else { Unmount::Unused };
    zrfs::fuse::unmount(&args.mountpoint, how)?;
    Ok(())
}
