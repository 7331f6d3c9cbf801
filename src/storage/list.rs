//! A list that signal handlers and fork handlers may walk: without a lock, without allocating.
//!
//! Shared: it only grows, at its head. Nodes are used again, never freed. What a free node holds has to say by itself
//! that it stands for nothing.

use std::ops::Deref;
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering};

pub(super) struct List<T: 'static> {
    head: AtomicPtr<Node<T>>,
}

struct Node<T: 'static> {
    value: T,
    taken: AtomicBool,
    next: Option<&'static Node<T>>,
}

/// A node that is its holder's alone until it is dropped.
pub(super) struct Taken<T: 'static>(&'static Node<T>);

impl<T: Default + Sync> List<T> {
    pub(super) const fn new() -> List<T> {
        List { head: AtomicPtr::new(ptr::null_mut()) }
    }

    /// A node that nobody else uses: a freed one, with what was left in it, or a new one.
    pub(super) fn take(&self) -> Taken<T> {
        let free = |node: &&Node<T>| {
            node.taken.compare_exchange(false, true, Ordering::SeqCst, Ordering::SeqCst).is_ok()
        };
        Taken(self.nodes().find(free).unwrap_or_else(|| self.grow()))
    }

    /// Everything in the list, free nodes included.
    pub(super) fn iter(&self) -> impl Iterator<Item = &'static T> {
        self.nodes().map(|node| &node.value)
    }

    fn nodes(&self) -> impl Iterator<Item = &'static Node<T>> {
        // SAFETY: nodes come from Box::leak and are never freed; only what is atomic in them changes.
        let first = unsafe { self.head.load(Ordering::SeqCst).as_ref() };
        std::iter::successors(first, |node| node.next)
    }

    fn grow(&self) -> &'static Node<T> {
        let node =
            Box::leak(Box::new(Node { value: T::default(), taken: AtomicBool::new(true), next: None }));
        let mut head = self.head.load(Ordering::SeqCst);
        loop {
            // SAFETY: as in `nodes`.
            node.next = unsafe { head.as_ref() };
            match self.head.compare_exchange(head, ptr::from_mut(node), Ordering::SeqCst, Ordering::SeqCst) {
                Ok(_) => return node,
                Err(now) => head = now,
            }
        }
    }
}

impl<T> Deref for Taken<T> {
    type Target = T;

    #[inline(always)]
    fn deref(&self) -> &T {
        &self.0.value
    }
}

impl<T> Drop for Taken<T> {
    fn drop(&mut self) {
        self.0.taken.store(false, Ordering::SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU64;

    use super::*;

    #[test]
    fn many_threads_share_no_node_and_freed_nodes_are_used_again() {
        static LIST: List<AtomicU64> = List::new();
        std::thread::scope(|scope| {
            for thread in 1..=4 {
                scope.spawn(move || {
                    for _ in 0..1000 {
                        let node = LIST.take();
                        node.store(thread, Ordering::SeqCst);
                        std::hint::spin_loop();
                        assert_eq!(node.swap(0, Ordering::SeqCst), thread);
                    }
                });
            }
        });
        assert!(LIST.iter().count() <= 4);
    }
}
