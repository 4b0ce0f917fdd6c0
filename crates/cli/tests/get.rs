//! `clearway get` as a user runs it.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod web;

use std::convert::Infallible;
use std::fs;
use std::io::Write as _;
use std::net::UdpSocket;
use std::path::Path;
use std::pin::Pin;
use std::process::{Child, Command, Output, Stdio};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use clearway::http::{Incoming, Server};
use clearway::{DevelopmentIdentity, ServerConfig};
use http::{Request, Response};
use http_body::{Body, Frame, SizeHint};
use rustix::process::Signal;
use serde_json::Value;
use web::{Site, TempDir, pattern, send};

fn start(arguments: &[&str]) -> Child {
    Command::new(env!("CARGO_BIN_EXE_clearway"))
        .arg("get")
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
}

fn get(arguments: &[&str]) -> Output {
    start(arguments).wait_with_output().unwrap()
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Runs it and expects this exit code.
fn expect(code: i32, arguments: &[&str]) -> Output {
    let output = get(arguments);
    assert_eq!(
        output.status.code(),
        Some(code),
        "{arguments:?}: {}",
        said(&output)
    );
    output
}

#[test]
fn content_goes_where_it_is_told() {
    let (site_dir, out) = (TempDir::new(), TempDir::new());
    let content = pattern(2_000_000);
    site_dir.old_file("a b.bin", &content);
    site_dir.old_file("c.txt", b"text");
    let site = Site::start(site_dir.path(), &[]);
    let [large, small] = ["a%20b.bin", "c.txt"].map(|name| format!("{}/{name}", site.url));
    let here = out.path().to_str().unwrap();

    let output = expect(0, &[&large, "-k"]);
    assert!(output.stdout == content);
    let text = said(&output);
    assert!(text.starts_with("2000000 bytes received, "), "{text}");
    assert!(text.contains(" packets lost\nlimited by: "), "{text}");
    assert!(text.ends_with("(the server's record)\n"), "{text}");

    // Without the scheme; both, one after the other.
    let short = small.strip_prefix("https://").unwrap();
    let output = expect(0, &[short, &small, "-k", "-s"]);
    assert_eq!(
        (&output.stdout[..], said(&output)),
        (&b"texttext"[..], String::new())
    );

    expect(0, &[&large, &small, "-k", "-O", "--output-dir", here]);
    assert!(fs::read(out.join("a b.bin")).unwrap() == content);
    assert_eq!(fs::read(out.join("c.txt")).unwrap(), b"text");
    assert_eq!(out.names(), ["a b.bin", "c.txt"]);

    let file = out.text("named");
    let output = expect(0, &[&small, "-k", "-o", &file, "--json"]);
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&report["bytes"], &report["done"]), (&4.into(), &1.into()));
    assert_eq!(report["breakdown_by"], "server");
    assert!(report["breakdown"]["application"].is_number(), "{report}");
    assert!(report["packets_lost"].is_number());
    assert_eq!(fs::read(&file).unwrap(), b"text");

    expect(0, &[&small, "-k", "-o", "/dev/null"]);
    assert!(!Path::new("/dev/null").is_file());
}

#[test]
fn heads_are_printed() {
    let dir = TempDir::new();
    dir.old_file("c.txt", b"text");
    let site = Site::start(dir.path(), &[]);
    let url = format!("{}/c.txt", site.url);
    let head = expect(0, &["-I", "-k", &url]).stdout;
    let head = String::from_utf8(head).unwrap();
    assert!(head.starts_with("HTTP/3 200 OK\r\n"), "{head}");
    assert!(head.contains("content-length: 4\r\n"), "{head}");
    assert!(head.ends_with("\r\n\r\n"), "{head}");
    let both = expect(0, &["-i", "-k", &url]).stdout;
    assert!(String::from_utf8(both).unwrap().ends_with("\r\n\r\ntext"));
    let none = expect(
        0,
        &[
            "-k",
            &url,
            "-H",
            "If-Modified-Since: Sun, 09 Sep 2001 01:46:40 GMT",
        ],
    );
    assert!(none.stdout.is_empty());
    let file = dir.text("head");
    expect(0, &["-I", "-k", &url, "-o", &file]);
    assert!(fs::read(file).unwrap().starts_with(b"HTTP/3 200"));
}

