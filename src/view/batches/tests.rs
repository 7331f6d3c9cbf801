use std::path::Path;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Instant;

use super::*;
use crate::codec::Codec;
use crate::dataset::Schema;
use crate::format::Version;
use crate::sampler::{Mode, Sampler, SamplerOptions};
use crate::store::Store;
#[cfg(feature = "fuse")]
use crate::store::{FolderId, NewNames};
use crate::view::{Access, Opened, Opening, ViewOptions};

/// Record `index`, of `len` bytes that compress.
fn record(index: usize, len: usize) -> Vec<u8> {
    (0..len).map(|i| (i / 7 + index * 31) as u8).collect()
}

fn lengths(records: usize) -> Vec<usize> {
    (0..records).map(|i| (i * 977) % 5000 + usize::from(i % 11 == 3) * 300_000).collect()
}

/// Records of any lengths, every other one deflated where that pays.
fn ragged(path: &Path, lengths: &[usize]) {
    let store = Store::create(path, Version::V2).unwrap();
    for (i, &len) in lengths.iter().enumerate() {
        let codec = if i % 2 == 0 { Codec::default() } else { Codec::Raw };
        store.append_ragged(&record(i, len), &[0], &[len as u32], codec).unwrap();
    }
    store.sync().unwrap();
}

fn dense(path: &Path, records: usize, dtype: &str, shape: &[u64]) {
    let store = Store::create(path, Version::V2).unwrap();
    let schema = Schema::new(dtype, shape, Codec::default()).unwrap();
    schema.write(&store).unwrap();
    let item = schema.record_bytes() as usize;
    for i in 0..records {
        let codec = if i % 2 == 0 { Codec::default() } else { Codec::Raw };
        store.append(&record(i, item), item, codec).unwrap();
    }
    store.sync().unwrap();
}

fn sampler(mode: Mode, batch_size: usize) -> SamplerOptions {
    SamplerOptions { mode, batch_size, seed: 7, ..SamplerOptions::default() }
}

fn options(mode: Mode, batch_size: usize) -> ViewOptions {
    ViewOptions { sampler: sampler(mode, batch_size), start: 3, ..ViewOptions::default() }
}

fn view(path: &Path, options: ViewOptions) -> View {
    View::new(Store::open_read_only(path).unwrap(), None, options).unwrap()
}

fn with_labels(path: &Path, labels: &Path, options: ViewOptions) -> View {
    let labels = Store::open_read_only(labels).unwrap();
    View::new(Store::open_read_only(path).unwrap(), Some(labels), options).unwrap()
}

/// An open file of a view.
struct File<'a> {
    view: &'a View,
    node: Node,
    opened: Opened,
}

impl Drop for File<'_> {
    fn drop(&mut self) {
        self.view.release(self.node, self.opened.handle);
    }
}

type Answer = (u64, Result<Vec<u8>>);

impl File<'_> {
    fn ask(&self, offset: u64, size: u32, answers: &Sender<Answer>) {
        let answers = answers.clone();
        let reply = move |bytes: Result<&[u8]>| drop(answers.send((offset, bytes.map(<[u8]>::to_vec))));
        self.view.read(self.node, self.opened.handle, offset, size, Box::new(reply));
    }

    fn try_read(&self, offset: u64, size: u32) -> Result<Vec<u8>> {
        let (sender, receiver): (Sender<Answer>, Receiver<Answer>) = channel();
        self.ask(offset, size, &sender);
        drop(sender);
        receiver.recv().unwrap().1
    }

    #[track_caller]
    fn read(&self, offset: u64, size: u32) -> Vec<u8> {
        self.try_read(offset, size).unwrap()
    }

    /// All of it, in pieces of `size` bytes; of an endless file the first `most` bytes.
    fn all(&self, size: u32, most: u64) -> Vec<u8> {
        let mut all = Vec::new();
        while (all.len() as u64) < most {
            let bytes = self.read(all.len() as u64, size.min((most - all.len() as u64) as u32));
            if bytes.is_empty() {
                break;
            }
            all.extend(bytes);
        }
        all
    }
}

/// Where a file is: `array.npy`, `batches/17.npy`.
fn find(view: &View, path: &str) -> Result<Attributes> {
    match path.split_once('/') {
        Some((_, name)) => view.lookup(Node::Batches, name.as_bytes()),
        None => view.lookup(Node::Root, path.as_bytes()),
    }
}

