//! /proc/self/mountinfo: what is mounted where. Reading it asks no mount anything.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

use super::FSTYPE;
use crate::error::{Error, Result};

/// One line of /proc/self/mountinfo.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MountEntry {
    /// Device number, `major:minor`: one for each mounted file system.
    pub device: String,
    /// Where it is mounted.
    pub target: PathBuf,
    /// File system type, `fuse.zrfs` for ours.
    pub fstype: String,
    /// What is mounted: the store's path for ours.
    pub source: OsString,
    /// The user who has mounted it, where it tells: FUSE does.
    pub owner: Option<u32>,
}

impl MountEntry {
    /// Whether it is a mount of ours.
    pub fn is_ours(&self) -> bool {
        self.fstype == FSTYPE
    }

    /// Whether a program serves it, which may be gone or stopped.
    pub(super) fn is_fuse(&self) -> bool {
        self.fstype == "fuse" || self.fstype.starts_with("fuse.")
    }

    /// The user who has mounted it, in words, where this process's user is another one.
    pub(super) fn stranger(&self) -> Option<String> {
        match self.owner {
            None => None,
            Some(owner) if owner == rustix::process::getuid().as_raw() => None,
            Some(0) => Some("root".to_owned()),
            Some(owner) => Some(format!("user {owner}")),
        }
    }

    /// Device number as major and minor number.
    pub(super) fn numbers(&self) -> Option<(u32, u32)> {
        let (major, minor) = self.device.split_once(':')?;
        Some((major.parse().ok()?, minor.parse().ok()?))
    }
}

/// What is mounted, as this process sees it, the topmost last.
///
/// # Errors
/// Where /proc is not there.
pub fn mounts() -> Result<Vec<MountEntry>> {
    let path = "/proc/self/mountinfo";
    let bytes = std::fs::read(path).map_err(|e| Error::io(format!("can't read {path}"), e))?;
    Ok(bytes.split(|&b| b == b'\n').filter_map(parse).collect())
}

/// What is mounted last at exactly `path`.
pub(super) fn topmost(path: &Path) -> Result<Option<MountEntry>> {
    Ok(mounts()?.into_iter().rfind(|entry| entry.target == path))
}

/// The mount that `path` lies in, as far as its name tells.
pub(super) fn around(path: &Path) -> Result<Option<MountEntry>> {
    let above = mounts()?.into_iter().filter(|entry| path.starts_with(&entry.target));
    // Of equally long ones the last, which is the topmost.
    Ok(above.max_by_key(|entry| entry.target.components().count()))
}

/// `36 35 98:0 /root /target options optional… - fstype source super`
fn parse(line: &[u8]) -> Option<MountEntry> {
    let mut fields = line.split(|&b| b == b' ');
    let device = fields.nth(2)?;
    let target = fields.nth(1)?;
    let mut behind_dash = fields.skip_while(|&field| field != b"-").skip(1);
    Some(MountEntry {
        device: String::from_utf8_lossy(device).into_owned(),
        target: PathBuf::from(OsString::from_vec(unescape(target))),
        fstype: String::from_utf8_lossy(behind_dash.next()?).into_owned(),
        source: OsString::from_vec(unescape(behind_dash.next()?)),
        owner: behind_dash.next().and_then(owner),
    })
}

/// The number in `user_id=1000`, among options.
fn owner(options: &[u8]) -> Option<u32> {
    let mut options = options.split(|&b| b == b',');
    let digits = options.find_map(|option| option.strip_prefix(b"user_id="))?;
    std::str::from_utf8(digits).ok()?.parse().ok()
}

/// Undoes the kernel's `\040` for a space.
fn unescape(field: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((&first, behind)) = rest.split_first() {
        let octal = behind
            .get(..3)
            .filter(|_| first == b'\\')
            .and_then(|digits| u8::from_str_radix(std::str::from_utf8(digits).ok()?, 8).ok());
        out.push(octal.unwrap_or(first));
        rest = if octal.is_some() { behind.get(3..).unwrap_or_default() } else { behind };
    }
    out
}

#[cfg(test)]
mod tests {
    use std::os::unix::ffi::OsStrExt;

    use super::*;

    #[test]
    fn lines_with_odd_names() {
        let line = b"36 35 0:42 / /mnt/a\\040b\\134c\\011 ro,nosuid shared:7 master:2 - fuse.zrfs /s\\040t\xff ro,user_id=1000,group_id=0";
        let entry = parse(line).unwrap();
        assert_eq!(entry.numbers(), Some((0, 42)));
        assert_eq!(entry.target, Path::new("/mnt/a b\\c\t"));
        assert!(entry.is_ours() && entry.is_fuse());
        assert_eq!(entry.source.as_bytes(), b"/s t\xff");
        assert_eq!(entry.owner, Some(1000));
        for line in [&b""[..], b"36 35", b"36 35 0:42 / /mnt ro"] {
            assert_eq!(parse(line), None);
        }
        assert_eq!(unescape(b"a\\04"), b"a\\04", "too short to be an escape");
    }

    #[test]
    fn mounts_of_others() {
        let tmpfs = parse(b"36 35 0:42 / /mnt rw - tmpfs tmpfs rw,size=4k").unwrap();
        assert!(!tmpfs.is_ours() && !tmpfs.is_fuse() && tmpfs.owner.is_none() && tmpfs.stranger().is_none());
        let other = |owner| MountEntry { owner, ..tmpfs.clone() }.stranger();
        let us = rustix::process::getuid().as_raw();
        assert_eq!(other(Some(us)), None);
        assert_eq!(other(Some(us + 7)), Some(format!("user {}", us + 7)));
    }
}
