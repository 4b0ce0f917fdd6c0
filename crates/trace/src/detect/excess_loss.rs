//! The sender goes on losing a tenth of its packets, while its queue is long: it sends more than
//! the path carries and does not respond. Losses without a queue are the path's own.

use std::collections::VecDeque;

use super::condition::{Condition, Period};
use super::view::{EventEffects, View};
use super::{Detect, Detector, Finding, Findings, Severity};
use crate::event::Event;

/// Packets are counted in bins of this length.
const BIN: u64 = 1_000_000_000;
/// Number of bins that are judged together.
const BINS: usize = 10;
/// The time that they cover.
const NEEDED: u64 = BIN * BINS as u64;
/// Bins among them that must have losses of their own: one overflow is no excess.
const LOSSY_BINS: usize = 8;
/// Packets below which there is nothing to judge.
const ENOUGH: u64 = 100;

/// What was sent in a second.
#[derive(Clone, Copy, Debug, Default)]
struct Bin {
    sent: u64,
    lost: u64,
    /// Packets declared lost and acknowledged all the same.
    spurious: u64,
}

impl Bin {
    fn lost(self) -> u64 {
        self.lost.saturating_sub(self.spurious)
    }

    /// Whether a twentieth was lost.
    fn is_lossy(self) -> bool {
        self.lost() > 0 && self.lost().saturating_mul(20) >= self.sent
    }
}

#[derive(Clone, Debug, Default)]
pub(super) struct ExcessLoss {
    bins: VecDeque<Bin>,
    bin: u64,
    condition: Condition,
    /// The largest share lost, in percent.
    worst: u64,
}

impl Detect for ExcessLoss {
    fn on_event(
        &mut self,
        view: &View,
        effects: &EventEffects,
        _event: &Event,
        out: &mut Findings,
    ) {
        if effects.path {
            *self = Self::default();
        }
        let bin = view.now / BIN;
        if bin != self.bin || self.bins.is_empty() {
            self.close_bin(view, out);
            if bin > self.bin.saturating_add(1) {
                // A second without events: nothing was sent.
                self.bins.clear();
            }
            self.bin = bin;
            if self.bins.len() == BINS {
                self.bins.pop_front();
            }
            self.bins.push_back(Bin::default());
        }
        let Some(current) = self.bins.back_mut() else {
            return;
        };
        let spurious = effects.acked.map_or(0, |acked| acked.spurious);
        current.sent = current.sent.saturating_add(effects.sent.is_some().into());
        current.lost = current.lost.saturating_add(effects.lost.into());
        current.spurious = current.spurious.saturating_add(spurious);
    }

    fn finish(&mut self, view: &View, out: &mut Findings) {
        self.close_bin(view, out);
        if let Some(period) = self.condition.finish(view, NEEDED) {
            self.report(period, out);
        }
    }
}

impl ExcessLoss {
    fn close_bin(&mut self, view: &View, out: &mut Findings) {
        let holds = self.is_excess(view);
        if let Some(period) = self.condition.update(holds, view, NEEDED) {
            self.report(period, out);
            self.worst = 0;
        }
    }

    fn is_excess(&mut self, view: &View) -> bool {
        let sent: u64 = self.bins.iter().map(|bin| bin.sent).sum();
        let lost: u64 = self.bins.iter().map(|bin| bin.lost()).sum();
        let lossy = self.bins.iter().filter(|bin| bin.is_lossy()).count();
        let excess = self.bins.len() == BINS
            && lossy >= LOSSY_BINS
            && sent >= ENOUGH
            && lost.saturating_mul(10) >= sent
            && view.has_queue();
        if excess {
            let share = lost.saturating_mul(100).checked_div(sent).unwrap_or(0);
            self.worst = self.worst.max(share);
        }
        excess
    }

    fn report(&self, period: Period, out: &mut Findings) {
        // The condition covers the ten seconds before it began, too.
        let (t0, t1) = (period.start.saturating_sub(NEEDED), period.end);
        let finding = Finding::new(Detector::ExcessLoss, t0, t1, Severity::Warning)
            .with("lost in percent", self.worst)
            .with("seconds", t1.saturating_sub(t0) / BIN);
        out.push(finding);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::detect::testing::{Script, assert_quiet_on_a_healthy_transfer};

    /// Twenty packets a tenth of a second, of which these are lost, at this RTT over 40 ms.
    fn run(script: &mut Script, seconds: u64, lost: u64, rtt: u64) {
        for _ in 0..seconds * 10 {
            let first = script.next;
            script.send(20).wait(100);
            for number in first..first + lost {
                script.lose(number);
            }
            script.ack(first + lost, script.next - 1);
            script.metrics(|metrics| metrics.smoothed_rtt = Some(rtt * 1_000_000));
        }
    }

    #[test]
    fn tenth_lost_for_ten_seconds_in_a_long_queue_is_found() {
        for (lost, rtt, found) in [(2, 80, true), (1, 80, false), (2, 45, false)] {
            let mut script = Script::new("bbr", 40);
            run(&mut script, 12, lost, rtt);
            let said = script.finds(Detector::ExcessLoss);
            assert_eq!(said, found, "{lost} of 20 at {rtt} ms");
        }
    }

    #[test]
    fn overflow_of_a_few_seconds_causes_no_finding() {
        let mut script = Script::new("bbr", 40);
        run(&mut script, 6, 10, 80);
        run(&mut script, 12, 0, 80);
        assert!(!script.finds(Detector::ExcessLoss));
    }

    #[test]
    fn pause_separates_what_is_judged_together() {
        let mut script = Script::new("bbr", 40);
        for _ in 0..4 {
            run(&mut script, 6, 4, 80);
            script.wait(3_000);
        }
        assert!(!script.finds(Detector::ExcessLoss));
    }

    #[test]
    fn losses_that_were_spurious_do_not_count() {
        let mut script = Script::new("bbr", 40);
        for _ in 0..150 {
            let first = script.next;
            script.send(20).wait(100).lose(first).lose(first + 1);
            script.ack(first, script.next - 1);
            script.metrics(|metrics| metrics.smoothed_rtt = Some(80_000_000));
        }
        assert!(!script.finds(Detector::ExcessLoss));
    }

    #[test]
    fn healthy_transfer_has_no_finding() {
        assert_quiet_on_a_healthy_transfer(Detector::ExcessLoss);
    }
}
