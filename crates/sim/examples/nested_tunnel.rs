//! QUIC in QUIC: a download through a CONNECT-UDP tunnel over a modelled link, and what the two
//! congestion controllers do to each other.
//!
//! ```text
//! inner client ─ tunnel ═ outer connection ═ link ═ outer connection ═ tunnel ─ inner server
//! ```
//!
//! The inner server is on the proxy's host, so that the link is the only bottleneck. Each row is one
//! download in virtual time. `BYTES`, `LINK` and `SEED` change the defaults.

use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use axum::routing::{any, get};
use axum::{Extension, Router};
use clearway::http::connect_udp::{Target, UdpTunnel, UdpTunnelMode};
use clearway::http::{Client, Server, Tunnel};
use clearway::udp::{
    Counters, DatagramSocket, Events, IcmpError, Meta, Readiness, ReadinessSource, RecvBatch,
    RecvError, Report, SendError, Transmit,
};
use clearway::{ClientConfig, CongestionController, Connection, Endpoint, EndpointBuilder};
use clearway::{ServerConfig, Stats};
use clearway_sim::{Net, Simulation, identity};
use tokio::sync::mpsc;

const LINK: &str = "rate=20M delay=25ms queue=64KB";
const BYTES: usize = 10_000_000;
const NAME: &str = "proxy.example";
/// Packets between an inner endpoint and the tunnel, in each direction. Beyond that they are dropped.
const QUEUE: usize = 150;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let link = std::env::var("LINK").unwrap_or_else(|_| LINK.to_owned());
    let bytes = number("BYTES")?.unwrap_or(BYTES as u64) as usize;
    let seed = number("SEED")?.unwrap_or(1);
    println!("{bytes} bytes over `{link}`\n");
    println!(
        "| inner controller | outer controller | tunnel | seconds | Mbit/s | inner RTT | inner losses \
         | outer losses | dropped at the tunnel | inner PTOs |"
    );
    println!("|---|---|---|---|---|---|---|---|---|---|");
    let controllers = [
        CongestionController::Cubic,
        CongestionController::Bbr,
        CongestionController::NewReno,
    ];
    for inner in controllers {
        let outcome = Setup::new(&link, seed, bytes, inner, None).run()?;
        outcome.print(inner, "-", "none");
        for outer in controllers {
            for mode in [UdpTunnelMode::Datagrams, UdpTunnelMode::Capsules] {
                let setup = Setup::new(&link, seed, bytes, inner, Some((outer, mode)));
                let name = match mode {
                    UdpTunnelMode::Datagrams => "datagrams",
                    UdpTunnelMode::Capsules => "capsules",
                };
                setup.run()?.print(inner, &format!("{outer:?}"), name);
            }
        }
    }
    Ok(())
}

fn number(name: &str) -> Result<Option<u64>, std::num::ParseIntError> {
    std::env::var(name)
        .ok()
        .map(|text| text.parse())
        .transpose()
}

struct Setup<'a> {
    link: &'a str,
    seed: u64,
    bytes: usize,
    inner: CongestionController,
    outer: Option<(CongestionController, UdpTunnelMode)>,
}

struct Outcome {
    bytes: usize,
    took: Duration,
    inner: Stats,
    outer: Option<Stats>,
    dropped: u64,
}

impl Outcome {
    fn print(&self, inner: CongestionController, outer: &str, tunnel: &str) {
        let seconds = self.took.as_secs_f64();
        let lost = self.outer.as_ref().map_or("-".to_owned(), |stats| {
            stats.counters.packets_lost.to_string()
        });
        println!(
            "| {inner:?} | {outer} | {tunnel} | {seconds:.2} | {:.1} | {} ms | {} | {lost} | {} | {} |",
            self.bytes as f64 * 8e-6 / seconds,
            self.inner.smoothed_rtt.as_millis(),
            self.inner.counters.packets_lost,
            self.dropped,
            self.inner.counters.ptos,
        );
    }
}

fn address(last: u8, port: u16) -> SocketAddr {
    SocketAddr::from(([10, 0, 0, last], port))
}

impl<'a> Setup<'a> {
    fn new(
        link: &'a str,
        seed: u64,
        bytes: usize,
        inner: CongestionController,
        outer: Option<(CongestionController, UdpTunnelMode)>,
    ) -> Self {
        Self {
            link,
            seed,
            bytes,
            inner,
            outer,
        }
    }

    fn run(&self) -> Result<Outcome, clearway_sim::SimError> {
        let simulation = Simulation::new(self.link, self.seed)?;
        Ok(simulation.run(async |net| match self.outer {
            None => self.direct(&net).await,
            Some((outer, mode)) => self.tunnelled(&net, outer, mode).await,
        }))
    }

