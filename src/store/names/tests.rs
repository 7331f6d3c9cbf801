//! Names beside a plain model: a record knows which one it is by its bytes, so its name can be told from it.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::ops::ControlFlow;
use std::ops::Range;
use std::path::Path;

use super::*;
use crate::codec::Codec;
use crate::error::ErrorKind;
use crate::format::{TreeExtent, TreeHeader, Version};
use crate::storage::crash::{Image, Limits, states};
use crate::storage::faulty::{Faulty, Script};
use crate::store::Progress;

/// The bytes of record `number`.
fn bytes_of(number: u32) -> Vec<u8> {
    let len = 20 + number as usize % 50;
    number.to_le_bytes().into_iter().chain((0..len).map(|i| ((i as u32 * number) >> 3) as u8)).collect()
}

fn number_of(bytes: &[u8]) -> u32 {
    u32::from_le_bytes(bytes[..4].try_into().unwrap())
}

/// The path of record `number`: a few folders, each with records of several appends.
fn path_of(number: u32) -> Vec<u8> {
    match number % 4 {
        0 => format!("r{number}.png").into_bytes(),
        1 => format!("cats/r{number}.png").into_bytes(),
        2 => [b"a/b\n/r\xff", number.to_string().as_bytes()].concat(),
        _ => format!("of {}/deep/r{number}", number / 10).into_bytes(),
    }
}

fn append(store: &Store, numbers: Range<u32>, named: bool) -> crate::error::Result<()> {
    let mut appender = store.appender()?;
    let (mut bytes, mut offsets, mut lens) = (Vec::new(), Vec::new(), Vec::new());
    for record in numbers.clone().map(bytes_of) {
        offsets.push(bytes.len() as u64);
        lens.push(record.len() as u32);
        bytes.extend(record);
    }
    appender.append_ragged(&bytes, &offsets, &lens, Codec::Raw)?;
    if named {
        appender.set_names(&names_for(numbers))?;
    }
    appender.commit()?;
    store.sync()
}

fn names_for(numbers: Range<u32>) -> NewNames {
    let mut names = NewNames::new(77);
    let empty = names.folder_at(format!("empty {}", numbers.start).as_bytes()).unwrap();
    names.set_modified(empty, -3);
    names.link(empty, b"link", b"../cats", 5).unwrap();
    for number in numbers {
        let path = path_of(number);
        let at = path.iter().rposition(|&b| b == b'/');
        let (folder, name) = at.map_or((&b""[..], &path[..]), |at| (&path[..at], &path[at + 1..]));
        let folder = names.folder_at(folder).unwrap();
        names.record(folder, name, i64::from(number) * 1000, number.is_multiple_of(2)).unwrap();
    }
    names
}

/// Everything in a tree of names: path and what it is.
fn tree_of(names: &Names<'_>) -> BTreeMap<Vec<u8>, NodeKind> {
    let mut all = BTreeMap::new();
    let mut todo = vec![(NodeId::ROOT, Vec::new())];
    while let Some((folder, path)) = todo.pop() {
        let mut folders = 0;
        names
            .each_child(folder, None, |node| {
                let mut path: Vec<u8> = path.clone();
                if !path.is_empty() {
                    path.push(b'/');
                }
                path.extend_from_slice(&node.name);
                assert_eq!(node.parent, folder);
                if let NodeKind::Folder { .. } = node.kind {
                    folders += 1;
                    todo.push((node.id, path.clone()));
                }
                assert!(all.insert(path, node.kind.clone()).is_none(), "told twice");
                false
            })
            .unwrap();
        let node = names.node(folder).unwrap().unwrap();
        // While names are being given it may count those that are on their way.
        let counts = |n: u32| if names.tree.unfinished { n >= folders } else { n == folders };
        assert!(matches!(node.kind, NodeKind::Folder { folders: n } if counts(n)), "{path:?}: {node:?}");
    }
    all
}

