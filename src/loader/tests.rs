//! Batches beside what the records are known to hold.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use ndarray::{Array1, Array2};
use tempfile::TempDir;

use super::*;
use crate::codec::Codec;
use crate::dataset::Dataset;
use crate::format::Version;
use crate::sampler::{Mode, SamplerOptions};
use crate::storage::own_process::{self, Child};
use crate::store::Store;

const RECORDS: u64 = 100;

/// Two aligned datasets and a store of ragged records: record i of each begins with i.
struct Sources(TempDir);

impl Sources {
    fn new() -> Sources {
        let sources = Sources(tempfile::tempdir().unwrap());
        let data = Array2::from_shape_fn((RECORDS as usize, 40), |(i, j)| (i * (j % 2 + 1)) as f32);
        let labels = Array1::from_iter((0..RECORDS as i64).map(|i| i * 1000));
        Dataset::write(sources.path("data.zr"), &data, Codec::default()).unwrap();
        Dataset::write(sources.path("label.zr"), &labels, Codec::default()).unwrap();
        let store = Store::create(sources.path("ragged.zr"), Version::V2).unwrap();
        for i in 0..RECORDS {
            let record = ragged_record(i);
            store.append_ragged(&record, &[0], &[record.len() as u32], Codec::default()).unwrap();
        }
        sources
    }

    fn path(&self, name: &str) -> std::path::PathBuf {
        self.0.path().join(name)
    }

    fn dataset(&self, name: &str) -> Dataset {
        Dataset::open_read_only(self.path(name)).unwrap()
    }

    fn ragged(&self) -> Store {
        Store::open_read_only(self.path("ragged.zr")).unwrap()
    }

    /// All three streams.
    fn loader(&self) -> LoaderBuilder {
        Loader::builder()
            .stream("data", self.dataset("data.zr"))
            .stream("label", self.dataset("label.zr"))
            .stream("ragged", self.ragged())
    }
}

/// The bytes of record `i`, none of record 0.
fn ragged_record(i: u64) -> Vec<u8> {
    (0..i * 7).map(|j| (i + j) as u8).collect()
}

/// Checks that each stream holds the records that the batch's indices name.
fn check(batch: &Batch) {
    let (data, label) = (batch.view::<f32>("data").unwrap(), batch.view::<i64>("label").unwrap());
    assert_eq!(data.shape(), [batch.len(), 40]);
    let (bytes, offsets) = (batch.bytes("ragged").unwrap(), batch.offsets("ragged").unwrap());
    assert_eq!((offsets.len(), offsets[batch.len()]), (batch.len() + 1, bytes.len() as u64));
    for (i, &index) in batch.indices().iter().enumerate() {
        assert_eq!((data[[i, 0]], data[[i, 39]]), (index as f32, 2.0 * index as f32));
        assert_eq!(label[i], index as i64 * 1000);
        let ragged = ragged_record(index);
        assert_eq!(batch.record("ragged", i).unwrap(), ragged);
        assert_eq!(bytes[offsets[i] as usize..offsets[i + 1] as usize], ragged);
        assert_eq!(batch.record("label", i).unwrap(), (index as i64 * 1000).to_le_bytes());
    }
}

fn options(mode: Mode) -> SamplerOptions {
    SamplerOptions { mode, seed: 5, batch_size: 16, ..Default::default() }
}

/// Step and indices of the next `n` batches, each checked.
fn steps(loader: &mut Loader, n: usize) -> Vec<(u64, Vec<u64>)> {
    let taken = loader.take(n).map(|batch| {
        let batch = batch.unwrap();
        check(&batch);
        (batch.step(), batch.indices().to_vec())
    });
    taken.collect()
}

/// What the sampler draws.
fn drawn(options: &SamplerOptions, n: usize) -> Vec<(u64, Vec<u64>)> {
    let mut sampler = crate::sampler::Sampler::new(RECORDS, options).unwrap();
    let draw = |_| {
        let (step, mut indices) = (sampler.step(), vec![0; options.batch_size]);
        sampler.next(&mut indices).unwrap();
        (step, indices)
    };
    (0..n).map(draw).collect()
}

