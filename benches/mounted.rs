//! Reading records as files through a mount, warm, beside the same files in a plain directory.
//!
//! One iteration is open, fstat, read, close of one file of 12 KiB, in random order. `listing` lists all of a folder of
//! 10^6 names, and 10^5 folders of 10 names each, in a mount that has listed nothing yet: names alone, and with a stat of
//! each.

#![allow(missing_docs, reason = "criterion's macros make public functions without documents")]
#![allow(
    clippy::cast_possible_truncation,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "a benchmark that goes wrong should stop, and its numbers are small"
)]

mod common;

use std::fs;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use common::{KIB, Mount, filled_store, permutation, read_file};
use criterion::{BenchmarkId, Criterion, SamplingMode, Throughput, criterion_group, criterion_main};
use zrfs::store::NewNames;
use zrfs::{Codec, Store, Version};

const LEN: usize = 20_000;
const ITEM_LEN: usize = 12 * KIB;

/// Reads `reads` files of `paths` from `start` on, in a circle.
fn read_files(paths: &[PathBuf], start: usize, reads: u64, buffer: &mut [u8]) {
    for path in paths.iter().cycle().skip(start % paths.len()).take(reads as usize) {
        let size = read_file(path, buffer).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        assert_eq!(size, ITEM_LEN, "{}", path.display());
    }
}

/// The files of `dir` by name, which is by index; each compared with its record. This warms the cache, too.
fn checked_files(dir: &Path, source: &[u8]) -> Vec<PathBuf> {
    let mut paths: Vec<PathBuf> = fs::read_dir(dir)
        .expect("list the records")
        .map(|entry| entry.expect("list the records").path())
        .collect();
    paths.sort();
    assert_eq!(paths.len(), LEN, "{}", dir.display());
    for (path, record) in paths.iter().zip(source.chunks(ITEM_LEN)) {
        assert!(
            fs::read(path).expect("read a record") == record,
            "{} differs from its source",
            path.display()
        );
    }
    paths
}

fn mounted(c: &mut Criterion) {
    let filled = filled_store(LEN, ITEM_LEN, Codec::default());
    let dir = common::temp_dir();
    let plain = dir.path().join("plain");
    let mount_point = dir.path().join("mount");
    fs::create_dir(&plain).expect("make the plain directory");
    fs::create_dir(&mount_point).expect("make the mount point");
    for (index, record) in filled.source.chunks(ITEM_LEN).enumerate() {
        fs::write(plain.join(format!("{index:08}.bin")), record).expect("write a plain file");
    }
    // Dropped before `dir`, which could not be removed while the mount is there.
    let mount = Mount::new(
        Path::new(env!("CARGO_BIN_EXE_zrfs")),
        &filled.path,
        &mount_point,
        &dir.path().join("mount.log"),
    );

    let mut group = c.benchmark_group("mounted/12 KiB warm");
    group.sample_size(20).measurement_time(Duration::from_secs(4)).throughput(Throughput::Elements(1));
    for (name, files) in [("plain", plain), ("zrfs", mount.records())] {
        let in_order = checked_files(&files, &filled.source);
        let paths: Vec<PathBuf> =
            permutation(3, LEN).into_iter().map(|index| in_order[index].clone()).collect();
        for clients in [1usize, 2] {
            let id =
                BenchmarkId::new(name, format!("{clients} thread{}", if clients == 1 { "" } else { "s" }));
            let mut start = 0;
            group.bench_function(id, |b| {
                b.iter_custom(|iterations| {
                    // Each thread has its share, and a part of the order for itself.
                    let clock = Instant::now();
                    thread::scope(|scope| {
                        for client in 0..clients {
                            let share = (iterations + client as u64) / clients as u64;
                            let from = start + client * LEN / clients;
                            let paths = &paths;
                            scope.spawn(move || read_files(paths, from, share, &mut vec![0; ITEM_LEN]));
                        }
                    });
                    start = (start + iterations as usize) % LEN;
                    clock.elapsed()
                });
            });
        }
    }
    group.finish();
}

/// Makes a store of records of one byte, with these names in as many folders.
fn named_store(path: &Path, folders: usize, names_each: usize) {
    let mut names = NewNames::new(1);
    for folder in 0..folders {
        let folder = names.folder_at(format!("{folder:06}").as_bytes()).expect("name a folder");
        for name in 0..names_each {
            names.record(folder, format!("{name:08}.png").as_bytes(), 1, false).expect("name a record");
        }
    }
    let store = Store::create(path, Version::V1).expect("create the store");
    let mut appender = store.appender().expect("append");
    appender.append(&vec![7; names.len()], 1, Codec::Raw).expect("append");
    appender.set_names(&names).expect("name the records");
    appender.commit().expect("append");
    store.sync().expect("sync the store");
}

/// Lists `dir` and the folders in it; gives the number of names.
fn list(dir: &Path, with_attributes: bool) -> u64 {
    let mut names = 0;
    for entry in fs::read_dir(dir).expect("list a folder") {
        let entry = entry.expect("list a folder");
        names += 1;
        if with_attributes {
            entry.metadata().expect("stat a record");
        }
        if entry.file_type().expect("look at a record").is_dir() {
            names += list(&entry.path(), with_attributes);
        }
    }
    names
}

fn listing(c: &mut Criterion) {
    let dir = common::temp_dir();
    let mount_point = dir.path().join("mount");
    fs::create_dir(&mount_point).expect("make the mount point");
    let mut group = c.benchmark_group("mounted/listing");
    group.sample_size(10).sampling_mode(SamplingMode::Flat).warm_up_time(Duration::from_millis(1));
    for (shape, folders, names_each) in [("a folder of 10^6", 1, 1_000_000), ("10^5 folders", 100_000, 10)] {
        let store = dir.path().join(shape);
        named_store(&store, folders, names_each);
        let files = (folders * names_each) as u64;
        for (place, names) in [("tree", files + folders as u64), ("records", files)] {
            for with_attributes in [false, true] {
                let how = if with_attributes { "with attributes" } else { "names" };
                group.throughput(Throughput::Elements(names));
                group.bench_function(BenchmarkId::new(format!("{shape}, {place}"), how), |b| {
                    b.iter_custom(|iterations| {
                        let mut time = Duration::ZERO;
                        for _ in 0..iterations {
                            let program = Path::new(env!("CARGO_BIN_EXE_zrfs"));
                            let log = dir.path().join("mount.log");
                            let mount = Mount::new(program, &store, &mount_point, &log);
                            let clock = Instant::now();
                            let listed = list(&mount_point.join(place), with_attributes);
                            time += clock.elapsed();
                            drop(mount);
                            assert_eq!(listed, names);
                        }
                        time
                    });
                });
            }
        }
    }
    group.finish();
}

criterion_group!(benches, mounted, listing);
criterion_main!(benches);
