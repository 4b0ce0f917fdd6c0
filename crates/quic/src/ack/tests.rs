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
fn ack_threshold_of_one_acknowledges_every_packet() {
    let policy = AckPolicy::delayed(DEFAULT_MAX_ACK_DELAY, Duration::ZERO).with_threshold(1);
    assert_eq!(Space::new(policy).acks(&[0, 1, 2]), [0, 1, 2]);
    assert_eq!(Space::data().acks(&[0, 1, 2, 3]), [1, 3]);
}

#[test]
fn every_second_packet_is_acknowledged_by_default() {
    assert_eq!(Space::data().acks(&[0, 1, 2, 3, 4, 5]), [1, 3, 5]);
}

#[test]
fn initial_and_handshake_packets_are_acknowledged_at_once() {
    let mut space = Space::new(AckPolicy::immediate());
    assert!(!space.get(0, false, ReceivedEcn::NotEct));
    assert!(space.data_packet(1));
    assert_eq!(space.policy.next_timeout(), None);
    assert_eq!(space.policy.ack_delay(at(0)), Duration::ZERO);
    // A flight that came before its keys says how long it waited for them.
    assert_eq!(space.policy.ack_delay(at(9)), Duration::from_millis(9));
}

/// Sixty packets of one train: the question is asked once, so is the ACK.
#[test]
fn batch_of_packets_gets_one_ack() {
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
fn ack_that_was_sent_alone_is_repeated_once() {
    let mut space = Space::data();
    space.data_packet(0);
    space.policy.on_ack_sent();
    assert!(!space.policy.is_repeat_wanted());
    space.policy.on_sent_alone();
    assert!(space.policy.is_repeat_wanted());
    assert!(!space.policy.is_wanted() && !space.policy.is_due(at(1_000)));
    space.policy.on_ack_sent();
    assert!(!space.policy.is_repeat_wanted());
}

#[test]
fn single_packet_is_acknowledged_after_max_ack_delay() {
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
fn no_deadline_is_in_the_past() {
    let mut space = Space::data();
    space.data_packet(0);
    space.policy.handle_timeout(at(24));
    assert_eq!(space.policy.next_timeout(), Some(at(25)));
    space.policy.handle_timeout(at(25));
    assert_eq!(space.policy.next_timeout(), None);
    assert!(space.policy.is_due(at(25)));
}

#[test]
fn packets_of_ack_frames_only_are_not_acknowledged() {
    let mut space = Space::data();
    for number in [0, 1, 5, 9] {
        assert!(!space.get(number, false, ReceivedEcn::Ce));
    }
    assert!(!space.policy.is_wanted());
    assert_eq!(space.policy.next_timeout(), None);
}

#[test]
fn gaps_and_late_packets_are_acknowledged_at_once() {
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
fn ce_marks_are_acknowledged_at_once() {
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
fn every_ecn_mark_is_counted() {
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
fn reordering_threshold_follows_the_draft_examples() {
    let mut three = Space::with_frequency(1_000, 3);
    assert_eq!(three.acks(&[0, 1, 3, 4, 5, 8, 9, 10]), [5, 9, 10]);
    let mut five = Space::with_frequency(1_000, 5);
    assert_eq!(five.acks(&[0, 1, 3, 5, 6, 7, 8, 9]), [7, 9]);
    let mut never = Space::with_frequency(1_000, 0);
    assert!(never.acks(&[0, 9, 3, 1, 40]).is_empty());
}

/// A packet the peer has given up arrives: it should learn that.
#[test]
fn packet_older_than_reported_is_acknowledged_at_once() {
    let mut space = Space::with_frequency(1_000, 3);
    assert_eq!(space.acks(&[0, 1, 3, 4, 5, 6, 7]), [5]);
    assert_eq!(space.acks(&[2]), [2]);
}

#[test]
fn ack_frequency_frame_older_than_the_newest_is_ignored() {
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
    assert_eq!(policy.max_delay, Duration::from_millis(40));
    assert_eq!(space.acks(&[0, 1, 2, 3, 4, 5, 6, 7]), [3, 7]);
    // A packet that already waits obeys the new delay.
    space.data_packet(8);
    let sooner = frequency(6, u64::MAX, 10_000, 1);
    assert_eq!(space.policy.on_ack_frequency(sooner), Ok(true));
    assert_eq!(space.policy.next_timeout(), Some(at(10)));
}

#[test]
fn ack_frequency_with_delay_out_of_bounds_is_protocol_violation() {
    let mut policy = AckPolicy::delayed(DEFAULT_MAX_ACK_DELAY, Duration::from_millis(1));
    for delay in [999, 16_384_000, u64::MAX] {
        let error = policy.on_ack_frequency(frequency(0, 1, delay, 1));
        assert_eq!(error.unwrap_err().code, Code::PROTOCOL_VIOLATION);
    }
    let longest = frequency(0, 1, 16_383_999, 1);
    assert_eq!(policy.on_ack_frequency(longest), Ok(true));
}

#[test]
fn immediate_ack_frame_makes_ack_due() {
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
    fn ack_eliciting_packets_always_have_a_timer(
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
