//! schema.json: what one record of a dense store is.

use std::fmt;
use std::fs::File;
use std::io::Read;
use std::path::Path;

use ndarray::{ArrayRef, RemoveAxis};
use serde_json::{Value, json};

use super::Element;
use super::dtype::Dtype;
use crate::codec::Codec;
use crate::error::{Error, ErrorKind, Result};
use crate::format::Version;
use crate::storage::open_regular;
use crate::store::Store;

/// Name of the file in a store's folder.
const NAME: &str = "schema.json";
/// The same while it is being written.
const UNFINISHED: &str = "schema.json.new";
const FORMAT: &str = "loaderx-zrecord";
/// A schema takes some hundred bytes; a larger file is something else.
const MAX_BYTES: usize = 64 << 10;
/// Most axes that NumPy allows.
const MAX_AXES: usize = 64;
/// Bytes before the text of a .npy header: magic, version, length.
const NPY_PREAMBLE: usize = 10;

/// dtype and shape of one record, as loaderx writes them, and how records are stored that are appended.
///
/// Every number type of NumPy and bool, in either byte order. Displays as dtype and shape.
///
/// ```
/// use zrfs::{Codec, Schema};
///
/// # fn main() -> zrfs::Result<()> {
/// let schema = Schema::new("<f4", &[3, 32, 32], Codec::default())?;
/// assert_eq!(schema.record_bytes(), 3 * 32 * 32 * 4);
/// assert_eq!(schema, Schema::of::<f32>(&[3, 32, 32], Codec::default())?);
/// assert_eq!(schema.to_string(), "<f4 [3, 32, 32]");
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Schema {
    dtype: Dtype,
    shape: Vec<u64>,
    codec: Codec,
}

