//! Reading names. A name counts only where everything agrees: the node is whole and below the tree's end, the record's row
//! in `names` gives the node, the node gives the record's index, and the checksum file says that the record is the one
//! that zrfs wrote there.

use std::collections::BTreeSet;
use std::sync::{Arc, OnceLock};

use arc_swap::Guard;

use super::lookup::{self, Probe};
use super::window::{Nodes, Walk, Window};
use super::{NamedNode, Names, NodeId, NodeKind};
use crate::error::{Error, ErrorKind, Result};
use crate::format::{
    HEADER_BYTES, Header, NAMES_FIRST_UNIT, NAMES_HEADER_BYTES, ROOT_NODE, ROW_BYTES, RecordLoc, Row, Slot,
    TREE_HEADER_BYTES, TreeExtent, TreeHeader, TreeKind, TreeNode, Version, name_at, row_at,
};
use crate::storage::{Access, Directory, StorageFile};
use crate::store::place::Place;
use crate::store::sidecars::{FOLDER, Sums};
use crate::store::state::State;
use crate::store::{Store, history};

/// Name of the file of nodes.
pub(super) const TREE: &str = "tree";
/// Name of the file of node numbers, one a record.
pub(super) const NAMES: &str = "names";

/// What was found beside a store when its header was `meta`.
pub(in crate::store) struct Seen {
    meta: [u8; HEADER_BYTES],
    tree: Option<Arc<Tree>>,
}

/// The names of a store, as far as they go.
pub(in crate::store) struct Tree {
    pub(super) tree: Arc<dyn StorageFile>,
    names: Arc<dyn StorageFile>,
    /// `None` where it is lost: names are then found by walking their folder.
    pub(super) lookup: Option<Arc<dyn StorageFile>>,
    pub(super) key: [u8; 16],
    pub(super) extent: TreeExtent,
    /// An append of names is under way, or was cut off.
    pub(super) unfinished: bool,
    sums: Sums,
    /// The header of meta.zr then.
    header: Option<Header>,
    /// Other bytes may lie where zrfs has written: only those that fit their checksum are what was named.
    in_doubt: bool,
    /// Whether another program has changed the store since zrfs did.
    foreign: bool,
    named: OnceLock<u64>,
}

impl Store {
    /// The names of the records; `None` where none was ever given, as in a store made of an array.
    ///
    /// Cost: that of opening files where the store has changed; otherwise little. Where another program has changed the
    /// store, all that zrfs has noted of it is read once.
    ///
    /// # Errors
    /// What the system refuses.
    pub fn names(&self) -> Result<Option<Names<'_>>> {
        let meta = self.meta.header_bytes()?;
        let seen = self.names.load();
        if let Some(seen) = seen.as_ref().filter(|seen| seen.meta == meta) {
            return Ok(seen.tree.clone().map(|tree| Names { store: self, tree }));
        }
        let tree = match Tree::open(self, &meta, seen.as_ref().and_then(|seen| seen.tree.as_deref())) {
            // The records can be read all the same.
            Err(e) if matches!(e.raw_os_error(), Some(libc::EACCES | libc::EPERM | libc::ENOTDIR)) => {
                log::debug!("{e}; no record has a name");
                None
            }
            tree => tree?.map(Arc::new),
        };
        self.names.store(Some(Arc::new(Seen { meta, tree: tree.clone() })));
        Ok(tree.map(|tree| Names { store: self, tree }))
    }
}

/// Size of the first unit of a tree in bytes, which is written when the rest of its header is on disk.
pub(super) const FIRST_UNIT: usize = 16;

/// A tree and its header, which is `None` where it is damaged or of another release.
type TreeFile = (Arc<dyn StorageFile>, Option<TreeHeader>);

/// Opens the tree in `folder`; `None` where there is none, or one that was never made whole.
pub(super) fn open_tree(folder: &dyn Directory, access: Access) -> std::io::Result<Option<TreeFile>> {
    let file = match folder.open(TREE, access) {
        Ok(file) => file,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(e) => return Err(e),
    };
    let header = read_header(file.as_ref())?;
    Ok(header.map(|header| (file, header)))
}

