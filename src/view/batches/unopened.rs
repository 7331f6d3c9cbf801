//! Files that the kernel reads without opening them here: so nobody says when they are closed.
//!
//! Shared by all requests: who has read last, behind a mutex that is held for a look-up.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use super::Open;
use super::reader::Reader;
use crate::view::Node;

/// Files that are kept as if they were open. Each may hold a few parts until it goes quiet.
const KEPT: usize = 16;

/// The files that were read last, the last one behind.
#[derive(Default)]
pub(super) struct Unopened(Mutex<VecDeque<(Node, Open)>>);

impl Unopened {
    /// The reader of a file that was read before.
    pub(super) fn get(&self, node: Node) -> Option<Arc<Reader>> {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let at = kept.iter().position(|(known, _)| *known == node)?;
        let open = kept.remove(at)?;
        let reader = Arc::clone(&open.1.0);
        kept.push_back(open);
        Some(reader)
    }

    /// Keeps an open file, in the place of the one that was read longest ago.
    pub(super) fn keep(&self, node: Node, open: Open) {
        let gone = {
            let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            kept.push_back((node, open));
            if kept.len() > KEPT { kept.pop_front() } else { None }
        };
        drop(gone);
    }
}
