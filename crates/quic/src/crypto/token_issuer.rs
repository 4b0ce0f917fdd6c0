//! Makes the tokens that a server sends in NEW_TOKEN frames (RFC 9000 §8.1.3).

use std::net::IpAddr;
use std::sync::Arc;

use super::token::{AddressToken, TokenKey};
use crate::Instant;
use crate::rng::Rng;

/// Makes the tokens that a server sends in NEW_TOKEN frames. Shared by its connections, which
/// know no time of day.
#[derive(Debug)]
pub(crate) struct TokenIssuer {
    key: Arc<TokenKey>,
    /// Unix time in seconds at `at`.
    unix: u64,
    at: Instant,
}

impl TokenIssuer {
    /// Creates an issuer for which `now` is the Unix time `unix`, in seconds.
    pub(crate) fn new(key: Arc<TokenKey>, unix: u64, now: Instant) -> Self {
        Self { key, unix, at: now }
    }

    /// Returns the Unix time at `now`, in seconds.
    pub(crate) fn unix(&self, now: Instant) -> u64 {
        self.unix.saturating_add((now - self.at).as_secs())
    }

    /// Returns a token for a client at `ip`.
    pub(crate) fn issue(&self, now: Instant, ip: IpAddr, rng: &mut Rng) -> Vec<u8> {
        let token = AddressToken {
            issued: self.unix(now),
            ip,
            id: rng.array(),
        };
        let mut sealed = Vec::with_capacity(64);
        self.key.seal_address(&token, rng, &mut sealed);
        sealed
    }
}
