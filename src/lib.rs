//! zrfs packs millions of small training samples into one compressed record store (Zrecord, the format of
//! loaderx 0.5.0) and mounts that store, so that every tool that reads files reads records.
//!
//! The rooms, in the direction that bytes flow; each uses only what stands above it:
//!
//! | room | knows |
//! |---|---|
//! | [`mod@format`] | what is on disk, byte by byte, and its checks |
//! | [`storage`] | files: read, write, sync, lock, map |
//! | [`codec`] | raw and Deflate |
//! | [`store`] | records: append, gather, delete, compact, verify, repair |
//! | [`sampler`] | endless streams of indices |
//! | [`dataset`] | dtype and shape of dense records |
//! | [`loader`] | endless batches, ahead of who takes them |
//! | [`capi`] | the C interface |
//! | [`view`] | what a mount shows: inode numbers, names, bytes |
//! | `fuse` | the kernel (feature `fuse`) |
//!
//! ```
//! use zrfs::{Codec, Store, Version};
//!
//! # fn main() -> zrfs::Result<()> {
//! # let folder = tempfile::tempdir().unwrap();
//! let path = folder.path().join("train.zr");
//! let store = Store::create(&path, Version::V1)?;
//! let first = store.append(&[7; 3 * 1000], 1000, Codec::default())?; // three records of 1000 bytes
//! store.sync()?;
//!
//! let mut batch = vec![0; 2 * 1000];
//! Store::open_read_only(&path)?.gather(&[first + 2, first], &mut batch, 1000)?;
//! assert_eq!(batch, vec![7; 2000]);
//! # Ok(())
//! # }
//! ```

#![cfg_attr(test, allow(clippy::cast_possible_truncation, reason = "test data is small"))]

#[cfg(not(all(target_os = "linux", target_endian = "little", target_pointer_width = "64")))]
compile_error!("zrfs runs on 64-bit little-endian Linux: the format and the mappings need it");

pub mod capi;
pub mod codec;
pub mod dataset;
mod error;
pub mod format;
#[cfg(feature = "fuse")]
pub mod fuse;
pub mod loader;
pub mod sampler;
pub mod storage;
pub mod store;
pub mod view;

pub use codec::Codec;
pub use dataset::{Dataset, Schema};
pub use error::{Error, ErrorKind, Result};
pub use format::Version;
pub use loader::{Batch, Loader};
pub use sampler::{Mode, Sampler, SamplerOptions, SamplerState};
pub use store::{Appender, Stats, Store};
