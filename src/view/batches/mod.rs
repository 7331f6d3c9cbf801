//! What is made of the whole index space: `array.npy`, the endless files, and the files of each step in `batches/`.
//!
//! | file | what it does |
//! |---|---|
//! | `draw` | which records a step is of |
//! | `dense`, `archive` | what is where in a file of dense records, and in an archive |
//! | `engine` | the stores, and the stream of each epoch |
//! | `fill` | the bytes of any range, made in place |
//! | `parts`, `reader`, `serve`, `unopened` | parts that are made ahead, who they are for, and answering requests |
//!
//! Shared: the engine and the parts, as said there; who has a file open, behind a mutex that is held to add or look.

mod archive;
mod dense;
mod draw;
mod engine;
mod fill;
mod parts;
mod reader;
mod scalar;
mod serve;
#[cfg(test)]
mod tests;
mod unopened;

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use super::inode::{MAX_STEPS, Sampled, StepFile};
use super::opening::{Handle, Paging};
use super::{Attributes, Kind, Node, Reply, View, not_found};
use crate::error::{Error, ErrorKind, Result};
pub(super) use engine::Engine;
use engine::Epoch;
use reader::{Layout, Reader};
use unopened::Unopened;

/// A file is made in parts of whole records, each of about so many bytes.
const PART: u64 = 1 << 20;

/// An open file. What was made for its reader is let go with it.
pub(super) struct Open(Arc<Reader>);

impl Drop for Open {
    fn drop(&mut self) {
        self.0.close();
    }
}

/// The streams of a mount.
pub(super) struct Batches {
    engine: Arc<Engine>,
    readers: Mutex<Vec<Weak<Reader>>>,
    unopened: Unopened,
}

impl Batches {
    pub(super) fn new(engine: Engine) -> Batches {
        Batches { engine: Arc::new(engine), readers: Mutex::default(), unopened: Unopened::default() }
    }

    /// After a delete that has left `length` records.
    pub(super) fn begin_epoch(&self, length: u64) {
        self.engine.begin_epoch(length);
    }

    /// Gives back the memory of readers that have gone quiet.
    pub(super) fn tidy(&self) {
        let readers: Vec<Arc<Reader>> = {
            let mut readers = self.readers.lock().unwrap_or_else(PoisonError::into_inner);
            readers.retain(|reader| reader.strong_count() > 0);
            readers.iter().filter_map(Weak::upgrade).collect()
        };
        readers.iter().for_each(|reader| reader.tidy());
        self.engine.parts.tidy();
    }

    /// The files that each step has, in the order of a listing.
    pub(super) fn step_files(&self) -> impl Iterator<Item = StepFile> {
        StepFile::ALL.into_iter().filter(|&file| self.engine.has(file))
    }

    /// How many records batches are drawn from, which are those of `array.npy`.
    pub(super) fn length(&self) -> u64 {
        self.engine.epoch().length
    }

    /// How many files `batches/` lists for that many steps.
    pub(super) fn listed(&self, steps: u64) -> u64 {
        self.engine.epoch().reachable(steps).saturating_mul(self.step_files().count() as u64)
    }

    /// Whether there is an `array.npy`.
    pub(super) fn has_array(&self) -> bool {
        self.engine.sampled(Sampled::Array, &self.engine.epoch()).is_some()
    }

    /// What is where in a file of `epoch`.
    fn layout(&self, epoch: &Epoch, node: Node) -> Result<Layout> {
        let engine = &self.engine;
        let dense = match node {
            Node::Sampled(Sampled::BatchTar, _) => {
                epoch.draws()?;
                return Ok(Layout::Endless(Mutex::new(VecDeque::new())));
            }
            Node::Sampled(Sampled::Array, _) => engine.sampled(Sampled::Array, epoch),
            Node::Sampled(which, _) => {
                epoch.draws()?;
                engine.sampled(which, epoch)
            }
            Node::Step(file, step, _) => {
                if !epoch.draws()?.reaches(step) {
                    return Err(not_found());
                }
                if file == StepFile::Tar {
                    let size = engine.table(epoch, step, 1, true)?.size();
                    return Ok(Layout::Archive { step, size });
                }
                engine.step(file, step)
            }
            _ => None,
        };
        dense.map(Layout::Dense).ok_or_else(not_found)
    }
}

/// `name` and what it is, of the files in the root that are not listed.
const ENDLESS: [(&[u8], Sampled); 4] = [
    (b"batch", Sampled::Batch),
    (b"batch.npy", Sampled::BatchNpy),
    (b"batch.label.npy", Sampled::BatchLabels),
    (b"batch.tar", Sampled::BatchTar),
];

