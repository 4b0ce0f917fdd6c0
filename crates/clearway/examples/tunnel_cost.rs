//! What a tunnel costs: resident memory of the server for each idle one, and its processor time for a
//! datagram that comes and goes back, beside DATAGRAM frames without HTTP.
//!
//! ```sh
//! cargo run --release -p clearway --example tunnel_cost -- 20 100000
//! ```
//!
//! The first number is how many connections have 80 tunnels each, the second how many datagrams of
//! 1,000 bytes are sent back, of which 32 are on their way at a time. The server is a process of its own,
//! and for memory one for each kind of tunnel: what another kind has given back to the allocator would be
//! used again, and not count. An idle CONNECT-UDP tunnel has a socket to its target, as at a proxy.

use std::error::Error;
use std::io::{BufRead as _, BufReader};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::process::{Child, Command, Stdio};
use std::sync::LazyLock;
use std::time::{Duration, Instant};

use axum::Router;
use axum::body::Body;
use axum::extract::Request;
use axum::response::{IntoResponse as _, Response};
use axum::routing::{any, get};
use bytes::Bytes;
use clearway::http::connect_udp::{Target, UdpProxy, UdpTunnel, UdpTunnelMode};
use clearway::http::webtransport::{AllowedOrigins, SessionRequest, WebTransportSession};
use clearway::http::{Client, OpenTunnel, Protocol, Server, Tunnel, TunnelDatagrams};
use clearway::{ClientConfig, Connection, DevelopmentIdentity, Endpoint, ServerConfig};

/// Tunnels on a connection.
const TUNNELS: usize = 80;
/// The token of the proxy's clients.
const TOKEN: &str = "a-token-for-this-program";
const PAYLOAD: usize = 1_000;
const WINDOW: usize = 32;
/// How long a datagram may take before it counts as lost.
const PATIENCE: Duration = Duration::from_millis(200);

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if arguments.first().is_some_and(|first| first == "serve") {
        return serve().await;
    }
    let number = |at: usize, default| match arguments.get(at) {
        Some(text) => text.parse::<usize>(),
        None => Ok(default),
    };
    let (connections, datagrams) = (number(0, 20)?, number(1, 100_000)?);
    for kind in ["tunnel", "CONNECT-UDP", "WebTransport"] {
        memory(&ServerProcess::start()?, kind, connections).await?;
    }
    time(&ServerProcess::start()?, datagrams).await
}

/// Serves DATAGRAM frames on one port, and tunnels on another.
async fn serve() -> Result<(), Box<dyn Error>> {
    let identity = DevelopmentIdentity::generate(["localhost"])?;
    let config = || ServerConfig::with_identity(identity.certificate_pem(), identity.key_pem());
    let plain = Endpoint::server("127.0.0.1:0".parse()?, config()?.alpn(["plain"]))?;
    let http = Server::builder("127.0.0.1:0".parse()?, config()?).webtransport(100);
    let http = http.max_tunnels(1_000_000).build()?;
    println!("{} {}", plain.local_addr(), http.local_addr());
    let echo = async |connection: Connection| {
        while let Ok(datagram) = connection.read_datagram().await {
            let _ = connection.send_datagram(datagram);
        }
    };
    let router = Router::new()
        .route("/", get(async || "hello"))
        .route("/tunnel", any(tunnel))
        .route("/session", any(session))
        .route("/.well-known/masque/udp/{*target}", any(udp));
    let plain = tokio::spawn(async move { plain.serve(echo).await });
    http.serve(router).await?;
    plain.await??;
    Ok(())
}

async fn tunnel(request: Request) -> Response {
    if let Some(tunnel) = request.extensions().get::<Tunnel>().cloned()
        && let Ok(held) = tunnel.accept(http::Response::new(())).await
    {
        let (_sender, _receiver, mut datagrams) = held;
        while let Ok(Some(datagram)) = datagrams.recv().await {
            let _ = datagrams.send(&datagram);
        }
    }
    Response::default()
}

