//! Extended attributes, which tell of a record what its bytes do not.

use super::{Node, View};
use crate::error::Result;

const INDEX: &str = "user.zrfs.index";
const CODEC: &str = "user.zrfs.codec";
const STORED_SIZE: &str = "user.zrfs.stored_size";

impl View {
    /// The names of a file's extended attributes. A record has three; other files have none.
    pub fn attribute_names(&self, node: Node) -> &'static [&'static str] {
        match node {
            Node::Record(_) => &[INDEX, CODEC, STORED_SIZE],
            _ => &[],
        }
    }

    /// An extended attribute: the record's index now, its codec as `zrfs ls` has it, the bytes that it takes as stored.
    /// `None` where the file has no such attribute.
    ///
    /// # Errors
    /// [`ErrorKind::Stale`](crate::ErrorKind::Stale) where the record was deleted,
    /// [`ErrorKind::Damaged`](crate::ErrorKind::Damaged) where its entry is.
    pub fn extended_attribute(&self, node: Node, name: &[u8]) -> Result<Option<String>> {
        let Node::Record(id) = node else { return Ok(None) };
        let Some(&known) = self.attribute_names(node).iter().find(|known| known.as_bytes() == name) else {
            return Ok(None);
        };
        let (index, loc) = self.steady(|ids| {
            let index = self.index_of(ids, id)?;
            Ok((index, self.location(index)?))
        })?;
        Ok(Some(match known {
            INDEX => index.to_string(),
            CODEC => loc.compress.name().to_owned(),
            _ => loc.phys_length.to_string(),
        }))
    }
}
