//! Writing records: arrays, laid out in memory as they may be, and streams of bytes.

use std::io::Read;
use std::path::Path;

use ndarray::{ArrayRef, ArrayViewMut, Axis, RemoveAxis};

use super::{Dataset, Element, Schema, element, refuse_before_change};
use crate::codec::Codec;
use crate::error::{Error, ErrorKind, Result};

/// Bytes that are copied at a time, or one larger record.
const PIECE: usize = if cfg!(test) { 1 << 10 } else { 32 << 20 };

impl Dataset {
    /// Writes `array` (an array or a view of any layout, in ndarray's words) as one record for each index of axis 0; one of rank
    /// 1 gives scalars. A new dataset is created with `codec`. Where one of equal dtype and shape is, the records are
    /// appended to it, with the codec that it has. They are durable when this returns.
    ///
    /// Memory: about 64 MiB to pack, and 32 MiB to copy where the array is not contiguous, or a larger record for each.
    ///
    /// # Errors
    /// Before anything is created or changed: [`ErrorKind::Unsupported`] and [`ErrorKind::Geometry`] where a dataset of
    /// another dtype or shape is; [`ErrorKind::Exists`], [`ErrorKind::RecordSize`] and [`ErrorKind::Full`] as for
    /// [`Dataset::create`] and [`Dataset::append`]. What the system refuses: the dataset is as it was then, or empty if it
    /// was new.
    ///
    /// ```
    /// # fn main() -> zrfs::Result<()> {
    /// # let folder = tempfile::tempdir().unwrap();
    /// # let path = folder.path().join("train.zr");
    /// use ndarray::{Array2, s};
    /// use zrfs::{Codec, Dataset, ErrorKind};
    ///
    /// let array = Array2::from_shape_fn((100, 8), |(i, j)| (i * 8 + j) as f32);
    /// Dataset::write(&path, &array.slice(s![..;2, ..]), Codec::Raw)?;
    /// let dataset = Dataset::write(&path, &array.slice(s![1..;2, ..]), Codec::Raw)?;
    /// assert_eq!(dataset.len(), 100);
    /// assert_eq!(dataset.select::<f32>(50..)?, array.slice(s![1..;2, ..]).into_dyn());
    ///
    /// let refused = Dataset::write(&path, &array.slice(s![.., ..4]), Codec::Raw);
    /// assert_eq!(refused.unwrap_err().kind(), ErrorKind::Geometry);
    /// # Ok(())
    /// # }
    /// ```
    pub fn write<T: Element, D: RemoveAxis>(
        path: impl AsRef<Path>,
        array: &ArrayRef<T, D>,
        codec: Codec,
    ) -> Result<Dataset> {
        let path = path.as_ref();
        let schema = Schema::of_array(array, codec)?;
        let records = array.len_of(Axis(0)) as u64;
        let dataset = match Schema::read_in(path)? {
            Some(there) => {
                there.check_same(&schema).map_err(|e| e.within(&path.display().to_string()))?;
                refuse_before_change(path, &schema, records)?;
                Dataset::open(path)?
            }
            None => Dataset::create_for(path, &schema, records)?,
        };
        dataset.append(array)?;
        dataset.sync()?;
        Ok(dataset)
    }

    /// Appends one record for each index of axis 0, all or none; returns the first one's index. They are stored with the
    /// schema's codec.
    ///
    /// Visible to this process when it returns; durable, and visible to others, after [`Dataset::sync`]. Memory: as for
    /// [`Dataset::write`].
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`] and [`ErrorKind::Geometry`] where dtype or shape differ, [`ErrorKind::RecordSize`] where
    /// records are empty; as for [`Store::append`](crate::store::Store::append).
    pub fn append<T: Element, D: RemoveAxis>(&self, array: &ArrayRef<T, D>) -> Result<u64> {
        let codec = self.schema.codec();
        self.schema.check_same(&Schema::of_array(array, codec)?).map_err(|e| self.here(e))?;
        self.require_bytes()?;
        if let Some(elements) = array.as_slice() {
            return self.store.append(bytemuck::cast_slice(elements), self.record_len, codec);
        }
        let rows = (PIECE / self.record_len).max(1);
        let mut buffer: Vec<T> =
            element::zeroed(self.record_len / size_of::<T>() * rows.min(array.len_of(Axis(0))))?;
        let mut appender = self.store.appender()?;
        for block in array.axis_chunks_iter(Axis(0), rows) {
            let copy = buffer.get_mut(..block.len()).unwrap_or_default();
            ArrayViewMut::from_shape(block.raw_dim(), &mut *copy)
                .map_err(|e| Error::new(ErrorKind::Geometry, format!("a block can't be copied: {e}")))?
                .assign(&block);
            appender.append(bytemuck::cast_slice(copy), self.record_len, codec)?;
        }
        appender.commit()
    }

    /// Appends the records that `source` has, one after another, to its end, all or none; returns the first one's index.
    /// Their bytes are taken as they come: the array of a .npy file is checked by [`NpyFile::into_records`].
    ///
    /// Other appends wait meanwhile, and those of other processes are refused. Visible and durable as
    /// [`Dataset::append`] says. Memory: 32 MiB, or one larger record, beside what packing takes.
    ///
    /// # Errors
    /// [`ErrorKind::Io`] where the source fails and [`ErrorKind::Geometry`] where it ends inside a record, with nothing
    /// appended; as for [`Dataset::append`].
    ///
    /// ```
    /// # fn main() -> zrfs::Result<()> {
    /// # let folder = tempfile::tempdir().unwrap();
    /// # let path = folder.path().join("train.zr");
    /// use zrfs::{Codec, Dataset, Schema};
    ///
    /// let dataset = Dataset::create(&path, &Schema::of::<u8>(&[3], Codec::default())?)?;
    /// assert_eq!(dataset.append_from(&b"aaabbbccc"[..])?, 0);
    /// assert!(dataset.append_from(&b"dddee"[..]).is_err());
    /// assert_eq!(dataset.get_bytes(-1)?, b"ccc");
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// [`NpyFile::into_records`]: super::NpyFile::into_records
    pub fn append_from(&self, mut source: impl Read) -> Result<u64> {
        self.require_bytes()?;
        let piece = (PIECE / self.record_len).max(1) * self.record_len;
        let mut appender = self.store.appender()?;
        let mut bytes = Vec::new();
        loop {
            bytes.clear();
            source.by_ref().take(piece as u64).read_to_end(&mut bytes).map_err(|e| {
                Error::io(format!("can't read the records to append to {}", self.path().display()), e)
            })?;
            let rest = bytes.len() % self.record_len;
            if rest != 0 {
                let len = self.record_len;
                let text = format!("the source ends inside a record, after {rest} of its {len} bytes");
                return Err(self.here(Error::new(ErrorKind::Geometry, text)));
            }
            appender.append(&bytes, self.record_len, self.schema.codec())?;
            if bytes.len() < piece {
                return appender.commit();
            }
        }
    }

    /// Refuses to append records of no bytes.
    fn require_bytes(&self) -> Result<()> {
        self.schema.check_fits(self.store.version()).map_err(|e| self.here(e))
    }
}
