//! What is at a mount point: a folder that is fit for a mount, a mount that lives, one whose daemon is gone.
//!
//! What a stopped daemon does not answer is asked with a time limit; what /proc/self/mountinfo tells is not asked at all.

use std::ffi::OsStr;
use std::fs::Metadata;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, Mode, OFlags};
use rustix::io::Errno;

use super::asking::ask;
use super::attach::{self, Attached};
use super::mountinfo::{MountEntry, topmost};
use super::unmount::{Unmount, detach};
use super::{MountOptions, guard};
use crate::error::{Error, ErrorKind, Result};
use crate::storage;
use crate::store::Store;

/// Inode number of a mount's root.
const ROOT: u64 = 1;
/// Most dead mounts that lie on top of each other, and most links that lead to each other.
const MOST: usize = 40;
/// How long to wait for other mounts at the same place to be made.
const TURN: Duration = Duration::from_secs(5);

/// A place to mount at, found fit for it.
#[derive(Debug)]
pub struct Mountpoint {
    path: PathBuf,
    /// Held until it is mounted on.
    _turn: Option<OwnedFd>,
    /// What `path`, `/dev/fd/N`, stands for: the caller has mounted, and hands the connection over.
    connection: Option<OwnedFd>,
}

impl Mountpoint {
    /// Looks at `path`, for a mount of `store`, with `labels` if it has some. A mount that a killed daemon left dead there is
    /// taken away first. `/dev/fd/N` is the descriptor of a mount that the caller has made.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`]; [`ErrorKind::Unsupported`] where it is no folder, or the mount would hide a store or lie in
    /// one; [`ErrorKind::Exists`] where `store` is mounted there and alive; [`ErrorKind::Busy`] where what is mounted
    /// there does not answer.
    pub fn prepare(path: &Path, store: &Store, labels: Option<&Store>) -> Result<Mountpoint> {
        if let Some(connection) = Mountpoint::handed_over(path)? {
            return Ok(Mountpoint { path: path.to_path_buf(), _turn: None, connection: Some(connection) });
        }
        let turn = turn(&locate(path).map_err(|e| to_be_made(path, e))?);
        for _ in 0..MOST {
            match find(path, store, labels)? {
                Found::Fit(path) => return Ok(Mountpoint { path, _turn: turn, connection: None }),
                Found::Dead(place) => {
                    detach(&place, Unmount::Lazy).map_err(|e| e.within("the mount there is dead"))?;
                    log::info!("took over {}: the daemon of the mount there was gone", place.display());
                }
            }
        }
        Err(Error::new(ErrorKind::Busy, format!("{} stays covered by dead mounts", path.display())))
    }

    /// Looks at `path` as [`Mountpoint::prepare`] does, and changes nothing.
    ///
    /// # Errors
    /// Those of [`Mountpoint::prepare`].
    pub fn check(path: &Path, store: &Store, labels: Option<&Store>) -> Result<()> {
        if Mountpoint::handed_over(path)?.is_none() {
            find(path, store, labels)?;
        }
        Ok(())
    }

    /// A duplicate of the descriptor that `path` stands for, where it is `/dev/fd/N`: the caller has mounted with it.
    ///
    /// # Errors
    /// Where nothing is open under that number.
    pub fn handed_over(path: &Path) -> Result<Option<OwnedFd>> {
        let Some(number) = descriptor(path) else { return Ok(None) };
        storage::duplicate(number).map(Some).map_err(|e| {
            Error::io(format!("mount point {}", path.display()), e)
                .with_help("it is for programs that have mounted and hand the descriptor over")
        })
    }

    /// The folder's absolute path, without symbolic links; or `/dev/fd/N`.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Mounts, unless the caller has.
    pub(super) fn attach(&self, source: &OsStr, options: &MountOptions, read_only: bool) -> Result<Attached> {
        match &self.connection {
            None => attach::at_folder(&self.path, source, options, read_only),
            Some(connection) => {
                let connection = connection
                    .try_clone()
                    .map_err(|e| Error::io(format!("mount point {}", self.path.display()), e))?;
                attach::at_connection(&self.path, connection)
            }
        }
    }
}

/// The number in `/dev/fd/N`.
fn descriptor(path: &Path) -> Option<i32> {
    let number = path.to_str()?.strip_prefix("/dev/fd/")?;
    number.bytes().all(|b| b.is_ascii_digit()).then(|| number.parse().ok())?
}

