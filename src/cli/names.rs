//! Names of files as people read them: a name may hold any bytes, and a line of output stays a line.

use std::fmt::{self, Write};

use zrfs::Result;
use zrfs::store::{NamedNode, Names, NodeId};

/// Paths of nodes. Neighbours mostly lie in one folder, whose path is kept.
pub(super) struct Paths<'a> {
    names: &'a Names<'a>,
    folder: Option<(NodeId, Vec<u8>)>,
}

impl<'a> Paths<'a> {
    pub(super) fn new(names: &'a Names<'a>) -> Paths<'a> {
        Paths { names, folder: None }
    }

    /// The path of a node from the root.
    ///
    /// # Errors
    /// As for [`Names::path`].
    pub(super) fn of(&mut self, node: &NamedNode) -> Result<Vec<u8>> {
        let folder = match self.folder.take() {
            Some((id, path)) if id == node.parent => path,
            _ => self.names.path(node.parent)?,
        };
        let mut path = folder.clone();
        if node.parent != NodeId::ROOT {
            path.push(b'/');
        }
        path.extend_from_slice(&node.name);
        self.folder = Some((node.parent, folder));
        Ok(path)
    }
}

/// Appends `name` as a column of output has it: control characters and backslashes escaped, all other bytes as they are. So
/// what has neither can be taken from there and given to a command again.
pub(super) fn push_column(line: &mut Vec<u8>, name: &[u8]) {
    for chunk in name.utf8_chunks() {
        for c in chunk.valid().chars() {
            if c == '\\' || c.is_control() {
                escape(c, |text| line.extend_from_slice(text.as_bytes()));
            } else {
                line.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes());
            }
        }
        line.extend_from_slice(chunk.invalid());
    }
}

/// A name in a message, in quotes. Bytes that are no UTF-8 are escaped as well.
pub(super) struct Quoted<'a>(pub(super) &'a [u8]);

impl fmt::Display for Quoted<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_char('"')?;
        for chunk in self.0.utf8_chunks() {
            for c in chunk.valid().chars() {
                if c == '\\' || c == '"' || c.is_control() {
                    let mut written = Ok(());
                    escape(c, |text| written = f.write_str(text));
                    written?;
                } else {
                    f.write_char(c)?;
                }
            }
            chunk.invalid().iter().try_for_each(|byte| write!(f, "\\x{byte:02x}"))?;
        }
        f.write_char('"')
    }
}

/// `\n`, `\\`, `\x1b`: bytes, also of a character that has several.
fn escape(c: char, put: impl FnOnce(&str)) {
    put(&c.encode_utf8(&mut [0; 4]).as_bytes().escape_ascii().to_string());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_column_stays_on_its_line_and_in_its_column() {
        let shown = |name: &[u8]| {
            let mut line = Vec::new();
            push_column(&mut line, name);
            line
        };
        for plain in [&b"cats/a b.png"[..], "ü ☃".as_bytes(), b"-rf", b"\"quoted\"", b"caf\xe9", b"\xff\xfe"]
        {
            assert_eq!(shown(plain), plain);
        }
        assert_eq!(shown(b"a\tb\nc\\d\x1b\x7f"), br"a\tb\nc\\d\x1b\x7f");
        // A control character of a terminal that is two bytes long.
        assert_eq!(shown("\u{9b}".as_bytes()), br"\xc2\x9b");
    }

    #[test]
    fn a_message_is_text() {
        assert_eq!(Quoted(b"a\n\xff\"\\").to_string(), r#""a\n\xff\"\\""#);
        assert_eq!(Quoted("ü\u{9b}".as_bytes()).to_string(), r#""ü\xc2\x9b""#);
    }
}