/// What follows the number of a step in the name of a file.
pub(super) fn suffix(file: StepFile) -> &'static str {
    match file {
        StepFile::Npy => ".npy",
        StepFile::Tar => ".tar",
        StepFile::Labels => ".label.npy",
        StepFile::Index => ".index.npy",
    }
}

impl View {
    /// Opens such a file. It needs the index space to hold still until it is released.
    ///
    /// # Errors
    /// [`ErrorKind::Stale`] for one of another epoch, [`ErrorKind::NotFound`].
    pub(super) fn open_sampled(&self, node: Node) -> Result<(Open, Paging)> {
        let epoch = self.batches.engine.epoch();
        let node = of_epoch(node, &epoch)?;
        let layout = self.batches.layout(&epoch, node)?;
        let paging = match node {
            Node::Sampled(Sampled::BatchTar, _) => Paging::Stream,
            Node::Sampled(Sampled::Batch | Sampled::BatchNpy | Sampled::BatchLabels, _) => Paging::Direct,
            _ => Paging::Cached,
        };
        let reader = Arc::new(Reader::new(Arc::clone(&self.batches.engine), epoch, node, layout));
        let mut readers = self.batches.readers.lock().unwrap_or_else(PoisonError::into_inner);
        readers.push(Arc::downgrade(&reader));
        Ok((Open(reader), paging))
    }

    /// As [`View::read`], for such a file.
    pub(super) fn read_sampled(&self, node: Node, handle: u64, offset: u64, size: u32, reply: Reply) {
        let reader = if handle == 0 && self.options.data_only {
            self.unopened(node)
        } else {
            self.handles.get(handle, |handle| match handle {
                Handle::Sampled(open) => Some(Arc::clone(&open.0)),
                _ => None,
            })
        };
        match reader {
            Ok(reader) if node.is_of(reader.epoch.number) => serve::serve(reader, offset, size, reply),
            Ok(_) => reply(Err(stale())),
            Err(e) => reply(Err(e)),
        }
    }

    /// The reader of a file that the kernel has opened by itself. Two may be made at once: each answers rightly.
    fn unopened(&self, node: Node) -> Result<Arc<Reader>> {
        if let Some(reader) = self.batches.unopened.get(node) {
            return Ok(reader);
        }
        let (open, _) = self.open_sampled(node)?;
        let reader = Arc::clone(&open.0);
        self.batches.unopened.keep(node, open);
        Ok(reader)
    }

    /// Attributes of such a file.
    pub(super) fn sampled_attributes(&self, node: Node) -> Result<Attributes> {
        let epoch = self.batches.engine.epoch();
        let node = of_epoch(node, &epoch)?;
        let size = match self.batches.layout(&epoch, node)? {
            Layout::Dense(dense) => dense.size().unwrap_or(0),
            Layout::Archive { size, .. } => size,
            Layout::Endless(_) => 0,
        };
        // `du` counts a record once.
        let stored = if matches!(node, Node::Sampled(..)) { 0 } else { size };
        Ok(Attributes {
            stored,
            modified: epoch.since,
            generation: epoch.number,
            ..self.passing(node, Kind::File, size)
        })
    }

    /// The file of that name in the root, if there is one: `array.npy`, and the endless ones, which are not listed.
    pub(super) fn sampled_in_root(&self, name: &[u8]) -> Option<Sampled> {
        if name == b"array.npy" {
            return Some(Sampled::Array);
        }
        let (_, which) = ENDLESS.into_iter().find(|(known, _)| *known == name)?;
        // Records without a dtype have bounds in an archive alone.
        let is_bytes = which == Sampled::Batch && !self.batches.engine.has(StepFile::Npy);
        Some(if is_bytes { Sampled::BatchTar } else { which })
    }

    /// The step and the file that a name in `batches/` stands for.
    pub(super) fn step_of(&self, name: &[u8]) -> Option<(StepFile, u64)> {
        let digits = name.iter().take_while(|byte| byte.is_ascii_digit()).count();
        let (digits, rest) = name.split_at_checked(digits).filter(|(digits, _)| !digits.is_empty())?;
        let step = digits.iter().try_fold(0u64, |step, &digit| {
            Some(step * 10 + u64::from(digit - b'0')).filter(|&step| step < MAX_STEPS)
        })?;
        let file = self.batches.step_files().find(|&file| suffix(file).as_bytes() == rest)?;
        Some((file, step))
    }
}

/// The node, with its epoch as it is: a number may have cut it.
fn of_epoch(node: Node, epoch: &Epoch) -> Result<Node> {
    if !node.is_of(epoch.number) {
        return Err(stale());
    }
    Ok(match node {
        Node::Sampled(which, _) => Node::Sampled(which, epoch.number),
        Node::Step(file, step, _) => Node::Step(file, step, epoch.number),
        other => other,
    })
}

fn stale() -> Error {
    Error::new(ErrorKind::Stale, "records were deleted since the file was looked up")
}
