//! zrfs beside loaderx: the side of zrfs, and the start of the script that measures both.
//!
//! `cargo bench --bench beside_loaderx` runs `beside_loaderx.py`. The script starts this program again with
//! the word `serve` and sends it commands, so that both libraries are timed in turn in one run, each inside
//! its own process.
//!
//! A command is one line on standard input, its words separated by tabs; the answer is one line, `ok` and
//! numbers or `error` and a message. Times are nanoseconds.
//!
//! | command | answer |
//! |---|---|
//! | `open STORE` | number of records |
//! | `gather ITEM_LEN BATCH ROUNDS SEED` | time of ROUNDS gathers, checksum of the last batch |
//! | `check ITEM_LEN BATCH ROUNDS SEED` | checksum of each batch, not timed |
//! | `close` | nothing |
//! | `load FILE OFFSET` | bytes kept as the source of `append` |
//! | `append STORE CODEC ITEM_LEN STEP` | time of the appends, STEP records each; time of the sync after |
//! | `readfiles DIR EXT LEN SEED CLIENTS MODE` | time, files, bytes, checksum |
//!
//! CODEC is `raw` or `flate`. MODE is `warm`, `cold` (drops the caches first) or `check`; the checksum is 0
//! without `check`, as adding up takes time.

#![allow(
    clippy::cast_possible_truncation,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "a benchmark that goes wrong should stop, and its numbers are small"
)]

mod common;

use std::collections::VecDeque;
use std::env;
use std::error::Error;
use std::fs;
use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::str::FromStr;
use std::time::Instant;

use common::{batches, checksum, permutation, read_file};
use zrfs::{Codec, Store, Version};

type Outcome<T> = Result<T, Box<dyn Error>>;

fn main() -> ExitCode {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let outcome = match arguments.first().map(String::as_str) {
        Some("serve") => serve(),
        Some("client") => client(&arguments[1..]),
        // Cargo adds `--bench` when it benchmarks. Without it this is a test run: nothing to do.
        _ if !arguments.iter().any(|a| a == "--bench") => Ok(()),
        _ => run_script(&arguments.into_iter().filter(|a| a != "--bench").collect::<Vec<_>>()),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("beside_loaderx: {e}");
            ExitCode::FAILURE
        }
    }
}

fn run_script(arguments: &[String]) -> Outcome<()> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let python = env::var_os("LOADERX_PYTHON")
        .map_or_else(|| root.join("target/peers-venv/bin/python"), PathBuf::from);
    // In the place of this process: a signal to end it then reaches the script, which has mounts to undo.
    let error = Command::new(&python)
        .arg(root.join("benches/beside_loaderx.py"))
        .arg("--side")
        .arg(env::current_exe()?)
        .args(["--zrfs", env!("CARGO_BIN_EXE_zrfs"), "--dir", env!("CARGO_TARGET_TMPDIR")])
        .args(arguments)
        .exec();
    let python = python.display();
    Err(format!("{python}: {error}; set LOADERX_PYTHON to a Python with numpy and loaderx 0.5.0").into())
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
    store: Option<Store>,
    source: Vec<u8>,
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
            "open" => {
                let store = Store::open_read_only(words.text()?)?;
                let len = store.len();
                self.store = Some(store);
                Ok(vec![len])
            }
            "close" => {
                self.store = None;
                Ok(vec![])
            }
            "gather" => self.gather(words, true),
            "check" => self.gather(words, false),
            "load" => {
                let file = fs::read(words.text()?)?;
                let offset: usize = words.number()?;
                self.source = file.get(offset..).ok_or("the offset is behind the end")?.to_vec();
                Ok(vec![self.source.len() as u64])
            }
            "append" => self.append(words),
            "readfiles" => read_files(words),
            other => Err(format!("unknown command {other}").into()),
        }
    }

    fn gather(&self, words: &mut Words<'_>, timed: bool) -> Outcome<Vec<u64>> {
        let store = self.store.as_ref().ok_or("no store is open")?;
        let (item_len, batch, rounds): (usize, usize, usize) =
            (words.number()?, words.number()?, words.number()?);
        let batches = batches(words.number()?, store.len(), batch, rounds);
        let mut dst = vec![0u8; item_len * batch];
        if !timed {
            let each = |indices: &Vec<u64>| {
                store.gather(indices, &mut dst, item_len)?;
                Ok(checksum(&dst))
            };
            return batches.iter().map(each).collect();
        }
        // Wakes the threads and maps the destination; both sides do it.
        store.gather(batches.last().ok_or("no rounds")?, &mut dst, item_len)?;
        let clock = Instant::now();
        for indices in &batches {
            store.gather(indices, &mut dst, item_len)?;
        }
        let time = clock.elapsed();
        Ok(vec![time.as_nanos() as u64, checksum(&dst)])
    }

    fn append(&self, words: &mut Words<'_>) -> Outcome<Vec<u64>> {
        let path = words.text()?;
        let codec = match words.text()? {
            "raw" => Codec::Raw,
            "flate" => Codec::default(),
            other => return Err(format!("unknown codec {other}").into()),
        };
        let (item_len, step): (usize, usize) = (words.number()?, words.number()?);
        let store = Store::create(path, Version::V1)?;
        let clock = Instant::now();
        for block in self.source.chunks(item_len * step) {
            store.append(block, item_len, codec)?;
        }
        let appended = clock.elapsed();
        let clock = Instant::now();
        store.sync()?;
        let synced = clock.elapsed();
        Ok(vec![appended.as_nanos() as u64, synced.as_nanos() as u64])
    }
}

