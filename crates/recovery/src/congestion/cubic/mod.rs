//! CUBIC (RFC 9438), in integers: windows in bytes, the curve in microseconds.

use crate::controller::CongestionCause;
use crate::limit::Limit;
use crate::time::{Instant, nanos};

use super::carry::{Carry, scale};
use super::cube::{cube, cube_root};
use super::growth_clock::GrowthClock;
use super::window_adjustment::{Growth, WindowAdjustment};

/// β_cubic as a fraction (RFC 9438 §4.6).
pub(super) const BETA: (u64, u64) = (7, 10);
/// What a mark leaves of the window (RFC 8511 §4.1). A queue that marks is shorter than one
/// that overflows.
const ECN_BETA: (u64, u64) = (17, 20);
/// (1 + β_cubic) / 2, what fast convergence leaves of the window (§4.7).
const FAST_CONVERGENCE: (u64, u64) = (17, 20);
/// α_cubic = 3 · (1 − β_cubic) / (1 + β_cubic) below cwnd_prior (§4.3).
const ALPHA: (u64, u64) = (9, 17);
/// α once W_est has reached cwnd_prior (§4.3).
const ALPHA_RENO: (u64, u64) = (1, 1);
/// C in segments per second³ (RFC 9438 §5.1).
const C: (u128, u128) = (2, 5);
/// Cubic microseconds in a cubic second.
const CUBIC_SECOND: u128 = 1_000_000_000_000_000_000;

/// The powers of two, and the rest, of the denominator of C · (t − K)³, which is 5 · 10¹⁸.
const SCALE_TWOS: u32 = (C.1 * CUBIC_SECOND).trailing_zeros();
const SCALE_ODD: u64 = ((C.1 * CUBIC_SECOND) >> SCALE_TWOS) as u64;

/// A window that follows a cubic function of the time since the last congestion event.
#[derive(Clone, Debug, Default)]
pub(super) struct Cubic {
    pub(super) clock: GrowthClock,
    pub(super) state: CubicState,
}

/// Everything that an undo restores. It contains readings of the clock, not the clock
/// itself, so a pause between a reduction and its undo does not move the window along the
/// curve.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct CubicState {
    /// W_max in bytes; 0 = not known.
    w_max: u64,
    /// cwnd_prior in bytes; 0 = ssthresh never set.
    cwnd_prior: u64,
    /// The running congestion avoidance stage.
    pub(super) epoch: Option<Epoch>,
    /// Fraction of a byte owed to the window.
    carry: Carry,
}

/// A congestion avoidance stage.
#[derive(Clone, Copy, Debug)]
pub(super) struct Epoch {
    /// t_epoch, as a reading of the clock, in nanoseconds.
    pub(super) start: u64,
    /// K in microseconds.
    k: u64,
    /// The datagram size for which the curve was computed. A change within the stage would
    /// make the window jump.
    mds: u64,
    /// W_est in bytes.
    w_est: u64,
    /// Fraction of a byte owed to W_est.
    w_est_carry: Carry,
}

/// K = ∛((W_max − cwnd_epoch) / C), in microseconds (RFC 9438 §4.2).
fn k(w_max: u64, cwnd_epoch: u64, mds: u64) -> u64 {
    let distance = u128::from(w_max.saturating_sub(cwnd_epoch));
    let cubed = distance.saturating_mul(C.1 * CUBIC_SECOND) / (C.0 * u128::from(mds.max(1)));
    cube_root(cubed)
}

/// W_cubic(t) = C · (t − K)³ + W_max, in bytes; `t` in microseconds.
fn w_cubic(w_max: u64, epoch: &Epoch, t: u64) -> u64 {
    let cubed = cube(t.abs_diff(epoch.k)).unwrap_or(u128::MAX);
    let scaled = cubed.saturating_mul(C.0 * u128::from(epoch.mds)) >> SCALE_TWOS;
    // Within ten seconds of the plateau this fits, and a division of 128 bits takes several times as
    // long. It is computed twice for each ACK.
    let distance = match u64::try_from(scaled) {
        Ok(scaled) => scaled / SCALE_ODD,
        Err(_) => u64::try_from(scaled / u128::from(SCALE_ODD)).unwrap_or(u64::MAX),
    };
    if t < epoch.k {
        w_max.saturating_sub(distance)
    } else {
        w_max.saturating_add(distance)
    }
}

impl Epoch {
    /// W_est += α · segments_acked / cwnd (RFC 9438 §4.3), in bytes.
    fn grow_w_est(&mut self, growth: &Growth, cwnd_prior: u64) {
        let alpha = if self.w_est >= cwnd_prior {
            ALPHA_RENO
        } else {
            ALPHA
        };
        let earned = u128::from(growth.mds)
            .saturating_mul(growth.acked.into())
            .saturating_mul(alpha.0.into());
        let per = u128::from(growth.window) * u128::from(alpha.1);
        let earned = self.w_est_carry.add(earned, per);
        self.w_est = self.w_est.saturating_add(earned);
    }
}

impl Cubic {
    /// Returns the running stage, or starts one at this window.
    fn epoch(&mut self, window: u64, mds: u64, now: Instant) -> Epoch {
        if let Some(epoch) = self.state.epoch {
            return epoch;
        }
        // After persistent congestion and after a slow start without loss, W_max
        // is unknown and the stage starts on the plateau: W_max = cwnd, K = 0
        // (RFC 9438 §4.8, §4.10). The same holds for a W_max already exceeded.
        self.state.w_max = self.state.w_max.max(window);
        if self.state.cwnd_prior == 0 {
            self.state.cwnd_prior = window;
        }
        let epoch = Epoch {
            start: self.clock.read(now),
            k: k(self.state.w_max, window, mds),
            mds,
            w_est: window,
            w_est_carry: Carry::default(),
        };
        self.state.epoch = Some(epoch);
        epoch
    }
}

