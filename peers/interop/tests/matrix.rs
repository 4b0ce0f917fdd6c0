//! The matrix with a stand-in for Clearway: a script that has quinn's program speak in
//! Clearway's words, well or badly.

#![expect(
    clippy::unwrap_used,
    reason = "a test that cannot be set up has failed"
)]

use std::{
    fs,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::{Command, Output},
};

/// The peer's program; `cargo test` for the whole workspace builds it.
fn quinn() -> PathBuf {
    let path = Path::new(env!("CARGO_BIN_EXE_interop")).with_file_name("peer-quinn");
    assert!(
        path.exists(),
        "no {}: build the peers first",
        path.display()
    );
    path
}

/// Runs the matrix against a stand-in that changes its arguments or output by a line of shell.
fn matrix(twist: &str, options: &[&str]) -> Output {
    let folder = tempfile::tempdir().unwrap();
    let script = folder.path().join("clearway");
    let text = format!(
        "#!/bin/sh\nquinn='{}'\nrole=$2\nshift 2\n{twist}\n\
         case $role in serve) exec $quinn server \"$@\";; get) exec $quinn client \"$@\";; esac\n",
        quinn().display()
    );
    fs::write(&script, text).unwrap();
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).unwrap();
    Command::new(env!("CARGO_BIN_EXE_interop"))
        .env("CLEARWAY", &script)
        .args(options)
        .output()
        .unwrap()
}

/// The cells of a case's row.
fn row(output: &Output, case: &str) -> Vec<String> {
    let text = String::from_utf8(output.stdout.clone()).unwrap();
    let mut rows = text.lines().map(|line| line.split_whitespace());
    let row = rows.find(|row| row.clone().next() == Some(case)).unwrap();
    row.skip(1).map(str::to_owned).collect()
}

/// A line of shell that takes an option out of the arguments.
fn without(option: &str) -> String {
    format!("for a in \"$@\"; do shift; [ \"$a\" = {option} ] || set -- \"$@\" \"$a\"; done")
}

/// The cell of one case between the stand-in as a client and quinn as a server.
fn as_client(twist: &str, case: &str) -> (String, bool) {
    let output = matrix(twist, &["--case", case]);
    (row(&output, case)[0].clone(), output.status.success())
}

#[test]
fn a_sound_stack_passes_everything_both_ways() {
    let output = matrix("", &[]);
    assert!(output.status.success(), "{output:?}");
    let cases = [
        "transfer",
        "streams",
        "upload",
        "key-update",
        "retry",
        "resumption",
        "zero-rtt",
        "zero-rtt-refused",
        "zero-rtt-retry",
        "rebinding",
    ];
    for case in cases {
        assert_eq!(row(&output, case), ["pass", "pass"], "{case}");
    }
}

#[test]
fn client_that_ignores_its_option_fails() {
    for (option, case) in [
        ("--resume", "resumption"),
        ("--zero-rtt", "zero-rtt"),
        ("--rebind", "rebinding"),
    ] {
        assert_eq!(
            as_client(&without(option), case),
            ("FAIL".to_owned(), false),
            "{case}"
        );
    }
}

#[test]
fn a_server_that_ignores_its_option_fails() {
    for (option, case) in [("--retry", "retry"), ("--zero-rtt", "zero-rtt")] {
        let twist = format!("[ $role = get ] || {}", without(option));
        let output = matrix(&twist, &["--case", case]);
        assert_eq!(row(&output, case), ["pass", "FAIL"], "{case}");
        assert!(!output.status.success());
    }
}

#[test]
fn program_that_exits_at_once_fails_with_its_last_message() {
    let output = matrix("echo no such command >&2; exit 2", &["--case", "transfer"]);
    assert!(!output.status.success());
    assert_eq!(row(&output, "transfer"), ["FAIL", "FAIL"]);
    let text = String::from_utf8(output.stdout).unwrap();
    assert_eq!(text.matches("no such command").count(), 2, "{text}");
}

#[test]
fn a_server_without_reports_leaves_a_migration_unproven() {
    let twist = format!("[ $role = get ] || {}", without("--json"));
    let output = matrix(&twist, &["--case", "rebinding"]);
    assert_eq!(row(&output, "rebinding"), ["pass", "unproven"]);
    assert!(output.status.success());
}
