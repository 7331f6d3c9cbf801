//! Mount options, as `-o` and /etc/fstab spell them.

use std::path::PathBuf;
use std::time::Duration;

use crate::error::{Error, ErrorKind, Result};
use crate::format::MAX_RECORDS;
use crate::sampler::SamplerOptions;
use crate::view::ViewOptions;

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
}

/// Accepted because mount(8), fstab and systemd pass them on; a mount of records has no use for them.
const IGNORED: [&str; 32] = [
    "defaults",
    "nofail",
    "_netdev",
    "auto",
    "noauto",
    "user",
    "nouser",
    "users",
    "owner",
    "group",
    "dev",
    "nodev",
    "suid",
    "nosuid",
    "exec",
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
];

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
  idle=SECONDS          end a mount that nobody has used for so long
  log=FILE              the daemon's log; without it the daemon logs nowhere
  mode=NAME             of batches: sequential, iid or shuffle (iid)
  seed=N                of batches (42)
  batch_size=N          of batches (256)
  start=STEP            the endless files begin here (0)
  length=RECORDS        to draw batches from (all)
  steps=N               how many steps batches/ lists (0; every step opens)
  labels=STORE          label i belongs to record i
What mount(8), fstab and systemd pass on is accepted: nofail, _netdev, user, noauto, x-…";

    /// Adds the options in `list`, separated by commas; `\,` is a comma within a value.
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`] with the option that is not known or has a bad value.
    pub fn add(&mut self, list: &str) -> Result<()> {
        split(list).iter().filter(|option| !option.is_empty()).try_for_each(|option| self.add_one(option))
    }

    fn add_one(&mut self, option: &str) -> Result<()> {
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
            ("comment", Some(_)) => {}
            (_, None) if IGNORED.contains(&name) => {}
            _ if name.starts_with("x-") || name.starts_with("X-") => {}
            (
                "uid" | "gid" | "umask" | "threads" | "cache" | "idle" | "log" | "ext" | "mode" | "seed"
                | "batch_size" | "start" | "length" | "steps" | "labels",
                None | Some(_),
            ) => {
                return Err(bad(option, "needs a value"));
            }
            _ => return Err(bad(option, "is not known; see zrfs mount --help")),
        }
        if self.allow_other && self.allow_root {
            return Err(bad(option, "excludes the other of allow_other and allow_root"));
        }
        Ok(())
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

fn bad(option: &str, why: &str) -> Error {
    Error::new(ErrorKind::Unsupported, format!("mount option {option} {why}"))
}

fn number<T: TryFrom<u64>>(option: &str, value: &str, radix: u32, least: u64, most: u64) -> Result<T> {
    // from_str_radix takes a sign; a number here has none.
    let digits = value.bytes().all(|b| b.is_ascii_digit());
    let parsed = u64::from_str_radix(value, radix).ok().filter(|n| digits && (least..=most).contains(n));
    parsed.and_then(|n| T::try_from(n).ok()).ok_or_else(|| {
        let range =
            if radix == 8 { format!("{least:o} to {most:o}, octal") } else { format!("{least} to {most}") };
        bad(option, &format!("needs a number from {range}"))
    })
}

/// Cuts at commas that no backslash precedes.
fn split(list: &str) -> Vec<String> {
    let mut options = vec![String::new()];
    let mut chars = list.chars();
    while let Some(c) = chars.next() {
        match (c, options.last_mut()) {
            (',', _) => options.push(String::new()),
            ('\\', Some(last)) => last.extend(chars.next()),
            (c, Some(last)) => last.push(c),
            (_, None) => {}
        }
    }
    options
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sampler::Mode;

    fn parse(list: &str) -> Result<MountOptions> {
        let mut options = MountOptions::default();
        options.add(list).map(|()| options)
    }

    #[test]
    fn values_are_taken() {
        let options =
            parse("allow_other,uid=7,gid=8,umask=027,threads=3,cache=2,ext=jpg,log=/a\\,b").unwrap();
        let expected = MountOptions {
            allow_other: true,
            uid: Some(7),
            gid: Some(8),
            umask: 0o027,
            threads: Some(3),
            cache: Some(2 << 20),
            ext: Some("jpg".into()),
            log: Some("/a,b".into()),
            ..MountOptions::default()
        };
        assert_eq!(options, expected);
    }

    #[test]
    fn a_stream_is_described() {
        let options =
            parse("mode=shuffle,seed=7,batch_size=32,start=100,length=5000,steps=9,labels=l.zr").unwrap();
        let expected = MountOptions {
            sampler: SamplerOptions {
                mode: Mode::Shuffle,
                seed: 7,
                batch_size: 32,
                ..SamplerOptions::default()
            },
            start: 100,
            length: Some(5000),
            steps: 9,
            labels: Some("l.zr".into()),
            ..MountOptions::default()
        };
        assert_eq!(options, expected);
        let view = options.view(1, 2);
        assert_eq!(
            (view.sampler, view.start, view.length, view.steps),
            (expected.sampler, 100, Some(5000), 9)
        );
        for (list, named) in [
            ("mode=random", "mode=random"),
            ("mode", "mode"),
            ("seed=-1", "seed=-1"),
            ("batch_size=0", "batch_size=0"),
            ("batch_size=16777217", "batch_size=16777217"),
            ("length=0", "length=0"),
            ("length=16777217", "length=16777217"),
            ("steps=16777217", "steps=16777217"),
            ("start", "start"),
            ("labels=", "labels="),
        ] {
            let text = parse(list).unwrap_err().to_string();
            assert!(text.contains(&format!("option {named} ")), "{text}");
        }
    }

    #[test]
    fn data_alone_is_read_only() {
        let view = |list| parse(list).unwrap().view(0, 0);
        assert!(!view("rw,xattr").read_only && !view("ro,rw").read_only);
        assert!(view("ro").read_only && !view("ro").data_only);
        for list in ["dataonly", "dataonly,rw", "rw,dataonly,default_permissions,labels=l.zr"] {
            assert!(view(list).read_only && view(list).data_only, "{list}");
        }
        assert!(parse("xattr").unwrap().xattr);
        for list in ["xattr=1", "dataonly=yes"] {
            assert!(parse(list).is_err(), "{list}");
        }
    }

    #[test]
    fn what_mount_passes_on_changes_nothing() {
        let list = "rw,nofail,_netdev,user,noauto,dev,suid,exec,async,relatime,x-systemd.automount,X-mount.mkdir,comment=a b,,";
        assert_eq!(parse(list).unwrap(), MountOptions::default());
    }

    #[test]
    fn what_is_not_known_is_named() {
        for (list, named) in [
            ("ro,wibble", "wibble"),
            ("uid", "uid"),
            ("uid=x", "uid=x"),
            ("uid=+1", "uid=+1"),
            ("umask=8", "umask=8"),
            ("threads=0", "threads=0"),
            ("ext=a/b", "ext=a/b"),
            ("ext=", "ext="),
            ("ro=1", "ro=1"),
            ("allow_root,allow_other", "allow_other"),
        ] {
            let text = parse(list).unwrap_err().to_string();
            assert!(text.contains(&format!("option {named} ")), "{text}");
        }
    }
}
