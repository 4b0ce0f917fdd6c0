//! ECN validation: whether ECN marks arrive unharmed on a path (RFC 9000 §13.4.2, §A.4).
//!
//! The counts in ACK frames belong to a packet number space of the connection (`SpaceEcn`),
//! the result to a path (`PathEcn`).
//!
//! # Marks that are all CE
//! RFC 9000 §A.4 lets an endpoint disable ECN if all packets of a test were marked CE, because
//! the path may overwrite marks, and a controller that believes them stays at its minimum. But a
//! queue that marks every packet while it is congested does the same to a flow that begins then.
//! Without ECN that flow hears nothing of a queue that marks instead of dropping: it keeps the
//! queue long, takes several times the share of its neighbours, and every later test meets its own
//! queue. So the test goes on with marked packets, and every CE is reported to the controller, for
//! `ALL_CE_ROUNDS` rounds: enough to bring an initial window to its minimum, after which a queue
//! of the flow's own making has drained. One packet that arrives with its mark intact ends the
//! test.
//!
//! # Tests are repeated
//! Congestion can explain that all packets of a test were marked CE for longer, or that all were
//! lost; and the keys of packets may be gone before their fate is known. In these cases the path
//! is tested again (RFC 9000 §13.4.2.2) after `FIRST_RETEST`, and then after twice as long each
//! time, up to `LONGEST_RETEST`. On a path that drops marked packets a test costs ten packets, on
//! one that overwrites marks `ALL_CE_ROUNDS` rounds of falling windows. Nothing but damage
//! explains counts that are wrong, and they fail for ever.

use core::time::Duration;

use crate::count::Count;
use crate::time::Instant;
pub(crate) use crate::wire::frame::ack::EcnCounts;

/// Marked packets after which testing ends (RFC 9000 §13.4.2).
pub(crate) const TESTING_PACKETS: u64 = 10;

/// PTOs after which testing ends (RFC 9000 §13.4.2).
const TESTING_PTOS: u32 = 3;

/// Rounds of marked packets that all have to arrive as CE for the path to fail. A response takes a
/// fifth to a half of the window, once in a round: ten packets become two after eight of the
/// weakest.
pub(crate) const ALL_CE_ROUNDS: u8 = 16;

/// Time after which a test that congestion may have failed is repeated for the first time. Long
/// compared with [`ALL_CE_ROUNDS`] rounds on most paths.
pub(crate) const FIRST_RETEST: Duration = Duration::from_secs(30);

/// The longest time between two tests.
pub(crate) const LONGEST_RETEST: Duration = Duration::from_secs(3600);

/// Repeats after which the time to the next test is the longest: 30 s × 2^7 is more than an hour.
const MOST_REPEATS: u8 = 7;

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
    /// All marked packets of the test were lost: the path drops them, or dropped everything.
    /// The path is tested again later.
    AllLost,
    /// All marked packets of the test arrived as CE: the path overwrites marks, or was congested
    /// all the time. The path is tested again later.
    AllCe,
    /// ECN is turned off by the configuration.
    Disabled,
}

impl EcnFailure {
    /// Returns whether congestion explains it as well as damage does, so that the path has to be
    /// tested again.
    const fn may_be_congestion(self) -> bool {
        match self {
            Self::AllLost | Self::AllCe => true,
            Self::NotReported
            | Self::Decreased
            | Self::Bleached
            | Self::Remarked
            | Self::Disabled => false,
        }
    }
}

