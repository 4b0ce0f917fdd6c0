//! Running the binary as a server and as a client.
#![allow(
    dead_code,
    unreachable_pub,
    clippy::unwrap_used,
    missing_docs,
    reason = "each test binary uses a part; a test that cannot go on has failed"
)]

#[cfg(target_os = "linux")]
pub mod namespace;
pub mod tap;

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, ChildStdout, Command, Output, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

/// Runs `clearway` with these arguments.
pub fn clearway(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_clearway"))
        .args(arguments)
        .output()
        .unwrap()
}

/// The only JSON object on stdout.
pub fn json(output: &Output) -> Value {
    let stdout = String::from_utf8(output.stdout.clone()).unwrap();
    assert_eq!(stdout.lines().count(), 1, "{stdout}{}", stderr(output));
    serde_json::from_str(&stdout).unwrap()
}

pub fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// A `clearway raw serve` that ends with the test.
pub struct Server {
    child: Child,
    stdout: BufReader<ChildStdout>,
    pub address: String,
}

impl Server {
    pub fn start(options: &[&str]) -> Self {
        let mut child = Command::new(env!("CARGO_BIN_EXE_clearway"))
            .args(["raw", "serve", "--listen", "127.0.0.1:0", "--json"])
            .args(options)
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut stdout = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        stdout.read_line(&mut line).unwrap();
        let first: Value = serde_json::from_str(&line)
            .unwrap_or_else(|error| panic!("the server did not start: {line}: {error}"));
        assert_eq!(first["event"], "listening");
        let address = first["address"].as_str().unwrap().to_owned();
        Self {
            child,
            stdout,
            address,
        }
    }

    /// Downloads from it, without verifying its certificate.
    pub fn get(&self, options: &[&str]) -> Value {
        let fixed = ["raw", "get", &self.address, "--insecure", "--json"];
        let output = clearway(&[&fixed, options].concat());
        assert!(output.status.success(), "{}", stderr(&output));
        json(&output)
    }

    /// Stops it and returns its totals.
    pub fn stop(self) -> Value {
        self.stop_with_reports().1
    }

    /// Stops it and returns its report of each connection, and its totals.
    pub fn stop_with_reports(mut self) -> (Vec<Value>, Value) {
        let pid = Pid::from_raw(i32::try_from(self.child.id()).unwrap()).unwrap();
        kill_process(pid, Signal::TERM).unwrap();
        let mut rest = String::new();
        self.stdout.read_to_string(&mut rest).unwrap();
        assert!(self.child.wait().unwrap().success());
        let mut objects: Vec<Value> = rest
            .lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect();
        let totals = objects.pop().unwrap();
        assert_eq!(totals["event"], "served");
        assert!(objects.iter().all(|object| object["event"] == "closed"));
        (objects, totals)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Ended already unless the test failed.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
