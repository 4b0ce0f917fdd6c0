//! The state that the handles and shards of an endpoint share.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockWriteGuard};
use std::time::Duration;

use clearway_quic::connection::Config;
use clearway_quic::endpoint::{
    self as transport, AdmissionControl, ConnectionHandle, EndpointConfig,
};
use clearway_quic::event::Observer;
use clearway_quic::rng::Rng;
use clearway_quic::{Instant, Role};
use tokio::sync::Notify;

use super::budget::MemoryBudget;
use crate::config::Admission;
use crate::connection::{Connection, ConnectionRef};
use crate::error::EndpointError;
use crate::http::{HttpLayer, RememberedSettings};
use crate::shard::{ConnectionCount, ShardLink};

/// The callback that decides about a new client by its address.
pub(crate) type AdmitCallback = Arc<dyn Fn(SocketAddr) -> Admission + Send + Sync>;

/// The callback that returns the observer of a new connection, by our role and the peer's
/// address.
pub(crate) type ObserverFactory =
    Arc<dyn Fn(Role, SocketAddr) -> Option<Box<dyn Observer>> + Send + Sync>;

/// The state that the handles and shards of an endpoint share.
#[derive(Default)]
pub(crate) struct EndpointShared {
    /// One for each shard. Those of failed shards are replaced.
    links: RwLock<Vec<Arc<ShardLink>>>,
    pub(super) shards: usize,
    /// The application has closed the endpoint.
    closed: AtomicBool,
    pub(crate) accept_queue: AcceptQueue,
    pub(crate) connection_count: ConnectionCount,
    pub(super) admit: Option<AdmitCallback>,
    pub(super) observers: Option<ObserverFactory>,
    pub(super) backlog: usize,
    pub(crate) budget: Arc<MemoryBudget>,
    /// When connections are evicted.
    pub(crate) eviction: EvictionConfig,
    /// The configuration of HTTP/3, if connections speak it.
    pub(super) http: Option<Arc<clearway_http3::Config>>,
}

