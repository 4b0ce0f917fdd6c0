//! `clearway lab diagnose` on unusual files.

use std::fs;
use std::process::Output;

use super::common::{clearway, json, stderr};
use super::place;

/// Diagnoses a file of these bytes.
fn diagnose(name: &str, text: &str, options: &[&str]) -> Output {
    let file = place("diagnoses").join(format!("{name}.sqlog"));
    fs::write(&file, text).unwrap();
    clearway(&[&["lab", "diagnose", file.to_str().unwrap()][..], options].concat())
}

const HEADER: &str = r#"{"file_schema":"urn:ietf:params:qlog:file:sequential","serialization_format":"JSON-SEQ","trace":{"vantage_point":{"type":"server"},"event_schemas":[]}}"#;

fn sequence(records: &[String]) -> String {
    records
        .iter()
        .map(|record| format!("\u{1e}{record}\n"))
        .collect()
}

fn event(time: &str, data: &str) -> String {
    format!(r#"{{"time":{time},"name":"quic:mtu_updated","data":{{{data}}}}}"#)
}

#[test]
fn diagnose_rejects_file_without_events() {
    let cut = sequence(&[HEADER.to_owned(), event("1", r#""new":1"#)]);
    let cases = [
        ("hello", r#"{"hello":1}"#.to_owned()),
        ("object", "{}".to_owned()),
        ("traces", r#"{"traces":[]}"#.to_owned()),
        ("separator", "\u{1e}".to_owned()),
        ("header", sequence(&[HEADER.to_owned()])),
        ("first", HEADER[..40].to_owned()),
        ("cut", cut[..cut.len() - 20].to_owned()),
        (
            "other",
            sequence(&[
                HEADER.to_owned(),
                r#"{"time":1,"name":"http:x","data":{}}"#.to_owned(),
            ]),
        ),
    ];
    for (name, text) in cases {
        for options in [&[][..], &["--json"]] {
            let output = diagnose(name, &text, options);
            let said = stderr(&output);
            assert_eq!(output.status.code(), Some(2), "{name}: {said}");
            assert!(said.contains("no qlog events in "), "{name}: {said}");
            assert!(output.stdout.is_empty(), "{name}");
        }
    }
}

#[test]
fn unreadable_records_are_counted() {
    let text = sequence(&[
        HEADER.to_owned(),
        event("1", r#""new":1"#),
        event("-5", r#""new":1"#),
        event("2", r#""new":-1"#),
        r#"{"time":3,"na"#.to_owned(),
    ]);
    let output = diagnose("left", &text, &["--json"]);
    assert!(output.status.success(), "{}", stderr(&output));
    assert_eq!(json(&output)["events"], 1);
    assert_eq!(json(&output)["unreadable_records"], 3);
    assert!(stderr(&output).contains("3 records could not be read"));
}

/// A sender whose packets are acknowledged a round trip later, for a while.
fn rounds() -> Vec<String> {
    (0..200_u32)
        .flat_map(|round| {
            let sent = format!(
                r#"{{"time":{},"name":"quic:packet_sent","data":{{"header":{{"packet_type":"1RTT","packet_number":{round}}},"raw":{{"length":1200}},"frames":[{{"frame_type":"stream","stream_id":0,"offset":{},"raw":{{"payload_length":1170}}}}]}}}}"#,
                round * 10 + 1,
                round * 1170
            );
            let acked = format!(
                r#"{{"time":{},"name":"quic:packet_received","data":{{"header":{{"packet_type":"1RTT","packet_number":{round}}},"frames":[{{"frame_type":"ack","acked_ranges":[[0,{round}]]}}]}}}}"#,
                round * 10 + 9
            );
            [sent, acked]
        })
        .collect()
}

#[test]
fn out_of_order_events_are_sorted_with_a_warning() {
    let straight = [vec![HEADER.to_owned()], rounds()].concat();
    let mut shuffled = straight.clone();
    for pair in shuffled[1..].chunks_exact_mut(2).step_by(3) {
        pair.swap(0, 1);
    }
    let straight = diagnose("straight", &sequence(&straight), &["--json"]);
    let shuffled = diagnose("shuffled", &sequence(&shuffled), &["--json"]);
    assert_eq!(json(&straight)["backward_times"], 0);
    assert_eq!(json(&shuffled)["backward_times"], 67);
    assert_eq!(json(&shuffled)["findings"], json(&straight)["findings"]);
    assert!(stderr(&shuffled).contains("67 events were out of order"));
    assert!(!stderr(&straight).contains("backwards"));
}

#[test]
fn traces_of_both_ends_in_one_file_are_diagnosed_separately() {
    let events = rounds().join(",");
    let trace =
        |role: &str| format!(r#"{{"vantage_point":{{"type":"{role}"}},"events":[{events}]}}"#);
    let text = format!(
        r#"{{"qlog_version":"0.3","traces":[{},{}]}}"#,
        trace("client"),
        trace("server")
    );
    let output = diagnose("both", &text, &["--json"]);
    assert_eq!(json(&output)["events"], 800);
    // The second trace begins at zero again, which does not count as backward.
    assert_eq!(json(&output)["backward_times"], 0);
}
