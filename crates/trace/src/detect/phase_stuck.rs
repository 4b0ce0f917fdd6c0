//! A phase of BBR does not end: DOWN beyond its wait, Drain for more than four rounds, UP for
//! twenty rounds without more bandwidth.

use super::view::{EventEffects, View};
use super::{Detect, Detector, Finding, Findings, Severity};
use crate::event::Event;

/// The longest wait between two probes for bandwidth (draft-ietf-ccwg-bbr).
const LONGEST_WAIT: u64 = 3_000_000_000;
/// Rounds after which Drain must be over, whatever is in flight.
const DRAIN_ROUNDS: u64 = 4;
/// Rounds that DOWN needs before it can end.
const DOWN_ROUNDS: u64 = 2;
/// Rounds of UP without more bandwidth.
const UP_ROUNDS: u64 = 20;

#[derive(Clone, Debug, Default)]
pub(super) struct PhaseStuck {
    /// The phase, since when, and the round it began in.
    phase: Option<(Phase, u64, Option<u64>)>,
    /// The bandwidth when the count began: a single ACK adds too little to compare.
    max_bw: u64,
    /// The event before.
    last: u64,
    /// The last ACK whose effect was reported, and the round it was in.
    acked: Option<(u64, u64)>,
    told: bool,
}

impl Detect for PhaseStuck {
    fn on_event(
        &mut self,
        view: &View,
        effects: &EventEffects,
        _event: &Event,
        out: &mut Findings,
    ) {
        let phase = view.state.as_deref().and_then(Phase::of);
        let round = view.metrics.extra("round_count");
        if self.phase.map(|(phase, ..)| phase) != phase || effects.path {
            self.phase = phase.map(|phase| (phase, view.now, round));
            self.max_bw = view.metrics.extra("max_bw").unwrap_or(0);
            self.told = false;
        }
        let silent = view
            .now
            .saturating_sub(core::mem::replace(&mut self.last, view.now));
        let Some((phase, mut since, began)) = self.phase else {
            return;
        };
        // No phase could end in a silence, unless the controller counted rounds in it.
        if began.is_none() && silent > view.longest_stretch(LONGEST_WAIT) {
            since = since.saturating_add(silent).min(view.now);
            self.phase = Some((phase, since, began));
        }
        if effects.metrics {
            since = self.after_silence(view, since);
            self.phase = Some((phase, since, began));
        }
        let bandwidth = view.metrics.extra("max_bw").unwrap_or(0);
        if phase == Phase::Up && bandwidth > self.max_bw.saturating_add(self.max_bw / 64)
            || view.is_quiet()
        {
            // More bandwidth, or nothing to probe with: the count restarts.
            self.phase = Some((phase, view.now, round));
            self.max_bw = bandwidth;
        }
        self.max_bw = self.max_bw.min(bandwidth);
        if !self.told && effects.metrics {
            self.judge(view, phase, since, began, out);
        }
    }

    fn finish(&mut self, _view: &View, _out: &mut Findings) {}
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Drain,
    Down,
    Up,
}

impl Phase {
    fn of(state: &str) -> Option<Self> {
        match state {
            "drain" => Some(Self::Drain),
            "probe_bw_down" | "probe_down" | "bbr_probe_bw_down" => Some(Self::Down),
            "probe_bw_up" | "probe_up" | "bbr_probe_bw_up" => Some(Self::Up),
            _ => None,
        }
    }

    const fn name(self) -> &'static str {
        match self {
            Self::Drain => "drain",
            Self::Down => "probe_bw_down",
            Self::Up => "probe_bw_up",
        }
    }
}

impl PhaseStuck {
    /// Returns since when the phase lasts without the time before the last ACK, if that was a silence:
    /// no ACK for long, and no round counted in it.
    fn after_silence(&mut self, view: &View, since: u64) -> u64 {
        let reported = view.last_ack.zip(view.metrics.extra("round_count"));
        let Some((ack, round)) = reported else {
            return since;
        };
        let Some((before, then)) = self.acked.replace((ack, round)) else {
            return since;
        };
        let is_silence = ack.saturating_sub(before) > view.longest_stretch(LONGEST_WAIT);
        if is_silence && round.saturating_sub(then) <= 1 {
            since.saturating_add(ack.saturating_sub(before.max(since)))
        } else {
            since
        }
    }

