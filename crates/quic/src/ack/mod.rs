//! When to send acknowledgements (RFC 9000 §13.2, draft-ietf-quic-ack-frequency). Which
//! packets were received is recorded elsewhere.

use core::time::Duration;

use crate::count::Count;
use crate::error::{Code, TransportError};
use crate::path::ecn::EcnCounts;
use crate::time::Instant;

/// Default max_ack_delay (RFC 9000 §18.2).
pub(crate) const DEFAULT_MAX_ACK_DELAY: Duration = Duration::from_millis(25);

/// Default number of ack-eliciting packets after which an ACK is due (RFC 9000 §13.2.2).
pub(crate) const DEFAULT_ACK_THRESHOLD: u64 = 2;

/// Requested delays of this length or more are invalid (RFC 9000 §18.2).
const INVALID_ACK_DELAY: Duration = Duration::from_millis(1 << 14);

/// The ECN field of a received IP packet (RFC 3168 §5).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ReceivedEcn {
    /// Not ECN-capable, or unknown.
    #[default]
    NotEct,
    /// ECT(0).
    Ect0,
    /// ECT(1).
    Ect1,
    /// Congestion experienced.
    Ce,
}

/// An authentic packet that is not a duplicate.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReceivedPacket {
    /// Its packet number.
    pub number: u64,
    /// Whether it contains a frame other than ACK, PADDING and CONNECTION_CLOSE (RFC 9002
    /// §2).
    pub ack_eliciting: bool,
    /// The ECN field of its datagram.
    pub ecn: ReceivedEcn,
    /// When its datagram arrived.
    pub at: Instant,
}

/// An ACK_FREQUENCY frame (draft-ietf-quic-ack-frequency, type 0xaf).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct AckFrequency {
    /// Frames whose sequence number is not higher than all before are ignored.
    pub sequence: u64,
    /// Ack-eliciting packets that may remain without an ACK.
    pub ack_eliciting_threshold: u64,
    /// Requested max_ack_delay in microseconds.
    pub max_ack_delay_us: u64,
    /// Reordering distance at which a missing packet makes an ACK due at once; 0 = never.
    pub reordering_threshold: u64,
}

/// The acknowledgment policy of one packet number space.
///
/// The decision is made once per batch: call [`AckPolicy::on_packet`] for all packets of
/// one receive call, then [`AckPolicy::is_due`]. A train of 60 packets then costs one ACK
/// frame instead of thirty (RFC 9000 §13.2.1; draft §6.4).
#[derive(Clone, Debug)]
pub(crate) struct AckPolicy {
    /// Initial and Handshake packets are never delayed (RFC 9000 §13.2.1).
    always_immediate: bool,
    /// Ack-eliciting packets after which an ACK is due, at least 1.
    threshold: u64,
    max_delay: Duration,
    /// Shortest delay that the peer may request (our min_ack_delay).
    min_delay: Duration,
    reordering_threshold: u64,
    frequency_sequence: Option<u64>,

    /// Ack-eliciting packets since the last ACK.
    eliciting: u64,
    immediate: bool,
    /// Arrival of the first ack-eliciting packet since the last ACK.
    waiting_since: Option<Instant>,
    largest: Option<(u64, Instant)>,
    largest_eliciting: Option<u64>,
    largest_acked: Option<u64>,
    /// The last ACK frame with news was in a packet that the peer does not acknowledge.
    sent_alone: bool,
    /// A packet number is missing since the largest ack-eliciting packet.
    gap: bool,
    previous_ce: bool,
    counts: EcnCounts,
}

impl AckPolicy {
    /// Creates the policy of the Initial or Handshake space, where every ack-eliciting
    /// packet is acknowledged at once.
    #[must_use]
    pub(crate) fn immediate() -> Self {
        Self {
            always_immediate: true,
            threshold: 1,
            ..Self::delayed(Duration::ZERO, Duration::ZERO)
        }
    }

