//! Where the flow is: its phase, and what the ACKs that arrive answer to.

use crate::controller::State;

/// BBR.state (§5.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// Doubles the rate each round until the pipe is full.
    Startup,
    /// Drains the queue that Startup built.
    Drain,
    /// ProbeBW: slower than the network delivers.
    Down,
    /// ProbeBW: as fast as the network delivers.
    Cruise,
    /// ProbeBW: a round that fills the pipe before acceleration.
    Refill,
    /// ProbeBW: faster than the network is known to deliver.
    Up,
    /// Little in flight, to see the round trip without a queue.
    ProbeRtt,
}

impl Phase {
    /// IsInAProbeBWState().
    pub(super) const fn is_probe_bw(self) -> bool {
        match self {
            Self::Down | Self::Cruise | Self::Refill | Self::Up => true,
            Self::Startup | Self::Drain | Self::ProbeRtt => false,
        }
    }

    /// IsProbingBW(): accelerating, so that loss is no reason to slow down yet.
    pub(super) const fn is_probing(self) -> bool {
        match self {
            Self::Startup | Self::Refill | Self::Up => true,
            Self::Drain | Self::Down | Self::Cruise | Self::ProbeRtt => false,
        }
    }

    /// As traces name it.
    pub(super) const fn state(self) -> State {
        match self {
            Self::Startup => State::Startup,
            Self::Drain => State::Drain,
            Self::Down => State::ProbeBwDown,
            Self::Cruise => State::ProbeBwCruise,
            Self::Refill => State::ProbeBwRefill,
            Self::Up => State::ProbeBwUp,
            Self::ProbeRtt => State::ProbeRtt,
        }
    }
}

/// BBR.ack_phase (§2.14): what was sent a round ago, and is answered now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AckPhase {
    /// No probe.
    Init,
    /// Data sent at the estimated bandwidth, to fill the pipe.
    Refilling,
    /// The probe has begun, and nothing of it is answered yet.
    ProbeStarting,
    /// Answers to the probe.
    ProbeFeedback,
    /// The probe has ended, and its last answers are on their way.
    ProbeStopping,
}
