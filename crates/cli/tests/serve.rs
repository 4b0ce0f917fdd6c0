//! `clearway serve` as clients see it.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod web;

use std::fs;
use std::io::Read as _;
use std::os::unix::fs::symlink;
use std::pin::Pin;
use std::process::{Command, Stdio};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use clearway::http::{Client, Incoming};
use clearway::{ClientConfig, DevelopmentIdentity};
use http::{HeaderMap, Method, Request, Response, StatusCode};
use http_body::{Body, Frame};
use http_body_util::Full;
use rustix::process::Signal;
use web::{Site, TempDir, pattern};

const LIMIT: usize = 100 << 20;

fn client() -> Client {
    Client::new(ClientConfig::dangerous_accept_any_certificate()).unwrap()
}

fn request(method: Method, url: &str, fields: &[(&str, &str)]) -> http::request::Builder {
    let mut builder = Request::builder().method(method).uri(url);
    for (name, value) in fields {
        builder = builder.header(*name, *value);
    }
    builder
}

/// Status, fields and body of what is answered.
async fn ask(
    client: &Client,
    method: Method,
    url: &str,
    fields: &[(&str, &str)],
    body: &[u8],
) -> (u16, HeaderMap, Bytes) {
    let body = Full::new(Bytes::copy_from_slice(body));
    let request = request(method, url, fields).body(body).unwrap();
    let mut response = client.request(request).await.unwrap();
    let bytes = response.body_mut().bytes(LIMIT).await.unwrap();
    (
        response.status().as_u16(),
        response.headers().clone(),
        bytes,
    )
}

async fn get(client: &Client, url: &str, fields: &[(&str, &str)]) -> (u16, HeaderMap, Bytes) {
    ask(client, Method::GET, url, fields, b"").await
}

