//! How Prague's window grows, and its response to loss.
//!
//! Without marks, and after a loss, it is CUBIC's: the path has no queue that marks early, so
//! there is nothing to be gained by growing more slowly than the flows beside it.
//!
//! In a queue that marks, flows with different paths have RTTs that differ only by the length of
//! their paths: if each added one datagram per own round, a 1 ms flow would take 25 times the
//! share of a 25 ms flow. (In a classic queue, the queueing delay makes RTTs similar.) So a flow
//! with an RTT below a virtual RTT of 25 ms (from the draft) adds (RTT / 25 ms)² datagrams a
//! round. Its rate then depends on α only. Above 25 ms nothing is scaled.
//!
//! A datagram a round takes minutes to find out that a long path has become free: 170 s for half
//! of 500 Mbit/s over 80 ms. So the window also follows CUBIC's curve from the last response to
//! marks, if that is faster. While marks come every few rounds, as they do in a queue that is in
//! use, the curve has no time to be.

use core::time::Duration;

use crate::controller::{Ack, CongestionCause};
use crate::limit::Limit;
use crate::time::{Instant, nanos};

use super::super::carry::Carry;
use super::super::cubic::{Cubic, CubicState};
use super::super::window_adjustment::{Growth, WindowAdjustment};
use super::VIRTUAL_RTT;
use super::flight_time::FlightTime;

/// Additive increase beside CUBIC's curve.
#[derive(Clone, Debug, Default)]
pub(in super::super) struct PragueGrowth {
    cubic: Cubic,
    /// Fraction of a byte owed to the window by additive increase.
    carry: Carry,
    flight_time: FlightTime,
    /// Whether a queue that marks early is shared.
    shared: bool,
    /// The window before the last response to marks, for a loss in the same round.
    window_before_marks: Option<u64>,
}

impl PragueGrowth {
    /// Measures an ACK.
    pub(super) fn on_ack(&mut self, ack: &Ack<'_>) {
        self.flight_time.on_ack(ack);
    }

    /// Returns how long a packet counts in flight; zero before the first ACK.
    pub(super) fn flight_time(&self) -> Duration {
        self.flight_time.get()
    }

    /// Sets whether a queue that marks early is shared: growth is additive and scaled then.
    pub(super) fn set_shared(&mut self, shared: bool) {
        self.shared = shared;
    }

    /// Starts the curve again after a response to marks, which found `window`.
    pub(super) fn on_marks(&mut self, window: u64) {
        self.cubic.restart_below(window);
        self.window_before_marks = Some(window);
    }

    /// Ends the round of a response to marks: a loss counts in full again.
    pub(super) fn end_response(&mut self) {
        self.window_before_marks = None;
    }
}

/// (RTT / 25 ms)² as a fraction, 1 from 25 ms on; microseconds squared. The round trip is the time in
/// which a window is delivered: where the peer delays its ACKs, rounds are no shorter than that.
fn scale(flight_time: Duration) -> (u128, u128) {
    let virtual_us = nanos(VIRTUAL_RTT) / 1_000;
    let us = (nanos(flight_time) / 1_000).clamp(1, virtual_us);
    (
        u128::from(us) * u128::from(us),
        u128::from(virtual_us) * u128::from(virtual_us),
    )
}

impl WindowAdjustment for PragueGrowth {
    type Saved = (CubicState, Carry);

    const NAME: &'static str = "prague";

    /// As CUBIC, after a loss from the window before a response to marks in the same round. The window
    /// grows as CUBIC's until there are marks again: where losses hold it below what the queue
    /// marks, scaled growth takes 108 rounds for a datagram at 2.4 ms, and there are no marks to
    /// be fair by.
    /// Marks come here only from a classic queue: else the response to them follows α.
    fn reduce(&mut self, window: u64, mds: u64, signal: CongestionCause) -> u64 {
        self.carry = Carry::default();
        self.shared = false;
        let from = self.window_before_marks.take().unwrap_or(window);
        self.cubic.reduce(from.max(window), mds, signal).min(window)
    }

    fn on_persistent_congestion(&mut self) {
        self.carry = Carry::default();
        self.window_before_marks = None;
        self.cubic.on_persistent_congestion();
    }

    fn start_avoidance(&mut self, window: u64, mds: u64, now: Instant) {
        self.cubic.start_avoidance(window, mds, now);
    }

    fn grow(&mut self, growth: &Growth) -> u64 {
        if !self.shared {
            return self.cubic.grow(growth);
        }
        let (numerator, denominator) = scale(self.flight_time());
        let earned = u128::from(growth.mds)
            .saturating_mul(growth.acked.into())
            .saturating_mul(numerator);
        let per = u128::from(growth.window).saturating_mul(denominator);
        let earned = self.carry.add(earned, per);
        growth
            .additive(earned)
            .max(self.cubic.grow_by_curve(growth))
    }

    fn on_limit(&mut self, limit: Limit, now: Instant) {
        self.cubic.on_limit(limit, now);
    }

    fn internals(&self, now: Instant, show: &mut dyn FnMut(&'static str, u64)) {
        self.cubic.internals(now, show);
    }

    fn save(&self) -> Self::Saved {
        (self.cubic.save(), self.carry)
    }

    fn restore(&mut self, (cubic, carry): Self::Saved) {
        self.cubic.restore(cubic);
        self.carry = carry;
    }
}
