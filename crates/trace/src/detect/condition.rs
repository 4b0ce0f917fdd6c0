//! A condition, and for how long it has been seen to hold.
//!
//! A stretch of time in which nothing is observed proves nothing: it is not counted, however long
//! it is, whatever was observed before and after it. It does not end the period either.

use super::view::View;

/// A period in which a condition was seen to hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Period {
    /// The first observation of it.
    pub(super) start: u64,
    /// The last observation of it, or what ended it soon after.
    pub(super) end: u64,
    /// The time between observations, without silences.
    pub(super) observed: u64,
}

impl Period {
    /// From the first observation to the last, silences included: for what is reported when it
    /// changes, and therefore holds in between.
    pub(super) const fn lasted(self) -> u64 {
        self.end.saturating_sub(self.start)
    }
}

/// A condition that is observed from time to time.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Condition {
    period: Option<Period>,
}

impl Condition {
    /// Processes an observation at the time of `view`; returns the period that ended with it.
    /// `needed` is the time for which the condition must be seen to be a finding: a longer stretch
    /// than a quarter of it, and than two round trips, is a silence.
    pub(super) fn update(&mut self, holds: bool, view: &View, needed: u64) -> Option<Period> {
        let now = view.now;
        let Some(period) = &mut self.period else {
            self.period = holds.then_some(Period {
                start: now,
                end: now,
                observed: 0,
            });
            return None;
        };
        let stretch = now.saturating_sub(period.end);
        let heard = stretch <= view.longest_stretch(needed);
        if heard {
            period.observed = period.observed.saturating_add(stretch);
        }
        if heard || holds {
            period.end = period.end.max(now);
        }
        if holds { None } else { self.period.take() }
    }

    /// Ends the period with the trace.
    pub(super) fn finish(&mut self, view: &View, needed: u64) -> Option<Period> {
        self.update(false, view, needed)
    }

    /// The period so far.
    pub(super) const fn period(&self) -> Option<Period> {
        self.period
    }

    /// Since when it has held.
    pub(super) fn since(&self) -> Option<u64> {
        self.period.map(|period| period.start)
    }
}

#[cfg(test)]
mod tests {
    use super::super::Profile;
    use super::*;

    const NEEDED: u64 = 400;

    /// The period after observations at these times, all of which show it but the last.
    fn observed(times: &[u64]) -> Option<Period> {
        let mut view = View::new(&Profile::default());
        let mut condition = Condition::default();
        let mut ended = None;
        for (at, time) in times.iter().enumerate() {
            assert_eq!(ended, None);
            view.now = *time;
            ended = condition.update(at + 1 < times.len(), &view, NEEDED);
        }
        ended
    }

    fn period(start: u64, end: u64, observed: u64) -> Option<Period> {
        Some(Period {
            start,
            end,
            observed,
        })
    }

    #[test]
    fn time_between_observations_counts_and_silence_does_not() {
        assert_eq!(observed(&[5]), None);
        assert_eq!(observed(&[0, 100, 200, 250]), period(0, 250, 250));
        assert_eq!(observed(&[0, 100, 5_000, 5_100]), period(0, 5_100, 200));
    }

    #[test]
    fn silence_before_the_end_is_not_part_of_the_period() {
        assert_eq!(observed(&[0, 100, 9_000]), period(0, 100, 100));
        assert_eq!(observed(&[7, 9_000]), period(7, 7, 0));
    }

    #[test]
    fn two_round_trips_are_no_silence() {
        let mut view = View::new(&Profile::default());
        view.metrics.smoothed_rtt = Some(300);
        let mut condition = Condition::default();
        condition.update(true, &view, NEEDED);
        view.now = 600;
        assert_eq!(condition.finish(&view, NEEDED), period(0, 600, 600));
    }
}
