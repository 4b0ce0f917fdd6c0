//! `clearway balance` in front of `clearway serve`.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod changes;
mod ecmp;
mod everything;
pub(crate) mod fleet;
mod hostile;
mod quinn;
mod sampling;
mod transparent;
mod world;

use std::time::Duration;

use bytes::Bytes;
use clearway::http::Client;
use http::{Method, Request};
use http_body_util::Empty;
use rustix::process::Signal;
use serde_json::Value;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use self::fleet::{
    Balance, PATIENCE, Relay, Rotation, address, balancer_file, quic_lb, site, write,
};
use crate::common::{clearway, stderr};
use crate::serve::client::{client, get};
use crate::web::{Site, TempDir, pattern};

/// A file large enough for several changes of address.
const LARGE: usize = 3_000_000;

fn content() -> TempDir {
    let content = TempDir::new();
    content.old_file("small", b"a small file");
    content.old_file("large", &pattern(LARGE));
    content
}

/// Servers with server IDs, and a balancer with them.
fn fleet(dir: &TempDir, content: &TempDir, count: u8) -> (Vec<Site>, Balance) {
    write(dir, "serve.toml", &quic_lb(Rotation::Announced));
    let sites: Vec<Site> = (1..=count).map(|n| site(dir, content.path(), n)).collect();
    write(
        dir,
        "balance.toml",
        &balancer_file(&sites, Rotation::Announced),
    );
    let file = dir.text("balance.toml");
    let balance = Balance::start(dir, "127.0.0.1:0", &["--config", &file]);
    (sites, balance)
}

async fn get_small(client: &Client, url: &str) {
    let (status, _, body) = get(client, &format!("{url}/small"), &[]).await;
    assert_eq!((status, &body[..]), (200, &b"a small file"[..]));
}

/// Waits until the balancer has printed this.
fn wait_for_log(dir: &TempDir, wanted: &str) {
    wait_for_text(&dir.join("balance.log"), wanted);
}

