//! Interrupted downloads, and resuming them.

use std::fs;

use rustix::process::Signal;

use crate::get::command::{expect, get, said, start};
use crate::get::faulty_server::{Behaviour, FaultyServer, InvalidPartial, wait_for};
use crate::web::{TempDir, pattern, send};

/// A download to `out` that resumes.
fn resuming<'a>(out: &'a TempDir, url: &'a str) -> [&'a str; 6] {
    let out = out.path().to_str().unwrap();
    ["-k", "-O", "-C", "--output-dir", out, url]
}

/// Leaves a partial file of some length.
fn break_off(faulty: &FaultyServer, out: &TempDir, url: &str) {
    faulty.behave(Behaviour::Stall);
    let mut child = start(&resuming(out, url));
    wait_for(&out.join("file.part"), 250_000);
    child.kill().unwrap();
    child.wait().unwrap();
}

#[test]
fn killed_download_is_resumed() {
    let content = pattern(4_000_000);
    let (faulty, _server, url) = FaultyServer::serve(&content);
    let out = TempDir::new();
    let arguments = resuming(&out, &url);
    faulty.behave(Behaviour::Stall);
    let mut child = start(&arguments);
    wait_for(&out.join("file.part"), 1_000_000);
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(out.names(), ["file.part", "file.part.json"]);
    let kept = fs::metadata(out.join("file.part")).unwrap().len();
    faulty.behave(Behaviour::Correct);
    let output = get(&arguments);
    assert!(output.status.success(), "{}", said(&output));
    assert!(fs::read(out.join("file")).unwrap() == content);
    assert_eq!(out.names(), ["file"]);
    let asked = faulty.asked.lock().unwrap().clone();
    let range = format!("bytes={}-", kept - 65_536);
    assert_eq!(asked, [("".into(), "".into()), (range, "\"1\"".to_owned())]);
    assert!(
        said(&output).contains(" bytes resumed, "),
        "{}",
        said(&output)
    );
    assert!(said(&output).contains("(inferred: the server sent no report)"));
}

#[test]
fn changed_content_is_never_appended_to_partial_file() {
    let content = pattern(2_000_000);
    let (faulty, _server, url) = FaultyServer::serve(&content);
    let out = TempDir::new();
    let arguments = resuming(&out, &url);
    for behaviour in [
        Behaviour::SameTagOtherContent,
        Behaviour::WrongRange,
        Behaviour::Changed,
    ] {
        faulty.behave(Behaviour::Reset);
        let broken = expect(10, &arguments);
        assert!(
            said(&broken).contains("resume with -C"),
            "{}",
            said(&broken)
        );
        assert_eq!(said(&broken).lines().count(), 1);
        faulty.behave(behaviour);
        let output = expect(0, &arguments);
        assert!(said(&output).contains("starting over"), "{}", said(&output));
        // Even if the difference shows only in the data received.
        assert!(!said(&output).contains("bytes resumed"), "{behaviour:?}");
        let got = fs::read(out.join("file")).unwrap();
        let expected = match behaviour {
            Behaviour::WrongRange => &content[..],
            _ => &[7; 2_000_000],
        };
        assert!(got == expected, "{behaviour:?}");
        assert_eq!(out.names(), ["file"]);
        fs::remove_file(out.join("file")).unwrap();
    }
}

#[test]
fn server_lost_mid_transfer_has_its_own_exit_code() {
    let (faulty, server, url) = FaultyServer::serve(&pattern(2_000_000));
    faulty.behave(Behaviour::Stall);
    let out = TempDir::new();
    let child = start(&["-k", "-o", &out.text("file"), &url]);
    wait_for(&out.join("file.part"), 500_000);
    server.endpoint().close(0x100, b"gone");
    let output = child.wait_with_output().unwrap();
    let text = said(&output);
    assert_eq!(output.status.code(), Some(10), "{text}");
    // Data in flight when the server went away may be lost.
    let kept = fs::metadata(out.join("file.part")).unwrap().len();
    assert!((500_000..=1_000_000).contains(&kept), "{text}");
    assert!(
        text.contains(&format!(" after {kept} bytes; {kept} bytes are kept in ")),
        "{text}"
    );
    assert_eq!(out.names(), ["file.part", "file.part.json"]);
}

