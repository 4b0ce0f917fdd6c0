//! What a client's TLS session is created from, for its first flight and for another one after a
//! Version Negotiation packet.

use std::sync::Arc;

use rustls::client::Resumption;

use super::versions::VersionChoice;
use crate::Role;
use crate::crypto::{ClientSessions, ServerId, Session, VersionSessions};
use crate::error::TransportError;
use crate::wire::TransportParameters;

/// What a client's TLS session is created from.
#[derive(Debug)]
pub(super) struct ClientStart {
    pub(super) crypto: Arc<rustls::ClientConfig>,
    pub(super) sessions: Option<Arc<ClientSessions>>,
    pub(super) server: ServerId,
    pub(super) parameters: EncodableParameters,
}

/// Our transport parameters, which differ between versions, and random numbers for reserved ones.
#[derive(Debug)]
pub(super) struct EncodableParameters {
    pub(super) local: TransportParameters,
    pub(super) grease: Option<[u64; 2]>,
}

impl EncodableParameters {
    /// Returns them in wire form, for the versions as they are chosen now.
    pub(super) fn encode(&mut self, role: Role, versions: VersionChoice) -> Vec<u8> {
        // The identifier of the reserved parameter takes other bits of it.
        let reserved = self.grease.map(|[identifier, _]| (identifier >> 32) as u32);
        self.local.version_information = versions.information(role, reserved);
        let mut out = Vec::with_capacity(256);
        self.local.encode(&mut out, self.grease);
        out
    }
}

impl ClientStart {
    /// Creates a session for the version of the first flight, and the store of its tickets, which
    /// has to be told if the version changes.
    ///
    /// # Errors
    /// If the configuration does not support QUIC.
    pub(super) fn session(
        &mut self,
        versions: VersionChoice,
    ) -> Result<(Session, Option<Arc<VersionSessions>>), TransportError> {
        let version = versions.original();
        let tickets = self.sessions.as_ref().map(|sessions| {
            let (sessions, port) = (sessions.clone(), self.server.port);
            Arc::new(VersionSessions::new(sessions, port, version))
        });
        let mut crypto = self.crypto.clone();
        match &tickets {
            Some(tickets) => {
                Arc::make_mut(&mut crypto).resumption = Resumption::store(tickets.clone());
            }
            // The store in `crypto` does not know which version a ticket is for.
            None if versions.may_change() || versions.is_restarted() => {
                Arc::make_mut(&mut crypto).resumption = Resumption::disabled();
            }
            None => {}
        }
        if versions.is_restarted() {
            // What was written as early data is sent again when the handshake is complete.
            Arc::make_mut(&mut crypto).enable_early_data = false;
        }
        let parameters = self.parameters.encode(Role::Client, versions);
        let name = self.server.name.clone();
        let switchable = versions.may_change();
        let session = Session::client(version, crypto, name, parameters, switchable)?;
        Ok((session, tickets))
    }
}
