//! The handshake, and its bytes by level (RFC 9001 §4).

use std::sync::Arc;

use rustls::pki_types::ServerName;
use rustls::quic::{ClientConnection, Connection, KeyChange, ServerConnection, Version};
use rustls::{ClientConfig, ServerConfig};

use super::keys::Keyring;
use crate::wire::packet::Level;

/// A TLS session of either side.
pub(crate) struct Tls {
    connection: Connection,
    write_level: Level,
    /// Bytes to be sent in CRYPTO frames, by packet number space.
    outgoing: [Vec<u8>; 3],
    /// Why it went no further.
    failure: Option<String>,
}

impl Tls {
    /// Starts a client's handshake.
    pub(crate) fn client(
        config: Arc<ClientConfig>,
        name: ServerName<'static>,
        parameters: Vec<u8>,
    ) -> Result<Self, rustls::Error> {
        let connection = ClientConnection::new(config, Version::V1, name, parameters)?;
        Ok(Self::new(connection.into()))
    }

    /// Starts a server's handshake.
    #[cfg_attr(
        not(feature = "testing"),
        expect(dead_code, reason = "servers are for tests")
    )]
    pub(crate) fn server(
        config: Arc<ServerConfig>,
        parameters: Vec<u8>,
    ) -> Result<Self, rustls::Error> {
        let connection = ServerConnection::new(config, Version::V1, parameters)?;
        Ok(Self::new(connection.into()))
    }

    fn new(connection: Connection) -> Self {
        Self {
            connection,
            write_level: Level::Initial,
            outgoing: Default::default(),
            failure: None,
        }
    }

    /// Collects what TLS wants to send, and new keys.
    pub(crate) fn collect(&mut self, keys: &mut Keyring) {
        loop {
            let mut bytes = Vec::new();
            let change = self.connection.write_hs(&mut bytes);
            self.outgoing[self.write_level.space()].extend_from_slice(&bytes);
            match change {
                Some(KeyChange::Handshake { keys: new }) => {
                    keys.set_handshake(new);
                    self.write_level = Level::Handshake;
                }
                Some(KeyChange::OneRtt { keys: new, next }) => {
                    keys.set_one_rtt(new, next);
                    self.write_level = Level::OneRtt;
                }
                None if bytes.is_empty() => return,
                None => {}
            }
        }
    }

    /// Processes bytes of CRYPTO frames.
    pub(crate) fn read(&mut self, bytes: &[u8], keys: &mut Keyring) {
        if bytes.is_empty() || self.failure.is_some() {
            return;
        }
        if let Err(error) = self.connection.read_hs(bytes) {
            self.failure = Some(error.to_string());
        }
        self.collect(keys);
    }

    /// Takes the bytes that are to be sent at a level.
    pub(crate) fn take(&mut self, level: Level) -> Vec<u8> {
        core::mem::take(&mut self.outgoing[level.space()])
    }

    /// Returns 0-RTT keys, if a ticket permits them.
    pub(crate) fn zero_rtt_keys(&self) -> Option<rustls::quic::DirectionalKeys> {
        self.connection.zero_rtt_keys()
    }

    /// Returns the peer's transport parameters, once they have arrived.
    pub(crate) fn peer_parameters(&self) -> Option<&[u8]> {
        self.connection.quic_transport_parameters()
    }

    /// Returns whether nothing is missing for 1-RTT packets.
    pub(crate) fn is_complete(&self) -> bool {
        !self.connection.is_handshaking()
    }

    /// Returns why the handshake failed on this side.
    pub(crate) fn failure(&self) -> Option<&str> {
        self.failure.as_deref()
    }

    /// Returns how many session tickets a client has received.
    pub(crate) fn tickets(&self) -> u32 {
        match &self.connection {
            Connection::Client(client) => client.tls13_tickets_received(),
            Connection::Server(_) => 0,
        }
    }
}
