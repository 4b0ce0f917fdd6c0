//! The number of connections over all shards of an endpoint.

use std::pin::pin;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::Notify;

/// The number of connections in all shards, and the tasks that wait for them to end.
#[derive(Debug, Default)]
pub(crate) struct ConnectionCount {
    count: AtomicUsize,
    zero: Notify,
}

impl ConnectionCount {
    pub(crate) fn add(&self) {
        self.count.fetch_add(1, Ordering::AcqRel);
    }

    pub(crate) fn remove(&self) {
        if self.count.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.zero.notify_waiters();
        }
    }

    pub(crate) fn get(&self) -> usize {
        self.count.load(Ordering::Acquire)
    }

    /// Waits until there are no connections.
    pub(crate) async fn wait_for_zero(&self) {
        loop {
            let mut notified = pin!(self.zero.notified());
            notified.as_mut().enable();
            if self.get() == 0 {
                return;
            }
            notified.await;
        }
    }
}
