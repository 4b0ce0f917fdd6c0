//! `--observe`: who may look, and what is shown.

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::time::Duration;

use serde_json::Value;

use crate::common::{clearway, stderr};
use crate::viewer::Viewer;
use crate::web::{Site, TempDir, pattern};

const TOKEN: &str = "0123456789abcdef";
/// What nobody who observes may see.
const SECRET: &str = "Zebra-4711";

/// A server that is observed.
struct Observed {
    site: Site,
    /// `ADDR:PORT` of the observation.
    address: String,
}

impl Observed {
    fn start(dir: &TempDir, options: &[&str]) -> Self {
        let site = Site::start(dir.path(), options);
        let line = site.logged();
        assert_eq!(line["event"], "observing");
        let address = line["address"].as_str().unwrap().to_owned();
        assert_eq!(line["url"], format!("http://{address}/"));
        Self { site, address }
    }

    /// Sends a request as it stands; returns the response.
    fn send(&self, request: &str) -> String {
        let mut stream = TcpStream::connect(&self.address).unwrap();
        stream.write_all(request.as_bytes()).unwrap();
        let mut response = String::new();
        stream.read_to_string(&mut response).unwrap();
        response
    }

    fn get(&self, path: &str) -> String {
        let address = &self.address;
        let response = self.send(&format!("GET {path} HTTP/1.1\r\nHost: {address}\r\n\r\n"));
        let (head, body) = response.split_once("\r\n\r\n").unwrap();
        assert!(
            head.starts_with("HTTP/1.1 200 OK\r\n"),
            "{path}: {response}"
        );
        body.to_owned()
    }

    fn connections(&self) -> Vec<Value> {
        serde_json::from_str(&self.get("/connections")).unwrap()
    }

    /// The value of a metric.
    fn metric(&self, name: &str) -> f64 {
        let text = self.get("/metrics");
        let line = text
            .lines()
            .find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        line.unwrap_or_else(|| panic!("no {name}: {text}"))
            .parse()
            .unwrap()
    }

    /// Fetches a file of the server.
    fn fetch(&self, name: &str) -> Vec<u8> {
        let dir = TempDir::new();
        let url = format!("{}/{name}", self.site.url);
        let output = clearway(&["get", "--insecure", "-o", &dir.text("got"), &url]);
        assert!(output.status.success(), "{}", stderr(&output));
        fs::read(dir.join("got")).unwrap()
    }
}

/// A stream of server-sent events.
struct Live(BufReader<TcpStream>);

impl Live {
    fn open(address: &str) -> Self {
        let mut stream = TcpStream::connect(address).unwrap();
        stream
            .set_read_timeout(Some(Duration::from_secs(60)))
            .unwrap();
        let request = format!("GET /live HTTP/1.1\r\nHost: {address}\r\n\r\n");
        stream.write_all(request.as_bytes()).unwrap();
        let mut live = Self(BufReader::new(stream));
        let head = live.until(str::is_empty);
        assert!(head.contains("content-type: text/event-stream"), "{head}");
        live
    }

    /// Reads lines up to the first of this kind.
    fn until(&mut self, last: impl Fn(&str) -> bool) -> String {
        let mut all = String::new();
        loop {
            let mut line = String::new();
            assert!(self.0.read_line(&mut line).unwrap() > 0, "ended: {all}");
            all.push_str(&line);
            if last(line.trim_end()) {
                return all;
            }
        }
    }

    /// The next list.
    fn next(&mut self) -> Vec<Value> {
        let text = self.until(|line| line.starts_with("data: "));
        let json = text.lines().last().unwrap().strip_prefix("data: ").unwrap();
        serde_json::from_str(json).unwrap()
    }
}

#[test]
fn nothing_is_observed_unless_asked_for() {
    let dir = TempDir::new();
    fs::write(dir.join("a"), b"a").unwrap();
    let site = Site::start(dir.path(), &[]);
    let url = format!("{}/a", site.url);
    let got = dir.text("got");
    assert!(
        clearway(&["get", "--insecure", "-o", &got, &url])
            .status
            .success()
    );
    // The first line after `listening` is the request.
    assert_eq!(site.logged()["event"], "request");
    let tables = format!("/proc/{}/net/tcp", site.child.id());
    let inode_of = |line: &str| line.split_whitespace().nth(9).map(str::to_owned);
    let listening: Vec<String> = fs::read_to_string(tables)
        .unwrap()
        .lines()
        .filter(|line| line.split_whitespace().nth(3) == Some("0A"))
        .filter_map(inode_of)
        .collect();
    for entry in fs::read_dir(format!("/proc/{}/fd", site.child.id())).unwrap() {
        let Ok(target) = fs::read_link(entry.unwrap().path()) else {
            continue;
        };
        let target = target.to_string_lossy().into_owned();
        let own = listening
            .iter()
            .any(|inode| target == format!("socket:[{inode}]"));
        assert!(!own, "it listens for TCP: {target}");
    }
}

