//! Which connection a datagram belongs to, and how to answer if it belongs to none (RFC
//! 9000 §5.2, §6, §8.1, §10.3).
//!
//! ```text
//! known connection ID                  -> the connection
//! stateless reset of a connection      -> the connection
//! long header with unknown version     -> Version Negotiation
//! Initial packet                       -> token, limits -> Retry | refuse | accept
//! anything else                        -> stateless reset, at a limited rate
//! ```
//!
//! An endpoint does not own its connections. The caller does, so that each can have a lock
//! of its own.

mod accept;
mod admission;
mod config;
mod handshakes;
mod incoming;
mod limits;
mod reply;
mod route;
mod sources;

use std::collections::VecDeque;
use std::sync::Arc;

use rustc_hash::FxHashMap;

pub use self::admission::AdmissionControl;
use self::admission::AdmissionGuard;
pub use self::config::{EndpointConfig, GeneratorFactory, ServerConfig};
use self::handshakes::Handshakes;
pub use self::incoming::{Incoming, Postponed};
pub use self::limits::Limits;
pub use self::route::ConnectionHandle;
use self::route::Routes;
pub use self::sources::Source;
use crate::Instant;
use crate::cid::generator::CidGenerator;
use crate::cid::{ConnectionId, ResetToken};
use crate::connection::{Config, ConnectOptions, Connection, EndpointEvent, RecvMeta};
use crate::count::Count;
use crate::crypto::{ServerCryptoByVersion, TokenIssuer};
use crate::defects::Quirk;
use crate::error::TransportError;
use crate::event::DropReason;
use crate::memory;
use crate::rng::Rng;
use crate::wire::header::{HeaderKind, PartialHeader, Route};
use crate::wire::{self, MIN_MTU, Version};

/// What to do with a received datagram.
#[derive(Debug)]
pub enum DatagramEvent {
    /// It belongs to this connection: call [`Connection::receive`].
    Connection(ConnectionHandle),
    /// A client starts a connection: call [`Endpoint::accept`], then
    /// [`Connection::receive`] with the same datagram.
    Incoming(Box<Incoming>),
    /// Send the bytes written to `response` to the sender.
    Response,
    /// It was dropped; there is nothing to do.
    Dropped(DropReason),
}

/// Counters of an endpoint.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct EndpointCounters {
    /// Connections accepted.
    pub accepted: u64,
    /// Retry packets sent.
    pub retries: u64,
    /// Clients refused by a limit or by the application.
    pub refused: u64,
    /// Clients refused because of the number of handshakes, in total or of their source.
    pub refused_handshakes: u64,
    /// Clients refused because of the number of connections, in total or of their source.
    pub refused_connections: u64,
    /// Clients above a limit that were not sent a refusal, because the rate of refusals
    /// ([`Limits::refusals_per_second`]) was reached. Also counted in `dropped`.
    pub refusals_withheld: u64,
    /// Initial packets without any part of a ClientHello, which start no connection. Also
    /// counted in `dropped`.
    pub without_client_hello: u64,
    /// Handshakes returned by [`Endpoint::next_overdue`].
    pub overdue: u64,
    /// Initial packets not answered because they continue an attempt that was answered, by
    /// a Retry or a refusal. Also counted in `dropped`.
    pub continued: u64,
    /// Version Negotiation packets sent.
    pub negotiations: u64,
    /// Stateless resets sent.
    pub resets: u64,
    /// Stateless resets not sent, because their rate ([`Limits::resets_per_second`]) was
    /// reached.
    pub resets_withheld: u64,
    /// Datagrams dropped.
    pub dropped: u64,
}

#[derive(Debug)]
struct ConnectionEntry {
    cids: Vec<ConnectionId>,
    /// The peer's stateless reset tokens.
    tokens: Vec<ResetToken>,
    /// For a client's connection: counts it towards the limits until this is dropped.
    admitted: Option<AdmissionGuard>,
}

/// A datagram that starts with an Initial packet for no known connection.
#[derive(Clone, Copy, Debug)]
struct FirstDatagram<'a> {
    now: Instant,
    /// Unix time in seconds.
    unix_now: u64,
    from: RecvMeta,
    header: &'a PartialHeader,
    datagram: &'a [u8],
}

/// Routes datagrams to connections, as client, server or both. Performs no I/O.
pub struct Endpoint {
    config: EndpointConfig,
    rng: Rng,
    /// Knows the lengths of our connection IDs, which may change while the endpoint is open.
    generator: Box<dyn CidGenerator>,
    routes: Routes,
    connections: FxHashMap<ConnectionHandle, ConnectionEntry>,
    next: u64,
    admission: Arc<AdmissionControl>,
    handshakes: Handshakes,
    /// Attempts that the application refused, newest last; at most
    /// `accept::MAX_REMEMBERED_REFUSALS`.
    refused: VecDeque<ConnectionId>,
    counters: EndpointCounters,
    /// Whether connections may search for an MTU above 1,200 bytes.
    mtu_discovery: bool,
    /// Makes NEW_TOKEN tokens, once there was a client.
    tokens: Option<Arc<TokenIssuer>>,
    /// The TLS settings for each version, once there was a client.
    crypto: Option<ServerCryptoByVersion>,
}

