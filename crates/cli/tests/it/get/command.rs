//! Running `clearway get`.

use std::process::{Child, Command, Output, Stdio};

pub(crate) fn start(arguments: &[&str]) -> Child {
    Command::new(env!("CARGO_BIN_EXE_clearway"))
        .arg("get")
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
}

pub(crate) fn get(arguments: &[&str]) -> Output {
    start(arguments).wait_with_output().unwrap()
}

pub(crate) fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Runs it and expects this exit code.
pub(crate) fn expect(code: i32, arguments: &[&str]) -> Output {
    let output = get(arguments);
    assert_eq!(
        output.status.code(),
        Some(code),
        "{arguments:?}: {}",
        said(&output)
    );
    output
}
