//! Whether a window or a model is from before a long time in which the application was the limit.

use core::time::Duration;

use crate::limit::Limit;
use crate::time::Instant;

/// Longest time without a measurement after which a controller is not in doubt: that for which BBR
/// keeps the samples of its filters. RFC 7661 §4.2 asks for a measurement in each round trip, but
/// there the doubt costs growth as well; here only the response to a loss differs.
const TRUSTED: Duration = Duration::from_secs(10);

/// Doubt in what is known of the path (the non-validated phase of RFC 7661).
///
/// What was known is used after a pause: most paths are still the same, and the pacer prevents a
/// burst. But if the first flight meets losses, what was delivered counts for more than
/// what was known before.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Doubt {
    /// Whether the application is the limit.
    application: bool,
    /// When data was last acknowledged for which it was not; `None` before the first time, when
    /// nothing is known that could be doubted.
    measured: Option<Instant>,
    exists: bool,
}

impl Doubt {
    /// Records what limits the sender now.
    pub(super) fn on_limit(&mut self, limit: Limit, now: Instant) {
        let was = core::mem::replace(&mut self.application, limit.is_application());
        let old = self.measured.is_some_and(|at| now > at + TRUSTED);
        self.exists |= was && !self.application && old;
    }

    /// Records that data was acknowledged for which the application was not the limit.
    pub(super) fn on_measured(&mut self, now: Instant) {
        self.measured = Some(now);
    }

    /// Returns whether there is doubt, and whether the path can be judged now: it cannot while
    /// the application is the limit.
    pub(super) fn can_be_settled(self) -> bool {
        self.exists && !self.application
    }

    /// Ends the doubt.
    pub(super) fn settle(&mut self) {
        self.exists = false;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Instant {
        Instant::from_nanos(seconds * 1_000_000_000)
    }

    #[test]
    fn doubt_begins_after_more_than_ten_seconds_of_application_limit() {
        for (end, doubted) in [(110, false), (111, true)] {
            let mut doubt = Doubt::default();
            doubt.on_measured(at(100));
            doubt.on_limit(Limit::Application, at(100));
            doubt.on_limit(Limit::Pacing, at(end));
            assert_eq!(doubt.can_be_settled(), doubted);
            doubt.on_limit(Limit::Application, at(end));
            assert!(!doubt.can_be_settled());
            doubt.on_limit(Limit::Pacing, at(end));
            assert_eq!(doubt.can_be_settled(), doubted);
            doubt.settle();
            assert!(!doubt.can_be_settled());
        }
    }

    #[test]
    fn new_connection_causes_no_doubt() {
        let mut doubt = Doubt::default();
        doubt.on_limit(Limit::Application, at(100));
        doubt.on_limit(Limit::Pacing, at(160));
        assert!(!doubt.can_be_settled());
    }

    /// An outage is not the application's: nothing arrives, but the window is in use.
    #[test]
    fn silence_of_the_path_causes_no_doubt() {
        let mut doubt = Doubt::default();
        doubt.on_measured(at(100));
        doubt.on_limit(Limit::Congestion, at(100));
        doubt.on_limit(Limit::Pacing, at(160));
        assert!(!doubt.can_be_settled());
    }
}