/// Waits until nobody else is about to mount at `place`, and keeps others out for as long as the result lives: of two mounts
/// that begin at once the second finds the first one. What is locked is the folder around, as the one at `place` is another one
/// when something is mounted on it. `None` where that can't be locked, by this user or on its file system, or somebody holds the
/// lock for other reasons.
fn turn(place: &Path) -> Option<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let folder = rustix::fs::open(place.parent()?, flags, Mode::empty()).ok()?;
    let begin = Instant::now();
    loop {
        match rustix::fs::flock(&folder, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => return Some(folder),
            Err(Errno::WOULDBLOCK) if begin.elapsed() < TURN => std::thread::sleep(Duration::from_millis(5)),
            Err(Errno::INTR) => {}
            Err(_) => return None,
        }
    }
}

/// Why `path` can't be located, and that it can be made.
fn to_be_made(path: &Path, e: Error) -> Error {
    match e.kind() {
        ErrorKind::NotFound => e.with_help(format!("make it with: mkdir -p {}", path.display())),
        _ => e,
    }
}

/// What covers a live mount of another store may; the same store is mounted already.
fn check_covered(place: &Path, top: &MountEntry, store: &Store) -> Result<()> {
    // Its path may have changed, or be another name for it.
    let ours = store.identity()?;
    let is_same = ask(place, identity_shown)? == Some(ours);
    if is_same || Path::new(&top.source) == store.path() {
        let text = format!("{} is mounted at {} already", store.path().display(), place.display());
        return Err(Error::new(ErrorKind::Exists, text)
            .with_help("to mount it with other options, `zrfs umount` it first"));
    }
    log::warn!("the mount of {} at {} is covered from now on", top.source.display(), place.display());
    Ok(())
}

/// Which store the live mount at `place` shows.
fn identity_shown(place: &Path) -> Option<(u64, u64)> {
    let stats: serde_json::Value = serde_json::from_slice(&std::fs::read(place.join("stats")).ok()?).ok()?;
    let number = |at| stats.get("identity")?.get(at)?.as_u64();
    Some((number(0)?, number(1)?))
}

/// What is at a mount point.
enum Found {
    /// A folder to mount on; its absolute path.
    Fit(PathBuf),
    /// A mount of ours whose daemon is gone.
    Dead(PathBuf),
}

fn find(path: &Path, store: &Store, labels: Option<&Store>) -> Result<Found> {
    let place = locate(path).map_err(|e| to_be_made(path, e))?;
    let top = topmost(&place)?;
    match look(&place, top.as_ref())? {
        Ok(meta) if !meta.is_dir() => {
            let text = format!("mount point {} is not a folder", path.display());
            Err(Error::new(ErrorKind::Unsupported, text))
        }
        Ok(_) => {
            if let Some(top) = top.filter(MountEntry::is_ours) {
                check_covered(&place, &top, store)?;
            }
            for store in [Some(store), labels].into_iter().flatten() {
                guard::check(&place, store)?;
            }
            Ok(Found::Fit(place))
        }
        Err(e) if is_dead(&e) => match top {
            Some(top) if top.is_ours() => Ok(Found::Dead(place)),
            top => {
                let what = top.map_or_else(|| "something".to_owned(), |top| top.fstype);
                let text = format!("mount point {}: a dead mount of {what} is there", place.display());
                let help = format!(
                    "unmount it first: umount {0}, or fusermount3 -u {0} where it is yours",
                    place.display()
                );
                Err(Error::io(text, e).with_help(help))
            }
        },
        Err(e) => Err(unfit(path, top, e)),
    }
}

/// Why `path` can't be looked at.
fn unfit(path: &Path, top: Option<MountEntry>, e: io::Error) -> Error {
    let shown = path.display();
    let owner = top.and_then(|top| top.stranger()).filter(|_| e.kind() == io::ErrorKind::PermissionDenied);
    if let Some(owner) = owner {
        return Error::io(format!("mount point {shown}: {owner} has mounted something there for itself"), e)
            .with_help("others can look into a mount that is made with allow_other, root with allow_root");
    }
    Error::io(format!("mount point {shown}"), e)
}

