//! `--stack`: .npy files of one dtype and shape, each of them a record of a dense store.

use std::path::Path;

use rayon::iter::{IntoParallelIterator, ParallelIterator};
use zrfs::dataset::{NpyFile, Schema};
use zrfs::{Codec, Error, ErrorKind, Result, Version};

use super::files::Files;

/// What all files are: the first one's dtype and shape.
///
/// # Errors
/// Names a file that is no array, or one that differs from the first.
pub(super) fn schema_of(files: &Files, codec: Codec) -> Result<Schema> {
    let first = whole(&open(&files.path(0), codec)?, codec)?;
    if first.record_bytes() > u64::from(*Version::V2.record_bytes().end()) {
        let text = format!(
            "{} has {} bytes; a record has at most 1 GiB",
            files.path(0).display(),
            first.record_bytes()
        );
        return Err(Error::new(ErrorKind::RecordSize, text));
    }
    // The lowest index that is wrong, so that the same folder always gives the same message.
    let wrong = (1..files.len()).into_par_iter().find_map_first(|i| {
        let path = files.path(i);
        match open(&path, codec).and_then(|npy| whole(&npy, codec)) {
            Ok(schema) if schema == first => None,
            Ok(schema) => {
                let text = format!("{} is {schema}, the files before it are {first}", path.display());
                let help = "a dense store holds one dtype and shape; --only picks files";
                Some(Error::new(ErrorKind::Unsupported, text).with_help(help))
            }
            Err(e) => Some(e),
        }
    });
    wrong.map_or(Ok(first), Err)
}

/// Opens the array at `path` as one record of `schema`: its bytes can be read then.
pub(super) fn record_in(path: &Path, schema: &Schema) -> Result<impl std::io::Read + use<>> {
    let npy = open(path, schema.codec())?;
    if whole(&npy, schema.codec())? != *schema {
        let text = format!("{} has changed: it is no {schema} any more", path.display());
        return Err(Error::new(ErrorKind::Io, text).with_help("import again when nothing writes there"));
    }
    let rows = npy.schema().clone();
    npy.into_records(&rows)
}

fn open(path: &Path, codec: Codec) -> Result<NpyFile> {
    if path.extension().is_none_or(|ext| ext != "npy") {
        let text = format!("{} is no .npy file, as --stack wants them", path.display());
        return Err(Error::new(ErrorKind::Unsupported, text).with_help("--only '*.npy' picks those"));
    }
    NpyFile::open(path, codec)
}

/// The array as one record: its first axis is the record's.
fn whole(npy: &NpyFile, codec: Codec) -> Result<Schema> {
    let shape: Vec<u64> =
        std::iter::once(npy.records()).chain(npy.schema().shape().iter().copied()).collect();
    Schema::new(npy.schema().dtype(), &shape, codec)
}
