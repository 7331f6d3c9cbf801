//! Arrays as sources: .npy files and arrays of .npz files, of one dtype and shape, one record for each index of the first axis or, with `--rows N`,
//! for each N items of a 1-D one.

use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use zrfs::dataset::{NpyFile, Schema};
use zrfs::format::MAX_RECORDS;
use zrfs::{Codec, Error, ErrorKind, Result, Version};

use super::feed::has_changed;
use super::files::{mark, modified_ns};
use super::npz;
use super::plan::look_at;
use crate::cli::Failure;

/// Fewest items a record that are suggested for long 1-D arrays.
const ROWS: u64 = 1024;

/// Arrays, one after another.
pub(super) struct Arrays {
    pub(super) files: Vec<Array>,
    /// What is at an index of the first axis.
    pub(super) item: Schema,
    /// What a record is.
    pub(super) schema: Schema,
    pub(super) records: u64,
    rows: Option<u64>,
}

/// A .npy file, or an array of a .npz file.
pub(super) struct Array {
    pub(super) path: PathBuf,
    /// Its name in a .npz file.
    pub(super) member: Option<Vec<u8>>,
    /// Length of its first axis.
    pub(super) len: u64,
    /// Records that it gives.
    pub(super) records: u64,
    /// Items at its end that make no whole record.
    left: u64,
    size: u64,
    modified_ns: i64,
}

impl Array {
    /// The mark of one of its records; see [`mark`].
    pub(super) fn mark(&self, record: u64) -> u64 {
        let path = self.path.as_os_str().as_bytes();
        let path = match &self.member {
            None => path.to_vec(),
            Some(name) => [path, name].join(&b':'),
        };
        mark(&path, self.size, self.modified_ns, record)
    }

    /// What messages call it.
    fn place(&self) -> String {
        match &self.member {
            None => self.path.display().to_string(),
            Some(name) => format!("{}:{}", self.path.display(), String::from_utf8_lossy(name)),
        }
    }

    /// The error of reading its data: the system's, of a file that was cut meanwhile, or of an archive that does not hold
    /// what it promises.
    pub(super) fn cannot_read(&self, e: io::Error) -> Error {
        let place = self.place();
        if e.raw_os_error().is_some() {
            return Error::io(format!("can't read {place}"), e);
        }
        if self.member.is_none() {
            return has_changed(&self.path);
        }
        let why = match e.kind() {
            io::ErrorKind::UnexpectedEof => "its data end before the array does".to_owned(),
            _ => e.to_string(),
        };
        Error::new(ErrorKind::Damaged, format!("{place} is damaged, and can't be unpacked: {why}"))
            .with_help("copy or save the file again")
    }

    /// Whether the file still has the size and the time that it had.
    pub(super) fn is_unchanged(&self) -> Result<bool> {
        let meta = look_at(&self.path)?;
        Ok((meta.len(), modified_ns(&meta)) == (self.size, self.modified_ns))
    }
}

impl Arrays {
    /// Looks at the arrays at `paths`, each with its name where it is in a .npz file; `rows` is how many items a record takes of 1-D ones.
    pub(super) fn look_at(
        paths: Vec<(PathBuf, Option<Vec<u8>>)>,
        rows: Option<u64>,
        codec: Codec,
    ) -> std::result::Result<Arrays, Failure> {
        let mut all: Option<Schema> = None;
        let mut files = Vec::new();
        for (path, member) in paths {
            let meta = look_at(&path)?;
            let (schema, len) = match &member {
                None => header(&NpyFile::open(&path, codec)?),
                Some(name) => header(&npz::array(&mut npz::open(&path)?, &path, name, codec)?),
            };
            let first = all.get_or_insert_with(|| schema.clone());
            if *first != schema {
                let text =
                    format!("{} has records of {schema}, the arrays before it of {first}", path.display());
                return Err(Error::new(ErrorKind::Unsupported, text).into());
            }
            let (rows, size, modified_ns) = (rows.unwrap_or(1), meta.len(), modified_ns(&meta));
            files.push(Array { path, member, len, records: len / rows, left: len % rows, size, modified_ns });
        }
        let item = all.ok_or_else(|| Failure::Usage("there is no array".into()))?;
        let schema = match rows {
            None => item.clone(),
            Some(rows) if item.shape().is_empty() => Schema::new(item.dtype(), &[rows], codec)?,
            Some(_) => {
                let text = format!("--rows cuts 1-D arrays; a record of these is {item}");
                return Err(Failure::Usage(text));
            }
        };
        let records = files.iter().fold(0u64, |sum, array| sum.saturating_add(array.records));
        let most = u64::from(*Version::V2.record_bytes().end());
        if records > 0 && schema.record_bytes() > most {
            let text =
                format!("a record of {} bytes is over 1 GiB, the most there is", schema.record_bytes());
            return Err(Error::new(ErrorKind::RecordSize, text).into());
        }
        if let (0, Some(rows)) = (records, rows) {
            let text = format!("no array has {rows} items, the length of a record");
            return Err(Error::new(ErrorKind::NotFound, text).with_help("choose a smaller --rows").into());
        }
        Ok(Arrays { files, item, schema, records, rows })
    }

    /// What to do where there are too many records.
    pub(super) fn help_with_many(&self) -> String {
        let least = self.records.div_ceil(u64::from(MAX_RECORDS)).next_power_of_two();
        match self.rows {
            Some(rows) => format!("choose a larger --rows: {} for example", rows.saturating_mul(least)),
            None if self.item.shape().is_empty() => {
                format!("--rows N makes one record of N items: {} for example", least.max(ROWS))
            }
            None => "reshape the array so that a record holds several of its rows".into(),
        }
    }

    /// What was left out.
    pub(super) fn notes(&self) -> Vec<String> {
        let note = |array: &Array| {
            let (name, rows) = (array.path.display(), self.rows.unwrap_or(1));
            let last = match array.left {
                1 => "last item".to_owned(),
                left => format!("last {left} items"),
            };
            format!("Left out: the {last} of {name}, too few for a record of {rows}.")
        };
        self.files.iter().filter(|array| array.left > 0).map(note).collect()
    }
}

/// What is at an index of the first axis, and its length.
fn header<R: io::Read>(npy: &NpyFile<R>) -> (Schema, u64) {
    (npy.schema().clone(), npy.records())
}
