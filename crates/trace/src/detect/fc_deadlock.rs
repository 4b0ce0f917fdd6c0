//! A sender waits for flow-control credit that does not arrive. On the sender's side: blocked,
//! everything acknowledged, no MAX_DATA or MAX_STREAM_DATA for long. On the receiver's side: it
//! received a *_BLOCKED frame and its application read, yet it gave no credit.

use clearway_recovery::limit::Limit;

use super::finding::span;
use super::view::{EventEffects, View};
use super::{Detect, Detector, Finding, Findings, Severity};
use crate::event::{Event, EventData, Frame};

/// Round trips that a receiver may take.
const ROUNDS: u64 = 5;
/// Time that an application may take to read.
const LEAST: u64 = 1_000_000_000;

#[derive(Clone, Debug, Default)]
pub(super) struct FcDeadlock {
    /// Since when this end has had no credit; reported once.
    blocked: Option<u64>,
    told: bool,
    /// When the peer reported that it has no credit, and the bytes our application has read since.
    peer_blocked: Option<u64>,
    read: u64,
}

impl Detect for FcDeadlock {
    fn on_event(&mut self, view: &View, effects: &EventEffects, event: &Event, out: &mut Findings) {
        match &event.data {
            EventData::PacketReceived(packet) => {
                for frame in packet.frames() {
                    self.on_received(view, frame);
                }
            }
            EventData::PacketSent(packet) => {
                for frame in packet.frames() {
                    self.on_sent(view, frame);
                }
            }
            EventData::StreamDataRead { len, .. } => self.read = self.read.saturating_add(*len),
            EventData::DataBlockedUpdated { reason } => {
                let credit = matches!(
                    reason,
                    Some(Limit::ConnectionFlowControl | Limit::StreamFlowControl)
                );
                self.blocked = credit.then_some(self.blocked.unwrap_or(view.now));
                self.told &= credit;
            }
            _ => {}
        }
        self.judge(view, out);
        let _ = effects;
    }

    fn finish(&mut self, view: &View, out: &mut Findings) {
        if !view.closed {
            self.judge(view, out);
        }
    }
}

impl FcDeadlock {
    fn on_received(&mut self, view: &View, frame: &Frame) {
        match frame {
            Frame::MaxData { .. } | Frame::MaxStreamData { .. } => {
                self.blocked = self.blocked.map(|_| view.now);
                self.told = false;
            }
            Frame::DataBlocked { .. } | Frame::StreamDataBlocked { .. }
                if self.peer_blocked.is_none() =>
            {
                self.peer_blocked = Some(view.now);
                self.read = 0;
            }
            _ => {}
        }
    }

    fn on_sent(&mut self, view: &View, frame: &Frame) {
        match frame {
            Frame::MaxData { .. } | Frame::MaxStreamData { .. } => {
                self.peer_blocked = None;
                self.told = false;
            }
            // A trace without limits still has the frames.
            Frame::DataBlocked { .. } if !view.tells_limits => {
                self.blocked = self.blocked.or(Some(view.now));
            }
            Frame::Stream { len: 1.., .. } if !view.tells_limits => self.blocked = None,
            _ => {}
        }
    }

    fn judge(&mut self, view: &View, out: &mut Findings) {
        let Some(srtt) = view.srtt() else { return };
        let patience = srtt.saturating_mul(ROUNDS).max(LEAST);
        let over = |since: &u64| view.now.saturating_sub(*since) > patience;
        if self.told {
            return;
        }
        if let Some(since) = self.blocked.filter(over)
            && view.flight == Some(0)
        {
            self.told = true;
            let finding = Finding::new(Detector::FcDeadlock, since, view.now, Severity::Warning)
                .with("no credit for", span(view.now.saturating_sub(since)))
                .with("in flight", 0_u64);
            out.push(finding);
        } else if let Some(since) = self.peer_blocked.filter(over)
            && self.read > 0
        {
            self.told = true;
            let finding = Finding::new(Detector::FcDeadlock, since, view.now, Severity::Error)
                .with("the peer waits for", span(view.now.saturating_sub(since)))
                .with("read since", self.read);
            out.push(finding);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::detect::testing::{Script, assert_quiet_on_a_healthy_transfer};

    #[test]
    fn sender_without_credit_is_found() {
        let mut script = Script::new("cubic", 20);
        script
            .send(4)
            .limit(Limit::ConnectionFlowControl)
            .wait(20)
            .ack(0, 3)
            .window(10, 0);
        script.wait(3_000).window(10, 0);
        assert!(script.finds(Detector::FcDeadlock));
    }

    #[test]
    fn receiver_that_reads_but_grants_no_credit_is_found() {
        let mut script = Script::new("cubic", 20);
        script
            .window(10, 0)
            .receive(Frame::DataBlocked { limit: 4096 });
        script.tell(EventData::StreamDataRead {
            stream: Some(0),
            len: 4096,
        });
        script.wait(3_000).window(10, 0);
        let findings = script.findings();
        assert!(
            findings
                .iter()
                .any(|each| each.severity == Severity::Error
                    && each.detector == Detector::FcDeadlock)
        );
    }

    #[test]
    fn small_window_with_regular_updates_causes_no_finding() {
        let mut script = Script::new("cubic", 20);
        for limit in 1..200 {
            let first = script.next;
            script.send(4).limit(Limit::ConnectionFlowControl).wait(20);
            script.ack(first, first + 3).window(10, 0);
            script.receive(Frame::MaxData {
                limit: limit * 4096,
            });
        }
        assert!(!script.finds(Detector::FcDeadlock));
    }

    #[test]
    fn healthy_transfer_has_no_finding() {
        assert_quiet_on_a_healthy_transfer(Detector::FcDeadlock);
    }
}
