//! What the shards of one endpoint have in common.

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

use super::budget::Budget;
use crate::config::Admission;
use crate::connection::{Connection, Counted};
use crate::error::EndpointError;
use crate::http::{Layer, Memory};
use crate::shard::{Link, Population};

/// Who decides about a new client by its address.
pub(crate) type Doorkeeper = Arc<dyn Fn(SocketAddr) -> Admission + Send + Sync>;

/// The observer of a new connection, if one is wanted, by our role and the peer's
/// address.
pub(crate) type ObserverFactory =
    Arc<dyn Fn(Role, SocketAddr) -> Option<Box<dyn Observer>> + Send + Sync>;

/// Shared by the handles and shards of an endpoint.
#[derive(Default)]
pub(crate) struct House {
    /// One for each shard. Shards that fail are replaced.
    links: RwLock<Vec<Arc<Link>>>,
    pub(super) shards: usize,
    /// The application has closed the endpoint.
    closed: AtomicBool,
    pub(crate) accepts: Accepts,
    pub(crate) population: Population,
    pub(super) doorkeeper: Option<Doorkeeper>,
    pub(super) observers: Option<ObserverFactory>,
    pub(super) backlog: usize,
    pub(crate) budget: Arc<Budget>,
    /// What is done for want of room.
    pub(crate) crowding: Crowding,
    /// Connections speak HTTP/3, like this.
    pub(super) http: Option<Arc<clearway_http3::Config>>,
}

impl House {
    pub(crate) fn links(&self) -> Vec<Arc<Link>> {
        let links = self.links.read();
        links.unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn links_mut(&self) -> RwLockWriteGuard<'_, Vec<Arc<Link>>> {
        self.links.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// Once, before the shards run.
    pub(super) fn set_links(&self, links: Vec<Arc<Link>>) {
        *self.links_mut() = links;
    }

    /// Shard `index` begins anew, unless the endpoint has been closed.
    pub(super) fn replace_link(&self, index: usize, link: Arc<Link>) -> Result<(), Arc<Link>> {
        let mut links = self.links_mut();
        match links.get_mut(index) {
            // Looked at under the lock that `close` needs to find the shards.
            Some(slot) if !self.is_closed() => *slot = link,
            Some(_) | None => return Err(link),
        }
        Ok(())
    }

    /// What routes the datagrams of a shard: limits hold for all of them together.
    pub(super) fn routing(&self, config: EndpointConfig, rng: Rng) -> transport::Endpoint {
        match &self.crowding.admission {
            Some(admission) => transport::Endpoint::with_admission(config, admission.clone(), rng),
            None => transport::Endpoint::new(config, rng),
        }
    }

    pub(crate) fn shards(&self) -> usize {
        self.shards
    }

    pub(crate) fn shard(&self, index: usize) -> Option<Arc<Link>> {
        let links = self.links.read();
        let links = links.unwrap_or_else(PoisonError::into_inner);
        links.get(index).cloned()
    }

    /// Has every shard take a turn.
    pub(crate) fn ring_all(&self) {
        if self.shards > 1 {
            self.links().iter().for_each(|link| link.ring());
        }
    }

    /// No shard is started any more.
    pub(super) fn set_closed(&self) {
        self.closed.store(true, Ordering::Release);
    }

    pub(super) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    /// A shard has ended for this reason, which its link tells already.
    pub(crate) fn on_shard_failed(&self, failure: EndpointError) {
        self.accepts.set_failure(Some(failure));
    }

    /// Whether there is room for one more connection that waits to be accepted.
    pub(crate) fn has_backlog(&self) -> bool {
        !self.accepts.is_full(self.backlog)
    }

    /// Whether the application welcomes a new client.
    pub(crate) fn admit(&self, remote: SocketAddr) -> Admission {
        self.doorkeeper
            .as_ref()
            .map_or(Admission::Accept, |doorkeeper| doorkeeper(remote))
    }

    /// HTTP/3 for a new connection, if it is to speak that; a client's with what it
    /// remembers of the server.
    pub(crate) fn http(
        &self,
        quic: &clearway_quic::connection::Connection,
        handle: ConnectionHandle,
        now: Instant,
        memory: Option<Memory>,
    ) -> Option<Box<Layer>> {
        let config = self.http.clone()?;
        let seed = handle.0 ^ now.as_nanos();
        Some(Box::new(Layer::new(quic, config, seed, memory)))
    }

    /// Installs the observer that is wanted for a new connection.
    pub(crate) fn observe(&self, quic: &mut clearway_quic::connection::Connection) {
        let factory = self.observers.as_ref();
        let observer = factory.and_then(|make| make(quic.role(), quic.remote_address()));
        if let Some(observer) = observer {
            quic.set_observer(observer);
        }
    }
}

#[cfg(test)]
impl House {
    /// The next connection that waits to be accepted.
    pub(crate) fn next_accepted(&self) -> Option<Connection> {
        self.accepts.take()?.ok()?
    }
}

/// When connections make room for others.
#[derive(Clone, Debug, Default)]
pub(crate) struct Crowding {
    /// Counts the clients of all shards; `None` without server settings.
    pub(crate) admission: Option<Arc<AdmissionControl>>,
    /// How long one has to have been idle to be closed for a newcomer.
    pub(crate) evict_idle_after: Duration,
    /// What newcomers get, if they may be granted less: no ticket promises it.
    pub(crate) newcomers: Option<Arc<Config>>,
}

/// Clients' connections on their way to the application.
#[derive(Debug, Default)]
pub(crate) struct Accepts {
    queue: Mutex<Queue>,
    news: Notify,
}

#[derive(Debug, Default)]
struct Queue {
    connections: VecDeque<Connection>,
    /// The application wants no more.
    closed: bool,
    /// A shard failed, and that before `closed`.
    failure: Option<EndpointError>,
}

impl Accepts {
    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_full(&self, backlog: usize) -> bool {
        let queue = self.lock();
        queue.closed || queue.connections.len() >= backlog
    }

