//! The TLS side of a connection, and what the handshake agreed on.

use core::time::Duration;
use std::net::SocketAddr;
use std::sync::Arc;

use super::peer::Peer;
use crate::Role;
use crate::cid::ConnectionId;
use crate::crypto::client_sessions::MAX_TOKEN_LEN;
use crate::crypto::{ClientSessions, Session, Summary};
use crate::memory;
use crate::wire::{TransportParameters, Version};

/// The TLS side of a connection, and what the handshake agreed on.
#[derive(Debug)]
pub(crate) struct Tls {
    /// `None` once nothing more is expected of TLS.
    pub(super) session: Option<Box<Session>>,
    pub(crate) version: Version,
    /// In our Initial packets: from a Retry or a NEW_TOKEN (client).
    pub(crate) token: Vec<u8>,
    /// Source Connection ID of our long headers.
    pub(crate) local_cid: ConnectionId,
    /// Destination Connection ID of the client's first Initial.
    pub(crate) original_dcid: ConnectionId,
    /// Source Connection ID of a Retry.
    pub(super) retry_scid: Option<ConnectionId>,
    /// Source Connection ID of the peer's first Initial (client: the server's).
    pub(super) peer_cid: Option<ConnectionId>,
    /// Our ACK Delay fields count in two to the power of this, microseconds.
    pub(crate) ack_delay_exponent: u8,
    /// A server's attempt that answers a Retry of ours.
    answers_retry: bool,
    pub(crate) peer: Option<Peer>,
    /// Remembered ones in force for 0-RTT, until the server's arrive.
    pub(super) remembered: Option<Box<TransportParameters>>,
    pub(crate) zero_rtt_accepted: Option<bool>,
    /// Clear the QUIC bit at random: the peer offered it (RFC 9287).
    pub(crate) grease_quic_bit: bool,
    pub(crate) summary: Summary,
    /// Where NEW_TOKEN tokens go (client).
    pub(super) memory: Option<Box<Memory>>,
    /// Bytes from TLS on their way into CRYPTO streams; reused.
    pub(super) scratch: Vec<u8>,
}

/// What a client remembers of the server for next time.
#[derive(Debug)]
pub(crate) struct Memory {
    pub(crate) sessions: Arc<ClientSessions>,
    pub(crate) server: rustls::pki_types::ServerName<'static>,
}

impl Tls {
    pub(crate) fn new(
        session: Session,
        local: &TransportParameters,
        local_cid: ConnectionId,
        original_dcid: ConnectionId,
    ) -> Self {
        Self {
            session: Some(Box::new(session)),
            version: Version::V1,
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
            summary: Summary::default(),
            memory: None,
            scratch: Vec::new(),
        }
    }

    /// Bytes allocated, TLS itself left out: its library does not tell.
    #[expect(
        clippy::arithmetic_side_effects,
        reason = "sizes of what is in memory together"
    )]
    pub(crate) fn memory(&self) -> usize {
        let remembered = self.remembered.as_deref().map_or(0, |parameters| {
            let versions = parameters.version_information.as_ref();
            size_of_val(parameters) + versions.map_or(0, |v| memory::list(&v.available))
        });
        self.token.capacity()
            + self.scratch.capacity()
            + self.summary.memory()
            + self.peer.as_ref().map_or(0, Peer::memory)
            + remembered
    }

    /// Client: a Retry came. Server: this attempt answers one of ours.
    pub(crate) fn retried(&self) -> bool {
        self.retry_scid.is_some() || self.answers_retry
    }

    pub(crate) fn remember_with(&mut self, memory: Memory) {
        if let Some(token) = memory.sessions.take_token(&memory.server) {
            self.token = token;
        }
        self.memory = Some(Box::new(memory));
    }

    /// Whether a long header's Source Connection ID is the peer's. Its first
    /// Initial chose it, and packets with another are not its own, however
    /// authentic: Initial keys are anybody's (RFC 9000 §7.2). A server that
    /// lost its state, say, answers a late copy of the first flight anew.
    pub(super) fn is_from_peer(&self, source: Option<ConnectionId>) -> bool {
        self.peer_cid.is_none() || source == self.peer_cid
    }

    pub(crate) fn set_peer_cid(&mut self, cid: ConnectionId) {
        self.peer_cid = Some(cid);
    }

    /// Keeps a NEW_TOKEN token for the next connection; false if it is too long to
    /// be used. A connection without a store keeps none.
    pub(crate) fn store_token(&self, token: &[u8]) -> bool {
        if token.len() > MAX_TOKEN_LEN {
            return false;
        }
        if let Some(memory) = &self.memory {
            memory.sessions.put_token(&memory.server, token.to_vec());
        }
        true
    }

    pub(crate) fn peer_ack_delay(&self, ack: &crate::wire::frame::ack::Ack<'_>) -> Duration {
        let exponent = self.peer.as_ref().map_or(3, Peer::ack_delay_exponent);
        Duration::from_micros(ack.delay_micros(exponent))
    }

    pub(crate) fn peer_disables_migration(&self) -> bool {
        self.peer.as_ref().is_some_and(Peer::disables_migration)
    }

    /// Where the server would rather be.
    pub(crate) fn preferred_address(&self, v6: bool) -> Option<SocketAddr> {
        let peer = self.peer.as_ref()?.parameters(Role::Server)?;
        let preferred = peer.preferred_address?;
        if v6 {
            preferred.v6.map(SocketAddr::V6)
        } else {
            preferred.v4.map(SocketAddr::V4)
        }
    }

    pub(super) fn fill_summary(&mut self) {
        let Some(session) = &self.session else { return };
        self.summary = session.summary();
    }
}
