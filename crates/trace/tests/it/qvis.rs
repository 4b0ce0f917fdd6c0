//! The qvis dialect has every name and field that qvis's loader and its congestion, sequence and
//! multiplexing graphs look up (quiclog/qvis, `QlogLoaderV2.ts`, `textsequencejsontoqlog.ts`,
//! `CongestionGraphD3Renderer.ts`, `MultiplexingGraphDataHelper.ts`).

use std::time::Duration;

use clearway_testing::{Setup, World, download, path};
use clearway_trace::event::Role;
use clearway_trace::qlog::{Description, Dialect, Writer};
use clearway_trace::{Recorder, Shared};
use serde_json::Value;

/// The records of a server's trace of a download with losses.
fn records() -> Vec<Value> {
    let mut world = World::new(
        Setup::new(),
        path("rate=20M delay=10ms queue=60 loss=2%", 4),
        4,
    );
    let description = Description {
        role: Some(Role::Server),
        original_dcid: Some("0102".into()),
        ..Description::default()
    };
    let writer = Writer::with_dialect(Vec::new(), &description, Dialect::Qvis);
    let writer = Shared::new(writer);
    world.connect();
    while world.server.connections.is_empty() {
        assert!(world.step());
    }
    let recorder = Box::new(Recorder::new(writer.clone()));
    world.server.connection().set_observer(recorder);
    world.run_until(Duration::from_secs(5), |world| {
        world.client.connection().is_confirmed()
    });
    assert!(download(&mut world, 2_000_000, Duration::from_secs(20)));
    let text = writer.with(|writer| {
        let other = Writer::new(Vec::new(), &description);
        core::mem::replace(writer, other).finish()
    });
    let text = String::from_utf8(text).expect("JSON is UTF-8");
    let record = |record: &str| serde_json::from_str(record).expect("each record is JSON");
    text.split('\u{1e}').skip(1).map(record).collect()
}

/// The data of all events with this name; at least three.
fn all<'r>(records: &'r [Value], name: &str) -> Vec<&'r Value> {
    let named = records.iter().filter(|record| record["name"] == name);
    let found: Vec<&Value> = named.map(|record| &record["data"]).collect();
    assert!(found.len() >= 3, "{name}: {}", found.len());
    found
}

fn frames<'r>(packets: &[&'r Value], kind: &str) -> Vec<&'r Value> {
    let frames = packets
        .iter()
        .filter_map(|packet| packet["frames"].as_array());
    let found: Vec<&Value> = frames
        .flatten()
        .filter(|frame| frame["frame_type"] == kind)
        .collect();
    assert!(found.len() >= 3, "{kind}: {}", found.len());
    found
}

fn assert_numbers(value: &Value, names: &[&str]) {
    for name in names {
        assert!(value[name].is_number(), "{name}: {value}");
    }
}

#[test]
fn header_is_what_qvis_accepts() {
    let header = &records()[0];
    assert_eq!(header["qlog_version"], "0.3");
    assert_eq!(header["qlog_format"], "JSON-SEQ");
    let trace = &header["trace"];
    assert_eq!(trace["vantage_point"]["type"], "server");
    assert_eq!(trace["common_fields"]["time_format"], "relative");
    assert_eq!(trace["common_fields"]["reference_time"], 0);
    assert_eq!(trace["common_fields"]["ODCID"], "0102");
}

#[test]
fn parameters_name_their_owner_and_the_credit_they_give() {
    let records = records();
    let remote = records.iter().find(|record| {
        record["name"] == "transport:parameters_set" && record["data"]["owner"] == "remote"
    });
    let names = ["initial_max_data", "initial_max_stream_data_bidi_remote"];
    assert_numbers(&remote.expect("the client's parameters")["data"], &names);
}

#[test]
fn packets_have_type_number_length_and_frames() {
    let records = records();
    assert!(records[1..].iter().all(|record| record["time"].is_number()));
    let sent = all(&records, "transport:packet_sent");
    let received = all(&records, "transport:packet_received");
    for packet in sent.iter().chain(&received) {
        assert!(packet["header"]["packet_type"].is_string(), "{packet}");
        assert_numbers(&packet["header"], &["packet_number"]);
        // qvis skips packets without a size.
        assert!(packet["raw"]["length"].as_u64() > Some(0), "{packet}");
    }
    for frame in frames(&sent, "stream") {
        assert_numbers(frame, &["stream_id", "offset", "length"]);
    }
    for frame in frames(&received, "ack") {
        let ranges = frame["acked_ranges"].as_array().expect("ranges");
        assert!(!ranges.is_empty());
        for range in ranges {
            let ends = range.as_array().expect("a range");
            assert_eq!(ends.len(), 2, "{frame}");
            assert!(ends[0].as_u64() <= ends[1].as_u64());
        }
    }
    for frame in frames(&received, "max_data") {
        assert_numbers(frame, &["maximum"]);
    }
}

#[test]
fn losses_and_metrics_have_the_fields_of_the_congestion_graph() {
    let records = records();
    for lost in all(&records, "recovery:packet_lost") {
        assert!(lost["header"]["packet_type"].is_string(), "{lost}");
        assert_numbers(&lost["header"], &["packet_number"]);
    }
    for metrics in all(&records, "recovery:metrics_updated") {
        assert_numbers(metrics, &["bytes_in_flight", "congestion_window"]);
    }
    let last = *all(&records, "recovery:metrics_updated")
        .last()
        .expect("some");
    assert_numbers(last, &["min_rtt", "smoothed_rtt", "latest_rtt"]);
}