#[test]
fn connections_and_metrics_are_shown_without_names_headers_or_content() {
    let dir = TempDir::new();
    let mut content = pattern(300_000);
    content.extend_from_slice(SECRET.as_bytes());
    fs::write(dir.join(SECRET), &content).unwrap();
    let observed = Observed::start(&dir, &["--observe"]);
    assert!(
        observed.address.starts_with("127.0.0.1:"),
        "{}",
        observed.address
    );
    assert!(observed.connections().is_empty());
    assert!(observed.fetch(SECRET) == content);
    let list = observed.connections();
    assert_eq!(list.len(), 1, "{list:?}");
    assert!(list[0]["title"].as_str().unwrap().starts_with("127.0.0.1:"));
    assert!(list[0]["headline"].as_str().unwrap().ends_with('.'));
    let panel = observed.get(&format!("/connections/{}", list[0]["id"]));
    let json: Value = serde_json::from_str(&panel).unwrap();
    assert_eq!(json["lanes"][0]["name"], "Window and bytes in flight");
    assert_eq!(json["facts"][0][1], "server");
    assert!(observed.metric("quic_sent_bytes_total") > 300_000.0);
    assert_eq!(observed.metric("quic_connections_total"), 1.0);
    assert_eq!(
        observed.metric("quic_findings_total{kind=\"floor_pinned\"}"),
        0.0
    );
    let limited: f64 = ["handshake", "congestion", "pacing", "application"]
        .map(|reason| {
            observed.metric(&format!(
                "quic_limited_seconds_total{{reason=\"{reason}\"}}"
            ))
        })
        .iter()
        .sum();
    assert!(limited > 0.0, "{limited}");
    for path in [
        "/",
        "/metrics",
        "/connections",
        &format!("/connections/{}", list[0]["id"]),
    ] {
        let shown = observed.get(path);
        for hidden in [SECRET, "clearway/", "user-agent", "trailers"] {
            assert!(!shown.contains(hidden), "{path} shows {hidden}");
        }
    }
    assert!(
        observed
            .send("GET /connections/99 HTTP/1.1\r\nHost: x\r\n\r\n")
            .contains(" 403 ")
    );
    let own = &observed.address;
    for (request, status) in [
        (
            format!("GET /connections/99 HTTP/1.1\r\nHost: {own}\r\n\r\n"),
            "404",
        ),
        (
            format!("GET /connections/x HTTP/1.1\r\nHost: {own}\r\n\r\n"),
            "404",
        ),
        (format!("GET /etc HTTP/1.1\r\nHost: {own}\r\n\r\n"), "404"),
        (
            format!("POST /metrics HTTP/1.1\r\nHost: {own}\r\n\r\n"),
            "405",
        ),
        (
            "GET /metrics HTTP/1.1\r\nHost: evil.example\r\n\r\n".to_owned(),
            "403",
        ),
        (
            "GET /live HTTP/1.1\r\nHost: localhost.evil.example\r\n\r\n".to_owned(),
            "403",
        ),
        (
            format!("GET /metrics HTTP/1.1\r\nHost: {own}\r\nOrigin: http://evil.example\r\n\r\n"),
            "403",
        ),
        ("GET /metrics HTTP/1.1\r\n\r\n".to_owned(), "403"),
        ("nonsense\r\n\r\n".to_owned(), "400"),
    ] {
        let answer = observed.send(&request);
        assert!(
            answer.starts_with(&format!("HTTP/1.1 {status} ")),
            "{request}: {answer}"
        );
    }
}

