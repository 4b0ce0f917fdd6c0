//! When to acknowledge what was received (RFC 9000 §13.2,
//! draft-ietf-quic-ack-frequency). What was received is another matter: the
//! ranges live elsewhere.

use core::time::Duration;

use crate::count::Count;
use crate::error::{Code, TransportError};
use crate::path::ecn::EcnCounts;
use crate::time::Instant;

/// Our max_ack_delay unless configured (RFC 9000 §18.2).
pub(crate) const DEFAULT_MAX_ACK_DELAY: Duration = Duration::from_millis(25);

/// Ack-eliciting packets that make an ACK due (RFC 9000 §13.2.2).
pub(crate) const DEFAULT_ACK_THRESHOLD: u64 = 2;

/// A requested delay from here on is invalid (RFC 9000 §18.2).
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

/// A packet that was decrypted and is no duplicate.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReceivedPacket {
    /// Its packet number.
    pub number: u64,
    /// Whether it holds a frame other than ACK, PADDING and CONNECTION_CLOSE
    /// (RFC 9002 §2).
    pub ack_eliciting: bool,
    /// The ECN field of its datagram.
    pub ecn: ReceivedEcn,
    /// When its datagram arrived.
    pub at: Instant,
}

/// An ACK_FREQUENCY frame (draft-ietf-quic-ack-frequency, type 0xaf).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct AckFrequency {
    /// Frames whose number is not above the highest so far are ignored.
    pub sequence: u64,
    /// Ack-eliciting packets that may go without an ACK.
    pub ack_eliciting_threshold: u64,
    /// Requested max_ack_delay in microseconds.
    pub max_ack_delay_us: u64,
    /// Distance at which a missing packet asks for an ACK at once; 0 never.
    pub reordering_threshold: u64,
}

/// The acknowledgment policy of one packet number space.
///
/// The decision is taken once per batch: tell [`AckPolicy::on_packet`] of all
/// packets that one receive call brought, then ask [`AckPolicy::is_due`]. A
/// train of 60 packets so costs one ACK frame, not thirty
/// (RFC 9000 §13.2.1; draft §6.4).
#[derive(Clone, Debug)]
pub(crate) struct AckPolicy {
    /// Initial and Handshake packets are never delayed (RFC 9000 §13.2.1).
    always_immediate: bool,
    /// Ack-eliciting packets that make an ACK due, at least 1.
    threshold: u64,
    max_delay: Duration,
    /// Least delay we told the peer it may request (min_ack_delay).
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
    /// A number was skipped since the largest ack-eliciting packet.
    gap: bool,
    previous_ce: bool,
    counts: EcnCounts,
}

impl AckPolicy {
    /// For the Initial or the Handshake space: at once, always.
    #[must_use]
    pub(crate) fn immediate() -> Self {
        Self {
            always_immediate: true,
            threshold: 1,
            ..Self::delayed(Duration::ZERO, Duration::ZERO)
        }
    }

    /// For the application data space, with the max_ack_delay and the
    /// min_ack_delay that our transport parameters announce.
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
            gap: false,
            previous_ce: false,
            counts: EcnCounts::default(),
        }
    }

    /// The same with another number of ack-eliciting packets that make an ACK
    /// due; at least 1.
    #[must_use]
    pub(crate) fn with_threshold(mut self, packets: u64) -> Self {
        self.threshold = packets.max(1);
        self
    }

    /// A packet was received. `first_missing(n)` answers the lowest number from
    /// `n` on that has not been received, this packet counted as received; it
    /// is asked only after a peer requested a reordering threshold above 1.
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

    /// An IMMEDIATE_ACK frame was received.
    pub(crate) fn on_immediate_ack(&mut self) {
        self.immediate = true;
    }

    /// An ACK_FREQUENCY frame was received; true if it is newer than the last
    /// and now holds.
    ///
    /// # Errors
    /// PROTOCOL_VIOLATION if the delay is below our min_ack_delay or is 2^14 ms
    /// or more.
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
        // The frame counts packets that may wait, we the one that may not.
        self.threshold = frame.ack_eliciting_threshold.saturating_add(1);
        self.max_delay = delay;
        self.reordering_threshold = frame.reordering_threshold;
        Ok(true)
    }

    /// Whether an ACK frame has to be sent now, alone if need be. ACKs are
    /// neither paced nor congestion controlled.
    #[must_use]
    pub(crate) fn is_due(&self, now: Instant) -> bool {
        self.immediate
            || self.eliciting >= self.threshold
            || self.deadline().is_some_and(|deadline| now >= deadline)
    }

    /// Whether an ACK frame should join a packet that is sent for another
    /// reason: an ack-eliciting packet waits (RFC 9000 §13.2.1).
    #[must_use]
    pub(crate) fn is_wanted(&self) -> bool {
        self.immediate || self.eliciting > 0
    }

    /// When an ACK becomes due by time. `None` if nothing waits, and if one is
    /// due already: then it waits for the next transmit, not for a timer.
    #[must_use]
    pub(crate) fn next_timeout(&self) -> Option<Instant> {
        if self.immediate || self.eliciting >= self.threshold {
            return None;
        }
        self.deadline()
    }

    /// The timer fired: from now on the ACK is due, and the timer is gone.
    pub(crate) fn handle_timeout(&mut self, now: Instant) {
        if self.deadline().is_some_and(|deadline| now >= deadline) {
            self.immediate = true;
        }
    }

    /// An ACK frame with all that was received has left.
    pub(crate) fn on_ack_sent(&mut self) {
        self.eliciting = 0;
        self.immediate = false;
        self.waiting_since = None;
        self.largest_acked = self.largest.map(|(largest, _)| largest);
    }

    /// For the ACK Delay field: how long the largest packet has been waiting,
    /// for its keys too (RFC 9000 §13.2.5). Initial and Handshake packets are
    /// acknowledged at once, but a flight may arrive before its keys.
    #[must_use]
    pub(crate) fn ack_delay(&self, now: Instant) -> Duration {
        self.largest.map_or(Duration::ZERO, |(_, at)| now - at)
    }

    /// The counts for the ACK frame; `None` if no mark has ever arrived, then
    /// the frame goes without (RFC 9000 §13.4.1).
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

    /// By default every CE; where the peer asked for fewer ACKs, the first of a
    /// run (draft §6.3).
    fn ce_is_urgent(&self, ecn: ReceivedEcn, begins: bool) -> bool {
        if self.threshold > DEFAULT_ACK_THRESHOLD {
            begins
        } else {
            ecn == ReceivedEcn::Ce
        }
    }

    /// Whether the ack-eliciting packet `number` reveals a loss or a spurious
    /// one that the peer can act upon (RFC 9000 §13.2.1; draft §6.2).
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
#[path = "ack_tests.rs"]
mod tests;