/// Holds the names of a store against its records. `nameless` are the numbers that were never named. Returns the folders.
fn check(store: &Store, nameless: &BTreeSet<u32>) -> BTreeSet<Vec<u8>> {
    let Some(names) = store.names().unwrap() else {
        assert!((0..store.len()).all(|i| nameless.contains(&number_of(&store.read(i).unwrap()))));
        return BTreeSet::new();
    };
    let mut tree = tree_of(&names);
    let mut named = 0;
    for index in 0..store.len() {
        let number = number_of(&store.read(index).unwrap());
        let found = names.of_record(index).unwrap();
        if nameless.contains(&number) {
            assert_eq!(found, None, "record {number} has no name");
            continue;
        }
        named += 1;
        let found = found.unwrap_or_else(|| panic!("record {number} at {index} has lost its name"));
        let path = path_of(number);
        let executable = number.is_multiple_of(2);
        assert_eq!(found.kind, NodeKind::Record { index, executable });
        assert_eq!(
            (names.path(found.id).unwrap(), found.modified_ns),
            (path.clone(), i64::from(number) * 1000)
        );
        assert_eq!(names.resolve(&path).unwrap().as_ref(), Some(&found));
        assert_eq!(tree.remove(&path), Some(found.kind));
    }
    assert_eq!(names.named().unwrap(), named);
    let mut folders = BTreeSet::new();
    for (path, kind) in tree {
        match kind {
            NodeKind::Record { index, .. } => {
                panic!("{path:?} is listed, and no record of it is there: {index}")
            }
            NodeKind::Link { target } => assert_eq!(target, b"../cats"),
            NodeKind::Folder { .. } => {
                folders.insert(path);
            }
        }
    }
    folders
}

/// Says where a check has failed.
fn within(state: &str, what: &str, check: impl FnOnce()) {
    let failed = std::panic::catch_unwind(std::panic::AssertUnwindSafe(check)).is_err();
    assert!(!failed, "{what}: {state}");
}

fn go(_: Progress) -> ControlFlow<()> {
    ControlFlow::Continue(())
}

#[test]
fn names_follow_their_records() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("s.zr");
    let store = Store::create(&path, Version::V1).unwrap();
    let nameless: BTreeSet<u32> = (50..60).collect();
    append(&store, 0..50, true).unwrap();
    check(&store, &nameless);
    append(&store, 50..60, false).unwrap();
    append(&store, 60..300, true).unwrap();
    let folders = check(&store, &nameless);
    assert!(folders.contains(&b"empty 0"[..]) && folders.contains(&b"of 6/deep"[..]));
    let reader = Store::open_read_only(&path).unwrap();
    assert_eq!(check(&reader, &nameless), folders);
    drop(reader);
    let mut seed = 7u64;
    while store.len() > 20 {
        let mut draw = || {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (seed >> 33) % store.len()
        };
        let doomed = [draw(), draw(), draw(), draw(), draw(), store.len() - 1];
        store.delete(&doomed).unwrap();
        assert_eq!(check(&store, &nameless), folders, "folders stay, empty or not");
        if seed.is_multiple_of(5) {
            store.compact(go).unwrap();
            assert_eq!(check(&store, &nameless), folders);
        }
    }
    // What was deleted may come again, with its name; what comes without one gets none of those that went.
    let left: BTreeSet<u32> = (0..store.len()).map(|i| number_of(&store.read(i).unwrap())).collect();
    let again = (61..300).find(|number| !left.contains(number)).unwrap();
    append(&store, again..again + 1, true).unwrap();
    let nameless: BTreeSet<u32> = nameless.into_iter().chain(1000..1300).collect();
    append(&store, 1000..1300, false).unwrap();
    check(&store, &nameless);
    drop(store);
    check(&Store::open(&path).unwrap(), &nameless);
}

#[test]
fn a_path_that_is_taken_or_named_twice_is_refused_and_nothing_changes() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("s.zr");
    let store = Store::create(&path, Version::V1).unwrap();
    append(&store, 0..20, true).unwrap();
    let e = append(&store, 15..40, true).unwrap_err();
    assert_eq!(e.kind(), ErrorKind::Exists);
    assert!(e.to_string().contains("5 of 26 paths") && e.to_string().contains("r16.png"), "{e}");
    let mut names = NewNames::new(0);
    for name in [&b"x"[..], b"y", b"x"] {
        names.record(FolderId::ROOT, name, 0, false).unwrap();
    }
    assert!(
        store.check_names(&names).unwrap_err().to_string().contains("1 of 3 paths are named twice: \"x\"")
    );
    // A folder where a record is, and the other way round.
    for (folder, name) in [(&b"r0.png"[..], &b"x"[..]), (b"", b"cats")] {
        let mut names = NewNames::new(0);
        let folder = names.folder_at(folder).unwrap();
        names.record(folder, name, 0, false).unwrap();
        assert_eq!(store.check_names(&names).unwrap_err().kind(), ErrorKind::Exists);
    }
    check(&store, &BTreeSet::new());
    assert_eq!(store.len(), 20);
    append(&store, 20..40, true).unwrap();
    check(&store, &BTreeSet::new());
}