#[test]
fn live_stream_tells_of_a_connection_when_it_begins_and_when_it_ends() {
    let dir = TempDir::new();
    fs::write(dir.join("a"), pattern(10_000)).unwrap();
    let observed = Observed::start(&dir, &["--observe"]);
    let mut live = Live::open(&observed.address);
    assert!(live.next().is_empty());
    observed.fetch("a");
    let mut list = live.next();
    assert_eq!(list.len(), 1);
    let id = list[0]["id"].clone();
    // It may be seen open first.
    while list[0]["open"] == true {
        list = live.next();
    }
    assert_eq!((&list[0]["id"], list.len()), (&id, 1));
    observed.fetch("a");
    while list.len() < 2 {
        list = live.next();
    }
}

#[test]
fn addresses_of_other_hosts_need_a_token_and_a_name() {
    let dir = TempDir::new();
    let served = TempDir::new();
    let token = dir.text("token");
    fs::write(&token, format!("# of the dashboard\n{TOKEN}\n")).unwrap();
    let path = served.text("");
    for wanted in ["0.0.0.0:0", "[::]:0", "192.0.2.1:1"] {
        let output = clearway(&[
            "serve",
            &path,
            "--listen",
            "127.0.0.1:0",
            "--observe",
            wanted,
        ]);
        assert_eq!(output.status.code(), Some(2));
        let expected = "expected --observe-token FILE, because other hosts can reach this address";
        assert!(stderr(&output).contains(expected), "{}", stderr(&output));
    }
    let options = ["--observe", "0.0.0.0:0", "--observe-token", &token];
    let mut observed = Observed::start(&served, &options);
    let port = observed.address.rsplit(':').next().unwrap().to_owned();
    observed.address = format!("127.0.0.1:{port}");
    let ask = |host: &str, authorization: &str| {
        let request = format!("GET /metrics HTTP/1.1\r\nHost: {host}\r\n{authorization}\r\n");
        observed.send(&request)[9..12].to_owned()
    };
    let own = observed.address.as_str();
    let good = format!("Authorization: Bearer {TOKEN}\r\n");
    assert_eq!(ask(own, &good), "200");
    assert_eq!(ask(own, ""), "401");
    assert_eq!(
        ask(own, "Authorization: Bearer 0123456789abcdeF\r\n"),
        "401"
    );
    assert_eq!(ask(&format!("host.example:{port}"), &good), "403");
    assert_eq!(ask(&format!("192.0.2.7:{port}"), &good), "200");
}

#[test]
fn viewer_follows_a_running_server() {
    let dir = TempDir::new();
    fs::write(dir.join("a"), pattern(10_000)).unwrap();
    let token = TempDir::new();
    let file = token.text("token");
    fs::write(&file, TOKEN).unwrap();
    let observed = Observed::start(
        &dir,
        &["--observe", "127.0.0.1:0", "--observe-token", &file],
    );
    let url = format!("http://{}/", observed.address);
    let refused = clearway(&["view", "--no-open", &url]);
    assert_eq!(refused.status.code(), Some(4));
    assert!(
        stderr(&refused).contains("status 401"),
        "{}",
        stderr(&refused)
    );
    let viewer = Viewer::start(&[&url, "--token", &file]);
    let mut live = Live::open(&viewer.address);
    assert!(live.next().is_empty());
    observed.fetch("a");
    let list = live.next();
    let mut stream = TcpStream::connect(&viewer.address).unwrap();
    let (id, host) = (&list[0]["id"], &viewer.address);
    write!(
        stream,
        "GET /connections/{id} HTTP/1.1\r\nHost: {host}\r\n\r\n"
    )
    .unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer:.200}");
    let (_, body) = answer.split_once("\r\n\r\n").unwrap();
    let panel: Value = serde_json::from_str(body).unwrap();
    assert!(panel["headline"].is_string());
}

#[test]
fn viewer_follows_a_file_that_grows() {
    let dir = TempDir::new();
    let whole = crate::trace::stuck();
    let half = whole[..whole.len() / 2].rfind('\u{1e}').unwrap();
    fs::write(dir.join("a.sqlog"), &whole[..half]).unwrap();
    let viewer = Viewer::start(&[&dir.text("")]);
    let mut live = Live::open(&viewer.address);
    let before = live.next();
    assert_eq!(before.len(), 1);
    fs::write(dir.join("a.sqlog"), &whole).unwrap();
    let after = live.next();
    assert_eq!((after.len(), &after[0]["id"]), (1, &before[0]["id"]));
    assert_ne!(after[0]["revision"], before[0]["revision"]);
    fs::write(dir.join("b.sqlog"), &whole).unwrap();
    assert_eq!(live.next().len(), 2);
}