#[test]
fn batches_are_the_samplers_whatever_the_number_of_workers() {
    let sources = Sources::new();
    for mode in [Mode::Sequential, Mode::Iid, Mode::Shuffle] {
        let expected = drawn(&options(mode), 100);
        for (workers, prefetch) in [(1, 1), (1, 4), (2, 3), (8, 1), (8, 8), (8, 30)] {
            let loader = sources.loader().sampler(options(mode)).workers(workers).prefetch(prefetch);
            assert_eq!(steps(&mut loader.build().unwrap(), 100), expected, "{mode}, {workers} workers");
        }
    }
}

#[test]
fn ranks_share_the_steps() {
    let sources = Sources::new();
    let expected = drawn(&options(Mode::Shuffle), 30);
    for rank in 0..3 {
        let options = SamplerOptions { rank, world: 3, ..options(Mode::Shuffle) };
        let mut loader = sources.loader().sampler(options.clone()).build().unwrap();
        let indices: Vec<_> = steps(&mut loader, 10).into_iter().map(|(_, indices)| indices).collect();
        let share = expected.iter().skip(rank as usize).step_by(3).map(|(_, indices)| indices.clone());
        assert_eq!(indices, share.collect::<Vec<_>>());
        // One rank has saved for all.
        let mut first = sources.loader().sampler(SamplerOptions { rank: 0, ..options }).build().unwrap();
        steps(&mut first, 4);
        let mut resumed = sources.loader().resume(first.state().clone().with_rank(rank)).build().unwrap();
        assert_eq!(steps(&mut resumed, 6)[0].1, indices[4]);
    }
}

#[test]
fn a_resumed_loader_goes_on_behind_the_last_batch_that_was_delivered() {
    let sources = Sources::new();
    for mode in [Mode::Sequential, Mode::Iid, Mode::Shuffle] {
        let expected = drawn(&options(mode), 64 + 5);
        for k in 0..64 {
            let mut loader = sources.loader().sampler(options(mode)).workers(1 + k % 3).build().unwrap();
            assert_eq!(steps(&mut loader, k), expected[..k]);
            let saved = loader.state().to_json();
            let state = SamplerState::from_json(saved.as_bytes()).unwrap();
            assert_eq!(state.step, k as u64);
            // Goes on while the first one is there still, with batches ahead.
            let mut resumed = sources.loader().resume(state).build().unwrap();
            assert_eq!(steps(&mut resumed, 5), expected[k..k + 5], "{mode}, {k} steps");
            let mut started = sources.loader().sampler(options(mode)).start_at(k as u64).build().unwrap();
            assert_eq!(steps(&mut started, 2), expected[k..k + 2], "{mode}, {k} steps");
        }
    }
}

#[test]
fn a_store_that_has_grown_is_resumed_when_its_old_length_is_named() {
    let sources = Sources::new();
    let all = options(Mode::Iid);
    let mut loader = sources.loader().sampler(all.clone()).length(60).build().unwrap();
    let before = steps(&mut loader, 3);
    assert!(before.iter().flat_map(|(_, indices)| indices).all(|&index| index < 60));
    let state = loader.state().clone();
    let e = sources.loader().resume(state.clone()).build().unwrap_err();
    assert!(e.to_string().contains("60") && e.to_string().contains("100"), "{e}");
    let mut resumed = sources.loader().resume(state).length(60).build().unwrap();
    assert_eq!(steps(&mut resumed, 2), steps(&mut loader, 2));
}

#[test]
fn what_a_transform_makes_is_what_is_delivered() {
    let sources = Sources::new();
    let loader = sources.loader().sampler(options(Mode::Shuffle)).workers(2).transform(|mut batch| {
        batch.bytes_mut("label")?.fill(0);
        let zero = batch.view::<i64>("label")?.iter().all(|&label| label == 0);
        Ok((batch.step(), zero))
    });
    let delivered: Vec<_> = loader.build().unwrap().take(20).map(Result::unwrap).collect();
    assert_eq!(delivered, (0..20).map(|step| (step, true)).collect::<Vec<_>>());
}

/// What panics when it is dropped.
struct Bomb;

impl Drop for Bomb {
    fn drop(&mut self) {
        panic!("a bomb");
    }
}

