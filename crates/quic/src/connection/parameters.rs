//! The transport parameters that are sent (RFC 9000 §18.2), and the stream limits from the
//! peer's.

use core::time::Duration;

use super::config::Config;
use crate::Role;
use crate::cid::ConnectionId;
use crate::stream::PeerLimits;
use crate::wire::cursor::VARINT_MAX;
use crate::wire::transport_parameters::{MAX_ACK_DELAY_LIMIT, MIN_ACTIVE_CONNECTION_ID_LIMIT};
use crate::wire::{MIN_MTU, TransportParameters};

/// Shortest delay of acknowledgements that a peer may request (`min_ack_delay`,
/// draft-ietf-quic-ack-frequency §3), unless our longest is shorter.
const MIN_ACK_DELAY: Duration = Duration::from_millis(1);

/// Longest delay of acknowledgements that can be announced (RFC 9000 §18.2).
const LONGEST_ACK_DELAY: Duration = Duration::from_millis(MAX_ACK_DELAY_LIMIT - 1);

pub(super) fn local_parameters(
    config: &Config,
    role: Role,
    scid: ConnectionId,
) -> TransportParameters {
    let limits = config.streams.initial_limits();
    let (max_ack_delay, min_ack_delay) = ack_delays(config);
    TransportParameters {
        max_idle_timeout: millis(config.idle_timeout),
        max_udp_payload_size: u64::from(config.max_udp_payload.max(MIN_MTU)),
        initial_max_data: limits.max_data,
        initial_max_stream_data_bidi_local: limits.bidi_local,
        initial_max_stream_data_bidi_remote: limits.bidi_remote,
        initial_max_stream_data_uni: limits.uni,
        initial_max_streams_bidi: limits.streams_bidi,
        initial_max_streams_uni: limits.streams_uni,
        max_ack_delay: millis(max_ack_delay),
        disable_active_migration: role == Role::Server && !config.allow_migration,
        active_connection_id_limit: active_connection_id_limit(config),
        initial_source_connection_id: Some(scid),
        max_datagram_frame_size: datagram_frame_size(config),
        grease_quic_bit: config.grease,
        reset_stream_at: true,
        min_ack_delay: config
            .ack_frequency
            .then_some(min_ack_delay.as_micros() as u64),
        ..TransportParameters::default()
    }
}

/// Converts to whole milliseconds, rounded up: neither is a short timeout announced as none, nor
/// a delay as shorter than it is. Longer times than a parameter holds are announced as its
/// largest value.
fn millis(time: Duration) -> u64 {
    let millis = time.as_nanos().div_ceil(1_000_000);
    u64::try_from(millis).map_or(VARINT_MAX, |millis| millis.min(VARINT_MAX))
}

/// Returns our longest acknowledgement delay, below 2^14 ms (RFC 9000 §18.2), and the shortest
/// that a peer may request, which is never longer (draft-ietf-quic-ack-frequency §3).
pub(super) fn ack_delays(config: &Config) -> (Duration, Duration) {
    let longest = config.max_ack_delay.min(LONGEST_ACK_DELAY);
    let announced = Duration::from_millis(millis(longest));
    (longest, announced.min(MIN_ACK_DELAY))
}

/// Returns our `active_connection_id_limit`, at least 2 (RFC 9000 §18.2).
pub(super) fn active_connection_id_limit(config: &Config) -> u64 {
    let least = MIN_ACTIVE_CONNECTION_ID_LIMIT;
    config.active_connection_id_limit.clamp(least, VARINT_MAX)
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Any configuration gives parameters that a peer accepts.
    #[test]
    fn parameters_of_any_config_are_valid() {
        let times = [
            Duration::ZERO,
            Duration::from_nanos(1),
            Duration::from_micros(999),
            Duration::from_millis(1),
            Duration::from_micros(1_500),
            Duration::from_millis(25),
            Duration::from_millis(1 << 14),
            Duration::MAX,
        ];
        let cid = ConnectionId::new(&[1; 8]).unwrap();
        for time in times {
            for (size, count) in [(0, 0), (1_199, 1), (u16::MAX, u64::MAX)] {
                let mut config = Config {
                    idle_timeout: time,
                    max_ack_delay: time,
                    max_udp_payload: size,
                    active_connection_id_limit: count,
                    ..Config::default()
                };
                config.streams.max_bidi_streams = count;
                config.streams.max_uni_streams = count;
                let local = local_parameters(&config, Role::Client, cid);
                let mut bytes = Vec::new();
                local.encode(&mut bytes, None);
                let read = TransportParameters::decode(&bytes, Role::Client);
                assert_eq!(read.as_ref(), Ok(&local), "{time:?} {size} {count}");
                assert_eq!(local.max_idle_timeout == 0, time.is_zero(), "{time:?}");
            }
        }
    }

    #[test]
    fn announced_ack_delays_are_those_in_effect() {
        let delays = |max_ack_delay| {
            let config = Config {
                max_ack_delay,
                ..Config::default()
            };
            let cid = ConnectionId::EMPTY;
            let local = local_parameters(&config, Role::Client, cid);
            let (longest, shortest) = ack_delays(&config);
            let announced = Duration::from_millis(local.max_ack_delay);
            assert!(longest <= announced && shortest <= announced);
            assert_eq!(local.min_ack_delay, Some(shortest.as_micros() as u64));
            (local.max_ack_delay, local.min_ack_delay)
        };
        assert_eq!(delays(Duration::ZERO), (0, Some(0)));
        assert_eq!(delays(Duration::from_micros(300)), (1, Some(1_000)));
        assert_eq!(delays(Duration::from_millis(25)), (25, Some(1_000)));
        assert_eq!(delays(Duration::MAX), ((1 << 14) - 1, Some(1_000)));
    }
}
