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

mod overload;
mod reply;
mod route;

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use rustc_hash::FxHashMap;

pub use self::overload::Limits;
use self::overload::Overload;
use self::route::Routes;
use crate::cid::generator::{CidGenerator, RandomGenerator};
use crate::cid::{ConnectionId, ResetToken};
use crate::connection::{Accept, Config, Connect, Connection, EndpointEvent, Received};
use crate::crypto::{
    AddressToken, ReplayFilter, ResetKey, RetryToken, Token, TokenKey, initial_keys,
};
use crate::error::{Code, TransportError};
use crate::event::DropReason;
use crate::memory;
use crate::rng::Rng;
use crate::wire::header::{HeaderKind, OpenHeader, PartialHeader};
use crate::wire::{self, Version};
use crate::{Instant, Role};

/// Names a connection of an endpoint; never used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Handle(pub u64);

/// Makes a connection-ID generator for each connection.
pub type GeneratorFactory = Arc<dyn Fn() -> Box<dyn CidGenerator> + Send + Sync>;

/// What a server needs beside the transport settings.
#[derive(Clone)]
pub struct ServerConfig {
    /// TLS settings, from [`ServerCrypto`](crate::crypto::ServerCrypto).
    pub crypto: Arc<rustls::ServerConfig>,
    /// Seals Retry and NEW_TOKEN tokens; the same key over restarts and shards.
    pub token_key: Arc<TokenKey>,
    /// NEW_TOKEN tokens seen, shared over shards.
    pub replay: Arc<Mutex<ReplayFilter>>,
    /// Validate every address by Retry, not only under load.
    pub always_retry: bool,
    /// Bounds on handshakes.
    pub limits: Limits,
    /// Addresses clients should move to (RFC 9000 §9.6).
    pub preferred_address: Option<(
        Option<std::net::SocketAddrV4>,
        Option<std::net::SocketAddrV6>,
    )>,
}

/// Settings of an endpoint.
#[derive(Clone)]
pub struct EndpointConfig {
    /// For every connection.
    pub transport: Arc<Config>,
    /// `None` = clients only.
    pub server: Option<ServerConfig>,
    /// Derives stateless reset tokens; the same over restarts, so that a
    /// restarted server can tell its old clients.
    pub reset_key: Arc<ResetKey>,
    /// Connection IDs of every connection; all of one length.
    pub generator: GeneratorFactory,
}

impl EndpointConfig {
    /// Clients only, with random eight-byte connection IDs.
    #[must_use]
    pub fn client(transport: Arc<Config>, rng: &mut Rng) -> Self {
        Self {
            transport,
            server: None,
            reset_key: Arc::new(ResetKey::new(&rng.array())),
            generator: Arc::new(|| Box::new(RandomGenerator::new(8))),
        }
    }
}

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

/// A client's first Initial, authenticated.
#[derive(Debug)]
pub struct Incoming {
    from: Received,
    original_dcid: ConnectionId,
    dcid: ConnectionId,
    scid: ConnectionId,
    retry_scid: Option<ConnectionId>,
    validated: bool,
    unix_now: u64,
}

impl Incoming {
    /// The client's address.
    #[must_use]
    pub fn remote(&self) -> SocketAddr {
        self.from.remote
    }

    /// Whether a token proved that address.
    #[must_use]
    pub fn is_validated(&self) -> bool {
        self.validated
    }
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
    /// Where the client's first Initials go, until the handshake is done: it
    /// repeats them with the connection ID it chose (RFC 9000 §7.2).
    initial_dcids: [ConnectionId; 2],
    cids: Vec<ConnectionId>,
    /// What the peer would reset it with.
    tokens: Vec<ResetToken>,
    remote: SocketAddr,
    handshaking: bool,
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
        let cids = known.map(|known| memory::list(&known.cids) + memory::list(&known.tokens));
        cids.sum::<usize>()
            + memory::table(&self.known)
            + self.routes.memory()
            + self.overload.memory()
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

    fn receive_initial(
        &mut self,
        unix_now: u64,
        from: Received,
        header: &PartialHeader,
        datagram: &[u8],
        token: &[u8],
        response: &mut Vec<u8>,
    ) -> Arrival {
        let (Some(dcid), Some(scid)) = (header.dcid.cid(datagram), header.scid.cid(datagram))
        else {
            return self.drop(DropReason::Malformed);
        };
        // RFC 9000 §7.2: unpredictable, so eight bytes at least; and state is
        // only made for packets that open.
        if dcid.len() < 8 || !is_authentic(&dcid, header, datagram) {
            return self.drop(DropReason::DecryptionFailed);
        }
        let mut incoming = Incoming {
            from,
            original_dcid: dcid,
            dcid,
            scid,
            retry_scid: None,
            validated: false,
            unix_now,
        };
        if let Err(error) = self.read_token(&mut incoming, token) {
            reply::close(&dcid, &scid, &error, response);
            return Arrival::Respond;
        }
        let always = self
            .config
            .server
            .as_ref()
            .is_some_and(|server| server.always_retry);
        match self
            .overload
            .judge(from.remote.ip(), incoming.validated, always)
        {
            overload::Verdict::Accept => Arrival::Incoming(Box::new(incoming)),
            overload::Verdict::Retry => {
                self.write_retry(&incoming, response);
                Arrival::Respond
            }
            overload::Verdict::Refuse => {
                self.counters.refused += 1;
                let error = TransportError::new(Code::CONNECTION_REFUSED, "too many handshakes");
                reply::close(&dcid, &scid, &error, response);
                Arrival::Respond
            }
        }
    }

