//! Giving names: nodes behind the tree's end first, then what leads to them, and last, with the header of meta.zr, the
//! new end. Until then nobody looks at them; what a crash leaves is put right by the next writer (see `mend`).
//!
//! Held by the store's writer mutex. Processes that read meanwhile ignore numbers from the end on.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::Names;
use super::fresh::{FolderId, NewNames};
use super::layout::Layout;
use super::lookup::{self, Table};
use super::read::{FIRST_UNIT, NAMES, TREE, open_tree, read_header};
use super::window::Nodes;
use crate::error::{Error, ErrorKind, Result};
use crate::format::{
    FIRST_AT, HEADER_BYTES, Header, NAMES_FIRST_UNIT, NAMES_HEADER_BYTES, NEXT_AT, ROOT_NODE, TreeExtent,
    TreeHeader, TreeKind, TreeNode, UNFINISHED_AT, name_at, node_at,
};
use crate::storage::{Access, Directory, StorageFile};
use crate::store::append::Appender;
use crate::store::sidecars::FOLDER;

/// Bytes that are written at a time.
const PIECE: usize = 1 << 20;

/// The files of names, open for writing.
pub(in crate::store) struct NameFiles {
    pub(super) tree: Arc<dyn StorageFile>,
    pub(super) names: Arc<dyn StorageFile>,
    pub(super) path: PathBuf,
    pub(super) header: TreeHeader,
    /// What an append that is under way makes of the tree.
    pending: Option<TreeExtent>,
    /// Whether there is something that is not known to be on disk.
    pub(super) dirty: bool,
}

impl NameFiles {
    /// Opens the names in `folder`, which is at `path`; `None` where there are none, or of another release. `meta` is what
    /// meta.zr holds.
    pub(in crate::store) fn open(
        folder: &dyn Directory,
        path: &Path,
        meta: &Header,
    ) -> Result<Option<NameFiles>> {
        let failed = |name: &str, e| Error::io(format!("can't open {}", path.join(name).display()), e);
        let Some((tree, header)) = open_tree(folder, Access::Write).map_err(|e| failed(TREE, e))? else {
            return Ok(None);
        };
        let Some(header) = header else {
            log::warn!("{} is damaged, or of another release: no name is kept", path.join(TREE).display());
            return Ok(None);
        };
        let names = open_names(folder).map_err(|e| failed(NAMES, e))?;
        let path = path.to_path_buf();
        let mut files = NameFiles { tree, names, path, header, pending: None, dirty: false };
        files.settle_down(folder, meta)?;
        Ok(Some(files))
    }

    /// Looks at the header again: another process of zrfs may have named records meanwhile.
    pub(in crate::store) fn reload(&mut self, folder: &dyn Directory, meta: &Header) -> Result<()> {
        if self.pending.is_some() {
            return Ok(());
        }
        let header = read_header(self.tree.as_ref()).map_err(|e| self.io("read", TREE, e))?;
        if let Some(header) = header.flatten() {
            self.header = header;
        }
        self.settle_down(folder, meta)
    }

    /// Puts right what an append that was cut off has left.
    fn settle_down(&mut self, folder: &dyn Directory, meta: &Header) -> Result<()> {
        let [a, b] = self.header.extents;
        let ends = |extent: Option<TreeExtent>| extent.map(|extent| (extent.end, extent.lookup));
        if self.header.unfinished || ends(a) != ends(b) {
            self.mend(folder, &meta.to_bytes())?;
        }
        Ok(())
    }

    /// Creates empty files of names.
    fn create(folder: &dyn Directory, path: &Path, meta: &[u8; HEADER_BYTES]) -> Result<NameFiles> {
        let failed = |name: &str, e| Error::io(format!("can't create {}", path.join(name).display()), e);
        let extent = TreeExtent { meta: *meta, end: ROOT_NODE, lookup: 0, lookup_bits: 0, entries: 0 };
        let header = TreeHeader { key: new_key(), extents: [Some(extent); 2], unfinished: true };
        let names = open_names(folder).map_err(|e| failed(NAMES, e))?;
        let create = || {
            let tree = match folder.open(TREE, Access::Write) {
                Err(e) if e.kind() == io::ErrorKind::NotFound => folder.create(TREE)?,
                // Without its first unit: a crash has left it.
                other => other?,
            };
            // The first unit says that the header is whole.
            let bytes = header.to_bytes();
            let (first, rest) = bytes.split_at(FIRST_UNIT);
            tree.write_at(rest, FIRST_UNIT as u64)?;
            tree.sync()?;
            tree.write_at(first, 0)?;
            Ok(tree)
        };
        let tree = create().map_err(|e| failed(TREE, e))?;
        Ok(NameFiles { tree, names, path: path.to_path_buf(), header, pending: None, dirty: true })
    }