fn wait_for_text(log: &std::path::Path, wanted: &str) {
    let begin = std::time::Instant::now();
    loop {
        let log = std::fs::read_to_string(log).unwrap();
        if log.contains(wanted) {
            return;
        }
        assert!(begin.elapsed() < PATIENCE, "{log}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// Connections assigned to each server.
fn assigned(status: &Value) -> Vec<u64> {
    let backends = status["backends"].as_array().unwrap().iter();
    backends
        .map(|backend| backend["connections_assigned"].as_u64().unwrap())
        .collect()
}

/// The number of the only server with a connection, from 0.
fn serving(balance: &Balance) -> usize {
    let status = balance.wait_for(|status| assigned(status).iter().sum::<u64>() == 1);
    assigned(&status)
        .iter()
        .position(|&count| count == 1)
        .unwrap()
}

#[tokio::test]
async fn servers_without_file_share_connections_and_lack_of_server_ids_is_said() {
    let (dir, content) = (TempDir::new(), content());
    let sites = [(); 3].map(|()| Site::start(content.path(), &[]));
    let to: Vec<String> = sites.iter().map(address).collect();
    let options: Vec<&str> = to.iter().flat_map(|to| ["--to", to]).collect();
    let balance = Balance::start(&dir, "127.0.0.1:0", &options);
    let url = balance.url();
    let clients: Vec<Client> = (0..24).map(|_| client()).collect();
    for client in &clients {
        get_small(client, &url).await;
    }
    let (_, _, body) = get(&clients[0], &format!("{url}/large"), &[]).await;
    assert_eq!(body, pattern(LARGE));
    let said = "migration cannot be followed for backend 127.0.0.1:";
    let status = balance.wait_for(|_| {
        std::fs::read_to_string(dir.join("balance.log"))
            .unwrap()
            .contains(said)
    });
    // A backend without any of 24 connections has a probability of one in 17,000.
    assert!(
        assigned(&status).iter().all(|&count| count > 0),
        "{status:#}"
    );
    balance.stop();
}

/// Every client is rebound three times while it downloads, so that the balancer sees four
/// addresses; only the connection IDs tell which server is meant.
#[tokio::test]
async fn downloads_survive_rebinding_with_three_servers() {
    let (dir, content) = (TempDir::new(), content());
    let (_sites, balance) = fleet(&dir, &content, 3);
    let rebind = ["--rate", "20M", "--rebind", "200ms,500ms,800ms"];
    let relay = Relay::start(&balance.address, &rebind);
    let downloads: Vec<_> = (0..6)
        .map(|_| {
            let url = format!("{}/large", relay.url);
            tokio::spawn(async move { get(&client(), &url, &[]).await })
        })
        .collect();
    for download in downloads {
        let (status, _, body) = tokio::time::timeout(PATIENCE, download)
            .await
            .unwrap()
            .unwrap();
        assert_eq!(status, 200);
        assert!(body == pattern(LARGE), "{} bytes", body.len());
    }
    let ended = balance.stop();
    assert_eq!(
        assigned(&ended).iter().sum::<u64>(),
        6,
        "no connection was assigned anew"
    );
    assert!(ended["flows"].as_u64().unwrap() >= 6 * 4, "{ended:#}");
    let backends = ended["backends"].as_array().unwrap();
    assert!(
        backends
            .iter()
            .all(|backend| backend["without_server_id"] == 0),
        "{ended:#}"
    );
}

#[tokio::test]
async fn drained_server_keeps_its_connection_and_gets_no_new_ones() {
    let (dir, content) = (TempDir::new(), content());
    let (sites, balance) = fleet(&dir, &content, 2);
    let (first, url) = (client(), balance.url());
    get_small(&first, &url).await;
    let drained = serving(&balance);
    let unknown = balance.drain("s9").unwrap_err();
    assert!(
        unknown.contains("no backend is named \"s9\"; there are: s1, s2"),
        "{unknown}"
    );
    balance.drain(&format!("s{}", drained + 1)).unwrap();
    balance.wait_for(|status| status["backends"][drained]["state"] == "draining");
    // Not undone by a change of the file that is about something else.
    let text = balancer_file(&sites, Rotation::Active);
    write(&dir, "balance.toml", &text);
    wait_for_log(&dir, "configuration reloaded");
    for _ in 0..8 {
        get_small(&client(), &url).await;
    }
    get_small(&first, &url).await;
    let ended = balance.stop();
    let counts = assigned(&ended);
    assert_eq!((counts[drained], counts[1 - drained]), (1, 8));
}

/// The clients of a killed server learn of it from another one, by a stateless reset, and not
/// from their idle timeout of 30 seconds.
#[tokio::test]
async fn clients_of_killed_server_are_reset_and_served_by_another() {
    let (dir, content) = (TempDir::new(), content());
    let (mut sites, balance) = fleet(&dir, &content, 2);
    let (first, url) = (client(), balance.url());
    get_small(&first, &url).await;
    let killed = serving(&balance);
    sites[killed].child.kill().unwrap();
    balance.wait_for(|status| status["backends"][killed]["state"] == "down");
    let request = Request::builder()
        .method(Method::GET)
        .uri(format!("{url}/small"))
        .body(Empty::<Bytes>::new())
        .unwrap();
    // The client may have sent the request again by itself.
    let answer = tokio::time::timeout(Duration::from_secs(25), first.request(request)).await;
    match answer.expect("a reset ends the wait") {
        Ok(response) => assert_eq!(response.status(), 200),
        Err(error) => {
            let text = format!("{error:?} {error}");
            assert!(text.contains("eset"), "{text}");
        }
    }
    get_small(&client(), &url).await;
    let ended = balance.stop();
    assert_eq!(ended["backends"][killed]["state"], "down");
}

/// Keys rotate to connection IDs of another length, and a server is added.
#[tokio::test]
async fn rotation_and_added_server_leave_connections_alone() {
    let (dir, content) = (TempDir::new(), content());
    let (mut sites, balance) = fleet(&dir, &content, 2);
    let (first, url) = (client(), balance.url());
    get_small(&first, &url).await;

    // Balancers first, as the draft asks.
    sites.push(site(&dir, content.path(), 3));
    write(
        &dir,
        "balance.toml",
        &balancer_file(&sites, Rotation::Active),
    );
    balance.wait_for(|status| status["backends"].as_array().unwrap().len() == 3);
    write(&dir, "serve.toml", &quic_lb(Rotation::Active));
    for site in &sites {
        site.signal(Signal::HUP);
    }
    let third = |status: &Value| assigned(status)[2] > 0;
    for _ in 0..200 {
        get_small(&client(), &url).await;
        if third(&balance.status()) {
            break;
        }
    }
    balance.wait_for(third);
    for _ in 0..3 {
        get_small(&first, &url).await;
    }

    // A file that is invalid changes nothing.
    write(&dir, "balance.toml", "listne = \"127.0.0.1:1\"\n");
    balance.wait_for(|_| {
        let log = std::fs::read_to_string(dir.join("balance.log")).unwrap();
        log.contains("keeping the old configuration") && log.contains("line 1")
    });
    get_small(&first, &url).await;
    let ended = balance.stop();
    let backends = ended["backends"].as_array().unwrap();
    assert!(
        backends
            .iter()
            .all(|backend| backend["without_server_id"] == 0),
        "{ended:#}"
    );
}

/// The next balancer has none of the former's tables: server IDs are enough.
#[tokio::test]
async fn connection_survives_restart_of_balancer() {
    let (dir, content) = (TempDir::new(), content());
    let (_sites, balance) = fleet(&dir, &content, 3);
    let (first, url) = (client(), balance.url());
    get_small(&first, &url).await;
    let address = balance.address.clone();
    balance.stop();
    let file = dir.text("balance.toml");
    let balance = Balance::start(&dir, &address, &["--config", &file, "--shards", "2"]);
    get_small(&first, &url).await;
    let ended = balance.stop();
    assert_eq!(assigned(&ended), [0, 0, 0], "the connection went on");
}

#[tokio::test]
async fn other_modes_forward_the_same() {
    let (dir, content) = (TempDir::new(), content());
    let site = Site::start(content.path(), &[]);
    let to = address(&site);
    for mode in ["naive", "decoupled"] {
        let options = ["--to", &to, "--mode", mode, "--work", "1us"];
        let balance = Balance::start(&dir, "127.0.0.1:0", &options);
        let (_, _, body) = get(&client(), &format!("{}/large", balance.url()), &[]).await;
        assert!(body == pattern(LARGE), "{mode}: {} bytes", body.len());
        balance.stop();
    }
}

/// The servers count all clients as one source, unless they are told of the balancer.
#[tokio::test]
async fn clients_behind_balancer_are_not_limited_per_source() {
    let (dir, content) = (TempDir::new(), content());
    let options = ["--max-connections-per-source", "3"];
    for (behind, expected) in [(&[][..], 3), (&["--behind", "127.0.0.0/8"], 24)] {
        let site = Site::start(content.path(), &[&options[..], behind].concat());
        let balance = Balance::start(&dir, "127.0.0.1:0", &["--to", &address(&site)]);
        let clients: Vec<Client> = (0..24).map(|_| client()).collect();
        let mut served = 0;
        for client in &clients {
            let request = Request::get(format!("{}/small", balance.url()));
            let request = request.body(Empty::<Bytes>::new()).unwrap();
            served += usize::from(client.request(request).await.is_ok());
        }
        assert_eq!(served, expected);
        balance.stop();
    }
}

/// The value of a metric with these labels, 0 if it is absent.
fn metric(text: &str, name: &str) -> u64 {
    let line = text.lines().find_map(|line| line.strip_prefix(name));
    line.map_or(0, |rest| rest.trim().parse().unwrap())
}

async fn scrape(address: &str, request: &str) -> String {
    let mut stream = tokio::net::TcpStream::connect(address).await.unwrap();
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).await.unwrap();
    text
}

#[tokio::test]
async fn metrics_account_for_every_datagram() {
    let (dir, content) = (TempDir::new(), content());
    let site = Site::start(content.path(), &[]);
    let options = ["--to", &address(&site), "--metrics", "0"];
    let balance = Balance::start(&dir, "127.0.0.1:0", &options);
    get_small(&client(), &balance.url()).await;
    // A client's first packet that is too small.
    let socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    socket
        .send_to(&[0xc0, 0, 0, 0, 1, 0, 0], &balance.address)
        .unwrap();
    let dropped = "clearway_balance_dropped_datagrams_total{from=\"clients\",reason=\"";
    let at = balance.metrics.clone().unwrap();
    let begin = std::time::Instant::now();
    let text = loop {
        let text = scrape(&at, "GET /metrics HTTP/1.1\r\nhost: x\r\n\r\n").await;
        if metric(&text, &format!("{dropped}small-initial\"}}")) == 1 {
            break text;
        }
        assert!(begin.elapsed() < PATIENCE, "{text}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    };
    assert!(text.starts_with("HTTP/1.1 200 OK\r\n"), "{text}");
    for from in ["clients", "servers"] {
        let of = |name| {
            metric(
                &text,
                &format!("clearway_balance_{name}{{from=\"{from}\"}}"),
            )
        };
        let received = of("received_datagrams_total");
        let prefix = format!("clearway_balance_dropped_datagrams_total{{from=\"{from}\",");
        let drops = text.lines().filter(|line| line.starts_with(&prefix));
        let drops = drops.map(|line| line.rsplit(' ').next().unwrap().parse::<u64>().unwrap());
        assert!(received > 0, "{text}");
        assert_eq!(
            received,
            of("forwarded_datagrams_total") + drops.sum::<u64>()
        );
    }
    for file in ["grafana.json", "alerts.yml"] {
        let path = format!("{}/../../docs/balancer/{file}", env!("CARGO_MANIFEST_DIR"));
        let file = std::fs::read_to_string(path).unwrap();
        let names = file.split("clearway_balance_").skip(1);
        for name in names {
            let end = |byte: char| !byte.is_ascii_lowercase() && byte != '_';
            let name = name.split(end).next().unwrap();
            let family = format!("# TYPE clearway_balance_{name} ");
            assert!(text.contains(&family), "{name}");
        }
    }
    let other = scrape(&at, "GET / HTTP/1.1\r\n\r\n").await;
    assert!(other.starts_with("HTTP/1.1 404 Not Found\r\n"), "{other}");
    balance.stop();
}

#[test]
fn generated_file_is_valid_and_mistakes_are_named_with_their_line() {
    let dir = TempDir::new();
    let output = clearway(&[
        "balance",
        "keygen",
        "--to",
        "127.0.0.1:1",
        "--to",
        "127.0.0.1:2",
    ]);
    assert!(output.status.success(), "{}", stderr(&output));
    std::fs::write(dir.join("lb.toml"), &output.stdout).unwrap();
    let file = dir.text("lb.toml");
    let output = clearway(&["balance", "check", &file]);
    let said = String::from_utf8(output.stdout).unwrap();
    assert_eq!(said, "valid: 2 backend(s), 1 QUIC-LB configuration(s)\n");

    let text = std::fs::read_to_string(&file).unwrap();
    for (from, to, expected) in [
        ("nonce_len", "nonce_length", "unknown field `nonce_length`"),
        ("\"02\"", "\"01\"", "have the same server ID 01"),
        ("127.0.0.1:2", "127.0.0.1:1", "two backends have this name"),
        (
            "active = 0",
            "active = 1",
            "no [[quic_lb.config]] has the ID 1",
        ),
    ] {
        assert!(text.contains(from));
        write(&dir, "lb.toml", &text.replacen(from, to, 1));
        let output = clearway(&["balance", "check", &file]);
        assert_eq!(output.status.code(), Some(2));
        assert!(stderr(&output).contains(expected), "{}", stderr(&output));
    }
    for (options, expected) in [
        (&["balance"][..], "--listen: missing"),
        (
            &["balance", "--listen", "127.0.0.1:0"],
            "no backend: expected --to",
        ),
        (
            &[
                "balance",
                "--listen",
                "127.0.0.1:0",
                "--to",
                "127.0.0.1:1",
                "--work",
                "1ms",
            ],
            "--work: only for --mode naive or --mode decoupled",
        ),
        (
            &[
                "balance",
                "--listen",
                "127.0.0.1:0",
                "--to",
                "127.0.0.1:1",
                "--mode",
                "naive",
                "--shards",
                "2",
            ],
            "--mode naive: has one thread, but 2 shards were requested",
        ),
        (
            &["balance", "status", "--control", "/nowhere"],
            "cannot reach a balancer",
        ),
    ] {
        let output = clearway(options);
        assert!(!output.status.success());
        assert!(stderr(&output).contains(expected), "{}", stderr(&output));
    }
}
