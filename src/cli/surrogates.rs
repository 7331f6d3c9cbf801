//! Names in JSON, as Python has them.
//!
//! JSON is text and a file name is any bytes. Python's `os.fsdecode` gives a byte that belongs to no UTF-8 character as a
//! lone surrogate, U+DC80 to U+DCFF, and `os.fsencode` gives the byte back: `os.fsencode(json.loads(line)["name"])`.

use std::fmt::{self, Write};

/// Displays as a JSON string, quotes included.
pub(super) struct JsonName<'a>(pub(super) &'a [u8]);

impl fmt::Display for JsonName<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_char('"')?;
        for chunk in self.0.utf8_chunks() {
            for c in chunk.valid().chars() {
                match c {
                    '"' | '\\' => write!(f, "\\{c}")?,
                    '\n' => f.write_str("\\n")?,
                    '\r' => f.write_str("\\r")?,
                    '\t' => f.write_str("\\t")?,
                    // Those beyond ASCII, too: some readers end a line there, some terminals obey them.
                    c if c.is_control() || matches!(c, '\u{2028}' | '\u{2029}') => {
                        write!(f, "\\u{:04x}", u32::from(c))?;
                    }
                    c => f.write_char(c)?,
                }
            }
            chunk.invalid().iter().try_for_each(|byte| write!(f, "\\udc{byte:02x}"))?;
        }
        f.write_char('"')
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(name: &[u8]) -> String {
        JsonName(name).to_string()
    }

    #[test]
    fn text_is_the_json_that_others_write() {
        for name in
            ["", "a.png", "ü ☃ 🦀", "\"quoted\"", "back\\slash", "tab\tnew\nline\r\0\x1f\x7f\u{85}\u{2028}"]
        {
            assert_eq!(serde_json::from_str::<String>(&shown(name.as_bytes())).unwrap(), name);
            assert!(!shown(name.as_bytes()).contains(char::is_control));
        }
    }

    #[test]
    fn bytes_that_are_no_text_are_lone_surrogates() {
        assert_eq!(shown(b"caf\xe9.png"), r#""caf\udce9.png""#);
        assert_eq!(shown(b"\xff\xfe\x80"), r#""\udcff\udcfe\udc80""#);
        // A character that is cut, an overlong one, and a surrogate in UTF-8: none is UTF-8.
        assert_eq!(shown(b"\xf0\x9f\xa6"), r#""\udcf0\udc9f\udca6""#);
        assert_eq!(shown(b"\xc0\xaf"), r#""\udcc0\udcaf""#);
        assert_eq!(shown(b"\xed\xb2\x80"), r#""\udced\udcb2\udc80""#);
    }
}
