//! How `get` ends: promptly, and with what people need to go on.

use std::fs;
use std::net::UdpSocket;
use std::process::Command;

use rustix::process::Signal;

use crate::get::command::{expect, said, start};
use crate::get::faulty_server::{Behaviour, FaultyServer, wait_for};
use crate::relay::Running;
use crate::web::{Site, TempDir, pattern, send};

#[test]
fn redirect_is_an_error_that_names_the_location() {
    let (site_dir, out) = (TempDir::new(), TempDir::new());
    fs::create_dir(site_dir.join("sub")).unwrap();
    let site = Site::start(site_dir.path(), &[]);
    let url = format!("{}/sub", site.url);
    let file = out.text("file");
    fs::write(&file, "before").unwrap();
    let output = expect(9, &["-k", "-o", &file, &url]);
    let text = said(&output);
    let why = format!("error: {url}: 301 Moved Permanently: redirect to \"/sub/\" not followed");
    assert!(text.starts_with(&why), "{text}");
    assert_eq!(text.lines().count(), 1, "{text}");
    assert_eq!(fs::read(&file).unwrap(), b"before");
    assert_eq!(out.names(), ["file"]);
    // Nor does it look like content on standard output.
    assert!(expect(9, &["-k", &url]).stdout.is_empty());
    // The headers are what -I asks for, and --no-fail asks for what there is.
    assert!(
        expect(0, &["-k", "-I", &url])
            .stdout
            .starts_with(b"HTTP/3 301")
    );
    let body = expect(0, &["-k", "--no-fail", &url]).stdout;
    assert_eq!(body, b"301 Moved Permanently\n");
    expect(0, &["-k", &format!("{url}/")]);
}

#[test]
fn response_headers_are_printed_whatever_the_status() {
    let dir = TempDir::new();
    fs::create_dir(dir.join("sub")).unwrap();
    let site = Site::start(dir.path(), &[]);
    for (path, status) in [
        ("missing", "404 Not Found"),
        ("sub", "301 Moved Permanently"),
    ] {
        let url = format!("{}/{path}", site.url);
        let output = expect(9, &["-k", "-i", &url]);
        let stdout = String::from_utf8(output.stdout.clone()).unwrap();
        assert!(
            stdout.starts_with(&format!("HTTP/3 {status}\r\n")),
            "{stdout}"
        );
        assert!(stdout.ends_with("\r\n\r\n"), "no body: {stdout}");
        assert!(said(&output).contains(status));
    }
    let missing = format!("{}/missing", site.url);
    let head = expect(9, &["-k", "-I", &missing]).stdout;
    assert!(head.starts_with(b"HTTP/3 404"), "{head:?}");
}

/// Downloads until the time is up or a signal comes, and returns what is said.
fn stop_half_way(out: &TempDir, url: &str, by_signal: bool) -> String {
    let file = out.text("file");
    let limit = if by_signal { "1000s" } else { "3s" };
    let child = start(&["-k", "-o", &file, url, "-m", limit]);
    if by_signal {
        wait_for(&out.join("file.part"), 500_000);
        send(&child, Signal::INT);
    }
    let output = child.wait_with_output().unwrap();
    let expected = if by_signal { 130 } else { 6 };
    assert_eq!(output.status.code(), Some(expected), "{}", said(&output));
    said(&output)
}

#[test]
fn timeout_and_signal_say_what_is_kept() {
    let (faulty, _server, url) = FaultyServer::serve(&pattern(2_000_000));
    for by_signal in [false, true] {
        let out = TempDir::new();
        faulty.behave(Behaviour::Stall);
        let text = stop_half_way(&out, &url, by_signal);
        let part = out.text("file.part");
        let kept = format!("; partial content is kept in {part}, resume with -C\n");
        assert!(text.ends_with(&kept), "{text}");
        assert_eq!(text.lines().count(), 1);
        assert_eq!(out.names(), ["file.part", "file.part.json"]);
        // What cannot be resumed is not kept, and not spoken of.
        let out = TempDir::new();
        faulty.behave(Behaviour::Untagged);
        let text = stop_half_way(&out, &url, by_signal);
        assert!(!text.contains("kept"), "{text}");
        assert!(out.names().is_empty(), "{:?}", out.names());
    }
}