#[track_caller]
fn open<'a>(view: &'a View, path: &str) -> File<'a> {
    let node = find(view, path).unwrap().node;
    let Opening::Done(opened) = view.open(node, Access::Read).unwrap() else { panic!("nothing is deleted") };
    File { view, node, opened }
}

/// A finite file, whose size is what stat says.
#[track_caller]
fn whole(view: &View, path: &str) -> Vec<u8> {
    let bytes = open(view, path).all(1 << 17, u64::MAX);
    assert_eq!(bytes.len() as u64, find(view, path).unwrap().size, "{path}");
    bytes
}

fn indices(length: u64, options: &SamplerOptions, step: u64) -> Vec<u64> {
    let mut sampler = Sampler::new(length, options).unwrap();
    sampler.seek(step).unwrap();
    let mut indices = vec![0; options.batch_size];
    sampler.next(&mut indices).unwrap();
    indices
}

/// The .npy file of these records.
fn npy(dtype: &str, shape: &[u64], records: impl Iterator<Item = Vec<u8>>) -> Vec<u8> {
    let records: Vec<_> = records.collect();
    let shape: Vec<u64> = std::iter::once(records.len() as u64).chain(shape.iter().copied()).collect();
    let header = Schema::new(dtype, &shape, Codec::Raw).unwrap().npy_header();
    [header, records.concat()].concat()
}

/// Reads in odd pieces, at random, in any order and by several threads: all equals `expected`.
fn check_reads(view: &View, path: &str, expected: &[u8]) {
    let len = expected.len() as u64;
    for size in [1021, 4096, 131_072, 1 << 20] {
        let file = open(view, path);
        // Each byte in tiny pieces takes too long where there are many.
        let most = len.min(u64::from(size) * 100).min(4 << 20);
        assert!(file.all(size, most) == expected[..most as usize], "{path} in pieces of {size}");
    }
    std::thread::scope(|scope| {
        for reader in 0..4u64 {
            scope.spawn(move || {
                let file = open(view, path);
                let mut random = reader + 1;
                for _ in 0..60 {
                    random = random
                        .wrapping_mul(6_364_136_223_846_793_005)
                        .wrapping_add(1_442_695_040_888_963_407);
                    let at = (random >> 20) % len;
                    let size = ((random >> 8) % 9000 + 1).min(len - at) as u32;
                    let bytes = file.read(at, size);
                    assert!(bytes == expected[at as usize..][..size as usize], "{path} at {at}");
                }
            });
        }
    });
    // Several at once by one reader, as readahead does, of which some come late.
    let file = open(view, path);
    let (sender, receiver) = channel();
    let pieces: Vec<u64> = (0..len.min(6 << 20)).step_by(100_000).collect();
    for pair in pieces.chunks(2) {
        pair.iter().rev().for_each(|&at| file.ask(at, 100_000.min(len - at) as u32, &sender));
    }
    drop(sender);
    let answers: Vec<Answer> = receiver.iter().collect();
    assert_eq!(answers.len(), pieces.len());
    for (at, bytes) in answers {
        let bytes = bytes.unwrap();
        assert!(bytes == expected[at as usize..][..100_000.min(len - at) as usize], "{path} at {at}");
    }
}

