//! Identifiers of transport parameters.

use crate::wire::cursor::VARINT_MAX;

// RFC 9000 §18.2.
pub(super) const ORIGINAL_DESTINATION_CONNECTION_ID: u64 = 0x00;
pub(super) const MAX_IDLE_TIMEOUT: u64 = 0x01;
pub(super) const STATELESS_RESET_TOKEN: u64 = 0x02;
pub(super) const MAX_UDP_PAYLOAD_SIZE: u64 = 0x03;
pub(super) const INITIAL_MAX_DATA: u64 = 0x04;
pub(super) const INITIAL_MAX_STREAM_DATA_BIDI_LOCAL: u64 = 0x05;
pub(super) const INITIAL_MAX_STREAM_DATA_BIDI_REMOTE: u64 = 0x06;
pub(super) const INITIAL_MAX_STREAM_DATA_UNI: u64 = 0x07;
pub(super) const INITIAL_MAX_STREAMS_BIDI: u64 = 0x08;
pub(super) const INITIAL_MAX_STREAMS_UNI: u64 = 0x09;
pub(super) const ACK_DELAY_EXPONENT: u64 = 0x0a;
pub(super) const MAX_ACK_DELAY: u64 = 0x0b;
pub(super) const DISABLE_ACTIVE_MIGRATION: u64 = 0x0c;
pub(super) const PREFERRED_ADDRESS: u64 = 0x0d;
pub(super) const ACTIVE_CONNECTION_ID_LIMIT: u64 = 0x0e;
pub(super) const INITIAL_SOURCE_CONNECTION_ID: u64 = 0x0f;
pub(super) const RETRY_SOURCE_CONNECTION_ID: u64 = 0x10;
/// RFC 9368 §3.
pub(super) const VERSION_INFORMATION: u64 = 0x11;
/// draft-ietf-quic-reliable-stream-reset §3, since version 09.
pub(super) const RESET_STREAM_AT: u64 = 0x1d;
/// The same up to version 07, which others still use.
pub(super) const RESET_STREAM_AT_07: u64 = 0x17_f758_6d2c_b571;
/// RFC 9221 §3.
pub(super) const MAX_DATAGRAM_FRAME_SIZE: u64 = 0x20;
/// RFC 9287 §3.
pub(super) const GREASE_QUIC_BIT: u64 = 0x2ab2;
/// ACK frequency §3.
pub(super) const MIN_ACK_DELAY: u64 = 0xff04_de1b;

/// Returns a reserved identifier, `31 * N + 27` (RFC 9000 §18.1).
pub(super) const fn reserved(random: u64) -> u64 {
    /// How many there are.
    const COUNT: u64 = (VARINT_MAX - 27) / 31 + 1;
    (random % COUNT).saturating_mul(31).saturating_add(27)
}

/// Returns whether only a server may send it (RFC 9000 §18.2).
pub(super) const fn is_server_only(id: u64) -> bool {
    matches!(
        id,
        ORIGINAL_DESTINATION_CONNECTION_ID
            | STATELESS_RESET_TOKEN
            | PREFERRED_ADDRESS
            | RETRY_SOURCE_CONNECTION_ID
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reserved_identifiers_are_varints_and_exclude_known_ones() {
        for random in [0, 1, u64::MAX, VARINT_MAX / 31, (VARINT_MAX - 27) / 31] {
            let id = reserved(random);
            assert!(id <= VARINT_MAX && id % 31 == 27);
        }
        let extensions = [
            VERSION_INFORMATION,
            RESET_STREAM_AT,
            RESET_STREAM_AT_07,
            MAX_DATAGRAM_FRAME_SIZE,
            GREASE_QUIC_BIT,
            MIN_ACK_DELAY,
        ];
        for id in (0..=RETRY_SOURCE_CONNECTION_ID).chain(extensions) {
            assert_ne!(id % 31, 27, "{id:#x}");
        }
    }
}
