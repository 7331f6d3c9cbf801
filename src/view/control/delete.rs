//! Deleting the records of a list, and what the kernel has to forget then.

use std::collections::BTreeSet;
use std::sync::{Arc, PoisonError};
use std::time::SystemTime;

use rayon::iter::{IntoParallelRefIterator, ParallelIterator};

use super::{Control, Deletion};
use crate::error::{Error, ErrorKind, Result};
use crate::store::{Move, NamedNode, NodeId, Store, parse_records};
use crate::view::attributes::nanoseconds;
use crate::view::identity::Lineage;
use crate::view::names::RecordName;
use crate::view::{Node, View, tree};

/// What the kernel has to forget after a delete.
#[derive(Debug, Default)]
pub struct Forget {
    /// Every name, as too many have changed to tell them one by one.
    pub all_names: bool,
    /// Names, each with its directory.
    pub names: Vec<(Node, Vec<u8>)>,
    /// Directories whose listings and times have changed.
    pub directories: Vec<Node>,
    /// Files whose attributes have changed.
    pub attributes: Vec<Node>,
    /// Files whose pages are of no use any more.
    pub pages: Vec<Node>,
}

/// What `delete` says.
#[derive(Default)]
pub(super) struct Told {
    batches: u64,
    /// The last batch that was applied, as JSON fields.
    applied: Option<String>,
    /// Why the last list was refused, if it was.
    refused: Option<String>,
    page: Arc<Vec<u8>>,
}

impl Told {
    fn render(&mut self) {
        let applied = self.applied.as_deref().unwrap_or(r#""deleted":0,"moves":[]"#);
        let refused = serde_json::Value::from(self.refused.clone());
        let batches = self.batches;
        self.page =
            Arc::new(format!("{{\"batches\":{batches},{applied},\"refused\":{refused}}}\n").into_bytes());
    }
}

impl Control {
    /// What `delete` says now.
    pub(in crate::view) fn delete_page(&self) -> Arc<Vec<u8>> {
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        if told.page.is_empty() {
            told.render();
        }
        Arc::clone(&told.page)
    }

    pub(in crate::view) fn refused(&self, e: &Error) {
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        told.refused = Some(e.to_string());
        told.render();
    }

