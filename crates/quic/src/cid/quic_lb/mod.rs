//! Connection IDs that a load balancer can route: the encoding of QUIC-LB
//! (draft-ietf-quic-load-balancers).
//!
//! ```text
//! first octet               plaintext block, encrypted if there is a key
//! config (3) | length (5)   server ID (1 to 15 bytes) | nonce (4 to 18 bytes)
//! ```
//!
//! A load balancer decodes with [`Config`]; a server makes its connection IDs with a
//! [`Generator`] of a [`Server`], for the same configuration.

mod cipher;
mod generator;
mod nonce;

use core::fmt;
use core::ops::Deref;
use std::sync::Arc;

pub use self::cipher::KEY_LEN;
use self::cipher::{CidCipher, MAX_PLAINTEXT};
pub use self::generator::{Generator, Server};
use crate::cid::ConnectionId;

/// The config rotation bits of connection IDs that no load balancer routes (§3.2).
pub const UNROUTABLE: u8 = 7;

/// Longest server ID in bytes: the nonce needs four of the 19.
pub const MAX_SERVER_ID_LEN: usize = MAX_PLAINTEXT - MIN_NONCE_LEN;

/// Shortest nonce in bytes (§5.3).
pub const MIN_NONCE_LEN: usize = 4;

/// Bits of the first octet below the config rotation bits.
const LOW_BITS: u8 = 0x1f;

/// The part of a connection ID that names a server, of 1 to 15 bytes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ServerId {
    len: u8,
    bytes: [u8; MAX_SERVER_ID_LEN],
}

impl ServerId {
    /// Creates a server ID. Returns `None` unless there are 1 to 15 bytes.
    #[must_use]
    pub fn new(bytes: &[u8]) -> Option<Self> {
        let mut id = Self {
            len: u8::try_from(bytes.len()).ok().filter(|&len| len > 0)?,
            bytes: [0; MAX_SERVER_ID_LEN],
        };
        id.bytes.get_mut(..bytes.len())?.copy_from_slice(bytes);
        Some(id)
    }
}

impl Deref for ServerId {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        self.bytes.get(..usize::from(self.len)).unwrap_or_default()
    }
}

impl fmt::Display for ServerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for ServerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Why a configuration is invalid.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// A config ID above 6; 7 is reserved (§3.1).
    #[error("invalid config ID {0}: must be from 0 to 6")]
    ConfigId(u8),
    /// A server ID of no bytes (§5.3).
    #[error("the server ID must have at least 1 byte")]
    ServerIdLen,
    /// A nonce that is too short (§5.3).
    #[error("invalid nonce length {0}: must be at least 4 bytes")]
    NonceLen(usize),
    /// A connection ID above 20 bytes (§5.3).
    #[error("server ID and nonce have {0} bytes together: must be at most 19")]
    TooLong(usize),
    /// The server ID of a server has not the length of its configuration.
    #[error("the server ID has {found} bytes: config {config} expects {expected}")]
    ServerId {
        /// The config ID.
        config: u8,
        /// The length in the configuration.
        expected: usize,
        /// The length of the server ID.
        found: usize,
    },
    /// A config ID was given to connection IDs of another length while those of the first
    /// length are still in use.
    #[error(
        "config ID {config} is in use for connection IDs of {used} bytes, not {found}: \
         give the new configuration another config ID"
    )]
    Reused {
        /// The config ID.
        config: u8,
        /// The length of the connection IDs in use.
        used: usize,
        /// The length in the new configuration.
        found: usize,
    },
    /// The cryptographic library refused the key.
    #[error("the cryptographic library refused the key")]
    Key,
}

/// One configuration of QUIC-LB: how to encode and decode connection IDs with one value of the
/// config rotation bits.
#[derive(Clone, Debug)]
pub struct Config {
    id: u8,
    server_id_len: usize,
    nonce_len: usize,
    encodes_len: bool,
    cipher: Option<Arc<CidCipher>>,
}

impl Config {
    /// Creates a configuration without a key: everybody can read the server ID. `id` is from 0
    /// to 6; lengths are in bytes.
    ///
    /// # Errors
    /// If a value is out of range (§3.1, §5.3).
    pub fn new(id: u8, server_id_len: usize, nonce_len: usize) -> Result<Self, ConfigError> {
        if id >= UNROUTABLE {
            return Err(ConfigError::ConfigId(id));
        }
        if server_id_len == 0 {
            return Err(ConfigError::ServerIdLen);
        }
        if nonce_len < MIN_NONCE_LEN {
            return Err(ConfigError::NonceLen(nonce_len));
        }
        let len = server_id_len.saturating_add(nonce_len);
        if len > MAX_PLAINTEXT {
            return Err(ConfigError::TooLong(len));
        }
        Ok(Self {
            id,
            server_id_len,
            nonce_len,
            encodes_len: false,
            cipher: None,
        })
    }

