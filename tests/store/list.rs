//! A store beside a plain list, in random steps.

use proptest::prelude::*;
use zrfs::store::Move;
use zrfs::{Codec, Store, Version};

use super::{go, ragged, read};

/// Records of every kind: empty, one byte, compressible, random, around the size where Deflate begins.
fn record() -> impl Strategy<Value = Vec<u8>> {
    let random = proptest::collection::vec(any::<u8>(), 0..40);
    let repeated = (any::<u8>(), 0usize..5000).prop_map(|(byte, len)| vec![byte; len]);
    let steps =
        (1usize..3000, 1usize..9).prop_map(|(len, step)| (0..len).map(|i| (i / step) as u8).collect());
    prop_oneof![random, repeated, steps]
}

fn codec() -> impl Strategy<Value = Codec> {
    prop_oneof![Just(Codec::Raw), (1u8..=12).prop_map(Codec::Flate)]
}

#[derive(Clone, Debug)]
enum Step {
    Ragged(Vec<Vec<u8>>, Codec),
    Equal(usize, Vec<u8>, Codec),
    AbandonedAppend(Vec<u8>),
    Reopen,
    Sync,
    Delete(Vec<prop::sample::Index>),
    Compact,
    Seal,
    Verify,
    Gather(Vec<prop::sample::Index>),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        (proptest::collection::vec(record(), 0..12), codec()).prop_map(|(r, c)| Step::Ragged(r, c)),
        (1usize..500, proptest::collection::vec(any::<u8>(), 1..2000), codec())
            .prop_map(|(len, bytes, c)| Step::Equal(len, bytes, c)),
        record().prop_map(Step::AbandonedAppend),
        Just(Step::Reopen),
        Just(Step::Sync),
        proptest::collection::vec(any::<prop::sample::Index>(), 0..8).prop_map(Step::Delete),
        Just(Step::Compact),
        Just(Step::Seal),
        Just(Step::Verify),
        proptest::collection::vec(any::<prop::sample::Index>(), 1..20).prop_map(Step::Gather),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn the_store_is_a_list(steps in proptest::collection::vec(step(), 1..24)) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("s.zr");
        let mut store = Store::create(&path, Version::V2).unwrap();
        let mut list: Vec<Vec<u8>> = Vec::new();
        for step in steps {
            match step {
                Step::Ragged(records, codec) => {
                    let (bytes, offsets, lens) = ragged(&records);
                    let first = store.append_ragged(&bytes, &offsets, &lens, codec).unwrap();
                    prop_assert_eq!(first, list.len() as u64);
                    list.extend(records);
                }
                Step::Equal(len, mut bytes, codec) => {
                    bytes.truncate(bytes.len() / len * len);
                    store.append(&bytes, len, codec).unwrap();
                    list.extend(bytes.chunks(len).map(<[u8]>::to_vec));
                }
                Step::AbandonedAppend(record) => {
                    let mut appender = store.appender().unwrap();
                    let (bytes, offsets, lens) = ragged(&[record]);
                    appender.append_ragged(&bytes, &offsets, &lens, Codec::default()).unwrap();
                }
                Step::Reopen => {
                    // What was not synced is, when the store goes.
                    drop(store);
                    store = Store::open(&path).unwrap();
                }
                Step::Sync => store.sync().unwrap(),
                Step::Delete(picks) => {
                    if list.is_empty() {
                        continue;
                    }
                    let mut doomed: Vec<u64> = picks.iter().map(|pick| pick.index(list.len()) as u64).collect();
                    let moves = store.delete(&doomed).unwrap();
                    let before = list.clone();
                    doomed.sort_unstable();
                    doomed.dedup();
                    for &index in doomed.iter().rev() {
                        list.swap_remove(index as usize);
                    }
                    for Move { from, to } in moves {
                        prop_assert_eq!(&before[from as usize], &list[to as usize]);
                    }
                }
                Step::Compact => {
                    store.compact(go).unwrap();
                    let stats = store.stats().unwrap();
                    // Where there are empty records alone, one byte is left before them.
                    prop_assert!(stats.reclaimable() <= u64::from(stats.live_bytes == 0));
                    prop_assert_eq!(store.compact(go).unwrap().records_moved, 0);
                }
                Step::Seal => drop(store.seal().unwrap()),
                Step::Verify => {
                    store.sync().unwrap();
                    let found = Store::verify(&path, |_| ()).unwrap();
                    prop_assert!(found.is_good(), "{:?}", found);
                    prop_assert_eq!((found.checked, found.unchecked), (list.len() as u64, 0));
                }
                Step::Gather(picks) => {
                    if list.is_empty() {
                        continue;
                    }
                    let indices: Vec<u64> = picks.iter().map(|pick| pick.index(list.len()) as u64).collect();
                    let stride = list.iter().map(Vec::len).max().unwrap() + 3;
                    let mut strided = vec![0xee; stride * indices.len()];
                    store.gather(&indices, &mut strided, stride).unwrap();
                    // Ragged, laid out backwards with gaps.
                    let mut offsets = vec![0; indices.len()];
                    let mut end = 0;
                    for (offset, &index) in offsets.iter_mut().zip(&indices).rev() {
                        *offset = end + 1;
                        end = *offset + list[index as usize].len() as u64;
                    }
                    let mut packed = vec![0xee; end as usize];
                    store.gather_ragged(&indices, &mut packed, &offsets).unwrap();
                    for (i, &index) in indices.iter().enumerate() {
                        let expected = &list[index as usize];
                        let (slot, gap) = strided[i * stride..][..stride].split_at(expected.len());
                        prop_assert_eq!(slot, &expected[..]);
                        prop_assert!(gap.iter().all(|&b| b == 0xee), "bytes between records were touched");
                        prop_assert_eq!(&packed[offsets[i] as usize..][..expected.len()], &expected[..]);
                    }
                }
            }
            prop_assert_eq!(store.len(), list.len() as u64);
        }
        drop(store);
        let store = Store::open_read_only(&path).unwrap();
        for (i, expected) in list.iter().enumerate() {
            prop_assert_eq!(&read(&store, i as u64).unwrap(), expected);
        }
        let stats = store.stats().unwrap();
        prop_assert_eq!(stats.records, list.len() as u64);
        prop_assert_eq!(stats.logical_bytes, list.iter().map(|r| r.len() as u64).sum::<u64>());
        prop_assert_eq!(stats.damaged, 0);
    }
}
