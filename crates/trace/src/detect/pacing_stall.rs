//! Data wait and the window has room, but nothing is sent for longer than the
//! pacing rate explains.

use clearway_recovery::limit::Limit;

use super::finding::span;
use super::view::{EventEffects, View};
use super::{Detect, Detector, Finding, Findings, Severity};
use crate::event::Event;

/// How late timers and hosts may be.
const LATE: u64 = 5_000_000;
/// Packets sent closer together than this belong to one train.
const TRAIN: u64 = 100_000;

#[derive(Clone, Debug, Default)]
pub(super) struct PacingStall {
    /// Bytes of the last train.
    train: u64,
    /// Since when there has been room and data without a packet sent.
    since: Option<u64>,
    previous: Option<u64>,
    /// The pacing rate in bits a second, since when it holds, and what it has earned since
    /// `since`, in billionths of a bit: it may rise just before the packet is sent.
    rate: u64,
    rate_since: u64,
    earned: u128,
}

impl Detect for PacingStall {
    fn on_event(
        &mut self,
        view: &View,
        effects: &EventEffects,
        _event: &Event,
        out: &mut Findings,
    ) {
        self.earn(view);
        if let Some(size) = effects.sent {
            self.judge(view, view.now, out);
            let apart = self
                .previous
                .is_none_or(|at| view.now.saturating_sub(at) > TRAIN);
            let train = if apart { 0 } else { self.train };
            self.train = train.saturating_add(size);
            self.previous = Some(view.now);
            self.since = None;
        }
        let holds = may_send(view);
        if !holds {
            self.judge(view, view.now, out);
            self.since = None;
        } else if self.since.is_none() {
            self.since = Some(view.now);
            self.earned = 0;
        }
    }

    fn finish(&mut self, view: &View, out: &mut Findings) {
        if !view.closed {
            self.judge(view, view.now, out);
        }
    }
}

/// Whether there is room for a datagram, data to send, and no limit but the pacer; or the window is
/// reported as the limit while nothing is in flight.
fn may_send(view: &View) -> bool {
    let (Some(window), Some(flight)) = (view.window(), view.flight) else {
        return false;
    };
    let room = window >= flight.saturating_add(view.mds);
    match view.limit {
        Some(Limit::Pacing) => room,
        Some(Limit::Congestion) => room && flight == 0,
        Some(
            Limit::Handshake
            | Limit::Amplification
            | Limit::Scheduling
            | Limit::ConnectionFlowControl
            | Limit::StreamFlowControl
            | Limit::StreamLimit
            | Limit::Application,
        )
        | None => false,
    }
}

impl PacingStall {
    /// Counts what the pacer has earned until now.
    fn earn(&mut self, view: &View) {
        let time = view.now.saturating_sub(self.rate_since);
        let earned = u128::from(time).saturating_mul(self.rate.into());
        self.earned = self.earned.saturating_add(earned);
        self.rate_since = view.now;
        self.rate = view.metrics.pacing_rate.unwrap_or(0);
    }

    fn judge(&mut self, view: &View, now: u64, out: &mut Findings) {
        let (Some(since), Some(rate)) = (self.since, view.metrics.pacing_rate) else {
            return;
        };
        if self.previous.is_none() || view.last_trouble.is_some_and(|at| at >= since) {
            return;
        }
        // The time that the train takes at the pacing rate, and two datagrams more (a coarse
        // timer). Eight bits a byte, 10⁹ billionths.
        let bytes = u128::from(self.train.saturating_add(view.datagrams(2)));
        let needed = bytes.saturating_mul(8_000_000_000);
        let late = u128::from(LATE).saturating_mul(rate.into());
        if self.earned > needed.saturating_add(late) {
            let silent = now.saturating_sub(since);
            let due = u128::from(silent)
                .saturating_mul(needed)
                .checked_div(self.earned);
            let due = due.and_then(|due| u64::try_from(due).ok()).unwrap_or(0);
            let finding = Finding::new(Detector::PacingStall, since, now, Severity::Error)
                .with("nothing sent for", span(silent))
                .with("explained by pacing", span(due))
                .with("pacing rate in bit/s", rate);
            out.push(finding);
            self.since = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::detect::testing::{self, Script, assert_quiet_on_a_healthy_transfer};
    use crate::event::EventData;

    fn script() -> Script {
        let mut script = Script::new("cubic", 20);
        script.metrics(|metrics| {
            metrics.congestion_window = Some(50 * testing::MDS);
            metrics.pacing_rate = Some(20_000_000);
        });
        script
    }

    #[test]
    fn pacer_that_does_not_wake_is_found() {
        let mut script = script();
        script.send(4).limit(Limit::Pacing).wait(40).send(4);
        assert!(script.finds(Detector::PacingStall));
    }

    #[test]
    fn silence_with_empty_window_reported_as_full_is_found() {
        let mut script = script();
        script.send(4).wait(20).ack(0, 3).window(50, 0);
        script
            .limit(Limit::Congestion)
            .wait(400)
            .limit(Limit::Congestion);
        assert!(script.finds(Detector::PacingStall));
    }

    #[test]
    fn trains_at_the_pacing_rate_cause_no_finding() {
        let mut script = script();
        for _ in 0..20 {
            // 10 packets at 20 Mbit/s are 4.8 ms.
            script.send(10).limit(Limit::Pacing).wait_us(4_800);
            script.ack(script.next - 10, script.next - 1).window(50, 0);
        }
        script.limit(Limit::Application).wait(1_000).send(1);
        assert!(!script.finds(Detector::PacingStall));
    }

    /// A train of two at 480 kbit/s waits for 40 ms. At the end of the wait the rate triples.
    #[test]
    fn rate_that_rises_at_the_end_of_a_wait_causes_no_finding() {
        let waits = |millis| {
            let mut script = script();
            script.metrics(|metrics| metrics.pacing_rate = Some(480_000));
            script.send(2).limit(Limit::Pacing).wait(millis);
            script.metrics(|metrics| metrics.pacing_rate = Some(1_440_000));
            script.wait(2).send(2);
            script.finds(Detector::PacingStall)
        };
        assert!(!waits(44));
        assert!(waits(120), "more than four datagrams explain");
    }

    #[test]
    fn missing_events_are_no_stall() {
        let stalled = |missing: bool| {
            let mut script = script();
            script.send(4).limit(Limit::Pacing).wait(40);
            if missing {
                script.tell(EventData::EventsDropped { count: 90 });
            }
            script.send(4);
            script.finds(Detector::PacingStall)
        };
        assert!(stalled(false));
        assert!(!stalled(true));
    }

    #[test]
    fn healthy_transfer_has_no_finding() {
        assert_quiet_on_a_healthy_transfer(Detector::PacingStall);
    }
}
