//! The list of an open `delete`: one write that ends a line, or the lines between `begin` and `end` over many writes.

use crate::error::{Error, ErrorKind, Result};

/// Longest list, in bytes. Every record of a full store fits.
const MAX_LIST: usize = 256 << 20;
const BEGIN: &[u8] = b"begin\n";
/// Programs that buffer what they write do it by so many bytes, or a multiple. Where such a piece happens to end a line, it
/// must not be taken for a list.
const BUFFER: usize = 4096;
/// What a refusal advises.
const FRAMES: &str = "put a list that may take several writes between the lines begin and end";

/// What was written to one opening of `delete`.
#[derive(Debug)]
pub(in crate::view) struct DeleteList {
    /// The epoch of the store when it was opened: its indices are those of that.
    epoch: u64,
    state: State,
    /// Who wrote last, a thread's number as the kernel tells it.
    writer: u32,
}

#[derive(Debug)]
enum State {
    /// Nothing has come yet, or a part of the line `begin`.
    Empty(Vec<u8>),
    /// What came behind the line `begin`.
    Framed(Vec<u8>),
    /// A whole list was taken.
    Complete,
    /// A write was refused, and why. So is every one behind it: programs try again what they could not write.
    Spoiled(ErrorKind, String),
}

impl DeleteList {
    pub(in crate::view) fn new(epoch: u64) -> DeleteList {
        DeleteList { epoch, state: State::Empty(Vec::new()), writer: 0 }
    }

    /// The epoch whose indices the list has.
    pub(super) fn epoch(&self) -> u64 {
        self.epoch
    }

    /// Why what it holds is dropped, if it is closed now.
    pub(in crate::view) fn dropped(&self) -> Option<Error> {
        match &self.state {
            State::Framed(_) => {}
            State::Empty(text) if !text.is_empty() => {}
            _ => return None,
        }
        let text = "a list was closed without its line `end`, and nothing of it was applied";
        Some(Error::new(ErrorKind::Unsupported, text))
    }

    /// After a refusal: takes nothing more.
    pub(super) fn spoil(&mut self, e: &Error) {
        self.state = State::Spoiled(e.kind(), e.to_string());
    }

    /// Takes what `writer` wrote while the store is in epoch `now`; gives the list when it is whole.
    ///
    /// # Errors
    /// See [`View::write`](crate::view::View::write).
    pub(super) fn take(&mut self, bytes: &[u8], now: u64, writer: u32) -> Result<Option<Vec<u8>>> {
        let before = std::mem::replace(&mut self.writer, writer);
        let taken = self.advance(bytes, now, before);
        if let Err(e) = &taken {
            self.spoil(e);
        }
        taken
    }

    fn advance(&mut self, bytes: &[u8], now: u64, before: u32) -> Result<Option<Vec<u8>>> {
        // A line end that was left over changes nothing.
        if matches!(self.state, State::Complete) && bytes.trim_ascii().is_empty() {
            return Ok(None);
        }
        let refuse = |text: &str| Err(Error::new(ErrorKind::Unsupported, text).with_help(FRAMES));
        if now != self.epoch && matches!(self.state, State::Empty(_) | State::Framed(_)) {
            let text = "records were deleted since the file was opened, so the list's indices are old";
            return Err(Error::new(ErrorKind::Stale, text).with_help("look them up again"));
        }
        let (State::Empty(text) | State::Framed(text)) = &self.state else {
            return match &self.state {
                State::Spoiled(kind, text) => Err(Error::new(*kind, text.clone())),
                _ => {
                    let text =
                        "the write before this one was a whole list, and was applied; this one was not";
                    Err(Error::new(ErrorKind::Stale, text).with_help(FRAMES))
                }
            };
        };
        // What one program has left of a line is no beginning of what another one writes.
        if text.last().is_some_and(|&last| last != b'\n') && !are_one_program(before, self.writer) {
            return refuse("a program goes on in the middle of another one's line");
        }
        match std::mem::replace(&mut self.state, State::Complete) {
            State::Empty(mut text) => {
                text.extend_from_slice(bytes);
                if text.trim_ascii().is_empty() {
                    self.state = State::Empty(Vec::new());
                    return Ok(None);
                }
                if let Some(list) = text.strip_prefix(BEGIN) {
                    return self.frame(list.to_vec(), 0);
                }
                if BEGIN.starts_with(&text) {
                    self.state = State::Empty(text);
                    return Ok(None);
                }
                if !text.ends_with(b"\n") {
                    return refuse("a write that does not end a line is no whole list");
                }
                if text.len().is_multiple_of(BUFFER) {
                    return refuse(
                        "a write of just as many bytes as fill a buffer may be a piece of a longer list",
                    );
                }
                Ok(Some(text))
            }
            State::Framed(mut list) => {
                let before = list.len();
                if before.saturating_add(bytes.len()) > MAX_LIST {
                    return refuse("the list has more than 256 MiB");
                }
                list.extend_from_slice(bytes);
                self.frame(list, before)
            }
            // They were looked at above.
            State::Complete | State::Spoiled(..) => Ok(None),
        }
    }

