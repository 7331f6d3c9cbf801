//! The members of a tar archive, one after another, out of any reader.
//!
//! Blocks are decoded by the `tar` crate. Its own walk over them is not used, because it takes names of any length into
//! memory, loses names with a newline in a pax header, hands out the sparse files of pax archives as they are stored, and
//! takes an archive that was cut between two members for a whole one.

use std::io::{self, Read};

use tar::{EntryType, GnuExtSparseHeader, GnuSparseHeader, Header};
use zrfs::{Error, ErrorKind, Result};

use super::input::{Input, unpacks};
use super::pax::{Extended, Stretch};
use super::shown;

/// Bytes of a block: headers are one, contents are filled up to whole ones.
const BLOCK: u64 = 512;
/// Most bytes of a header that extends another: a name, or a pax header. A path of a Linux system has up to 4096.
const MAX_EXTENSION: u64 = 1 << 20;
/// Most stretches of data in a sparse file.
const MAX_STRETCHES: usize = 1 << 18;
/// Memory that is taken for contents before any of them has come.
const AT_FIRST: usize = 1 << 20;

/// What a member is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// A file, whose contents follow.
    File,
    /// A folder.
    Folder,
    /// A symbolic link and where it leads.
    Symbolic(Vec<u8>),
    /// Another name of the member at a path.
    Hard(Vec<u8>),
    /// A device or a pipe.
    Special,
    /// Something that only some programs know.
    Unknown,
}

/// A member, its contents not read yet.
#[derive(Debug)]
pub(super) struct Member {
    /// As it is stored, without a `./` at its beginning and a folder's `/` at its end; `.` for the folder of
    /// all. Anything may be in it.
    pub(super) path: Vec<u8>,
    pub(super) kind: Kind,
    /// Nanoseconds since 1970.
    pub(super) modified_ns: i64,
    pub(super) executable: bool,
    /// Bytes of a file, decoded.
    pub(super) size: u64,
}

/// Where the contents of the last member are.
#[derive(Default)]
struct Body {
    /// Bytes in the archive that were not read yet, and those that fill up the last block.
    left: u64,
    padding: u64,
    /// A sparse file's data, in order; `None` where all of it is stored.
    sparse: Option<Vec<Stretch>>,
}

/// The members of an archive.
pub(super) struct Members {
    from: Input,
    body: Body,
    /// Path of the last member, for messages.
    last: Vec<u8>,
    /// Bytes before what comes next.
    at: u64,
}

impl Members {
    pub(super) fn of(from: Input) -> Members {
        Members { from, body: Body::default(), last: Vec::new(), at: 0 }
    }

    /// The next member; what was not read of the one before it is passed over. `None` at the end, which nothing follows.
    ///
    /// # Errors
    /// [`ErrorKind::Damaged`] where the archive is cut, or is none; what the system refuses.
    pub(super) fn next(&mut self) -> Result<Option<Member>> {
        let Body { left, padding, .. } = std::mem::take(&mut self.body);
        self.pass(left)?;
        // The contents are whole: that nothing fills them up is for what comes next to find.
        self.pass_at_most(padding)?;
        let mut long_name = None;
        let mut long_target = None;
        let mut extended = Extended::default();
        loop {
            let Some(header) = self.header()? else {
                self.end()?;
                return Ok(None);
            };
            if header.entry_type() == EntryType::__Nonexhaustive(b'V') {
                // GNU's label of a volume: a header without contents, its other fields empty.
                continue;
            }
            let size = header.entry_size().map_err(|_| self.damaged("a member's size is no number"))?;
            match header.entry_type() {
                EntryType::GNULongName => long_name = Some(without_nul(self.extension(size)?)),
                EntryType::GNULongLink => long_target = Some(without_nul(self.extension(size)?)),
                // 'X' is what Solaris writes.
                EntryType::XHeader | EntryType::__Nonexhaustive(b'X') => {
                    let bytes = self.extension(size)?;
                    extended =
                        Extended::parse(&bytes).ok_or_else(|| self.damaged("a pax header makes no sense"))?;
                }
                EntryType::XGlobalHeader => {
                    self.pass(size)?;
                    self.pass(padding_of(size))?;
                }
                EntryType::__Nonexhaustive(b'M') => {
                    let text =
                        format!("{} is the second part of an archive in several volumes", self.from.place());
                    let help = "put the volumes together first";
                    return Err(Error::new(ErrorKind::Unsupported, text).with_help(help));
                }
                _ => return self.member(&header, size, long_name, long_target, extended).map(Some),
            }
        }
    }

