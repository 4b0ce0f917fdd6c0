//! `clearway raw` as a user runs it.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::fs;
use std::io::Read as _;
use std::net::UdpSocket;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use crate::common::{Server, clearway, stderr};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

#[test]
fn transfers_complete_with_every_byte_checked() {
    let server = Server::start(&[]);
    let one = server.get(&["--bytes", "20MB"]);
    assert_eq!(one["peer"], "clearway");
    assert_eq!(one["bytes"], 20_000_000);
    assert_eq!(one["requests"], 1);
    assert_eq!(one["resumed"], false);
    assert!(one["zero_rtt_accepted"].is_null());
    assert_eq!(one["key_updates"], 0);
    assert!(one["gbps"].as_f64().unwrap() > 0.0);
    let many = server.get(&["--bytes", "3kB", "--streams", "300", "--parallel", "8"]);
    assert_eq!(many["bytes"], 900_000);
    assert_eq!(many["requests"], 300);
    let none = server.get(&["--bytes", "0"]);
    assert_eq!(none["bytes"], 0);
    let totals = server.stop();
    assert_eq!(totals["connections"], 3);
    assert_eq!(totals["requests"], 302);
    assert_eq!(totals["failed"], 0);
    assert_eq!(totals["sent"], 20_900_000);
}

#[test]
fn server_counts_uploaded_bytes() {
    let server = Server::start(&["--controller", "newreno"]);
    let report = server.get(&["--upload", "5MB", "--streams", "2", "--bytes", "1"]);
    assert_eq!(report["uploaded"], 10_000_000);
    assert_eq!(report["bytes"], 2);
    assert_eq!(server.stop()["received"], 10_000_000);
}

#[test]
fn key_update_during_transfer_succeeds() {
    let server = Server::start(&[]);
    let report = server.get(&["--bytes", "20MB", "--key-update"]);
    assert_eq!(report["bytes"], 20_000_000);
    assert!(report["key_updates"].as_u64().unwrap() >= 1);
    let (closed, _) = server.stop_with_reports();
    assert!(closed[0]["peer_key_updates"].as_u64().unwrap() >= 1);
    assert_eq!(closed[0]["migrated"], false);
}

#[test]
fn client_rebind_during_transfer_succeeds() {
    let server = Server::start(&[]);
    let report = server.get(&["--bytes", "20MB", "--rebind"]);
    assert_eq!(report["bytes"], 20_000_000);
    assert_eq!(report["rebinds"], 1);
    let (closed, totals) = server.stop_with_reports();
    assert_eq!(closed[0]["migrated"], true);
    assert_eq!(closed[0]["key_updates"], 0);
    assert_eq!(totals["connections"], 1);
}

#[test]
fn ticket_resumes_and_sends_early_data_when_allowed() {
    let server = Server::start(&["--zero-rtt"]);
    let resumed = server.get(&["--resume"]);
    assert_eq!(resumed["resumed"], true);
    assert!(resumed["zero_rtt_accepted"].is_null());
    let early = server.get(&["--zero-rtt", "--bytes", "1MB"]);
    assert_eq!(early["resumed"], true);
    assert_eq!(early["zero_rtt_accepted"], true);
    assert_eq!(early["bytes"], 2_000_000, "over both connections");
    let (closed, _) = server.stop_with_reports();
    let taken: Vec<_> = closed.iter().map(|c| &c["zero_rtt_accepted"]).collect();
    assert_eq!(
        taken,
        [&Value::Null, &Value::Null, &Value::Null, &true.into()]
    );
    let resumed: Vec<_> = closed.iter().map(|c| &c["resumed"]).collect();
    assert_eq!(resumed, [false, true, false, true]);
    assert!(closed.iter().all(|c| c["retried"] == false), "{closed:?}");
    let cause = closed[3]["cause"].as_str().unwrap();
    assert!(cause.contains("code 0"), "{cause}");
}

#[test]
fn server_rejecting_early_data_still_resumes() {
    let server = Server::start(&[]);
    let report = server.get(&["--zero-rtt"]);
    assert_eq!(report["resumed"], true);
    assert_eq!(report["zero_rtt_accepted"], false);
    assert_eq!(report["bytes"], 2_000_000, "over both connections");
}

#[test]
fn server_that_always_sends_retry_completes_requests() {
    let server = Server::start(&["--retry"]);
    assert_eq!(server.get(&[])["bytes"], 1_000_000);
    // A token from the first connection spares the second its Retry.
    assert_eq!(server.get(&["--resume"])["resumed"], true);
    let (closed, _) = server.stop_with_reports();
    let retried: Vec<_> = closed.iter().map(|c| &c["retried"]).collect();
    assert_eq!(retried, [true, true, false]);
}

#[test]
fn failed_run_reports_the_cause_as_json() {
    let mute = UdpSocket::bind("127.0.0.1:0").unwrap();
    let silent = mute.local_addr().unwrap().to_string();
    let get = ["raw", "get", &silent, "--insecure", "--json"];
    let output = clearway(&[&get[..], &["--timeout", "100ms"]].concat());
    assert_eq!(output.status.code(), Some(6));
    let report = crate::common::json(&output);
    assert_eq!(report["completed"], false);
    let error = format!("{silent}: timed out after 100ms");
    assert_eq!(report["error"], error.as_str());
}

