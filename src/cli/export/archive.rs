//! A tar archive as destination: GNU's format, with pax records for times that are no whole seconds.
//!
//! First all files, then each folder with the links in it and the folders below it. GNU tar gives a folder its time when it
//! leaves it, or, where links in it wait for the end, then: what came into it later would change that. Links are behind all
//! files, so that no reader, however simple, writes a file through one.

use std::collections::BTreeMap;
use std::io::{self, Write};

use tar::{EntryType, Header};
use zrfs::store::NodeId;
use zrfs::{Error, ErrorKind};

use super::super::names::Quoted;
use super::super::output;
use super::lineage::{self, Nodes};
use super::{Item, Link, Outcome, Tree};

/// Longest name and longest target of a link that a header holds, in bytes.
const IN_HEADER: usize = 100;
/// What everything in an archive is padded to, and an end of one is made of.
const BLOCK: [u8; 512] = [0; 512];
/// In nanoseconds.
const SECOND: i64 = 1_000_000_000;
/// What GNU tar calls an entry that holds the name of the next one.
const LONG: &[u8] = b"././@LongLink";

/// An archive that ends where `finish` is called: one that is broken off has no end.
pub(super) struct Archive<W> {
    out: W,
    /// What messages call it.
    place: String,
    /// The folders that belong in it, by their paths, each with a slash behind it. So those below one follow it.
    folders: BTreeMap<Vec<u8>, Inside>,
    /// The folder of the last file, and its path.
    last: (NodeId, Vec<u8>),
}

/// A folder's time, and the links in it.
#[derive(Default)]
struct Inside {
    modified_ns: i64,
    links: Vec<Link>,
}

impl<W: Write> Archive<W> {
    pub(super) fn new(out: W, place: String) -> Archive<W> {
        let folders = BTreeMap::from([(Vec::new(), Inside::default())]);
        Archive { out, place, folders, last: (NodeId::ROOT, Vec::new()) }
    }

    /// Notes the folder `id` and those that lead there; sets `last` to it.
    fn enter(&mut self, nodes: &dyn Nodes, id: NodeId) -> Outcome {
        if self.last.0 == id {
            return Ok(());
        }
        let mut path = Vec::new();
        for node in lineage::of(nodes, id)? {
            path.extend_from_slice(&node.name);
            path.push(b'/');
            self.folders.entry(path.clone()).or_default().modified_ns = node.modified_ns;
        }
        self.last = (id, path);
        Ok(())
    }

    fn path(&self, name: &[u8]) -> Vec<u8> {
        [&self.last.1, name].concat()
    }

    fn add(
        &mut self,
        header: Header,
        path: &[u8],
        target: &[u8],
        modified_ns: i64,
        data: &[&[u8]],
    ) -> Outcome {
        let added = put(&mut self.out, header, path, target, modified_ns, data);
        added.map_err(|e| output::failed(&self.place, e))
    }
}

impl<W: Write> Tree for Archive<W> {
    fn folder(&mut self, nodes: &dyn Nodes, id: NodeId) -> Outcome {
        self.enter(nodes, id)
    }

