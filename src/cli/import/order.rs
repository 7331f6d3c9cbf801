//! The order of torchvision's ImageFolder, which is Python's order of strings.

use std::cmp::Ordering;

/// The class and the directory of a file. At the top both are empty, which sorts first.
pub(super) struct Place<'a> {
    pub(super) class: &'a [u8],
    pub(super) folder: &'a [u8],
}

impl Place<'_> {
    /// That of the files in the folder at `path`.
    pub(super) fn of_folder(path: &[u8]) -> Place<'_> {
        Place { class: path.split(|&b| b == b'/').next().unwrap_or_default(), folder: path }
    }
}

/// Compares two names or paths as Python compares the strings that it decodes them to: by code point, where a byte
/// that is no UTF-8 counts as U+DC00 plus its value.
pub(super) fn python_order(a: &[u8], b: &[u8]) -> Ordering {
    let same = a.iter().zip(b).take_while(|(a, b)| a == b).count();
    let (next_a, next_b) = (a.get(same), b.get(same));
    // The usual case. What is the same is decoded to the same, as no character goes on behind an ASCII one.
    if [next_a, next_b].into_iter().flatten().all(u8::is_ascii) {
        return next_a.cmp(&next_b);
    }
    // The order of UTF-8 bytes is the order of code points.
    if std::str::from_utf8(a).is_ok() && std::str::from_utf8(b).is_ok() {
        return a.cmp(b);
    }
    code_points(a).cmp(code_points(b))
}

/// Code points as Python's `surrogateescape` decodes them.
fn code_points(bytes: &[u8]) -> impl Iterator<Item = u32> + '_ {
    bytes.utf8_chunks().flat_map(|chunk| {
        let escaped = chunk.invalid().iter().map(|&byte| 0xdc00 + u32::from(byte));
        chunk.valid().chars().map(u32::from).chain(escaped)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_python_sorts() {
        // sorted([os.fsdecode(b) for b in names])
        let names: [&[u8]; 13] = [
            b"",
            b"A",
            b"a",
            b"a-b",
            b"a/b",
            "é".as_bytes(),
            "éa".as_bytes(),
            b"\xc3",
            b"\xc3-",
            b"\xc3a",
            b"\xc3\xc3",
            b"\xff",
            "\u{ffee}".as_bytes(),
        ];
        for (i, a) in names.iter().enumerate() {
            for (j, b) in names.iter().enumerate() {
                assert_eq!(python_order(a, b), i.cmp(&j), "{a:?} {b:?}");
            }
        }
    }
}