#[test]
fn signal_ends_run_with_message_and_exit_code_130() {
    let mute = UdpSocket::bind("127.0.0.1:0").unwrap();
    let silent = mute.local_addr().unwrap().to_string();
    let mut child = Command::new(env!("CARGO_BIN_EXE_clearway"))
        .args(["raw", "get", &silent, "--insecure"])
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // The first datagram comes after the handlers are in place.
    mute.recv(&mut [0; 2048]).unwrap();
    let pid = Pid::from_raw(i32::try_from(child.id()).unwrap()).unwrap();
    kill_process(pid, Signal::INT).unwrap();
    let status = child.wait().unwrap();
    let mut said = String::new();
    child
        .stderr
        .take()
        .unwrap()
        .read_to_string(&mut said)
        .unwrap();
    assert_eq!(status.code(), Some(130), "{said}");
    assert!(said.contains("error: interrupted by SIGINT"), "{said}");
}

#[test]
fn bulk_download_stops_at_its_duration() {
    let server = Server::start(&[]);
    let report = server.get(&["--seconds", "0.2"]);
    assert!(report["bytes"].as_u64().unwrap() > 0);
    assert_eq!(report["requests"], 0);
    assert!(report["seconds"].as_f64().unwrap() >= 0.2);
    assert_eq!(server.stop()["failed"], 0);
}

#[test]
fn several_shards_serve_as_one_server() {
    let server = Server::start(&["--shards", "2"]);
    for _ in 0..4 {
        assert_eq!(server.get(&[])["bytes"], 1_000_000);
    }
    assert_eq!(server.stop()["connections"], 4);
}

/// Writes a file for one test and answers its path.
fn file(name: &str, content: &str) -> String {
    let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
    fs::write(&path, content).unwrap();
    path.to_str().unwrap().to_owned()
}

#[test]
fn certificate_chain_and_name_are_verified() {
    let identity = clearway::DevelopmentIdentity::generate(["server.test"]).unwrap();
    let cert = file("cert.pem", identity.certificate_pem());
    let key = file("key.pem", identity.key_pem());
    let other = clearway::DevelopmentIdentity::generate(["server.test"]).unwrap();
    let other = file("other.pem", other.certificate_pem());
    let server = Server::start(&["--cert", &cert, "--key", &key]);
    let get = |ca: &str, name: &str| {
        let trust = ["--ca", ca, "--server-name", name, "--bytes", "1kB"];
        clearway(&[&["raw", "get", &server.address], &trust[..]].concat())
    };
    let right = get(&cert, "server.test");
    assert!(right.status.success(), "{}", stderr(&right));
    for wrong in [get(&cert, "else.test"), get(&other, "server.test")] {
        assert_eq!(wrong.status.code(), Some(4), "{}", stderr(&wrong));
        assert!(
            stderr(&wrong).contains("cannot connect to"),
            "{}",
            stderr(&wrong)
        );
    }
}

#[test]
fn each_failure_has_its_own_exit_code() {
    let mute = UdpSocket::bind("127.0.0.1:0").unwrap();
    let silent = mute.local_addr().unwrap().to_string();
    let garbage = file("garbage.pem", "no certificate");
    let insecure = ["--insecure", "--timeout", "200ms"];
    let cases: [(Vec<&str>, i32, &str); 10] = [
        (vec!["get", &silent], 2, "--ca"),
        (vec!["get", "localhost", "--insecure"], 2, "missing port"),
        (
            vec!["get", &silent, "--insecure", "--bytes", "lots"],
            2,
            "invalid size",
        ),
        (
            vec!["get", &silent, "--insecure", "--seconds", "0"],
            2,
            "expected seconds",
        ),
        (
            vec![
                "get",
                &silent,
                "--insecure",
                "--seconds",
                "1",
                "--bytes",
                "1",
            ],
            2,
            "cannot be used with",
        ),
        (
            vec!["get", &silent, "--ca", "/nowhere.pem"],
            2,
            "cannot read /nowhere.pem",
        ),
        (vec!["get", &silent, "--ca", &garbage], 2, "garbage.pem"),
        (
            vec!["serve", "--listen", "127.0.0.1:0", "--cert", &garbage],
            2,
            "--key",
        ),
        (
            [&["get", &silent], &insecure[..]].concat(),
            6,
            "timed out after 200ms",
        ),
        (vec!["serve", "--listen", &silent], 3, "cannot listen on"),
    ];
    for (arguments, code, message) in cases {
        let output = clearway(&[&["raw"], &arguments[..]].concat());
        let text = stderr(&output);
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {text}");
        assert!(text.contains(message), "{arguments:?}: {text}");
        assert!(output.stdout.is_empty(), "{arguments:?}");
    }
}

#[test]
fn unresolvable_host_is_named_in_the_error() {
    let output = clearway(&["raw", "get", "no.such.host.invalid:4433", "--insecure"]);
    let text = stderr(&output);
    assert_eq!(output.status.code(), Some(3), "{text}");
    assert!(
        text.contains("cannot resolve \"no.such.host.invalid:4433\""),
        "{text}"
    );
}
