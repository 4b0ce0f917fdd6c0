//! ECN validation: whether ECN marks arrive unharmed on a path (RFC 9000 §13.4.2, §A.4).
//!
//! The counts in ACK frames belong to a packet number space of the connection (`SpaceEcn`),
//! the result to a path (`PathEcn`).

use core::time::Duration;

use crate::count::Count;
use crate::time::Instant;
pub(crate) use crate::wire::frame::ack::EcnCounts;

/// Marked packets after which testing ends (RFC 9000 §13.4.2).
pub(crate) const TESTING_PACKETS: u64 = 10;

/// PTOs after which testing ends (RFC 9000 §13.4.2).
const TESTING_PTOS: u32 = 3;

/// The ECN field of a sent IP packet, which is never CE (RFC 3168 §5).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mark {
    /// Not ECN-capable.
    NotEct,
    /// ECT(0), classic.
    Ect0,
    /// ECT(1), for scalable controllers (RFC 9331).
    Ect1,
}

/// The reason why ECN is disabled on a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EcnFailure {
    /// Marked packets were acknowledged without counts: the marks were bleached and
    /// therefore not counted, or the peer does not report them.
    NotReported,
    /// A count decreased, which is an error of the peer.
    Decreased,
    /// Fewer marks arrived than marked packets: the path bleaches marks.
    Bleached,
    /// More packets with a mark arrived than were sent: the path changes marks.
    Remarked,
    /// All marked packets of the test were lost: the path drops them.
    AllLost,
    /// All marked packets of the test arrived as CE: the path overwrites marks.
    AllCe,
    /// ECN is turned off by the configuration.
    Disabled,
}

/// The state of ECN validation (RFC 9000 §A.4).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EcnState {
    /// The first packets are being marked.
    Testing,
    /// All test packets were sent. The result is not known yet, and packets are not marked.
    Unknown,
    /// Marks arrive unharmed, and packets are marked.
    Capable,
    /// Marks do not arrive as sent, and packets are not marked.
    Failed(EcnFailure),
}

/// Counts of marks that were sent in a packet number space and reported by the peer, over
/// all paths.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct SpaceEcn {
    sent_ect0: u64,
    sent_ect1: u64,
    reported: EcnCounts,
}

/// The ECN data of an ACK frame. Only for frames that increase the largest acknowledged
/// number: others may be out of date and must not count (RFC 9000 §13.4.2.1).
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct EcnAck {
    /// The frame's counts, if it is of type 0x03.
    pub counts: Option<EcnCounts>,
    /// Packets of this path newly acknowledged that were sent as ECT(0).
    pub newly_acked_ect0: u64,
    /// The same for ECT(1).
    pub newly_acked_ect1: u64,
}

impl EcnAck {
    fn newly_acked(&self) -> u64 {
        self.newly_acked_ect0.saturating_add(self.newly_acked_ect1)
    }
}

impl SpaceEcn {
    /// Checks the counts of an ACK frame. Returns by how much each grew.
    fn on_report(&mut self, ack: &EcnAck) -> Result<EcnCounts, EcnFailure> {
        let marked = ack.newly_acked();
        let Some(counts) = ack.counts else {
            return if marked == 0 {
                Ok(EcnCounts::default())
            } else {
                Err(EcnFailure::NotReported)
            };
        };
        let old = self.reported;
        // Invalid counts are still the baseline of a later test.
        self.reported = counts;
        let growth = EcnCounts {
            ect0: counts
                .ect0
                .checked_sub(old.ect0)
                .ok_or(EcnFailure::Decreased)?,
            ect1: counts
                .ect1
                .checked_sub(old.ect1)
                .ok_or(EcnFailure::Decreased)?,
            ce: counts.ce.checked_sub(old.ce).ok_or(EcnFailure::Decreased)?,
        };
        let arrived0 = growth.ect0.saturating_add(growth.ce);
        let arrived1 = growth.ect1.saturating_add(growth.ce);
        let arrived = arrived0.saturating_add(growth.ect1);
        if arrived0 < ack.newly_acked_ect0 || arrived1 < ack.newly_acked_ect1 || arrived < marked {
            return Err(EcnFailure::Bleached);
        }
        let sent = self.sent_ect0.saturating_add(self.sent_ect1);
        if counts.ect0 > self.sent_ect0 || counts.ect1 > self.sent_ect1 || counts.ce > sent {
            return Err(EcnFailure::Remarked);
        }
        Ok(growth)
    }

