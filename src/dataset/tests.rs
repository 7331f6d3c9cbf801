//! Datasets written and read back, and what they refuse.

use std::io::{self, Read};
use std::path::{Path, PathBuf};

use ndarray::{Array, Array1, Array2, Array3, ArrayD, Axis, IxDyn, ShapeBuilder, array, s};
use proptest::prelude::*;

use super::*;
use crate::codec::Codec;

fn folder() -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("d.zr");
    (folder, path)
}

fn counting(n: usize, shape: (usize, usize)) -> Array3<f32> {
    Array::from_iter((0..n * shape.0 * shape.1).map(|i| i as f32))
        .into_shape_with_order((n, shape.0, shape.1))
        .unwrap()
}

/// Names and contents of what lies in a folder, meta.zr by its header.
fn contents(path: &Path) -> Vec<(String, Vec<u8>)> {
    let Ok(entries) = std::fs::read_dir(path) else { return Vec::new() };
    let mut found: Vec<_> = entries
        .map(|entry| {
            let path = entry.unwrap().path();
            let mut bytes = Vec::new();
            if path.is_file() {
                std::fs::File::open(&path).unwrap().take(4096).read_to_end(&mut bytes).unwrap();
            }
            (path.file_name().unwrap().to_str().unwrap().to_owned(), bytes)
        })
        .collect();
    found.sort();
    found
}

fn round_trip<T: Element + PartialEq + std::fmt::Debug>(numbers: &[T]) {
    let (_folder, path) = folder();
    let flat = Array1::from_vec(numbers.to_vec());
    let dataset = Dataset::write(&path, &flat, Codec::default()).unwrap();
    assert_eq!((dataset.schema().dtype(), dataset.schema().shape()), (T::DTYPE, &[][..]));
    assert_eq!(dataset.select::<T>(..).unwrap(), flat.clone().into_dyn());
    let last = dataset.get::<T>(-1).unwrap();
    assert_eq!((last.ndim(), last.first()), (0, numbers.last()));
    let bytes: &[u8] = bytemuck::cast_slice(numbers);
    assert_eq!(dataset.select_bytes(..).unwrap(), bytes);
}

#[test]
fn every_element_comes_back() {
    round_trip(&[true, false, true]);
    round_trip(&[i8::MIN, 0, i8::MAX]);
    round_trip(&[i16::MIN, 0, i16::MAX]);
    round_trip(&[i32::MIN, 0, i32::MAX]);
    round_trip(&[i64::MIN, 0, i64::MAX]);
    round_trip(&[0, 1, u8::MAX]);
    round_trip(&[0, 1, u16::MAX]);
    round_trip(&[0, 1, u32::MAX]);
    round_trip(&[0, 1, u64::MAX]);
    round_trip(&[f32::MIN, -0.0, f32::INFINITY]);
    round_trip(&[f64::MIN, -0.0, f64::INFINITY]);
    round_trip(&[Complex::new(1f32, -2.0), Complex::new(0.0, f32::MAX)]);
    round_trip(&[Complex::new(1f64, -2.0), Complex::new(0.0, f64::MAX)]);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    #[test]
    fn any_layout_is_written_as_the_array_that_it_is(
        // Records below and above a piece, which has 1 KiB here; pieces that are not full.
        (n, a, b) in (1usize..60, 1usize..12, 1usize..30),
        (rows, columns, from) in (-3isize..4, -3isize..4, 0usize..5),
        (fortran, swapped) in any::<(bool, bool)>(),
    ) {
        let (_folder, path) = folder();
        let step = |step: isize| if step == 0 { 1 } else { step };
        let shape = (n, a, b).set_f(fortran);
        let mut whole = Array3::<f32>::zeros(shape);
        whole.iter_mut().enumerate().for_each(|(i, x)| *x = i as f32);
        let mut view = whole.slice_mut(s![from.min(n - 1)..; step(rows), .., ..; step(columns)]);
        if swapped {
            view.swap_axes(1, 2);
        }
        let dataset = Dataset::write(&path, &view, Codec::Raw).unwrap();
        prop_assert_eq!(dataset.select::<f32>(..).unwrap(), view.view().into_dyn());
        prop_assert_eq!(dataset.append(&view).unwrap(), view.len_of(Axis(0)) as u64);
        let again = dataset.select::<f32>(-(view.len_of(Axis(0)) as i64)..).unwrap();
        prop_assert_eq!(again, view.view().into_dyn());
    }
}