impl Endpoint {
    /// Creates an endpoint that takes all its random numbers from `rng`.
    #[must_use]
    pub fn new(config: EndpointConfig, mut rng: Rng) -> Self {
        let routes = Routes::new(&mut rng);
        let limits = config.server.as_ref().map(|server| server.limits.clone());
        let admission = AdmissionControl::new(limits.unwrap_or_default(), &mut rng);
        Self::with_parts(config, routes, Arc::new(admission), rng)
    }

    /// Like [`new`](Self::new), but with limits that apply to all endpoints with the same
    /// `admission` together. [`ServerConfig::limits`] is ignored.
    #[must_use]
    pub fn with_admission(
        config: EndpointConfig,
        admission: Arc<AdmissionControl>,
        mut rng: Rng,
    ) -> Self {
        let routes = Routes::new(&mut rng);
        Self::with_parts(config, routes, admission, rng)
    }

    fn with_parts(
        config: EndpointConfig,
        routes: Routes,
        admission: Arc<AdmissionControl>,
        rng: Rng,
    ) -> Self {
        Self {
            generator: (config.generator)(),
            routes,
            connections: FxHashMap::default(),
            next: 0,
            admission,
            handshakes: Handshakes::default(),
            refused: VecDeque::new(),
            counters: EndpointCounters::default(),
            mtu_discovery: true,
            tokens: None,
            crypto: None,
            config,
            rng,
        }
    }

    /// Makes connections that begin from now on send datagrams of 1,200 bytes, whatever
    /// [`Config::mtu_discovery`] says: for a socket that cannot forbid fragmentation. A probe
    /// would arrive in fragments, and its size would mean nothing (RFC 9000 §14).
    pub fn disable_mtu_discovery(&mut self) {
        self.mtu_discovery = false;
    }

    /// Returns the counters.
    #[must_use]
    pub fn counters(&self) -> EndpointCounters {
        self.counters
    }

    /// Returns the number of connections.
    #[must_use]
    pub fn len(&self) -> usize {
        self.connections.len()
    }

