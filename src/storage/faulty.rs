//! The disk's twin for tests: a real folder, where every change is recorded and a chosen one fails.

use std::io;
use std::ops::Range;
use std::path::Path;
use std::sync::{Arc, Mutex};

use super::{Access, Attributes, Directory, Disk, Lease, Lock, Map, Process, StorageFile};

/// A change of the disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Op {
    Create(String),
    Write {
        file: String,
        at: u64,
        bytes: Vec<u8>,
    },
    SetLen {
        file: String,
        len: u64,
    },
    Sync(String),
    /// Of a folder: the store's own is the empty name.
    SyncFolder(String),
    Remove(String),
    MakeFolder(String),
    Free {
        file: String,
        at: u64,
        len: u64,
    },
    Allocate {
        file: String,
        at: u64,
        len: u64,
    },
}

/// What was done, and what is to fail. Shared between a folder and the test that watches it.
#[derive(Clone, Default)]
pub(crate) struct Script(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    done: Vec<Op>,
    /// How many changes still succeed before all fail, or one, and with which errno.
    fail: Option<(usize, i32)>,
    once: bool,
    failed: bool,
    no_locks: bool,
    /// What was asked for ahead of need.
    wanted: Vec<(String, Range<u64>)>,
}

impl Script {
    /// The changes so far, in order; forgets them.
    pub(crate) fn take(&self) -> Vec<Op> {
        std::mem::take(&mut self.0.lock().unwrap().done)
    }

    /// The ranges that were asked for ahead of need, in order; forgets them.
    pub(crate) fn take_wanted(&self) -> Vec<(String, Range<u64>)> {
        std::mem::take(&mut self.0.lock().unwrap().wanted)
    }

    /// After `count` more changes every one fails with `errno`.
    pub(crate) fn fail_after(&self, count: usize, errno: i32) {
        let mut state = self.0.lock().unwrap();
        (state.fail, state.once, state.failed) = (Some((count, errno)), false, false);
    }

    /// After `count` more changes one fails with `errno`.
    pub(crate) fn fail_once_after(&self, count: usize, errno: i32) {
        self.fail_after(count, errno);
        self.0.lock().unwrap().once = true;
    }

    /// From here on the file system has no locks.
    pub(crate) fn without_locks(&self) {
        self.0.lock().unwrap().no_locks = true;
    }

    /// Whether no change has failed since one was told to.
    pub(crate) fn untouched(&self) -> bool {
        !self.0.lock().unwrap().failed
    }

    /// Nothing fails any more.
    pub(crate) fn heal(&self) {
        self.0.lock().unwrap().fail = None;
    }

    fn change(&self, op: Op, work: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
        let mut state = self.0.lock().unwrap();
        match &mut state.fail {
            Some((0, errno)) => {
                let e = io::Error::from_raw_os_error(*errno);
                state.failed = true;
                if state.once {
                    state.fail = None;
                }
                return Err(e);
            }
            Some((left, _)) => *left -= 1,
            None => {}
        }
        work()?;
        state.done.push(op);
        Ok(())
    }
}

/// A folder on disk under a script. Names in the script are relative to the store's folder; those of another store begin
/// with its path.
pub(crate) struct Faulty {
    disk: Box<dyn Directory>,
    prefix: String,
    script: Script,
}

impl Faulty {
    pub(crate) fn open(path: &Path, script: &Script) -> Faulty {
        Faulty { disk: Box::new(Disk::open(path).unwrap()), prefix: String::new(), script: script.clone() }
    }

    /// As [`Faulty::open`], with a prefix for the names of its files.
    pub(crate) fn open_as(path: &Path, prefix: &str, script: &Script) -> Faulty {
        Faulty { prefix: format!("{prefix}/"), ..Faulty::open(path, script) }
    }

    fn name(&self, name: &str) -> String {
        format!("{}{name}", self.prefix)
    }

    fn wrap(&self, name: &str, file: Arc<dyn StorageFile>) -> Arc<dyn StorageFile> {
        Arc::new(FaultyFile { name: self.name(name), file, script: self.script.clone() })
    }
}

impl Directory for Faulty {
    fn open(&self, name: &str, access: Access) -> io::Result<Arc<dyn StorageFile>> {
        Ok(self.wrap(name, self.disk.open(name, access)?))
    }