    /// Adds the contents of the last member to `into`, which grows as they come.
    ///
    /// # Errors
    /// As for [`Members::next`]; [`ErrorKind::Memory`].
    pub(super) fn read(&mut self, size: u64, into: &mut Vec<u8>) -> Result<()> {
        match self.body.sparse.take() {
            None => self.read_stored(size, into),
            Some(stretches) => {
                let start = into.len() as u64;
                for Stretch { at, len } in stretches {
                    resize(into, start + at)?;
                    self.read_stored(len, into)?;
                }
                resize(into, start + size)
            }
        }
    }

    fn read_stored(&mut self, len: u64, into: &mut Vec<u8>) -> Result<()> {
        let mut left = len;
        while left > 0 {
            let old = into.len();
            // No more is taken at once than has come already, so that a header's word alone takes no memory.
            let step = left.min(old.max(AT_FIRST) as u64);
            resize(into, old as u64 + step)?;
            self.from.read_exact(into.get_mut(old..).unwrap_or_default()).map_err(|e| self.failed(e))?;
            left -= step;
            self.at += step;
            self.body.left = self.body.left.saturating_sub(step);
        }
        Ok(())
    }

    /// The next header; `None` for the block of zeros that ends an archive.
    fn header(&mut self) -> Result<Option<Header>> {
        let mut header = Header::new_old();
        let block = header.as_mut_bytes();
        let mut filled = 0;
        while let Some(rest) = block.get_mut(filled..).filter(|rest| !rest.is_empty()) {
            match self.from.read(rest) {
                Ok(0) => return Err(self.ended(header.as_bytes().get(..filled).unwrap_or_default())),
                Ok(n) => filled += n,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(self.failed(e)),
            }
        }
        if header.as_bytes().iter().all(|&b| b == 0) {
            self.at += BLOCK;
            return Ok(None);
        }
        if !header.cksum().is_ok_and(|sum| checksums(header.as_bytes()).contains(&i64::from(sum))) {
            return Err(match self.at {
                0 => self.from.no_archive(header.as_bytes()),
                _ => self.damaged("what should be a member's header is none"),
            });
        }
        self.at += BLOCK;
        Ok(Some(header))
    }

    /// The contents of a header that extends the next one.
    fn extension(&mut self, size: u64) -> Result<Vec<u8>> {
        if size > MAX_EXTENSION {
            return Err(self.damaged(&format!("a name or pax header says it has {size} bytes")));
        }
        let mut bytes = Vec::new();
        self.read_stored(size, &mut bytes)?;
        self.pass(padding_of(size))?;
        Ok(bytes)
    }

    fn member(
        &mut self,
        header: &Header,
        size: u64,
        long_name: Option<Vec<u8>>,
        long_target: Option<Vec<u8>>,
        extended: Extended,
    ) -> Result<Member> {
        let stored = extended.size.unwrap_or(size);
        let name = extended.sparse_name.or(long_name).or(extended.path);
        let mut path = name.unwrap_or_else(|| header.path_bytes().into_owned());
        let target = long_target.or(extended.target);
        let target =
            || target.or_else(|| header.link_name_bytes().map(|name| name.into_owned())).unwrap_or_default();
        let kind = match header.entry_type() {
            // Before there was a type for folders, the slash said it.
            EntryType::Regular if stored == 0 && path.ends_with(b"/") => Kind::Folder,
            // The one that GNU tar writes when asked for incremental archives holds a list of names.
            EntryType::Directory | EntryType::__Nonexhaustive(b'D') => Kind::Folder,
            EntryType::Regular | EntryType::Continuous | EntryType::GNUSparse => Kind::File,
            EntryType::Symlink => Kind::Symbolic(target()),
            EntryType::Link => Kind::Hard(without_dot(&target()).to_vec()),
            EntryType::Char | EntryType::Block | EntryType::Fifo => Kind::Special,
            _ => Kind::Unknown,
        };
        path = match kind {
            Kind::Folder => folder_path(&path).to_vec(),
            _ => without_dot(&path).to_vec(),
        };
        self.last.clone_from(&path);
        let modified_ns = extended.modified_ns.unwrap_or_else(|| {
            // Before 1970 it is negative; times that make no sense are no reason to refuse the rest.
            header.mtime().unwrap_or(0).cast_signed().saturating_mul(1_000_000_000)
        });
        let executable = header.mode().is_ok_and(|mode| mode & 0o111 != 0);
        // What has no contents may name a size all the same, with nothing behind it: a hard link that of its file, a folder
        // that of its quota.
        let stored = match header.entry_type() {
            EntryType::Link | EntryType::Symlink | EntryType::Directory => 0,
            EntryType::Char | EntryType::Block | EntryType::Fifo => 0,
            _ => stored,
        };
        self.body = Body { left: stored, padding: padding_of(stored), sparse: None };
        let mut size = if kind == Kind::File { stored } else { 0 };
        let sparse = match header.entry_type() {
            EntryType::GNUSparse => Some(self.old_sparse(header, stored)?),
            EntryType::Regular if kind == Kind::File => {
                self.pax_sparse(extended.sparse, extended.sparse_size, stored)?
            }
            _ => None,
        };
        if let Some((real, stretches)) = sparse {
            self.check_sparse(real, &stretches)?;
            size = real;
            self.body.sparse = Some(stretches);
        }
        Ok(Member { path, kind, modified_ns, executable, size })
    }

