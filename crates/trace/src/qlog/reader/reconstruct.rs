//! Reconstructs events that a trace records only as a count or a flag.
//!
//! quiche writes neither `packet_lost` nor `connection_data_blocked_updated`, but
//! `recovery_metrics_updated` with two fields of its own: `cf_lost_packets`, the number of packets
//! lost in total, and `cf_app_limited`. Which packets were lost follows from the rest: the oldest
//! ones sent before one that was acknowledged.

use std::collections::VecDeque;

use super::value::Value;
use crate::event::{BySpace, Event, EventData, Frame, Metrics, Name, Packet, PacketType, Space};
use clearway_recovery::limit::Limit;

/// Maximum number of packets remembered per space; more than any window in use.
const MAX_PACKETS: usize = 1 << 16;

/// The packets of one space that are neither acknowledged nor lost.
#[derive(Debug, Default)]
struct Outstanding {
    /// In ascending order.
    numbers: VecDeque<u64>,
    largest_acked: Option<u64>,
}

/// What a metrics event says about the connection that no other event records: quiche's fields.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Hints {
    /// Whether there are such fields.
    any: bool,
    /// Packets lost since the last such event.
    lost: Option<u64>,
    /// Whether the application was the limit.
    app_limited: Option<bool>,
}

impl Hints {
    /// Those of an event with this record.
    pub(super) fn of(value: Value<'_>) -> Self {
        let data = value.get("data").unwrap_or(Value::NULL);
        let lost = data.get("cf_lost_packets");
        let app_limited = data.get("cf_app_limited").and_then(Value::as_bool);
        let delta = lost.and_then(|lost| lost.get("delta"));
        Self {
            any: lost.is_some() || app_limited.is_some(),
            lost: delta.and_then(Value::as_u64),
            app_limited,
        }
    }
}

/// Reconstructs events that a trace does not record.
#[derive(Debug, Default)]
pub(super) struct EventReconstructor {
    /// Whether the trace has these fields; otherwise nothing is remembered.
    tells: bool,
    /// Whether the trace records lost packets itself.
    names_losses: bool,
    spaces: BySpace<Outstanding>,
    /// The space of the last ACK.
    acked: Option<Space>,
    /// The last value of the flag, and the limit derived from it.
    flag: Option<bool>,
    app_limited: Option<bool>,
}

impl EventReconstructor {
    /// The further events that `event` implies: they come before it.
    pub(super) fn before(&mut self, hints: Hints, event: &Event) -> Vec<Event> {
        let mut told = Vec::new();
        if let EventData::RecoveryMetricsUpdated(metrics) = &event.data {
            self.on_metrics(hints, metrics, &mut told);
        } else if let EventData::PacketLost { .. } = &event.data {
            self.names_losses = true;
        }
        if self.tells
            && let EventData::PacketSent(packet) = &event.data
        {
            self.on_sent(packet);
        } else if self.tells
            && let EventData::PacketReceived(packet) = &event.data
        {
            // The flag flips within a burst: its value after the burst counts.
            self.limit(&mut told);
            self.on_received(packet);
        }
        let at = |data| Event {
            time: event.time,
            data,
        };
        told.into_iter().map(at).collect()
    }

    fn on_sent(&mut self, packet: &Packet) {
        let (Some(space), Some(number)) = (packet.kind.space(), packet.number) else {
            return;
        };
        if packet.counts_in_flight() == Some(false) {
            return;
        }
        let numbers = &mut self.spaces.get_mut(space).numbers;
        if numbers.len() == MAX_PACKETS {
            numbers.pop_front();
        }
        if numbers.back().is_none_or(|last| *last < number) {
            numbers.push_back(number);
        }
    }

    fn on_received(&mut self, packet: &Packet) {
        let Some(space) = packet.kind.space() else {
            return;
        };
        for frame in packet.frames() {
            let Frame::Ack { ranges, .. } = frame else {
                continue;
            };
            self.acked = Some(space);
            let outstanding = self.spaces.get_mut(space);
            let within = |number: &u64| ranges.iter().any(|(a, b)| (*a..=*b).contains(number));
            outstanding.numbers.retain(|number| !within(number));
            let largest = ranges.iter().map(|(_, to)| *to).max();
            outstanding.largest_acked = outstanding.largest_acked.max(largest);
        }
    }

