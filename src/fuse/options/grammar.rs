//! How a list of options is written: commas between them, quotes and backslashes for commas within them; numbers; what a
//! name that is not known was meant to be.

use crate::error::{Error, ErrorKind, Result};

/// One option of a list.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Written<'a> {
    /// As it stands in the list.
    pub(super) raw: &'a str,
    /// Without quotes and backslashes.
    pub(super) text: String,
}

/// Cuts at commas. One within double quotes, as mount(8) has them, or after a backslash belongs to the value; a backslash
/// makes any other character plain, too.
pub(super) fn split(list: &str) -> Result<Vec<Written<'_>>> {
    let mut options = Vec::new();
    let (mut begin, mut text, mut quoted) = (0, String::new(), false);
    let mut chars = list.char_indices();
    while let Some((at, c)) = chars.next() {
        match c {
            ',' if !quoted => {
                let raw = list.get(begin..at).unwrap_or_default();
                options.push(Written { raw, text: std::mem::take(&mut text) });
                begin = at + 1;
            }
            '"' => quoted = !quoted,
            '\\' => match chars.next() {
                Some((_, plain)) => text.push(plain),
                // mount(8) cuts at every comma that no quotes are around: it makes two options of `labels=/a\,b`.
                None => {
                    let why = "ends in a backslash; commas in a value need quotes, as in labels=\"/a,b.zr\"";
                    return Err(bad(&text, why));
                }
            },
            c => text.push(c),
        }
    }
    if quoted {
        return Err(bad(&text, "has a quote that does not end"));
    }
    options.push(Written { raw: list.get(begin..).unwrap_or_default(), text });
    options.retain(|option| !option.text.is_empty());
    Ok(options)
}

/// The error of an option that can't be had.
pub(super) fn bad(option: &str, why: &str) -> Error {
    Error::new(ErrorKind::Unsupported, format!("mount option {option} {why}"))
}

pub(super) fn number<T: TryFrom<u64>>(
    option: &str,
    value: &str,
    radix: u32,
    least: u64,
    most: u64,
) -> Result<T> {
    // from_str_radix takes a sign; a number here has none.
    let digits = value.bytes().all(|b| b.is_ascii_digit());
    let parsed = u64::from_str_radix(value, radix).ok().filter(|n| digits && (least..=most).contains(n));
    parsed.and_then(|n| T::try_from(n).ok()).ok_or_else(|| {
        let range =
            if radix == 8 { format!("{least:o} to {most:o}, octal") } else { format!("{least} to {most}") };
        bad(option, &format!("needs a number from {range}"))
    })
}

/// The known name that one slip of the finger makes `name` of: a letter too many, too few, wrong, or two that changed places.
pub(super) fn nearest<'a>(name: &str, mut known: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    known.find(|known| {
        let same = |(a, b): &(&u8, &u8)| a == b;
        let (a, b) = (name.as_bytes(), known.as_bytes());
        let front = a.iter().zip(b).take_while(same).count();
        let (a, b) = (a.get(front..).unwrap_or_default(), b.get(front..).unwrap_or_default());
        let back = a.iter().rev().zip(b.iter().rev()).take_while(same).count();
        match (a.get(..a.len() - back), b.get(..b.len() - back)) {
            (Some([] | [_]), Some([] | [_])) => true,
            (Some([a, b]), Some([c, d])) => (a, b) == (d, c),
            _ => false,
        }
    })
}