    /// For the next `accept`. Dropped, and so closed, if there will be none.
    pub(crate) fn push(&self, connection: Counted) {
        let connection = Connection::new(connection);
        let mut queue = self.lock();
        if queue.closed {
            drop(queue);
            return;
        }
        queue.connections.push_back(connection);
        drop(queue);
        self.news.notify_one();
    }

    /// The next; after the last why a shard failed, or `None` if no more are wanted.
    pub(super) async fn next(&self) -> Result<Option<Connection>, EndpointError> {
        loop {
            let notified = self.news.notified();
            if let Some(next) = self.take() {
                return next;
            }
            notified.await;
        }
    }

    /// What `next` answers, if there is something to answer yet.
    fn take(&self) -> Option<Result<Option<Connection>, EndpointError>> {
        let mut queue = self.lock();
        let next = queue.connections.pop_front();
        let ended = queue.closed || queue.failure.is_some();
        // For whoever else waits.
        if ended || !queue.connections.is_empty() {
            self.news.notify_one();
        }
        match (&next, &queue.failure) {
            (None, Some(failure)) => Some(Err(failure.clone())),
            (None, None) if !ended => None,
            (Some(_) | None, _) => Some(Ok(next)),
        }
    }

    /// No more connections; those not accepted are dropped, and so closed.
    pub(super) fn close(&self) {
        let unwanted = {
            let mut queue = self.lock();
            queue.closed = true;
            std::mem::take(&mut queue.connections)
        };
        drop(unwanted);
        self.news.notify_one();
    }

    /// A shard has failed, or with `None` all that had are replaced.
    pub(super) fn set_failure(&self, failure: Option<EndpointError>) {
        let mut queue = self.lock();
        if failure.is_none() || queue.failure.is_none() && !queue.closed {
            queue.failure = failure;
        }
        drop(queue);
        self.news.notify_one();
    }
}