#[test]
fn another_process_sees_names_as_they_come() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("s.zr");
    let store = Store::create(&path, Version::V1).unwrap();
    store.sync().unwrap();
    let reader = Store::open_read_only(&path).unwrap();
    assert!(reader.names().unwrap().is_none());
    append(&store, 0..30, true).unwrap();
    check(&reader, &BTreeSet::new());
    let mark = reader.names().unwrap().unwrap().end();
    append(&store, 30..35, true).unwrap();
    check(&reader, &BTreeSet::new());
    let names = reader.names().unwrap().unwrap();
    let grown: BTreeSet<Vec<u8>> =
        names.grown_since(mark).unwrap().into_iter().map(|id| names.path(id).unwrap()).collect();
    let expected: [&[u8]; 7] = [b"", b"a/b\n", b"cats", b"empty 30", b"of 3", b"of 3/deep", b""];
    assert_eq!(grown, expected.into_iter().map(<[u8]>::to_vec).collect());
    // A listing goes on behind any node.
    let mut seen = Vec::new();
    let mut after = None;
    loop {
        let mut got = None;
        names
            .each_child(NodeId::ROOT, after, |node| {
                got = Some((node.id, node.name.clone()));
                true
            })
            .unwrap();
        let Some((id, name)) = got else { break };
        seen.push(name);
        after = Some(id);
    }
    assert_eq!(seen.iter().collect::<HashSet<_>>().len(), seen.len());
    assert!(seen.contains(&b"r32.png".to_vec()) && seen.contains(&b"r0.png".to_vec()));
}

#[test]
fn every_crash_leaves_names_that_fit_their_records() {
    let dir = tempfile::tempdir().unwrap();
    let script = Script::default();
    let faulty = Box::new(Faulty::open(dir.path(), &script));
    let store = Store::create_in(faulty, dir.path(), Version::V1).unwrap();
    append(&store, 0..6, true).unwrap();
    script.take();
    let before = Image::read(dir.path());
    let nameless: BTreeSet<u32> = (20..23).chain(900..910).collect();
    let mut ops = Vec::new();
    // How many records there are after so many changes.
    let mut reached = vec![(0, 6)];
    let mut reach = |store: &Store| {
        ops.extend(script.take());
        reached.push((ops.len(), store.len()));
    };
    append(&store, 6..16, true).unwrap();
    reach(&store);
    store.delete(&[0, 3, 7, 15]).unwrap();
    reach(&store);
    append(&store, 20..23, false).unwrap();
    reach(&store);
    store.compact(go).unwrap();
    reach(&store);
    append(&store, 30..90, true).unwrap();
    reach(&store);
    ops.extend(script.take());
    drop(store);

    let scratch = tempfile::tempdir().unwrap();
    let path = scratch.path().join("s.zr");
    std::fs::create_dir(&path).unwrap();
    let mut seen = HashSet::new();
    let limits = Limits { per_point: 12, seed: 3, from: 0 };
    states(&before, &ops, limits, |state| {
        if !seen.insert(state.image.clone()) {
            return;
        }
        state.image.write(&path);
        let at = reached.iter().rposition(|&(ops, _)| ops <= state.completed).unwrap();
        let allowed = &reached[at..reached.len().min(at + 2)];
        let holds = |store: &Store| {
            assert!(allowed.iter().any(|&(_, len)| len == store.len()), "{}: {}", state.what, store.len());
            let folders = check(store, &nameless);
            // Folders come with the records around them, or not at all.
            let has = |name: &str| folders.contains(name.as_bytes());
            let came = |number: u32| (0..store.len()).any(|i| number_of(&store.read(i).unwrap()) == number);
            assert_eq!(has("empty 30"), came(30), "{}", state.what);
            assert!(!came(8) || has("empty 6"), "{}", state.what);
        };
        let reading = "as a reader sees it";
        within(&state.what, reading, || holds(&Store::open_read_only(&path).unwrap()));
        let store = Store::open(&path).unwrap();
        within(&state.what, "as a writer sees it", || holds(&store));
        if seen.len().is_multiple_of(3) {
            append(&store, 100..103, true).unwrap();
            store.delete(&[1]).unwrap();
            append(&store, 900..910, false).unwrap();
            check(&store, &nameless);
            drop(store);
            let found = Store::verify(&path, |_| ()).unwrap();
            assert!(found.is_good(), "{}: {found:?}", state.what);
        }
    });
}