#[test]
fn a_write_appends_to_what_is_alike_and_keeps_its_codec() {
    let (_folder, path) = folder();
    let array = Array2::<u8>::zeros((10, 1000));
    Dataset::write(&path, &array, Codec::Raw).unwrap();
    let schema = std::fs::read(path.join("schema.json")).unwrap();
    let dataset = Dataset::write(&path, &array, Codec::Flate(12)).unwrap();
    assert_eq!((dataset.len(), dataset.schema().codec()), (20, Codec::Raw));
    assert_eq!(dataset.stats().unwrap().live_bytes, 20_000);
    assert_eq!(std::fs::read(path.join("schema.json")).unwrap(), schema);
    // The level of a new one holds until it is opened again.
    let (_folder, path) = folder();
    let dataset = Dataset::write(&path, &array, Codec::Flate(12)).unwrap();
    assert_eq!(dataset.schema().codec(), Codec::Flate(12));
    drop(dataset);
    assert_eq!(Dataset::open(&path).unwrap().schema().codec(), Codec::default());
}

#[test]
fn a_write_is_durable_and_seen_by_others() {
    let (_folder, path) = folder();
    let dataset = Dataset::write(&path, &array![1, 2], Codec::Raw).unwrap();
    let other = Dataset::open_read_only(&path).unwrap();
    assert_eq!(other.select::<i32>(..).unwrap(), array![1, 2].into_dyn());
    assert_eq!(dataset.append(&array![3]).unwrap(), 2);
    assert_eq!(other.len(), 2, "not synced yet");
    dataset.sync().unwrap();
    assert_eq!(other.get::<i32>(-1).unwrap(), ArrayD::from_elem(IxDyn(&[]), 3));
}

#[test]
fn what_is_refused_creates_nothing() {
    let (_folder, path) = folder();
    let kind = |result: Result<Dataset>| result.unwrap_err().kind();
    let too_large = Array2::<u8>::zeros((1, (1 << 20) + 1));
    assert_eq!(kind(Dataset::write(&path, &too_large, Codec::Raw)), ErrorKind::RecordSize);
    let empty = Array2::<u8>::zeros((3, 0));
    assert_eq!(kind(Dataset::write(&path, &empty, Codec::Raw)), ErrorKind::RecordSize);
    let none = ArrayD::<u8>::zeros(IxDyn(&[]));
    assert_eq!(kind(Dataset::write(&path, &none, Codec::Raw)), ErrorKind::Geometry);
    let many = ndarray::ArrayView1::<u8>::from_shape((1 << 24) + 1, &[0; (1 << 24) + 1]).unwrap();
    assert_eq!(kind(Dataset::write(&path, &many, Codec::Raw)), ErrorKind::Full);
    let of = |shape: &[u64]| Schema::of::<u8>(shape, Codec::Raw).unwrap();
    assert_eq!(kind(Dataset::create(&path, &of(&[(1 << 20) + 1]))), ErrorKind::RecordSize);
    assert_eq!(kind(Dataset::create(&path, &of(&[0, 7]))), ErrorKind::RecordSize);
    assert!(!path.exists());

    // A folder that loaderx has begun.
    std::fs::create_dir(&path).unwrap();
    std::fs::write(path.join("schema.json"), of(&[(1 << 20) + 1]).to_json()).unwrap();
    let before = contents(&path);
    assert_eq!(kind(Dataset::write(&path, &too_large, Codec::Raw)), ErrorKind::RecordSize);
    assert_eq!(kind(Dataset::open(&path)), ErrorKind::RecordSize);
    assert_eq!(kind(Dataset::write(&path, &array![[1u8]], Codec::Raw)), ErrorKind::Geometry);
    assert_eq!(contents(&path), before);
    std::fs::write(path.join("schema.json"), of(&[]).to_json()).unwrap();
    let before = contents(&path);
    assert_eq!(kind(Dataset::write(&path, &many, Codec::Raw)), ErrorKind::Full);
    assert_eq!(contents(&path), before);
}

