//! The list of an open `delete`: one write that ends a line, or the lines between `begin` and `end` over many writes.

use crate::error::{Error, ErrorKind, Result};

/// Longest list, in bytes. Every record of a full store fits.
const MAX_LIST: usize = 256 << 20;
const BEGIN: &[u8] = b"begin\n";

/// What was written to one opening of `delete`.
#[derive(Debug)]
pub(in crate::view) struct DeleteList {
    /// The epoch of the store when it was opened: its indices are those of that.
    epoch: u64,
    state: State,
}

#[derive(Debug)]
enum State {
    /// Nothing has come yet, or a part of the line `begin`.
    Empty(Vec<u8>),
    /// What came behind the line `begin`.
    Framed(Vec<u8>),
    /// A whole list was taken.
    Complete,
    /// A write was refused.
    Spoiled,
}

impl DeleteList {
    pub(in crate::view) fn new(epoch: u64) -> DeleteList {
        DeleteList { epoch, state: State::Empty(Vec::new()) }
    }

    /// The epoch whose indices the list has.
    pub(super) fn epoch(&self) -> u64 {
        self.epoch
    }

    /// After a refusal: takes nothing more.
    pub(super) fn spoil(&mut self) {
        self.state = State::Spoiled;
    }

    /// Takes what was written while the store is in epoch `now`; gives the list when it is whole.
    ///
    /// # Errors
    /// See [`View::write`](crate::view::View::write).
    pub(super) fn take(&mut self, bytes: &[u8], now: u64) -> Result<Option<Vec<u8>>> {
        let taken = self.advance(bytes, now);
        if taken.is_err() {
            self.state = State::Spoiled;
        }
        taken
    }

    fn advance(&mut self, bytes: &[u8], now: u64) -> Result<Option<Vec<u8>>> {
        // A line end that was left over changes nothing.
        if matches!(self.state, State::Complete) && bytes.trim_ascii().is_empty() {
            return Ok(None);
        }
        let refuse = |text: &str| Err(Error::new(ErrorKind::Unsupported, text));
        if matches!(self.state, State::Spoiled) {
            return refuse("a write before this one was refused; open the file again");
        }
        if now != self.epoch {
            let text = "records were deleted since the file was opened, so the list's indices are old";
            return Err(Error::new(ErrorKind::Stale, text).with_help("look them up again"));
        }
        match std::mem::replace(&mut self.state, State::Spoiled) {
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
                    return refuse(
                        "a list is one write that ends in a newline, or stands between the lines begin and end",
                    );
                }
                self.state = State::Complete;
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
            State::Complete => {
                Err(Error::new(ErrorKind::Stale, "one opening takes one list, and has had it")
                    .with_help("open the file again"))
            }
            State::Spoiled => refuse("a write before this one was refused; open the file again"),
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

#[cfg(test)]
mod tests {
    use super::*;

    fn all(writes: &[&str]) -> Vec<std::result::Result<Option<String>, ErrorKind>> {
        let mut list = DeleteList::new(3);
        let taken = |write: &&str| match list.take(write.as_bytes(), 3) {
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
        assert!(list.take(b"begin\n1\n", 3).unwrap().is_none());
        assert_eq!(list.take(b"end\n", 4).unwrap_err().kind(), ErrorKind::Stale);
        assert_eq!(list.take(b"1\n", 4).unwrap_err().kind(), ErrorKind::Unsupported);
    }
}
