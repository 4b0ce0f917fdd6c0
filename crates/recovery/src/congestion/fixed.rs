//! A window that never changes, for tests and measurements.

use crate::controller::{
    Ack, Congestion, Controller, Metrics, Sent, Spurious, State, WindowPolicy,
};
use crate::limit::Limit;
use crate::time::Instant;

use super::min_window;

/// A controller whose window is always the same. Not for shared networks: it does not
/// respond to congestion at all.
#[derive(Clone, Debug)]
pub(super) struct FixedWindow {
    window: u64,
    mds: u64,
    metrics: Metrics,
}

impl FixedWindow {
    /// Creates a window of `window` bytes, or of the minimum window if that is larger.
    pub(super) fn new(window: u64, mds: u64) -> Self {
        Self {
            window,
            mds,
            metrics: Metrics::default(),
        }
    }
}

impl Controller for FixedWindow {
    fn on_sent(&mut self, _sent: &Sent) {}

    fn on_ack(&mut self, _ack: &Ack<'_>) {}

    fn on_congestion(&mut self, event: &Congestion) {
        self.metrics.congestion_events += 1;
        self.metrics.persistent_events += u64::from(event.persistent);
    }

    fn on_spurious(&mut self, _event: &Spurious) {}

    fn on_limit(&mut self, _limit: Limit, _now: Instant) {}

    fn restart_from_idle(&mut self, _now: Instant) {}

    fn on_mds(&mut self, mds: u64) {
        self.mds = mds;
    }

    fn duplicate(&self) -> Option<Box<dyn Controller>> {
        Some(Box::new(self.clone()))
    }

    fn window(&self) -> u64 {
        self.window.max(self.min_window())
    }

    fn min_window(&self) -> u64 {
        min_window(self.mds)
    }

    fn pacing_rate(&self) -> Option<u64> {
        None
    }

    fn window_policy(&self) -> WindowPolicy {
        WindowPolicy::Constant
    }

    fn state(&self) -> State {
        State::CongestionAvoidance
    }

    fn metrics(&self) -> Metrics {
        self.metrics
    }

    fn name(&self) -> &'static str {
        "fixed"
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{lost, persistent};
    use super::*;

    #[test]
    fn fixed_window_changes_only_with_the_minimum() {
        let mut fixed = FixedWindow::new(20_000, 1_200);
        fixed.on_congestion(&lost(0..5, 50));
        fixed.on_congestion(&persistent(6..9, 60));
        assert_eq!(fixed.window(), 20_000);
        assert_eq!(fixed.metrics().congestion_events, 2);
        assert_eq!(fixed.metrics().persistent_events, 1);
        fixed.on_mds(12_000);
        assert_eq!(fixed.window(), 24_000);
    }

    #[test]
    fn fixed_window_leaves_the_rate_to_the_pacer() {
        assert_eq!(FixedWindow::new(20_000, 1_200).pacing_rate(), None);
    }
}
