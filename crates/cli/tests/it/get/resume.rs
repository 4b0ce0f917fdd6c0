//! Downloads that break off, and going on with them.

use std::fs;

use rustix::process::Signal;

use crate::get::command::{expect, get, said, start};
use crate::get::moody::{Mood, Moody, Partial, wait_for};
use crate::web::{TempDir, pattern, send};

/// A download to `out` that goes on where one broke off.
fn resuming<'a>(out: &'a TempDir, url: &'a str) -> [&'a str; 6] {
    let out = out.path().to_str().unwrap();
    ["-k", "-O", "-C", "--output-dir", out, url]
}

/// Leaves a beginning of some length.
fn break_off(moody: &Moody, out: &TempDir, url: &str) {
    moody.is(Mood::Stall);
    let mut child = start(&resuming(out, url));
    wait_for(&out.join("file.part"), 250_000);
    child.kill().unwrap();
    child.wait().unwrap();
}

#[test]
fn a_killed_download_is_gone_on_with() {
    let content = pattern(4_000_000);
    let (moody, _server, url) = Moody::serve(&content);
    let out = TempDir::new();
    let arguments = resuming(&out, &url);
    moody.is(Mood::Stall);
    let mut child = start(&arguments);
    wait_for(&out.join("file.part"), 1_000_000);
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(out.names(), ["file.part", "file.part.json"]);
    let kept = fs::metadata(out.join("file.part")).unwrap().len();
    moody.is(Mood::Proper);
    let output = get(&arguments);
    assert!(output.status.success(), "{}", said(&output));
    assert!(fs::read(out.join("file")).unwrap() == content);
    assert_eq!(out.names(), ["file"]);
    let asked = moody.asked.lock().unwrap().clone();
    let range = format!("bytes={}-", kept - 65_536);
    assert_eq!(asked, [("".into(), "".into()), (range, "\"1\"".to_owned())]);
    assert!(
        said(&output).contains(" kept from before, "),
        "{}",
        said(&output)
    );
    assert!(said(&output).contains("(inferred: the server did not tell)"));
}

#[test]
fn what_is_not_the_same_content_is_never_joined() {
    let content = pattern(2_000_000);
    let (moody, _server, url) = Moody::serve(&content);
    let out = TempDir::new();
    let arguments = resuming(&out, &url);
    for mood in [Mood::Liar, Mood::Elsewhere, Mood::Changed] {
        moody.is(Mood::Reset);
        let broken = expect(10, &arguments);
        assert!(said(&broken).contains("-C goes on"), "{}", said(&broken));
        assert_eq!(said(&broken).lines().count(), 1);
        moody.is(mood);
        let output = expect(0, &arguments);
        assert!(
            said(&output).contains("from the beginning"),
            "{}",
            said(&output)
        );
        // Even where the difference shows in what came only.
        assert!(!said(&output).contains("kept from before"), "{mood:?}");
        let got = fs::read(out.join("file")).unwrap();
        let expected = match mood {
            Mood::Elsewhere => &content[..],
            _ => &[7; 2_000_000],
        };
        assert!(got == expected, "{mood:?}");
        assert_eq!(out.names(), ["file"]);
        fs::remove_file(out.join("file")).unwrap();
    }
}

#[test]
fn a_server_that_goes_away_half_way_is_an_error_of_its_own() {
    let (moody, server, url) = Moody::serve(&pattern(2_000_000));
    moody.is(Mood::Stall);
    let out = TempDir::new();
    let child = start(&["-k", "-o", &out.text("file"), &url]);
    wait_for(&out.join("file.part"), 500_000);
    server.endpoint().close(0x100, b"gone");
    let output = child.wait_with_output().unwrap();
    let text = said(&output);
    assert_eq!(output.status.code(), Some(10), "{text}");
    // What was on its way when the server went may be lost with it.
    let kept = fs::metadata(out.join("file.part")).unwrap().len();
    assert!((500_000..=1_000_000).contains(&kept), "{text}");
    assert!(
        text.contains(&format!(" after {kept} bytes; {kept} are in ")),
        "{text}"
    );
    assert_eq!(out.names(), ["file.part", "file.part.json"]);
}

