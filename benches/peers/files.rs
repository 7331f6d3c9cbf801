//! Reading files through a mount or beside it, by several client processes.

use std::env;
use std::fs;
use std::io::{self, BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Instant;

use crate::common::{checksum, permutation, read_file};
use crate::{Outcome, Words};

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
pub(crate) fn read_files(words: &mut Words<'_>) -> Outcome<Vec<u64>> {
    let (dir, list) = (words.text()?, words.text()?);
    let (order, seed) = (words.text()?, words.text()?);
    let clients: usize = words.number()?;
    let mode = words.text()?;
    let mut children = Clients(Vec::new());
    let mut answers = Vec::new();
    for client in 0..clients {
        let mut child = Command::new(env::current_exe()?)
            .args(["client", dir, list, order, seed])
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
pub(crate) fn client(arguments: &[String]) -> Outcome<()> {
    let mut words = Words(arguments.iter().map(String::as_str).collect());
    let (dir, list) = (Path::new(words.text()?), words.text()?);
    let (order, seed) = (words.text()?, words.number()?);
    let (client, clients): (usize, usize) = (words.number()?, words.number()?);
    let check = words.text()? == "check";
    let list = fs::read_to_string(list).map_err(|e| format!("{list}: {e}"))?;
    let names: Vec<&str> = list.lines().collect();
    let len = names.len();
    let order: Vec<usize> = match order {
        "random" => permutation(seed, len),
        "sequential" => (0..len).collect(),
        other => return Err(format!("unknown order {other}").into()),
    };
    // Each client has a part of the order for itself.
    let part = client * len / clients..(client + 1) * len / clients;
    let files: Vec<(u64, PathBuf)> =
        order[part].iter().map(|&index| (index as u64, dir.join(names[index]))).collect();
    let mut buffer = vec![0u8; 8 << 20];
    println!("ready");
    if io::stdin().lock().read_line(&mut String::new())? == 0 {
        return Err("nobody waits for it any more".into());
    }
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
