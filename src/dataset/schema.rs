//! schema.json: what one record of a dense store is.

use npyz::{DType, WriteOptions, WriterBuilder};
use serde_json::{Value, json};

use crate::error::{Error, ErrorKind, Result};
use crate::store::Store;

/// Name of the file in a store's folder.
const NAME: &str = "schema.json";
const FORMAT: &str = "loaderx-zrecord";
/// A schema takes some hundred bytes; a larger file is something else.
const MAX_BYTES: usize = 64 << 10;
/// Most axes that NumPy allows.
const MAX_AXES: usize = 64;

/// dtype and shape of one record, as loaderx writes them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Schema {
    dtype: String,
    item_size: u64,
    shape: Vec<u64>,
    codec: String,
}

impl Schema {
    /// A schema of records of `dtype` (NumPy's string: `<f4`, `|u1`) and `shape` (`[]` for scalars); `codec` is the
    /// default that loaderx appends with, `flate` or `raw`.
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`] for dtypes that are not a little-endian number or bool.
    pub fn new(dtype: &str, shape: &[u64], codec: &str) -> Result<Schema> {
        let item_size = item_size(dtype)?;
        let bytes = shape.iter().try_fold(item_size, |bytes, &n| bytes.checked_mul(n));
        if bytes.is_none() || shape.len() > MAX_AXES {
            let text = format!("no record has the shape {shape:?}");
            return Err(Error::new(ErrorKind::Unsupported, text));
        }
        Ok(Schema { dtype: dtype.to_owned(), item_size, shape: shape.to_vec(), codec: codec.to_owned() })
    }

    /// Reads the schema of `store`; `None` where it has none.
    ///
    /// # Errors
    /// [`ErrorKind::Damaged`] where schema.json is no schema, [`ErrorKind::Unsupported`] as for [`Schema::new`].
    pub fn read(store: &Store) -> Result<Option<Schema>> {
        let Some(bytes) = store.read_companion(NAME, MAX_BYTES)? else { return Ok(None) };
        let place = store.path().join(NAME).display().to_string();
        Schema::from_json(&bytes).map(Some).map_err(|e| e.within(&place))
    }

    /// Writes schema.json into a store that has none.
    ///
    /// # Errors
    /// [`ErrorKind::Exists`], [`ErrorKind::ReadOnly`], and what the system refuses.
    pub fn write(&self, store: &Store) -> Result<()> {
        store.write_companion(NAME, self.to_json().as_bytes())
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
        let codec = value.get("codec").and_then(Value::as_str).unwrap_or("flate");
        Schema::new(dtype, &shape, codec)
    }

    /// The contents of schema.json, laid out as loaderx lays it out.
    pub fn to_json(&self) -> String {
        let value = json!({
            "format": FORMAT,
            "version": 1,
            "dtype": self.dtype,
            "shape": self.shape,
            "codec": self.codec,
        });
        format!("{value:#}\n")
    }

    /// NumPy's dtype string.
    pub fn dtype(&self) -> &str {
        &self.dtype
    }

    /// Lengths of one record's axes.
    pub fn shape(&self) -> &[u64] {
        &self.shape
    }

    /// Size of one record in bytes.
    pub fn record_bytes(&self) -> u64 {
        self.shape.iter().product::<u64>() * self.item_size
    }

    /// The header of a .npy file that holds one record. The record's bytes follow it.
    pub fn npy_header(&self) -> Vec<u8> {
        let Ok(dtype) = self.dtype.parse() else { return Vec::new() };
        WriteOptions::new_header_only()
            .dtype(DType::new_scalar(dtype))
            .shape(&self.shape)
            .writer(Vec::new())
            .write_header_only()
            .unwrap_or_default()
    }
}

/// Bytes of one item of a dtype that a store may hold: bool, signed, unsigned, float, complex.
fn item_size(dtype: &str) -> Result<u64> {
    let refuse = |why: &str, help: &str| {
        let text = format!("dtype {dtype} is not supported: {why}");
        Err(Error::new(ErrorKind::Unsupported, text).with_help(help.to_owned()))
    };
    let to_number = "convert the array to a number type first";
    let mut chars = dtype.chars();
    let (order, kind) = (chars.next(), chars.next());
    // parse takes a sign; NumPy's strings have none.
    let digits = chars.as_str();
    let size = digits.parse::<u64>().ok().filter(|_| digits.bytes().all(|b| b.is_ascii_digit()));
    let Some(size) = size else { return refuse("it is no plain number", to_number) };
    let fits = match kind {
        Some('b') => size == 1,
        Some('i' | 'u') => matches!(size, 1 | 2 | 4 | 8),
        Some('f') => matches!(size, 2 | 4 | 8 | 16),
        Some('c') => matches!(size, 8 | 16 | 32),
        _ => return refuse("it is no number or bool", to_number),
    };
    match order {
        _ if !fits => refuse("no number has that size", to_number),
        Some('<') => Ok(size),
        Some('|') if size == 1 => Ok(size),
        Some('>') => refuse("it is big-endian", "save it again after a.astype(a.dtype.newbyteorder('<'))"),
        _ => refuse("its byte order is not known", to_number),
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
        assert_eq!(Schema::from_json(schema.to_json().as_bytes()).unwrap(), schema);
        let ours: Value = serde_json::from_str(&schema.to_json()).unwrap();
        assert_eq!(ours, serde_json::from_str::<Value>(text).unwrap());
    }

    #[test]
    fn hostile_schemas_are_errors() {
        for text in [
            "",
            "[]",
            "{}",
            r#"{"format": "other"}"#,
            r#"{"format": "loaderx-zrecord", "dtype": "<f4", "shape": [-1]}"#,
            r#"{"format": "loaderx-zrecord", "dtype": "<f4", "shape": [4294967296, 4294967296]}"#,
            r#"{"format": "loaderx-zrecord", "dtype": "|O", "shape": []}"#,
            r#"{"format": "loaderx-zrecord", "dtype": ">f4", "shape": []}"#,
            r#"{"format": "loaderx-zrecord", "dtype": "é", "shape": []}"#,
            r#"{"format": "loaderx-zrecord", "dtype": "<f+4", "shape": []}"#,
        ] {
            assert!(Schema::from_json(text.as_bytes()).is_err(), "{text}");
        }
    }

    #[test]
    fn npy_headers_are_aligned_and_read_back() {
        for dtype in ["|b1", "|u1", "|i1", "<i2", "<u8", "<f2", "<f4", "<f8", "<c8", "<c16"] {
            for shape in [&[][..], &[7], &[3, 32, 32]] {
                let header = Schema::new(dtype, shape, "raw").unwrap().npy_header();
                assert!(header.len().is_multiple_of(64) && !header.is_empty(), "{dtype} {shape:?}");
                let read = npyz::NpyHeader::from_reader(&header[..]).unwrap();
                assert_eq!((read.dtype().descr(), read.shape()), (format!("'{dtype}'"), shape));
            }
        }
    }
}
