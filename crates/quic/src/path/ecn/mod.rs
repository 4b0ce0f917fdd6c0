//! ECN validation: whether ECN marks arrive unharmed on a path (RFC 9000 §13.4.2, §A.4).
//!
//! The counts in ACK frames belong to a packet number space of the connection (`counts`),
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

mod counts;
#[cfg(test)]
mod tests;

use core::time::Duration;

pub(crate) use counts::{EcnAck, SpaceEcn};

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
