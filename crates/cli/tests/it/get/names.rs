//! Which files are written, and which are left alone.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::time::Duration;

use crate::get::command::{expect, said, start};
use crate::get::faulty_server::{Behaviour, FaultyServer};
use crate::web::{Site, TempDir, pattern};

/// Runs a download that stalls, and kills it when some of it is there.
fn kill_half_way(out: &TempDir, arguments: &[&str]) {
    let mut child = start(arguments);
    let some = |name: &String| {
        let length = fs::metadata(out.join(name)).map_or(0, |found| found.len());
        name.ends_with(".part") && length >= 250_000
    };
    while !out.names().iter().any(some) {
        std::thread::sleep(Duration::from_millis(5));
    }
    child.kill().unwrap();
    child.wait().unwrap();
}

#[test]
fn two_urls_for_one_file_are_rejected() {
    let (site_dir, out) = (TempDir::new(), TempDir::new());
    let names = ["f", "f.part", "f.part.json", "g"];
    for name in names {
        site_dir.old_file(name, name.as_bytes());
    }
    let site = Site::start(site_dir.path(), &[]);
    let url = |name: &str| format!("{}/{name}", site.url);
    fs::create_dir(out.join("d")).unwrap();
    symlink("d", out.join("e")).unwrap();
    symlink("d/new", out.join("link")).unwrap();
    let z = out.text("z");
    for (first, second) in [
        (z.clone(), out.text("z.part")),
        (out.text("z.part"), z.clone()),
        (z.clone(), out.text("z.part.json")),
        (z.clone(), format!("{}/./z", out.path().display())),
        (z.clone(), out.text("d/../z")),
        (out.text("d/a"), out.text("e/a")),
        (out.text("link"), out.text("e/new")),
        (out.text("link"), out.text("d/new.part")),
    ] {
        let (f, g) = (url("f"), url("g"));
        let refused = expect(2, &["-k", "-o", &first, "-o", &second, &f, &g]);
        let text = said(&refused);
        assert!(text.contains(&first) || text.contains(&second), "{text}");
        assert_eq!(out.names(), ["d", "e", "link"]);
    }
    for (name, temporary) in [("f", "f.part"), ("f", "f.part.json"), ("f.part", "f")] {
        let here = out.path().to_str().unwrap();
        let [a, b] = [name, temporary].map(url);
        let refused = expect(2, &["-k", "-O", "--output-dir", here, &a, &b]);
        assert!(said(&refused).contains("this is the temporary file of "));
    }
    // What only looks alike.
    expect(
        0,
        &[
            "-k",
            "-o",
            &z,
            "-o",
            &out.text("d/z.part"),
            &url("f"),
            &url("g"),
        ],
    );
    assert_eq!(fs::read(&z).unwrap(), b"f");
    assert_eq!(fs::read(out.join("d/z.part")).unwrap(), b"g");
    let refused = expect(2, &["-k", "-o", "none/", &url("f")]);
    assert!(said(&refused).contains("invalid file name"));
}

#[test]
fn unrelated_part_file_is_left_alone() {
    let content = pattern(1_000_000);
    let (faulty, _server, url) = FaultyServer::serve(&content);
    let (small, out) = (TempDir::new(), TempDir::new());
    small.old_file("small", b"text");
    let site = Site::start(small.path(), &[]);
    let small = format!("{}/small", site.url);
    let r = out.text("r");
    fs::write(out.join("r.part"), "precious").unwrap();
    let refuse = |url: &str, why: &str| {
        let refused = expect(8, &["-k", "-o", &r, url]);
        let text = said(&refused);
        assert!(
            text.contains(why) && text.contains("does not belong to a download"),
            "{text}"
        );
        assert_eq!(text.lines().count(), 1);
        assert!(!out.join("r").exists());
    };
    refuse(&url, "r.part ");
    refuse(&small, "r.part ");
    fs::write(out.join("r.part.json"), "{\"mine\": true}").unwrap();
    refuse(&url, "r.part ");
    refuse(&small, "r.part ");
    expect(8, &["-k", "-C", "-o", &r, &url]);
    assert_eq!(fs::read(out.join("r.part")).unwrap(), b"precious");
    fs::remove_file(out.join("r.part")).unwrap();
    refuse(&url, "r.part.json ");
    assert_eq!(
        fs::read(out.join("r.part.json")).unwrap(),
        b"{\"mine\": true}"
    );
    assert_eq!(out.names(), ["r.part.json"]);
    fs::remove_file(out.join("r.part.json")).unwrap();

    // What a killed download left is ours, with a tag or without.
    for behaviour in [Behaviour::Stall, Behaviour::Untagged] {
        faulty.behave(behaviour);
        kill_half_way(&out, &["-k", "-o", &r, &url]);
        assert_eq!(out.names(), ["r.part", "r.part.json"]);
        faulty.behave(Behaviour::Correct);
        expect(0, &["-k", "-o", &r, &url]);
        assert!(fs::read(&r).unwrap() == content);
        assert_eq!(out.names(), ["r"]);
        fs::remove_file(&r).unwrap();
    }
}