    fn records(&mut self, nodes: &dyn Nodes, records: &[(Item<'_>, &[u8])]) -> Outcome {
        for (item, record) in records {
            lineage::check_name(&item.name)?;
            self.enter(nodes, item.folder)?;
            let mode = if item.executable { 0o755 } else { 0o644 };
            let header = header(EntryType::Regular, mode, (item.header.len() + record.len()) as u64);
            self.add(header, &self.path(&item.name), &[], item.modified_ns, &[item.header, record])?;
        }
        Ok(())
    }

    fn link(&mut self, nodes: &dyn Nodes, link: Link) -> Outcome {
        lineage::check_name(&link.name)?;
        self.enter(nodes, link.folder)?;
        let path = self.path(&link.name);
        if self.folders.contains_key(&[&path, &b"/"[..]].concat()) {
            let text = format!("the store names both a folder and a link {}", Quoted(&path));
            return Err(Error::new(ErrorKind::Unsupported, text)
                .with_help("nothing was exported; who made the store may mean harm")
                .into());
        }
        self.folders.entry(self.last.1.clone()).or_default().links.push(link);
        Ok(())
    }

    fn finish(&mut self, _nodes: &dyn Nodes) -> Outcome {
        for (path, Inside { modified_ns, links }) in std::mem::take(&mut self.folders) {
            if !path.is_empty() {
                self.add(header(EntryType::Directory, 0o755, 0), &path, &[], modified_ns, &[])?;
            }
            for Link { name, target, modified_ns, .. } in links {
                let header = header(EntryType::Symlink, 0o777, 0);
                self.add(header, &[&path, &name[..]].concat(), &target, modified_ns, &[])?;
            }
        }
        let ended = self.out.write_all(&[BLOCK; 2].concat()).and_then(|()| self.out.flush());
        ended.map_err(|e| output::failed(&self.place, e))
    }
}

fn header(kind: EntryType, mode: u32, size: u64) -> Header {
    let mut header = Header::new_gnu();
    header.set_entry_type(kind);
    header.set_mode(mode);
    header.set_uid(0);
    header.set_gid(0);
    header.set_size(size);
    header
}

/// Writes an entry. Names and targets go in byte by byte: `tar`'s own way in tidies them up.
fn put(
    out: &mut impl Write,
    mut header: Header,
    path: &[u8],
    target: &[u8],
    modified_ns: i64,
    data: &[&[u8]],
) -> io::Result<()> {
    let seconds = modified_ns.div_euclid(SECOND);
    if seconds < 0 || modified_ns % SECOND != 0 {
        let (sign, ns) = (if modified_ns < 0 { "-" } else { "" }, modified_ns.unsigned_abs());
        let time = format!("{sign}{}.{:09}", ns / SECOND.unsigned_abs(), ns % SECOND.unsigned_abs());
        let record = pax_record("mtime", &time);
        let header = self::header(EntryType::XHeader, 0o644, record.len() as u64);
        put_blocks(out, header, b"PaxHeader", &[record.as_bytes()])?;
    }
    for (kind, name) in [(EntryType::GNULongName, path), (EntryType::GNULongLink, target)] {
        if name.len() > IN_HEADER {
            let header = self::header(kind, 0o644, name.len() as u64 + 1);
            put_blocks(out, header, LONG, &[name, b"\0"])?;
        }
    }
    header.set_mtime(u64::try_from(seconds).unwrap_or(0));
    header.set_link_name_literal(target.get(..IN_HEADER).unwrap_or(target))?;
    put_blocks(out, header, path, data)
}

/// Writes a header, with as much of the name as it holds, and what it says follows, to the end of a block.
fn put_blocks(out: &mut impl Write, mut header: Header, name: &[u8], data: &[&[u8]]) -> io::Result<()> {
    header.as_old_mut().name.iter_mut().zip(name).for_each(|(to, from)| *to = *from);
    header.set_cksum();
    out.write_all(header.as_bytes())?;
    data.iter().try_for_each(|data| out.write_all(data))?;
    let len: usize = data.iter().map(|data| data.len()).sum();
    out.write_all(BLOCK.get(..len.next_multiple_of(BLOCK.len()) - len).unwrap_or_default())
}

/// `30 mtime=1700000000.123456789` and a newline: the number is that of its bytes, its own digits among them.
fn pax_record(key: &str, value: &str) -> String {
    let rest = key.len() + value.len() + " =\n".len();
    let mut len = rest;
    while len != rest + len.to_string().len() {
        len = rest + len.to_string().len();
    }
    format!("{len} {key}={value}\n")
}

#[cfg(test)]
mod tests {
    use super::super::lineage::tests::folder;
    use super::*;

    #[test]
    fn a_pax_record_counts_itself() {
        assert_eq!(pax_record("mtime", "1700000000.123456789"), "30 mtime=1700000000.123456789\n");
        for len in [0, 1, 88, 89, 90, 91, 92, 986, 987, 988, 989] {
            let record = pax_record("k", &"v".repeat(len));
            assert!(record.starts_with(&format!("{} k=", record.len())), "{record}");
        }
    }

    #[test]
    fn no_link_has_a_folder_behind_it() {
        let nodes = vec![folder(40, 32, b"a"), folder(41, 40, b"b")];
        let link = |parent, name: &[u8]| Link {
            folder: NodeId::from_number(parent),
            name: name.to_vec(),
            target: b"/etc".to_vec(),
            modified_ns: 0,
        };
        let mut archive = Archive::new(Vec::new(), "here".to_owned());
        assert!(archive.folder(&nodes, NodeId::from_number(41)).is_ok());
        assert!(archive.link(&nodes, link(32, b"a")).is_err());
        assert!(archive.link(&nodes, link(40, b"b")).is_err());
        assert!(archive.link(&nodes, link(40, b"a")).is_ok());
        assert!(archive.link(&nodes, link(32, b"b")).is_ok());
    }

    #[test]
    fn hostile_names_go_into_no_archive() {
        for name in [&b""[..], b".", b"..", b"../x", b"/etc/x", b"a/../../x", b"x\0"] {
            let nodes = vec![folder(40, 32, name)];
            let mut bytes = Vec::new();
            let mut archive = Archive::new(&mut bytes, "here".to_owned());
            let item = |folder, name: &[u8]| Item {
                folder: NodeId::from_number(folder),
                name: name.to_vec(),
                modified_ns: 0,
                executable: false,
                header: &[],
            };
            assert!(archive.folder(&nodes, NodeId::from_number(40)).is_err());
            for (folder, name) in [(32, name), (40, b"x")] {
                assert!(archive.records(&nodes, &[(item(folder, name), b"bytes")]).is_err());
                let link = Link {
                    folder: NodeId::from_number(folder),
                    name: name.to_vec(),
                    target: b"x".to_vec(),
                    modified_ns: 0,
                };
                assert!(archive.link(&nodes, link).is_err());
            }
            assert!(archive.finish(&nodes).is_ok());
            drop(archive);
            assert_eq!(bytes, [0; 1024], "{name:?}");
        }
    }
}
