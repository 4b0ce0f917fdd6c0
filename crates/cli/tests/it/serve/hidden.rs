//! Files whose names begin with a dot.

use std::fs;

use http::Method;

use crate::serve::client::{ask, client, get};
use crate::web::{Site, TempDir};

const HIDDEN: [&str; 4] = ["/.env", "/.git/config", "/sub/.htpasswd", "/%2eenv"];

fn tree() -> TempDir {
    let dir = TempDir::new();
    for name in [".git", "sub", ".well-known/acme-challenge"] {
        fs::create_dir_all(dir.join(name)).unwrap();
    }
    for name in [".env", ".git/config", "sub/.htpasswd", "plain"] {
        dir.old_file(name, b"text");
    }
    dir.old_file(".well-known/acme-challenge/token", b"text");
    dir
}

#[tokio::test]
async fn dotfiles_are_neither_served_listed_nor_replaced() {
    let dir = tree();
    let site = Site::start(dir.path(), &["--writable"]);
    let client = client();
    for path in HIDDEN {
        let url = format!("{}{path}", site.url);
        assert_eq!(get(&client, &url, &[]).await.0, 404, "{path}");
        let (status, _, _) = ask(&client, Method::PUT, &url, &[], b"new").await;
        assert_eq!(status, 403, "{path}");
    }
    assert_eq!(fs::read(dir.join(".env")).unwrap(), b"text");
    let (_, _, page) = get(&client, &format!("{}/", site.url), &[]).await;
    let page = String::from_utf8(page.to_vec()).unwrap();
    assert!(page.contains("plain") && page.contains("sub/"), "{page}");
    assert!(!page.contains(".env") && !page.contains(".git"), "{page}");
    // What is there for everybody (RFC 8615).
    let url = format!("{}/.well-known/acme-challenge/token", site.url);
    assert_eq!(get(&client, &url, &[]).await.0, 200);
}

#[tokio::test]
async fn dotfiles_are_served_and_listed_if_asked_for() {
    let dir = tree();
    let site = Site::start(dir.path(), &["--hidden"]);
    let client = client();
    for path in HIDDEN {
        let url = format!("{}{path}", site.url);
        assert_eq!(get(&client, &url, &[]).await.0, 200, "{path}");
    }
    let (_, _, page) = get(&client, &format!("{}/", site.url), &[]).await;
    let page = String::from_utf8(page.to_vec()).unwrap();
    assert!(page.contains(".env") && page.contains(".git/"), "{page}");
}