/// The state of ECN validation (RFC 9000 §A.4).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EcnState {
    /// Packets are being marked as a test: the first ones, and more while all arrive as CE.
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
    /// Marked packets of this test that were sent.
    marked_sent: u64,
    /// Those of them that were acknowledged.
    marked_acked: u64,
    /// Those of them that were declared lost.
    marked_lost: u64,
    /// When the first part of the test ends; set by the first marked packet.
    testing_ends: Option<Instant>,
    /// Rounds of this test in which all marked packets arrived as CE.
    ce_rounds: u8,
    /// The round ends when the fate of as many marked packets is known.
    round_ends: u64,
    /// When to test again, if the state is one that may be due to congestion.
    next_test: Option<Instant>,
    /// How often a test was repeated, as far as it matters for [`wait`](Self::wait).
    repeats: u8,
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
            testing_ends: None,
            ce_rounds: 0,
            round_ends: 0,
            next_test: None,
            repeats: 0,
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

    /// Returns the mark for the packets of a train that is sent now. Starts the next test if it
    /// is due.
    #[must_use]
    pub(crate) fn begin_train(&mut self, now: Instant) -> Mark {
        if self.next_test.is_some_and(|at| now >= at) {
            *self = Self {
                repeats: self.repeats.saturating_add(1).min(MOST_REPEATS),
                ..Self::new(self.preferred)
            };
        }
        self.mark()
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
        // While all arrive as CE, the test is limited by rounds instead.
        if self.state == EcnState::Testing && self.marked_acked == 0 {
            let ends = *self
                .testing_ends
                .get_or_insert(now + pto.saturating_mul(TESTING_PTOS));
            if self.marked_sent >= TESTING_PACKETS || now >= ends {
                self.enter(EcnState::Unknown, now);
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
    pub(crate) fn on_ack(&mut self, space: &mut SpaceEcn, ack: &EcnAck, now: Instant) -> u64 {
        let report = space.on_report(ack);
        let question = match self.state {
            EcnState::Failed(failure) if !failure.may_be_congestion() => return 0,
            EcnState::Testing | EcnState::Unknown | EcnState::Failed(_) => true,
            EcnState::Capable => false,
        };
        let growth = match report {
            Ok(growth) => growth,
            Err(failure) => {
                self.enter(EcnState::Failed(failure), now);
                return 0;
            }
        };
        let newly_acked = ack.newly_acked();
        self.marked_acked.count(newly_acked);
        if question && newly_acked > growth.ce {
            // At least one mark came through as it was sent.
            self.enter(EcnState::Capable, now);
        } else if newly_acked > 0 {
            self.on_all_ce(now);
        }
        growth.ce
    }

    /// Records that `marked` marked packets of this path were declared lost.
    pub(crate) fn on_lost(&mut self, marked: u64, now: Instant) {
        self.marked_lost.count(marked);
        if self.marked_acked > 0 {
            self.end_round(now);
        } else if self.state == EcnState::Unknown && self.marked_lost >= self.marked_sent {
            self.enter(EcnState::Failed(EcnFailure::AllLost), now);
        }
    }

    /// Handles an ACK of marked packets of which all arrived as CE.
    fn on_all_ce(&mut self, now: Instant) {
        if self.state == EcnState::Unknown {
            // Marked packets arrive, so the test may go on at no risk but that of being slow.
            self.enter(EcnState::Testing, now);
        }
        self.end_round(now);
    }

    /// Ends a round of a test in which all arrive as CE, if it is over.
    fn end_round(&mut self, now: Instant) {
        let known = self.marked_acked.saturating_add(self.marked_lost);
        if self.state != EcnState::Testing || known < self.round_ends {
            return;
        }
        self.ce_rounds = self.ce_rounds.saturating_add(1);
        self.round_ends = self.marked_sent.saturating_add(1);
        if self.ce_rounds > ALL_CE_ROUNDS {
            self.enter(EcnState::Failed(EcnFailure::AllCe), now);
        }
    }

    fn enter(&mut self, state: EcnState, now: Instant) {
        self.state = state;
        let again = match state {
            EcnState::Unknown => true,
            EcnState::Failed(failure) => failure.may_be_congestion(),
            EcnState::Testing | EcnState::Capable => false,
        };
        self.next_test = again.then(|| now + self.wait());
    }

    /// Returns the time from the end of this test to the next.
    fn wait(&self) -> Duration {
        let doubled = 1_u32.checked_shl(u32::from(self.repeats));
        FIRST_RETEST
            .saturating_mul(doubled.unwrap_or(u32::MAX))
            .min(LONGEST_RETEST)
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
        assert_eq!(path.on_ack(&mut space, &ack(2, 2, 0, 0), Instant::ZERO), 0);
        assert_eq!(path.state(), EcnState::Capable);
        assert_eq!(path.mark(), Mark::Ect0);
        assert_eq!(path.on_ack(&mut space, &ack(8, 7, 0, 3), Instant::ZERO), 3);
        assert_eq!(path.on_ack(&mut space, &ack(0, 7, 0, 3), Instant::ZERO), 0);
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
            assert_eq!(path.on_ack(&mut space, &ack, Instant::ZERO), 0);
            assert_eq!(path.state(), EcnState::Failed(failure), "{ack:?}");
            assert_eq!(path.mark(), Mark::NotEct);
        }
        let (mut path, mut space) = tested();
        path.on_ack(&mut space, &ack(3, 3, 0, 0), Instant::ZERO);
        path.on_ack(&mut space, &ack(0, 2, 0, 0), Instant::ZERO);
        assert_eq!(path.state(), EcnState::Failed(EcnFailure::Decreased));
    }

    #[test]
    fn capable_path_fails_when_marks_are_bleached_later() {
        let (mut path, mut space) = tested();
        path.on_ack(&mut space, &ack(10, 10, 0, 0), Instant::ZERO);
        assert_eq!(send(&mut path, &mut space, 5), 5);
        path.on_ack(&mut space, &ack(5, 11, 0, 0), Instant::ZERO);
        assert_eq!(path.state(), EcnState::Failed(EcnFailure::Bleached));
    }

    #[test]
    fn ack_of_unmarked_packets_leaves_state_unknown() {
        let (mut path, mut space) = tested();
        assert_eq!(
            path.on_ack(&mut space, &EcnAck::default(), Instant::ZERO),
            0
        );
        assert_eq!(path.state(), EcnState::Unknown);
    }

    #[test]
    fn path_fails_when_all_marked_packets_are_lost_but_not_when_most_are() {
        let (mut path, _) = tested();
        path.on_lost(9, Instant::ZERO);
        assert_eq!(path.state(), EcnState::Unknown);
        let mut lucky = path;
        path.on_lost(1, Instant::ZERO);
        assert_eq!(path.state(), EcnState::Failed(EcnFailure::AllLost));
        let (_, mut space) = tested();
        lucky.on_ack(&mut space, &ack(1, 1, 0, 0), Instant::ZERO);
        assert_eq!(lucky.state(), EcnState::Capable);
    }

    /// Sends packets one by one, each of which arrives as CE. Returns how many.
    fn overwrite(path: &mut PathEcn, space: &mut SpaceEcn, ce: &mut u64, now: Instant) -> u64 {
        let before = *ce;
        for _ in 0..100 {
            let mark = path.begin_train(now);
            if mark == Mark::NotEct {
                break;
            }
            path.on_sent(space, mark, now, PTO);
            *ce += 1;
            assert_eq!(path.on_ack(space, &ack(1, 0, 0, *ce), now), 1, "CE counts");
        }
        *ce - before
    }

    #[test]
    fn test_goes_on_while_all_marks_are_ce_and_ends_with_the_first_intact_one() {
        let (mut path, mut space) = tested();
        let now = Instant::ZERO;
        assert_eq!(path.on_ack(&mut space, &ack(6, 0, 0, 6), now), 6);
        assert_eq!(path.state(), EcnState::Testing);
        assert_eq!(path.mark(), Mark::Ect0);
        path.on_lost(1, now);
        assert_eq!(path.on_ack(&mut space, &ack(3, 0, 0, 9), now), 3);
        assert_eq!(path.state(), EcnState::Testing, "all ten are known");
        assert_eq!(send(&mut path, &mut space, 40), 40);
        assert_eq!(path.on_ack(&mut space, &ack(9, 1, 0, 17), now), 8);
        assert_eq!(path.state(), EcnState::Capable);
        assert_eq!(path.next_test, None);
    }

    #[test]
    fn path_that_overwrites_marks_fails_and_is_tested_again_ever_less_often() {
        let (mut path, mut space) = (PathEcn::new(Mark::Ect0), SpaceEcn::default());
        let (mut now, mut ce, mut wait) = (Instant::ZERO, 0, FIRST_RETEST);
        for _ in 0..12 {
            let sent = overwrite(&mut path, &mut space, &mut ce, now);
            assert_eq!(sent, u64::from(ALL_CE_ROUNDS) + 1);
            assert_eq!(path.state(), EcnState::Failed(EcnFailure::AllCe));
            let early = now + (wait - Duration::from_nanos(1));
            assert_eq!(path.begin_train(early), Mark::NotEct);
            now += wait;
            wait = (wait * 2).min(LONGEST_RETEST);
        }
        assert_eq!(wait, LONGEST_RETEST);
        // The path has changed.
        assert_eq!(path.begin_train(now), Mark::Ect0);
        path.on_sent(&mut space, Mark::Ect0, now, PTO);
        path.on_ack(&mut space, &ack(1, 1, 0, ce), now);
        assert_eq!(path.state(), EcnState::Capable);
    }

    #[test]
    fn marks_that_return_after_the_path_failed_count_and_an_intact_one_proves_it() {
        let (mut path, mut space) = (PathEcn::new(Mark::Ect0), SpaceEcn::default());
        let (now, mut ce) = (Instant::ZERO, 0);
        path.on_sent(&mut space, Mark::Ect0, now, PTO);
        path.on_sent(&mut space, Mark::Ect0, now, PTO);
        overwrite(&mut path, &mut space, &mut ce, now);
        assert_eq!(path.state(), EcnState::Failed(EcnFailure::AllCe));
        assert_eq!(path.on_ack(&mut space, &ack(1, 0, 0, ce + 1), now), 1);
        assert_eq!(path.state(), EcnState::Failed(EcnFailure::AllCe));
        assert_eq!(path.on_ack(&mut space, &ack(1, 1, 0, ce + 1), now), 0);
        assert_eq!(path.state(), EcnState::Capable);
    }

    /// Packets of the handshake whose keys are gone are neither acknowledged nor lost.
    #[test]
    fn path_without_any_answer_is_tested_again() {
        let (mut path, _) = tested();
        assert_eq!(
            path.begin_train(Instant::ZERO + FIRST_RETEST / 2),
            Mark::NotEct
        );
        assert_eq!(path.begin_train(Instant::ZERO + FIRST_RETEST), Mark::Ect0);
        assert_eq!(path.state(), EcnState::Testing);
    }

    /// What can happen to a path, as far as the state of validation goes.
    const EVENTS: [&str; 8] = [
        "train",
        "late train",
        "intact",
        "CE",
        "lost",
        "bleached",
        "decreased",
        "no marks",
    ];

    fn apply(path: &mut PathEcn, space: &mut SpaceEcn, sent: &mut u64, event: &str) -> u64 {
        let now = path.next_test.unwrap_or(Instant::ZERO);
        let before = space.reported;
        let grown = |intact, ce| ack(1, before.ect0 + intact, before.ect1, before.ce + ce);
        let mut report = |report: EcnAck| path.on_ack(space, &report, Instant::ZERO);
        match event {
            "train" | "late train" => {
                let at = if event == "train" { Instant::ZERO } else { now };
                let mark = path.begin_train(at);
                for _ in 0..TESTING_PACKETS {
                    path.on_sent(space, mark, at, PTO);
                    *sent += u64::from(mark != Mark::NotEct);
                }
                0
            }
            "intact" => report(grown(1, 0)),
            "CE" => report(grown(0, 1)),
            "bleached" => report(grown(0, 0)),
            "decreased" => report(EcnAck {
                newly_acked_ect0: 0,
                counts: Some(EcnCounts {
                    ect1: 0,
                    ce: 0,
                    ect0: 0,
                }),
                ..EcnAck::default()
            }),
            "no marks" => report(EcnAck::default()),
            "lost" => {
                path.on_lost(1, Instant::ZERO);
                0
            }
            other => panic!("{other}"),
        }
    }

    /// Every sequence of seven events, of which the first is a train: what each does in each
    /// state, as RFC 9000 §13.4.2 and the module's documentation have it.
    #[test]
    fn every_event_in_every_state_leads_where_it_should() {
        let mut table = std::collections::BTreeSet::new();
        let mut worlds = vec![(PathEcn::new(Mark::Ect0), SpaceEcn::default(), 0_u64)];
        for depth in 0..7 {
            let mut next = Vec::new();
            for (path, space, sent) in worlds {
                for event in EVENTS {
                    if depth == 0 && event != "train" {
                        continue;
                    }
                    let answer = matches!(event, "intact" | "CE" | "bleached" | "lost");
                    let (mut then, mut its_space, mut now_sent) = (path, space, sent);
                    let known = path.marked_acked + path.marked_lost;
                    if answer && known >= path.marked_sent {
                        continue;
                    }
                    let ce = apply(&mut then, &mut its_space, &mut now_sent, event);
                    check(&path, &then, event, ce, &space);
                    table.insert(format!("{:?}, {event} -> {:?}", path.state, then.state));
                    next.push((then, its_space, now_sent));
                }
            }
            worlds = next;
        }
        let table: Vec<_> = table.into_iter().collect();
        println!("{}", table.join("\n"));
        assert!(table.len() >= 30, "{}", table.len());
    }

    fn check(before: &PathEcn, after: &PathEcn, event: &str, ce: u64, space: &SpaceEcn) {
        use EcnState::{Capable, Failed, Testing, Unknown};
        let final_failure =
            |state| matches!(state, Failed(failure) if !failure.may_be_congestion());
        let step = (before.state, after.state);
        let text = format!("{step:?} at {event}");
        if final_failure(before.state) {
            assert_eq!(before.state, after.state, "{text}");
            assert_eq!(ce, 0, "{text}");
            return;
        }
        let expected = match event {
            "train" | "no marks" => !matches!(step, (Failed(_) | Capable, new) if new != step.0),
            "late train" => {
                matches!(after.state, Unknown | Testing | Capable)
                    && (before.next_test.is_none() || after.wait() == before.wait() * 2)
            }
            "intact" => after.state == Capable,
            // Every mark is reported to the controller, and takes no state but Unknown.
            "CE" => {
                ce == 1
                    && matches!(
                        (step.0, step.1),
                        (Unknown, Testing)
                            | (Testing, Testing | Failed(EcnFailure::AllCe))
                            | (Capable, Capable)
                            | (Failed(_), Failed(_))
                    )
            }
            "lost" => step.0 == step.1 || step == (Unknown, Failed(EcnFailure::AllLost)),
            "bleached" => after.state == Failed(EcnFailure::Bleached),
            "decreased" => {
                let fell = space.reported != EcnCounts::default();
                !fell || after.state == Failed(EcnFailure::Decreased)
            }
            other => panic!("{other}"),
        };
        assert!(expected, "{text}");
        // A test is due again exactly where nothing but time can decide.
        let asks = matches!(
            after.state,
            Unknown | Failed(EcnFailure::AllCe | EcnFailure::AllLost)
        );
        assert_eq!(after.next_test.is_some(), asks, "{text}");
    }

    /// A new path starts from the counts of the space and not from zero, and late packets
    /// of the old path do not make it fail.
    #[test]
    fn new_path_starts_from_the_counts_of_the_space() {
        let (mut old, mut space) = tested();
        old.on_ack(&mut space, &ack(4, 4, 0, 0), Instant::ZERO);
        let mut new = PathEcn::new(Mark::Ect0);
        send(&mut new, &mut space, 3);
        // Six late packets of the old path and two of the new.
        assert_eq!(new.on_ack(&mut space, &ack(2, 12, 0, 0), Instant::ZERO), 0);
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
        path.on_ack(&mut space, &report(0, 2), Instant::ZERO);
        assert_eq!(path.state(), EcnState::Capable);
        remarked.on_ack(&mut its_space, &report(2, 0), Instant::ZERO);
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
            path.on_ack(&mut space, &ack(1, 1, 0, 0), Instant::ZERO);
            let (mut newly, mut told) = (0, 0);
            for (n, fate) in fates.iter().enumerate() {
                prop_assert_eq!(send(&mut path, &mut space, 1), 1);
                match fate {
                    0 => path.on_lost(1, Instant::ZERO),
                    1 => { counts.ce += 1; newly += 1; }
                    _ => { counts.ect0 += 1; newly += 1; }
                }
                if n % ack_every == 0 {
                    let report = ack(newly, counts.ect0, 0, counts.ce);
                    told += path.on_ack(&mut space, &report, Instant::ZERO);
                    newly = 0;
                    prop_assert_eq!(told, counts.ce);
                }
                prop_assert_eq!(path.state(), EcnState::Capable);
            }
        }
    }
}