#[test]
fn dense_files_are_the_samplers_records() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("s.zr");
    dense(&path, 50, "<f4", &[3, 500]);
    for (mode, batch) in [(Mode::Sequential, 7), (Mode::Iid, 300), (Mode::Shuffle, 64), (Mode::Iid, 8200)] {
        let view = view(&path, options(mode, batch));
        let data = |step| {
            let step = indices(50, &sampler(mode, batch), step);
            step.into_iter().map(|index| record(index as usize, 6000)).collect::<Vec<_>>()
        };
        for step in [0, 5, 1000] {
            let expected = npy("<f4", &[3, 500], data(step).into_iter());
            assert!(whole(&view, &format!("batches/{step}.npy")) == expected, "{mode} {batch} {step}");
            let index = indices(50, &sampler(mode, batch), step);
            let index = npy("<i8", &[], index.into_iter().map(|index| index.to_le_bytes().to_vec()));
            assert_eq!(whole(&view, &format!("batches/000{step}.index.npy")), index);
        }
        if batch < 1000 {
            check_reads(&view, "batches/5.npy", &npy("<f4", &[3, 500], data(5).into_iter()));
            let steps = || (3..8).map(data);
            let bytes: Vec<u8> = steps().flatten().flatten().collect();
            check_reads(&view, "batch", &bytes);
            let files: Vec<u8> = steps().flat_map(|step| npy("<f4", &[3, 500], step.into_iter())).collect();
            check_reads(&view, "batch.npy", &files);
        }
    }
    let view = view(&path, options(Mode::Iid, 4));
    let array = npy("<f4", &[3, 500], (0..50).map(|i| record(i, 6000)));
    assert!(whole(&view, "array.npy") == array);
    check_reads(&view, "array.npy", &array);
    assert_eq!(find(&view, "array.npy").unwrap().stored, 0);
    for name in ["batch", "batch.npy", "batch.tar"] {
        assert_eq!(find(&view, name).unwrap().size, 0);
    }
    for name in ["batch.label.npy", "batches/0.label.npy", "batches/.npy", "batches/x.npy", "batches/1npy"] {
        assert_eq!(find(&view, name).unwrap_err().kind(), ErrorKind::NotFound, "{name}");
    }
}

#[test]
fn every_byte_of_an_endless_file_has_its_place() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("s.zr");
    dense(&path, 1000, "<i8", &[]);
    for mode in [Mode::Sequential, Mode::Shuffle] {
        let view = view(&path, options(mode, 16));
        let file = open(&view, "batch.npy");
        let unit = npy("<i8", &[], (0..16).map(|i| record(i, 8))).len() as u64;
        let far = (1u64 << 62) / unit;
        for step in [0, 1, 1_000_000, far] {
            let expected = indices(1000, &sampler(mode, 16), step + 3);
            let expected = npy("<i8", &[], expected.into_iter().map(|index| record(index as usize, 8)));
            assert_eq!(file.read(step * unit, unit as u32), expected, "{mode} {step}");
            assert_eq!(file.read(step * unit + 100, 50), expected[100..150]);
        }
    }
    let view = view(&path, options(Mode::Iid, 1 << 10));
    let file = open(&view, "batch");
    let last = 1u64 << 22;
    let e = file.try_read((last - 2) * (8 << 10), 8).unwrap_err();
    assert_eq!(e.kind(), ErrorKind::Unsupported, "{e}");
    for (step, there) in [(last, true), (last + 1, false), (MAX_STEPS - 1, false)] {
        assert_eq!(find(&view, &format!("batches/{step}.npy")).is_ok(), there, "{step}");
    }
    let view = self::view(&path, options(Mode::Shuffle, 4));
    assert!(find(&view, &format!("batches/{}.tar", MAX_STEPS - 1)).is_ok());
    assert!(find(&view, &format!("batches/{MAX_STEPS}.tar")).is_err());
    assert!(find(&view, "batches/99999999999999999999999999.npy").is_err());
    assert!(find(&view, "batches/00000000000000000000000000000000000007.npy").is_ok());
}

#[test]
fn a_small_stream_has_every_step_once() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("s.zr");
    dense(&path, 1000, "|u1", &[3]);
    for (mode, batch) in [(Mode::Iid, 1), (Mode::Shuffle, 3), (Mode::Sequential, 5)] {
        let view = view(&path, options(mode, batch));
        let mut all = Sampler::new(1000, &sampler(mode, batch)).unwrap();
        all.seek(3).unwrap();
        let mut expected = Vec::new();
        let mut step = vec![0; batch];
        while expected.len() < 4 << 20 {
            all.next(&mut step).unwrap();
            expected.extend(step.iter().flat_map(|&index| record(index as usize, 3)));
        }
        assert!(open(&view, "batch").all(1 << 20, 4 << 20) == expected[..4 << 20], "{mode}");
    }
}

