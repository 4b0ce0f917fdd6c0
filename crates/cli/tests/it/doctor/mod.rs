//! `clearway doctor` as a user runs it.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod diagnosis;
mod host;
mod mistakes;
mod naive;
mod path;
mod tune;

use std::process::{Command, Output};

fn doctor(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_clearway"))
        .arg("doctor")
        .args(arguments)
        .output()
        .unwrap()
}

fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

/// Runs it and expects this exit code.
fn expect(code: i32, arguments: &[&str]) -> Output {
    let output = doctor(arguments);
    assert_eq!(
        output.status.code(),
        Some(code),
        "{arguments:?}: {}{}",
        stdout(&output),
        crate::common::stderr(&output)
    );
    output
}

#[test]
fn help_has_examples_exit_codes_and_units() {
    let help = stdout(&expect(0, &["--help"]));
    for words in [
        "clearway doctor --port 443",
        "clearway doctor tune",
        "Exit codes:\n  0  healthy: nothing was lost\n  1  datagrams are being lost\n  2  nothing can be seen",
        "[default: 10s]",
        "what root would add",
    ] {
        assert!(help.contains(words), "{words}: {help}");
    }
    assert!(stdout(&expect(0, &["path", "--help"])).contains(r#""hop":"client""#));
    assert!(stdout(&expect(0, &["tune", "--help"])).contains("Changes nothing"));
}
