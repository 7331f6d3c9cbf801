//! Numbers as Rust has them: which type reads which dtype, and bytes seen as an array of them.

use bytemuck::PodCastError;
use bytemuck::checked::{CheckedCastError, try_cast_slice};
use ndarray::{ArrayViewD, IxDyn};
use num_complex::Complex;

use super::Schema;
use crate::error::{Error, ErrorKind, Result};

/// A number, or bool, that records can be read as and written from: `bool`, `i8` to `i64`, `u8` to `u64`, `f32`, `f64`,
/// and [`Complex`] of the last two.
///
/// Each reads one dtype; nothing is converted. What has no Rust type here (`<f2`, `<f16`, `<c32`, all that is
/// big-endian) is read as bytes.
pub trait Element: Sealed {
    /// NumPy's string for its dtype.
    const DTYPE: &'static str;
}

mod sealed {
    use crate::error::Result;

    /// What the crate needs of an element. The bounds let bytes become elements, and back, without `unsafe`.
    pub trait Sealed:
        Copy + Send + Sync + 'static + bytemuck::NoUninit + bytemuck::CheckedBitPattern + bytemuck::Zeroable
    {
        /// Its name in Rust.
        const NAME: &'static str;

        /// What its bytes are read as first.
        type Raw: bytemuck::Pod;

        /// Makes elements of what was read.
        fn from_raw(raw: Vec<Self::Raw>) -> Result<Vec<Self>>;
    }
}
pub(super) use sealed::Sealed;

macro_rules! elements {
    ($($name:literal $type:ty, $dtype:literal;)*) => {
        $(
            impl Element for $type {
                const DTYPE: &'static str = $dtype;
            }

            impl Sealed for $type {
                const NAME: &'static str = $name;

                type Raw = $type;

                fn from_raw(raw: Vec<$type>) -> Result<Vec<$type>> {
                    Ok(raw)
                }
            }
        )*

        /// The Rust type that reads `dtype`.
        fn reader_of(dtype: &str) -> Option<&'static str> {
            match dtype {
                $($dtype => Some($name),)*
                "|b1" => Some("bool"),
                _ => None,
            }
        }
    };
}

elements! {
    "i8" i8, "|i1";
    "i16" i16, "<i2";
    "i32" i32, "<i4";
    "i64" i64, "<i8";
    "u8" u8, "|u1";
    "u16" u16, "<u2";
    "u32" u32, "<u4";
    "u64" u64, "<u8";
    "f32" f32, "<f4";
    "f64" f64, "<f8";
    "Complex<f32>" Complex<f32>, "<c8";
    "Complex<f64>" Complex<f64>, "<c16";
}

impl Element for bool {
    const DTYPE: &'static str = "|b1";
}

impl Sealed for bool {
    const NAME: &'static str = "bool";

    /// Not every byte is a bool.
    type Raw = u8;

    fn from_raw(raw: Vec<u8>) -> Result<Vec<bool>> {
        match raw.iter().position(|&byte| byte > 1) {
            None => Ok(raw.into_iter().map(|byte| byte == 1).collect()),
            Some(at) => Err(no_bool(at)),
        }
    }
}

/// `len` zeros.
pub(super) fn zeroed<T: bytemuck::Zeroable>(len: usize) -> Result<Vec<T>> {
    bytemuck::try_zeroed_vec(len).map_err(|()| {
        let bytes = len.saturating_mul(size_of::<T>());
        Error::new(ErrorKind::Memory, format!("there is no memory for {bytes} bytes"))
    })
}

fn no_bool(at: usize) -> Error {
    Error::new(ErrorKind::Damaged, format!("byte {at} of the batch is neither 0 nor 1, and so no bool"))
}