    /// Whether there are names.
    pub(in crate::store) fn are_there(dir: &dyn Directory) -> bool {
        let tree = dir.folder(FOLDER).and_then(|folder| open_tree(folder.as_ref(), Access::Read));
        matches!(tree, Ok(Some(_)))
    }

    /// Whether there is a tree that this release can't read.
    pub(in crate::store) fn are_unreadable(dir: &dyn Directory) -> bool {
        let tree = dir.folder(FOLDER).and_then(|folder| open_tree(folder.as_ref(), Access::Read));
        matches!(tree, Ok(Some((_, None))))
    }

    /// Disk and apparent size of all files of names in `folder`, in bytes.
    pub(in crate::store) fn sizes(folder: &dyn Directory) -> (u64, u64) {
        let Ok(Some((tree, header))) = open_tree(folder, Access::Read) else { return (0, 0) };
        let numbers = header.iter().flat_map(|header| header.extents).flatten().map(|extent| extent.lookup);
        let mut numbers: Vec<_> = numbers.collect();
        numbers.dedup();
        let others = numbers.into_iter().map(lookup::file_name).chain([NAMES.to_owned()]);
        let files = others.filter_map(|name| folder.open(&name, Access::Read).ok()).chain([tree]);
        let sizes = files.filter_map(|file| file.attributes().ok());
        sizes.fold((0, 0), |(disk, all), file| (disk + file.allocated, all + file.len))
    }

    /// The extent that counts. After `settle_down` both are the same.
    pub(super) fn extent(&self) -> TreeExtent {
        let none = TreeExtent { meta: [0; 16], end: ROOT_NODE, lookup: 0, lookup_bits: 0, entries: 0 };
        self.header.extents.into_iter().flatten().max_by_key(|extent| extent.end).unwrap_or(none)
    }

    /// Writes the names of the records from `first` on; `meta` is what meta.zr holds, `old` what is named already.
    fn add(
        &mut self,
        folder: &dyn Directory,
        meta: &[u8; HEADER_BYTES],
        old: Option<&Names<'_>>,
        first: u32,
        fresh: &NewNames,
    ) -> Result<()> {
        let before = TreeExtent { meta: *meta, ..self.extent() };
        self.put_extents(before, 1)?;
        self.put_unfinished(true)?;
        self.sync_tree()?;
        self.dirty = true;

        let layout = Layout::new(before.end, old, fresh)?;
        self.names
            .allocate(0, name_at(first) + layout.records.len() as u64 * 4)
            .map_err(|e| self.io("take disk for", NAMES, e))?;
        let mut out = Pieces::new(self.names.as_ref(), name_at(first));
        let rows = layout.records.iter().try_for_each(|number| out.put(&number.to_le_bytes()));
        rows.and_then(|()| out.finish()).map_err(|e| self.io("write", NAMES, e))?;
        self.write_nodes(&layout, before.end, first, fresh).map_err(|e| self.io("write", TREE, e))?;
        self.link_old_folders(&layout, before.end).map_err(|e| self.io("write", TREE, e))?;
        let extent = TreeExtent { end: layout.end, ..before };
        self.pending = Some(self.write_lookup(folder, extent, &layout, fresh)?);
        Ok(())
    }

