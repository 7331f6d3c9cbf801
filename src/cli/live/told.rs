//! What `delete` says, read without a tree of values: its list of moves may be as long as the store.

use std::collections::HashMap;
use std::fmt;

use serde_core::de::{Deserialize, Deserializer, SeqAccess, Visitor};
use zrfs::store::Move;

/// The last result.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Told {
    /// How many batches the mount has applied.
    pub(super) batches: u64,
    /// How many records the last one has deleted.
    pub(super) deleted: u64,
    /// How many it has left.
    pub(super) records: u64,
    pub(super) moves: Vec<Move>,
    /// Why the last list was refused, if it was.
    pub(super) refused: Option<String>,
}

impl Told {
    /// # Errors
    /// What is no JSON, or no such object.
    pub(super) fn parse(page: &[u8]) -> serde_json::Result<Told> {
        let mut fields: HashMap<String, Field> = serde_json::from_slice(page)?;
        let number = |name: &str| match fields.get(name) {
            Some(&Field::Number(number)) => number,
            _ => 0,
        };
        let (batches, deleted, records) = (number("batches"), number("deleted"), number("records"));
        let moves = match fields.remove("moves") {
            Some(Field::Moves(moves)) => moves,
            _ => Vec::new(),
        };
        let refused = match fields.remove("refused") {
            Some(Field::Text(text)) => Some(text),
            _ => None,
        };
        Ok(Told { batches, deleted, records, moves, refused })
    }
}

enum Field {
    Nothing,
    Number(u64),
    Text(String),
    Moves(Vec<Move>),
}

impl<'de> Deserialize<'de> for Field {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Field, D::Error> {
        struct Any;
        impl<'de> Visitor<'de> for Any {
            type Value = Field;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a number, a text, null or pairs of indices")
            }

            fn visit_unit<E>(self) -> Result<Field, E> {
                Ok(Field::Nothing)
            }

            fn visit_u64<E>(self, number: u64) -> Result<Field, E> {
                Ok(Field::Number(number))
            }

            fn visit_str<E>(self, text: &str) -> Result<Field, E> {
                Ok(Field::Text(text.to_owned()))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut pairs: A) -> Result<Field, A::Error> {
                let mut moves = Vec::new();
                while let Some([from, to]) = pairs.next_element::<[u64; 2]>()? {
                    moves.push(Move { from, to });
                }
                Ok(Field::Moves(moves))
            }
        }
        from.deserialize_any(Any)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_delete_says_is_understood() {
        let page = br#"{"batches":3,"deleted":2,"records":98,"moves":[[99,7],[98,12]],"refused":null}
"#;
        let told = Told::parse(page).unwrap();
        let moves = vec![Move { from: 99, to: 7 }, Move { from: 98, to: 12 }];
        assert_eq!(told, Told { batches: 3, deleted: 2, records: 98, moves, refused: None });
        let told = Told::parse(br#"{"batches":0,"deleted":0,"moves":[],"refused":"no\nlist"}"#).unwrap();
        assert_eq!(told, Told { refused: Some("no\nlist".into()), ..Told::default() });
        for page in ["", "[]", "7", r#"{"moves":[[1]]}"#, r#"{"batches":{}}"#] {
            assert!(Told::parse(page.as_bytes()).is_err(), "{page}");
        }
    }
}
