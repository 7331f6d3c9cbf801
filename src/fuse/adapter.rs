//! Requests of the kernel, each decoded, handed to the view and answered: nothing else.
//!
//! A panic in a handler would end its thread, and the mount would hang when the last is gone. So every handler runs
//! under a guard; the reply object that a panic drops answers EIO.

use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use fuser::{
    BsdFileFlags, CopyFileRangeFlags, Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags,
    Generation, INodeNo, InitFlags, KernelConfig, LockOwner, OpenAccMode, OpenFlags, PollEvents, PollFlags,
    PollNotifier, RenameFlags, ReplyAttr, ReplyCreate, ReplyData, ReplyDirectory, ReplyDirectoryPlus,
    ReplyEmpty, ReplyEntry, ReplyIoctl, ReplyLseek, ReplyOpen, ReplyPoll, ReplyStatfs, ReplyWrite,
    ReplyXattr, Request, TimeOrNow, WriteFlags,
};

use super::control::{Job, Jobs};
use super::errno::{errno, refusal};
use super::idle::{self, Mark};
use super::{MountOptions, affinity};
use crate::error::Error;
use crate::view::{Access, Attributes, Keep, Kind, Listing, Node, Opened, Opening, Paging, View, Written};

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
    /// What a handler must not do itself.
    jobs: Jobs,
    /// The kernel opens directories by itself once we say that we need no word of it: two requests less for each folder.
    opens_directories: bool,
    /// The same for files, where the mount's are data alone: there is no word of a close either.
    opens_files: bool,
    data_only: bool,
    /// Whether records have extended attributes.
    xattr: bool,
    /// How long the kernel keeps what changes only when we say so.
    stable: Duration,
    /// Raised by requests that a use of the mount begins or ends with: what is between them happens in an open file, which
    /// the kernel knows of. A forget comes when memory is short, and statfs from whoever watches over all mounts: these are
    /// no use.
    mark: Mark,
}

impl Adapter {
    pub(super) fn new(view: Arc<View>, jobs: Jobs, mark: Mark, options: &MountOptions) -> Adapter {
        let &MountOptions { data_only, xattr, idle, .. } = options;
        let stable = idle.map_or(STABLE, |limit| STABLE.min(idle::kept_for(limit)));
        Adapter { view, jobs, opens_directories: false, opens_files: false, data_only, xattr, stable, mark }
    }

    /// How long the kernel may keep a name, and the attributes behind it.
    fn ttls(&self, attributes: &Attributes) -> (Duration, Duration) {
        match attributes.keep {
            Keep::All => (self.stable, self.stable),
            Keep::Name => (self.stable, Duration::ZERO),
            Keep::Nothing => (Duration::ZERO, Duration::ZERO),
        }
    }

