//! Appends that were interrupted and go on: at every crash point, and after everything that may come in between.

use std::collections::HashSet;
use std::io::Write;

use super::crash::{List, Story, add, begin, check, explore, list_of, record, tell};
use super::*;
use crate::format::{CHECKPOINT_SLOT, MAX_CHUNK_BYTES, MAX_NOTE};
use crate::storage::crash::{Image, Limits, State, states};

/// A store holds these before the append, which brings it to `ALL`.
const OLD: usize = 3;
const ALL: usize = 13;

fn mark(number: usize) -> u64 {
    number as u64 * 1_000_003
}

fn put(appender: &mut Appender<'_>, numbers: std::ops::Range<usize>) {
    for number in numbers {
        let record = record(number);
        appender.append_ragged(&record, &[0], &[record.len() as u32], Codec::default()).unwrap();
    }
}

fn checkpoint(appender: &mut Appender<'_>, numbers: std::ops::Range<usize>) -> Result<()> {
    let note = format!("up to {}", numbers.end);
    appender.checkpoint(note.as_bytes(), &numbers.map(mark).collect::<Vec<_>>())
}

fn list(numbers: std::ops::Range<usize>) -> List {
    numbers.map(record).collect()
}

/// A store in which an append of `OLD..ALL` was killed behind record 11, after checkpoints behind 5 and 9.
fn interrupted() -> (Image, tempfile::TempDir) {
    let dir = tempfile::tempdir().unwrap();
    let (store, _, _) = begin(dir.path(), OLD);
    let mut appender = store.appender().unwrap();
    for numbers in [OLD..5, 5..9] {
        put(&mut appender, numbers.clone());
        checkpoint(&mut appender, numbers).unwrap();
    }
    put(&mut appender, 9..11);
    let image = Image::read(dir.path());
    drop(appender);
    let copy = tempfile::tempdir().unwrap();
    image.write(copy.path());
    (image, copy)
}

/// Goes on with the append; returns how many of its records were done.
fn go_on(store: &Store, what: &str) -> usize {
    let resumed = store.resume().unwrap_or_else(|e| panic!("{what}: {e}"));
    let (mut appender, done) = match resumed {
        Some((appender, interrupted)) => {
            let done = interrupted.marks.len();
            assert_eq!(interrupted.marks, (OLD..OLD + done).map(mark).collect::<Vec<_>>(), "{what}");
            let note = format!("up to {}", OLD + done);
            assert_eq!(interrupted.note, note.as_bytes(), "{what}");
            assert_eq!(appender.len(), (OLD + done) as u64, "{what}");
            (appender, done)
        }
        None if store.len() == ALL as u64 => return ALL - OLD,
        None => (store.appender().unwrap(), 0),
    };
    put(&mut appender, OLD + done..ALL);
    assert_eq!(appender.commit().unwrap(), OLD as u64, "{what}");
    store.sync().unwrap();
    done
}

/// Every state of a story, rebuilt in a folder.
fn each_state(name: &str, story: &Story, per_point: usize, mut visit: impl FnMut(&Path, &State)) {
    let dir = tempfile::tempdir().unwrap();
    let mut seen = HashSet::new();
    states(&story.before, &story.ops, Limits { per_point, seed: 5, from: 0 }, |state| {
        if seen.insert((state.image.clone(), state.completed)) {
            state.image.write(dir.path());
            visit(dir.path(), state);
        }
    });
    writeln!(io::stderr(), "    {name}: {} states on disk after a crash", seen.len()).unwrap();
}

/// The store ends as if the append had not been interrupted.
fn check_end(path: &Path, state: &State) {
    assert!(list_of(&Store::open_read_only(path).unwrap()) == list(0..ALL), "{}", state.what);
    let found = Store::verify(path, |_| ()).unwrap();
    assert!(found.is_good() && (found.unchecked == 0 || !state.killed), "{}: {found:?}", state.what);
    // After a power cut the removal of one may be lost.
    for file in ["checkpoint", "marks"].iter().filter(|_| state.killed) {
        assert!(!path.join(".zrfs").join(file).exists(), "{}: {file} is left", state.what);
    }
}

