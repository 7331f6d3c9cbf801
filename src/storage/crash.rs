//! What a crash may leave of the files, for tests: built from the changes that [`faulty`](super::faulty) recorded.
//!
//! A killed process leaves all changes that it has made. A power cut leaves what was synced, and of the changes
//! since any subset, each of them whole or torn: [`states`] shows them one after another. Nothing is assumed of the
//! disk but that aligned units of 16 bytes are atomic and that what was synced stays. A sync of a file says nothing
//! of its name: the folder's sync does. How much disk a file takes is not modelled.
//!
//! Changes go by the file's name. One through a handle of a file that has been removed is ignored, so a test must not
//! use such a handle once another file has that name.

mod image;
mod tests;

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::fmt;
use std::iter;
use std::ops::Range;
use std::sync::Arc;

use super::faulty::Op;
use image::Contents;
pub(crate) use image::Image;

const UNIT: u64 = 16;
/// With so many pending changes or fewer, all their subsets are shown.
const ALL_SUBSETS: usize = 5;

/// How many states are shown.
#[derive(Clone, Copy)]
pub(crate) struct Limits {
    /// Random choices after each change, beside those that are always made: none of what is pending, all, each change
    /// alone, all but each, and every subset of a few.
    pub(crate) per_point: usize,
    pub(crate) seed: u64,
    /// Crashes before so many changes are left out. For a power cut after a kill and another program's changes, append
    /// these to the killed one's and begin there: what was not synced before the kill is still pending.
    pub(crate) from: usize,
}

/// What a crash has left.
#[derive(Clone)]
pub(crate) struct State {
    pub(crate) image: Image,
    /// Where the power went and what arrived, for the message of a failed test.
    pub(crate) what: String,
    /// Changes and syncs that had returned to the program.
    pub(crate) completed: usize,
    /// So many of them, from the first on, were on the disk in full whatever the power did.
    pub(crate) durable: usize,
    /// The process was killed: all that it did is there. Otherwise the power went.
    pub(crate) killed: bool,
}

/// Shows what a crash before, between and after `ops` may leave of the folder that was `before`, all of it on the
/// disk. Returns how many states there were. An image is shown once for every value of [`State::completed`] that it
/// comes with, as more may have been promised by then. One that a kill and a power cut may both leave counts as the
/// kill's, of which more is asked.
pub(crate) fn states(before: &Image, ops: &[Op], limits: Limits, mut visit: impl FnMut(&State)) -> usize {
    let mut disk = Model::new(before);
    let mut count = 0;
    for completed in 0..=ops.len() {
        let last = completed.checked_sub(1).map(|last| (last, &ops[last]));
        if let Some((index, op)) = last {
            disk.run(index, op);
        }
        if completed < limits.from {
            continue;
        }
        let at = last.map_or("before op 0".to_owned(), |(index, op)| format!("after op {index} ({op})"));
        let mut random = Random(limits.seed.wrapping_add((completed as u64) << 32));
        let mut seen = HashSet::new();
        for (choice, fates) in disk.choices(limits.per_point, &mut random).into_iter().enumerate() {
            let image = disk.image(&fates);
            if !seen.insert(image.clone()) {
                continue;
            }
            let killed = choice == 0;
            let what = if killed { format!("killed {at}") } else { disk.tell(&at, &fates) };
            let durable = disk.pending.first().map_or(completed, |change| change.index);
            visit(&State { image, what, completed, durable, killed });
            count += 1;
        }
    }
    count
}

/// What became of a change that was not synced.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Fate {
    Lost,
    Whole,
    /// These bytes arrived, and the size as if the change ended at `end`.
    Torn {
        arrived: Vec<Range<u64>>,
        end: u64,
    },
}

/// Makes a change of a file, or what arrived of it.
fn apply(file: &mut Contents, op: &Op, fate: &Fate) {
    match (op, fate) {
        (Op::Write { at, bytes, .. }, Fate::Whole) => file.write(*at, bytes),
        (Op::Write { at, bytes, .. }, Fate::Torn { arrived, end }) => {
            file.set_len(file.len().max(*end));
            // What arrived behind the size does not belong to the file.
            let len = file.len();
            for part in arrived.iter().filter(|part| part.start < len) {
                let end = part.end.min(len);
                file.write(part.start, &bytes[(part.start - at) as usize..(end - at) as usize]);
            }
        }
        (Op::Free { at, len, .. }, Fate::Whole) => file.free(*at..at + len),
        (Op::Free { .. }, Fate::Torn { arrived, .. }) => {
            arrived.iter().for_each(|part| file.free(part.clone()))
        }
        (Op::SetLen { len, .. }, _) => file.set_len(*len),
        (Op::Allocate { at, len, .. }, _) => file.set_len(file.len().max(at + len)),
        _ => {}
    }
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Node {
    Folder,
    File(usize),
}

type Names = BTreeMap<String, Node>;

fn set_name(names: &mut Names, name: &str, node: Option<Node>) {
    match node {
        Some(node) => drop(names.insert(name.to_owned(), node)),
        None => drop(names.remove(name)),
    }
}

/// The folder that a name is in.
fn parent(name: &str) -> &str {
    name.rsplit_once('/').map_or("", |(parent, _)| parent)
}

enum Change<'a> {
    /// The name stands for this from now on.
    Name(&'a str, Option<Node>),
    Contents(usize),
}

struct Pending<'a> {
    index: usize,
    op: &'a Op,
    change: Change<'a>,
    /// Where it can be torn.
    data: Vec<Range<u64>>,
    /// Whether it is a write behind the end.
    extends: bool,
}

