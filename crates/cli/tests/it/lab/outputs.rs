//! Where results go: files, and a stdout that is full or closed.

use std::fs::{self, OpenOptions};
use std::process::{Command, Output};

use super::common::{clearway, json, stderr};
use super::{SMALL, place, small};

const ONCE: &[&str] = &["--controller", "cubic"];

/// Runs with stdout to a device that is always full.
fn full(arguments: &[&str]) -> Output {
    let device = OpenOptions::new().write(true).open("/dev/full").unwrap();
    let command = Command::new(env!("CARGO_BIN_EXE_clearway"))
        .args(arguments)
        .stdout(device)
        .output();
    command.unwrap()
}

#[test]
fn full_stdout_is_an_output_error() {
    let (dir, file) = small("full", "20s");
    let trace = traced(&dir, &file);
    let run = ["lab", "run", &file, "--controller", "cubic"];
    let cases: [&[&str]; 7] = [
        &["lab", "list"],
        &["lab", "show", "policer"],
        &run,
        &[&run[..], &["--json"]].concat(),
        &["lab", "league", &file, "--controller", "cubic"],
        &["lab", "compare", "cubic", "newreno", &file],
        &["lab", "diagnose", &trace],
    ];
    for arguments in cases {
        let output = full(arguments);
        assert_eq!(
            output.status.code(),
            Some(8),
            "{arguments:?}: {}",
            stderr(&output)
        );
        assert!(
            stderr(&output).contains("cannot write to stdout"),
            "{arguments:?}"
        );
    }
}

/// The client's trace of a run of `file`.
fn traced(dir: &std::path::Path, file: &str) -> String {
    let qlog = dir.join("traced");
    let arguments = [
        "lab",
        "run",
        file,
        "--controller",
        "cubic",
        "--qlog",
        qlog.to_str().unwrap(),
    ];
    let output = clearway(&arguments);
    assert!(output.status.success(), "{}", stderr(&output));
    let trace = qlog.join("small_cubic_seed1_flow0_client.sqlog");
    trace.to_str().unwrap().to_owned()
}

#[test]
fn closed_stdout_pipe_ends_quietly_with_its_exit_code() {
    let (dir, file) = small("closed", "20s");
    let trace = traced(&dir, &file);
    let cases: [&[&str]; 7] = [
        &["lab", "list"],
        &["lab", "show", "policer"],
        &["lab", "run", &file, "--controller", "cubic"],
        &["lab", "league", &file, "--controller", "cubic"],
        &["lab", "compare", "cubic", "newreno", &file],
        &["lab", "diagnose", &trace],
        // Rows that nobody reads end the runs: these would take an hour.
        &["lab", "run", &file, "--seeds", "100000", "--json"],
    ];
    for arguments in cases {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let command = Command::new(env!("CARGO_BIN_EXE_clearway"))
            .args(arguments)
            .stdout(writer)
            .output();
        let output = command.unwrap();
        assert_eq!(
            output.status.code(),
            Some(141),
            "{arguments:?}: {}",
            stderr(&output)
        );
        assert!(
            !stderr(&output).contains("error"),
            "{arguments:?}: {}",
            stderr(&output)
        );
    }
}

#[test]
fn unwritable_output_is_reported_before_running() {
    let (dir, file) = small("unopened", "20s");
    let (here, gone) = (
        dir.to_str().unwrap(),
        dir.join("none/x").to_str().unwrap().to_owned(),
    );
    for option in [
        ["--pcap", here],
        ["--report", here],
        ["--report", &gone],
        ["--qlog", "/dev/full"],
    ] {
        let output = clearway(&[&["lab", "run", &file][..], ONCE, &option].concat());
        let said = stderr(&output);
        assert_eq!(output.status.code(), Some(8), "{option:?}: {said}");
        assert!(!said.contains("events/s"), "nothing ran: {said}");
        assert_eq!(said.matches("cannot").count(), 1, "{said}");
    }
}

#[test]
fn table_is_printed_before_output_file_errors() {
    let (_, file) = small("filled", "20s");
    for option in [["--report", "/dev/full"], ["--pcap", "/dev/full"]] {
        let output = clearway(&[&["lab", "run", &file][..], ONCE, &option].concat());
        let said = stderr(&output);
        assert_eq!(output.status.code(), Some(8), "{said}");
        assert_eq!(said.matches("cannot write /dev/full").count(), 1, "{said}");
        let table = String::from_utf8(output.stdout).unwrap();
        assert!(table.contains("small") && table.contains("pass"), "{table}");
    }
}

#[test]
fn report_replaces_existing_file() {
    let (dir, file) = small("replaced", "20s");
    let page = dir.join("page.html");
    fs::write(&page, "x".repeat(10_000_000)).unwrap();
    let path = page.to_str().unwrap();
    let output = clearway(&[&["lab", "run", &file][..], ONCE, &["--report", path]].concat());
    assert!(output.status.success(), "{}", stderr(&output));
    assert!(
        fs::read_to_string(&page)
            .unwrap()
            .trim_end()
            .ends_with("</html>")
    );
}

#[test]
fn traces_of_same_named_scenarios_get_different_files() {
    let dir = place("apart");
    let file = |name: &str, bytes: &str| {
        let file = dir.join(name);
        let text = SMALL.replace("WITHIN", "20s").replace("200kB", bytes);
        fs::write(&file, text).unwrap();
        file.to_str().unwrap().to_owned()
    };
    let (a, b) = (file("a.toml", "100kB"), file("b.toml", "300kB"));
    let qlog = dir.join("qlog");
    let options = ["--qlog", qlog.to_str().unwrap()];
    let output = clearway(&[&["lab", "run", &a, &b][..], ONCE, &options].concat());
    assert!(output.status.success(), "{}", stderr(&output));
    assert_eq!(
        fs::read_dir(&qlog).unwrap().count(),
        4,
        "two ends of two runs"
    );
    let events = |name: &str| {
        let trace = qlog.join(format!("{name}_seed1_flow0_server.sqlog"));
        let output = clearway(&["lab", "diagnose", trace.to_str().unwrap(), "--json"]);
        json(&output)["events"].as_u64().unwrap()
    };
    assert!(
        events("small_cubic_2") > events("small_cubic"),
        "the longer is the second"
    );
}
