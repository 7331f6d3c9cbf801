//! Every crash point: each state that a killed process or a power cut may leave on disk is rebuilt and opened.
//!
//! In each state, whoever opens it (zrfs for reading, zrfs for writing, loaderx) finds a list of records that the program had
//! reached: what was acknowledged is there bit for bit, the rest is there or not, and nothing is altered. With the
//! variable ZRFS_CRASH_STATES some of the states stay in the folder that it names, for loaderx itself to read.

use std::collections::HashSet;
use std::io::Write;
use std::path::PathBuf;

use super::*;
use crate::codec;
use crate::format::MAX_CHUNK_BYTES;
use crate::storage::crash::{Image, Limits, State, states};

pub(super) type List = Vec<Vec<u8>>;

/// What a program did, and which lists it had reached.
pub(super) struct Story {
    pub(super) before: Image,
    pub(super) ops: Vec<Op>,
    /// The number of changes of the disk after which the list was acknowledged, and the list.
    pub(super) reached: Vec<(usize, List)>,
}

impl Story {
    /// The lists that may be found after so many changes: the last acknowledged one, and the one that was under way.
    pub(super) fn allowed(&self, completed: usize) -> &[(usize, List)] {
        let last = self.reached.iter().rposition(|&(ops, _)| ops <= completed).unwrap();
        &self.reached[last..self.reached.len().min(last + 2)]
    }
}

/// A record that tells of itself: raw or deflated, of one byte to two pages.
pub(super) fn record(number: usize) -> Vec<u8> {
    let len = [1, 700, 20, 1500, 3000, 90, 5000, 333][number % 8] + number % 7;
    let noise = |i: usize| (i.wrapping_mul(2_654_435_761).wrapping_add(number * 977) >> 7) as u8;
    (0..len).map(|i| if number.is_multiple_of(3) { number as u8 } else { noise(i * i) }).collect()
}

pub(super) fn add(store: &Store, numbers: std::ops::Range<usize>) -> List {
    let list: List = numbers.map(record).collect();
    let (mut bytes, mut offsets, mut lens) = (Vec::new(), Vec::new(), Vec::new());
    for record in &list {
        offsets.push(bytes.len() as u64);
        lens.push(record.len() as u32);
        bytes.extend_from_slice(record);
    }
    store.append_ragged(&bytes, &offsets, &lens, Codec::default()).unwrap();
    list
}

fn swap_last(list: &List, doomed: &[u64]) -> List {
    let mut list = list.clone();
    let mut doomed = doomed.to_vec();
    doomed.sort_unstable();
    doomed.dedup();
    doomed.into_iter().rev().for_each(|index| drop(list.swap_remove(index as usize)));
    list
}

pub(super) fn list_of(store: &Store) -> List {
    (0..store.len()).map(|index| store.read(index).unwrap_or_else(|e| panic!("{e}"))).collect()
}

/// Reads a store as loaderx 0.5.0 does; `None` where it refuses. What it finds missing in a chunk reads as zeros.
fn as_loaderx(path: &Path) -> Option<List> {
    let meta = std::fs::File::open(path.join("meta.zr")).unwrap();
    let mut header = [0; 16];
    std::os::unix::fs::FileExt::read_exact_at(&meta, &mut header, 0).ok()?;
    if header[..6] != *b"ZREC\x01\0" {
        return None;
    }
    let word = |bytes: &[u8]| u32::from_le_bytes(bytes.try_into().unwrap());
    let mut list = List::new();
    for index in 0..word(&header[12..16]) {
        let mut entry = [0; 16];
        std::os::unix::fs::FileExt::read_exact_at(&meta, &mut entry, 16 + u64::from(index) * 16).unwrap();
        let chunk =
            std::fs::File::open(path.join(format!("{}.zr", u16::from_le_bytes([entry[12], entry[13]]))));
        let mut stored = vec![0; word(&entry[4..8]) as usize];
        let disk = Disk::open(path).unwrap();
        let name = format!("{}.zr", u16::from_le_bytes([entry[12], entry[13]]));
        disk.open(&name, Access::Read).unwrap().read_at(&mut stored, u64::from(word(&entry[..4]))).unwrap();
        drop(chunk);
        if entry[14] == 1 {
            let mut record = vec![0; word(&entry[8..12]) as usize];
            assert!(codec::inflate(&stored, &mut record), "loaderx would fail at record {index}");
            stored = record;
        }
        list.push(stored);
    }
    Some(list)
}

