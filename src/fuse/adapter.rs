//! Requests of the kernel, each decoded, handed to the view and answered: nothing else.
//!
//! A panic in a handler would end its thread, and the mount would hang when the last is gone. So every handler runs
//! under a guard; the reply object that a panic drops answers EIO.

use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use fuser::{
    Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags, Generation, INodeNo, InitFlags,
    KernelConfig, LockOwner, OpenAccMode, OpenFlags, ReplyAttr, ReplyData, ReplyDirectory,
    ReplyDirectoryPlus, ReplyEmpty, ReplyEntry, ReplyIoctl, ReplyLseek, ReplyOpen, ReplyStatfs, ReplyXattr,
    Request,
};

use super::affinity;
use super::errno::errno;
use crate::view::{Attributes, Kind, Listing, Node, View};

/// How long the kernel keeps names and attributes that change only when we say so.
const STABLE: Duration = Duration::from_secs(24 * 60 * 60);
/// Requests that the kernel sends ahead, such as readahead.
const BACKGROUND: u16 = 64;
/// A read of at most this many bytes from the start is that of a whole small file.
const WHOLE_FILE: u32 = 128 << 10;
/// Block size in statfs and stat. Nothing depends on it.
const BLOCK: u32 = 4096;

pub(super) struct Adapter {
    view: Arc<View>,
    /// The kernel opens directories by itself once we say that we need no word of it: two requests less for each folder.
    opens_directories: bool,
}

impl Adapter {
    pub(super) fn new(view: Arc<View>) -> Adapter {
        Adapter { view, opens_directories: false }
    }

    fn listing(&self, ino: INodeNo) -> Result<Listing<'_>, Errno> {
        node(ino).and_then(|node| self.view.list(node).map_err(|e| errno(&e)))
    }

    fn attr(&self, attributes: &Attributes) -> FileAttr {
        let (uid, gid) = self.view.owner();
        FileAttr {
            ino: INodeNo(attributes.node.number()),
            size: attributes.size,
            blocks: attributes.size.div_ceil(512),
            atime: attributes.modified,
            mtime: attributes.modified,
            ctime: attributes.changed,
            crtime: attributes.modified,
            kind: file_type(attributes.kind),
            perm: attributes.mode,
            nlink: attributes.links,
            uid,
            gid,
            rdev: 0,
            blksize: BLOCK,
            flags: 0,
        }
    }
}

fn file_type(kind: Kind) -> FileType {
    match kind {
        Kind::Directory => FileType::Directory,
        Kind::File => FileType::RegularFile,
        Kind::Link => FileType::Symlink,
    }
}

fn ttl(attributes: &Attributes) -> Duration {
    if attributes.stable { STABLE } else { Duration::ZERO }
}

/// Runs a handler; what it panics with is logged, and the reply that it drops answers EIO.
fn guarded(request: &str, handler: impl FnOnce()) {
    if catch_unwind(AssertUnwindSafe(handler)).is_err() {
        log::error!("a bug in zrfs: {request} panicked; the request was answered with EIO");
    }
}

/// Node of an inode number that the kernel sends back to us.
fn node(ino: INodeNo) -> Result<Node, Errno> {
    Node::from_number(ino.0).ok_or(Errno::ESTALE)
}

impl Filesystem for Adapter {
    fn init(&mut self, _req: &Request, config: &mut KernelConfig) -> io::Result<()> {
        // Only what is handled here; each is a gain, none a need.
        for capability in [
            InitFlags::FUSE_ASYNC_READ,
            InitFlags::FUSE_PARALLEL_DIROPS,
            InitFlags::FUSE_DO_READDIRPLUS,
            InitFlags::FUSE_READDIRPLUS_AUTO,
            InitFlags::FUSE_CACHE_SYMLINKS,
            InitFlags::FUSE_ABORT_ERROR,
        ] {
            let _ = config.add_capabilities(capability);
        }
        self.opens_directories = config.capabilities().contains(InitFlags::FUSE_NO_OPENDIR_SUPPORT);
        let _ = config.set_max_background(BACKGROUND);
        Ok(())
    }

    fn lookup(&self, req: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        affinity::looked_up(req.pid());
        guarded("lookup", || {
            let found = node(parent)
                .and_then(|parent| self.view.lookup(parent, name.as_bytes()).map_err(|e| errno(&e)));
            match found {
                // The name of a control file stays; only its attributes don't.
                Ok(found) => {
                    reply.entry_with_ttls(&ttl(&found), &STABLE, &self.attr(&found), Generation(0));
                }
                Err(e) => reply.error(e),
            }
        });
    }

    fn getattr(&self, _req: &Request, ino: INodeNo, _fh: Option<FileHandle>, reply: ReplyAttr) {
        guarded("getattr", || {
            match node(ino).and_then(|node| self.view.attributes(node).map_err(|e| errno(&e))) {
                Ok(found) => reply.attr(&ttl(&found), &self.attr(&found)),
                Err(e) => reply.error(e),
            }
        });
    }

    fn readlink(&self, _req: &Request, ino: INodeNo, reply: ReplyData) {
        guarded("readlink", || {
            match node(ino).and_then(|node| self.view.link_target(node).map_err(|e| errno(&e))) {
                Ok(target) => reply.data(&target),
                Err(e) => reply.error(e),
            }
        });
    }

