//! Persistent congestion (RFC 9002 §7.6): all packets sent over three PTOs were lost.
//!
//! No packet sent between the first and the last of these losses may have been
//! acknowledged, in any packet number space. A path's send order covers all spaces, so it
//! is enough to know which ranges of it have been acknowledged.

use core::time::Duration;
use std::collections::VecDeque;

use crate::controller::SendIndex;
use crate::time::Instant;

/// Limit of acknowledged ranges that are kept. Everything before the oldest one counts as
/// acknowledged, which never leads to persistent congestion by mistake.
const MAX_RANGES: usize = 32;

/// The acknowledged ranges of a path's send order.
#[derive(Clone, Debug, Default)]
struct AckedRanges {
    /// First and last index of each range: ascending, disjoint, not adjacent.
    ranges: VecDeque<(SendIndex, SendIndex)>,
    /// Before this index it is no longer known what was acknowledged.
    known_from: SendIndex,
}

impl AckedRanges {
    fn insert(&mut self, index: SendIndex) {
        // As a rule packets are acknowledged in the order in which they were sent.
        if let Some((_, to)) = self.ranges.back_mut()
            && *to + 1 == index
        {
            *to = index;
            return;
        }
        let at = self.ranges.partition_point(|(_, to)| *to < index);
        if self.ranges.get(at).is_some_and(|(from, _)| *from <= index) {
            return;
        }
        let touches_next = self
            .ranges
            .get(at)
            .is_some_and(|(from, _)| *from == index + 1);
        let before = at.checked_sub(1);
        let touches_before = before
            .and_then(|before| self.ranges.get(before))
            .is_some_and(|(_, to)| to + 1 == index);
        match (touches_before, touches_next) {
            (true, true) => {
                if let Some((_, to)) = self.ranges.remove(at) {
                    self.ranges[at - 1].1 = to;
                }
            }
            (true, false) => self.ranges[at - 1].1 = index,
            (false, true) => self.ranges[at].0 = index,
            (false, false) => {
                self.ranges.insert(at, (index, index));
                self.limit();
            }
        }
    }

    fn limit(&mut self) {
        if self.ranges.len() > MAX_RANGES
            && let Some((_, to)) = self.ranges.pop_front()
        {
            self.known_from = self.known_from.max(to + 1);
        }
    }

    /// Returns whether a packet strictly between the two may have been acknowledged.
    fn any_between(&self, from: SendIndex, to: SendIndex) -> bool {
        if from + 1 < self.known_from {
            return true;
        }
        let at = self.ranges.partition_point(|(_, end)| *end <= from);
        self.ranges
            .get(at)
            .is_some_and(|(start, _)| (*start).max(from + 1) < to)
    }
}

/// Ack-eliciting packets lost without an acknowledged one between them.
#[derive(Clone, Copy, Debug)]
struct Run {
    first: SendIndex,
    first_sent: Instant,
    last: SendIndex,
}

/// Detects persistent congestion on a path.
#[derive(Clone, Debug, Default)]
pub(crate) struct PersistentCongestion {
    acked: AckedRanges,
    run: Option<Run>,
}

impl PersistentCongestion {
    /// Records that a packet was acknowledged, in time or late.
    pub(crate) fn on_acked(&mut self, index: SendIndex) {
        self.acked.insert(index);
        self.run
            .take_if(|run| (run.first..=run.last).contains(&index));
    }

