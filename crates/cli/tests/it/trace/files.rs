//! `clearway trace`.

use std::fs;

use super::{clearway, file, healthy, json, stdout, stuck};
use crate::common::stderr;
use crate::web::TempDir;

/// Events, by the trace's own count.
fn events(trace: &str) -> u64 {
    json(&clearway(&["trace", "stat", trace, "--json"]))["events"]
        .as_u64()
        .unwrap()
}

#[test]
fn conversion_keeps_events_and_diagnosis_in_every_format() {
    let dir = TempDir::new();
    let from = file(&dir, "from.sqlog", stuck());
    let headline = |trace: &str| {
        json(&clearway(&["diagnose", trace, "--json"]))["traces"][0]["headline"].clone()
    };
    for (name, dialect, magic) in [
        ("a.sqlog", "draft", &b"\x1e{\"file_schema\""[..]),
        ("b.sqlog", "qvis", b"\x1e{\"qlog_version\":\"0.3\""),
        ("c.sqlog.gz", "draft", b"\x1f\x8b"),
        ("d.sqlog.zst", "qvis", b"\x28\xb5\x2f\xfd"),
    ] {
        let to = dir.text(name);
        let output = clearway(&["trace", "convert", &from, "-o", &to, "--dialect", dialect]);
        assert!(output.status.success(), "{}", stderr(&output));
        assert!(fs::read(&to).unwrap().starts_with(magic), "{name}");
        assert_eq!(events(&to), events(&from), "{name}");
        assert_eq!(headline(&to), headline(&from), "{name}");
    }
    let packed = fs::metadata(dir.join("c.sqlog.gz")).unwrap().len();
    assert!(packed * 5 < fs::metadata(dir.join("a.sqlog")).unwrap().len());
}

#[test]
fn conversion_onto_itself_is_refused_and_keeps_the_file() {
    let dir = TempDir::new();
    let trace = file(&dir, "a.sqlog", stuck());
    let output = clearway(&["trace", "convert", &trace, "-o", &trace]);
    assert_eq!(output.status.code(), Some(2));
    assert!(
        stderr(&output).contains("onto itself"),
        "{}",
        stderr(&output)
    );
    assert_eq!(fs::read_to_string(&trace).unwrap(), stuck());
    let output = clearway(&["trace", "convert", &trace, "-o", "/dev/full"]);
    assert_eq!(output.status.code(), Some(8), "{}", stderr(&output));
}

#[test]
fn unknown_dialect_is_refused() {
    let output = clearway(&["trace", "convert", "a", "-o", "b", "--dialect", "new"]);
    assert_eq!(output.status.code(), Some(2));
    let said = stderr(&output);
    assert!(
        said.contains("unknown qlog dialect \"new\"; expected \"draft\" or \"qvis\""),
        "{said}"
    );
}

#[test]
fn stat_counts_events_by_name_and_validate_accepts_them() {
    let dir = TempDir::new();
    let trace = file(&dir, "a.sqlog", healthy());
    let object = json(&clearway(&["trace", "stat", &trace, "--json"]));
    assert_eq!(object["by_name"]["quic:packet_received"], 100);
    assert_eq!(object["unreadable_records"], 0);
    let text = stdout(&clearway(&["trace", "stat", &trace]));
    assert!(
        text.contains("       100  quic:packet_received\n"),
        "{text}"
    );
    let text = stdout(&clearway(&["trace", "validate", &trace]));
    assert_eq!(text, format!("{trace}: valid\n"));
}