    /// Real size and map of a sparse file as GNU tar has them in its own format: in the header and in blocks behind it.
    fn old_sparse(&mut self, header: &Header, stored: u64) -> Result<(u64, Vec<Stretch>)> {
        let gnu = header.as_gnu().ok_or_else(|| self.damaged("a sparse file has no map"))?;
        let mut stretches = Vec::new();
        self.add_stretches(&gnu.sparse, &mut stretches)?;
        let mut extended = gnu.is_extended();
        while extended {
            let mut more = GnuExtSparseHeader::new();
            self.from.read_exact(more.as_mut_bytes()).map_err(|e| self.failed(e))?;
            self.at += BLOCK;
            self.add_stretches(more.sparse(), &mut stretches)?;
            extended = more.is_extended();
        }
        // The blocks of the map are not part of the contents.
        self.body = Body { left: stored, padding: padding_of(stored), sparse: None };
        let real = gnu.real_size().map_err(|_| self.damaged("a sparse file's size is no number"))?;
        Ok((real, stretches))
    }

    fn add_stretches(&self, headers: &[GnuSparseHeader], to: &mut Vec<Stretch>) -> Result<()> {
        for header in headers.iter().filter(|header| !header.is_empty()) {
            let (Ok(at), Ok(len)) = (header.offset(), header.length()) else {
                return Err(self.damaged("a sparse file's map is no map"));
            };
            to.push(Stretch { at, len });
        }
        self.check_stretches(to.len())
    }

    /// Real size and map of a sparse file as pax archives have them: in the pax header, or before the contents.
    fn pax_sparse(
        &mut self,
        map: Option<Vec<Stretch>>,
        real: Option<u64>,
        stored: u64,
    ) -> Result<Option<(u64, Vec<Stretch>)>> {
        let Some(real) = real else { return Ok(None) };
        if let Some(map) = map {
            return Ok(Some((real, map)));
        }
        // Numbers, each on a line: how many stretches, then place and length of each. Filled up to whole blocks.
        self.body.left = stored;
        let count = usize::try_from(self.map_number()?).unwrap_or(usize::MAX);
        let mut stretches = Vec::new();
        for _ in 0..count.min(MAX_STRETCHES + 1) {
            stretches.push(Stretch { at: self.map_number()?, len: self.map_number()? });
        }
        self.check_stretches(stretches.len())?;
        let padding = padding_of(stored - self.body.left);
        self.pass(padding)?;
        self.body.left =
            self.body.left.checked_sub(padding).ok_or_else(|| self.damaged("a sparse file's map is cut"))?;
        Ok(Some((real, stretches)))
    }

    fn map_number(&mut self) -> Result<u64> {
        let mut value = 0u64;
        while self.body.left > 0 {
            let mut byte = [0];
            self.from.read_exact(&mut byte).map_err(|e| self.failed(e))?;
            self.at += 1;
            self.body.left -= 1;
            let [byte] = byte;
            let digit = match byte {
                b'\n' => return Ok(value),
                b'0'..=b'9' => u64::from(byte - b'0'),
                _ => break,
            };
            let Some(more) = value.checked_mul(10).and_then(|tens| tens.checked_add(digit)) else { break };
            value = more;
        }
        Err(self.damaged("a sparse file's map is no map"))
    }

    fn check_stretches(&self, count: usize) -> Result<()> {
        if count <= MAX_STRETCHES {
            return Ok(());
        }
        let text = format!(
            "{} has a sparse file with more than {MAX_STRETCHES} stretches: {}",
            self.from.place(),
            shown(&self.last)
        );
        Err(Error::new(ErrorKind::Unsupported, text).with_help("pack it without --sparse"))
    }

    /// Checks that stretches come one after another, within the file, and that their bytes are those that are stored.
    fn check_sparse(&self, real: u64, stretches: &[Stretch]) -> Result<()> {
        let (mut end, mut sum) = (0u64, 0u64);
        for stretch in stretches {
            let behind = stretch.at.checked_add(stretch.len).filter(|&behind| behind <= real);
            let Some(behind) = behind.filter(|_| stretch.at >= end) else {
                return Err(self.damaged("a sparse file's map is no map"));
            };
            end = behind;
            sum += stretch.len;
        }
        if sum == self.body.left {
            return Ok(());
        }
        Err(self.damaged("a sparse file's map and its size differ"))
    }

