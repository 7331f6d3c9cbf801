//! zrfs beside its peers: the side of zrfs, and the start of the script that measures all sides.
//!
//! `cargo bench --bench peers` runs `main.py`. The script starts this program again with the word
//! `serve` and sends it commands, and two Python programs that know the same ones (`serve.py`): loaderx, and
//! loaderx's Python layer on top of libzrfs.so. So all are timed in turn in one run, each inside its own
//! process.
//!
//! A command is one line on standard input, its words separated by tabs; the answer is one line, `ok` and
//! numbers or `error` and a message. Times are nanoseconds, a batch of indices or of a loader has 256 records.
//!
//! | command | answer |
//! |---|---|
//! | `open STORE` | number of records |
//! | `gather ITEM_LEN BATCH ROUNDS SEED MODE` | time of ROUNDS gathers, checksum of the last batch |
//! | `check ITEM_LEN BATCH ROUNDS SEED` | checksum of each of these batches |
//! | `whole ITEM_LEN BATCH` | checksum of each batch of all records in their order |
//! | `close` | nothing |
//! | `load FILE OFFSET LEN` | nothing; the bytes are kept as the source of `append` |
//! | `create STORE` | nothing (zrfs only) |
//! | `append STORE CODEC ITEM_LEN STEP` | time of the appends, STEP records each; time of the sync after |
//! | `write STORE FILE CODEC` | nothing; `Dataset.write` of a .npy (Python only) |
//! | `stream DATA LABEL WORKERS PREFETCH SEED` | time of starting a loader, iid; zrfs takes 0 for its defaults |
//! | `batches BEFORE STEPS` | time of STEPS batches of the loader, after BEFORE others |
//! | `batchsums STEPS` | of each of the next STEPS batches: checksum of data, checksum of labels |
//! | `indices MODE LENGTH SEED STEPS` | the first STEPS batches of indices |
//! | `draw MODE LENGTH SEED STEPS HOW` | time of STEPS batches after the first, checksum of the last |
//! | `seek MODE LENGTH SEED STEP` | twice: time, checksum of the batch there (zrfs only) |
//! | `readfiles DIR LIST ORDER SEED CLIENTS MODE` | time, files, bytes, checksum (zrfs only, and so are the rest) |
//! | `list DIR WHAT` | time of listing all that is below, names, bytes of the files |
//! | `lookup DIR EXT LEN SEED COUNT` | time of COUNT stats of random names, bytes of these files |
//! | `fill STORE FOLDERS EACH ITEM_LEN` | number of records: EACH in each folder, or nameless where FOLDERS is 0 |
//! | `firstwords STORE ITEM_LEN` | number of records, sum of their first words |
//!
//! LABEL may be empty in Python: a loader of data alone. CODEC is `raw` or `flate`. MODE of indices is 0 sequential,
//! 1 iid, 2 shuffle; HOW is `next` or, in Python only, `cnext`: the C function by itself. LIST is a file with the path of
//! one file of DIR a line. ORDER is `random` or `sequential`, as the list has them. MODE of files is `warm`, `cold` (drops
//! the caches first) or `check`; the checksum is 0 without `check`, as adding up takes time. MODE of a gather is `warm`,
//! which takes the last batch once before the time begins, or `cold`, which does not. WHAT is `names` or `attributes`: with
//! a stat of each.

#![allow(
    clippy::cast_possible_truncation,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "a benchmark that goes wrong should stop, and its numbers are small"
)]

#[path = "../common/mod.rs"]
mod common;
mod files;
mod making;
mod names;
mod records;
mod streams;

use std::collections::VecDeque;
use std::env;
use std::error::Error;
use std::fs;
use std::io::{self, BufRead, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::str::FromStr;

use records::Records;
use streams::Streams;

type Outcome<T> = Result<T, Box<dyn Error>>;

fn main() -> ExitCode {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let outcome = match arguments.first().map(String::as_str) {
        Some("serve") => serve(),
        Some("client") => files::client(&arguments[1..]),
        // Cargo adds `--bench` when it benchmarks. Without it this is a test run: nothing to do.
        _ if !arguments.iter().any(|a| a == "--bench") => Ok(()),
        _ => run_script(&arguments.into_iter().filter(|a| a != "--bench").collect::<Vec<_>>()),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("peers: {e}");
            ExitCode::FAILURE
        }
    }
}

