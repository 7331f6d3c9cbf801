//! What an import says at its end.

use std::fmt;
use std::path::Path;

use indicatif::HumanBytes;
use zrfs::{Result, Store, Version};

use super::super::output::{Output, count};
use super::super::{Outcome, one_line};

/// Records whose lengths are looked at together.
const LENGTHS: usize = 1 << 16;

/// What was done.
pub(in crate::cli) struct Done {
    pub(super) records: u64,
    pub(super) bytes: u64,
    pub(super) total: u64,
    pub(super) stored: u64,
    /// Where the store became version 2, what version 1 does not hold.
    pub(super) beyond_v1: Option<Beyond>,
    pub(super) classes: Option<usize>,
    /// What was learned while the sources were read.
    pub(super) notes: Vec<String>,
}

/// How many records version 1 does not hold.
pub(super) struct Beyond {
    empty: u64,
    large: u64,
}

impl Beyond {
    /// Those in `store` from index `first` on.
    pub(super) fn among(store: &Store, first: u64) -> Result<Beyond> {
        let (mut found, mut next) = (Beyond { empty: 0, large: 0 }, first);
        while next < store.len() {
            let indices: Vec<_> = (next..store.len()).take(LENGTHS).collect();
            let mut lens = vec![0; indices.len()];
            store.lengths(&indices, &mut lens)?;
            found.empty += lens.iter().filter(|&&len| len == 0).count() as u64;
            found.large += lens.iter().filter(|&len| len > Version::V1.record_bytes().end()).count() as u64;
            next += indices.len() as u64;
        }
        Ok(found)
    }
}

impl fmt::Display for Beyond {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let of = |n: u64, what: &str| {
            (n > 0).then(|| format!("{} {} {what}", count(n, "record"), if n == 1 { "is" } else { "are" }))
        };
        let both: Vec<_> =
            [of(self.empty, "empty"), of(self.large, "over 1 MiB")].into_iter().flatten().collect();
        f.write_str(&both.join(" and "))
    }
}

impl Done {
    /// Says what was done, on standard output.
    pub(in crate::cli) fn tell(&self, path: &Path, labels: Option<&Path>, notes: &[String]) -> Outcome {
        let mut out = Output::new();
        let total =
            if self.total == self.records { String::new() } else { format!(", {} in all", self.total) };
        out.line(format_args!(
            "{}: imported {}{total}; {} stored as {}",
            path.display(),
            count(self.records, "record"),
            HumanBytes(self.bytes),
            HumanBytes(self.stored),
        ))?;
        if let (Some(labels), Some(classes)) = (labels, self.classes) {
            let labels = labels.display();
            let classes = count(classes as u64, "class");
            out.line(format_args!("{labels}: a label for each record, {classes} in classes.json"))?;
        }
        if let Some(beyond) = &self.beyond_v1 {
            out.line(format_args!(
                "The store has format version 2, since {beyond}: loaderx 0.5.0 refuses it. --v1 refuses such records and \
                 lists them."
            ))?;
        }
        for note in notes.iter().chain(&self.notes) {
            out.line(one_line(note))?;
        }
        out.finish()
    }
}
