//! Packet captures: the same findings as the qlog of the same connection.

use std::fs;
use std::path::PathBuf;

use serde_json::Value;

use super::{clearway, file, json, stderr, stdout};
use crate::web::TempDir;

/// A connection of the lab, as qlog of the sender and as a capture of the same packets.
pub(super) struct Recorded {
    pub(super) dir: TempDir,
    pub(super) capture: String,
    /// The server's qlog and the client's.
    pub(super) qlog: [String; 2],
}

pub(super) fn record(scenario: &str, more: &[&str]) -> Recorded {
    let dir = TempDir::new();
    let scenario_file = file(&dir, "one.toml", scenario);
    let capture = dir.text("run.pcapng");
    let qlog = dir.text("qlog");
    let mut arguments = vec!["lab", "run", &scenario_file, "--controller", "cubic"];
    arguments.extend(["--seeds", "1", "--pcap", &capture, "--qlog", &qlog]);
    arguments.extend(more);
    let output = clearway(&arguments);
    assert!(fs::exists(&capture).unwrap(), "{}", stderr(&output));
    let mut traces: Vec<PathBuf> = fs::read_dir(&qlog)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    traces.sort();
    let find = |end: &str| {
        let of_end = |path: &&PathBuf| path.to_string_lossy().contains(end);
        let path = traces.iter().find(of_end).expect("a trace of this end");
        path.to_string_lossy().into_owned()
    };
    Recorded {
        capture,
        qlog: [find("_server"), find("_client")],
        dir,
    }
}

/// What is diagnosed of each trace in a file.
pub(super) fn traces(path: &str) -> Vec<Value> {
    let output = clearway(&["diagnose", path, "--json"]);
    json(&output)["traces"].as_array().unwrap().clone()
}

pub(super) fn headline(trace: &Value) -> String {
    trace["headline"].as_str().unwrap().to_owned()
}

/// Checks that two sentences have the same words, and numbers that differ by one at most: what limited a
/// sender is estimated from a capture.
fn assert_alike(one: &str, other: &str) {
    let words = |of: &str| of.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
    let (ones, others) = (words(one), words(other));
    let number = |word: &str| word.parse::<f64>().ok();
    let are_alike = |(a, b): (&String, &String)| match (number(a), number(b)) {
        (Some(a), Some(b)) => (a - b).abs() <= 1.0,
        _ => a == b,
    };
    assert!(
        ones.len() == others.len() && ones.iter().zip(&others).all(are_alike),
        "{one:?} and {other:?}"
    );
}

/// A network with a flow, as a scenario.
pub(super) fn scenario(network: &str, flow: &str) -> String {
    format!(
        "name = \"one\"\nduration = \"20s\"\n[network]\n{network}\n[[flows]]\n\
         traffic = \"download\"\n{flow}\n"
    )
}

/// Records a connection, and compares what its capture says of both ends with their qlog.
fn same_headlines(network: &str, flow: &str, expected: &str) {
    let recorded = record(&scenario(network, flow), &[]);
    let captured = traces(&recorded.capture);
    assert_eq!(captured.len(), 2, "both ends");
    let [server, client] = &recorded.qlog;
    let (server, client) = (&traces(server)[0], &traces(client)[0]);
    // The sender comes first.
    assert_eq!(headline(&captured[0]), headline(server));
    assert!(
        headline(server).starts_with(expected),
        "{}",
        headline(server)
    );
    let count = |trace: &Value, name: &str| trace["totals"][name].as_u64().unwrap();
    for name in [
        "packets_sent",
        "packets_lost",
        "bytes_sent",
        "probe_timeouts",
    ] {
        assert_eq!(count(&captured[0], name), count(server, name), "{name}");
    }
    // What arrives at the client is what the capture shows, without what was lost after it.
    assert_eq!(captured[1]["totals"]["role"], "client");
    assert!(count(&captured[1], "bytes_received") >= count(client, "bytes_received"));
}

