//! Threads, openings and tasks beside each other.

use zrfs::store::Durability;
use zrfs::{Codec, ErrorKind, Store, Version};

use super::{go, ragged, read};

#[test]
fn readers_see_whole_batches_while_many_threads_append() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("s.zr");
    let store = Store::create(&path, Version::V1).unwrap();
    store.set_durability(Durability::EachAppend);
    // Record = its writer, its batch, and a checkable filling.
    let record = |writer: u8, batch: u8, n: u8| {
        let mut record = vec![writer, batch, n];
        record.extend(std::iter::repeat_n(writer ^ batch ^ n, 300 + usize::from(n)));
        record
    };
    let check = |store: &Store| {
        let len = store.len();
        for index in (0..len).step_by(7) {
            let found = read(store, index).unwrap();
            assert_eq!(found, record(found[0], found[1], found[2]), "record {index} of {len}");
        }
        assert!(len.is_multiple_of(20), "part of a batch is visible");
        len
    };
    std::thread::scope(|scope| {
        for writer in 0..4 {
            let store = &store;
            scope.spawn(move || {
                for batch in 0..25 {
                    let records: Vec<_> = (0..20).map(|n| record(writer, batch, n)).collect();
                    let (bytes, offsets, lens) = ragged(&records);
                    let codec = if batch % 2 == 0 { Codec::Raw } else { Codec::default() };
                    let first = store.append_ragged(&bytes, &offsets, &lens, codec).unwrap();
                    for (n, record) in records.iter().enumerate() {
                        assert_eq!(&read(store, first + n as u64).unwrap(), record);
                    }
                }
            });
        }
        // One reader shares the writers' store, one has opened it by itself, as another process would.
        for _ in 0..2 {
            scope.spawn(|| while check(&store) < 2000 {});
            scope.spawn(|| {
                let store = Store::open_read_only(&path).unwrap();
                while check(&store) < 2000 {}
            });
        }
    });
}

#[test]
fn two_openings_append_in_turn_and_never_at_once() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("s.zr");
    let a = Store::create(&path, Version::V1).unwrap();
    let b = Store::open(&path).unwrap();
    for i in 0..10u8 {
        let store = if i % 2 == 0 { &a } else { &b };
        assert_eq!(store.append(&[i], 1, Codec::Raw).unwrap(), u64::from(i));
        store.sync().unwrap();
    }
    for i in 0..10u8 {
        assert_eq!((read(&a, i.into()).unwrap(), read(&b, i.into()).unwrap()), (vec![i], vec![i]));
    }
    let mut appender = a.appender().unwrap();
    appender.append(&[1], 1, Codec::Raw).unwrap();
    let e = b.append(&[2], 1, Codec::Raw).unwrap_err();
    assert!(
        e.kind() == ErrorKind::Busy && e.to_string().contains(&format!("process {}", std::process::id())),
        "{e}"
    );
    appender.commit().unwrap();
    a.sync().unwrap();
    assert_eq!(b.append(&[2], 1, Codec::Raw).unwrap(), 11);
}

#[test]
fn tasks_of_a_callers_pool_gather_delete_and_compact_beside_each_other() {
    use rayon::prelude::*;
    let dir = tempfile::tempdir().unwrap();
    let store = Store::create(dir.path().join("s.zr"), Version::V1).unwrap();
    let records: Vec<u8> = (0..1000u32).flat_map(|i| vec![i as u8; 4000]).collect();
    store.append(&records, 4000, Codec::default()).unwrap();
    store.sync().unwrap();
    // Waiting for the work of one, a thread of the pool may take up another.
    (0..120u32).into_par_iter().with_max_len(1).for_each(|i| match i % 10 {
        5 => drop(store.delete(&[i.into()]).unwrap()),
        7 => drop(store.compact(go).unwrap()),
        _ => {
            let indices: Vec<u64> = (0..900).collect();
            let mut batch = vec![0; 900 * 4000];
            store.gather(&indices, &mut batch, 4000).unwrap();
            assert!(batch.chunks(4000).all(|record| record.iter().all(|&byte| byte == record[0])));
        }
    });
    assert_eq!(store.len(), 1000 - 12);
}
