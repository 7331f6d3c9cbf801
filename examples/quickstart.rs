//! A dataset from the first array to the last byte given back: `cargo run --release --example quickstart`.

use std::ops::ControlFlow;

use ndarray::{Array1, Array3, s};
use zrfs::{Codec, Dataset};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("train.zr");

    // One record for each index of the first axis: 1000 images of 28 x 28.
    let images = Array3::from_shape_fn((1000, 28, 28), |(i, y, x)| (i + y * x) as f32);
    let dataset = Dataset::write(&path, &images, Codec::default())?;
    println!(
        "{} records of {:?}, dtype {}",
        dataset.len(),
        dataset.schema().shape(),
        dataset.schema().dtype()
    );

    // Any of them, as NumPy would take them: one, a slice, a list.
    assert_eq!(dataset.get::<f32>(-1)?, images.slice(s![999, .., ..]).into_dyn());
    assert_eq!(dataset.select::<f32>(10..20)?, images.slice(s![10..20, .., ..]).into_dyn());
    assert_eq!(dataset.select::<f32>(&[7, -1, 7])?.shape(), [3, 28, 28]);

    // Append more. It is on disk, and other processes see it, after the sync.
    dataset.append(&images.slice(s![..10, .., ..]))?;
    dataset.sync()?;

    // Delete: the last records move into the holes, so the indices stay 0..len.
    for moved in dataset.delete(&[0, 500])? {
        println!("record {} is now {}", moved.from, moved.to);
    }
    dataset.store().compact(|_| ControlFlow::Continue(()))?;
    let stats = dataset.stats()?;
    println!("{} records, {} bytes stored as {}", stats.records, stats.logical_bytes, stats.live_bytes);

    // Scalars are records, too: a set of labels.
    let labels = Dataset::write(folder.path().join("label.zr"), &Array1::from_iter(0..1000i64), Codec::Raw)?;
    assert_eq!(labels.select::<i64>(42..44)?.as_slice(), Some(&[42, 43][..]));
    Ok(())
}
