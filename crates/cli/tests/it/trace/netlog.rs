//! Chrome's netlog: the same is said of it as of other records of the same connection.
//!
//! `fixtures/chromium/record.sh` records a connection of Chromium. Other connections are the lab's,
//! whose qlog is written again as Chrome would have logged it.

use std::fmt::Write as _;
use std::path::Path;

use serde_json::{Value, json};

use super::capture::{Recorded, headline, record, scenario, traces};
use super::{clearway, file, json as parsed, stderr, stdout};
use crate::web::TempDir;

fn fixture(name: &str) -> String {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/chromium");
    folder.join(name).to_string_lossy().into_owned()
}

/// A headline with a share of time, taken apart.
fn share(headline: &str) -> (String, i32) {
    let (before, rest) = headline.split_once(" % of the time").expect(headline);
    let (text, percent) = before.rsplit_once(' ').unwrap();
    (format!("{text} {rest}"), percent.parse().unwrap())
}

#[test]
fn chromiums_own_log_of_an_upload_agrees_with_a_capture_of_it() {
    let netlog = traces(&fixture("netlog.json.gz"));
    assert_eq!(netlog.len(), 1);
    let (capture, keys) = (fixture("capture.pcap.gz"), fixture("keys"));
    let output = clearway(&["diagnose", &capture, "--secrets", &keys, "--json"]);
    let captured = parsed(&output);
    let captured = &captured["traces"][0];
    assert_eq!(captured["totals"]["role"], "client");
    for name in ["role", "packets_sent", "packets_lost", "probe_timeouts"] {
        assert_eq!(
            netlog[0]["totals"][name], captured["totals"][name],
            "{name}"
        );
    }
    let (of_log, of_capture) = (share(&headline(&netlog[0])), share(&headline(captured)));
    assert_eq!(of_log.0, of_capture.0);
    // The log has whole milliseconds of what arrived.
    assert!(
        (of_log.1 - of_capture.1).abs() <= 5,
        "{of_log:?} {of_capture:?}"
    );
    // Everything arrived.
    let server = &traces(&fixture("server.sqlog.gz"))[0];
    let count = |trace: &Value, name: &str| trace["totals"][name].as_u64().unwrap();
    assert!(count(server, "bytes_received") > 120_000);
    assert!(count(server, "bytes_received") < count(&netlog[0], "bytes_sent"));
}

#[test]
fn netlog_is_converted_to_a_qlog_of_which_the_same_is_said() {
    let dir = TempDir::new();
    let to = dir.text("out.sqlog");
    let output = clearway(&["trace", "convert", &fixture("netlog.json.gz"), "-o", &to]);
    assert!(output.status.success(), "{}", stderr(&output));
    assert_eq!(
        headline(&traces(&to)[0]),
        headline(&traces(&fixture("netlog.json.gz"))[0])
    );
    let output = clearway(&["trace", "validate", &fixture("netlog.json.gz")]);
    assert!(stdout(&output).ends_with(": valid\n"));
}

/// Numbers of event types, as a netlog's constants have them.
const TYPES: [&str; 13] = [
    "QUIC_SESSION",
    "QUIC_SESSION_PACKET_SENT",
    "QUIC_SESSION_PACKET_RECEIVED",
    "QUIC_SESSION_UNAUTHENTICATED_PACKET_HEADER_RECEIVED",
    "QUIC_SESSION_PACKET_LOST",
    "QUIC_SESSION_STREAM_FRAME",
    "QUIC_SESSION_ACK_FRAME",
    "QUIC_SESSION_CRYPTO_FRAME",
    "QUIC_SESSION_PING_FRAME",
    "QUIC_SESSION_WINDOW_UPDATE_FRAME",
    "QUIC_SESSION_BLOCKED_FRAME",
    "QUIC_SESSION_HANDSHAKE_DONE_FRAME",
    "QUIC_SESSION_CLOSED",
];

/// Writes a netlog of one session.
struct NetlogWriter {
    types: Vec<String>,
    events: String,
}

impl NetlogWriter {
    fn new() -> Self {
        let both = |name: &&str| match name.strip_suffix("_FRAME") {
            Some(_) => vec![format!("{name}_SENT"), format!("{name}_RECEIVED")],
            None => vec![(*name).to_owned()],
        };
        Self {
            types: TYPES.iter().flat_map(both).collect(),
            events: String::new(),
        }
    }

    fn event(&mut self, millis: f64, name: &str, params: &Value) {
        let kind = self.types.iter().position(|it| it == name).unwrap();
        let time = format!("{:.0}", millis.floor() + 5_000.0);
        let source = json!({"id": 7, "start_time": "5000", "type": 13});
        let event =
            json!({"params": params, "phase": 0, "source": source, "time": time, "type": kind});
        let comma = if self.events.is_empty() { "" } else { ",\n" };
        write!(self.events, "{comma}{event}").unwrap();
    }

