//! Data and labels, aligned, for as many steps as it takes: `cargo run --release --example endless_loader`.

use ndarray::{Array1, Array2};
use zrfs::{Codec, Dataset, Loader, Mode, SamplerOptions};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let folder = tempfile::tempdir()?;
    let (data, label) = (folder.path().join("data.zr"), folder.path().join("label.zr"));
    let images = Array2::from_shape_vec((10_000, 64), (0..250u8).cycle().take(640_000).collect())?;
    Dataset::write(&data, &images, Codec::default())?;
    Dataset::write(&label, &Array1::from_iter((0..10_000).map(|i| i64::from(i % 10))), Codec::Raw)?;

    let loader = Loader::builder()
        .stream("data", Dataset::open_read_only(&data)?)
        .stream("label", Dataset::open_read_only(&label)?)
        .sampler(SamplerOptions { mode: Mode::Shuffle, seed: 7, batch_size: 128, ..Default::default() })
        // Done by the workers. What it returns is what comes out; without it, that is the batch.
        .transform(|batch| {
            let scaled = batch.view::<u8>("data")?.mapv(|byte| f32::from(byte) / 255.0);
            let labels = batch.view::<i64>("label")?.to_owned();
            Ok((batch.step(), scaled, labels))
        })
        .build()?;

    // It has no end and no epochs: the training says when it has seen enough.
    for batch in loader.take(200) {
        let (step, data, labels) = batch?;
        assert_eq!((data.shape(), labels.shape()), (&[128, 64][..], &[128][..]));
        if step % 50 == 0 {
            println!("step {step}: mean {:.3}, {} labels", data.mean().unwrap_or_default(), labels.len());
        }
    }
    Ok(())
}
