//! Members whose bytes are those of another one: hard links, and symbolic links that are followed. They can be told only
//! when all of the archive is known.

use std::collections::{HashMap, HashSet};

use zrfs::{Error, ErrorKind, Result};

use super::super::files::{Files, Traits};
use super::shown;

/// Most bytes of the paths of all such members together.
const MAX_BYTES: usize = 256 << 20;
/// Most links that are followed one after another, as the system has it.
const MAX_STEPS: usize = 40;

/// Where such a member leads.
#[derive(Debug)]
pub(super) enum Leads {
    /// A hard link: another name of the member at a path.
    Same(Vec<u8>),
    /// A symbolic link that is followed to a path.
    Link(Vec<u8>),
}

impl Leads {
    fn target(&self) -> &[u8] {
        match self {
            Leads::Same(target) | Leads::Link(target) => target,
        }
    }
}

#[derive(Debug)]
struct Link {
    path: Vec<u8>,
    leads: Leads,
    traits: Traits,
}

/// Such a member, and the record, counted from the archive's first, that has its bytes.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Resolved {
    pub(super) path: Vec<u8>,
    pub(super) traits: Traits,
    pub(super) of: u32,
}

/// Such members of an archive, in its order.
#[derive(Default)]
pub(super) struct Later {
    links: Vec<Link>,
    bytes: usize,
}

impl Later {
    pub(super) fn add(&mut self, path: &[u8], leads: Leads, traits: Traits) -> Result<()> {
        self.bytes += path.len() + leads.target().len();
        if self.bytes > MAX_BYTES {
            let text = format!("the paths of the archive's links take more than {MAX_BYTES} bytes");
            return Err(Error::new(ErrorKind::Full, text));
        }
        self.links.push(Link { path: path.to_vec(), leads, traits });
        Ok(())
    }

    pub(super) fn len(&self) -> usize {
        self.links.len()
    }

    /// Finds the records that have their bytes, among those of `files` from `first` on.
    ///
    /// # Errors
    /// Names what leads to no file: round in circles, to a folder, to nothing.
    pub(super) fn resolved(self, files: &Files, first: usize, place: &str) -> Result<Vec<Resolved>> {
        if self.links.is_empty() {
            return Ok(Vec::new());
        }
        let by_path: HashMap<&[u8], &Link> =
            self.links.iter().map(|link| (link.path.as_slice(), link)).collect();
        let mut ends = Vec::with_capacity(self.links.len());
        for link in &self.links {
            let (mut at, mut steps) = (link, 0);
            while let Some(&next) = by_path.get(at.leads.target()) {
                at = next;
                steps += 1;
                if steps > MAX_STEPS {
                    return Err(no_file(link, place, "which leads round in circles, or on and on"));
                }
            }
            ends.push(at.leads.target());
        }
        let wanted: HashSet<&[u8]> = ends.iter().copied().collect();
        let mut found = HashMap::new();
        for i in first..files.len() {
            let path = files.names().path(i);
            if let (Some(&path), Ok(record)) = (wanted.get(path.as_slice()), u32::try_from(i - first)) {
                found.insert(path, record);
            }
        }
        let resolve = |(link, end): (&Link, &&[u8])| {
            let Some(&of) = found.get(end) else {
                let names = files.names();
                let is_folder = |folder| names.folder_path(folder) == **end;
                let why = match *end {
                    b"" => "which is the folder of all".to_owned(),
                    _ if names.folders().any(is_folder) => format!("where {} is a folder", shown(end)),
                    _ => format!("where {} is no file that is taken from it", shown(end)),
                };
                return Err(no_file(link, place, &why));
            };
            let target = files.traits(first + of as usize);
            let traits = match link.leads {
                // As whoever follows the link sees the file.
                Leads::Link(_) => target,
                Leads::Same(_) => Traits { size: target.size, ..link.traits },
            };
            Ok(Resolved { path: link.path.clone(), traits, of })
        };
        self.links.iter().zip(&ends).map(resolve).collect()
    }
}

/// Where a symbolic link at `path` leads by its letters, where that is inside of the archive.
pub(super) fn inside(path: &[u8], target: &[u8]) -> Option<Vec<u8>> {
    if target.is_empty() || target.starts_with(b"/") {
        return None;
    }
    let folder =
        path.iter().rposition(|&b| b == b'/').and_then(|slash| path.get(..slash)).unwrap_or_default();
    let mut way: Vec<&[u8]> = folder.split(|&b| b == b'/').filter(|name| !name.is_empty()).collect();
    for name in target.split(|&b| b == b'/') {
        match name {
            b"" | b"." => {}
            b".." => drop(way.pop()?),
            _ => way.push(name),
        }
    }
    Some(way.join(&b'/'))
}

/// The error for a symbolic link that leads out of the archive.
pub(super) fn leads_out(place: &str, path: &[u8], target: &[u8], kept: bool) -> Error {
    let text = format!("{place} has a link that leads out of it: {} -> {}", shown(path), shown(target));
    let help = if kept { "only links that stay inside are kept" } else { "pack it with tar --dereference" };
    Error::new(ErrorKind::Unsupported, text).with_help(format!("{help}, or leave the link out with --only"))
}

fn no_file(link: &Link, place: &str, why: &str) -> Error {
    let (kind, help) = match link.leads {
        Leads::Same(_) => ("hard link", "take it with what it leads to, or leave it out with --only"),
        Leads::Link(_) => ("link", "keep links with --links keep, or leave it out with --only"),
    };
    let (path, target) = (shown(&link.path), shown(link.leads.target()));
    let text = format!("{place} has a {kind} without a file: {path} -> {target}, {why}");
    Error::new(ErrorKind::Unsupported, text).with_help(help)
}