/// What is told of the names of a damaged store: nothing but the truth.
fn tells_no_lies(path: &Path) -> u64 {
    let store = Store::open_read_only(path).unwrap();
    let Some(names) = store.names().unwrap() else { return 0 };
    let mut named = 0;
    for index in 0..store.len() {
        let number = number_of(&store.read(index).unwrap());
        if let Some(node) = names.of_record(index).unwrap() {
            let expected = path_of(number);
            assert!(expected.ends_with(&node.name), "record {number} is called {:?}", node.name);
            if let Ok(found) = names.path(node.id) {
                assert_eq!(found, expected);
                named += 1;
            }
        }
        if let Some(node) = names.resolve(&path_of(number)).unwrap() {
            assert!(matches!(node.kind, NodeKind::Record { index: i, .. } if i == index));
        }
    }
    let mut listed = 0;
    names.each_node(|_| false).unwrap();
    names
        .each_child(NodeId::ROOT, None, |_| {
            listed += 1;
            false
        })
        .unwrap();
    named
}

#[test]
fn a_flipped_bit_costs_names_and_never_lies() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("s.zr");
    let store = Store::create(&path, Version::V1).unwrap();
    append(&store, 0..8, true).unwrap();
    append(&store, 8..10, true).unwrap();
    drop(store);
    let lookup =
        (1..9).map(|n| format!("lookup-{n}")).find(|name| path.join(".zrfs").join(name).exists()).unwrap();
    for name in ["tree", "names", &lookup] {
        let file = path.join(".zrfs").join(name);
        let good = std::fs::read(&file).unwrap();
        for bit in (0..good.len() * 8).step_by(3) {
            let mut bad = good.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            if bad[bit / 8] == 0 && name == lookup {
                continue;
            }
            std::fs::write(&file, &bad).unwrap();
            let named = tells_no_lies(&path);
            let is_tree_header = name == "tree" && bit < 256 * 8 || name == "names" && bit < 128;
            assert!(is_tree_header || named >= 5, "bit {bit} of {name} cost {} names", 10 - named);
        }
        for len in (0..good.len()).step_by(11) {
            std::fs::write(&file, &good[..len]).unwrap();
            tells_no_lies(&path);
        }
        std::fs::write(&file, &good).unwrap();
    }
    std::fs::remove_file(path.join(".zrfs").join(lookup)).unwrap();
    assert_eq!(tells_no_lies(&path), 10);
}

/// A tree of names whose extents were changed by hand, and fit their sums.
fn with_extents(path: &Path, change: impl Fn(&mut TreeExtent)) {
    let file = path.join(".zrfs/tree");
    let mut bytes = std::fs::read(&file).unwrap();
    let mut header = TreeHeader::parse(bytes.first_chunk().unwrap()).unwrap();
    header.extents.iter_mut().flatten().for_each(&change);
    bytes[..256].copy_from_slice(&header.to_bytes());
    std::fs::write(&file, bytes).unwrap();
}

#[test]
fn hostile_extents_and_tables_end_in_names_or_in_none() {
    let dir = tempfile::tempdir().unwrap();
    let made = |name: &str| {
        let path = dir.path().join(name);
        let store = Store::create(&path, Version::V1).unwrap();
        append(&store, 0..10, true).unwrap();
        path
    };
    // A table without a free place, all of it one hash.
    let path = made("full.zr");
    let lookup = path.join(".zrfs/lookup-1");
    let slots = std::fs::metadata(&lookup).unwrap().len() / 8;
    let slot = (40u64 << 32 | 0x1234_5678).to_le_bytes();
    std::fs::write(&lookup, slot.repeat(usize::try_from(slots).unwrap())).unwrap();
    let store = Store::open(&path).unwrap();
    append(&store, 10..12, true).unwrap();
    check(&store, &BTreeSet::new());
    // A table that is gone is made anew.
    let path = made("gone.zr");
    std::fs::remove_file(path.join(".zrfs/lookup-1")).unwrap();
    let store = Store::open(&path).unwrap();
    append(&store, 10..12, true).unwrap();
    check(&store, &BTreeSet::new());
    // A root whose last child is none of its own, and whose number of folders is at its end.
    for last in [5, 33, 0x0fff_ffff] {
        let path = made(&format!("last-{last}.zr"));
        let file = path.join(".zrfs/tree");
        let mut bytes = std::fs::read(&file).unwrap();
        bytes[256 + 12..256 + 16].copy_from_slice(&u32::to_le_bytes(last));
        bytes[256 + 16..256 + 20].fill(0xff);
        std::fs::write(&file, bytes).unwrap();
        let before = std::fs::read(&file).unwrap();
        append(&Store::open(&path).unwrap(), 10..13, true).unwrap();
        let after = std::fs::read(&file).unwrap();
        assert!(after.len() < before.len() + 2000 && after[..64] == before[..64]);
        tells_no_lies(&path);
        Store::repair(&path, |_| ()).unwrap();
        check(&Store::open_read_only(&path).unwrap(), &BTreeSet::new());
    }
    // Counts that no tree of this size has, and ends far behind the file's.
    for (name, change) in [
        (
            "entries.zr",
            Box::new(|extent: &mut TreeExtent| extent.entries = 400_000_000) as Box<dyn Fn(&mut TreeExtent)>,
        ),
        ("bits.zr", Box::new(|extent: &mut TreeExtent| extent.lookup_bits = 31)),
        ("end.zr", Box::new(|extent: &mut TreeExtent| extent.end = 0xffff_fff0)),
    ] {
        let path = made(name);
        with_extents(&path, change);
        tells_no_lies(&path);
        Store::verify(&path, |_| ()).unwrap();
        let store = Store::open(&path).unwrap();
        let _ = append(&store, 10..12, true);
        drop(store);
        tells_no_lies(&path);
        assert!(std::fs::metadata(path.join(".zrfs/tree")).unwrap().len() < 1 << 20, "{name}");
        let tables = std::fs::read_dir(path.join(".zrfs")).unwrap();
        assert!(
            tables.map(|file| file.unwrap().metadata().unwrap().len()).all(|len| len < 1 << 20),
            "{name}"
        );
    }
}

