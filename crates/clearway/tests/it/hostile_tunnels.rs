//! Clients that hold tunnels, or flood them, and what that may cost.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

use std::future::pending;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use axum::routing::{any, get};
use axum::{Extension, Router};
use clearway::http::{
    Client, OpenTunnel, OpenTunnelError, Protocol, Server, ServerBuilder, Tunnel,
};
use clearway::{ClientConfig, ServerConfig};
use http::{Request, Response};

use crate::common::{IDENTITY, LOOPBACK};

const MIB: usize = 1 << 20;

/// Most attempts to see something that another thread does.
const ATTEMPTS: usize = 2_000;

fn serve(
    router: Router,
    change: impl FnOnce(ServerConfig) -> ServerConfig,
    build: impl FnOnce(ServerBuilder) -> ServerBuilder,
) -> Server {
    let config = ServerConfig::with_identity(IDENTITY.certificate_pem(), IDENTITY.key_pem());
    let server = Server::builder(LOOPBACK, change(config.unwrap())).tunnels();
    let server = build(server).build().unwrap();
    let serving = server.clone();
    tokio::spawn(async move { serving.serve(router).await });
    server
}

fn client() -> Client {
    Client::new(ClientConfig::with_roots(IDENTITY.certificate_pem()).unwrap()).unwrap()
}

async fn open(client: &Client, server: &Server) -> Result<OpenTunnel, OpenTunnelError> {
    let mut request = Request::new(());
    let port = server.local_addr().port();
    *request.uri_mut() = format!("https://localhost:{port}/tunnel").parse().unwrap();
    request.extensions_mut().insert(Protocol::new("test"));
    client.tunnel(request).await
}

/// Waits until the condition holds.
async fn until(what: &str, condition: impl Fn() -> bool) {
    for _ in 0..ATTEMPTS {
        if condition() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    panic!("{what}");
}

/// Accepts the tunnel, and reads nothing.
async fn hold(Extension(tunnel): Extension<Tunnel>) {
    let held = tunnel.accept(Response::new(())).await.unwrap();
    pending::<()>().await;
    drop(held);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unread_datagrams_are_bounded_and_charged_to_the_memory_budget() {
    let router = Router::new().route("/tunnel", any(hold));
    let server = serve(router, |config| config.memory_budget(64 * MIB), |it| it);
    let client = client();
    let mut tunnels = Vec::new();
    for _ in 0..8 {
        tunnels.push(open(&client, &server).await.unwrap());
    }
    let before = server.endpoint().memory_used();
    let mut most = 0;
    for round in 0..2_000 {
        let tunnel = &tunnels[round % tunnels.len()];
        tunnel.datagrams.send_wait(&[0; 1_000]).await.unwrap();
        most = most.max(server.endpoint().memory_used());
    }
    let used = || server.endpoint().memory_used();
    until("the queues fill", || used() > before + MIB / 2).await;
    most = most.max(used());
    // A connection's tunnels keep 1 MiB, and the transport's own queues as much each.
    assert!(most < before + 4 * MIB, "{before}, then {most} bytes");
}

/// Notes when a handler is dropped.
struct Running(Arc<AtomicUsize>);

impl Running {
    fn new(count: &Arc<AtomicUsize>) -> Self {
        count.fetch_add(1, Ordering::Relaxed);
        Self(count.clone())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn half_open_tunnels_are_limited_and_end_with_their_client() {
    const CONNECTIONS: usize = 5;
    const MOST: usize = 50;
    let running = Arc::new(AtomicUsize::new(0));
    let count = running.clone();
    let never = async move || {
        let _running = Running::new(&count);
        pending::<()>().await;
    };
    let router = Router::new()
        .route("/tunnel", any(never))
        .route("/", get(async || "still here"));
    let server = serve(router, |config| config, |it| it.max_tunnels(MOST));
    let attackers: Vec<Client> = (0..CONNECTIONS).map(|_| client()).collect();
    let mut opening = tokio::task::JoinSet::new();
    for attacker in &attackers {
        for _ in 0..90 {
            let (attacker, server) = (attacker.clone(), server.clone());
            opening.spawn(async move { open(&attacker, &server).await.map(drop) });
        }
    }
    // Whatever is not rejected never ends.
    until("the limit is reached", || {
        server.counters().rejected > 0 && running.load(Ordering::Relaxed) >= MOST / 2
    })
    .await;
    assert!(server.counters().tunnels <= MOST);
    assert!(running.load(Ordering::Relaxed) <= MOST);
    let url = format!("https://localhost:{}/", server.local_addr().port());
    let mut response = client().get(&url).await.unwrap();
    assert_eq!(response.body_mut().text(100).await.unwrap(), "still here");
    // They give up, each by a reset of its request.
    opening.abort_all();
    while let Some(ended) = opening.join_next().await {
        assert!(!matches!(ended, Ok(Ok(()))));
    }
    until("handlers are dropped", || {
        running.load(Ordering::Relaxed) == 0
    })
    .await;
    until("permits are returned", || server.counters().tunnels == 0).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn data_that_is_not_read_stays_with_the_client() {
    let router = Router::new().route("/tunnel", any(hold));
    let server = serve(router, |config| config.memory_budget(64 * MIB), |it| it);
    let client = client();
    let mut tunnel = open(&client, &server).await.unwrap();
    let before = server.endpoint().memory_used();
    let piece = bytes::Bytes::from(vec![0; 64 << 10]);
    let sending = async {
        for _ in 0..2_000 {
            tunnel.sender.send(piece.clone()).await.unwrap();
        }
    };
    // 128 MiB do not pass.
    let sent = tokio::time::timeout(Duration::from_secs(2), sending).await;
    assert!(sent.is_err());
    let used = server.endpoint().memory_used();
    assert!(used < before + 32 * MIB, "{before}, then {used} bytes");
}
