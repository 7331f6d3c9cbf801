//! The kernel: mounting, the session's threads, requests and replies. Knows not how bytes are made: each request is
//! decoded, handed to the view, and answered.
//!
//! fuser stays inside this room. What it gets wrong is worked round in `session`, which says so where it does.

mod adapter;
mod affinity;
mod control;
mod errno;
mod idle;
mod kernel;
mod mountpoint;
mod options;
mod session;

pub use mountpoint::{MountEntry, Mountpoint, mounted_at, mounts};
pub use options::MountOptions;
pub use session::{Cause, Ending, Session, Unmounter, unmount};

/// The type that mounts show in /proc/mounts.
pub const FSTYPE: &str = "fuse.zrfs";
