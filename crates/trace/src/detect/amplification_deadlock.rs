//! A server has reached its anti-amplification limit (RFC 9000 §8.1) and receives nothing more: the
//! client does not probe (RFC 9002 §6.2.2.1).

use clearway_recovery::limit::Limit;

use super::finding::span;
use super::view::{EventEffects, View};
use super::{Detect, Detector, Finding, Findings, Severity};
use crate::event::Event;

/// By this time a packet of a client that probes would have arrived: its probe timeout is a second
/// at first and doubles.
const PATIENCE: u64 = 4_000_000_000;

#[derive(Clone, Debug, Default)]
pub(super) struct AmplificationDeadlock {
    told: bool,
}

impl Detect for AmplificationDeadlock {
    fn on_event(
        &mut self,
        view: &View,
        effects: &EventEffects,
        _event: &Event,
        out: &mut Findings,
    ) {
        if effects.sent.is_some() || view.limit != Some(Limit::Amplification) {
            self.told = false;
            return;
        }
        self.judge(view, out);
    }

    fn finish(&mut self, view: &View, out: &mut Findings) {
        if !view.closed {
            self.judge(view, out);
        }
    }
}

impl AmplificationDeadlock {
    fn judge(&mut self, view: &View, out: &mut Findings) {
        if self.told || view.limit != Some(Limit::Amplification) {
            return;
        }
        let since = view.limit_since.max(view.last_received.unwrap_or(0));
        if view.now.saturating_sub(since) > PATIENCE {
            self.told = true;
            let finding = Finding::new(
                Detector::AmplificationDeadlock,
                since,
                view.now,
                Severity::Error,
            )
            .with("silent for", span(view.now.saturating_sub(since)));
            out.push(finding);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::detect::testing::{Script, assert_quiet_on_a_healthy_transfer};
    use crate::event::Frame;

    #[test]
    fn blocked_server_without_client_packets_is_found() {
        let mut script = Script::new("cubic", 20);
        script
            .receive(Frame::Ping)
            .send(3)
            .limit(Limit::Amplification);
        script.wait(9_000).limit(Limit::Amplification);
        assert!(script.finds(Detector::AmplificationDeadlock));
    }

    #[test]
    fn client_that_probes_causes_no_finding() {
        let mut script = Script::new("cubic", 20);
        for period in [1_000, 2_000, 3_000] {
            script
                .receive(Frame::Ping)
                .send(3)
                .limit(Limit::Amplification)
                .wait(period);
        }
        script
            .receive(Frame::Ping)
            .limit(Limit::Application)
            .wait(60_000)
            .send(1);
        assert!(!script.finds(Detector::AmplificationDeadlock));
    }

    #[test]
    fn healthy_transfer_has_no_finding() {
        assert_quiet_on_a_healthy_transfer(Detector::AmplificationDeadlock);
    }
}
