//! Conditional requests.

use std::fs;

use crate::serve::client::{client, get};
use crate::web::{Site, TempDir};

#[tokio::test]
async fn matching_validators_get_304() {
    let dir = TempDir::new();
    dir.old_file("page.html", b"<p>");
    let site = Site::start(dir.path(), &[]);
    let client = client();
    let url = format!("{}/page.html", site.url);
    let (_, fields, _) = get(&client, &url, &[]).await;
    assert_eq!(fields["content-type"], "text/html; charset=utf-8");
    let etag = fields["etag"].to_str().unwrap().to_owned();
    for (name, value, expected) in [
        ("if-none-match", etag.as_str(), 304),
        ("if-none-match", "\"other\"", 200),
        ("if-match", "\"other\"", 412),
        ("if-match", &etag, 200),
        ("if-modified-since", "Sun, 09 Sep 2001 01:46:40 GMT", 304),
        ("if-modified-since", "Sun, 09 Sep 2001 01:46:39 GMT", 200),
        ("if-unmodified-since", "Sun, 09 Sep 2001 01:46:39 GMT", 412),
    ] {
        let (status, fields, body) = get(&client, &url, &[(name, value)]).await;
        assert_eq!(status, expected, "{name}: {value}");
        if status == 304 {
            assert!(body.is_empty());
            assert_eq!(fields["etag"], etag.as_str());
        }
    }
    fs::write(dir.join("page.html"), "<b>").unwrap();
    let (status, fields, body) = get(&client, &url, &[("if-none-match", &etag)]).await;
    assert_eq!((status, &body[..]), (200, &b"<b>"[..]));
    let fresh = fields["etag"].to_str().unwrap();
    assert!(fresh.starts_with("W/"), "it may change again: {fresh}");
}
