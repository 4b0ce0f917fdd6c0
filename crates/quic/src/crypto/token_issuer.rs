//! Makes the tokens that a server sends in NEW_TOKEN frames (RFC 9000 §8.1.3).

use std::net::IpAddr;
use std::sync::Arc;

use super::token::{AddressToken, MeasuredPath, TokenKey};
use crate::Instant;
use crate::rng::Rng;
use crate::wire::Version;

/// Makes the tokens that a server sends in NEW_TOKEN frames. Shared by its connections, which
/// know no time of day.
#[derive(Debug)]
pub(crate) struct TokenIssuer {
    key: Arc<TokenKey>,
    /// The QUIC version that the tokens are for (RFC 9369 §5).
    version: Version,
    /// Unix time in seconds at `at`.
    unix: u64,
    at: Instant,
}

impl TokenIssuer {
    /// Creates an issuer for which `now` is the Unix time `unix`, in seconds.
    pub(crate) fn new(key: Arc<TokenKey>, version: Version, unix: u64, now: Instant) -> Self {
        Self {
            key,
            version,
            unix,
            at: now,
        }
    }

    /// Returns an issuer of tokens for `version`.
    pub(crate) fn for_version(self: &Arc<Self>, version: Version) -> Arc<Self> {
        if version == self.version {
            return self.clone();
        }
        Arc::new(Self {
            key: self.key.clone(),
            version,
            unix: self.unix,
            at: self.at,
        })
    }

    /// Returns the Unix time at `now`, in seconds.
    pub(crate) fn unix(&self, now: Instant) -> u64 {
        self.unix.saturating_add((now - self.at).as_secs())
    }

    /// Returns a token for a client at `ip`, to which the path has been measured as `path`.
    pub(crate) fn issue(
        &self,
        now: Instant,
        ip: IpAddr,
        path: Option<MeasuredPath>,
        rng: &mut Rng,
    ) -> Vec<u8> {
        let token = AddressToken {
            issued: self.unix(now),
            version: self.version,
            ip,
            id: rng.array(),
            path,
        };
        let mut sealed = Vec::with_capacity(64);
        self.key.seal_address(&token, rng, &mut sealed);
        sealed
    }
}
