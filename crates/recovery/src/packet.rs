//! What is kept of a sent packet until it is acknowledged or lost.

use crate::controller::SendIndex;
use crate::path::PathId;
use crate::rate;
use crate::space::Space;
use crate::time::Instant;

/// A packet that is sent now.
#[derive(Clone, Copy, Debug)]
pub struct SentInfo {
    /// Its packet number space.
    pub space: Space,
    /// The path it is sent on.
    pub path: PathId,
    /// Its number, as returned by `Recovery::next_number`.
    pub number: u64,
    /// When it is sent.
    pub now: Instant,
    /// Its size in bytes, as counted in flight: UDP payload, in a coalesced datagram only
    /// the bytes of this packet.
    pub size: u16,
    /// Whether it holds a frame that elicits an acknowledgment.
    pub ack_eliciting: bool,
    /// Whether it counts in flight: ack-eliciting, or padded (RFC 9002 §2).
    pub in_flight: bool,
    /// Whether it probes the path MTU: its loss is no congestion signal
    /// (RFC 9000 §14.4).
    pub mtu_probe: bool,
    /// Whether it is sent with an ECT codepoint.
    pub ect: bool,
}

/// A sent packet that is neither acknowledged nor lost yet.
#[derive(Debug)]
pub(crate) struct Packet<F> {
    pub(crate) path: PathId,
    pub(crate) index: SendIndex,
    pub(crate) time: Instant,
    pub(crate) size: u16,
    pub(crate) ack_eliciting: bool,
    pub(crate) in_flight: bool,
    pub(crate) mtu_probe: bool,
    pub(crate) ect: bool,
    pub(crate) rate: rate::PacketState,
    pub(crate) content: F,
}

impl<F> Packet<F> {
    pub(crate) fn bytes(&self) -> u64 {
        u64::from(self.size)
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// An ordinary packet.
    pub(crate) fn packet() -> Packet<()> {
        Packet {
            path: PathId(0),
            index: 0,
            time: Instant::ZERO,
            size: 1200,
            ack_eliciting: true,
            in_flight: true,
            mtu_probe: false,
            ect: false,
            rate: rate::PacketState::default(),
            content: (),
        }
    }
}