#[test]
fn signal_ends_download_with_message_and_exit_code() {
    let (faulty, _server, url) = FaultyServer::serve(&pattern(2_000_000));
    faulty.behave(Behaviour::Stall);
    let out = TempDir::new();
    let child = start(&["-k", "-o", &out.text("file"), &url]);
    wait_for(&out.join("file.part"), 500_000);
    send(&child, Signal::INT);
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(130));
    let text = said(&output);
    assert!(text.starts_with("error: interrupted by SIGINT; "), "{text}");
    assert!(!out.join("file").exists());
}

/// Responses to a range that was not requested, or differs from the request: the result is the
/// whole correct file, or an error and the previous file.
#[test]
fn mismatched_206_is_an_error_or_restarts_the_download() {
    let content = pattern(1_000_000);
    let (faulty, _server, url) = FaultyServer::serve(&content);
    for partial in InvalidPartial::ALL {
        for before in ["nothing", "whole", "beginning"] {
            let out = TempDir::new();
            let arguments = resuming(&out, &url);
            let file = out.join("file");
            match before {
                "whole" => fs::write(&file, &content[..700_000]).unwrap(),
                "beginning" => {
                    fs::write(&file, "older").unwrap();
                    break_off(&faulty, &out, &url);
                }
                _ => {}
            }
            let kept = (fs::read(&file).ok(), fs::read(out.join("file.part")).ok());
            faulty.behave(Behaviour::InvalidPartial(partial));
            let output = get(&arguments);
            let text = said(&output);
            let case = format!("{partial:?} after {before}: {text}");
            let now = fs::read(&file).ok();
            match output.status.code() {
                Some(0) => assert!(now.as_deref() == Some(&content[..]), "{case}"),
                Some(5 | 10) => {
                    assert!(now == kept.0, "{case}");
                    assert_eq!(
                        text.lines().last().unwrap().matches("206").count(),
                        1,
                        "{case}"
                    );
                    let part = fs::read(out.join("file.part")).unwrap_or_default();
                    let kept = kept.1.unwrap_or_default();
                    assert!(
                        part.starts_with(&kept) && content.starts_with(&part),
                        "{case}"
                    );
                }
                _ => panic!("{case}"),
            }
            // A partial response is never taken for the whole file.
            if before == "nothing" {
                assert_ne!(output.status.code(), Some(0), "{case}");
            }
        }
    }
}

#[test]
fn unrequested_206_is_an_error() {
    let content = pattern(300_000);
    let (faulty, _server, url) = FaultyServer::serve(&content);
    for partial in InvalidPartial::ALL {
        faulty.behave(Behaviour::InvalidPartial(partial));
        let out = TempDir::new();
        let output = expect(5, &["-k", "-o", &out.text("file"), &url]);
        assert!(said(&output).contains("206"), "{}", said(&output));
        assert!(out.names().is_empty(), "{partial:?}");
        assert!(expect(5, &["-k", &url]).stdout.is_empty(), "{partial:?}");
    }
    // A requested range is accepted if it has the length it declares.
    let range = ["-k", "-H", "Range: bytes=250000-", &url];
    faulty.behave(Behaviour::InvalidPartial(InvalidPartial::UnknownTotal));
    assert!(expect(0, &range).stdout == content[250_000..]);
    for partial in [
        InvalidPartial::Short,
        InvalidPartial::Long,
        InvalidPartial::FromZero,
        InvalidPartial::NoRange,
    ] {
        faulty.behave(Behaviour::InvalidPartial(partial));
        let out = TempDir::new();
        let output = get(&[&["-o", &out.text("file")], &range[..]].concat());
        assert!(matches!(output.status.code(), Some(5 | 10)), "{partial:?}");
        assert!(out.names().is_empty(), "{partial:?}");
    }
}

/// A server that ignores ranges and breaks off at once must not cost the existing data.
#[test]
fn truncated_full_response_keeps_the_longer_partial_file() {
    let content = pattern(1_000_000);
    let (faulty, _server, url) = FaultyServer::serve(&content);
    let out = TempDir::new();
    let arguments = resuming(&out, &url);
    break_off(&faulty, &out, &url);
    let part = fs::read(out.join("file.part")).unwrap();
    faulty.behave(Behaviour::WholeUntil(1_000));
    expect(10, &arguments);
    assert!(fs::read(out.join("file.part")).unwrap() == part);
    faulty.behave(Behaviour::Correct);
    let output = expect(0, &arguments);
    assert!(said(&output).contains("bytes resumed"), "{}", said(&output));
    assert!(fs::read(out.join("file")).unwrap() == content);
}
