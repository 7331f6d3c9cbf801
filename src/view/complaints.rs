//! Errors that are logged once, however often a program tries again.
//!
//! Shared: hashes of what was logged, behind a mutex that is held to look one up.

use std::collections::HashSet;
use std::hash::{BuildHasher, RandomState};
use std::sync::{Mutex, PoisonError};

use crate::error::Error;

/// What is remembered. Then all may be logged once more.
const MOST: usize = 4096;

/// What was logged.
#[derive(Default)]
pub(super) struct Complaints {
    logged: Mutex<HashSet<u64>>,
    hash: RandomState,
}

impl Complaints {
    /// Logs an error, unless it was.
    pub(super) fn log(&self, e: &Error) {
        let text = e.to_string();
        if self.is_new(&text) {
            log::error!("{text}");
        }
    }

    fn is_new(&self, text: &str) -> bool {
        let mut logged = self.logged.lock().unwrap_or_else(PoisonError::into_inner);
        if logged.len() >= MOST {
            logged.clear();
        }
        logged.insert(self.hash.hash_one(text))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_is_logged_once() {
        let complaints = Complaints::default();
        assert!(complaints.is_new("a") && complaints.is_new("b"));
        assert!(!complaints.is_new("a") && !complaints.is_new("b"));
        (0..2 * MOST).for_each(|i| assert!(complaints.is_new(&i.to_string())));
        assert!(complaints.logged.lock().unwrap().len() <= MOST);
    }
}
