//! Rows of one width in a file, by index: entries of the record table, and what stands beside them.

use std::io;

use crate::storage::StorageFile;

/// Rows that go into one write, with those between them.
const BLOCK: u32 = 1 << 12;
/// Rows that may lie between two of one write: reading and writing them again costs less than another call.
const GAP: u32 = 1 << 6;

/// A row and its index.
pub(super) type Indexed<const N: usize> = (u32, [u8; N]);

/// Writes rows at their places, which are in ascending order. `base` is the byte of row 0.
pub(super) fn write_scattered<const N: usize>(
    file: &dyn StorageFile,
    base: u64,
    rows: &[Indexed<N>],
) -> io::Result<()> {
    let mut buffer = Vec::new();
    let near = |a: &Indexed<N>, b: &Indexed<N>| b.0.saturating_sub(a.0) <= GAP;
    debug_assert!(rows.is_sorted_by(|a, b| a.0 < b.0), "rows are in ascending order");
    for run in rows.chunk_by(near).flat_map(|run| run.chunks(BLOCK as usize / GAP as usize)) {
        let (Some((first, _)), Some((last, _))) = (run.first(), run.last()) else { continue };
        let count = (last - first) as usize + 1;
        let at = base + u64::from(*first) * N as u64;
        buffer.clear();
        buffer.resize(count * N, 0);
        if count > run.len() {
            // What lies behind the end of the file stays zero.
            file.read_at(&mut buffer, at)?;
        }
        for (index, row) in run {
            let place = (index - first) as usize * N;
            if let Some(slot) = buffer.get_mut(place..place + N) {
                slot.copy_from_slice(row);
            }
        }
        file.write_at(&buffer, at)?;
    }
    Ok(())
}

/// Reads rows at their places, which are in ascending order.
pub(super) fn read_scattered<const N: usize>(
    file: &dyn StorageFile,
    base: u64,
    indices: impl Iterator<Item = u32>,
) -> io::Result<Vec<[u8; N]>> {
    let mut found = Vec::with_capacity(indices.size_hint().0);
    let (mut buffer, mut first, mut filled) = (vec![0; BLOCK as usize * N], 0, 0..0);
    for index in indices {
        if !filled.contains(&index) {
            buffer.fill(0);
            file.read_at(&mut buffer, base + u64::from(index) * N as u64)?;
            (first, filled) = (index, index..index.saturating_add(BLOCK));
        }
        let place = (index - first) as usize * N;
        found.push(buffer.get(place..).and_then(|rest| rest.first_chunk()).copied().unwrap_or([0; N]));
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::storage::{Directory, Disk};

    #[test]
    fn rows_are_written_and_read_at_their_places_and_nowhere_else() {
        let dir = tempfile::tempdir().unwrap();
        let file = Disk::open(dir.path()).unwrap().create("rows").unwrap();
        let all: Vec<Indexed<4>> = (0..20_000u32).map(|i| (i, i.to_le_bytes())).collect();
        write_scattered(file.as_ref(), 16, &all).unwrap();
        let every =
            |step: usize, from: usize| (from..20_000).step_by(step).map(|i| u32::try_from(i).unwrap());
        for (step, from) in [(1, 5), (3, 0), (64, 1), (65, 2), (5000, 3)] {
            let rows: Vec<Indexed<4>> =
                every(step, from).map(|i| (i, (i ^ 0x5500_0000).to_le_bytes())).collect();
            write_scattered(file.as_ref(), 16, &rows).unwrap();
            let read = read_scattered::<4>(file.as_ref(), 16, 0..20_000).unwrap();
            for (i, row) in read.iter().enumerate() {
                let i = u32::try_from(i).unwrap();
                let changed = rows.binary_search_by_key(&i, |&(i, _)| i).is_ok();
                assert_eq!(
                    u32::from_le_bytes(*row),
                    if changed { i ^ 0x5500_0000 } else { i },
                    "step {step}"
                );
            }
            let some = read_scattered::<4>(file.as_ref(), 16, every(step, from)).unwrap();
            assert_eq!(some, rows.iter().map(|&(_, row)| row).collect::<Vec<_>>());
            write_scattered(file.as_ref(), 16, &all).unwrap();
        }
        assert_eq!(read_scattered::<4>(file.as_ref(), 16, 30_000..30_002).unwrap(), [[0; 4]; 2]);
    }
}
