//! The simulator of crashes itself.

use std::path::Path;

use super::*;
use crate::storage::faulty::{Faulty, Script};
use crate::storage::{Access, Directory};

fn create(name: &str) -> Op {
    Op::Create(name.into())
}

fn write(file: &str, at: u64, bytes: &[u8]) -> Op {
    Op::Write { file: file.into(), at, bytes: bytes.into() }
}

fn sync(name: &str) -> Op {
    Op::Sync(name.into())
}

fn sync_folder(name: &str) -> Op {
    Op::SyncFolder(name.into())
}

/// An image with these files.
fn image(files: &[(&str, &[u8])]) -> Image {
    let mut image = Image::default();
    for (name, bytes) in files {
        let mut contents = Contents::default();
        contents.write(0, bytes);
        image.files.insert((*name).into(), Arc::new(contents));
    }
    image
}

fn all(before: &Image, ops: &[Op]) -> Vec<State> {
    let mut all = Vec::new();
    let limits = Limits { per_point: 100, seed: 1, from: 0 };
    let count = states(before, ops, limits, |state| all.push(state.clone()));
    assert_eq!(count, all.len());
    all
}

fn bytes(image: &Image, name: &str) -> Option<Vec<u8>> {
    image.file(name).map(|file| file.read(0..file.len()))
}

/// What may be left of a file after all of the ops.
fn left(before: &Image, ops: &[Op], name: &str) -> BTreeSet<Option<Vec<u8>>> {
    let last = all(before, ops).into_iter().filter(|state| state.completed == ops.len());
    last.map(|state| bytes(&state.image, name)).collect()
}

fn some(bytes: &[u8]) -> Option<Vec<u8>> {
    Some(bytes.into())
}

#[test]
fn what_was_synced_is_in_every_later_state_and_what_was_not_in_some() {
    let ops = [write("a", 0, b"new"), sync("a"), write("b", 0, b"new"), sync("a")];
    let states = all(&image(&[("a", b"old"), ("b", b"old")]), &ops);
    let (new, old) = (some(b"new"), some(b"old"));
    for file in ["a", "b"] {
        for completed in 0..=ops.len() {
            let found: BTreeSet<_> = states
                .iter()
                .filter(|state| state.completed == completed)
                .map(|state| bytes(&state.image, file))
                .collect();
            let expected = match (file, completed) {
                ("a", 0) | ("b", 0..=2) => BTreeSet::from([old.clone()]),
                ("a", 1) | ("b", _) => BTreeSet::from([old.clone(), new.clone()]),
                _ => BTreeSet::from([new.clone()]),
            };
            assert_eq!(found, expected, "{file} after {completed}");
        }
    }
    let durable: BTreeSet<_> = states.iter().map(|state| (state.completed, state.durable)).collect();
    assert_eq!(durable, BTreeSet::from([(0, 0), (1, 0), (2, 2), (3, 2), (4, 2)]));
    // A killed process leaves all of its work, and each of its states comes once.
    let killed: Vec<_> = states.iter().filter(|state| state.killed).collect();
    assert_eq!(killed.len(), ops.len() + 1);
    assert!(killed.iter().all(|state| state.completed < 3 || bytes(&state.image, "b") == new));
    assert_eq!(killed[3].what, "killed after op 2 (write b 0..3)");
    let lost = states.iter().find(|state| state.completed == 3 && !state.killed).unwrap();
    let what = "power cut after op 2 (write b 0..3); of what was not synced:\n  op 2 (write b 0..3): lost";
    assert_eq!(lost.what, what);
}

#[test]
fn a_write_is_torn_between_units_of_16_bytes_and_nowhere_else() {
    let before = image(&[("a", &[0; 48])]);
    let found = left(&before, &[write("a", 8, &[1; 32])], "a");
    let mut expected = BTreeSet::new();
    for units in 0..8 {
        let mut bytes = vec![0; 48];
        for at in (8..40).filter(|at| units >> (at / 16) & 1 == 1) {
            bytes[at] = 1;
        }
        expected.insert(Some(bytes));
    }
    assert_eq!(found, expected);
}

#[test]
fn data_precede_the_header_only_across_a_sync() {
    let before = image(&[("data", b"old"), ("header", b"old")]);
    let header_without_data = |ops: &[Op]| {
        let has = |state: &State, file| bytes(&state.image, file) == some(b"new");
        all(&before, ops).iter().any(|state| has(state, "header") && !has(state, "data"))
    };
    let (data, header) = (write("data", 0, b"new"), write("header", 0, b"new"));
    assert!(header_without_data(&[data.clone(), header.clone()]));
    assert!(header_without_data(&[data.clone(), sync("header"), header.clone()]));
    assert!(!header_without_data(&[data, sync("data"), header]));
}