    /// Creates the policy of the application data space, with the max_ack_delay and
    /// min_ack_delay of our transport parameters.
    #[must_use]
    pub(crate) fn delayed(max_ack_delay: Duration, min_ack_delay: Duration) -> Self {
        Self {
            always_immediate: false,
            threshold: DEFAULT_ACK_THRESHOLD,
            max_delay: max_ack_delay,
            min_delay: min_ack_delay,
            reordering_threshold: 1,
            frequency_sequence: None,
            eliciting: 0,
            immediate: false,
            waiting_since: None,
            largest: None,
            largest_eliciting: None,
            largest_acked: None,
            sent_alone: false,
            gap: false,
            previous_ce: false,
            counts: EcnCounts::default(),
        }
    }

    /// Sets the number of ack-eliciting packets after which an ACK is due; at least 1.
    #[must_use]
    pub(crate) fn with_threshold(mut self, packets: u64) -> Self {
        self.threshold = packets.max(1);
        self
    }

    /// Handles a received packet. `first_missing(n)` returns the lowest number from `n` on
    /// that has not been received, counting this packet as received. It is called only if
    /// the peer requested a reordering threshold above 1.
    pub(crate) fn on_packet(
        &mut self,
        packet: ReceivedPacket,
        first_missing: impl FnOnce(u64) -> u64,
    ) {
        self.count(packet.ecn);
        let ce_begins = packet.ecn == ReceivedEcn::Ce && !self.previous_ce;
        self.previous_ce = packet.ecn == ReceivedEcn::Ce;

        let expected = self
            .largest
            .map_or(0, |(largest, _)| largest.saturating_add(1));
        self.gap |= packet.number > expected;
        if packet.number >= expected {
            self.largest = Some((packet.number, packet.at));
        }
        if !packet.ack_eliciting {
            return;
        }

        self.eliciting.count_one();
        self.waiting_since.get_or_insert(packet.at);
        self.immediate |= self.always_immediate
            || self.ce_is_urgent(packet.ecn, ce_begins)
            || self.reordering_is_urgent(packet.number, first_missing);
        if self.largest_eliciting.is_none_or(|l| packet.number > l) {
            self.largest_eliciting = Some(packet.number);
            self.gap = false;
        }
    }

    /// Handles an IMMEDIATE_ACK frame.
    pub(crate) fn on_immediate_ack(&mut self) {
        self.immediate = true;
    }

    /// Handles an ACK_FREQUENCY frame. Returns whether it is newer than the last one and
    /// now applies.
    ///
    /// # Errors
    /// PROTOCOL_VIOLATION if the delay is shorter than our min_ack_delay, or is 2^14 ms or
    /// more.
    pub(crate) fn on_ack_frequency(&mut self, frame: AckFrequency) -> Result<bool, TransportError> {
        let delay = Duration::from_micros(frame.max_ack_delay_us);
        if delay < self.min_delay || delay >= INVALID_ACK_DELAY {
            return Err(TransportError::new(
                Code::PROTOCOL_VIOLATION,
                "ACK_FREQUENCY requests an acknowledgment delay out of bounds",
            ));
        }
        if self.frequency_sequence.is_some_and(|s| frame.sequence <= s) {
            return Ok(false);
        }
        self.frequency_sequence = Some(frame.sequence);
        // The frame counts the packets that may wait, `threshold` includes the one that may
        // not.
        self.threshold = frame.ack_eliciting_threshold.saturating_add(1);
        self.max_delay = delay;
        self.reordering_threshold = frame.reordering_threshold;
        Ok(true)
    }

    /// Returns whether an ACK frame must be sent now, in a packet of its own if necessary.
    /// ACKs are neither paced nor congestion controlled.
    #[must_use]
    pub(crate) fn is_due(&self, now: Instant) -> bool {
        self.immediate
            || self.eliciting >= self.threshold
            || self.deadline().is_some_and(|deadline| now >= deadline)
    }

    /// Returns whether an ACK frame should be added to a packet that is sent for another
    /// reason: an ack-eliciting packet is waiting for it (RFC 9000 §13.2.1).
    #[must_use]
    pub(crate) fn is_wanted(&self) -> bool {
        self.immediate || self.eliciting > 0
    }

