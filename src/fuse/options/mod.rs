//! Mount options, as `-o` and /etc/fstab spell them.

mod grammar;

use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::error::{Error, ErrorKind, Result};
use crate::format::MAX_RECORDS;
use crate::sampler::SamplerOptions;
use crate::view::ViewOptions;
use grammar::{bad, number};

/// Largest batch: what is known of one archive takes some tens of bytes a record.
const MAX_BATCH: u64 = 1 << 20;
/// Longest time until an unused mount ends, in seconds: a year.
const MAX_IDLE: u64 = 366 * 24 * 60 * 60;
/// Most steps that `batches/` lists: a directory of so many names can still be listed.
const MAX_LISTED: u64 = 1 << 24;

/// What `-o` can say.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MountOptions {
    /// Users other than the one who mounts may read.
    pub allow_other: bool,
    /// Root may read, too.
    pub allow_root: bool,
    /// Files can't be executed.
    pub noexec: bool,
    /// Symbolic links are not followed.
    pub no_symlinks: bool,
    /// mount(8) is not to be told of a store that is not there.
    pub no_fail: bool,
    /// Owner of every file; `None`: the user who mounts.
    pub uid: Option<u32>,
    /// Group of every file; `None`: the group of the user who mounts.
    pub gid: Option<u32>,
    /// Permission bits taken away from 0444 and 0555.
    pub umask: u16,
    /// Extension of the files in `records/`.
    pub ext: Option<String>,
    /// Threads that answer the kernel; `None`: one a core, at most 16.
    pub threads: Option<usize>,
    /// Bytes of decoded records to keep; `None`: [`ViewOptions::DEFAULT_CACHE`].
    pub cache: Option<usize>,
    /// File that the daemon's log lines go to.
    pub log: Option<PathBuf>,
    /// How long a mount may be unused until it ends itself; `None`: it never does.
    pub idle: Option<Duration>,
    /// Nothing can be deleted or compacted.
    pub read_only: bool,
    /// Files are data alone, and need no word of ours to be opened.
    pub data_only: bool,
    /// Files have extended attributes that tell of their records.
    pub xattr: bool,
    /// Mode, seed and batch size of the endless files and of `batches/`.
    pub sampler: SamplerOptions,
    /// The step that endless files begin with.
    pub start: u64,
    /// How many records batches are drawn from; `None`: all that are there.
    pub length: Option<u64>,
    /// How many steps `batches/` lists.
    pub steps: u64,
    /// The store of the labels.
    pub labels: Option<PathBuf>,
    /// An SELinux context was asked for, which files of the mount don't get.
    pub context: bool,
}

/// Options that stand alone.
const FLAGS: [&str; 13] = [
    "nosymfollow",
    "symfollow",
    "nofail",
    "allow_other",
    "allow_root",
    "default_permissions",
    "noexec",
    "exec",
    "ro",
    "rw",
    "dataonly",
    "xattr",
    "remount",
];

/// Options that take a value.
const VALUED: [&str; 15] = [
    "mode",
    "seed",
    "batch_size",
    "start",
    "length",
    "steps",
    "labels",
    "uid",
    "gid",
    "umask",
    "threads",
    "cache",
    "idle",
    "log",
    "ext",
];

/// Accepted with and without a value, because mount(8), fstab, systemd and mount.fuse3 pass them on; a mount of records has
/// no use for them, or does already what they ask for.
const IGNORED: [&str; 46] = [
    "defaults",
    "_netdev",
    "auto",
    "noauto",
    "user",
    "nouser",
    "users",
    "nousers",
    "owner",
    "noowner",
    "group",
    "nogroup",
    "dev",
    "nodev",
    "suid",
    "nosuid",
    "async",
    "sync",
    "dirsync",
    "atime",
    "noatime",
    "diratime",
    "nodiratime",
    "relatime",
    "norelatime",
    "strictatime",
    "nostrictatime",
    "lazytime",
    "nolazytime",
    "silent",
    "loud",
    "iversion",
    "noiversion",
    "mand",
    "nomand",
    "seclabel",
    "comment",
    "helper",
    "uhelper",
    // What file systems of FUSE take.
    "fsname",
    "subtype",
    "nonempty",
    "kernel_cache",
    "auto_cache",
    "big_writes",
    "large_read",
];

