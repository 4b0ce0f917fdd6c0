//! The phases of the state machine, and which probe the arriving ACKs belong to.

use crate::controller::State;

/// BBR.state (§5.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// Doubles the rate each round until the pipe is full.
    Startup,
    /// Drains the queue that Startup built.
    Drain,
    /// ProbeBW_DOWN: sends slower than the network delivers.
    Down,
    /// ProbeBW_CRUISE: sends as fast as the network delivers.
    Cruise,
    /// ProbeBW_REFILL: fills the pipe for a round before acceleration.
    Refill,
    /// ProbeBW_UP: sends faster than the network is known to deliver.
    Up,
    /// Keeps little in flight, to measure the round trip without a queue.
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

    /// IsProbingBW(): the flow accelerates, so a loss is not yet a reason to slow down.
    pub(super) const fn is_probing(self) -> bool {
        match self {
            Self::Startup | Self::Refill | Self::Up => true,
            Self::Drain | Self::Down | Self::Cruise | Self::ProbeRtt => false,
        }
    }

    /// Returns the state for traces.
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

/// BBR.ack_phase (§2.14): the phase in which the data was sent that is being acknowledged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AckPhase {
    /// No probe.
    Init,
    /// Data sent at the estimated bandwidth, to fill the pipe.
    Refilling,
    /// The probe has begun, and nothing of it is acknowledged yet.
    ProbeStarting,
    /// Data of the probe.
    ProbeFeedback,
    /// The probe has ended, and its last ACKs are on their way.
    ProbeStopping,
}
