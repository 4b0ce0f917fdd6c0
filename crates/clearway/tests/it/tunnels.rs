//! Tunnels: extended CONNECT, its datagrams and capsules.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

use std::sync::Arc;
use std::time::Duration;

use axum::extract::Request;
use axum::response::{IntoResponse as _, Response as AxumResponse};
use axum::{Extension, Router};
use bytes::Bytes;
use clearway::http::{
    Client, Error, OpenTunnel, OpenTunnelError, Protocol, Server, ServerBuilder, Tunnel,
    TunnelDatagramError, TunnelDatagrams, TunnelReceiver, TunnelSender,
};
use clearway::{ClientConfig, ServerConfig};
use http::{Response, StatusCode};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::sync::{Notify, mpsc};

use crate::common::{IDENTITY, LOOPBACK};

/// Most attempts to see something that another thread does.
const ATTEMPTS: usize = 2_000;

struct World {
    server: Server,
    client: Client,
}

impl World {
    fn new(router: Router, change: impl FnOnce(ServerBuilder) -> ServerBuilder) -> Self {
        let config = ServerConfig::with_identity(IDENTITY.certificate_pem(), IDENTITY.key_pem());
        let server = change(Server::builder(LOOPBACK, config.unwrap()).tunnels());
        let server = server.build().unwrap();
        let serving = server.clone();
        tokio::spawn(async move { serving.serve(router).await });
        let config = ClientConfig::with_roots(IDENTITY.certificate_pem()).unwrap();
        let client = Client::new(config).unwrap();
        Self { server, client }
    }

    fn request(&self, path: &str) -> Request<()> {
        let port = self.server.local_addr().port();
        let request = http::Request::builder().uri(format!("https://localhost:{port}{path}"));
        let mut request = request.body(()).unwrap();
        request.extensions_mut().insert(Protocol::new("test"));
        request
    }

    async fn open(&self, path: &str) -> Result<OpenTunnel, OpenTunnelError> {
        self.client.tunnel(self.request(path)).await
    }

