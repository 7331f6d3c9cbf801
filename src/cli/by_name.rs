//! `--names`: records by the paths of the files that they came from.

use std::fmt::Write;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::ops::Range;
use std::path::Path;

use zrfs::store::NodeKind;
use zrfs::{Error, ErrorKind, Result, Store};

use super::names::Quoted;

/// Longest line of a list, in bytes: far longer than any path that can be opened.
const MAX_LINE: u64 = 1 << 20;
/// How many of the names that are no records a message tells.
const TOLD: usize = 5;

/// The records at the paths that the file `list` (`-`: standard input) holds, in its order, as ranges.
///
/// # Errors
/// One that counts the names that are no records and tells the first of them, where there is any.
pub(super) fn resolve(store: &Store, list: &Path, null: bool) -> Result<Vec<Range<u64>>> {
    let place = store.path().display();
    let Some(names) = store.names()? else {
        let text = format!("{place} has no names: its records go by index");
        return Err(Error::new(ErrorKind::NotFound, text).with_help("name them as in 7 12 100-199"));
    };
    let end = if null { 0 } else { b'\n' };
    let find = |path: &[u8]| Ok(names.resolve(path)?.map(|node| node.kind));
    let found = if list == Path::new("-") {
        read(&mut io::stdin().lock(), "standard input", end, find)?
    } else {
        let name = list.display().to_string();
        let file = File::open(list).map_err(|e| Error::io(format!("can't open {name}"), e))?;
        read(&mut BufReader::with_capacity(1 << 16, file), &name, end, find)?
    };
    match found.told {
        None => Ok(found.ranges),
        Some(told) => {
            let (missing, all) = (found.missing, found.all);
            let dots = if missing > TOLD as u64 { ", …" } else { "" };
            let text = match (missing, all) {
                (1, 1) => format!("1 name is no record of {place}: {told}"),
                (1, _) => format!("1 of {all} names is no record of {place}: {told}"),
                _ => format!("{missing} of {all} names are no records of {place}: {told}{dots}"),
            };
            Err(Error::new(ErrorKind::NotFound, text)
                .with_help("nothing was done; `zrfs ls` shows the names there are"))
        }
    }
}

/// What a list names.
#[derive(Default)]
struct Found {
    ranges: Vec<Range<u64>>,
    /// How many names the list has.
    all: u64,
    /// How many of them are no records.
    missing: u64,
    /// The first of those, as a message tells them.
    told: Option<String>,
}

/// Reads a list of paths, each with `end` behind it; the last one may go without.
fn read(
    list: &mut dyn BufRead,
    place: &str,
    end: u8,
    find: impl Fn(&[u8]) -> Result<Option<NodeKind>>,
) -> Result<Found> {
    let mut found = Found::default();
    let mut empty = 0;
    let mut line = Vec::new();
    loop {
        line.clear();
        let n = list.take(MAX_LINE + 1).read_until(end, &mut line);
        if n.map_err(|e| Error::io(format!("can't read names from {place}"), e))? == 0 {
            return Ok(found);
        }
        if line.last() == Some(&end) {
            line.pop();
        }
        if line.len() as u64 > MAX_LINE {
            let text = format!("name {} in {place} is longer than {MAX_LINE} bytes", found.all + empty + 1);
            let help = "it takes paths, one a line, or with -0 with a NUL byte behind each";
            return Err(Error::new(ErrorKind::Unsupported, text).with_help(help));
        }
        if line.is_empty() {
            // At the end of a list they mean nothing, and whether this is the end the next line says.
            empty += 1;
            continue;
        }
        for _ in 0..std::mem::take(&mut empty) {
            found.put(b"", None);
        }
        let path = line.strip_prefix(b"./").unwrap_or(&line);
        found.put(path, find(path)?);
    }
}

impl Found {
    fn put(&mut self, path: &[u8], kind: Option<NodeKind>) {
        self.all += 1;
        let why = match kind {
            Some(NodeKind::Record { index, .. }) => {
                match self.ranges.last_mut() {
                    Some(range) if range.end == index => range.end += 1,
                    _ => self.ranges.push(index..index + 1),
                }
                return;
            }
            _ if path.is_empty() => "an empty line",
            Some(NodeKind::Folder { .. }) => "a folder",
            Some(NodeKind::Link { .. }) => "a link",
            None => "not there",
        };
        self.missing += 1;
        if self.missing <= TOLD as u64 {
            let told = self.told.get_or_insert_default();
            let comma = if told.is_empty() { "" } else { ", " };
            // Writing to a string does not fail.
            let _ = write!(told, "{comma}{} ({why})", Quoted(path));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Records by their names: `r7` is record 7; `d` is a folder, `l` a link.
    fn listed(list: &[u8], end: u8) -> Found {
        let find = |path: &[u8]| {
            let text = String::from_utf8_lossy(path);
            Ok(match text.strip_prefix('r').and_then(|n| n.trim_end_matches('\r').parse().ok()) {
                Some(index) if !text.ends_with('\r') => Some(NodeKind::Record { index, executable: false }),
                _ if text == "d" => Some(NodeKind::Folder { folders: 0 }),
                _ if text == "l" => Some(NodeKind::Link { target: b"x".to_vec() }),
                _ => None,
            })
        };
        read(&mut &list[..], "the list", end, find).unwrap()
    }

    #[test]
    fn order_stays_and_neighbours_join() {
        for list in [&b"r7\nr3\nr4\nr7\n"[..], b"r7\nr3\nr4\nr7", b"./r7\nr3\n./r4\nr7\n\n\n"] {
            let found = listed(list, b'\n');
            assert_eq!(found.ranges, [7..8, 3..5, 7..8]);
            assert_eq!((found.all, found.told), (4, None));
        }
        assert_eq!(listed(b"r1\0r2\0", 0).ranges, std::slice::from_ref(&(1..3)));
        assert_eq!(listed(b"", b'\n').all, 0);
        assert_eq!(listed(b"\n", b'\n').all, 0);
    }

    #[test]
    fn what_is_no_record_is_counted_and_told() {
        let told = |list: &[u8]| listed(list, b'\n').told.unwrap();
        assert_eq!(told(b"r1\nd\nl\nx\\y\n"), r#""d" (a folder), "l" (a link), "x\\y" (not there)"#);
        assert_eq!(told(b"r1\n\nr2\n"), r#""" (an empty line)"#);
        // Bytes as they are: no CRLF, one `./` alone, no blanks cut off.
        assert_eq!(told(b"r1\r\n"), r#""r1\r" (not there)"#);
        assert_eq!(told(b"././r1\n"), r#""./r1" (not there)"#);
        assert_eq!(told(b" r1\n"), r#"" r1" (not there)"#);
        let many = listed(&b"x\n".repeat(1000), b'\n');
        assert_eq!((many.all, many.missing), (1000, 1000));
        assert_eq!(many.told.unwrap().matches("not there").count(), TOLD);
    }

    #[test]
    fn a_line_without_end_does_not_fill_memory() {
        let list = vec![b'x'; 3 << 20];
        let e = read(&mut &list[..], "the list", b'\n', |_| Ok(None)).err().unwrap();
        assert_eq!(e.kind(), ErrorKind::Unsupported);
    }
}