    fn judge(
        &mut self,
        view: &View,
        phase: Phase,
        since: u64,
        began: Option<u64>,
        out: &mut Findings,
    ) {
        let Some(srtt) = view.srtt() else { return };
        let silent = view.last_ack.map(|ack| view.now.saturating_sub(ack));
        if silent.is_some_and(|silent| silent > view.longest_stretch(LONGEST_WAIT)) {
            return;
        }
        let lasted = view.now.saturating_sub(since);
        // Rounds are counted by the controller, or else by time.
        let counted = view.metrics.extra("round_count").zip(began);
        let rounds = match counted {
            Some((now, began)) => now.saturating_sub(began),
            None => lasted.checked_div(srtt).unwrap_or(0),
        };
        let stuck = match phase {
            Phase::Drain => rounds > DRAIN_ROUNDS && lasted > srtt.saturating_mul(DRAIN_ROUNDS),
            Phase::Up => rounds > UP_ROUNDS,
            Phase::Down => {
                let wait = view.metrics.extra("probe_wait").unwrap_or(LONGEST_WAIT);
                // Without ACKs no phase can end.
                lasted > wait.saturating_add(srtt.saturating_mul(2)) && rounds > DOWN_ROUNDS
            }
        };
        if stuck {
            self.told = true;
            let finding = Finding::new(Detector::PhaseStuck, since, view.now, Severity::Error)
                .with("phase", phase.name())
                .with("rounds", rounds);
            out.push(finding);
        }
    }
}

#[cfg(test)]
mod tests {
    use clearway_recovery::limit::Limit;

    use super::*;
    use crate::detect::testing::{Script, assert_quiet_on_a_healthy_transfer};

    fn stay(script: &mut Script, state: &'static str, rounds: u64) {
        script.state(state);
        for _ in 0..rounds {
            script.round(40, 40);
        }
    }

    #[test]
    fn every_phase_that_does_not_end_is_found() {
        for (state, rounds) in [("drain", 8), ("probe_bw_down", 200), ("probe_bw_up", 25)] {
            let mut script = Script::new("bbr", 20);
            stay(&mut script, state, rounds);
            assert!(script.finds(Detector::PhaseStuck), "{state}");
        }
    }

    #[test]
    fn normal_bbr_cycle_causes_no_finding() {
        let mut script = Script::new("bbr", 20);
        stay(&mut script, "drain", 3);
        for _ in 0..3 {
            stay(&mut script, "probe_bw_down", 30);
            stay(&mut script, "probe_bw_cruise", 80);
            stay(&mut script, "probe_bw_up", 6);
        }
        assert!(!script.finds(Detector::PhaseStuck));
    }

    #[test]
    fn phase_during_silence_causes_no_finding() {
        for (rounds, stuck) in [(1, false), (3, true)] {
            let mut script = Script::new("bbr", 20);
            let counted = |script: &mut Script, count: u64| {
                script.metrics(|metrics| metrics.extra = vec![("round_count".into(), count)]);
            };
            counted(&mut script, 5);
            script.send(10).limit(Limit::Congestion);
            script.state("probe_bw_down").wait(4_000);
            counted(&mut script, 5 + rounds);
            assert_eq!(script.finds(Detector::PhaseStuck), stuck, "{rounds}");
        }
    }

    #[test]
    fn phase_that_an_outage_interrupts_causes_no_finding() {
        let after = |rounds: u64| {
            let mut script = Script::new("bbr", 20);
            let mut round = 0;
            let mut count = |script: &mut Script, rounds: u64| {
                for _ in 0..rounds {
                    round += 1;
                    let extra = vec![("round_count".into(), round)];
                    script.metrics(|metrics| metrics.extra = extra);
                    script.round(40, 40);
                }
            };
            script.state("probe_bw_down");
            count(&mut script, 10);
            // The probes of a silence are events.
            script.send(10);
            for wait in [70, 140, 280, 560, 1_120, 830] {
                script.wait(wait).pto();
            }
            count(&mut script, rounds);
            script.finds(Detector::PhaseStuck)
        };
        assert!(!after(40));
        assert!(after(200));
    }

    #[test]
    fn silence_without_counted_rounds_causes_no_finding() {
        for state in ["drain", "probe_bw_down", "probe_bw_up"] {
            let mut script = Script::new("bbr", 20);
            stay(&mut script, state, 2);
            script.wait(29_000);
            stay(&mut script, state, 1);
            assert!(!script.finds(Detector::PhaseStuck), "{state}");
        }
    }

    #[test]
    fn long_probe_up_with_growing_bandwidth_causes_no_finding() {
        let climb = |step: u64| {
            let mut script = Script::new("bbr", 20);
            script.state("probe_bw_up");
            for round in 0..40 {
                let found = 1_000_000 + step * round;
                script.metrics(|metrics| {
                    metrics.extra = vec![("max_bw".into(), found), ("round_count".into(), round)];
                });
            }
            script.finds(Detector::PhaseStuck)
        };
        assert!(!climb(5_000), "less than a 64th at once, but steadily");
        assert!(climb(0));
    }

    #[test]
    fn healthy_transfer_has_no_finding() {
        assert_quiet_on_a_healthy_transfer(Detector::PhaseStuck);
    }
}
