//! `clearway lab` from outside.
#![allow(
    clippy::unwrap_used,
    missing_docs,
    reason = "a test that cannot go on has failed"
)]

mod common;

use std::fs;
use std::path::PathBuf;

use common::{clearway, json, stderr};

/// A directory of this test's own.
fn place(name: &str) -> PathBuf {
    let dir = std::env::temp_dir().join(format!("clearway-lab-{}-{name}", std::process::id()));
    fs::create_dir_all(&dir).unwrap();
    dir
}

const SMALL: &str = r#"
name = "small"
duration = "20s"
[network]
rtt = "20ms"
both = "rate=10M queue=25 loss=1%"
[[flows]]
traffic = "download"
bytes = "200kB"
[pass]
completes_within = "WITHIN"
"#;

fn small(dir: &str, within: &str) -> (PathBuf, String) {
    let dir = place(dir);
    let file = dir.join("small.toml");
    fs::write(&file, SMALL.replace("WITHIN", within)).unwrap();
    let name = file.to_str().unwrap().to_owned();
    (dir, name)
}

#[test]
fn the_catalogue_is_listed() {
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
fn a_build_without_specimens_says_how_to_get_one() {
    let output = clearway(&["lab", "run", "policer", "--specimen", "multi-cut"]);
    assert!(!output.status.success());
    let words = stderr(&output);
    assert!(words.contains("--features specimens"), "{words}");
}

#[test]
fn a_run_is_one_json_object_and_repeats() {
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
fn death_spiral_repeats_on_one_thread_and_on_two() {
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
fn a_bar_that_is_missed_fails_and_says_how_to_see_it_again() {
    let (_, file) = small("bar", "1ms");
    let output = clearway(&[
        "lab",
        "run",
        &file,
        "--controller",
        "newreno",
        "--seeds",
        "2",
    ]);
    assert_eq!(output.status.code(), Some(1));
    let said = stderr(&output);
    assert!(
        said.contains("FAILED small newreno: time ≤ 1.0 ms"),
        "{said}"
    );
    let replay = format!("clearway lab run {file} --controller newreno --seed ");
    assert!(said.contains(&replay), "{said}");
}

#[test]
fn a_mistake_says_where_it_is() {
    let (_, file) = small("mistake", "soon");
    let output = clearway(&["lab", "run", &file]);
    assert_eq!(output.status.code(), Some(2));
    let said = stderr(&output);
    assert!(said.contains("small.toml:11:20: bad "), "{said}");
    let output = clearway(&["lab", "run", "death_spirl"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("did you mean death_spiral?"));
}

#[test]
fn each_kind_of_mistake_has_its_file_its_line_and_what_would_be_right() {
    let dir = place("mistakes");
    let cases = [
        (
            "duration =",
            "durration =",
            "3:1: there is no setting \"durration\"; did you mean duration?",
        ),
        (
            "bytes =",
            "byte =",
            "9:1: [[flows]] has no setting \"byte\"; did you mean bytes?",
        ),
        (
            "rate=10M",
            "rate=-10M",
            "6:8: bad rate \"-10M\": it is negative; write bits per second such as 100M",
        ),
        (
            "queue=25",
            "queue=500B",
            "6:8: queue \"500B\" is impossible: 500 bytes hold no packet of 1480; write packets such as 250",
        ),
        (
            "rate=10M",
            "trace=nowhere.trace",
            "6:8: bad trace \"nowhere.trace\": it cannot be read: No such file or directory (os error 2); \
             write the path of a file with a millisecond per line",
        ),
    ];
    for (number, (from, to, said)) in cases.into_iter().enumerate() {
        let file = dir.join(format!("{number}.toml"));
        assert!(SMALL.contains(from), "{from}");
        let text = SMALL.replace("WITHIN", "20s").replacen(from, to, 1);
        fs::write(&file, text).unwrap();
        let name = file.to_str().unwrap();
        let expected = format!("{name}:{said}");
        let lab: &[&str] = &["lab", "run", name];
        let ports = ["--listen", "127.0.0.1:0", "--to", "127.0.0.1:9"];
        let relay = [&["relay", name][..], &ports].concat();
        for arguments in [lab, &relay] {
            let output = clearway(arguments);
            assert_eq!(output.status.code(), Some(2), "{to}");
            let words = stderr(&output);
            assert!(words.contains(&expected), "{words}");
            assert!(output.stdout.is_empty());
        }
    }
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
fn a_sweep_is_a_table_with_a_line_per_point() {
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