#[test]
fn a_thousand_files_over_one_connection() {
    let (site_dir, out) = (TempDir::new(), TempDir::new());
    let mut list = String::new();
    let site = Site::start(site_dir.path(), &[]);
    for n in 0..1_000 {
        fs::write(site_dir.join(&n.to_string()), pattern(n)).unwrap();
        list.push_str(&format!("{}/{n}\n", site.url));
    }
    let here = out.path().to_str().unwrap();
    let mut child = start(&["--urls", "-", "-k", "-O", "--output-dir", here, "--json"]);
    child
        .stdin
        .take()
        .unwrap()
        .write_all(list.as_bytes())
        .unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", said(&output));
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(
        (&report["done"], &report["failed"]),
        (&1000.into(), &0.into())
    );
    assert_eq!(report["bytes"], 999 * 1000 / 2);
    for n in 0..1_000 {
        assert!(
            fs::read(out.join(&n.to_string())).unwrap() == pattern(n),
            "{n}"
        );
    }
    assert_eq!(out.names().len(), 1_000);
    let first = site.logged()["remote"].clone();
    for _ in 1..1_000 {
        assert_eq!(site.logged()["remote"], first, "one connection");
    }
}

#[test]
fn uploads_arrive() {
    let (site_dir, here) = (TempDir::new(), TempDir::new());
    let content = pattern(3_000_000);
    here.old_file("up load", &content);
    let site = Site::start(site_dir.path(), &["--writable"]);
    let (file, root) = (here.text("up load"), format!("{}/", site.url));
    let output = expect(0, &["-T", &file, &root, "-k"]);
    assert!(fs::read(site_dir.join("up load")).unwrap() == content);
    let text = said(&output);
    assert!(text.starts_with("3000000 bytes sent, "), "{text}");
    assert!(text.ends_with("(our record)\n"), "{text}");
    let named = format!("{}/named", site.url);
    let data = format!("@{file}");
    expect(0, &["-d", &data, "-X", "PUT", &named, "-k"]);
    assert!(fs::read(site_dir.join("named")).unwrap() == content);
    expect(0, &["-d", "a=b", "-X", "PUT", &named, "-k"]);
    assert_eq!(fs::read(site_dir.join("named")).unwrap(), b"a=b");
    let refused = expect(9, &["-d", "a=b", &named, "-k"]);
    assert!(said(&refused).contains("405 Method Not Allowed"));
}

#[test]
fn failures_are_one_line_and_told_apart_by_their_exit_codes() {
    let dir = TempDir::new();
    dir.old_file("a", b"x");
    let site = Site::start(dir.path(), &[]);
    let [there, missing] = ["a", "missing"].map(|name| format!("{}/{name}", site.url));
    let mute = UdpSocket::bind("127.0.0.1:0").unwrap();
    let silent = format!("https://{}/", mute.local_addr().unwrap());
    let other = DevelopmentIdentity::generate(["localhost"]).unwrap();
    fs::write(dir.join("other.pem"), other.certificate_pem()).unwrap();
    let other_pem = dir.text("other.pem");
    let fingerprint = other.fingerprint().to_string();
    let unwritable = dir.text("none/file");
    for (arguments, code, why) in [
        (&[&missing[..], "-k"][..], 9, "404 Not Found"),
        (&[&there, &missing, "-k"], 9, "1 of 2 failed; first: "),
        (&[&there, "--cacert", &other_pem], 7, "certificate"),
        (&[&there, "--fingerprint", &fingerprint], 7, "certificate"),
        (
            &[&silent, "-k", "--connect-timeout", "200ms"],
            4,
            "no answer in 200ms",
        ),
        (&[&silent, "-k", "-m", "200ms"], 6, "not done after 200ms"),
        (
            &["https://no.such.host.invalid/", "-k"],
            3,
            "cannot resolve",
        ),
        (&["http://localhost/", "-k"], 2, "https"),
        (&["https://", "-k"], 2, "is no URL"),
        (&["-k"], 2, "URL"),
        (&[&there, "-k", "-o", &unwritable], 8, "cannot write"),
        (
            &[&there, "-k", "-o", "/dev/full"],
            8,
            "cannot write /dev/full",
        ),
        (
            &[&there, "-k", "--cacert", "/none"],
            2,
            "cannot be used with",
        ),
        (&[&there, "--cacert", "/none"], 2, "cannot read /none"),
        (&[&there, &there, "-k", "-O"], 2, "two URLs"),
        (&[&site.url, "-k", "-O"], 2, "no file name"),
        (&[&there, "-k", "-T", "/none"], 2, "cannot read /none"),
    ] {
        let output = expect(code, arguments);
        let text = said(&output);
        assert!(text.contains(why), "{arguments:?}: {text}");
        let single = !text.contains("Usage") && !text.contains(" of 2 ");
        assert!(
            !single || text.lines().count() == 1,
            "{arguments:?}: {text}"
        );
    }
    let body = expect(0, &[&missing, "-k", "--no-fail"]).stdout;
    assert_eq!(body, b"404 Not Found\n");
    assert!(!dir.join("missing").exists());
}