/// The security contexts of mount(8).
const CONTEXTS: [&str; 4] = ["context", "fscontext", "defcontext", "rootcontext"];

impl MountOptions {
    /// What `-o` can say, for people.
    pub const HELP: &str = "  ro                    delete and compact refuse
  allow_other           users other than the one who mounts may read
  allow_root            root may read, too
  noexec                files can't be executed
  uid=N, gid=N          owner and group of all files (whoever mounts)
  umask=OCTAL           permissions taken away from 0444 and 0555
  ext=NAME              one extension for all of records/
  xattr                 index, codec and stored size of each record, for getfattr
  dataonly              no control files and no endless ones; opening a file costs no request
  threads=N             threads that answer the kernel (one a core, 16 at most)
  cache=MiB             decoded large records to keep (512)
  idle=SECONDS          end the mount when nobody has used it for so long
  log=FILE              log lines; without it those of a daemon go nowhere, in front to stderr
  mode=NAME             of batches: sequential, iid or shuffle (iid)
  seed=N                of batches (42)
  batch_size=N          of batches (256)
  start=STEP            the endless files begin here (0)
  length=RECORDS        to draw batches from (all)
  steps=N               how many steps batches/ lists (0; every step opens)
  labels=STORE          label i belongs to record i
What mount(8), fstab and systemd pass on is accepted: nofail, _netdev, user, noauto, x-systemd.*
A value with commas needs double quotes: labels=\"/a,b.zr\"";

