//! The TLS side of a connection, and what the handshake agreed on.

use std::sync::Arc;

use clearway_recovery::Space;

use super::client_start::ClientStart;
use super::keyring::Keyring;
use super::peer_parameters::PeerParameters;
use super::reports::Reports;
use super::server_start::ServerStart;
use super::space::PacketSpaces;
use super::versions::VersionChoice;
use crate::cid::ConnectionId;
use crate::crypto::client_sessions::MAX_TOKEN_LEN;
use crate::crypto::{
    ClientSessions, HandshakeSummary, Level, NewKeys, ServerId, Session, VersionSessions,
};
use crate::error::{Code, TransportError};
use crate::event::TraceEvent;
use crate::memory;
use crate::wire::transport_parameters::HandshakeCids;
use crate::wire::{PacketKind, TransportParameters, Version};
use crate::{Instant, Role};

/// TLS alert (RFC 8446 §6).
const UNEXPECTED_MESSAGE: u8 = 10;

/// The TLS side of a connection, and what the handshake agreed on.
#[derive(Debug)]
pub(crate) struct Tls {
    /// `None` once nothing more is expected from TLS, and on a server that still needs the
    /// ClientHello to create it.
    pub(super) session: Option<Box<Session>>,
    /// What a session may still be created from.
    pub(super) start: Option<Box<SessionStart>>,
    pub(crate) versions: VersionChoice,
    /// The token in our Initial packets, from a Retry or a NEW_TOKEN (client).
    pub(crate) token: Vec<u8>,
    /// Source Connection ID of our long headers.
    pub(crate) local_cid: ConnectionId,
    /// Destination Connection ID of the client's first Initial.
    pub(crate) original_dcid: ConnectionId,
    /// Source Connection ID of a Retry.
    pub(super) retry_scid: Option<ConnectionId>,
    /// Source Connection ID of the peer's first Initial packet.
    pub(super) peer_cid: Option<ConnectionId>,
    /// The exponent of our ACK Delay fields, whose unit is two to the power of it in
    /// microseconds.
    pub(crate) ack_delay_exponent: u8,
    /// Whether the client answered a Retry (server).
    answers_retry: bool,
    pub(crate) peer: Option<PeerParameters>,
    /// Remembered parameters that apply to 0-RTT until the server's arrive.
    pub(super) remembered: Option<Box<TransportParameters>>,
    pub(crate) zero_rtt_accepted: Option<bool>,
    /// Whether to clear the QUIC bit at random, because the peer supports it (RFC 9287).
    pub(crate) grease_quic_bit: bool,
    pub(crate) summary: HandshakeSummary,
    /// Where NEW_TOKEN tokens are stored (client).
    pub(super) token_store: Option<Box<TokenStore>>,
    /// Reused buffer between TLS and the CRYPTO streams.
    pub(super) scratch: Vec<u8>,
}

/// What a TLS session may still be created from.
#[derive(Debug)]
pub(super) enum SessionStart {
    /// A client's with another version, while a Version Negotiation packet may arrive.
    Client(ClientStart),
    /// A server's, once the ClientHello is complete.
    Server(ServerStart),
}

/// Where a client stores the tokens and tickets of a server for its next connection.
#[derive(Debug)]
pub(crate) struct TokenStore {
    pub(crate) sessions: Arc<ClientSessions>,
    pub(crate) server: ServerId,
    /// The same store, as TLS sees it.
    pub(crate) tickets: Arc<VersionSessions>,
}

impl Tls {
    pub(crate) fn new(
        session: Option<Session>,
        versions: VersionChoice,
        local: &TransportParameters,
        local_cid: ConnectionId,
        original_dcid: ConnectionId,
    ) -> Self {
        Self {
            session: session.map(Box::new),
            start: None,
            versions,
            token: Vec::new(),
            local_cid,
            original_dcid,
            retry_scid: None,
            peer_cid: None,
            ack_delay_exponent: local.ack_delay_exponent,
            answers_retry: local.retry_source_connection_id.is_some(),
            peer: None,
            remembered: None,
            zero_rtt_accepted: None,
            grease_quic_bit: false,
            summary: HandshakeSummary::default(),
            token_store: None,
            scratch: Vec::new(),
        }
    }

