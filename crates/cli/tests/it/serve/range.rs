//! Range requests.

use http::Method;

use crate::serve::client::{ask, client, get};
use crate::web::{Site, TempDir, pattern};

#[tokio::test]
async fn range_requests_return_exactly_the_requested_bytes() {
    let dir = TempDir::new();
    let content = pattern(1_000_000);
    dir.old_file("a.bin", &content);
    dir.old_file("empty", b"");
    let site = Site::start(dir.path(), &[]);
    let client = client();
    let url = format!("{}/a.bin", site.url);
    let (status, fields, body) = get(&client, &url, &[]).await;
    assert_eq!((status, &body[..]), (200, &content[..]));
    assert_eq!(fields["accept-ranges"], "bytes");
    assert_eq!(fields["content-type"], "application/octet-stream");
    let etag = fields["etag"].to_str().unwrap();
    let date = fields["last-modified"].to_str().unwrap();
    assert_eq!(date, "Sun, 09 Sep 2001 01:46:40 GMT");
    for (range, first, last) in [
        ("bytes=0-0", 0, 0),
        ("bytes=10-99", 10, 99),
        ("bytes=300000-900000", 300_000, 900_000),
        ("bytes=999999-", 999_999, 999_999),
        ("bytes=5-99999999", 5, 999_999),
        ("bytes=-7", 999_993, 999_999),
        ("bytes=-99999999", 0, 999_999),
    ] {
        let (status, fields, body) = get(&client, &url, &[("range", range)]).await;
        assert_eq!(status, 206, "{range}");
        assert!(body == content[first..=last], "{range}");
        let expected = format!("bytes {first}-{last}/1000000");
        assert_eq!(fields["content-range"], expected.as_str(), "{range}");
        assert_eq!(fields["content-length"], body.len().to_string().as_str());
    }
    for range in ["bytes=1000000-", "bytes=-0", "bytes=2000000-3000000"] {
        let (status, fields, _) = get(&client, &url, &[("range", range)]).await;
        assert_eq!(status, 416, "{range}");
        assert_eq!(fields["content-range"], "bytes */1000000", "{range}");
    }
    for range in ["bytes=0-1,5-6", "bytes=9-1", "lines=1-2", "bytes=x"] {
        let (status, fields, body) = get(&client, &url, &[("range", range)]).await;
        assert_eq!((status, body.len()), (200, 1_000_000), "{range}");
        assert!(!fields.contains_key("content-range"), "{range}");
    }
    for (proof, expected) in [
        (etag, 206),
        (date, 206),
        ("\"other\"", 200),
        ("Sun, 09 Sep 2001 01:46:39 GMT", 200),
    ] {
        let conditions = [("range", "bytes=1-2"), ("if-range", proof)];
        let (status, _, _) = get(&client, &url, &conditions).await;
        assert_eq!(status, expected, "{proof}");
    }
    let empty = format!("{}/empty", site.url);
    assert_eq!(get(&client, &empty, &[("range", "bytes=0-")]).await.0, 416);
    let (status, fields, _) = get(&client, &empty, &[]).await;
    assert_eq!(
        (status, &fields["content-length"]),
        (200, &"0".parse().unwrap())
    );
    let head = ask(&client, Method::HEAD, &url, &[("range", "bytes=1-2")], b"").await;
    assert_eq!((head.0, head.2.len()), (200, 0));
    assert_eq!(head.1["content-length"], "1000000");
}
