//! The state that the connections of a server share: whether it is shutting down, and how many
//! requests are in progress.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use tokio::sync::Notify;

use super::turns::Turns;
use crate::shard::Clock;

/// The state that the connections of a server share. Every connection waits for the shutdown
/// as long as it is open, so that the future has to be small.
#[derive(Debug)]
pub(super) struct ServerState {
    /// The server is shutting down.
    closing: AtomicBool,
    pub(super) news: Notify,
    /// The turns of handlers on the caller's runtime.
    pub(super) turns: Arc<Turns>,
    /// Requests in progress.
    requests: AtomicUsize,
    max_requests: usize,
    /// Tunnels that are open or asked for, each of which is a request too.
    tunnels: AtomicUsize,
    max_tunnels: usize,
    /// Requests rejected because of `max_requests` or `max_tunnels`.
    rejected: AtomicU64,
}

impl ServerState {
    pub(super) fn new(max_requests: usize, max_tunnels: usize) -> Self {
        Self {
            closing: AtomicBool::new(false),
            news: Notify::new(),
            turns: Turns::new(Clock::start()),
            requests: AtomicUsize::new(0),
            max_requests,
            tunnels: AtomicUsize::new(0),
            max_tunnels,
            rejected: AtomicU64::new(0),
        }
    }

    pub(super) fn close(&self) {
        self.closing.store(true, Ordering::Release);
        self.news.notify_waiters();
    }

    pub(super) fn is_closing(&self) -> bool {
        self.closing.load(Ordering::Acquire)
    }

    /// Returns a permit for a request of a connection that has `held` others in progress. A
    /// connection may hold as many permits as are left, so that connections which hold all
    /// they can leave some for a new one (the dynamic threshold of Choudhury and Hahne, for
    /// the buffers of switches).
    pub(super) fn admit(self: &Arc<Self>, held: usize) -> Option<Permit> {
        let taken = self.requests.fetch_add(1, Ordering::Relaxed);
        let permit = Permit(self.clone());
        self.is_within(taken, held, self.max_requests)
            .then_some(permit)
    }

    /// Returns a permit for a tunnel in the same way.
    pub(super) fn admit_tunnel(self: &Arc<Self>, held: usize) -> Option<TunnelPermit> {
        let taken = self.tunnels.fetch_add(1, Ordering::Relaxed);
        let permit = TunnelPermit(self.clone());
        self.is_within(taken, held, self.max_tunnels)
            .then_some(permit)
    }

    fn is_within(&self, taken: usize, held: usize, max: usize) -> bool {
        let is_within = held < max.saturating_sub(taken);
        if !is_within {
            self.rejected.fetch_add(1, Ordering::Relaxed);
        }
        is_within
    }

    /// Waits until the server shuts down.
    pub(super) async fn wait_for_closing(&self) {
        // Whoever closes after this line wakes it.
        let mut news = std::pin::pin!(self.news.notified());
        news.as_mut().enable();
        if !self.is_closing() {
            news.await;
        }
    }
}

/// A permit for one request in progress, returned on drop.
#[derive(Debug)]
pub(super) struct Permit(Arc<ServerState>);

impl Drop for Permit {
    fn drop(&mut self) {
        self.0.requests.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A permit for one tunnel, returned on drop.
#[derive(Debug)]
pub(super) struct TunnelPermit(Arc<ServerState>);

impl TunnelPermit {
    pub(super) fn server(&self) -> &Arc<ServerState> {
        &self.0
    }
}

impl Drop for TunnelPermit {
    fn drop(&mut self) {
        self.0.tunnels.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Counters of a server ([`Server::counters`](super::Server::counters)).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ServerCounters {
    /// Requests in progress: waiting for their response, or until it is sent.
    pub requests: usize,
    /// Tunnels that are open or asked for. They are requests too.
    pub tunnels: usize,
    /// Requests rejected because too many were in progress
    /// ([`ServerBuilder::max_requests`](super::ServerBuilder::max_requests),
    /// [`ServerBuilder::max_tunnels`](super::ServerBuilder::max_tunnels)), since the server
    /// was created.
    pub rejected: u64,
}

impl ServerState {
    pub(super) fn counters(&self) -> ServerCounters {
        ServerCounters {
            requests: self.requests.load(Ordering::Relaxed),
            tunnels: self.tunnels.load(Ordering::Relaxed),
            rejected: self.rejected.load(Ordering::Relaxed),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Connections that each take all permits they can get leave some for another one.
    #[test]
    fn busy_connections_leave_permits_for_a_new_one() {
        for (connections, share) in [(1, 50), (9, 10), (99, 1)] {
            let state = Arc::new(ServerState::new(100, 0));
            let mut held: Vec<Vec<Permit>> = (0..connections).map(|_| Vec::new()).collect();
            for _ in 0..100 {
                for permits in &mut held {
                    permits.extend(state.admit(permits.len()));
                }
            }
            let all: Vec<usize> = held.iter().map(Vec::len).collect();
            assert!(all.iter().all(|&held| held == share), "{share}: {all:?}");
            assert!(state.admit(0).is_some(), "{connections} connections");
            let counters = state.counters();
            assert_eq!(counters.requests, connections * share);
            assert!(counters.rejected > 0);
            held.clear();
            assert_eq!(state.counters().requests, 0);
        }
    }
}