#[test]
fn a_size_may_come_without_the_data_and_not_the_data_without_the_size() {
    let before = image(&[("a", b"old")]);
    let zeros: &[u8] = b"old\0\0\0";
    let found = left(&before, &[write("a", 3, b"new")], "a");
    assert_eq!(found, BTreeSet::from([some(b"old"), some(zeros), some(b"oldnew")]));
    // It stops between units, and of what arrived behind it nothing is seen.
    let long = [write("a", 3, &[1; 37])];
    let found = left(&before, &long, "a").into_iter().flatten();
    assert_eq!(found.map(|bytes| bytes.len()).collect::<BTreeSet<_>>(), BTreeSet::from([3, 16, 32, 40]));
    // It comes without the data whatever the chances.
    let mut found = Vec::new();
    let limits = Limits { per_point: 0, seed: 1, from: 1 };
    states(&before, &long, limits, |state| found.extend(bytes(&state.image, "a")));
    assert_eq!(
        found.iter().map(|bytes| (bytes.len(), bytes[3..].contains(&1))).collect::<Vec<_>>(),
        [(40, true), (3, false), (40, false)]
    );
    let found = left(&before, &[Op::Allocate { file: "a".into(), at: 0, len: 6 }], "a");
    assert_eq!(found, BTreeSet::from([some(b"old"), some(zeros)]));
    let ops = [Op::SetLen { file: "a".into(), len: 0 }, Op::SetLen { file: "a".into(), len: 6 }];
    let found = left(&before, &ops, "a");
    assert_eq!(found, BTreeSet::from([some(b"old"), some(b""), some(zeros), some(&[0; 6])]));
    let found = left(&before, &[Op::Free { file: "a".into(), at: 0, len: 1 << 32 }], "a");
    assert_eq!(found, BTreeSet::from([some(b"old"), some(&[0; 3])]));
}

#[test]
fn names_wait_for_the_sync_of_their_folder() {
    let before = image(&[("a", b"old")]);
    let new = [Op::MakeFolder("f".into()), create("f/a"), write("f/a", 0, b"new"), sync("f/a")];
    let with = |more: &[Op]| left(&before, &[&new, more].concat(), "f/a");
    assert_eq!(with(&[]), BTreeSet::from([None, some(b"new")]));
    assert_eq!(with(&[sync_folder("f")]), BTreeSet::from([None, some(b"new")]));
    assert_eq!(with(&[sync_folder("")]), BTreeSet::from([None, some(b"new")]));
    assert_eq!(with(&[sync_folder("f"), sync_folder("")]), BTreeSet::from([some(b"new")]));
    // A removed file comes back with what was synced of it, and its name may pass to another.
    let remove = Op::Remove("a".into());
    let ops = [write("a", 0, b"mid"), remove.clone()];
    assert_eq!(left(&before, &ops, "a"), BTreeSet::from([None, some(b"old"), some(b"mid")]));
    let ops = [write("a", 0, b"mid"), sync("a"), remove.clone(), create("a")];
    assert_eq!(left(&before, &ops, "a"), BTreeSet::from([None, some(b"mid"), some(b"")]));
    let ops = [write("a", 0, b"mid"), remove, sync_folder("")];
    assert_eq!(left(&before, &ops, "a"), BTreeSet::from([None]));
    assert_eq!(all(&before, &ops).last().unwrap().durable, 3);
}

#[test]
fn the_model_agrees_with_the_disk() {
    let mut random = Random(7);
    for _ in 0..20 {
        // Two stores side by side.
        let (real, copy) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let mut before = image(&[("train.zr/0", &[9; 10_000]), ("labels.zr/1", b"old")]);
        before.folders = ["train.zr", "labels.zr"].map(String::from).into();
        before.write(real.path());
        let script = Script::default();
        let train = Faulty::open_as(&real.path().join("train.zr"), "train.zr", &script);
        let labels = train.neighbour(Path::new("../labels.zr")).unwrap();
        let inner = train.make_folder(".zrfs").unwrap();
        for _ in 0..30 {
            let folder = [&train, labels.as_ref(), inner.as_ref()][random.below(3)];
            let name = random.below(3).to_string();
            let (at, len) = (random.below(20_000) as u64, 1 + random.below(9000) as u64);
            let Ok(file) = folder.open(&name, Access::Write) else {
                folder.create(&name).unwrap();
                continue;
            };
            match random.below(8) {
                0 => folder.remove(&name).unwrap(),
                1 => file.set_len(at).unwrap(),
                2 => file.free(at, len).unwrap(),
                3 => file.allocate(at, len).unwrap(),
                4 => file.sync().unwrap(),
                5 => folder.sync().unwrap(),
                _ => file.write_at(&vec![random.below(3) as u8; len as usize], at).unwrap(),
            }
        }
        let ops = script.take();
        let mut last = None;
        let limits = Limits { per_point: 3, seed: 1, from: ops.len() - 1 };
        states(&before, &ops, limits, |state| {
            state.image.write(copy.path());
            assert!(Image::read(copy.path()) == state.image, "{}", state.what);
            for (name, file) in state.image.files() {
                assert_eq!(std::fs::read(copy.path().join(name)).unwrap(), file.read(0..file.len()));
            }
            if state.killed {
                last = Some(state.image.clone());
            }
        });
        assert!(Image::read(real.path()) == last.unwrap());
    }
}