/// The members of an archive.
#[cfg(feature = "fuse")]
fn members(archive: &[u8]) -> Vec<(String, Vec<u8>)> {
    use std::io::Read;
    let mut archive = tar::Archive::new(archive);
    let members = archive.entries().unwrap().map(|entry| {
        let mut entry = entry.unwrap();
        let header = entry.header();
        assert_eq!((header.mode().unwrap(), header.mtime().unwrap()), (0o444, 315_532_800));
        assert_eq!((header.uid().unwrap(), header.gid().unwrap()), (0, 0));
        assert!(header.as_ustar().is_some() && header.entry_type().is_file());
        let name = entry.path().unwrap().display().to_string();
        let mut bytes = Vec::new();
        entry.read_to_end(&mut bytes).unwrap();
        (name, bytes)
    });
    members.collect()
}

#[cfg(feature = "fuse")]
#[test]
fn archives_hold_data_label_and_index() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    let lengths = lengths(40);
    ragged(&at("ragged.zr"), &lengths);
    dense(&at("dense.zr"), 40, "<f4", &[100]);
    dense(&at("classes.zr"), 40, "<i4", &[]);
    dense(&at("vectors.zr"), 40, "<f4", &[5]);
    ragged(&at("masks.zr"), &(0..40).map(|i| i * 10).collect::<Vec<_>>());
    let int =
        |index: usize| i32::from_le_bytes(record(index, 4).try_into().unwrap()).to_string().into_bytes();
    let vector_head = Schema::new("<f4", &[5], Codec::Raw).unwrap().npy_header();
    let vector = |index: usize| [&vector_head[..], &record(index, 20)].concat();
    let head = Schema::new("<f4", &[100], Codec::Raw).unwrap().npy_header();
    type Label<'a> = (&'a str, &'a str, &'a dyn Fn(usize) -> Vec<u8>);
    let labels: [Option<Label<'_>>; 4] = [
        None,
        Some(("classes.zr", "cls", &int)),
        Some(("vectors.zr", "label.npy", &vector)),
        Some(("masks.zr", "cls", &|index| record(index, index * 10))),
    ];
    for (data, ext) in [("ragged.zr", "bin"), ("dense.zr", "npy")] {
        for label in &labels {
            let view = match label {
                Some((labels, ..)) => with_labels(&at(data), &at(labels), options(Mode::Iid, 30)),
                None => view(&at(data), options(Mode::Iid, 30)),
            };
            let step = |step| {
                let mut expected = Vec::new();
                for (place, index) in indices(40, &sampler(Mode::Iid, 30), step).into_iter().enumerate() {
                    let (key, index) = (format!("{step:012}-{place:04}"), index as usize);
                    let bytes = match ext {
                        "bin" => record(index, lengths[index]),
                        _ => [&head[..], &record(index, 400)].concat(),
                    };
                    expected.push((format!("{key}.{ext}"), bytes));
                    if let Some((_, ext, label)) = label {
                        expected.push((format!("{key}.{ext}"), label(index)));
                    }
                    expected.push((format!("{key}.idx"), index.to_string().into_bytes()));
                }
                expected
            };
            let archive = whole(&view, "batches/17.tar");
            assert!(members(&archive) == step(17), "{data} {:?}", label.map(|label| label.0));
            assert!(archive.ends_with(&[0; 1024]));
            check_reads(&view, "batches/17.tar", &archive);
            // The endless one has the same, and no end between.
            let steps: Vec<u8> = (3..30)
                .flat_map(|step| {
                    let mut step = whole(&view, &format!("batches/{step}.tar"));
                    step.truncate(step.len() - 1024);
                    step
                })
                .collect();
            for size in [10_240, 131_072, 1 << 20] {
                assert!(
                    open(&view, "batch.tar").all(size, steps.len() as u64) == steps,
                    "in pieces of {size}"
                );
            }
        }
    }
    let view = with_labels(&at("ragged.zr"), &at("vectors.zr"), options(Mode::Iid, 30));
    let vectors = indices(40, &sampler(Mode::Iid, 30), 9);
    let vectors = npy("<f4", &[5], vectors.into_iter().map(|index| record(index as usize, 20)));
    assert_eq!(whole(&view, "batches/9.label.npy"), vectors);
    assert_eq!(open(&view, "batch.label.npy").read(0, 128).len(), 128);
    assert!(find(&view, "batch.npy").is_err() && find(&view, "array.npy").is_err());
    assert_eq!(find(&view, "batch").unwrap(), find(&view, "batch.tar").unwrap());
    let few = at("few.zr");
    dense(&few, 39, "<i4", &[]);
    let labels = Store::open_read_only(&few).unwrap();
    let refused =
        View::new(Store::open_read_only(at("ragged.zr")).unwrap(), Some(labels), options(Mode::Iid, 30));
    let e = refused.err().unwrap();
    assert!(
        e.kind() == ErrorKind::Geometry && e.to_string().contains("39") && e.to_string().contains("40"),
        "{e}"
    );
}

