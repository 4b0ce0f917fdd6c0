//! Uploads, and unsupported methods.

use std::fs;
use std::time::Duration;

use http::Method;

use crate::serve::client::{StallingBody, ask, client, get, request};
use crate::web::{Site, TempDir, pattern};

#[tokio::test]
async fn unsupported_method_gets_405_with_allow() {
    let dir = TempDir::new();
    dir.old_file("a", b"x");
    let readable = Site::start(dir.path(), &[]);
    let client = client();
    for method in [Method::PUT, Method::POST, Method::DELETE, Method::PATCH] {
        let url = format!("{}/a", readable.url);
        let (status, fields, _) = ask(&client, method.clone(), &url, &[], b"y").await;
        assert_eq!(status, 405, "{method}");
        assert_eq!(fields["allow"], "GET, HEAD, OPTIONS");
    }
    let writable = Site::start(dir.path(), &["--writable"]);
    let url = format!("{}/a", writable.url);
    let (status, fields, _) = ask(&client, Method::OPTIONS, &url, &[], b"").await;
    assert_eq!(
        (status, &fields["allow"]),
        (204, &"GET, HEAD, OPTIONS, PUT".parse().unwrap())
    );
    assert_eq!(fs::read(dir.join("a")).unwrap(), b"x");
}

#[tokio::test]
async fn uploads_are_stored_atomically() {
    let dir = TempDir::new();
    fs::create_dir(dir.join("sub")).unwrap();
    let site = Site::start(dir.path(), &["--writable"]);
    let client = client();
    let content = pattern(3_000_000);
    let put = async |path: &str, fields: &[(&str, &str)], body: &[u8]| {
        let url = format!("{}{path}", site.url);
        ask(&client, Method::PUT, &url, fields, body).await.0
    };
    assert_eq!(put("/sub/a%20b", &[], &content).await, 201);
    assert!(fs::read(dir.join("sub/a b")).unwrap() == content);
    assert_eq!(put("/sub/a%20b", &[], b"short").await, 204);
    assert_eq!(fs::read(dir.join("sub/a b")).unwrap(), b"short");
    assert_eq!(
        put("/sub/a%20b", &[("if-none-match", "*")], b"x").await,
        412
    );
    assert_eq!(put("/new", &[("if-none-match", "*")], b"").await, 201);
    assert_eq!(put("/new", &[("if-match", "\"other\"")], b"x").await, 412);
    assert_eq!(
        put("/new", &[("content-range", "bytes 0-0/2")], b"x").await,
        400
    );
    assert_eq!(put("/sub", &[], b"x").await, 409);
    assert_eq!(put("/sub/", &[], b"x").await, 409);
    assert_eq!(put("/none/a", &[], b"x").await, 404);
    assert_eq!(dir.names(), ["new", "sub"]);
    assert_eq!(fs::read(dir.join("new")).unwrap(), b"");
    assert_eq!(fs::read_dir(dir.join("sub")).unwrap().count(), 1);
    // A line may come after that of the next request, which did not wait for it.
    let first_two = [site.logged(), site.logged()];
    let line = first_two.iter().find(|line| line["status"] == 201).unwrap();
    assert_eq!(line["method"], "PUT");
    assert_eq!(line["target"], "/sub/a%20b");
    assert_eq!(line["received"], 3_000_000);
    assert_eq!(line["complete"], true);
    assert!(site.stop().success());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn aborted_upload_leaves_no_file() {
    let dir = TempDir::new();
    dir.old_file("a", b"before");
    let site = Site::start(dir.path(), &["--writable"]);
    let client = client();
    let body = StallingBody(Some(pattern(600_000).into()));
    let url = format!("{}/a", site.url);
    let asking = tokio::spawn({
        let client = client.clone();
        let request = request(Method::PUT, &url, &[]).body(body).unwrap();
        async move { client.request(request).await.map(drop) }
    });
    // Half of it is there, under another name.
    while dir.names().len() < 2 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let (status, _, body) = get(&client, &url, &[]).await;
    assert_eq!((status, &body[..]), (200, &b"before"[..]));
    site.logged();
    asking.abort();
    let line = site.logged();
    assert_eq!(
        (&line["method"], &line["complete"]),
        (&"PUT".into(), &false.into())
    );
    while dir.names().len() > 1 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    assert_eq!(fs::read(dir.join("a")).unwrap(), b"before");
}
