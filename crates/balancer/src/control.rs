//! What the balancer tells its threads.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use crate::plan::Plan;

/// What the balancer tells its shards.
#[derive(Debug)]
pub(crate) struct Control {
    plan: Mutex<Arc<Plan>>,
    /// Counts the plans, so that shards notice a new one without a lock.
    generation: AtomicU64,
    stopped: AtomicBool,
    /// Another process reads the service sockets from now on.
    released: AtomicBool,
    /// Shards that have stopped reading them, and counted their flows since.
    shards_released: AtomicUsize,
}

impl Control {
    pub(crate) fn new(plan: Arc<Plan>) -> Self {
        Self {
            plan: Mutex::new(plan),
            generation: AtomicU64::new(0),
            stopped: AtomicBool::new(false),
            released: AtomicBool::new(false),
            shards_released: AtomicUsize::new(0),
        }
    }

    pub(crate) fn plan(&self) -> Arc<Plan> {
        let plan = self.plan.lock().unwrap_or_else(PoisonError::into_inner);
        plan.clone()
    }

    pub(crate) fn set_plan(&self, plan: Arc<Plan>) {
        *self.plan.lock().unwrap_or_else(PoisonError::into_inner) = plan;
        self.generation.fetch_add(1, Ordering::Release);
    }

    pub(crate) fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }

    pub(crate) fn stop(&self) {
        self.stopped.store(true, Ordering::Relaxed);
    }

    pub(crate) fn is_stopped(&self) -> bool {
        self.stopped.load(Ordering::Relaxed)
    }

    pub(crate) fn release(&self) {
        self.released.store(true, Ordering::Relaxed);
    }

    pub(crate) fn is_released(&self) -> bool {
        self.released.load(Ordering::Relaxed)
    }

    pub(crate) fn count_released_shard(&self) {
        self.shards_released.fetch_add(1, Ordering::Release);
    }

    pub(crate) fn shards_released(&self) -> usize {
        self.shards_released.load(Ordering::Acquire)
    }
}
