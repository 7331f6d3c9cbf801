//! A folder as destination. Everything in it is new, and made relative to a descriptor of the folder that it lies in, which
//! was opened without following a link: no name, and no link that is there already, leads out of it.

use std::collections::HashMap;
use std::fs::File;
use std::io::Write;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use rayon::prelude::*;
use rustix::fs::{AtFlags, Mode, OFlags, Timespec, Timestamps, UTIME_OMIT};
use rustix::io::Errno;
use zrfs::store::{NamedNode, NodeId};
use zrfs::{Error, Result};

use super::super::names::Quoted;
use super::lineage::{self, Nodes};
use super::{Item, Link, Outcome, Stop, Tree, UNDONE};

/// Folders that are open at a time.
const OPEN: usize = 128;

/// The folder that is filled.
pub(super) struct Folder<'a> {
    root: BorrowedFd<'a>,
    /// What messages call it.
    place: String,
    stop: &'a Stop,
    open: HashMap<NodeId, Arc<OwnedFd>>,
    /// Those that were made, which get their times when they are filled.
    made: Vec<NodeId>,
}

/// A file that is to be written to an open folder.
type Ready<'r, 's> = (Option<Arc<OwnedFd>>, &'r Item<'s>, &'r [u8]);

impl<'a> Folder<'a> {
    /// `root` is a folder that is empty.
    pub(super) fn new(root: &'a File, place: String, stop: &'a Stop) -> Folder<'a> {
        Folder { root: root.as_fd(), place, stop, open: HashMap::new(), made: Vec::new() }
    }

    /// The folder `id`, made where it is not there, with those that lead there; `None` is the root.
    fn enter(&mut self, nodes: &dyn Nodes, id: NodeId) -> Result<Option<Arc<OwnedFd>>> {
        if id == NodeId::ROOT {
            return Ok(None);
        }
        if let Some(open) = self.open.get(&id) {
            return Ok(Some(Arc::clone(open)));
        }
        let mut at = None;
        for node in lineage::of(nodes, id)? {
            let next = match self.open.get(&node.id) {
                Some(open) => Arc::clone(open),
                None => Arc::new(self.enter_one(at.as_ref(), &node)?),
            };
            if self.open.len() < OPEN {
                self.open.insert(node.id, Arc::clone(&next));
            }
            at = Some(next);
        }
        Ok(at)
    }

    /// As [`Folder::enter`], where no other folder has to stay open.
    fn enter_alone(&mut self, nodes: &dyn Nodes, id: NodeId) -> Result<Option<Arc<OwnedFd>>> {
        if self.open.len() >= OPEN {
            self.open.clear();
        }
        self.enter(nodes, id)
    }

    fn enter_one(&mut self, parent: Option<&Arc<OwnedFd>>, node: &NamedNode) -> Result<OwnedFd> {
        let parent = self.fd(parent);
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let open = || rustix::fs::openat(parent, &node.name[..], flags, Mode::empty());
        let opened = match open() {
            Err(Errno::NOENT) => {
                rustix::fs::mkdirat(parent, &node.name[..], Mode::from_raw_mode(0o777))
                    .map_err(|e| self.failed("create the folder", &node.name, e.into()))?;
                self.made.push(node.id);
                open()
            }
            other => other,
        };
        opened.map_err(|e| self.failed("open the folder", &node.name, e.into()))
    }

    fn fd<'f>(&self, folder: Option<&'f Arc<OwnedFd>>) -> BorrowedFd<'f>
    where
        'a: 'f,
    {
        folder.map_or(self.root, |folder| folder.as_fd())
    }

    fn write(&self, files: &[Ready<'_, '_>]) -> Outcome {
        Ok(files.par_iter().try_for_each(|(folder, item, record)| {
            self.stop.check(UNDONE)?;
            lineage::check_name(&item.name)?;
            let write = || -> std::io::Result<()> {
                let mode = Mode::from_raw_mode(if item.executable { 0o777 } else { 0o666 });
                let flags =
                    OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
                let file = rustix::fs::openat(self.fd(folder.as_ref()), &item.name[..], flags, mode)?;
                let mut file = File::from(file);
                file.write_all(item.header)?;
                file.write_all(record)?;
                Ok(rustix::fs::futimens(&file, &modified(item.modified_ns))?)
            };
            write().map_err(|e| self.failed("write", &item.name, e))
        })?)
    }

    fn failed(&self, what: &str, name: &[u8], e: std::io::Error) -> Error {
        Error::io(format!("can't {what} {} in {}", Quoted(name), self.place), e)
    }
}

