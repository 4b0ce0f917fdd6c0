//! Limits that greedy clients reach.

use std::time::Duration;

use bytes::Bytes;
use clearway::http::Client;
use http::Method;
use http_body_util::Full;
use tokio::task::JoinSet;

use crate::serve::client::{StallingBody, ask, client, client_that_takes_nothing, get, request};
use crate::web::{Site, TempDir, pattern};

/// Maximum time to wait for something that must happen.
pub(super) const PATIENCE: Duration = Duration::from_secs(60);

/// Waits until a condition holds.
pub(super) async fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let waiting = async {
        while !holds() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    let waited = tokio::time::timeout(PATIENCE, waiting).await;
    assert!(waited.is_ok(), "never {what}");
}

/// Starts many requests without reading the responses.
pub(super) fn begin(client: &Client, url: &str, count: usize) -> JoinSet<()> {
    let mut requests = JoinSet::new();
    for _ in 0..count {
        let (client, url) = (client.clone(), url.to_owned());
        requests.spawn(async move {
            let _answer = client.get(&url).await;
            std::future::pending::<()>().await;
        });
    }
    requests
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stalled_downloads_leave_files_and_memory_to_others() {
    let dir = TempDir::new();
    let content = pattern(1 << 20);
    dir.old_file("large", &content);
    dir.old_file("small", b"text");
    let site = Site::start_with_descriptors(1_024, dir.path(), &[]);
    let [large, small] = ["large", "small"].map(|name| format!("{}/{name}", site.url));
    let greedy: Vec<_> = (0..11).map(|_| client_that_takes_nothing()).collect();
    let requests: Vec<_> = greedy
        .iter()
        .map(|client| begin(client, &large, 100))
        .collect();
    // As many as may stay open do.
    until("many open files", || site.descriptors() >= 452).await;
    let client = client();
    let mut most = 0;
    for _ in 0..50 {
        let (status, _, body) = get(&client, &large, &[]).await;
        assert_eq!((status, body == content), (200, true));
        let (status, _, body) = get(&client, &small, &[]).await;
        assert_eq!((status, &body[..]), (200, &b"text"[..]));
        most = most.max(site.descriptors());
    }
    assert!(most < 700, "{most} descriptors");
    assert!(site.descriptors() >= 452, "they are still there");
    let memory = site.memory();
    assert!(memory < 256, "{memory} MiB");
    drop(requests);
    for client in greedy {
        client.close().await;
    }
    until("closed again", || site.descriptors() < 100).await;
}

/// A directory with so many files.
fn crowded(entries: usize) -> TempDir {
    let dir = TempDir::new();
    std::fs::create_dir(dir.join("many")).unwrap();
    for n in 0..entries {
        std::fs::File::create(dir.join(&format!("many/entry-{n:06}"))).unwrap();
    }
    dir.old_file("small", b"text");
    dir
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unread_listings_use_little_memory() {
    let dir = crowded(20_000);
    let site = Site::start(dir.path(), &[]);
    let many = format!("{}/many/", site.url);
    let newcomer = client();
    let before = {
        let (status, _, page) = get(&newcomer, &many, &[]).await;
        let page = String::from_utf8(page.to_vec()).unwrap();
        let listed: Vec<_> = page
            .lines()
            .filter(|line| line.contains("entry-"))
            .collect();
        assert_eq!((status, listed.len()), (200, 20_000));
        assert!(listed.is_sorted() && page.ends_with("</table></body></html>\n"));
        site.memory()
    };
    let greedy: Vec<_> = (0..3).map(|_| client_that_takes_nothing()).collect();
    let _requests: Vec<_> = greedy
        .iter()
        .map(|client| begin(client, &many, 100))
        .collect();
    for _ in 0..10 {
        let (status, _, page) = get(&newcomer, &many, &[]).await;
        assert_eq!((status, page.len() > 1_000_000), (200, true));
    }
    let grown = site.memory().saturating_sub(before);
    assert!(grown < 100, "{grown} MiB for 300 listings");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn abandoned_listings_are_not_generated() {
    let dir = crowded(20_000);
    let site = Site::start(dir.path(), &[]);
    let [many, small, last] =
        ["many/", "small", "small?last"].map(|name| format!("{}/{name}", site.url));
    let newcomer = client();
    get(&newcomer, &small, &[]).await;
    let work = site.work();
    for _ in 0..4 {
        let hostile = client();
        get(&hostile, &small, &[]).await;
        for _ in 0..5 {
            let mut requests = begin(&hostile, &many, 50);
            tokio::time::sleep(Duration::from_millis(2)).await;
            requests.abort_all();
        }
    }
    let (status, _, body) = get(&newcomer, &last, &[]).await;
    assert_eq!((status, &body[..]), (200, &b"text"[..]));
    // A whole listing takes some 50 ms of this build; all of them, 50 s.
    let work = site.work() - work;
    assert!(work < 500, "{work} hundredths of a second");
    let mut abandoned = 0;
    loop {
        let line = site.logged();
        abandoned += usize::from(line["target"] == "/many/" && line["complete"] == false);
        if line["target"] == "/small?last" {
            break;
        }
    }
    // Of a busy client some do not leave before they are abandoned. As many would take 7.5 s.
    assert!(abandoned >= 150, "only {abandoned} were abandoned");
}

/// Starts many uploads that never end.
fn dribble(client: &Client, url: &str, count: usize, bytes: usize) -> JoinSet<()> {
    let mut uploads = JoinSet::new();
    let content = Bytes::from(pattern(bytes));
    for n in 0..count {
        let body = StallingBody(Some(content.clone()));
        let request = request(Method::PUT, &format!("{url}{n}"), &[]).body(body);
        let (client, request) = (client.clone(), request.unwrap());
        uploads.spawn(async move {
            let _ = client.request(request).await;
        });
    }
    uploads
}

/// Small ones have no file before they are whole, and large ones take turns.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn slow_uploads_leave_files_to_others_and_no_leftovers() {
    for (limit, clients, each, bytes) in [(1_024, 11, 100, 10), (256, 4, 30, 300_000)] {
        let dir = TempDir::new();
        let site = Site::start_with_descriptors(limit, dir.path(), &["--writable"]);
        let url = format!("{}/", site.url);
        let greedy: Vec<_> = (0..clients).map(|_| client()).collect();
        let mut uploads: Vec<_> = greedy
            .iter()
            .map(|client| dribble(client, &url, each, bytes))
            .collect();
        if bytes > 100_000 {
            until("under way", || dir.names().len() >= 12).await;
        }
        let newcomer = client();
        for n in 0..50 {
            let url = format!("{url}new-{n}");
            let (status, ..) = ask(&newcomer, Method::PUT, &url, &[], b"text").await;
            assert_eq!(status, 201);
        }
        let open = site.descriptors();
        assert!(open < limit as usize * 3 / 4, "{open} of {limit}");
        for uploads in &mut uploads {
            uploads.abort_all();
        }
        for client in greedy {
            client.close().await;
        }
        until("tidy", || {
            let names = dir.names();
            names.iter().all(|name| name.starts_with("new-")) && names.len() == 50
        })
        .await;
    }
}

#[tokio::test]
async fn upload_above_the_size_limit_is_rejected() {
    let dir = TempDir::new();
    let site = Site::start(dir.path(), &["--writable", "--max-upload", "1MB"]);
    let client = client();
    let url = format!("{}/a", site.url);
    for (bytes, expected) in [(1_000_001, 413), (1_000_000, 201)] {
        let (status, ..) = ask(&client, Method::PUT, &url, &[], &pattern(bytes)).await;
        assert_eq!(status, expected, "{bytes}");
    }
    // One that does not say how long it is.
    let content = Full::new(Bytes::from(pattern(1_200_000)));
    let unsized_body = http_body_util::StreamBody::new(http_body_util::BodyStream::new(content));
    let request = request(Method::PUT, &url, &[]).body(unsized_body).unwrap();
    assert_eq!(client.request(request).await.unwrap().status(), 413);
    assert_eq!(dir.names(), ["a"]);
    assert_eq!(std::fs::metadata(dir.join("a")).unwrap().len(), 1_000_000);
}

#[tokio::test]
async fn connections_are_limited_in_total_and_per_untrusted_source() {
    let dir = TempDir::new();
    dir.old_file("small", b"text");
    let bound = ["--max-connections-per-source", "3"];
    for (options, expected) in [
        (&[][..], 3),
        (&["--trust", "10.0.0.0/8"], 3),
        (&["--trust", "10.0.0.0/8", "--trust", "127.0.0.1"], 6),
        (&["--trust", "127.0.0.0/8", "--max-connections", "4"], 4),
        // Wherever the kernel has them land.
        (&["--shards", "4"], 3),
        (
            &[
                "--shards",
                "4",
                "--trust",
                "127.0.0.0/8",
                "--max-connections",
                "4",
            ],
            4,
        ),
    ] {
        let site = Site::start(dir.path(), &[&bound, options].concat());
        let port = site.url.rsplit(':').next().unwrap();
        let url = format!("https://127.0.0.1:{port}/small");
        let mut clients = Vec::new();
        for _ in 0..6 {
            let client = client();
            if client.get(&url).await.is_ok() {
                clients.push(client);
            }
        }
        assert_eq!(clients.len(), expected, "{options:?}");
    }
}