impl EndpointShared {
    pub(crate) fn links(&self) -> Vec<Arc<ShardLink>> {
        let links = self.links.read();
        links.unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn links_mut(&self) -> RwLockWriteGuard<'_, Vec<Arc<ShardLink>>> {
        self.links.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sets the links of all shards. Called once, before they run.
    pub(super) fn set_links(&self, links: Vec<Arc<ShardLink>>) {
        *self.links_mut() = links;
    }

    /// Replaces the link of shard `index`. Returns the new one if the endpoint was closed.
    pub(super) fn replace_link(
        &self,
        index: usize,
        link: Arc<ShardLink>,
    ) -> Result<(), Arc<ShardLink>> {
        let mut links = self.links_mut();
        match links.get_mut(index) {
            // Read under the lock that `close` needs to find the shards.
            Some(slot) if !self.is_closed() => *slot = link,
            Some(_) | None => return Err(link),
        }
        Ok(())
    }

    /// Creates the routing of a shard. Limits hold for all shards together.
    pub(super) fn routing(&self, config: EndpointConfig, rng: Rng) -> transport::Endpoint {
        match &self.eviction.admission {
            Some(admission) => transport::Endpoint::with_admission(config, admission.clone(), rng),
            None => transport::Endpoint::new(config, rng),
        }
    }

    pub(crate) fn shards(&self) -> usize {
        self.shards
    }

    pub(crate) fn shard(&self, index: usize) -> Option<Arc<ShardLink>> {
        let links = self.links.read();
        let links = links.unwrap_or_else(PoisonError::into_inner);
        links.get(index).cloned()
    }

    /// Wakes every shard for a turn.
    pub(crate) fn wake_all_shards(&self) {
        if self.shards > 1 {
            self.links().iter().for_each(|link| link.wake());
        }
    }

    /// Marks the endpoint as closed: no shard is started any more.
    pub(super) fn set_closed(&self) {
        self.closed.store(true, Ordering::Release);
    }

    pub(super) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    /// Passes the failure of a shard to `accept`. Its link has it already.
    pub(crate) fn on_shard_failed(&self, failure: EndpointError) {
        self.accept_queue.set_failure(Some(failure));
    }

    /// Whether one more connection may wait to be accepted.
    pub(crate) fn has_backlog(&self) -> bool {
        !self.accept_queue.is_full(self.backlog)
    }

    /// Returns the application's decision about a new client.
    pub(crate) fn admit(&self, remote: SocketAddr) -> Admission {
        self.admit
            .as_ref()
            .map_or(Admission::Accept, |admit| admit(remote))
    }

    /// Creates HTTP/3 for a new connection, if the endpoint speaks it; for a client with the
    /// store of the server's settings.
    pub(crate) fn http(
        &self,
        quic: &clearway_quic::connection::Connection,
        handle: ConnectionHandle,
        now: Instant,
        remembered: Option<RememberedSettings>,
    ) -> Option<Box<HttpLayer>> {
        let config = self.http.clone()?;
        let seed = handle.0 ^ now.as_nanos();
        Some(Box::new(HttpLayer::new(quic, config, seed, remembered)))
    }

    /// Installs the application's observer on a new connection, if there is one.
    pub(crate) fn observe(&self, quic: &mut clearway_quic::connection::Connection) {
        let factory = self.observers.as_ref();
        let observer = factory.and_then(|make| make(quic.role(), quic.remote_address()));
        if let Some(observer) = observer {
            quic.set_observer(observer);
        }
    }
}

#[cfg(test)]
impl EndpointShared {
    /// Returns the next connection that waits to be accepted.
    pub(crate) fn next_accepted(&self) -> Option<Connection> {
        self.accept_queue.take()?.ok()?
    }
}

/// When connections are evicted in favour of others.
#[derive(Clone, Debug, Default)]
pub(crate) struct EvictionConfig {
    /// Counts the clients of all shards; `None` without a server configuration.
    pub(crate) admission: Option<Arc<AdmissionControl>>,
    /// How long a connection has to be idle to be closed for a new client.
    pub(crate) evict_idle_after: Duration,
    /// The configuration of new connections, if their windows may be reduced: not with 0-RTT,
    /// whose tickets promise them.
    pub(crate) new_client_config: Option<Arc<Config>>,
}

/// The queue of connections that wait to be accepted.
#[derive(Debug, Default)]
pub(crate) struct AcceptQueue {
    queue: Mutex<Queue>,
    notify: Notify,
}

#[derive(Debug, Default)]
struct Queue {
    connections: VecDeque<Connection>,
    /// The application accepts no more.
    closed: bool,
    /// Why a shard failed, if that was before `closed`.
    failure: Option<EndpointError>,
}

impl AcceptQueue {
    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_full(&self, backlog: usize) -> bool {
        let queue = self.lock();
        queue.closed || queue.connections.len() >= backlog
    }

    /// Adds a connection. It is dropped, which closes it, if no more are accepted.
    pub(crate) fn push(&self, connection: ConnectionRef) {
        let connection = Connection::new(connection);
        let mut queue = self.lock();
        if queue.closed {
            drop(queue);
            return;
        }
        queue.connections.push_back(connection);
        drop(queue);
        self.notify.notify_one();
    }

    /// Waits for the next connection. After the last one, returns why a shard failed, or `None`
    /// if no more are accepted.
    pub(super) async fn next(&self) -> Result<Option<Connection>, EndpointError> {
        loop {
            let notified = self.notify.notified();
            if let Some(next) = self.take() {
                return next;
            }
            notified.await;
        }
    }

    /// Returns what `next` does, or `None` if it has to wait.
    fn take(&self) -> Option<Result<Option<Connection>, EndpointError>> {
        let mut queue = self.lock();
        let next = queue.connections.pop_front();
        let ended = queue.closed || queue.failure.is_some();
        // Wakes another task that waits.
        if ended || !queue.connections.is_empty() {
            self.notify.notify_one();
        }
        match (&next, &queue.failure) {
            (None, Some(failure)) => Some(Err(failure.clone())),
            (None, None) if !ended => None,
            (Some(_) | None, _) => Some(Ok(next)),
        }
    }

    /// Stops accepting. Connections that wait are dropped, which closes them.
    pub(super) fn close(&self) {
        let unwanted = {
            let mut queue = self.lock();
            queue.closed = true;
            std::mem::take(&mut queue.connections)
        };
        drop(unwanted);
        self.notify.notify_one();
    }

    /// Sets why a shard failed, or `None` when all failed shards are replaced.
    pub(super) fn set_failure(&self, failure: Option<EndpointError>) {
        let mut queue = self.lock();
        if failure.is_none() || queue.failure.is_none() && !queue.closed {
            queue.failure = failure;
        }
        drop(queue);
        self.notify.notify_one();
    }
}