    /// Returns when an ACK becomes due by time. `None` if none is needed, or if one is due
    /// already: that waits for the next transmit, not for a timer.
    #[must_use]
    pub(crate) fn next_timeout(&self) -> Option<Instant> {
        if self.immediate || self.eliciting >= self.threshold {
            return None;
        }
        self.deadline()
    }

    /// Makes the ACK due if its time has come, which also clears the timer.
    pub(crate) fn handle_timeout(&mut self, now: Instant) {
        if self.deadline().is_some_and(|deadline| now >= deadline) {
            self.immediate = true;
        }
    }

    /// Records that an ACK frame with everything received was sent.
    pub(crate) fn on_ack_sent(&mut self) {
        self.eliciting = 0;
        self.immediate = false;
        self.waiting_since = None;
        self.sent_alone = false;
        self.largest_acked = self.largest.map(|(largest, _)| largest);
    }

    /// Records that the ACK frame was in a packet with nothing that elicits an ACK, so that its loss will
    /// not be noticed.
    pub(crate) fn on_sent_alone(&mut self) {
        self.sent_alone = true;
    }

    /// Returns whether the next packet, if one is sent for another reason, should repeat the last ACK
    /// frame. Without that a path that drops a small packet where another one follows, as modems thin
    /// the acknowledgments of TCP, takes away each ACK that a packet with credit follows, and the peer
    /// waits for its probe timeout.
    #[must_use]
    pub(crate) fn is_repeat_wanted(&self) -> bool {
        self.sent_alone
    }

    /// Returns the value of the ACK Delay field: how long the largest packet has been
    /// waiting, including for its keys (RFC 9000 §13.2.5). Initial and Handshake packets
    /// are acknowledged at once, but may arrive before their keys.
    #[must_use]
    pub(crate) fn ack_delay(&self, now: Instant) -> Duration {
        self.largest.map_or(Duration::ZERO, |(_, at)| now - at)
    }

    /// Returns the ECN counts for the ACK frame; `None` if no mark ever arrived, then the
    /// frame has none (RFC 9000 §13.4.1).
    #[must_use]
    pub(crate) fn ecn_counts(&self) -> Option<EcnCounts> {
        (self.counts != EcnCounts::default()).then_some(self.counts)
    }

    fn deadline(&self) -> Option<Instant> {
        self.waiting_since.map(|since| since + self.max_delay)
    }

    fn count(&mut self, ecn: ReceivedEcn) {
        match ecn {
            ReceivedEcn::NotEct => {}
            ReceivedEcn::Ect0 => self.counts.ect0.count_one(),
            ReceivedEcn::Ect1 => self.counts.ect1.count_one(),
            ReceivedEcn::Ce => self.counts.ce.count_one(),
        }
    }

    /// Returns whether a CE mark makes an ACK due: every mark by default; only the first of
    /// a run if the peer asked for fewer ACKs (draft §6.3).
    fn ce_is_urgent(&self, ecn: ReceivedEcn, begins: bool) -> bool {
        if self.threshold > DEFAULT_ACK_THRESHOLD {
            begins
        } else {
            ecn == ReceivedEcn::Ce
        }
    }

    /// Returns whether the ack-eliciting packet `number` reveals a loss, or a spurious one,
    /// that the peer can act upon (RFC 9000 §13.2.1; draft §6.2).
    fn reordering_is_urgent(&self, number: u64, first_missing: impl FnOnce(u64) -> u64) -> bool {
        match self.reordering_threshold {
            0 => false,
            1 => self.gap || self.largest_eliciting.is_some_and(|l| number < l),
            threshold => {
                let reported = self.largest_acked.and_then(|l| l.checked_sub(threshold));
                if reported.is_some_and(|reported| number <= reported) {
                    return true;
                }
                let largest = self.largest_eliciting.map_or(number, |l| l.max(number));
                let missing = first_missing(reported.map_or(0, |r| r.saturating_add(1)));
                largest.saturating_sub(missing) >= threshold
            }
        }
    }
}

#[cfg(test)]
mod tests;
