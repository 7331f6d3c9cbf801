//! A run that may be killed at any moment and goes on where it was: `cargo run --release --example resume -- FOLDER`.
//! Kill it, start it again with the same folder: its steps are those of a run that was never killed.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use ndarray::Array1;
use zrfs::{Codec, Dataset, Loader, Mode, SamplerOptions, SamplerState};

const STEPS: u64 = 2000;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let folder = PathBuf::from(std::env::args_os().nth(1).ok_or("say in which folder to work")?);
    fs::create_dir_all(&folder)?;
    let (store, checkpoint) = (folder.join("train.zr"), folder.join("checkpoint.json"));
    // Only where there is none: one that can't be read is no reason to begin again.
    let saved = match fs::read(&checkpoint) {
        Err(e) if e.kind() == ErrorKind::NotFound => None,
        saved => Some(saved.map_err(|e| format!("{}: {e}", checkpoint.display()))?),
    };
    if saved.is_none() {
        // Killed in here it begins anew: a store without a checkpoint is not known to be whole.
        let _ = fs::remove_dir_all(&store);
        Dataset::write(&store, &Array1::from_iter(0..100_000i64), Codec::default())?;
    }

    let loader = Loader::builder().stream("data", Dataset::open_read_only(&store)?);
    let mut loader = match saved {
        Some(saved) => {
            let state = SamplerState::from_json(&saved);
            loader.resume(state.map_err(|e| format!("{}: {e}", checkpoint.display()))?)
        }
        None => loader.sampler(SamplerOptions { mode: Mode::Shuffle, ..Default::default() }),
    }
    .build()?;
    println!("from step {}", loader.state().step);

    while loader.state().step < STEPS {
        let batch = loader.next_batch()?;
        let sum: i64 = batch.view::<i64>("data")?.sum();
        println!("{} {sum}", batch.step());
        // A training saves its weights beside it, in the same moment.
        save(&checkpoint, &loader.state().to_json())?;
    }
    Ok(())
}

/// Old or new, never half: written beside, then put in its place.
fn save(path: &Path, text: &str) -> std::io::Result<()> {
    let new = path.with_extension("new");
    fs::write(&new, text)?;
    fs::rename(new, path)
}
