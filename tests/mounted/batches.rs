//! `batches/`, `array.npy` and the endless files.

use std::fs::{self, File};
use std::io::{Read, Seek, SeekFrom};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;

use zrfs::dataset::Schema;
use zrfs::{Codec, Mode, Sampler, SamplerOptions, Store, Version};

use super::place::{Place, zrfs};
use super::{kinds, waves};

const RECORDS: u64 = 300;

fn record(index: u64) -> Vec<u8> {
    (0..1500u32).flat_map(|i| (i / 3 + index as u32 * 7).to_le_bytes()).collect()
}

fn label(index: u64) -> i64 {
    index as i64 * 3 - 100
}

/// A place with a dense store and one of its labels beside it.
fn place() -> Place {
    let place = Place::new();
    let store = |path: &Path, schema: Schema, bytes: &dyn Fn(u64) -> Vec<u8>| {
        let store = Store::create(path, Version::V1).unwrap();
        schema.write(&store).unwrap();
        for i in 0..RECORDS {
            let record = bytes(i);
            store.append(&record, record.len(), Codec::default()).unwrap();
        }
        store.sync().unwrap();
    };
    store(&place.store(), Schema::new("<u4", &[1500], Codec::default()).unwrap(), &record);
    let scalars = Schema::new("<i8", &[], Codec::default()).unwrap();
    store(&place.dir.path().join("labels.zr"), scalars, &|i| label(i).to_le_bytes().to_vec());
    place
}

fn mount(place: &Place, options: &str) {
    let labels = place.dir.path().join("labels.zr");
    place.mount(&[&format!("labels={},{options}", labels.display())]);
}

fn unmount(place: &Place) {
    assert!(zrfs(&["umount"], &[&place.mnt()]).status.success());
    place.wait_for_end();
}

fn indices(mode: Mode, batch_size: usize, step: u64) -> Vec<u64> {
    let options = SamplerOptions { mode, seed: 7, batch_size, ..SamplerOptions::default() };
    let mut sampler = Sampler::new(RECORDS, &options).unwrap();
    sampler.seek(step).unwrap();
    let mut indices = vec![0; batch_size];
    sampler.next(&mut indices).unwrap();
    indices
}

fn npy(dtype: &str, shape: &[u64], records: impl Iterator<Item = Vec<u8>>) -> Vec<u8> {
    let records: Vec<_> = records.collect();
    let shape: Vec<u64> = std::iter::once(records.len() as u64).chain(shape.iter().copied()).collect();
    [Schema::new(dtype, &shape, Codec::Raw).unwrap().npy_header(), records.concat()].concat()
}

fn step(mode: Mode, batch: usize, step: u64) -> Vec<u8> {
    npy("<u4", &[1500], indices(mode, batch, step).into_iter().map(record))
}

/// > batches/N.npy holds the records of step N of the sampler, N.label.npy their labels, N.index.npy their indices, N.tar all of them; a .npy file is there where records, or labels, have a dtype.
/// > A step is the same in every mount with the same mode, seed, batch size and length; every step number below 2^48 opens, with or without leading zeros, and `-o steps=` says how many are listed.
/// > The sizes of files in batches/ and of array.npy are exact; array.npy takes no blocks.
/// > stats says mode, seed, batch size, start and length of the batches.
#[test]
fn steps() {
    let place = place();
    let at = |name: &str| place.mnt().join("batches").join(name);
    for (mode, batch) in [(Mode::Sequential, 64), (Mode::Iid, 200), (Mode::Shuffle, 7)] {
        let options = format!("mode={mode},seed=7,batch_size={batch},steps=3,start=9");
        mount(&place, &options);
        for number in [0, 2, 100_000] {
            let drawn = indices(mode, batch, number);
            let labels = npy("<i8", &[], drawn.iter().map(|&i| label(i).to_le_bytes().to_vec()));
            let index = npy("<i8", &[], drawn.iter().map(|&i| i.to_le_bytes().to_vec()));
            for (name, expected) in
                [("npy", step(mode, batch, number)), ("label.npy", labels), ("index.npy", index)]
            {
                let name = format!("{number}.{name}");
                assert!(fs::read(at(&name)).unwrap() == expected, "{mode} {name}");
                let meta = at(&name).metadata().unwrap();
                assert_eq!((meta.len(), meta.blocks()), (expected.len() as u64, meta.len().div_ceil(512)));
                assert!(fs::read(at(&format!("000{name}"))).unwrap() == expected);
            }
            let tar = fs::read(at(&format!("{number}.tar"))).unwrap();
            assert_eq!(tar.len() as u64, at(&format!("{number}.tar")).metadata().unwrap().len());
        }
        let mut listed: Vec<_> =
            fs::read_dir(at("")).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
        listed.sort();
        let kinds = ["index.npy", "label.npy", "npy", "tar"];
        let expected: Vec<_> = (0..3).flat_map(|step| kinds.map(|kind| format!("{step}.{kind}"))).collect();
        assert_eq!(listed, expected);
        let stats = fs::read_to_string(place.mnt().join("stats")).unwrap();
        let stats: serde_json::Value = serde_json::from_str(&stats).unwrap();
        let mode = mode.to_string();
        for (key, value) in [
            ("mode", serde_json::Value::from(mode)),
            ("seed", 7.into()),
            ("batch_size", batch.into()),
            ("start", 9.into()),
            ("length", RECORDS.into()),
        ] {
            assert_eq!(stats[key], value);
        }
        for name in ["x.npy", "1", "1.bin", ".npy", "-1.npy", "281474976710656.npy"] {
            assert_eq!(fs::metadata(at(name)).unwrap_err().raw_os_error(), Some(libc::ENOENT), "{name}");
        }
        unmount(&place);
    }
    let array = place.mnt().join("array.npy");
    mount(&place, "length=200");
    assert_eq!(array.metadata().unwrap().len(), 128 + 200 * 6000);
    assert_eq!(array.metadata().unwrap().blocks(), 0);
    unmount(&place);
    place.mount(&[]);
    assert_eq!(fs::metadata(at("0.label.npy")).unwrap_err().raw_os_error(), Some(libc::ENOENT));
    assert!(at("0.npy").exists() && !place.mnt().join("batch.label.npy").exists());
}

