//! What handles and other shards may touch of a shard.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};

use clearway_quic::connection::RecvMeta;
use clearway_quic::endpoint::{self, ConnectionHandle};
use clearway_udp::DatagramSocket;
use tokio::sync::Notify;

use super::Clock;
use super::strays::Strays;
use crate::connection::Shared;
use crate::endpoint::Budget;
use crate::error::EndpointError;

/// The way to a shard from outside it.
pub(crate) struct Link {
    pub(crate) clock: Clock,
    /// Memory, which all shards share.
    pub(crate) budget: Arc<Budget>,
    /// Routes and handshake accounts. The shard takes it once per batch, handles
    /// only to begin a connection.
    endpoint: Mutex<endpoint::Endpoint>,
    inbox: Mutex<Inbox>,
    bell: Notify,
    /// For its counters; open for as long as the shard runs, no longer.
    socket: Mutex<Weak<dyn DatagramSocket>>,
    /// The socket of a shard that failed, for its successor.
    left: Mutex<Option<Arc<dyn DatagramSocket>>>,
    /// Why the shard ended, if not as the endpoint wished.
    failure: OnceLock<EndpointError>,
    /// How many shards have been here before this one.
    restarts: u64,
    pub(super) counts: Counts,
    /// The shard's own, once it runs.
    runtime: OnceLock<tokio::runtime::Handle>,
    /// How the endpoint was closed. Known at once, so that a handle that is dropped
    /// before the shard has acted on it closes its connection no other way.
    farewell: OnceLock<CloseAll>,
}

/// What waits for the shard. Bounded: each connection is listed once, strays have
/// a limit, the rest is one of a kind.
#[derive(Debug, Default)]
pub(super) struct Inbox {
    /// Connections with something to do.
    pub(super) dirty: Vec<ConnectionHandle>,
    /// Connections that handles began.
    pub(super) begun: Vec<Arc<Shared>>,
    pub(super) strays: Strays,
    /// Close everything.
    pub(super) close: Option<CloseAll>,
    /// Use another socket.
    pub(super) socket: Option<Arc<dyn DatagramSocket>>,
    /// The last handle of the endpoint is gone.
    pub(super) abandoned: bool,
    /// The shard is gone: nobody will look in here again.
    pub(super) dead: bool,
    /// What is to go wrong in the next turn.
    #[cfg(feature = "testing")]
    pub(super) fault: Option<Fault>,
}

/// What tests have go wrong in a shard ([`Endpoint::inject`](crate::Endpoint::inject)).
#[cfg(feature = "testing")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Fault {
    /// The event loop panics, outside of every connection.
    Panic,
    /// The socket fails for good.
    Socket,
    /// Finding out whose a datagram is panics, for so many datagrams.
    Routing(u32),
}

#[cfg(feature = "testing")]
impl Fault {
    #[expect(clippy::panic, reason = "it is what a test asked for")]
    pub(super) fn strike(self) -> std::io::Result<()> {
        match self {
            Self::Panic => panic!("injected into the event loop"),
            Self::Socket => Err(std::io::Error::other("injected into the socket")),
            Self::Routing(_) => Ok(()),
        }
    }
}

impl Inbox {
    /// The shard is gone: the connections that it had yet to take over.
    pub(super) fn end(&mut self) -> Vec<Arc<Shared>> {
        self.dead = true;
        std::mem::take(&mut self.begun)
    }
}

/// What the application said when it closed the endpoint.
#[derive(Clone, Debug)]
pub(crate) struct CloseAll {
    pub(crate) code: u64,
    pub(crate) reason: Vec<u8>,
}

/// What a shard counts.
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
    pub(super) evicted_for_newcomers: AtomicU64,
    pub(super) backlog_refusals: AtomicU64,
    /// Counted by handles as well.
    panics: AtomicU64,
}

pub(super) fn count(counter: &AtomicU64) {
    // One writer; a total orders nothing.
    let next = counter.load(Ordering::Relaxed).wrapping_add(1);
    counter.store(next, Ordering::Relaxed);
}

/// A shard's counts so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ShardCounters {
    /// Routing, handshakes, answers without a connection.
    pub endpoint: endpoint::EndpointCounters,
    /// The socket's; zeros once the shard has ended.
    pub socket: clearway_udp::Counters,
    /// Connections now.
    pub connections: usize,
    /// Datagrams passed to the shard that owns them.
    pub strays_passed: u64,
    /// Datagrams for another shard whose queue was full.
    pub strays_dropped: u64,
    /// New clients that had to wait for a turn with room for a handshake.
    pub clients_deferred: u64,
    /// New clients not served because too many waited already.
    pub clients_dropped: u64,
    /// Datagrams that had to wait, because their connection had used its share of the
    /// loop's time and others waited for theirs.
    pub datagrams_deferred: u64,
    /// Datagrams dropped because too many waited so.
    pub datagrams_dropped: u64,
    /// Answers (Retry, Version Negotiation, refusals, resets) that the socket did
    /// not take.
    pub answers_dropped: u64,
    /// ICMP errors about datagrams sent.
    pub icmp_errors: u64,
    /// Turns of the event loop.
    pub turns: u64,
    /// Panics that cost a connection, or a client the beginning of one. Each is a
    /// defect of this library or of what the application has it call: observers,
    /// admission, controllers.
    pub panics: u64,
    /// Panics that cost a datagram: while it was found out whose it is.
    pub routing_panics: u64,
    /// Connections closed because the memory budget was exceeded
    /// ([`ServerConfig::memory_budget`](crate::ServerConfig::memory_budget)).
    pub evicted_for_memory: u64,
    /// Idle connections closed to keep a place for a newcomer
    /// ([`ServerConfig::limits`](crate::ServerConfig::limits)).
    pub evicted_for_newcomers: u64,
    /// Clients refused because too many connections waited to be accepted
    /// ([`ServerConfig::backlog`](crate::ServerConfig::backlog)).
    pub backlog_refusals: u64,
    /// How often the shard has been [restarted], which sets its other counts to 0.
    ///
    /// [restarted]: crate::Endpoint::restart_failed_shards
    pub restarts: u64,
}