    async fn direct(&self, net: &Net) -> Outcome {
        let (certificate, key) = identity([NAME]);
        let (at, local) = (address(1, 443), address(2, 0));
        let mut connections = serve_file(self, &certificate, &key, at, |it| net.attach(it, at));
        let client = client(&certificate, net.attach(Endpoint::builder(local), local));
        let took = self.download(net, &client, at).await;
        Outcome {
            bytes: self.bytes,
            took,
            inner: connections.recv().await.expect("a connection").stats(),
            outer: None,
            dropped: 0,
        }
    }

    async fn tunnelled(
        &self,
        net: &Net,
        outer: CongestionController,
        mode: UdpTunnelMode,
    ) -> Outcome {
        let (certificate, key) = identity([NAME]);
        let (inner_at, inner_local) = (address(3, 443), address(4, 5_000));
        let dropped = Arc::new(AtomicU64::new(0));
        let (near, near_end) = TunnelSocket::new(inner_local, inner_at, dropped.clone());
        let (far, far_end) = TunnelSocket::new(inner_at, inner_local, dropped.clone());
        // The proxy, whose tunnel leads to the inner server's socket.
        let at = address(1, 443);
        let (tell, mut outer_connections) = mpsc::unbounded_channel();
        let far_end = Arc::new(Mutex::new(Some(far_end)));
        let proxy = move |Extension(tunnel): Extension<Tunnel>,
                          Extension(connection): Extension<Connection>| {
            let (far_end, tell) = (far_end.clone(), tell.clone());
            async move {
                let end = lock(&far_end).take().expect("one tunnel");
                let _ = tell.send(connection);
                let tunnel = UdpTunnel::accept(tunnel).await.expect("a tunnel");
                end.relay(tunnel).await;
            }
        };
        let config = ServerConfig::with_identity(&certificate, &key).expect("an identity");
        let server = Server::builder(at, config.congestion_control(outer))
            .endpoint(|endpoint| net.attach(endpoint, at))
            .tunnels()
            .build()
            .expect("a proxy");
        let router = Router::new().fallback(any(proxy));
        tokio::spawn(async move { server.serve(router).await });
        let on = |socket: TunnelSocket| {
            let seed = [socket.local.port() as u8; 32];
            let runtime = clearway::runtime::TokioRuntime::current().with_seed(seed);
            let runtime = Arc::new(runtime);
            move |endpoint: EndpointBuilder| {
                endpoint.datagram_socket(Arc::new(socket)).runtime(runtime)
            }
        };
        let mut inner_connections = serve_file(self, &certificate, &key, inner_at, on(far));
        // The client of the proxy.
        let local = address(2, 0);
        let outer_client = client(&certificate, net.attach(Endpoint::builder(local), local));
        outer_client.resolve(NAME, 443, [at]);
        let proxy = format!("https://{NAME}").parse().expect("a URL");
        let target = Target::new("10.0.0.3", 443).expect("a target");
        let tunnel = UdpTunnel::connect(&outer_client, &proxy, &target, None, mode);
        let tunnel = tunnel.await.expect("a tunnel");
        tokio::spawn(near_end.relay(tunnel));
        let inner_client = client(&certificate, on(near)(Endpoint::builder(inner_local)));
        let took = self.download(net, &inner_client, inner_at).await;
        Outcome {
            bytes: self.bytes,
            took,
            inner: inner_connections.recv().await.expect("inner").stats(),
            outer: Some(outer_connections.recv().await.expect("outer").stats()),
            dropped: dropped.load(Ordering::Relaxed),
        }
    }

    async fn download(&self, net: &Net, client: &Client, from: SocketAddr) -> Duration {
        client.resolve(NAME, 443, [from]);
        let begin = net.now();
        let response = client.get(&format!("https://{NAME}/file")).await;
        let mut body = response.expect("a response").into_body();
        let mut received = 0;
        while let Some(chunk) = body.chunk().await.expect("a whole body") {
            received += chunk.len();
        }
        assert_eq!(received, self.bytes);
        net.now() - begin
    }
}

fn client(certificate: &str, endpoint: EndpointBuilder) -> Client {
    let config = ClientConfig::with_roots(certificate).expect("a certificate");
    Client::with_endpoint(endpoint, config).expect("a client")
}