#[cfg(feature = "fuse")]
#[test]
fn members_have_the_extensions_of_records_and_no_two_one_name() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    for (name, files) in [("data.zr", ["a.png", "b.JPG", "c"]), ("masks.zr", ["a.png", "b.png", "c.idx"])] {
        let store = Store::create(at(name), Version::V1).unwrap();
        let mut names = NewNames::new(0);
        for file in files {
            names.record(FolderId::ROOT, file.as_bytes(), 0, false).unwrap();
        }
        let mut appender = store.appender().unwrap();
        appender.append(b"aaabbbccc", 3, Codec::Raw).unwrap();
        appender.set_names(&names).unwrap();
        appender.commit().unwrap();
        store.sync().unwrap();
    }
    let names = |view: &View| {
        members(&whole(view, "batches/0.tar"))
            .into_iter()
            .map(|(name, _)| name[18..].to_owned())
            .collect::<Vec<_>>()
    };
    let view = with_labels(&at("data.zr"), &at("masks.zr"), options(Mode::Sequential, 3));
    let expected = ["png", "label.png", "idx", "JPG", "png", "idx", "bin", "label.idx", "idx"];
    assert_eq!(names(&view), expected);
    let long = "x".repeat(200);
    for (ext, shown) in [("png", "png"), ("idx", "idx"), (long.as_str(), "bin")] {
        let forced = ViewOptions { ext: Some(ext.into()), ..options(Mode::Sequential, 1) };
        let index = if ext == "idx" { "index.idx" } else { "idx" };
        assert_eq!(names(&self::view(&at("data.zr"), forced)), [shown, index]);
    }
}

#[test]
fn an_endless_archive_is_read_forward() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("s.zr");
    ragged(&path, &lengths(40));
    let view = view(&path, options(Mode::Shuffle, 8));
    let file = open(&view, "batch.tar");
    assert_eq!(file.try_read(10, 10).unwrap_err().kind(), ErrorKind::Unsupported);
    let begin = file.all(100_000, 12 << 20);
    assert_eq!(file.try_read((12 << 20) + 1, 10).unwrap_err().kind(), ErrorKind::Unsupported);
    // A reply was lost.
    assert!(file.read((12 << 20) - 100_000, 100_000) == begin[(12 << 20) - 100_000..]);
    assert_eq!(file.read(12 << 20, 512).len(), 512);
    assert_eq!(file.try_read(0, 10).unwrap_err().kind(), ErrorKind::Unsupported);
}

#[test]
fn a_damaged_record_costs_what_needs_it_and_nothing_else() {
    use std::os::unix::fs::FileExt;
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("s.zr");
    dense(&path, 400, "<f4", &[1500]);
    let whole_before = whole(&view(&path, options(Mode::Sequential, 400)), "batches/0.npy");
    let tar_before = whole(&view(&path, options(Mode::Sequential, 400)), "batches/0.tar");
    let loc = Store::open_read_only(&path).unwrap().location(200).unwrap();
    let chunk = std::fs::File::options().write(true).open(path.join("0.zr")).unwrap();
    chunk.write_all_at(&vec![0xff; loc.phys_length as usize], loc.offset.into()).unwrap();
    for (name, before) in [("batches/0.npy", whole_before), ("batches/0.tar", tar_before)] {
        let view = view(&path, options(Mode::Sequential, 400));
        let file = open(&view, name);
        let mut failed = 0;
        for at in (0..before.len() as u64).step_by(4096) {
            let size = 4096.min(before.len() as u64 - at) as u32;
            match file.try_read(at, size) {
                Ok(bytes) => assert!(bytes == before[at as usize..][..size as usize], "{name} at {at}"),
                Err(e) => {
                    assert!(e.kind() == ErrorKind::Damaged && e.to_string().contains("200"), "{e}");
                    failed += 1;
                }
            }
        }
        assert!((1..=3).contains(&failed), "{name}: {failed} pieces failed");
        assert_eq!(view.counters.errors.load(Ordering::Relaxed), failed);
    }
    // An entry that can't be read: nobody knows the record's length.
    let meta = std::fs::File::options().write(true).open(path.join("meta.zr")).unwrap();
    meta.write_all_at(&[0xff; 16], 16 + 16 * 300).unwrap();
    std::fs::remove_file(path.join("schema.json")).unwrap();
    let view = view(&path, options(Mode::Sequential, 400));
    let file = open(&view, "batches/0.tar");
    let size = find(&view, "batches/0.tar").unwrap().size;
    let failed = (0..size).step_by(4096).filter(|&at| file.try_read(at, 4096).is_err()).count();
    assert!((2..=6).contains(&failed), "{failed} pieces failed");
}