#[test]
fn what_is_refused_changes_nothing() {
    let (_folder, path) = folder();
    let dataset = Dataset::write(&path, &counting(4, (2, 3)), Codec::Raw).unwrap();
    let before = contents(&path);
    let shape = counting(4, (3, 2));
    let dtype = shape.mapv(f64::from).into_shape_with_order((4, 2, 3)).unwrap();
    let of = |array: Result<Dataset>| array.unwrap_err();
    let e = of(Dataset::write(&path, &dtype, Codec::Raw));
    assert_eq!(e.kind(), ErrorKind::Unsupported);
    assert!(["d.zr", "<f4 [2, 3]", "<f8 [2, 3]"].iter().all(|word| e.to_string().contains(word)), "{e}");
    assert_eq!(of(Dataset::write(&path, &shape, Codec::Raw)).kind(), ErrorKind::Geometry);
    assert_eq!(of(Dataset::write(&path, &array![1f32], Codec::Raw)).kind(), ErrorKind::Geometry);
    assert_eq!(of(Dataset::create(&path, dataset.schema())).kind(), ErrorKind::Exists);
    assert_eq!(dataset.append(&dtype).unwrap_err().kind(), ErrorKind::Unsupported);
    assert_eq!(dataset.append(&shape).unwrap_err().kind(), ErrorKind::Geometry);
    assert_eq!(contents(&path), before);

    // Records of a store of bytes don't become numbers, and one by loaderx gets nothing of ours.
    let (_folder, path) = folder();
    Store::create(&path, Version::V1).unwrap().append(b"abcd", 4, Codec::Raw).unwrap();
    std::fs::remove_dir_all(path.join(".zrfs")).unwrap();
    let before = contents(&path);
    assert_eq!(of(Dataset::write(&path, &array![1f32], Codec::Raw)).kind(), ErrorKind::Exists);
    for opened in [Dataset::open(&path), Dataset::open_read_only(&path)] {
        let e = of(opened);
        assert!(e.kind() == ErrorKind::NotFound && e.to_string().contains("no schema.json"), "{e}");
    }
    assert_eq!(contents(&path), before);
    assert_eq!(of(Dataset::open(path.join("none"))).kind(), ErrorKind::NotFound);
    assert_eq!(of(Dataset::open_read_only(path.join("none"))).kind(), ErrorKind::NotFound);
}

#[test]
fn what_a_power_cut_leaves_is_taken_over() {
    // The store without its schema.
    let (_folder, path) = folder();
    drop(Store::create(&path, Version::V1).unwrap());
    assert_eq!(Dataset::open(&path).unwrap_err().kind(), ErrorKind::NotFound);
    let dataset = Dataset::write(&path, &array![1, 2], Codec::Raw).unwrap();
    assert_eq!(dataset.len(), 2);
    // The schema without its store, by loaderx.
    let (_folder, path) = folder();
    std::fs::create_dir(&path).unwrap();
    std::fs::write(path.join("schema.json"), dataset.schema().to_json()).unwrap();
    assert!(Dataset::open_read_only(&path).is_err());
    assert_eq!(Dataset::open(&path).unwrap().len(), 0);
    assert_eq!(Dataset::write(&path, &array![3], Codec::Raw).unwrap().len(), 1);
}

#[test]
fn folders_are_made_and_an_array_of_no_records_makes_an_empty_dataset() {
    let (folder, _) = folder();
    let path = folder.path().join("a/b/c.zr");
    let dataset = Dataset::write(&path, &Array2::<f32>::zeros((0, 3)), Codec::Raw).unwrap();
    assert!(dataset.is_empty() && dataset.select::<f32>(..).unwrap().shape() == [0, 3]);
    assert_eq!(dataset.select_bytes(..).unwrap(), b"");
    assert_eq!(dataset.get::<f32>(0).unwrap_err().kind(), ErrorKind::OutOfRange);
    assert_eq!(Dataset::open_read_only(&path).unwrap().schema(), dataset.schema());
}

#[test]
fn large_samples_go_into_a_store_of_version_2() {
    let (_folder, path) = folder();
    drop(Store::create(&path, Version::V2).unwrap());
    let large = Array2::from_shape_fn((2, (1 << 20) + 1), |(i, j)| (i + j) as u8);
    let dataset = Dataset::write(&path, &large, Codec::default()).unwrap();
    assert_eq!(dataset.get::<u8>(1).unwrap(), large.index_axis(Axis(0), 1).into_dyn());
    let reversed = large.slice(s![..;-1, ..]);
    assert_eq!(
        Dataset::write(&path, &reversed, Codec::Raw).unwrap().get::<u8>(2).unwrap(),
        dataset.get::<u8>(1).unwrap()
    );
}

