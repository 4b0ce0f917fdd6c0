//! What the shards of one endpoint have in common.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use clearway_quic::endpoint::Handle;
use clearway_quic::event::Observer;
use clearway_quic::{Instant, Role};
use tokio::sync::Notify;

use crate::config::Admission;
use crate::connection::{Connection, Counted};
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
    links: OnceLock<Vec<Arc<Link>>>,
    pub(crate) accepts: Accepts,
    pub(crate) population: Population,
    pub(super) doorkeeper: Option<Doorkeeper>,
    pub(super) observers: Option<ObserverFactory>,
    pub(super) backlog: usize,
    /// Connections speak HTTP/3, like this.
    pub(super) http: Option<Arc<clearway_http3::Config>>,
}

impl House {
    /// Once, before the shards run.
    pub(super) fn set_links(&self, links: Vec<Arc<Link>>) {
        // Called once by construction; a second call would change nothing.
        let _ = self.links.set(links);
    }

    pub(crate) fn links(&self) -> &[Arc<Link>] {
        self.links.get().map_or(&[], Vec::as_slice)
    }

    pub(crate) fn shards(&self) -> usize {
        self.links().len()
    }

    pub(crate) fn shard(&self, index: usize) -> Option<&Link> {
        self.links().get(index).map(Arc::as_ref)
    }

    /// Whether a new client is welcome.
    pub(crate) fn admit(&self, remote: SocketAddr) -> Admission {
        if self.accepts.is_full(self.backlog) {
            return Admission::Refuse;
        }
        self.doorkeeper
            .as_ref()
            .map_or(Admission::Accept, |doorkeeper| doorkeeper(remote))
    }

    /// HTTP/3 for a new connection, if it is to speak that; a client's with what it
    /// remembers of the server.
    pub(crate) fn http(
        &self,
        quic: &clearway_quic::connection::Connection,
        handle: Handle,
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

/// Clients' connections on their way to the application.
#[derive(Debug, Default)]
pub(crate) struct Accepts {
    queue: Mutex<Queue>,
    news: Notify,
}

#[derive(Debug, Default)]
struct Queue {
    connections: VecDeque<Connection>,
    closed: bool,
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

    /// The next, or `None` after the last.
    pub(super) async fn next(&self) -> Option<Connection> {
        loop {
            let notified = self.news.notified();
            {
                let mut queue = self.lock();
                if let Some(connection) = queue.connections.pop_front() {
                    if !queue.connections.is_empty() {
                        self.news.notify_one();
                    }
                    return Some(connection);
                }
                if queue.closed {
                    // For whoever else waits.
                    self.news.notify_one();
                    return None;
                }
            }
            notified.await;
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
}