/// Checks one state in every way that it can be opened.
pub(super) fn check(path: &Path, state: &State, allowed: &[(usize, List)], goes_on: bool) {
    let what = &state.what;
    let is_allowed = |list: &List| allowed.iter().any(|(_, allowed)| allowed == list);
    if let Some(list) = as_loaderx(path) {
        assert!(is_allowed(&list), "{what}: loaderx reads {} records", list.len());
    }
    let store = Store::open_read_only(path).unwrap_or_else(|e| panic!("{what}: {e}"));
    let seen = list_of(&store);
    assert!(is_allowed(&seen), "{what}: a reader finds {} records", seen.len());
    assert_eq!(store.stats().unwrap().records, seen.len() as u64, "{what}");
    drop(store);
    let found = Store::verify(path, |_| ()).unwrap();
    assert!(found.is_good(), "{what}: {found:?}");
    let store = Store::open(path).unwrap_or_else(|e| panic!("{what}: {e}"));
    assert!(list_of(&store) == seen, "{what}: a writer finds another list than a reader");
    assert!(as_loaderx(path).is_none_or(|list| list == seen), "{what}: loaderx, after zrfs has finished it");
    if goes_on {
        let mut list = seen;
        list.extend(add(&store, 100..103));
        store.sync().unwrap();
        list = swap_last(&list, &[0]);
        store.delete(&[0]).unwrap();
        store.compact(|_| std::ops::ControlFlow::Continue(())).unwrap();
        assert!(list_of(&store) == list, "{what}: after it went on");
        let found = Store::verify(path, |_| ()).unwrap();
        // A power cut may tear a checksum that is being written; a kill may not.
        let whole = found.unchecked == 0 || !state.killed;
        assert!(found.is_good() && whole, "{what}: after it went on: {found:?}");
    }
}

/// Rebuilds and checks every state of a story; says how many.
pub(super) fn explore(name: &str, story: &Story, per_point: usize, from: usize) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("s.zr");
    std::fs::create_dir(&path).unwrap();
    let mut seen = HashSet::new();
    let kept = std::env::var_os("ZRFS_CRASH_STATES").map(PathBuf::from);
    let limits = Limits { per_point, seed: 1, from };
    let count = states(&story.before, &story.ops, limits, |state| {
        let allowed = story.allowed(state.completed);
        if !seen.insert((state.image.clone(), allowed[0].0)) {
            return;
        }
        state.image.write(&path);
        if let Some(kept) = kept.as_ref().filter(|_| seen.len() % 8 == 0) {
            keep(&kept.join(format!("{name}-{}", seen.len())), state, allowed);
        }
        check(&path, state, allowed, seen.len() % 4 == 0);
    });
    // Past the capture of the test's output: the number is part of the result.
    writeln!(
        io::stderr(),
        "    {name}: {count} states on disk after a crash, {} of them distinct",
        seen.len()
    )
    .unwrap();
}

/// Leaves a state, and the lists that may be found in it, for another program.
fn keep(folder: &Path, state: &State, allowed: &[(usize, List)]) {
    std::fs::create_dir_all(folder.join("store.zr")).unwrap();
    state.image.write(&folder.join("store.zr"));
    for (i, (_, list)) in allowed.iter().enumerate() {
        let mut bytes = Vec::new();
        for record in list {
            bytes.extend_from_slice(&(record.len() as u32).to_le_bytes());
            bytes.extend_from_slice(record);
        }
        std::fs::write(folder.join(format!("allowed-{i}")), bytes).unwrap();
    }
    std::fs::write(folder.join("what"), &state.what).unwrap();
}

