//! The part of a shard that handles and other shards use.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};

use clearway_quic::connection::RecvMeta;
use clearway_quic::endpoint::{self, ConnectionHandle};
use clearway_udp::DatagramSocket;
use tokio::sync::Notify;

use super::Clock;
use super::strays::Strays;
use crate::connection::ConnectionShared;
use crate::endpoint::MemoryBudget;
use crate::error::EndpointError;
use crate::http::turns::Turns;
use crate::slice::BusyConnections;

/// The access to a shard from outside of it.
pub(crate) struct ShardLink {
    pub(crate) clock: Clock,
    /// The memory budget, which all shards share.
    pub(crate) budget: Arc<MemoryBudget>,
    /// Routes and counts of handshakes. The shard locks it once for each batch, handles lock
    /// it only to begin a connection.
    endpoint: Mutex<endpoint::Endpoint>,
    inbox: Mutex<Inbox>,
    wakeup: Notify,
    /// For its counters. Weak, so that the socket is closed when the shard ends.
    socket: Mutex<Weak<dyn DatagramSocket>>,
    /// The socket of a failed shard, for its successor.
    left_socket: Mutex<Option<Arc<dyn DatagramSocket>>>,
    /// Why the shard failed.
    failure: OnceLock<EndpointError>,
    /// How often this shard was restarted before.
    restarts: u64,
    pub(super) counts: Counts,
    /// How many connections have work.
    pub(crate) busy: BusyConnections,
    /// The shard's runtime, set once it runs.
    runtime: OnceLock<tokio::runtime::Handle>,
    /// The turns of HTTP handlers that run on that runtime.
    pub(crate) turns: Arc<Turns>,
    /// How the endpoint was closed. Set before the shard acts on it, so that a handle which is
    /// dropped meanwhile closes its connection with the same code and reason.
    closed_with: OnceLock<CloseAll>,
}

/// Work for the shard from others. Bounded: each connection is listed once, strays have a
/// limit, and of everything else there is one.
#[derive(Debug, Default)]
pub(super) struct Inbox {
    /// Connections that need a turn.
    pub(super) dirty: Vec<ConnectionHandle>,
    /// Connections that handles have begun.
    pub(super) begun: Vec<Arc<ConnectionShared>>,
    pub(super) strays: Strays,
    /// Closes all connections.
    pub(super) close: Option<CloseAll>,
    /// The socket to use from now on.
    pub(super) socket: Option<Arc<dyn DatagramSocket>>,
    /// The last handle of the endpoint was dropped.
    pub(super) abandoned: bool,
    /// The shard has ended and does not read this any more.
    pub(super) dead: bool,
    /// The fault to inject into the next turn.
    #[cfg(feature = "testing")]
    pub(super) fault: Option<Fault>,
}

/// A fault that tests inject into a shard ([`Endpoint::inject`](crate::Endpoint::inject)).
#[cfg(feature = "testing")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Fault {
    /// The event loop panics, outside of any connection.
    Panic,
    /// The socket fails permanently.
    Socket,
    /// Routing panics, for this number of datagrams.
    Routing(u32),
}

#[cfg(feature = "testing")]
impl Fault {
    #[expect(clippy::panic, reason = "it is what a test asked for")]
    pub(super) fn inject(self) -> std::io::Result<()> {
        match self {
            Self::Panic => panic!("injected into the event loop"),
            Self::Socket => Err(std::io::Error::other("injected into the socket")),
            Self::Routing(_) => Ok(()),
        }
    }
}

impl Inbox {
    /// Marks the shard as ended. Returns the connections that it has not taken over yet.
    pub(super) fn end(&mut self) -> Vec<Arc<ConnectionShared>> {
        self.dead = true;
        std::mem::take(&mut self.begun)
    }
}

/// The code and reason with which the application closed the endpoint.
#[derive(Clone, Debug)]
pub(crate) struct CloseAll {
    pub(crate) code: u64,
    pub(crate) reason: Vec<u8>,
    pub(crate) when: CloseWhen,
}

/// When a connection is closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum CloseWhen {
    Now,
    /// Once what the application has ended is delivered, within the [limits](super::lingering).
    Delivered,
}

/// The counters of a shard, as it writes them.
#[derive(Debug, Default)]
pub(super) struct Counts {
    pub(super) strays_passed: AtomicU64,
    pub(super) strays_dropped: AtomicU64,
    pub(super) clients_deferred: AtomicU64,
    pub(super) clients_dropped: AtomicU64,
    pub(super) datagrams_deferred: AtomicU64,
    pub(super) datagrams_dropped: AtomicU64,
    pub(super) answers_dropped: AtomicU64,
    pub(super) icmp_errors: AtomicU64,
    pub(super) turns: AtomicU64,
    pub(super) routing_panics: AtomicU64,
    pub(super) evicted_for_memory: AtomicU64,
    pub(super) evicted_for_new_clients: AtomicU64,
    pub(super) backlog_refusals: AtomicU64,
    /// Handles count panics too.
    panics: AtomicU64,
}

