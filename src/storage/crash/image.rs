//! Folders of files in memory, for tests: many of them, alike but for a few bytes, and each cheap to put on the disk.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::hash::{Hash, Hasher};
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

use rustix::fs::{FallocateFlags, SeekFrom, fallocate, seek};

const PAGE: usize = 4096;

/// The bytes of a file. Pages of zeros are left out and nothing but zeros lies behind the end, so that equal files
/// have equal pages.
#[derive(Clone, Default, PartialEq, Eq)]
pub(crate) struct Contents {
    len: u64,
    pages: BTreeMap<u64, Arc<[u8; PAGE]>>,
}

impl Contents {
    pub(crate) fn len(&self) -> u64 {
        self.len
    }

    /// The bytes of `range`, as far as the file reaches.
    pub(crate) fn read(&self, range: Range<u64>) -> Vec<u8> {
        let mut bytes = vec![0; range.end.min(self.len).saturating_sub(range.start) as usize];
        for part in self.data(range.clone()) {
            let (page, from) = (part.start / PAGE as u64, part.start as usize % PAGE);
            let (to, n) = ((part.start - range.start) as usize, (part.end - part.start) as usize);
            bytes[to..to + n].copy_from_slice(&self.pages[&page][from..from + n]);
        }
        bytes
    }

    pub(super) fn write(&mut self, at: u64, bytes: &[u8]) {
        self.len = self.len.max(at + bytes.len() as u64);
        let mut done = 0;
        while done < bytes.len() {
            let at = at + done as u64;
            let (page, from) = (at / PAGE as u64, at as usize % PAGE);
            let n = (PAGE - from).min(bytes.len() - done);
            let slot = Arc::make_mut(self.pages.entry(page).or_insert_with(|| Arc::new([0; PAGE])));
            slot[from..from + n].copy_from_slice(&bytes[done..done + n]);
            if *slot == [0; PAGE] {
                self.pages.remove(&page);
            }
            done += n;
        }
    }

    /// The parts of `range` that lie on pages with data, page by page.
    pub(super) fn data(&self, range: Range<u64>) -> Vec<Range<u64>> {
        let (start, end) = (range.start, range.end.min(self.len));
        let pages = self.pages.range(start / PAGE as u64..end.max(start).div_ceil(PAGE as u64));
        let bytes = pages.map(|(page, _)| page * PAGE as u64..(page + 1) * PAGE as u64);
        bytes.map(|page| page.start.max(start)..page.end.min(end)).filter(|part| !part.is_empty()).collect()
    }

    pub(super) fn free(&mut self, range: Range<u64>) {
        for part in self.data(range) {
            self.write(part.start, &vec![0; (part.end - part.start) as usize]);
        }
    }

    /// Cuts the file, or extends it with zeros.
    pub(super) fn set_len(&mut self, len: u64) {
        self.free(len..self.len);
        self.len = len;
    }

    fn read_file(path: &Path) -> Contents {
        let file = fs::File::open(path).unwrap();
        let mut contents = Contents { len: file.metadata().unwrap().len(), ..Contents::default() };
        let mut at = 0;
        // It fails when no data follows.
        while let Ok(start) = seek(&file, SeekFrom::Data(at)) {
            at = seek(&file, SeekFrom::Hole(start)).unwrap();
            let mut bytes = vec![0; (at - start) as usize];
            file.read_exact_at(&mut bytes, start).unwrap();
            contents.write(start, &bytes);
        }
        contents
    }

    fn write_over(&self, path: &Path, previous: &Contents) {
        let file = fs::OpenOptions::new().write(true).create(true).truncate(false).open(path).unwrap();
        if self.len != previous.len {
            file.set_len(self.len).unwrap();
        }
        for page in previous.pages.keys().filter(|page| !self.pages.contains_key(page)) {
            let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
            fallocate(&file, flags, page * PAGE as u64, PAGE as u64).unwrap();
        }
        for (page, bytes) in self.pages.iter().filter(|(page, bytes)| previous.pages.get(page) != Some(bytes))
        {
            let at = page * PAGE as u64;
            file.write_all_at(&bytes[..PAGE.min((self.len - at) as usize)], at).unwrap();
        }
    }
}

impl Hash for Contents {
    /// Much faster than the standard hash of the bytes in a build for tests.
    fn hash<H: Hasher>(&self, state: &mut H) {
        let mut digest = self.len;
        for (page, bytes) in &self.pages {
            digest = digest.wrapping_add(*page);
            for word in bytes.as_chunks::<8>().0 {
                digest =
                    (digest.rotate_left(5) ^ u64::from_le_bytes(*word)).wrapping_mul(0x517c_c1b7_2722_0a95);
            }
        }
        digest.hash(state);
    }
}

/// The contents of a folder and of the folders in it, by path from there. Cheap to clone: copies share their bytes.
#[derive(Clone, Default, PartialEq, Eq, Hash)]
pub(crate) struct Image {
    pub(super) folders: BTreeSet<String>,
    pub(super) files: BTreeMap<String, Arc<Contents>>,
}

impl Image {
    /// The image of a real folder: the store's, or, for stores under prefixes, the one that they lie in.
    pub(crate) fn read(path: &Path) -> Image {
        let mut image = Image::default();
        image.read_folder(path, "");
        image
    }

    fn read_folder(&mut self, path: &Path, prefix: &str) {
        for entry in fs::read_dir(path).unwrap() {
            let entry = entry.unwrap();
            let name = format!("{prefix}{}", entry.file_name().to_str().unwrap());
            if entry.file_type().unwrap().is_dir() {
                self.read_folder(&entry.path(), &format!("{name}/"));
                self.folders.insert(name);
            } else {
                self.files.insert(name, Arc::new(Contents::read_file(&entry.path())));
            }
        }
    }

    /// Makes the folder at `path` hold this image and nothing else, whatever is there now. No store may be open in it.
    pub(crate) fn write(&self, path: &Path) {
        self.write_over(path, &Image::read(path));
    }

    /// As [`Image::write`], for a folder that is known to hold `previous`: only what differs is written.
    pub(crate) fn write_over(&self, path: &Path, previous: &Image) {
        for name in previous.files.keys().filter(|name| !self.files.contains_key(*name)) {
            fs::remove_file(path.join(name)).unwrap();
        }
        for name in previous.folders.iter().rev().filter(|name| !self.folders.contains(*name)) {
            fs::remove_dir(path.join(name)).unwrap();
        }
        for name in self.folders.difference(&previous.folders) {
            fs::create_dir(path.join(name)).unwrap();
        }
        for (name, contents) in &self.files {
            match previous.files.get(name) {
                Some(old) if old == contents => {}
                Some(old) => contents.write_over(&path.join(name), old),
                None => contents.write_over(&path.join(name), &Contents::default()),
            }
        }
    }

    pub(crate) fn file(&self, name: &str) -> Option<&Contents> {
        self.files.get(name).map(Arc::as_ref)
    }

    pub(crate) fn files(&self) -> impl Iterator<Item = (&str, &Contents)> {
        self.files.iter().map(|(name, contents)| (name.as_str(), contents.as_ref()))
    }

    pub(crate) fn has_folder(&self, name: &str) -> bool {
        name.is_empty() || self.folders.contains(name)
    }
}
