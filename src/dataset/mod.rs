//! Dense records: their NumPy dtype and shape, in schema.json and in .npy headers; as arrays, in and out. Knows no mount.
//!
//! A [`Dataset`] is a [`Store`] and the [`Schema`] of its records. It holds nothing else: the schema never changes, and
//! what threads and processes may do at the same time is what the store says.

mod dtype;
mod element;
mod npy;
mod read;
mod schema;
mod selection;
#[cfg(test)]
mod tests;
mod write;

pub use element::Element;
pub use npy::{NpyFile, NpyRecords};
pub use schema::Schema;
pub use selection::{Selection, Slice};
#[doc(no_inline)]
pub use {ndarray, num_complex::Complex};

use std::ops::ControlFlow;
use std::path::Path;

use crate::error::{Error, ErrorKind, Result};
use crate::format::{MAX_RECORDS, Version};
use crate::store::{Compaction, Move, Stats, Store};

/// A store whose records are arrays of one dtype and shape, as loaderx's `Dataset` is one.
///
/// All methods take `&self` and may be called from many threads.
///
/// ```
/// use ndarray::{Array3, array};
/// use zrfs::{Codec, Dataset};
///
/// # fn main() -> zrfs::Result<()> {
/// # let folder = tempfile::tempdir().unwrap();
/// let path = folder.path().join("train.zr");
/// let images = Array3::<f32>::zeros((100, 28, 28)); // 100 records of 28 x 28
/// let dataset = Dataset::write(&path, &images, Codec::default())?;
/// assert_eq!(dataset.len(), 100);
/// assert_eq!(dataset.get::<f32>(-1)?.shape(), [28, 28]);
/// assert_eq!(dataset.select::<f32>(10..20)?.shape(), [10, 28, 28]);
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Dataset {
    store: Store,
    schema: Schema,
    /// Bytes of a record.
    record_len: usize,
}

impl Dataset {
    /// Opens a dataset for reading and writing. A folder that holds a schema.json and no store yet, as loaderx leaves one
    /// when it has written an array of no records, becomes an empty dataset.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`] where there is no schema.json, or nothing at all; as for [`Store::open`] and
    /// [`Schema::read`].
    pub fn open(path: impl AsRef<Path>) -> Result<Dataset> {
        let path = path.as_ref();
        let Some(schema) = Schema::read_in(path)? else {
            return Err(no_schema(&Store::open_read_only(path)?));
        };
        match Store::open(path) {
            Err(e) if matches!(e.kind(), ErrorKind::NotFound | ErrorKind::NotAStore) => {
                schema.check_fits(Version::V1).map_err(|e| e.within(&path.display().to_string()))?;
                Dataset::of(Store::open_or_create(path, Version::V1)?)
            }
            opened => Dataset::of(opened?),
        }
    }

    /// Opens a dataset for reading. Creates and writes nothing, now or later.
    ///
    /// # Errors
    /// As for [`Dataset::open`].
    ///
    /// ```
    /// # fn main() -> zrfs::Result<()> {
    /// # let folder = tempfile::tempdir().unwrap();
    /// # let path = folder.path().join("train.zr");
    /// use zrfs::{Codec, Dataset, ErrorKind};
    ///
    /// Dataset::write(&path, &ndarray::array![1, 2, 3], Codec::default())?;
    /// let dataset = Dataset::open_read_only(&path)?;
    /// assert_eq!((dataset.len(), dataset.schema().dtype()), (3, "<i4"));
    /// assert_eq!(dataset.append(&ndarray::array![4]).unwrap_err().kind(), ErrorKind::ReadOnly);
    /// # Ok(())
    /// # }
    /// ```
    pub fn open_read_only(path: impl AsRef<Path>) -> Result<Dataset> {
        Dataset::of(Store::open_read_only(path)?)
    }

