//! Several URLs, some of which fail.

use std::fs;
use std::net::UdpSocket;

use serde_json::Value;

use crate::get::command::{expect, said};
use crate::web::{Site, TempDir};

/// One at a time, so that each failure is known before the next begins.
const FIXED: [&str; 4] = ["-k", "-O", "-Z", "1"];

#[test]
fn unreachable_server_stops_only_its_own_urls() {
    let (site_dir, out) = (TempDir::new(), TempDir::new());
    let names = ["x.js", "n.txt"];
    for name in names {
        site_dir.old_file(name, name.as_bytes());
    }
    let site = Site::start(site_dir.path(), &[]);
    let [x, n] = names.map(|name| format!("{}/{name}", site.url));
    let here = out.path().to_str().unwrap();
    let mute = UdpSocket::bind("127.0.0.1:0").unwrap();
    let silent = format!("https://{}", mute.local_addr().unwrap());
    for (dead, code, why) in [
        ("https://no.such.invalid", 3, "cannot resolve"),
        (&silent, 4, "no answer within 200ms"),
    ] {
        let [first, second, third] = ["/1", "/2", "/3"].map(|path| format!("{dead}{path}"));
        let urls = [&first, &x, &second, &n, &third].map(String::as_str);
        let more = ["--connect-timeout", "200ms", "--json", "--output-dir", here];
        let output = expect(code, &[&FIXED[..], &more, &urls].concat());
        let text = said(&output);
        for name in names {
            assert_eq!(fs::read(out.join(name)).unwrap(), name.as_bytes(), "{text}");
            fs::remove_file(out.join(name)).unwrap();
        }
        assert!(
            text.contains("error: 1 of 5 failed, 2 not tried; first: "),
            "{text}"
        );
        for url in [&second, &third] {
            let line = text.lines().find(|line| line.contains(url.as_str()));
            let line = line.unwrap_or_else(|| panic!("{url}: {text}"));
            assert!(
                line.contains(": not tried: ") && line.contains(why),
                "{line}"
            );
        }
        let report: Value = serde_json::from_slice(&output.stdout).unwrap();
        let counts = ["done", "failed", "not_tried"].map(|name| report[name].as_u64().unwrap());
        assert_eq!(counts, [2, 1, 2]);
    }
}

#[test]
fn unwritable_file_stops_only_its_own_url() {
    let (site_dir, out) = (TempDir::new(), TempDir::new());
    site_dir.old_file("a", b"text");
    let site = Site::start(site_dir.path(), &[]);
    let url = format!("{}/a", site.url);
    let good = ["first", "last"].map(|name| out.text(name));
    let bad = out.text("none/file");
    let output = expect(
        8,
        &[
            "-k", "-Z", "1", "-o", &good[0], "-o", &bad, "-o", &good[1], &url, &url, &url,
        ],
    );
    let text = said(&output);
    assert!(
        text.contains("error: 1 of 3 failed; first: cannot write "),
        "{text}"
    );
    assert_eq!(out.names(), ["first", "last"]);
}

/// A full disk affects all transfers, as a closed standard output does.
#[test]
fn full_output_device_stops_all_urls() {
    let dir = TempDir::new();
    dir.old_file("a", b"text");
    let site = Site::start(dir.path(), &[]);
    let url = format!("{}/a", site.url);
    let full = fs::OpenOptions::new()
        .write(true)
        .open("/dev/full")
        .unwrap();
    let output = std::process::Command::new(env!("CARGO_BIN_EXE_clearway"))
        .args(["get", "-k", &url, &url, &url])
        .stdout(full)
        .output()
        .unwrap();
    let text = said(&output);
    assert_eq!(output.status.code(), Some(8), "{text}");
    assert!(
        text.contains("error: 1 of 3 failed, 2 not tried; first: "),
        "{text}"
    );
}
