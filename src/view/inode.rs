//! Inode numbers. They are computed, never stored: forgetting one costs nothing.
//!
//! | number | node |
//! |---|---|
//! | 1 to 8 | the root, `records/`, `tree/`, `stats`, `README`, `delete`, `compact`, `batches/` |
//! | (e + 1) · 2^24 + i | the record that was first seen at index i in epoch e |
//! | 1 · 2^60 + n | the folder in `tree/` that is node n of the names |
//! | 2 · 2^60 + n | the link in `tree/` that is node n of the names |
//! | 3 · 2^60 + k · 2^56 + e | `array.npy` and the endless files, by kind k, in epoch e |
//! | 4 · 2^60 + k · 2^58 + e · 2^48 + s | the file of kind k of step s in `batches/`, in epoch e modulo 2^10 |
//!
//! Epochs count deletes, so after one the same name is another file where its bytes are others. A record's number is made of
//! where it was first, so it does not change when its bytes or its index do. The numbers of the names stay as long as the
//! store lives.

use super::identity::RecordId;
use crate::format::MAX_RECORDS;
use crate::store::NodeId;

const FIRST_RECORD: u64 = MAX_RECORDS as u64;
const TAG: u32 = 60;
const FOLDERS: u64 = 1;
const LINKS: u64 = 2;
const SAMPLED: u64 = 3;
const STEPS: u64 = 4;
const SAMPLED_KIND: u32 = 56;
const STEP_KIND: u32 = 58;
const STEP_BITS: u32 = 48;
/// Steps below this have files in `batches/`.
pub(super) const MAX_STEPS: u64 = 1 << STEP_BITS;
/// How many epochs a step's number tells apart. The kernel tells the others apart by the generation.
const STEP_EPOCHS: u64 = 1 << (STEP_KIND - STEP_BITS);

/// A file or directory of the mount.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Node {
    /// The mount point.
    Root,
    /// `records/`.
    Records,
    /// `tree/`, the root of the names.
    Tree,
    /// `batches/`.
    Batches,
    /// `stats`.
    Stats,
    /// `README`.
    Readme,
    /// `delete`.
    Delete,
    /// `compact`.
    Compact,
    /// `array.npy` or an endless file.
    Sampled(Sampled, Epoch),
    /// A file of a step in `batches/`.
    Step(StepFile, u64, Epoch),
    /// A record. One file, also where it has two names.
    Record(RecordId),
    /// A folder below `tree/`. Not the root of the names, which is [`Node::Tree`].
    Folder(NodeId),
    /// A symbolic link below `tree/`.
    Link(NodeId),
}

/// The epoch of a file that is made of the whole index space; see [`Store::epoch`](crate::store::Store::epoch).
pub type Epoch = u64;

/// The files in the root that are made of the whole index space.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Sampled {
    /// `array.npy`
    Array,
    /// `batch`
    Batch,
    /// `batch.npy`
    BatchNpy,
    /// `batch.label.npy`
    BatchLabels,
    /// `batch.tar`
    BatchTar,
}

/// The files of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum StepFile {
    /// `N.npy`: its records.
    Npy,
    /// `N.tar`: its records, labels and indices as a WebDataset archive.
    Tar,
    /// `N.label.npy`: its labels.
    Labels,
    /// `N.index.npy`: its indices.
    Index,
}

impl Sampled {
    const ALL: [Sampled; 5] =
        [Sampled::Array, Sampled::Batch, Sampled::BatchNpy, Sampled::BatchLabels, Sampled::BatchTar];
}

impl StepFile {
    pub(super) const ALL: [StepFile; 4] = [StepFile::Npy, StepFile::Tar, StepFile::Labels, StepFile::Index];
}

/// Which one of `all` it is.
fn kind<T: PartialEq>(all: &[T], one: &T) -> u64 {
    all.iter().position(|other| other == one).map_or(0, |at| at as u64)
}

impl Node {
    /// The inode number.
    pub fn number(self) -> u64 {
        match self {
            Node::Root => 1,
            Node::Records => 2,
            Node::Tree => 3,
            Node::Stats => 4,
            Node::Readme => 5,
            Node::Delete => 6,
            Node::Compact => 7,
            Node::Batches => 8,
            Node::Record(id) => FIRST_RECORD + id.number(),
            Node::Folder(id) => FOLDERS << TAG | u64::from(id.number()),
            Node::Link(id) => LINKS << TAG | u64::from(id.number()),
            Node::Sampled(which, epoch) => {
                SAMPLED << TAG | kind(&Sampled::ALL, &which) << SAMPLED_KIND | (epoch % (1 << SAMPLED_KIND))
            }
            Node::Step(file, step, epoch) => {
                let which = kind(&StepFile::ALL, &file) << STEP_KIND | (epoch % STEP_EPOCHS) << STEP_BITS;
                STEPS << TAG | which | (step % MAX_STEPS)
            }
        }
    }

