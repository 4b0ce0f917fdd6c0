//! Runs the program itself, as server and as client, on loopback.

use std::{
    io::{BufRead, BufReader, Lines},
    path::Path,
    process::{Child, ChildStdout, Command, Output, Stdio},
};

use serde_json::Value;
use tempfile::TempDir;

/// The program under test.
pub(crate) fn program() -> Command {
    Command::new(env!("CARGO_BIN_EXE_peer-quinn"))
}

/// Fresh certificates, in a folder that goes with the value.
pub(crate) fn certificates() -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    let made = program()
        .arg("cert")
        .arg("--out")
        .arg(folder.path())
        .status();
    assert!(made.unwrap().success());
    folder
}

/// A client's run against any address.
pub(crate) fn client(address: &str, certificates: &Path, options: &[&str]) -> Output {
    program()
        .args([
            "client",
            address,
            "--server-name",
            "localhost",
            "--json",
            "--ca",
        ])
        .arg(certificates.join("ca.pem"))
        .args(options)
        .output()
        .unwrap()
}

/// What a failed client said; fails unless it failed with one line.
pub(crate) fn complaint(output: &Output) -> String {
    assert!(
        !output.status.success(),
        "the client was content: {output:?}"
    );
    let text = String::from_utf8(output.stderr.clone()).unwrap();
    assert_eq!(text.lines().count(), 1, "{text}");
    text
}

/// A running server.
pub(crate) struct Server {
    process: Child,
    lines: Lines<BufReader<ChildStdout>>,
    pub(crate) address: String,
    pub(crate) certificates: TempDir,
}

impl Server {
    pub(crate) fn start(options: &[&str]) -> Self {
        let certificates = certificates();
        let mut process = program()
            .args(["server", "--listen", "127.0.0.1:0", "--json", "--cert"])
            .arg(certificates.path().join("cert.pem"))
            .arg("--key")
            .arg(certificates.path().join("key.pem"))
            .args(options)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(process.stdout.take().unwrap()).lines();
        let ready = lines.next().unwrap().unwrap();
        let address = ready.strip_prefix("listening on ").unwrap().to_owned();
        Self {
            process,
            lines,
            address,
            certificates,
        }
    }

    /// A client's run against this server.
    pub(crate) fn client(&self, options: &[&str]) -> Output {
        client(&self.address, self.certificates.path(), options)
    }

    /// The report of a client that must succeed.
    pub(crate) fn run(&self, options: &[&str]) -> Value {
        let output = self.client(options);
        assert!(output.status.success(), "{output:?}");
        serde_json::from_slice(&output.stdout).unwrap()
    }

    /// What this server says of the next connection to close.
    pub(crate) fn closed(&mut self) -> Value {
        let line = self.lines.next().unwrap().unwrap();
        serde_json::from_str(&line).unwrap()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Both fail only for a server that has already ended.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
