//! Downloads and crashes of the system.

use std::fs;
use std::os::unix::fs::symlink;

use serde_json::Value;

use crate::get::command::{expect, get, said, start};
use crate::get::faulty_server::{Behaviour, FaultyServer, wait_for};
use crate::serve::failing_calls::{Call, with_failing};
use crate::web::{TempDir, pattern};

#[test]
fn download_that_cannot_be_synced_is_an_error() {
    let (_faulty, _server, url) = FaultyServer::serve(&pattern(1_000_000));
    let (_small, _small_server, small) = FaultyServer::serve(b"small");
    let out = TempDir::new();
    for url in [url, small] {
        let file = out.text("file");
        let output = with_failing(&[Call::Sync], || get(&["-k", "-o", &file, &url]));
        let text = said(&output);
        assert_eq!(output.status.code(), Some(8), "{text}");
        assert!(text.contains(&format!("cannot write {file}")), "{text}");
        assert!(!out.join("file").exists());
        let _ = fs::remove_file(out.join("file.part"));
        let _ = fs::remove_file(out.join("file.part.json"));
    }
}

/// Leaves a partial file of some 1 MB, by a kill or by a server that breaks off.
fn leave_part(faulty: &FaultyServer, out: &TempDir, url: &str, killed: bool) {
    let file = out.text("file");
    if killed {
        faulty.behave(Behaviour::Stall);
        let mut child = start(&["-k", "-o", &file, url]);
        wait_for(&out.join("file.part"), 1_000_000);
        child.kill().unwrap();
        child.wait().unwrap();
    } else {
        faulty.behave(Behaviour::Reset);
        expect(10, &["-k", "-o", &file, url]);
    }
    faulty.behave(Behaviour::Correct);
}

/// As if the system had been started again since.
fn pretend_restart(out: &TempDir) {
    let about = out.join("file.part.json");
    let mut description: Value = serde_json::from_slice(&fs::read(&about).unwrap()).unwrap();
    description["boot"] = "another".into();
    fs::write(&about, serde_json::to_vec(&description).unwrap()).unwrap();
}

/// A hole, long before the end, as a power failure leaves it.
fn damage(out: &TempDir) {
    let mut part = fs::read(out.join("file.part")).unwrap();
    part[100_000..200_000].fill(0);
    fs::write(out.join("file.part"), part).unwrap();
}

#[test]
fn data_that_a_power_failure_may_have_damaged_is_fetched_again() {
    let content = pattern(4_000_000);
    let (faulty, _server, url) = FaultyServer::serve(&content);
    let out = TempDir::new();
    leave_part(&faulty, &out, &url, true);
    pretend_restart(&out);
    damage(&out);
    expect(0, &["-k", "-C", "-o", &out.text("file"), &url]);
    assert!(fs::read(out.join("file")).unwrap() == content);
    assert_eq!(out.names(), ["file"]);
}

#[test]
fn data_that_was_synced_is_resumed_after_a_restart() {
    let content = pattern(4_000_000);
    let (faulty, _server, url) = FaultyServer::serve(&content);
    let out = TempDir::new();
    leave_part(&faulty, &out, &url, false);
    pretend_restart(&out);
    let output = expect(0, &["-k", "-C", "-o", &out.text("file"), &url]);
    assert!(said(&output).contains("bytes resumed"), "{}", said(&output));
    assert!(fs::read(out.join("file")).unwrap() == content);
}

#[test]
fn description_is_not_written_through_a_symlink() {
    let content = pattern(1_000_000);
    let (_faulty, _server, url) = FaultyServer::serve(&content);
    let out = TempDir::new();
    let victim = out.join("victim");
    let file = out.text("file");
    // A file of somebody else, an empty one, one that looks like ours, and none.
    let like_ours = format!("{{\"url\":{url:?},\"etag\":\"\\\"1\\\"\"}}");
    for before in [Some("precious"), Some(""), Some(&like_ours[..]), None] {
        if let Some(before) = before {
            fs::write(&victim, before).unwrap();
        }
        symlink("victim", out.join("file.part.json")).unwrap();
        for options in [
            &["-k", "-o", &file, &url][..],
            &["-k", "-C", "-o", &file, &url],
        ] {
            let refused = expect(8, options);
            let text = said(&refused);
            assert!(text.contains("file.part.json"), "{before:?}: {text}");
        }
        assert_eq!(fs::read_to_string(&victim).ok().as_deref(), before);
        assert!(out.join("file.part.json").is_symlink(), "{before:?}");
        assert!(!out.join("file").exists());
        fs::remove_file(out.join("file.part.json")).unwrap();
        let _ = fs::remove_file(&victim);
        assert!(out.names().is_empty(), "{:?}", out.names());
    }
}

/// A pipe there must not be waited for.
#[test]
fn named_pipe_in_place_of_the_description_is_an_error() {
    let (_faulty, _server, url) = FaultyServer::serve(&pattern(1_000_000));
    let out = TempDir::new();
    let made = std::process::Command::new("mkfifo")
        .arg(out.join("file.part.json"))
        .status();
    assert!(made.unwrap().success());
    let file = out.text("file");
    expect(8, &["-k", "-o", &file, &url]);
    expect(8, &["-k", "-C", "-o", &file, &url]);
}
