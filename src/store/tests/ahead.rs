//! What is asked of the disk along with a record.

use super::*;

#[test]
fn what_lies_around_a_record_that_is_not_in_memory_is_asked_for() {
    let dir = tempfile::tempdir().unwrap();
    let script = Script::default();
    let store = create(dir.path(), &script);
    // No record deflates to less than a quarter of its length.
    let mut random = 1u32;
    let bytes: Vec<u8> = (0..2_000_000)
        .map(|_| {
            random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (random >> 29) as u8
        })
        .collect();
    store.append(&bytes, 100_000, Codec::default()).unwrap();
    store.append(&bytes, 100_000, Codec::Raw).unwrap();
    store.sync().unwrap();
    let block = 256 << 10;
    let wanted = |index: u64| {
        assert_eq!(store.read(index).unwrap(), bytes[index as usize % 20 * 100_000..][..100_000]);
        script.take_wanted()
    };
    let stored = store.stats().unwrap().chunk_bytes;
    for _ in 0..stored / block / 4 {
        assert_eq!(wanted(0), [], "few records are read alone");
    }
    assert_eq!(wanted(0), [("0.zr".to_owned(), 0..4 * block)], "from the start on, in order");
    let last = store.location(19).unwrap();
    let around = u64::from(last.offset) / block * block..last.end().next_multiple_of(block);
    assert!(around.start > block);
    assert_eq!(wanted(19), [("0.zr".to_owned(), around)]);
    assert_eq!(wanted(39), [], "the system reads around mapped ones by itself");
}