#[test]
fn download_with_losses_has_the_headline_of_its_qlog() {
    same_headlines(
        "rtt = \"40ms\"\nboth = \"rate=10M queue=25\"",
        "bytes = \"2MB\"",
        "No problems found. The network was the limit",
    );
}

#[test]
fn outage_has_the_headline_of_its_qlog() {
    same_headlines(
        "rtt = \"40ms\"\nboth = \"rate=10M queue=100 clock=explicit blackhole=1s-3s\"",
        "bytes = \"2MB\"",
        "Repeated probe timeouts for",
    );
}

/// The shares of time may differ: what the sender waited for is derived, not recorded.
#[test]
fn download_limited_by_credit_names_the_receiver_as_its_qlog_does() {
    let network = "rtt = \"40ms\"\nboth = \"rate=50M queue=1bdp\"";
    let flow = "bytes = \"100kB\"\n[transport]\nwindow = \"4KB\"";
    let recorded = record(&scenario(network, flow), &[]);
    let of = |path: &str| {
        let said = headline(&traces(path)[0]);
        let (before, rest) = said.split_once(" % of the time").expect(&said);
        let (text, percent) = before.rsplit_once(' ').unwrap();
        (
            text.to_owned(),
            percent.parse::<i32>().unwrap(),
            rest.to_owned(),
        )
    };
    let (captured, recorded) = (of(&recorded.capture), of(&recorded.qlog[0]));
    assert_eq!(captured.0, "No problems found. The receiver was the limit");
    assert_eq!((&captured.0, &captured.2), (&recorded.0, &recorded.2));
    assert!(
        (captured.1 - recorded.1).abs() <= 5,
        "{captured:?} {recorded:?}"
    );
}

fn download() -> Recorded {
    let network = "rtt = \"20ms\"\nboth = \"rate=10M queue=50\"";
    record(&scenario(network, "bytes = \"200kB\""), &[])
}

/// The capture without the block that holds the secrets, and those.
fn without_secrets(capture: &[u8]) -> (Vec<u8>, Vec<u8>) {
    let (mut out, mut secrets, mut at) = (Vec::new(), Vec::new(), 0);
    while at < capture.len() {
        let word = |at: usize| u32::from_le_bytes(capture[at..at + 4].try_into().unwrap());
        let (kind, len) = (word(at), word(at + 4) as usize);
        if kind == 10 {
            let size = word(at + 12) as usize;
            secrets = capture[at + 16..at + 16 + size].to_vec();
        } else {
            out.extend_from_slice(&capture[at..at + len]);
        }
        at += len;
    }
    (out, secrets)
}

#[test]
fn capture_without_secrets_shows_sizes_and_takes_secrets_from_a_file() {
    let recorded = download();
    let dir = TempDir::new();
    let (bare, secrets) = without_secrets(&fs::read(&recorded.capture).unwrap());
    let (bare, keys) = (file(&dir, "bare.pcapng", bare), file(&dir, "keys", secrets));
    let output = clearway(&["diagnose", &bare, "--json"]);
    let said = stderr(&output);
    assert!(
        said.contains("no TLS secrets for 1 connections: only sizes and times"),
        "{said}"
    );
    let shown = json(&output);
    assert!(shown["traces"][0]["totals"]["bytes_sent"].as_u64().unwrap() > 200_000);
    let with = json(&clearway(&[
        "diagnose",
        &bare,
        "--json",
        "--secrets",
        &keys,
    ]));
    assert_eq!(
        with["traces"],
        json(&clearway(&["diagnose", &recorded.capture, "--json"]))["traces"]
    );
    for (name, content, expected) in [
        ("nothing", "", "no TLS secrets in 1 lines"),
        ("missing", "", "cannot read"),
    ] {
        let path = if name == "missing" {
            dir.text(name)
        } else {
            file(&dir, name, content)
        };
        let output = clearway(&["diagnose", &bare, "--secrets", &path]);
        assert_eq!(output.status.code(), Some(2));
        let said = stderr(&output);
        assert!(said.starts_with("error: --secrets: cannot read"), "{said}");
        assert!(said.contains(expected), "{said}");
    }
}