#[test]
fn an_error_or_a_panic_comes_in_its_steps_place_and_the_next_step_after_it() {
    let sources = Sources::new();
    for workers in [1, 4] {
        let loader = sources.loader().sampler(options(Mode::Iid)).workers(workers).transform(|batch| {
            match batch.step() {
                3 => Err("three is refused".into()),
                5 => panic!("five is too much"),
                8 => std::panic::panic_any(Bomb),
                6 => Err(Box::new(batch.view::<f64>("data").unwrap_err())),
                step => Ok(step),
            }
        });
        let mut loader = loader.build().unwrap();
        for step in 0..10 {
            let delivered = loader.next_batch();
            let text = match step {
                3 => "step 3: the transform failed: three is refused",
                5 => "step 5: a worker panicked: five is too much",
                6 => "f64",
                8 => "step 8: a worker panicked: without a message",
                _ => {
                    assert_eq!(delivered.unwrap(), step);
                    assert_eq!(loader.state().step, step + 1);
                    continue;
                }
            };
            let e = delivered.unwrap_err();
            assert!(e.kind() == ErrorKind::Worker && e.to_string().contains(text), "{e}");
            let source = std::error::Error::source(&e);
            assert_eq!(step == 6, source.is_some_and(|source| source.is::<Error>()));
            // A step that failed is tried again.
            assert!(loader.state().step <= step, "{:?}", loader.state());
        }
    }
}

#[test]
fn a_damaged_record_costs_its_step_alone() {
    let sources = Sources::new();
    let loc = sources.ragged().location(90).unwrap();
    let chunk = sources.path("ragged.zr/0.zr");
    let mut bytes = std::fs::read(&chunk).unwrap();
    bytes[loc.offset as usize..][..loc.phys_length as usize].fill(0xff);
    std::fs::write(chunk, bytes).unwrap();
    let options = SamplerOptions { mode: Mode::Sequential, batch_size: 10, ..Default::default() };
    let mut loader = sources.loader().sampler(options).build().unwrap();
    for step in 0..20 {
        let delivered = loader.next_batch();
        if step % 10 == 9 {
            let e = delivered.unwrap_err();
            assert_eq!(e.kind(), ErrorKind::Damaged, "{e}");
            assert!(e.to_string().contains("record 90") && e.to_string().contains("ragged.zr"), "{e}");
        } else {
            check(&delivered.unwrap());
        }
    }
}

#[test]
fn what_can_not_be_loaded_is_refused_before_a_thread_starts() {
    let sources = Sources::new();
    Dataset::write(sources.path("short.zr"), &Array1::<u8>::zeros(99), Codec::Raw).unwrap();
    Store::create(sources.path("empty.zr"), Version::V1).unwrap();
    let refused = |loader: LoaderBuilder| loader.build().unwrap_err();
    let texts = |e: Error, kind, words: &[&str]| {
        assert_eq!(e.kind(), kind, "{e}");
        words.iter().for_each(|word| assert!(e.to_string().contains(word), "{e}"));
    };
    texts(refused(Loader::builder()), ErrorKind::Unsupported, &["needs a stream"]);
    let short = sources.loader().stream("short", sources.dataset("short.zr"));
    texts(refused(short), ErrorKind::Geometry, &["short.zr", "99", "100"]);
    let empty = Loader::builder().stream("e", Store::open(sources.path("empty.zr")).unwrap());
    texts(refused(empty), ErrorKind::Geometry, &["empty.zr", "no record"]);
    let twice = sources.loader().stream("data", sources.ragged());
    texts(refused(twice), ErrorKind::Unsupported, &["\"data\""]);
    texts(refused(sources.loader().length(101)), ErrorKind::Geometry, &["101", "100"]);
    assert!(sources.loader().length(0).build().is_err());
    assert!(sources.loader().workers(0).build().is_err());
    texts(refused(sources.loader().workers(100_000)), ErrorKind::Unsupported, &["100000", "1024"]);
    let state = sources.loader().build().unwrap().state().clone();
    for both in [
        sources.loader().resume(state.clone()).sampler(options(Mode::Iid)),
        sources.loader().sampler(options(Mode::Iid)).resume(state.clone()),
        sources.loader().resume(state).start_at(3),
    ] {
        texts(refused(both), ErrorKind::Unsupported, &["resumes"]);
    }
    assert!(sources.loader().prefetch(0).build().is_err());
    let huge = SamplerOptions { batch_size: usize::MAX, ..options(Mode::Shuffle) };
    texts(refused(sources.loader().sampler(huge)), ErrorKind::Memory, &["max_batch_bytes"]);
    texts(refused(sources.loader().max_batch_bytes(1000)), ErrorKind::Memory, &["max_batch_bytes"]);
}