impl Pending<'_> {
    /// The folder whose sync makes it durable.
    fn folder(&self) -> Option<&str> {
        match self.change {
            Change::Name(name, _) => Some(parent(name)),
            Change::Contents(_) => None,
        }
    }
}

/// What is on the disk for certain, and what is pending. A file is a number: its name may pass to another.
struct Model<'a> {
    names: Names,
    files: Vec<Arc<Contents>>,
    pending: Vec<Pending<'a>>,
    /// As the program sees them. A name that was removed stays here.
    names_now: BTreeMap<String, Option<Node>>,
    files_now: Vec<Arc<Contents>>,
}

impl<'a> Model<'a> {
    fn new(before: &Image) -> Model<'a> {
        let files: Vec<_> = before.files.values().cloned().collect();
        let mut names: Names = before.folders.iter().map(|name| (name.clone(), Node::Folder)).collect();
        names.extend(before.files.keys().enumerate().map(|(id, name)| (name.clone(), Node::File(id))));
        let names_now = names.iter().map(|(name, node)| (name.clone(), Some(*node))).collect();
        Model { names, files: files.clone(), pending: Vec::new(), names_now, files_now: files }
    }

    /// The file that the program means by `name`; `None` if it has been removed.
    fn id(&self, name: &str) -> Option<usize> {
        match self.names_now.get(name) {
            Some(Some(Node::File(id))) => Some(*id),
            Some(None) => None,
            _ => panic!("{name} is neither in the image nor created later"),
        }
    }

    fn run(&mut self, index: usize, op: &'a Op) {
        match op {
            Op::Create(name) => {
                self.name(index, op, name, Some(Node::File(self.files.len())));
                self.files.push(Arc::default());
                self.files_now.push(Arc::default());
            }
            Op::MakeFolder(name) => self.name(index, op, name, Some(Node::Folder)),
            Op::Remove(name) => self.name(index, op, name, None),
            Op::Sync(name) => {
                let Some(id) = self.id(name) else { return };
                let synced =
                    |change: &mut Pending<'_>| matches!(change.change, Change::Contents(of) if of == id);
                for change in self.pending.extract_if(.., synced) {
                    apply(Arc::make_mut(&mut self.files[id]), change.op, &Fate::Whole);
                }
            }
            Op::SyncFolder(folder) => {
                let here = |change: &mut Pending<'_>| change.folder() == Some(folder);
                for change in self.pending.extract_if(.., here) {
                    if let Change::Name(name, node) = change.change {
                        set_name(&mut self.names, name, node);
                    }
                }
                // Nothing comes back of a file that has lost its name.
                let mut named: BTreeSet<_> = self.names.values().copied().collect();
                named.extend(self.pending.iter().filter_map(|change| match change.change {
                    Change::Name(_, node) => node,
                    Change::Contents(_) => None,
                }));
                let is_named = |id| named.contains(&Node::File(id));
                self.pending.retain(|change| !matches!(change.change, Change::Contents(id) if !is_named(id)));
            }
            Op::Write { bytes, .. } if bytes.is_empty() => {}
            Op::Write { file, .. }
            | Op::SetLen { file, .. }
            | Op::Free { file, .. }
            | Op::Allocate { file, .. } => {
                let Some(id) = self.id(file) else { return };
                let now = Arc::make_mut(&mut self.files_now[id]);
                let (data, extends) = match op {
                    Op::Write { at, bytes, .. } => {
                        let end = at + bytes.len() as u64;
                        (iter::once(*at..end).collect(), end > now.len())
                    }
                    Op::Free { at, len, .. } => (now.data(*at..at + len), false),
                    _ => (Vec::new(), false),
                };
                apply(now, op, &Fate::Whole);
                self.pending.push(Pending { index, op, change: Change::Contents(id), data, extends });
            }
        }
    }

    fn name(&mut self, index: usize, op: &'a Op, name: &'a str, node: Option<Node>) {
        self.names_now.insert(name.to_owned(), node);
        let change = Change::Name(name, node);
        self.pending.push(Pending { index, op, change, data: Vec::new(), extends: false });
    }

    /// What may have become of the pending changes. In the first choice all of them arrived, as after a kill.
    fn choices(&self, random_choices: usize, random: &mut Random) -> Vec<Vec<Fate>> {
        let n = self.pending.len();
        let choose = |whole: &dyn Fn(usize) -> bool| -> Vec<Fate> {
            (0..n).map(|i| if whole(i) { Fate::Whole } else { Fate::Lost }).collect()
        };
        let mut choices = vec![choose(&|_| true), choose(&|_| false)];
        if n <= ALL_SUBSETS {
            choices.extend((0..1 << n).map(|bits: u32| choose(&|i| bits >> i & 1 == 1)));
        }
        for one in 0..n {
            choices.extend([choose(&|i| i == one), choose(&|i| i != one)]);
            // The size arrives before the data.
            if let (true, Some(last)) = (self.pending[one].extends, self.pending[one].data.last()) {
                for others in [false, true] {
                    let mut fates = choose(&|_| others);
                    fates[one] = Fate::Torn { arrived: Vec::new(), end: last.end };
                    choices.push(fates);
                }
            }
        }
        for _ in 0..if n > 0 { random_choices } else { 0 } {
            let torn = random.below(n);
            // Torn alone, among what arrived, or at the end of what arrived in order; otherwise all by chance.
            let mut fates = match random.below(4) {
                0 => choose(&|_| false),
                1 => choose(&|_| true),
                2 => choose(&|i| i < torn),
                _ => (0..n).map(|i| self.chance(i, random)).collect(),
            };
            fates[torn] = self.tear(torn, random);
            choices.push(fates);
        }
        choices
    }

    fn chance(&self, one: usize, random: &mut Random) -> Fate {
        match random.below(3) {
            0 => Fate::Lost,
            1 => Fate::Whole,
            _ => self.tear(one, random),
        }
    }

    fn tear(&self, one: usize, random: &mut Random) -> Fate {
        let data = &self.pending[one].data;
        let (Some(first), Some(last)) = (data.first(), data.last()) else {
            // A size or a name changes at once.
            return if random.below(2) == 0 { Fate::Lost } else { Fate::Whole };
        };
        // Atoms, sectors or pages.
        let size = [UNIT, 512, 4096][random.below(3)];
        let mut pieces = Vec::new();
        for part in data {
            let mut at = part.start;
            while at < part.end {
                let end = ((at / size + 1) * size).min(part.end);
                pieces.push(at..end);
                at = end;
            }
        }
        let (pattern, cut) = (random.below(8), random.below(pieces.len()));
        let mut arrived: Vec<Range<u64>> = Vec::new();
        for (i, piece) in pieces.into_iter().enumerate() {
            let arrives = match pattern {
                0 => false,
                1 => true,
                2 => i < cut,
                3 => i >= cut,
                4 => i == cut,
                5 => i != cut,
                _ => random.below(2) == 0,
            };
            match arrived.last_mut() {
                Some(last) if arrives && last.end == piece.start => last.end = piece.end,
                _ if arrives => arrived.push(piece),
                _ => {}
            }
        }
        let end = match random.below(3) {
            0 => 0,
            1 => last.end,
            _ => (first.start + random.below((last.end - first.start) as usize) as u64) / UNIT * UNIT,
        };
        Fate::Torn { arrived, end }
    }

    fn image(&self, fates: &[Fate]) -> Image {
        let (mut names, mut files) = (self.names.clone(), self.files.clone());
        for (change, fate) in self.pending.iter().zip(fates).filter(|(_, fate)| **fate != Fate::Lost) {
            match change.change {
                Change::Name(name, node) => set_name(&mut names, name, node),
                Change::Contents(id) => apply(Arc::make_mut(&mut files[id]), change.op, fate),
            }
        }
        let mut image = Image::default();
        // A folder comes before what is in it, and what is in a folder that is missing is missing, too.
        for (name, node) in names {
            match node {
                _ if !image.has_folder(parent(&name)) => {}
                Node::Folder => drop(image.folders.insert(name)),
                Node::File(id) => drop(image.files.insert(name, files[id].clone())),
            }
        }
        image
    }

    fn tell(&self, at: &str, fates: &[Fate]) -> String {
        let mut what = format!("power cut {at}; of what was not synced:");
        for (change, fate) in self.pending.iter().zip(fates) {
            let fate = match fate {
                Fate::Lost => "lost".to_owned(),
                Fate::Whole => "arrived".to_owned(),
                Fate::Torn { arrived, end } => {
                    format!("torn, bytes {arrived:?} arrived, the size up to {end}")
                }
            };
            what += &format!("\n  op {} ({}): {fate}", change.index, change.op);
        }
        what
    }
}

/// SplitMix64.
struct Random(u64);

impl Random {
    fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut x = self.0;
        x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((x ^ (x >> 31)) % end as u64) as usize
    }
}

impl fmt::Display for Op {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Op::Write { file, at, bytes } => write!(f, "write {file} {at}..{}", at + bytes.len() as u64),
            Op::Free { file, at, len } => write!(f, "free {file} {at}..{}", at + len),
            Op::Allocate { file, at, len } => write!(f, "allocate {file} {at}..{}", at + len),
            other => write!(f, "{other:?}"),
        }
    }
}