    /// Passes over what follows the end: zeros, which fill up the last record of a tape. A stream is read to its end, so that
    /// whoever writes it can finish, and a compressed one is checked to its end.
    fn end(&mut self) -> Result<()> {
        let mut buffer = vec![0; 64 << 10];
        loop {
            match self.from.read(&mut buffer) {
                Ok(0) => return Ok(()),
                Ok(n) if buffer.iter().take(n).all(|&b| b == 0) => self.at += n as u64,
                Ok(_) => {
                    let place = self.from.place();
                    let text = format!("{place} goes on behind its end, from byte {} on", self.at);
                    let help = "of archives that were put together with cat, import each by itself";
                    return Err(Error::new(ErrorKind::Unsupported, text).with_help(help));
                }
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(self.failed(e)),
            }
        }
    }

    fn pass(&mut self, n: u64) -> Result<()> {
        if self.pass_at_most(n)? < n {
            return Err(self.failed(io::ErrorKind::UnexpectedEof.into()));
        }
        Ok(())
    }

    fn pass_at_most(&mut self, n: u64) -> Result<u64> {
        let passed = self.from.pass(n).map_err(|e| self.failed(e))?;
        self.at += passed;
        Ok(passed)
    }

    /// The error for an archive without an end. One that was cut between two members, because its writer was killed, looks
    /// whole but for that.
    fn ended(&self, in_header: &[u8]) -> Error {
        let place = self.from.place();
        if self.at == 0 && in_header.is_empty() {
            return Error::new(
                ErrorKind::Damaged,
                format!("{place} is empty: not even an archive of nothing"),
            );
        }
        if self.at == 0 && unpacks(in_header).is_some() {
            return self.from.no_archive(in_header);
        }
        let text = format!(
            "{place} is cut short: it ends at byte {} without the zeros that end an archive",
            self.at
        );
        Error::new(ErrorKind::Damaged, text).with_help("fetch or pack it again")
    }

    fn failed(&self, e: io::Error) -> Error {
        if e.kind() == io::ErrorKind::UnexpectedEof {
            let place = self.from.place();
            let within =
                if self.last.is_empty() { String::new() } else { format!(", at {}", shown(&self.last)) };
            let text = format!("{place} is cut short: it ends behind byte {}{within}", self.at);
            return Error::new(ErrorKind::Damaged, text).with_help("fetch or pack it again");
        }
        self.from.failed(e, self.at)
    }

    fn damaged(&self, why: &str) -> Error {
        let text = format!("{} is damaged: {why}, before byte {}", self.from.place(), self.at);
        Error::new(ErrorKind::Damaged, text).with_help("fetch or pack it again")
    }
}

/// Bytes that fill `size` up to whole blocks.
fn padding_of(size: u64) -> u64 {
    size.wrapping_neg() % BLOCK
}

/// The sums of a header's bytes that its checksum may be: some programs took the bytes for signed ones.
fn checksums(block: &[u8; 512]) -> [i64; 2] {
    let bytes = || {
        // The checksum itself counts as blanks.
        block.iter().enumerate().map(|(i, &byte)| if (148..156).contains(&i) { b' ' } else { byte })
    };
    [bytes().map(i64::from).sum(), bytes().map(|byte| i64::from(byte.cast_signed())).sum()]
}

/// A GNU name ends with a NUL.
fn without_nul(mut name: Vec<u8>) -> Vec<u8> {
    name.pop_if(|&mut last| last == 0);
    name
}

/// A path without `./` before it.
fn without_dot(mut path: &[u8]) -> &[u8] {
    while let Some(rest) = path.strip_prefix(b"./") {
        path = rest;
    }
    path
}

/// A folder's path without `./` before it and `/` behind it; that of `./` is `.`. An absolute one stays so.
fn folder_path(path: &[u8]) -> &[u8] {
    let below = without_dot(path);
    let end = below.iter().rposition(|&b| b != b'/').map_or(below.len().min(1), |last| last + 1);
    match below.get(..end) {
        Some(below) if !below.is_empty() || path.is_empty() => below,
        _ => b".",
    }
}

/// Makes `bytes` longer, new ones zero; grows by more than is asked for where it has to move.
fn resize(bytes: &mut Vec<u8>, len: u64) -> Result<()> {
    let len = usize::try_from(len).unwrap_or(usize::MAX);
    bytes.try_reserve(len.saturating_sub(bytes.len())).map_err(|_| {
        Error::new(ErrorKind::Memory, format!("there is no memory for {len} bytes of a member"))
    })?;
    bytes.resize(len, 0);
    Ok(())
}
