//! Directories.

use std::fs;

use crate::serve::client::{client, get};
use crate::web::{Site, TempDir};

#[tokio::test]
async fn directory_without_index_gets_a_listing() {
    let dir = TempDir::new();
    fs::create_dir_all(dir.join("with")).unwrap();
    fs::create_dir_all(dir.join("without/deep")).unwrap();
    fs::write(dir.join("with/index.html"), "the index").unwrap();
    fs::write(dir.join("without/<x>"), "12345").unwrap();
    let site = Site::start(dir.path(), &[]);
    let client = client();
    let page = async |path: &str| get(&client, &format!("{}{path}", site.url), &[]).await;
    let (status, fields, body) = page("/with/").await;
    assert_eq!((status, &body[..]), (200, &b"the index"[..]));
    assert_eq!(fields["content-type"], "text/html; charset=utf-8");
    let (status, fields, _) = page("/with?a=b").await;
    assert_eq!(
        (status, &fields["location"]),
        (301, &"/with/?a=b".parse().unwrap())
    );
    let (status, fields, body) = page("/without/").await;
    let body = String::from_utf8(body.to_vec()).unwrap();
    assert_eq!(status, 200);
    assert_eq!(
        fields["content-security-policy"]
            .to_str()
            .unwrap()
            .split(';')
            .next(),
        Some("default-src 'none'")
    );
    assert!(
        body.contains("<a href=\"%3Cx%3E\">&lt;x&gt;</a></td><td>5</td>"),
        "{body}"
    );
    assert!(body.contains("<a href=\"deep/\">deep/</a>"), "{body}");
    assert!(body.contains("<a href=\"../\">"), "{body}");
}