#[test]
fn a_ragged_batch_that_is_too_large_is_an_error_in_its_place() {
    let sources = Sources::new();
    let options = SamplerOptions { mode: Mode::Sequential, batch_size: 10, ..Default::default() };
    let loader = Loader::builder().stream("ragged", sources.ragged()).sampler(options).max_batch_bytes(3000);
    let mut loader = loader.build().unwrap();
    let delivered: Vec<_> = loader.by_ref().take(10).map(|batch| batch.map(|b| b.len())).collect();
    // Records 40 to 49 have 3115 bytes.
    assert!(delivered[..4].iter().all(Result::is_ok));
    assert!(delivered[4..].iter().all(|d| d.as_ref().is_err_and(|e| e.kind() == ErrorKind::Memory)));
}

#[test]
fn what_a_batch_does_not_have_is_an_error() {
    let sources = Sources::new();
    let batch = sources.loader().build().unwrap().next_batch().unwrap();
    let kind = |e: Error| e.kind();
    assert_eq!(kind(batch.bytes("images").unwrap_err()), ErrorKind::NotFound);
    assert_eq!(kind(batch.view::<f64>("data").unwrap_err()), ErrorKind::Unsupported);
    assert_eq!(kind(batch.view::<u8>("ragged").unwrap_err()), ErrorKind::Unsupported);
    assert_eq!(kind(batch.offsets("data").unwrap_err()), ErrorKind::Unsupported);
    for i in [batch.len(), usize::MAX] {
        assert_eq!(kind(batch.record("data", i).unwrap_err()), ErrorKind::OutOfRange);
        assert_eq!(kind(batch.record("ragged", i).unwrap_err()), ErrorKind::OutOfRange);
    }
}

#[test]
fn batches_that_the_caller_keeps_stay_as_they_were() {
    let sources = Sources::new();
    let mut loader = sources.loader().sampler(options(Mode::Iid)).build().unwrap();
    let kept: Vec<Batch> = loader.by_ref().take(30).map(Result::unwrap).collect();
    assert_eq!(steps(&mut loader, 5).len(), 5);
    // Longer than the loader, too.
    drop(loader);
    kept.iter().for_each(check);
}

#[test]
fn memory_is_used_again() {
    let sources = Sources::new();
    let addresses = Arc::new(Mutex::new(std::collections::BTreeSet::new()));
    let seen = Arc::clone(&addresses);
    let loader =
        sources.loader().sampler(options(Mode::Iid)).workers(2).prefetch(3).transform(move |batch| {
            seen.lock().unwrap().insert(batch.indices().as_ptr() as usize);
            Ok(batch)
        });
    for batch in loader.build().unwrap().take(300) {
        batch.unwrap();
    }
    // Three ahead, one that each worker has in hand before it waits, and the caller's: as many as the pool keeps.
    let used = addresses.lock().unwrap().len();
    assert!(used <= 3 + 2 + 1, "{used} places");
}

#[test]
fn a_dropped_loader_has_joined_its_workers() {
    let sources = Sources::new();
    for taken in [0, 1, 50] {
        let alive = Arc::new(());
        let held = Arc::clone(&alive);
        let transform = move |batch: Batch| {
            let _held = &held;
            Ok(batch.step())
        };
        let mut loader = sources.loader().workers(8).transform(transform).build().unwrap();
        assert_eq!(loader.by_ref().take(taken).filter(Result::is_ok).count(), taken);
        drop(loader);
        assert_eq!(Arc::strong_count(&alive), 1, "a worker is there still");
    }
}