#[test]
fn secrets_are_logged_if_asked_for() {
    let dir = TempDir::new();
    dir.old_file("a", b"x");
    let site = Site::start(dir.path(), &[]);
    let log = dir.text("keys");
    for (options, logged) in [(&["-k"][..], false), (&["-k", "--keylog"], true)] {
        let output = Command::new(env!("CARGO_BIN_EXE_clearway"))
            .args(["get", &format!("{}/a", site.url)])
            .args(options)
            .env("SSLKEYLOGFILE", &log)
            .output()
            .unwrap();
        assert!(output.status.success());
        let text = fs::read_to_string(&log).unwrap_or_default();
        assert_eq!(text.contains("CLIENT_TRAFFIC_SECRET_0 "), logged);
    }
}

/// How a server of the tests answers its next request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mood {
    /// All of it, but half way it stops for ever.
    Stall,
    /// Half of it, then the stream is reset.
    Reset,
    /// As it should.
    Proper,
    /// Other content with the same tag: what must not be appended.
    Liar,
    /// A range nobody asked for.
    Elsewhere,
    /// Other content, and it says so.
    Changed,
}

/// A server with one file and moods.
struct Moody {
    content: Bytes,
    mood: Mutex<Mood>,
    /// The `range` and `if-range` fields of all requests.
    asked: Mutex<Vec<(String, String)>>,
}

struct Content {
    pieces: Vec<Bytes>,
    length: u64,
    mood: Mood,
}

impl Body for Content {
    type Data = Bytes;
    type Error = std::io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<std::io::Result<Frame<Bytes>>>> {
        match (self.pieces.pop(), self.mood) {
            (Some(piece), _) => Poll::Ready(Some(Ok(Frame::data(piece)))),
            (None, Mood::Stall) => Poll::Pending,
            (None, Mood::Reset) => Poll::Ready(Some(Err(std::io::Error::other("enough")))),
            (None, _) => Poll::Ready(None),
        }
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.length)
    }
}

impl Moody {
    fn answer(&self, request: &Request<Incoming>) -> Response<Content> {
        let field = |name: &str| {
            let value = request.headers().get(name);
            value.map_or_else(String::new, |value| value.to_str().unwrap().to_owned())
        };
        let (range, if_range) = (field("range"), field("if-range"));
        self.asked
            .lock()
            .unwrap()
            .push((range.clone(), if_range.clone()));
        let mood = *self.mood.lock().unwrap();
        let whole = match mood {
            Mood::Liar | Mood::Changed => Bytes::from(vec![7; self.content.len()]),
            _ => self.content.clone(),
        };
        let etag = if mood == Mood::Changed {
            "\"2\""
        } else {
            "\"1\""
        };
        let total = whole.len();
        let first = (if_range == etag && !range.is_empty()).then(|| {
            let first = range
                .strip_prefix("bytes=")
                .and_then(|range| range.strip_suffix('-'));
            first.unwrap().parse::<usize>().unwrap()
        });
        let first = first.map(|first| first + usize::from(mood == Mood::Elsewhere));
        let rest = whole.slice(first.unwrap_or(0)..);
        let length = rest.len() as u64;
        let sent = match mood {
            Mood::Stall | Mood::Reset => rest.slice(..rest.len() / 2),
            _ => rest,
        };
        let pieces = sent
            .chunks(100_000)
            .rev()
            .map(Bytes::copy_from_slice)
            .collect();
        let mut response = Response::builder().header("etag", etag);
        if let Some(first) = first {
            let range = format!("bytes {first}-{}/{total}", total - 1);
            response = response.status(206).header("content-range", range);
        }
        let content = Content {
            pieces,
            length,
            mood,
        };
        response.body(content).unwrap()
    }

    fn is(&self, mood: Mood) {
        *self.mood.lock().unwrap() = mood;
    }

    /// Serves on another thread, as long as the test runs.
    fn serve(content: &[u8]) -> (Arc<Self>, Server, String) {
        let moody = Arc::new(Self {
            content: Bytes::copy_from_slice(content),
            mood: Mutex::new(Mood::Proper),
            asked: Mutex::default(),
        });
        let identity = DevelopmentIdentity::generate(["localhost"]).unwrap();
        let config =
            ServerConfig::with_identity(identity.certificate_pem(), identity.key_pem()).unwrap();
        let runtime = tokio::runtime::Runtime::new().unwrap();
        let (tell, told) = std::sync::mpsc::channel();
        let service = Service(moody.clone());
        std::thread::spawn(move || {
            runtime.block_on(async {
                let server = Server::bind("127.0.0.1:0".parse().unwrap(), config).unwrap();
                tell.send(server.clone()).unwrap();
                server.serve(service).await;
            });
        });
        let server = told.recv().unwrap();
        let url = format!("https://localhost:{}/file", server.local_addr().port());
        (moody, server, url)
    }
}