    /// Records the loss of an ack-eliciting packet that was sent after the first RTT
    /// sample. Returns whether the losses now span more than `duration`.
    pub(crate) fn on_lost(&mut self, index: SendIndex, sent: Instant, duration: Duration) -> bool {
        let run = match self.run {
            // A packet of another space, sent within the run and found lost later.
            Some(run) if index <= run.last => run,
            Some(run) if !self.acked.any_between(run.last, index) => Run { last: index, ..run },
            Some(_) | None => Run {
                first: index,
                first_sent: sent,
                last: index,
            },
        };
        let exceeded = sent - run.first_sent > duration;
        self.run = (!exceeded).then_some(run);
        exceeded
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    const SECOND: Duration = Duration::from_secs(1);

    fn at(seconds: u64) -> Instant {
        Instant::ZERO + SECOND * u32::try_from(seconds).unwrap()
    }

    #[test]
    fn rfc_9002_section_7_6_3_example_is_persistent_congestion() {
        let mut path = PersistentCongestion::default();
        path.on_acked(1);
        path.on_acked(9);
        let sent = [(2, 1), (3, 2), (4, 3), (5, 4), (6, 5), (7, 6), (8, 8)];
        let found: Vec<bool> = sent
            .map(|(index, time)| path.on_lost(index, at(time), SECOND * 6))
            .into();
        assert_eq!(found, [false, false, false, false, false, false, true]);
    }

    #[test]
    fn losses_spanning_exactly_the_duration_are_not_persistent_congestion() {
        let mut path = PersistentCongestion::default();
        assert!(!path.on_lost(0, at(0), SECOND * 6));
        assert!(!path.on_lost(1, at(6), SECOND * 6));
        assert!(path.on_lost(2, at(7), SECOND * 6));
    }

    #[test]
    fn acknowledged_packet_between_losses_restarts_the_span() {
        let mut path = PersistentCongestion::default();
        assert!(!path.on_lost(0, at(0), SECOND * 6));
        path.on_acked(1);
        assert!(!path.on_lost(2, at(8), SECOND * 6));
        // A new span begins there.
        assert!(!path.on_lost(3, at(14), SECOND * 6));
        assert!(path.on_lost(4, at(15), SECOND * 6));
    }

    #[test]
    fn late_ack_of_first_loss_restarts_the_span() {
        let mut path = PersistentCongestion::default();
        path.on_lost(0, at(0), SECOND * 6);
        path.on_lost(1, at(3), SECOND * 6);
        path.on_acked(0);
        assert!(!path.on_lost(2, at(8), SECOND * 6));
    }

    #[test]
    fn same_losses_establish_persistent_congestion_once() {
        let mut path = PersistentCongestion::default();
        path.on_lost(0, at(0), SECOND * 6);
        assert!(path.on_lost(1, at(7), SECOND * 6));
        assert!(!path.on_lost(2, at(8), SECOND * 6));
        assert!(!path.on_lost(3, at(14), SECOND * 6));
        assert!(path.on_lost(4, at(15), SECOND * 6));
    }

    #[test]
    fn forgotten_packets_count_as_acknowledged() {
        let mut path = PersistentCongestion::default();
        path.on_lost(0, at(0), SECOND * 6);
        for index in 1..1000 {
            path.on_acked(index * 2);
        }
        assert_eq!(path.acked.ranges.len(), MAX_RANGES);
        assert!(!path.on_lost(2001, at(100), SECOND * 6));
    }

    /// The oldest range that is forgotten ends at 2: from 3 on everything is known.
    #[test]
    fn packets_after_the_forgotten_ranges_are_still_known() {
        let mut acked = AckedRanges::default();
        for index in 1..=33 {
            acked.insert(index * 2);
        }
        assert_eq!(acked.known_from, 3);
        assert!(
            acked.any_between(0, 1),
            "0 and 1 may have been acknowledged"
        );
        assert!(acked.any_between(1, 3), "2 was");
        assert!(!acked.any_between(2, 4), "3 was not");
        assert!(acked.any_between(2, 5), "4 was");
    }

    /// §7.6.2: a packet of another space that is found lost later lies within the span and
    /// does not begin a new one.
    #[test]
    fn loss_detected_late_within_the_span_does_not_restart_it() {
        let mut path = PersistentCongestion::default();
        assert!(!path.on_lost(0, at(0), SECOND * 6));
        assert!(!path.on_lost(4, at(4), SECOND * 6));
        assert!(!path.on_lost(2, at(2), SECOND * 6));
        assert!(path.on_lost(5, at(7), SECOND * 6));
    }

    #[test]
    fn late_ack_of_last_loss_restarts_the_span() {
        let mut path = PersistentCongestion::default();
        assert!(!path.on_lost(0, at(0), SECOND * 6));
        assert!(!path.on_lost(1, at(3), SECOND * 6));
        path.on_acked(1);
        assert!(!path.on_lost(2, at(8), SECOND * 6));
    }

    proptest! {
        #[test]
        fn acknowledged_packet_between_two_is_never_missed(
            indices in prop::collection::vec(0_u64..120, 0..200),
            queries in prop::collection::vec((0_u64..130, 0_u64..130), 20),
        ) {
            let mut acked = AckedRanges::default();
            let mut model = BTreeSet::new();
            for index in indices {
                acked.insert(index);
                model.insert(index);
                for (one, two) in acked.ranges.iter().zip(acked.ranges.iter().skip(1)) {
                    prop_assert!(one.1 + 1 < two.0, "disjoint and apart");
                }
            }
            for (from, to) in queries.into_iter().filter(|(from, to)| from < to) {
                let truth = model.range(from + 1..to).next().is_some();
                let answer = acked.any_between(from, to);
                prop_assert!(answer || !truth, "missed one in {from}..{to}");
                if from + 1 >= acked.known_from {
                    prop_assert_eq!(answer, truth);
                }
            }
        }
    }
}
