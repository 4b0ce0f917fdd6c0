//! Destinations of downloads.

use std::fs;
use std::io::Write as _;
use std::path::Path;

use serde_json::Value;

use crate::get::command::{expect, said, start};
use crate::web::{Site, TempDir, pattern};

#[test]
fn content_goes_to_the_chosen_output() {
    let (site_dir, out) = (TempDir::new(), TempDir::new());
    let content = pattern(2_000_000);
    site_dir.old_file("a b.bin", &content);
    site_dir.old_file("c.txt", b"text");
    let site = Site::start(site_dir.path(), &[]);
    let [large, small] = ["a%20b.bin", "c.txt"].map(|name| format!("{}/{name}", site.url));
    let here = out.path().to_str().unwrap();

    let output = expect(0, &[&large, "-k"]);
    assert!(output.stdout == content);
    let text = said(&output);
    assert!(text.starts_with("2000000 bytes received, "), "{text}");
    assert!(text.contains(" packets lost\nlimited by: "), "{text}");
    assert!(text.ends_with("(reported by the server)\n"), "{text}");

    // Without the scheme; both, one after the other.
    let short = small.strip_prefix("https://").unwrap();
    let output = expect(0, &[short, &small, "-k", "-s"]);
    assert_eq!(
        (&output.stdout[..], said(&output)),
        (&b"texttext"[..], String::new())
    );

    expect(0, &[&large, &small, "-k", "-O", "--output-dir", here]);
    assert!(fs::read(out.join("a b.bin")).unwrap() == content);
    assert_eq!(fs::read(out.join("c.txt")).unwrap(), b"text");
    assert_eq!(out.names(), ["a b.bin", "c.txt"]);

    let file = out.text("named");
    let output = expect(0, &[&small, "-k", "-o", &file, "--json"]);
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&report["bytes"], &report["done"]), (&4.into(), &1.into()));
    assert_eq!(report["breakdown_by"], "server");
    assert!(report["breakdown"]["application"].is_number(), "{report}");
    assert!(report["packets_lost"].is_number());
    assert_eq!(fs::read(&file).unwrap(), b"text");

    expect(0, &[&small, "-k", "-o", "/dev/null"]);
    assert!(!Path::new("/dev/null").is_file());
}

#[test]
fn include_option_prints_response_headers() {
    let dir = TempDir::new();
    dir.old_file("c.txt", b"text");
    let site = Site::start(dir.path(), &[]);
    let url = format!("{}/c.txt", site.url);
    let head = expect(0, &["-I", "-k", &url]).stdout;
    let head = String::from_utf8(head).unwrap();
    assert!(head.starts_with("HTTP/3 200 OK\r\n"), "{head}");
    assert!(head.contains("content-length: 4\r\n"), "{head}");
    assert!(head.ends_with("\r\n\r\n"), "{head}");
    let both = expect(0, &["-i", "-k", &url]).stdout;
    assert!(String::from_utf8(both).unwrap().ends_with("\r\n\r\ntext"));
    let none = expect(
        0,
        &[
            "-k",
            &url,
            "-H",
            "If-Modified-Since: Sun, 09 Sep 2001 01:46:40 GMT",
        ],
    );
    assert!(none.stdout.is_empty());
    let file = dir.text("head");
    expect(0, &["-I", "-k", &url, "-o", &file]);
    assert!(fs::read(file).unwrap().starts_with(b"HTTP/3 200"));
}

#[test]
fn thousand_files_are_fetched_over_one_connection() {
    let (site_dir, out) = (TempDir::new(), TempDir::new());
    let mut list = String::new();
    let site = Site::start(site_dir.path(), &[]);
    for n in 0..1_000 {
        fs::write(site_dir.join(&n.to_string()), pattern(n)).unwrap();
        list.push_str(&format!("{}/{n}\n", site.url));
    }
    let here = out.path().to_str().unwrap();
    let mut child = start(&["--urls", "-", "-k", "-O", "--output-dir", here, "--json"]);
    child
        .stdin
        .take()
        .unwrap()
        .write_all(list.as_bytes())
        .unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", said(&output));
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(
        (&report["done"], &report["failed"]),
        (&1000.into(), &0.into())
    );
    assert_eq!(report["bytes"], 999 * 1000 / 2);
    for n in 0..1_000 {
        assert!(
            fs::read(out.join(&n.to_string())).unwrap() == pattern(n),
            "{n}"
        );
    }
    assert_eq!(out.names().len(), 1_000);
    let first = site.logged()["remote"].clone();
    for _ in 1..1_000 {
        assert_eq!(site.logged()["remote"], first, "one connection");
    }
}