#[test]
fn upload_keeps_unreserved_characters_of_the_file_name() {
    let (site_dir, here) = (TempDir::new(), TempDir::new());
    let site = Site::start(site_dir.path(), &["--writable"]);
    for (name, target) in [
        ("a-b_c.d~e.tar.gz", "/a-b_c.d~e.tar.gz"),
        ("with space", "/with%20space"),
        ("50%?#é", "/50%25%3F%23%C3%A9"),
    ] {
        here.old_file(name, b"text");
        expect(
            0,
            &["-k", "-T", &here.text(name), &format!("{}/", site.url)],
        );
        assert_eq!(site.logged()["target"], target);
        assert_eq!(fs::read(site_dir.join(name)).unwrap(), b"text");
    }
}

#[test]
fn refused_upload_names_the_option_of_the_server() {
    let dir = TempDir::new();
    dir.old_file("a", b"text");
    let site = Site::start(dir.path(), &[]);
    let (file, url) = (dir.text("a"), format!("{}/b", site.url));
    let text = said(&expect(9, &["-k", "-T", &file, &url]));
    assert!(text.contains("405 Method Not Allowed"), "{text}");
    assert!(text.contains("--writable"), "{text}");
    let body = expect(0, &["-k", "-T", &file, &url, "--no-fail"]).stdout;
    let body = String::from_utf8(body).unwrap();
    assert!(body.contains("--writable"), "{body}");
    // Which is no help for other methods, or on a server that has it.
    let text = said(&expect(9, &["-k", "-X", "DELETE", &url]));
    assert!(!text.contains("--writable"), "{text}");
    let writable = Site::start(dir.path(), &["--writable"]);
    let url = format!("{}/b", writable.url);
    let body = expect(0, &["-k", "-X", "DELETE", &url, "--no-fail"]).stdout;
    assert!(!String::from_utf8(body).unwrap().contains("--writable"));
}

#[test]
fn untrusted_certificate_names_the_options_that_trust_it() {
    let dir = TempDir::new();
    let site = Site::start(dir.path(), &[]);
    let url = format!("{}/", site.url);
    let text = said(&expect(7, &[&url]));
    for option in ["--cacert", "--fingerprint", "-k"] {
        assert!(text.contains(option), "{option}: {text}");
    }
    assert_eq!(text.lines().count(), 1, "{text}");
    // Somebody who uses one of them knows it.
    let other = format!("{:0>64}", 1);
    let text = said(&expect(7, &["--fingerprint", &other, &url]));
    assert!(!text.contains("--cacert"), "{text}");
}

#[test]
fn times_without_a_unit_are_seconds() {
    let mute = UdpSocket::bind("127.0.0.1:0").unwrap();
    let url = format!("https://{}/", mute.local_addr().unwrap());
    for (options, code, why) in [
        (["--connect-timeout", "0.2"], 4, "no answer within 200ms"),
        (["--connect-timeout", "1"], 4, "no answer within 1s"),
        (["-m", "0.3"], 6, "timed out after 300ms"),
        (["-m", "1"], 6, "timed out after 1s"),
        (["-m", "-1"], 2, "'-1'"),
        (["-m", "nan"], 2, "nan"),
        (["-m", "0"], 2, "greater than zero"),
        (["--connect-timeout", "0"], 2, "greater than zero"),
    ] {
        let arguments = [&["-k", &url][..], &options].concat();
        let text = said(&expect(code, &arguments));
        assert!(text.contains(why), "{options:?}: {text}");
    }
}

/// Downloads, and returns whether `get` exits before another command, which begins when the file is
/// complete and takes half a second.
fn exits_first(url: &str) -> bool {
    let out = TempDir::new();
    let mut child = start(&["-k", "-s", "-o", &out.text("file"), url]);
    wait_for(&out.join("file"), 4);
    let mut other = Command::new("sleep").arg("0.5").spawn().unwrap();
    assert!(child.wait().unwrap().success());
    let first = other.try_wait().unwrap().is_none();
    other.kill().unwrap();
    other.wait().unwrap();
    first
}

/// On this path three PTOs (RFC 9000 §10.2) are more than a second. No machine is so busy that
/// `get` loses every time.
#[test]
fn download_over_a_slow_path_does_not_stay_for_the_closing_state() {
    let dir = TempDir::new();
    dir.old_file("a", b"text");
    let site = Site::start(dir.path(), &[]);
    let relay = Running::start(site.address(), &["--delay", "250ms"]);
    let url = format!("https://{}/a", relay.listen);
    assert!((0..20).any(|_| exits_first(&url)));
}
