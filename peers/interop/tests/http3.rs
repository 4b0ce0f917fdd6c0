//! The HTTP/3 matrix: with the peer that cargo builds, and with stand-ins for those it does not.

#![expect(
    clippy::unwrap_used,
    reason = "a test that cannot be set up has failed"
)]

use std::{
    fs,
    os::unix::fs::PermissionsExt,
    path::Path,
    process::{Command, Output},
};

fn matrix(programs: &Path, options: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_interop"))
        .arg("--http3")
        .arg("--programs")
        .arg(programs)
        .args(options)
        .output()
        .unwrap()
}

/// The text of the matrix whose peer `quic-go` is a line of shell.
fn against(script: &str, case: &str) -> (String, bool) {
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("peer-quic-go");
    fs::write(&program, format!("#!/bin/sh\n{script}\n")).unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    let output = matrix(folder.path(), &["--peer", "quic-go", "--case", case]);
    let text = String::from_utf8(output.stdout).unwrap();
    (text, output.status.success())
}

#[test]
fn quinn_and_h3_pass_the_cases_that_both_support() {
    let folder = tempfile::tempdir().unwrap();
    let output = matrix(folder.path(), &["--peer", "quinn+h3"]);
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{text}");
    let rows = text.lines().skip(1).take(9);
    for row in rows {
        let cells: Vec<&str> = row.split_whitespace().skip(1).collect();
        // What the client of one of the two does not offer is said to be so.
        let last = cells.last().copied();
        let sound = cells == ["pass", "pass"] || cells[0] == "unsupported" && last == Some("pass");
        assert!(sound, "{text}");
    }
}

#[test]
fn a_missing_program_is_not_run_and_no_failure() {
    let folder = tempfile::tempdir().unwrap();
    let output = matrix(
        folder.path(),
        &["--peer", "aioquic", "--peer", "quic-go", "--case", "get"],
    );
    assert!(output.status.success());
    let text = String::from_utf8(output.stdout).unwrap();
    assert_eq!(text.matches("not run").count(), 4 + 2, "{text}");
}

#[test]
fn unsupported_case_is_not_a_failure() {
    let (text, sound) = against("echo no such thing >&2; exit 127", "retry");
    assert!(sound, "{text}");
    assert_eq!(text.matches("unsupported").count(), 4, "{text}");
    assert_eq!(text.matches("no such thing").count(), 2, "{text}");
}

#[test]
fn a_peer_that_breaks_fails_with_its_last_word() {
    let (text, sound) = against("echo out of luck >&2; exit 1", "handshake");
    assert!(!sound);
    assert_eq!(text.matches("FAIL").count(), 4, "{text}");
    assert_eq!(text.matches("out of luck").count(), 2, "{text}");
}

#[test]
fn client_that_only_claims_success_fails() {
    let report = r#"{"bytes":10000,"requests":1,"retried":false}"#;
    let (text, sound) = against(&format!("[ $1 = get ] && echo '{report}'"), "retry");
    assert!(!sound);
    assert!(
        text.contains("quic-go → clearway: client: retried is false"),
        "{text}"
    );
}