impl Tree for Folder<'_> {
    fn folder(&mut self, nodes: &dyn Nodes, id: NodeId) -> Outcome {
        self.enter_alone(nodes, id)?;
        Ok(())
    }

    fn records(&mut self, nodes: &dyn Nodes, records: &[(Item<'_>, &[u8])]) -> Outcome {
        let mut ready = Vec::with_capacity(records.len());
        for (item, record) in records {
            if self.open.len() >= OPEN {
                self.write(&ready)?;
                ready.clear();
                self.open.clear();
            }
            let folder = self.enter(nodes, item.folder)?;
            ready.push((folder, item, *record));
        }
        self.write(&ready)
    }

    fn link(&mut self, nodes: &dyn Nodes, link: Link) -> Outcome {
        lineage::check_name(&link.name)?;
        let folder = self.enter_alone(nodes, link.folder)?;
        let (folder, name) = (self.fd(folder.as_ref()), &link.name[..]);
        let make = || -> rustix::io::Result<()> {
            rustix::fs::symlinkat(&link.target[..], folder, name)?;
            rustix::fs::utimensat(folder, name, &modified(link.modified_ns), AtFlags::SYMLINK_NOFOLLOW)
        };
        Ok(make().map_err(|e| self.failed("create the link", name, e.into()))?)
    }

    fn finish(&mut self, nodes: &dyn Nodes) -> Outcome {
        for id in std::mem::take(&mut self.made) {
            self.stop.check(UNDONE)?;
            let Some(node) = nodes.node(id)? else { continue };
            let parent = self.enter_alone(nodes, node.parent)?;
            let (times, flags) = (modified(node.modified_ns), AtFlags::SYMLINK_NOFOLLOW);
            rustix::fs::utimensat(self.fd(parent.as_ref()), &node.name[..], &times, flags)
                .map_err(|e| self.failed("set the time of", &node.name, e.into()))?;
        }
        if let Some(root) = nodes.node(NodeId::ROOT)? {
            rustix::fs::futimens(self.root, &modified(root.modified_ns))
                .map_err(|e| Error::io(format!("can't set the time of {}", self.place), e.into()))?;
        }
        Ok(())
    }
}

/// A time of modification; that of access stays.
fn modified(ns: i64) -> Timestamps {
    let second = 1_000_000_000;
    Timestamps {
        last_access: Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT },
        last_modification: Timespec { tv_sec: ns.div_euclid(second), tv_nsec: ns.rem_euclid(second) },
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{MetadataExt, symlink};
    use std::path::Path;

    use zrfs::store::NodeKind;

    use super::super::lineage::tests::folder;
    use super::*;

    fn item(folder: u32, name: &[u8]) -> Item<'static> {
        let folder = NodeId::from_number(folder);
        Item { folder, name: name.to_vec(), modified_ns: -1, executable: false, header: b"head " }
    }

    fn link(folder: u32, name: &[u8], target: &Path) -> Link {
        let (folder, target) = (NodeId::from_number(folder), target.as_os_str().as_encoded_bytes().to_vec());
        Link { folder, name: name.to_vec(), target, modified_ns: 0 }
    }

    /// A destination in a folder of its own, and what lies beside it.
    struct Around {
        outside: tempfile::TempDir,
        root: File,
        stop: Stop,
    }

    impl Around {
        fn new() -> Around {
            let outside = tempfile::tempdir().unwrap();
            std::fs::create_dir(outside.path().join("dest")).unwrap();
            std::fs::create_dir(outside.path().join("beside")).unwrap();
            std::fs::write(outside.path().join("file"), "untouched").unwrap();
            let root = File::open(outside.path().join("dest")).unwrap();
            Around { outside, root, stop: Stop::default() }
        }

        fn dest(&self) -> Folder<'_> {
            Folder::new(&self.root, "dest".to_owned(), &self.stop)
        }

        fn at(&self, name: &str) -> std::path::PathBuf {
            self.outside.path().join(name)
        }

        fn assert_untouched(&self) {
            assert_eq!(std::fs::read(self.at("file")).unwrap(), b"untouched");
            assert_eq!(std::fs::read_dir(self.at("beside")).unwrap().count(), 0);
            assert_eq!(std::fs::read_dir(self.outside.path()).unwrap().count(), 3);
        }
    }

    #[test]
    fn hostile_names_write_nothing_anywhere() {
        let around = Around::new();
        let absolute = around.at("beside/x");
        for name in [
            &b""[..],
            b".",
            b"..",
            b"../x",
            b"../file",
            b"../beside/x",
            b"a/x",
            b"x\0",
            absolute.as_os_str().as_encoded_bytes(),
        ] {
            let nodes = vec![folder(40, 32, name), folder(41, 40, b"x")];
            assert!(around.dest().records(&nodes, &[(item(32, name), b"bytes")]).is_err(), "{name:?}");
            assert!(around.dest().link(&nodes, link(32, name, Path::new("x"))).is_err(), "{name:?}");
            for id in [40, 41] {
                assert!(around.dest().folder(&nodes, NodeId::from_number(id)).is_err(), "{name:?}");
                assert!(around.dest().records(&nodes, &[(item(id, b"x"), b"bytes")]).is_err(), "{name:?}");
                assert!(around.dest().link(&nodes, link(id, b"x", Path::new("x"))).is_err(), "{name:?}");
            }
            around.assert_untouched();
            assert_eq!(std::fs::read_dir(around.at("dest")).unwrap().count(), 0, "{name:?}");
        }
    }

    #[test]
    fn no_link_is_a_way_out() {
        let around = Around::new();
        let nodes = vec![folder(40, 32, b"d")];
        let in_d = |name: &[u8]| item(40, name);
        // A link in the place of a folder, of a file, and one that leads to a file that is there.
        symlink(around.at("beside"), around.at("dest/d")).unwrap();
        symlink(around.at("beside/new"), around.at("dest/f")).unwrap();
        symlink(around.at("file"), around.at("dest/g")).unwrap();
        assert!(around.dest().records(&nodes, &[(in_d(b"x"), b"bytes")]).is_err());
        assert!(around.dest().folder(&nodes, NodeId::from_number(40)).is_err());
        for name in [&b"f"[..], b"g"] {
            assert!(around.dest().records(&nodes, &[(item(32, name), b"bytes")]).is_err());
        }
        around.assert_untouched();
        // The same from a store that names a link as it names a folder: the folder is there first.
        std::fs::remove_file(around.at("dest/d")).unwrap();
        let mut dest = around.dest();
        assert!(dest.records(&nodes, &[(in_d(b"x"), b"bytes")]).is_ok());
        assert!(dest.link(&nodes, link(32, b"d", &around.at("beside"))).is_err());
        assert!(dest.link(&nodes, link(40, b"out", &around.at("beside"))).is_ok());
        assert!(dest.records(&nodes, &[(in_d(b"y"), b"bytes")]).is_ok());
        assert!(dest.records(&nodes, &[(in_d(b"out"), b"bytes")]).is_err());
        around.assert_untouched();
        assert_eq!(std::fs::read(around.at("dest/d/x")).unwrap(), b"head bytes");
    }

    #[test]
    fn a_file_is_never_written_over() {
        let around = Around::new();
        let nodes = Vec::new();
        let mut dest = around.dest();
        assert!(dest.records(&nodes, &[(item(32, b"x"), b"first")]).is_ok());
        assert!(dest.records(&nodes, &[(item(32, b"x"), b"second")]).is_err());
        assert_eq!(std::fs::read(around.at("dest/x")).unwrap(), b"head first");
    }

    #[test]
    fn more_folders_than_are_open_at_a_time_get_files_and_times() {
        let around = Around::new();
        let mut nodes: Vec<_> =
            (0..1000).map(|i| folder(100 + i, if i % 7 == 0 { 32 } else { 99 + i }, b"d")).collect();
        for (i, node) in nodes.iter_mut().enumerate() {
            (node.name, node.modified_ns) =
                (format!("d{i}").into_bytes(), 1_000_000_000 * i as i64 - 500_000_000_001);
        }
        let root = NamedNode { id: NodeId::ROOT, ..folder(32, 32, b"") };
        nodes.push(NamedNode { modified_ns: 7, kind: NodeKind::Folder { folders: 143 }, ..root });
        let items: Vec<_> = (0..1000).map(|i| (item(100 + i * 383 % 1000, b"f"), &b"bytes"[..])).collect();
        let mut dest = around.dest();
        assert!(dest.records(&nodes, &items).is_ok());
        assert!(dest.finish(&nodes).is_ok());
        let mut seen = 0;
        for node in nodes.iter().filter(|node| node.id != NodeId::ROOT) {
            let mut path = around.at("dest");
            for folder in lineage::of(&nodes, node.id).ok().unwrap() {
                path.push(String::from_utf8(folder.name).unwrap());
            }
            let ns = |path: &Path| {
                let data = path.metadata().unwrap();
                data.mtime() * 1_000_000_000 + data.mtime_nsec()
            };
            assert_eq!(ns(&path), node.modified_ns);
            assert_eq!(
                (std::fs::read(path.join("f")).unwrap(), ns(&path.join("f"))),
                (b"head bytes".to_vec(), -1)
            );
            seen += 1;
        }
        assert_eq!((seen, around.at("dest").metadata().unwrap().mtime_nsec()), (1000, 7));
    }
}