    /// Waits until the server has no tunnel left.
    async fn wait_for_no_tunnel(&self) {
        for _ in 0..ATTEMPTS {
            if self.server.counters().tunnels == 0 {
                assert_eq!(self.server.counters().requests, 0);
                return;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        panic!("{:?}", self.server.counters());
    }
}

fn router<F, T>(handler: F) -> Router
where
    F: Fn(Tunnel) -> T + Clone + Send + Sync + 'static,
    T: Future<Output = ()> + Send + 'static,
{
    let handle = move |Extension(tunnel): Extension<Tunnel>| {
        let handled = handler(tunnel);
        async move {
            handled.await;
            // Ignored, because the tunnel was accepted.
            StatusCode::IM_A_TEAPOT
        }
    };
    Router::new().route("/tunnel", axum::routing::any(handle))
}

async fn accept(tunnel: Tunnel) -> (TunnelSender, TunnelReceiver, TunnelDatagrams) {
    let response = Response::builder().header("content-length", "7");
    tunnel.accept(response.body(()).unwrap()).await.unwrap()
}

/// Sends data and datagrams back until the end.
async fn echo(tunnel: Tunnel) {
    let (mut tx, mut rx, mut datagrams) = accept(tunnel).await;
    loop {
        tokio::select! {
            data = rx.chunk() => match data.unwrap() {
                Some(data) => tx.send(data).await.unwrap(),
                None => break,
            },
            Ok(Some(datagram)) = datagrams.recv() => datagrams.send_wait(&datagram).await.unwrap(),
        }
    }
    tx.finish().unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn data_and_datagrams_pass_in_both_directions() {
    for on_caller_runtime in [false, true] {
        let world = World::new(router(echo), |server| match on_caller_runtime {
            true => server.handlers_on_caller_runtime(),
            false => server,
        });
        let tunnel = world.open("/tunnel").await.unwrap();
        assert_eq!(tunnel.response.status(), StatusCode::OK);
        assert!(tunnel.response.headers().get("content-length").is_none());
        let (mut tx, mut rx, mut datagrams) = tunnel.into_parts();
        assert_eq!(world.server.counters().tunnels, 1);
        for round in 0..20_u8 {
            let sent = vec![round; 50_000];
            tx.write_all(&sent).await.unwrap();
            let mut received = vec![0; sent.len()];
            rx.read_exact(&mut received).await.unwrap();
            assert_eq!(received, sent);
            let largest = datagrams.max_size().unwrap();
            let sent = vec![round; largest];
            datagrams.send(&sent).unwrap();
            assert_eq!(datagrams.recv().await.unwrap().unwrap(), sent);
        }
        tx.finish().unwrap();
        assert_eq!(rx.chunk().await.unwrap(), None);
        assert_eq!(datagrams.recv().await.unwrap(), None);
        world.wait_for_no_tunnel().await;
    }
}

#[tokio::test]
async fn tunnel_outlives_its_handler() {
    let spawn = async |tunnel: Tunnel| {
        let (tx, rx, datagrams) = accept(tunnel).await;
        tokio::spawn(async move {
            let (mut tx, mut rx, _datagrams) = (tx, rx, datagrams);
            tokio::io::copy(&mut rx, &mut tx).await.unwrap();
            tx.shutdown().await.unwrap();
        });
    };
    let handler = move |tunnel| spawn(tunnel);
    let handle = move |Extension(tunnel): Extension<Tunnel>| async move {
        handler(tunnel).await;
        StatusCode::IM_A_TEAPOT
    };
    let router = Router::new().route("/tunnel", axum::routing::any(handle));
    let world = World::new(router, |server| server);
    let (mut tx, mut rx, _datagrams) = world.open("/tunnel").await.unwrap().into_parts();
    tx.send(Bytes::from_static(b"hello")).await.unwrap();
    assert_eq!(rx.chunk().await.unwrap().unwrap(), "hello");
    tx.finish().unwrap();
    assert_eq!(rx.chunk().await.unwrap(), None);
    world.wait_for_no_tunnel().await;
}

#[tokio::test]
async fn refused_tunnel_returns_the_response() {
    let refuse = async || (StatusCode::FORBIDDEN, "not you").into_response();
    let world = World::new(Router::new().fallback(refuse), |server| server);
    let error = world.open("/tunnel").await.unwrap_err();
    assert_eq!(error.status(), Some(StatusCode::FORBIDDEN));
    let OpenTunnelError::Refused(mut response) = error else {
        panic!("{error}");
    };
    assert_eq!(response.body_mut().text(10).await.unwrap(), "not you");
    world.wait_for_no_tunnel().await;
}

#[tokio::test]
async fn server_without_tunnels_is_unsupported() {
    let config = ServerConfig::with_identity(IDENTITY.certificate_pem(), IDENTITY.key_pem());
    let server = Server::bind(LOOPBACK, config.unwrap()).unwrap();
    let serving = server.clone();
    tokio::spawn(async move { serving.serve(router(echo)).await });
    let config = ClientConfig::with_roots(IDENTITY.certificate_pem()).unwrap();
    let client = Client::new(config).unwrap();
    let world = World { server, client };
    match world.open("/tunnel").await.unwrap_err() {
        OpenTunnelError::Failed(Error::Unsendable(error)) => {
            assert!(error.to_string().contains("extended CONNECT"), "{error}");
        }
        other => panic!("{other}"),
    }
}

#[tokio::test]
async fn datagram_that_does_not_fit_is_too_large() {
    let world = World::new(router(echo), |server| server);
    let tunnel = world.open("/tunnel").await.unwrap();
    let datagrams = tunnel.datagrams;
    let max = datagrams.max_size().unwrap();
    assert!(max > 1_000);
    match datagrams.send(&vec![0; max + 1]) {
        Err(TunnelDatagramError::TooLarge { max: told }) => assert_eq!(told, max),
        other => panic!("{other:?}"),
    }
    datagrams.send(&vec![0; max]).unwrap();
}

/// The client's event loop is a task of this thread, and sends nothing in between.
#[tokio::test]
async fn datagrams_beyond_the_queue_are_blocked_until_there_is_room() {
    let world = World::new(router(echo), |server| server);
    let tunnel = world.open("/tunnel").await.unwrap();
    let datagrams = tunnel.datagrams;
    let blocked = (0..5_000).find_map(|_| datagrams.send(&[0; 1_000]).err());
    assert!(
        matches!(blocked, Some(TunnelDatagramError::Blocked)),
        "{blocked:?}"
    );
    datagrams.send_wait(&[0; 1_000]).await.unwrap();
}

#[tokio::test]
async fn unread_datagrams_are_dropped_oldest_first() {
    const SENT: u32 = 2_000;
    let send = async |tunnel: Tunnel| {
        let (mut tx, _rx, datagrams) = accept(tunnel).await;
        for n in 0..SENT {
            datagrams.send_wait(&n.to_be_bytes()).await.unwrap();
        }
        tx.send(Bytes::from_static(b"sent")).await.unwrap();
        // Until the client has read them.
        tx.stopped().await;
    };
    let world = World::new(router(send), |server| server);
    let (_tx, mut rx, mut datagrams) = world.open("/tunnel").await.unwrap().into_parts();
    // It was sent behind the datagrams.
    assert_eq!(rx.chunk().await.unwrap().unwrap(), "sent");
    let mut numbers = Vec::new();
    for _ in 0..ATTEMPTS {
        if datagrams.dropped() > 0 {
            break;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    assert!(datagrams.dropped() > 0);
    while numbers.last() != Some(&(SENT - 1)) {
        let datagram = datagrams.recv().await.unwrap().unwrap();
        numbers.push(u32::from_be_bytes(datagram[..].try_into().unwrap()));
    }
    assert!(numbers.len() <= 512, "{}", numbers.len());
    assert!(numbers.is_sorted() && numbers[0] > 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn halves_of_a_server_fail_when_the_client_gives_up() {
    let (report, mut reports) = mpsc::channel(1);
    let handler = move |tunnel| {
        let report = report.clone();
        async move {
            let (mut tx, mut rx, mut datagrams) = accept(tunnel).await;
            let read = rx.chunk().await.unwrap_err();
            let stopped = tx.stopped().await;
            let received = datagrams.recv().await.unwrap_err();
            let sent = datagrams.send(b"x").unwrap_err();
            report.send((read, stopped, received, sent)).await.unwrap();
        }
    };
    let world = World::new(router(handler), |server| server);
    let tunnel = world.open("/tunnel").await.unwrap();
    drop(tunnel);
    let (read, stopped, received, sent) = reports.recv().await.unwrap();
    assert!(matches!(read, Error::Reset(_)), "{read}");
    assert!(matches!(stopped, Error::Stopped(_)), "{stopped}");
    assert!(matches!(received, Error::Reset(_)), "{received}");
    assert!(matches!(sent, TunnelDatagramError::Ended(_)), "{sent}");
    world.wait_for_no_tunnel().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tunnels_beyond_the_limit_are_rejected() {
    let world = World::new(router(echo), |server| server.max_tunnels(3));
    let mut open = Vec::new();
    let error = loop {
        match world.open("/tunnel").await {
            Ok(tunnel) => open.push(tunnel),
            Err(error) => break error,
        }
    };
    // One connection leaves places for others.
    assert_eq!(open.len(), 2);
    assert!(
        matches!(error, OpenTunnelError::Failed(ref error) if error.is_safe_to_retry()),
        "{error}"
    );
    assert_eq!(world.server.counters().tunnels, 2);
    assert!(world.server.counters().rejected > 0);
    open.clear();
    world.wait_for_no_tunnel().await;
    world.open("/tunnel").await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn shutdown_waits_for_tunnels_that_end_themselves() {
    let handler = async |tunnel: Tunnel| {
        let closing = tunnel.shutdown_begins();
        let (mut tx, _rx, _datagrams) = accept(tunnel).await;
        closing.await;
        tx.send(Bytes::from_static(b"goodbye")).await.unwrap();
        tx.finish().unwrap();
    };
    let world = World::new(router(handler), |server| server);
    let (mut tx, mut rx, _datagrams) = world.open("/tunnel").await.unwrap().into_parts();
    let shutdown = world.server.shutdown(Duration::from_secs(60));
    let read = async {
        assert_eq!(rx.chunk().await.unwrap().unwrap(), "goodbye");
        assert_eq!(rx.chunk().await.unwrap(), None);
        // The server may not read any more.
        let _ = tx.finish();
    };
    tokio::join!(shutdown, read);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn shutdown_cuts_tunnels_off_when_patience_is_over() {
    let handler = async |tunnel: Tunnel| {
        let (_tx, mut rx, _datagrams) = accept(tunnel).await;
        rx.chunk().await.unwrap_err();
    };
    let world = World::new(router(handler), |server| server);
    let (_tx, mut rx, _datagrams) = world.open("/tunnel").await.unwrap().into_parts();
    world.server.shutdown(Duration::from_millis(50)).await;
    let error = rx.chunk().await.unwrap_err();
    assert!(matches!(error, Error::ConnectionLost(_)), "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn capsules_pass_whole_and_unknown_ones_are_skipped() {
    let handler = async |tunnel: Tunnel| {
        let (mut tx, rx, _datagrams) = accept(tunnel).await;
        let mut capsules = rx.into_capsules(100_000);
        while let Some(capsule) = capsules.next(|kind| kind != 99).await.unwrap() {
            tx.send_capsule(capsule.kind, capsule.value).await.unwrap();
        }
        assert_eq!(capsules.skipped(), 200_000);
        tx.finish().unwrap();
    };
    let world = World::new(router(handler), |server| server);
    let (mut tx, rx, _datagrams) = world.open("/tunnel").await.unwrap().into_parts();
    let mut capsules = rx.into_capsules(100_000);
    for (kind, length) in [(0, 5), (1 << 40, 100_000), (7, 0)] {
        let unknown = Bytes::from(vec![1; 200_000]);
        if kind == 7 {
            tx.send_capsule(99, unknown).await.unwrap();
        }
        let value = Bytes::from(vec![kind as u8; length]);
        tx.send_capsule(kind, value.clone()).await.unwrap();
        let echoed = capsules.next(|_| true).await.unwrap().unwrap();
        assert_eq!((echoed.kind, echoed.value), (kind, value));
    }
    tx.finish().unwrap();
    assert!(capsules.next(|_| true).await.unwrap().is_none());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn oversized_or_incomplete_capsules_end_the_reader() {
    let (report, mut reports) = mpsc::channel(1);
    let handler = move |tunnel| {
        let report = report.clone();
        async move {
            let (_tx, rx, _datagrams) = accept(tunnel).await;
            let error = rx.into_capsules(100).next(|_| true).await.unwrap_err();
            report.send(error).await.unwrap();
        }
    };
    let world = World::new(router(handler), |server| server);
    // 2^62 - 1 bytes are announced, and then two of three come.
    let endless = [&[0][..], &[0xff; 8], b"data"].concat();
    let incomplete = vec![0, 3, b'a', b'b'];
    for (data, code) in [
        (endless, clearway::http::Code::EXCESSIVE_LOAD),
        (incomplete, clearway::http::Code::MESSAGE_ERROR),
    ] {
        let (mut tx, _rx, _datagrams) = world.open("/tunnel").await.unwrap().into_parts();
        tx.send(data.into()).await.unwrap();
        let _ = tx.finish();
        match reports.recv().await.unwrap() {
            Error::Malformed(error) => assert_eq!(error.code, code),
            other => panic!("{other}"),
        }
    }
    world.wait_for_no_tunnel().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tunnel_is_accepted_once_and_only_with_success() {
    let done = Arc::new(Notify::new());
    let handle = {
        let done = done.clone();
        async move |Extension(tunnel): Extension<Tunnel>, request: Request| -> AxumResponse {
            let teapot = Response::builder().status(418).body(()).unwrap();
            let wrong = tunnel.clone().accept(teapot).await.unwrap_err();
            assert!(wrong.to_string().contains("200 to 299"), "{wrong}");
            let (mut tx, ..) = tunnel.clone().accept(Response::new(())).await.unwrap();
            let again = tunnel.accept(Response::new(())).await.unwrap_err();
            assert!(again.to_string().contains("answered before"), "{again}");
            // The body has passed to the other reader.
            let body = axum::body::to_bytes(request.into_body(), 10).await;
            assert!(body.unwrap().is_empty());
            tx.finish().unwrap();
            done.notify_one();
            StatusCode::OK.into_response()
        }
    };
    let router = Router::new().route("/tunnel", axum::routing::any(handle));
    let world = World::new(router, |server| server);
    let (_tx, mut rx, _datagrams) = world.open("/tunnel").await.unwrap().into_parts();
    assert_eq!(rx.chunk().await.unwrap(), None);
    done.notified().await;
}
