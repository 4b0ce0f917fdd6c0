//! The TLS handshake as QUIC uses it (RFC 9001 §4): CRYPTO data in and out, and keys when they
//! become available.

use std::collections::VecDeque;
use std::sync::Arc;

use rustls::pki_types::{CertificateDer, ServerName};
use rustls::quic::{ClientConnection, Connection, KeyChange, ServerConnection};
use rustls::{ClientConfig, HandshakeKind, ServerConfig};

use super::alert;
use super::key_export::unsupported_keys;
use super::keys::{Direction, Keys};
use super::provider;
use super::secret_capture::SecretCapture;
use super::suite::Suite;
use super::update::OneRttKeys;
use crate::Role;
use crate::error::{Code, TransportError};
use crate::memory;
use crate::wire::Version;

/// The encryption level of CRYPTO data (RFC 9001 §4). 0-RTT packets carry none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Level {
    /// Initial packets.
    Initial,
    /// Handshake packets.
    Handshake,
    /// 1-RTT packets.
    OneRtt,
}

/// New keys from TLS. The CRYPTO data that follows belongs to their level.
#[derive(Debug)]
pub(crate) enum NewKeys {
    /// Keys for Handshake packets.
    Handshake(Keys),
    /// Keys for 1-RTT packets. A server may send with them at once, but must
    /// not process what it opens before the handshake is complete
    /// (RFC 9001 §5.7).
    OneRtt(Box<OneRttKeys>),
}

/// The result of a handshake, kept when the TLS state is dropped.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct HandshakeSummary {
    /// The negotiated application protocol.
    pub alpn: Option<Vec<u8>>,
    /// The server name that the client sent (SNI); `None` on a client.
    pub server_name: Option<String>,
    /// The peer's certificates, leaf first.
    pub peer_certificates: Vec<CertificateDer<'static>>,
    /// The cipher suite, as TLS names it.
    pub cipher: Option<&'static str>,
    /// The key exchange, as TLS names it; `None` also if it has no name.
    pub group: Option<&'static str>,
    /// Whether the handshake resumed an earlier session.
    pub resumed: bool,
    /// Whether the server accepted 0-RTT data.
    pub early_data_accepted: bool,
}

impl HandshakeSummary {
    /// Returns the allocated memory in bytes.
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

/// Outgoing bytes of one level, and the keys that become available after them.
struct Flight {
    bytes: Vec<u8>,
    keys: Option<NewKeys>,
}

/// One TLS handshake.
///
/// Pass the data of CRYPTO frames to [`read`](Self::read), then call [`next`](Self::next) until
/// it returns `None`.
pub(crate) struct Session {
    tls: Box<Connection>,
    role: Role,
    outgoing: VecDeque<Flight>,
    write_level: Level,
    read_level: Level,
    /// The version that rustls derives keys for.
    created_for: Version,
    /// The version of the connection.
    version: Version,
    /// Takes the secrets out of rustls if the version changes (client).
    capture: Option<Arc<SecretCapture>>,
}

impl Session {
    /// Creates a client session for the version of its first flight. Its ClientHello is the first output of [`next`](Self::next).
    /// `server_name` is sent as SNI and has to match the certificate;
    /// `transport_parameters` are in wire form (RFC 9000 §18). If `switchable`, the server may
    /// choose another version ([`set_version`](Self::set_version)).
    ///
    /// # Errors
    /// If the configuration does not support QUIC.
    pub(crate) fn client(
        version: Version,
        mut config: Arc<ClientConfig>,
        server_name: ServerName<'static>,
        transport_parameters: Vec<u8>,
        switchable: bool,
    ) -> Result<Self, TransportError> {
        let capture = switchable.then(|| {
            let config = Arc::make_mut(&mut config);
            let capture = Arc::new(SecretCapture::new(config.key_log.clone()));
            config.key_log = capture.clone();
            capture
        });
        let tls = ClientConnection::new(
            config,
            tls_version(version),
            server_name,
            transport_parameters,
        );
        let tls = tls.map_err(|error| alert::transport_error(&error, None))?;
        let mut session = Self::new(version, tls.into(), Role::Client);
        session.capture = capture;
        session.collect()?;
        Ok(session)
    }

    /// Creates a server session, which waits for a ClientHello.
    ///
    /// # Errors
    /// If the configuration does not support QUIC.
    pub(crate) fn server(
        version: Version,
        config: Arc<ServerConfig>,
        transport_parameters: Vec<u8>,
    ) -> Result<Self, TransportError> {
        let tls = ServerConnection::new(config, tls_version(version), transport_parameters);
        let tls = tls.map_err(|error| alert::transport_error(&error, None))?;
        Ok(Self::new(version, tls.into(), Role::Server))
    }

