//! Which connection a datagram belongs to, and what to say when it belongs to
//! none (RFC 9000 §5.2, §6, §8.1, §10.3).
//!
//! ```text
//! receive: route by connection ID -> the connection
//!          else long header, unknown version -> Version Negotiation
//!          else Initial -> token -> overload -> Retry | refuse | accept
//!          else short header -> a stateless reset: the connection it ends
//!                            -> answered by one, at a limited rate
//! ```
//!
//! An endpoint owns no connection: the caller does, so that each can have a
//! lock of its own.

mod config;
mod incoming;
mod overload;
mod reply;
mod route;

use std::collections::VecDeque;
use std::net::IpAddr;
use std::sync::Arc;

use rustc_hash::FxHashMap;

pub use self::config::{EndpointConfig, GeneratorFactory, ServerConfig};
pub use self::incoming::Incoming;
pub use self::overload::Limits;
use self::overload::Overload;
use self::route::Routes;
use crate::Instant;
use crate::cid::{ConnectionId, ResetToken};
use crate::connection::{Config, Connect, Connection, EndpointEvent, Received};
use crate::error::TransportError;
use crate::event::DropReason;
use crate::memory;
use crate::rng::Rng;
use crate::wire::header::{HeaderKind, PartialHeader};
use crate::wire::{self, Version};

/// Names a connection of an endpoint; never used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Handle(pub u64);

/// What became of a datagram.
#[derive(Debug)]
pub enum Arrival {
    /// It is this connection's: call [`Connection::receive`].
    Connection(Handle),
    /// A client begins: call [`Endpoint::accept`], then
    /// [`Connection::receive`] with the same datagram.
    Incoming(Box<Incoming>),
    /// Send the bytes written to `response` back.
    Respond,
    /// Nothing is to be done.
    Dropped(DropReason),
}

/// Counts of an endpoint.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct EndpointCounters {
    /// Connections accepted.
    pub accepted: u64,
    /// Retry packets sent.
    pub retries: u64,
    /// Connections refused for overload.
    pub refused: u64,
    /// Initials not answered because the attempt they continue was, by a Retry
    /// or a refusal. Also counted in `dropped`.
    pub continued: u64,
    /// Version Negotiation packets sent.
    pub negotiations: u64,
    /// Stateless resets sent.
    pub resets: u64,
    /// Stateless resets not sent, over their rate.
    pub resets_withheld: u64,
    /// Datagrams nobody wanted.
    pub dropped: u64,
}

#[derive(Debug)]
struct Known {
    cids: Vec<ConnectionId>,
    /// What the peer would reset it with.
    tokens: Vec<ResetToken>,
    /// A client's, until the handshake is done.
    attempt: Option<Box<Attempt>>,
}

/// A handshake with a client.
#[derive(Debug)]
struct Attempt {
    /// Where its first Initials go: it repeats them with the connection ID it
    /// chose (RFC 9000 §7.2).
    initial_dcids: [ConnectionId; 2],
    remote: IpAddr,
}

/// Routes datagrams to connections, both roles. Sans-I/O.
pub struct Endpoint {
    config: EndpointConfig,
    rng: Rng,
    cid_len: usize,
    routes: Routes,
    known: FxHashMap<Handle, Known>,
    next: u64,
    overload: Overload,
    /// Attempts that the application refused, newest last; at most
    /// [`incoming::REFUSED`].
    refused: VecDeque<ConnectionId>,
    counters: EndpointCounters,
}

impl Endpoint {
    /// An endpoint whose every random choice comes from `rng`.
    #[must_use]
    pub fn new(config: EndpointConfig, mut rng: Rng) -> Self {
        let limits = config.server.as_ref().map(|server| server.limits);
        Self {
            cid_len: (config.generator)().cid_len(),
            routes: Routes::new(&mut rng),
            known: FxHashMap::default(),
            next: 0,
            overload: Overload::new(limits.unwrap_or_default()),
            refused: VecDeque::new(),
            counters: EndpointCounters::default(),
            config,
            rng,
        }
    }

    /// Counts so far.
    #[must_use]
    pub fn counters(&self) -> EndpointCounters {
        self.counters
    }

    /// Connections known.
    #[must_use]
    pub fn len(&self) -> usize {
        self.known.len()
    }