#[test]
fn an_append_with_checkpoints_goes_on_after_a_crash_at_any_point() {
    let story = tell(OLD, |store, list, reached| {
        let mut appender = store.appender().unwrap();
        for numbers in [OLD..5, 5..9] {
            put(&mut appender, numbers.clone());
            checkpoint(&mut appender, numbers).unwrap();
            reached(list.clone());
        }
        put(&mut appender, 9..ALL);
        appender.commit().unwrap();
        store.sync().unwrap();
        reached((0..ALL).map(record).collect());
    });
    explore("append with checkpoints", &story, 20, 0);
    let promised = [0, 2, 6, ALL - OLD];
    each_state("append that goes on", &story, 20, |path, state| {
        let reached = story.reached.iter().filter(|&&(ops, _)| ops <= state.completed).count();
        let done = go_on(&Store::open(path).unwrap(), &state.what);
        assert!(done >= promised[reached - 1], "{}: {done} records were kept", state.what);
        check_end(path, state);
    });
}

#[test]
fn names_are_given_once_whatever_was_given_before_a_crash() {
    let mut names = NewNames::new(0);
    for number in OLD..ALL {
        let folder = names.folder(FolderId::ROOT, format!("class {}", number % 3).as_bytes()).unwrap();
        names.record(folder, number.to_string().as_bytes(), 7, false).unwrap();
    }
    let story = tell(OLD, |store, _, reached| {
        let mut appender = store.appender().unwrap();
        put(&mut appender, OLD..9);
        checkpoint(&mut appender, OLD..9).unwrap();
        reached(list(0..OLD));
        put(&mut appender, 9..ALL);
        appender.set_names(&names).unwrap();
        appender.commit().unwrap();
        store.sync().unwrap();
        reached(list(0..ALL));
    });
    each_state("append that goes on with names", &story, 4, |path, state| {
        let store = Store::open(path).unwrap();
        let resumed = store.resume().unwrap_or_else(|e| panic!("{}: {e}", state.what));
        let appender = match resumed {
            Some((appender, interrupted)) => {
                assert_eq!(interrupted.marks.len(), 6, "{}", state.what);
                Some((appender, 9))
            }
            None if store.len() == ALL as u64 => None,
            None => Some((store.appender().unwrap(), OLD)),
        };
        if let Some((mut appender, from)) = appender {
            put(&mut appender, from..ALL);
            appender.set_names(&names).unwrap_or_else(|e| panic!("{}: {e}", state.what));
            appender.commit().unwrap();
            store.sync().unwrap();
        }
        let found = store.names().unwrap().unwrap_or_else(|| panic!("no names: {}", state.what));
        for number in OLD..ALL {
            let node = found.of_record(number as u64).unwrap().unwrap_or_else(|| panic!("{}", state.what));
            let path = names.path(number - OLD);
            assert_eq!(found.path(node.id).unwrap(), path, "{}", state.what);
            assert_eq!(found.resolve(&path).unwrap(), Some(node), "{}", state.what);
        }
    });
}

#[test]
fn going_on_may_be_interrupted_again_at_any_point() {
    let (before, copy) = interrupted();
    let script = Script::default();
    let dir = Box::new(Faulty::open(copy.path(), &script));
    let store = Store::open_in(dir, copy.path(), Access::Write).unwrap();
    let (mut appender, _) = store.resume().unwrap().unwrap();
    put(&mut appender, 9..10);
    checkpoint(&mut appender, 9..10).unwrap();
    let at_checkpoint = script.take();
    put(&mut appender, 10..ALL);
    appender.commit().unwrap();
    store.sync().unwrap();
    let promised = at_checkpoint.len();
    let ops: Vec<_> = at_checkpoint.into_iter().chain(script.take()).collect();
    let reached = vec![(0, list(0..OLD)), (ops.len(), list(0..ALL))];
    let story = Story { before, ops, reached };
    each_state("append that goes on and is cut off again", &story, 20, |path, state| {
        check(path, state, story.allowed(state.completed), false);
        let done = go_on(&Store::open(path).unwrap(), &state.what);
        assert!(done >= if state.completed >= promised { 7 } else { 6 }, "{}: {done}", state.what);
        check_end(path, state);
    });
}

