//! Handmade traces, event by event.

use clearway_recovery::limit::Limit;

use super::{Detector, Finding, Profile, examine};
use crate::event::{
    Event, EventData, Frame, Metrics, Packet, PacketType, RecoveryParameters, TimerChange,
    TimerKind,
};

pub(crate) const MDS: u64 = 1200;
const MS: u64 = 1_000_000;

/// Writes a trace.
pub(crate) struct Script {
    pub(crate) events: Vec<Event>,
    pub(crate) now: u64,
    pub(crate) next: u64,
    pub(crate) metrics: Metrics,
}

impl Script {
    /// A connection of a sender whose RTT is `rtt` ms, at its initial window.
    pub(crate) fn new(controller: &'static str, rtt: u64) -> Self {
        let mut this = Self {
            events: Vec::new(),
            now: 0,
            next: 0,
            metrics: Metrics {
                min_rtt: Some(rtt * MS),
                smoothed_rtt: Some(rtt * MS),
                latest_rtt: Some(rtt * MS),
                rtt_variance: Some(rtt * MS / 10),
                pto_count: Some(0),
                congestion_window: Some(10 * MDS),
                bytes_in_flight: Some(0),
                ..Metrics::default()
            },
        };
        let parameters = RecoveryParameters {
            controller: Some(controller.into()),
            max_datagram_size: Some(MDS),
            initial_congestion_window: Some(10 * MDS),
            minimum_congestion_window: Some(if controller == "bbr" { 4 } else { 2 } * MDS),
            ..RecoveryParameters::default()
        };
        this.tell(EventData::RecoveryParametersSet(Box::new(parameters)));
        this
    }

    pub(crate) fn tell(&mut self, data: EventData) -> &mut Self {
        let time = self.now;
        self.events.push(Event { time, data });
        self
    }

    /// Advances the clock by this many microseconds.
    pub(crate) fn wait_us(&mut self, micros: u64) -> &mut Self {
        self.now += micros * 1_000;
        self
    }

    /// Advances the clock by this many milliseconds.
    pub(crate) fn wait(&mut self, millis: u64) -> &mut Self {
        self.wait_us(millis * 1_000)
    }

    pub(crate) fn send(&mut self, packets: u64) -> &mut Self {
        for _ in 0..packets {
            let mut packet = Packet::new(PacketType::OneRtt, self.next, MDS);
            packet.frames = Some(vec![Frame::Stream {
                stream: 0,
                offset: self.next * MDS,
                len: MDS - 40,
                fin: false,
            }]);
            self.next += 1;
            self.tell(EventData::PacketSent(packet));
        }
        self
    }

    pub(crate) fn receive(&mut self, frame: Frame) -> &mut Self {
        let mut packet = Packet::new(PacketType::OneRtt, 0, 40);
        packet.frames = Some(vec![frame]);
        self.tell(EventData::PacketReceived(packet))
    }

    pub(crate) fn ack(&mut self, from: u64, to: u64) -> &mut Self {
        self.receive(Frame::ack([(from, to)]))
    }

    pub(crate) fn lose(&mut self, number: u64) -> &mut Self {
        self.tell(EventData::PacketLost {
            kind: PacketType::OneRtt,
            number,
            size: Some(MDS),
            mtu_probe: false,
            trigger: Some("reordering_threshold".into()),
        })
    }

    pub(crate) fn limit(&mut self, reason: Limit) -> &mut Self {
        let reason = Some(reason);
        self.tell(EventData::DataBlockedUpdated { reason })
    }

    pub(crate) fn state(&mut self, new: &'static str) -> &mut Self {
        self.tell(EventData::CongestionStateUpdated {
            old: None,
            new: new.into(),
            trigger: None,
        })
    }

    pub(crate) fn pto(&mut self) -> &mut Self {
        let count = self.metrics.pto_count.unwrap_or(0) + 1;
        self.tell(EventData::TimerUpdated {
            kind: Some(TimerKind::Pto),
            change: TimerChange::Expired,
        });
        self.metrics(|metrics| metrics.pto_count = Some(count))
    }

    pub(crate) fn metrics(&mut self, change: impl FnOnce(&mut Metrics)) -> &mut Self {
        change(&mut self.metrics);
        let metrics = Box::new(self.metrics.clone());
        self.tell(EventData::RecoveryMetricsUpdated(metrics))
    }

    pub(crate) fn window(&mut self, packets: u64, in_flight: u64) -> &mut Self {
        self.metrics(|metrics| {
            metrics.congestion_window = Some(packets * MDS);
            metrics.bytes_in_flight = Some(in_flight * MDS);
        })
    }

    /// One round trip of a sender with `window` packets: they are sent and acknowledged, and the
    /// window is then `after`.
    pub(crate) fn round(&mut self, window: u64, after: u64) -> &mut Self {
        let first = self.next;
        let rtt = self.metrics.smoothed_rtt.unwrap_or(0) / 1_000;
        self.send(window).limit(Limit::Congestion).wait_us(rtt);
        let last = self.next - 1;
        self.ack(first, last).window(after, 0)
    }

    pub(crate) fn findings(&self) -> Vec<Finding> {
        examine(&Profile::default(), &self.events)
    }

    pub(crate) fn finds(&self, detector: Detector) -> bool {
        self.findings().iter().any(|each| each.detector == detector)
    }
}

/// A healthy transfer: slow start, a loss, recovery, growth, a pause, growth again, a probe timeout
/// at the end.
pub(crate) fn healthy() -> Script {
    let mut script = Script::new("cubic", 20);
    script.state("slow_start");
    let mut window = 10;
    while window < 160 {
        script.round(window, window * 2);
        window *= 2;
    }
    let first = script.next;
    script.send(window).limit(Limit::Congestion).wait(20);
    script.lose(first + 3).ack(first, first + 2);
    script.ack(first + 4, script.next - 1);
    window = 112;
    script.state("recovery").metrics(|metrics| {
        metrics.congestion_events = Some(1);
        metrics.ssthresh = Some(112 * MDS);
        metrics.congestion_window = Some(112 * MDS);
        metrics.bytes_in_flight = Some(0);
    });
    script.round(window, window);
    script.state("congestion_avoidance");
    for pause in [false, true] {
        if pause {
            script.limit(Limit::Application).wait(3_000);
        }
        for _ in 0..60 {
            script.round(window, window + 1);
            window += 1;
        }
    }
    script
        .send(3)
        .limit(Limit::Application)
        .wait(90)
        .pto()
        .send(2)
        .wait(20);
    script.ack(script.next - 5, script.next - 1);
    script.metrics(|metrics| {
        metrics.pto_count = Some(0);
        metrics.bytes_in_flight = Some(0);
    });
    script
}

/// Asserts that a detector finds nothing in a healthy transfer.
pub(crate) fn assert_quiet_on_a_healthy_transfer(detector: Detector) {
    let findings = healthy().findings();
    let said: Vec<_> = findings
        .iter()
        .filter(|each| each.detector == detector)
        .map(Finding::sentence)
        .collect();
    assert!(said.is_empty(), "{said:#?}");
}
