//! What TLS saw of one connection: quinn's public API says nothing of key updates, Retry and
//! 0-RTT keys, but its crypto interface is asked for each of them, so we listen there.

use std::{
    any::Any,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use bytes::BytesMut;
use quinn::{
    ConnectError, Connection, ConnectionError, ConnectionId, Side,
    crypto::{
        ClientConfig, CryptoError, ExportKeyingMaterialError, HeaderKey, KeyPair, Keys, PacketKey,
        ServerConfig, Session, UnsupportedVersion,
    },
};
use quinn_proto::{TransportError, transport_parameters::TransportParameters};
use tokio::time::sleep;

/// Time between two attempts at a key update.
const KEY_UPDATE_PAUSE: Duration = Duration::from_millis(5);

/// The facts of one connection.
#[derive(Debug, Default)]
pub struct Witness {
    generations: AtomicU64,
    peer_key_updates: AtomicU64,
    retried: AtomicBool,
    early_keys: AtomicBool,
}

impl Witness {
    /// Key updates either side started (RFC 9001 §6).
    ///
    /// quinn derives each generation one ahead of its use, the first at the handshake's end.
    pub fn key_updates(&self) -> u64 {
        self.generations.load(Relaxed).saturating_sub(1)
    }

    /// Has quinn update the keys of the witnessed `connection`, as soon as it will: not before
    /// the handshake is done, nor while it still holds the keys of the phase before (RFC 9001
    /// §6.5). quinn updates keys by itself early in a connection, so the latter is the rule in a
    /// short transfer.
    pub async fn update_keys(&self, connection: &Connection) -> Result<(), ConnectionError> {
        loop {
            if let Some(cause) = connection.close_reason() {
                return Err(cause);
            }
            let before = self.key_updates();
            connection.force_key_update();
            if self.key_updates() > before {
                return Ok(());
            }
            sleep(KEY_UPDATE_PAUSE).await;
        }
    }

    /// Key updates the client started; counted at a server only.
    pub fn peer_key_updates(&self) -> u64 {
        self.peer_key_updates.load(Relaxed)
    }

    /// Whether this client received a valid Retry packet (RFC 9000 §17.2.5).
    pub fn retried(&self) -> bool {
        self.retried.load(Relaxed)
    }

    /// Whether 0-RTT keys existed: at a server, that it accepted early data.
    pub fn early_keys(&self) -> bool {
        self.early_keys.load(Relaxed)
    }
}

/// A TLS configuration whose one connection is witnessed.
pub struct Witnessed<C: ?Sized> {
    config: Arc<C>,
    witness: Arc<Witness>,
}

impl<C: ?Sized> Witnessed<C> {
    /// A configuration for one connection, whose facts `witness` will hold.
    pub fn new(config: Arc<C>, witness: Arc<Witness>) -> Self {
        Self { config, witness }
    }
}

impl ClientConfig for Witnessed<dyn ClientConfig> {
    fn start_session(
        self: Arc<Self>,
        version: u32,
        server_name: &str,
        params: &TransportParameters,
    ) -> Result<Box<dyn Session>, ConnectError> {
        let session = Arc::clone(&self.config).start_session(version, server_name, params)?;
        Ok(Box::new(WitnessedSession {
            session,
            witness: Arc::clone(&self.witness),
            side: Side::Client,
        }))
    }
}

impl ServerConfig for Witnessed<dyn ServerConfig> {
    fn initial_keys(&self, version: u32, cid: &ConnectionId) -> Result<Keys, UnsupportedVersion> {
        self.config.initial_keys(version, cid)
    }

    fn retry_tag(&self, version: u32, original_cid: &ConnectionId, packet: &[u8]) -> [u8; 16] {
        self.config.retry_tag(version, original_cid, packet)
    }

    fn start_session(
        self: Arc<Self>,
        version: u32,
        params: &TransportParameters,
    ) -> Box<dyn Session> {
        Box::new(WitnessedSession {
            session: Arc::clone(&self.config).start_session(version, params),
            witness: Arc::clone(&self.witness),
            side: Side::Server,
        })
    }
}

/// Passes every call on, and notes those that tell something.
struct WitnessedSession {
    session: Box<dyn Session>,
    witness: Arc<Witness>,
    side: Side,
}

impl Session for WitnessedSession {
    fn initial_keys(&self, cid: &ConnectionId, side: Side) -> Keys {
        self.session.initial_keys(cid, side)
    }

    fn handshake_data(&self) -> Option<Box<dyn Any>> {
        self.session.handshake_data()
    }

    fn peer_identity(&self) -> Option<Box<dyn Any>> {
        self.session.peer_identity()
    }

    fn early_crypto(&self) -> Option<(Box<dyn HeaderKey>, Box<dyn PacketKey>)> {
        let keys = self.session.early_crypto();
        self.witness.early_keys.fetch_or(keys.is_some(), Relaxed);
        keys
    }

    fn early_data_accepted(&self) -> Option<bool> {
        self.session.early_data_accepted()
    }

    fn is_handshaking(&self) -> bool {
        self.session.is_handshaking()
    }

    fn read_handshake(&mut self, bytes: &[u8]) -> Result<bool, TransportError> {
        self.session.read_handshake(bytes)
    }

    fn transport_parameters(&self) -> Result<Option<TransportParameters>, TransportError> {
        self.session.transport_parameters()
    }

    fn write_handshake(&mut self, bytes: &mut Vec<u8>) -> Option<Keys> {
        self.session.write_handshake(bytes)
    }

    fn next_1rtt_keys(&mut self) -> Option<KeyPair<Box<dyn PacketKey>>> {
        let keys = self.session.next_1rtt_keys()?;
        let generation = self.witness.generations.fetch_add(1, Relaxed) + 1;
        let remote = match self.side {
            // Nothing between a client and its packets: it is measured with its witness on.
            Side::Client => keys.remote,
            Side::Server => Box::new(WitnessedKey {
                key: keys.remote,
                generation,
                witness: Arc::clone(&self.witness),
            }),
        };
        Some(KeyPair {
            local: keys.local,
            remote,
        })
    }

    fn is_valid_retry(&self, original_cid: &ConnectionId, header: &[u8], payload: &[u8]) -> bool {
        let valid = self.session.is_valid_retry(original_cid, header, payload);
        self.witness.retried.fetch_or(valid, Relaxed);
        valid
    }

    fn export_keying_material(
        &self,
        output: &mut [u8],
        label: &[u8],
        context: &[u8],
    ) -> Result<(), ExportKeyingMaterialError> {
        self.session.export_keying_material(output, label, context)
    }
}

/// A client's key of one generation. If it opens a packet while nothing newer than itself has
/// been derived, this side has not updated yet: then it was the client who began.
struct WitnessedKey {
    key: Box<dyn PacketKey>,
    generation: u64,
    witness: Arc<Witness>,
}

impl PacketKey for WitnessedKey {
    fn encrypt(&self, packet: u64, buffer: &mut [u8], header_len: usize) {
        self.key.encrypt(packet, buffer, header_len);
    }

    fn decrypt(
        &self,
        packet: u64,
        header: &[u8],
        payload: &mut BytesMut,
    ) -> Result<(), CryptoError> {
        self.key.decrypt(packet, header, payload)?;
        if self.witness.generations.load(Relaxed) == self.generation {
            self.witness.peer_key_updates.fetch_add(1, Relaxed);
        }
        Ok(())
    }

    fn tag_len(&self) -> usize {
        self.key.tag_len()
    }

    fn confidentiality_limit(&self) -> u64 {
        self.key.confidentiality_limit()
    }

    fn integrity_limit(&self) -> u64 {
        self.key.integrity_limit()
    }
}