/// Reads a tree's header, which is `None` where it is damaged or of another release; `None` where the tree was never made
/// whole. No extent goes behind the end of the file.
pub(super) fn read_header(file: &dyn StorageFile) -> std::io::Result<Option<Option<TreeHeader>>> {
    let mut bytes = [0; TREE_HEADER_BYTES];
    file.read_at(&mut bytes, 0)?;
    if bytes.starts_with(&[0; FIRST_UNIT]) {
        // It was being made.
        return Ok(None);
    }
    let end = u32::try_from(file.attributes()?.len.div_ceil(8)).unwrap_or(u32::MAX).max(ROOT_NODE);
    Ok(Some(TreeHeader::parse(&bytes).map(|mut header| {
        header.extents.iter_mut().flatten().for_each(|extent| extent.end = extent.end.min(end));
        header
    })))
}

impl Tree {
    /// Opens the names of a store whose header is `meta`. `before` is what was known of them.
    fn open(store: &Store, meta: &[u8; HEADER_BYTES], before: Option<&Tree>) -> Result<Option<Tree>> {
        let path = store.path.join(FOLDER);
        let failed = |name: &str, e| Error::io(format!("can't read {}", path.join(name).display()), e);
        let folder = match store.dir.folder(FOLDER) {
            Ok(folder) => folder,
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(e) => return Err(failed("", e)),
        };
        let Some((tree, header)) = open_tree(folder.as_ref(), Access::Read).map_err(|e| failed(TREE, e))?
        else {
            return Ok(None);
        };
        let names = folder.open(NAMES, Access::Read);
        let sums = Sums::open(store.dir.as_ref(), &store.path)?;
        let (Some(header), Ok(names), Some(sums)) = (header, names, sums) else {
            // Verifying says it.
            log::debug!(
                "{} is damaged, or of another release: no record has a name",
                path.join(TREE).display()
            );
            return Ok(None);
        };
        let mut first = [0; NAMES_HEADER_BYTES];
        names.read_at(&mut first, 0).map_err(|e| failed(NAMES, e))?;
        let Some(extent) = header.extent_for(meta).filter(|_| first == NAMES_FIRST_UNIT) else {
            return Ok(None);
        };
        if extent.end <= ROOT_NODE {
            return Ok(None);
        }
        let lookup = folder.open(&lookup::file_name(extent.lookup), Access::Read).ok();
        let (foreign, in_doubt) = doubt(store, &sums, before)?;
        let (key, unfinished) = (header.key, header.unfinished);
        let (header, named) = (Header::parse(meta).ok(), OnceLock::new());
        Ok(Some(Tree {
            tree,
            names,
            lookup,
            key,
            extent,
            unfinished,
            sums,
            header,
            in_doubt,
            foreign,
            named,
        }))
    }
}

/// Whether another program has changed the store since zrfs did, and whether its records may be others now.
fn doubt(store: &Store, sums: &Sums, before: Option<&Tree>) -> Result<(bool, bool)> {
    let Ok((header, false)) = store.meta.any_header() else { return Ok((false, false)) };
    if header.version == Version::V2 {
        // Nobody else changes these.
        return Ok((false, false));
    }
    let foreign = sums.is_foreign(&header);
    if !foreign && !sums.is_older_than(store.modified()?)? {
        return Ok((false, false));
    }
    if let Some(before) = before
        && before.is_outgrown_by(&header)
    {
        // Only appended to since: what was known still stands.
        return Ok((foreign, before.in_doubt));
    }
    Ok((foreign, history::may_be_compacted(store, &store.state(), &header, sums)?))
}

impl Tree {
    /// Whether a store with this header holds what it held when this was read, and more.
    fn is_outgrown_by(&self, header: &Header) -> bool {
        let grown = |before: &Header| {
            before.length <= header.length && Place::frontier(before) <= Place::frontier(header)
        };
        self.foreign && self.header.as_ref().is_some_and(grown)
    }
}

/// What one call looks with.
struct Look<'a> {
    store: &'a Store,
    tree: &'a Tree,
    state: Guard<Arc<State>>,
    length: u32,
    version: Version,
    nodes: Nodes,
    rows: Window,
    sums: Window,
    bytes: Vec<u8>,
}

