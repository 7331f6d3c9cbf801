//! The store library through its public interface.

#![allow(
    clippy::cast_possible_truncation,
    clippy::unwrap_used,
    reason = "a test that goes wrong should stop"
)]

mod damage;
mod geometry;
mod list;
mod sharing;

use std::ops::ControlFlow;
use std::path::Path;

use zrfs::{Codec, Store, Version};

fn read(store: &Store, index: u64) -> zrfs::Result<Vec<u8>> {
    let record = store.read(index)?;
    let mut len = [0];
    store.lengths(&[index], &mut len)?;
    assert_eq!(record.len(), len[0] as usize);
    Ok(record)
}

fn ragged(records: &[Vec<u8>]) -> (Vec<u8>, Vec<u64>, Vec<u32>) {
    let (mut bytes, mut offsets, mut lens) = (Vec::new(), Vec::new(), Vec::new());
    for record in records {
        offsets.push(bytes.len() as u64);
        lens.push(u32::try_from(record.len()).unwrap());
        bytes.extend_from_slice(record);
    }
    (bytes, offsets, lens)
}

fn go(_: zrfs::store::Progress) -> ControlFlow<()> {
    ControlFlow::Continue(())
}

/// Three raw and three deflated records.
fn small_store(path: &Path) -> Vec<Vec<u8>> {
    let records: Vec<Vec<u8>> = (0..6u8).map(|i| vec![i + 1; 200 + usize::from(i)]).collect();
    let store = Store::create(path, Version::V1).unwrap();
    for (i, record) in records.iter().enumerate() {
        let codec = if i % 2 == 0 { Codec::Raw } else { Codec::default() };
        store.append(record, record.len(), codec).unwrap();
    }
    store.sync().unwrap();
    records
}
