//! `--qlog` on commands with a connection.
#![allow(
    clippy::unwrap_used,
    missing_docs,
    reason = "a test that cannot go on has failed"
)]

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use clearway_trace::event::{Event, EventData, Role};
use clearway_trace::qlog::Reader;

use crate::common::{Server, clearway, stderr};
use crate::web::{Site, TempDir, pattern};

/// What a warning about traces begins with.
const WARNING: &str = "warning: cannot write a qlog file in ";

/// The traces in a directory.
fn traces(dir: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(dir).unwrap();
    entries.map(|entry| entry.unwrap().path()).collect()
}

/// The only trace in a directory.
fn trace(dir: &Path) -> (Role, Vec<Event>) {
    let files = traces(dir);
    assert_eq!(files.len(), 1, "{files:?}");
    let mut reader = Reader::new(File::open(&files[0]).unwrap()).unwrap();
    let events = (&mut reader).map(|event| event.unwrap()).collect();
    assert_eq!(reader.problems().unreadable(), 0);
    (reader.header().role.unwrap(), events)
}

fn is_complete(events: &[Event]) -> bool {
    let first = matches!(events[0].data, EventData::ConnectionStarted(_));
    let closed = |event: &Event| matches!(event.data, EventData::ConnectionClosed(_));
    first && events.iter().any(closed)
}

/// `clearway get` of a file of `site` to `to`.
fn get(site: &Site, name: &str, to: &Path, options: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_clearway"));
    command
        .args(["get", "--insecure", "-o"])
        .arg(to)
        .arg(format!("{}/{name}", site.url))
        .args(options);
    command
}

fn succeeds(mut command: Command) -> Output {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    output
}

#[test]
fn serve_and_get_write_complete_traces() {
    let (dir, files) = (TempDir::new(), TempDir::new());
    dir.old_file("a", &pattern(300_000));
    let site = Site::start(dir.path(), &["--qlog", &files.text("server")]);
    let to = files.join("a");
    succeeds(get(&site, "a", &to, &["--qlog", &files.text("client")]));
    assert!(site.stop().success());
    for (name, expected) in [("client", Role::Client), ("server", Role::Server)] {
        let (role, events) = trace(&files.join(name));
        assert_eq!(role, expected);
        assert!(is_complete(&events), "{name}");
    }
    let name = |end: &str| traces(&files.join(end))[0].file_name().unwrap().to_owned();
    let (near, far) = (name("client"), name("server"));
    let odcid = |name: &std::ffi::OsString| {
        let name = name.to_str().unwrap().to_owned();
        name.split('_').next().unwrap().to_owned()
    };
    assert_eq!(odcid(&near), odcid(&far), "both ends share the name");
}

#[test]
fn qlogdir_in_the_environment_is_used_and_dialect_applies() {
    let (dir, files) = (TempDir::new(), TempDir::new());
    dir.old_file("a", b"text");
    let site = Site::start(dir.path(), &[]);
    let mut command = get(&site, "a", &files.join("a"), &["--dialect", "qvis"]);
    command.env("QLOGDIR", files.join("traces"));
    succeeds(command);
    let (role, events) = trace(&files.join("traces"));
    assert_eq!(role, Role::Client);
    assert!(is_complete(&events));
    let text = fs::read_to_string(&traces(&files.join("traces"))[0]).unwrap();
    assert!(text.contains("\"transport:packet_sent\""), "qlog 0.3");
    assert!(!text.contains("quic:packet_sent"));
}

#[test]
fn raw_and_demo_write_traces_of_both_ends() {
    let files = TempDir::new();
    let server = Server::start(&["--qlog", &files.text("server")]);
    server.get(&["--bytes", "100kB", "--qlog", &files.text("client")]);
    server.stop();
    assert!(is_complete(&trace(&files.join("server")).1));
    assert!(is_complete(&trace(&files.join("client")).1));
    let output = clearway(&["demo", "--size", "100kB", "--qlog", &files.text("demo")]);
    assert!(output.status.success(), "{}", stderr(&output));
    assert_eq!(traces(&files.join("demo")).len(), 2);
}

#[test]
fn directory_that_cannot_be_created_is_an_error_before_anything_starts() {
    let files = TempDir::new();
    fs::write(files.join("file"), "").unwrap();
    let dir = files.text("file/traces");
    let output = clearway(&["serve", ".", "--listen", "127.0.0.1:0", "--qlog", &dir]);
    assert_eq!(output.status.code(), Some(8));
    let said = stderr(&output);
    let expected = format!("error: cannot write qlog files to {dir}: Not a directory");
    assert!(said.starts_with(&expected), "{said}");
}

#[test]
fn vanished_directory_harms_no_connection_and_is_reported_once() {
    let (dir, files) = (TempDir::new(), TempDir::new());
    dir.old_file("a", &pattern(300_000));
    let log = files.join("log");
    let options = ["--qlog", &files.text("traces")];
    let site = Site::start_logging(&log, dir.path(), &options);
    fs::remove_dir(files.join("traces")).unwrap();
    for name in ["x", "y"] {
        succeeds(get(&site, "a", &files.join(name), &[]));
        assert_eq!(fs::read(files.join(name)).unwrap(), pattern(300_000));
    }
    assert!(site.stop().success());
    let said = fs::read_to_string(&log).unwrap();
    assert_eq!(said.matches(WARNING).count(), 1, "{said}");
    assert!(said.contains("No such file or directory"), "{said}");
}

#[test]
fn full_disk_harms_no_connection_and_is_reported_once() {
    let (dir, files) = (TempDir::new(), TempDir::new());
    let content = pattern(2_000_000);
    dir.old_file("a", &content);
    let log = files.join("log");
    let options = ["--qlog", &files.text("traces")];
    // Files of at most some 64 kB: further writes fail, as on a full disk.
    let site = Site::start_with_small_files(64, &log, dir.path(), &options);
    for name in ["x", "y"] {
        succeeds(get(&site, "a", &files.join(name), &[]));
        assert_eq!(fs::read(files.join(name)).unwrap(), content);
    }
    assert!(site.stop().success());
    let said = fs::read_to_string(&log).unwrap();
    assert_eq!(said.matches(WARNING).count(), 1, "{said}");
    assert!(said.contains("File too large"), "{said}");
    for file in traces(&files.join("traces")) {
        assert!(fs::metadata(&file).unwrap().len() <= 64 << 10);
        // What was written can be read.
        let reader = Reader::new(File::open(file).unwrap()).unwrap();
        assert!(reader.count() > 50);
    }
}