    /// Looks whether `list`, of which `before` bytes were looked at, has come to its end.
    fn frame(&mut self, mut list: Vec<u8>, before: usize) -> Result<Option<Vec<u8>>> {
        // The line before may have been cut by the last write.
        let from =
            list.get(..before).unwrap_or_default().iter().rposition(|&b| b == b'\n').map_or(0, |at| at + 1);
        let mut at = from;
        while let Some(line) = list.get(at..).filter(|rest| !rest.is_empty()) {
            let end = line.iter().position(|&b| b == b'\n');
            let text = line.get(..end.unwrap_or(line.len())).unwrap_or_default();
            if text.trim_ascii() == b"end" {
                let behind = end.and_then(|end| line.get(end..)).unwrap_or_default();
                if !behind.trim_ascii().is_empty() {
                    let text = "something stands behind the line `end`; one opening takes one list";
                    return Err(Error::new(ErrorKind::Unsupported, text));
                }
                list.truncate(at);
                self.state = State::Complete;
                return Ok(Some(list));
            }
            match end {
                Some(end) => at += end + 1,
                None => break,
            }
        }
        self.state = State::Framed(list);
        Ok(None)
    }
}

/// Whether two threads are those of one program. One that has ended can't be asked any more.
fn are_one_program(one: u32, other: u32) -> bool {
    let program = |thread: u32| {
        let status = std::fs::read_to_string(format!("/proc/{thread}/status")).ok()?;
        let line = status.lines().find(|line| line.starts_with("Tgid:"))?;
        line.split_ascii_whitespace().nth(1)?.parse::<u32>().ok()
    };
    one == other || program(one).is_some_and(|program_of_one| program(other) == Some(program_of_one))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(writes: &[&str]) -> Vec<std::result::Result<Option<String>, ErrorKind>> {
        let mut list = DeleteList::new(3);
        let taken = |write: &&str| match list.take(write.as_bytes(), 3, 1) {
            Ok(text) => Ok(text.map(|text| String::from_utf8(text).unwrap())),
            Err(e) => Err(e.kind()),
        };
        writes.iter().map(taken).collect()
    }

    #[test]
    fn a_write_that_ends_a_line_is_a_list() {
        let whole = |text: &str| Ok(Some(text.to_owned()));
        assert_eq!(all(&["7 12 100-199\n"]), [whole("7 12 100-199\n")]);
        assert_eq!(all(&["7\n8\n"]), [whole("7\n8\n")]);
        assert_eq!(all(&["\n", "7\n"]), [Ok(None), whole("7\n")]);
        assert_eq!(all(&["7"]), [Err(ErrorKind::Unsupported)]);
        assert_eq!(all(&["7\n1", "2\n"]), [Err(ErrorKind::Unsupported), Err(ErrorKind::Unsupported)]);
        assert_eq!(all(&["7\n", "\n", "12\n"]), [whole("7\n"), Ok(None), Err(ErrorKind::Stale)]);
        for (lines, is_whole) in [(1023, true), (1024, false), (1025, true), (2048, false)] {
            let text = "007\n".repeat(lines);
            assert_eq!(all(&[&text])[0].is_ok(), is_whole, "{lines} lines of 4 bytes");
        }
    }

    #[test]
    fn a_frame_is_whole_however_it_is_cut() {
        let text = "begin\n7 12\n100-199\n,3\nend\n";
        let list = "7 12\n100-199\n,3\n";
        for size in 1..=text.len() {
            let writes: Vec<_> = (0..text.len())
                .step_by(size)
                .map(|at| text.get(at..(at + size).min(text.len())).unwrap())
                .collect();
            let taken = all(&writes);
            let lists: Vec<_> = taken.iter().filter_map(|taken| taken.clone().unwrap()).collect();
            assert_eq!(lists, [list], "pieces of {size}");
        }
        assert_eq!(all(&["begin\nend\n"]), [Ok(Some(String::new()))]);
        assert_eq!(all(&["begin\n1\n", "2"]), [Ok(None), Ok(None)], "not whole, so nothing is done");
        assert_eq!(all(&["begin\n1\nend\n7\n"]), [Err(ErrorKind::Unsupported)]);
        assert_eq!(all(&["begin\n1\nend\n", "7\n"])[1], Err(ErrorKind::Stale));
    }

    #[test]
    fn after_another_batch_the_indices_are_old() {
        let mut list = DeleteList::new(3);
        assert!(list.take(b"begin\n1\n", 3, 1).unwrap().is_none());
        let first = list.take(b"end\n", 4, 1).unwrap_err();
        let second = list.take(b"1\n", 4, 1).unwrap_err();
        assert_eq!((first.kind(), first.to_string()), (ErrorKind::Stale, second.to_string()));
        assert_eq!(second.kind(), ErrorKind::Stale);
    }

    #[test]
    fn a_line_is_one_programs() {
        let this = std::process::id();
        let mut list = DeleteList::new(0);
        assert!(list.take(b"begin\n10\n1", 0, this).unwrap().is_none());
        assert!(list.take(b"7\n", 0, 1).is_err());
        assert!(list.take(b"end\n", 0, this).is_err(), "and the list is spoiled");
        let mut list = DeleteList::new(0);
        assert!(list.take(b"begin\n10\n", 0, this).unwrap().is_none());
        assert!(list.take(b"11\n1", 0, 1).unwrap().is_none(), "whole lines are anybody's");
        assert!(list.take(b"2\n", 0, 1).unwrap().is_none());
        // Another thread of this program.
        let mut whole = DeleteList::new(0);
        assert!(whole.take(b"begin\n1", 0, this).unwrap().is_none());
        let thread = std::thread::spawn(move || {
            let thread = rustix::thread::gettid().as_raw_nonzero().get().cast_unsigned();
            whole.take(b"0\nend\n", 0, thread).unwrap()
        });
        assert_eq!(thread.join().unwrap().unwrap(), b"10\n");
        assert_eq!(list.take(b"end\n", 0, this).unwrap().unwrap(), b"10\n11\n12\n");
    }
}