    /// Returns whether there are no connections.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.connections.is_empty()
    }

    /// Returns the number of incomplete handshakes with clients.
    #[must_use]
    pub fn handshakes(&self) -> usize {
        self.handshakes.len()
    }

    /// Returns the admission control of this endpoint and those that share it.
    #[must_use]
    pub fn admission(&self) -> &Arc<AdmissionControl> {
        &self.admission
    }

    /// Returns a handshake that has taken longer than
    /// [`Limits::handshake_timeout_under_load`] while there are many: the oldest first,
    /// each once. End it with [`Connection::expire_handshake`]. Call this until it returns
    /// `None` after each batch of datagrams; without new datagrams nobody needs the room.
    pub fn next_overdue(&mut self, now: Instant) -> Option<ConnectionHandle> {
        let timeout = self.admission.limits().handshake_timeout_under_load;
        if timeout.is_zero() || !self.admission.is_under_load() {
            return None;
        }
        let overdue = self.handshakes.next_overdue(now, timeout)?;
        self.counters.overdue.count_one();
        if let Some(admitted) = self.admitted(overdue) {
            admitted.set_overdue();
        }
        Some(overdue)
    }

    /// Returns the bytes of memory that the endpoint uses for routes and handshakes, in
    /// addition to its connections ([`Connection::memory`]) and what it may share
    /// ([`AdmissionControl::memory`]).
    #[must_use]
    #[expect(
        clippy::arithmetic_side_effects,
        reason = "the parts are in memory at the same time, so their sizes add up"
    )]
    pub fn memory(&self) -> usize {
        let known = self.connections.values();
        let each = known.map(|known| memory::vec(&known.cids) + memory::vec(&known.tokens));
        each.sum::<usize>()
            + memory::hash_map(&self.connections)
            + self.routes.memory()
            + self.handshakes.memory()
            + memory::vec_deque(&self.refused)
    }

    /// Finds the connection that a datagram belongs to. An answer that needs no connection
    /// is written to `response`, which is cleared first. `unix_now` is the Unix time in
    /// seconds, for tokens.
    pub fn receive(
        &mut self,
        now: Instant,
        unix_now: u64,
        from: RecvMeta,
        datagram: &[u8],
        response: &mut Vec<u8>,
    ) -> DatagramEvent {
        response.clear();
        if self.config.transport.has_succumbed() {
            return DatagramEvent::Dropped(DropReason::Overload);
        }
        let route = wire::header::route(datagram, self.generator.cid_lengths());
        let known = route
            .and_then(|route| ConnectionId::new(route.dcid))
            .and_then(|cid| self.routes.get(&cid));
        if let Some(handle) = known {
            return DatagramEvent::Connection(handle);
        }
        let unclaimed = match route {
            None => Err(DropReason::Malformed),
            Some(Route {
                version: None,
                dcid,
            }) => match self.routes.get_reset(datagram) {
                Some(handle) => return DatagramEvent::Connection(handle),
                None => self.reply_with_reset(now, datagram, dcid, response),
            },
            Some(Route {
                version: Some(version),
                ..
            }) => self.receive_long(now, version, unix_now, from, datagram, response),
        };
        // RFC 9000 §10.3: any datagram may be a stateless reset, whatever it looks like.
        match unclaimed {
            Ok(arrival) => arrival,
            Err(reason) => match self.routes.get_reset(datagram) {
                Some(handle) => DatagramEvent::Connection(handle),
                None => self.drop_for(reason),
            },
        }
    }

    fn drop_for(&mut self, reason: DropReason) -> DatagramEvent {
        self.counters.dropped.count_one();
        DatagramEvent::Dropped(reason)
    }

    /// Returns the connection that sent the packet with a long header whose beginning an ICMP
    /// error quotes. Its Source Connection ID is random, so only who saw the packet can make up
    /// such an error.
    #[must_use]
    pub fn find_quoted(&self, quoted: &[u8]) -> Option<ConnectionHandle> {
        let mut quoted = wire::Reader::new(quoted);
        let long = quoted.u8()? & wire::packet::LONG != 0;
        let _version = quoted.u32().filter(|_| long)?;
        let dcid_len = quoted.u8()?.into();
        let _dcid = quoted.bytes(dcid_len)?;
        let scid_len = quoted.u8()?.into();
        let scid = ConnectionId::new(quoted.bytes(scid_len)?)?;
        self.routes.get(&scid).filter(|_| !scid.is_empty())
    }

    fn receive_long(
        &mut self,
        now: Instant,
        version: Version,
        unix_now: u64,
        from: RecvMeta,
        datagram: &[u8],
        response: &mut Vec<u8>,
    ) -> Result<DatagramEvent, DropReason> {
        #[cfg(feature = "defects")]
        if version == Version::NEGOTIATION
            && self.config.transport.has(Quirk::AnswersVersionNegotiation)
        {
            // To this server it is a version like any other.
            let version = Version::reserved(0);
            let renamed = crate::defects::with_version(datagram, version);
            return self.receive_long(now, version, unix_now, from, &renamed, response);
        }
        let defective = &self.config.transport;
        if self.config.server.is_none() || version == Version::NEGOTIATION {
            return Err(DropReason::Unexpected);
        }
        let header = PartialHeader::parse(datagram, self.generator.cid_lengths())
            .map_err(|_| DropReason::Malformed)?;
        // RFC 9000 §14.1: a client's first datagram has at least 1,200 bytes, also if its
        // version is unknown (§6.1 requires the same).
        let full = datagram.len() >= usize::from(MIN_MTU);
        let versions = self.config.transport.versions;
        if !versions.contains(version) {
            if !full && !defective.has(Quirk::NegotiatesSmallDatagrams) {
                return Err(DropReason::Malformed);
            }
            if defective.ignores_version(header.dcid.of(datagram)) {
                return Err(DropReason::Unexpected);
            }
            self.counters.negotiations.count_one();
            reply::negotiation(&mut self.rng, versions, &header, datagram, response);
            return Ok(DatagramEvent::Response);
        }
        match header.kind {
            HeaderKind::Initial { token } if full || defective.has(Quirk::AcceptsSmallInitials) => {
                let first = FirstDatagram {
                    now,
                    unix_now,
                    from,
                    header: &header,
                    datagram,
                };
                self.receive_initial(&first, token.of(datagram), response)
            }
            // A client in the middle of a handshake that this server has forgotten. When it
            // sends this, it has the server's transport parameters, and with them the token
            // to recognise a reset by.
            HeaderKind::Handshake => {
                self.reply_with_reset(now, datagram, header.dcid.of(datagram), response)
            }
            HeaderKind::UnsupportedVersion | HeaderKind::Initial { .. } => {
                Err(DropReason::Malformed)
            }
            HeaderKind::ZeroRtt
            | HeaderKind::Short { .. }
            | HeaderKind::Retry { .. }
            | HeaderKind::VersionNegotiation { .. } => Err(DropReason::Unexpected),
        }
    }

    /// Starts a client connection.
    ///
    /// # Errors
    /// If TLS rejects its settings.
    pub fn connect(
        &mut self,
        now: Instant,
        connect: ConnectOptions,
    ) -> Result<(ConnectionHandle, Connection), TransportError> {
        let transport = self.config.transport.clone();
        self.connect_with(now, connect, transport)
    }

    /// Like [`connect`](Self::connect), but with transport settings for this connection.
    ///
    /// # Errors
    /// If TLS rejects its settings.
    pub fn connect_with(
        &mut self,
        now: Instant,
        connect: ConnectOptions,
        transport: Arc<Config>,
    ) -> Result<(ConnectionHandle, Connection), TransportError> {
        let mut common = self.common(now);
        common.config = transport;
        let mut connection = Connection::connect(common, connect)?;
        Ok((self.register(&mut connection, None), connection))
    }

    fn common(&mut self, now: Instant) -> crate::connection::CommonOptions {
        crate::connection::CommonOptions {
            now,
            config: self.config.transport.clone(),
            rng: self.rng.child("connection"),
            generator: (self.config.generator)(),
            reset_key: self.config.reset_key.clone(),
            mtu_discovery: self.mtu_discovery,
        }
    }

    fn register(
        &mut self,
        connection: &mut Connection,
        admitted: Option<AdmissionGuard>,
    ) -> ConnectionHandle {
        let handle = ConnectionHandle(self.next);
        self.next.count_one();
        self.connections.insert(
            handle,
            ConnectionEntry {
                cids: Vec::new(),
                tokens: Vec::new(),
                admitted,
            },
        );
        while let Some(event) = connection.poll_endpoint_event() {
            self.on_event(handle, event);
        }
        handle
    }

    /// Handles an event from [`Connection::poll_endpoint_event`].
    pub fn on_event(&mut self, handle: ConnectionHandle, event: EndpointEvent) {
        let Some(known) = self.connections.get_mut(&handle) else {
            return;
        };
        match event {
            EndpointEvent::AddCid(cid) => {
                known.cids.push(cid);
                self.routes.add(cid, handle);
            }
            EndpointEvent::RemoveCid(cid) => {
                known.cids.retain(|known| *known != cid);
                self.routes.remove(&cid, handle);
            }
            EndpointEvent::ResetTokens(tokens) => {
                self.routes.set_tokens(handle, &known.tokens, &tokens);
                known.tokens = tokens;
            }
            EndpointEvent::HandshakeDone => {
                self.end_handshake(handle);
                if let Some(admitted) = self.admitted(handle) {
                    admitted.complete_handshake();
                }
            }
            EndpointEvent::Drained => {
                self.end_handshake(handle);
                if let Some(known) = self.connections.remove(&handle) {
                    for cid in &known.cids {
                        self.routes.remove(cid, handle);
                    }
                    self.routes.set_tokens(handle, &known.tokens, &[]);
                }
            }
        }
    }

    /// Forgets every connection, when nobody serves them any more. Their clients no longer
    /// count towards the limits.
    pub fn forget_all(&mut self) {
        let handles: Vec<ConnectionHandle> = self.connections.keys().copied().collect();
        for handle in handles {
            self.on_event(handle, EndpointEvent::Drained);
        }
    }

    fn admitted(&mut self, handle: ConnectionHandle) -> Option<&mut AdmissionGuard> {
        self.connections.get_mut(&handle)?.admitted.as_mut()
    }

    fn end_handshake(&mut self, handle: ConnectionHandle) {
        if let Some(attempt) = self.handshakes.end(handle) {
            self.routes.remove(&attempt.initial_dcid, handle);
        }
    }

    /// Answers a packet of an unknown connection with a stateless reset, so that the peer
    /// need not wait for its timeout (RFC 9000 §10.3).
    fn reply_with_reset(
        &mut self,
        now: Instant,
        datagram: &[u8],
        dcid: &[u8],
        response: &mut Vec<u8>,
    ) -> Result<DatagramEvent, DropReason> {
        // A connection ID of another length is not one of ours, so nobody has a token for
        // it.
        let len = self.generator.cid_lengths().at(dcid);
        let ours = dcid.len() == len && !dcid.is_empty();
        let size = wire::reset::size(datagram.len()).filter(|_| ours);
        let size = size.ok_or(DropReason::Unexpected)?;
        if !self.admission.may_reset(now) {
            self.counters.resets_withheld.count_one();
            return Err(DropReason::Unexpected);
        }
        self.counters.resets.count_one();
        let size = match self.config.transport.has(Quirk::SendsLargeResets) {
            true => datagram.len().saturating_add(1),
            false => size,
        };
        let token = self.config.reset_key.token(dcid);
        reply::reset(&mut self.rng, size, token, response);
        Ok(DatagramEvent::Response)
    }
}

impl core::fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Endpoint")
            .field("connections", &self.connections.len())
            .field("counters", &self.counters)
            .finish_non_exhaustive()
    }
}