#[derive(Clone)]
struct Service(Arc<Moody>);

impl tower_service::Service<Request<Incoming>> for Service {
    type Response = Response<Content>;
    type Error = Infallible;
    type Future = std::future::Ready<Result<Response<Content>, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Incoming>) -> Self::Future {
        std::future::ready(Ok(self.0.answer(&request)))
    }
}

/// Waits until so much of a download is on the disk.
fn wait_for(file: &Path, length: u64) {
    while fs::metadata(file).map_or(0, |found| found.len()) < length {
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn a_killed_download_is_gone_on_with() {
    let content = pattern(4_000_000);
    let (moody, _server, url) = Moody::serve(&content);
    let out = TempDir::new();
    let arguments = [
        "-k",
        "-O",
        "-C",
        "--output-dir",
        out.path().to_str().unwrap(),
        &url,
    ];
    moody.is(Mood::Stall);
    let mut child = start(&arguments);
    wait_for(&out.join("file.part"), 1_000_000);
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(out.names(), ["file.part", "file.part.json"]);
    let kept = fs::metadata(out.join("file.part")).unwrap().len();
    moody.is(Mood::Proper);
    let output = get(&arguments);
    assert!(output.status.success(), "{}", said(&output));
    assert!(fs::read(out.join("file")).unwrap() == content);
    assert_eq!(out.names(), ["file"]);
    let asked = moody.asked.lock().unwrap().clone();
    let range = format!("bytes={}-", kept - 65_536);
    assert_eq!(asked, [("".into(), "".into()), (range, "\"1\"".to_owned())]);
    assert!(
        said(&output).contains(" kept from before, "),
        "{}",
        said(&output)
    );
    assert!(said(&output).contains("(inferred: the server did not tell)"));
}

#[test]
fn what_is_not_the_same_content_is_never_joined() {
    let content = pattern(2_000_000);
    let (moody, _server, url) = Moody::serve(&content);
    let out = TempDir::new();
    let arguments = [
        "-k",
        "-O",
        "-C",
        "--output-dir",
        out.path().to_str().unwrap(),
        &url,
    ];
    for mood in [Mood::Liar, Mood::Elsewhere, Mood::Changed] {
        moody.is(Mood::Reset);
        let broken = expect(10, &arguments);
        assert!(said(&broken).contains("-C goes on"), "{}", said(&broken));
        assert_eq!(said(&broken).lines().count(), 1);
        moody.is(mood);
        let output = expect(0, &arguments);
        assert!(
            said(&output).contains("from the beginning"),
            "{}",
            said(&output)
        );
        let got = fs::read(out.join("file")).unwrap();
        let expected = match mood {
            Mood::Elsewhere => &content[..],
            _ => &[7; 2_000_000],
        };
        assert!(got == expected, "{mood:?}");
        assert_eq!(out.names(), ["file"]);
        fs::remove_file(out.join("file")).unwrap();
    }
}

#[test]
fn a_server_that_goes_away_half_way_is_an_error_of_its_own() {
    let (moody, server, url) = Moody::serve(&pattern(2_000_000));
    moody.is(Mood::Stall);
    let out = TempDir::new();
    let child = start(&["-k", "-o", &out.text("file"), &url]);
    wait_for(&out.join("file.part"), 500_000);
    server.endpoint().close(0x100, b"gone");
    let output = child.wait_with_output().unwrap();
    let text = said(&output);
    assert_eq!(output.status.code(), Some(10), "{text}");
    assert!(
        text.contains(" after 1000000 bytes; 1000000 are in "),
        "{text}"
    );
    assert_eq!(out.names(), ["file.part", "file.part.json"]);
}

#[test]
fn a_signal_ends_it_with_a_word() {
    let (moody, _server, url) = Moody::serve(&pattern(2_000_000));
    moody.is(Mood::Stall);
    let out = TempDir::new();
    let child = start(&["-k", "-o", &out.text("file"), &url]);
    wait_for(&out.join("file.part"), 500_000);
    send(&child, Signal::INT);
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(130));
    assert_eq!(said(&output), "error: interrupted by SIGINT\n");
    assert!(!out.join("file").exists());
}