    fn on_metrics(&mut self, hints: Hints, metrics: &Metrics, told: &mut Vec<EventData>) {
        self.tells |= hints.any;
        if let Some(delta) = hints.lost {
            self.lose(delta, told);
        }
        self.flag = hints.app_limited.or(self.flag);
        // A full window is reported at once.
        if hints.app_limited == Some(false) || metrics.bytes_in_flight == Some(0) {
            self.limit(told);
        }
    }

    /// Marks this many packets as lost.
    fn lose(&mut self, count: u64, told: &mut Vec<EventData>) {
        if self.names_losses {
            return;
        }
        let Some(space) = self.acked else { return };
        let kind = match space {
            Space::Initial => PacketType::Initial,
            Space::Handshake => PacketType::Handshake,
            Space::Data => PacketType::OneRtt,
        };
        let Outstanding {
            numbers,
            largest_acked,
        } = self.spaces.get_mut(space);
        for _ in 0..count {
            let oldest = numbers.front().copied();
            let Some(number) = oldest.filter(|oldest| Some(*oldest) < *largest_acked) else {
                return;
            };
            numbers.pop_front();
            told.push(EventData::PacketLost {
                kind,
                number,
                size: None,
                mtu_probe: false,
                trigger: Some(Name::Borrowed("counted")),
            });
        }
    }