    /// Adds the options in `list`, separated by commas. A comma within double quotes or after a backslash belongs to its value.
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`] with the option that is not known, has a bad value or contradicts another;
    /// [`ErrorKind::Exists`] for `remount`, since what is mounted can't be changed.
    pub fn add(&mut self, list: &str) -> Result<()> {
        let (_, unknown) = self.add_known(list)?;
        let Some(option) = unknown.first() else { return Ok(()) };
        let name = option.split_once('=').map_or(option.as_str(), |(name, _)| name);
        let mut known = FLAGS.into_iter().chain(VALUED).chain(IGNORED).chain(CONTEXTS);
        Err(match grammar::nearest(name, &mut known) {
            Some(meant) => bad(option, &format!("is not known; did you mean {meant}?")),
            None => bad(option, "is not known; see zrfs mount --help"),
        })
    }

    /// Like [`add`](MountOptions::add), for mount(8)'s `-s`: options that are not known are left out. Gives back the list without
    /// them, written as it was, and their names and values.
    ///
    /// # Errors
    /// Those of [`add`](MountOptions::add), but for options that are not known.
    pub fn add_known(&mut self, list: &str) -> Result<(String, Vec<String>)> {
        let options = grammar::split(list)?;
        // mount(8) adds what the mount has already, in the kernel's words: no other option matters then.
        if options.iter().any(|option| option.text == "remount") {
            return Err(Error::new(
                ErrorKind::Exists,
                "the options of a zrfs mount are fixed while it is mounted",
            )
            .with_help("unmount it and mount it again with the new ones"));
        }
        let (mut known, mut unknown) = (Vec::new(), Vec::new());
        for option in options {
            if self.take(&option.text)? { known.push(option.raw) } else { unknown.push(option.text) }
        }
        Ok((known.join(","), unknown))
    }

    /// Takes one option; false where it is not known.
    fn take(&mut self, option: &str) -> Result<bool> {
        let (name, value) = match option.split_once('=') {
            Some((name, value)) => (name, Some(value)),
            None => (option, None),
        };
        match (name, value) {
            ("allow_other", None) => self.allow_other = true,
            ("allow_root", None) => self.allow_root = true,
            // Always on: a mode that nobody enforces would be a lie.
            ("default_permissions", None) => {}
            ("noexec", None) => self.noexec = true,
            ("exec", None) => self.noexec = false,
            ("nosymfollow", None) => self.no_symlinks = true,
            ("symfollow", None) => self.no_symlinks = false,
            ("nofail", None) => self.no_fail = true,
            ("ro", None) => self.read_only = true,
            ("rw", None) => self.read_only = false,
            ("dataonly", None) => self.data_only = true,
            ("xattr", None) => self.xattr = true,
            ("mode", Some(value)) => {
                self.sampler.mode =
                    value.parse().map_err(|_| bad(option, "is none of sequential, iid and shuffle"))?;
            }
            ("seed", Some(value)) => self.sampler.seed = number(option, value, 10, 0, u64::MAX)?,
            ("batch_size", Some(value)) => {
                self.sampler.batch_size = number(option, value, 10, 1, MAX_BATCH)?;
            }
            ("start", Some(value)) => self.start = number(option, value, 10, 0, u64::MAX)?,
            ("length", Some(value)) => {
                self.length = Some(number(option, value, 10, 1, u64::from(MAX_RECORDS))?);
            }
            ("steps", Some(value)) => self.steps = number(option, value, 10, 0, MAX_LISTED)?,
            ("labels", Some(value)) if !value.is_empty() => self.labels = Some(PathBuf::from(value)),
            ("uid", Some(value)) => self.uid = Some(number(option, value, 10, 0, u64::from(u32::MAX) - 1)?),
            ("gid", Some(value)) => self.gid = Some(number(option, value, 10, 0, u64::from(u32::MAX) - 1)?),
            ("umask", Some(value)) => self.umask = number(option, value, 8, 0, 0o777)?,
            ("threads", Some(value)) => self.threads = Some(number(option, value, 10, 1, 256)?),
            ("cache", Some(value)) => {
                self.cache = Some(number::<usize>(option, value, 10, 0, 1 << 20)? << 20);
            }
            ("idle", Some(value)) => {
                self.idle = Some(Duration::from_secs(number(option, value, 10, 1, MAX_IDLE)?));
            }
            ("log", Some(value)) if !value.is_empty() => self.log = Some(PathBuf::from(value)),
            ("ext", Some(value)) => {
                let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.');
                let sound = (1..=200).contains(&value.len()) && value.chars().all(plain);
                if !sound || value.starts_with('.') || value.ends_with('.') {
                    return Err(bad(
                        option,
                        "is no extension: letters and digits, without the first dot, as in ext=jpg",
                    ));
                }
                self.ext = Some(value.to_owned());
            }
            (_, Some(_)) if CONTEXTS.contains(&name) => self.context = true,
            _ if IGNORED.contains(&name) || name.starts_with("x-") || name.starts_with("X-") => {}
            _ if FLAGS.contains(&name) => return Err(bad(option, "takes no value")),
            _ if VALUED.contains(&name) || CONTEXTS.contains(&name) => {
                return Err(bad(option, "needs a value"));
            }
            _ => return Ok(false),
        }
        if self.allow_other && self.allow_root {
            return Err(bad(option, "excludes the other of allow_other and allow_root"));
        }
        if self.data_only && self.idle.is_some() {
            let why = "excludes the other of dataonly and idle: whether a mount is used is not known under dataonly";
            return Err(bad(option, why));
        }
        Ok(true)
    }

    /// Logs what was asked for and is not done. To be called once a mount.
    pub(super) fn warn(&self) {
        if self.context && Path::new("/sys/fs/selinux/enforce").exists() {
            log::warn!(
                "files of a zrfs mount have no SELinux context of their own: context= and the like are ignored"
            );
        }
    }

    /// Whether nothing can be deleted or compacted.
    pub fn is_read_only(&self) -> bool {
        self.read_only || self.data_only
    }

    /// How the view is to be shown, for a mount by user `uid` of group `gid`.
    pub fn view(&self, uid: u32, gid: u32) -> ViewOptions {
        ViewOptions {
            ext: self.ext.clone(),
            uid: self.uid.unwrap_or(uid),
            gid: self.gid.unwrap_or(gid),
            // The kernel knows no allow_root, and answers others from memory what root has asked: modes keep them out.
            umask: if self.allow_root { self.umask | 0o077 } else { self.umask },
            cache: self.cache.unwrap_or(ViewOptions::DEFAULT_CACHE),
            read_only: self.is_read_only(),
            data_only: self.data_only,
            sampler: self.sampler.clone(),
            start: self.start,
            length: self.length,
            steps: self.steps,
        }
    }

    /// Threads that answer the kernel.
    pub fn threads(&self) -> usize {
        // On two cores two threads served most: with more the kernel wakes one that runs where another just ran.
        let cores = || std::thread::available_parallelism().map_or(1, |cores| cores.get().min(16));
        self.threads.unwrap_or_else(cores)
    }
}

#[cfg(test)]
mod tests;
