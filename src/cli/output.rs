//! Standard output that ends as other programs do when nobody reads on.

use std::io::{self, BufWriter, Stdout, Write};

use zrfs::Error;

use super::Failure;

/// Buffered standard output.
pub(super) struct Output(BufWriter<Stdout>);

impl Output {
    pub(super) fn new() -> Output {
        Output(BufWriter::with_capacity(1 << 16, io::stdout()))
    }

    /// Writes `bytes`.
    pub(super) fn write(&mut self, bytes: &[u8]) -> Result<(), Failure> {
        self.0.write_all(bytes).map_err(|e| failed("standard output", e))
    }

    /// Writes a line.
    pub(super) fn line(&mut self, line: impl std::fmt::Display) -> Result<(), Failure> {
        writeln!(self.0, "{line}").map_err(|e| failed("standard output", e))
    }

    /// Hands over what is buffered. Call it last: what is dropped unflushed fails unseen.
    pub(super) fn finish(mut self) -> Result<(), Failure> {
        self.0.flush().map_err(|e| failed("standard output", e))
    }
}

/// What an error of writing to `place` comes to.
pub(super) fn failed(place: &str, e: io::Error) -> Failure {
    match e.kind() {
        io::ErrorKind::BrokenPipe => Failure::NobodyReads,
        _ => Failure::Failed(Error::io(format!("can't write to {place}"), e)),
    }
}

/// A number of things.
pub(super) fn count(n: u64, thing: &str) -> String {
    match n {
        1 => format!("1 {thing}"),
        _ if thing.ends_with('s') => format!("{n} {thing}es"),
        _ => format!("{n} {thing}s"),
    }
}
