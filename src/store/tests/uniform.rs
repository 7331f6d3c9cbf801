//! Batches of small equal records go a shorter way than others, to the same bytes and errors.

use proptest::prelude::*;

use super::*;
use crate::format::{HEADER_BYTES, entry_at};

/// A store whose records have 8 bytes each but for those at `odd`: some longer, some deflated.
fn mixed(dir: &Path, odd: &[usize]) -> (Store, Vec<Vec<u8>>) {
    let store = Store::create(dir, Version::V2).unwrap();
    let mut records = Vec::new();
    for i in 0..100usize {
        let len = if odd.contains(&i) { [0, 7, 9, 300][i % 4] } else { 8 };
        let record = vec![i as u8; len];
        store.append_ragged(&record, &[0], &[len as u32], Codec::default()).unwrap();
        records.push(record);
    }
    (store, records)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn a_batch_is_its_records_whatever_their_kinds(
        odd in proptest::collection::vec(0..100usize, 0..3),
        indices in proptest::collection::vec(prop_oneof![100 => 0..102u64, 1 => Just(u64::MAX)], 0..40),
        stride in 7..310usize,
        missing in 0..3usize,
    ) {
        let dir = tempfile::tempdir().unwrap();
        let (store, records) = mixed(&dir.path().join("s.zr"), &odd);
        let mut batch = vec![0xee; (indices.len() * stride).saturating_sub(missing)];
        let mut expected = batch.clone();
        let fit = indices.iter().enumerate().all(|(i, &index)| {
            let record = records.get(index as usize);
            let slot = record.and_then(|record| {
                expected.get_mut(i * stride..)?.get_mut(..record.len()).filter(|slot| slot.len() <= stride)
            });
            slot.is_some_and(|slot| {
                slot.copy_from_slice(&records[index as usize]);
                true
            })
        });
        let gathered = store.gather(&indices, &mut batch, stride);
        prop_assert_eq!(gathered.is_ok(), fit, "{:?}", gathered);
        if fit {
            prop_assert_eq!(batch, expected);
        } else {
            // Nothing is written before all indices and lengths were looked at.
            prop_assert!(batch.iter().all(|&byte| byte == 0xee));
        }
    }
}

#[test]
fn a_damaged_entry_or_a_cut_chunk_is_told_with_its_record() {
    let dir = tempfile::tempdir().unwrap();
    let (store, _) = mixed(dir.path(), &[]);
    store.sync().unwrap();
    let indices: Vec<u64> = (0..100).rev().collect();
    let gather = || Store::open_read_only(dir.path()).unwrap().gather(&indices, &mut [0; 800], 8);
    gather().unwrap();
    let meta = std::fs::OpenOptions::new().write(true).open(dir.path().join("meta.zr")).unwrap();
    let put = |bytes: &[u8], at: u64| std::os::unix::fs::FileExt::write_all_at(&meta, bytes, at).unwrap();
    let entry = store.meta.entry(33).unwrap();
    // Each field of record 33 in turn: far away, too long, another chunk, another codec, nothing at all.
    for (at, bytes) in
        [(0, &[0xff; 4][..]), (4, &[9, 0, 0, 0]), (12, &[9, 0]), (14, &[1]), (15, &[1]), (0, &[0; 16])]
    {
        put(bytes, entry_at(33) + at);
        let e = gather().unwrap_err();
        assert!(e.kind() == ErrorKind::Damaged && e.to_string().contains("record 33 "), "{e}");
        put(&crate::format::words_to_bytes(entry), entry_at(33));
        gather().unwrap();
    }
    let chunk = std::fs::OpenOptions::new().write(true).open(dir.path().join("0.zr")).unwrap();
    let open = Store::open_read_only(dir.path()).unwrap();
    open.gather(&indices, &mut [0; 800], 8).unwrap();
    chunk.set_len(8 * 50 + 3).unwrap();
    // Also in a store that has seen it longer, where the last page reads as zeros.
    assert_eq!(open.gather(&indices, &mut [0; 800], 8).unwrap_err().kind(), ErrorKind::Damaged);
    std::fs::rename(dir.path().join("0.zr"), dir.path().join("gone")).unwrap();
    let e = gather().unwrap_err();
    assert!(e.kind() == ErrorKind::Damaged && e.to_string().contains("record 99 "), "{e}");
    std::fs::rename(dir.path().join("gone"), dir.path().join("0.zr")).unwrap();
    let e = gather().unwrap_err();
    assert!(e.kind() == ErrorKind::Damaged && e.to_string().contains("record "), "{e}");
    meta.set_len(entry_at(90) + HEADER_BYTES as u64 / 2).unwrap();
    assert_eq!(gather().unwrap_err().kind(), ErrorKind::Damaged);
}