    fn applied(&self, deleted: u64, records: u64, moves: &[Move], failure: Option<&Error>) {
        let pairs: Vec<[u64; 2]> = moves.iter().map(|&Move { from, to }| [from, to]).collect();
        // Numbers are always JSON.
        let pairs = serde_json::to_string(&pairs).unwrap_or_default();
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        told.batches += 1;
        told.applied = Some(format!(r#""deleted":{deleted},"records":{records},"moves":{pairs}"#));
        told.refused = failure.map(Error::to_string);
        told.render();
    }
}

/// The records of a list, one bit each.
struct Doomed {
    bits: Vec<u8>,
    count: u64,
}

impl Doomed {
    fn parse(text: &[u8], length: u64) -> Result<Doomed> {
        let text = std::str::from_utf8(text)
            .map_err(|_| Error::new(ErrorKind::Unsupported, "the list of records is not text"))?;
        let mut doomed =
            Doomed { bits: vec![0; usize::try_from(length.div_ceil(8)).unwrap_or_default()], count: 0 };
        for index in parse_records(text, length)?.into_iter().flatten() {
            if !doomed.has(index) {
                doomed.count += 1;
                if let Some(byte) = usize::try_from(index / 8).ok().and_then(|at| doomed.bits.get_mut(at)) {
                    *byte |= 1 << (index % 8);
                }
            }
        }
        Ok(doomed)
    }

    fn has(&self, index: u64) -> bool {
        let byte = usize::try_from(index / 8).ok().and_then(|at| self.bits.get(at));
        byte.is_some_and(|byte| byte >> (index % 8) & 1 == 1)
    }

    fn indices(&self) -> Vec<u64> {
        let length = self.bits.len() as u64 * 8;
        (0..length).filter(|&index| self.has(index)).collect()
    }
}

impl View {
    /// Deletes the records of a list, of the labels, too; gives what the kernel has to forget, whether it went well or
    /// not. A batch of more than `few` records has it forget all names at once.
    ///
    /// Waits for the disk, and until handlers that go by the old indices have answered. For one thread, which answers no
    /// request meanwhile.
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`] and [`ErrorKind::OutOfRange`] for what the list says; [`ErrorKind::Busy`],
    /// [`ErrorKind::Stale`]; what [`Store::delete_aligned`] gives. The opening that it came from takes nothing more then.
    pub fn delete(&self, deletion: &Deletion, few: usize) -> (Forget, Result<()>) {
        let mut forget = Forget::default();
        let done = self.apply(deletion, few, &mut forget);
        if let Err(e) = &done {
            deletion.list.lock().unwrap_or_else(PoisonError::into_inner).spoil(e);
            self.control.refused(e);
        }
        (forget, done)
    }

    fn apply(&self, deletion: &Deletion, few: usize, forget: &mut Forget) -> Result<()> {
        self.gate.begin_delete()?;
        // Ends it however this ends.
        let _ending = scopeguard(|| self.gate.end_delete());
        let epoch = self.store.epoch();
        if deletion.list.lock().unwrap_or_else(PoisonError::into_inner).epoch() != epoch {
            let text = "records were deleted since the file was opened, so the list's indices are old";
            return Err(Error::new(ErrorKind::Stale, text).with_help("look them up again"));
        }
        let before = self.store.len();
        let doomed = Doomed::parse(&deletion.text, before)?;
        if doomed.count == 0 {
            self.control.applied(0, before, &[], None);
            return Ok(());
        }
        let indices = doomed.indices();
        let now = Arc::clone(&self.lineage.load().now);
        let mut stores: Vec<&Store> = vec![&self.store];
        stores.extend(self.labels.as_deref());
        let mut begun = None;
        let done = Store::delete_announced(&stores, &indices, |moves, left| {
            // Nobody appends any more, so this is all that the store had.
            let touched = self.touched(&doomed, &indices, left + doomed.count, few);
            let since = nanoseconds(SystemTime::now());
            let next = Arc::new(now.after(moves, left, epoch + 1, since));
            self.lineage.store(Arc::new(Lineage {
                now: Arc::clone(&now),
                next: Some((epoch + 1, Arc::clone(&next))),
            }));
            begun = Some((touched, next, moves.to_vec(), left));
        });
        // Where the last write failed it may be done or not; what is shown is that it is done.
        match begun.filter(|_| self.store.epoch() == epoch + 1) {
            None => self.lineage.store(Arc::new(Lineage { now, next: None })),
            Some(((folders, touched), next, moves, left)) => {
                *forget = touched;
                if !forget.all_names {
                    let moved = moves.iter().map(|moved| Node::Record(now.id_of(tree::index(moved.from))));
                    forget.attributes.extend(moved);
                }
                self.lineage.store(Arc::new(Lineage { now: next, next: None }));
                self.touch_folders(&folders);
                if let Err(e) = self.refresh_modified() {
                    log::warn!("{e}");
                }
                self.batches.begin_epoch(left);
                self.control.applied(doomed.count, left, &moves, done.as_ref().err());
            }
        }
        self.wait_for_handlers();
        done.map(drop)
    }

    /// What the kernel knows that a delete makes wrong.
    fn touched(
        &self,
        doomed: &Doomed,
        indices: &[u64],
        before: u64,
        few: usize,
    ) -> (BTreeSet<NodeId>, Forget) {
        let mut forget = Forget { all_names: indices.len() > few, ..Forget::default() };
        let names: Vec<Option<NamedNode>> =
            indices.par_iter().map(|&index| self.name_of(tree::index(index))).collect();
        let folders: BTreeSet<NodeId> = names.iter().flatten().map(|named| named.parent).collect();
        forget.directories.extend([Node::Root, Node::Records, Node::Batches]);
        forget.directories.extend(folders.iter().copied().map(tree::folder));
        if !forget.all_names {
            let in_tree = |named: &NamedNode| (tree::folder(named.parent), named.name.clone());
            forget.names.extend(names.iter().flatten().map(in_tree));
            // Holes name other records, and the last names none.
            let last = before.saturating_sub(doomed.count)..before;
            let mut name = RecordName::new();
            for index in indices.iter().copied().chain(last.filter(|&index| !doomed.has(index))) {
                let index = tree::index(index);
                let named = self.name_of(index);
                let name = name.of(index, self.extension(named.as_ref()));
                forget.names.push((Node::Records, name.to_vec()));
            }
        }
        let lineage = self.lineage.load();
        let open = self.open_records.all().into_iter();
        let gone = open.filter(|&id| lineage.now.index_of(id).is_none_or(|index| doomed.has(index.into())));
        forget.pages.extend(gone.map(Node::Record));
        (folders, forget)
    }
}

/// Runs `end` when it is dropped.
fn scopeguard(end: impl FnMut()) -> impl Drop {
    struct Ending<F: FnMut()>(F);
    impl<F: FnMut()> Drop for Ending<F> {
        fn drop(&mut self) {
            (self.0)();
        }
    }
    Ending(end)
}
