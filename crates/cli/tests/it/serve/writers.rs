//! Several writers of one file, and what becomes of the file they replace.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::Method;
use tokio::sync::Semaphore;

use crate::serve::client::{ask, client, get, request};
use crate::serve::failing_calls::{Call, with_failing};
use crate::web::{Site, TempDir, pattern};

/// A body whose second half is sent once a permit is there.
struct HeldBody {
    halves: Vec<Bytes>,
    gate: Arc<Semaphore>,
    opening: Option<std::pin::Pin<Box<dyn Future<Output = ()> + Send>>>,
}

impl HeldBody {
    fn new(content: &[u8], gate: &Arc<Semaphore>) -> Self {
        let (first, second) = content.split_at(content.len() / 2);
        let gate = gate.clone();
        Self {
            halves: vec![
                Bytes::copy_from_slice(second),
                Bytes::copy_from_slice(first),
            ],
            gate,
            opening: None,
        }
    }
}

impl http_body::Body for HeldBody {
    type Data = Bytes;
    type Error = std::convert::Infallible;

    fn poll_frame(
        mut self: std::pin::Pin<&mut Self>,
        cx: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Option<Result<http_body::Frame<Bytes>, Self::Error>>> {
        if self.halves.len() == 1 {
            let gate = self.gate.clone();
            let opening = self.opening.get_or_insert_with(|| {
                Box::pin(async move { gate.acquire().await.unwrap().forget() })
            });
            std::task::ready!(opening.as_mut().poll(cx));
        }
        std::task::Poll::Ready(
            self.halves
                .pop()
                .map(|half| Ok(http_body::Frame::data(half))),
        )
    }
}

/// Waits until this many uploads have written something.
async fn wait_for_halves(dir: &TempDir, count: usize) {
    let is_half = |name: &&String| {
        let length = fs::metadata(dir.join(name)).map_or(0, |found| found.len());
        name.starts_with(".clearway-upload.") && length > 0
    };
    while dir.names().iter().filter(is_half).count() < count {
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

/// Two uploads that are under way at the same time, each with its own content and these fields;
/// they end one after the other. Returns their statuses.
async fn two_writers(
    site: &Site,
    dir: &TempDir,
    fields: &[(&str, &str)],
    contents: [&[u8]; 2],
) -> [u16; 2] {
    let url = format!("{}/a", site.url);
    let mut statuses = [0; 2];
    let uploads = contents.map(|content| {
        let gate = Arc::new(Semaphore::new(0));
        let body = HeldBody::new(content, &gate);
        let request = request(Method::PUT, &url, fields).body(body).unwrap();
        let client = client();
        let sending = tokio::spawn(async move { client.request(request).await.unwrap() });
        (gate, sending)
    });
    wait_for_halves(dir, 2).await;
    for (status, (gate, sending)) in statuses.iter_mut().zip(uploads) {
        gate.add_permits(1);
        *status = sending.await.unwrap().status().as_u16();
    }
    statuses
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn second_of_two_writers_with_the_same_if_match_gets_412() {
    let dir = TempDir::new();
    dir.old_file("a", b"before");
    let site = Site::start(dir.path(), &["--writable"]);
    let url = format!("{}/a", site.url);
    let (_, fields, _) = get(&client(), &url, &[]).await;
    let etag = fields["etag"].to_str().unwrap();
    let [first, second] = [pattern(1_200_000), vec![7; 1_200_000]];
    let statuses = two_writers(&site, &dir, &[("if-match", etag)], [&first, &second]).await;
    assert_eq!(statuses, [204, 412]);
    assert!(fs::read(dir.join("a")).unwrap() == first);
    assert_eq!(dir.names(), ["a"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn second_of_two_creators_gets_412() {
    let dir = TempDir::new();
    let site = Site::start(dir.path(), &["--writable"]);
    let [first, second] = [pattern(1_200_000), vec![7; 1_200_000]];
    let only_new = [("if-none-match", "*")];
    let statuses = two_writers(&site, &dir, &only_new, [&first, &second]).await;
    assert_eq!(statuses, [201, 412]);
    assert!(fs::read(dir.join("a")).unwrap() == first);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn file_modified_during_an_upload_with_if_unmodified_since_is_kept() {
    let dir = TempDir::new();
    dir.old_file("a", b"before");
    let site = Site::start(dir.path(), &["--writable"]);
    let since = [("if-unmodified-since", "Sun, 09 Sep 2001 01:46:40 GMT")];
    let gate = Arc::new(Semaphore::new(0));
    let body = HeldBody::new(&pattern(1_200_000), &gate);
    let url = format!("{}/a", site.url);
    let request = request(Method::PUT, &url, &since).body(body).unwrap();
    let sending = tokio::spawn(async move { client().request(request).await.unwrap().status() });
    wait_for_halves(&dir, 1).await;
    // Not through the server.
    fs::write(dir.join("a"), "meanwhile").unwrap();
    gate.add_permits(1);
    assert_eq!(sending.await.unwrap(), 412);
    assert_eq!(fs::read(dir.join("a")).unwrap(), b"meanwhile");
}

/// As on exFAT, or NFS that is exported so.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn creation_without_hard_links_does_not_replace_a_file() {
    let dir = TempDir::new();
    let site = with_failing(&[Call::Link], || Site::start(dir.path(), &["--writable"]));
    let gate = Arc::new(Semaphore::new(0));
    let body = HeldBody::new(&pattern(1_200_000), &gate);
    let url = format!("{}/a", site.url);
    let only_new = [("if-none-match", "*")];
    let held = request(Method::PUT, &url, &only_new).body(body).unwrap();
    let sending = tokio::spawn(async move { client().request(held).await.unwrap().status() });
    wait_for_halves(&dir, 1).await;
    fs::write(dir.join("a"), "meanwhile").unwrap();
    gate.add_permits(1);
    assert_eq!(sending.await.unwrap(), 412);
    assert_eq!(fs::read(dir.join("a")).unwrap(), b"meanwhile");
    // A free name can be had all the same, and a name that is taken replaced.
    let client = client();
    let put = async |name: &str, fields: &[(&str, &str)]| {
        let url = format!("{}/{name}", site.url);
        ask(&client, Method::PUT, &url, fields, b"new").await.0
    };
    assert_eq!(put("b", &only_new).await, 201);
    assert_eq!(put("b", &only_new).await, 412);
    assert_eq!(put("b", &[]).await, 204);
    assert_eq!(put("c", &[]).await, 201);
    assert_eq!(dir.names(), ["a", "b", "c"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn replaced_file_keeps_its_mode_from_the_first_byte_on() {
    let dir = TempDir::new();
    let site = Site::start(dir.path(), &["--writable"]);
    let mode = |name: &str| fs::metadata(dir.join(name)).unwrap().permissions().mode() & 0o7777;
    for kept in [0o600, 0o640, 0o755] {
        fs::write(dir.join("a"), "secret").unwrap();
        fs::set_permissions(dir.join("a"), fs::Permissions::from_mode(kept)).unwrap();
        let gate = Arc::new(Semaphore::new(0));
        let body = HeldBody::new(&pattern(1_200_000), &gate);
        let url = format!("{}/a", site.url);
        let request = request(Method::PUT, &url, &[]).body(body).unwrap();
        let sending =
            tokio::spawn(async move { client().request(request).await.unwrap().status() });
        wait_for_halves(&dir, 1).await;
        let half = dir
            .names()
            .into_iter()
            .find(|name| name.starts_with(".clear"));
        let half = mode(&half.unwrap());
        assert_eq!(
            half & !kept & 0o077,
            0,
            "{kept:o}: {half:o} while it is written"
        );
        gate.add_permits(1);
        assert_eq!(sending.await.unwrap(), 204);
        assert_eq!(mode("a"), kept);
        // In one step.
        assert_eq!(
            ask(&client(), Method::PUT, &url, &[], b"short").await.0,
            204
        );
        assert_eq!(mode("a"), kept);
    }
    // A new file has the mode of any new file.
    fs::write(dir.join("usual"), "").unwrap();
    let url = format!("{}/new", site.url);
    assert_eq!(ask(&client(), Method::PUT, &url, &[], b"x").await.0, 201);
    assert_eq!(mode("new"), mode("usual"));
}

/// What is not on the disk must not be acknowledged: neither the file's data nor its name.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn upload_that_cannot_be_synced_is_not_acknowledged() {
    let dir = TempDir::new();
    dir.old_file("a", b"before");
    let calls = [Call::Sync];
    let site = with_failing(&calls, || Site::start(dir.path(), &["--writable"]));
    let client = client();
    for (name, length) in [("a", 10), ("a", 600_000), ("new", 10), ("new", 600_000)] {
        let url = format!("{}/{name}", site.url);
        let content = pattern(length);
        let (status, _, _) = ask(&client, Method::PUT, &url, &[], &content).await;
        assert_eq!(status, 500, "{name}, {length} bytes");
    }
    assert_eq!(dir.names(), ["a"]);
    assert_eq!(fs::read(dir.join("a")).unwrap(), b"before");
}