impl Schema {
    /// A schema of records of `dtype` (NumPy's string: `<f4`, `|u1`) and `shape` (`[]` for scalars). `codec` is what
    /// appended records are stored with, by loaderx as well; schema.json has no place for its level.
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`] for dtypes that are no number and no bool: Python objects, structured ones, text,
    /// times; and for a shape that no memory holds.
    pub fn new(dtype: &str, shape: &[u64], codec: Codec) -> Result<Schema> {
        let dtype = Dtype::parse(dtype)?;
        let bytes = shape.iter().try_fold(dtype.item_bytes(), |bytes, &n| bytes.checked_mul(n));
        if bytes.is_none_or(|bytes| i64::try_from(bytes).is_err()) || shape.len() > MAX_AXES {
            let text = format!("no record has the shape {shape:?}");
            return Err(Error::new(ErrorKind::Unsupported, text));
        }
        Ok(Schema { dtype, shape: shape.to_vec(), codec })
    }

    /// A schema of records of numbers `T`.
    ///
    /// # Errors
    /// As for [`Schema::new`].
    pub fn of<T: Element>(shape: &[u64], codec: Codec) -> Result<Schema> {
        Schema::new(T::DTYPE, shape, codec)
    }

    /// That of an array's records, one for each index of axis 0.
    pub(super) fn of_array<T: Element, D: RemoveAxis>(
        array: &ArrayRef<T, D>,
        codec: Codec,
    ) -> Result<Schema> {
        let Some((_, shape)) = array.shape().split_first() else {
            return Err(Error::new(ErrorKind::Geometry, "an array of rank 0 holds no records")
                .with_help("a dataset has one record for each index of axis 0"));
        };
        let shape: Vec<u64> = shape.iter().map(|&n| n as u64).collect();
        Schema::of::<T>(&shape, codec)
    }

    /// Reads the schema of `store`; `None` where it has none.
    ///
    /// # Errors
    /// [`ErrorKind::Damaged`] where schema.json is no schema, [`ErrorKind::Unsupported`] as for [`Schema::new`] and for
    /// a codec that loaderx 0.5.0 does not have.
    pub fn read(store: &Store) -> Result<Option<Schema>> {
        let Some(bytes) = store.read_companion(NAME, MAX_BYTES)? else { return Ok(None) };
        let place = store.path().join(NAME).display().to_string();
        Schema::from_json(&bytes).map(Some).map_err(|e| e.within(&place))
    }

    /// Reads the schema in the folder `folder`, whether or not it holds a store.
    pub(super) fn read_in(folder: &Path) -> Result<Option<Schema>> {
        let path = folder.join(NAME);
        let place = path.display().to_string();
        let failed = |e| Error::io(format!("can't read {place}"), e);
        let file = match open_regular(&path) {
            Ok(file) => file,
            // Whether the folder is one is for the store to say.
            Err(e)
                if matches!(e.kind(), std::io::ErrorKind::NotFound | std::io::ErrorKind::NotADirectory) =>
            {
                return Ok(None);
            }
            Err(e) => return Err(failed(e)),
        };
        let mut bytes = Vec::new();
        file.take(MAX_BYTES as u64 + 1).read_to_end(&mut bytes).map_err(failed)?;
        if bytes.len() > MAX_BYTES {
            let text = format!("{place} is larger than {MAX_BYTES} bytes");
            return Err(Error::new(ErrorKind::Damaged, text));
        }
        Schema::from_json(&bytes).map(Some).map_err(|e| e.within(&place))
    }

    /// Writes schema.json into a store that has none. It is there as a whole or not at all, also after a power cut, and
    /// durable when this returns.
    ///
    /// # Errors
    /// [`ErrorKind::Exists`], [`ErrorKind::ReadOnly`], and what the system refuses.
    pub fn write(&self, store: &Store) -> Result<()> {
        let (unfinished, path) = (store.path().join(UNFINISHED), store.path().join(NAME));
        let failed = |e| Error::io(format!("can't write {}", path.display()), e);
        if path.try_exists().map_err(failed)? {
            return Err(Error::new(ErrorKind::Exists, format!("{} exists already", path.display())));
        }
        let json = self.to_json();
        match store.write_companion(UNFINISHED, json.as_bytes()) {
            // What a power cut has left.
            Err(e) if e.kind() == ErrorKind::Exists => {
                std::fs::remove_file(&unfinished).map_err(failed)?;
                store.write_companion(UNFINISHED, json.as_bytes())?;
            }
            written => written?,
        }
        std::fs::rename(&unfinished, &path).map_err(failed)?;
        File::open(store.path()).and_then(|folder| folder.sync_all()).map_err(failed)
    }

    /// Parses the contents of a schema.json.
    ///
    /// # Errors
    /// As for [`Schema::read`].
    pub fn from_json(bytes: &[u8]) -> Result<Schema> {
        let damaged = |text: &str| Error::new(ErrorKind::Damaged, text);
        let value: Value =
            serde_json::from_slice(bytes).map_err(|e| damaged(&format!("is not JSON: {e}")))?;
        if value.get("format").and_then(Value::as_str) != Some(FORMAT) {
            return Err(damaged(&format!("is not a {FORMAT} schema")));
        }
        let dtype = value.get("dtype").and_then(Value::as_str).ok_or_else(|| damaged("has no dtype"))?;
        let shape = value.get("shape").and_then(Value::as_array).ok_or_else(|| damaged("has no shape"))?;
        let shape: Option<Vec<u64>> = shape.iter().map(Value::as_u64).collect();
        let shape = shape.ok_or_else(|| damaged("has a shape that is not a list of lengths"))?;
        let codec = match value.get("codec") {
            None => Codec::default(),
            Some(name) if name == "flate" => Codec::default(),
            Some(name) if name == "raw" => Codec::Raw,
            Some(name) => {
                let text = format!("has the codec {name}, which is not known: \"flate\" and \"raw\" are");
                return Err(Error::new(ErrorKind::Unsupported, text));
            }
        };
        Schema::new(dtype, &shape, codec)
    }

    /// The contents of schema.json, laid out as loaderx lays it out.
    pub fn to_json(&self) -> String {
        let value = json!({
            "format": FORMAT,
            "version": 1,
            "dtype": self.dtype(),
            "shape": self.shape,
            "codec": match self.codec {
                Codec::Raw => "raw",
                Codec::Flate(_) => "flate",
            },
        });
        format!("{value:#}\n")
    }

    /// NumPy's dtype string: byte order, kind, bytes of an item.
    pub fn dtype(&self) -> &str {
        self.dtype.name()
    }

    /// Lengths of one record's axes.
    pub fn shape(&self) -> &[u64] {
        &self.shape
    }

    /// What appended records are stored with; at [`Codec::DEFAULT_LEVEL`] where it was read from a file.
    pub fn codec(&self) -> Codec {
        self.codec
    }

    /// Size of one record in bytes.
    pub fn record_bytes(&self) -> u64 {
        self.items() * self.dtype.item_bytes()
    }

    /// Numbers in one record.
    pub(super) fn items(&self) -> u64 {
        // Neither overflows: the product was checked when it was made.
        self.shape.iter().product()
    }

    /// Whether numbers have their most significant byte first, against this machine's order.
    pub(super) fn is_big_endian(&self) -> bool {
        self.dtype.is_big_endian()
    }

    /// Checks that the records of `other` are of this dtype and shape.
    pub(super) fn check_same(&self, other: &Schema) -> Result<()> {
        let kind = if self.dtype != other.dtype {
            ErrorKind::Unsupported
        } else if self.shape != other.shape {
            ErrorKind::Geometry
        } else {
            return Ok(());
        };
        Err(Error::new(kind, format!("it holds records of {self}, these are of {other}")))
    }

    /// Checks that a store of `version` holds such records, and that they are not empty.
    pub(super) fn check_fits(&self, version: Version) -> Result<()> {
        let (bytes, lengths) = (self.record_bytes(), version.record_bytes());
        if bytes > 0 && bytes <= u64::from(*lengths.end()) {
            return Ok(());
        }
        let most = lengths.end();
        let text =
            format!("a record of {self} has {bytes} bytes: a dataset holds 1 to {most} bytes a record");
        Err(Error::new(ErrorKind::RecordSize, text))
    }

    /// The header of a .npy file that holds one record, byte for byte as NumPy 2 writes it, so that a file that was packed
    /// comes out as it was. The record's bytes follow it.
    pub fn npy_header(&self) -> Vec<u8> {
        let shape: String = match self.shape.as_slice() {
            [one] => format!("({one},)"),
            many => format!("({})", many.iter().map(u64::to_string).collect::<Vec<_>>().join(", ")),
        };
        let mut text = format!("{{'descr': '{}', 'fortran_order': False, 'shape': {shape}, }}", self.dtype());
        // NumPy leaves room for the first axis to grow to 21 digits in its place.
        let growth = self.shape.first().map_or(0, |first| 21usize.saturating_sub(first.to_string().len()));
        let len = (NPY_PREAMBLE + text.len() + growth + 1).next_multiple_of(64);
        text.extend(std::iter::repeat_n(' ', len - NPY_PREAMBLE - text.len() - 1));
        text.push('\n');
        // A store's shapes are short: the header's text fits.
        let text_len = u16::try_from(text.len()).unwrap_or(u16::MAX);
        [&b"\x93NUMPY\x01\x00"[..], &text_len.to_le_bytes(), text.as_bytes()].concat()
    }
}

impl fmt::Display for Schema {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {:?}", self.dtype(), self.shape)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_is_loaderxs_both_ways() {
        let text = r#"{"format": "loaderx-zrecord", "version": 1, "dtype": "<f4", "shape": [3, 32, 32], "codec": "flate"}"#;
        let schema = Schema::from_json(text.as_bytes()).unwrap();
        assert_eq!((schema.dtype(), schema.shape(), schema.record_bytes()), ("<f4", &[3, 32, 32][..], 12288));
        assert_eq!(schema.codec(), Codec::default());
        assert_eq!(Schema::from_json(schema.to_json().as_bytes()).unwrap(), schema);
        let ours: Value = serde_json::from_str(&schema.to_json()).unwrap();
        assert_eq!(ours, serde_json::from_str::<Value>(text).unwrap());
        let raw = text.replace("flate", "raw");
        let raw = Schema::from_json(raw.as_bytes()).unwrap();
        assert_eq!(raw.codec(), Codec::Raw);
        assert_eq!(Schema::from_json(raw.to_json().as_bytes()).unwrap(), raw);
    }

    #[test]
    fn hostile_schemas_are_errors() {
        for text in [
            "",
            "[]",
            "{}",
            r#"{"format": "other"}"#,
            r#"{"format": "loaderx-zrecord", "dtype": "<f4", "shape": [-1]}"#,
            r#"{"format": "loaderx-zrecord", "dtype": "<f4", "shape": [1.5]}"#,
            r#"{"format": "loaderx-zrecord", "dtype": "<f4", "shape": [4294967296, 4294967296]}"#,
            r#"{"format": "loaderx-zrecord", "dtype": "<f4", "shape": [4611686018427387904]}"#,
            r#"{"format": "loaderx-zrecord", "dtype": "|O", "shape": []}"#,
            r#"{"format": "loaderx-zrecord", "dtype": "é", "shape": []}"#,
            r#"{"format": "loaderx-zrecord", "dtype": "<f+4", "shape": []}"#,
        ] {
            assert!(Schema::from_json(text.as_bytes()).is_err(), "{text}");
        }
        for codec in [r#""zstd""#, "1", "null"] {
            let text =
                format!(r#"{{"format": "loaderx-zrecord", "dtype": "<f4", "shape": [], "codec": {codec}}}"#);
            let e = Schema::from_json(text.as_bytes()).unwrap_err();
            assert!(e.kind() == ErrorKind::Unsupported && e.to_string().contains(codec), "{e}");
        }
    }

    #[test]
    fn npy_headers_are_aligned_and_read_back() {
        for dtype in [
            "|b1", "|u1", "|i1", "<i2", "<u8", "<f2", "<f4", "<f8", "<c8", "<c16", "<f16", ">f4", ">i8",
            ">c32",
        ] {
            for shape in [&[][..], &[7], &[3, 32, 32]] {
                let header = Schema::new(dtype, shape, Codec::Raw).unwrap().npy_header();
                assert!(header.len().is_multiple_of(64) && !header.is_empty(), "{dtype} {shape:?}");
                let read = npyz::NpyHeader::from_reader(&header[..]).unwrap();
                assert_eq!((read.dtype().descr(), read.shape()), (format!("'{dtype}'"), shape));
            }
        }
        // What numpy.save writes.
        let mut expected = b"\x93NUMPY\x01\x00v\x00".to_vec();
        expected.extend_from_slice(b"{'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), }");
        expected.resize(127, b' ');
        expected.push(b'\n');
        assert_eq!(Schema::new("<f4", &[3, 4], Codec::Raw).unwrap().npy_header(), expected);
    }

    #[test]
    fn a_schema_is_written_once_and_over_what_a_power_cut_has_left() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("s.zr");
        let store = Store::create(&path, Version::V1).unwrap();
        let schema = Schema::of::<f32>(&[2], Codec::Raw).unwrap();
        std::fs::write(path.join(UNFINISHED), "{\"form").unwrap();
        schema.write(&store).unwrap();
        assert_eq!(Schema::read(&store).unwrap(), Some(schema.clone()));
        assert_eq!(Schema::read_in(&path).unwrap(), Some(schema.clone()));
        assert!(!path.join(UNFINISHED).exists());
        assert_eq!(schema.write(&store).unwrap_err().kind(), ErrorKind::Exists);
        assert_eq!(Schema::read_in(folder.path()).unwrap(), None);
        std::fs::write(folder.path().join(NAME), vec![b' '; MAX_BYTES + 1]).unwrap();
        assert!(Schema::read_in(folder.path()).unwrap_err().to_string().contains("larger"));
    }
}