/// A store of `count` records, all of it durable, and the script that watches it from here on.
pub(super) fn begin(path: &Path, count: usize) -> (Store, Script, List) {
    let script = Script::default();
    let dir = Box::new(Faulty::open(path, &script));
    let store = Store::create_in(dir, path, Version::V1).unwrap();
    let list = add(&store, 0..count);
    store.sync().unwrap();
    script.take();
    (store, script, list)
}

/// Tells a story of a store: `work` does its steps and says after each which list it has reached.
pub(super) fn tell(count: usize, work: impl FnOnce(&Store, &List, &mut dyn FnMut(List))) -> Story {
    let dir = tempfile::tempdir().unwrap();
    let (store, script, list) = begin(dir.path(), count);
    let before = Image::read(dir.path());
    let mut ops = Vec::new();
    let mut reached = vec![(0, list.clone())];
    work(&store, &list, &mut |list| {
        ops.extend(script.take());
        reached.push((ops.len(), list));
    });
    ops.extend(script.take());
    Story { before, ops, reached }
}

fn go(_: Progress) -> std::ops::ControlFlow<()> {
    std::ops::ControlFlow::Continue(())
}

#[test]
fn append() {
    let story = tell(3, |store, list, reached| {
        let mut list = list.clone();
        for numbers in [3..4, 4..9, 9..11] {
            // Two appends for each sync: the first is acknowledged by nothing but the second's.
            let middle = numbers.start + 1;
            list.extend(add(store, numbers.start..middle));
            list.extend(add(store, middle..numbers.end));
            store.sync().unwrap();
            reached(list.clone());
        }
    });
    explore("append", &story, 60, 0);
}

#[test]
fn append_into_a_new_store() {
    let dir = tempfile::tempdir().unwrap();
    let script = Script::default();
    let store =
        Store::create_in(Box::new(Faulty::open(dir.path(), &script)), dir.path(), Version::V1).unwrap();
    store.sync().unwrap();
    script.take();
    let before = Image::read(dir.path());
    let list = add(&store, 0..4);
    store.sync().unwrap();
    let ops = script.take();
    let reached = vec![(0, List::new()), (ops.len(), list)];
    explore("append into a new store", &Story { before, ops, reached }, 60, 0);
}

#[test]
fn delete() {
    let story = tell(40, |store, list, reached| {
        let mut list = list.clone();
        for doomed in [vec![3, 9, 10, 39], vec![0, 1, 2, 3, 4], (0..31).step_by(2).collect()] {
            list = swap_last(&list, &doomed);
            store.delete(&doomed).unwrap();
            reached(list.clone());
        }
    });
    explore("delete", &story, 40, 0);
}

#[test]
fn compact() {
    let doomed: Vec<u64> = vec![0, 3, 4, 5, 11, 19, 20];
    let story = tell(30, |store, list, reached| {
        let list = swap_last(list, &doomed);
        store.delete(&doomed).unwrap();
        reached(list.clone());
        store.compact(go).unwrap();
        reached(list.clone());
        let again = store.compact(go).unwrap();
        assert_eq!(again.records_moved, 0);
        reached(list);
    });
    explore("compact", &story, 25, 0);
}

#[test]
fn compact_a_record_onto_itself() {
    // One byte is free before everything else.
    let story = tell(8, |store, list, reached| {
        let list = swap_last(list, &[0]);
        store.delete(&[0]).unwrap();
        reached(list.clone());
        store.compact(go).unwrap();
        reached(list);
    });
    explore("compact a record onto itself", &story, 40, 0);
}