/// A proxy for clients with its token. For others, sends back at once what a proxy would send to a
/// socket.
async fn udp(request: Request) -> Response {
    if request.headers().contains_key("proxy-authorization") {
        static PROXY: LazyLock<UdpProxy> = LazyLock::new(|| {
            let loopback = IpAddr::from(Ipv4Addr::LOCALHOST).into();
            UdpProxy::builder().token(TOKEN).allow(loopback).build()
        });
        return PROXY.serve(request).await.map(|()| Body::empty());
    }
    if let Some(tunnel) = request.extensions().get::<Tunnel>().cloned()
        && let Ok(mut tunnel) = UdpTunnel::accept(tunnel).await
    {
        while let Ok(Some(payload)) = tunnel.recv().await {
            let _ = tunnel.send(&payload);
        }
    }
    Response::default()
}

async fn session(request: Request) -> Response {
    let asked = match SessionRequest::of(&request, &AllowedOrigins::SameHost) {
        Ok(asked) => asked,
        Err(refused) => return refused.into_response(),
    };
    if let Ok(session) = asked.accept().await {
        while let Ok(datagram) = session.recv_datagram().await {
            let _ = session.send_datagram(&datagram);
        }
    }
    ().into_response()
}

fn client() -> Result<Client, Box<dyn Error>> {
    Ok(Client::new(
        ClientConfig::dangerous_accept_any_certificate(),
    )?)
}

/// Opens tunnels of a kind, and prints what each takes at the server.
async fn memory(
    server: &ServerProcess,
    kind: &str,
    connections: usize,
) -> Result<(), Box<dyn Error>> {
    let clients: Vec<Client> = (0..connections)
        .map(|_| client())
        .collect::<Result<_, _>>()?;
    for client in &clients {
        let url = format!("https://{}/", server.http);
        client.get(&url).await?.body_mut().text(100).await?;
    }
    settle().await;
    let before = server.resident()?;
    let mut tunnels = Vec::new();
    let mut sessions = Vec::new();
    let mut udp = Vec::new();
    for client in &clients {
        for _ in 0..TUNNELS {
            match kind {
                "tunnel" => tunnels.push(open_tunnel(client, server.http).await?),
                "CONNECT-UDP" => udp.push(open_udp(client, server.http, Some(TOKEN)).await?),
                _ => sessions.push(open_session(client, server.http).await?),
            }
        }
    }
    settle().await;
    let grown = server.resident()?.saturating_sub(before) as f64;
    let count = (connections * TUNNELS) as f64;
    let each = grown / 1024.0 / count;
    println!("idle {kind}: {each:.2} KiB of the server each");
    Ok(())
}

/// Waits until connections are quiet: a second after their last packet they give memory back.
async fn settle() {
    tokio::time::sleep(Duration::from_secs(3)).await;
}

async fn open_tunnel(client: &Client, server: SocketAddr) -> Result<OpenTunnel, Box<dyn Error>> {
    let mut request = http::Request::get(format!("https://{server}/tunnel")).body(())?;
    request.extensions_mut().insert(Protocol::new("test"));
    Ok(client.tunnel(request).await?)
}

async fn open_udp(
    client: &Client,
    server: SocketAddr,
    token: Option<&str>,
) -> Result<UdpTunnel, Box<dyn Error>> {
    let proxy = format!("https://{server}").parse()?;
    let target = Target::new("127.0.0.1", 443)?;
    let mode = UdpTunnelMode::Datagrams;
    Ok(UdpTunnel::connect(client, &proxy, &target, token, mode).await?)
}

async fn open_session(
    client: &Client,
    server: SocketAddr,
) -> Result<WebTransportSession, Box<dyn Error>> {
    let request = http::Request::get(format!("https://{server}/session")).body(())?;
    Ok(client.webtransport(request).await?.0)
}

/// Sends datagrams back and forth, and prints the server's processor time for each.
async fn time(server: &ServerProcess, count: usize) -> Result<(), Box<dyn Error>> {
    let config = ClientConfig::dangerous_accept_any_certificate().alpn(["plain"]);
    let endpoint = Endpoint::client("127.0.0.1:0".parse()?, config)?;
    let connection = endpoint.connect(server.plain, "localhost").await?;
    let report = Report {
        server,
        count,
        payload: Bytes::from(vec![7; PAYLOAD]),
    };
    report.run("DATAGRAM frames", connection).await?;
    let client = client()?;
    let opened = open_tunnel(&client, server.http).await?;
    let (_sender, _receiver, datagrams) = opened.into_parts();
    report.run("HTTP datagrams", datagrams).await?;
    let udp = open_udp(&client, server.http, None).await?;
    report.run("CONNECT-UDP", udp).await?;
    let session = open_session(&client, server.http).await?;
    report.run("WebTransport", session).await
}

