//! How a classic window changes: by how much it is reduced, and how it grows in congestion
//! avoidance. NewReno, CUBIC and Prague differ in this.

use core::fmt::Debug;
use core::time::Duration;

use crate::controller::CongestionCause;
use crate::limit::Limit;
use crate::time::Instant;

/// An ACK in congestion avoidance, which may grow the window.
#[derive(Clone, Copy, Debug)]
pub(super) struct Growth {
    /// When it arrived.
    pub(super) now: Instant,
    /// The window before it, in bytes.
    pub(super) window: u64,
    /// Acknowledged bytes of packets that were sent while the window was in use.
    pub(super) acked: u64,
    /// Largest flight since the last reduction, in bytes.
    pub(super) largest_flight: u64,
    /// Smallest RTT of the path.
    pub(super) min_rtt: Duration,
    /// Maximum datagram size.
    pub(super) mds: u64,
}

impl Growth {
    /// Returns the window after additive increase by `earned` bytes: at most one datagram
    /// larger than the largest flight, and never smaller than before.
    pub(super) fn additive(&self, earned: u64) -> u64 {
        let limit = self.largest_flight.saturating_add(self.mds);
        let window = self.window.saturating_add(earned);
        window.min(limit).max(self.window)
    }
}

/// How the window of a [`Classic`](super::classic::Classic) controller is reduced and
/// grows.
pub(super) trait WindowAdjustment: Clone + Debug + Send + 'static {
    /// The state that an undo restores.
    type Saved: Copy + Debug + Send;

    /// The controller's name.
    const NAME: &'static str;

    /// Reduces the window after congestion. Returns the new ssthresh, before the minimum
    /// window is applied. `mds` is the maximum datagram size. `signal` is a mark only in congestion
    /// avoidance (RFC 8511 §4.1).
    fn reduce(&mut self, window: u64, mds: u64, signal: CongestionCause) -> u64;

    /// Forgets what is known of the path's capacity after persistent congestion.
    fn on_persistent_congestion(&mut self);

    /// Starts congestion avoidance, unless it has started already.
    fn start_avoidance(&mut self, window: u64, mds: u64, now: Instant);

    /// Returns the window after an ACK: never smaller than before, and no larger than the
    /// largest flight justifies.
    fn grow(&mut self, growth: &Growth) -> u64;

    /// Called when the reason for not sending changed.
    fn on_limit(&mut self, limit: Limit, now: Instant);

    /// Shows figures for traces, by name (see `Controller::internals`).
    fn internals(&self, now: Instant, show: &mut dyn FnMut(&'static str, u64)) {
        let _ = (now, show);
    }

    /// Returns the state that is needed to undo a reduction.
    fn save(&self) -> Self::Saved;

    /// Restores the state that [`save`](Self::save) returned.
    fn restore(&mut self, saved: Self::Saved);
}