#[test]
fn a_signal_ends_it_with_a_word() {
    let (moody, _server, url) = Moody::serve(&pattern(2_000_000));
    moody.is(Mood::Stall);
    let out = TempDir::new();
    let child = start(&["-k", "-o", &out.text("file"), &url]);
    wait_for(&out.join("file.part"), 500_000);
    send(&child, Signal::INT);
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(130));
    assert_eq!(said(&output), "error: interrupted by SIGINT\n");
    assert!(!out.join("file").exists());
}

/// What a server sends of a part that nobody asked for, or not as asked for: the
/// whole right file, or an error and what was there before.
#[test]
fn partial_content_that_does_not_match_is_an_error_or_fetched_anew() {
    let content = pattern(1_000_000);
    let (moody, _server, url) = Moody::serve(&content);
    for partial in Partial::ALL {
        for before in ["nothing", "whole", "beginning"] {
            let out = TempDir::new();
            let arguments = resuming(&out, &url);
            let file = out.join("file");
            match before {
                "whole" => fs::write(&file, &content[..700_000]).unwrap(),
                "beginning" => {
                    fs::write(&file, "older").unwrap();
                    break_off(&moody, &out, &url);
                }
                _ => {}
            }
            let kept = (fs::read(&file).ok(), fs::read(out.join("file.part")).ok());
            moody.is(Mood::Partial(partial));
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
            // Nobody can take a part for the whole.
            if before == "nothing" {
                assert_ne!(output.status.code(), Some(0), "{case}");
            }
        }
    }
}

#[test]
fn partial_content_is_an_error_without_continue_too() {
    let content = pattern(300_000);
    let (moody, _server, url) = Moody::serve(&content);
    for partial in Partial::ALL {
        moody.is(Mood::Partial(partial));
        let out = TempDir::new();
        let output = expect(5, &["-k", "-o", &out.text("file"), &url]);
        assert!(said(&output).contains("206"), "{}", said(&output));
        assert!(out.names().is_empty(), "{partial:?}");
        assert!(expect(5, &["-k", &url]).stdout.is_empty(), "{partial:?}");
    }
    // A range that was asked for is what it is, if it is as long as it says.
    let range = ["-k", "-H", "Range: bytes=250000-", &url];
    moody.is(Mood::Partial(Partial::UnknownTotal));
    assert!(expect(0, &range).stdout == content[250_000..]);
    for partial in [
        Partial::Short,
        Partial::Long,
        Partial::FromZero,
        Partial::NoRange,
    ] {
        moody.is(Mood::Partial(partial));
        let out = TempDir::new();
        let output = get(&[&["-o", &out.text("file")], &range[..]].concat());
        assert!(matches!(output.status.code(), Some(5 | 10)), "{partial:?}");
        assert!(out.names().is_empty(), "{partial:?}");
    }
}

/// A server that ignores ranges and breaks off at once takes nothing away.
#[test]
fn a_whole_answer_that_breaks_off_keeps_the_longer_beginning() {
    let content = pattern(1_000_000);
    let (moody, _server, url) = Moody::serve(&content);
    let out = TempDir::new();
    let arguments = resuming(&out, &url);
    break_off(&moody, &out, &url);
    let part = fs::read(out.join("file.part")).unwrap();
    moody.is(Mood::WholeUntil(1_000));
    expect(10, &arguments);
    assert!(fs::read(out.join("file.part")).unwrap() == part);
    moody.is(Mood::Proper);
    let output = expect(0, &arguments);
    assert!(
        said(&output).contains("kept from before"),
        "{}",
        said(&output)
    );
    assert!(fs::read(out.join("file")).unwrap() == content);
}
