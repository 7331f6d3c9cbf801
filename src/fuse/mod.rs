//! The kernel: mounting, the session's threads, requests and replies. Knows not how bytes are made: each request is
//! decoded, handed to the view, and answered.
//!
//! fuser stays inside this room. What it gets wrong is worked round in `session`, which says so where it does.

mod adapter;
mod affinity;
mod asking;
mod attach;
mod control;
mod errno;
mod fusermount;
mod guard;
mod idle;
mod kernel;
mod mountinfo;
mod mountpoint;
mod options;
mod session;
mod unmount;

pub use mountinfo::{MountEntry, mounts};
pub use mountpoint::{Mountpoint, mounted_at};
pub use options::MountOptions;
pub use session::{Cause, Ending, Session, Unmounter};
pub use unmount::{Unmount, unmount};

/// The type that mounts show in /proc/mounts.
pub const FSTYPE: &str = "fuse.zrfs";
