//! Uploads.

use std::fs::{self, File};
use std::time::Duration;

use rustix::process::Signal;

use crate::get::command::{expect, said, start};
use crate::web::{Site, TempDir, pattern, send};

#[test]
fn upload_is_stored_by_the_server() {
    let (site_dir, here) = (TempDir::new(), TempDir::new());
    let content = pattern(3_000_000);
    here.old_file("up load", &content);
    let site = Site::start(site_dir.path(), &["--writable"]);
    let (file, root) = (here.text("up load"), format!("{}/", site.url));
    let output = expect(0, &["-T", &file, &root, "-k"]);
    assert!(fs::read(site_dir.join("up load")).unwrap() == content);
    let text = said(&output);
    assert!(text.starts_with("3000000 bytes sent, "), "{text}");
    assert!(text.ends_with("(measured here)\n"), "{text}");
    let named = format!("{}/named", site.url);
    let data = format!("@{file}");
    expect(0, &["-d", &data, "-X", "PUT", &named, "-k"]);
    assert!(fs::read(site_dir.join("named")).unwrap() == content);
    expect(0, &["-d", "a=b", "-X", "PUT", &named, "-k"]);
    assert_eq!(fs::read(site_dir.join("named")).unwrap(), b"a=b");
    let refused = expect(9, &["-d", "a=b", &named, "-k"]);
    assert!(said(&refused).contains("405 Method Not Allowed"));
}

/// A sparse file of this many bytes.
fn sparse(dir: &TempDir, name: &str, length: u64) -> (File, String) {
    let file = File::create(dir.join(name)).unwrap();
    file.set_len(length).unwrap();
    (file, dir.text(name))
}

/// Waits until this much of an upload is at the server, and returns the temporary name.
fn half_there(site_dir: &TempDir, length: u64) -> String {
    loop {
        let names = site_dir.names().into_iter();
        let half = names.filter(|name| {
            name.starts_with(".clearway-upload.")
                && name.ends_with(|last: char| last.is_ascii_digit())
        });
        let large = |name: &String| {
            let found = fs::metadata(site_dir.join(name));
            found.is_ok_and(|found| found.len() >= length)
        };
        if let Some(name) = half.into_iter().find(large) {
            return name;
        }
        std::thread::sleep(Duration::from_millis(2));
    }
}

#[test]
fn upload_of_shrinking_file_fails_naming_it() {
    let (site_dir, here) = (TempDir::new(), TempDir::new());
    let site = Site::start(site_dir.path(), &["--writable"]);
    let (file, path) = sparse(&here, "up", 1 << 30);
    let child = start(&["-k", "-T", &path, &format!("{}/", site.url)]);
    half_there(&site_dir, 1);
    file.set_len(1).unwrap();
    let output = child.wait_with_output().unwrap();
    let text = said(&output);
    assert_eq!(output.status.code(), Some(2), "{text}");
    let why = format!("error: cannot read {path}: the file shrank while it was being read\n");
    assert_eq!(text, why);
    assert!(!site_dir.join("up").exists());
}

#[test]
fn leftover_upload_files_of_killed_server_are_removed() {
    let (site_dir, here) = (TempDir::new(), TempDir::new());
    let mine = ".clearway-upload.notes";
    site_dir.old_file(mine, b"somebody's");
    here.old_file("small", b"text");
    let small = here.text("small");
    let (_, path) = sparse(&here, "large", 100_000_000);
    let mut killed = Site::start(site_dir.path(), &["--writable"]);
    let url = format!("{}/", killed.url);
    let mut child = start(&["-k", "-T", &path, &url]);
    half_there(&site_dir, 1);
    // It must not finish before that.
    send(&child, Signal::STOP);
    killed.child.kill().unwrap();
    killed.child.wait().unwrap();
    child.kill().unwrap();
    child.wait().unwrap();
    let left = half_there(&site_dir, 1);

    let site = Site::start(site_dir.path(), &["--writable"]);
    let url = format!("{}/", site.url);
    let child = start(&["-k", "-T", &path, &url]);
    while site_dir.join(&left).exists() {
        std::thread::sleep(Duration::from_millis(2));
    }
    let live = half_there(&site_dir, 1);
    send(&child, Signal::STOP);
    // A server that begins meanwhile sees that this one is written to.
    let other = Site::start(site_dir.path(), &["--writable"]);
    expect(0, &["-k", "-T", &small, &format!("{}/", other.url)]);
    assert_eq!(site_dir.names(), [&live[..], mine, "small"]);
    send(&child, Signal::CONT);
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", said(&output));
    assert_eq!(site_dir.names(), [mine, "large", "small"]);
    assert_eq!(
        fs::metadata(site_dir.join("large")).unwrap().len(),
        100_000_000
    );
}