    /// The node of an inode number; `None` for a number that is never given out. The epoch of a step is known modulo 2^10.
    pub fn from_number(number: u64) -> Option<Node> {
        let low = number % (1 << TAG);
        match number >> TAG {
            0 => match number {
                1 => Some(Node::Root),
                2 => Some(Node::Records),
                3 => Some(Node::Tree),
                4 => Some(Node::Stats),
                5 => Some(Node::Readme),
                6 => Some(Node::Delete),
                7 => Some(Node::Compact),
                8 => Some(Node::Batches),
                _ => RecordId::from_number(number.checked_sub(FIRST_RECORD)?).map(Node::Record),
            },
            FOLDERS => below_the_root(low).map(Node::Folder),
            LINKS => below_the_root(low).map(Node::Link),
            SAMPLED => {
                let which = usize::try_from(low >> SAMPLED_KIND).ok()?;
                Some(Node::Sampled(*Sampled::ALL.get(which)?, low % (1 << SAMPLED_KIND)))
            }
            STEPS => {
                let file = usize::try_from(low >> STEP_KIND).ok()?;
                let epoch = low >> STEP_BITS & (STEP_EPOCHS - 1);
                Some(Node::Step(*StepFile::ALL.get(file)?, low % MAX_STEPS, epoch))
            }
            _ => None,
        }
    }

    /// Whether it needs the index space to hold still while it is open.
    pub fn pins(self) -> bool {
        matches!(self, Node::Sampled(..) | Node::Step(..))
    }

    /// Whether a node of this epoch, which a number may have cut, is one of `epoch`.
    pub(super) fn is_of(self, epoch: u64) -> bool {
        match self {
            Node::Sampled(_, its) => its == epoch % (1 << SAMPLED_KIND),
            Node::Step(_, _, its) => its % STEP_EPOCHS == epoch % STEP_EPOCHS,
            _ => true,
        }
    }
}

/// The node of the names that has this number, if it may lie below their root.
fn below_the_root(number: u64) -> Option<NodeId> {
    let id = NodeId::from_number(u32::try_from(number).ok()?);
    (id > NodeId::ROOT).then_some(id)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_go_both_ways() {
        let ids = [NodeId::ROOT.number() + 1, 1 << 24, u32::MAX].map(NodeId::from_number);
        let records = [0, 1, MAX_RECORDS - 1]
            .into_iter()
            .flat_map(|index| [0, 1, 1 << 35].map(|epoch| Node::Record(RecordId::new(index, epoch))));
        let sampled =
            Sampled::ALL.into_iter().flat_map(|which| [0, 7, 1 << 50].map(|e| Node::Sampled(which, e)));
        let steps = StepFile::ALL.into_iter().flat_map(|file| {
            [0, 17, MAX_STEPS - 1]
                .into_iter()
                .flat_map(move |step| [0, 1023].map(|e| Node::Step(file, step, e)))
        });
        let fixed = [
            Node::Root,
            Node::Records,
            Node::Tree,
            Node::Stats,
            Node::Readme,
            Node::Delete,
            Node::Compact,
            Node::Batches,
        ];
        let nodes: Vec<_> = fixed
            .into_iter()
            .chain(records)
            .chain(ids.map(Node::Folder))
            .chain(ids.map(Node::Link))
            .chain(sampled)
            .chain(steps)
            .collect();
        let mut numbers: Vec<_> = nodes.iter().map(|node| node.number()).collect();
        for (node, &number) in nodes.iter().zip(&numbers) {
            assert_eq!(Node::from_number(number), Some(*node));
            assert!(number < 1 << 63, "some programs take numbers for signed");
        }
        numbers.sort_unstable();
        numbers.dedup();
        assert_eq!(numbers.len(), nodes.len());
        let root_of_names = u64::from(NodeId::ROOT.number());
        for number in [
            0,
            9,
            FIRST_RECORD - 1,
            FOLDERS << TAG,
            FOLDERS << TAG | root_of_names,
            FOLDERS << TAG | 1 << 32,
            LINKS << TAG | 1 << 32,
            SAMPLED << TAG | 5 << SAMPLED_KIND,
            5 << TAG,
            u64::MAX,
        ] {
            assert_eq!(Node::from_number(number), None, "{number}");
        }
    }
}
