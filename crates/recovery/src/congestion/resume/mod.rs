//! Careful Resume (RFC 9959): beginning with part of what an earlier connection measured.
//!
//! ```text
//!                 the initial window arrived, the round trip is alike,
//!                 and the window is what holds the flow back
//! Reconnaissance ─────────────────────────────────────► Unvalidated
//!    │                                                     │   │
//!    │ congestion, another          sent, a round trip     │   │ congestion
//!    │ round trip, no need          over, or acknowledged  │   │
//!    ▼                                                     ▼   ▼
//!  Normal ◄── all acknowledged ──────────────── Validating ─► SafeRetreat
//!    ▲  ▲                                                         │
//!    │  └──────────── half of it was not used ── (Unvalidated)    │
//!    └──────────────────────────────────────── all acknowledged ──┘
//! ```
//!
//! [`Resume`] is this machine, and nothing else: it is told of packets, ACKs and congestion, and
//! answers what is to happen to the window ([`Step`]). `classic::resume` does it. A window that
//! no ACK has justified is in force in `Unvalidated` only, for a round trip at most, and it is
//! half of the saved one at most, sent at the rate of this window over the present round trip.

use core::time::Duration;

use crate::controller::{Ack, Congestion, SavedPath, SendIndex};
use crate::rate::bytes_per_second;
use crate::time::Instant;

/// The jump is to at most this part of the saved capacity (RFC 9959 §3.3).
const JUMP_DIVISOR: u64 = 2;
/// The path is another one if its round trip is at most this part of the saved one (§3.2), because
/// half of the capacity would then be sent faster than it was measured.
const RTT_DIVISOR: u32 = 2;
/// The path is another one if its round trip is more than this many times the saved one (§4.2.1).
const RTT_FACTOR: u32 = 10;

/// How far a path is in resuming.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) enum Resume {
    /// Nothing is resumed, or no more.
    #[default]
    Normal,
    /// Beginning like any other path, to find out whether it is the same one (§3.2).
    Reconnaissance {
        /// What was measured before.
        saved: SavedPath,
        /// Bytes that have arrived.
        acked: u64,
    },
    /// Sending more than ACKs justify (§3.3).
    Unvalidated {
        /// PipeSize: what the path is known to carry, in bytes.
        pipe: u64,
        /// The first packet that would not have been sent otherwise.
        first: SendIndex,
        /// The end of the round trip in which it began.
        until: Instant,
        /// The pacing rate in bytes per second.
        rate: u64,
    },
    /// Waiting for what was sent so (§3.4).
    Validating {
        /// PipeSize.
        pipe: u64,
        /// The index after the last packet that would not have been sent otherwise.
        end: SendIndex,
    },
    /// Draining the path after congestion (§3.5).
    SafeRetreat {
        /// PipeSize.
        pipe: u64,
        /// The index after the last packet before the retreat.
        end: SendIndex,
    },
}

/// What is to happen to the window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// What congestion control does otherwise.
    Ordinary,
    /// Nothing: it must not grow, and losses are of the flight that has been answered.
    Hold,
    /// It becomes this many bytes.
    Set(u64),
    /// Congestion: it becomes at most this many bytes until the path is drained.
    Retreat(u64),
    /// The path is drained, and carried `pipe` bytes: ssthresh follows from it, the window stays.
    Drained {
        /// PipeSize.
        pipe: u64,
    },
}

/// The window as it is now.
#[derive(Clone, Copy, Debug)]
pub(super) struct Window {
    /// Its size in bytes.
    pub(super) bytes: u64,
    /// Maximum datagram size.
    pub(super) mds: u64,
    /// The initial window.
    pub(super) initial: u64,
    /// Whether it is what holds the flow back, or the pacer.
    pub(super) is_limit: bool,
}

impl Resume {
    /// Begins to resume a path on which nothing was sent.
    pub(super) const fn new(saved: SavedPath) -> Self {
        Self::Reconnaissance { saved, acked: 0 }
    }

    /// Ends it without a step, because the window is set by something stronger.
    pub(super) fn abandon(&mut self) {
        *self = Self::Normal;
    }

    /// Returns whether nothing is resumed, or no more.
    pub(super) const fn is_over(&self) -> bool {
        matches!(self, Self::Normal)
    }

    /// Returns whether packets are in flight that were sent beyond what ACKs justified.
    pub(super) const fn is_jumping(&self) -> bool {
        self.pipe().is_some()
    }

    /// Returns whether the path is being drained.
    pub(super) const fn is_retreating(&self) -> bool {
        matches!(self, Self::SafeRetreat { .. })
    }

    /// Returns the pacing rate in bytes per second, where one is prescribed.
    pub(super) const fn rate(&self) -> Option<u64> {
        match self {
            Self::Unvalidated { rate, .. } => Some(*rate),
            Self::Normal
            | Self::Reconnaissance { .. }
            | Self::Validating { .. }
            | Self::SafeRetreat { .. } => None,
        }
    }

