//! The effects of an event on the packets sent.

use core::fmt;

use crate::controller::SendIndex;
use crate::path::PathId;
use crate::space::Space;
use crate::time::Instant;

/// A packet that has been acknowledged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Acked<F> {
    /// Its packet number space.
    pub space: Space,
    /// Its number.
    pub number: u64,
    /// The path it was sent on.
    pub path: PathId,
    /// Its size in bytes.
    pub size: u16,
    /// When it was sent.
    pub sent: Instant,
    /// What the connection stored with it.
    pub content: F,
}

/// Why a packet was declared lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LossCause {
    /// Enough later packets have been acknowledged (RFC 9002 §6.1.1).
    PacketThreshold,
    /// A later packet has been acknowledged and it is old (RFC 9002 §6.1.2).
    TimeThreshold,
    /// Its path was removed. No congestion signal.
    PathRemoved,
    /// The server did not accept it: it sent a Retry or rejected 0-RTT. No congestion
    /// signal.
    NotAccepted,
}

/// A packet whose content has to be sent again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lost<F> {
    /// Its packet number space.
    pub space: Space,
    /// Its number.
    pub number: u64,
    /// The path it was sent on.
    pub path: PathId,
    /// Its size in bytes.
    pub size: u16,
    /// When it was sent.
    pub sent: Instant,
    /// Whether it probed the path MTU.
    pub mtu_probe: bool,
    /// Whether it was sent with an ECT codepoint.
    pub ect: bool,
    /// Why it was declared lost.
    pub cause: LossCause,
    /// What the connection stored with it.
    pub content: F,
}

/// The newest packet that an ACK frame newly acknowledged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LargestAcked {
    /// Its number.
    pub number: u64,
    /// The path it was sent on.
    pub path: PathId,
    /// Its position in that path's send order.
    pub index: SendIndex,
    /// When it was sent.
    pub sent: Instant,
    /// Whether it was sent with an ECT codepoint.
    pub ect: bool,
}

/// A summary of the packets that an ACK frame newly acknowledged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NewlyAcked {
    /// The newest packet; `None` if the frame acknowledged nothing new.
    pub largest: Option<LargestAcked>,
    /// Whether any packet was ack-eliciting.
    pub ack_eliciting: bool,
    /// How many packets were sent with an ECT codepoint (RFC 9000 §13.4.2.1).
    pub ect: u64,
    /// Whether one was a path MTU probe.
    pub mtu_probe: bool,
}

/// The effects of an event on the packets sent. Keep one and [`clear`](Self::clear) it
/// before each call, so that its memory is reused.
#[derive(Debug)]
pub struct Outcome<F> {
    /// Newly acknowledged, range by range in the frame's order.
    pub acked: Vec<Acked<F>>,
    /// To be sent again, oldest first within a space.
    pub lost: Vec<Lost<F>>,
    /// The summary of `acked`.
    pub newly_acked: NewlyAcked,
    /// The path that got an RTT sample.
    pub rtt_updated: Option<PathId>,
    /// A probe timeout expired: send up to two ack-eliciting packets in this space, even if
    /// the gate is closed (RFC 9002 §6.2.4).
    pub pto: Option<Space>,
    /// Paths found in persistent congestion (RFC 9002 §7.6).
    pub persistent_congestion: Vec<PathId>,
    /// Packets acknowledged that had been declared lost.
    pub spurious: u64,
    /// Congestion events that were undone, because all their losses were spurious.
    pub undone: u64,
}

impl<F> Default for Outcome<F> {
    fn default() -> Self {
        Self {
            acked: Vec::new(),
            lost: Vec::new(),
            newly_acked: NewlyAcked::default(),
            rtt_updated: None,
            pto: None,
            persistent_congestion: Vec::new(),
            spurious: 0,
            undone: 0,
        }
    }
}

impl<F> Outcome<F> {
    /// Creates an empty outcome.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns the bytes allocated, which are kept for the next event.
    #[must_use]
    pub fn memory(&self) -> usize {
        self.acked.capacity() * size_of::<Acked<F>>()
            + self.lost.capacity() * size_of::<Lost<F>>()
            + self.persistent_congestion.capacity() * size_of::<PathId>()
    }

    /// Empties it, keeping its memory.
    pub fn clear(&mut self) {
        let Self {
            acked,
            lost,
            newly_acked,
            rtt_updated,
            pto,
            persistent_congestion,
            spurious,
            undone,
        } = self;
        acked.clear();
        lost.clear();
        *newly_acked = NewlyAcked::default();
        *rtt_updated = None;
        *pto = None;
        persistent_congestion.clear();
        *spurious = 0;
        *undone = 0;
    }
}

/// An ACK frame acknowledged a packet that was never sent. The connection has to be closed
/// with PROTOCOL_VIOLATION (RFC 9000 §13.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AckError {
    /// The number is larger than that of the last packet sent.
    NeverSent {
        /// The packet number.
        number: u64,
    },
    /// The number was skipped, to detect peers that acknowledge packets they have not
    /// received (RFC 9000 §21.4).
    Skipped {
        /// The packet number.
        number: u64,
    },
}

impl fmt::Display for AckError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NeverSent { number } => {
                write!(f, "ACK of packet {number}, which was not sent yet")
            }
            Self::Skipped { number } => {
                write!(f, "ACK of packet {number}, which was deliberately not sent")
            }
        }
    }
}

impl std::error::Error for AckError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_the_sum_of_the_three_lists() {
        let mut acked = Outcome::<()>::new();
        assert_eq!(acked.memory(), 0);
        acked.acked.reserve_exact(10);
        let mut lost = Outcome::<()>::new();
        lost.lost.reserve_exact(20);
        let mut paths = Outcome::<()>::new();
        paths.persistent_congestion.reserve_exact(30);
        let parts = [acked.memory(), lost.memory(), paths.memory()];
        let of = [
            10 * size_of::<Acked<()>>(),
            20 * size_of::<Lost<()>>(),
            30 * size_of::<PathId>(),
        ];
        assert_eq!(parts, of);
        let all = Outcome {
            lost: lost.lost,
            persistent_congestion: paths.persistent_congestion,
            ..acked
        };
        assert_eq!(all.memory(), of.iter().sum());
    }

    #[test]
    fn ack_error_names_the_packet() {
        let text = AckError::Skipped { number: 17 }.to_string();
        assert!(text.contains("17"), "{text}");
        let text = AckError::NeverSent { number: 18 }.to_string();
        assert!(text.contains("18"), "{text}");
    }
}
