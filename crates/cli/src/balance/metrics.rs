//! Metrics for Prometheus.

use core::fmt::{self, Write as _};
use core::net::SocketAddr;
use core::time::Duration;
use std::io;

use clearway_balancer::{BackendState, BackendStatus, Balancer, DropReason, Status, Traffic};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

use crate::failure::{Failure, Kind};

/// Longest request header in bytes.
const LONGEST_REQUEST: usize = 8_192;

/// How long a client may take for its request and for reading the answer. Requests are answered
/// one after the other.
const PATIENCE: Duration = Duration::from_secs(2);

/// Where Prometheus fetches metrics.
#[derive(Debug)]
pub(super) struct Metrics(TcpListener);

impl Metrics {
    /// Binds the address. Has to be called within a runtime.
    ///
    /// # Errors
    /// If it is in use.
    pub(super) fn bind(address: SocketAddr) -> Result<Self, Failure> {
        let listener = std::net::TcpListener::bind(address).and_then(|listener| {
            listener.set_nonblocking(true)?;
            TcpListener::from_std(listener)
        });
        listener.map(Self).map_err(|error| {
            let what = format!("--metrics: cannot listen on {address}");
            Failure::caused(Kind::Address, what, &error)
        })
    }

    /// Returns the address.
    ///
    /// # Errors
    /// If the system does not say.
    pub(super) fn address(&self) -> io::Result<SocketAddr> {
        self.0.local_addr()
    }

    /// Answers requests, one after the other, forever.
    pub(super) async fn serve(&self, balancer: &Balancer) {
        loop {
            let Ok((stream, _)) = self.0.accept().await else {
                tokio::time::sleep(Duration::from_millis(100)).await;
                continue;
            };
            // A client that goes away or says nothing is its own business.
            let _ = tokio::time::timeout(PATIENCE, answer(stream, balancer)).await;
        }
    }
}

async fn answer(mut stream: TcpStream, balancer: &Balancer) -> io::Result<()> {
    let mut request = Vec::with_capacity(1_024);
    while !request.windows(4).any(|end| end == b"\r\n\r\n") {
        if request.len() > LONGEST_REQUEST {
            let body = "the request header is longer than 8 KiB\n";
            return respond(&mut stream, "431 Request Header Fields Too Large", body).await;
        }
        if stream.read_buf(&mut request).await? == 0 {
            return Ok(());
        }
    }
    let (status, body) = match target(&request) {
        Some("/metrics") => ("200 OK", exposition(&balancer.status())),
        Some(_) => ("404 Not Found", "metrics are at /metrics\n".to_owned()),
        None => ("405 Method Not Allowed", "expected GET\n".to_owned()),
    };
    respond(&mut stream, status, &body).await
}

/// Returns the path of a GET request.
fn target(request: &[u8]) -> Option<&str> {
    let line = request.split(|byte| *byte == b'\r').next()?;
    let line = core::str::from_utf8(line).ok()?;
    let target = line.strip_prefix("GET ")?.split(' ').next()?;
    target.split('?').next()
}

async fn respond(stream: &mut TcpStream, status: &str, body: &str) -> io::Result<()> {
    let length = body.len();
    let head = format!(
        "HTTP/1.1 {status}\r\ncontent-type: text/plain; version=0.0.4; charset=utf-8\r\n\
         content-length: {length}\r\nconnection: close\r\n\r\n"
    );
    stream.write_all(head.as_bytes()).await?;
    stream.write_all(body.as_bytes()).await?;
    stream.shutdown().await
}

/// The status in the text format of Prometheus, version 0.0.4.
fn exposition(status: &Status) -> String {
    let mut text = Exposition(String::new());
    let directions = [("clients", &status.up), ("servers", &status.down)];
    text.family("received_datagrams_total", "counter", "Datagrams received.");
    for (from, traffic) in directions {
        text.sample(&[("from", from)], traffic.received);
    }
    text.family(
        "forwarded_datagrams_total",
        "counter",
        "Datagrams forwarded.",
    );
    for (from, traffic) in directions {
        text.sample(&[("from", from)], traffic.forwarded);
    }
    text.family(
        "dropped_datagrams_total",
        "counter",
        "Datagrams not forwarded, by reason.",
    );
    for (from, traffic) in directions {
        for &reason in DropReason::ALL {
            let labels = [("from", from), ("reason", reason.name())];
            text.sample(&labels, dropped(traffic, reason));
        }
    }
    text.family(
        "overflowed_messages_total",
        "counter",
        "Datagrams, or trains of them, that the kernel dropped because a socket's buffer was full.",
    );
    for (from, count) in [
        ("clients", status.up_overflowed),
        ("servers", status.down_overflowed),
    ] {
        text.sample(&[("from", from)], count);
    }
    for (name, help, value) in [
        ("flows", "Clients' addresses with a backend.", status.flows),
        ("sockets", "Open UDP sockets.", status.sockets),
        (
            "table_entries",
            "Entries in the tables of connection IDs and addresses.",
            status.entries,
        ),
    ] {
        text.family(name, "gauge", help);
        text.sample(&[], value);
    }
    text.family(
        "upstream_port_usage_ratio",
        "gauge",
        "Share of the upstream ports in use, of the shard with the greatest.",
    );
    text.sample(&[], status.port_usage);
    text.family(
        "reset_requests_total",
        "counter",
        "Packets that had a backend reset a connection of one that went down.",
    );
    text.sample(&[], status.reset_requests);
    backends(&mut text, &status.backends);
    text.0
}

