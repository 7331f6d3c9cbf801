//! .npy files as a source of dense records: one record for each index of the first axis.

use std::fs::File;
use std::io::{self, Read, Take};
use std::path::Path;

use npyz::{DType, NpyHeader, Order};

use super::Schema;
use crate::codec::Codec;
use crate::error::{Error, ErrorKind, Result};
use crate::storage::open_regular;

/// Longest header that is read, in bytes. NumPy's own limit is 10,000.
const MAX_HEADER: u64 = 64 << 10;
/// Deepest nesting of brackets in a header: a shape inside the dictionary takes 2, the rest is for descriptions of
/// structured types, which are refused by name. The header's parser recurses, so this bounds its stack.
const MAX_NESTING: usize = 16;

/// An array in .npy format, its data not read yet: a file, or whatever `R` reads.
///
/// ```
/// # fn main() -> zrfs::Result<()> {
/// # let folder = tempfile::tempdir().unwrap();
/// # let npy = folder.path().join("train.npy");
/// # let store = folder.path().join("train.zr");
/// # let mut bytes = zrfs::Schema::new("<f4", &[2, 3], zrfs::Codec::Raw)?.npy_header();
/// # bytes.extend([0; 24]);
/// # std::fs::write(&npy, bytes).unwrap();
/// use zrfs::dataset::NpyFile;
/// use zrfs::{Codec, Dataset};
///
/// let array = NpyFile::open(&npy, Codec::default())?; // of shape (2, 3)
/// let dataset = Dataset::create(&store, array.schema())?;
/// dataset.append_from(array.into_records(dataset.schema())?)?;
/// dataset.sync()?;
/// assert_eq!((dataset.len(), dataset.schema().shape()), (2, &[3][..]));
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct NpyFile<R = File> {
    data: R,
    place: String,
    schema: Schema,
    records: u64,
}

impl NpyFile {
    /// Opens the array at `path` and checks its header and its size. `codec` becomes the schema's.
    ///
    /// # Errors
    /// As for [`NpyFile::read`]; what the system refuses.
    pub fn open(path: &Path, codec: Codec) -> Result<NpyFile> {
        let place = path.display().to_string();
        let file = open_regular(path).map_err(|e| Error::io(format!("can't open {place}"), e))?;
        let len = file.metadata().map_err(|e| Error::io(format!("can't read {place}"), e))?.len();
        NpyFile::read(file, len, place, codec)
    }
}

impl<R: Read> NpyFile<R> {
    /// Reads the header of the array that `data` begins with and checks it against the `len` bytes that `data` has. `place`
    /// is what messages call it; `codec` becomes the schema's.
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`] with the reason for what has no dense records: Fortran order, rank 0, and dtypes as for
    /// [`Schema::new`]. [`ErrorKind::Damaged`] where it is no .npy file or is cut short.
    pub fn read(mut data: R, len: u64, place: String, codec: Codec) -> Result<NpyFile<R>> {
        let (header, start) = read_header(&mut data).map_err(|e| e.within(&place))?;
        let (records, schema) = check(&header, codec).map_err(|e| e.within(&place))?;
        let needs = records.checked_mul(schema.record_bytes()).and_then(|n| n.checked_add(start));
        if needs.is_none_or(|needs| needs > len) {
            return Err(Error::new(
                ErrorKind::Damaged,
                format!("{place} is cut short: its header promises more than its {len} bytes"),
            ));
        }
        Ok(NpyFile { data, place, schema, records })
    }

    /// dtype and shape of a record: the array's without the first axis.
    pub fn schema(&self) -> &Schema {
        &self.schema
    }

    /// Length of the first axis.
    pub fn records(&self) -> u64 {
        self.records
    }

    /// The array's bytes, record after record, for whom takes records of `schema`.
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`] where the dtype is another, [`ErrorKind::Geometry`] where the shape is.
    pub fn into_records(self, schema: &Schema) -> Result<NpyRecords<R>> {
        schema.check_same(&self.schema).map_err(|e| {
            Error::new(e.kind(), format!("{} holds records of {}, not of {schema}", self.place, self.schema))
        })?;
        // It is no larger than the file.
        let left = self.records.saturating_mul(self.schema.record_bytes());
        Ok(NpyRecords { data: self.data.take(left) })
    }
}

/// The data of an array; see [`NpyFile::into_records`]. Ends with the array's last byte, whatever follows it. What ends
/// before it, as a file that was cut meanwhile, is an error.
#[derive(Debug)]
pub struct NpyRecords<R = File> {
    data: Take<R>,
}

impl<R> NpyRecords<R> {
    /// What the array was read from, at whatever follows the bytes that were read.
    pub fn into_inner(self) -> R {
        self.data.into_inner()
    }
}

impl<R: Read> Read for NpyRecords<R> {
    fn read(&mut self, dst: &mut [u8]) -> io::Result<usize> {
        let n = self.data.read(dst)?;
        if n == 0 && !dst.is_empty() && self.data.limit() > 0 {
            let text = format!("the array was cut: its last {} bytes are gone", self.data.limit());
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, text));
        }
        Ok(n)
    }
}