impl Schema {
    /// Checks that `T` reads this dtype.
    pub(super) fn check_type<T: Element>(&self) -> Result<()> {
        let (dtype, asked) = (self.dtype(), T::NAME);
        if dtype == T::DTYPE {
            return Ok(());
        }
        let text = format!("records of dtype {dtype} can't be read as {asked}, which is {}", T::DTYPE);
        let error = Error::new(ErrorKind::Unsupported, text);
        Err(match reader_of(dtype) {
            Some(reader) => error.with_help(format!("ask for {reader}")),
            None if self.is_big_endian() => {
                error.with_help("it is big-endian: ask for bytes, and convert them by from_be_bytes")
            }
            None => error.with_help("no type here reads it: ask for bytes"),
        })
    }

    /// The shape of an array of `records` records.
    pub(super) fn batch_shape(&self, records: usize) -> IxDyn {
        // Within a record they fit: their product is checked when the schema is made.
        let axis = |&n: &u64| usize::try_from(n).unwrap_or(usize::MAX);
        let shape: Vec<usize> = std::iter::once(records).chain(self.shape().iter().map(axis)).collect();
        IxDyn(&shape)
    }

    /// `bytes` of `records` records, one after another, as an array of shape (records, *shape). Nothing is copied; bools
    /// are looked at one by one.
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`] where `T` is not the dtype; [`ErrorKind::Geometry`] where `bytes` has not the length of
    /// that many records, or does not begin at an address where a `T` may lie; [`ErrorKind::Damaged`] for a bool that is
    /// neither 0 nor 1.
    ///
    /// ```
    /// use zrfs::{Codec, Schema};
    ///
    /// # fn main() -> zrfs::Result<()> {
    /// let schema = Schema::of::<u8>(&[2], Codec::default())?;
    /// let batch = schema.view::<u8>(&[1, 2, 3, 4, 5, 6], 3)?;
    /// assert_eq!(batch.shape(), [3, 2]);
    /// assert_eq!(batch[[2, 0]], 5);
    /// # Ok(())
    /// # }
    /// ```
    pub fn view<'a, T: Element>(&self, bytes: &'a [u8], records: usize) -> Result<ArrayViewD<'a, T>> {
        self.check_type::<T>()?;
        let geometry = |text: String| Error::new(ErrorKind::Geometry, text);
        if (records as u64).checked_mul(self.record_bytes()) != Some(bytes.len() as u64) {
            let record = self.record_bytes();
            return Err(geometry(format!(
                "{} bytes are not {records} records of {record} bytes",
                bytes.len()
            )));
        }
        // Nothing lies anywhere.
        let elements = if bytes.is_empty() { Ok(&[][..]) } else { try_cast_slice(bytes) };
        let elements = elements.map_err(|e| match e {
            CheckedCastError::InvalidBitPattern => {
                no_bool(bytes.iter().position(|&byte| byte > 1).unwrap_or(0))
            }
            CheckedCastError::PodCastError(PodCastError::TargetAlignmentGreaterAndInputNotAligned) => {
                let align = align_of::<T>();
                geometry(format!("the bytes of {} begin at no multiple of {align}", T::NAME))
                    .with_help("take them from a buffer of that type")
            }
            CheckedCastError::PodCastError(e) => geometry(format!("the bytes are no {}: {e:?}", T::NAME)),
        })?;
        ArrayViewD::from_shape(self.batch_shape(records), elements)
            .map_err(|e| geometry(format!("{records} records of {self} are no array: {e}")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codec::Codec;

    fn schema(dtype: &str, shape: &[u64]) -> Schema {
        Schema::new(dtype, shape, Codec::Raw).unwrap()
    }

    fn check_element<T: Element>() {
        let schema = Schema::of::<T>(&[2], Codec::Raw).unwrap();
        assert_eq!(schema.record_bytes(), 2 * size_of::<T>() as u64);
        assert_eq!(reader_of(T::DTYPE), Some(T::NAME));
        schema.check_type::<T>().unwrap();
    }

    #[test]
    fn types_have_the_size_of_their_dtypes() {
        check_element::<bool>();
        check_element::<i8>();
        check_element::<i16>();
        check_element::<i32>();
        check_element::<i64>();
        check_element::<u8>();
        check_element::<u16>();
        check_element::<u32>();
        check_element::<u64>();
        check_element::<f32>();
        check_element::<f64>();
        check_element::<Complex<f32>>();
        check_element::<Complex<f64>>();
    }

    #[test]
    fn another_type_is_refused_with_both_names() {
        for (dtype, words) in [
            ("<f4", &["<f4", "f64", "<f8", "ask for f32"][..]),
            ("<i8", &["<i8", "f64", "ask for i64"]),
            ("<c8", &["<c8", "f64", "ask for Complex<f32>"]),
            (">f8", &[">f8", "f64", "big-endian", "bytes"]),
            ("<f2", &["<f2", "f64", "bytes"]),
        ] {
            let e = schema(dtype, &[]).view::<f64>(&[], 0).unwrap_err();
            assert_eq!(e.kind(), ErrorKind::Unsupported);
            let text = e.to_string();
            assert!(words.iter().all(|word| text.contains(word)), "{text}");
        }
    }

    #[test]
    fn views_have_the_batch_before_the_samples_shape() {
        let numbers: Vec<f32> = (0u8..12).map(f32::from).collect();
        let bytes: &[u8] = bytemuck::cast_slice(&numbers);
        let view = schema("<f4", &[3, 2]).view::<f32>(bytes, 2).unwrap();
        assert_eq!((view.shape(), view[[1, 2, 0]]), (&[2, 3, 2][..], 10.0));
        assert!(std::ptr::eq(view.as_ptr(), numbers.as_ptr()), "copied");
        assert_eq!(schema("<f4", &[]).view::<f32>(bytes, 12).unwrap().shape(), [12]);
        // Numbers of no bytes, wherever they begin.
        let odd = &bytes[1..1];
        assert_eq!(schema("<f4", &[3]).view::<f32>(odd, 0).unwrap().shape(), [0, 3]);
        assert_eq!(schema("<f4", &[0, 3]).view::<f32>(odd, 5).unwrap().shape(), [5, 0, 3]);
    }

    #[test]
    fn bytes_that_are_no_such_records_are_errors() {
        let numbers = [0f64; 3];
        let bytes: &[u8] = bytemuck::cast_slice(&numbers);
        let kind = |schema: &Schema, bytes, records| schema.view::<f64>(bytes, records).unwrap_err().kind();
        assert_eq!(kind(&schema("<f8", &[]), bytes, 2), ErrorKind::Geometry);
        assert_eq!(kind(&schema("<f8", &[]), &bytes[..23], 3), ErrorKind::Geometry);
        assert_eq!(kind(&schema("<f8", &[]), bytes, usize::MAX), ErrorKind::Geometry);
        assert_eq!(kind(&schema("<f8", &[]), &bytes[1..17], 2), ErrorKind::Geometry, "misaligned");
        assert_eq!(kind(&schema("<f8", &[0]), &[], usize::MAX), ErrorKind::Geometry);
    }

    #[test]
    fn a_byte_that_is_no_bool_is_damage() {
        let schema = schema("|b1", &[2]);
        assert_eq!(schema.view::<bool>(&[0, 1], 1).unwrap().as_slice(), Some(&[false, true][..]));
        assert_eq!(schema.view::<bool>(&[0, 2], 1).unwrap_err().kind(), ErrorKind::Damaged);
        assert_eq!(bool::from_raw(vec![1, 0]).unwrap(), [true, false]);
        let e = bool::from_raw(vec![1, 255]).unwrap_err();
        assert!(e.kind() == ErrorKind::Damaged && e.to_string().contains("byte 1"), "{e}");
    }

    #[test]
    fn too_many_are_an_error_and_no_abort() {
        assert_eq!(zeroed::<f64>(usize::MAX / 8).unwrap_err().kind(), ErrorKind::Memory);
        assert_eq!(zeroed::<f64>(usize::MAX).unwrap_err().kind(), ErrorKind::Memory);
    }
}
