//! The window stays far below what the path was just seen to carry, because losses or marks come more
//! often than the window can grow back, although the queue is empty again and again.
//!
//! What the path carries is the best delivery rate of the last seconds, a sample over a round trip
//! or more: so a flow that gets its share of a link is not measured by the time when it was alone. A
//! sawtooth delivers three quarters of its best round trips on average, and is silent.

use std::collections::VecDeque;

use super::condition::{Condition, Period};
use super::view::{EventEffects, View};
use super::{Detect, Detector, Finding, Findings, Severity};
use crate::event::Event;

/// Everything is measured in bins of this length.
const BIN: u64 = 1_000_000_000;
/// Number of bins that are judged together.
const BINS: usize = 5;
/// How long these last, in nanoseconds and in seconds.
const JUDGED: u64 = BIN * BINS as u64;
const JUDGED_SECONDS: u64 = JUDGED / 1_000_000_000;
/// Number of bins in which the best delivery rate is looked for.
const BEST_BINS: usize = 10;
/// Bins among those judged together that must have losses or marks of their own.
const TROUBLED: usize = 4;
/// For how long it must hold, besides the bins that are judged first.
const NEEDED: u64 = 2 * BIN;
/// The time that tells a silence from two observations, which are a bin apart.
const SPAN: u64 = 8 * BIN;
/// Share of the best delivery rate, in percent, below which the window is small.
const SMALL: u64 = 60;

/// What was seen in a second.
#[derive(Clone, Copy, Debug, Default)]
struct Bin {
    /// Whether anything but the network was the limit.
    disturbed: bool,
    least_rtt: Option<u64>,
    /// Round trips with losses, and with marks.
    losses: u64,
    marks: u64,
    /// The sum of the windows that were reported, and their number.
    windows: u64,
    reports: u64,
    /// Bytes delivered.
    delivered: u64,
    /// The best delivery rate in bit/s.
    best: u64,
}

#[derive(Clone, Debug, Default)]
pub(super) struct CongestionLimited {
    bins: VecDeque<Bin>,
    bin: u64,
    /// Bytes delivered when the bin began.
    delivered: Option<u64>,
    /// When the last round trip with losses or marks began.
    last_event: Option<u64>,
    condition: Condition,
    /// The sum of the bins in which it held, and their number.
    sum: Bin,
    count: u64,
}

impl Detect for CongestionLimited {
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
            self.end_bin(view, bin, out);
        }
        let Some(current) = self.bins.back_mut() else {
            return;
        };
        if effects.lost || effects.marked {
            let again = self
                .last_event
                .is_some_and(|at| view.now < at.saturating_add(view.round_trips(1)));
            if !again {
                self.last_event = Some(view.now);
                let lost = effects.lost.into();
                current.losses = current.losses.saturating_add(lost);
                current.marks = current.marks.saturating_add((!effects.lost).into());
            }
        }
        if !effects.metrics {
            return;
        }
        let metrics = &view.metrics;
        let app_limited = metrics.app_limited == Some(true);
        current.disturbed |= view.waits_for_network() != Some(true) || app_limited;
        current.least_rtt = match (current.least_rtt, metrics.latest_rtt) {
            (Some(least), Some(rtt)) => Some(least.min(rtt)),
            (least, rtt) => least.or(rtt),
        };
        current.windows = current.windows.saturating_add(view.window().unwrap_or(0));
        current.reports = current.reports.saturating_add(1);
        if !app_limited {
            current.best = current.best.max(metrics.delivery_rate.unwrap_or(0));
        }
    }

    fn finish(&mut self, view: &View, out: &mut Findings) {
        if let Some(period) = self.condition.finish(view, SPAN) {
            self.judge(period, out);
        }
    }
}

impl CongestionLimited {
    fn end_bin(&mut self, view: &View, bin: u64, out: &mut Findings) {
        let delivered = view.metrics.delivered;
        let since = delivered.zip(self.delivered);
        if let Some(current) = self.bins.back_mut() {
            match since {
                Some((now, then)) => current.delivered = now.saturating_sub(then),
                None => current.disturbed = true,
            }
        }
        let holds = bin == self.bin.saturating_add(1) && self.is_small(view);
        if let Some(period) = self.condition.update(holds, view, SPAN) {
            self.judge(period, out);
            (self.sum, self.count) = (Bin::default(), 0);
        }
        if holds {
            self.add_last();
        }
        if bin > self.bin.saturating_add(1) {
            self.bins.clear();
        }
        (self.bin, self.delivered) = (bin, delivered);
        if self.bins.len() == BEST_BINS {
            self.bins.pop_front();
        }
        self.bins.push_back(Bin::default());
    }

    fn best(&self) -> u64 {
        self.bins.iter().map(|bin| bin.best).max().unwrap_or(0)
    }