#[test]
fn what_another_change_has_ended_is_never_continued_at_any_point() {
    type Change = fn(&Store);
    let append: Change = |store| {
        let mut appender = store.appender().unwrap();
        put(&mut appender, 100..105);
        appender.commit().unwrap();
        store.sync().unwrap();
    };
    let delete: Change = |store| drop(store.delete(&[0]).unwrap());
    let compact: Change = |store| {
        store.compact(|_| std::ops::ControlFlow::Continue(())).unwrap();
    };
    let seal: Change = |store| {
        store.seal().unwrap();
    };
    for (name, change) in [("append", append), ("delete", delete), ("compact", compact), ("seal", seal)] {
        let (before, copy) = interrupted();
        let script = Script::default();
        let dir = Box::new(Faulty::open(copy.path(), &script));
        let store = Store::open_in(dir, copy.path(), Access::Write).unwrap();
        change(&store);
        assert!(store.resume().unwrap().is_none(), "{name}");
        drop(store);
        let story = Story { before, ops: script.take(), reached: Vec::new() };
        each_state(&format!("{name} after an interrupted append"), &story, 15, |path, state| {
            let store = Store::open(path).unwrap();
            let seen = list_of(&store);
            let Some((mut appender, interrupted)) = store.resume().unwrap() else { return };
            put(&mut appender, OLD + interrupted.marks.len()..ALL);
            appender.commit().unwrap();
            assert!(seen == list(0..OLD) && list_of(&store) == list(0..ALL), "{name}: {}", state.what);
        });
    }
}

#[test]
fn nobody_sees_the_records_of_a_checkpoint_and_nobody_else_appends() {
    let (_, copy) = interrupted();
    let store = Store::open(copy.path()).unwrap();
    let (mut appender, _) = store.resume().unwrap().unwrap();
    let other = Store::open(copy.path()).unwrap();
    assert_eq!(other.len(), OLD as u64);
    assert_eq!(other.resume().map(drop).unwrap_err().kind(), ErrorKind::Busy);
    assert_eq!(other.appender().map(drop).unwrap_err().kind(), ErrorKind::Busy);
    put(&mut appender, 9..ALL);
    checkpoint(&mut appender, 9..ALL).unwrap();
    assert_eq!(other.len(), OLD as u64);
    appender.commit().unwrap();
    store.sync().unwrap();
    assert!(list_of(&other) == list(0..ALL));
    assert!(other.resume().unwrap().is_none());
}

#[test]
fn a_dropped_appender_takes_back_what_came_after_its_last_checkpoint() {
    let dir = tempfile::tempdir().unwrap();
    let (store, _, _) = begin(dir.path(), OLD);
    let size = || dir.path().join("0.zr").metadata().unwrap().len();
    let mut appender = store.appender().unwrap();
    put(&mut appender, OLD..5);
    checkpoint(&mut appender, OLD..5).unwrap();
    let kept = size();
    put(&mut appender, 5..9);
    assert!(size() > kept);
    drop(appender);
    assert_eq!((size(), store.len()), (kept, OLD as u64));
    assert_eq!(go_on(&store, "dropped"), 2);
    assert!(list_of(&store) == list(0..ALL));
}

