//! What the benchmarks share: the data, the index stream, and the reading of a file.
//!
//! Everything is a pure function of a seed, so a benchmark can check what it reads without keeping a copy.

#![allow(dead_code, reason = "each benchmark compiles this file for itself and uses a part of it")]

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use tempfile::TempDir;
use zrfs::{Codec, Store, Version};

/// Bytes in a KiB.
pub(crate) const KIB: usize = 1024;

/// Records in a batch: the default batch size of the loader.
pub(crate) const BATCH: usize = 256;

const GAMMA: u64 = 0x9E37_79B9_7F4A_7C15;

/// Number `i` of the splitmix64 stream of `seed`. Any number is reached directly, so that another program can
/// compute the same stream in whatever order suits it.
pub(crate) fn splitmix(seed: u64, i: u64) -> u64 {
    let mut z = seed.wrapping_add(i.wrapping_add(1).wrapping_mul(GAMMA));
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

/// Fills `dst` with correlated bytes: each is the one before plus 0 to 6, wrapping. This is the data of
/// loaderx's own benchmark. Deflate takes records of 12 KiB of it to about 0.8 of their size.
pub(crate) fn fill_walk(seed: u64, dst: &mut [u8]) {
    let mut value = 0u8;
    for (i, byte) in (0u64..).zip(dst.iter_mut()) {
        value = value.wrapping_add((splitmix(seed, i) % 7) as u8);
        *byte = value;
    }
}

/// `count` batches of random indices below `len`: number `i` of the stream is `splitmix(seed, i) % len`.
pub(crate) fn batches(seed: u64, len: u64, batch: usize, count: usize) -> Vec<Vec<u64>> {
    let mut stream = (0u64..).map(|i| splitmix(seed, i) % len);
    (0..count).map(|_| stream.by_ref().take(batch).collect()).collect()
}

/// A random order of `0..len`.
pub(crate) fn permutation(seed: u64, len: usize) -> Vec<usize> {
    let mut order: Vec<usize> = (0..len).collect();
    for i in (1..len).rev() {
        let j = (splitmix(seed, i as u64) % (i as u64 + 1)) as usize;
        order.swap(i, j);
    }
    order
}

/// The sum of the little-endian 64-bit words of `bytes`, word `i` times `2 i + 1`, wrapping; a short last
/// word is padded with zeros. Words that change places change the sum, and NumPy computes it quickly.
pub(crate) fn checksum(bytes: &[u8]) -> u64 {
    let mut sum = 0u64;
    for (i, word) in (0u64..).zip(bytes.chunks(8)) {
        let mut padded = [0u8; 8];
        padded[..word.len()].copy_from_slice(word);
        sum = sum.wrapping_add(u64::from_le_bytes(padded).wrapping_mul(2 * i + 1));
    }
    sum
}

/// A new directory on the file system that holds the build. The system's temp directory may be in memory,
/// which would say nothing about a disk.
pub(crate) fn temp_dir() -> TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("make a temp directory")
}

/// A codec's name as the benchmarks print it.
pub(crate) fn codec_name(codec: Codec) -> &'static str {
    match codec {
        Codec::Raw => "raw",
        _ => "deflate",
    }
}

/// A size as the benchmarks print it.
pub(crate) fn size_name(bytes: usize) -> String {
    if bytes.is_multiple_of(KIB) { format!("{} KiB", bytes / KIB) } else { format!("{bytes} B") }
}

/// A store of equal records, open, and the bytes that went into it.
pub(crate) struct FilledStore {
    /// The store.
    pub(crate) store: Store,
    /// All records, one after another.
    pub(crate) source: Vec<u8>,
    _dir: TempDir,
}

/// Makes a store of `len` records of `item_len` correlated bytes in a new directory.
pub(crate) fn filled_store(len: usize, item_len: usize, codec: Codec) -> FilledStore {
    let dir = temp_dir();
    let mut source = vec![0; len * item_len];
    fill_walk(1, &mut source);
    let store = Store::create(dir.path().join("bench.zr"), Version::V1).expect("create the store");
    store.append(&source, item_len, codec).expect("fill the store");
    store.sync().expect("sync the store");
    assert_eq!(store.len(), len as u64);
    FilledStore { store, source, _dir: dir }
}

/// Opens, stats, reads whole and closes one file; gives its size. `buffer` must hold the file.
///
/// # Errors
/// Those of the three calls, and an end of the file before its size.
pub(crate) fn read_file(path: &Path, buffer: &mut [u8]) -> io::Result<usize> {
    let mut file = File::open(path)?;
    // Not `File::metadata`, whose statx asks for more than fstat does.
    let size = usize::try_from(rustix::fs::fstat(&file)?.st_size).map_err(io::Error::other)?;
    let buffer =
        buffer.get_mut(..size).ok_or_else(|| io::Error::other("the file is larger than the buffer"))?;
    file.read_exact(buffer)?;
    Ok(size)
}