#[test]
fn compact_over_chunks() {
    let dir = tempfile::tempdir().unwrap();
    let script = Script::default();
    let store =
        Store::create_in(Box::new(Faulty::open(dir.path(), &script)), dir.path(), Version::V1).unwrap();
    let first = add(&store, 0..4);
    store.sync().unwrap();
    // What follows rolls over into the next chunk.
    let near_end = (MAX_CHUNK_BYTES - 3200) as u32;
    store.dir.open("0.zr", Access::Write).unwrap().set_len(near_end.into()).unwrap();
    let header = store.meta.header().unwrap();
    store.meta.write_header(&Header { tail_offset: near_end, ..header }).unwrap();
    let list = [first, add(&store, 4..9)].concat();
    store.sync().unwrap();
    assert_eq!(store.location(8).unwrap().chunk_id, 1);
    let chunk = store.dir.open("0.zr", Access::Write).unwrap();
    assert!(chunk.attributes().unwrap().len > u64::from(near_end));
    chunk.sync().unwrap();
    drop(store);
    let store =
        Store::open_in(Box::new(Faulty::open(dir.path(), &script)), dir.path(), Access::Write).unwrap();
    script.take();
    let before = Image::read(dir.path());
    store.compact(go).unwrap();
    assert!(!dir.path().join("1.zr").exists(), "chunks behind the frontier go");
    assert_eq!(store.stats().unwrap().reclaimable(), 0);
    let ops = script.take();
    // A chunk that was removed can come again.
    let after = [list.clone(), add(&store, 20..22)].concat();
    assert!(list_of(&store) == after);
    let reached = vec![(0, list.clone()), (ops.len(), list)];
    explore("compact over chunks", &Story { before, ops, reached }, 25, 0);
}

#[test]
fn seal() {
    let story = tell(6, |store, list, reached| {
        store.seal().unwrap();
        reached(list.clone());
        store.unseal().unwrap();
        reached(list.clone());
        store.seal().unwrap();
        let list = [list.clone(), add(store, 6..8)].concat();
        store.sync().unwrap();
        reached(list);
    });
    explore("seal", &story, 40, 0);
}

#[test]
fn a_delete_that_is_finished_after_a_crash_may_crash_again() {
    let doomed = [1, 4, 5, 6, 17];
    let story = tell(20, |store, list, reached| {
        store.delete(&doomed).unwrap();
        reached(swap_last(list, &doomed));
    });
    let marked: Vec<usize> = (0..story.ops.len())
        .filter(|&i| matches!(&story.ops[i], Op::Write { file, at: 0, bytes } if file == "meta.zr" && bytes[5] == 0x80))
        .collect();
    let dir = tempfile::tempdir().unwrap();
    for stop in [marked[0] + 1, marked[0] + 2, story.ops.len() - 4] {
        let mut at_stop = None;
        states(&story.before, &story.ops, Limits { per_point: 0, seed: 1, from: 0 }, |state| {
            if state.killed && state.completed == stop {
                at_stop = Some(state.image.clone());
            }
        });
        let image = at_stop.unwrap();
        image.write(dir.path());
        let script = Script::default();
        let store =
            Store::open_in(Box::new(Faulty::open(dir.path(), &script)), dir.path(), Access::Write).unwrap();
        drop(store);
        let ops = [&story.ops[..stop], &script.take()].concat();
        let reached = vec![story.reached[0].clone(), (ops.len(), story.reached[1].1.clone())];
        let twice = Story { before: story.before.clone(), ops, reached };
        explore(&format!("a second crash after {stop} changes"), &twice, 40, stop);
    }
}

/// Two stores in one folder, and the story of a delete from both.
struct Pair {
    story: Story,
    doomed: Vec<u64>,
    data: List,
    labels: List,
}

fn pair() -> Pair {
    let dir = tempfile::tempdir().unwrap();
    let script = Script::default();
    let open = |name: &str, numbers| {
        let path = dir.path().join(name);
        std::fs::create_dir(&path).unwrap();
        let disk = Box::new(Faulty::open_as(&path, name, &script));
        let store = Store::create_in(disk, &path, Version::V1).unwrap();
        let list = add(&store, numbers);
        store.sync().unwrap();
        (store, list)
    };
    let (a, data) = open("data.zr", 0..24);
    let (b, labels) = open("labels.zr", 50..74);
    script.take();
    let before = Image::read(dir.path());
    let doomed = vec![2, 3, 23, 11];
    Store::delete_aligned(&[&a, &b], &doomed).unwrap();
    let ops = script.take();
    let reached = vec![(0, data.clone()), (ops.len(), swap_last(&data, &doomed))];
    Pair { story: Story { before, ops, reached }, doomed, data, labels }
}

