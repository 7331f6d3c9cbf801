//! One named stream of records, and how its part of a batch is gathered.

use super::buffers::Block;
use crate::dataset::{Dataset, Schema};
use crate::error::{Error, ErrorKind, Result};
use crate::store::Store;

/// Decoded bytes, and records, that are gathered at a time: between two such pieces a worker looks whether it is to stop.
const PIECE: usize = 8 << 20;
const RECORDS: usize = 1 << 16;

/// Where a stream's records come from.
///
/// A [`Dataset`] gives dense batches, with a dtype and a shape; a [`Store`] ragged ones, records of any lengths laid one
/// after another.
pub struct Stream(Kind);

enum Kind {
    Dense(Dataset),
    Ragged(Store),
}

impl From<Dataset> for Stream {
    fn from(dataset: Dataset) -> Stream {
        Stream(Kind::Dense(dataset))
    }
}

impl From<Store> for Stream {
    fn from(store: Store) -> Stream {
        Stream(Kind::Ragged(store))
    }
}

impl Stream {
    pub(super) fn store(&self) -> &Store {
        match &self.0 {
            Kind::Dense(dataset) => dataset.store(),
            Kind::Ragged(store) => store,
        }
    }

    /// dtype and shape, of a dense stream.
    pub(super) fn schema(&self) -> Option<&Schema> {
        match &self.0 {
            Kind::Dense(dataset) => Some(dataset.schema()),
            Kind::Ragged(_) => None,
        }
    }

    /// Gathers the records `indices` into `block`; `false` where `stop` said so in between.
    pub(super) fn gather(
        &self,
        indices: &[u64],
        block: &mut Block,
        most: usize,
        stop: impl Fn() -> bool,
    ) -> Result<bool> {
        match &self.0 {
            Kind::Dense(dataset) => gather_dense(dataset, indices, block, stop),
            Kind::Ragged(store) => gather_ragged(store, indices, block, most, stop),
        }
    }
}

fn gather_dense(
    dataset: &Dataset,
    indices: &[u64],
    block: &mut Block,
    stop: impl Fn() -> bool,
) -> Result<bool> {
    let item = usize::try_from(dataset.schema().record_bytes()).unwrap_or(usize::MAX);
    block.bytes.resize(indices.len().saturating_mul(item))?;
    let records = (PIECE / item.max(1)).clamp(1, RECORDS);
    let mut bytes = block.bytes.bytes_mut();
    for indices in indices.chunks(records) {
        if stop() {
            return Ok(false);
        }
        let (piece, behind) = bytes.split_at_mut_checked(indices.len() * item).unwrap_or_default();
        dataset.gather_into(indices, piece)?;
        bytes = behind;
    }
    Ok(true)
}

fn gather_ragged(
    store: &Store,
    indices: &[u64],
    block: &mut Block,
    most: usize,
    stop: impl Fn() -> bool,
) -> Result<bool> {
    let Block { bytes, offsets, lengths } = block;
    lengths.resize(indices.len(), 0);
    for (indices, lengths) in indices.chunks(RECORDS).zip(lengths.chunks_mut(RECORDS)) {
        if stop() {
            return Ok(false);
        }
        store.lengths(indices, lengths)?;
    }
    offsets.clear();
    offsets.push(0);
    let mut end = 0u64;
    for &len in &*lengths {
        end += u64::from(len);
        offsets.push(end);
    }
    let total = usize::try_from(end).ok().filter(|&total| total <= most);
    let Some(total) = total else {
        let text = format!(
            "a batch of {} records of {} has {end} bytes, the most is {most}",
            indices.len(),
            store.path().display()
        );
        return Err(Error::new(ErrorKind::Memory, text)
            .with_help("take smaller batches, or raise `LoaderBuilder::max_batch_bytes`"));
    };
    bytes.resize(total)?;
    let mut bytes = bytes.bytes_mut();
    let (mut first, mut begin) = (0, 0u64);
    let mut local = Vec::new();
    while first < indices.len() {
        if stop() {
            return Ok(false);
        }
        // As many records as fit in a piece, and one at least.
        let ends = offsets.get(first + 1..).unwrap_or_default();
        let ends = ends.get(..RECORDS).unwrap_or(ends);
        let records = ends.partition_point(|&end| end - begin <= PIECE as u64).max(1);
        let last = first + records;
        local.clear();
        local.extend(offsets.get(first..last).unwrap_or_default().iter().map(|&offset| offset - begin));
        let end = offsets.get(last).copied().unwrap_or(begin);
        let len = usize::try_from(end - begin).unwrap_or(usize::MAX);
        let (piece, behind) = bytes.split_at_mut_checked(len).unwrap_or_default();
        store.gather_ragged(indices.get(first..last).unwrap_or_default(), piece, &local)?;
        (first, begin, bytes) = (last, end, behind);
    }
    Ok(true)
}
