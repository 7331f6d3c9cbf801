//! `Store::append`: one call that fills a new store.
//!
//! What is timed ends when `append` returns. Creating the store, closing it and removing it are outside.

#![allow(missing_docs, reason = "criterion's macros make public functions without documents")]
#![allow(
    clippy::cast_possible_truncation,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "a benchmark that goes wrong should stop, and its numbers are small"
)]

mod common;

use std::hint::black_box;
use std::time::Duration;

use common::{KIB, codec_name, fill_walk, size_name, temp_dir};
use criterion::{
    BatchSize, BenchmarkId, Criterion, SamplingMode, Throughput, criterion_group, criterion_main,
};
use zrfs::{Codec, Store, Version};

fn append(c: &mut Criterion) {
    let mut group = c.benchmark_group("append");
    // Each iteration makes a store of its own, so few are enough.
    group.sample_size(10).sampling_mode(SamplingMode::Flat).measurement_time(Duration::from_secs(5));
    for (codec, item_len, len) in
        [(Codec::Raw, 8, 500_000), (Codec::Raw, 12 * KIB, 4096), (Codec::default(), 12 * KIB, 4096)]
    {
        let mut source = vec![0u8; len * item_len];
        fill_walk(1, &mut source);
        let new_store = || {
            let dir = temp_dir();
            let store = Store::create(dir.path().join("bench.zr"), Version::V1).expect("create the store");
            (store, dir)
        };

        let (store, _dir) = new_store();
        assert_eq!(store.append(&source, item_len, codec).expect("append"), 0);
        let indices: Vec<u64> = (0..len as u64).collect();
        let mut read = vec![0u8; source.len()];
        store.gather(&indices, &mut read, item_len).expect("gather");
        assert!(read == source, "what was appended does not read back");
        drop(read);

        group.throughput(Throughput::Bytes(source.len() as u64));
        let id = BenchmarkId::new(codec_name(codec), size_name(item_len));
        group.bench_function(id, |b| {
            b.iter_batched(
                new_store,
                |(store, dir)| {
                    store.append(black_box(&source), item_len, codec).expect("append");
                    // Given back, so that closing and removing are not timed.
                    (store, dir)
                },
                BatchSize::PerIteration,
            );
        });
    }
    group.finish();
}

criterion_group!(benches, append);
criterion_main!(benches);