    /// Whether the last bins show it.
    fn is_small(&self, view: &View) -> bool {
        let Some(min) = view.metrics.min_rtt else {
            return false;
        };
        let short = min.saturating_add(min / 4).saturating_add(5_000_000);
        let last = || self.bins.iter().rev().take(BINS);
        let delivered: u64 = last().map(|bin| bin.delivered).sum();
        let rate = delivered.saturating_mul(8) / JUDGED_SECONDS;
        let troubled = last().filter(|bin| bin.losses > 0 || bin.marks > 0);
        last().count() == BINS
            && last().all(|bin| !bin.disturbed && bin.least_rtt.is_some_and(|rtt| rtt <= short))
            && troubled.count() >= TROUBLED
            && rate.saturating_mul(100) < self.best().saturating_mul(SMALL)
    }

    fn add_last(&mut self) {
        let best = self.best();
        let Some(last) = self.bins.back() else { return };
        let sum = &mut self.sum;
        sum.losses = sum.losses.saturating_add(last.losses);
        sum.marks = sum.marks.saturating_add(last.marks);
        sum.windows = sum.windows.saturating_add(last.windows);
        sum.reports = sum.reports.saturating_add(last.reports);
        sum.delivered = sum.delivered.saturating_add(last.delivered);
        sum.best = sum.best.max(best);
        self.count = self.count.saturating_add(1);
    }

    fn judge(&self, period: Period, out: &mut Findings) {
        if period.observed < NEEDED {
            return;
        }
        let Self { sum, count, .. } = self;
        let mean = |of: u64, over: u64| of.checked_div(over).unwrap_or(0);
        let detector = match sum.marks > sum.losses {
            true => Detector::MarkLimited,
            false => Detector::LossLimited,
        };
        let events = sum.losses.saturating_add(sum.marks);
        // The bins that were judged first are part of it.
        let start = period.start.saturating_sub(JUDGED);
        let finding = Finding::new(detector, start, period.end, Severity::Note)
            .with(
                "round trips with losses or marks in 10 s",
                mean(events.saturating_mul(10), *count),
            )
            .with("mean window", mean(sum.windows, sum.reports))
            .with(
                "delivered in bit/s",
                mean(sum.delivered.saturating_mul(8), *count),
            )
            .with("best round trip in bit/s", sum.best);
        out.push(finding);
    }
}

#[cfg(test)]
mod tests {
    use clearway_recovery::limit::Limit;

    use super::*;
    use crate::detect::testing::{Script, assert_quiet_on_a_healthy_transfer};

    #[derive(Clone, Copy)]
    struct Path {
        /// kB delivered in a tenth of a second.
        kilobytes: u64,
        /// The best delivery rate in kB in a tenth of a second, once a second.
        best: u64,
        /// The least RTT of each second in milliseconds; that of the path is 40.
        rtt: u64,
        limit: Limit,
        /// Seconds between losses.
        every: u64,
    }

    const LOSSY: Path = Path {
        kilobytes: 50,
        best: 100,
        rtt: 42,
        limit: Limit::Congestion,
        every: 1,
    };

    fn run(path: Path, marks: bool) -> Script {
        let mut script = Script::new("newreno", 40);
        for tenth in 0..120 {
            script.wait(100).limit(path.limit);
            if tenth % (10 * path.every) == 5 {
                let number = script.next;
                script.send(1);
                if marks {
                    let ce = number + 1;
                    script.receive(crate::event::Frame::Ack {
                        ranges: vec![(number, number)].into(),
                        delay: None,
                        ecn: Some([0, 0, ce]),
                    });
                } else {
                    script.lose(number);
                }
            }
            script.metrics(|metrics| {
                let best = if tenth % 10 == 3 {
                    path.best
                } else {
                    path.kilobytes
                };
                let late = if tenth % 10 == 3 { 0 } else { 30 };
                metrics.delivery_rate = Some(best * 80_000);
                metrics.latest_rtt = Some((path.rtt + late) * 1_000_000);
                metrics.delivered = Some(metrics.delivered.unwrap_or(0) + path.kilobytes * 1_000);
            });
        }
        script
    }

    fn finds(path: Path) -> bool {
        run(path, false).finds(Detector::LossLimited)
    }

    #[test]
    fn half_of_the_best_round_trip_is_found_where_losses_are_frequent() {
        assert!(finds(LOSSY));
        assert!(!run(LOSSY, false).finds(Detector::MarkLimited));
        assert!(
            !finds(Path {
                kilobytes: 65,
                ..LOSSY
            }),
            "a sawtooth"
        );
        assert!(!finds(Path { every: 2, ..LOSSY }), "rare losses");
    }

    #[test]
    fn marks_are_told_from_losses() {
        let script = run(LOSSY, true);
        assert!(script.finds(Detector::MarkLimited));
        assert!(!script.finds(Detector::LossLimited));
    }

    #[test]
    fn standing_queue_or_another_limit_causes_no_finding() {
        assert!(!finds(Path { rtt: 60, ..LOSSY }));
        assert!(!finds(Path {
            limit: Limit::Application,
            ..LOSSY
        }));
    }

    #[test]
    fn healthy_transfer_has_no_finding() {
        assert_quiet_on_a_healthy_transfer(Detector::LossLimited);
        assert_quiet_on_a_healthy_transfer(Detector::MarkLimited);
    }
}
