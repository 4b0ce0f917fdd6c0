//! The transport parameters that are sent (RFC 9000 §18.2), and the stream limits from the
//! peer's.

use super::Config;
use crate::Role;
use crate::cid::ConnectionId;
use crate::stream::PeerLimits;
use crate::wire::TransportParameters;

/// Shortest delay of acknowledgements that a peer may request, in microseconds
/// (`min_ack_delay`, draft-ietf-quic-ack-frequency §3).
pub(super) const MIN_ACK_DELAY_US: u64 = 1_000;

pub(super) fn local_parameters(
    config: &Config,
    role: Role,
    scid: ConnectionId,
) -> TransportParameters {
    let limits = config.streams.initial_limits();
    TransportParameters {
        max_idle_timeout: config.idle_timeout.as_millis() as u64,
        max_udp_payload_size: u64::from(config.max_udp_payload),
        initial_max_data: limits.max_data,
        initial_max_stream_data_bidi_local: limits.bidi_local,
        initial_max_stream_data_bidi_remote: limits.bidi_remote,
        initial_max_stream_data_uni: limits.uni,
        initial_max_streams_bidi: limits.streams_bidi,
        initial_max_streams_uni: limits.streams_uni,
        max_ack_delay: config.max_ack_delay.as_millis() as u64,
        disable_active_migration: role == Role::Server && !config.allow_migration,
        active_connection_id_limit: config.active_connection_id_limit,
        initial_source_connection_id: Some(scid),
        max_datagram_frame_size: datagram_frame_size(config),
        grease_quic_bit: config.grease,
        min_ack_delay: config.ack_frequency.then_some(MIN_ACK_DELAY_US),
        ..TransportParameters::default()
    }
}

/// Returns our `max_datagram_frame_size` (RFC 9221 §3).
pub(super) fn datagram_frame_size(config: &Config) -> u64 {
    if config.datagram_buffer == 0 {
        0
    } else {
        65_535
    }
}

/// Returns the stream limits in the peer's parameters.
pub(super) fn limits_of(peer: &TransportParameters) -> PeerLimits {
    PeerLimits {
        max_data: peer.initial_max_data,
        bidi_local: peer.initial_max_stream_data_bidi_local,
        bidi_remote: peer.initial_max_stream_data_bidi_remote,
        uni: peer.initial_max_stream_data_uni,
        streams_bidi: peer.initial_max_streams_bidi,
        streams_uni: peer.initial_max_streams_uni,
    }
}