    /// Takes handshake bytes and keys from TLS.
    pub(super) fn drain(
        &mut self,
        now: Instant,
        key_update_after: Option<u64>,
        spaces: &mut PacketSpaces,
        keys: &mut Keyring,
        reports: &mut Reports,
    ) {
        let Some(session) = &mut self.session else {
            return;
        };
        loop {
            self.scratch.clear();
            let space = space_of_level(session.write_level());
            let step = session.next(&mut self.scratch);
            let done = step.is_none() && self.scratch.is_empty();
            spaces.get_mut(space).crypto.write(&self.scratch);
            let kind = match step {
                None if done => return,
                None => continue,
                Some(NewKeys::Handshake(new)) => {
                    keys.handshake = Some(Box::new(new));
                    PacketKind::Handshake
                }
                Some(NewKeys::OneRtt(mut new)) => {
                    if let Some(packets) = key_update_after {
                        new.set_update_after(packets);
                    }
                    keys.one_rtt = Some(*new);
                    PacketKind::OneRtt
                }
            };
            reports.trace(now, || TraceEvent::KeysInstalled { kind });
        }
    }

    /// Begins again with another version, after a Version Negotiation packet.
    pub(super) fn restart(
        &mut self,
        session: Session,
        tickets: Option<Arc<VersionSessions>>,
        versions: VersionChoice,
        dcid: ConnectionId,
    ) {
        self.session = Some(Box::new(session));
        if let (Some(store), Some(tickets)) = (&mut self.token_store, tickets) {
            store.tickets = tickets;
        }
        self.versions = versions;
        self.original_dcid = dcid;
        self.token.clear();
        self.take_stored_token();
    }

    /// Follows the server to `version` (client).
    pub(super) fn follow_to(&mut self, version: Version) {
        self.versions.decide(version);
        if let Some(session) = &mut self.session {
            session.set_version(version);
        }
        if let Some(store) = &self.token_store {
            store.tickets.set_version(version);
        }
    }

    /// Returns the version of the long headers of packets of this type.
    #[inline]
    pub(super) fn version_of(&self, kind: PacketKind) -> Version {
        match kind {
            // RFC 9369 §4.1: 0-RTT packets never have another version.
            PacketKind::ZeroRtt => self.versions.original(),
            PacketKind::Initial | PacketKind::Handshake | PacketKind::OneRtt => {
                self.versions.current()
            }
        }
    }

    /// Returns the connection ID that the Initial keys are derived from.
    pub(super) fn initial_dcid(&self) -> ConnectionId {
        self.retry_scid.unwrap_or(self.original_dcid)
    }

    /// Collects the ClientHello on a server that chooses the version by it, and creates the
    /// session when it is complete. `start` is what the session is created from.
    fn read_client_hello(
        &mut self,
        mut start: ServerStart,
        bytes: &[u8],
    ) -> Result<(), TransportError> {
        if !start.hello.push(bytes) {
            self.start = Some(Box::new(SessionStart::Server(start)));
            return Ok(());
        }
        let version = start.preferred_version(self.versions);
        self.versions.decide(version);
        let mut session = start.session(self.versions)?;
        let result = start.read_hello(&mut session);
        self.session = Some(Box::new(session));
        result
    }

    /// Passes in-order bytes of the CRYPTO stream of `space` to TLS.
    ///
    /// # Errors
    /// A TLS alert; `unexpected_message` once the session is gone.
    pub(super) fn read(&mut self, space: Space, bytes: &[u8]) -> Result<(), TransportError> {
        if self.session.is_none()
            && let Some(SessionStart::Server(start)) = self.start.take().map(|start| *start)
        {
            return self.read_client_hello(start, bytes);
        }
        match &mut self.session {
            // A level that is complete accepts nothing more (RFC 9001 §4.1.3).
            Some(session) => session.read(level_of(space), bytes),
            // RFC 9001 §6: TLS KeyUpdate is forbidden, and a server expects no other
            // message after the handshake.
            None => Err(TransportError::new(
                Code::crypto(UNEXPECTED_MESSAGE),
                "TLS message after the handshake",
            )),
        }
    }

    /// Returns whether TLS has finished on this end.
    pub(super) fn has_finished(&self) -> bool {
        let session = self.session.as_deref();
        session.is_some_and(|session| !session.is_handshaking())
    }

    /// Returns whether the server accepted 0-RTT data, as far as TLS knows.
    pub(super) fn accepts_early_data(&self) -> bool {
        let session = self.session.as_deref();
        session.is_some_and(Session::early_data_accepted)
    }