    fn listing(&self, ino: INodeNo) -> Result<Listing<'_>, Errno> {
        node(ino).and_then(|node| self.view.list(node).map_err(|e| errno(&e)))
    }

    fn attr(&self, attributes: &Attributes) -> FileAttr {
        let (uid, gid) = self.view.owner();
        FileAttr {
            ino: INodeNo(attributes.node.number()),
            size: attributes.size,
            blocks: attributes.stored.div_ceil(512),
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

/// Answers an opening. The pages of a cached file outlive it, and a close has nothing to tell us.
pub(super) fn opened(reply: ReplyOpen, opened: Opened) {
    let how = match opened.paging {
        Paging::Cached => FopenFlags::FOPEN_KEEP_CACHE,
        Paging::Direct => FopenFlags::FOPEN_DIRECT_IO,
        Paging::Stream => FopenFlags::FOPEN_DIRECT_IO | FopenFlags::FOPEN_NONSEEKABLE,
    };
    reply.opened(FileHandle(opened.handle), how | FopenFlags::FOPEN_NOFLUSH);
}

/// Runs a handler; what it panics with is logged, and the reply that it drops answers EIO.
pub(super) fn guarded(request: &str, handler: impl FnOnce()) {
    if catch_unwind(AssertUnwindSafe(handler)).is_err() {
        log::error!("a bug in zrfs: {request} panicked; the request was answered with EIO");
    }
}

/// Answers with extended attributes: with how long they are where there is no room, which is a question.
fn extended(reply: ReplyXattr, room: u32, bytes: &[u8]) {
    match u32::try_from(bytes.len()) {
        Ok(len) if room == 0 => reply.size(len),
        Ok(len) if len <= room => reply.data(bytes),
        _ => reply.error(Errno::ERANGE),
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
        let offers = |capability| config.capabilities().contains(capability);
        self.opens_directories = offers(InitFlags::FUSE_NO_OPENDIR_SUPPORT);
        self.opens_files = self.data_only && offers(InitFlags::FUSE_NO_OPEN_SUPPORT);
        let _ = config.set_max_background(BACKGROUND);
        Ok(())
    }

    fn lookup(&self, req: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        affinity::looked_up(req.pid());
        self.mark.set();
        let _passage = self.view.passage();
        guarded("lookup", || {
            let found = node(parent)
                .and_then(|parent| self.view.lookup(parent, name.as_bytes()).map_err(|e| errno(&e)));
            match found {
                Ok(found) => {
                    let (name, attributes) = self.ttls(&found);
                    reply.entry_with_ttls(
                        &attributes,
                        &name,
                        &self.attr(&found),
                        Generation(found.generation),
                    );
                }
                Err(e) => reply.error(e),
            }
        });
    }

    fn getattr(&self, _req: &Request, ino: INodeNo, _fh: Option<FileHandle>, reply: ReplyAttr) {
        // Programs that watch mounts, df for one, look at the root of each: that is no use.
        if ino != INodeNo::ROOT {
            self.mark.set();
        }
        let _passage = self.view.passage();
        guarded("getattr", || {
            match node(ino).and_then(|node| self.view.attributes(node).map_err(|e| errno(&e))) {
                Ok(found) => reply.attr(&self.ttls(&found).1, &self.attr(&found)),
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
        self.mark.set();
        guarded("open", || {
            // For good: the kernel opens each file by itself from now on, for reading by its page cache. Nothing can be
            // deleted through such a mount, so nobody needs to know what is open.
            if self.opens_files {
                return reply.error(Errno::ENOSYS);
            }
            let access = match flags.acc_mode() {
                OpenAccMode::O_RDONLY => Access::Read,
                _ => Access::Write,
            };
            let opening = node(ino)
                .and_then(|node| self.view.open(node, access).map(|how| (node, how)).map_err(|e| errno(&e)));
            match opening {
                Ok((_, Opening::Done(done))) => opened(reply, done),
                Ok((node, Opening::Later)) => self.jobs.add(Job::Open(node, access, reply)),
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
        guarded("read", || {
            let node = match node(ino) {
                Ok(node) => node,
                Err(e) => return reply.error(e),
            };
            // A piece of a large file: the kernel reads ahead while the client works on what it has. Batches are decoded on
            // all processors, by threads that begin where this one may run.
            if offset > 0 || size > WHOLE_FILE || node.pins() {
                affinity::roam();
            }
            let answer = move |bytes: Result<&[u8], Error>| match bytes {
                Ok(bytes) => reply.data(bytes),
                Err(e) => reply.error(errno(&e)),
            };
            self.view.read(node, fh.0, offset, size, Box::new(answer));
        });
    }

    fn write(
        &self,
        req: &Request,
        ino: INodeNo,
        fh: FileHandle,
        _offset: u64,
        data: &[u8],
        _write_flags: WriteFlags,
        _flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        guarded("write", || {
            let len = u32::try_from(data.len()).unwrap_or(u32::MAX);
            match node(ino)
                .and_then(|node| self.view.write(node, fh.0, data, req.pid()).map_err(|e| refusal(&e)))
            {
                Ok(Written::Taken) => reply.written(len),
                Ok(Written::Delete(deletion)) => self.jobs.add(Job::Delete(deletion, len, reply)),
                Ok(Written::Compact) => self.jobs.add(Job::Compact(len, reply)),
                Err(e) => reply.error(e),
            }
        });
    }

    // A shell empties a file that it is about to write. That is all that can be set.
    fn setattr(
        &self,
        _req: &Request,
        ino: INodeNo,
        mode: Option<u32>,
        uid: Option<u32>,
        gid: Option<u32>,
        size: Option<u64>,
        atime: Option<TimeOrNow>,
        mtime: Option<TimeOrNow>,
        _ctime: Option<SystemTime>,
        _fh: Option<FileHandle>,
        _crtime: Option<SystemTime>,
        _chgtime: Option<SystemTime>,
        _bkuptime: Option<SystemTime>,
        _flags: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        guarded("setattr", || {
            let others = mode.is_some() || uid.is_some() || gid.is_some();
            // The kernel sends times along with a size.
            let empties = size == Some(0) && !others;
            let is_refused = !empties || !matches!(node(ino), Ok(Node::Delete | Node::Compact));
            if is_refused {
                let sets = others || atime.is_some() || mtime.is_some();
                return reply.error(if sets && size.is_none() { Errno::EPERM } else { Errno::EROFS });
            }
            match node(ino).and_then(|node| self.view.attributes(node).map_err(|e| errno(&e))) {
                Ok(found) => reply.attr(&self.ttls(&found).1, &self.attr(&found)),
                Err(e) => reply.error(e),
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
        self.mark.set();
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
        self.mark.set();
        let _passage = self.view.passage();
        guarded("readdir", || {
            let told = self.listing(ino).and_then(|listing| {
                let told = listing.each(offset, false, |entry, _| {
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
        self.mark.set();
        let _passage = self.view.passage();
        guarded("readdirplus", || {
            let told = self.listing(ino).and_then(|listing| {
                let told = listing.each(offset, true, |entry, found| {
                    // A listing that is asked for attributes gives them with each entry.
                    let Some(found) = found else { return true };
                    // One time for both: that of the attributes, which is the shorter one.
                    let (attr, ttl) = (self.attr(&found), self.ttls(&found).1);
                    let name = OsStr::from_bytes(entry.name);
                    reply.add(attr.ino, entry.next, name, &ttl, &attr, Generation(found.generation))
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

    // Without the option both are answered "not here" for good: `ls -l` asks for security labels, file by file.

    fn getxattr(&self, _req: &Request, ino: INodeNo, name: &OsStr, size: u32, reply: ReplyXattr) {
        if !self.xattr {
            return reply.error(Errno::ENOSYS);
        }
        guarded("getxattr", || {
            let found = node(ino)
                .and_then(|node| self.view.extended_attribute(node, name.as_bytes()).map_err(|e| errno(&e)));
            match found {
                Ok(Some(value)) => extended(reply, size, value.as_bytes()),
                Ok(None) => reply.error(Errno::ENODATA),
                Err(e) => reply.error(e),
            }
        });
    }

    fn listxattr(&self, _req: &Request, ino: INodeNo, size: u32, reply: ReplyXattr) {
        if !self.xattr {
            return reply.error(Errno::ENOSYS);
        }
        guarded("listxattr", || match node(ino) {
            Ok(node) => {
                let names = self.view.attribute_names(node).iter();
                let list: Vec<u8> = names.flat_map(|name| name.bytes().chain([0])).collect();
                extended(reply, size, &list);
            }
            Err(e) => reply.error(e),
        });
    }

    // What follows answers "not here" for good, so that the kernel stops asking; fuser's own answers also log.

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

    fn flush(
        &self,
        _req: &Request,
        _ino: INodeNo,
        _fh: FileHandle,
        _lock_owner: LockOwner,
        reply: ReplyEmpty,
    ) {
        reply.error(Errno::ENOSYS);
    }

    fn fsync(&self, _req: &Request, _ino: INodeNo, _fh: FileHandle, _datasync: bool, reply: ReplyEmpty) {
        reply.error(Errno::ENOSYS);
    }

    fn fsyncdir(&self, _req: &Request, _ino: INodeNo, _fh: FileHandle, _datasync: bool, reply: ReplyEmpty) {
        reply.error(Errno::ENOSYS);
    }

    fn fallocate(
        &self,
        _req: &Request,
        _ino: INodeNo,
        _fh: FileHandle,
        _offset: u64,
        _length: u64,
        _mode: i32,
        reply: ReplyEmpty,
    ) {
        reply.error(Errno::ENOSYS);
    }

    fn copy_file_range(
        &self,
        _req: &Request,
        _ino_in: INodeNo,
        _fh_in: FileHandle,
        _offset_in: u64,
        _ino_out: INodeNo,
        _fh_out: FileHandle,
        _offset_out: u64,
        _len: u64,
        _flags: CopyFileRangeFlags,
        reply: ReplyWrite,
    ) {
        reply.error(Errno::ENOSYS);
    }

    fn poll(
        &self,
        _req: &Request,
        _ino: INodeNo,
        _fh: FileHandle,
        _ph: PollNotifier,
        _events: PollEvents,
        _flags: PollFlags,
        reply: ReplyPoll,
    ) {
        reply.error(Errno::ENOSYS);
    }

    fn setxattr(
        &self,
        _req: &Request,
        _ino: INodeNo,
        _name: &OsStr,
        _value: &[u8],
        _flags: i32,
        _position: u32,
        reply: ReplyEmpty,
    ) {
        reply.error(Errno::ENOSYS);
    }

    fn removexattr(&self, _req: &Request, _ino: INodeNo, _name: &OsStr, reply: ReplyEmpty) {
        reply.error(Errno::ENOSYS);
    }

    // Names are those of the records: there is nothing to create, to move or to remove, for root neither.

    fn create(
        &self,
        _req: &Request,
        _parent: INodeNo,
        _name: &OsStr,
        _mode: u32,
        _umask: u32,
        _flags: i32,
        reply: ReplyCreate,
    ) {
        reply.error(Errno::EPERM);
    }

    fn mknod(
        &self,
        _req: &Request,
        _parent: INodeNo,
        _name: &OsStr,
        _mode: u32,
        _umask: u32,
        _rdev: u32,
        reply: ReplyEntry,
    ) {
        reply.error(Errno::EPERM);
    }

    fn mkdir(
        &self,
        _req: &Request,
        _parent: INodeNo,
        _name: &OsStr,
        _mode: u32,
        _umask: u32,
        reply: ReplyEntry,
    ) {
        reply.error(Errno::EPERM);
    }

    fn symlink(&self, _req: &Request, _parent: INodeNo, _name: &OsStr, _target: &Path, reply: ReplyEntry) {
        reply.error(Errno::EPERM);
    }

    fn link(&self, _req: &Request, _ino: INodeNo, _parent: INodeNo, _name: &OsStr, reply: ReplyEntry) {
        reply.error(Errno::EPERM);
    }

    fn rename(
        &self,
        _req: &Request,
        _parent: INodeNo,
        _name: &OsStr,
        _newparent: INodeNo,
        _newname: &OsStr,
        _flags: RenameFlags,
        reply: ReplyEmpty,
    ) {
        reply.error(Errno::EPERM);
    }

    fn unlink(&self, _req: &Request, _parent: INodeNo, _name: &OsStr, reply: ReplyEmpty) {
        reply.error(Errno::EPERM);
    }

    fn rmdir(&self, _req: &Request, _parent: INodeNo, _name: &OsStr, reply: ReplyEmpty) {
        reply.error(Errno::EPERM);
    }
}
