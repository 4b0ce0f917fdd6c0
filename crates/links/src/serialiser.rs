//! Serialisation: putting packets on the wire one after another.

use core::num::NonZeroU64;
use core::time::Duration;

use crate::ledger::QueuedPacket;
use crate::trace::Cursor;
use crate::{LinkConfig, Rate, Time};

/// A transmitter of a given rate, exact over any number of packets, or one
/// that follows a trace.
///
/// A packet's last bit seldom falls on a whole nanosecond. Departures are
/// rounded up, and the part of a nanosecond by which they are late is carried
/// into the next packet of the same busy period, so the rate has no drift and
/// is never exceeded.
#[derive(Clone, Debug, Default)]
pub(crate) struct Serialiser {
    busy_until: Time,
    /// By how much the last departure was rounded up: `surplus / rate` ns.
    surplus: u64,
    rate: Option<NonZeroU64>,
    cursor: Cursor,
}

impl Serialiser {
    /// When a packet that waits since `at` can start; `None`: not before the configuration changes.
    pub(crate) fn next_start(
        &self,
        config: &LinkConfig,
        origin: Option<Time>,
        at: Time,
    ) -> Option<Time> {
        let at = at.max(self.busy_until);
        if let Some(trace) = &config.trace {
            let origin = origin.unwrap_or(Time::ZERO);
            return Some(self.cursor.next_start(trace, origin, at));
        }
        let elapsed = elapsed(origin, at);
        match config.rate.at(elapsed) {
            Rate::Unlimited | Rate::Bits(_) => Some(at),
            Rate::Stopped => {
                let origin = origin?;
                config
                    .rate
                    .steps_after(elapsed)
                    .find(|(_, rate)| *rate != Rate::Stopped)
                    .map(|(step, _)| origin + step)
            }
        }
    }

    /// Starts a packet at `at`, which [`Serialiser::next_start`] gave, and
    /// returns when its last bit has left.
    pub(crate) fn start(
        &mut self,
        config: &LinkConfig,
        origin: Option<Time>,
        at: Time,
        carried: &QueuedPacket,
    ) -> Time {
        if let Some(trace) = &config.trace {
            let origin = origin.unwrap_or(Time::ZERO);
            self.busy_until = self.cursor.start(trace, origin, at, carried.size);
            return self.busy_until;
        }
        match config.rate.at(elapsed(origin, at)) {
            Rate::Bits(rate) => self.transmit(at, carried.size, rate, carried.since < at),
            // `next_start` never returns a time for a stopped rate.
            Rate::Unlimited | Rate::Stopped => at,
        }
    }

    /// Starts `size` bytes at `at` and returns when the last bit has left.
    ///
    /// `backlogged`: the packet waited for the one before, so that it starts
    /// at the exact end of that one.
    fn transmit(&mut self, at: Time, size: u32, rate: NonZeroU64, backlogged: bool) -> Time {
        let carried = if backlogged && self.rate == Some(rate) && at == self.busy_until {
            self.surplus
        } else {
            0
        };
        // A u32 of bytes in bits times 10⁹ would overflow only past 2 GB.
        let work = (u64::from(size) * 8).saturating_mul(1_000_000_000);
        let (nanos, surplus) = match work.checked_sub(carried) {
            None => (0, carried - work),
            Some(left) => (left.div_ceil(rate.get()), (rate.get() - left % rate) % rate),
        };
        self.busy_until = Time(at.0.saturating_add(nanos));
        self.surplus = surplus;
        self.rate = Some(rate);
        self.busy_until
    }
}

/// `at` on the clock of windows and steps.
fn elapsed(origin: Option<Time>, at: Time) -> Option<Duration> {
    origin.and_then(|origin| at.checked_since(origin))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn serialisation_time_is_exact() {
        let mut serialiser = Serialiser::default();
        let rate = NonZeroU64::new(7_000_000).unwrap();
        let mut now = Time::ZERO;
        for _ in 0..10_000 {
            now = serialiser.transmit(now, 125, rate, true);
        }
        // 10⁷ bits at 7 Mbit/s: 10⁷ × 10⁹ / 7 000 000 ns, rounded up.
        assert_eq!(now, Time(1_428_571_429));
    }

    #[test]
    fn idle_gap_keeps_the_rounding_remainder() {
        let mut serialiser = Serialiser::default();
        let rate = NonZeroU64::new(3_000_000_000).unwrap();
        // One byte is 2 2/3 ns: three, with a third carried.
        assert_eq!(serialiser.transmit(Time(0), 1, rate, false), Time(3));
        assert_eq!(serialiser.transmit(Time(3), 1, rate, true), Time(6));
        assert_eq!(serialiser.transmit(Time(6), 1, rate, true), Time(8));
        assert_eq!(serialiser.transmit(Time(100), 1, rate, false), Time(103));
    }

    proptest! {
        #[test]
        fn serialiser_does_not_drift(
            sizes in prop::collection::vec(1u32..70_000, 1..200),
            rate in 1u64..2_000_000_000_000,
        ) {
            let rate = NonZeroU64::new(rate).unwrap();
            let mut serialiser = Serialiser::default();
            let mut now = Time::ZERO;
            let mut bits = 0u128;
            for size in sizes {
                now = serialiser.transmit(now, size, rate, true);
                bits += u128::from(size) * 8;
                let exact = (bits * 1_000_000_000).div_ceil(u128::from(rate.get()));
                prop_assert_eq!(u128::from(now.0), exact.min(u128::from(u64::MAX)));
            }
        }
    }
}
