//! Commands that read traces: `diagnose`, `report`, `trace`.
#![allow(
    clippy::unwrap_used,
    missing_docs,
    reason = "a test that cannot go on has failed"
)]

mod capture;
mod damaged;
mod diagnose;
mod files;
mod netlog;
mod report;
mod view;

use std::fmt::Write as _;

use crate::common::{clearway, json, stderr};
use crate::web::TempDir;

pub(crate) const HEADER: &str = r#"{"file_schema":"urn:ietf:params:qlog:file:sequential","serialization_format":"application/qlog+json-seq","title":"a trace","trace":{"vantage_point":{"type":"server"},"event_schemas":[]}}"#;

pub(crate) fn sequence(records: &[String]) -> String {
    let mut text = String::new();
    for record in records {
        writeln!(text, "\u{1e}{record}").unwrap();
    }
    text
}

fn event(micros: u64, name: &str, data: &str) -> String {
    let (ms, rest) = (micros / 1_000, micros % 1_000);
    format!(r#"{{"time":{ms}.{rest:03},"name":"quic:{name}","data":{{{data}}}}}"#)
}

/// A sender with a window of `window` packets in each round trip of 10 ms; if it is `stuck`, it
/// enters recovery with each of them.
pub(crate) fn sender(rounds: u64, window: impl Fn(u64) -> u64, stuck: bool) -> String {
    let mut records = vec![HEADER.to_owned()];
    let mut push = |at: u64, name: &str, data: String| records.push(event(at, name, &data));
    push(
        0,
        "recovery_parameters_set",
        r#""max_datagram_size":1200,"minimum_congestion_window":2400,"controller":"cubic""#.into(),
    );
    let mut next = 0;
    for round in 0..rounds {
        let (at, packets) = (round * 10_000, window(round));
        let bytes = packets * 1_200;
        if stuck {
            push(at, "congestion_state_updated", r#""new":"recovery""#.into());
        }
        push(
            at,
            "recovery_metrics_updated",
            format!(
                r#""congestion_window":{bytes},"bytes_in_flight":0,"smoothed_rtt":10,"latest_rtt":10,"min_rtt":10"#
            ),
        );
        for number in next..next + packets {
            push(
                at,
                "packet_sent",
                format!(
                    r#""header":{{"packet_type":"1RTT","packet_number":{number}}},"raw":{{"length":1200}},"frames":[{{"frame_type":"stream","stream_id":0,"offset":{},"raw":{{"length":1160}}}}]"#,
                    number * 1_160
                ),
            );
        }
        push(
            at,
            "connection_data_blocked_updated",
            r#""new":"blocked","reason":"congestion_control""#.into(),
        );
        let last = next + packets - 1;
        push(
            at + 9_900,
            "packet_received",
            format!(
                r#""header":{{"packet_type":"1RTT","packet_number":{round}}},"raw":{{"length":40}},"frames":[{{"frame_type":"ack","acked_ranges":[[{next},{last}]]}}]"#
            ),
        );
        if stuck {
            push(
                at + 9_900,
                "congestion_state_updated",
                r#""new":"congestion_avoidance""#.into(),
            );
            push(
                at + 9_950,
                "recovery_metrics_updated",
                r#""bytes_in_flight":0"#.into(),
            );
        }
        next += packets;
    }
    sequence(&records)
}

pub(crate) fn stuck() -> String {
    sender(100, |_| 2, true)
}

pub(crate) fn healthy() -> String {
    sender(100, |round| 2 + round / 2, false)
}

/// A file with this content, and its name.
pub(crate) fn file(dir: &TempDir, name: &str, content: impl AsRef<[u8]>) -> String {
    std::fs::write(dir.join(name), content).unwrap();
    dir.text(name)
}

pub(crate) fn stdout(output: &std::process::Output) -> String {
    assert!(output.status.success(), "{}", stderr(output));
    String::from_utf8(output.stdout.clone()).unwrap()
}