pub(super) fn count(counter: &AtomicU64) {
    // There is one writer, and no other memory depends on the value.
    let next = counter.load(Ordering::Relaxed).wrapping_add(1);
    counter.store(next, Ordering::Relaxed);
}

/// Counters of a shard, since it was created or restarted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ShardCounters {
    /// Routing, handshakes, and responses without a connection.
    pub endpoint: endpoint::EndpointCounters,
    /// The socket's counters; zero once the shard has ended.
    pub socket: clearway_udp::Counters,
    /// Connections open now.
    pub connections: usize,
    /// Datagrams that arrived here and were forwarded to the shard that owns them.
    pub strays_passed: u64,
    /// Datagrams for another shard that were dropped because its queue was full.
    pub strays_dropped: u64,
    /// New clients that had to wait because too many handshakes began at once.
    pub clients_deferred: u64,
    /// New clients dropped because too many waited already; they retransmit.
    pub clients_dropped: u64,
    /// Datagrams that had to wait because their connection had used its share of the event
    /// loop's time while others waited.
    pub datagrams_deferred: u64,
    /// Datagrams dropped because too many waited like this.
    pub datagrams_dropped: u64,
    /// Responses without a connection (Retry, Version Negotiation, refusals, stateless resets)
    /// that the socket did not send.
    pub answers_dropped: u64,
    /// ICMP errors received about datagrams that were sent.
    pub icmp_errors: u64,
    /// Turns of the event loop.
    pub turns: u64,
    /// Panics that ended a connection or the attempt of a client to begin one. Each is a bug in
    /// this library or in a callback of the application: an observer, the admit callback, a
    /// congestion controller.
    pub panics: u64,
    /// Panics while a datagram was routed, each of which dropped the datagram.
    pub routing_panics: u64,
    /// Connections closed because the memory budget was exceeded
    /// ([`ServerConfig::memory_budget`](crate::ServerConfig::memory_budget)).
    pub evicted_for_memory: u64,
    /// Idle connections closed to keep a place for a new client
    /// ([`ServerConfig::limits`](crate::ServerConfig::limits)).
    pub evicted_for_new_clients: u64,
    /// New clients refused because too many connections waited to be accepted
    /// ([`ServerConfig::backlog`](crate::ServerConfig::backlog)).
    pub backlog_refusals: u64,
    /// How often the shard was [restarted], which resets its other counters.
    ///
    /// [restarted]: crate::Endpoint::restart_failed_shards
    pub restarts: u64,
}

impl ShardLink {
    pub(crate) fn new(
        clock: Clock,
        endpoint: endpoint::Endpoint,
        socket: &Arc<dyn DatagramSocket>,
        budget: Arc<MemoryBudget>,
        restarts: u64,
    ) -> Self {
        Self {
            turns: Turns::new(clock.clone()),
            clock,
            budget,
            left_socket: Mutex::default(),
            failure: OnceLock::new(),
            restarts,
            endpoint: Mutex::new(endpoint),
            inbox: Mutex::default(),
            wakeup: Notify::new(),
            socket: Mutex::new(Arc::downgrade(socket)),
            counts: Counts::default(),
            busy: BusyConnections::default(),
            runtime: OnceLock::new(),
            closed_with: OnceLock::new(),
        }
    }

    pub(crate) fn endpoint(&self) -> MutexGuard<'_, endpoint::Endpoint> {
        self.endpoint.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sets the runtime of the shard.
    pub(super) fn set_runtime(&self, runtime: tokio::runtime::Handle) {
        // It is set once, because a shard begins once.
        let _ = self.runtime.set(runtime);
    }

    /// Returns the runtime of the shard, once it runs.
    pub(crate) fn runtime(&self) -> Option<&tokio::runtime::Handle> {
        self.runtime.get()
    }

    pub(super) fn inbox(&self) -> MutexGuard<'_, Inbox> {
        self.inbox.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns how often this shard was restarted before.
    pub(crate) fn restarts(&self) -> u64 {
        self.restarts
    }

    /// Returns why the shard failed, if it has.
    pub(crate) fn failure(&self) -> Option<EndpointError> {
        self.failure.get().cloned()
    }

    /// Sets why the shard failed. Returns whether this is the first reason.
    pub(super) fn set_failure(&self, failure: EndpointError) -> bool {
        self.failure.set(failure).is_ok()
    }