    /// The frames of a packet, each an event.
    fn frames(&mut self, millis: f64, frames: &Value, direction: &str) {
        for frame in frames.as_array().into_iter().flatten() {
            if let Some((name, params)) = frame_of(frame) {
                self.event(
                    millis,
                    &format!("QUIC_SESSION_{name}_FRAME_{direction}"),
                    &params,
                );
            }
        }
    }

    fn finish(self) -> String {
        let numbers = self.types.iter().enumerate();
        let types: serde_json::Map<String, Value> = numbers
            .map(|(number, name)| (name.clone(), json!(number)))
            .collect();
        let constants = json!({"logEventTypes": types});
        format!(
            "{{\"constants\":{constants},\n\"events\": [\n{}]}}\n",
            self.events
        )
    }
}

/// The name and the parameters with which Chrome logs a frame that qlog has.
fn frame_of(frame: &Value) -> Option<(&'static str, Value)> {
    let length = &frame["raw"]["length"];
    let blocked = |stream: &Value| json!({"stream_id": stream, "byte_offset": frame["limit"]});
    // Chrome's number for the connection.
    let connection = json!(-1);
    Some(match frame["frame_type"].as_str()? {
        "stream" => (
            "STREAM",
            json!({"stream_id": frame["stream_id"], "offset": frame["offset"], "length": length,
                   "fin": frame["fin"].as_bool().unwrap_or(false)}),
        ),
        "crypto" => (
            "CRYPTO",
            json!({"offset": frame["offset"], "data_length": length}),
        ),
        "ping" => ("PING", Value::Null),
        "handshake_done" => ("HANDSHAKE_DONE", Value::Null),
        "ack" => ("ACK", ack_of(frame)),
        "max_data" => (
            "WINDOW_UPDATE",
            json!({"stream_id": connection, "byte_offset": frame["maximum"]}),
        ),
        "max_stream_data" => (
            "WINDOW_UPDATE",
            json!({"stream_id": frame["stream_id"], "byte_offset": frame["maximum"]}),
        ),
        "data_blocked" => ("BLOCKED", blocked(&connection)),
        "stream_data_blocked" => ("BLOCKED", blocked(&frame["stream_id"])),
        _ => return None,
    })
}

fn ack_of(frame: &Value) -> Value {
    let ranges = frame["acked_ranges"].as_array().unwrap().iter();
    let mut ranges: Vec<(u64, u64)> = ranges
        .map(|range| {
            let ends = range.as_array().unwrap();
            let at = |end: &Value| end.as_u64().unwrap();
            (at(&ends[0]), at(ends.last().unwrap()))
        })
        .collect();
    ranges.sort_unstable();
    let gaps = ranges.windows(2).flat_map(|pair| pair[0].1 + 1..pair[1].0);
    let delay = frame["ack_delay"].as_f64().unwrap_or(0.0) * 1_000.0;
    json!({
        "smallest_observed": ranges[0].0,
        "largest_observed": ranges.last().unwrap().1,
        "missing_packets": gaps.collect::<Vec<u64>>(),
        "delta_time_largest_observed_us": delay as u64,
    })
}

/// A client's qlog, as Chrome would have logged it.
fn netlog_of(qlog: &str) -> String {
    let mut log = NetlogWriter::new();
    log.event(
        0.0,
        "QUIC_SESSION",
        &json!({"connection_id": "0102030405060708"}),
    );
    for record in qlog.split('\u{1e}').skip(2) {
        let event: Value = serde_json::from_str(record).unwrap();
        let (time, data) = (event["time"].as_f64().unwrap(), &event["data"]);
        let (kind, number) = (
            &data["header"]["packet_type"],
            &data["header"]["packet_number"],
        );
        let level = match kind.as_str() {
            Some("initial") => "INITIAL",
            Some("handshake") => "HANDSHAKE",
            _ => "FORWARD_SECURE",
        };
        match event["name"].as_str().unwrap() {
            "quic:packet_sent" => {
                log.frames(time, &data["frames"], "SENT");
                let micros = (time * 1_000.0) as u64 + 5_000_000;
                let params = json!({"encryption_level": format!("ENCRYPTION_{level}"),
                    "packet_number": number, "size": data["raw"]["length"],
                    "sent_time_us": micros});
                log.event(time, "QUIC_SESSION_PACKET_SENT", &params);
            }
            "quic:packet_received" => {
                let size = json!({"size": data["raw"]["length"]});
                log.event(time, "QUIC_SESSION_PACKET_RECEIVED", &size);
                let mut header = json!({"packet_number": number});
                if level != "FORWARD_SECURE" {
                    header["long_header_type"] = json!(level);
                }
                let name = "QUIC_SESSION_UNAUTHENTICATED_PACKET_HEADER_RECEIVED";
                log.event(time, name, &header);
                log.frames(time, &data["frames"], "RECEIVED");
            }
            "quic:packet_lost" => {
                log.event(
                    time,
                    "QUIC_SESSION_PACKET_LOST",
                    &json!({"packet_number": number}),
                );
            }
            "quic:connection_closed" => {
                let params = json!({"quic_error": 0, "from_peer": false});
                log.event(time, "QUIC_SESSION_CLOSED", &params);
            }
            _ => {}
        }
    }
    log.finish()
}

