//! The connection IDs of a server behind a load balancer.

use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use core::time::Duration;
use std::sync::{Arc, PoisonError, RwLock};

use super::cipher::MAX_PLAINTEXT;
use super::nonce::Nonces;
use super::{Config, ConfigError, ServerId, UNROUTABLE};
use crate::cid::generator::CidGenerator;
use crate::cid::lengths::CidLengths;
use crate::cid::{ConnectionId, id::MAX_CID_LEN};
use crate::rng::Rng;

/// Length of unroutable connection IDs in bytes. Eleven random bytes do not collide; the draft
/// asks for seven at least (§3.2).
const UNROUTABLE_LEN: usize = 12;

/// A configuration for new connection IDs, with this server's ID in it.
#[derive(Debug)]
struct Active {
    config: Config,
    server_id: ServerId,
    nonces: Nonces,
}

/// How a server makes connection IDs that its load balancer routes to it. All connections share
/// it, and so does the endpoint, which parses by it.
///
/// With [`configure`](Self::configure) the configuration is replaced while connections are open:
/// new connection IDs follow the new one at once, and each open connection replaces its own the
/// next time its peer is heard from. Connection IDs of the former configuration stay valid until
/// the peer has retired them.
#[derive(Debug)]
pub struct Server {
    /// `None` = connection IDs are unroutable.
    active: RwLock<Option<Arc<Active>>>,
    /// Lengths by the first three bits, as [`CidLengths::to_bits`] writes them.
    lengths: AtomicU64,
    /// Bit `n` is set if config ID `n` has been used since the start.
    used: AtomicU64,
    generation: AtomicU32,
    lifetime: Option<Duration>,
}

impl Server {
    /// Creates the state of a server without a configuration, whose connection IDs are
    /// unroutable. With a `lifetime`, each connection replaces its connection IDs after that
    /// time, at the next packet that it receives.
    #[must_use]
    pub fn unconfigured(lifetime: Option<Duration>) -> Self {
        Self {
            active: RwLock::new(None),
            lengths: AtomicU64::new(CidLengths::uniform(UNROUTABLE_LEN).to_bits()),
            used: AtomicU64::new(0),
            generation: AtomicU32::new(0),
            lifetime,
        }
    }

    /// Has new connection IDs follow `config`, with `server_id` in them. `others` are
    /// configurations whose connection IDs are still in use, for example from before this
    /// process started: the endpoint learns their lengths.
    ///
    /// # Errors
    /// If the server ID has not the length that `config` says, or a config ID was used for
    /// connection IDs of another length since the process started. Nothing is changed then.
    pub fn configure<'a>(
        &self,
        config: &'a Config,
        server_id: ServerId,
        others: impl IntoIterator<Item = &'a Config>,
        rng: &mut Rng,
    ) -> Result<(), ConfigError> {
        if server_id.len() != config.server_id_len() {
            return Err(ConfigError::ServerId {
                config: config.id(),
                expected: config.server_id_len(),
                found: server_id.len(),
            });
        }
        let nonces = Nonces::new(config.nonce_len(), rng).ok_or(ConfigError::Key)?;
        // The lock also keeps two callers from mixing their lengths.
        let mut active = self.active.write().unwrap_or_else(PoisonError::into_inner);
        let (lengths, used) = self.extended_lengths(config, others)?;
        self.lengths.store(lengths.to_bits(), Ordering::Relaxed);
        self.used.store(used, Ordering::Relaxed);
        *active = Some(Arc::new(Active {
            config: config.clone(),
            server_id,
            nonces,
        }));
        self.generation.fetch_add(1, Ordering::Release);
        Ok(())
    }

    fn extended_lengths<'a>(
        &self,
        config: &'a Config,
        others: impl IntoIterator<Item = &'a Config>,
    ) -> Result<(CidLengths, u64), ConfigError> {
        let mut used = self.used.load(Ordering::Relaxed);
        let mut lengths = self.lengths();
        if used == 0 {
            // Connection IDs with unknown bits are assumed to be as long as ours.
            lengths = CidLengths::uniform(config.cid_len()).with(UNROUTABLE, UNROUTABLE_LEN);
        }
        for config in core::iter::once(config).chain(others) {
            let (bit, len) = (1_u64 << config.id(), config.cid_len());
            let known = lengths.of(config.id() << 5);
            if used & bit != 0 && known != len {
                return Err(ConfigError::Reused {
                    config: config.id(),
                    used: known,
                    found: len,
                });
            }
            used |= bit;
            lengths = lengths.with(config.id(), len);
        }
        Ok((lengths, used))
    }

    /// Returns the lengths of the connection IDs in use.
    fn lengths(&self) -> CidLengths {
        CidLengths::from_bits(self.lengths.load(Ordering::Relaxed))
    }

    fn active(&self) -> Option<Arc<Active>> {
        let active = self.active.read().unwrap_or_else(PoisonError::into_inner);
        active.clone()
    }
}

/// Generates the connection IDs of a [`Server`].
#[derive(Clone, Debug)]
pub struct Generator {
    server: Arc<Server>,
}

impl Generator {
    /// Creates a generator; each connection has its own.
    #[must_use]
    pub fn new(server: Arc<Server>) -> Self {
        Self { server }
    }
}

impl CidGenerator for Generator {
    /// Without a configuration, or with all of its nonces used, the connection ID is unroutable
    /// (§3.2, §9.6).
    fn generate(&mut self, rng: &mut Rng) -> ConnectionId {
        let mut buffer = [0; MAX_PLAINTEXT];
        let routable = self.server.active().and_then(|active| {
            let nonce = active.nonces.next(&mut buffer)?;
            let random = rng.u64() as u8;
            active.config.encode(&active.server_id, nonce, random)
        });
        routable.unwrap_or_else(|| unroutable(rng))
    }

    fn cid_len(&self) -> usize {
        self.server
            .active()
            .map_or(UNROUTABLE_LEN, |active| active.config.cid_len())
    }

    fn cid_lengths(&self) -> CidLengths {
        self.server.lengths()
    }

    fn lifetime(&self) -> Option<Duration> {
        self.server.lifetime
    }

    fn generation(&self) -> u32 {
        self.server.generation.load(Ordering::Acquire)
    }
}

/// Returns a random connection ID that no load balancer routes. Its first octet contains its
/// length, which the draft requires (§3.2).
fn unroutable(rng: &mut Rng) -> ConnectionId {
    let mut bytes: [u8; MAX_CID_LEN] = rng.array();
    if let Some(first) = bytes.first_mut() {
        *first = UNROUTABLE << 5 | (UNROUTABLE_LEN as u8).saturating_sub(1);
    }
    bytes
        .get(..UNROUTABLE_LEN)
        .and_then(ConnectionId::new)
        .unwrap_or(ConnectionId::EMPTY)
}
