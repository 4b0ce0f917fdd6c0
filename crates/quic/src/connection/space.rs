//! One packet number space: its CRYPTO stream, what arrived in it, what is due
//! in it (RFC 9000 §12.3).

use clearway_recovery::Space;

use super::crypto_stream::CryptoStream;
use crate::Instant;
use crate::ack::AckPolicy;
use crate::wire::RangeSet;

/// Ranges of received packet numbers kept per space. Older ones are forgotten
/// (and then count as received), so that gap-makers hold no memory.
const MAX_RECEIVED_RANGES: usize = 64;

/// The spaces in the order in which packets are coalesced.
pub(crate) const SPACES: [Space; 3] = [Space::Initial, Space::Handshake, Space::Data];

/// State of one packet number space.
#[derive(Debug)]
pub(crate) struct PacketSpace {
    pub(crate) crypto: CryptoStream,
    /// Packet numbers received.
    pub(crate) received: RangeSet,
    /// When to acknowledge them.
    pub(crate) ack: AckPolicy,
    /// When the largest of them arrived, for the ACK Delay field.
    pub(crate) largest_received_at: Instant,
    /// Ack-eliciting packets that must leave whatever window and pacer say
    /// (RFC 9002 §6.2.4).
    pub(crate) probes: u8,
    /// A PING is due.
    pub(crate) ping: bool,
    /// Packets sent since the last ack-eliciting one.
    pub(crate) since_eliciting: u32,
}

impl PacketSpace {
    pub(crate) fn new(ack: AckPolicy) -> Self {
        Self {
            crypto: CryptoStream::default(),
            received: RangeSet::new(MAX_RECEIVED_RANGES),
            ack,
            largest_received_at: Instant::ZERO,
            probes: 0,
            ping: false,
            since_eliciting: 0,
        }
    }
}