/// > array.npy holds all records as one array, and pieces of it can be read and mapped anywhere.
#[test]
fn array() {
    let place = place();
    place.mount(&["threads=1"]);
    let expected = npy("<u4", &[1500], (0..RECORDS).map(record));
    let path = place.mnt().join("array.npy");
    assert!(fs::read(&path).unwrap() == expected);
    unmount(&place);
    place.mount(&["cache=1"]);
    let file = File::open(&path).unwrap();
    // SAFETY: nobody changes the store while the mapping lives.
    #[allow(unsafe_code)]
    let map = unsafe { memmap2::Mmap::map(&file).unwrap() };
    for i in 0..RECORDS {
        let at = 128 + (i * 77 % RECORDS) as usize * 6000;
        assert!(map[at..at + 6000] == expected[at..at + 6000]);
        let mut piece = [0; 100];
        file.read_exact_at(&mut piece, at as u64 + 5990).unwrap_or_default();
        assert!(piece[..10] == expected[at + 5990..at + 6000]);
    }
    assert!(map[..] == expected[..]);
}

/// > In an archive the members of a sample are its data, its label and its index, under one key that no other sample has.
#[test]
fn archives() {
    let place = place();
    mount(&place, "seed=7,batch_size=500,start=4");
    let mut members = Vec::new();
    for number in 4..6 {
        let file = File::open(place.mnt().join(format!("batches/{number}.tar"))).unwrap();
        let mut archive = tar::Archive::new(file);
        for (i, entry) in archive.entries().unwrap().enumerate() {
            let mut entry = entry.unwrap();
            let mut bytes = Vec::new();
            entry.read_to_end(&mut bytes).unwrap();
            let index = indices(Mode::Iid, 500, number)[i / 3];
            let head = Schema::new("<u4", &[1500], Codec::Raw).unwrap().npy_header();
            let (ext, expected) = match i % 3 {
                0 => ("npy", [head, record(index)].concat()),
                1 => ("cls", label(index).to_string().into_bytes()),
                _ => ("idx", index.to_string().into_bytes()),
            };
            let name = entry.path().unwrap().display().to_string();
            assert_eq!(name, format!("{number:012}-{:04}.{ext}", i / 3));
            assert!(bytes == expected, "{name}");
            members.push(name);
        }
    }
    assert_eq!(members.len(), 2 * 500 * 3);
    // The endless one has no end between its steps.
    let mut archive = tar::Archive::new(File::open(place.mnt().join("batch.tar")).unwrap());
    let names = archive.entries().unwrap().map(|entry| entry.unwrap().path().unwrap().display().to_string());
    assert_eq!(names.take(members.len()).collect::<Vec<_>>(), members);
}

