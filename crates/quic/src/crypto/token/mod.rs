//! Address-validation tokens (RFC 9000 §8.1). They are sealed, so that a server needs no memory
//! of those it has sent.
//!
//! ```text
//! token   kind (1) ‖ salt (12) ‖ nonce (12) ‖ AES-256-GCM(fields) ‖ tag (16)
//! key     HKDF-SHA256(master secret), expanded with kind and salt
//! ```
//!
//! Every token has its own key: with one key and 96-bit random nonces, servers that share a
//! master secret could not send more than 2^32 Retry tokens, which a flood needs in an hour.

use core::time::Duration;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use aws_lc_rs::{aead, hkdf};
use clearway_recovery::controller::SavedPath;
use rand_core::RngCore;

use super::keys::TAG_LEN;
use crate::cid::ConnectionId;
use crate::wire::{Reader, Version};

/// Lifetime of a Retry token in seconds. The client answers at once, but may have to retransmit
/// (RFC 9000 §8.1.4 asks for a short time).
pub(crate) const RETRY_LIFETIME: u64 = 15;
/// Lifetime of a NEW_TOKEN token in seconds: two weeks.
pub(crate) const ADDRESS_LIFETIME: u64 = 14 * 24 * 60 * 60;
/// Largest accepted difference between the clocks of servers that share a key, in seconds.
const CLOCK_SKEW: u64 = 60;

const SALT_LEN: usize = 12;
/// Kind, salt and nonce.
#[cfg(test)]
const PREFIX_LEN: usize = 1 + SALT_LEN + aead::NONCE_LEN;

/// Where a token was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TokenKind {
    /// A Retry packet.
    Retry,
    /// A NEW_TOKEN frame.
    Address,
}

impl TokenKind {
    const fn byte(self) -> u8 {
        match self {
            Self::Retry => 0x52,
            Self::Address => 0x4e,
        }
    }

    const fn from_byte(byte: u8) -> Option<Self> {
        match byte {
            0x52 => Some(Self::Retry),
            0x4e => Some(Self::Address),
            _ => None,
        }
    }
}

/// The content of a token sent in a Retry packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RetryToken {
    /// When it was made, in Unix seconds.
    pub issued: u64,
    /// The QUIC version of the connection that it was sent on (RFC 9369 §5).
    pub version: Version,
    /// The address that it was sent to.
    pub client: SocketAddr,
    /// The Destination Connection ID of the first Initial, for the
    /// `original_destination_connection_id` parameter.
    pub original_dcid: ConnectionId,
    /// The Source Connection ID of the Retry: the client's next Initial must
    /// be addressed to it, and `retry_source_connection_id` has to repeat it.
    pub retry_scid: ConnectionId,
}

/// The content of a token sent in a NEW_TOKEN frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AddressToken {
    /// When it was made, in Unix seconds.
    pub issued: u64,
    /// The QUIC version of the connection that it was sent on (RFC 9369 §5).
    pub version: Version,
    /// The IP address that it was sent to. The port may change.
    pub ip: IpAddr,
    /// A random number that identifies the token, for [`ReplayFilter`](super::ReplayFilter).
    pub id: [u8; 16],
    /// What the connection had measured of the path to that address.
    pub path: Option<MeasuredPath>,
}

/// What a connection has measured of a path (RFC 9959 §3.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MeasuredPath {
    /// The measurement.
    pub saved: SavedPath,
    /// A random number that identifies the connection. Of its tokens, each with a newer measurement,
    /// only one may be used to resume the path (RFC 9959 §3.2).
    pub connection: [u8; 16],
}

/// A token that is genuine, valid now, and was issued to this client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Token {
    /// From a Retry packet.
    Retry(RetryToken),
    /// From a NEW_TOKEN frame.
    Address(AddressToken),
}

/// Why a token is invalid.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TokenError {
    /// The token does not have the form of our tokens.
    #[error("malformed token")]
    Malformed,
    /// The token does not authenticate: it was changed, forged, or sealed with another key.
    #[error("token was not issued with this server's key")]
    Forged,
    /// The token is genuine but too old.
    #[error("token expired")]
    Expired(TokenKind),
    /// The token is genuine but issued in the future: a clock is wrong.
    #[error("token has an issue time in the future")]
    FromTheFuture(TokenKind),
    /// The token is genuine but was issued to another address.
    #[error("token was issued to another address")]
    WrongAddress(TokenKind),
    /// The token is genuine but was issued on a connection of another QUIC version.
    #[error("token was issued on a connection of another QUIC version")]
    WrongVersion(TokenKind),
}