    /// Decodes and checks the peer's transport parameters, if TLS has them and this was not
    /// done before (RFC 9000 §7.3, §7.4).
    ///
    /// # Errors
    /// TRANSPORT_PARAMETER_ERROR; PROTOCOL_VIOLATION if they are lower than those that
    /// 0-RTT data was sent under.
    pub(super) fn take_peer_parameters(
        &mut self,
        role: Role,
    ) -> Result<Option<TransportParameters>, TransportError> {
        if self.peer.is_some() {
            return Ok(None);
        }
        let session = self.session.as_deref();
        let Some(bytes) = session.and_then(Session::peer_transport_parameters) else {
            return Ok(None);
        };
        let peer = TransportParameters::decode(bytes, role.peer())?;
        peer.authenticate(
            role.peer(),
            &HandshakeCids {
                initial_source: self.peer_cid.unwrap_or(ConnectionId::EMPTY),
                original_destination: self.original_dcid,
                retry_source: self.retry_scid,
            },
        )?;
        self.versions
            .check(role, peer.version_information.as_ref())?;
        if let Some(remembered) = self.remembered.take()
            && self.accepts_early_data()
        {
            peer.check_not_reduced(&remembered)?;
        }
        Ok(Some(peer))
    }

    /// Frees the TLS session. A server needs it no longer once its tickets are in the
    /// CRYPTO stream.
    pub(super) fn drop_session(&mut self) {
        self.session = None;
        self.scratch = Vec::new();
    }

    /// Returns the bytes allocated, without TLS itself, whose library does not report them.
    #[expect(
        clippy::arithmetic_side_effects,
        reason = "the parts are in memory at the same time, so their sizes add up"
    )]
    pub(crate) fn memory(&self) -> usize {
        let remembered = self.remembered.as_deref().map_or(0, |parameters| {
            let versions = parameters.version_information.as_ref();
            size_of_val(parameters) + versions.map_or(0, |v| memory::vec(&v.available))
        });
        let start = self.start.as_deref().map_or(0, |start| {
            size_of_val(start)
                + match start {
                    SessionStart::Client(_) => 0,
                    SessionStart::Server(start) => start.hello.memory(),
                }
        });
        self.token.capacity()
            + start
            + self.scratch.capacity()
            + self.summary.memory()
            + self.peer.as_ref().map_or(0, PeerParameters::memory)
            + remembered
    }

    /// Returns whether there was a Retry: received by a client, or answered by a server's
    /// client.
    pub(crate) fn retried(&self) -> bool {
        self.retry_scid.is_some() || self.answers_retry
    }

    pub(crate) fn use_token_store(&mut self, memory: TokenStore) {
        self.token_store = Some(Box::new(memory));
        self.take_stored_token();
    }

    /// Takes a token for the version of the first flight out of the store.
    fn take_stored_token(&mut self) {
        let version = self.versions.original();
        let token = self
            .token_store
            .as_ref()
            .and_then(|store| store.sessions.take_token(&store.server, version));
        if let Some(token) = token {
            self.token = token;
        }
    }

    /// Returns whether a long header's Source Connection ID is the peer's, which its first
    /// Initial packet chose. Packets with another are not from the peer, however authentic,
    /// since anybody can derive Initial keys (RFC 9000 §7.2). For example, a server that
    /// lost its state answers a late copy of the first flight as if it were new.
    pub(super) fn is_from_peer(&self, source: Option<ConnectionId>) -> bool {
        self.peer_cid.is_none() || source == self.peer_cid
    }

    pub(crate) fn set_peer_cid(&mut self, cid: ConnectionId) {
        self.peer_cid = Some(cid);
    }

    /// Stores a NEW_TOKEN token for the next connection, if there is a store. Returns false
    /// if the token is too long to be used.
    pub(crate) fn store_token(&self, token: &[u8]) -> bool {
        if token.len() > MAX_TOKEN_LEN {
            return false;
        }
        if let Some(memory) = &self.token_store {
            let version = self.versions.current();
            memory
                .sessions
                .put_token(&memory.server, version, token.to_vec());
        }
        true
    }

    /// Returns the peer's transport parameters once they have arrived, decoded again from
    /// their encoding. `role` is that of this end.
    pub(super) fn peer_parameters(&self, role: Role) -> Option<TransportParameters> {
        self.peer.as_ref()?.parameters(role.peer())
    }

    pub(super) fn fill_summary(&mut self) {
        let Some(session) = &self.session else { return };
        self.summary = session.summary();
    }
}

fn level_of(space: Space) -> Level {
    match space {
        Space::Initial => Level::Initial,
        Space::Handshake => Level::Handshake,
        Space::Data => Level::OneRtt,
    }
}

fn space_of_level(level: Level) -> Space {
    match level {
        Level::Initial => Space::Initial,
        Level::Handshake => Space::Handshake,
        Level::OneRtt => Space::Data,
    }
}