    fn write_nodes(&self, layout: &Layout, end: u32, first: u32, fresh: &NewNames) -> io::Result<()> {
        let mut out = Pieces::new(self.tree.as_ref(), node_at(end));
        let mut bytes = Vec::new();
        let mut put = |node: TreeNode<'_>| {
            bytes.clear();
            node.write(&mut bytes);
            out.put(&bytes)
        };
        let blank = TreeNode {
            next: 0,
            first: 0,
            last: 0,
            folders: 0,
            parent: ROOT_NODE,
            modified_ns: 0,
            kind: TreeKind::Folder,
            executable: false,
            name: b"",
            target: b"",
        };
        for (folder, place) in fresh.folders.iter().zip(&layout.folders).filter(|(_, place)| place.is_new) {
            put(TreeNode {
                next: place.next,
                first: place.first,
                last: place.last,
                folders: place.folders,
                parent: layout.number(folder.parent),
                modified_ns: folder.modified_ns,
                name: fresh.bytes_of(folder.name),
                ..blank
            })?;
        }
        for ((record, &next), index) in fresh.records.iter().zip(&layout.next).zip(first..) {
            put(TreeNode {
                next,
                first: index,
                parent: layout.number(record.folder),
                modified_ns: record.modified_ns,
                kind: TreeKind::Record,
                executable: record.executable,
                name: fresh.bytes_of(record.name),
                ..blank
            })?;
        }
        for (link, &(_, next)) in fresh.links.iter().zip(&layout.links) {
            put(TreeNode {
                next,
                parent: layout.number(link.folder),
                modified_ns: link.modified_ns,
                kind: TreeKind::Link,
                name: fresh.bytes_of(link.name),
                target: &link.target,
                ..blank
            })?;
        }
        out.finish()
    }

    /// Makes the folders that were there lead to what came into them.
    fn link_old_folders(&self, layout: &Layout, end: u32) -> io::Result<()> {
        let mut nodes = Nodes::new(&self.tree, end);
        for place in layout.folders.iter().filter(|place| !place.is_new && place.first != 0) {
            let Some((first, last, folders)) =
                nodes.get(place.number)?.map(|node| (node.first, node.last, node.folders))
            else {
                continue;
            };
            // Where the last child is lost, whoever lists the folder looks for the next one behind it.
            let is_child = nodes.get(last)?.is_some_and(|node| node.parent == place.number);
            if is_child && last != ROOT_NODE {
                self.put_numbers(last, NEXT_AT, &[place.first])?;
            }
            let first = if first == 0 { place.first } else { first };
            let folders = folders.saturating_add(place.folders);
            self.put_numbers(place.number, FIRST_AT, &[first, place.last, folders])?;
        }
        Ok(())
    }

    /// Writes numbers into a node.
    pub(super) fn put_numbers(&self, number: u32, at: u64, numbers: &[u32]) -> io::Result<()> {
        let bytes: Vec<u8> = numbers.iter().flat_map(|number| number.to_le_bytes()).collect();
        self.tree.write_at(&bytes, node_at(number) + at)
    }

    fn write_lookup(
        &self,
        folder: &dyn Directory,
        extent: TreeExtent,
        layout: &Layout,
        fresh: &NewNames,
    ) -> Result<TreeExtent> {
        let hash =
            |folder: FolderId, name: &[u8]| lookup::hash(&self.header.key, layout.number(folder), name);
        let folders = fresh.folders.iter().zip(&layout.folders).filter(|(_, place)| place.is_new);
        let folders = folders
            .filter(|(_, place)| place.number != ROOT_NODE)
            .map(|(folder, place)| (hash(folder.parent, fresh.bytes_of(folder.name)), place.number));
        let records = fresh.records.iter().zip(&layout.records);
        let records =
            records.map(|(record, &number)| (hash(record.folder, fresh.bytes_of(record.name)), number));
        let links = fresh.links.iter().zip(&layout.links);
        let links = links.map(|(link, &(number, _))| (hash(link.folder, fresh.bytes_of(link.name)), number));
        let entries: Vec<_> = folders.chain(records).chain(links).collect();
        let name = lookup::file_name(extent.lookup);
        let failed = |e| self.io("write", &name, e);
        let old = if extent.lookup == 0 { None } else { folder.open(&name, Access::Write).ok() };
        let total = extent.entries.saturating_add(layout.count);
        if let Some(old) = old.as_ref().filter(|_| lookup::takes(&extent, layout.count)) {
            lookup::insert(old.as_ref(), extent.lookup_bits, &entries)
                .and_then(|()| old.sync())
                .map_err(failed)?;
            return Ok(TreeExtent { entries: total, ..extent });
        }
        let mut table = Table::for_entries(total)?;
        if let Some(old) = &old {
            // Names behind the old end were left by an append that failed.
            table.take_over(old, extent.lookup_bits, self.extent().end).map_err(failed)?;
        }
        entries.into_iter().for_each(|(hash, number)| table.insert(hash, number));
        let number = self.write_table(folder, extent.lookup, &table)?;
        Ok(TreeExtent { lookup: number, lookup_bits: table.bits(), entries: total, ..extent })
    }

    /// Makes the lookup table anew where it is lost, or does not hold as many names as it should: a name that is not found
    /// would be given twice. Returns whether it did.
    fn make_findable(&mut self, folder: &dyn Directory, meta: &[u8; HEADER_BYTES]) -> Result<bool> {
        let extent = self.extent();
        if extent.end <= ROOT_NODE {
            return Ok(false);
        }
        let file = folder.open(&lookup::file_name(extent.lookup), Access::Read).ok();
        let failed = |e| self.io("read", &lookup::file_name(extent.lookup), e);
        let count = file.map(|file| lookup::count(&file, extent.lookup_bits, extent.end));
        if count.transpose().map_err(failed)?.flatten() == Some(extent.entries) {
            return Ok(false);
        }
        self.mend(folder, meta)?;
        Ok(true)
    }

    /// Writes a table to the file behind number `last`, makes it durable, and gives its number.
    pub(super) fn write_table(&self, folder: &dyn Directory, last: u32, table: &Table) -> Result<u32> {
        let number = last.wrapping_add(1).max(1);
        let name = lookup::file_name(number);
        // One that an append has left which was cut off.
        let _ = folder.remove(&name);
        let file = folder.create(&name).map_err(|e| self.io("create", &name, e))?;
        let written = table.write(file.as_ref()).and_then(|()| file.sync());
        if let Err(e) = written {
            let _ = folder.remove(&name);
            return Err(self.io("write", &name, e));
        }
        Ok(number)
    }

    /// Notes how far the tree goes when meta.zr holds `after`. The caller syncs before it writes that.
    pub(in crate::store) fn announce(&mut self, after: [u8; HEADER_BYTES]) -> Result<()> {
        let Some(pending) = &mut self.pending else { return Ok(()) };
        pending.meta = after;
        let pending = *pending;
        self.header.extents[1] = Some(pending);
        self.dirty = true;
        self.tree.write_at(&pending.to_bytes(), TreeExtent::at(1)).map_err(|e| self.io("write", TREE, e))
    }

    /// Notes that meta.zr holds what was announced. Losing it costs a look at all names.
    pub(in crate::store) fn settle(&mut self, folder: &dyn Directory) {
        let Some(pending) = self.pending.take() else { return };
        let old = self.header.extents[0].map(|extent| extent.lookup).filter(|&old| old != pending.lookup);
        self.header.extents[0] = Some(pending);
        let written = self.tree.write_at(&pending.to_bytes(), TreeExtent::at(0));
        let written =
            written.map_err(|e| self.io("write", TREE, e)).and_then(|()| self.put_unfinished(false));
        match written {
            Ok(()) => {
                // Who has it open reads on in it.
                old.filter(|&old| old != 0).map(|old| folder.remove(&lookup::file_name(old)));
            }
            Err(e) => log::debug!("{e}"),
        }
    }

    /// Gives up names that were written and are not to count. What leads to them is taken away by the next writer.
    fn give_up(&mut self, folder: &dyn Directory) {
        let kept = self.header.extents[0].unwrap_or_else(|| self.extent());
        if let Some(pending) = self.pending.take()
            && pending.lookup != kept.lookup
        {
            let _ = folder.remove(&lookup::file_name(pending.lookup));
        }
        // Failing at it costs space.
        let _ = self.tree.set_len(node_at(kept.end));
    }

    /// Makes both extents the same, the one at place `first` before the other, so that one is whole at every moment.
    pub(super) fn put_extents(&mut self, extent: TreeExtent, first: usize) -> Result<()> {
        for which in [first, 1 - first.min(1)] {
            if self.header.extents.get(which) == Some(&Some(extent)) {
                continue;
            }
            let bytes = extent.to_bytes();
            self.tree.write_at(&bytes, TreeExtent::at(which)).map_err(|e| self.io("write", TREE, e))?;
            self.sync_tree()?;
            if let Some(place) = self.header.extents.get_mut(which) {
                *place = Some(extent);
            }
        }
        Ok(())
    }

    pub(super) fn put_unfinished(&mut self, unfinished: bool) -> Result<()> {
        self.header.unfinished = unfinished;
        let written = self.tree.write_at(&[u8::from(unfinished)], UNFINISHED_AT);
        written.map_err(|e| self.io("write", TREE, e))
    }

    pub(super) fn sync_tree(&self) -> Result<()> {
        self.tree.sync().map_err(|e| self.io("sync", TREE, e).of_sync())
    }

    /// Makes the names durable.
    pub(in crate::store) fn sync(&mut self) -> Result<()> {
        if self.dirty {
            self.names.sync().map_err(|e| self.io("sync", NAMES, e).of_sync())?;
            self.sync_tree()?;
            self.dirty = false;
        }
        Ok(())
    }

    /// Makes the records from `first` on nameless, whatever lay there before.
    pub(in crate::store) fn clear(&mut self, first: u32, end: u32) -> Result<()> {
        let len = self.names.attributes().map_err(|e| self.io("read", NAMES, e))?.len;
        let count = len.min(name_at(end)).saturating_sub(name_at(first));
        if count > 0 {
            self.dirty = true;
            let zeros = vec![0; usize::try_from(count).unwrap_or(0)];
            self.names.write_at(&zeros, name_at(first)).map_err(|e| self.io("write", NAMES, e))?;
        }
        Ok(())
    }

    pub(super) fn io(&self, verb: &str, name: &str, e: io::Error) -> Error {
        Error::io(format!("can't {verb} {}", self.path.join(name).display()), e)
    }
}