    /// What the client's token proves. A Retry token that is wrong ends the
    /// attempt (RFC 9000 §8.1.3); any other that is wrong counts as none.
    fn read_token(&mut self, incoming: &mut Incoming, token: &[u8]) -> Result<(), TransportError> {
        let Some(server) = &self.config.server else {
            return Ok(());
        };
        if token.is_empty() {
            return Ok(());
        }
        match server
            .token_key
            .open(token, incoming.unix_now, incoming.from.remote)
        {
            Ok(Token::Retry(retry)) => {
                if retry.retry_scid != incoming.dcid {
                    return Err(TransportError::new(
                        Code::INVALID_TOKEN,
                        "the Retry token belongs to another connection ID",
                    ));
                }
                incoming.original_dcid = retry.original_dcid;
                incoming.retry_scid = Some(retry.retry_scid);
                incoming.validated = true;
            }
            Ok(Token::Address(address)) => {
                let mut replay = server
                    .replay
                    .lock()
                    .unwrap_or_else(std::sync::PoisonError::into_inner);
                incoming.validated = replay.admit(&address);
            }
            Err(error) if error.is_invalid_retry() => {
                return Err(TransportError::new(Code::INVALID_TOKEN, error.to_string()));
            }
            Err(_) => {}
        }
        Ok(())
    }

    fn write_retry(&mut self, incoming: &Incoming, response: &mut Vec<u8>) {
        let Some(server) = &self.config.server else {
            return;
        };
        self.counters.retries += 1;
        let retry_scid = (self.config.generator)().generate(&mut self.rng);
        let mut token = Vec::with_capacity(128);
        server.token_key.seal_retry(
            &RetryToken {
                issued: incoming.unix_now,
                client: incoming.from.remote,
                original_dcid: incoming.dcid,
                retry_scid,
            },
            &mut self.rng,
            &mut token,
        );
        let random = self.rng.u64() as u8;
        reply::retry(
            incoming.scid,
            retry_scid,
            &incoming.dcid,
            &token,
            random,
            response,
        );
    }

    /// Makes the connection; the caller then feeds it the same datagram.
    ///
    /// # Errors
    /// If TLS refuses its own settings.
    pub fn accept(
        &mut self,
        now: Instant,
        incoming: &Incoming,
    ) -> Result<(Handle, Connection), TransportError> {
        let Some(server) = &self.config.server else {
            return Err(TransportError::new(
                Code::CONNECTION_REFUSED,
                "this endpoint has no server settings",
            ));
        };
        let mut new_token = Vec::with_capacity(64);
        server.token_key.seal_address(
            &AddressToken {
                issued: incoming.unix_now,
                ip: incoming.from.remote.ip(),
                id: self.rng.array(),
            },
            &mut self.rng,
            &mut new_token,
        );
        let accept = Accept {
            remote: incoming.from.remote,
            local_ip: incoming.from.local_ip,
            original_dcid: incoming.original_dcid,
            dcid: incoming.dcid,
            retry_scid: incoming.retry_scid,
            scid: incoming.scid,
            validated: incoming.validated,
            new_token: Some(new_token),
            preferred_address: server.preferred_address,
            crypto: server.crypto.clone(),
        };
        let common = self.common(now);
        let mut connection = Connection::accept_from(common, accept)?;
        let handle = self.register(
            &mut connection,
            [incoming.original_dcid, incoming.dcid],
            incoming.from.remote,
        );
        self.overload.begin(incoming.from.remote.ip());
        self.counters.accepted += 1;
        Ok((handle, connection))
    }

    /// Refuses a client; send the bytes written to `response`.
    pub fn refuse(&mut self, incoming: &Incoming, response: &mut Vec<u8>) {
        response.clear();
        self.counters.refused += 1;
        let error = TransportError::new(Code::CONNECTION_REFUSED, "refused by the application");
        reply::close(&incoming.dcid, &incoming.scid, &error, response);
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
        let remote = connect.remote;
        let mut common = self.common(now);
        common.config = transport;
        let mut connection = Connection::connect(common, connect)?;
        let none = [ConnectionId::EMPTY; 2];
        Ok((self.register(&mut connection, none, remote), connection))
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

    fn register(
        &mut self,
        connection: &mut Connection,
        initial_dcids: [ConnectionId; 2],
        remote: SocketAddr,
    ) -> Handle {
        let handle = Handle(self.next);
        self.next += 1;
        for cid in initial_dcids.iter().filter(|cid| !cid.is_empty()) {
            self.routes.add(*cid, handle);
        }
        self.known.insert(
            handle,
            Known {
                initial_dcids,
                cids: Vec::new(),
                tokens: Vec::new(),
                remote,
                handshaking: connection.role() == Role::Server,
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
        if let Some(known) = self.known.get_mut(&handle)
            && core::mem::take(&mut known.handshaking)
        {
            for cid in known.initial_dcids {
                self.routes.remove(&cid);
            }
            self.overload.end(known.remote.ip());
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

/// Whether the first packet opens with the keys its connection ID gives.
fn is_authentic(dcid: &ConnectionId, header: &PartialHeader, datagram: &[u8]) -> bool {
    let keys = initial_keys(dcid, Role::Server);
    let mut packet = datagram[..header.packet_len].to_vec();
    if keys
        .remote
        .unprotect_header(&mut packet, header.number_at)
        .is_none()
    {
        return false;
    }
    OpenHeader::read(&packet, header.number_at).is_some_and(|open| {
        let number = open.number.recover(None);
        keys.remote
            .open(number, &mut packet, open.header_len)
            .is_some()
    })
}