impl TokenError {
    /// Returns whether to refuse the connection with INVALID_TOKEN. This is so when the client
    /// answers our Retry, because a second one would not help. All other invalid tokens are
    /// treated as absent (RFC 9000 §8.1.3).
    #[must_use]
    pub(crate) fn is_invalid_retry(self) -> bool {
        match self {
            Self::Malformed | Self::Forged => false,
            Self::Expired(kind)
            | Self::FromTheFuture(kind)
            | Self::WrongAddress(kind)
            | Self::WrongVersion(kind) => kind == TokenKind::Retry,
        }
    }
}

/// Seals and opens tokens.
pub struct TokenKey {
    secret: hkdf::Prk,
    retry_lifetime: u64,
    address_lifetime: u64,
}

impl TokenKey {
    /// Creates a key from a 32-byte master secret. Tokens are valid across restarts and servers
    /// that use the same secret.
    #[must_use]
    pub fn new(master: &[u8; 32]) -> Self {
        Self {
            secret: hkdf::Salt::new(hkdf::HKDF_SHA256, b"clearway").extract(master),
            retry_lifetime: RETRY_LIFETIME,
            address_lifetime: ADDRESS_LIFETIME,
        }
    }

    /// Sets the lifetimes in seconds. Default: 15 seconds for a Retry token, two weeks for a NEW_TOKEN token.
    #[must_use]
    pub fn with_lifetimes(mut self, retry: u64, address: u64) -> Self {
        self.retry_lifetime = retry;
        self.address_lifetime = address;
        self
    }

    /// Appends a sealed Retry token to `out`. `rng` must be unpredictable.
    pub fn seal_retry(&self, token: &RetryToken, rng: &mut dyn RngCore, out: &mut Vec<u8>) {
        self.seal(TokenKind::Retry, rng, out, |out| {
            out.extend_from_slice(&token.issued.to_be_bytes());
            out.extend_from_slice(&token.version.0.to_be_bytes());
            put_ip(out, token.client.ip());
            out.extend_from_slice(&token.client.port().to_be_bytes());
            put_cid(out, &token.original_dcid);
            put_cid(out, &token.retry_scid);
        });
    }

    /// Appends a sealed NEW_TOKEN token to `out`. `rng` and the `id` of the token must be
    /// unpredictable, so that tokens do not identify clients.
    pub fn seal_address(&self, token: &AddressToken, rng: &mut dyn RngCore, out: &mut Vec<u8>) {
        self.seal(TokenKind::Address, rng, out, |out| {
            out.extend_from_slice(&token.issued.to_be_bytes());
            out.extend_from_slice(&token.version.0.to_be_bytes());
            put_ip(out, token.ip);
            out.extend_from_slice(&token.id);
            if let Some(path) = &token.path {
                put_path(out, path);
            }
        });
    }

    /// Opens a token that `client` sent in an Initial packet of `version`, at wall time `now` in
    /// Unix seconds.
    ///
    /// # Errors
    /// If the token does not prove the client's address.
    pub fn open(
        &self,
        token: &[u8],
        now: u64,
        client: SocketAddr,
        version: Version,
    ) -> Result<Token, TokenError> {
        let (kind, fields) = self.decrypt(token)?;
        // It was sealed with our key, so only another version of this code could cause this.
        let token = read_fields(kind, &mut Reader::new(&fields)).ok_or(TokenError::Malformed)?;
        let (issued, issued_on, lifetime, same_address) = match &token {
            Token::Retry(retry) => (
                retry.issued,
                retry.version,
                self.retry_lifetime,
                retry.client == canonical(client),
            ),
            Token::Address(address) => (
                address.issued,
                address.version,
                self.address_lifetime,
                address.ip == canonical(client).ip(),
            ),
        };
        if issued > now.saturating_add(CLOCK_SKEW) {
            return Err(TokenError::FromTheFuture(kind));
        }
        if now.saturating_sub(issued) > lifetime {
            return Err(TokenError::Expired(kind));
        }
        if !same_address {
            return Err(TokenError::WrongAddress(kind));
        }
        if issued_on != version {
            return Err(TokenError::WrongVersion(kind));
        }
        Ok(token)
    }

