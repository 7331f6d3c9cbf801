//! What is asked of the disk along with a record.

use std::ops::Range;

use super::*;

const BLOCK: u64 = 256 << 10;
const LEN: usize = 100_000;

/// 20 deflated records and then 20 raw ones of the same bytes.
fn forty(dir: &Path, script: &Script) -> (Store, Vec<u8>) {
    let store = create(dir, script);
    // No record deflates to less than a quarter of its length.
    let mut random = 1u32;
    let bytes: Vec<u8> = (0..20 * LEN)
        .map(|_| {
            random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (random >> 29) as u8
        })
        .collect();
    store.append(&bytes, LEN, Codec::default()).unwrap();
    store.append(&bytes, LEN, Codec::Raw).unwrap();
    store.sync().unwrap();
    (store, bytes)
}

#[test]
fn what_lies_around_a_record_that_is_not_in_memory_is_asked_for() {
    let dir = tempfile::tempdir().unwrap();
    let script = Script::default();
    let (store, bytes) = forty(dir.path(), &script);
    let wanted = |index: u64| {
        assert_eq!(store.read(index).unwrap(), bytes[index as usize % 20 * LEN..][..LEN]);
        script.take_wanted()
    };
    let stored = store.stats().unwrap().chunk_bytes;
    for _ in 0..stored / BLOCK / 4 {
        assert_eq!(wanted(0), [], "few records are read alone");
    }
    assert_eq!(wanted(0), [("0.zr".to_owned(), 0..4 * BLOCK)], "from the start on, in order");
    let last = store.location(19).unwrap();
    let around = u64::from(last.offset) / BLOCK * BLOCK..last.end().next_multiple_of(BLOCK);
    assert!(around.start > BLOCK);
    assert_eq!(wanted(19), [("0.zr".to_owned(), around)]);
    assert_eq!(wanted(39), [], "the system reads around mapped ones by itself");
}

/// What is asked for by two batches of all forty records.
fn gather_twice(store: &Store, bytes: &[u8], script: &Script) -> Vec<Range<u64>> {
    let indices: Vec<u64> = (0..40).rev().collect();
    for _ in 0..2 {
        let mut batch = vec![0; 40 * LEN];
        store.gather(&indices, &mut batch, LEN).unwrap();
        for (&index, record) in indices.iter().zip(batch.chunks(LEN)) {
            assert!(*record == bytes[index as usize % 20 * LEN..][..LEN], "record {index}");
        }
    }
    script.take_wanted().into_iter().map(|(_, range)| range).collect()
}

#[test]
fn a_batch_asks_for_all_its_records() {
    let dir = tempfile::tempdir().unwrap();
    let script = Script::default();
    let (store, bytes) = forty(dir.path(), &script);
    let mut wanted = gather_twice(&store, &bytes, &script);
    wanted.sort_by_key(|range| range.start);
    for index in 0..40 {
        let loc = store.location(index).unwrap();
        // One that lies in two blocks may be asked for with the neighbours on either side.
        let reached = wanted.iter().fold(u64::from(loc.offset), |reached, range| {
            if range.contains(&reached) { range.end } else { reached }
        });
        assert!(reached >= loc.end(), "record {index} was not asked for from byte {reached} on");
    }
}

#[test]
fn a_thread_asks_for_each_block_once() {
    let dir = tempfile::tempdir().unwrap();
    let script = Script::default();
    let (store, bytes) = forty(dir.path(), &script);
    // Two that miss at once may both ask.
    let alone = || {
        stay_on_this_thread();
        gather_twice(&store, &bytes, &script)
    };
    let wanted = std::thread::scope(|scope| scope.spawn(alone).join().unwrap());
    for block in 0..store.stats().unwrap().chunk_bytes / BLOCK {
        let whole = |range: &&Range<u64>| range.start <= block * BLOCK && range.end >= (block + 1) * BLOCK;
        // Once more at most by a record that lies in the next one, too.
        assert!(wanted.iter().filter(whole).count() <= 2, "block {block} was asked for again");
    }
}