/// A server of the file. Returns its connections.
fn serve_file(
    setup: &Setup<'_>,
    certificate: &str,
    key: &str,
    at: SocketAddr,
    on: impl FnOnce(EndpointBuilder) -> EndpointBuilder,
) -> mpsc::UnboundedReceiver<Connection> {
    let (tell, connections) = mpsc::unbounded_channel();
    let bytes = setup.bytes;
    let config = ServerConfig::with_identity(certificate, key).expect("an identity");
    let server = Server::builder(at, config.congestion_control(setup.inner))
        .endpoint(on)
        .build()
        .expect("a server");
    let file = async move |Extension(connection): Extension<Connection>| {
        let _ = tell.send(connection);
        vec![7; bytes]
    };
    let router = Router::new().route("/file", get(file));
    tokio::spawn(async move { server.serve(router).await });
    connections
}

/// The socket of an endpoint whose packets go through a tunnel.
#[derive(Debug)]
struct TunnelSocket {
    local: SocketAddr,
    remote: SocketAddr,
    out: mpsc::Sender<Vec<u8>>,
    inbox: Arc<Inbox>,
    report: Report,
    dropped: Arc<AtomicU64>,
}

#[derive(Debug, Default)]
struct Inbox {
    packets: Mutex<VecDeque<Vec<u8>>>,
    readiness: Arc<Readiness>,
}

/// The other side of the socket.
struct TunnelEnd {
    out: mpsc::Receiver<Vec<u8>>,
    inbox: Arc<Inbox>,
    dropped: Arc<AtomicU64>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl TunnelSocket {
    fn new(local: SocketAddr, remote: SocketAddr, dropped: Arc<AtomicU64>) -> (Self, TunnelEnd) {
        let (out, packets) = mpsc::channel(QUEUE);
        let inbox = Arc::new(Inbox::default());
        inbox.readiness.set(Events::WRITABLE);
        let end = TunnelEnd {
            out: packets,
            inbox: inbox.clone(),
            dropped: dropped.clone(),
        };
        let report = Report {
            gso_segments: 1,
            ..Report::default()
        };
        let socket = Self {
            local,
            remote,
            out,
            inbox,
            report,
            dropped,
        };
        (socket, end)
    }
}

impl TunnelEnd {
    /// Passes packets on until the tunnel ends.
    async fn relay(mut self, mut tunnel: UdpTunnel) {
        let mut counted = 0;
        loop {
            let counters = tunnel.counters();
            let lost = counters.blocked + counters.too_large;
            self.dropped.fetch_add(lost - counted, Ordering::Relaxed);
            counted = lost;
            tokio::select! {
                packet = self.out.recv() => {
                    let Some(packet) = packet else { break };
                    if tunnel.send(&packet).is_err() {
                        break;
                    }
                }
                packet = tunnel.recv() => {
                    let Ok(Some(packet)) = packet else { break };
                    lock(&self.inbox.packets).push_back(packet.to_vec());
                    self.inbox.readiness.set(Events::READABLE);
                }
            }
        }
    }
}

impl DatagramSocket for TunnelSocket {
    fn local_addr(&self) -> io::Result<SocketAddr> {
        Ok(self.local)
    }

    fn report(&self) -> &Report {
        &self.report
    }

    fn counters(&self) -> Counters {
        Counters::default()
    }

    fn gso_segments(&self) -> usize {
        1
    }

    fn recv(&self, batch: &mut RecvBatch) -> Result<usize, RecvError> {
        batch.clear();
        let mut packets = lock(&self.inbox.packets);
        while !batch.is_full()
            && let Some(packet) = packets.pop_front()
        {
            batch.push(Meta::new(self.remote), &packet);
        }
        match batch.len() {
            0 => Err(RecvError::WouldBlock),
            len => Ok(len),
        }
    }

    fn send(&self, transmit: &mut Transmit<'_>) -> Result<(), SendError> {
        let segment = transmit.segment_size.unwrap_or(transmit.contents.len());
        for datagram in transmit.contents.chunks(segment.max(1)) {
            // A full queue drops, as that of a network interface does.
            if self.out.try_send(datagram.to_vec()).is_err() {
                self.dropped.fetch_add(1, Ordering::Relaxed);
            }
        }
        transmit.contents = &[];
        Ok(())
    }

    fn send_many(&self, transmits: &mut [Transmit<'_>]) -> Result<usize, SendError> {
        for transmit in &mut *transmits {
            self.send(transmit)?;
        }
        Ok(transmits.len())
    }

    fn expect_errors(&self) {}

    fn poll_errors(&self) -> io::Result<Option<IcmpError>> {
        Ok(None)
    }

    fn readiness(&self) -> ReadinessSource<'_> {
        ReadinessSource::flags(self.inbox.readiness.clone())
    }
}