impl Appender<'_> {
    /// Names the records of this append, from its first one on: the i-th name is that of the i-th record. Called once, when
    /// all records are appended; the commit then waits for the disk, as [`Store::sync`](crate::store::Store::sync) does, and the names are there.
    ///
    /// Memory: 8 bytes a name, and 8 to 22 a name of the whole store where the table to look them up has to grow.
    ///
    /// # Errors
    /// [`ErrorKind::Geometry`] where there are not as many names as records; [`ErrorKind::Unsupported`] where an earlier
    /// append was not synced; as for [`Store::check_names`](crate::store::Store::check_names); what the system refuses.
    pub fn set_names(&mut self, names: &NewNames) -> Result<()> {
        let (store, first) = (self.store(), self.first());
        let path = store.path().display();
        if names.len() as u64 != self.len() - u64::from(first) {
            let text = format!("{} names for {} records", names.len(), self.len() - u64::from(first));
            return Err(Error::new(ErrorKind::Geometry, text));
        }
        if self.writer().pending.is_some() {
            let text = format!("{path}: records can't be named behind an append that was not synced");
            return Err(Error::new(ErrorKind::Unsupported, text).with_help("sync the store first"));
        }
        let meta = store.meta.header_bytes()?;
        if let Some(sidecars) = self.writer().sidecars.as_mut()
            && let Some(files) = &mut sidecars.names
            && files.make_findable(sidecars.folder.as_ref(), &meta)?
        {
            // What was seen before finds less.
            store.names.store(None);
        }
        store.check_names(names)?;
        let old = store.names()?;
        let Some(sidecars) = self.writer().sidecars.as_mut().filter(|sidecars| sidecars.sums.is_some())
        else {
            let text = format!("{path}: its checksums are of another release, so names can't be kept");
            return Err(Error::new(ErrorKind::Unsupported, text));
        };
        let (folder, names_path) = (sidecars.folder.as_ref(), &sidecars.path);
        let files = match &mut sidecars.names {
            Some(files) => files,
            None if open_tree(folder, Access::Read).is_ok_and(|tree| tree.is_some()) => {
                let text = format!("{} is damaged, or of another release", names_path.join(TREE).display());
                return Err(Error::new(ErrorKind::Unsupported, text)
                    .with_help("move it away to name records anew; those that it names lose their names"));
            }
            none => none.insert(NameFiles::create(folder, names_path, &meta)?),
        };
        sidecars.created = true;
        let added = files.add(folder, &meta, old.as_ref(), first, names);
        self.note_named(added.is_ok());
        added
    }

    /// Gives names up that were not committed.
    pub(in crate::store) fn drop_names(&mut self) {
        if let Some(sidecars) = &mut self.writer().sidecars
            && let Some(names) = &mut sidecars.names
        {
            names.give_up(sidecars.folder.as_ref());
        }
    }
}

