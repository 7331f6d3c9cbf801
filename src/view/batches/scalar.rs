//! A label that is one number, as the text that a `.cls` member holds.

use crate::dataset::Schema;

/// Whether labels of `schema` are numbers that [`text`] writes.
pub(super) fn is_text(schema: &Schema) -> bool {
    schema.shape().is_empty()
        && usize::try_from(schema.record_bytes()).is_ok_and(|len| text(schema, &vec![0; len]).is_some())
}

/// The text of the number `bytes`: of an integer its digits, of a bool 0 or 1, of a float as few as tell it from its
/// neighbours. `None` for complex numbers and for those of more than 8 bytes.
pub(super) fn text(schema: &Schema, bytes: &[u8]) -> Option<String> {
    let dtype = schema.dtype();
    let mut little: Vec<u8> = bytes.to_vec();
    if dtype.starts_with('>') {
        little.reverse();
    }
    let kind = dtype.chars().nth(1)?;
    let mut wide = [0; 8];
    wide.get_mut(..little.len())?.copy_from_slice(&little);
    let number = u64::from_le_bytes(wide);
    match (kind, little.len()) {
        ('b' | 'u', _) => Some(number.to_string()),
        ('i', len @ 1..=8) => {
            // The sign is the highest of its own bits.
            let unused = u32::try_from(64 - 8 * len).ok()?;
            Some(((number << unused).cast_signed() >> unused).to_string())
        }
        ('f', 2) => Some(format!("{:?}", half(u16::from_le_bytes(little.try_into().ok()?)))),
        ('f', 4) => Some(format!("{:?}", f32::from_le_bytes(little.try_into().ok()?))),
        ('f', 8) => Some(format!("{:?}", f64::from_bits(number))),
        _ => None,
    }
}

/// The value of a number of IEEE's 16 bits.
fn half(bits: u16) -> f32 {
    let (exponent, fraction) = (i32::from(bits >> 10 & 0x1f), f32::from(bits & 0x3ff));
    let size = match exponent {
        0 => fraction * 2f32.powi(-24),
        0x1f if fraction == 0.0 => f32::INFINITY,
        0x1f => f32::NAN,
        _ => (1024.0 + fraction) * 2f32.powi(exponent - 25),
    };
    if bits >> 15 == 1 { -size } else { size }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codec::Codec;

    #[test]
    fn numbers_are_written_as_text() {
        let of = |dtype: &str, bytes: &[u8]| text(&Schema::new(dtype, &[], Codec::Raw).unwrap(), bytes);
        for (dtype, bytes, expected) in [
            ("|u1", &[255][..], "255"),
            ("|i1", &[255], "-1"),
            ("|b1", &[1], "1"),
            ("<i2", &[0, 128], "-32768"),
            (">i4", &[0, 0, 1, 2], "258"),
            ("<i8", &[255; 8], "-1"),
            ("<u8", &[255; 8], "18446744073709551615"),
            ("<f4", &1.5f32.to_le_bytes(), "1.5"),
            (">f8", &(-1e300f64).to_be_bytes(), "-1e300"),
            ("<f8", &0.1f64.to_le_bytes(), "0.1"),
            ("<f8", &f64::NAN.to_le_bytes(), "NaN"),
            ("<f8", &f64::INFINITY.to_le_bytes(), "inf"),
            ("<f2", &[0x00, 0x3e], "1.5"),
            ("<f2", &[0x01, 0x80], "-5.9604645e-8"),
            ("<f2", &[0xff, 0x7b], "65504.0"),
        ] {
            assert_eq!(of(dtype, bytes).as_deref(), Some(expected), "{dtype}");
        }
        for (dtype, len) in [("<f16", 16), ("<c8", 8), ("<c16", 16)] {
            assert_eq!(of(dtype, &vec![0; len]), None);
            assert!(!is_text(&Schema::new(dtype, &[], Codec::Raw).unwrap()));
        }
        assert!(is_text(&Schema::new("<i8", &[], Codec::Raw).unwrap()));
        assert!(!is_text(&Schema::new("<i8", &[1], Codec::Raw).unwrap()));
    }
}
