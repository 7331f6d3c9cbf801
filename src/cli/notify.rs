//! Telling a service manager how a mount in front is doing, as sd_notify does.
//!
//! Each message is one datagram to the socket that the environment names; where it names none, nobody wants to know.

use std::ffi::OsStr;
use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};

/// Names the socket.
pub(super) const SOCKET: &str = "NOTIFY_SOCKET";

/// The mount serves. `status` is one line.
pub(super) fn serving(status: &str) {
    tell(&format!("READY=1\nSTATUS={status}"));
}

/// The mount ends.
pub(super) fn stopping() {
    tell("STOPPING=1");
}

fn tell(message: &str) {
    let Some(name) = std::env::var_os(SOCKET) else { return };
    if let Err(e) = send(&name, message) {
        log::warn!("can't tell the service manager at {}: {e}", name.display());
    }
}

fn send(name: &OsStr, message: &str) -> io::Result<()> {
    let address = match name.as_bytes().strip_prefix(b"@") {
        Some(name) => SocketAddr::from_abstract_name(name)?,
        None => SocketAddr::from_pathname(name)?,
    };
    UnixDatagram::unbound()?.send_to_addr(message.as_bytes(), &address).map(drop)
}
