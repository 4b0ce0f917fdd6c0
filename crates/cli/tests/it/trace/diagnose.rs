//! `clearway diagnose`.

use super::{clearway, file, healthy, json, stderr, stdout, stuck};
use crate::web::TempDir;

const HEADLINE: &str = "Stuck: window at its floor for 1.0 s with no loss; cause: it flips between \
                        recovery and congestion avoidance once a round trip, because an idle \
                        adjustment fires while data waits.";

#[test]
fn diagnosis_names_cause_mechanism_evidence_and_remedy() {
    let dir = TempDir::new();
    let trace = file(&dir, "stuck.sqlog", stuck());
    let text = stdout(&clearway(&["diagnose", &trace]));
    let mut lines = text.lines();
    assert_eq!(lines.next(), Some(HEADLINE), "{text}");
    for expected in [
        "1. Stuck: window at its floor for 1.0 s with no loss",
        "found by:  floor_pinned (error), 0.000 s to 0.9",
        "cause:     it flips between recovery and congestion avoidance once a round trip",
        "mechanism: Each time the last packet in flight is acknowledged, ",
        " s  congestion state recovery",
        " s  sent packets ",
        " s  nothing in flight",
        "try:       Look for what resets the controller each round trip",
    ] {
        assert!(text.contains(expected), "{expected}: {text}");
    }
    let alias = stdout(&clearway(&["lab", "diagnose", &trace]));
    assert_eq!(alias, text);
}

#[test]
fn diagnosis_as_json_ranks_problems() {
    let dir = TempDir::new();
    let trace = file(&dir, "stuck.sqlog", stuck());
    let object = json(&clearway(&["diagnose", &trace, "--json"]));
    let found = &object["traces"][0];
    assert_eq!(found["headline"], HEADLINE);
    assert_eq!(found["severity"], "error");
    assert_eq!(found["totals"]["packets_sent"], 200);
    let first = &found["problems"][0];
    assert_eq!(first["detector"], "floor_pinned");
    assert_eq!(first["cause"]["detector"], "recovery_flap");
    assert!(first["evidence"].as_array().unwrap().len() > 5, "{first}");
    assert_eq!(object["unreadable_records"], 0);
}

#[test]
fn directory_is_diagnosed_with_the_worst_trace_first() {
    let dir = TempDir::new();
    file(&dir, "a-healthy.sqlog", healthy());
    file(&dir, "b-stuck.sqlog", stuck());
    file(&dir, "notes.txt", "no trace");
    let text = stdout(&clearway(&["diagnose", &dir.text("")]));
    let (stuck, healthy) = (text.find("b-stuck.sqlog"), text.find("a-healthy.sqlog"));
    assert!(stuck.is_some() && stuck < healthy, "{text}");
    assert!(
        text.contains("No problems found. The network was the limit"),
        "{text}"
    );
    assert!(!text.contains("notes.txt"), "{text}");
    let empty = TempDir::new();
    let output = clearway(&["diagnose", &empty.text("")]);
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("expected files ending with .sqlog, .qlog, .pcapng or .pcap"));
}

#[test]
fn comparison_says_what_differs_and_since_when() {
    let dir = TempDir::new();
    let slow = file(&dir, "slow.sqlog", stuck());
    let fast = file(&dir, "fast.sqlog", healthy());
    let text = stdout(&clearway(&["diagnose", &slow, "--against", &fast]));
    let (_, differences) = text
        .split_once("Differences from the other trace:\n")
        .unwrap();
    assert!(
        differences.trim_start().starts_with("from 0.0"),
        "{differences}"
    );
    assert!(
        differences.contains("congestion window: 2.4 kB, against "),
        "{differences}"
    );
    let object = json(&clearway(&[
        "diagnose",
        &slow,
        "--against",
        &fast,
        "--json",
    ]));
    let found = object["traces"][0]["differences"].as_array().unwrap();
    assert!(
        found[0]["since"].as_u64().unwrap() < 200_000_000,
        "{found:?}"
    );
    let same = stdout(&clearway(&["diagnose", &fast, "--against", &fast]));
    assert!(
        same.ends_with("No differences from the other trace.\n"),
        "{same}"
    );
}
