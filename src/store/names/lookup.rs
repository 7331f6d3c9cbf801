//! `.zrfs/lookup-N`: from a folder and a name to a node, in constant time: a table of slots, each with a hash and a node
//! number. The slot of a hash is its highest bits, or the next one behind that is free.

use std::hash::Hasher;
use std::io;
use std::sync::Arc;

use siphasher::sip::SipHasher13;

use super::window::Window;
use crate::error::{Error, ErrorKind, Result};
use crate::format::{SLOT_BYTES, TreeExtent};
use crate::storage::StorageFile;

/// Slots that are read together.
const PROBE: usize = 8;
/// A new table is written rather than slots of the old one where more than one slot in so many changes.
const SPARSE: u32 = 64;
/// Bytes that are written at a time.
const PIECE: usize = 1 << 20;

/// Where a name stands in the table.
pub(super) fn hash(key: &[u8; 16], folder: u32, name: &[u8]) -> u32 {
    let mut hasher = SipHasher13::new_with_key(key);
    hasher.write(&folder.to_le_bytes());
    hasher.write(name);
    (hasher.finish() >> 32) as u32
}

/// Name of a lookup file.
pub(super) fn file_name(number: u32) -> String {
    format!("lookup-{number}")
}

fn slot_of(hash: u32, bits: u32) -> u64 {
    u64::from(hash) >> (32 - bits.clamp(1, 31))
}

/// The node numbers that stand under a hash.
pub(super) struct Probe {
    window: Window,
    hash: u32,
    at: u64,
    left: u64,
    mask: u64,
}

impl Probe {
    pub(super) fn new(file: &Arc<dyn StorageFile>, bits: u32, hash: u32) -> Probe {
        let slots = 1u64 << bits.clamp(1, 31);
        Probe {
            window: Probe::window(file, bits),
            hash,
            at: slot_of(hash, bits),
            left: slots,
            mask: slots - 1,
        }
    }

    /// For [`Probe::finds`].
    pub(super) fn window(file: &Arc<dyn StorageFile>, bits: u32) -> Window {
        Window::new(file, SLOT_BYTES as u64 * (1u64 << bits.clamp(1, 31)))
    }

    /// Whether a node stands under its hash. Fast where hashes come in ascending order.
    pub(super) fn finds(window: &mut Window, bits: u32, hash: u32, number: u32) -> io::Result<bool> {
        let slots = 1u64 << bits.clamp(1, 31);
        let wanted = slot_bytes(hash, number);
        let start = slot_of(hash, bits);
        for at in (start..slots).chain(0..start) {
            let bytes = window.get(at * SLOT_BYTES as u64, SLOT_BYTES)?.first_chunk::<SLOT_BYTES>();
            match bytes {
                Some(slot) if *slot == wanted => return Ok(true),
                Some([_, _, _, _, 0, 0, 0, 0]) | None => return Ok(false),
                Some(_) => {}
            }
        }
        Ok(false)
    }

    /// The next one; `None` behind the last.
    pub(super) fn next(&mut self) -> io::Result<Option<u32>> {
        while self.left > 0 {
            let bytes = self.window.get(self.at * SLOT_BYTES as u64, SLOT_BYTES)?;
            let Some(&[h0, h1, h2, h3, n0, n1, n2, n3]) = bytes.first_chunk::<SLOT_BYTES>() else {
                return Ok(None);
            };
            let number = u32::from_le_bytes([n0, n1, n2, n3]);
            if number == 0 {
                return Ok(None);
            }
            self.at = (self.at + 1) & self.mask;
            self.left -= 1;
            if u32::from_le_bytes([h0, h1, h2, h3]) == self.hash {
                return Ok(Some(number));
            }
        }
        Ok(None)
    }
}

/// How many bits a table of so many entries has: at most three of four slots are taken.
pub(super) fn bits_for(entries: u32) -> u32 {
    let slots = (u64::from(entries) * 4).div_ceil(3).next_power_of_two().max(64);
    slots.trailing_zeros()
}

/// Whether so many new entries go into the table as it is.
pub(super) fn takes(extent: &TreeExtent, new: u32) -> bool {
    let slots = 1u64 << extent.lookup_bits;
    (u64::from(extent.entries) + u64::from(new)) * 4 <= slots * 3
        && u64::from(new) * u64::from(SPARSE) <= slots
}

/// Puts entries (hash, number) into the table, which has room for them.
pub(super) fn insert(file: &dyn StorageFile, bits: u32, entries: &[(u32, u32)]) -> io::Result<()> {
    let slots = 1u64 << bits;
    let mut block = [0; PROBE * SLOT_BYTES];
    for &(hash, number) in entries {
        let mut at = slot_of(hash, bits);
        let mut probed = 0;
        'probing: loop {
            if probed > slots {
                return Err(io::Error::other("the table is full"));
            }
            probed += PROBE as u64;
            block.fill(0);
            file.read_at(&mut block, at * SLOT_BYTES as u64)?;
            for slot in block.chunks_exact(SLOT_BYTES) {
                if slot.get(4..) == Some(&[0; 4]) {
                    break 'probing;
                }
                at = (at + 1) & (slots - 1);
                if at == 0 {
                    break;
                }
            }
        }
        file.write_at(&slot_bytes(hash, number), at * SLOT_BYTES as u64)?;
    }
    Ok(())
}

