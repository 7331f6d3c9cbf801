//! What is made of the whole index space: `array.npy`, the endless files, and the files of each step in `batches/`.

use super::inode::{Sampled, StepFile};
use super::opening::Paging;
use super::{Attributes, Node, View, not_found};
use crate::error::{Error, ErrorKind, Result};

/// How a request for bytes is answered: once, from any thread.
pub type Reply = Box<dyn FnOnce(Result<&[u8]>) + Send>;

/// What an open file keeps of where its reader is.
pub(super) struct Reader {}

/// The streams of a mount.
pub(super) struct Batches {}

impl Batches {
    pub(super) fn new() -> Batches {
        Batches {}
    }

    /// After a delete that has left `length` records.
    pub(super) fn begin_epoch(&self, _length: u64) {}
}

impl View {
    /// Opens such a file. It needs the index space to hold still until it is released.
    pub(super) fn open_sampled(&self, _node: Node) -> Result<(Reader, Paging)> {
        Err(not_found())
    }

    /// Gives the bytes of such a file from `offset` on to `reply`, at most `size` and fewer only at its end. It may be called
    /// later, by a thread that decodes them.
    pub fn read_sampled(&self, _node: Node, _handle: u64, _offset: u64, _size: u32, reply: Reply) {
        reply(Err(Error::new(ErrorKind::NotFound, "no such file")));
    }

    /// Attributes of such a file.
    pub(super) fn sampled_attributes(&self, _node: Node) -> Result<Attributes> {
        Err(not_found())
    }

    /// The file of that name in the root, if there is one: `array.npy`, and the endless ones, which are not listed.
    pub(super) fn sampled_in_root(&self, _name: &[u8]) -> Option<Sampled> {
        None
    }

    /// The step and the file that a name in `batches/` stands for.
    pub(super) fn step_of(&self, _name: &[u8]) -> Option<(StepFile, u64)> {
        None
    }
}
