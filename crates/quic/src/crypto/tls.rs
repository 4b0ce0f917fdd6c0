//! The TLS handshake as QUIC sees it (RFC 9001 §4): CRYPTO bytes in and out,
//! keys as they become due.

use std::collections::VecDeque;
use std::sync::Arc;

use rustls::pki_types::{CertificateDer, ServerName};
use rustls::quic::{ClientConnection, Connection, KeyChange, ServerConnection, Version};
use rustls::{ClientConfig, HandshakeKind, ServerConfig};

use super::alert;
use super::keys::{Direction, Keys};
use super::update::OneRttKeys;
use crate::Role;
use crate::error::{Code, TransportError};
use crate::memory;

/// Where CRYPTO bytes travel (RFC 9001 §4; 0-RTT carries none).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Level {
    /// Initial packets.
    Initial,
    /// Handshake packets.
    Handshake,
    /// 1-RTT packets.
    OneRtt,
}

/// Keys that TLS hands out; the next CRYPTO bytes belong to their level.
#[derive(Debug)]
pub enum KeyStep {
    /// Keys for Handshake packets.
    Handshake(Keys),
    /// Keys for 1-RTT packets. A server may send with them at once, but must
    /// not process what it opens before the handshake is complete
    /// (RFC 9001 §5.7).
    OneRtt(Box<OneRttKeys>),
}

/// What remains worth knowing when the TLS state is gone.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// The application protocol agreed on.
    pub alpn: Option<Vec<u8>>,
    /// The name the client asked for; `None` on a client.
    pub server_name: Option<String>,
    /// The peer's certificates, leaf first.
    pub peer_certificates: Vec<CertificateDer<'static>>,
    /// The cipher suite, as TLS names it.
    pub cipher: Option<&'static str>,
    /// The key exchange, as TLS names it; `None` also if it has no name.
    pub group: Option<&'static str>,
    /// Whether an earlier session was resumed.
    pub resumed: bool,
    /// Whether the server took 0-RTT data.
    pub early_data_accepted: bool,
}

impl Summary {
    /// Bytes allocated.
    #[expect(
        clippy::arithmetic_side_effects,
        reason = "sizes of what is in memory together"
    )]
    pub(crate) fn memory(&self) -> usize {
        let certificates = self.peer_certificates.iter().map(|cert| cert.len());
        memory::vec(&self.peer_certificates)
            + certificates.sum::<usize>()
            + self.alpn.as_ref().map_or(0, Vec::capacity)
            + self.server_name.as_ref().map_or(0, String::capacity)
    }
}

/// Outgoing bytes of one level, and the keys that come after them.
struct Flight {
    bytes: Vec<u8>,
    keys: Option<KeyStep>,
}

/// One TLS handshake.
///
/// Use: [`read`](Self::read) what arrives in CRYPTO frames, then call
/// [`next`](Self::next) until it returns `None`.
pub struct Session {
    tls: Box<Connection>,
    role: Role,
    outgoing: VecDeque<Flight>,
    write_level: Level,
    read_level: Level,
}

impl Session {
    /// A client about to send its ClientHello, which `next` yields at once.
    /// `server_name` is checked against the certificate and sent as SNI;
    /// `transport_parameters` are in wire form (RFC 9000 §18).
    ///
    /// # Errors
    /// If the configuration cannot do QUIC.
    pub fn client(
        config: Arc<ClientConfig>,
        server_name: ServerName<'static>,
        transport_parameters: Vec<u8>,
    ) -> Result<Self, TransportError> {
        let tls = ClientConnection::new(config, Version::V1, server_name, transport_parameters);
        let tls = tls.map_err(|error| alert::transport_error(&error, None))?;
        let mut session = Self::new(tls.into(), Role::Client);
        session.collect()?;
        Ok(session)
    }

    /// A server waiting for a ClientHello.
    ///
    /// # Errors
    /// If the configuration cannot do QUIC.
    pub fn server(
        config: Arc<ServerConfig>,
        transport_parameters: Vec<u8>,
    ) -> Result<Self, TransportError> {
        let tls = ServerConnection::new(config, Version::V1, transport_parameters);
        let tls = tls.map_err(|error| alert::transport_error(&error, None))?;
        Ok(Self::new(tls.into(), Role::Server))
    }

