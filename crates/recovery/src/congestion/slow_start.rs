//! How the first slow start of a path ends before the queue overflows: by `hystart`, by
//! `search`, or not at all.

use crate::controller::Ack;

use super::SlowStart;
use super::hystart::HyStart;
use super::search::Search;

/// What slow start does after an ACK.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SlowStartDecision {
    /// Grow by one byte for each `divisor` bytes acknowledged.
    Grow {
        /// 1 in slow start, 4 in conservative slow start.
        divisor: u64,
    },
    /// The path is full: continue in congestion avoidance.
    Leave,
    /// The path is full: lower the window to `target` bytes, then continue in congestion
    /// avoidance.
    Drain {
        /// What the path holds without a queue.
        target: u64,
    },
}

/// What watches the first slow start.
#[derive(Clone, Debug)]
pub(super) enum SlowStartExit {
    /// Nothing: it ends by congestion.
    Congestion,
    /// The round-trip time.
    HyStart(HyStart),
    /// What arrives of what was sent. Boxed, because it is needed for a short time only.
    Search(Box<Search>),
}

impl SlowStartExit {
    pub(super) fn new(slow_start: SlowStart) -> Self {
        match slow_start {
            SlowStart::HyStart => Self::HyStart(HyStart::default()),
            SlowStart::Search => Self::Search(Box::default()),
            SlowStart::Standard => Self::Congestion,
        }
    }

    /// Returns whether it is in conservative slow start.
    pub(super) fn is_conservative(&self) -> bool {
        match self {
            Self::HyStart(hystart) => hystart.is_conservative(),
            Self::Congestion | Self::Search(_) => false,
        }
    }

    /// Records a packet sent, in any state.
    pub(super) fn on_sent(&mut self, bytes: u64) {
        if let Self::Search(search) = self {
            search.on_sent(bytes);
        }
    }

    /// Records what an ACK acknowledges, in any state.
    pub(super) fn on_acked(&mut self, bytes: u64) {
        if let Self::Search(search) = self {
            search.on_acked(bytes);
        }
    }

    /// Handles an ACK in slow start.
    pub(super) fn on_ack(&mut self, ack: &Ack<'_>) -> SlowStartDecision {
        match self {
            Self::Congestion => SlowStartDecision::Grow { divisor: 1 },
            Self::HyStart(hystart) => {
                hystart.on_ack(ack.largest_index, ack.next_index, ack.rtt_sample)
            }
            Self::Search(search) => match search.on_ack(ack.now, ack.rtt_sample, ack.min_rtt) {
                None => SlowStartDecision::Grow { divisor: 1 },
                Some(target) => {
                    *self = Self::Congestion;
                    SlowStartDecision::Drain { target }
                }
            },
        }
    }
}
