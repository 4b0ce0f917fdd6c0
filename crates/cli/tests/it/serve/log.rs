//! The server's log.

use std::fs;
use std::process::Command;
use std::time::Duration;

use clearway::{ClientConfig, Endpoint};

use crate::get::command::{expect, said};
use crate::serve::client::{client, get};
use crate::web::{Site, TempDir};

/// Connects so often that the server refuses it in the handshake.
async fn fail_handshakes(site: &Site, count: usize) {
    let port: u16 = site.url.rsplit(':').next().unwrap().parse().unwrap();
    let config = ClientConfig::dangerous_accept_any_certificate().alpn(["nothing-known"]);
    let endpoint = Endpoint::client("127.0.0.1:0".parse().unwrap(), config).unwrap();
    for _ in 0..count {
        let connecting = endpoint.connect(([127, 0, 0, 1], port).into(), "localhost");
        connecting.await.unwrap_err();
    }
}

#[tokio::test]
async fn failed_handshakes_are_logged_and_floods_summarized() {
    let (dir, files) = (TempDir::new(), TempDir::new());
    let log = files.join("log");
    let site = Site::start_logging(&log, dir.path(), &[]);
    fail_handshakes(&site, 1).await;
    let read = || fs::read_to_string(&log).unwrap();
    let told = "warning: connection closed with an error remote=127.0.0.1:";
    for _ in 0..2_000 {
        if read().contains(told) {
            break;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    assert!(read().contains("handshake=\"failed\" error="), "{}", read());
    fail_handshakes(&site, 200).await;
    tokio::time::sleep(Duration::from_millis(1_100)).await;
    fail_handshakes(&site, 1).await;
    assert!(site.stop().success());
    let text = read();
    let lines = text.lines().filter(|line| line.starts_with(told)).count();
    // Ten in each second of a slow machine.
    assert!((10..100).contains(&lines), "{lines}: {text}");
    let suppressed: usize = text
        .split("suppressed=")
        .skip(1)
        .filter_map(|rest| rest.split_whitespace().next()?.parse::<usize>().ok())
        .sum();
    assert_eq!(lines + suppressed, 202, "{text}");
}

#[test]
fn log_verbosity_follows_the_options() {
    let dir = TempDir::new();
    dir.old_file("a", b"text");
    let site = Site::start(dir.path(), &[]);
    let url = format!("{}/a", site.url);
    let run = |options: &[&str], variable: Option<(&str, &str)>| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_clearway"));
        command.args(["get", "-s", "-k", &url]).args(options);
        command.env_remove("RUST_LOG").env_remove("CLEARWAY_LOG");
        command.envs(variable);
        command.output().unwrap()
    };
    assert_eq!(said(&run(&[], None)), "");
    let verbose = said(&run(&["-v"], None));
    assert!(verbose.contains("debug: clearway"), "{verbose}");
    for name in ["RUST_LOG", "CLEARWAY_LOG"] {
        let asked = said(&run(&[], Some((name, "clearway=debug"))));
        assert!(asked.contains("debug: connection closed"), "{asked}");
        let silent = said(&run(&["-vv"], Some((name, "off"))));
        assert_eq!(silent, "");
        let wrong = run(&[], Some((name, "clearway=nonsense")));
        assert_eq!(wrong.status.code(), Some(2));
        assert!(said(&wrong).contains(name), "{}", said(&wrong));
    }
    drop(expect(0, &["-v", "-s", "-k", &url]));
}

#[tokio::test]
async fn long_targets_in_the_access_log_are_truncated() {
    let dir = TempDir::new();
    let site = Site::start(dir.path(), &[]);
    let client = client();
    let long = format!("{}/{}", site.url, "l".repeat(20_000));
    assert_eq!(get(&client, &long, &[]).await.0, 404);
    let target = site.logged()["target"].as_str().unwrap().to_owned();
    assert!(
        target.len() < 1_100 && target.ends_with("more characters)"),
        "{target}"
    );
}
