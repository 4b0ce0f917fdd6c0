//! What is kept of the peer's transport parameters.

use core::time::Duration;
use std::net::SocketAddr;

use crate::Role;
use crate::wire::TransportParameters;
use crate::wire::frame::Ack;
use crate::wire::transport_parameters::DEFAULT_ACK_DELAY_EXPONENT;

/// The peer's transport parameters: those asked for after the handshake at hand,
/// all of them as they are encoded, which takes a third of what they do in memory.
#[derive(Debug)]
pub(crate) struct PeerParameters {
    encoded: Box<[u8]>,
    /// Microseconds.
    min_ack_delay: Option<u32>,
    /// Milliseconds, below 2^14.
    max_ack_delay: u16,
    ack_delay_exponent: u8,
    disable_active_migration: bool,
}

impl PeerParameters {
    pub(super) fn new(parameters: &TransportParameters) -> Self {
        let mut encoded = Vec::new();
        parameters.encode(&mut encoded, None);
        Self {
            encoded: encoded.into(),
            // Decoding has seen to it that both are far smaller.
            min_ack_delay: parameters
                .min_ack_delay
                .map(|delay| u32::try_from(delay).unwrap_or(u32::MAX)),
            max_ack_delay: u16::try_from(parameters.max_ack_delay).unwrap_or(u16::MAX),
            ack_delay_exponent: parameters.ack_delay_exponent,
            disable_active_migration: parameters.disable_active_migration,
        }
    }

    /// All of them, from an end in the role of `sender`.
    pub(super) fn parameters(&self, sender: Role) -> Option<TransportParameters> {
        // What was decoded once is decoded again.
        TransportParameters::decode(&self.encoded, sender).ok()
    }

    /// The shortest acknowledgment delay it can be asked for.
    pub(super) fn min_ack_delay(&self) -> Option<Duration> {
        self.min_ack_delay
            .map(|micros| Duration::from_micros(micros.into()))
    }

    /// The longest that it holds an acknowledgment back.
    pub(super) fn max_ack_delay(&self) -> Duration {
        Duration::from_millis(self.max_ack_delay.into())
    }

    /// The same in milliseconds.
    pub(super) fn max_ack_delay_millis(&self) -> u16 {
        self.max_ack_delay
    }

    /// Its ACK Delay fields count in two to the power of this, microseconds.
    fn ack_delay_exponent(&self) -> u8 {
        self.ack_delay_exponent
    }

    /// How long it says that it held an acknowledgement back, also before its parameters
    /// are known (RFC 9000 §18.2).
    pub(super) fn ack_delay(peer: Option<&Self>, ack: &Ack<'_>) -> Duration {
        let exponent = peer.map_or(DEFAULT_ACK_DELAY_EXPONENT, Self::ack_delay_exponent);
        Duration::from_micros(ack.delay_micros(exponent))
    }

    /// Where a server would rather be.
    pub(super) fn preferred_address(&self, v6: bool) -> Option<SocketAddr> {
        let preferred = self.parameters(Role::Server)?.preferred_address?;
        if v6 {
            preferred.v6.map(SocketAddr::V6)
        } else {
            preferred.v4.map(SocketAddr::V4)
        }
    }

    /// Whether it forbids to migrate.
    pub(super) fn disables_migration(&self) -> bool {
        self.disable_active_migration
    }

    /// Bytes allocated.
    pub(super) fn memory(&self) -> usize {
        self.encoded.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cid::ConnectionId;

    #[test]
    fn kept_parameters_equal_those_the_peer_sent() {
        let sent = TransportParameters {
            max_idle_timeout: 30_000,
            max_udp_payload_size: 1_472,
            initial_max_streams_bidi: 1 << 60,
            ack_delay_exponent: 20,
            max_ack_delay: (1 << 14) - 1,
            disable_active_migration: true,
            initial_source_connection_id: ConnectionId::new(&[7; 20]),
            min_ack_delay: Some(16_383_000),
            ..TransportParameters::default()
        };
        let peer = PeerParameters::new(&sent);
        assert_eq!(peer.parameters(Role::Client), Some(sent));
        assert_eq!(peer.min_ack_delay(), Some(Duration::from_millis(16_383)));
        assert_eq!(peer.max_ack_delay(), Duration::from_millis(16_383));
        assert_eq!(peer.ack_delay_exponent(), 20);
        assert!(peer.disables_migration());
        assert!(peer.memory() < size_of::<TransportParameters>() / 2);

        let none = PeerParameters::new(&TransportParameters::default());
        assert_eq!(
            none.parameters(Role::Server),
            Some(TransportParameters::default())
        );
        assert_eq!(none.min_ack_delay(), None);
        assert!(!none.disables_migration());
    }
}