/// Where the curve is at an ACK.
struct Point {
    epoch: Epoch,
    /// W_cubic(t) now.
    current: u64,
    /// W_cubic(t) a round trip of the path later.
    future: u64,
    /// limit(maxFS).
    limit: u64,
}

impl Cubic {
    /// Starts a new stage, with a plateau at `window`.
    pub(super) fn restart_below(&mut self, window: u64) {
        self.state = CubicState {
            w_max: window,
            cwnd_prior: window,
            epoch: None,
            carry: Carry::default(),
        };
    }

    /// Returns the window after an ACK by the curve alone, without the Reno-friendly region.
    pub(super) fn grow_by_curve(&mut self, growth: &Growth) -> u64 {
        let point = self.point(growth);
        self.follow(growth, &point)
    }

    fn point(&mut self, growth: &Growth) -> Point {
        let epoch = self.epoch(growth.window, growth.mds, growth.now);
        let elapsed = self.clock.read(growth.now).saturating_sub(epoch.start);
        // The target of RFC 9438 §4.2 lies a round trip ahead. Behind a queue of seconds that
        // skips the plateau: K is shorter than the round trip, so the window left the reduction
        // at 1.5 times its size and overflowed the queue again. The path's own round trip,
        // without the queue, is how far Linux looks ahead.
        let ahead = elapsed.saturating_add(nanos(growth.min_rtt));
        let w_max = self.state.w_max;
        let future = w_cubic(w_max, &epoch, ahead / 1_000);
        // limit(maxFS) is what the acknowledgment of a whole window of this size would have
        // led to: a datagram more as in Reno, or the curve's target if that is larger.
        let flight = growth.largest_flight;
        Point {
            epoch,
            current: w_cubic(w_max, &epoch, elapsed / 1_000),
            future,
            limit: target(future, flight).max(flight.saturating_add(growth.mds)),
        }
    }

    /// Concave and convex region (§4.4, §4.5).
    fn follow(&mut self, growth: &Growth, point: &Point) -> u64 {
        let target = target(point.future, growth.window);
        let earned = u128::from(target - growth.window) * u128::from(growth.acked);
        let earned = self.state.carry.add(earned, growth.window.into());
        let grown = growth.window.saturating_add(earned).min(target);
        grown.min(point.limit).max(growth.window)
    }
}

impl WindowAdjustment for Cubic {
    type Saved = CubicState;

    const NAME: &'static str = "cubic";

    /// Multiplicative decrease and fast convergence (RFC 9438 §4.6, §4.7). β
    /// applies to the window, which §4.6 allows where it cannot grow beyond what
    /// is in flight.
    fn reduce(&mut self, window: u64, _mds: u64, signal: CongestionCause) -> u64 {
        let converging = window < self.state.w_max;
        self.state = CubicState {
            w_max: if converging {
                scale(window, FAST_CONVERGENCE.0, FAST_CONVERGENCE.1)
            } else {
                window
            },
            cwnd_prior: window,
            epoch: None,
            carry: Carry::default(),
        };
        let beta = match signal {
            CongestionCause::Loss => BETA,
            CongestionCause::EcnCe => ECN_BETA,
        };
        scale(window, beta.0, beta.1)
    }

    fn on_persistent_congestion(&mut self) {
        self.state.w_max = 0;
        self.state.epoch = None;
        self.state.carry = Carry::default();
    }

    fn start_avoidance(&mut self, window: u64, mds: u64, now: Instant) {
        self.epoch(window, mds, now);
    }

    fn grow(&mut self, growth: &Growth) -> u64 {
        let point = self.point(growth);
        let mut epoch = point.epoch;
        let w_est_before = epoch.w_est;
        epoch.grow_w_est(growth, self.state.cwnd_prior);
        epoch.w_est = epoch.w_est.min(point.limit).max(w_est_before);
        self.state.epoch = Some(epoch);
        if point.current < epoch.w_est {
            // Reno-friendly region (§4.3).
            epoch.w_est.min(point.limit).max(growth.window)
        } else {
            self.follow(growth, &point)
        }
    }

    fn on_limit(&mut self, limit: Limit, now: Instant) {
        self.clock.on_limit(limit, now);
    }

    fn internals(&self, now: Instant, show: &mut dyn FnMut(&'static str, u64)) {
        show("w_max", self.state.w_max);
        show("cwnd_prior", self.state.cwnd_prior);
        show("epoch_shift", self.clock.stopped_time(now));
        if let Some(epoch) = self.state.epoch {
            show("k", epoch.k.saturating_mul(1_000));
            show("w_est", epoch.w_est);
            let elapsed = self.clock.read(now).saturating_sub(epoch.start);
            show("t", elapsed);
        }
    }

    fn save(&self) -> CubicState {
        self.state
    }

    fn restore(&mut self, state: CubicState) {
        self.state = state;
    }
}

/// Returns the target of RFC 9438 §4.2: at least the window, at most 1.5 times the window.
fn target(w_cubic: u64, window: u64) -> u64 {
    w_cubic.clamp(window, window.saturating_add(window / 2))
}

#[cfg(test)]
mod tests;
