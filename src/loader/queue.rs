//! The order of the steps: who draws the next one, and who waits for which.
//!
//! Shared: everything here, behind one mutex. Workers wait for `room`, the caller for `ready`. At most `prefetch` steps
//! are drawn and not taken yet, made or in the making: that bounds the memory.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use crate::error::Result;
use crate::sampler::{Sampler, SamplerState};

pub(super) struct Queue<T> {
    order: Mutex<Order<T>>,
    room: Condvar,
    ready: Condvar,
    prefetch: usize,
    /// Looked at between the pieces of a batch.
    stopped: AtomicBool,
}

struct Order<T> {
    sampler: Sampler,
    /// The step at the front of `steps`.
    front: u64,
    /// The steps that were drawn, each empty until its batch is made.
    steps: VecDeque<Option<Delivery<T>>>,
}

/// What became of a step.
pub(super) struct Delivery<T> {
    pub(super) result: Result<T>,
    /// The sampler's state behind the step.
    pub(super) after: SamplerState,
}

/// A step that was drawn.
pub(super) struct Drawn {
    pub(super) step: u64,
    pub(super) after: SamplerState,
    /// Whether the indices could be drawn.
    pub(super) result: Result<()>,
}

impl<T> Queue<T> {
    pub(super) fn new(sampler: Sampler, prefetch: usize) -> Queue<T> {
        let order = Order { front: sampler.step(), sampler, steps: VecDeque::new() };
        Queue {
            order: Mutex::new(order),
            room: Condvar::new(),
            ready: Condvar::new(),
            prefetch,
            stopped: AtomicBool::new(false),
        }
    }

    fn order(&self) -> MutexGuard<'_, Order<T>> {
        // Nothing that may panic runs under it.
        self.order.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Draws the next step's indices when there is room for its batch; `None` where the loader stops.
    pub(super) fn draw(&self, indices: &mut [u64]) -> Option<Drawn> {
        let mut order = self.order();
        while order.steps.len() >= self.prefetch && !self.is_stopped() {
            order = self.room.wait(order).unwrap_or_else(PoisonError::into_inner);
        }
        if self.is_stopped() {
            return None;
        }
        let step = order.sampler.step();
        let result = order.sampler.next(indices);
        order.steps.push_back(None);
        Some(Drawn { step, after: order.sampler.state(), result })
    }

    /// Puts what became of `step` in its place.
    pub(super) fn put(&self, step: u64, delivery: Delivery<T>) {
        let mut order = self.order();
        let place = usize::try_from(step.wrapping_sub(order.front)).unwrap_or(usize::MAX);
        if let Some(slot) = order.steps.get_mut(place) {
            *slot = Some(delivery);
        }
        drop(order);
        if place == 0 {
            self.ready.notify_one();
        }
    }

    /// Waits for the step at the front, and makes room for another.
    pub(super) fn take(&self) -> Delivery<T> {
        let mut order = self.order();
        loop {
            if let Some(delivery) = order.steps.front_mut().and_then(Option::take) {
                order.steps.pop_front();
                order.front = order.front.wrapping_add(1);
                drop(order);
                self.room.notify_one();
                return delivery;
            }
            order = self.ready.wait(order).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Sends the workers home.
    pub(super) fn stop(&self) {
        // First of all: whoever gets the mutex before this thread sees it and draws no more.
        self.stopped.store(true, Ordering::Release);
        // Who has looked before and waits by now is woken, as it has let go of the mutex.
        drop(self.order());
        self.room.notify_all();
    }

    pub(super) fn is_stopped(&self) -> bool {
        self.stopped.load(Ordering::Acquire)
    }
}