#[tokio::test]
async fn nothing_outside_is_ever_reached() {
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

#[tokio::test]
async fn ranges_are_exact() {
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

#[tokio::test]
async fn what_a_client_has_is_not_sent_again() {
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

#[tokio::test]
async fn directories_have_a_page() {
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

#[tokio::test]
async fn methods_that_are_not_there_are_told_which_are() {
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
async fn uploads_are_stored_whole() {
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
    let line = site.logged();
    assert_eq!(line["method"], "PUT");
    assert_eq!(line["target"], "/sub/a%20b");
    assert_eq!(
        (&line["status"], &line["received"]),
        (&201.into(), &3_000_000.into())
    );
    assert_eq!(line["complete"], true);
    assert!(site.stop().success());
}

/// So many bytes, then nothing, for ever.
struct Stalling(Option<Bytes>);

impl Body for Stalling {
    type Data = Bytes;
    type Error = std::convert::Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        match self.0.take() {
            Some(data) => Poll::Ready(Some(Ok(Frame::data(data)))),
            None => Poll::Pending,
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_upload_broken_off_leaves_nothing() {
    let dir = TempDir::new();
    dir.old_file("a", b"before");
    let site = Site::start(dir.path(), &["--writable"]);
    let client = client();
    let body = Stalling(Some(pattern(600_000).into()));
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

#[tokio::test]
async fn who_keeps_trailers_hears_what_the_sender_waited_for() {
    let dir = TempDir::new();
    dir.old_file("small", b"x");
    dir.old_file("large", &pattern(2_000_000));
    let site = Site::start(dir.path(), &[]);
    let client = client();
    for name in ["small", "large"] {
        let url = format!("{}/{name}", site.url);
        let asked =
            request(Method::GET, &url, &[("te", "trailers")]).body(Full::<Bytes>::default());
        let mut response: Response<Incoming> = client.request(asked.unwrap()).await.unwrap();
        assert_eq!(response.headers()["trailer"], "clearway-breakdown");
        assert!(response.headers().contains_key("content-length"));
        response.body_mut().bytes(LIMIT).await.unwrap();
        let trailers = response.body().trailers().unwrap();
        let text = trailers["clearway-breakdown"].to_str().unwrap();
        assert!(
            text.contains("application=") && text.contains("packets-lost="),
            "{text}"
        );
        let mut plain = client.get(&url).await.unwrap();
        assert!(!plain.headers().contains_key("trailer"));
        plain.body_mut().bytes(LIMIT).await.unwrap();
        assert!(plain.body().trailers().is_none());
    }
}

#[tokio::test]
async fn certificates_are_read_again() {
    let dir = TempDir::new();
    dir.old_file("a", b"x");
    let [first, second, third] =
        [(); 3].map(|()| DevelopmentIdentity::generate(["localhost"]).unwrap());
    let files = TempDir::new();
    let write = |identity: &DevelopmentIdentity| {
        fs::write(files.join("chain"), identity.certificate_pem()).unwrap();
        fs::write(files.join("key"), identity.key_pem()).unwrap();
    };
    write(&first);
    let (chain, key) = (files.text("chain"), files.text("key"));
    let site = Site::start(dir.path(), &["--cert", &chain, "--key", &key]);
    let url = format!("{}/a", site.url);
    // A client that trusts nobody else.
    let accepted = async |identity: &DevelopmentIdentity| {
        let config = ClientConfig::with_fingerprint(identity.fingerprint());
        Client::new(config).unwrap().get(&url).await.is_ok()
    };
    assert!(accepted(&first).await && !accepted(&second).await);
    write(&second);
    site.signal(Signal::HUP);
    while !accepted(&second).await {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    // What does not fit is not used; what comes next is, without a signal.
    fs::write(files.join("key"), third.key_pem()).unwrap();
    site.signal(Signal::HUP);
    assert!(accepted(&second).await);
    write(&third);
    while !accepted(&third).await {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert!(site.stop().success());
}

/// A `get` whose output nobody reads yet: its transfer is under way for as long.
fn stuck_download(site: &Site) -> std::process::Child {
    Command::new(env!("CARGO_BIN_EXE_clearway"))
        .args(["get", &format!("{}/large", site.url), "-k", "-s"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
}

#[test]
fn what_is_under_way_is_finished_after_a_signal() {
    let dir = TempDir::new();
    let content = pattern(30_000_000);
    dir.old_file("large", &content);
    let mut site = Site::start(dir.path(), &["--drain", "60s"]);
    let mut child = stuck_download(&site);
    let mut stdout = child.stdout.take().unwrap();
    let mut body = vec![0; 1];
    stdout.read_exact(&mut body).unwrap();
    site.signal(Signal::INT);
    std::thread::sleep(Duration::from_millis(100));
    assert!(site.child.try_wait().unwrap().is_none(), "it waits");
    stdout.read_to_end(&mut body).unwrap();
    assert!(child.wait().unwrap().success());
    assert!(body == content);
    assert!(site.child.wait().unwrap().success());
}

#[test]
fn a_second_signal_ends_it_at_once() {
    let dir = TempDir::new();
    dir.old_file("large", &pattern(30_000_000));
    let mut site = Site::start(dir.path(), &["--drain", "60s"]);
    let mut child = stuck_download(&site);
    let mut stdout = child.stdout.take().unwrap();
    stdout.read_exact(&mut [0]).unwrap();
    site.signal(Signal::TERM);
    std::thread::sleep(Duration::from_millis(100));
    site.signal(Signal::TERM);
    assert_eq!(site.child.wait().unwrap().code(), Some(130));
    // The client hears of it, and does not take half for the whole.
    stdout.read_to_end(&mut Vec::new()).unwrap();
    let output = child.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(10), "{said}");
}

#[test]
fn what_cannot_be_served_is_named() {
    let dir = TempDir::new();
    fs::write(dir.join("file"), "x").unwrap();
    let here = dir.path().to_str().unwrap();
    let (missing, file) = (dir.text("missing"), dir.text("file"));
    for (arguments, code, why) in [
        (&[&missing[..]][..], 2, "cannot serve"),
        (&[&file], 2, "cannot serve"),
        (&[here, "--cert", &file, "--key", &file], 2, "file with"),
        (&[here, "--listen", "nonsense"], 2, "not an IP address"),
        (&[here, "--listen", "192.0.2.1:1"], 3, "cannot listen on"),
    ] {
        let output = Command::new(env!("CARGO_BIN_EXE_clearway"))
            .arg("serve")
            .args(arguments)
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {said}");
        assert!(said.contains(why), "{arguments:?}: {said}");
    }
}

#[tokio::test]
async fn many_requests_on_two_shards() {
    let dir = TempDir::new();
    for n in 0..100 {
        dir.old_file(&n.to_string(), format!("file {n}").as_bytes());
    }
    let site = Site::start(dir.path(), &["--shards", "2"]);
    let clients = [(); 4].map(|()| client());
    let tasks: Vec<_> = (0..100)
        .map(|n| {
            let (client, url) = (clients[n % 4].clone(), format!("{}/{n}", site.url));
            tokio::spawn(async move { (n, get(&client, &url, &[]).await) })
        })
        .collect();
    for task in tasks {
        let (n, (status, _, body)) = task.await.unwrap();
        assert_eq!(StatusCode::OK, status);
        assert_eq!(body, format!("file {n}"));
    }
}