#[test]
fn a_record_that_is_not_the_schemas_is_an_error() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("s.zr");
    dense(&path, 9, "<f4", &[10]);
    let store = Store::open(&path).unwrap();
    store.append(&[1; 39], 39, Codec::Raw).unwrap();
    store.append(&[1; 41], 41, Codec::Raw).unwrap();
    store.sync().unwrap();
    let view = view(&path, options(Mode::Sequential, 11));
    for name in ["array.npy", "batches/0.npy", "batches/0.tar"] {
        let file = open(&view, name);
        assert_eq!(file.read(0, 128 + 40 * 9).len(), 488, "{name}");
        let size = find(&view, name).unwrap().size as u32;
        let e = file.try_read(0, size).unwrap_err();
        assert!(e.kind() == ErrorKind::Damaged && e.to_string().contains("record 9 "), "{e}");
    }
}

#[test]
fn a_tiny_cache_serves_the_same_and_the_budget_is_kept() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("s.zr");
    dense(&path, 60, "<f4", &[50_000]);
    let expected = whole(&view(&path, options(Mode::Shuffle, 100)), "batches/2.npy");
    for cache in [0, 100_000, 3 << 20, 8 << 20] {
        let view = view(&path, ViewOptions { cache, ..options(Mode::Shuffle, 100) });
        std::thread::scope(|scope| {
            for size in [100_000, 131_072, 1 << 20] {
                let (view, expected) = (&view, &expected);
                scope.spawn(move || {
                    let file = open(view, "batches/2.npy");
                    for at in (0..expected.len()).step_by(size as usize) {
                        let bytes = file.read(at as u64, size);
                        assert!(bytes == expected[at..(at + size as usize).min(expected.len())]);
                        assert!(view.batches.engine.parts.used() <= cache);
                    }
                });
            }
        });
        let begin = Instant::now();
        while view.batches.engine.parts.used() > 0 {
            assert!(begin.elapsed().as_secs() < 20, "closed files hold parts");
            std::thread::yield_now();
        }
        view.tidy();
    }
}

#[test]
fn the_next_parts_are_made_before_they_are_asked_for() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("s.zr");
    dense(&path, 60, "<f4", &[50_000]);
    for name in ["batches/2.npy", "batches/2.tar", "batch", "batch.tar"] {
        let view = view(&path, options(Mode::Shuffle, 100));
        let file = open(&view, name);
        let find_reader = |handle: &Handle| match handle {
            Handle::Sampled(open) => Some(Arc::clone(&open.0)),
            _ => None,
        };
        let reader = view.handles.get(file.opened.handle, find_reader).unwrap();
        file.read(0, 1 << 20);
        assert!(view.batches.engine.parts.used() < 3 << 20, "who reads the beginning may want no more");
        let mut end = 1 << 20;
        for _ in 0..3 {
            file.read(end, 1 << 20);
            end += 1 << 20;
        }
        let next = reader.part_at(reader.part_at(end).unwrap().range.end).unwrap();
        let begin = Instant::now();
        while view.batches.engine.parts.ready(next.key).is_none() {
            assert!(begin.elapsed().as_secs() < 20, "{name}: nobody makes the next part");
            std::thread::yield_now();
        }
    }
}