impl Look<'_> {
    /// Node number in the row of a record; 0: none.
    fn row(&mut self, index: u32) -> Result<u32> {
        let at = name_at(self.state.origin_of(index));
        let bytes = self.rows.get(at, 4).map_err(|e| self.tree.io(self.store, NAMES, e))?;
        Ok(bytes.first_chunk().map_or(0, |bytes| u32::from_le_bytes(*bytes)))
    }

    /// Whether a record is the one that was named: it is where zrfs has written it, and nothing suggests that another one
    /// came to that place; or its bytes are those.
    fn is_as_written(&mut self, index: u32) -> Result<bool> {
        let Ok(words) = self.store.words(&self.state, index) else { return Ok(false) };
        let at = row_at(self.state.origin_of(index));
        let bytes = self.sums.get(at, ROW_BYTES).map_err(|e| self.tree.io(self.store, "checksums", e))?;
        let row = match bytes.first_chunk().map(Row::parse) {
            Some(Slot::Row(row)) => row,
            // Torn when the power went, or damaged since: it says nothing, and nobody else has been here.
            Some(Slot::Damaged) => return Ok(!self.tree.foreign && !self.tree.in_doubt),
            Some(Slot::Empty) | None => return Ok(false),
        };
        let Some(loc) = RecordLoc::decode(words, self.version) else { return Ok(false) };
        let has_moved = row.loc != words;
        if has_moved && !row.has_shape_of(&loc) {
            return Ok(false);
        }
        let row = Row { loc: words, ..row };
        let in_doubt = has_moved || row.doubtful || self.tree.in_doubt;
        Ok(!in_doubt || history::is_there(self.store, &self.state, &row, self.version, &mut self.bytes)?)
    }

    /// Whether node `number` is that of record `index`.
    fn is_name_of(&mut self, number: u32, index: u32) -> Result<bool> {
        Ok(index < self.length && self.row(index)? == number && self.is_as_written(index)?)
    }

    fn node(&mut self, number: u32) -> Result<Option<TreeNode<'_>>> {
        let (store, tree) = (self.store, self.tree);
        self.nodes.get(number).map_err(|e| tree.io(store, TREE, e))
    }

    /// The place behind node `number`; `None` where there is none that is whole.
    fn behind(&mut self, number: u32) -> Result<Option<u32>> {
        let (store, tree) = (self.store, self.tree);
        let node = self.nodes.get_with_next(number).map_err(|e| tree.io(store, TREE, e))?;
        Ok(node.map(|(_, behind)| behind))
    }

    /// Reads node `number` into `to`, where it is there and named by its record; gives the number of the next one in its
    /// folder, and whether it is.
    fn read(&mut self, number: u32, to: &mut NamedNode) -> Result<Option<(u32, bool)>> {
        let Some(node) = self.node(number)?.filter(|node| node.kind != TreeKind::Blank) else {
            return Ok(None);
        };
        let (next, noted) = (node.next, node.first);
        fill(to, number, &node);
        let NodeKind::Record { index, .. } = &mut to.kind else { return Ok(Some((next, true))) };
        let now = self.state.index_now(noted);
        *index = now.into();
        Ok(Some((next, self.is_name_of(number, now)?)))
    }
}

fn fill(to: &mut NamedNode, number: u32, node: &TreeNode<'_>) {
    to.id = NodeId(number);
    to.parent = NodeId(node.parent);
    to.name.clear();
    to.name.extend_from_slice(node.name);
    to.modified_ns = node.modified_ns;
    to.kind = match node.kind {
        TreeKind::Record => NodeKind::Record { index: node.first.into(), executable: node.executable },
        TreeKind::Link => NodeKind::Link { target: node.target.to_vec() },
        TreeKind::Folder | TreeKind::Blank => NodeKind::Folder { folders: node.folders },
    };
}

fn blank() -> NamedNode {
    NamedNode {
        id: NodeId::ROOT,
        parent: NodeId::ROOT,
        name: Vec::new(),
        modified_ns: 0,
        kind: NodeKind::Folder { folders: 0 },
    }
}

impl Tree {
    pub(super) fn io(&self, store: &Store, name: &str, e: std::io::Error) -> Error {
        Error::io(format!("can't read {}", store.path.join(FOLDER).join(name).display()), e)
    }
}

