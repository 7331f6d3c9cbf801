//! The loader over long runs, and over runs that are killed: each in a process of its own.

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::cast_possible_truncation,
    reason = "a test that goes wrong should stop, and its numbers are small"
)]

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use ndarray::{Array1, Array2};
use zrfs::sampler::SamplerState;
use zrfs::{Batch, Codec, Dataset, Loader, Mode, SamplerOptions, Store, Version};

const FOLDER: &str = "ZRFS_TEST_LOADER_FOLDER";
const RECORDS: usize = 1000;

/// In the process that [`start`] has started: the folder that it was given.
fn folder_of_child() -> Option<PathBuf> {
    std::env::var_os(FOLDER).map(PathBuf::from)
}

/// Runs the test of that name in a process of its own.
fn start(test: &str, folder: &Path) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args([test, "--exact", "--nocapture"])
        .env(FOLDER, folder)
        .stdout(Stdio::null())
        .spawn()
        .unwrap()
}

/// Data whose first word is the record's index, labels of a thousand times that, and ragged records of that many bytes.
fn make_streams(folder: &Path) {
    let data = Array2::from_shape_fn((RECORDS, 8), |(i, j)| (i + j) as u64);
    Dataset::write(folder.join("data.zr"), &data, Codec::default()).unwrap();
    let labels = Array1::from_iter((0..RECORDS as i64).map(|i| i * 1000));
    Dataset::write(folder.join("label.zr"), &labels, Codec::Raw).unwrap();
    let store = Store::create(folder.join("ragged.zr"), Version::V2).unwrap();
    let lens: Vec<u32> = (0..RECORDS as u32).collect();
    let bytes = vec![7; RECORDS];
    store.append_ragged(&bytes, &vec![0; RECORDS], &lens, Codec::default()).unwrap();
}

fn loader(folder: &Path) -> zrfs::loader::LoaderBuilder {
    let dataset = |name| Dataset::open_read_only(folder.join(name)).unwrap();
    Loader::builder().stream("data", dataset("data.zr")).stream("label", dataset("label.zr"))
}

/// Checks that every stream has the record of every index.
fn check(batch: &Batch) {
    let (data, label) = (batch.view::<u64>("data").unwrap(), batch.view::<i64>("label").unwrap());
    for (i, &index) in batch.indices().iter().enumerate() {
        assert_eq!((data[[i, 0]], label[[i]]), (index, index as i64 * 1000), "step {}", batch.step());
    }
}

/// Memory of this process in KiB: what is its own, not mapped from files.
fn own_memory() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("RssAnon:")).unwrap();
    line.split_ascii_whitespace().nth(1).unwrap().parse().unwrap()
}

#[test]
fn aligned_streams_stay_so_over_100_000_steps_and_take_no_more_memory() {
    let Some(folder) = folder_of_child() else {
        let folder = tempfile::tempdir().unwrap();
        make_streams(folder.path());
        let test = "aligned_streams_stay_so_over_100_000_steps_and_take_no_more_memory";
        assert!(start(test, folder.path()).wait().unwrap().success());
        return;
    };
    let options = SamplerOptions { mode: Mode::Shuffle, batch_size: 16, ..Default::default() };
    let ragged = Store::open_read_only(folder.join("ragged.zr")).unwrap();
    let loader = loader(&folder).stream("ragged", ragged).sampler(options).workers(3).build().unwrap();
    let (mut seen, mut early) = ([0u32; RECORDS], 0);
    for (step, batch) in (0..100_000).zip(loader) {
        let batch = batch.unwrap();
        assert_eq!(batch.step(), step);
        check(&batch);
        let lengths = batch.offsets("ragged").unwrap().windows(2).map(|pair| pair[1] - pair[0]);
        assert!(lengths.eq(batch.indices().iter().copied()));
        batch.indices().iter().for_each(|&index| seen[index as usize] += 1);
        if step == 10_000 {
            early = own_memory();
        }
    }
    // 1600 passes over 1000 records.
    assert!(seen.iter().all(|&times| times == 1600));
    let late = own_memory();
    assert!(late < early + 1024, "{early} KiB after 10,000 steps, {late} KiB after 100,000");
}

#[test]
fn a_run_that_is_killed_again_and_again_is_the_run_that_never_was() {
    let test = "a_run_that_is_killed_again_and_again_is_the_run_that_never_was";
    let options = SamplerOptions { mode: Mode::Iid, seed: 3, batch_size: 32, ..Default::default() };
    if let Some(folder) = folder_of_child() {
        let loader = loader(&folder);
        let mut loader = match fs::read(folder.join("state.json")) {
            Ok(saved) => loader.resume(SamplerState::from_json(&saved).unwrap()),
            Err(_) => loader.sampler(options),
        }
        .build()
        .unwrap();
        let mut log = OpenOptions::new().append(true).create(true).open(folder.join("log")).unwrap();
        loop {
            let batch = loader.next_batch().unwrap();
            check(&batch);
            // In one write, which no kill cuts.
            log.write_all(format!("{} {:?}\n", batch.step(), batch.indices()).as_bytes()).unwrap();
            fs::write(folder.join("new"), loader.state().to_json()).unwrap();
            fs::rename(folder.join("new"), folder.join("state.json")).unwrap();
        }
    }
    let folder = tempfile::tempdir().unwrap();
    make_streams(folder.path());
    let log = || fs::read_to_string(folder.path().join("log")).unwrap_or_default();
    for kill in 1..=10 {
        let mut child = start(test, folder.path());
        let patience = Instant::now() + Duration::from_secs(60);
        while log().lines().count() < kill * 30 + kill % 7 {
            assert!(Instant::now() < patience && child.try_wait().unwrap().is_none(), "the run does not run");
            std::thread::sleep(Duration::from_millis(1));
        }
        child.kill().unwrap();
        child.wait().unwrap();
    }
    let mut expected = 0;
    let whole = loader(folder.path()).sampler(options).build().unwrap();
    let whole: Vec<String> = whole
        .take(log().lines().count())
        .map(|batch| batch.map(|batch| format!("{} {:?}", batch.step(), batch.indices())).unwrap())
        .collect();
    for line in log().lines() {
        // A step that was logged and not saved comes once more, none is left out.
        let step: usize = line.split(' ').next().unwrap().parse().unwrap();
        assert!(step == expected || step + 1 == expected, "step {step} in the place of {expected}");
        assert_eq!(line, whole[step]);
        expected = step + 1;
    }
    // So many lines at least, of which each kill may have doubled one.
    assert!(expected >= 303 - 10, "{expected}");
}