#[test]
fn a_batch_under_way_is_given_up_at_the_drop() {
    // 64 records of 1 MiB, decoded in pieces of 8.
    let dir = tempfile::tempdir().unwrap();
    let store = Store::create(dir.path().join("s.zr"), Version::V1).unwrap();
    store.append(&vec![7; 64 << 20], 1 << 20, Codec::default()).unwrap();
    let stop = AtomicBool::new(false);
    let mut asked = 0;
    let mut block = buffers::Block::default();
    let indices: Vec<u64> = (0..64).collect();
    let dense = Stream::from(store);
    let counted = std::cell::RefCell::new(&mut asked);
    let whole = dense.gather(&indices, &mut block, usize::MAX, || {
        **counted.borrow_mut() += 1;
        stop.load(Ordering::SeqCst)
    });
    // Once for the lengths, and for each piece.
    assert!(whole.unwrap() && asked == 1 + 8, "asked {asked} times");
    assert!(block.bytes.bytes().iter().all(|&byte| byte == 7) && block.bytes.bytes().len() == 64 << 20);
    assert!(!dense.gather(&indices, &mut block, usize::MAX, || true).unwrap());
    let rows = Array2::<u8>::zeros((10, 1));
    let dataset = Dataset::write(dir.path().join("d.zr"), &rows, Codec::Raw).unwrap();
    assert!(!Stream::from(dataset).gather(&[1], &mut block, usize::MAX, || true).unwrap());
}

#[test]
fn a_rare_large_batch_is_not_kept() {
    let mut bytes = buffers::AlignedBytes::default();
    let mut has = |len| {
        bytes.resize(len).unwrap();
        assert_eq!(bytes.bytes().len(), len);
        bytes.room()
    };
    assert_eq!((has(100), has(64 << 20), has(32 << 20)), (112, 64 << 20, 64 << 20));
    assert_eq!((has(10 << 20), has(3 << 20), has(100)), (10 << 20, 10 << 20, 112));
    // A little is no matter.
    assert_eq!((has(2 << 20), has(1)), (2 << 20, 2 << 20));
    assert!(bytes.resize(usize::MAX).is_err_and(|e| e.kind() == ErrorKind::Memory));
}

#[test]
fn free_buffers_are_used_in_turn_and_no_more_are_kept_than_may_be_used() {
    let pool = buffers::Pool::new(2, 4, 1);
    let taken: Vec<_> = (0..3).map(|_| pool.take()).collect();
    let places: Vec<_> = taken.iter().map(|buffers| buffers.indices.as_ptr()).collect();
    taken.into_iter().for_each(|buffers| pool.give_back(buffers));
    assert_eq!((pool.take().indices.as_ptr(), pool.take().indices.as_ptr()), (places[0], places[1]));
    assert_eq!(pool.free(), 0);
}

#[test]
fn a_forked_child_is_told_and_ends() {
    if !own_process::is_here("loader::tests::a_forked_child_is_told_and_ends") {
        return;
    }
    let sources = Sources::new();
    for _ in 0..20 {
        let options = SamplerOptions { batch_size: 1, ..options(Mode::Iid) };
        let mut loader = sources.loader().sampler(options).workers(8).prefetch(64).build().unwrap();
        let kept: Vec<Batch> = loader.by_ref().take(8).map(Result::unwrap).collect();
        // Dropped in both.
        drop(Child::new(move || {
            let e = loader.next_batch().unwrap_err();
            drop((kept, loader));
            e.kind() == ErrorKind::Unsupported
        }));
    }
}

#[test]
fn a_store_that_is_loaded_can_not_be_deleted_from() {
    let sources = Sources::new();
    let loader = sources.loader().build().unwrap();
    let store = Store::open(sources.path("ragged.zr")).unwrap();
    let e = store.delete(&[0]).unwrap_err();
    assert!(e.kind() == ErrorKind::Busy && e.to_string().contains("this very process"), "{e}");
    drop(loader);
    store.delete(&[0]).unwrap();
}

#[allow(dead_code, reason = "compiled, not run")]
fn a_loader_moves_to_another_thread(path: &Path) {
    fn sends<T: Send>(_: &T) {}
    sends(&Loader::builder().stream("s", Store::open(path).unwrap()).build().unwrap());
}
