//! `clearway view`: what a browser, and who pretends to be one, gets.

use super::{file, healthy, stuck};
use crate::viewer::Viewer;
use crate::web::TempDir;

#[test]
fn page_shows_the_traces_as_they_are_when_it_is_loaded() {
    let dir = TempDir::new();
    file(&dir, "a.sqlog", stuck());
    let viewer = Viewer::start(&[&dir.text("")]);
    assert!(
        viewer.address.starts_with("127.0.0.1:"),
        "{}",
        viewer.address
    );
    let page = viewer.get("/", &viewer.address, "");
    assert!(page.starts_with("HTTP/1.1 200 OK\r\n"), "{page:.200}");
    assert!(page.contains("content-security-policy: default-src 'none'; "));
    assert!(page.contains("Stuck: window at its floor for 1.0 s"));
    assert!(!page.contains("No problems found. "));
    file(&dir, "b.sqlog", healthy());
    assert!(
        viewer
            .get("/", &viewer.address, "")
            .contains("No problems found. ")
    );
    assert!(
        viewer
            .get("/other", &viewer.address, "")
            .starts_with("HTTP/1.1 404 ")
    );
}

#[test]
fn dropped_files_are_diagnosed_or_their_error_is_told() {
    let viewer = Viewer::start(&[]);
    let answer = viewer.examine("my%20trace", stuck().as_bytes());
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer:.200}");
    let (_, json) = answer.split_once("\r\n\r\n").unwrap();
    let panel: serde_json::Value = serde_json::from_str(json).unwrap();
    assert!(panel["headline"].as_str().unwrap().starts_with("Stuck: "));
    let answer = viewer.examine("my%20trace", b"nonsense");
    assert!(answer.starts_with("HTTP/1.1 422 "), "{answer}");
    let expected = "cannot read my trace: not a qlog file: found the byte 0x6e at offset 0";
    assert!(answer.contains(expected), "{answer}");
}

#[test]
fn other_hosts_names_origins_and_broken_requests_are_refused() {
    let dir = TempDir::new();
    let trace = file(&dir, "a.sqlog", stuck());
    let viewer = Viewer::start(&[&trace]);
    let port = viewer.address.rsplit(':').next().unwrap().to_owned();
    let own = viewer.address.as_str();
    for (host, origin) in [
        ("evil.example", ""),
        ("evil.example:80", ""),
        ("localhost", ""),
        ("127.0.0.1:1", ""),
        (own, "Origin: http://evil.example\r\n"),
        (own, "Origin: null\r\n"),
    ] {
        let answer = viewer.get("/", host, origin);
        assert!(
            answer.starts_with("HTTP/1.1 403 "),
            "{host} {origin}: {answer:.100}"
        );
        assert!(!answer.contains("Stuck"), "{host}");
    }
    assert!(
        viewer
            .send(b"GET / HTTP/1.1\r\n\r\n")
            .starts_with("HTTP/1.1 403 ")
    );
    assert!(
        viewer
            .send(b"nonsense\r\n\r\n")
            .starts_with("HTTP/1.1 400 ")
    );
    let localhost = format!("localhost:{port}");
    let origin = format!("Origin: http://{localhost}\r\n");
    assert!(
        viewer
            .get("/", &localhost, &origin)
            .starts_with("HTTP/1.1 200 ")
    );
    let post = format!("POST / HTTP/1.1\r\nHost: {own}\r\n\r\n");
    assert!(viewer.send(post.as_bytes()).starts_with("HTTP/1.1 405 "));
    let endless =
        format!("POST /examine HTTP/1.1\r\nHost: {own}\r\nContent-Length: 9999999999999\r\n\r\n");
    assert!(viewer.send(endless.as_bytes()).starts_with("HTTP/1.1 413 "));
}