/// Gives that many bytes, a few at a time, then fails.
struct Failing(usize);

impl Read for Failing {
    fn read(&mut self, dst: &mut [u8]) -> io::Result<usize> {
        if self.0 == 0 {
            return Err(io::Error::other("the tape has torn"));
        }
        let n = self.0.min(dst.len()).min(7);
        self.0 -= n;
        Ok(n)
    }
}

#[test]
fn a_source_is_appended_whole_or_not_at_all() {
    let (_folder, path) = folder();
    let schema = Schema::of::<u8>(&[100], Codec::default()).unwrap();
    let dataset = Dataset::create(&path, &schema).unwrap();
    // Pieces have ten records here; none, a part of one, one, and more than one of them.
    let mut expected = Vec::new();
    for records in [0, 3, 10, 20, 57] {
        let bytes: Vec<u8> = (0..records * 100).map(|i| (i / 7) as u8).collect();
        assert_eq!(dataset.append_from(&bytes[..]).unwrap(), expected.len() as u64 / 100);
        expected.extend(bytes);
        assert_eq!(dataset.select_bytes(..).unwrap(), expected);
    }
    for len in [1, 99, 999, 1001, 2501] {
        let e = dataset.append_from(&vec![1; len][..]).unwrap_err();
        assert!(e.kind() == ErrorKind::Geometry && e.to_string().contains("inside a record"), "{e}");
    }
    let e = dataset.append_from(Failing(2500)).unwrap_err();
    assert!(e.kind() == ErrorKind::Io && e.to_string().contains("torn"), "{e}");
    assert_eq!(dataset.select_bytes(..).unwrap(), expected);
    // And goes on after that.
    assert_eq!(dataset.append_from(&vec![7; 100][..]).unwrap(), 90);
}

#[test]
fn gathers_fill_the_destination_exactly() {
    let (_folder, path) = folder();
    let dataset = Dataset::write(&path, &array![[1u16, 2], [3, 4], [5, 6]], Codec::Raw).unwrap();
    let mut dst = [0xee; 12];
    dataset.gather_into(&[2, 2, 0], &mut dst).unwrap();
    assert_eq!(dst, [5, 0, 6, 0, 5, 0, 6, 0, 1, 0, 2, 0]);
    let kind =
        |indices: &[u64], len: usize| dataset.gather_into(indices, &mut vec![0; len]).unwrap_err().kind();
    assert_eq!(kind(&[0], 3), ErrorKind::Geometry);
    assert_eq!(kind(&[0], 5), ErrorKind::Geometry);
    assert_eq!(kind(&[], 1), ErrorKind::Geometry);
    assert_eq!(kind(&[3], 4), ErrorKind::OutOfRange);
    dataset.gather_into(&[], &mut []).unwrap();
}

#[test]
fn records_of_another_length_are_damage() {
    let (_folder, path) = folder();
    let dataset = Dataset::write(&path, &array![[1u8, 2, 3], [4, 5, 6]], Codec::Raw).unwrap();
    for wrong in [&b"ab"[..], b"abcd"] {
        let index = dataset.store().append(wrong, wrong.len(), Codec::Raw).unwrap();
        for e in [dataset.get::<u8>(-1).unwrap_err(), dataset.get_bytes(-1).unwrap_err()] {
            assert_eq!(e.kind(), ErrorKind::Damaged);
            assert!(
                ["d.zr", &format!("record {index}"), "schema.json"]
                    .iter()
                    .all(|word| e.to_string().contains(word)),
                "{e}"
            );
        }
    }
    assert_eq!(dataset.get::<u8>(1).unwrap(), array![4, 5, 6].into_dyn());
}

#[test]
fn a_byte_that_is_no_bool_names_the_dataset() {
    let (_folder, path) = folder();
    let dataset = Dataset::create(&path, &Schema::of::<bool>(&[2], Codec::Raw).unwrap()).unwrap();
    dataset.append_from(&[0, 1, 1, 2][..]).unwrap();
    assert_eq!(dataset.get::<bool>(0).unwrap(), array![false, true].into_dyn());
    let e = dataset.get::<bool>(1).unwrap_err();
    assert!(e.kind() == ErrorKind::Damaged && e.to_string().contains("d.zr"), "{e}");
    assert_eq!(dataset.get_bytes(1).unwrap(), [1, 2]);
}

