//! A server that may not send more before it hears from the client (RFC 9000
//! §8.1), and hears nothing: the client does not probe (RFC 9002 §6.2.2.1).

use clearway_recovery::limit::Limit;

use super::finding::span;
use super::view::{News, View};
use super::{Detect, Detector, Finding, Findings, Severity};
use crate::event::Event;

/// A client that probes would have been heard by now: its probe timeout is a
/// second at first and doubles.
const PATIENCE: u64 = 4_000_000_000;

#[derive(Debug, Default)]
pub(super) struct AmplificationDeadlock {
    told: bool,
}

impl Detect for AmplificationDeadlock {
    fn on_event(&mut self, view: &View, news: &News, _event: &Event, out: &mut Findings) {
        if news.sent.is_some() || view.limit != Some(Limit::Amplification) {
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
            .with("nothing heard for", span(view.now.saturating_sub(since)));
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
    fn a_server_nobody_speaks_to_is_seen() {
        let mut script = Script::new("cubic", 20);
        script
            .receive(Frame::Ping)
            .send(3)
            .limit(Limit::Amplification);
        script.wait(9_000).limit(Limit::Amplification);
        assert!(script.finds(Detector::AmplificationDeadlock));
    }

    #[test]
    fn a_client_that_probes_is_heard() {
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
    fn a_healthy_transfer_is_passed_over() {
        assert_quiet_on_a_healthy_transfer(Detector::AmplificationDeadlock);
    }
}
