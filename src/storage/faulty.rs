//! The disk's twin for tests: a real folder, where every change is recorded and a chosen one fails.

use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex};

use super::{Access, Attributes, Directory, Disk, Map, StorageFile};

/// A change of the disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Op {
    Create(String),
    Write { file: String, at: u64, bytes: Vec<u8> },
    SetLen { file: String, len: u64 },
    Sync(String),
    SyncFolder,
    Remove(String),
}

/// What was done, and what is to fail. Shared between a folder and the test that watches it.
#[derive(Clone, Default)]
pub(crate) struct Script(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    done: Vec<Op>,
    /// How many changes still succeed before all fail, and with which errno.
    fail: Option<(usize, i32)>,
}

impl Script {
    /// The changes so far, in order; forgets them.
    pub(crate) fn take(&self) -> Vec<Op> {
        std::mem::take(&mut self.0.lock().unwrap().done)
    }

    /// After `count` more changes every one fails with `errno`.
    pub(crate) fn fail_after(&self, count: usize, errno: i32) {
        self.0.lock().unwrap().fail = Some((count, errno));
    }

    /// Nothing fails any more.
    pub(crate) fn heal(&self) {
        self.0.lock().unwrap().fail = None;
    }

    fn change(&self, op: Op, work: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
        let mut state = self.0.lock().unwrap();
        match &mut state.fail {
            Some((0, errno)) => return Err(io::Error::from_raw_os_error(*errno)),
            Some((left, _)) => *left -= 1,
            None => {}
        }
        work()?;
        state.done.push(op);
        Ok(())
    }
}

/// A folder on disk under a script.
pub(crate) struct Faulty {
    disk: Disk,
    script: Script,
}

impl Faulty {
    pub(crate) fn open(path: &Path, script: &Script) -> Faulty {
        Faulty { disk: Disk::open(path).unwrap(), script: script.clone() }
    }

    fn wrap(&self, name: &str, file: Arc<dyn StorageFile>) -> Arc<dyn StorageFile> {
        Arc::new(FaultyFile { name: name.to_owned(), file, script: self.script.clone() })
    }
}

impl Directory for Faulty {
    fn open(&self, name: &str, access: Access) -> io::Result<Arc<dyn StorageFile>> {
        Ok(self.wrap(name, self.disk.open(name, access)?))
    }

    fn create(&self, name: &str) -> io::Result<Arc<dyn StorageFile>> {
        let mut file = None;
        self.script.change(Op::Create(name.to_owned()), || {
            file = Some(self.disk.create(name)?);
            Ok(())
        })?;
        Ok(self.wrap(name, file.unwrap()))
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.script.change(Op::Remove(name.to_owned()), || self.disk.remove(name))
    }

    fn sync(&self) -> io::Result<()> {
        self.script.change(Op::SyncFolder, || self.disk.sync())
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
        self.file.free(at, len)
    }

    fn sync(&self) -> io::Result<()> {
        self.script.change(Op::Sync(self.name.clone()), || self.file.sync())
    }

    fn map(&self, len: u64) -> io::Result<Map> {
        self.file.map(len)
    }

    fn try_lock(&self, byte: u64) -> io::Result<bool> {
        self.file.try_lock(byte)
    }

    fn unlock(&self, byte: u64) -> io::Result<()> {
        self.file.unlock(byte)
    }
}