#[test]
fn head_request_leaves_part_file_alone() {
    let content = pattern(1_000_000);
    let (faulty, _server, url) = FaultyServer::serve(&content);
    let out = TempDir::new();
    let big = out.text("big");
    faulty.behave(Behaviour::Stall);
    kill_half_way(&out, &["-k", "-o", &big, &url]);
    faulty.behave(Behaviour::Correct);
    let part = fs::read(out.join("big.part")).unwrap();
    expect(0, &["-k", "-X", "HEAD", "-o", &big, &url]);
    expect(0, &["-k", "-I", "-o", &big, &url]);
    assert!(fs::read(&big).unwrap().starts_with(b"HTTP/3 200"));
    // A second time it would replace something.
    let refused = expect(8, &["-k", "-I", "-o", &big, &url]);
    assert!(said(&refused).contains("exists"), "{}", said(&refused));
    assert!(fs::read(out.join("big.part")).unwrap() == part);
    assert_eq!(out.names(), ["big", "big.part", "big.part.json"]);
}

#[test]
fn file_name_of_maximum_length_is_accepted() {
    let content = pattern(1_000_000);
    let (faulty, _server, url) = FaultyServer::serve(&content);
    let out = TempDir::new();
    for length in [245, 246, 250, 251, 255] {
        let name = "n".repeat(length);
        let file = out.text(&name);
        faulty.behave(Behaviour::Stall);
        kill_half_way(&out, &["-k", "-o", &file, &url]);
        faulty.behave(Behaviour::Correct);
        let output = expect(0, &["-k", "-C", "-o", &file, &url]);
        assert!(said(&output).contains("bytes resumed"));
        assert!(fs::read(&file).unwrap() == content);
        assert_eq!(out.names(), [name]);
        fs::remove_file(&file).unwrap();
    }
    let long = out.text(&"n".repeat(256));
    let refused = expect(8, &["-k", "-o", &long, &url]);
    assert!(said(&refused).contains("too long"), "{}", said(&refused));
    assert!(out.names().is_empty(), "{:?}", out.names());
}

#[test]
fn output_follows_symlink_and_keeps_permissions() {
    let (site_dir, out) = (TempDir::new(), TempDir::new());
    site_dir.old_file("a", b"new");
    let site = Site::start(site_dir.path(), &[]);
    let url = format!("{}/a", site.url);
    fs::create_dir(out.join("d")).unwrap();
    fs::write(out.join("d/secret"), "old").unwrap();
    let mode = |name: &str| fs::metadata(out.join(name)).unwrap().permissions().mode() & 0o777;
    fs::set_permissions(out.join("d/secret"), fs::Permissions::from_mode(0o600)).unwrap();
    symlink("secret", out.join("d/second")).unwrap();
    symlink("d/second", out.join("link")).unwrap();
    symlink("d/later", out.join("dangling")).unwrap();
    symlink("loop", out.join("loop")).unwrap();
    for name in ["link", "dangling"] {
        expect(0, &["-k", "-o", &out.text(name), &url]);
        assert!(out.join(name).is_symlink(), "{name}");
        assert_eq!(fs::read(out.join(name)).unwrap(), b"new");
    }
    assert_eq!(mode("d/secret"), 0o600);
    fs::set_permissions(out.join("d/secret"), fs::Permissions::from_mode(0o640)).unwrap();
    expect(0, &["-k", "-o", &out.text("d/secret"), &url]);
    assert_eq!(mode("d/secret"), 0o640);
    expect(8, &["-k", "-o", &out.text("loop"), &url]);
    assert_eq!(out.names(), ["d", "dangling", "link", "loop"]);
    let mut inside: Vec<_> = fs::read_dir(out.join("d"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name())
        .collect();
    inside.sort();
    assert_eq!(inside, ["later", "second", "secret"]);
}