#[test]
fn a_record_that_is_read_in_pieces_is_decoded_once() {
    use std::os::unix::fs::FileExt;
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("s.zr");
    let store = Store::create(&path, Version::V1).unwrap();
    Schema::new("|u1", &[20_000], Codec::default()).unwrap().write(&store).unwrap();
    for i in 0..500 {
        store.append(&record(i, 20_000), 20_000, Codec::default()).unwrap();
    }
    store.sync().unwrap();
    let view = view(&path, options(Mode::Iid, 4));
    let file = open(&view, "array.npy");
    // Somewhere in the middle, far from the last request each time.
    let at = |index: u64, skipped: u64| 128 + index * 20_000 + skipped;
    assert_eq!(file.read(at(300, 5000), 4096), record(300, 20_000)[5000..9096]);
    assert_eq!(view.batches.engine.parts.used(), 0, "nothing else was made");
    let chunk = std::fs::File::options().write(true).open(path.join("0.zr")).unwrap();
    let len = std::fs::metadata(path.join("0.zr")).unwrap().len();
    chunk.write_all_at(&vec![0xff; len as usize], 0).unwrap();
    assert_eq!(file.read(at(300, 12_000), 4096), record(300, 20_000)[12_000..16_096]);
    assert!(file.try_read(at(100, 12_000), 4096).is_err());
}

#[test]
fn steps_are_listed_as_far_as_is_asked() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    dense(&at("dense.zr"), 40, "<f4", &[10]);
    dense(&at("labels.zr"), 40, "<i8", &[]);
    ragged(&at("ragged.zr"), &lengths(10));
    let list = |view: &View, node: Node, from: u64| {
        let mut names = Vec::new();
        let take = |entry: crate::view::ListEntry<'_>, attributes: Option<Attributes>| {
            let attributes = attributes.unwrap();
            if !entry.name.starts_with(b".") {
                assert_eq!(view.lookup(node, entry.name).unwrap(), attributes);
            }
            names.push((String::from_utf8(entry.name.to_vec()).unwrap(), entry.next));
            false
        };
        view.list(node).unwrap().each(from, true, take).unwrap();
        names
    };
    let steps = |steps| ViewOptions { steps, ..options(Mode::Iid, 4) };
    let view = with_labels(&at("dense.zr"), &at("labels.zr"), steps(2));
    let names = list(&view, Node::Batches, 0);
    let shown: Vec<&str> = names.iter().map(|(name, _)| name.as_str()).collect();
    let expected = [
        ".",
        "..",
        "0.npy",
        "0.tar",
        "0.label.npy",
        "0.index.npy",
        "1.npy",
        "1.tar",
        "1.label.npy",
        "1.index.npy",
    ];
    assert_eq!(shown, expected);
    for (i, (_, next)) in names.iter().enumerate() {
        assert_eq!(list(&view, Node::Batches, *next), names[i + 1..]);
    }
    let root = list(&view, Node::Root, 0);
    assert_eq!(root.last().unwrap().0, "array.npy");
    assert_eq!(view.space().unwrap().files, 40 + 1 + 7 + 8);
    let view = self::view(&at("ragged.zr"), steps(1 << 20));
    assert_eq!(list(&view, Node::Root, 0).last().unwrap().0, "stats");
    let some = self::view(&at("ragged.zr"), ViewOptions { steps: 9, ..options(Mode::Iid, 1 << 30) });
    assert_eq!(some.batches.listed(9), 5 * 2, "draw 2^32 is the last that a step begins with");
    assert_eq!(list(&self::view(&at("ragged.zr"), steps(0)), Node::Batches, 0).len(), 2);
}

