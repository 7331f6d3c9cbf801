//! What the kernel is told to forget.
//!
//! Each notification waits for the kernel, which may wait for a handler: so no handler sends one.

use std::ffi::OsStr;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;

use fuser::{INodeNo, Notifier};

use crate::view::{Forget, Node};

/// `FUSE_NOTIFY_INC_EPOCH`, which fuser does not have: every name that was looked up before is looked up again.
const NOTIFY_INC_EPOCH: i32 = 8;

/// A way to tell the kernel.
pub(super) struct Kernel {
    notifier: Notifier,
    device: OwnedFd,
    forgets_all_names: bool,
}

impl Kernel {
    /// `device` is a duplicate of the session's descriptor.
    pub(super) fn new(notifier: Notifier, device: OwnedFd) -> Kernel {
        // Nothing was looked up yet, so this only shows whether the kernel knows it.
        let forgets_all_names = forget_all_names(&device).is_ok();
        Kernel { notifier, device, forgets_all_names }
    }

    /// Whether it can forget all names at once.
    pub(super) fn forgets_all_names(&self) -> bool {
        self.forgets_all_names
    }

    /// Has it forget. A name or a file that it does not know is no failure; else it is logged: openings are right all the
    /// same, as the number of a file that is gone is refused.
    pub(super) fn forget(&self, forget: &Forget) {
        for &node in &forget.pages {
            log_failure(self.notifier.inval_inode(number(node), 0, -1));
        }
        if forget.all_names {
            log_failure(forget_all_names(&self.device));
        }
        for (directory, name) in &forget.names {
            log_failure(self.notifier.inval_entry(number(*directory), OsStr::from_bytes(name)));
        }
        for &node in &forget.attributes {
            // Of no byte: the pages stay.
            log_failure(self.notifier.inval_inode(number(node), -1, 0));
        }
        for &node in &forget.directories {
            log_failure(self.notifier.inval_inode(number(node), 0, -1));
        }
    }
}

fn number(node: Node) -> INodeNo {
    INodeNo(node.number())
}

fn forget_all_names(device: &OwnedFd) -> io::Result<()> {
    // struct fuse_out_header: length, code, and 0 for a notification. There is nothing behind it.
    let mut message = [0; 16];
    let (length, rest) = message.split_at_mut(4);
    length.copy_from_slice(&16u32.to_ne_bytes());
    if let Some(code) = rest.get_mut(..4) {
        code.copy_from_slice(&NOTIFY_INC_EPOCH.to_ne_bytes());
    }
    rustix::io::write(device, &message).map(drop).map_err(io::Error::from)
}

fn log_failure(told: io::Result<()>) {
    match told {
        Err(e) if e.kind() != io::ErrorKind::NotFound => log::debug!("the kernel did not forget: {e}"),
        _ => {}
    }
}