    fn open(&self, req: &Request, ino: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        affinity::opened(req.pid());
        guarded("open", || {
            if flags.acc_mode() != OpenAccMode::O_RDONLY {
                return reply.error(Errno::EROFS);
            }
            let opened =
                node(ino).and_then(|node| self.view.open(node).map(|fh| (node, fh)).map_err(|e| errno(&e)));
            match opened {
                // The pages of a record outlive its openings, and a close has nothing to tell us.
                Ok((Node::Record(_), handle)) => {
                    let flags = FopenFlags::FOPEN_KEEP_CACHE | FopenFlags::FOPEN_NOFLUSH;
                    reply.opened(FileHandle(handle), flags);
                }
                Ok((_, handle)) => {
                    let flags = FopenFlags::FOPEN_DIRECT_IO | FopenFlags::FOPEN_NOFLUSH;
                    reply.opened(FileHandle(handle), flags);
                }
                Err(e) => reply.error(e),
            }
        });
    }

    fn read(
        &self,
        _req: &Request,
        ino: INodeNo,
        fh: FileHandle,
        offset: u64,
        size: u32,
        _flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        reply: ReplyData,
    ) {
        // A piece of a large file: the kernel reads ahead while the client works on what it has.
        if offset > 0 || size > WHOLE_FILE {
            affinity::roam();
        }
        guarded("read", || {
            let mut reply = Some(reply);
            let send = |bytes: &[u8]| {
                if let Some(reply) = reply.take() {
                    reply.data(bytes);
                }
            };
            let done = node(ino)
                .and_then(|node| self.view.read(node, fh.0, offset, size, send).map_err(|e| errno(&e)));
            if let (Err(e), Some(reply)) = (done, reply) {
                reply.error(e);
            }
        });
    }

    fn release(
        &self,
        _req: &Request,
        ino: INodeNo,
        fh: FileHandle,
        _flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        _flush: bool,
        reply: ReplyEmpty,
    ) {
        guarded("release", || {
            if let Ok(node) = node(ino) {
                self.view.release(node, fh.0);
            }
            reply.ok();
        });
    }

    fn opendir(&self, _req: &Request, ino: INodeNo, _flags: OpenFlags, reply: ReplyOpen) {
        guarded("opendir", || match node(ino) {
            // For good: from now on it does what the flags below say.
            Ok(_) if self.opens_directories => reply.error(Errno::ENOSYS),
            Ok(_) => {
                let flags = FopenFlags::FOPEN_CACHE_DIR | FopenFlags::FOPEN_KEEP_CACHE;
                reply.opened(FileHandle(0), flags);
            }
            Err(e) => reply.error(e),
        });
    }

    fn readdir(&self, _req: &Request, ino: INodeNo, _fh: FileHandle, offset: u64, mut reply: ReplyDirectory) {
        guarded("readdir", || {
            let told = self.listing(ino).and_then(|listing| {
                let told = listing.each(offset, |entry| {
                    let ino = INodeNo(entry.node.number());
                    reply.add(ino, entry.next, file_type(entry.kind), OsStr::from_bytes(entry.name))
                });
                told.map_err(|e| errno(&e))
            });
            match told {
                Ok(()) => reply.ok(),
                Err(e) => reply.error(e),
            }
        });
    }

    fn readdirplus(
        &self,
        _req: &Request,
        ino: INodeNo,
        _fh: FileHandle,
        offset: u64,
        mut reply: ReplyDirectoryPlus,
    ) {
        guarded("readdirplus", || {
            let told = self.listing(ino).and_then(|listing| {
                let told = listing.each(offset, |entry| {
                    let name = OsStr::from_bytes(entry.name);
                    let found = listing.attributes(&entry);
                    let (attr, ttl) = (self.attr(&found), ttl(&found));
                    reply.add(attr.ino, entry.next, name, &ttl, &attr, Generation(0))
                });
                told.map_err(|e| errno(&e))
            });
            match told {
                Ok(()) => reply.ok(),
                Err(e) => reply.error(e),
            }
        });
    }

    fn statfs(&self, _req: &Request, _ino: INodeNo, reply: ReplyStatfs) {
        guarded("statfs", || match self.view.space() {
            // A packed store is full by nature: what it takes is all there is.
            Ok(space) => {
                let blocks = space.bytes.div_ceil(u64::from(BLOCK));
                reply.statfs(blocks, 0, 0, space.files, 0, BLOCK, 255, BLOCK);
            }
            Err(e) => reply.error(errno(&e)),
        });
    }

    // What follows answers "not here" for good, so that the kernel stops asking; fuser's own answers also log.

    fn getxattr(&self, _req: &Request, _ino: INodeNo, _name: &OsStr, _size: u32, reply: ReplyXattr) {
        reply.error(Errno::ENOSYS);
    }

    fn listxattr(&self, _req: &Request, _ino: INodeNo, _size: u32, reply: ReplyXattr) {
        reply.error(Errno::ENOSYS);
    }

    fn lseek(
        &self,
        _req: &Request,
        _ino: INodeNo,
        _fh: FileHandle,
        _offset: i64,
        _whence: i32,
        reply: ReplyLseek,
    ) {
        reply.error(Errno::ENOSYS);
    }

    fn ioctl(
        &self,
        _req: &Request,
        _ino: INodeNo,
        _fh: FileHandle,
        _flags: fuser::IoctlFlags,
        _cmd: u32,
        _in_data: &[u8],
        _out_size: u32,
        reply: ReplyIoctl,
    ) {
        reply.error(Errno::ENOTTY);
    }
}