#[test]
fn delete_from_two_stores() {
    let Pair { story, doomed, data, labels } = pair();
    let (data, labels) =
        ([data.clone(), swap_last(&data, &doomed)], [labels.clone(), swap_last(&labels, &doomed)]);
    let dir = tempfile::tempdir().unwrap();
    let (path_a, path_b) = (dir.path().join("data.zr"), dir.path().join("labels.zr"));
    let mut tried = HashSet::new();
    let limits = Limits { per_point: 30, seed: 2, from: 0 };
    let count = states(&story.before, &story.ops, limits, |state| {
        let finished = state.completed == story.ops.len();
        if !tried.insert((state.image.clone(), finished)) {
            return;
        }
        let what = &state.what;
        // Which of the two lists of each store is found, 0 before and 1 after.
        let which = |lists: &[List; 2], found: &List| {
            lists.iter().position(|list| list == found).unwrap_or_else(|| panic!("{what}: neither list"))
        };
        let reader =
            |path: &Path| list_of(&Store::open_read_only(path).unwrap_or_else(|e| panic!("{what}: {e}")));
        let writer = |path: &Path| list_of(&Store::open(path).unwrap_or_else(|e| panic!("{what}: {e}")));
        // Whoever comes first, and for whatever, the two go together.
        for order in [[&path_a, &path_b], [&path_b, &path_a]] {
            state.image.write(dir.path());
            let seen = (which(&data, &reader(&path_a)), which(&labels, &reader(&path_b)));
            assert_eq!(seen.0, seen.1, "{what}: readers");
            assert!(seen.0 == 1 || !finished, "{what}: what was acknowledged is undone");
            for (path, lists) in [(&path_a, &data), (&path_b, &labels)] {
                if let Some(list) = as_loaderx(path) {
                    which(lists, &list);
                }
                assert!(Store::verify(path, |_| ()).unwrap().is_good(), "{what}");
            }
            for path in order {
                let lists = if *path == path_a { &data } else { &labels };
                assert_eq!(which(lists, &writer(path)), seen.0, "{what}: a writer");
            }
            let both = (which(&data, &reader(&path_a)), which(&labels, &reader(&path_b)));
            assert_eq!(both, seen, "{what}: after both were opened for writing");
        }
    });
    writeln!(
        io::stderr(),
        "    delete from two stores: {count} states on disk after a crash, {} of them distinct",
        tried.len()
    )
    .unwrap();
}

#[test]
fn a_store_whose_partner_is_gone_says_so_and_waits() {
    let Pair { story, data, labels, doomed } = pair();
    let marked = |file: &str| {
        let is_mark =
            |op: &Op| matches!(op, Op::Write { file: f, at: 0, bytes } if f == file && bytes[5] == 0x80);
        story.ops.iter().position(is_mark).unwrap() + 1
    };
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name);
    let restore = |stop: usize| {
        let limits = Limits { per_point: 0, seed: 1, from: 0 };
        let mut image = None;
        states(&story.before, &story.ops, limits, |state| {
            if state.killed && state.completed == stop {
                image = Some(state.image.clone());
            }
        });
        image.unwrap().write(dir.path());
    };
    restore(marked("data.zr/meta.zr"));
    std::fs::rename(path("labels.zr"), path("elsewhere")).unwrap();
    let e = Store::open(path("data.zr")).unwrap_err();
    assert!(e.kind() == ErrorKind::NotFound && e.to_string().contains("labels.zr"), "{e}");
    // Nor is another store in its place taken for it.
    std::fs::create_dir(path("labels.zr")).unwrap();
    let other = Store::create(path("labels.zr"), Version::V1).unwrap();
    add(&other, 0..3);
    drop(other);
    let e = Store::open(path("data.zr")).unwrap_err();
    assert!(e.kind() == ErrorKind::Damaged && e.to_string().contains("is not that other one"), "{e}");
    std::fs::remove_dir_all(path("labels.zr")).unwrap();
    std::fs::rename(path("elsewhere"), path("labels.zr")).unwrap();
    assert_eq!(list_of(&Store::open(path("data.zr")).unwrap()), swap_last(&data, &doomed));
    assert_eq!(list_of(&Store::open(path("labels.zr")).unwrap()), swap_last(&labels, &doomed));

    // The one that follows is marked first: until the leader is, nothing is decided.
    restore(marked("labels.zr/meta.zr"));
    std::fs::rename(path("data.zr"), path("elsewhere")).unwrap();
    let e = Store::open_read_only(path("labels.zr")).unwrap_err();
    assert!(e.kind() == ErrorKind::NotFound && e.to_string().contains("data.zr"), "{e}");
    std::fs::rename(path("elsewhere"), path("data.zr")).unwrap();
    assert_eq!(list_of(&Store::open(path("labels.zr")).unwrap()), labels);
    assert_eq!(list_of(&Store::open(path("data.zr")).unwrap()), data);
}

