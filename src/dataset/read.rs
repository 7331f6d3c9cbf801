//! Reading records: typed arrays for whoever wants numbers, bytes for the rest.

use ndarray::{ArrayD, Axis};

use super::element;
use super::selection::resolve_index;
use super::{Dataset, Element, Selection};
use crate::error::{Error, ErrorKind, Result};

impl Dataset {
    /// One record, with the sample's shape; a negative index counts from the end.
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`] where `T` is not the dtype (nothing is converted); [`ErrorKind::OutOfRange`];
    /// [`ErrorKind::Damaged`] with the record's index, also for one whose length is not the schema's;
    /// [`ErrorKind::Io`], [`ErrorKind::Memory`].
    ///
    /// ```
    /// # fn main() -> zrfs::Result<()> {
    /// # let folder = tempfile::tempdir().unwrap();
    /// # let path = folder.path().join("train.zr");
    /// use ndarray::array;
    ///
    /// let dataset = zrfs::Dataset::write(&path, &array![[1.0, 2.0], [3.0, 4.0]], zrfs::Codec::default())?;
    /// assert_eq!(dataset.get::<f64>(-1)?, array![3.0, 4.0].into_dyn());
    /// # Ok(())
    /// # }
    /// ```
    pub fn get<T: Element>(&self, index: i64) -> Result<ArrayD<T>> {
        let index = self.resolve_index(index)?;
        self.typed(&[index]).map(|batch: ArrayD<T>| batch.index_axis_move(Axis(0), 0))
    }