    fn new(tls: Connection, role: Role) -> Self {
        Self {
            tls: Box::new(tls),
            role,
            outgoing: VecDeque::new(),
            write_level: Level::Initial,
            read_level: Level::Initial,
        }
    }

    /// Takes in CRYPTO bytes, in order and each only once, that arrived at
    /// `level`.
    ///
    /// # Errors
    /// A TLS alert as a `CRYPTO_ERROR` whose reason names the cause;
    /// `PROTOCOL_VIOLATION` if TLS has left `level` behind or not reached it
    /// (RFC 9001 §4.1.3). The session is of no use after an error.
    pub fn read(&mut self, level: Level, data: &[u8]) -> Result<(), TransportError> {
        if data.is_empty() {
            return Ok(());
        }
        if level != self.read_level {
            return Err(TransportError::new(
                Code::PROTOCOL_VIOLATION,
                format!(
                    "CRYPTO data in {level:?} packets while TLS expects {:?}",
                    self.read_level
                ),
            ));
        }
        let result = self.tls.read_hs(data);
        let collected = self.collect();
        result.map_err(|error| alert::transport_error(&error, self.tls.alert()))?;
        collected
    }

    /// Appends outgoing CRYPTO bytes to `out` and returns the keys that become
    /// due after them.
    ///
    /// The bytes of one call all belong to [`write_level`](Self::write_level)
    /// as it stands *before* the call; a returned step moves it up for the next
    /// call. So a caller repeats: note the level, call, send the bytes at that
    /// level, install the keys; until `None` is returned. A server answers a
    /// ClientHello with
    ///
    /// ```text
    /// write_level   bytes appended                   returned
    /// Initial       ServerHello                      Handshake keys
    /// Handshake     EncryptedExtensions … Finished   1-RTT keys
    /// OneRtt        (later: NewSessionTicket)        None
    /// ```
    pub fn next(&mut self, out: &mut Vec<u8>) -> Option<KeyStep> {
        while let Some(flight) = self.outgoing.pop_front() {
            out.extend_from_slice(&flight.bytes);
            if let Some(step) = flight.keys {
                self.write_level = match step {
                    KeyStep::Handshake(_) => Level::Handshake,
                    KeyStep::OneRtt(_) => Level::OneRtt,
                };
                return Some(step);
            }
        }
        None
    }

    /// The level of the bytes that `next` will append.
    #[must_use]
    pub fn write_level(&self) -> Level {
        self.write_level
    }

    /// The only level whose CRYPTO bytes `read` accepts now.
    #[must_use]
    pub fn read_level(&self) -> Level {
        self.read_level
    }

    /// Drains rustls right after every change: it would otherwise put the
    /// flights of two levels together, and the level of what comes in could
    /// not be told.
    fn collect(&mut self) -> Result<(), TransportError> {
        loop {
            let mut bytes = Vec::new();
            let keys = match self.tls.write_hs(&mut bytes) {
                None => None,
                Some(KeyChange::Handshake { keys }) => {
                    self.read_level = Level::Handshake;
                    Some(KeyStep::Handshake(keys.into()))
                }
                Some(KeyChange::OneRtt { keys, next }) => {
                    Some(KeyStep::OneRtt(Box::new(OneRttKeys::new(&keys, next)?)))
                }
            };
            if bytes.is_empty() && keys.is_none() {
                break;
            }
            self.outgoing.push_back(Flight { bytes, keys });
        }
        if !self.tls.is_handshaking() {
            self.read_level = Level::OneRtt;
        }
        Ok(())
    }

    /// Keys for 0-RTT packets. On a client they exist from the start if a
    /// remembered session allows 0-RTT, and protect what it sends; on a server
    /// after reading a ClientHello whose 0-RTT it accepts, and open what it
    /// receives.
    #[must_use]
    pub fn early_keys(&self) -> Option<Direction> {
        self.tls.zero_rtt_keys().map(Direction::from)
    }

    /// Whether the server takes 0-RTT data. On a client this is only final
    /// once the handshake is complete; if false then, everything sent in 0-RTT
    /// must be sent again (RFC 9001 §4.6.2).
    #[must_use]
    pub fn early_data_accepted(&self) -> bool {
        match &*self.tls {
            Connection::Client(client) => client.is_early_data_accepted(),
            Connection::Server(server) => server.zero_rtt_keys().is_some(),
        }
    }

