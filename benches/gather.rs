//! `Store::gather`: batches of 256 random records, warm.

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

use common::{BATCH, KIB, batches, codec_name, filled_store, size_name};
use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use zrfs::Codec;

/// Record sizes and counts. All fit in memory together.
const RAW: [(usize, usize); 4] = [(8, 1_000_000), (3 * KIB, 40_000), (12 * KIB, 20_000), (150 * KIB, 2_000)];
const DEFLATE: [(usize, usize); 3] = [(3 * KIB, 40_000), (12 * KIB, 20_000), (150 * KIB, 2_000)];

fn gather(c: &mut Criterion) {
    let mut group = c.benchmark_group("gather");
    group.sample_size(30).measurement_time(Duration::from_secs(4));
    let raw = RAW.map(|(item_len, len)| (Codec::Raw, item_len, len));
    let deflate = DEFLATE.map(|(item_len, len)| (Codec::default(), item_len, len));
    for (codec, item_len, len) in raw.into_iter().chain(deflate) {
        let filled = filled_store(len, item_len, codec);
        // As many draws as there are records: fewer would come from the processor's cache again and again.
        let batches = batches(7, len as u64, BATCH, len.div_ceil(BATCH));
        let mut dst = vec![0u8; BATCH * item_len];

        for indices in &batches {
            filled.store.gather(indices, &mut dst, item_len).expect("gather");
            for (&index, record) in indices.iter().zip(dst.chunks(item_len)) {
                let expected = &filled.source[index as usize * item_len..][..item_len];
                assert!(record == expected, "record {index} differs from its source");
            }
        }

        group.throughput(Throughput::Bytes((BATCH * item_len) as u64));
        let id = BenchmarkId::new(codec_name(codec), size_name(item_len));
        let mut next = batches.iter().cycle();
        group.bench_function(id, |b| {
            b.iter(|| {
                let indices = next.next().expect("the cycle has no end");
                filled.store.gather(black_box(indices), black_box(&mut dst), item_len).expect("gather");
            });
        });
    }
    group.finish();
}

criterion_group!(benches, gather);
criterion_main!(benches);
