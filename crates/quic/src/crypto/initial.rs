//! Keys of Initial packets, which anyone on the path can derive (RFC 9001 §5.2).

use rustls::Side;
use rustls::quic::Version;

use super::keys::Keys;
use super::provider;
use super::suite::Suite;
use crate::Role;

/// Returns the Initial keys of a QUIC version 1 connection for the end `role`.
///
/// `dcid` is the Destination Connection ID of the client's first Initial, or
/// after a Retry the one that the server chose.
#[must_use]
pub fn initial_keys(dcid: &[u8], role: Role) -> Keys {
    let side = match role {
        Role::Client => Side::Client,
        Role::Server => Side::Server,
    };
    let suite = provider::tls13(Suite::Aes128Gcm);
    rustls::quic::Keys::initial(Version::V1, suite, &Suite::Aes128Gcm, dcid, side).into()
}
