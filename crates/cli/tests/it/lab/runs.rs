//! Runs, sweeps and what they write.

use std::fs;

use super::common::{clearway, json, stderr};
use super::small;

#[test]
fn list_prints_the_catalogue() {
    let output = clearway(&["lab", "list"]);
    assert!(output.status.success(), "{}", stderr(&output));
    let text = String::from_utf8(output.stdout).unwrap();
    let scenarios = fs::read_dir("../lab/scenarios").unwrap();
    let scenarios = scenarios.filter(|entry| {
        let path = entry.as_ref().unwrap().path();
        path.extension()
            .is_some_and(|extension| extension == "toml")
    });
    assert_eq!(text.lines().count(), scenarios.count());
    assert!(text.contains("death_spiral"));
}

#[test]
#[cfg(not(feature = "specimens"))]
fn specimen_option_without_feature_explains_how_to_enable_it() {
    let output = clearway(&["lab", "run", "policer", "--specimen", "multi-cut"]);
    assert!(!output.status.success());
    let words = stderr(&output);
    assert!(words.contains("--features specimens"), "{words}");
}

#[test]
fn run_prints_one_json_object_and_is_reproducible() {
    let (_, file) = small("json", "20s");
    let run = || {
        let arguments = [
            "lab",
            "run",
            &file,
            "--controller",
            "cubic",
            "--seed",
            "5",
            "--json",
        ];
        let output = clearway(&arguments);
        assert!(output.status.success(), "{}", stderr(&output));
        json(&output)
    };
    let row = run();
    assert_eq!(row["seed"], 5);
    assert_eq!(row["finished"], true);
    assert!(row["metrics"]["goodput"].as_f64().unwrap() > 1e6);
    assert_eq!(row["digest"], run()["digest"]);
}

#[test]
fn death_spiral_is_reproducible_on_one_and_two_threads() {
    let digests = |threads| {
        let arguments = [
            "lab",
            "run",
            "death_spiral",
            "--controller",
            "cubic",
            "--seeds",
            "2",
            "--threads",
            threads,
            "--json",
        ];
        let output = clearway(&arguments);
        assert!(output.status.success(), "{}", stderr(&output));
        let rows = String::from_utf8(output.stdout).expect("UTF-8");
        rows.lines()
            .map(|row| {
                let row: serde_json::Value = serde_json::from_str(row).expect("a row");
                (row["seed"].to_string(), row["digest"].to_string())
            })
            .collect::<Vec<_>>()
    };
    let one = digests("1");
    assert_eq!(one.len(), 4, "two seeds of two variants");
    assert_ne!(one[0].1, one[1].1, "another seed is another run");
    assert_eq!(one, digests("1"));
    assert_eq!(one, digests("2"));
}

#[test]
fn traces_captures_and_reports_are_written_and_can_be_diagnosed() {
    let (dir, file) = small("traces", "20s");
    let at = |name: &str| dir.join(name).to_str().unwrap().to_owned();
    let (pcap, qlog, page) = (at("run.pcapng"), at("qlog"), at("run.html"));
    let output = clearway(&[
        "lab",
        "run",
        &file,
        "--controller",
        "cubic",
        "--pcap",
        &pcap,
        "--qlog",
        &qlog,
        "--report",
        &page,
    ]);
    assert!(output.status.success(), "{}", stderr(&output));
    let capture = fs::read(&pcap).unwrap();
    assert_eq!(capture[..4], [0x0a, 0x0d, 0x0d, 0x0a]);
    let text = String::from_utf8_lossy(&capture);
    assert!(text.contains("CLIENT_HANDSHAKE_TRAFFIC_SECRET"));
    assert!(fs::read_to_string(&page).unwrap().contains("<html"));
    let traces: Vec<_> = fs::read_dir(&qlog).unwrap().collect();
    assert_eq!(traces.len(), 2, "one for each end");
    let trace = traces[0].as_ref().unwrap().path();
    let output = clearway(&["lab", "diagnose", trace.to_str().unwrap(), "--json"]);
    assert!(output.status.success(), "{}", stderr(&output));
    assert!(json(&output)["events"].as_u64().unwrap() > 50);
}

#[test]
fn sweep_prints_one_table_row_per_point() {
    let output = clearway(&[
        "lab",
        "sweep",
        "--rate",
        "10M",
        "--rtt",
        "10ms,20ms",
        "--loss",
        "0%,1%",
        "--bytes",
        "100kB",
        "--controller",
        "cubic",
    ]);
    assert!(output.status.success(), "{}", stderr(&output));
    assert_eq!(String::from_utf8(output.stdout).unwrap().lines().count(), 5);
}
