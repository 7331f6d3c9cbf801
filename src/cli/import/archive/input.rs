//! Where the bytes of an archive come from: a file, or standard input; plain, or packed with gzip.

use std::fs::File;
use std::io::{self, BufReader, IsTerminal, Read};
use std::path::{Path, PathBuf};

use flate2::bufread::MultiGzDecoder;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use zrfs::storage::open_regular;
use zrfs::{Error, ErrorKind, Result};

use super::super::feed::NOTHING;
use crate::cli::signals::Stop;

/// Bytes that are read at once.
const BUFFER: usize = 1 << 20;
/// Bytes that are read at once where contents are passed over.
const SCAN_BUFFER: usize = 16 << 10;
/// How often a wait for standard input looks whether it is to end, in nanoseconds.
const LOOK_UP: i64 = 100_000_000;

/// An archive that was named on the command line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::cli::import) enum Source {
    File(PathBuf),
    StandardInput,
}

impl Source {
    /// What `path` names, where it names an archive.
    pub(in crate::cli::import) fn of(path: &Path) -> Option<Source> {
        if path.as_os_str() == "-" {
            return Some(Source::StandardInput);
        }
        let name = path.file_name()?.as_encoded_bytes().to_ascii_lowercase();
        let is_one = [&b".tar"[..], b".tar.gz", b".tgz"].iter().any(|suffix| name.ends_with(suffix));
        is_one.then(|| Source::File(path.to_path_buf()))
    }

    /// What messages call it.
    pub(in crate::cli::import) fn place(&self) -> String {
        match self {
            Source::File(path) => path.display().to_string(),
            Source::StandardInput => "standard input".to_owned(),
        }
    }

    /// Whether it can be read twice: a file that is not packed.
    ///
    /// # Errors
    /// Where it is not there, or is a terminal.
    pub(super) fn is_plain(&self) -> Result<bool> {
        match self {
            Source::StandardInput if io::stdin().is_terminal() => {
                let text = "standard input is a terminal, where an archive is to come from";
                Err(Error::new(ErrorKind::Unsupported, text).with_help("tar c FOLDER | zrfs import - STORE"))
            }
            Source::StandardInput => Ok(false),
            Source::File(path) => {
                let mut magic = Vec::new();
                let read = open_regular(path).and_then(|file| file.take(2).read_to_end(&mut magic));
                read.map_err(|e| Error::io(format!("can't read {}", path.display()), e))?;
                Ok(!is_gzip(&magic))
            }
        }
    }
}

enum Reader {
    /// A file of that many bytes, and how many were read.
    File {
        file: BufReader<File>,
        len: u64,
        at: u64,
    },
    Stream(Box<dyn Read + Send>),
}

/// The bytes of an archive, unpacked.
pub(super) struct Input {
    reader: Reader,
    place: String,
    stop: Stop,
}

impl Input {
    /// Opens an archive. `scan` says that most of its contents will be passed over.
    pub(super) fn open(source: &Source, scan: bool, stop: &Stop) -> Result<Input> {
        let place = source.place();
        let failed = |e| Error::io(format!("can't read {place}"), e);
        let reader = match source {
            Source::StandardInput => {
                Reader::Stream(unpacked(Waiting { stop: stop.clone() }).map_err(failed)?)
            }
            Source::File(path) if source.is_plain()? => {
                let file = open_regular(path).map_err(failed)?;
                let len = file.metadata().map_err(failed)?.len();
                let buffer = if scan { SCAN_BUFFER } else { BUFFER };
                Reader::File { file: BufReader::with_capacity(buffer, file), len, at: 0 }
            }
            Source::File(path) => {
                let file = open_regular(path).map_err(failed)?;
                Reader::Stream(unpacked(file).map_err(failed)?)
            }
        };
        Ok(Input { reader, place, stop: stop.clone() })
    }

    /// What messages call it.
    pub(super) fn place(&self) -> &str {
        &self.place
    }

    /// Passes over `n` bytes, or as many as there are; returns how many there were.
    pub(super) fn pass(&mut self, n: u64) -> io::Result<u64> {
        if let Reader::File { file, len, at } = &mut self.reader {
            let step = n.min(len.saturating_sub(*at));
            file.seek_relative(i64::try_from(step).unwrap_or(i64::MAX))?;
            *at += step;
            return Ok(step);
        }
        io::copy(&mut self.by_ref().take(n), &mut io::sink())
    }

    /// An error of reading, `at` bytes behind the archive's begin.
    pub(super) fn failed(&self, e: io::Error, at: u64) -> Error {
        let place = &self.place;
        if let Err(stopped) = self.stop.check(NOTHING) {
            return stopped;
        }
        if e.raw_os_error().is_some() {
            return Error::io(format!("can't read {place}"), e);
        }
        let text = format!("{place} is damaged: it can't be unpacked from byte {at} on: {e}");
        Error::new(ErrorKind::Damaged, text).with_help("fetch or pack it again")
    }

    /// The error for what does not begin as an archive does.
    pub(super) fn no_archive(&self, begins: &[u8]) -> Error {
        let text = format!("{} is no tar archive", self.place);
        let error = Error::new(ErrorKind::Unsupported, text);
        match unpacks(begins) {
            None => error,
            Some(program) => {
                error.with_help(format!("unpack it on the way: {program} ARCHIVE | zrfs import - STORE"))
            }
        }
    }
}

/// The program that unpacks what begins like this, where that is known.
pub(super) fn unpacks(begins: &[u8]) -> Option<&'static str> {
    match begins {
        [0xfd, b'7', b'z', b'X', b'Z', ..] => Some("xz -dc"),
        [0x28, 0xb5, 0x2f, 0xfd, ..] => Some("zstd -dc"),
        [b'B', b'Z', b'h', ..] => Some("bzip2 -dc"),
        _ => None,
    }
}

impl Read for Input {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        if self.stop.is_raised() {
            return Err(io::Error::other("interrupted"));
        }
        match &mut self.reader {
            Reader::Stream(stream) => stream.read(into),
            Reader::File { file, at, .. } => {
                let n = file.read(into)?;
                *at += n as u64;
                Ok(n)
            }
        }
    }
}

fn is_gzip(begins: &[u8]) -> bool {
    begins.starts_with(&[0x1f, 0x8b])
}

/// Reads `from` through a buffer, unpacked where it begins as gzip does.
fn unpacked(mut from: impl Read + Send + 'static) -> io::Result<Box<dyn Read + Send>> {
    let mut magic = Vec::new();
    from.by_ref().take(2).read_to_end(&mut magic)?;
    let gzip = is_gzip(&magic);
    let whole = BufReader::with_capacity(BUFFER, io::Cursor::new(magic).chain(from));
    Ok(if gzip { Box::new(MultiGzDecoder::new(whole)) } else { Box::new(whole) })
}

/// Standard input, whose reads end when the import is to stop, also while nothing comes.
struct Waiting {
    stop: Stop,
}

impl Read for Waiting {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let stdin = rustix::stdio::stdin();
        loop {
            if self.stop.is_raised() {
                return Err(io::Error::other("interrupted"));
            }
            let mut fds = [PollFd::new(&stdin, PollFlags::IN)];
            match poll(&mut fds, Some(&Timespec { tv_sec: 0, tv_nsec: LOOK_UP })) {
                Ok(0) | Err(rustix::io::Errno::INTR) => {}
                // An end or an error is for the read to find.
                Ok(_) => match rustix::io::read(stdin, &mut *into) {
                    Err(rustix::io::Errno::INTR) => {}
                    read => return Ok(read?),
                },
                Err(e) => return Err(e.into()),
            }
        }
    }
}