#[test]
fn a_delete_begins_new_files_and_waits_for_old_ones() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("s.zr");
    dense(&path, 40, "<i8", &[]);
    let view = View::new(
        Store::open(&path).unwrap(),
        None,
        ViewOptions { length: Some(38), ..options(Mode::Sequential, 64) },
    )
    .unwrap();
    let before: Vec<_> = ["array.npy", "batches/0.npy"].map(|name| find(&view, name).unwrap()).into();
    assert!(whole(&view, "array.npy") == npy("<i8", &[], (0..38).map(|i| record(i, 8))));
    view.store.delete(&[0, 1, 39]).unwrap();
    view.batches.begin_epoch(37);
    for (name, before) in ["array.npy", "batches/0.npy"].iter().zip(before) {
        let after = find(&view, name).unwrap();
        assert_ne!(after.node.number(), before.node.number());
        assert_ne!(after.generation, before.generation);
        assert_eq!(view.open(before.node, Access::Read).unwrap_err().kind(), ErrorKind::Stale);
        assert_eq!(view.attributes(before.node).unwrap_err().kind(), ErrorKind::Stale);
    }
    let store = Store::open_read_only(&path).unwrap();
    let records: Vec<_> = (0..37).map(|i| store.read(i).unwrap()).collect();
    drop(store);
    assert!(whole(&view, "array.npy") == npy("<i8", &[], records.into_iter()));
    assert_eq!(view.batches.length(), 37);
    view.store.delete(&(0..37).collect::<Vec<_>>()).unwrap();
    view.batches.begin_epoch(0);
    assert!(whole(&view, "array.npy") == npy("<i8", &[], std::iter::empty()));
    for name in ["batch", "batch.npy", "batch.tar", "batches/0.npy", "batches/0.tar"] {
        assert_eq!(find(&view, name).unwrap_err().kind(), ErrorKind::NotFound, "{name}");
    }
}

#[test]
fn who_deletes_waits_for_word_of_closes() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("s.zr");
    dense(&path, 40, "<i8", &[]);
    let view = View::new(Store::open(&path).unwrap(), None, options(Mode::Sequential, 8)).unwrap();
    let opening = || view.open(Node::Delete, Access::Write).unwrap();
    assert!(matches!(opening(), Opening::Done(_)));
    let file = open(&view, "batches/0.npy");
    assert_eq!(opening(), Opening::Later);
    assert_eq!(view.open_late(Node::Delete, Access::Write).unwrap_err().kind(), ErrorKind::Busy);
    // Closed before, or while it waits: both are what a program may see that closes and then deletes.
    std::thread::scope(|scope| {
        let late = scope.spawn(|| view.open_late(Node::Delete, Access::Write));
        drop(file);
        late.join().unwrap().unwrap();
    });
    assert!(matches!(opening(), Opening::Done(_)));
}

#[test]
fn absurd_sizes_are_errors() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("s.zr");
    dense(&path, 3, "<i8", &[]);
    std::fs::remove_file(path.join("schema.json")).unwrap();
    let store = Store::open(&path).unwrap();
    Schema::new("<i8", &[1 << 50], Codec::Raw).unwrap().write(&store).unwrap();
    drop(store);
    let view = view(&path, options(Mode::Iid, 1 << 24));
    for name in ["batch", "batch.npy", "batches/0.npy"] {
        assert_eq!(find(&view, name).unwrap_err().kind(), ErrorKind::NotFound, "{name}");
    }
    let file = open(&view, "array.npy");
    assert_eq!(file.read(0, 64).len(), 64);
    for at in [0, 128, 1 << 50, (3 << 53) + 60] {
        assert_eq!(file.try_read(at, 1 << 20).unwrap_err().kind(), ErrorKind::Damaged, "{at}");
    }
}

#[test]
fn a_stream_that_would_be_another_one_or_none_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("s.zr");
    dense(&path, 40, "<i4", &[]);
    let refusal = |options: ViewOptions| {
        let view = View::new(Store::open_read_only(&path).unwrap(), None, options);
        view.err().map(|e| (e.kind(), e.to_string()))
    };
    assert_eq!(refusal(ViewOptions { length: Some(40), ..options(Mode::Iid, 8) }), None);
    let (kind, text) = refusal(ViewOptions { length: Some(41), ..options(Mode::Iid, 8) }).unwrap();
    assert!(kind == ErrorKind::OutOfRange && text.contains("41") && text.contains("40 records"), "{text}");
    let last = (1 << 32) / 8;
    assert_eq!(refusal(ViewOptions { start: last, ..options(Mode::Iid, 8) }), None);
    let (kind, text) = refusal(ViewOptions { start: last + 1, ..options(Mode::Iid, 8) }).unwrap();
    assert!(kind == ErrorKind::Unsupported && text.contains("shuffle"), "{text}");
    assert_eq!(refusal(ViewOptions { start: u64::MAX, ..options(Mode::Shuffle, 8) }), None);
}