    fn create(&self, name: &str) -> io::Result<Arc<dyn StorageFile>> {
        let mut file = None;
        self.script.change(Op::Create(self.name(name)), || {
            file = Some(self.disk.create(name)?);
            Ok(())
        })?;
        Ok(self.wrap(name, file.unwrap()))
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.script.change(Op::Remove(self.name(name)), || self.disk.remove(name))
    }

    fn sync(&self) -> io::Result<()> {
        let name = self.prefix.trim_end_matches('/').to_owned();
        self.script.change(Op::SyncFolder(name), || self.disk.sync())
    }

    fn openers(&self, name: &str) -> Vec<Process> {
        self.disk.openers(name)
    }

    fn folder(&self, name: &str) -> io::Result<Box<dyn Directory>> {
        let prefix = format!("{}/", self.name(name));
        Ok(Box::new(Faulty { disk: self.disk.folder(name)?, prefix, script: self.script.clone() }))
    }

    fn make_folder(&self, name: &str) -> io::Result<Box<dyn Directory>> {
        if self.disk.folder(name).is_err() {
            self.script.change(Op::MakeFolder(self.name(name)), || self.disk.make_folder(name).map(drop))?;
        }
        self.folder(name)
    }

    fn neighbour(&self, path: &Path) -> io::Result<Box<dyn Directory>> {
        let disk = self.disk.neighbour(path)?;
        // Tests keep the stores of one step side by side.
        let name = path.file_name().unwrap().to_str().unwrap();
        Ok(Box::new(Faulty { disk, prefix: format!("{name}/"), script: self.script.clone() }))
    }
}

struct FaultyFile {
    name: String,
    file: Arc<dyn StorageFile>,
    script: Script,
}

impl StorageFile for FaultyFile {
    fn read_at(&self, buf: &mut [u8], at: u64) -> io::Result<usize> {
        self.file.read_at(buf, at)
    }

    /// Nothing is in memory here.
    fn read_cached(&self, _buf: &mut [u8], _at: u64) -> usize {
        0
    }

    fn will_need(&self, at: u64, len: u64) {
        self.script.0.lock().unwrap().wanted.push((self.name.clone(), at..at + len));
        self.file.will_need(at, len);
    }

    fn write_at(&self, bytes: &[u8], at: u64) -> io::Result<()> {
        let op = Op::Write { file: self.name.clone(), at, bytes: bytes.to_vec() };
        self.script.change(op, || self.file.write_at(bytes, at))
    }

    fn attributes(&self) -> io::Result<Attributes> {
        self.file.attributes()
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.script.change(Op::SetLen { file: self.name.clone(), len }, || self.file.set_len(len))
    }

    fn free(&self, at: u64, len: u64) -> io::Result<()> {
        let op = Op::Free { file: self.name.clone(), at, len };
        self.script.change(op, || self.file.free(at, len))
    }

    fn allocate(&self, at: u64, len: u64) -> io::Result<()> {
        let op = Op::Allocate { file: self.name.clone(), at, len };
        self.script.change(op, || self.file.allocate(at, len))
    }

    fn sync(&self) -> io::Result<()> {
        self.script.change(Op::Sync(self.name.clone()), || self.file.sync())
    }

    fn map(&self, len: u64) -> io::Result<Map> {
        self.file.map(len)
    }

    fn lock(&self, byte: u64, lock: Lock) -> io::Result<bool> {
        if self.script.0.lock().unwrap().no_locks {
            return Err(io::Error::from_raw_os_error(libc::ENOLCK));
        }
        self.file.lock(byte, lock)
    }

    fn unlock(&self, byte: u64) -> io::Result<()> {
        self.file.unlock(byte)
    }

    fn lock_holders(&self, byte: u64) -> Vec<Process> {
        self.file.lock_holders(byte)
    }

    fn lease(&self) -> Lease {
        self.file.lease()
    }

    fn end_lease(&self) {
        self.file.end_lease();
    }

    fn openers(&self) -> Vec<Process> {
        self.file.openers()
    }

    fn is_inherited(&self) -> bool {
        self.file.is_inherited()
    }
}