    /// Records as an array of shape (n, *shape), in the order of the selection.
    ///
    /// Cost: one allocation of the result, into which records are decoded on all cores. [`Dataset::gather_into`] goes
    /// without it.
    ///
    /// # Errors
    /// As for [`Dataset::get`] and [`Selection::resolve`].
    ///
    /// ```
    /// # fn main() -> zrfs::Result<()> {
    /// # let folder = tempfile::tempdir().unwrap();
    /// # let path = folder.path().join("labels.zr");
    /// use ndarray::{Array1, array};
    ///
    /// let labels = zrfs::Dataset::write(&path, &Array1::from_iter(0i64..10), zrfs::Codec::default())?;
    /// assert_eq!(labels.select::<i64>(2..4)?, array![2, 3].into_dyn());
    /// assert_eq!(labels.select::<i64>(-2..)?, array![8, 9].into_dyn());
    /// assert_eq!(labels.select::<i64>(&[1, -1])?, array![1, 9].into_dyn());
    /// assert_eq!(labels.select::<f64>(..).unwrap_err().kind(), zrfs::ErrorKind::Unsupported);
    /// # Ok(())
    /// # }
    /// ```
    pub fn select<'a, T: Element>(&self, selection: impl Into<Selection<'a>>) -> Result<ArrayD<T>> {
        self.typed(&self.resolve(selection)?)
    }

    /// The bytes of one record, in C order and the dtype's byte order; a negative index counts from the end.
    ///
    /// # Errors
    /// As for [`Dataset::get`], whatever the dtype.
    pub fn get_bytes(&self, index: i64) -> Result<Vec<u8>> {
        let index = self.resolve_index(index)?;
        self.bytes(&[index])
    }

    /// The bytes of records, one after another: for dtypes that no [`Element`] reads.
    ///
    /// # Errors
    /// As for [`Dataset::select`], whatever the dtype.
    ///
    /// ```
    /// # fn main() -> zrfs::Result<()> {
    /// # let folder = tempfile::tempdir().unwrap();
    /// # let path = folder.path().join("big.zr");
    /// use zrfs::{Codec, Dataset, Schema};
    ///
    /// let dataset = Dataset::create(&path, &Schema::new(">u2", &[2], Codec::default())?)?;
    /// dataset.append_from(&[0, 1, 1, 0, 2, 3, 4, 5][..])?;
    /// let bytes = dataset.select_bytes(..1)?;
    /// let numbers: Vec<u16> = bytes.chunks(2).map(|b| u16::from_be_bytes([b[0], b[1]])).collect();
    /// assert_eq!(numbers, [1, 256]);
    /// # Ok(())
    /// # }
    /// ```
    pub fn select_bytes<'a>(&self, selection: impl Into<Selection<'a>>) -> Result<Vec<u8>> {
        self.bytes(&self.resolve(selection)?)
    }

    /// Decodes records into `dst`, one after another, on all cores where that pays. Indices may repeat and come in any
    /// order; see [`Schema::view`](super::Schema::view) for numbers.
    ///
    /// Takes no lock and allocates 40 bytes a record.
    ///
    /// # Errors
    /// [`ErrorKind::Geometry`] where `dst` has not exactly the records' bytes; [`ErrorKind::OutOfRange`];
    /// [`ErrorKind::Damaged`] and [`ErrorKind::Io`] with the record's index, after which the contents of `dst` are
    /// unspecified.
    ///
    /// ```
    /// # fn main() -> zrfs::Result<()> {
    /// # let folder = tempfile::tempdir().unwrap();
    /// # let path = folder.path().join("train.zr");
    /// let array = ndarray::array![[1u8, 2], [3, 4], [5, 6]];
    /// let dataset = zrfs::Dataset::write(&path, &array, zrfs::Codec::default())?;
    /// let mut batch = [0; 4];
    /// dataset.gather_into(&[2, 0], &mut batch)?;
    /// assert_eq!(dataset.schema().view::<u8>(&batch, 2)?, ndarray::array![[5, 6], [1, 2]].into_dyn());
    /// # Ok(())
    /// # }
    /// ```
    pub fn gather_into(&self, indices: &[u64], dst: &mut [u8]) -> Result<()> {
        if indices.len().checked_mul(self.record_len) != Some(dst.len()) {
            let (n, each, room) = (indices.len(), self.record_len, dst.len());
            let text = format!("{n} records of {each} bytes do not fit a destination of {room} exactly");
            return Err(self.here(Error::new(ErrorKind::Geometry, text)));
        }
        self.store.gather_equal(indices, dst, self.record_len).map_err(|e| match e.kind() {
            // The destination is right, so a record is not.
            ErrorKind::Geometry => {
                let text = format!("{}: {}", self.path().display(), e.without_help());
                Error::new(ErrorKind::Damaged, text)
                    .with_help(format!("its schema.json tells of records of {}", self.schema))
            }
            _ => e,
        })
    }

    fn typed<T: Element>(&self, indices: &[u64]) -> Result<ArrayD<T>> {
        self.schema.check_type::<T>().map_err(|e| self.here(e))?;
        let too_large = || self.too_large(indices.len());
        let items = usize::try_from(self.schema.items()).ok().and_then(|n| n.checked_mul(indices.len()));
        let mut raw: Vec<T::Raw> = element::zeroed(items.ok_or_else(too_large)?)?;
        self.gather_into(indices, bytemuck::cast_slice_mut(&mut raw))?;
        let elements = T::from_raw(raw).map_err(|e| self.here(e))?;
        ArrayD::from_shape_vec(self.schema.batch_shape(indices.len()), elements).map_err(|_| too_large())
    }

    fn bytes(&self, indices: &[u64]) -> Result<Vec<u8>> {
        let len = indices.len().checked_mul(self.record_len);
        let mut bytes = element::zeroed(len.ok_or_else(|| self.too_large(indices.len()))?)?;
        self.gather_into(indices, &mut bytes)?;
        Ok(bytes)
    }

    pub(super) fn resolve<'a>(&self, selection: impl Into<Selection<'a>>) -> Result<Vec<u64>> {
        selection.into().resolve(self.len()).map_err(|e| self.here(e))
    }

    fn resolve_index(&self, index: i64) -> Result<u64> {
        resolve_index(index, self.len()).map_err(|e| self.here(e))
    }

    fn too_large(&self, records: usize) -> Error {
        let text = format!("{records} records of {} are more than memory has addresses for", self.schema);
        Error::new(ErrorKind::Memory, text)
    }
}
