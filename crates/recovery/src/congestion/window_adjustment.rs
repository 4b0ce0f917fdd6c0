//! What NewReno and CUBIC do not share: by how much the window comes down, and
//! how it grows in congestion avoidance.

use core::fmt::Debug;
use core::time::Duration;

use crate::limit::Limit;
use crate::time::Instant;

/// An ACK in congestion avoidance.
#[derive(Clone, Copy, Debug)]
pub(super) struct Growth {
    /// When it arrived.
    pub(super) now: Instant,
    /// The window before it, in bytes.
    pub(super) window: u64,
    /// Bytes acknowledged that had used the window.
    pub(super) acked: u64,
    /// Largest flight since the last reduction, in bytes.
    pub(super) largest_flight: u64,
    /// Smoothed RTT.
    pub(super) smoothed_rtt: Duration,
    /// Maximum datagram size.
    pub(super) mds: u64,
}

/// The law of a window in congestion avoidance.
pub(super) trait WindowAdjustment: Debug + Send {
    /// What an undo restores.
    type Saved: Copy + Debug + Send;

    /// The controller's name.
    const NAME: &'static str;

    /// Congestion at this window: answers with the new ssthresh, before the
    /// minimum window is applied.
    fn reduce(&mut self, window: u64) -> u64;

    /// Persistent congestion: what is known of the path's capacity is void.
    fn on_persistent_congestion(&mut self);

    /// Congestion avoidance begins, unless it is already under way.
    fn start_avoidance(&mut self, window: u64, mds: u64, now: Instant);

    /// The window after an ACK; never smaller than before, and bounded by what
    /// the largest flight justifies.
    fn grow(&mut self, growth: &Growth) -> u64;

    /// The reason for not sending changed.
    fn on_limit(&mut self, limit: Limit, now: Instant);

    /// Figures for traces, by name (see `Controller::internals`).
    fn internals(&self, now: Instant, show: &mut dyn FnMut(&'static str, u64)) {
        let _ = (now, show);
    }

    /// What must be kept to undo a reduction.
    fn save(&self) -> Self::Saved;

    /// Undoes everything since `memory` was taken.
    fn restore(&mut self, saved: Self::Saved);
}