fn dropped(traffic: &Traffic, wanted: DropReason) -> u64 {
    let mut drops = traffic.drops();
    drops
        .find(|(reason, _)| *reason == wanted)
        .map_or(0, |(_, count)| count)
}

/// Reads a counter of a backend.
type Counter = fn(&BackendStatus) -> u64;

fn backends(text: &mut Exposition, backends: &[BackendStatus]) {
    text.family(
        "backend_state",
        "gauge",
        "1 for the state that the backend is in.",
    );
    for backend in backends {
        for state in [
            BackendState::Active,
            BackendState::Draining,
            BackendState::Down,
        ] {
            let labels = [("backend", &*backend.name), ("state", state.name())];
            text.sample(&labels, u8::from(backend.state == state));
        }
    }
    let counters: [(&str, &str, Counter); 4] = [
        (
            "backend_assigned_connections_total",
            "New connections assigned to the backend.",
            |backend| backend.assigned,
        ),
        (
            "backend_sent_datagrams_total",
            "Datagrams sent to the backend.",
            |backend| backend.sent,
        ),
        (
            "backend_received_datagrams_total",
            "Datagrams received from the backend.",
            |backend| backend.received,
        ),
        (
            "backend_unroutable_packets_total",
            "Handshake packets of the backend whose connection ID does not contain its server ID.",
            |backend| backend.unroutable,
        ),
    ];
    for (name, help, counter) in counters {
        text.family(name, "counter", help);
        for backend in backends {
            text.sample(&[("backend", &backend.name)], counter(backend));
        }
    }
}

/// Metrics as text. The name of the last family is repeated in each of its samples.
struct Exposition(String);

impl Exposition {
    fn family(&mut self, name: &str, kind: &str, help: &str) {
        // Writing to a string cannot fail.
        let _ = write!(
            self.0,
            "# HELP clearway_balance_{name} {help}\n# TYPE clearway_balance_{name} {kind}\n"
        );
    }

    fn sample(&mut self, labels: &[(&str, &str)], value: impl fmt::Display) {
        let name = self.0.rsplit("# TYPE ").next();
        let name = name.and_then(|rest| rest.split(' ').next());
        let mut line = name.unwrap_or_default().to_owned();
        for (number, (label, of)) in labels.iter().enumerate() {
            let begin = if number == 0 { "{" } else { "," };
            let of = of
                .replace('\\', "\\\\")
                .replace('"', "\\\"")
                .replace('\n', "\\n");
            let _ = write!(line, "{begin}{label}=\"{of}\"");
        }
        if !labels.is_empty() {
            line.push('}');
        }
        let _ = writeln!(self.0, "{line} {value}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_reason_and_state_has_a_sample_and_labels_are_escaped() {
        let mut up = Traffic::default();
        up.received = 5;
        up.forwarded = 3;
        up.drop(DropReason::SmallInitial, 2);
        let text = exposition(&Status {
            up,
            down: Traffic::default(),
            up_overflowed: 5,
            down_overflowed: 0,
            flows: 1,
            sockets: 2,
            entries: 3,
            reset_requests: 4,
            port_usage: 0.5,
            backends: vec![BackendStatus {
                name: "b\"1\\".to_owned(),
                address: SocketAddr::from(([127, 0, 0, 1], 1)),
                state: BackendState::Down,
                assigned: 1,
                sent: 3,
                received: 0,
                unroutable: 1,
            }],
        });
        for line in [
            "clearway_balance_received_datagrams_total{from=\"clients\"} 5",
            "clearway_balance_forwarded_datagrams_total{from=\"clients\"} 3",
            "clearway_balance_dropped_datagrams_total{from=\"clients\",reason=\"small-initial\"} 2",
            "clearway_balance_dropped_datagrams_total{from=\"servers\",reason=\"unknown-flow\"} 0",
            "clearway_balance_overflowed_messages_total{from=\"clients\"} 5",
            "clearway_balance_upstream_port_usage_ratio 0.5",
            "clearway_balance_reset_requests_total 4",
            "clearway_balance_backend_state{backend=\"b\\\"1\\\\\",state=\"down\"} 1",
            "clearway_balance_backend_state{backend=\"b\\\"1\\\\\",state=\"active\"} 0",
        ] {
            assert!(text.lines().any(|found| found == line), "{line}: {text}");
        }
        let samples = text.lines().filter(|line| !line.starts_with('#'));
        let reasons = DropReason::ALL.len();
        assert_eq!(samples.count(), 4 + 2 * reasons + 2 + 5 + 3 + 4);
    }

    #[test]
    fn only_get_requests_have_a_target() {
        assert_eq!(target(b"GET /metrics HTTP/1.1\r\n"), Some("/metrics"));
        assert_eq!(target(b"GET /metrics?x=1 HTTP/1.1\r\n"), Some("/metrics"));
        assert_eq!(target(b"POST /metrics HTTP/1.1\r\n"), None);
        assert_eq!(target(b"\xff\r\n"), None);
    }
}