/// Opens the names of records for writing, made where they are missing or a crash has left nothing in them.
fn open_names(folder: &dyn Directory) -> io::Result<Arc<dyn StorageFile>> {
    let names = match folder.open(NAMES, Access::Write) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => folder.create(NAMES)?,
        other => other?,
    };
    let mut first = [0; NAMES_HEADER_BYTES];
    names.read_at(&mut first, 0)?;
    if first == [0; NAMES_HEADER_BYTES] {
        names.write_at(&NAMES_FIRST_UNIT, 0)?;
    }
    Ok(names)
}

/// A key that nobody knows who makes names.
fn new_key() -> [u8; 16] {
    use std::hash::{BuildHasher, Hasher, RandomState};
    let half = || RandomState::new().build_hasher().finish();
    (u128::from(half()) << 64 | u128::from(half())).to_le_bytes()
}

/// Bytes on their way into a file, written in large pieces.
struct Pieces<'a> {
    file: &'a dyn StorageFile,
    bytes: Vec<u8>,
    at: u64,
}

impl<'a> Pieces<'a> {
    fn new(file: &'a dyn StorageFile, at: u64) -> Pieces<'a> {
        Pieces { file, bytes: Vec::with_capacity(PIECE), at }
    }

    fn put(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.bytes.extend_from_slice(bytes);
        if self.bytes.len() >= PIECE { self.flush() } else { Ok(()) }
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.write_at(&self.bytes, self.at)?;
        self.at += self.bytes.len() as u64;
        self.bytes.clear();
        Ok(())
    }

    fn finish(mut self) -> io::Result<()> {
        self.flush()
    }
}
