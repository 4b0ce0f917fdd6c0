//! Transport parameters (RFC 9000 §7.4, §18; RFC 9221 §3; RFC 9287 §3; RFC 9368
//! §3; the ACK frequency extension).

mod decode;
mod encode;
mod id;
mod preferred_address;
mod resumption;
#[cfg(test)]
mod tests;
mod version_information;

pub use preferred_address::PreferredAddress;
pub use version_information::VersionInformation;

use crate::Role;
use crate::cid::{ConnectionId, ResetToken};
use crate::error::{Code, TransportError};

/// Largest possible UDP payload in bytes, and the default limit (RFC 9000 §18.2).
pub(crate) const MAX_UDP_PAYLOAD: u64 = 65_527;

/// Default `ack_delay_exponent` (RFC 9000 §18.2).
pub(crate) const DEFAULT_ACK_DELAY_EXPONENT: u8 = 3;

/// Largest valid `ack_delay_exponent` (RFC 9000 §18.2).
pub(crate) const MAX_ACK_DELAY_EXPONENT: u8 = 20;

/// Default `max_ack_delay` in milliseconds (RFC 9000 §18.2).
pub(crate) const DEFAULT_MAX_ACK_DELAY: u64 = 25;

/// Upper limit (exclusive) of `max_ack_delay` in milliseconds (RFC 9000 §18.2).
pub(crate) const MAX_ACK_DELAY_LIMIT: u64 = 1 << 14;

/// Smallest valid `active_connection_id_limit`, and the default (RFC 9000
/// §18.2).
pub(crate) const MIN_ACTIVE_CONNECTION_ID_LIMIT: u64 = 2;

/// The transport parameters of one end. `default()` returns the values that apply if none are sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TransportParameters {
    /// Destination of the client's first Initial. Server only.
    pub original_destination_connection_id: Option<ConnectionId>,
    /// Idle timeout in milliseconds; 0 for none.
    pub max_idle_timeout: u64,
    /// Token for the connection ID of the handshake. Server only.
    pub stateless_reset_token: Option<ResetToken>,
    /// Largest UDP payload that the sender receives, in bytes, at least 1200.
    pub max_udp_payload_size: u64,
    /// Initial limit of the connection in bytes.
    pub initial_max_data: u64,
    /// Initial limit of bidirectional streams that the sender opens, in bytes.
    pub initial_max_stream_data_bidi_local: u64,
    /// Initial limit of bidirectional streams that the receiver opens, in bytes.
    pub initial_max_stream_data_bidi_remote: u64,
    /// Initial limit of unidirectional streams that the receiver opens, in bytes.
    pub initial_max_stream_data_uni: u64,
    /// Bidirectional streams that the receiver may open, at most 2^60.
    pub initial_max_streams_bidi: u64,
    /// Unidirectional streams that the receiver may open, at most 2^60.
    pub initial_max_streams_uni: u64,
    /// Exponent of the unit of ACK Delay fields, which is 2^exponent microseconds; at most 20.
    pub ack_delay_exponent: u8,
    /// Longest time that the sender delays an acknowledgment, in milliseconds, below 2^14.
    pub max_ack_delay: u64,
    /// Whether the peer must not migrate while it uses the address of the handshake.
    pub disable_active_migration: bool,
    /// The address that the server prefers. Server only.
    pub preferred_address: Option<PreferredAddress>,
    /// Number of the peer's connection IDs that the sender stores, at least 2.
    pub active_connection_id_limit: u64,
    /// Source of the sender's first Initial.
    pub initial_source_connection_id: Option<ConnectionId>,
    /// Source of the server's Retry. Server only.
    pub retry_source_connection_id: Option<ConnectionId>,
    /// Largest DATAGRAM frame that the sender receives, with its type and
    /// length, in bytes; 0 for none (RFC 9221 §3).
    pub max_datagram_frame_size: u64,
    /// Whether the sender accepts packets whose QUIC bit is zero (RFC 9287 §3).
    pub grease_quic_bit: bool,
    /// Whether the sender accepts RESET_STREAM_AT (draft-ietf-quic-reliable-stream-reset §3).
    pub reset_stream_at: bool,
    /// Shortest acknowledgment delay that the peer may request, in microseconds, at most
    /// `max_ack_delay`. If it is present, the sender supports ACK_FREQUENCY and IMMEDIATE_ACK
    /// (ACK frequency §3).
    pub min_ack_delay: Option<u64>,
    /// The versions that the sender supports (RFC 9368 §3).
    pub version_information: Option<VersionInformation>,
}

impl Default for TransportParameters {
    fn default() -> Self {
        Self {
            original_destination_connection_id: None,
            max_idle_timeout: 0,
            stateless_reset_token: None,
            max_udp_payload_size: MAX_UDP_PAYLOAD,
            initial_max_data: 0,
            initial_max_stream_data_bidi_local: 0,
            initial_max_stream_data_bidi_remote: 0,
            initial_max_stream_data_uni: 0,
            initial_max_streams_bidi: 0,
            initial_max_streams_uni: 0,
            ack_delay_exponent: DEFAULT_ACK_DELAY_EXPONENT,
            max_ack_delay: DEFAULT_MAX_ACK_DELAY,
            disable_active_migration: false,
            preferred_address: None,
            active_connection_id_limit: MIN_ACTIVE_CONNECTION_ID_LIMIT,
            initial_source_connection_id: None,
            retry_source_connection_id: None,
            max_datagram_frame_size: 0,
            grease_quic_bit: false,
            reset_stream_at: false,
            min_ack_delay: None,
            version_information: None,
        }
    }
}

/// The connection IDs seen in the handshake, which the peer's parameters have to
/// confirm (RFC 9000 §7.3).
#[derive(Clone, Copy, Debug)]
pub(crate) struct HandshakeCids {
    /// Source of the peer's first Initial.
    pub initial_source: ConnectionId,
    /// Destination of the client's first Initial; checked by clients.
    pub original_destination: ConnectionId,
    /// Source of the Retry, if there was one; checked by clients.
    pub retry_source: Option<ConnectionId>,
}

impl TransportParameters {
    /// Checks that the parameters of `sender` contain the connection IDs of the packets, so that
    /// nobody on the path has changed them.
    ///
    /// # Errors
    /// TRANSPORT_PARAMETER_ERROR (RFC 9000 §7.3).
    pub(crate) fn authenticate(
        &self,
        sender: Role,
        seen: &HandshakeCids,
    ) -> Result<(), TransportError> {
        if self.initial_source_connection_id != Some(seen.initial_source) {
            return Err(invalid(
                "initial_source_connection_id does not match the packet headers",
            ));
        }
        match sender {
            Role::Client => Ok(()),
            Role::Server => {
                if self.original_destination_connection_id != Some(seen.original_destination) {
                    return Err(invalid(
                        "original_destination_connection_id does not match the first Initial",
                    ));
                }
                if self.retry_source_connection_id != seen.retry_source {
                    return Err(invalid(
                        "retry_source_connection_id does not match the Retry packet",
                    ));
                }
                Ok(())
            }
        }
    }
}

fn invalid(reason: &'static str) -> TransportError {
    TransportError::new(Code::TRANSPORT_PARAMETER_ERROR, reason)
}