/// The bytes of a slot.
fn slot_bytes(hash: u32, number: u32) -> [u8; SLOT_BYTES] {
    (u64::from(number) << 32 | u64::from(hash)).to_le_bytes()
}

/// Hands hash and number of each entry below node number `end` to `take`.
fn each_entry(
    file: &Arc<dyn StorageFile>,
    bits: u32,
    end: u32,
    mut take: impl FnMut(u32, u32),
) -> io::Result<()> {
    let slots = 1u64 << bits;
    let mut window = Window::new(file, slots * SLOT_BYTES as u64);
    for at in 0..slots {
        let Some(bytes) = window.get(at * SLOT_BYTES as u64, SLOT_BYTES)?.first_chunk() else { break };
        let slot = u64::from_le_bytes(*bytes);
        let number = (slot >> 32) as u32;
        if number != 0 && number < end {
            take((slot & 0xffff_ffff) as u32, number);
        }
    }
    Ok(())
}

/// How many entries below node number `end` a file has; `None` where it is not as long as it should be.
pub(super) fn count(file: &Arc<dyn StorageFile>, bits: u32, end: u32) -> io::Result<Option<u32>> {
    if file.attributes()?.len != (SLOT_BYTES as u64) << bits {
        return Ok(None);
    }
    let mut count = 0u32;
    each_entry(file, bits, end, |_, _| count += 1)?;
    Ok(Some(count))
}

/// A table in memory. Takes 8 bytes a slot.
pub(super) struct Table {
    slots: Vec<u64>,
    bits: u32,
}

impl Table {
    /// A table that has room for so many entries.
    pub(super) fn for_entries(entries: u32) -> Result<Table> {
        let bits = bits_for(entries);
        let mut slots = Vec::new();
        slots.try_reserve_exact(1 << bits).map_err(|_| {
            Error::new(ErrorKind::Memory, format!("there is no memory to look up {entries} names"))
        })?;
        slots.resize(1 << bits, 0);
        Ok(Table { slots, bits })
    }

    pub(super) fn bits(&self) -> u32 {
        self.bits
    }

    pub(super) fn insert(&mut self, hash: u32, number: u32) {
        let start = usize::try_from(slot_of(hash, self.bits)).unwrap_or(0);
        let (before, behind) = self.slots.split_at_mut_checked(start).unwrap_or_default();
        // There is a free one: a table is made larger than what it takes.
        if let Some(free) = behind.iter_mut().chain(before).find(|slot| **slot == 0) {
            *free = u64::from(number) << 32 | u64::from(hash);
        }
    }

    /// Takes over the entries of a file that has `bits`, those below node number `end`. There must be room for them.
    pub(super) fn take_over(&mut self, file: &Arc<dyn StorageFile>, bits: u32, end: u32) -> io::Result<()> {
        each_entry(file, bits, end, |hash, number| self.insert(hash, number))
    }

    pub(super) fn write(&self, file: &dyn StorageFile) -> io::Result<()> {
        let (mut bytes, mut at) = (Vec::with_capacity(PIECE), 0);
        for slots in self.slots.chunks(PIECE / SLOT_BYTES) {
            bytes.clear();
            slots.iter().for_each(|slot| bytes.extend_from_slice(&slot.to_le_bytes()));
            file.write_at(&bytes, at)?;
            at += bytes.len() as u64;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::storage::{Directory, Disk};

    #[test]
    fn what_was_put_in_is_found_at_any_load() {
        let dir = tempfile::tempdir().unwrap();
        let dir = Disk::open(dir.path()).unwrap();
        let hash = |i: u32| i.wrapping_mul(2_654_435_761) | 0xf000_0000;
        let mut table = Table::for_entries(3000).unwrap();
        (0..2000).for_each(|i| table.insert(hash(i), i + 100));
        let file = dir.create("lookup-1").unwrap();
        table.write(file.as_ref()).unwrap();
        let more: Vec<_> = (2000..3000).map(|i| (hash(i), i + 100)).collect();
        insert(file.as_ref(), table.bits(), &more).unwrap();
        let found = |file: &Arc<dyn StorageFile>, bits, i: u32| {
            let mut probe = Probe::new(file, bits, hash(i));
            let mut all = Vec::new();
            while let Some(number) = probe.next().unwrap() {
                all.push(number);
            }
            all
        };
        assert!((0..3000).all(|i| found(&file, table.bits(), i).contains(&(i + 100))));
        assert!(found(&file, table.bits(), 5000).is_empty());
        let mut larger = Table::for_entries(9000).unwrap();
        assert_eq!(count(&file, table.bits(), 2600).unwrap(), Some(2500));
        larger.take_over(&file, table.bits(), 2600).unwrap();
        let file = dir.create("lookup-2").unwrap();
        larger.write(file.as_ref()).unwrap();
        assert!((0..3000).all(|i| found(&file, larger.bits(), i).contains(&(i + 100)) == (i < 2500)));
    }
}