    fn on_sent(&mut self, mark: Mark) {
        match mark {
            Mark::NotEct => {}
            Mark::Ect0 => self.sent_ect0.count_one(),
            Mark::Ect1 => self.sent_ect1.count_one(),
        }
    }
}

/// ECN validation of a path.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PathEcn {
    state: EcnState,
    preferred: Mark,
    marked_sent: u64,
    marked_acked: u64,
    marked_lost: u64,
    ce_seen: u64,
    /// When testing ends; set by the first marked packet.
    testing_ends: Option<Instant>,
}

impl PathEcn {
    /// Starts to test a new path with `mark`; [`Mark::NotEct`] turns ECN off.
    #[must_use]
    pub(crate) fn new(mark: Mark) -> Self {
        let state = match mark {
            Mark::NotEct => EcnState::Failed(EcnFailure::Disabled),
            Mark::Ect0 | Mark::Ect1 => EcnState::Testing,
        };
        Self {
            state,
            preferred: mark,
            marked_sent: 0,
            marked_acked: 0,
            marked_lost: 0,
            ce_seen: 0,
            testing_ends: None,
        }
    }

    /// Returns the state of validation.
    #[must_use]
    pub(crate) fn state(&self) -> EcnState {
        self.state
    }

    /// Returns the mark for the next packet.
    #[must_use]
    pub(crate) fn mark(&self) -> Mark {
        match self.state {
            EcnState::Testing | EcnState::Capable => self.preferred,
            EcnState::Unknown | EcnState::Failed(_) => Mark::NotEct,
        }
    }

    /// Records a packet sent with `mark`. `pto` is the current PTO.
    pub(crate) fn on_sent(
        &mut self,
        space: &mut SpaceEcn,
        mark: Mark,
        now: Instant,
        pto: Duration,
    ) {
        if mark == Mark::NotEct {
            return;
        }
        space.on_sent(mark);
        self.marked_sent.count_one();
        if self.state == EcnState::Testing {
            let ends = *self
                .testing_ends
                .get_or_insert(now + pto.saturating_mul(TESTING_PTOS));
            if self.marked_sent >= TESTING_PACKETS || now >= ends {
                self.state = EcnState::Unknown;
            }
        }
    }

    /// Returns the ECN data of an ACK frame that acknowledged `newly_acked` packets marked
    /// as on this path.
    #[must_use]
    pub(crate) fn ack_data(&self, counts: Option<EcnCounts>, newly_acked: u64) -> EcnAck {
        let (ect0, ect1) = match self.preferred {
            Mark::NotEct => (0, 0),
            Mark::Ect0 => (newly_acked, 0),
            Mark::Ect1 => (0, newly_acked),
        };
        EcnAck {
            counts,
            newly_acked_ect0: ect0,
            newly_acked_ect1: ect1,
        }
    }

    /// Handles an ACK frame that increased the largest acknowledged number. Returns by how
    /// much the CE count grew, for the controller: 0 unless the counts are valid on this
    /// path.
    pub(crate) fn on_ack(&mut self, space: &mut SpaceEcn, ack: &EcnAck) -> u64 {
        let report = space.on_report(ack);
        if matches!(self.state, EcnState::Failed(_)) {
            return 0;
        }
        let growth = match report {
            Ok(growth) => growth,
            Err(failure) => {
                self.state = EcnState::Failed(failure);
                return 0;
            }
        };
        self.marked_acked.count(ack.newly_acked());
        self.ce_seen.count(growth.ce);
        self.update_state();
        growth.ce
    }

    /// Records that `marked` marked packets of this path were declared lost.
    pub(crate) fn on_lost(&mut self, marked: u64) {
        self.marked_lost.count(marked);
        self.update_state();
    }