impl Link {
    pub(crate) fn new(
        clock: Clock,
        endpoint: endpoint::Endpoint,
        socket: &Arc<dyn DatagramSocket>,
        budget: Arc<Budget>,
        restarts: u64,
    ) -> Self {
        Self {
            clock,
            budget,
            left: Mutex::default(),
            failure: OnceLock::new(),
            restarts,
            endpoint: Mutex::new(endpoint),
            inbox: Mutex::default(),
            bell: Notify::new(),
            socket: Mutex::new(Arc::downgrade(socket)),
            counts: Counts::default(),
            runtime: OnceLock::new(),
            farewell: OnceLock::new(),
        }
    }

    pub(crate) fn endpoint(&self) -> MutexGuard<'_, endpoint::Endpoint> {
        self.endpoint.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The shard runs here.
    pub(super) fn set_runtime(&self, runtime: tokio::runtime::Handle) {
        // A shard begins once.
        let _ = self.runtime.set(runtime);
    }

    /// Where the shard runs.
    pub(crate) fn runtime(&self) -> Option<&tokio::runtime::Handle> {
        self.runtime.get()
    }

    pub(super) fn inbox(&self) -> MutexGuard<'_, Inbox> {
        self.inbox.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How many shards have been here before this one.
    pub(crate) fn restarts(&self) -> u64 {
        self.restarts
    }

    /// Why the shard ended, if not as the endpoint wished.
    pub(crate) fn failure(&self) -> Option<EndpointError> {
        self.failure.get().cloned()
    }

    /// The shard ends for this reason; true if it is the first.
    pub(super) fn set_failure(&self, failure: EndpointError) -> bool {
        self.failure.set(failure).is_ok()
    }

    /// What a shard that failed leaves its successor.
    pub(crate) fn keep_socket(&self, socket: Arc<dyn DatagramSocket>) {
        *self.left.lock().unwrap_or_else(PoisonError::into_inner) = Some(socket);
        // There will be none. Whoever says so later takes the socket as well.
        if self.inbox().abandoned || self.farewell.get().is_some() {
            self.take_socket();
        }
    }

    pub(crate) fn take_socket(&self) -> Option<Arc<dyn DatagramSocket>> {
        let mut left = self.left.lock().unwrap_or_else(PoisonError::into_inner);
        left.take()
    }

    /// Has the shard take a turn.
    pub(crate) fn ring(&self) {
        self.bell.notify_one();
    }

    /// Rings when the inbox has something.
    pub(super) fn bell(&self) -> &Notify {
        &self.bell
    }

    /// The connection has something to do.
    pub(crate) fn push_dirty(&self, handle: ConnectionHandle) {
        let mut inbox = self.inbox();
        inbox.dirty.push(handle);
        let first = inbox.dirty.len() == 1;
        drop(inbox);
        if first {
            self.bell.notify_one();
        }
    }

    /// Whether the shard will take over the connection.
    pub(crate) fn push_begun(&self, shared: Arc<Shared>) -> bool {
        let mut inbox = self.inbox();
        let alive = !inbox.dead;
        if alive {
            inbox.begun.push(shared);
        }
        drop(inbox);
        self.bell.notify_one();
        alive
    }

    /// Whether there was room.
    pub(super) fn push_stray(&self, from: RecvMeta, datagram: &[u8]) -> bool {
        let mut inbox = self.inbox();
        let taken = !inbox.dead && inbox.strays.push(from, datagram);
        drop(inbox);
        self.bell.notify_one();
        taken
    }

    /// Close everything, accept nothing.
    pub(crate) fn close(&self, code: u64, reason: &[u8]) {
        let close = CloseAll {
            code,
            reason: reason.to_vec(),
        };
        // Only the first can still be heard.
        let _ = self.farewell.set(close.clone());
        // A shard that failed will have no successor.
        self.take_socket();
        self.inbox().close = Some(close);
        self.bell.notify_one();
    }

    /// What the application said when it closed the endpoint, if it did.
    pub(crate) fn farewell(&self) -> Option<&CloseAll> {
        self.farewell.get()
    }

    /// Something goes wrong in the next turn.
    #[cfg(feature = "testing")]
    pub(crate) fn inject(&self, fault: Fault) {
        self.inbox().fault = Some(fault);
        self.bell.notify_one();
    }

    /// Send and receive on another socket from now on.
    pub(crate) fn rebind(&self, socket: Arc<dyn DatagramSocket>) {
        *self.socket.lock().unwrap_or_else(PoisonError::into_inner) = Arc::downgrade(&socket);
        self.inbox().socket = Some(socket);
        self.bell.notify_one();
    }

    /// A connection was given up for a panic.
    pub(crate) fn count_panic(&self) {
        self.counts.panics.fetch_add(1, Ordering::Relaxed);
    }

    /// Nobody will accept or connect any more.
    pub(crate) fn abandon(&self) {
        self.inbox().abandoned = true;
        self.take_socket();
        self.bell.notify_one();
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
            evicted_for_newcomers: get(&self.counts.evicted_for_newcomers),
            backlog_refusals: get(&self.counts.backlog_refusals),
            restarts: self.restarts,
        }
    }
}

impl std::fmt::Debug for Link {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Link").finish_non_exhaustive()
    }
}