/// What carries datagrams.
trait Carrier {
    fn send(&mut self, payload: &Bytes) -> bool;
    async fn receive(&mut self) -> bool;
}

impl Carrier for Connection {
    fn send(&mut self, payload: &Bytes) -> bool {
        self.send_datagram(payload.clone()).is_ok()
    }

    async fn receive(&mut self) -> bool {
        self.read_datagram().await.is_ok()
    }
}

impl Carrier for TunnelDatagrams {
    fn send(&mut self, payload: &Bytes) -> bool {
        Self::send(self, payload).is_ok()
    }

    async fn receive(&mut self) -> bool {
        matches!(self.recv().await, Ok(Some(_)))
    }
}

impl Carrier for UdpTunnel {
    fn send(&mut self, payload: &Bytes) -> bool {
        Self::send(self, payload).is_ok()
    }

    async fn receive(&mut self) -> bool {
        matches!(self.recv().await, Ok(Some(_)))
    }
}

impl Carrier for WebTransportSession {
    fn send(&mut self, payload: &Bytes) -> bool {
        self.send_datagram(payload).is_ok()
    }

    async fn receive(&mut self) -> bool {
        self.recv_datagram().await.is_ok()
    }
}

struct Report<'a> {
    server: &'a ServerProcess,
    count: usize,
    payload: Bytes,
}

impl Report<'_> {
    async fn run(&self, what: &str, mut carrier: impl Carrier) -> Result<(), Box<dyn Error>> {
        // Until the path's packet size is known, datagrams of this size may not fit.
        tokio::time::sleep(Duration::from_millis(500)).await;
        let (before, begin) = (self.server.processor_time()?, Instant::now());
        let (mut received, mut under_way) = (0, 0);
        while received < self.count {
            while under_way < WINDOW && carrier.send(&self.payload) {
                under_way += 1;
            }
            match tokio::time::timeout(PATIENCE, carrier.receive()).await {
                Ok(true) => {
                    received += 1;
                    under_way -= 1;
                }
                Ok(false) => return Err(format!("{what}: the tunnel has ended").into()),
                Err(_) => under_way = 0,
            }
        }
        let spent = self.server.processor_time()? - before;
        let each = spent as f64 / self.count as f64;
        let rate = self.count as f64 / begin.elapsed().as_secs_f64();
        println!("{what}: {each:.0} ns of the server each way and back, {rate:.0} a second");
        Ok(())
    }
}

/// The server, in a process of its own so that its memory and time can be measured.
struct ServerProcess {
    process: Child,
    plain: SocketAddr,
    http: SocketAddr,
}

impl ServerProcess {
    fn start() -> Result<Self, Box<dyn Error>> {
        let mut process = Command::new(std::env::current_exe()?)
            .arg("serve")
            .stdout(Stdio::piped())
            .spawn()?;
        let stdout = process.stdout.take().ok_or("the server has no output")?;
        let mut line = String::new();
        BufReader::new(stdout).read_line(&mut line)?;
        let (plain, http) = line
            .trim()
            .split_once(' ')
            .ok_or("two addresses expected")?;
        Ok(Self {
            plain: plain.parse()?,
            http: http.parse()?,
            process,
        })
    }

    /// Returns the resident memory in bytes.
    fn resident(&self) -> Result<u64, Box<dyn Error>> {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.process.id()))?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let kilobytes: u64 = line
            .ok_or("no VmRSS")?
            .trim()
            .trim_end_matches(" kB")
            .parse()?;
        Ok(kilobytes * 1024)
    }

    /// Returns the processor time of all threads in nanoseconds.
    fn processor_time(&self) -> Result<u64, Box<dyn Error>> {
        let mut sum = 0;
        for task in std::fs::read_dir(format!("/proc/{}/task", self.process.id()))? {
            let times = std::fs::read_to_string(task?.path().join("schedstat"))?;
            let first = times.split_whitespace().next().ok_or("no schedstat")?;
            sum += first.parse::<u64>()?;
        }
        Ok(sum)
    }
}

impl Drop for ServerProcess {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