    /// Determines the result of the test, if enough is known.
    fn update_state(&mut self) {
        let undecided = match self.state {
            EcnState::Testing | EcnState::Unknown => true,
            EcnState::Capable | EcnState::Failed(_) => false,
        };
        if !undecided {
            return;
        }
        let tested = self.state == EcnState::Unknown;
        if self.marked_acked > self.ce_seen {
            // At least one mark came through as it was sent.
            self.state = EcnState::Capable;
        } else if self.marked_acked > 0 {
            // Congestion marks some packets of ten; a broken path marks all.
            let known = self.marked_acked.saturating_add(self.marked_lost);
            if tested && known >= self.marked_sent {
                self.state = EcnState::Failed(EcnFailure::AllCe);
            }
        } else if tested && self.marked_lost >= self.marked_sent {
            self.state = EcnState::Failed(EcnFailure::AllLost);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const PTO: Duration = Duration::from_millis(100);

    fn send(path: &mut PathEcn, space: &mut SpaceEcn, count: u64) -> u64 {
        (0..count)
            .filter(|_| {
                let mark = path.mark();
                path.on_sent(space, mark, Instant::ZERO, PTO);
                mark != Mark::NotEct
            })
            .count() as u64
    }

    fn ack(newly: u64, ect0: u64, ect1: u64, ce: u64) -> EcnAck {
        EcnAck {
            counts: Some(EcnCounts { ect0, ect1, ce }),
            newly_acked_ect0: newly,
            newly_acked_ect1: 0,
        }
    }

    fn tested() -> (PathEcn, SpaceEcn) {
        let (mut path, mut space) = (PathEcn::new(Mark::Ect0), SpaceEcn::default());
        assert_eq!(send(&mut path, &mut space, 20), TESTING_PACKETS);
        assert_eq!(path.state(), EcnState::Unknown);
        (path, space)
    }

    #[test]
    fn path_that_preserves_marks_becomes_capable() {
        let (mut path, mut space) = tested();
        assert_eq!(path.on_ack(&mut space, &ack(2, 2, 0, 0)), 0);
        assert_eq!(path.state(), EcnState::Capable);
        assert_eq!(path.mark(), Mark::Ect0);
        assert_eq!(path.on_ack(&mut space, &ack(8, 7, 0, 3)), 3);
        assert_eq!(path.on_ack(&mut space, &ack(0, 7, 0, 3)), 0);
    }

    #[test]
    fn ecn_testing_ends_after_three_ptos() {
        let (mut path, mut space) = (PathEcn::new(Mark::Ect0), SpaceEcn::default());
        path.on_sent(&mut space, Mark::Ect0, Instant::ZERO, PTO);
        path.on_sent(&mut space, Mark::Ect0, Instant::ZERO + PTO, PTO);
        assert_eq!(path.state(), EcnState::Testing);
        path.on_sent(&mut space, Mark::Ect0, Instant::ZERO + PTO * 3, PTO);
        assert_eq!(path.state(), EcnState::Unknown);
    }

    #[test]
    fn each_kind_of_mark_damage_fails_with_its_reason() {
        let cases = [
            (
                EcnAck {
                    counts: None,
                    ..ack(1, 0, 0, 0)
                },
                EcnFailure::NotReported,
            ),
            (ack(3, 2, 0, 0), EcnFailure::Bleached),
            (ack(2, 2, 1, 0), EcnFailure::Remarked),
            (ack(2, 11, 0, 0), EcnFailure::Remarked),
            (ack(2, 0, 2, 0), EcnFailure::Bleached),
            (ack(2, 0, 0, 11), EcnFailure::Remarked),
        ];
        for (ack, failure) in cases {
            let (mut path, mut space) = tested();
            assert_eq!(path.on_ack(&mut space, &ack), 0);
            assert_eq!(path.state(), EcnState::Failed(failure), "{ack:?}");
            assert_eq!(path.mark(), Mark::NotEct);
        }
        let (mut path, mut space) = tested();
        path.on_ack(&mut space, &ack(3, 3, 0, 0));
        path.on_ack(&mut space, &ack(0, 2, 0, 0));
        assert_eq!(path.state(), EcnState::Failed(EcnFailure::Decreased));
    }

    #[test]
    fn capable_path_fails_when_marks_are_bleached_later() {
        let (mut path, mut space) = tested();
        path.on_ack(&mut space, &ack(10, 10, 0, 0));
        assert_eq!(send(&mut path, &mut space, 5), 5);
        path.on_ack(&mut space, &ack(5, 11, 0, 0));
        assert_eq!(path.state(), EcnState::Failed(EcnFailure::Bleached));
    }

    #[test]
    fn ack_of_unmarked_packets_leaves_state_unknown() {
        let (mut path, mut space) = tested();
        assert_eq!(path.on_ack(&mut space, &EcnAck::default()), 0);
        assert_eq!(path.state(), EcnState::Unknown);
    }

    #[test]
    fn path_fails_when_all_marked_packets_are_lost_but_not_when_most_are() {
        let (mut path, _) = tested();
        path.on_lost(9);
        assert_eq!(path.state(), EcnState::Unknown);
        let mut lucky = path;
        path.on_lost(1);
        assert_eq!(path.state(), EcnState::Failed(EcnFailure::AllLost));
        let (_, mut space) = tested();
        lucky.on_ack(&mut space, &ack(1, 1, 0, 0));
        assert_eq!(lucky.state(), EcnState::Capable);
    }

    #[test]
    fn path_fails_when_all_marks_are_ce_but_not_when_some_are() {
        let (mut path, mut space) = tested();
        assert_eq!(path.on_ack(&mut space, &ack(6, 0, 0, 6)), 6);
        assert_eq!(path.state(), EcnState::Unknown);
        let (mut congested, mut its_space) = (path, space);
        path.on_lost(1);
        path.on_ack(&mut space, &ack(3, 0, 0, 9));
        assert_eq!(path.state(), EcnState::Failed(EcnFailure::AllCe));
        congested.on_ack(&mut its_space, &ack(4, 1, 0, 9));
        assert_eq!(congested.state(), EcnState::Capable);
    }

    /// A new path starts from the counts of the space and not from zero, and late packets
    /// of the old path do not make it fail.
    #[test]
    fn new_path_starts_from_the_counts_of_the_space() {
        let (mut old, mut space) = tested();
        old.on_ack(&mut space, &ack(4, 4, 0, 0));
        let mut new = PathEcn::new(Mark::Ect0);
        send(&mut new, &mut space, 3);
        // Six late packets of the old path and two of the new.
        assert_eq!(new.on_ack(&mut space, &ack(2, 12, 0, 0)), 0);
        assert_eq!(new.state(), EcnState::Capable);
    }

    #[test]
    fn ect1_is_validated_by_the_ect1_count() {
        let (mut path, mut space) = (PathEcn::new(Mark::Ect1), SpaceEcn::default());
        send(&mut path, &mut space, 10);
        let report = |ect0, ect1| EcnAck {
            counts: Some(EcnCounts { ect0, ect1, ce: 0 }),
            newly_acked_ect0: 0,
            newly_acked_ect1: 2,
        };
        let (mut remarked, mut its_space) = (path, space);
        path.on_ack(&mut space, &report(0, 2));
        assert_eq!(path.state(), EcnState::Capable);
        remarked.on_ack(&mut its_space, &report(2, 0));
        assert_eq!(remarked.state(), EcnState::Failed(EcnFailure::Bleached));
    }

    #[test]
    fn disabled_ecn_marks_nothing() {
        let (mut path, mut space) = (PathEcn::new(Mark::NotEct), SpaceEcn::default());
        assert_eq!(send(&mut path, &mut space, 5), 0);
        assert_eq!(path.mark(), Mark::NotEct);
        assert_eq!(path.state(), EcnState::Failed(EcnFailure::Disabled));
    }

    proptest! {
        /// A path that only turns some ECT(0) into CE and loses some packets stays capable
        /// once an ECT(0) mark arrived, and every CE counts.
        #[test]
        fn path_that_only_adds_ce_stays_capable(
            fates in proptest::collection::vec(0..4_u8, 1..200),
            ack_every in 1..7_usize,
        ) {
            let (mut path, mut space) = (PathEcn::new(Mark::Ect0), SpaceEcn::default());
            send(&mut path, &mut space, 1);
            let mut counts = EcnCounts { ect0: 1, ..EcnCounts::default() };
            path.on_ack(&mut space, &ack(1, 1, 0, 0));
            let (mut newly, mut told) = (0, 0);
            for (n, fate) in fates.iter().enumerate() {
                prop_assert_eq!(send(&mut path, &mut space, 1), 1);
                match fate {
                    0 => path.on_lost(1),
                    1 => { counts.ce += 1; newly += 1; }
                    _ => { counts.ect0 += 1; newly += 1; }
                }
                if n % ack_every == 0 {
                    let report = ack(newly, counts.ect0, 0, counts.ce);
                    told += path.on_ack(&mut space, &report);
                    newly = 0;
                    prop_assert_eq!(told, counts.ce);
                }
                prop_assert_eq!(path.state(), EcnState::Capable);
            }
        }
    }
}
