//! When to acknowledge what was received (RFC 9000 §13.2,
//! draft-ietf-quic-ack-frequency). What was received is another matter: the
//! ranges live elsewhere.

use core::time::Duration;

use crate::error::{Code, TransportError};
use crate::path::ecn::EcnCounts;
use crate::time::Instant;

/// Our max_ack_delay unless configured (RFC 9000 §18.2).
pub const DEFAULT_MAX_ACK_DELAY: Duration = Duration::from_millis(25);

/// Ack-eliciting packets that make an ACK due (RFC 9000 §13.2.2).
pub const DEFAULT_ACK_THRESHOLD: u64 = 2;

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
pub struct ReceivedPacket {
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
pub struct AckFrequency {
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
pub struct AckPolicy {
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
    /// Any packet since the last ACK.
    news: bool,
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
    pub fn immediate() -> Self {
        Self {
            always_immediate: true,
            threshold: 1,
            ..Self::delayed(Duration::ZERO, Duration::ZERO)
        }
    }

    /// For the application data space, with the max_ack_delay and the
    /// min_ack_delay that our transport parameters announce.
    #[must_use]
    pub fn delayed(max_ack_delay: Duration, min_ack_delay: Duration) -> Self {
        Self {
            always_immediate: false,
            threshold: DEFAULT_ACK_THRESHOLD,
            max_delay: max_ack_delay,
            min_delay: min_ack_delay,
            reordering_threshold: 1,
            frequency_sequence: None,
            eliciting: 0,
            news: false,
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

    /// A packet was received. `first_missing(n)` answers the lowest number from
    /// `n` on that has not been received, this packet counted as received; it
    /// is asked only after a peer requested a reordering threshold above 1.
    pub fn on_packet(&mut self, packet: ReceivedPacket, first_missing: impl FnOnce(u64) -> u64) {
        self.count(packet.ecn);
        self.news = true;
        let ce_begins = packet.ecn == ReceivedEcn::Ce && !self.previous_ce;
        self.previous_ce = packet.ecn == ReceivedEcn::Ce;

        let expected = self.largest.map_or(0, |(largest, _)| largest + 1);
        self.gap |= packet.number > expected;
        if packet.number >= expected {
            self.largest = Some((packet.number, packet.at));
        }
        if !packet.ack_eliciting {
            return;
        }

        self.eliciting += 1;
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
    pub fn on_immediate_ack(&mut self) {
        self.immediate = true;
    }

    /// An ACK_FREQUENCY frame was received; true if it is newer than the last
    /// and now holds.
    ///
    /// # Errors
    /// PROTOCOL_VIOLATION if the delay is below our min_ack_delay or is 2^14 ms
    /// or more.
    pub fn on_ack_frequency(&mut self, frame: AckFrequency) -> Result<bool, TransportError> {
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
    pub fn is_due(&self, now: Instant) -> bool {
        self.immediate
            || self.eliciting >= self.threshold
            || self.deadline().is_some_and(|deadline| now >= deadline)
    }

    /// Whether an ACK frame should join a packet that is sent for another
    /// reason: an ack-eliciting packet waits (RFC 9000 §13.2.1).
    #[must_use]
    pub fn is_wanted(&self) -> bool {
        self.immediate || self.eliciting > 0
    }

    /// Whether anything has been received since the last ACK, be it only ACKs.
    #[must_use]
    pub fn has_news(&self) -> bool {
        self.news
    }

    /// When an ACK becomes due by time. `None` if nothing waits, and if one is
    /// due already: then it waits for the next transmit, not for a timer.
    #[must_use]
    pub fn next_timeout(&self) -> Option<Instant> {
        if self.immediate || self.eliciting >= self.threshold {
            return None;
        }
        self.deadline()
    }

    /// The timer fired: from now on the ACK is due, and the timer is gone.
    pub fn handle_timeout(&mut self, now: Instant) {
        if self.deadline().is_some_and(|deadline| now >= deadline) {
            self.immediate = true;
        }
    }

    /// An ACK frame with all that was received has left.
    pub fn on_ack_sent(&mut self) {
        self.eliciting = 0;
        self.news = false;
        self.immediate = false;
        self.waiting_since = None;
        self.largest_acked = self.largest.map(|(largest, _)| largest);
    }

    /// For the ACK Delay field: how long the largest packet has been waiting
    /// (RFC 9000 §13.2.5). Zero in the Initial and Handshake spaces.
    #[must_use]
    pub fn ack_delay(&self, now: Instant) -> Duration {
        match self.largest {
            Some((_, at)) if !self.always_immediate => now - at,
            Some(_) | None => Duration::ZERO,
        }
    }

    /// The largest packet number received.
    #[must_use]
    pub fn largest(&self) -> Option<u64> {
        self.largest.map(|(largest, _)| largest)
    }

    /// The counts for the ACK frame; `None` if no mark has ever arrived, then
    /// the frame goes without (RFC 9000 §13.4.1).
    #[must_use]
    pub fn ecn_counts(&self) -> Option<EcnCounts> {
        (self.counts != EcnCounts::default()).then_some(self.counts)
    }

    /// The delay that now holds; the peer's PTO counts on it.
    #[must_use]
    pub fn max_ack_delay(&self) -> Duration {
        self.max_delay
    }

    fn deadline(&self) -> Option<Instant> {
        self.waiting_since.map(|since| since + self.max_delay)
    }

    fn count(&mut self, ecn: ReceivedEcn) {
        match ecn {
            ReceivedEcn::NotEct => {}
            ReceivedEcn::Ect0 => self.counts.ect0 += 1,
            ReceivedEcn::Ect1 => self.counts.ect1 += 1,
            ReceivedEcn::Ce => self.counts.ce += 1,
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
                let missing = first_missing(reported.map_or(0, |r| r + 1));
                largest.saturating_sub(missing) >= threshold
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    fn at(millis: u64) -> Instant {
        Instant::from_nanos(millis * 1_000_000)
    }

    /// A policy with the ranges that the connection would keep.
    struct Space {
        policy: AckPolicy,
        received: BTreeSet<u64>,
    }

    impl Space {
        fn new(policy: AckPolicy) -> Self {
            Self {
                policy,
                received: BTreeSet::new(),
            }
        }

        fn data() -> Self {
            Self::new(AckPolicy::delayed(DEFAULT_MAX_ACK_DELAY, Duration::ZERO))
        }

        fn with_frequency(threshold: u64, reordering: u64) -> Self {
            let mut space = Self::data();
            let frame = frequency(0, threshold, 100_000, reordering);
            assert_eq!(space.policy.on_ack_frequency(frame), Ok(true));
            space
        }

        fn get(&mut self, number: u64, ack_eliciting: bool, ecn: ReceivedEcn) -> bool {
            self.received.insert(number);
            let received = &self.received;
            let packet = ReceivedPacket {
                number,
                ack_eliciting,
                ecn,
                at: at(0),
            };
            self.policy.on_packet(packet, |from| {
                (from..).find(|n| !received.contains(n)).unwrap()
            });
            self.policy.is_due(at(0))
        }

        fn data_packet(&mut self, number: u64) -> bool {
            self.get(number, true, ReceivedEcn::NotEct)
        }

        /// Feeds packets one by one, acknowledging where due; answers those.
        fn acks(&mut self, numbers: &[u64]) -> Vec<u64> {
            let mut acked = Vec::new();
            for &number in numbers {
                if self.data_packet(number) {
                    self.policy.on_ack_sent();
                    acked.push(number);
                }
            }
            acked
        }
    }

    fn frequency(sequence: u64, threshold: u64, delay: u64, reordering: u64) -> AckFrequency {
        AckFrequency {
            sequence,
            ack_eliciting_threshold: threshold,
            max_ack_delay_us: delay,
            reordering_threshold: reordering,
        }
    }

    #[test]
    fn every_second_packet() {
        assert_eq!(Space::data().acks(&[0, 1, 2, 3, 4, 5]), [1, 3, 5]);
    }

    #[test]
    fn initial_and_handshake_at_once() {
        let mut space = Space::new(AckPolicy::immediate());
        assert!(!space.get(0, false, ReceivedEcn::NotEct));
        assert!(space.data_packet(1));
        assert_eq!(space.policy.next_timeout(), None);
        assert_eq!(space.policy.ack_delay(at(9)), Duration::ZERO);
    }

    /// Sixty packets of one train: the question is asked once, so is the ACK.
    #[test]
    fn a_batch_costs_one_ack() {
        let mut space = Space::data();
        for number in 0..60 {
            space.data_packet(number);
        }
        assert!(space.policy.is_due(at(0)));
        space.policy.on_ack_sent();
        assert!(!space.policy.is_due(at(1_000)));
        assert!(!space.policy.is_wanted());
        assert_eq!(space.policy.next_timeout(), None);
    }

    #[test]
    fn a_single_packet_waits_max_ack_delay() {
        let mut space = Space::data();
        assert!(!space.data_packet(0));
        assert!(space.policy.is_wanted());
        assert_eq!(space.policy.next_timeout(), Some(at(25)));
        assert!(!space.policy.is_due(at(24)));
        assert!(space.policy.is_due(at(25)));
        assert_eq!(space.policy.ack_delay(at(25)), Duration::from_millis(25));
    }

    /// Trap: a deadline in the past returned repeatedly is a busy loop.
    #[test]
    fn timers_trap_no_deadline_in_the_past() {
        let mut space = Space::data();
        space.data_packet(0);
        space.policy.handle_timeout(at(24));
        assert_eq!(space.policy.next_timeout(), Some(at(25)));
        space.policy.handle_timeout(at(25));
        assert_eq!(space.policy.next_timeout(), None);
        assert!(space.policy.is_due(at(25)));
    }

    #[test]
    fn acknowledgments_are_not_acknowledged() {
        let mut space = Space::data();
        for number in [0, 1, 5, 9] {
            assert!(!space.get(number, false, ReceivedEcn::Ce));
        }
        assert!(space.policy.has_news());
        assert!(!space.policy.is_wanted());
        assert_eq!(space.policy.next_timeout(), None);
    }

    #[test]
    fn gaps_and_late_packets_at_once() {
        assert_eq!(Space::data().acks(&[0, 1, 3, 2, 4]), [1, 3, 2]);
        // A gap that an acknowledgment revealed counts at the next data.
        let mut space = Space::data();
        assert!(!space.data_packet(0));
        space.policy.on_ack_sent();
        assert!(!space.get(2, false, ReceivedEcn::NotEct));
        assert!(space.data_packet(3));
        space.policy.on_ack_sent();
        assert!(!space.data_packet(4), "told once");
        // Skipped acknowledgments alone are not a gap.
        let mut space = Space::data();
        space.acks(&[0, 1]);
        space.get(2, false, ReceivedEcn::NotEct);
        assert!(!space.data_packet(3));
    }

    #[test]
    fn congestion_marks_at_once() {
        let mut space = Space::data();
        assert!(space.get(0, true, ReceivedEcn::Ce));
        space.policy.on_ack_sent();
        assert!(space.get(1, true, ReceivedEcn::Ce));
        // With fewer ACKs requested, only where a run begins.
        let mut space = Space::with_frequency(20, 1);
        assert!(!space.get(0, true, ReceivedEcn::Ect0));
        assert!(space.get(1, true, ReceivedEcn::Ce));
        space.policy.on_ack_sent();
        assert!(!space.get(2, true, ReceivedEcn::Ce));
        assert!(!space.get(3, true, ReceivedEcn::Ect0));
        assert!(space.get(4, true, ReceivedEcn::Ce));
    }

    #[test]
    fn counts_every_mark() {
        use ReceivedEcn::{Ce, Ect0, Ect1, NotEct};
        let mut space = Space::data();
        space.get(0, true, NotEct);
        assert_eq!(space.policy.ecn_counts(), None);
        for (number, ecn) in [(1, Ect0), (2, Ect1), (3, Ce), (4, Ect0)] {
            space.get(number, false, ecn);
        }
        let counts = EcnCounts {
            ect0: 2,
            ect1: 1,
            ce: 1,
        };
        assert_eq!(space.policy.ecn_counts(), Some(counts));
    }

    /// The examples of the draft, §6.2.1.
    #[test]
    fn reordering_threshold_examples() {
        let mut three = Space::with_frequency(1_000, 3);
        assert_eq!(three.acks(&[0, 1, 3, 4, 5, 8, 9, 10]), [5, 9, 10]);
        let mut five = Space::with_frequency(1_000, 5);
        assert_eq!(five.acks(&[0, 1, 3, 5, 6, 7, 8, 9]), [7, 9]);
        let mut never = Space::with_frequency(1_000, 0);
        assert!(never.acks(&[0, 9, 3, 1, 40]).is_empty());
    }

    /// A packet the peer has given up arrives: it should learn that.
    #[test]
    fn a_spuriously_lost_packet_at_once() {
        let mut space = Space::with_frequency(1_000, 3);
        assert_eq!(space.acks(&[0, 1, 3, 4, 5, 6, 7]), [5]);
        assert_eq!(space.acks(&[2]), [2]);
    }

    #[test]
    fn ack_frequency_is_obeyed_newest_first() {
        let mut space = Space::data();
        let policy = &mut space.policy;
        assert_eq!(
            policy.on_ack_frequency(frequency(5, 3, 40_000, 1)),
            Ok(true)
        );
        assert_eq!(
            policy.on_ack_frequency(frequency(5, 0, 1_000, 1)),
            Ok(false)
        );
        assert_eq!(
            policy.on_ack_frequency(frequency(4, 0, 1_000, 1)),
            Ok(false)
        );
        assert_eq!(policy.max_ack_delay(), Duration::from_millis(40));
        assert_eq!(space.acks(&[0, 1, 2, 3, 4, 5, 6, 7]), [3, 7]);
        // A packet that already waits obeys the new delay.
        space.data_packet(8);
        let sooner = frequency(6, u64::MAX, 10_000, 1);
        assert_eq!(space.policy.on_ack_frequency(sooner), Ok(true));
        assert_eq!(space.policy.next_timeout(), Some(at(10)));
    }

    #[test]
    fn impossible_delays_are_a_violation() {
        let mut policy = AckPolicy::delayed(DEFAULT_MAX_ACK_DELAY, Duration::from_millis(1));
        for delay in [999, 16_384_000, u64::MAX] {
            let error = policy.on_ack_frequency(frequency(0, 1, delay, 1));
            assert_eq!(error.unwrap_err().code, Code::PROTOCOL_VIOLATION);
        }
        let longest = frequency(0, 1, 16_383_999, 1);
        assert_eq!(policy.on_ack_frequency(longest), Ok(true));
    }

    #[test]
    fn immediate_ack_is_immediate() {
        let mut space = Space::with_frequency(1_000, 0);
        space.data_packet(0);
        space.policy.on_immediate_ack();
        assert!(space.policy.is_due(at(0)));
        space.policy.on_ack_sent();
        assert!(!space.policy.is_due(at(0)));
    }

    proptest! {
        /// Trap: data unacknowledged and no timer is silence. Whatever arrives:
        /// an ack-eliciting packet waits only with an ACK due or a timer.
        #[test]
        fn timers_trap_eliciting_packets_never_wait_without_a_timer(
            steps in proptest::collection::vec((0..50_u64, any::<bool>(), 0..4_u8), 0..100),
            threshold in 0..5_u64,
            reordering in 0..5_u64,
        ) {
            let mut space = Space::with_frequency(threshold, reordering);
            for (number, ack_eliciting, action) in steps {
                if space.received.contains(&number) {
                    continue;
                }
                let due = space.get(number, ack_eliciting, ReceivedEcn::NotEct);
                let timer = space.policy.next_timeout();
                prop_assert_eq!(space.policy.is_wanted(), due || timer.is_some());
                prop_assert!(!(due && timer.is_some()));
                if action == 0 {
                    space.policy.on_ack_sent();
                    prop_assert!(!space.policy.is_due(at(99_999)));
                }
            }
        }
    }
}
