//! NumPy's dtype strings: which of them a record may have, and how long an item is.

use crate::error::{Error, ErrorKind, Result};

/// A dtype that records may have: bool, signed, unsigned, float or complex.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Dtype {
    name: String,
    item_bytes: u64,
}

impl Dtype {
    /// Parses `name`, as `numpy.dtype.str` has it. What has one byte has no byte order, so all its names are one.
    pub(super) fn parse(name: &str) -> Result<Dtype> {
        let refuse = |why: &str, help: &str| {
            let text = format!("dtype {name} is not supported: {why}");
            Err(Error::new(ErrorKind::Unsupported, text).with_help(help.to_owned()))
        };
        let to_number = "convert the array to a number type first";
        let mut chars = name.chars();
        let (order, kind) = (chars.next(), chars.next());
        let digits = chars.as_str();
        if order.is_some_and(|c| c.is_ascii_alphanumeric()) {
            let why = "it is not spelled as NumPy's dtype.str, which begins with <, > or |";
            return refuse(why, "write <f4 for float32, <i8 for int64, |u1 for uint8");
        }
        let known = match kind {
            Some('b') => &[1][..],
            Some('i' | 'u') => &[1, 2, 4, 8],
            Some('f') => &[2, 4, 8, 16],
            Some('c') => &[8, 16, 32],
            Some('O') => return refuse("these are Python objects", to_number),
            Some('V') => {
                return refuse(
                    "it is structured, or bytes of no type",
                    "save each field as an array of its own",
                );
            }
            Some('S' | 'U' | 'a') => return refuse("it is text and no number", to_number),
            Some('M' | 'm') => {
                return refuse("it is a time and no number", "a.view(np.int64) has its numbers");
            }
            _ => return refuse("it is no number or bool", to_number),
        };
        // parse takes a sign; NumPy's strings have none.
        let plain = digits.bytes().all(|b| b.is_ascii_digit());
        let size = digits.parse().ok().filter(|size| plain && known.contains(size));
        let Some(item_bytes) = size else { return refuse("no number has that size", to_number) };
        match order {
            Some('|' | '<' | '>') if item_bytes == 1 => {
                Ok(Dtype { name: format!("|{}", name.get(1..).unwrap_or_default()), item_bytes })
            }
            Some('<' | '>') => Ok(Dtype { name: name.to_owned(), item_bytes }),
            _ => refuse("its byte order is not known", to_number),
        }
    }

    /// NumPy's string.
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// Bytes of one item.
    pub(super) fn item_bytes(&self) -> u64 {
        self.item_bytes
    }

    /// Whether the most significant byte comes first, against this machine's order.
    pub(super) fn is_big_endian(&self) -> bool {
        self.name.starts_with('>')
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every number type that NumPy has on x86-64, by `numpy.sctypeDict`, as `numpy.dtype.str` and its itemsize.
    #[rustfmt::skip]
    const NUMBERS: [(&str, u64); 32] = [
        ("|b1", 1), ("|i1", 1), ("|u1", 1),
        ("<i2", 2), ("<i4", 4), ("<i8", 8), ("<u2", 2), ("<u4", 4), ("<u8", 8),
        ("<f2", 2), ("<f4", 4), ("<f8", 8), ("<f16", 16), ("<c8", 8), ("<c16", 16), ("<c32", 32),
        (">i2", 2), (">i4", 4), (">i8", 8), (">u2", 2), (">u4", 4), (">u8", 8),
        (">f2", 2), (">f4", 4), (">f8", 8), (">f16", 16), (">c8", 8), (">c16", 16), (">c32", 32),
        // Not NumPy's own spelling, but read by it as the same.
        ("<b1", 1), (">i1", 1), ("<u1", 1),
    ];

    #[test]
    fn every_number_is_taken() {
        for (name, bytes) in NUMBERS {
            let dtype = Dtype::parse(name).unwrap();
            let canonical = if bytes == 1 { format!("|{}", &name[1..]) } else { name.to_owned() };
            assert_eq!((dtype.name(), dtype.item_bytes()), (canonical.as_str(), bytes));
            assert_eq!(dtype.is_big_endian(), bytes > 1 && name.starts_with('>'));
        }
    }

    #[test]
    fn what_is_no_number_is_refused_by_its_name() {
        for (name, why) in [
            ("|O", "Python objects"),
            ("|V8", "structured"),
            ("<U4", "text"),
            ("|S4", "text"),
            ("<M8[s]", "time"),
            ("<m8[ns]", "time"),
            ("<i16", "size"),
            ("<f12", "size"),
            ("<c24", "size"),
            ("<f+4", "size"),
            ("<f", "size"),
            ("<f99999999999999999999", "size"),
            ("|f4", "byte order"),
            ("=f4", "byte order"),
            ("f4", "spelled"),
            ("float32", "spelled"),
            ("", "no number"),
            ("é", "no number"),
            ("<é4", "no number"),
        ] {
            let e = Dtype::parse(name).unwrap_err();
            assert!(e.kind() == ErrorKind::Unsupported && e.to_string().contains(why), "{name}: {e}");
        }
    }
}
