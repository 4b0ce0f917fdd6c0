//! Keys of Initial packets, which anyone on the path can derive (RFC 9001 §5.2).

use super::keys::Keys;
use super::secrets;
use crate::Role;
use crate::wire::Version;

/// Returns the Initial keys of a connection of `version`, a supported one, for the end `role`.
///
/// `dcid` is the Destination Connection ID of the client's first Initial, or
/// after a Retry the one that the server chose.
#[must_use]
pub fn initial_keys(version: Version, dcid: &[u8], role: Role) -> Keys {
    secrets::initial_keys(version.of_connection(), dcid, role)
}
