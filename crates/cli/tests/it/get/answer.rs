//! Answers that bring no content, or not the content.

use std::fs;

use crate::get::command::{expect, said};
use crate::get::moody::{Mood, Moody};
use crate::web::{Site, TempDir};

const LATER: &str = "If-Modified-Since: Sun, 09 Sep 2001 01:46:40 GMT";

#[test]
fn without_content_a_file_stays_what_it_is() {
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
        (["-X", "HEAD"], "HEAD brings no content"),
        // Storing it again is answered with 204.
        (["-T", &k], "there is no content"),
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
fn redirects_are_told_of() {
    let (site_dir, out) = (TempDir::new(), TempDir::new());
    fs::create_dir(site_dir.join("sub")).unwrap();
    let site = Site::start(site_dir.path(), &[]);
    let url = format!("{}/sub", site.url);
    let here = out.path().to_str().unwrap();
    let output = expect(0, &["-k", "-O", "--output-dir", here, &url]);
    let text = said(&output);
    assert!(text.starts_with(&format!("{url}: 301 ")), "{text}");
    assert!(text.contains("sub/\", which is not followed\n"), "{text}");
    let there = expect(0, &["-k", &format!("{url}/")]);
    assert!(!said(&there).contains("not followed"));
}

#[test]
fn what_is_complete_is_not_fetched_again() {
    let (moody, _server, url) = Moody::serve(b"content");
    let out = TempDir::new();
    let file = out.text("file");
    let arguments = ["-k", "-C", "-o", &file, &url];
    expect(0, &arguments);
    moody.is(Mood::Refusing);
    let output = expect(0, &arguments);
    let text = said(&output);
    assert!(
        text.contains("is already complete, going by its length, 7 bytes"),
        "{text}"
    );
    assert!(
        text.contains("0 bytes received, 7 kept from before"),
        "{text}"
    );
    assert_eq!(fs::read(&file).unwrap(), b"content");
    let asked = moody.asked.lock().unwrap().last().cloned();
    assert_eq!(asked, Some(("bytes=7-".into(), String::new())));

    // Neither what is longer nor what is shorter is what it was.
    for there in ["longer content", "short"] {
        fs::write(&file, there).unwrap();
        let output = expect(0, &arguments);
        let text = said(&output);
        assert!(text.contains(": from the beginning\n"), "{text}");
        assert!(!text.contains("kept from before"), "{text}");
        assert_eq!(fs::read(&file).unwrap(), b"content");
        assert_eq!(out.names(), ["file"]);
    }
    // Nor is anything lost of what there was if the new one does not come.
    fs::write(&file, "old").unwrap();
    moody.is(Mood::Reset);
    expect(10, &arguments);
    assert_eq!(fs::read(&file).unwrap(), b"old");
}