    fn new(version: Version, tls: Connection, role: Role) -> Self {
        Self {
            tls: Box::new(tls),
            role,
            outgoing: VecDeque::new(),
            write_level: Level::Initial,
            read_level: Level::Initial,
            created_for: version,
            version,
            capture: None,
        }
    }

    /// Derives the keys of Handshake and 1-RTT packets for `version`, which the server has chosen
    /// instead of the client's (RFC 9369 §4.1). Only for a client that has not read the
    /// ServerHello, and whose session is switchable. 0-RTT keys remain those of the first version.
    pub(crate) fn set_version(&mut self, version: Version) {
        debug_assert!(self.role == Role::Client && self.read_level == Level::Initial);
        self.version = version;
        if let Some(capture) = &self.capture
            && version != self.created_for
        {
            capture.begin();
        }
    }

    /// Processes CRYPTO data received at `level`: each byte once, in order.
    ///
    /// # Errors
    /// A TLS alert as a `CRYPTO_ERROR` whose reason names the cause;
    /// `PROTOCOL_VIOLATION` if TLS does not expect data of `level` (RFC 9001 §4.1.3). The
    /// session cannot be used after an error.
    pub(crate) fn read(&mut self, level: Level, data: &[u8]) -> Result<(), TransportError> {
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

    /// Appends outgoing CRYPTO data to `out` and returns the keys that become available after
    /// it.
    ///
    /// The bytes of one call all belong to [`write_level`](Self::write_level)
    /// *before* the call; new keys raise the level for the next call. So a caller repeats: get
    /// the level, call, send the bytes at that level, install the keys; until `None` is
    /// returned. A server answers a
    /// ClientHello with
    ///
    /// ```text
    /// write_level   bytes appended                   returned
    /// Initial       ServerHello                      Handshake keys
    /// Handshake     EncryptedExtensions … Finished   1-RTT keys
    /// OneRtt        (later: NewSessionTicket)        None
    /// ```
    pub(crate) fn next(&mut self, out: &mut Vec<u8>) -> Option<NewKeys> {
        while let Some(flight) = self.outgoing.pop_front() {
            out.extend_from_slice(&flight.bytes);
            if let Some(step) = flight.keys {
                self.write_level = match step {
                    NewKeys::Handshake(_) => Level::Handshake,
                    NewKeys::OneRtt(_) => Level::OneRtt,
                };
                return Some(step);
            }
        }
        None
    }

    /// Returns the level of the bytes that `next` will append.
    #[must_use]
    pub(crate) fn write_level(&self) -> Level {
        self.write_level
    }

    /// Returns the only level whose CRYPTO data `read` accepts now.
    #[cfg(test)]
    #[must_use]
    pub(crate) fn read_level(&self) -> Level {
        self.read_level
    }

    /// Takes the output of rustls right after every change. Otherwise rustls would join the
    /// flights of two levels, and the level of incoming data could not be told.
    fn collect(&mut self) -> Result<(), TransportError> {
        loop {
            let mut bytes = Vec::new();
            let keys = match self.tls.write_hs(&mut bytes) {
                None => None,
                Some(KeyChange::Handshake { keys }) => {
                    self.read_level = Level::Handshake;
                    Some(NewKeys::Handshake(self.handshake_keys(keys)?))
                }
                Some(KeyChange::OneRtt { keys, next }) => {
                    let keys = self.one_rtt_keys(&keys, next)?;
                    Some(NewKeys::OneRtt(Box::new(keys)))
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

    /// Returns the Handshake keys of the connection's version. `keys` are those of the version that
    /// the session was created for.
    fn handshake_keys(&self, keys: rustls::quic::Keys) -> Result<Keys, TransportError> {
        if self.version == self.created_for {
            return Ok(keys.into());
        }
        let secrets = self
            .captured()
            .and_then(|(capture, suite)| capture.take_handshake(suite))
            .ok_or_else(unsupported_keys)?;
        Ok(secrets.keys(&self.version.of_connection().labels))
    }

    /// Returns the 1-RTT keys of the connection's version.
    fn one_rtt_keys(
        &self,
        keys: &rustls::quic::Keys,
        next: rustls::quic::Secrets,
    ) -> Result<OneRttKeys, TransportError> {
        if self.version == self.created_for {
            return OneRttKeys::new(keys, next);
        }
        let secrets = self
            .captured()
            .and_then(|(capture, suite)| capture.take_one_rtt(suite))
            .ok_or_else(unsupported_keys)?;
        OneRttKeys::derive(&secrets, &self.version.of_connection().labels)
    }

    /// Returns the captured secrets and the suite that they are for.
    fn captured(&self) -> Option<(&SecretCapture, Suite)> {
        let suite = self.tls.negotiated_cipher_suite()?.suite();
        Some((self.capture.as_deref()?, provider::suite_of(suite)?))
    }

    /// Returns the keys for 0-RTT packets. A client has them from the start if a stored session
    /// allows 0-RTT, and seals with them; a server has them after reading a ClientHello whose
    /// 0-RTT it accepts, and opens with them.
    #[must_use]
    pub(crate) fn early_keys(&self) -> Option<Direction> {
        self.tls.zero_rtt_keys().map(Direction::from)
    }

    /// Returns whether the server accepts 0-RTT data. On a client this is final only when the
    /// handshake is complete; if it is false then, everything sent in 0-RTT must be sent again
    /// (RFC 9001 §4.6.2).
    #[must_use]
    pub(crate) fn early_data_accepted(&self) -> bool {
        match &*self.tls {
            Connection::Client(client) => client.is_early_data_accepted(),
            Connection::Server(server) => server.zero_rtt_keys().is_some(),
        }
    }

    /// Rejects 0-RTT in this handshake, for example under overload. Only for a server that has
    /// not read the ClientHello.
    #[cfg(test)]
    pub(crate) fn refuse_early_data(&mut self) {
        if let Connection::Server(server) = &mut *self.tls
            && server.is_handshaking()
        {
            server.reject_early_data();
        }
    }

    /// Returns, on a client with early keys, the transport parameters of the earlier connection,
    /// which bound what may be sent in 0-RTT (RFC 9000 §7.4.1).
    #[must_use]
    pub(crate) fn remembered_transport_parameters(&self) -> Option<&[u8]> {
        if self.role == Role::Server || !self.is_handshaking() || self.early_keys().is_none() {
            return None;
        }
        self.tls.quic_transport_parameters()
    }

    /// Returns the peer's transport parameters in wire form. A server has them with the
    /// ClientHello, unauthenticated until the handshake is complete (RFC 9001 §8.2); a client
    /// has them when the handshake is complete.
    #[must_use]
    pub(crate) fn peer_transport_parameters(&self) -> Option<&[u8]> {
        match self.role {
            // Before that, rustls returns those of the earlier connection here.
            Role::Client if self.is_handshaking() => None,
            Role::Client | Role::Server => self.tls.quic_transport_parameters(),
        }
    }

    /// Returns whether the handshake is still incomplete (RFC 9001 §4.1.1).
    #[must_use]
    pub(crate) fn is_handshaking(&self) -> bool {
        self.tls.is_handshaking()
    }

    /// Returns the negotiated application protocol.
    #[must_use]
    pub(crate) fn alpn(&self) -> Option<&[u8]> {
        self.tls.alpn_protocol()
    }

    /// Returns the peer's certificates, leaf first; empty if it sent none.
    #[must_use]
    pub(crate) fn peer_certificates(&self) -> &[CertificateDer<'static>] {
        self.tls.peer_certificates().unwrap_or_default()
    }

    /// Returns the server name that the client sent (SNI); `None` on a client.
    #[must_use]
    pub(crate) fn server_name(&self) -> Option<&str> {
        match &*self.tls {
            Connection::Client(_) => None,
            Connection::Server(server) => server.server_name(),
        }
    }

    /// Fills `out` with key material bound to this connection (RFC 8446 §7.5).
    ///
    /// # Errors
    /// If the handshake is not complete, or `out` is longer than HKDF allows.
    #[cfg(test)]
    pub(crate) fn export_keying_material(
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

    /// Returns the name of the cipher suite in TLS.
    #[must_use]
    pub(crate) fn cipher(&self) -> Option<&'static str> {
        self.tls.negotiated_cipher_suite()?.suite().as_str()
    }

    /// Returns the name of the key exchange group in TLS.
    #[must_use]
    pub(crate) fn group(&self) -> Option<&'static str> {
        self.tls.negotiated_key_exchange_group()?.name().as_str()
    }

    /// Returns whether the handshake resumed an earlier session.
    #[must_use]
    pub(crate) fn resumed(&self) -> bool {
        self.tls.handshake_kind() == Some(HandshakeKind::Resumed)
    }

    /// Returns what is kept when the session is dropped, which frees about ten kilobytes. Keying
    /// material has to be exported before.
    #[must_use]
    pub(crate) fn summary(&self) -> HandshakeSummary {
        HandshakeSummary {
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

/// Returns the version in rustls's terms.
fn tls_version(version: Version) -> rustls::quic::Version {
    if version == Version::V2 {
        rustls::quic::Version::V2
    } else {
        rustls::quic::Version::V1
    }
}

#[cfg(test)]
mod tests;