fn run_script(arguments: &[String]) -> Outcome<()> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let python = env::var_os("LOADERX_PYTHON")
        .map_or_else(|| root.join("target/peers-venv/bin/python"), PathBuf::from);
    let side = env::current_exe()?;
    let library = library(root, &side)?;
    // In the place of this process: a signal to end it then reaches the script, which has mounts to undo.
    let error = Command::new(&python)
        // Leaves no compiled scripts in the source.
        .arg("-B")
        .arg(root.join("benches/peers/main.py"))
        .arg("--side")
        .arg(side)
        .arg("--library")
        .arg(library)
        .args(["--zrfs", env!("CARGO_BIN_EXE_zrfs"), "--dir", env!("CARGO_TARGET_TMPDIR")])
        .arg("--pictures")
        .arg(root.join("target/peers-pictures"))
        .args(arguments)
        .exec();
    let python = python.display();
    Err(format!("{python}: {error}; set LOADERX_PYTHON to a Python with numpy and loaderx 0.5.0").into())
}

/// libzrfs.so: Cargo makes it with the library that this program is linked with, and puts it beside the program.
/// An older one than its source is refused, by the list of its source files that lies there, too.
fn library(root: &Path, side: &Path) -> Outcome<PathBuf> {
    let library = side.with_file_name("libzrfs.so");
    let list = side.with_file_name("zrfs.d");
    let wrong = |what: String| -> Box<dyn Error> {
        format!("{what}; run it by `cargo bench --bench peers`, which builds it").into()
    };
    let changed = |path: &Path| fs::metadata(path).and_then(|found| found.modified());
    let missing = |path: &Path, e: &io::Error| wrong(format!("{}: {e}", path.display()));
    let built = changed(&library).map_err(|e| missing(&library, &e))?;
    let text = fs::read_to_string(&list).map_err(|e| missing(&list, &e))?;
    let sources = text.lines().find_map(|line| {
        let (made, from) = line.split_once(": ")?;
        (Path::new(made).file_name() == library.file_name()).then_some(from)
    });
    let sources = sources.ok_or_else(|| wrong(format!("{} does not know libzrfs.so", list.display())))?;
    for source in sources.split_whitespace() {
        let source = root.join(source);
        if changed(&source).map_err(|e| missing(&source, &e))? > built {
            return Err(wrong(format!("{} is older than {}", library.display(), source.display())));
        }
    }
    Ok(library)
}

/// The words of one command.
struct Words<'a>(VecDeque<&'a str>);

impl<'a> Words<'a> {
    fn text(&mut self) -> Outcome<&'a str> {
        self.0.pop_front().ok_or_else(|| "a word is missing".into())
    }

    fn number<T: FromStr<Err: Error + 'static>>(&mut self) -> Outcome<T> {
        Ok(self.text()?.parse()?)
    }
}

/// What one command leaves for the next.
#[derive(Default)]
struct Side {
    records: Records,
    streams: Streams,
}

fn serve() -> Outcome<()> {
    let mut side = Side::default();
    for line in io::stdin().lock().lines() {
        let line = line?;
        let answer = match side.answer(&mut Words(line.split('\t').collect())) {
            Ok(numbers) => {
                let numbers: Vec<String> = numbers.iter().map(u64::to_string).collect();
                format!("ok\t{}", numbers.join("\t"))
            }
            Err(e) => format!("error\t{}", e.to_string().replace('\n', " ")),
        };
        let mut out = io::stdout().lock();
        writeln!(out, "{answer}")?;
        out.flush()?;
    }
    Ok(())
}

impl Side {
    fn answer(&mut self, words: &mut Words<'_>) -> Outcome<Vec<u64>> {
        match words.text()? {
            "open" => self.records.open(words),
            "gather" => self.records.gather(words),
            "check" => self.records.check(words),
            "whole" => self.records.whole(words),
            "close" => self.records.close(),
            "load" => self.records.load(words),
            "create" => records::create(words),
            "append" => self.records.append(words),
            "stream" => self.streams.stream(words),
            "batches" => self.streams.batches(words),
            "batchsums" => self.streams.batch_sums(words),
            "indices" => streams::indices(words),
            "draw" => streams::draw(words),
            "seek" => streams::seek(words),
            "readfiles" => files::read_files(words),
            "list" => names::list(words),
            "lookup" => names::look_up(words),
            "fill" => making::fill(words),
            "firstwords" => making::first_words(words),
            other => Err(format!("unknown command {other}").into()),
        }
    }
}
