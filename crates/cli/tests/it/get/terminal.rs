//! Text from peers never reaches a terminal unescaped.

use std::fs;

use crate::get::command::{expect, get, said, start};
use crate::get::faulty_server::{Behaviour, FaultyServer, wait_for};
use crate::web::{Site, TempDir, pattern};

/// What no terminal obeys: text, and the ends of lines.
pub(super) fn assert_printable(text: &str) {
    let bad = text.chars().find(|&c| {
        c.is_control() && !matches!(c, '\n' | '\r')
            || matches!(c, '\u{200e}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
    });
    assert_eq!(bad, None, "{text:?}");
}

#[test]
fn close_reason_with_control_bytes_is_escaped_and_truncated() {
    let (faulty, server, url) = FaultyServer::serve(&pattern(2_000_000));
    let reason = [
        &b"\x1b]0;owned\x07\x1b[2J\nerror: forged\r\xc2\x9b31m\xe2\x80\xae\xff"[..],
        &[b'x'; 900],
    ]
    .concat();
    faulty.behave(Behaviour::Stall);
    let out = TempDir::new();
    let child = start(&["-k", "-o", &out.text("file"), "--json", &url]);
    wait_for(&out.join("file.part"), 500_000);
    server.endpoint().close(0x100, reason);
    let output = child.wait_with_output().unwrap();
    let text = said(&output);
    assert_eq!(output.status.code(), Some(10), "{text}");
    assert_printable(&text);
    assert_eq!(text.lines().count(), 1, "{text}");
    assert!(
        text.contains("\\u{1b}]0;owned\\u{7}\\u{1b}[2J\\nerror: forged"),
        "{text}"
    );
    assert!(
        text.contains("more characters)") && text.len() < 900,
        "{text}"
    );
    assert_printable(&String::from_utf8(output.stdout).unwrap());
}

#[test]
fn header_fields_with_control_bytes_are_escaped() {
    let (faulty, _server, url) = FaultyServer::serve(b"content");
    faulty.behave(Behaviour::TerminalEscapes);
    for option in ["-i", "-I"] {
        let output = expect(0, &["-k", option, &url]);
        let stdout = String::from_utf8(output.stdout.clone()).expect("valid UTF-8");
        assert_printable(&stdout);
        assert!(
            stdout.contains("x-title: a\\x9b31mb\\u{202e}c\\td\r\n"),
            "{stdout:?}"
        );
        assert!(stdout.contains("x-long: llll"), "{stdout:?}");
        assert!(stdout.len() < 20_000, "{}", stdout.len());
        assert_printable(&said(&output));
    }
    faulty.behave(Behaviour::Redirect);
    let text = said(&get(&["-k", &url]));
    assert_printable(&text);
    assert!(text.contains("https://h/\\u{202e}\\x9b"), "{text}");
    assert!(text.len() < 2_000, "{}", text.len());
}

#[test]
fn misleading_file_names_are_rejected_before_connecting() {
    let dir = TempDir::new();
    let site = Site::start(dir.path(), &["--hidden"]);
    let out = TempDir::new();
    let here = out.path().to_str().unwrap();
    for (last, why) in [
        ("", "ends with no file name"),
        ("%2e%2e", "a directory"),
        ("a%2fb", "contains a slash"),
        ("%00", "control characters"),
        ("a%1b%5b2J", "control characters"),
        ("a%0aerror:%20forged", "control characters"),
        ("a%c2%9b31m", "control characters"),
        ("gpj.%e2%80%aeexe", "control characters"),
        ("a%ff", "UTF-8"),
        (".bashrc", "starts with a dot"),
        ("%2ebashrc", "starts with a dot"),
        ("-rf", "starts with a dash"),
    ] {
        let url = format!("{}/{last}", site.url);
        let output = expect(2, &["-k", "-O", "--output-dir", here, &url]);
        let text = said(&output);
        assert_printable(&text);
        assert!(
            text.contains(why) && text.contains("-o NAME"),
            "{last}: {text}"
        );
        assert_eq!(text.lines().count(), 1);
        assert!(out.names().is_empty());
    }
    // With a name of one's own it is whatever the URL ends with.
    fs::write(dir.join(".bashrc"), "text").unwrap();
    let url = format!("{}/.bashrc", site.url);
    expect(0, &["-k", "-o", &out.text("name"), &url]);
    assert_eq!(fs::read(out.join("name")).unwrap(), b"text");
}