#[test]
fn repair() {
    let flips: [(&str, &str, u64, u8); 5] = [
        ("a flipped header", "meta.zr", 12, 0x04),
        ("a lost header", "meta.zr", 0, 0xff),
        ("a flipped frontier", "meta.zr", 9, 0x20),
        ("a flipped entry", "meta.zr", 16 + 16 * 5, 0x40),
        ("a flipped record", "0.zr", 900, 0x01),
    ];
    for (name, file, at, bits) in flips {
        let dir = tempfile::tempdir().unwrap();
        let (store, script, list) = begin(dir.path(), 10);
        let hit = store.location(3).unwrap();
        drop(store);
        let damaged = Disk::open(dir.path()).unwrap().open(file, Access::Write).unwrap();
        let mut byte = [0];
        damaged.read_at(&mut byte, at).unwrap();
        damaged.write_at(&[byte[0] ^ bits], at).unwrap();
        drop(damaged);
        assert!(!Store::verify(dir.path(), |_| ()).unwrap().is_good(), "{name}");
        script.take();
        let before = Image::read(dir.path());
        let done =
            Store::repair_in(Box::new(Faulty::open(dir.path(), &script)), dir.path(), &|_| ()).unwrap();
        let ops = script.take();
        let is_record = file == "0.zr";
        let good = if is_record {
            let bad = done.bad[0].index;
            assert!(done.bad.len() == 1 && done.lost == 1, "{name}: {done:?}");
            swap_last(&list, &[bad])
        } else {
            assert_eq!((done.lost, done.records), (0, 10), "{name}: {done:?}");
            list.clone()
        };
        assert!(list_of(&Store::open(dir.path()).unwrap()) == good, "{name}");
        let found = Store::verify(dir.path(), |_| ()).unwrap();
        assert!(found.is_good() && found.unchecked == 0, "{name}: {found:?}");
        assert!(hit.phys_length > 0);
        // In each state after a crash a second repair ends where the first would have.
        let copy = tempfile::tempdir().unwrap();
        let mut seen = HashSet::new();
        let count = states(&before, &ops, Limits { per_point: 30, seed: 3, from: 0 }, |state| {
            if !seen.insert(state.image.clone()) {
                return;
            }
            state.image.write(copy.path());
            if let Some(list) = as_loaderx(copy.path()).filter(|_| file == "meta.zr" && at >= 16) {
                // The damaged entry aside.
                assert!(
                    list.iter().zip(&good).filter(|(a, b)| a != b).count() <= 1,
                    "{name}: {}",
                    state.what
                );
            }
            Store::repair(copy.path(), |_| ()).unwrap_or_else(|e| panic!("{name}: {}: {e}", state.what));
            let store = Store::open(copy.path()).unwrap_or_else(|e| panic!("{name}: {}: {e}", state.what));
            assert!(list_of(&store) == good, "{name}: {}", state.what);
        });
        writeln!(io::stderr(), "    repair of {name}: {count} states on disk after a crash").unwrap();
    }
}