impl Names<'_> {
    fn look(&self) -> Look<'_> {
        let tree = self.tree.as_ref();
        let length = u32::try_from(self.store.len()).unwrap_or(u32::MAX);
        Look {
            store: self.store,
            tree,
            state: self.store.state(),
            length,
            version: self.store.version(),
            nodes: Nodes::new(&tree.tree, tree.extent.end),
            rows: Window::new(&tree.names, u64::MAX),
            sums: Window::new(tree.sums.file(), u64::MAX),
            bytes: Vec::new(),
        }
    }

    /// What is known of a node; `None` where there is none any more.
    ///
    /// # Errors
    /// What the system refuses.
    pub fn node(&self, id: NodeId) -> Result<Option<NamedNode>> {
        let mut found = blank();
        let there = self.look().read(id.0, &mut found)?;
        Ok(there.is_some_and(|(_, counts)| counts).then_some(found))
    }

    /// The node `name` in a folder. Constant time.
    ///
    /// # Errors
    /// What the system refuses.
    pub fn child(&self, folder: NodeId, name: &[u8]) -> Result<Option<NamedNode>> {
        let tree = self.tree.as_ref();
        let Some(lookup) = &tree.lookup else { return self.child_by_walking(folder, name) };
        let hash = lookup::hash(&tree.key, folder.0, name);
        let mut probe = Probe::new(lookup, tree.extent.lookup_bits, hash);
        let mut look = self.look();
        let mut found = blank();
        let file = || lookup::file_name(tree.extent.lookup);
        while let Some(number) = probe.next().map_err(|e| tree.io(self.store, &file(), e))? {
            if let Some((_, true)) = look.read(number, &mut found)?
                && number != ROOT_NODE
                && found.parent == folder
                && found.name == name
            {
                return Ok(Some(found));
            }
        }
        Ok(None)
    }

    fn child_by_walking(&self, folder: NodeId, name: &[u8]) -> Result<Option<NamedNode>> {
        let mut found = None;
        self.each_child(folder, None, |node| {
            found = (node.name == name).then(|| node.clone());
            found.is_some()
        })?;
        Ok(found)
    }

    /// The node at `path`, whose components have a `/` between them; the empty path is the root. Links are not followed.
    ///
    /// # Errors
    /// What the system refuses.
    pub fn resolve(&self, path: &[u8]) -> Result<Option<NamedNode>> {
        let mut found = self.node(NodeId::ROOT)?;
        for name in path.split(|&b| b == b'/').take(if path.is_empty() { 0 } else { usize::MAX }) {
            let Some(folder) = found else { return Ok(None) };
            found = self.child(folder.id, name)?;
        }
        Ok(found)
    }

    /// The name of a record; `None` where it has none that can be trusted.
    ///
    /// # Errors
    /// What the system refuses.
    pub fn of_record(&self, index: u64) -> Result<Option<NamedNode>> {
        let mut found = None;
        self.each_record(index, |at, node| {
            found = node.filter(|_| at == index).cloned();
            true
        })?;
        Ok(found)
    }

    /// The path of a node from the root.
    ///
    /// # Errors
    /// What the system refuses; [`ErrorKind::Damaged`] where a folder above it is lost.
    pub fn path(&self, id: NodeId) -> Result<Vec<u8>> {
        let mut look = self.look();
        let (mut at, mut names) = (id.0, Vec::new());
        while at != ROOT_NODE {
            let node = look.node(at)?.filter(|node| node.parent < at && node.kind != TreeKind::Blank);
            let Some(node) = node else {
                let text = format!("a folder of the names of {} is lost", self.store.path.display());
                return Err(Error::new(ErrorKind::Damaged, text).with_help("`zrfs verify` says what else is"));
            };
            names.push(node.name.to_vec());
            at = node.parent;
        }
        names.reverse();
        Ok(names.join(&b'/'))
    }

    /// Hands every node in a folder to `take`, in the order in which they were added, from the first one behind `after`
    /// on, until it says `true` or all are told.
    ///
    /// # Errors
    /// What the system refuses.
    pub fn each_child(
        &self,
        folder: NodeId,
        after: Option<NodeId>,
        mut take: impl FnMut(&NamedNode) -> bool,
    ) -> Result<()> {
        let mut look = self.look();
        let (mut number, mut last) = match after {
            None => {
                let node = look.node(folder.0)?.filter(|node| node.kind == TreeKind::Folder);
                (node.map_or(0, |node| node.first), ROOT_NODE)
            }
            Some(after) => {
                let node = look.node(after.0)?.filter(|node| node.parent == folder.0);
                (node.map_or(0, |node| node.next), after.0)
            }
        };
        let mut found = blank();
        // Each is a higher number than the one before, so a damaged chain ends.
        while number > last {
            match look.read(number, &mut found)? {
                Some((next, counts)) if found.parent == folder => {
                    if counts && take(&found) {
                        break;
                    }
                    (last, number) = (number, next);
                }
                // A node that is lost hides no other: the next one in the folder comes behind it.
                _ => {
                    last = number;
                    number = self.next_in(&mut look, folder, number)?.unwrap_or(0);
                }
            }
        }
        Ok(())
    }

    /// The first whole node in a folder behind a place, found by looking at one node after another.
    fn next_in(&self, look: &mut Look<'_>, folder: NodeId, number: u32) -> Result<Option<u32>> {
        let mut walk = Walk::from(number);
        walk.step(look.behind(number)?);
        while let Some(number) = walk.at(self.tree.extent.end) {
            let behind = look.behind(number)?;
            let is_child = behind.is_some()
                && look
                    .node(number)?
                    .is_some_and(|node| node.parent == folder.0 && node.kind != TreeKind::Blank);
            if is_child {
                return Ok(Some(number));
            }
            walk.step(behind);
        }
        Ok(None)
    }

    /// Hands every record from `first` on to `take`, with its name where it has one, until it says `true` or all are told.
    ///
    /// # Errors
    /// What the system refuses.
    pub fn each_record(
        &self,
        first: u64,
        mut take: impl FnMut(u64, Option<&NamedNode>) -> bool,
    ) -> Result<()> {
        let mut look = self.look();
        let mut found = blank();
        for index in u32::try_from(first).unwrap_or(u32::MAX)..look.length {
            let number = look.row(index)?;
            let named = number != 0
                && look.read(number, &mut found)?.is_some_and(|(_, counts)| counts)
                && matches!(found.kind, NodeKind::Record { index: at, .. } if at == u64::from(index));
            if take(index.into(), named.then_some(&found)) {
                break;
            }
        }
        Ok(())
    }

    /// Hands every node to `take`, parents before their children, until it says `true` or all are told.
    ///
    /// # Errors
    /// What the system refuses.
    pub fn each_node(&self, mut take: impl FnMut(&NamedNode) -> bool) -> Result<()> {
        let mut look = self.look();
        let mut found = blank();
        let mut walk = Walk::from(ROOT_NODE);
        while let Some(number) = walk.at(self.tree.extent.end) {
            walk.step(look.behind(number)?);
            if let Some((_, true)) = look.read(number, &mut found)?
                && take(&found)
            {
                break;
            }
        }
        Ok(())
    }

    /// A mark that says how far the names go: nodes that are added later have a number from it on.
    pub fn end(&self) -> u32 {
        self.tree.extent.end
    }

    /// The folders that nodes were added to from the mark `since` on, each once.
    ///
    /// # Errors
    /// What the system refuses.
    pub fn grown_since(&self, since: u32) -> Result<Vec<NodeId>> {
        let mut look = self.look();
        let mut grown = BTreeSet::new();
        let mut walk = Walk::from(since.max(ROOT_NODE));
        while let Some(number) = walk.at(self.tree.extent.end) {
            walk.step(look.behind(number)?);
            if let Some(node) = look.node(number)?.filter(|node| node.kind != TreeKind::Blank) {
                grown.insert(NodeId(node.parent));
            }
        }
        Ok(grown.into_iter().collect())
    }

    /// Number of records that have a name. Looked up once for each state of the store: that reads all names.
    ///
    /// # Errors
    /// What the system refuses.
    pub fn named(&self) -> Result<u64> {
        if let Some(&named) = self.tree.named.get() {
            return Ok(named);
        }
        let mut named = 0;
        self.each_record(0, |_, node| {
            named += u64::from(node.is_some());
            false
        })?;
        Ok(*self.tree.named.get_or_init(|| named))
    }

    /// Whether another program has changed the store since zrfs wrote to it, so that records may have lost their names.
    pub fn is_foreign(&self) -> bool {
        self.tree.foreign
    }
}