#[test]
fn a_checkpoint_of_no_records_outlasts_a_kill_and_no_drop() {
    let dir = tempfile::tempdir().unwrap();
    let (store, _, _) = begin(dir.path(), OLD);
    let left = || {
        let zrfs = std::fs::read_dir(dir.path().join(".zrfs")).unwrap();
        (zrfs.count(), dir.path().join("0.zr").metadata().unwrap().len())
    };
    let before = left();
    let mut appender = store.appender().unwrap();
    appender.checkpoint(b"begun", &[]).unwrap();
    put(&mut appender, OLD..5);
    let killed = tempfile::tempdir().unwrap();
    Image::read(dir.path()).write(killed.path());
    drop(appender);
    assert!(store.resume().unwrap().is_none());
    assert_eq!(left(), before);
    let store = Store::open(killed.path()).unwrap();
    // Who looks at it and goes on later leaves it.
    drop(store.resume().unwrap().unwrap());
    let (mut appender, interrupted) = store.resume().unwrap().unwrap();
    assert_eq!(interrupted, Interrupted { note: b"begun".to_vec(), marks: Vec::new() });
    put(&mut appender, OLD..ALL);
    appender.commit().unwrap();
    store.sync().unwrap();
    assert!(list_of(&store) == list(0..ALL));
}

#[test]
fn a_failed_write_leaves_the_last_checkpoint() {
    for errno in [libc::ENOSPC, libc::EIO] {
        for failing in 0.. {
            let dir = tempfile::tempdir().unwrap();
            let (store, script, _) = begin(dir.path(), OLD);
            script.fail_after(failing, errno);
            let mut promised = 0;
            let mut attempt = || -> Result<()> {
                let mut appender = store.appender()?;
                for numbers in [OLD..5, 5..9, 9..12] {
                    for number in numbers.clone() {
                        let record = record(number);
                        appender.append_ragged(&record, &[0], &[record.len() as u32], Codec::Raw)?;
                    }
                    checkpoint(&mut appender, numbers.clone())?;
                    promised = numbers.end - OLD;
                }
                Ok(())
            };
            let failed = attempt();
            drop(store);
            let untouched = script.untouched();
            script.heal();
            let what = format!("errno {errno}, change {failing}");
            if !untouched {
                assert_eq!(failed.unwrap_err().raw_os_error(), Some(errno), "{what}");
            }
            let store = Store::open(dir.path()).unwrap();
            assert_eq!(store.len(), OLD as u64, "{what}");
            let done = go_on(&store, &what);
            assert!(done >= promised, "{what}: {done} of {promised}");
            assert!(list_of(&store) == list(0..ALL), "{what}");
            if untouched {
                assert!(failing > 20, "{failing}");
                break;
            }
        }
    }
}

#[test]
fn a_store_that_another_program_has_changed_is_not_continued() {
    let place = |store: &Store, index: u64| {
        let (mut appender, _) = store.resume().unwrap().unwrap();
        put(&mut appender, 9..ALL);
        appender.commit().unwrap();
        u64::from(store.location(index).unwrap().offset)
    };
    let (image, copy) = interrupted();
    let (first, ninth) = {
        let store = Store::open(copy.path()).unwrap();
        let first = place(&store, OLD as u64);
        (first, u64::from(store.location(9).unwrap().offset))
    };
    type Change = Box<dyn Fn(&dyn Directory)>;
    let write = |file: &'static str, at: u64, bytes: &'static [u8]| -> Change {
        Box::new(move |dir| dir.open(file, Access::Write).unwrap().write_at(bytes, at).unwrap())
    };
    let cut = move |dir: &dyn Directory| dir.open("0.zr", Access::Write).unwrap().set_len(ninth - 1).unwrap();
    let changes: [(&str, Change); 5] = [
        ("the header", write("meta.zr", 12, b"\x02")),
        ("the first record's bytes", write("0.zr", first, b"other")),
        ("an entry", write("meta.zr", 16 + 16 * 5 + 4, b"\x01")),
        ("the chunk's size", Box::new(cut)),
        ("the marks", write(".zrfs/marks", 8, b"other")),
    ];
    for (name, change) in changes {
        let dir = tempfile::tempdir().unwrap();
        image.write(dir.path());
        let disk: Box<dyn Directory> = Box::new(Disk::open(dir.path()).unwrap());
        change(disk.as_ref());
        let store = Store::open(dir.path()).unwrap();
        let e = store.resume().map(drop).unwrap_err();
        assert_eq!(e.kind(), ErrorKind::Damaged, "{name}: {e}");
        assert!(e.to_string().contains("append again from the start"), "{name}: {e}");
        // Nothing is locked, and the store takes other appends.
        add(&store, 50..51);
        assert!(store.resume().unwrap().is_none(), "{name}");
    }
}

