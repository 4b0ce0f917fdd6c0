//! NewReno (RFC 9002 §7 and appendix B).

use crate::controller::CongestionCause;
use crate::limit::Limit;
use crate::time::Instant;

use super::carry::{Carry, scale};
use super::window_adjustment::{Growth, WindowAdjustment};

/// What a mark leaves of the window (RFC 8511 §4.1). A queue that marks is shorter than one
/// that overflows, and half of the window would not fill the path.
const ECN_BETA: (u64, u64) = (4, 5);

/// Halves the window on a loss (RFC 9002 appendix B.1, kLossReductionFactor), takes a fifth of it
/// on a mark, and adds a datagram per acknowledged window.
#[derive(Clone, Debug, Default)]
pub(super) struct NewReno {
    carry: Carry,
}

impl WindowAdjustment for NewReno {
    type Saved = Carry;

    const NAME: &'static str = "newreno";

    fn reduce(&mut self, window: u64, mds: u64, signal: CongestionCause) -> u64 {
        self.carry = Carry::default();
        match signal {
            // Half, and half a datagram, which is what of a window on average cannot be used: it
            // has no room for a part of a datagram. Without it the flight after a loss is smaller
            // than half of that before, and of five two.
            CongestionCause::Loss => window / 2 + mds / 2,
            CongestionCause::EcnCe => scale(window, ECN_BETA.0, ECN_BETA.1),
        }
    }

    fn on_persistent_congestion(&mut self) {
        self.carry = Carry::default();
    }

    fn start_avoidance(&mut self, _window: u64, _mds: u64, _now: Instant) {}

    fn grow(&mut self, growth: &Growth) -> u64 {
        // A window's worth is the datagrams that it has room for.
        let usable = growth.window - growth.window % growth.mds;
        let earned = u128::from(growth.mds) * u128::from(growth.acked);
        let earned = self.carry.add(earned, usable.max(growth.mds).into());
        growth.additive(earned)
    }

    fn on_limit(&mut self, _limit: Limit, _now: Instant) {}

    fn save(&self) -> Carry {
        self.carry
    }

    fn restore(&mut self, saved: Carry) {
        self.carry = saved;
    }
}

#[cfg(test)]
mod tests {
    use core::time::Duration;

    use super::*;

    fn growth(window: u64, acked: u64) -> Growth {
        Growth {
            now: Instant::ZERO,
            window,
            acked,
            largest_flight: window,
            min_rtt: Duration::from_millis(10),
            mds: 1_200,
        }
    }

    #[test]
    fn one_acknowledged_window_grows_by_one_datagram() {
        let mut reno = NewReno::default();
        let mut window = 120_000;
        for _ in 0..100 {
            window = reno.grow(&growth(window, 1_200));
        }
        // A little less than 1200, since the window grows meanwhile.
        assert!((121_190..=121_200).contains(&window), "{window}");
    }

    #[test]
    fn window_larger_than_mds_squared_still_grows() {
        let mut reno = NewReno::default();
        let start = 1_200 * 1_200 * 10;
        let mut window = start;
        for _ in 0..start / 1_200 {
            window = reno.grow(&growth(window, 1_200));
        }
        assert!((start + 1_190..=start + 1_200).contains(&window));
    }

    #[test]
    fn loss_halves_the_datagrams_in_flight() {
        let loss = CongestionCause::Loss;
        let halved = |window| NewReno::default().reduce(window, 1_000, loss);
        assert_eq!(halved(100_001), 50_500);
        assert_eq!(halved(5_000), 3_000, "two and a half");
        assert_eq!(halved(3_000), 2_000, "one and a half");
    }

    #[test]
    fn mark_takes_a_fifth_of_the_window() {
        let mark = CongestionCause::EcnCe;
        assert_eq!(NewReno::default().reduce(100_001, 1_000, mark), 80_000);
    }

    #[test]
    fn growth_stops_one_datagram_above_the_largest_flight() {
        let under_used = Growth {
            largest_flight: 60_000,
            ..growth(61_100, 60_000)
        };
        assert_eq!(NewReno::default().grow(&under_used), 61_200);
        let far_under = Growth {
            largest_flight: 10_000,
            ..growth(61_100, 60_000)
        };
        assert_eq!(
            NewReno::default().grow(&far_under),
            61_100,
            "nor does it shrink"
        );
    }

    /// Two halves of a byte add up to a byte: not across a reduction, but across one that
    /// is undone.
    #[test]
    fn undo_restores_fractions_of_a_byte() {
        let half = growth(2_400, 1);
        let mut reno = NewReno::default();
        assert_eq!(reno.grow(&half), 2_400);
        let saved = reno.save();
        reno.reduce(2_400, 1_200, CongestionCause::Loss);
        assert_eq!(reno.grow(&half), 2_400, "forgotten");
        reno.restore(Carry::default());
        assert_eq!(reno.grow(&half), 2_400);
        reno.restore(saved);
        assert_eq!(reno.grow(&half), 2_401, "restored");
        assert_eq!(reno.grow(&half), 2_400);
        reno.on_persistent_congestion();
        assert_eq!(reno.grow(&half), 2_400, "forgotten");
    }
}
