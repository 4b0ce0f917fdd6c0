//! Logs that nobody reads.

use std::io::{BufRead as _, BufReader, Read as _};
use std::process::{Command, Stdio};
use std::time::Duration;

use clearway::{ClientConfig, Endpoint};
use rustix::process::Signal;
use serde_json::Value;

use crate::serve::client::{client, get};
use crate::web::{TempDir, send};

/// Far more lines than a pipe and the queue hold.
const REQUESTS: usize = 30_000;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_are_answered_while_the_access_log_is_not_read() {
    let dir = TempDir::new();
    dir.old_file("a", b"x");
    let mut child = Command::new(env!("CARGO_BIN_EXE_clearway"))
        .args(["serve", "--json", "--listen", "127.0.0.1:0"])
        .arg(dir.path())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdout = BufReader::new(child.stdout.take().unwrap());
    let mut first = String::new();
    stdout.read_line(&mut first).unwrap();
    let first: Value = serde_json::from_str(&first).unwrap();
    let address = first["address"].as_str().unwrap();
    let port: u16 = address.rsplit(':').next().unwrap().parse().unwrap();
    let url = format!("https://localhost:{port}/a?{}", "q".repeat(200));
    let client = client();
    let mut asked = 0;
    while asked < REQUESTS {
        let batch: Vec<_> = (0..50)
            .map(|_| {
                let (client, url) = (client.clone(), url.clone());
                tokio::spawn(async move { get(&client, &url, &[]).await.0 })
            })
            .collect();
        for one in batch {
            let status = tokio::time::timeout(Duration::from_secs(60), one).await;
            assert_eq!(status.expect("the server stands still").unwrap(), 200);
            asked += 1;
        }
    }
    // Warnings go to another pipe, and are written by the threads of the event loop.
    let config = ClientConfig::dangerous_accept_any_certificate().alpn(["nothing-known"]);
    let endpoint = Endpoint::client("127.0.0.1:0".parse().unwrap(), config).unwrap();
    let there = ([127, 0, 0, 1], port).into();
    endpoint.connect(there, "localhost").await.unwrap_err();
    assert_eq!(get(&client, &url, &[]).await.0, 200);
    send(&child, Signal::TERM);
    // What was lost is counted, once somebody reads.
    let reading = std::thread::spawn(move || {
        let mut rest = String::new();
        stdout.read_to_string(&mut rest).unwrap();
        rest
    });
    let rest = reading.join().unwrap();
    assert!(child.wait().unwrap().success());
    let (mut written, mut dropped) = (0, 0);
    for line in rest.lines() {
        let line: Value = serde_json::from_str(line).expect("whole lines");
        match line["event"].as_str().unwrap() {
            "request" => written += 1,
            "log_lines_dropped" => dropped += line["count"].as_u64().unwrap(),
            other => panic!("{other}"),
        }
    }
    assert!(
        dropped > 0 && written > 0,
        "{written} written, {dropped} dropped"
    );
    assert_eq!(written + dropped, REQUESTS as u64 + 1);
}