/// What is said of an upload, by the client's qlog, a capture and a netlog.
fn headlines(network: &str, bytes: &str) -> [String; 3] {
    let flow = format!("bytes = \"{bytes}\"");
    let scenario = scenario(network, &flow).replace("\"download\"", "\"upload\"");
    let Recorded { dir, capture, qlog } = record(&scenario, &[]);
    let [_, client] = &qlog;
    let netlog = file(
        &dir,
        "netlog.json",
        netlog_of(&std::fs::read_to_string(client).unwrap()),
    );
    let of = |path: &str| {
        let traces = traces(path);
        let ours = traces.iter().find(|it| it["totals"]["role"] == "client");
        headline(ours.unwrap())
    };
    [of(client), of(&capture), of(&netlog)]
}

#[test]
fn outage_has_the_same_headline_in_qlog_capture_and_netlog() {
    let network = "rtt = \"40ms\"\nboth = \"rate=10M queue=100 clock=explicit blackhole=1s-3s\"";
    let [qlog, capture, netlog] = headlines(network, "2MB");
    assert!(qlog.starts_with("Repeated probe timeouts for "), "{qlog}");
    assert_eq!(capture, qlog);
    assert_eq!(netlog, qlog);
}

#[test]
fn upload_with_losses_has_the_same_headline_in_qlog_capture_and_netlog() {
    let network = "rtt = \"40ms\"\nboth = \"rate=10M queue=25\"";
    let all = headlines(network, "2MB");
    let [qlog, capture, netlog] = all.each_ref().map(|headline| share(headline));
    let expected =
        "No problems found. The network was the limit , as expected for a bulk transfer.";
    assert!(qlog.0.starts_with(expected), "{all:?}");
    for other in [capture, netlog] {
        assert_eq!(other.0, qlog.0);
        assert!((other.1 - qlog.1).abs() <= 3, "{all:?}");
    }
}

#[test]
fn unusable_netlog_gets_a_message_that_says_what_is_missing() {
    let dir = TempDir::new();
    let diagnose = |text: &str| {
        let path = file(&dir, "netlog.json", text);
        let output = clearway(&["diagnose", &path]);
        (output.status.code(), stderr(&output))
    };
    for text in [
        r#"{"constants": {}, "events": []}"#,
        r#"{"constants": {"logEventTypes": {"TCP_CONNECT": 1}}, "events": []}"#,
    ] {
        let (code, said) = diagnose(text);
        assert_eq!(code, Some(2), "{said}");
        assert!(said.contains("cannot read"), "{said}");
        assert!(
            said.contains("expected the number of QUIC_SESSION_PACKET_SENT"),
            "{said}"
        );
    }
    let (code, said) = diagnose(r#"{"menu": {"id": 3}}"#);
    assert_eq!(code, Some(2), "{said}");
    assert!(said.contains("no qlog events in"), "{said}");
    // Of a log without QUIC, and of one that ends too soon, it is said what is there.
    let (code, said) = diagnose(&NetlogWriter::new().finish());
    assert_eq!(code, Some(2), "{said}");
    assert!(said.contains("no QUIC connections in"), "{said}");
}

#[test]
fn truncated_netlog_is_diagnosed_up_to_where_it_ends() {
    let dir = TempDir::new();
    let mut log = NetlogWriter::new();
    log.event(0.0, "QUIC_SESSION", &json!({}));
    for number in 0..20 {
        let params = json!({"packet_number": number, "size": 1_200});
        log.event(f64::from(number), "QUIC_SESSION_PACKET_SENT", &params);
    }
    let whole = log.finish();
    let last = whole.rfind("{\"params\"").unwrap();
    let cut = file(&dir, "cut.json", &whole[..last + 20]);
    let output = clearway(&["diagnose", &cut, "--json"]);
    assert!(output.status.success(), "{}", stderr(&output));
    let expected = format!("1 record could not be read, the first at byte {last}");
    assert!(stderr(&output).contains(&expected), "{}", stderr(&output));
    assert_eq!(parsed(&output)["traces"][0]["totals"]["packets_sent"], 19);
}