    /// Returns PipeSize while more than that is in flight.
    pub(super) const fn pipe(&self) -> Option<u64> {
        match self {
            Self::Normal | Self::Reconnaissance { .. } => None,
            Self::Unvalidated { pipe, .. }
            | Self::Validating { pipe, .. }
            | Self::SafeRetreat { pipe, .. } => Some(*pipe),
        }
    }

    /// Returns its number in traces: 0 = normal, then in the order of the phases.
    pub(super) const fn number(&self) -> u64 {
        match self {
            Self::Normal => 0,
            Self::Reconnaissance { .. } => 1,
            Self::Unvalidated { .. } => 2,
            Self::Validating { .. } => 3,
            Self::SafeRetreat { .. } => 4,
        }
    }

    /// Handles a packet that was sent at `now`, after which `in_flight` bytes are in flight.
    pub(super) fn on_sent(
        &mut self,
        now: Instant,
        index: SendIndex,
        in_flight: u64,
        window: &Window,
    ) -> Step {
        match *self {
            Self::Unvalidated { pipe, until, .. } => {
                let full = in_flight.saturating_add(window.mds) > window.bytes;
                if full || now > until {
                    self.end_jump(pipe, in_flight, index + 1, window)
                } else {
                    Step::Ordinary
                }
            }
            Self::Normal
            | Self::Reconnaissance { .. }
            | Self::Validating { .. }
            | Self::SafeRetreat { .. } => Step::Ordinary,
        }
    }

    /// Handles an ACK.
    pub(super) fn on_ack(&mut self, ack: &Ack<'_>, window: &Window) -> Step {
        match *self {
            Self::Normal => Step::Ordinary,
            Self::Reconnaissance { saved, acked } => {
                let acked = acked.saturating_add(ack.bytes);
                *self = Self::Reconnaissance { saved, acked };
                if acked < window.initial || !window.is_limit {
                    return Step::Ordinary;
                }
                self.begin_jump(&saved, ack, window)
            }
            Self::Unvalidated {
                pipe,
                first,
                until,
                rate,
            } => {
                let pipe = pipe.saturating_add(ack.bytes);
                if ack.largest_index >= first || ack.now > until {
                    return self.end_jump(pipe, ack.in_flight_after, ack.next_index, window);
                }
                *self = Self::Unvalidated {
                    pipe,
                    first,
                    until,
                    rate,
                };
                Step::Hold
            }
            Self::Validating { pipe, end } => {
                let pipe = pipe.saturating_add(ack.bytes);
                *self = if ack.largest_index + 1 >= end {
                    Self::Normal
                } else {
                    Self::Validating { pipe, end }
                };
                Step::Ordinary
            }
            Self::SafeRetreat { pipe, end } => {
                let pipe = pipe.saturating_add(ack.bytes);
                if ack.largest_index + 1 >= end {
                    *self = Self::Normal;
                    return Step::Drained { pipe };
                }
                *self = Self::SafeRetreat { pipe, end };
                Step::Hold
            }
        }
    }

    /// Handles losses or marks.
    pub(super) fn on_congestion(&mut self, event: &Congestion) -> Step {
        match *self {
            Self::Normal => Step::Ordinary,
            Self::Reconnaissance { .. } => {
                *self = Self::Normal;
                Step::Ordinary
            }
            Self::Unvalidated { pipe, .. } | Self::Validating { pipe, .. } => {
                let end = event.next_index;
                *self = Self::SafeRetreat { pipe, end };
                Step::Retreat(pipe / 2)
            }
            Self::SafeRetreat { pipe, end } if event.largest_index >= end => {
                // A packet that was sent after the retreat.
                *self = Self::Normal;
                Step::Drained { pipe }
            }
            Self::SafeRetreat { .. } => Step::Hold,
        }
    }

    /// Judges the path, on which the initial window has arrived, and jumps if it is the saved one.
    fn begin_jump(&mut self, saved: &SavedPath, ack: &Ack<'_>, window: &Window) -> Step {
        *self = Self::Normal;
        let jump = saved.capacity / JUMP_DIVISOR;
        if !is_alike(saved.rtt, ack.min_rtt) || jump <= window.bytes {
            return Step::Ordinary;
        }
        *self = Self::Unvalidated {
            pipe: ack.in_flight_after,
            first: ack.next_index,
            until: ack.now + ack.smoothed_rtt,
            rate: bytes_per_second(jump, ack.smoothed_rtt).max(1),
        };
        Step::Set(jump)
    }

    /// Ends the jump: the window becomes what was used of it.
    fn end_jump(&mut self, pipe: u64, in_flight: u64, end: SendIndex, window: &Window) -> Step {
        if in_flight < window.initial || in_flight <= pipe {
            // The application did not need it.
            *self = Self::Normal;
            return Step::Set(pipe.max(window.initial).min(window.bytes));
        }
        *self = Self::Validating { pipe, end };
        Step::Set(in_flight.min(window.bytes))
    }
}

/// Returns whether a round trip may be that of the saved path.
fn is_alike(saved: Duration, measured: Duration) -> bool {
    measured > saved / RTT_DIVISOR && measured <= saved.saturating_mul(RTT_FACTOR)
}

#[cfg(test)]
mod tests;