/// The store behind the zrfs mount whose root is `path`; `None` where it is something else, or is not there.
///
/// # Errors
/// One that says what to do where the mount's daemon is gone, or does not answer.
pub fn mounted_at(path: &Path) -> Result<Option<PathBuf>> {
    let target = match locate(path) {
        Ok(target) => target,
        Err(e) if e.kind() == ErrorKind::Busy => return Err(e),
        Err(_) => return Ok(None),
    };
    // Without /proc no mount can be told from a folder, and stores are used all the same.
    let top = topmost(&target).unwrap_or_default();
    let Some(entry) = top.filter(MountEntry::is_ours) else { return Ok(None) };
    match look(&target, Some(&entry))? {
        // A folder of the mount that is bound elsewhere is no mount of the store.
        Ok(meta) if meta.ino() == ROOT => Ok(Some(entry.source.into())),
        Ok(_) => Ok(None),
        Err(e) if is_dead(&e) => {
            let text = format!("the mount at {} is dead: its daemon is gone", path.display());
            let help = format!("take it away with: zrfs umount {}", path.display());
            Err(Error::io(text, e).with_help(help))
        }
        Err(e) => Err(unfit(path, Some(entry), e)),
    }
}

/// What is at `place`, where `top` is mounted.
fn look(place: &Path, top: Option<&MountEntry>) -> Result<io::Result<Metadata>> {
    // The kernel may answer a stat of a dead mount from memory; statfs always asks the daemon. An automounter's place is
    // not asked: it would wait for the mount that is being made.
    let is_served = top.is_some_and(MountEntry::is_fuse);
    ask(place, move |place| {
        if is_served {
            rustix::fs::statfs(place)?;
        }
        std::fs::metadata(place)
    })
}

/// `path` made absolute, without symbolic links. A mount that is there is not asked: it may be dead.
///
/// # Errors
/// [`ErrorKind::Busy`] where a mount on the way does not answer.
pub(super) fn locate(path: &Path) -> Result<PathBuf> {
    ask(path, locate_now)?
}

fn locate_now(path: &Path) -> Result<PathBuf> {
    let failed = |e| unfit(path, None, e);
    let mut named = std::path::absolute(path).map_err(failed)?;
    for _ in 0..MOST {
        let (Some(parent), Some(name)) = (named.parent(), named.file_name()) else { break };
        let parent = parent.canonicalize().map_err(failed)?;
        named = parent.join(name);
        // Without /proc nothing is known to be mounted.
        if topmost(&named).unwrap_or_default().is_some() {
            return Ok(named);
        }
        let Ok(link) = named.read_link() else { break };
        named = parent.join(link);
    }
    named.canonicalize().map_err(failed)
}

/// Whether an error means a mount whose daemon is gone.
pub(super) fn is_dead(e: &io::Error) -> bool {
    e.raw_os_error()
        .is_some_and(|n| [Errno::NOTCONN, Errno::CONNABORTED].map(Errno::raw_os_error).contains(&n))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_descriptors() {
        let number = |path: &str| descriptor(Path::new(path));
        assert_eq!(number("/dev/fd/7"), Some(7));
        for path in ["/dev/fd/", "/dev/fd/x", "/dev/fd/+7", "/dev/fd/7/a", "dev/fd/7", "/dev/fd/99999999999"]
        {
            assert_eq!(number(path), None, "{path}");
        }
    }

    #[test]
    fn links_are_followed_to_the_place() {
        let dir = tempfile::tempdir().unwrap();
        let dir = dir.path().canonicalize().unwrap();
        std::fs::create_dir_all(dir.join("a/b")).unwrap();
        std::os::unix::fs::symlink("../one", dir.join("a/two")).unwrap();
        std::os::unix::fs::symlink("a/b", dir.join("one")).unwrap();
        for path in ["a/b", "a/b/", "a/./b", "a/b/../b", "one", "a/two", "one/.", "a/b/c/.."] {
            let place = locate(&dir.join(path));
            if path.ends_with("..") {
                assert_eq!(place.unwrap_err().kind(), ErrorKind::NotFound);
            } else {
                assert_eq!(place.unwrap(), dir.join("a/b"), "{path}");
            }
        }
        assert_eq!(locate(Path::new("/")).unwrap(), Path::new("/"));
        std::os::unix::fs::symlink("loop", dir.join("loop")).unwrap();
        assert!(locate(&dir.join("loop")).is_err());
    }
}
