//! CUBIC's clock, which is stopped while the network is not the limit.

use crate::limit::Limit;
use crate::time::{Instant, nanos};

/// Measures the time spent limited by the network, in nanoseconds.
///
/// The elapsed time of CUBIC's curve must leave out the periods in which the
/// window was not the limit (RFC 9438 §4.2). Epochs are readings of this clock,
/// so a pause shifts the curve by exactly its length, whatever its cause, and a
/// restored epoch is right although pauses happened in between. It starts
/// stopped, and it is never compared with a recovery boundary.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct GrowthClock {
    /// Time of the finished periods.
    total: u64,
    /// Start of the running period.
    since: Option<Instant>,
    /// When it ran first, for traces.
    first: Option<Instant>,
}

impl GrowthClock {
    /// Starts or stops the clock when the reason for not sending changes.
    pub(super) fn on_limit(&mut self, limit: Limit, now: Instant) {
        match (self.since, limit.runs_growth_clock()) {
            (None, true) => {
                self.since = Some(now);
                self.first.get_or_insert(now);
            }
            (Some(_), false) => {
                self.total = self.read(now);
                self.since = None;
            }
            (None, false) | (Some(_), true) => {}
        }
    }

    /// Returns the reading of the clock at `now`.
    pub(super) fn read(&self, now: Instant) -> u64 {
        let running = self.since.map_or(0, |since| nanos(now - since));
        self.total.saturating_add(running)
    }

    /// Returns for how long the clock has been stopped since it first ran: by how much the
    /// curve has been moved.
    pub(super) fn stopped_time(&self, now: Instant) -> u64 {
        self.first
            .map_or(0, |first| nanos(now - first).saturating_sub(self.read(now)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(ms: u64) -> Instant {
        Instant::from_nanos(ms * 1_000_000)
    }

    #[test]
    fn clock_runs_only_while_congestion_or_pacing_limited() {
        let stops = [
            Limit::Handshake,
            Limit::Amplification,
            Limit::Scheduling,
            Limit::ConnectionFlowControl,
            Limit::StreamFlowControl,
            Limit::StreamLimit,
            Limit::Application,
        ];
        for stop in stops {
            let mut clock = GrowthClock::default();
            clock.on_limit(Limit::Congestion, ms(10));
            clock.on_limit(Limit::Pacing, ms(13));
            clock.on_limit(stop, ms(17));
            assert_eq!(clock.read(ms(900)), 7_000_000, "{stop:?}");
            clock.on_limit(Limit::Pacing, ms(1_000));
            assert_eq!(clock.read(ms(1_001)), 8_000_000, "{stop:?}");
        }
    }

    #[test]
    fn clock_starts_stopped() {
        assert_eq!(GrowthClock::default().read(ms(5_000)), 0);
    }

    #[test]
    fn limit_changes_without_duration_lose_no_time() {
        let (mut steady, mut flickering) = (GrowthClock::default(), GrowthClock::default());
        steady.on_limit(Limit::Congestion, ms(0));
        for round in 0..1_000 {
            flickering.on_limit(Limit::Application, ms(10 * round));
            flickering.on_limit(Limit::Congestion, ms(10 * round));
        }
        assert_eq!(flickering.read(ms(20_000)), steady.read(ms(20_000)));
    }

    #[test]
    fn reading_before_the_start_is_zero() {
        let mut clock = GrowthClock::default();
        clock.on_limit(Limit::Congestion, ms(10));
        assert_eq!(clock.read(ms(3)), 0);
    }

    #[test]
    fn stopped_time_counts_from_the_first_start() {
        let mut clock = GrowthClock::default();
        assert_eq!(clock.stopped_time(ms(5)), 0);
        clock.on_limit(Limit::Congestion, ms(10));
        clock.on_limit(Limit::Application, ms(20));
        clock.on_limit(Limit::Congestion, ms(50));
        assert_eq!(clock.stopped_time(ms(60)), 30_000_000);
    }
}