#[test]
fn a_schema_that_no_record_has_is_refused() {
    let (_folder, path) = folder();
    drop(Dataset::write(&path, &array![1, 2], Codec::Raw).unwrap());
    let schema = Schema::of::<i32>(&[1 << 30], Codec::Raw).unwrap();
    std::fs::write(path.join("schema.json"), schema.to_json()).unwrap();
    assert_eq!(Dataset::open(&path).unwrap_err().kind(), ErrorKind::Damaged);
    assert_eq!(Dataset::open_read_only(&path).unwrap_err().kind(), ErrorKind::Damaged);
}

#[test]
fn big_endian_numbers_are_bytes() {
    let (_folder, path) = folder();
    let dataset = Dataset::create(&path, &Schema::new(">i4", &[], Codec::Raw).unwrap()).unwrap();
    dataset.append_from(&[0, 0, 1, 0][..]).unwrap();
    let e = dataset.get::<i32>(0).unwrap_err();
    assert!(e.kind() == ErrorKind::Unsupported && e.to_string().contains("big-endian"), "{e}");
    assert_eq!(dataset.get_bytes(0).unwrap(), 256i32.to_be_bytes());
    assert!(dataset.append(&array![1i32]).is_err());
}

#[test]
fn selections_are_taken_from_the_end_and_deleted_ones_are_gone() {
    let (_folder, path) = folder();
    let numbers = Array1::from_iter(0..10i16);
    let dataset = Dataset::write(&path, &numbers, Codec::Raw).unwrap();
    let backwards = Slice { start: None, stop: None, step: -3 };
    assert_eq!(dataset.select::<i16>(backwards).unwrap(), array![9, 6, 3, 0].into_dyn());
    assert_eq!(dataset.select::<i16>(&[-1, 0, -1]).unwrap(), array![9, 0, 9].into_dyn());
    assert_eq!(dataset.select::<i16>(-3..-1).unwrap(), array![7, 8].into_dyn());
    let mask: Vec<bool> = numbers.iter().map(|i| i % 5 == 0).collect();
    assert_eq!(dataset.select::<i16>(&mask).unwrap(), array![0, 5].into_dyn());
    for e in [
        dataset.select::<i16>(&[-11]).unwrap_err(),
        dataset.delete(&[10]).unwrap_err(),
        dataset.get::<i16>(-11).unwrap_err(),
    ] {
        assert!(e.kind() == ErrorKind::OutOfRange && e.to_string().contains("d.zr"), "{e}");
    }
    assert_eq!(dataset.select::<i16>(&mask[1..]).unwrap_err().kind(), ErrorKind::Geometry);

    let moves = dataset.delete(..2).unwrap();
    assert_eq!(moves, [Move { from: 8, to: 0 }, Move { from: 9, to: 1 }]);
    assert_eq!(dataset.select::<i16>(..).unwrap(), array![8, 9, 2, 3, 4, 5, 6, 7].into_dyn());
    assert_eq!(dataset.stats().unwrap().reclaimable(), 4);
    dataset.compact().unwrap();
    assert_eq!(dataset.stats().unwrap().reclaimable(), 0);
    assert_eq!(dataset.select::<i16>(..).unwrap(), array![8, 9, 2, 3, 4, 5, 6, 7].into_dyn());
}

#[test]
fn two_threads_that_append_lose_nothing() {
    let (_folder, path) = folder();
    let dataset = Dataset::create(&path, &Schema::of::<u32>(&[2], Codec::Raw).unwrap()).unwrap();
    std::thread::scope(|scope| {
        for thread in 0..2u32 {
            let dataset = &dataset;
            scope.spawn(move || {
                for i in 0..50 {
                    let first = dataset.append(&array![[thread, i], [thread, i]]).unwrap();
                    assert_eq!(dataset.get::<u32>(first as i64 + 1).unwrap(), array![thread, i].into_dyn());
                }
            });
        }
    });
    assert_eq!(dataset.len(), 200);
}