    /// On a server, before it has read the ClientHello: refuse 0-RTT in this
    /// handshake, for instance under overload.
    pub fn refuse_early_data(&mut self) {
        if let Connection::Server(server) = &mut *self.tls
            && server.is_handshaking()
        {
            server.reject_early_data();
        }
    }

    /// On a client with early keys: the transport parameters of the earlier
    /// connection, which bound what may be sent in 0-RTT (RFC 9000 §7.4.1).
    #[must_use]
    pub(crate) fn remembered_transport_parameters(&self) -> Option<&[u8]> {
        if self.role == Role::Server || !self.is_handshaking() || self.early_keys().is_none() {
            return None;
        }
        self.tls.quic_transport_parameters()
    }

    /// The peer's transport parameters in wire form. A server has them with the
    /// ClientHello, though unauthenticated until the handshake is complete
    /// (RFC 9001 §8.2); a client is given them when it is complete.
    #[must_use]
    pub fn peer_transport_parameters(&self) -> Option<&[u8]> {
        match self.role {
            // Until then rustls shows what it remembers of an earlier
            // connection in the same place.
            Role::Client if self.is_handshaking() => None,
            Role::Client | Role::Server => self.tls.quic_transport_parameters(),
        }
    }

    /// Whether the handshake is not yet complete (RFC 9001 §4.1.1).
    #[must_use]
    pub fn is_handshaking(&self) -> bool {
        self.tls.is_handshaking()
    }

    /// The application protocol agreed on.
    #[must_use]
    pub fn alpn(&self) -> Option<&[u8]> {
        self.tls.alpn_protocol()
    }

    /// The peer's certificates, leaf first; empty if it showed none.
    #[must_use]
    pub fn peer_certificates(&self) -> &[CertificateDer<'static>] {
        self.tls.peer_certificates().unwrap_or_default()
    }

    /// On a server: the name the client asked for (SNI).
    #[must_use]
    pub fn server_name(&self) -> Option<&str> {
        match &*self.tls {
            Connection::Client(_) => None,
            Connection::Server(server) => server.server_name(),
        }
    }

    /// Fills `out` with key material bound to this connection (RFC 8446 §7.5).
    ///
    /// # Errors
    /// Before the handshake is complete, or if `out` is longer than HKDF can
    /// give.
    pub fn export_keying_material(
        &self,
        out: &mut [u8],
        label: &[u8],
        context: Option<&[u8]>,
    ) -> Result<(), TransportError> {
        self.tls
            .export_keying_material(out, label, context)
            .map(|_| ())
            .map_err(|error| TransportError::new(Code::INTERNAL_ERROR, alert::reason(&error)))
    }

    /// The cipher suite, as TLS names it.
    #[must_use]
    pub fn cipher(&self) -> Option<&'static str> {
        self.tls.negotiated_cipher_suite()?.suite().as_str()
    }

    /// The key exchange, as TLS names it.
    #[must_use]
    pub fn group(&self) -> Option<&'static str> {
        self.tls.negotiated_key_exchange_group()?.name().as_str()
    }

    /// Whether an earlier session was resumed.
    #[must_use]
    pub fn resumed(&self) -> bool {
        self.tls.handshake_kind() == Some(HandshakeKind::Resumed)
    }

    /// What to keep when the session is dropped, which frees some ten
    /// kilobytes. Key material has to be exported before.
    #[must_use]
    pub fn summary(&self) -> Summary {
        Summary {
            alpn: self.alpn().map(<[u8]>::to_vec),
            server_name: self.server_name().map(str::to_owned),
            peer_certificates: self.peer_certificates().to_vec(),
            cipher: self.cipher(),
            group: self.group(),
            resumed: self.resumed(),
            early_data_accepted: self.early_data_accepted(),
        }
    }
}

impl core::fmt::Debug for Session {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Session")
            .field("role", &self.role)
            .field("read_level", &self.read_level)
            .field("write_level", &self.write_level)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
#[path = "tls_tests.rs"]
mod tests;
