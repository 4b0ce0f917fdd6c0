//! Startup is paced below one initial window per round trip. The first rate is a multiple of that,
//! and until the pipe is full it only rises (draft-ietf-ccwg-bbr §5.6.2), so no measurement can
//! have called for less.

use super::condition::Condition;
use super::finding::span;
use super::view::{EventEffects, View};
use super::{Detect, Detector, Finding, Findings, Severity};
use crate::event::Event;

#[derive(Clone, Debug, Default)]
pub(super) struct PacingStarved {
    /// The longest smoothed RTT of this Startup: the first rate was set with at most this.
    srtt: u64,
    /// The rate is too low.
    condition: Condition,
    told: bool,
}

impl Detect for PacingStarved {
    fn on_event(
        &mut self,
        view: &View,
        effects: &EventEffects,
        _event: &Event,
        out: &mut Findings,
    ) {
        if effects.path || view.state.as_deref() != Some("startup") {
            *self = Self::default();
            return;
        }
        let (Some(srtt), Some(rate)) = (view.srtt(), view.metrics.pacing_rate) else {
            return;
        };
        self.srtt = self.srtt.max(srtt);
        // Half of it, in bit/s: the RTT is recorded in fractions of a millisecond.
        let bytes = u128::from(view.initial_window);
        let full = bytes
            .saturating_mul(8_000_000_000)
            .checked_div(self.srtt.into());
        let low = full.is_some_and(|full| u128::from(rate) < full / 2);
        let needed = self.srtt.saturating_mul(2);
        self.condition.update(low, view, needed);
        let seen = self.condition.period();
        if let Some(period) = seen.filter(|it| it.observed > needed && !self.told) {
            let since = period.start;
            self.told = true;
            let finding = Finding::new(Detector::PacingStarved, since, view.now, Severity::Error)
                .with("pacing rate in bit/s", rate)
                .with("initial window in bytes", view.initial_window)
                .with("smoothed RTT", span(srtt));
            out.push(finding);
        }
    }

    fn finish(&mut self, _view: &View, _out: &mut Findings) {}
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::detect::testing::{Script, assert_quiet_on_a_healthy_transfer};

    /// Rounds of Startup of 20 ms at this rate.
    fn paced(state: &'static str, rate: u64) -> Script {
        let mut script = Script::new("bbr", 20);
        script.state(state);
        for _ in 0..6 {
            script.metrics(|metrics| metrics.pacing_rate = Some(rate));
            script.round(4, 10);
        }
        script
    }

    #[test]
    fn startup_rate_below_the_initial_window_is_found() {
        // Ten datagrams of 1,200 bytes in 20 ms are 4.8 Mbit/s.
        assert!(paced("startup", 100_000).finds(Detector::PacingStarved));
    }

    #[test]
    fn silence_after_a_low_rate_causes_no_finding() {
        let mut script = Script::new("bbr", 20);
        script.state("startup");
        script.metrics(|metrics| metrics.pacing_rate = Some(100_000));
        script.wait(29_000).send(1).metrics(|_| {});
        assert!(!script.finds(Detector::PacingStarved));
    }

    #[test]
    fn startup_rate_of_one_initial_window_per_rtt_causes_no_finding() {
        assert!(!paced("startup", 4_800_000).finds(Detector::PacingStarved));
    }

    #[test]
    fn low_rate_outside_startup_causes_no_finding() {
        assert!(!paced("probe_bw_cruise", 100_000).finds(Detector::PacingStarved));
    }

    #[test]
    fn healthy_transfer_has_no_finding() {
        assert_quiet_on_a_healthy_transfer(Detector::PacingStarved);
    }
}