#[test]
fn truncated_capture_is_diagnosed_up_to_where_it_ends() {
    let recorded = download();
    let dir = TempDir::new();
    let whole = fs::read(&recorded.capture).unwrap();
    let cut = file(&dir, "cut.pcapng", &whole[..whole.len() - 10]);
    let output = clearway(&["diagnose", &cut, "--json"]);
    let said = stderr(&output);
    assert!(output.status.success(), "{said}");
    assert!(
        said.contains("the capture is truncated: the block at offset"),
        "{said}"
    );
    let shown = json(&output);
    assert!(headline(&shown["traces"][0]).starts_with("No problems found."));
    assert!(shown["broken"].as_str().unwrap().contains("truncated"));
    let output = clearway(&["trace", "validate", &cut]);
    assert_eq!(output.status.code(), Some(1));
    let output = clearway(&["trace", "validate", &recorded.capture]);
    assert!(stdout(&output).ends_with(": valid\n"));
}

#[test]
fn either_end_of_a_capture_is_converted_to_qlog() {
    let recorded = download();
    let dir = TempDir::new();
    let convert = |to: &str, more: &[&str]| {
        let begin = ["trace", "convert", &recorded.capture, "-o", to];
        clearway(&[&begin[..], more].concat())
    };
    for (role, more) in [
        ("server", &[][..]),
        ("client", &["--role", "client"]),
        ("server", &["--role", "server", "--connection", "1"]),
    ] {
        let to = dir.text("out.sqlog.zst");
        let output = convert(&to, more);
        assert!(output.status.success(), "{}", stderr(&output));
        let converted = traces(&to);
        assert_eq!(converted[0]["totals"]["role"], role);
        let captured = traces(&recorded.capture);
        let of_end = |it: &&Value| it["totals"]["role"] == role;
        let same = captured.iter().find(of_end).unwrap();
        assert_eq!(headline(&converted[0]), headline(same));
    }
    let output = convert(&dir.text("out.sqlog"), &["--connection", "2"]);
    assert_eq!(output.status.code(), Some(2));
    let said = stderr(&output);
    assert!(said.contains("no connection 2 in"), "{said}");
    assert!(said.contains("found 1 QUIC connections"), "{said}");
}

/// Many key updates, with packets of both phases in flight and lost (RFC 9001 §6).
#[test]
fn capture_through_key_updates_is_decrypted_and_has_the_headline_of_its_qlog() {
    let network = "rtt = \"30ms\"\nboth = \"rate=10M queue=25 loss=2%\"";
    let flow = "bytes = \"2MB\"\n[transport]\nkey_update_after = \"30\"";
    let recorded = record(&scenario(network, flow), &[]);
    let output = clearway(&["diagnose", &recorded.capture, "--json"]);
    let said = stderr(&output);
    assert!(!said.contains("could not be decrypted"), "{said}");
    let captured = json(&output)["traces"][0].clone();
    let server = &traces(&recorded.qlog[0])[0];
    assert_alike(&headline(&captured), &headline(server));
    assert_eq!(
        captured["totals"]["packets_sent"],
        server["totals"]["packets_sent"]
    );
    // The server began them all.
    let dir = TempDir::new();
    let to = dir.text("client.sqlog");
    let from = &recorded.capture;
    let output = clearway(&["trace", "convert", from, "-o", &to, "--role", "client"]);
    assert!(output.status.success(), "{}", stderr(&output));
    let updates = |path: &str| {
        let text = fs::read_to_string(path).unwrap();
        text.matches("\"remote_update\"").count()
    };
    let (captured, recorded) = (updates(&to), updates(&recorded.qlog[1]));
    assert!(captured >= 10, "{captured}");
    assert_eq!(captured, recorded);
}
