//! Connection IDs and stateless reset tokens.

use core::fmt;
use core::hash::{Hash, Hasher};
use core::ops::Deref;

/// Longest connection ID of QUIC version 1 (RFC 9000 §17.2).
pub const MAX_CID_LEN: usize = 20;

/// A connection ID of 0 to 20 bytes.
#[derive(Clone, Copy)]
pub struct ConnectionId {
    len: u8,
    bytes: [u8; MAX_CID_LEN],
}

impl ConnectionId {
    /// The zero-length connection ID.
    pub const EMPTY: Self = Self {
        len: 0,
        bytes: [0; MAX_CID_LEN],
    };

    /// Creates a connection ID from bytes. Returns `None` if there are more than 20.
    #[must_use]
    pub fn new(bytes: &[u8]) -> Option<Self> {
        let mut cid = Self::EMPTY;
        cid.bytes.get_mut(..bytes.len())?.copy_from_slice(bytes);
        cid.len = bytes.len() as u8;
        Some(cid)
    }
}

impl Deref for ConnectionId {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        self.bytes.get(..usize::from(self.len)).unwrap_or_default()
    }
}

impl PartialEq for ConnectionId {
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}

impl Eq for ConnectionId {}

impl Hash for ConnectionId {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (**self).hash(state);
    }
}

impl fmt::Debug for ConnectionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for ConnectionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for byte in &**self {
            write!(f, "{byte:02x}")?;
        }
        Ok(())
    }
}

/// A stateless reset token (RFC 9000 §10.3). Compares in constant time.
#[derive(Clone, Copy)]
pub struct ResetToken(pub [u8; 16]);

impl PartialEq for ResetToken {
    fn eq(&self, other: &Self) -> bool {
        subtle::ConstantTimeEq::ct_eq(&self.0[..], &other.0[..]).into()
    }
}

impl Eq for ResetToken {}

impl fmt::Debug for ResetToken {
    /// Does not print the token, which is secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ResetToken(..)")
    }
}
