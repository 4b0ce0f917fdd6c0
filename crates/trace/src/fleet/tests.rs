use clearway_recovery::limit::Limit;

use super::*;
use crate::detect::Detector;
use crate::event::{Event, EventData};
use crate::sink::Sink as _;

fn remote() -> SocketAddr {
    SocketAddr::from(([192, 0, 2, 1], 9))
}

fn blocked(time: u64, reason: Limit) -> Event {
    let reason = Some(reason);
    Event {
        time,
        data: EventData::DataBlockedUpdated { reason },
    }
}

fn value(metrics: &str, name: &str) -> f64 {
    let line = metrics
        .lines()
        .find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    line.unwrap_or_else(|| panic!("no {name}: {metrics}"))
        .parse()
        .expect("a number")
}

#[test]
fn metrics_have_each_kind_and_reason_once_and_survive_the_connection() {
    let fleet = Fleet::new();
    let mut sink = fleet.sink(remote()).expect("room");
    sink.event(&blocked(0, Limit::Handshake));
    sink.event(&blocked(2_500_000_000, Limit::Application));
    let name = "quic_limited_seconds_total{reason=\"handshake\"}";
    let open = fleet.metrics();
    assert_eq!(value(&open, "quic_connections_open"), 1.0);
    assert_eq!(value(&open, name), 2.5);
    drop(sink);
    let ended = fleet.metrics();
    assert_eq!(value(&ended, "quic_connections_open"), 0.0);
    assert_eq!(value(&ended, "quic_connections_total"), 1.0);
    assert_eq!(value(&ended, name), 2.5);
    for detector in Detector::ALL {
        let kind = format!("quic_findings_total{{kind=\"{}\"}} 0\n", detector.name());
        assert_eq!(ended.matches(&kind).count(), 1, "{kind}");
    }
    for limit in Limit::ALL {
        let reason = format!("quic_limited_seconds_total{{reason=\"{}\"}}", limit.name());
        assert_eq!(ended.matches(&reason).count(), 1, "{reason}");
    }
}

#[test]
fn connections_are_listed_with_what_happened_also_after_their_end() {
    let fleet = Fleet::new();
    let mut first = fleet.sink(remote()).expect("room");
    first.event(&blocked(0, Limit::Application));
    let second = fleet.sink(remote()).expect("room");
    let list = fleet.connections();
    assert_eq!(list.iter().map(|it| it.id).collect::<Vec<_>>(), [1, 0]);
    assert_eq!(list[1].title, "192.0.2.1:9");
    assert_eq!((list[1].revision, list[1].open), (1, true));
    assert!(list[1].headline.starts_with("No problems found. "));
    drop(first);
    let list = fleet.connections();
    assert_eq!(
        list.iter().map(|it| it.open).collect::<Vec<_>>(),
        [true, false]
    );
    let (title, it) = fleet.examination(0).expect("kept");
    assert_eq!((title.as_str(), it.totals.events), ("192.0.2.1:9", 1));
    assert!(fleet.examination(1).is_some());
    assert!(fleet.examination(2).is_none());
    drop(second);
}

#[test]
fn examination_of_an_open_connection_is_of_a_copy() {
    let fleet = Fleet::new();
    let mut sink = fleet.sink(remote()).expect("room");
    for time in 0..100 {
        sink.event(&blocked(time, Limit::Congestion));
        let (_, it) = fleet.examination(0).expect("open");
        assert_eq!(it.totals.events, time + 1);
        assert_eq!(it.series.limits().len() as u64, time + 1);
    }
}

#[test]
fn memory_is_bounded_and_what_is_left_out_is_counted() {
    let fleet = Fleet::new();
    let sinks: Vec<_> = (0..MAX_CONNECTIONS + 3)
        .filter_map(|_| fleet.sink(remote()))
        .collect();
    assert_eq!(sinks.len(), MAX_CONNECTIONS);
    let metrics = fleet.metrics();
    assert_eq!(value(&metrics, "quic_connections_unobserved_total"), 3.0);
    assert_eq!(fleet.connections().len(), MAX_LISTED);
    let mut sinks = sinks.into_iter();
    let mut first = sinks.next().expect("one");
    let mut last = sinks.next_back().expect("another");
    for time in 0..50_000 {
        first.event(&blocked(time, Limit::Congestion));
        last.event(&blocked(time, Limit::Congestion));
    }
    let limits = |id| fleet.examination(id).expect("open").1.series.limits().len();
    assert!((1_000..2_049).contains(&limits(0)), "{}", limits(0));
    // Beyond the first 128 nothing is drawn.
    assert_eq!(limits(MAX_CONNECTIONS as u64 - 1), 0);
    drop((first, last));
    drop(sinks);
    assert_eq!(fleet.connections().len(), MAX_ENDED);
    // There is room again, also for what is drawn.
    let mut again = fleet.sink(remote()).expect("room");
    again.event(&blocked(0, Limit::Congestion));
    assert_eq!(limits(MAX_CONNECTIONS as u64), 1);
}
