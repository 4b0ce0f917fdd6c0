//! How often the peer is asked to acknowledge (draft-ietf-quic-ack-frequency).
//!
//! The controller says how many ACKs it needs (`AcksNeeded`). A small window needs an ACK for
//! every second packet, or growth stalls; a controller that reacts to marks at a threshold of
//! one packet needs one for every packet. A large window works as well with an ACK for every
//! 32nd part of it, at a fraction of the cost to both ends. In between, a window that grows slowly
//! loses less with an ACK for every fourth packet than with one for every second.
//!
//! On a path with a queue, four ACKs per window are enough. If the ACKs themselves fill a
//! narrow return path, their rate limits the window, and fewer ACKs are the only way to a
//! higher rate. If data fills the queue, fewer ACKs do no harm.

use core::time::Duration;

use clearway_recovery::PathRecovery;
use clearway_recovery::controller::AcksNeeded;
use clearway_recovery::rtt::Rtt;

use super::control::push;
use super::peer_parameters::PeerParameters;
use crate::wire::{Frame, Writer};

/// Quarters of the minimum RTT above which a path counts as having a queue …
const QUEUED_ABOVE: u32 = 8;

/// … and below which it no longer does. The two differ because fewer ACKs shrink their own
/// queue.
const QUEUED_BELOW: u32 = 5;

/// When the peer is asked to acknowledge a packet at once (IMMEDIATE_ACK), whatever else it was
/// asked for. Not sent again if it is lost.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ImmediateAck {
    due: bool,
}

impl ImmediateAck {
    /// Handles a probe timeout: the probes find out what arrived, as soon as possible.
    pub(super) const fn on_pto(&mut self) {
        self.due = true;
    }

    /// Writes the frame if it is due and fits. Returns whether it was written.
    pub(super) fn fill(&mut self, w: &mut Writer<'_>) -> bool {
        let written = self.due && push(w, &Frame::ImmediateAck);
        self.due &= !written;
        written
    }
}

/// Most ack-eliciting packets that may remain without an ACK.
const MAX_THRESHOLD: u64 = 32;

/// Packets that may remain without an ACK where the window does not ask for more or fewer: three,
/// since one in four is acknowledged.
const USUAL_THRESHOLD: u64 = 3;

/// Packets that may remain without an ACK where the extension is not used: one (RFC 9000
/// §13.2.2).
const DEFAULT_THRESHOLD: u64 = 1;

/// The shortest acknowledgment delay that is asked for. A busy server, or one that serves many
/// connections at once, takes some milliseconds for an answer, and an ACK that does not wait for
/// it is a packet of its own.
const LEAST_ACK_DELAY: Duration = Duration::from_millis(5);

/// A request for the peer's acknowledgements (ACK_FREQUENCY).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct AckFrequencyRequest {
    pub(crate) sequence: u64,
    /// Ack-eliciting packets that may remain without an ACK.
    threshold: u8,
    /// Whether the path had a queue.
    queued: bool,
    max_ack_delay: Duration,
    /// Reordering distance at which an ACK is due at once.
    reordering: u8,
}

impl AckFrequencyRequest {
    /// Returns a request whose frame cannot be encoded: its delay exceeds 62 bits.
    #[cfg(test)]
    pub(super) fn without_encoding() -> Self {
        Self {
            sequence: 0,
            threshold: 1,
            queued: false,
            max_ack_delay: Duration::from_micros(u64::MAX),
            reordering: 1,
        }
    }

    pub(crate) fn frame(self) -> Frame<'static> {
        Frame::AckFrequency {
            sequence: self.sequence,
            ack_eliciting_threshold: self.threshold.into(),
            request_max_ack_delay: self.max_ack_delay.as_micros() as u64,
            reordering_threshold: self.reordering.into(),
        }
    }
}

/// Returns whether the RTT indicates a queue of packets or ACKs on the path.
fn is_queued(rtt: &Rtt, before: bool) -> bool {
    let quarters = if before { QUEUED_BELOW } else { QUEUED_ABOVE };
    rtt.min()
        .is_some_and(|least| rtt.smoothed().saturating_mul(4) > least.saturating_mul(quarters))
}