/// > batch, batch.npy, batch.label.npy and batch.tar hold the steps from `-o start=` on, one after another, and never end; they open and are not listed, and their size is 0.
/// > batch and the endless .npy files can be read from any byte; batch.tar can't be sought in.
/// > Past draw 2^32 a step of an iid stream is not there, and a read of an endless file fails with EINVAL.
#[test]
fn endless() {
    let place = place();
    mount(&place, "mode=shuffle,seed=7,batch_size=100,start=5");
    for name in ["batch", "batch.npy", "batch.label.npy", "batch.tar"] {
        assert_eq!(place.mnt().join(name).metadata().unwrap().len(), 0);
        assert!(fs::read_dir(place.mnt()).unwrap().all(|e| e.unwrap().file_name() != name));
    }
    let mut file = File::open(place.mnt().join("batch.npy")).unwrap();
    let unit = step(Mode::Shuffle, 100, 0).len();
    for number in 5..15 {
        let mut bytes = vec![0; unit];
        file.read_exact(&mut bytes).unwrap();
        assert!(bytes == step(Mode::Shuffle, 100, number), "step {number}");
    }
    for number in [1_000_000, (1 << 62) / unit as u64] {
        file.seek(SeekFrom::Start(number * unit as u64)).unwrap();
        let mut bytes = vec![0; unit];
        file.read_exact(&mut bytes).unwrap();
        assert!(bytes == step(Mode::Shuffle, 100, number + 5), "step {number}");
    }
    let mut label_file = vec![0; 128 + 800];
    let labels = File::open(place.mnt().join("batch.label.npy")).unwrap();
    labels.read_exact_at(&mut label_file, 928).unwrap();
    let drawn = indices(Mode::Shuffle, 100, 6);
    assert_eq!(label_file, npy("<i8", &[], drawn.into_iter().map(|i| label(i).to_le_bytes().to_vec())));
    let mut bytes = vec![0; 12_000];
    let batch = File::open(place.mnt().join("batch")).unwrap();
    batch.read_exact_at(&mut bytes, 99 * 6000).unwrap();
    let (last, first) = (indices(Mode::Shuffle, 100, 5)[99], indices(Mode::Shuffle, 100, 6)[0]);
    assert_eq!(bytes, [record(last), record(first)].concat());
    let mut archive = File::open(place.mnt().join("batch.tar")).unwrap();
    let e = archive.seek(SeekFrom::Start(512)).unwrap_err();
    assert_eq!(e.raw_os_error(), Some(libc::ESPIPE));
    drop((file, labels, batch, archive));
    unmount(&place);

    mount(&place, "seed=7,batch_size=65536");
    let batch = File::open(place.mnt().join("batch")).unwrap();
    let at = |step: u64| step * 65536 * 6000;
    assert_eq!(batch.read_at(&mut bytes, at(1)).unwrap(), 12_000);
    let e = batch.read_at(&mut bytes, at(65537)).unwrap_err();
    assert_eq!(e.raw_os_error(), Some(libc::EINVAL));
    assert!(
        place.mnt().join("batches/65536.npy").exists() && !place.mnt().join("batches/65537.npy").exists()
    );
}

/// > Readers that share the steps between them see together what one reader sees.
#[test]
fn shared_steps() {
    let place = place();
    for threads in ["threads=1", "threads=3"] {
        mount(&place, &format!("{threads},mode=shuffle,seed=7,batch_size=64"));
        let mut all: Vec<(u64, Vec<u8>)> = std::thread::scope(|scope| {
            let readers: Vec<_> = (0..4u64)
                .map(|reader| {
                    let place = &place;
                    scope.spawn(move || {
                        let read = |step| fs::read(place.mnt().join(format!("batches/{step}.npy"))).unwrap();
                        (0..10).map(|turn| (turn * 4 + reader, read(turn * 4 + reader))).collect::<Vec<_>>()
                    })
                })
                .collect();
            readers.into_iter().flat_map(|reader| reader.join().unwrap()).collect()
        });
        all.sort();
        let shared: Vec<u8> = all.into_iter().flat_map(|(_, bytes)| bytes).collect();
        let mut alone = vec![0; shared.len()];
        File::open(place.mnt().join("batch.npy")).unwrap().read_exact(&mut alone).unwrap();
        assert!(alone == shared);
        unmount(&place);
    }
}

/// > A damaged record fails reads that need it, with EIO; the other records of its batch can be read, but for those in the same page of memory, and all of them in records/.
#[test]
fn damage() {
    let place = Place::new();
    place.fill(&kinds());
    let loc = Store::open_read_only(place.store()).unwrap().location(18).unwrap();
    let chunk = File::options().write(true).open(place.store().join("0.zr")).unwrap();
    chunk.write_all_at(&[0xff; 500], loc.offset.into()).unwrap();
    place.mount(&["mode=sequential,batch_size=22"]);
    let file = File::open(place.mnt().join("batches/0.tar")).unwrap();
    let mut whole = Vec::new();
    let e = { &file }.read_to_end(&mut whole).unwrap_err();
    assert_eq!(e.raw_os_error(), Some(libc::EIO));
    // Records 18 and 19 have 1 MiB, 20 and 21 what is behind them.
    let size = file.metadata().unwrap().len();
    let behind = 2 * (512 + 1024 + 5_000_192) + 1024;
    let mut bytes = vec![0; 5_000_000];
    file.read_exact_at(&mut bytes, size - behind + 512).unwrap();
    assert!(bytes == waves(5_000_000));
}
