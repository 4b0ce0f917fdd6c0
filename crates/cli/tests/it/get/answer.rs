//! Responses without content, or with other content.

use std::fs;

use crate::get::command::{expect, said};
use crate::get::faulty_server::{Behaviour, FaultyServer};
use crate::web::{Site, TempDir};

const LATER: &str = "If-Modified-Since: Sun, 09 Sep 2001 01:46:40 GMT";

#[test]
fn response_without_content_leaves_the_file_unchanged() {
    let (site_dir, out) = (TempDir::new(), TempDir::new());
    site_dir.old_file("a", b"text");
    let site = Site::start(site_dir.path(), &["--writable"]);
    let url = format!("{}/a", site.url);
    let k = out.text("k");
    let new = expect(0, &["-k", "-o", &k, "-H", LATER, &url]);
    assert!(said(&new).contains(&format!("not modified: {k} not written\n")));
    assert!(out.names().is_empty());
    expect(0, &["-k", "-o", &k, &url]);
    for (options, why) in [
        (["-H", LATER], "not modified"),
        (["-X", "HEAD"], "HEAD response has no body"),
        // Storing it again is answered with 204.
        (["-T", &k], "response has no content"),
    ] {
        let arguments = [&["-k", "-o", &k, &url][..], &options].concat();
        let output = expect(0, &arguments);
        let told = format!("{url}: {why}: {k} kept\n");
        assert!(said(&output).contains(&told), "{}", said(&output));
        assert_eq!(fs::read(&k).unwrap(), b"text", "{options:?}");
        assert_eq!(out.names(), ["k"]);
    }
    expect(8, &["-k", "-I", "-o", &k, &url]);
    assert_eq!(fs::read(&k).unwrap(), b"text");
}

#[test]
fn complete_file_is_not_fetched_again() {
    let (faulty, _server, url) = FaultyServer::serve(b"content");
    let out = TempDir::new();
    let file = out.text("file");
    let arguments = ["-k", "-C", "-o", &file, &url];
    expect(0, &arguments);
    faulty.behave(Behaviour::StrictRanges);
    let output = expect(0, &arguments);
    let text = said(&output);
    assert!(
        text.contains("is already complete (judged by its length of 7 bytes"),
        "{text}"
    );
    assert!(text.contains("0 bytes received, 7 bytes resumed"), "{text}");
    assert_eq!(fs::read(&file).unwrap(), b"content");
    let asked = faulty.asked.lock().unwrap().last().cloned();
    assert_eq!(asked, Some(("bytes=7-".into(), String::new())));

    // Neither longer nor shorter content is the same.
    for there in ["longer content", "short"] {
        fs::write(&file, there).unwrap();
        let output = expect(0, &arguments);
        let text = said(&output);
        assert!(text.contains(": starting over\n"), "{text}");
        assert!(!text.contains("bytes resumed"), "{text}");
        assert_eq!(fs::read(&file).unwrap(), b"content");
        assert_eq!(out.names(), ["file"]);
    }
    // The existing file is kept if the new content does not arrive.
    fs::write(&file, "old").unwrap();
    faulty.behave(Behaviour::Reset);
    expect(10, &arguments);
    assert_eq!(fs::read(&file).unwrap(), b"old");
}