/// Returns how many packets of a window of `packets` may remain without an ACK, if it needs at least
/// `least` ACKs and no more than `most`.
fn packets_without_ack(packets: u64, least: u64, most: u64, queued: bool) -> u64 {
    let bound = AcksNeeded::LEAST_PER_WINDOW;
    let an_ack = |acks: u64| packets.checked_div(acks.max(bound)).unwrap_or(0);
    let threshold = match queued {
        true => an_ack(bound),
        false => USUAL_THRESHOLD.min(an_ack(least)).max(an_ack(most)),
    };
    threshold.clamp(DEFAULT_THRESHOLD, MAX_THRESHOLD)
}

impl AckFrequencyRequest {
    /// Returns the request that follows `last`, if the window of the active `path` has
    /// halved or doubled since then.
    pub(super) fn after(
        last: Option<Self>,
        peer: &PeerParameters,
        path: &PathRecovery,
    ) -> Option<Self> {
        let (min, usual) = (peer.min_ack_delay()?, peer.max_ack_delay());
        let packets = path.window().checked_div(path.mds()).unwrap_or(0);
        let was_queued = last.is_some_and(|request| request.queued);
        let (queued, threshold) = match path.acks_needed() {
            // A controller that keeps the queue short by marks does not fill it with ACKs.
            AcksNeeded::EveryPacket => (false, 0),
            AcksNeeded::PerWindow { least, most } => {
                let queued = is_queued(path.rtt(), was_queued);
                (queued, packets_without_ack(packets, least, most, queued))
            }
        };
        let before = last.map_or(DEFAULT_THRESHOLD, |request| request.threshold.into());
        if threshold == before || threshold / 2 < before && before / 2 < threshold {
            return None;
        }
        // A quarter of the round trip, so that the next window never waits for the ACK of
        // the last packets of this one.
        let quarter = path.rtt().smoothed().checked_div(4).unwrap_or_default();
        Some(Self {
            sequence: last.map_or(0, |request| request.sequence.saturating_add(1)),
            threshold: threshold as u8,
            queued,
            max_ack_delay: quarter.max(LEAST_ACK_DELAY).clamp(min, usual.max(min)),
            reordering: path.packet_threshold().min(3) as u8,
        })
    }

    /// Returns the longest delay of the peer's acknowledgements under this request.
    pub(super) fn longest_ack_delay(&self, peer: &PeerParameters) -> Duration {
        peer.max_ack_delay().max(self.max_ack_delay)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn without_ack(needed: AcksNeeded, packets: u64, queued: bool) -> u64 {
        match needed {
            AcksNeeded::EveryPacket => 0,
            AcksNeeded::PerWindow { least, most } => {
                packets_without_ack(packets, least, most, queued)
            }
        }
    }

    #[test]
    fn window_that_doubles_gets_an_ack_for_each_32nd_part() {
        for (packets, expected) in [(0, 1), (2, 1), (63, 1), (64, 2), (320, 10), (4_000, 32)] {
            let found = without_ack(AcksNeeded::SMOOTH, packets, false);
            assert_eq!(found, expected, "{packets}");
        }
    }

    #[test]
    fn window_that_grows_slowly_gets_an_ack_for_each_fourth_packet() {
        let expected = [
            (2, 1),
            (15, 1),
            (16, 2),
            (24, 3),
            (127, 3),
            (128, 4),
            (320, 10),
            (4_000, 32),
        ];
        for (packets, expected) in expected {
            let found = without_ack(AcksNeeded::STEADY, packets, false);
            assert_eq!(found, expected, "{packets}");
        }
    }

    #[test]
    fn queue_leaves_four_acks_a_window() {
        for needed in [AcksNeeded::SMOOTH, AcksNeeded::STEADY] {
            for (packets, expected) in [(2, 1), (16, 4), (100, 25), (128, 32), (4_000, 32)] {
                assert_eq!(without_ack(needed, packets, true), expected, "{packets}");
            }
        }
    }

    #[test]
    fn no_controller_gets_fewer_than_four_acks_a_window() {
        for least in 0..=4 {
            let needed = AcksNeeded::PerWindow { least, most: 4 };
            assert_eq!(without_ack(needed, 100, false), 25, "{least}");
        }
    }
}
