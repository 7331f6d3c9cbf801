//! Single records against their checksums, for whoever reads records and wants to know that they are what was appended.

use std::cell::RefCell;

use super::sidecars::Sums;
use super::{Store, resize};
use crate::error::{Error, ErrorKind, Result};
use crate::format::{RecordLoc, Slot, Version, checksum};

thread_local! {
    /// Stored bytes of the record that is being looked at.
    static STORED: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// The checksums of a store's records.
pub struct Checksums<'a> {
    store: &'a Store,
    /// `None` where there are none.
    sums: Option<Sums>,
}

impl Store {
    /// The checksums of the records, as they are now. Where another program has changed the store since zrfs did, they say
    /// nothing: other bytes need not be damage there.
    ///
    /// # Errors
    /// What the system refuses.
    pub fn checksums(&self) -> Result<Checksums<'_>> {
        let mut sums = Sums::open(self.dir.as_ref(), &self.path)?;
        if let Some(known) = &sums
            && let Ok((header, false)) = self.meta.any_header()
            && header.version == Version::V1
            && (known.is_foreign(&header) || known.is_older_than(self.modified()?)?)
        {
            sums = None;
        }
        Ok(Checksums { store: self, sums })
    }
}

impl Checksums<'_> {
    /// Reads a record's stored bytes and holds them against its checksum. Good, too, is a record that has none, as those have
    /// that loaderx appended, and one that another program may have replaced.
    ///
    /// Cost: a read of the stored bytes, and a tenth of a nanosecond a byte.
    ///
    /// # Errors
    /// [`ErrorKind::Damaged`] where they are other bytes than were appended, or its entry is damaged;
    /// [`ErrorKind::OutOfRange`]; what the system refuses.
    pub fn confirm(&self, index: u64) -> Result<()> {
        let loc = self.store.location(index)?;
        let Some(sums) = &self.sums else { return Ok(()) };
        // A store has fewer records than a u32 counts.
        let Slot::Row(row) = sums.row(u32::try_from(index).unwrap_or(u32::MAX))? else { return Ok(()) };
        if row.doubtful || RecordLoc::decode(row.loc, self.store.version()) != Some(loc) {
            return Ok(());
        }
        let state = self.store.state();
        let chunk = state.chunks.get(self.store.dir.as_ref(), loc.chunk_id)?;
        let is_whole = STORED.with_borrow_mut(|bytes| -> Result<bool> {
            bytes.clear();
            resize(bytes, loc.phys_length as usize)?;
            chunk.read(bytes, loc.offset.into())?;
            Ok(checksum(bytes) == row.sum)
        })?;
        if is_whole {
            return Ok(());
        }
        let text = format!(
            "record {index} of {} is damaged: its bytes are not those that were appended",
            self.store.path.display()
        );
        Err(Error::new(ErrorKind::Damaged, text))
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::FileExt;

    use super::*;
    use crate::codec::Codec;

    #[test]
    fn a_changed_byte_is_told_and_other_records_are_good() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("s.zr");
        let store = Store::create(&path, Version::V1).unwrap();
        store.append(&[7; 300], 100, Codec::Raw).unwrap();
        store.sync().unwrap();
        let sums = store.checksums().unwrap();
        assert!((0..3).all(|i| sums.confirm(i).is_ok()));
        let chunk = std::fs::File::options().write(true).open(path.join("0.zr")).unwrap();
        chunk.write_all_at(b"x", 150).unwrap();
        assert_eq!(sums.confirm(1).unwrap_err().kind(), ErrorKind::Damaged);
        assert!(sums.confirm(0).is_ok() && sums.confirm(2).is_ok());
        assert_eq!(sums.confirm(3).unwrap_err().kind(), ErrorKind::OutOfRange);
        std::fs::remove_file(path.join(".zrfs/checksums")).unwrap();
        assert!(store.checksums().unwrap().confirm(1).is_ok(), "without a checksum nothing is known");
    }

    #[test]
    fn records_that_are_written_in_pieces_have_their_checksums() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::create(dir.path().join("s.zr"), Version::V2).unwrap();
        // Longer and shorter than what is written at once, none at its boundaries, several shards.
        let lens: Vec<u32> =
            (0..40).map(|i: u32| [0, 1, 70_001, 524_288, 300_007, 1_300_003][i as usize % 6]).collect();
        let src: Vec<u8> = (0..1_300_003u32).map(|i| (i.wrapping_mul(0x9e37_79b9) >> 27) as u8).collect();
        let offsets: Vec<u64> = lens.iter().map(|&len| u64::from(1_300_003 - len)).collect();
        for codec in [Codec::Raw, Codec::default()] {
            let first = store.append_ragged(&src, &offsets, &lens, codec).unwrap();
            for (index, (&offset, &len)) in (first..).zip(offsets.iter().zip(&lens)) {
                assert!(
                    store.read(index).unwrap() == src[offset as usize..][..len as usize],
                    "record {index}"
                );
            }
        }
        let first = store.append(&src[..1_300_000], 650_000, Codec::Raw).unwrap();
        assert!(store.read(first + 1).unwrap() == src[650_000..1_300_000]);
        store.sync().unwrap();
        let sums = store.checksums().unwrap();
        (0..store.len()).for_each(|index| sums.confirm(index).unwrap());
    }
}
