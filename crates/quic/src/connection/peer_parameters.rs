//! The peer's transport parameters, as they are stored.

use core::time::Duration;
use std::net::SocketAddr;

use crate::Role;
use crate::wire::TransportParameters;
use crate::wire::frame::Ack;
use crate::wire::transport_parameters::DEFAULT_ACK_DELAY_EXPONENT;

/// The peer's transport parameters. Those needed after the handshake are stored decoded,
/// and all of them encoded, which takes a third of their size in memory.
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
            // Decoding ensured that both are far smaller.
            min_ack_delay: parameters
                .min_ack_delay
                .map(|delay| u32::try_from(delay).unwrap_or(u32::MAX)),
            max_ack_delay: u16::try_from(parameters.max_ack_delay).unwrap_or(u16::MAX),
            ack_delay_exponent: parameters.ack_delay_exponent,
            disable_active_migration: parameters.disable_active_migration,
        }
    }

    /// Returns all parameters, decoded as those of an end in the role of `sender`.
    pub(super) fn parameters(&self, sender: Role) -> Option<TransportParameters> {
        // They were decoded before, so decoding does not fail.
        TransportParameters::decode(&self.encoded, sender).ok()
    }

    /// Returns the shortest acknowledgement delay that can be requested, if the peer
    /// supports ACK_FREQUENCY.
    pub(super) fn min_ack_delay(&self) -> Option<Duration> {
        self.min_ack_delay
            .map(|micros| Duration::from_micros(micros.into()))
    }

    /// Returns the longest delay of the peer's acknowledgements.
    pub(super) fn max_ack_delay(&self) -> Duration {
        Duration::from_millis(self.max_ack_delay.into())
    }

    /// Returns the longest delay of the peer's acknowledgements in milliseconds.
    pub(super) fn max_ack_delay_millis(&self) -> u16 {
        self.max_ack_delay
    }

    /// Returns the exponent of its ACK Delay fields, whose unit is two to the power of it
    /// in microseconds.
    fn ack_delay_exponent(&self) -> u8 {
        self.ack_delay_exponent
    }

    /// Returns the delay that the peer reports in an ACK frame, also before its parameters
    /// are known (RFC 9000 §18.2).
    pub(super) fn ack_delay(peer: Option<&Self>, ack: &Ack<'_>) -> Duration {
        let exponent = peer.map_or(DEFAULT_ACK_DELAY_EXPONENT, Self::ack_delay_exponent);
        Duration::from_micros(ack.delay_micros(exponent))
    }

    /// Returns a server's preferred address of this address family.
    pub(super) fn preferred_address(&self, v6: bool) -> Option<SocketAddr> {
        let preferred = self.parameters(Role::Server)?.preferred_address?;
        if v6 {
            preferred.v6.map(SocketAddr::V6)
        } else {
            preferred.v4.map(SocketAddr::V4)
        }
    }

    /// Returns whether the peer disabled active migration.
    pub(super) fn disables_migration(&self) -> bool {
        self.disable_active_migration
    }

    /// Returns the bytes allocated.
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
