//! How many connections are alive, over all shards of an endpoint.

use std::pin::pin;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::Notify;

/// Connections alive in all shards, and who waits for them to end.
#[derive(Debug, Default)]
pub(crate) struct ConnectionCount {
    alive: AtomicUsize,
    none: Notify,
}

impl ConnectionCount {
    pub(crate) fn add(&self) {
        self.alive.fetch_add(1, Ordering::AcqRel);
    }

    pub(crate) fn remove(&self) {
        if self.alive.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.none.notify_waiters();
        }
    }

    pub(crate) fn get(&self) -> usize {
        self.alive.load(Ordering::Acquire)
    }

    /// Waits until there is none.
    pub(crate) async fn wait_for_zero(&self) {
        loop {
            let mut notified = pin!(self.none.notified());
            notified.as_mut().enable();
            if self.get() == 0 {
                return;
            }
            notified.await;
        }
    }
}
