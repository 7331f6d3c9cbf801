//! Pax headers: what they say of the member behind them.

/// Bytes of a sparse file that are stored: `len` from `at` on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Stretch {
    pub(super) at: u64,
    pub(super) len: u64,
}

/// What a pax header says of a member, where it says it.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Extended {
    pub(super) path: Option<Vec<u8>>,
    pub(super) target: Option<Vec<u8>>,
    /// Bytes that are stored.
    pub(super) size: Option<u64>,
    pub(super) modified_ns: Option<i64>,
    /// Name, size and map of a sparse file. Without a map it stands before the contents.
    pub(super) sparse_name: Option<Vec<u8>>,
    pub(super) sparse_size: Option<u64>,
    pub(super) sparse: Option<Vec<Stretch>>,
}

impl Extended {
    /// Reads records of the form `LENGTH KEY=VALUE\n`, where LENGTH counts all of it and VALUE may hold anything. `None` where
    /// they are not of it.
    pub(super) fn parse(mut bytes: &[u8]) -> Option<Extended> {
        let mut said = Extended::default();
        // Offsets and lengths, in turn, where each has a record of its own.
        let mut offset = None;
        // Some programs fill the header up with NUL.
        while bytes.first().is_some_and(|&b| b != 0) {
            let blank = bytes.iter().position(|&b| b == b' ')?;
            let len: usize = number(bytes.get(..blank)?)?;
            let record = bytes.get(..len)?;
            bytes = bytes.get(len..)?;
            let record = record.get(blank + 1..)?.strip_suffix(b"\n")?;
            let equals = record.iter().position(|&b| b == b'=')?;
            let (key, value) = (record.get(..equals)?, record.get(equals + 1..)?);
            // An empty value takes back what was said.
            let text = || (!value.is_empty()).then(|| value.to_vec());
            match key {
                b"path" => said.path = text(),
                b"linkpath" => said.target = text(),
                b"size" if value.is_empty() => said.size = None,
                b"size" => said.size = Some(number(value)?),
                b"mtime" if value.is_empty() => said.modified_ns = None,
                b"mtime" => said.modified_ns = Some(nanoseconds(value)?),
                b"GNU.sparse.name" => said.sparse_name = text(),
                b"GNU.sparse.size" | b"GNU.sparse.realsize" => said.sparse_size = Some(number(value)?),
                b"GNU.sparse.map" => said.sparse = Some(map(value)?),
                // Of none there is nothing else.
                b"GNU.sparse.numblocks" => drop(said.sparse.get_or_insert_default()),
                b"GNU.sparse.offset" => offset = Some(number(value)?),
                b"GNU.sparse.numbytes" => {
                    let stretch = Stretch { at: offset.take()?, len: number(value)? };
                    said.sparse.get_or_insert_default().push(stretch);
                }
                _ => {}
            }
        }
        Some(said)
    }
}

fn number<N: std::str::FromStr>(digits: &[u8]) -> Option<N> {
    let digits = str::from_utf8(digits).ok()?;
    digits.bytes().all(|b| b.is_ascii_digit()).then(|| digits.parse().ok())?
}

/// `AT,LENGTH,AT,LENGTH,…`
fn map(value: &[u8]) -> Option<Vec<Stretch>> {
    let numbers: Option<Vec<u64>> =
        value.split(|&b| b == b',').filter(|digits| !digits.is_empty()).map(number).collect();
    let numbers = numbers?;
    let (pairs, rest) = numbers.as_chunks();
    rest.is_empty().then(|| pairs.iter().map(|&[at, len]| Stretch { at, len }).collect())
}

/// Seconds with a fraction, in nanoseconds. What lies out of reach becomes the nearest that is not.
fn nanoseconds(value: &[u8]) -> Option<i64> {
    let text = str::from_utf8(value).ok()?;
    let (sign, text) = text.strip_prefix('-').map_or((1, text), |rest| (-1, rest));
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    let digits = |text: &str| text.bytes().all(|b| b.is_ascii_digit());
    if (whole.is_empty() && fraction.is_empty()) || !digits(whole) || !digits(fraction) {
        return None;
    }
    let seconds: i64 = if whole.is_empty() { 0 } else { whole.parse().unwrap_or(i64::MAX) };
    let nanos = fraction.bytes().chain(std::iter::repeat(b'0')).take(9);
    let nanos = nanos.fold(0, |sum, digit| sum * 10 + i64::from(digit - b'0'));
    Some(seconds.saturating_mul(1_000_000_000).saturating_add(nanos) * sign)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(key: &str, value: &[u8]) -> Vec<u8> {
        let rest = key.len() + value.len() + 3;
        let len =
            (1..9).map(|digits| rest + digits).find(|len| len.to_string().len() + rest == *len).unwrap();
        [format!("{len} {key}=").as_bytes(), value, b"\n"].concat()
    }

    #[test]
    fn values_may_hold_anything_and_the_last_one_counts() {
        let bytes = [
            record("path", b"first"),
            record("comment", b""),
            record("path", b"a=b\n9 path=c\n\xff"),
            record("mtime", b"1.25"),
            record("size", b"8"),
        ];
        let said = Extended::parse(&bytes.concat()).unwrap();
        assert_eq!(said.path.unwrap(), b"a=b\n9 path=c\n\xff");
        assert_eq!((said.modified_ns, said.size), (Some(1_250_000_000), Some(8)));
        let taken_back = [record("path", b"x"), record("path", b"")].concat();
        assert_eq!(Extended::parse(&taken_back).unwrap(), Extended::default());
    }

    #[test]
    fn times() {
        for (text, nanos) in [
            ("0", 0),
            ("1700000000.123456789123", 1_700_000_000_123_456_789),
            ("-1.5", -1_500_000_000),
            (".5", 500_000_000),
            ("7.", 7_000_000_000),
            ("99999999999999999999", i64::MAX),
        ] {
            assert_eq!(nanoseconds(text.as_bytes()), Some(nanos), "{text}");
        }
        for text in ["", "-", ".", "1e9", "1.2.3", "+1", "0x1", " 1"] {
            assert_eq!(nanoseconds(text.as_bytes()), None, "{text}");
        }
    }

    #[test]
    fn maps_of_sparse_files() {
        let expected = Some(vec![Stretch { at: 0, len: 5 }, Stretch { at: 4096, len: 1 }]);
        let said = Extended::parse(&record("GNU.sparse.map", b"0,5,4096,1")).unwrap();
        assert_eq!(said.sparse, expected);
        let each = [("offset", "0"), ("numbytes", "5"), ("offset", "4096"), ("numbytes", "1")];
        let each = each.map(|(key, value)| record(&format!("GNU.sparse.{key}"), value.as_bytes())).concat();
        assert_eq!(Extended::parse(&each).unwrap().sparse, expected);
        assert_eq!(Extended::parse(&record("GNU.sparse.map", b"0,5,4096")), None);
        assert_eq!(Extended::parse(&record("GNU.sparse.numbytes", b"5")), None);
    }

    #[test]
    fn what_is_no_pax_header() {
        for bad in
            [&b"x"[..], b"5 a=b", b"99 a=b\n", b"6 a=b\n7", b"5 ab\n", b"0 a=b\n", b"3 a=b\n", b"-6 a=b\n"]
        {
            assert_eq!(Extended::parse(bad), None, "{bad:?}");
        }
        assert_eq!(Extended::parse(b"6 a=b\n\0\0").unwrap(), Extended::default());
    }
}