    /// Encrypts server ID and nonce with `key` (§5.4).
    ///
    /// # Errors
    /// If the cryptographic library refuses the key.
    pub fn with_key(mut self, key: &[u8; KEY_LEN]) -> Result<Self, ConfigError> {
        let cipher = CidCipher::new(key).ok_or(ConfigError::Key)?;
        self.cipher = Some(Arc::new(cipher));
        Ok(self)
    }

    /// Has the first octet contain the length of the connection ID, for hardware that needs it
    /// (§3.3). By default these five bits are random, because a length tells observers more
    /// than none.
    #[must_use]
    pub fn with_encoded_len(mut self) -> Self {
        self.encodes_len = true;
        self
    }

    /// Returns the config ID, 0 to 6.
    #[must_use]
    pub fn id(&self) -> u8 {
        self.id
    }

    /// Returns the length of server IDs in bytes.
    #[must_use]
    pub fn server_id_len(&self) -> usize {
        self.server_id_len
    }

    /// Returns the length of nonces in bytes.
    #[must_use]
    pub fn nonce_len(&self) -> usize {
        self.nonce_len
    }

    /// Returns whether server IDs are encrypted.
    #[must_use]
    pub fn is_encrypted(&self) -> bool {
        self.cipher.is_some()
    }

    /// Returns the length of connection IDs in bytes, first octet included: 6 to 20.
    #[must_use]
    pub fn cid_len(&self) -> usize {
        self.plaintext_len().saturating_add(1)
    }

    /// Returns whether the first octet of a connection ID has the bits of this configuration.
    #[must_use]
    pub fn matches(&self, first_octet: u8) -> bool {
        first_octet >> 5 == self.id
    }

    /// Encodes a connection ID. A nonce must be used once only; without a key it must be
    /// unrelated to earlier ones, too. `random` fills the five low bits of the first octet if
    /// these do not contain the length. Returns `None` if server ID or nonce do not have the
    /// lengths of this configuration.
    #[must_use]
    pub fn encode(&self, server: &ServerId, nonce: &[u8], random: u8) -> Option<ConnectionId> {
        if server.len() != self.server_id_len || nonce.len() != self.nonce_len {
            return None;
        }
        let mut bytes = [0; MAX_PLAINTEXT + 1];
        let bytes = bytes.get_mut(..self.cid_len())?;
        let (first, plaintext) = bytes.split_first_mut()?;
        let low = if self.encodes_len {
            u8::try_from(plaintext.len()).ok()?
        } else {
            random & LOW_BITS
        };
        *first = self.id << 5 | low;
        let (server_part, nonce_part) = plaintext.split_at_mut_checked(self.server_id_len)?;
        server_part.copy_from_slice(server);
        nonce_part.copy_from_slice(nonce);
        if let Some(cipher) = &self.cipher {
            cipher.seal(plaintext)?;
        }
        ConnectionId::new(bytes)
    }

    /// Decodes the server ID of a connection ID. Further bytes may follow, as they do in a short
    /// header or if a server appends bytes of its own (§5.4). Returns `None` if the config
    /// rotation bits are those of another configuration, or if there are too few bytes.
    ///
    /// A connection ID that a client chose can decode to any server ID, so the caller has to
    /// look the server up.
    #[must_use]
    pub fn decode(&self, cid: &[u8]) -> Option<ServerId> {
        let (first, rest) = cid.split_first()?;
        if !self.matches(*first) {
            return None;
        }
        let mut block = [0; MAX_PLAINTEXT];
        let block = block.get_mut(..self.plaintext_len())?;
        block.copy_from_slice(rest.get(..self.plaintext_len())?);
        if let Some(cipher) = &self.cipher {
            cipher.open(block, self.server_id_len)?;
        }
        ServerId::new(block.get(..self.server_id_len)?)
    }

    fn plaintext_len(&self) -> usize {
        self.server_id_len.saturating_add(self.nonce_len)
    }
}

#[cfg(test)]
mod tests;
