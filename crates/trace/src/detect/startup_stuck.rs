//! Slow start or Startup lasts for more than thirty rounds with data waiting, although it should
//! have found the capacity of the path.

use super::view::{EventEffects, View};
use super::{Detect, Detector, Finding, Findings, Severity};
use crate::event::Event;

const ROUNDS: u64 = 30;

#[derive(Clone, Debug, Default)]
pub(super) struct StartupStuck {
    /// Time spent in it with data waiting, and when it began.
    spent: u64,
    began: u64,
    last: u64,
    told: bool,
}

impl Detect for StartupStuck {
    fn on_event(
        &mut self,
        view: &View,
        effects: &EventEffects,
        _event: &Event,
        out: &mut Findings,
    ) {
        let starting = view
            .state
            .as_deref()
            .is_some_and(|state| state.contains("slow_start") || state == "startup");
        if effects.path || !starting || view.last_loss == Some(view.now) {
            self.spent = 0;
            self.began = view.now;
            self.told = false;
        } else if view.waits_for_network() == Some(true) {
            // Silence, as between two probe timeouts, is no time in which Startup could end.
            let passed = view.now.saturating_sub(self.last);
            if passed <= view.longest_stretch(0) {
                self.spent = self.spent.saturating_add(passed);
            }
        }
        self.last = view.now;
        let Some(srtt) = view.srtt() else { return };
        if self.spent > srtt.saturating_mul(ROUNDS) && !self.told {
            self.told = true;
            let finding = Finding::new(
                Detector::StartupStuck,
                self.began,
                view.now,
                Severity::Error,
            )
            .with("rounds", self.spent.checked_div(srtt).unwrap_or(0))
            .with("window", view.window().unwrap_or(0));
            out.push(finding);
        }
    }

    fn finish(&mut self, _view: &View, _out: &mut Findings) {}
}

#[cfg(test)]
mod tests {
    use clearway_recovery::limit::Limit;

    use super::*;
    use crate::detect::testing::{Script, assert_quiet_on_a_healthy_transfer};

    #[test]
    fn startup_that_never_ends_is_found() {
        for state in ["slow_start", "startup"] {
            let mut script = Script::new("cubic", 20);
            script.state(state);
            for round in 0..40 {
                script.round(10 + round / 4, 10 + round / 4);
            }
            assert!(script.finds(Detector::StartupStuck), "{state}");
        }
    }

    #[test]
    fn silence_in_startup_causes_no_finding() {
        let mut script = Script::new("cubic", 20);
        script.state("slow_start");
        for _ in 0..4 {
            script.round(10, 10).wait(29_000).window(10, 0);
        }
        assert!(!script.finds(Detector::StartupStuck));
    }

    #[test]
    fn application_limited_startup_causes_no_finding() {
        let mut script = Script::new("cubic", 20);
        script.state("slow_start");
        for _ in 0..60 {
            script.send(1).limit(Limit::Application).wait(20);
            script.ack(script.next - 1, script.next - 1).window(20, 0);
        }
        assert!(!script.finds(Detector::StartupStuck));
    }

    #[test]
    fn healthy_transfer_has_no_finding() {
        assert_quiet_on_a_healthy_transfer(Detector::StartupStuck);
    }
}
