//! Paths that can and cannot be reached.

use std::fs;
use std::os::unix::fs::symlink;

use http::Method;

use crate::serve::client::{ask, client, get};
use crate::web::{Site, TempDir};

#[tokio::test]
async fn files_outside_the_root_are_never_served() {
    let dir = TempDir::new();
    fs::create_dir_all(dir.join("root/sub")).unwrap();
    fs::write(dir.join("secret"), "secret").unwrap();
    fs::write(dir.join("root/sub/file"), "inside").unwrap();
    fs::write(dir.join("root/.clearway-upload.1"), "half").unwrap();
    for (target, name) in [
        ("../secret", "up"),
        ("..", "out"),
        ("/etc", "etc"),
        ("/proc/self/root", "proc"),
        ("sub/file", "in"),
    ] {
        symlink(target, dir.join("root").join(name)).unwrap();
    }
    let site = Site::start(&dir.join("root"), &["--writable"]);
    let client = client();
    for (path, expected) in [
        ("/sub/file", 200),
        ("/in", 200),
        ("/%73ub/file", 200),
        ("/../secret", 404),
        ("/sub/../../secret", 404),
        ("/sub/../sub/file", 404),
        ("/%2e%2e/secret", 404),
        ("/%2E%2E%2Fsecret", 404),
        ("/..%2fsecret", 404),
        ("/sub%2f..%2f..%2fsecret", 404),
        ("/..%5csecret", 404),
        ("/%252e%252e/secret", 404),
        ("/up", 404),
        ("/out/secret", 404),
        ("/etc/passwd", 404),
        ("/proc/etc/passwd", 404),
        ("//etc/passwd", 404),
        ("//localhost/sub", 404),
        ("/%2fetc/passwd", 404),
        ("/sub/file%00.html", 404),
        ("/sub/file/", 404),
        ("/sub/file/x", 404),
        ("/.clearway-upload.1", 404),
    ] {
        let url = format!("{}{path}", site.url);
        let (status, _, body) = get(&client, &url, &[]).await;
        assert_eq!(status, expected, "{path}");
        assert_eq!(body == "inside", expected == 200, "{path}");
        if expected != 200 {
            let (status, _, _) = ask(&client, Method::PUT, &url, &[], b"new").await;
            let outcome = (path, status);
            // A plain name that is free may be taken.
            let fine = matches!(path, "/..%5csecret") && status == 201
                || path == "/up" && status == 204
                || (400..500).contains(&status);
            assert!(fine, "{outcome:?}");
        }
    }
    assert_eq!(fs::read(dir.join("secret")).unwrap(), b"secret");
    assert_eq!(dir.names(), ["root", "secret"]);
    // The link was replaced, not what it led to.
    assert_eq!(fs::read(dir.join("root/up")).unwrap(), b"new");
}