    /// Creates an empty dataset at `path`: the folders that lead there, the store, then schema.json. An empty store that
    /// has no schema.json becomes one: that is what a power cut between the two leaves, and how a dataset of samples over
    /// 1 MiB comes about, in a store that was created in version 2.
    ///
    /// # Errors
    /// Before anything is created: [`ErrorKind::Exists`] where a dataset is, or a store that holds records;
    /// [`ErrorKind::RecordSize`] where a record is empty, or larger than the store's version holds. As for
    /// [`Store::open_or_create`]; [`ErrorKind::Busy`] where another process appends.
    ///
    /// ```
    /// # fn main() -> zrfs::Result<()> {
    /// # let folder = tempfile::tempdir().unwrap();
    /// # let path = folder.path().join("train.zr");
    /// use zrfs::{Codec, Dataset, Schema};
    ///
    /// let dataset = Dataset::create(&path, &Schema::of::<f32>(&[2], Codec::Raw)?)?;
    /// assert_eq!(dataset.append(&ndarray::array![[1f32, 2.0], [3.0, 4.0]])?, 0);
    /// assert_eq!(dataset.append(&ndarray::array![[5f32, 6.0]])?, 2);
    /// dataset.sync()?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn create(path: impl AsRef<Path>, schema: &Schema) -> Result<Dataset> {
        let path = path.as_ref();
        if Schema::read_in(path)?.is_some() {
            return Err(exists(path, "a dataset"));
        }
        Dataset::create_for(path, schema, 0)
    }

    /// Creates a dataset where there is no schema.json, if it will hold `records` records.
    fn create_for(path: &Path, schema: &Schema, records: u64) -> Result<Dataset> {
        if refuse_before_change(path, schema, records)? > 0 {
            return Err(exists(path, "records, and no schema.json"));
        }
        let store = Store::open_or_create(path, Version::V1)?;
        // While it is held no other process appends, or makes a dataset of the store.
        let appender = store.appender()?;
        if !appender.is_empty() || Schema::read(&store)?.is_some() {
            return Err(exists(path, "a dataset that another process has just made"));
        }
        schema.write(&store)?;
        drop(appender);
        // Not read again: the file has no place for the codec's level.
        Dataset::with(store, schema.clone())
    }

    /// The dataset in `store`.
    fn of(store: Store) -> Result<Dataset> {
        match Schema::read(&store)? {
            Some(schema) => Dataset::with(store, schema),
            None => Err(no_schema(&store)),
        }
    }

    fn with(store: Store, schema: Schema) -> Result<Dataset> {
        // Bounds what is allocated for a batch.
        let most = u64::from(*Version::V2.record_bytes().end());
        match usize::try_from(schema.record_bytes()) {
            Ok(record_len) if record_len as u64 <= most => Ok(Dataset { store, schema, record_len }),
            _ => {
                let path = store.path().display();
                let text = format!("{path}: schema.json tells of records of {schema}, which no store holds");
                Err(Error::new(ErrorKind::Damaged, text))
            }
        }
    }

    /// Number of records. Looks at the header, so it sees what other processes have appended and synced.
    pub fn len(&self) -> u64 {
        self.store.len()
    }

    /// Whether there is no record.
    pub fn is_empty(&self) -> bool {
        self.store.is_empty()
    }

    /// dtype and shape of a record, and the codec of appends.
    pub fn schema(&self) -> &Schema {
        &self.schema
    }

    /// The records as bytes, and all else that a store does.
    pub fn store(&self) -> &Store {
        &self.store
    }

    /// The folder that the dataset was opened at.
    pub fn path(&self) -> &Path {
        self.store.path()
    }

    /// Deletes records: the last ones move into the holes, and the moves are returned. See [`Store::delete`], and
    /// [`Store::delete_aligned`] for data and labels.
    ///
    /// # Errors
    /// As for [`Selection::resolve`] and [`Store::delete`].
    ///
    /// ```
    /// # fn main() -> zrfs::Result<()> {
    /// # let folder = tempfile::tempdir().unwrap();
    /// # let path = folder.path().join("labels.zr");
    /// use ndarray::array;
    /// use zrfs::{Codec, Dataset};
    ///
    /// let labels = Dataset::write(&path, &array![10, 11, 12, 13], Codec::default())?;
    /// labels.delete(&[0, -2])?;
    /// assert_eq!(labels.select::<i32>(..)?, array![13, 11].into_dyn());
    /// # Ok(())
    /// # }
    /// ```
    pub fn delete<'a>(&self, selection: impl Into<Selection<'a>>) -> Result<Vec<Move>> {
        self.store.delete(&self.resolve(selection)?)
    }

    /// Gives the disk of deleted records back, however long that takes; [`Store::compact`] tells of progress.
    ///
    /// # Errors
    /// As for [`Store::compact`].
    pub fn compact(&self) -> Result<Compaction> {
        self.store.compact(|_| ControlFlow::Continue(()))
    }

    /// What the store holds, in numbers; see [`Store::stats`].
    ///
    /// # Errors
    /// What the system refuses.
    pub fn stats(&self) -> Result<Stats> {
        self.store.stats()
    }

    /// Makes all that was appended so far durable and visible to other processes; see [`Store::sync`].
    ///
    /// # Errors
    /// As for [`Store::sync`].
    pub fn sync(&self) -> Result<()> {
        self.store.sync()
    }

    /// `e`, with where it happened.
    fn here(&self, e: Error) -> Error {
        e.within(&self.path().display().to_string())
    }
}

/// Refuses what the store at `path`, or a new one, would not hold; returns the records that are there. Changes nothing.
fn refuse_before_change(path: &Path, schema: &Schema, records: u64) -> Result<u64> {
    // What is wrong with a store is found when it is opened.
    let store = Store::open_read_only(path).ok();
    let (version, len) = store.map_or((Version::V1, 0), |store| (store.version(), store.len()));
    schema.check_fits(version).map_err(|e| {
        let e = e.within(&path.display().to_string());
        match version {
            Version::V1 if schema.record_bytes() > 0 => {
                e.with_help("it may have up to 1 GiB in a store that was created in version 2")
            }
            _ => e,
        }
    })?;
    if records > u64::from(MAX_RECORDS).saturating_sub(len) {
        let text = format!(
            "{} holds {len} records; with {records} more it would pass {MAX_RECORDS}, the most of a store",
            path.display()
        );
        return Err(Error::new(ErrorKind::Full, text)
            .with_help("reshape the array so that a record holds several of its rows"));
    }
    Ok(len)
}

fn exists(path: &Path, what: &str) -> Error {
    Error::new(ErrorKind::Exists, format!("{} holds {what}", path.display()))
        .with_help("choose another path, or open what is there")
}

fn no_schema(store: &Store) -> Error {
    let text = format!("{} holds no schema.json: its records have no dtype", store.path().display());
    Error::new(ErrorKind::NotFound, text).with_help("use Store for their bytes")
}
