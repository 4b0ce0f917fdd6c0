//! Traces that other stacks wrote are read to their last event.

use clearway_trace::event::{Event, EventData, Frame, Packet, Role};
use clearway_trace::qlog::Reader;
use clearway_trace::{Examination, Track};

/// What a file contains: the counts are those of the names in its text.
#[derive(Debug, PartialEq, Eq)]
struct Contents {
    role: Option<Role>,
    sent: usize,
    received: usize,
    metrics: usize,
    states: usize,
    /// Events that are not used, and their number in the file.
    other: u64,
    /// The end of the stream, as far as the trace records frames.
    stream_end: Option<u64>,
    /// Whether packets have sizes, which then add up to more than what was transferred.
    sizes: bool,
}

fn read(text: &str) -> (Vec<Event>, Contents) {
    let mut reader = Reader::new(text.as_bytes()).expect("qlog");
    let events: Vec<Event> = (&mut reader).map(|event| event.expect("memory")).collect();
    let problems = reader.problems();
    assert_eq!((problems.unreadable(), problems.earlier_events), (0, 0));
    let count = |wanted: fn(&EventData) -> bool| {
        let data = events.iter().map(|event| &event.data);
        data.filter(|data| wanted(data)).count()
    };
    let contents = Contents {
        role: reader.header().role,
        sent: count(|data| matches!(data, EventData::PacketSent(_))),
        received: count(|data| matches!(data, EventData::PacketReceived(_))),
        metrics: count(|data| matches!(data, EventData::RecoveryMetricsUpdated(_))),
        states: count(|data| matches!(data, EventData::CongestionStateUpdated { .. })),
        other: problems.other_events,
        stream_end: stream_end(&events),
        sizes: events
            .iter()
            .filter_map(packet)
            .filter_map(|it| it.size)
            .sum::<u64>()
            > 60_000,
    };
    (events, contents)
}

fn packet(event: &Event) -> Option<&Packet> {
    match &event.data {
        EventData::PacketSent(packet) | EventData::PacketReceived(packet) => Some(packet),
        _ => None,
    }
}

fn stream_end(events: &[Event]) -> Option<u64> {
    let packets = events.iter().filter_map(packet);
    let frames = packets.flat_map(|packet| packet.frames.iter().flatten());
    let ends = frames.filter_map(|frame| match frame {
        Frame::Stream { offset, len, .. } => Some(offset + len),
        _ => None,
    });
    ends.max()
}

/// Every event of the file has a name in its text.
fn named(text: &str, names: &[&str]) -> usize {
    let spelt = |name: &&str| {
        text.matches(&format!("\"name\":\"{name}\"")).count()
            + text.matches(&format!("\"name\": \"{name}\"")).count()
    };
    names.iter().map(spelt).sum()
}

fn assert_loads(text: &str, expected: &Contents) {
    let (events, contents) = read(text);
    assert_eq!(contents, *expected);
    let sent = ["quic:packet_sent", "transport:packet_sent"];
    assert_eq!(named(text, &sent), contents.sent);
    let received = ["quic:packet_received", "transport:packet_received"];
    assert_eq!(named(text, &received), contents.received);
    let metrics = ["quic:recovery_metrics_updated", "recovery:metrics_updated"];
    assert_eq!(named(text, &metrics), contents.metrics);
    // And they can be drawn.
    let it = Examination::of(contents.role, &events);
    assert!(!it.series.points(Track::Window).is_empty());
    assert!(!it.diagnosis.headline.is_empty());
}

#[test]
fn trace_of_quiche_loads() {
    let expected = Contents {
        role: Some(Role::Server),
        sent: 57,
        received: 9,
        metrics: 63,
        states: 5,
        other: 45,
        stream_end: Some(60_000),
        sizes: true,
    };
    assert_loads(include_str!("quiche_server.sqlog"), &expected);
}

#[test]
fn trace_of_quinn_loads() {
    // It records neither frames nor sizes, and not which end it is.
    let expected = Contents {
        role: None,
        sent: 56,
        received: 15,
        metrics: 16,
        states: 0,
        other: 0,
        stream_end: None,
        sizes: false,
    };
    assert_loads(include_str!("quinn_server.sqlog"), &expected);
}

#[test]
fn trace_of_quic_go_loads() {
    let expected = Contents {
        role: Some(Role::Server),
        sent: 53,
        received: 9,
        metrics: 58,
        states: 4,
        other: 0,
        stream_end: Some(60_000),
        sizes: true,
    };
    assert_loads(include_str!("quic-go_server.sqlog"), &expected);
}

#[test]
fn trace_of_aioquic_loads() {
    let expected = Contents {
        role: Some(Role::Client),
        sent: 12,
        received: 55,
        metrics: 9,
        states: 0,
        // Spin bits, datagrams, the version and the protocols offered.
        other: 53 + 54 + 10 + 1 + 1,
        stream_end: Some(60_000),
        sizes: true,
    };
    assert_loads(include_str!("aioquic.qlog"), &expected);
}