    #[expect(
        clippy::expect_used,
        reason = "a few dozen bytes are within every limit of the AEAD"
    )]
    fn seal(
        &self,
        kind: TokenKind,
        rng: &mut dyn RngCore,
        out: &mut Vec<u8>,
        put_fields: impl FnOnce(&mut Vec<u8>),
    ) {
        let mut salt = [0; SALT_LEN];
        let mut nonce = [0; aead::NONCE_LEN];
        rng.fill_bytes(&mut salt);
        rng.fill_bytes(&mut nonce);
        out.push(kind.byte());
        out.extend_from_slice(&salt);
        out.extend_from_slice(&nonce);
        let start = out.len();
        put_fields(out);
        let nonce = aead::Nonce::assume_unique_for_key(nonce);
        let fields = out.get_mut(start..).unwrap_or_default();
        let tag = self
            .key(kind, &salt)
            .seal_in_place_separate_tag(nonce, aead::Aad::empty(), fields)
            .expect("a short plaintext can be sealed");
        out.extend_from_slice(tag.as_ref());
    }

    fn decrypt(&self, token: &[u8]) -> Result<(TokenKind, Vec<u8>), TokenError> {
        let mut reader = Reader::new(token);
        let prefix = (reader.u8(), reader.array::<SALT_LEN>(), reader.array());
        let (Some(kind), Some(salt), Some(nonce)) = prefix else {
            return Err(TokenError::Malformed);
        };
        let kind = TokenKind::from_byte(kind).ok_or(TokenError::Malformed)?;
        if reader.remaining() < TAG_LEN {
            return Err(TokenError::Malformed);
        }
        let mut sealed = reader.rest().to_vec();
        let nonce = aead::Nonce::assume_unique_for_key(nonce);
        let plain = self
            .key(kind, &salt)
            .open_in_place(nonce, aead::Aad::empty(), &mut sealed)
            .map_err(|_| TokenError::Forged)?
            .len();
        sealed.truncate(plain);
        Ok((kind, sealed))
    }

    #[expect(
        clippy::expect_used,
        reason = "HKDF refuses more than 255 blocks, and this is one"
    )]
    fn key(&self, kind: TokenKind, salt: &[u8; SALT_LEN]) -> aead::LessSafeKey {
        let info: [&[u8]; 3] = [b"address validation", &[kind.byte()], salt];
        let key = self
            .secret
            .expand(&info, &aead::AES_256_GCM)
            .expect("HKDF of one block cannot be too long");
        aead::LessSafeKey::new(key.into())
    }
}

impl core::fmt::Debug for TokenKey {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("TokenKey(..)")
    }
}

/// Length of the longest token in bytes: a Retry token for an IPv6 address and two connection
/// IDs of 20 bytes.
#[cfg(test)]
pub(crate) const MAX_TOKEN_LEN: usize = PREFIX_LEN + 8 + 4 + 17 + 2 + 2 * 21 + TAG_LEN;

/// Turns an IPv4-mapped IPv6 address, as a dual-stack socket reports it, into IPv4.
fn canonical(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip().to_canonical(), address.port())
}

fn put_ip(out: &mut Vec<u8>, ip: IpAddr) {
    match ip.to_canonical() {
        IpAddr::V4(ip) => {
            out.push(4);
            out.extend_from_slice(&ip.octets());
        }
        IpAddr::V6(ip) => {
            out.push(6);
            out.extend_from_slice(&ip.octets());
        }
    }
}

fn put_cid(out: &mut Vec<u8>, cid: &ConnectionId) {
    out.push(cid.len() as u8);
    out.extend_from_slice(cid);
}

fn read_fields(kind: TokenKind, reader: &mut Reader<'_>) -> Option<Token> {
    let issued = reader.array().map(u64::from_be_bytes)?;
    let version = Version(reader.u32()?);
    let ip = read_ip(reader)?;
    let token = match kind {
        TokenKind::Retry => Token::Retry(RetryToken {
            issued,
            version,
            client: SocketAddr::new(ip, reader.u16()?),
            original_dcid: read_cid(reader)?,
            retry_scid: read_cid(reader)?,
        }),
        TokenKind::Address => Token::Address(AddressToken {
            issued,
            version,
            ip,
            id: reader.array()?,
            path: read_path(reader)?,
        }),
    };
    reader.is_empty().then_some(token)
}

fn put_path(out: &mut Vec<u8>, path: &MeasuredPath) {
    let micros = u64::try_from(path.saved.rtt.as_micros()).unwrap_or(u64::MAX);
    out.extend_from_slice(&path.saved.capacity.to_be_bytes());
    out.extend_from_slice(&micros.to_be_bytes());
    out.extend_from_slice(&path.connection);
}

/// Reads the end of a token, which may be absent.
fn read_path(reader: &mut Reader<'_>) -> Option<Option<MeasuredPath>> {
    if reader.is_empty() {
        return Some(None);
    }
    let capacity = reader.array().map(u64::from_be_bytes)?;
    let micros = reader.array().map(u64::from_be_bytes)?;
    Some(Some(MeasuredPath {
        saved: SavedPath {
            capacity,
            rtt: Duration::from_micros(micros),
        },
        connection: reader.array()?,
    }))
}

fn read_ip(reader: &mut Reader<'_>) -> Option<IpAddr> {
    match reader.u8()? {
        4 => Some(Ipv4Addr::from(reader.array::<4>()?).into()),
        6 => Some(Ipv6Addr::from(reader.array::<16>()?).into()),
        _ => None,
    }
}

fn read_cid(reader: &mut Reader<'_>) -> Option<ConnectionId> {
    let len = usize::from(reader.u8()?);
    ConnectionId::new(reader.bytes(len)?)
}

#[cfg(test)]
mod tests;
