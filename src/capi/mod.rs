//! The C interface: what the bindings of loaderx 0.5.0 load, with its names, signatures and codes. `include/zrfs.h` is its
//! reference for C; libzrfs.so is all of it, so it takes the place of loaderx's libzrecord.so and of its libsampler.so.
//!
//! Knows pointers (`pointers`), codes and the text of the last failure (`errors`), and what a handle is: a path where a
//! store may be (`handle`). What is done with records and indices is the store's and the sampler's to know.
//!
//! `record` and `sampler` are the functions. Each looks at its arguments first, then works in safe code under a guard
//! that turns errors and panics into codes: no panic crosses into C. `unsafe` is for pointers and nothing else.
//!
//! Nothing here waits for a lock on the way of a read, so a forked child, whose other threads are gone, gathers on. What
//! it inherited it may close and never change: its parent has the store's locks.

#![allow(unsafe_code, reason = "pointers from C")]

mod errors;
mod handle;
mod pointers;
mod record;
mod sampler;
#[cfg(test)]
mod tests;

pub use errors::zr_last_error;
pub use handle::Zrecord;
pub use record::{
    zr_append, zr_append_var, zr_close, zr_compact, zr_delete, zr_gather, zr_gather_var, zr_len, zr_lengths,
    zr_max_record_len, zr_open, zr_stats, zr_sync,
};
pub use sampler::{Indices, cdeinit, cinit, cnext};