/// Reads a header and leaves `data` behind it; returns its length too.
fn read_header(data: &mut impl Read) -> Result<(NpyHeader, u64)> {
    let not_npy = |why: &str| Error::new(ErrorKind::Damaged, format!("not a .npy file: {why}"));
    let cut = |e: io::Error| match e.kind() {
        io::ErrorKind::UnexpectedEof => not_npy("it is too short"),
        _ => Error::io("can't be read", e),
    };
    // The header's own length, up to 4 GiB, is checked before anything is allocated for it.
    let mut head = [0; 12];
    data.read_exact(&mut head).map_err(cut)?;
    let [m0, m1, m2, m3, m4, m5, major, _, l0, l1, l2, l3] = head;
    if [m0, m1, m2, m3, m4, m5] != *b"\x93NUMPY" {
        return Err(not_npy("it does not begin with NumPy's magic"));
    }
    let len = match major {
        1 => 10 + u64::from(u16::from_le_bytes([l0, l1])),
        _ => 12 + u64::from(u32::from_le_bytes([l0, l1, l2, l3])),
    };
    let Some(rest) = len.checked_sub(head.len() as u64).filter(|_| len <= MAX_HEADER) else {
        return Err(not_npy(&format!("its header says it has {len} bytes")));
    };
    let mut bytes = head.to_vec();
    data.take(rest).read_to_end(&mut bytes).map_err(cut)?;
    if (bytes.len() as u64) < len {
        return Err(not_npy(&format!("its header of {len} bytes is cut after {}", bytes.len())));
    }
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
    let header = NpyHeader::from_reader(&bytes[..]).map_err(|e| not_npy(&e.to_string()))?;
    Ok((header, len))
}

/// The number of records and what one is.
fn check(header: &NpyHeader, codec: Codec) -> Result<(u64, Schema)> {
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
        NpyFile::open(file.path(), Codec::default())
    }

    #[test]
    fn a_header_gives_records_and_schema() {
        let npy = open("{'descr': '<f4', 'fortran_order': False, 'shape': (5, 2, 3), }\n", 120).unwrap();
        assert_eq!((npy.records(), npy.schema().dtype(), npy.schema().shape()), (5, "<f4", &[2, 3][..]));
    }

    #[test]
    fn a_header_that_is_cut_is_told_in_words() {
        let header = Schema::new("<f4", &[2, 3], Codec::Raw).unwrap().npy_header();
        for cut in [0, 11, 12, 50, header.len() - 1] {
            let read = NpyFile::read(&header[..cut], cut as u64, "it".into(), Codec::Raw);
            let text = read.unwrap_err().to_string();
            let words = if cut < 12 { "it is too short".into() } else { format!("is cut after {cut}") };
            assert_eq!(text.split(": ").next(), Some("it"), "{text}");
            assert!(text.contains("not a .npy file") && text.contains(&words), "{text}");
        }
    }

    #[test]
    fn either_byte_order_is_taken() {
        let npy = open("{'descr': '>f4', 'fortran_order': False, 'shape': (5, 2, 3), }\n", 120).unwrap();
        assert_eq!((npy.records(), npy.schema().dtype()), (5, ">f4"));
    }

    #[test]
    fn records_are_read_to_the_arrays_end_and_no_further() {
        let header = "{'descr': '<f4', 'fortran_order': False, 'shape': (5, 2), }\n";
        let of = |dtype, shape: &[u64]| Schema::new(dtype, shape, Codec::Raw).unwrap();
        let mut bytes = Vec::new();
        let npy = open(header, 100).unwrap();
        npy.into_records(&of("<f4", &[2])).unwrap().read_to_end(&mut bytes).unwrap();
        assert_eq!(bytes, [7; 40]);
        for (other, kind) in
            [(of("<i4", &[2]), ErrorKind::Unsupported), (of("<f4", &[1, 2]), ErrorKind::Geometry)]
        {
            assert_eq!(open(header, 100).unwrap().into_records(&other).unwrap_err().kind(), kind);
        }
    }

    #[test]
    fn a_file_that_is_cut_meanwhile_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.npy");
        let mut whole = Schema::new("|u1", &[10, 4], Codec::Raw).unwrap().npy_header();
        whole.extend([7; 40]);
        std::fs::write(&path, &whole).unwrap();
        let npy = NpyFile::open(&path, Codec::Raw).unwrap();
        let schema = npy.schema().clone();
        File::options().write(true).open(&path).unwrap().set_len(whole.len() as u64 - 8).unwrap();
        let e = npy.into_records(&schema).unwrap().read_to_end(&mut Vec::new()).unwrap_err();
        assert_eq!(e.kind(), io::ErrorKind::UnexpectedEof);
    }

    #[test]
    fn what_has_no_dense_records_is_refused_with_its_reason() {
        let text = |header: &str| open(header, 120).unwrap_err().to_string();
        assert!(text("{'descr': '<f4', 'fortran_order': True, 'shape': (5, 6), }").contains("Fortran order"));
        assert!(text("{'descr': '|O', 'fortran_order': False, 'shape': (5,), }").contains("Python objects"));
        assert!(
            text("{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (5,), }").contains("structured")
        );
        assert!(text("{'descr': '|V4', 'fortran_order': False, 'shape': (5,), }").contains("structured"));
        assert!(text("{'descr': '<M8[s]', 'fortran_order': False, 'shape': (5,), }").contains("time"));
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
