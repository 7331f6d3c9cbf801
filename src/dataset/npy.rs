//! .npy files as a source of dense records: one record for each index of the first axis.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::Path;

use npyz::{DType, NpyHeader, Order};

use super::Schema;
use crate::error::{Error, ErrorKind, Result};
use crate::storage::open_regular;

/// Longest header that is read, in bytes. NumPy's own limit is 10,000.
const MAX_HEADER: u64 = 64 << 10;
/// Deepest nesting of brackets in a header: a shape inside the dictionary takes 2, the rest is for descriptions of
/// structured types, which are refused by name. The header's parser recurses, so this bounds its stack.
const MAX_NESTING: usize = 16;

/// An open .npy file, its data not read yet.
#[derive(Debug)]
pub struct NpyFile {
    file: File,
    schema: Schema,
    records: u64,
}

impl NpyFile {
    /// Opens the array at `path` and checks its header and its size.
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`] with the reason for what has no dense records: Fortran order, rank 0, object,
    /// structured and big-endian dtypes. [`ErrorKind::Damaged`] where it is no .npy file or is cut short.
    pub fn open(path: &Path, codec: &str) -> Result<NpyFile> {
        let place = path.display().to_string();
        let mut file = open_regular(path).map_err(|e| Error::io(format!("can't open {place}"), e))?;
        let header = read_header(&mut file).map_err(|e| e.within(&place))?;
        let (records, schema) = check(&header, codec).map_err(|e| e.within(&place))?;
        let io = |e| Error::io(format!("can't read {place}"), e);
        let start = file.stream_position().map_err(io)?;
        let len = file.metadata().map_err(io)?.len();
        let needs = records.checked_mul(schema.record_bytes()).and_then(|n| n.checked_add(start));
        if needs.is_none_or(|needs| needs > len) {
            return Err(Error::new(
                ErrorKind::Damaged,
                format!("{place} is cut short: its header promises more than its {len} bytes"),
            ));
        }
        Ok(NpyFile { file, schema, records })
    }

    /// dtype and shape of a record: the array's without the first axis.
    pub fn schema(&self) -> &Schema {
        &self.schema
    }

    /// Length of the first axis.
    pub fn records(&self) -> u64 {
        self.records
    }

    /// Fills `dst` with the next bytes of the array.
    ///
    /// # Errors
    /// What the system refuses, and where the file was cut meanwhile.
    pub fn read_exact(&mut self, dst: &mut [u8]) -> std::io::Result<()> {
        self.file.read_exact(dst)
    }
}

/// Reads a header; leaves the file at its data.
fn read_header(file: &mut File) -> Result<NpyHeader> {
    let io = |e| Error::io("can't be read", e);
    let not_npy = |why: &str| Error::new(ErrorKind::Damaged, format!("not a .npy file: {why}"));
    // The header's own length, up to 4 GiB, is checked before anything is allocated for it.
    let mut head = [0; 12];
    file.read_exact(&mut head).map_err(|_| not_npy("it is too short"))?;
    let [m0, m1, m2, m3, m4, m5, major, _, l0, l1, l2, l3] = head;
    if [m0, m1, m2, m3, m4, m5] != *b"\x93NUMPY" {
        return Err(not_npy("it does not begin with NumPy's magic"));
    }
    let len = match major {
        1 => 10 + u64::from(u16::from_le_bytes([l0, l1])),
        _ => 12 + u64::from(u32::from_le_bytes([l0, l1, l2, l3])),
    };
    if len > MAX_HEADER {
        return Err(not_npy(&format!("its header says it has {len} bytes")));
    }
    file.seek(SeekFrom::Start(0)).map_err(io)?;
    let mut bytes = Vec::new();
    file.take(len).read_to_end(&mut bytes).map_err(io)?;
    let mut depth = 0usize;
    for byte in &bytes {
        match byte {
            b'(' | b'[' | b'{' => depth += 1,
            b')' | b']' | b'}' => depth = depth.saturating_sub(1),
            _ => {}
        }
        if depth > MAX_NESTING {
            return Err(not_npy("its header is nested too deeply"));
        }
    }
    NpyHeader::from_reader(&bytes[..]).map_err(|e| not_npy(&e.to_string()))
}

/// The number of records and what one is.
fn check(header: &NpyHeader, codec: &str) -> Result<(u64, Schema)> {
    let unsupported =
        |text: &str, help: &str| Err(Error::new(ErrorKind::Unsupported, text).with_help(help.to_owned()));
    let DType::Plain(dtype) = header.dtype() else {
        return unsupported("structured dtypes are not supported", "save each field as an array of its own");
    };
    if header.uses_pickled_array() {
        return unsupported("Python objects are not supported", "convert it to a number type first");
    }
    if header.order() == Order::Fortran && header.shape().len() > 1 {
        return unsupported("Fortran order is not supported", "save it again after np.ascontiguousarray");
    }
    let Some((&records, shape)) = header.shape().split_first() else {
        return unsupported(
            "an array of rank 0 is not supported",
            "a store holds one record for each index of the first axis",
        );
    };
    Ok((records, Schema::new(&dtype.to_string(), shape, codec)?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    fn open(header: &str, data: usize) -> Result<NpyFile> {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(b"\x93NUMPY\x01\0").unwrap();
        file.write_all(&u16::try_from(header.len()).unwrap().to_le_bytes()).unwrap();
        file.write_all(header.as_bytes()).unwrap();
        file.write_all(&vec![7; data]).unwrap();
        NpyFile::open(file.path(), "flate")
    }

    #[test]
    fn a_header_gives_records_and_schema() {
        let npy = open("{'descr': '<f4', 'fortran_order': False, 'shape': (5, 2, 3), }\n", 120).unwrap();
        assert_eq!((npy.records(), npy.schema().dtype(), npy.schema().shape()), (5, "<f4", &[2, 3][..]));
    }

    #[test]
    fn what_has_no_dense_records_is_refused_with_its_reason() {
        let text = |header: &str| open(header, 120).unwrap_err().to_string();
        assert!(text("{'descr': '<f4', 'fortran_order': True, 'shape': (5, 6), }").contains("Fortran order"));
        assert!(text("{'descr': '|O', 'fortran_order': False, 'shape': (5,), }").contains("Python objects"));
        assert!(
            text("{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (5,), }").contains("structured")
        );
        assert!(text("{'descr': '>f4', 'fortran_order': False, 'shape': (5,), }").contains("big-endian"));
        assert!(text("{'descr': '<U4', 'fortran_order': False, 'shape': (5,), }").contains("no number"));
        assert!(text("{'descr': '<f4', 'fortran_order': False, 'shape': (), }").contains("rank 0"));
        assert!(text("{'descr': '<f4', 'fortran_order': False, 'shape': (31,), }").contains("cut short"));
    }

    #[test]
    fn hostile_headers_are_errors() {
        let nested = format!("{{'descr': {}", "(".repeat(20_000));
        let huge = "{'descr': '<f8', 'fortran_order': False, 'shape': (9999999999999, 9999999999999), }";
        for header in ["", "{", nested.as_str(), "{'descr': '<f4'}", "{'shape': (-1,)}", huge] {
            let e = open(header, 100).unwrap_err();
            assert!(matches!(e.kind(), ErrorKind::Damaged | ErrorKind::Unsupported), "{e}");
        }
    }
}
