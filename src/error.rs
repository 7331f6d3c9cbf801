//! The one error type: what failed, where, and what to do about it.

use std::fmt;
use std::io;

/// The result of everything in this crate that can fail.
pub type Result<T> = std::result::Result<T, Error>;

/// What went wrong, for callers that decide by it. The text of an [`Error`] says more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The operating system refused a read, a write or a sync. The source has its reason.
    Io,
    /// No store, file or mount is there.
    NotFound,
    /// Something is there already and is not overwritten.
    Exists,
    /// The folder or file is something else than a record store.
    NotAStore,
    /// A format version that this release does not read.
    Version,
    /// Bytes on disk contradict the format. Other records may still be good.
    Damaged,
    /// An index at or past the number of records.
    OutOfRange,
    /// What a number or a list named has changed since: a record that was deleted, a list made before a delete.
    Stale,
    /// The caller's buffer, offsets or lengths do not fit each other or the records.
    Geometry,
    /// A record larger (or, in version 1, smaller) than the store's version holds.
    RecordSize,
    /// No record slot or no chunk is left.
    Full,
    /// Another process or thread holds what this call needs.
    Busy,
    /// The store was opened for reading only.
    ReadOnly,
    /// Input that the format or this release does not take.
    Unsupported,
    /// A buffer does not fit in memory.
    Memory,
    /// The caller asked to stop.
    Interrupted,
    /// A loader's transform returned an error, or a thread of it panicked.
    Worker,
}

/// An error: kind, text, and its source where there was one: the operating system's error, or a transform's.
///
/// Its display is one line: what failed and where, the system's reason, then what to do.
pub struct Error(Box<Inner>);

struct Inner {
    kind: ErrorKind,
    text: String,
    help: Option<String>,
    source: Option<Box<dyn std::error::Error + Send + Sync>>,
    /// A sync has failed: what the system has dropped is not known.
    of_sync: bool,
}

impl Error {
    /// An error of `kind`; `text` says what failed and where.
    pub fn new(kind: ErrorKind, text: impl Into<String>) -> Error {
        Error(Box::new(Inner { kind, text: text.into(), help: None, source: None, of_sync: false }))
    }

    /// An error of the operating system; `text` says during what and where.
    pub fn io(text: impl Into<String>, source: io::Error) -> Error {
        let kind = match source.kind() {
            io::ErrorKind::NotFound => ErrorKind::NotFound,
            io::ErrorKind::AlreadyExists => ErrorKind::Exists,
            _ => ErrorKind::Io,
        };
        Error(Box::new(Inner {
            kind,
            text: text.into(),
            help: None,
            source: Some(Box::new(source)),
            of_sync: false,
        }))
    }

    /// An error of the caller's own code; `text` says during what.
    pub(crate) fn of_caller(
        kind: ErrorKind,
        text: impl Into<String>,
        source: Box<dyn std::error::Error + Send + Sync>,
    ) -> Error {
        Error(Box::new(Inner { kind, text: text.into(), help: None, source: Some(source), of_sync: false }))
    }

    /// Adds what the reader can do.
    #[must_use]
    pub fn with_help(mut self, help: impl Into<String>) -> Error {
        self.0.help = Some(help.into());
        self
    }

    /// Marks it as that of a sync.
    #[must_use]
    pub(crate) fn of_sync(mut self) -> Error {
        self.0.of_sync = true;
        self
    }

    /// Whether a sync has failed: what the system has dropped is not known then.
    pub(crate) fn is_of_sync(&self) -> bool {
        self.0.of_sync
    }

    /// Puts where it happened before the text.
    #[must_use]
    pub(crate) fn within(mut self, place: &str) -> Error {
        self.0.text = format!("{place}: {}", self.0.text);
        self
    }

    /// The error without what the reader can do.
    pub(crate) fn without_help(&self) -> String {
        match &self.0.source {
            Some(source) => format!("{}: {source}", self.0.text),
            None => self.0.text.clone(),
        }
    }

    /// What went wrong.
    pub fn kind(&self) -> ErrorKind {
        self.0.kind
    }

    /// The operating system's error number, where it was the cause.
    pub fn raw_os_error(&self) -> Option<i32> {
        self.0.source.as_ref()?.downcast_ref::<io::Error>()?.raw_os_error()
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.text)?;
        if let Some(source) = &self.0.source {
            write!(f, ": {source}")?;
        }
        if let Some(help) = &self.0.help {
            write!(f, "; {help}")?;
        }
        Ok(())
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {self}", self.0.kind)
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(self.0.source.as_deref()?)
    }
}