    /// Reports the limit that the flag implies, if it changed.
    fn limit(&mut self, told: &mut Vec<EventData>) {
        if self.flag != self.app_limited {
            self.app_limited = self.flag;
            let reason = self.flag.map(|app_limited| match app_limited {
                true => Limit::Application,
                false => Limit::Congestion,
            });
            told.push(EventData::DataBlockedUpdated { reason });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::detect::{Detector, Detectors, Profile};
    use crate::qlog::Reader;
    use crate::sink::Sink as _;

    const HEADER: &str = r#"{"file_schema":"urn:ietf:params:qlog:file:sequential","serialization_format":"JSON-SEQ","title":"quiche","trace":{"vantage_point":{"type":"server"},"event_schemas":["urn:ietf:params:qlog:events:quic-12"]}}"#;

    fn sent(time: f64, number: u64) -> String {
        format!(
            r#"{{"time":{time},"name":"quic:packet_sent","data":{{"header":{{"packet_type":"1RTT","packet_number":{number}}},"raw":{{"length":1200}},"frames":[{{"frame_type":"stream","stream_id":0,"offset":0,"raw":{{"payload_length":1170}}}}]}}}}"#
        )
    }

    fn acked(time: f64, from: u64, to: u64) -> String {
        format!(
            r#"{{"time":{time},"name":"quic:packet_received","data":{{"header":{{"packet_type":"1RTT","packet_number":1}},"frames":[{{"frame_type":"ack","ack_delay":0.1,"acked_ranges":[[{from},{to}]]}}]}}}}"#
        )
    }

    fn metrics(time: f64, fields: &str) -> String {
        format!(r#"{{"time":{time},"name":"quic:recovery_metrics_updated","data":{{{fields}}}}}"#)
    }

    fn events(lines: &[String]) -> Vec<Event> {
        let records = std::iter::once(HEADER).chain(lines.iter().map(String::as_str));
        let file: String = records.map(|line| format!("\u{1e}{line}\n")).collect();
        let reader = Reader::new(file.as_bytes()).expect("a trace");
        reader.map(|event| event.expect("readable")).collect()
    }

    fn lost(events: &[Event]) -> Vec<u64> {
        let number = |event: &Event| match event.data {
            EventData::PacketLost { number, .. } => Some(number),
            _ => None,
        };
        events.iter().filter_map(number).collect()
    }

    const START: &str = r#""cf_app_limited":false,"cf_lost_packets":{"total":0,"delta":0},"congestion_window":2400,"smoothed_rtt":10.0,"rtt_variance":1.0"#;

    #[test]
    fn loss_counts_become_the_oldest_unacknowledged_packets() {
        let mut lines = vec![metrics(0.0, START)];
        lines.extend((0..6).map(|number| sent(1.0, number)));
        lines.push(acked(11.0, 3, 4));
        lines.push(metrics(11.0, r#""cf_lost_packets":{"total":2,"delta":2}"#));
        assert_eq!(lost(&events(&lines)), [0, 1]);
        // Packets after the largest acknowledged one are not lost yet.
        lines.push(metrics(12.0, r#""cf_lost_packets":{"total":9,"delta":7}"#));
        assert_eq!(lost(&events(&lines)), [0, 1, 2]);
    }

    #[test]
    fn trace_with_packet_lost_events_is_unchanged() {
        let mut lines = vec![metrics(0.0, START)];
        lines.extend((0..4).map(|number| sent(1.0, number)));
        lines.push(acked(11.0, 3, 3));
        lines.push(
            r#"{"time":11.0,"name":"recovery:packet_lost","data":{"header":{"packet_type":"1RTT","packet_number":0}}}"#
                .to_owned(),
        );
        lines.push(metrics(11.0, r#""cf_lost_packets":{"total":1,"delta":1}"#));
        assert_eq!(lost(&events(&lines)), [0]);
    }

    /// Rounds of two packets, both acknowledged at once: quiche's flag says "limited by the
    /// application" after the first of them.
    fn pinned(window: u64) -> Vec<String> {
        let mut lines = vec![metrics(0.0, START)];
        lines.push(metrics(0.1, &format!(r#""congestion_window":{window}"#)));
        for round in 0..40_u32 {
            let at = f64::from(round).mul_add(10.0, 1.0);
            let number = 2 * u64::from(round);
            lines.push(sent(at, number));
            lines.push(metrics(
                at,
                r#""cf_app_limited":true,"bytes_in_flight":1200"#,
            ));
            lines.push(sent(at + 0.1, number + 1));
            lines.push(metrics(
                at + 0.1,
                r#""cf_app_limited":false,"bytes_in_flight":2400"#,
            ));
            lines.push(acked(at + 9.9, number, number + 1));
            lines.push(metrics(
                at + 9.9,
                r#""latest_rtt":9.9,"smoothed_rtt":9.9,"bytes_in_flight":0"#,
            ));
        }
        lines
    }

    fn finds(lines: &[String], detector: Detector) -> bool {
        let mut detectors = Detectors::new(&Profile::default());
        let events = events(lines);
        for event in &events {
            detectors.event(event);
        }
        let last = events.last().map_or(0, |event| event.time);
        let findings = detectors.finish(last);
        findings.iter().any(|finding| finding.detector == detector)
    }

    #[test]
    fn death_spiral_is_found_in_quiche_trace() {
        assert!(finds(&pinned(2400), Detector::FloorPinned));
        assert!(!finds(&pinned(24_000), Detector::FloorPinned));
    }

    #[test]
    fn application_limited_flag_becomes_an_event() {
        let mut lines = pinned(2400);
        // After every burst the window has room: the application is the limit.
        for line in &mut lines {
            *line = line.replace(r#""cf_app_limited":false"#, r#""cf_app_limited":true"#);
        }
        assert!(!finds(&lines, Detector::FloorPinned));
        let told = events(&lines).into_iter().any(|event| {
            let reason = Some(Limit::Application);
            matches!(event.data, EventData::DataBlockedUpdated { reason: it } if it == reason)
        });
        assert!(told);
    }

    #[test]
    fn bytes_in_flight_match_when_losses_are_only_counted() {
        let mut lines = vec![metrics(0.0, START)];
        for round in 0_u64..30 {
            let at = 10.0 * round as f64 + 1.0;
            lines.extend((0..4).map(|n| sent(at, 4 * round + n)));
            lines.push(metrics(at, r#""bytes_in_flight":4800"#));
            lines.push(acked(at + 9.0, 4 * round + 2, 4 * round + 3));
            let total = 2 * (round + 1);
            lines.push(metrics(
                at + 9.0,
                &format!(
                    r#""cf_lost_packets":{{"total":{total},"delta":2}},"smoothed_rtt":9.0,"bytes_in_flight":0"#
                ),
            ));
        }
        assert!(!finds(&lines, Detector::BifDesync));
        let silent: Vec<String> = lines
            .iter()
            .map(|line| line.replace("cf_lost_packets", "cf_other"))
            .collect();
        assert!(finds(&silent, Detector::BifDesync));
    }
}