#[test]
fn a_lost_node_hides_no_other_of_its_folder() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("s.zr");
    let store = Store::create(&path, Version::V1).unwrap();
    append(&store, 0..40, true).unwrap();
    drop(store);
    let file = path.join(".zrfs/tree");
    let good = std::fs::read(&file).unwrap();
    let children = |path: &Path| {
        let store = Store::open_read_only(path).unwrap();
        let names = store.names().unwrap().unwrap();
        let cats = names.resolve(b"cats").unwrap().unwrap().id;
        let mut seen = Vec::new();
        names
            .each_child(cats, None, |node| {
                seen.push(String::from_utf8(node.name.clone()).unwrap());
                false
            })
            .unwrap();
        seen
    };
    let all = children(&path);
    assert_eq!(all.len(), 10);
    for lost in [0, 4, 9] {
        let mut bad = good.clone();
        let name = all[lost].as_bytes();
        let at = good.windows(name.len()).position(|bytes| bytes == name).unwrap();
        bad[at] ^= 1;
        std::fs::write(&file, bad).unwrap();
        let mut left = all.clone();
        left.remove(lost);
        assert_eq!(children(&path), left, "without {}", all[lost]);
    }
    let mut bad = good.clone();
    let at = good.windows(6).position(|bytes| bytes == b"r5.png").unwrap();
    bad[at] ^= 1;
    std::fs::write(&file, bad).unwrap();
    append(&Store::open(&path).unwrap(), 41..42, true).unwrap();
    assert!(children(&path).contains(&"r41.png".to_owned()), "what is added shows up behind it");
}

#[test]
fn a_repair_makes_a_damaged_tree_whole() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("s.zr");
    let store = Store::create(&path, Version::V1).unwrap();
    append(&store, 0..40, true).unwrap();
    drop(store);
    assert!(Store::verify(&path, |_| ()).unwrap().is_good());
    let file = path.join(".zrfs/tree");
    let good = std::fs::read(&file).unwrap();
    // The name of record 5, "r5.png" in "cats".
    let at = good.windows(6).position(|bytes| bytes == b"r5.png").unwrap();
    let mut bad = good.clone();
    bad[at] ^= 1;
    std::fs::write(&file, bad).unwrap();
    let found = Store::verify(&path, |_| ()).unwrap();
    assert!(!found.is_good() && found.bad_records == 0, "{found:?}");
    assert!(found.faults.iter().any(|fault| fault.contains("names")), "{found:?}");
    Store::repair(&path, |_| ()).unwrap();
    let found = Store::verify(&path, |_| ()).unwrap();
    assert!(found.is_good(), "{found:?}");
    let store = Store::open_read_only(&path).unwrap();
    check(&store, &BTreeSet::from([5]));
    let names = store.names().unwrap().unwrap();
    assert!(tree_of(&names).contains_key(&b"cats/r37.png"[..]), "what stood behind it is listed again");
}