#[test]
fn a_torn_slot_leaves_the_checkpoint_before() {
    let (image, _copy) = interrupted();
    // The second checkpoint is in the first slot.
    for (slot, done) in [(0, 2), (1, 6)] {
        let dir = tempfile::tempdir().unwrap();
        image.write(dir.path());
        let file = Disk::open(dir.path()).unwrap().open(".zrfs/checkpoint", Access::Write).unwrap();
        file.write_at(b"?", slot * CHECKPOINT_SLOT as u64 + 40).unwrap();
        let store = Store::open(dir.path()).unwrap();
        assert_eq!(go_on(&store, "torn"), done);
        assert!(list_of(&store) == list(0..ALL));
    }
}

#[test]
fn a_checkpoint_that_does_not_fit_is_refused_and_harms_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let (store, _, _) = begin(dir.path(), OLD);
    let mut appender = store.appender().unwrap();
    put(&mut appender, OLD..5);
    for marks in [vec![], vec![1], vec![1; 3]] {
        assert_eq!(appender.checkpoint(b"", &marks).unwrap_err().kind(), ErrorKind::Geometry);
    }
    let e = appender.checkpoint(&[0; MAX_NOTE + 1], &[1; 2]).unwrap_err();
    assert_eq!(e.kind(), ErrorKind::Geometry);
    appender.checkpoint(&[0; MAX_NOTE], &[1; 2]).unwrap();
    appender.commit().unwrap();
    let mut second = store.appender().unwrap();
    put(&mut second, 5..6);
    assert_eq!(second.checkpoint(b"", &[1]).unwrap_err().kind(), ErrorKind::Busy);
    put(&mut second, 6..ALL);
    second.commit().unwrap();
    store.sync().unwrap();
    assert!(list_of(&store) == list(0..ALL));
}

#[test]
fn an_append_goes_on_behind_empty_records() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::create(dir.path(), Version::V1).unwrap();
    let mut appender = store.appender().unwrap();
    appender.set_version(Version::V2);
    appender.append_ragged(b"abc", &[0, 0, 3], &[0, 3, 0], Codec::Raw).unwrap();
    appender.checkpoint(b"empty", &[1, 2, 3]).unwrap();
    drop(appender);
    let (appender, interrupted) = store.resume().unwrap().unwrap();
    assert_eq!(interrupted, Interrupted { note: b"empty".to_vec(), marks: vec![1, 2, 3] });
    appender.commit().unwrap();
    store.sync().unwrap();
    assert_eq!((store.len(), store.version(), read(&store, 1)), (3, Version::V2, b"abc".to_vec()));
}

#[test]
fn an_append_goes_on_in_another_chunk() {
    let dir = tempfile::tempdir().unwrap();
    let (store, _, _) = begin(dir.path(), OLD);
    // What follows rolls over into the next chunk.
    let near_end = (MAX_CHUNK_BYTES - 10) as u32;
    store.dir.open("0.zr", Access::Write).unwrap().set_len(near_end.into()).unwrap();
    let header = store.meta.header().unwrap();
    store.meta.write_header(&Header { tail_offset: near_end, ..header }).unwrap();
    let mut appender = store.appender().unwrap();
    appender.append(b"1234567890", 5, Codec::Raw).unwrap();
    appender.checkpoint(b"", &[4, 5]).unwrap();
    drop(appender);
    let (mut appender, _) = store.resume().unwrap().unwrap();
    appender.append(b"next!", 5, Codec::Raw).unwrap();
    appender.commit().unwrap();
    let place = |index| store.location(index).map(|loc| (loc.chunk_id, loc.offset)).unwrap();
    assert_eq!([place(3), place(4), place(5)], [(0, near_end), (1, 0), (1, 5)]);
    assert_eq!((read(&store, 4), read(&store, 5)), (b"67890".to_vec(), b"next!".to_vec()));
}