/// Client processes that wait for the start; killed if they are dropped before their end.
struct Clients(Vec<Child>);

impl Drop for Clients {
    fn drop(&mut self) {
        for child in &mut self.0 {
            // Fails where the client has ended, which is the rule.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

fn read_line(child: &mut BufReader<impl io::Read>) -> Outcome<String> {
    let mut line = String::new();
    child.read_line(&mut line)?;
    match line.trim_end() {
        "" => Err("a client ended early".into()),
        line => Ok(line.to_owned()),
    }
}

/// The time goes from the start signal to the last client's end.
fn read_files(words: &mut Words<'_>) -> Outcome<Vec<u64>> {
    let (dir, ext, len, seed) = (words.text()?, words.text()?, words.text()?, words.text()?);
    let clients: usize = words.number()?;
    let mode = words.text()?;
    let mut children = Clients(Vec::new());
    let mut answers = Vec::new();
    for client in 0..clients {
        let mut child = Command::new(env::current_exe()?)
            .args(["client", dir, ext, len, seed])
            .args([client.to_string(), clients.to_string()])
            .arg(mode)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        answers.push(BufReader::new(child.stdout.take().ok_or("no pipe")?));
        children.0.push(child);
    }
    for answer in &mut answers {
        read_line(answer)?;
    }
    if mode == "cold" {
        // Dropped when the clients are ready, so that their own start is not what is read from the disk.
        fs::write("/proc/sys/vm/drop_caches", "3")?;
    }
    let clock = Instant::now();
    for child in &mut children.0 {
        child.stdin.take().ok_or("no pipe")?.write_all(b"go\n")?;
    }
    let lines = answers.iter_mut().map(read_line).collect::<Outcome<Vec<String>>>()?;
    let time = clock.elapsed();
    let mut totals = [0u64; 3];
    for line in lines {
        let mut words = Words(line.split('\t').collect());
        for total in &mut totals {
            *total = total.wrapping_add(words.number::<u64>()?);
        }
    }
    Ok(vec![time.as_nanos() as u64, totals[0], totals[1], totals[2]])
}

/// One client process: says `ready`, waits for a line, reads its share of the files, then says how many files
/// and bytes, and their checksum.
fn client(arguments: &[String]) -> Outcome<()> {
    let mut words = Words(arguments.iter().map(String::as_str).collect());
    let (dir, ext) = (Path::new(words.text()?), words.text()?);
    let (len, seed): (usize, u64) = (words.number()?, words.number()?);
    let (client, clients): (usize, usize) = (words.number()?, words.number()?);
    let check = words.text()? == "check";
    let files: Vec<(u64, PathBuf)> = permutation(seed, len)
        .into_iter()
        .skip(client)
        .step_by(clients)
        .map(|index| (index as u64, dir.join(format!("{index:08}.{ext}"))))
        .collect();
    let mut buffer = vec![0u8; 2 << 20];
    println!("ready");
    io::stdin().lock().read_line(&mut String::new())?;
    let (mut bytes, mut sum) = (0u64, 0u64);
    for (index, path) in &files {
        let size = read_file(path, &mut buffer).map_err(|e| format!("{}: {e}", path.display()))?;
        bytes += size as u64;
        if check {
            // The factor ties the bytes to their index, and lets clients add up in any order.
            sum = sum.wrapping_add(checksum(&buffer[..size]).wrapping_mul(2 * index + 1));
        }
    }
    println!("{}\t{bytes}\t{sum}", files.len());
    Ok(())
}