    /// Whether no connection is known.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.known.is_empty()
    }

    /// Handshakes under way on the server side.
    #[must_use]
    pub fn handshakes(&self) -> usize {
        self.overload.handshakes()
    }

    /// Bytes of memory the endpoint holds beside its connections
    /// ([`Connection::memory`]): routes and counts of handshakes.
    #[must_use]
    pub fn memory(&self) -> usize {
        let known = self.known.values();
        let each = known.map(|known| {
            memory::list(&known.cids)
                + memory::list(&known.tokens)
                + known.attempt.as_deref().map_or(0, size_of_val)
        });
        each.sum::<usize>()
            + memory::table(&self.known)
            + self.routes.memory()
            + self.overload.memory()
            + memory::ring(&self.refused)
    }

    /// Finds whose datagram this is. An answer that needs no connection is
    /// written to `response` (cleared first). `unix_now` is wall time in
    /// seconds, for tokens.
    pub fn receive(
        &mut self,
        now: Instant,
        unix_now: u64,
        from: Received,
        datagram: &[u8],
        response: &mut Vec<u8>,
    ) -> Arrival {
        response.clear();
        let Some(route) = wire::header::route(datagram, self.cid_len) else {
            return self.drop(DropReason::Malformed);
        };
        if let Some(handle) = ConnectionId::new(route.dcid).and_then(|cid| self.routes.get(&cid)) {
            return Arrival::Connection(handle);
        }
        match route.version {
            None => match self.routes.get_reset(datagram) {
                Some(handle) => Arrival::Connection(handle),
                None => self.reset_stranger(now, datagram, route.dcid, response),
            },
            Some(version) => self.receive_long(version, unix_now, from, datagram, response),
        }
    }

    fn receive_long(
        &mut self,
        version: Version,
        unix_now: u64,
        from: Received,
        datagram: &[u8],
        response: &mut Vec<u8>,
    ) -> Arrival {
        if self.config.server.is_none() || version == Version::NEGOTIATION {
            return self.drop(DropReason::Unexpected);
        }
        // RFC 9000 §14.1: a client's first datagram is 1,200 bytes at least,
        // also when it is of a version we don't know (§6.1 guards the same).
        if datagram.len() < 1200 {
            return self.drop(DropReason::Malformed);
        }
        let Ok(header) = PartialHeader::parse(datagram, self.cid_len) else {
            return self.drop(DropReason::Malformed);
        };
        match header.kind {
            HeaderKind::UnsupportedVersion => {
                self.counters.negotiations += 1;
                reply::negotiation(&mut self.rng, &header, datagram, response);
                Arrival::Respond
            }
            HeaderKind::Initial { token } => self.receive_initial(
                unix_now,
                from,
                &header,
                datagram,
                token.of(datagram),
                response,
            ),
            HeaderKind::ZeroRtt
            | HeaderKind::Handshake
            | HeaderKind::Short { .. }
            | HeaderKind::Retry { .. }
            | HeaderKind::VersionNegotiation { .. } => self.drop(DropReason::Unexpected),
        }
    }

    /// Begins a client connection.
    ///
    /// # Errors
    /// If TLS refuses its settings.
    pub fn connect(
        &mut self,
        now: Instant,
        connect: Connect,
    ) -> Result<(Handle, Connection), TransportError> {
        let transport = self.config.transport.clone();
        self.connect_with(now, connect, transport)
    }

    /// Like [`connect`](Self::connect), with transport settings of its own.
    ///
    /// # Errors
    /// If TLS refuses its settings.
    pub fn connect_with(
        &mut self,
        now: Instant,
        connect: Connect,
        transport: Arc<Config>,
    ) -> Result<(Handle, Connection), TransportError> {
        let mut common = self.common(now);
        common.config = transport;
        let mut connection = Connection::connect(common, connect)?;
        Ok((self.register(&mut connection, None), connection))
    }

    fn common(&mut self, now: Instant) -> crate::connection::Common {
        crate::connection::Common {
            now,
            config: self.config.transport.clone(),
            rng: self.rng.child("connection"),
            generator: (self.config.generator)(),
            reset_key: self.config.reset_key.clone(),
        }
    }

    fn register(&mut self, connection: &mut Connection, attempt: Option<Attempt>) -> Handle {
        let handle = Handle(self.next);
        self.next += 1;
        for cid in attempt.iter().flat_map(|attempt| attempt.initial_dcids) {
            if !cid.is_empty() {
                self.routes.add(cid, handle);
            }
        }
        self.known.insert(
            handle,
            Known {
                cids: Vec::new(),
                tokens: Vec::new(),
                attempt: attempt.map(Box::new),
            },
        );
        while let Some(event) = connection.poll_endpoint_event() {
            self.on_event(handle, event);
        }
        handle
    }

    /// Takes what [`Connection::poll_endpoint_event`] gave.
    pub fn on_event(&mut self, handle: Handle, event: EndpointEvent) {
        let Some(known) = self.known.get_mut(&handle) else {
            return;
        };
        match event {
            EndpointEvent::AddCid(cid) => {
                known.cids.push(cid);
                self.routes.add(cid, handle);
            }
            EndpointEvent::RemoveCid(cid) => {
                known.cids.retain(|known| *known != cid);
                self.routes.remove(&cid);
            }
            EndpointEvent::ResetTokens(tokens) => {
                self.routes.set_tokens(handle, &known.tokens, &tokens);
                known.tokens = tokens;
            }
            EndpointEvent::HandshakeDone => self.end_handshake(handle),
            EndpointEvent::Drained => {
                self.end_handshake(handle);
                if let Some(known) = self.known.remove(&handle) {
                    for cid in &known.cids {
                        self.routes.remove(cid);
                    }
                    self.routes.set_tokens(handle, &known.tokens, &[]);
                }
            }
        }
    }

    fn end_handshake(&mut self, handle: Handle) {
        let known = self.known.get_mut(&handle);
        if let Some(attempt) = known.and_then(|known| known.attempt.take()) {
            for cid in attempt.initial_dcids {
                self.routes.remove(&cid);
            }
            self.overload.end(attempt.remote);
        }
    }

    /// A packet of a connection we don't know: tell the peer so that it need
    /// not wait for its timeout (RFC 9000 §10.3).
    fn reset_stranger(
        &mut self,
        now: Instant,
        datagram: &[u8],
        dcid: &[u8],
        response: &mut Vec<u8>,
    ) -> Arrival {
        let size = wire::reset::size(datagram.len());
        let (Some(size), false) = (size, dcid.is_empty()) else {
            return self.drop(DropReason::Unexpected);
        };
        if !self.overload.may_reset(now) {
            self.counters.resets_withheld += 1;
            return self.drop(DropReason::Unexpected);
        }
        self.counters.resets += 1;
        let token = self.config.reset_key.token(dcid);
        reply::reset(&mut self.rng, size, token, response);
        Arrival::Respond
    }

    fn drop(&mut self, reason: DropReason) -> Arrival {
        self.counters.dropped += 1;
        Arrival::Dropped(reason)
    }
}

impl core::fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Endpoint")
            .field("connections", &self.known.len())
            .field("counters", &self.counters)
            .finish_non_exhaustive()
    }
}