    /// Keeps the socket of a failed shard for its successor.
    pub(crate) fn keep_socket(&self, socket: Arc<dyn DatagramSocket>) {
        *self
            .left_socket
            .lock()
            .unwrap_or_else(PoisonError::into_inner) = Some(socket);
        // There will be no successor. `close` and `abandon` drop a socket that is kept before.
        if self.inbox().abandoned || self.closed_with.get().is_some() {
            self.take_socket();
        }
    }

    pub(crate) fn take_socket(&self) -> Option<Arc<dyn DatagramSocket>> {
        let mut left = self
            .left_socket
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        left.take()
    }

    /// Wakes the shard for a turn.
    pub(crate) fn wake(&self) {
        self.wakeup.notify_one();
    }

    /// Notified when there is work in the inbox.
    pub(super) fn wakeup(&self) -> &Notify {
        &self.wakeup
    }

    /// Adds a connection to those that need a turn.
    pub(crate) fn push_dirty(&self, handle: ConnectionHandle) {
        let mut inbox = self.inbox();
        inbox.dirty.push(handle);
        let first = inbox.dirty.len() == 1;
        drop(inbox);
        if first {
            self.wakeup.notify_one();
        }
    }

    /// Passes a new connection to the shard. Returns `false` if the shard has ended.
    pub(crate) fn push_begun(&self, shared: Arc<ConnectionShared>) -> bool {
        let mut inbox = self.inbox();
        let alive = !inbox.dead;
        if alive {
            inbox.begun.push(shared);
        }
        drop(inbox);
        self.wakeup.notify_one();
        alive
    }

    /// Forwards a datagram to the shard. Returns whether there was room.
    pub(super) fn push_stray(&self, from: RecvMeta, datagram: &[u8]) -> bool {
        let mut inbox = self.inbox();
        let taken = !inbox.dead && inbox.strays.push(from, datagram);
        drop(inbox);
        self.wakeup.notify_one();
        taken
    }

    /// Closes all connections, and accepts none.
    pub(crate) fn close(&self, close: CloseAll) {
        // Only the first close takes effect.
        let _ = self.closed_with.set(close.clone());
        // A failed shard will have no successor.
        self.take_socket();
        self.inbox().close = Some(close);
        self.wakeup.notify_one();
    }

    /// Returns how the application closed the endpoint, if it has.
    pub(crate) fn closed_with(&self) -> Option<&CloseAll> {
        self.closed_with.get()
    }

    /// Returns whether the endpoint is closed as soon as what is left is delivered.
    pub(crate) fn is_lingering(&self) -> bool {
        self.closed_with()
            .is_some_and(|close| close.when == CloseWhen::Delivered)
    }

    /// Injects a fault into the next turn.
    #[cfg(feature = "testing")]
    pub(crate) fn inject(&self, fault: Fault) {
        self.inbox().fault = Some(fault);
        self.wakeup.notify_one();
    }

    /// Makes the shard use another socket.
    pub(crate) fn rebind(&self, socket: Arc<dyn DatagramSocket>) {
        *self.socket.lock().unwrap_or_else(PoisonError::into_inner) = Arc::downgrade(&socket);
        self.inbox().socket = Some(socket);
        self.wakeup.notify_one();
    }

    /// Counts a panic that ended a connection.
    pub(crate) fn count_panic(&self) {
        self.counts.panics.fetch_add(1, Ordering::Relaxed);
    }

    /// Tells the shard that no handle of the endpoint is left.
    pub(crate) fn abandon(&self) {
        self.inbox().abandoned = true;
        self.take_socket();
        self.wakeup.notify_one();
    }

    pub(crate) fn counters(&self) -> ShardCounters {
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let socket = self.socket.lock().unwrap_or_else(PoisonError::into_inner);
        let socket = socket.upgrade();
        let endpoint = self.endpoint();
        ShardCounters {
            endpoint: endpoint.counters(),
            connections: endpoint.len(),
            socket: socket.map(|socket| socket.counters()).unwrap_or_default(),
            strays_passed: get(&self.counts.strays_passed),
            strays_dropped: get(&self.counts.strays_dropped),
            clients_deferred: get(&self.counts.clients_deferred),
            clients_dropped: get(&self.counts.clients_dropped),
            datagrams_deferred: get(&self.counts.datagrams_deferred),
            datagrams_dropped: get(&self.counts.datagrams_dropped),
            answers_dropped: get(&self.counts.answers_dropped),
            icmp_errors: get(&self.counts.icmp_errors),
            turns: get(&self.counts.turns),
            panics: get(&self.counts.panics),
            routing_panics: get(&self.counts.routing_panics),
            evicted_for_memory: get(&self.counts.evicted_for_memory),
            evicted_for_new_clients: get(&self.counts.evicted_for_new_clients),
            backlog_refusals: get(&self.counts.backlog_refusals),
            restarts: self.restarts,
        }
    }
}

impl std::fmt::Debug for ShardLink {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ShardLink").finish_non_exhaustive()
    }
}
