//! A panic ends one connection: the others, its shard and its endpoint go on.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

use std::collections::BTreeMap;
use std::net::UdpSocket;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::Extension;
use axum::routing::get;
use bytes::Bytes;
use clearway::http::{self, Client, Server};
use clearway::{
    ClientConfig, ConnectError, Connection, ConnectionError, Endpoint, EndpointBuilder, Fault,
    Instant, Observer, Role, ServerConfig, Stage, TraceEvent, TransportConfig,
};
use http_body_util::{Empty, StreamBody};
use tokio::task::JoinSet;

use crate::common::{IDENTITY, LOOPBACK, client, client_config, pattern, server_config};

/// Connections, one of which panics.
const CROWD: usize = 1_000;

/// Handshakes at once: fewer than the number from which a server sends Retry.
const AT_ONCE: usize = 50;

async fn echo(connection: &Connection) {
    while let Ok((mut send, mut recv)) = connection.accept_bi().await {
        if tokio::io::copy(&mut recv, &mut send).await.is_ok() {
            let _ = send.finish();
        }
    }
}

async fn ask(connection: &Connection, content: &[u8]) -> Result<Vec<u8>, String> {
    let asked = async {
        let (mut send, mut recv) = connection.open_bi().await.map_err(|e| e.to_string())?;
        send.write_all(content).await.map_err(|e| e.to_string())?;
        send.finish().map_err(|e| e.to_string())?;
        recv.read_to_end(content.len())
            .await
            .map_err(|e| e.to_string())
    };
    asked.await
}

/// An observer that panics at its next event once it is armed.
#[derive(Debug)]
struct Bomb(Arc<AtomicBool>);

impl Observer for Bomb {
    fn on_event(&mut self, _: Instant, _: &TraceEvent<'_>) {
        assert!(!self.0.load(Ordering::Relaxed), "the observer panics");
    }
}

/// A server that keeps the connections it accepts, and clients connected to it.
struct Crowd {
    server: Endpoint,
    client: Endpoint,
    near: Vec<Connection>,
    far: Arc<Mutex<BTreeMap<usize, Connection>>>,
    /// Arms the observer of the last connection.
    bomb: Arc<AtomicBool>,
}

/// Waits with a timeout that is far longer than even a slow machine needs.
fn patient() -> TransportConfig {
    let mut config = TransportConfig::default();
    config.idle_timeout = Duration::from_secs(120);
    config
}

impl Crowd {
    async fn gather(count: usize) -> Self {
        let bomb: Arc<AtomicBool> = Arc::default();
        let begun = Arc::new(AtomicUsize::new(0));
        let fuse = bomb.clone();
        let server = Endpoint::builder(LOOPBACK)
            .server(server_config().backlog(count).transport(patient()))
            .observe(move |_, _| {
                let last = begun.fetch_add(1, Ordering::Relaxed) + 1 == count;
                last.then(|| Box::new(Bomb(fuse.clone())) as Box<dyn Observer>)
            })
            .build()
            .unwrap();
        let far: Arc<Mutex<BTreeMap<usize, Connection>>> = Arc::default();
        tokio::spawn({
            let (server, far) = (server.clone(), far.clone());
            async move {
                server
                    .serve(move |connection: Connection| {
                        let far = far.clone();
                        async move {
                            // The first stream identifies the client's connection.
                            let (mut send, mut recv) = connection.accept_bi().await.unwrap();
                            let name = recv.read_to_end(8).await.unwrap();
                            let name = usize::from_be_bytes(name.try_into().unwrap());
                            far.lock().unwrap().insert(name, connection.clone());
                            send.write_all(b"noted").await.unwrap();
                            send.finish().unwrap();
                            echo(&connection).await;
                        }
                    })
                    .await
            }
        });
        let client = Endpoint::client(LOOPBACK, client_config().transport(patient())).unwrap();
        let mut near = Vec::with_capacity(count);
        while near.len() < count {
            let some = AT_ONCE.min(count - near.len());
            let connecting: Vec<_> = (0..some)
                .map(|_| client.connect(server.local_addr(), "localhost"))
                .collect();
            for connecting in connecting {
                let connection = connecting.await.unwrap();
                let (mut send, mut recv) = connection.open_bi().await.unwrap();
                send.write_all(&near.len().to_be_bytes()).await.unwrap();
                send.finish().unwrap();
                assert_eq!(recv.read_to_end(5).await.unwrap(), b"noted");
                near.push(connection);
            }
        }
        Self {
            server,
            client,
            near,
            far,
            bomb,
        }
    }

    fn far(&self, name: usize) -> Connection {
        self.far.lock().unwrap()[&name].clone()
    }

    /// Sends a request on every connection at once. Returns which failed, and why.
    async fn ask_all(&self) -> BTreeMap<usize, String> {
        let mut asking = JoinSet::new();
        for (name, connection) in self.near.iter().cloned().enumerate() {
            asking.spawn(async move {
                let content = pattern(name as u64, 3_000);
                let answer = ask(&connection, &content).await;
                let answer = answer.map(|answer| assert!(answer == content));
                (name, answer)
            });
        }
        let mut failed = BTreeMap::new();
        while let Some(asked) = asking.join_next().await {
            if let (name, Err(why)) = asked.unwrap() {
                failed.insert(name, why);
            }
        }
        failed
    }
}

/// The error that the application gets locally: INTERNAL_ERROR and the location of the panic.
fn panicked(error: &ConnectionError) -> &str {
    let ConnectionError::Transport(error) = error else {
        panic!("{error}");
    };
    assert_eq!(error.code.to_string(), "INTERNAL_ERROR");
    &error.reason
}

/// The error that the peer gets: the close, or if that was lost a stateless reset.
fn closed_by_peer(error: &ConnectionError) {
    match error {
        ConnectionError::PeerTransport(error) => {
            assert_eq!(error.code.to_string(), "INTERNAL_ERROR");
            assert_eq!(error.reason, "internal error", "tells no internals");
        }
        ConnectionError::StatelessReset => {}
        other => panic!("{other}"),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn transport_panic_in_one_of_a_thousand_connections_ends_only_that_one() {
    let crowd = Crowd::gather(CROWD).await;
    let mut gone = Vec::new();
    let stages = [
        (Stage::Receive, "panic while datagrams were received: "),
        (Stage::Turn, "panic while packets were sent: "),
        (Stage::Timeout, "panic while a timeout was handled: "),
        (Stage::Call, "panic in a call of the application: "),
    ];
    for (n, (stage, expected)) in stages.into_iter().enumerate() {
        let victim = 100 * (n + 1);
        let far = crowd.far(victim);
        far.inject(stage);
        if stage == Stage::Timeout {
            // Let the connection become idle first.
            far.closed().await;
        }
        gone.push(victim);
        let failed = crowd.ask_all().await;
        assert_eq!(
            failed.keys().copied().collect::<Vec<_>>(),
            gone,
            "{failed:?}"
        );
        let error = far.closed().await;
        let reason = panicked(&error);
        assert!(reason.starts_with(expected), "{reason}");
        assert!(reason.contains("shared.rs:"), "says where: {reason}");
        closed_by_peer(&crowd.near[victim].closed().await);
    }
    // In the middle of the transport, from code of the application.
    crowd.bomb.store(true, Ordering::Relaxed);
    let failed = crowd.ask_all().await;
    // Which of the client's connections was accepted last is random.
    let new: Vec<_> = failed.keys().filter(|name| !gone.contains(name)).collect();
    assert_eq!((new.len(), failed.len()), (1, gone.len() + 1), "{failed:?}");
    gone.push(*new[0]);
    let error = crowd.far(*new[0]).closed().await;
    assert!(panicked(&error).ends_with("the observer panics"), "{error}");
    closed_by_peer(&crowd.near[*new[0]].closed().await);

    let counters = crowd.server.counters()[0];
    assert_eq!(counters.panics, gone.len() as u64);
    assert_eq!(counters.connections, CROWD - gone.len());
    assert_eq!(crowd.server.open_connections(), CROWD - gone.len());
    assert!(crowd.server.failure().is_none());
    // No call waits for the terminated connection.
    crowd.server.close(0, b"");
    crowd.server.wait_idle().await;
    drop(crowd.client);
}

/// A datagram whose routing panics is lost, and retransmitted like any other.
#[tokio::test]
async fn routing_panic_drops_the_datagram_and_keeps_the_shard() {
    let crowd = Crowd::gather(2).await;
    crowd.server.inject(0, Fault::Routing(20));
    assert!(crowd.ask_all().await.is_empty());
    while crowd.server.counters()[0].routing_panics < 20 {
        crowd.near[0].ping();
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    assert!(crowd.ask_all().await.is_empty());
    let counters = crowd.server.counters()[0];
    assert_eq!((counters.routing_panics, counters.panics), (20, 0));
    assert!(crowd.server.failure().is_none());
}

/// When routing panics for every datagram, no client can be served, and `accept` returns that.
#[tokio::test]
async fn routing_that_panics_for_every_datagram_ends_the_shard() {
    let crowd = Crowd::gather(1).await;
    crowd.server.inject(0, Fault::Routing(u32::MAX));
    let stranger = UdpSocket::bind(LOOPBACK).unwrap();
    while crowd.server.failure().is_none() {
        stranger
            .send_to(b"junk", crowd.server.local_addr())
            .unwrap();
        tokio::task::yield_now().await;
    }
    assert_eq!(crowd.server.counters()[0].routing_panics, 1_001);
    let error = crowd.far(0).closed().await;
    assert!(
        panicked(&error).ends_with("injected into routing"),
        "{error}"
    );
}

/// Handles of a connection that panicked return what is known of it, and do not panic.
#[tokio::test]
async fn handles_of_a_connection_that_panicked_return_its_error() {
    let crowd = Crowd::gather(2).await;
    let far = crowd.far(0);
    let (remote, alpn) = (far.remote_address(), far.alpn());
    let (mut send, mut recv) = far.open_bi().await.unwrap();
    let waiting = tokio::spawn({
        let far = far.clone();
        async move { far.read_datagram().await }
    });
    tokio::task::yield_now().await;
    far.inject(Stage::Call);
    // The call that panics returns the same as later ones.
    let error = send.write_all(b"x").await.unwrap_err();
    assert!(error.to_string().contains("panic in a call"), "{error}");
    let error = far.closed().await;
    assert_eq!(waiting.await.unwrap(), Err(error.clone()));
    assert_eq!(recv.read(&mut [0]).await.unwrap_err(), error.clone().into());
    assert_eq!(far.open_bi().await.unwrap_err(), error);
    assert_eq!(far.accept_uni().await.unwrap_err(), error);
    assert_eq!(
        far.send_datagram(Bytes::new()).unwrap_err(),
        error.clone().into()
    );
    assert_eq!(send.finish().unwrap_err(), error.clone().into());
    assert_eq!(send.stopped().await.unwrap_err(), error);
    assert_eq!(far.handshake_complete().await.unwrap_err(), error);
    assert_eq!(far.close_reason(), Some(error));
    assert_eq!((far.remote_address(), far.alpn()), (remote, alpn));
    assert_eq!(far.role(), Role::Server);
    assert!(far.stats().counters.packets_received > 0);
    assert_eq!(far.max_datagram_size(), None);
    far.ping();
    far.close(1, b"");
    far.rotate_connection_ids();
    let _ = far.update_keys();
    drop((send, recv));
    closed_by_peer(&crowd.near[0].closed().await);
    assert_eq!(
        ask(&crowd.near[1], b"still here").await.unwrap(),
        b"still here"
    );
}

/// The same for a client, whose endpoint is a task of the application.
#[tokio::test]
async fn panic_in_a_client_connection_keeps_the_endpoints_other_connections() {
    let crowd = Crowd::gather(3).await;
    crowd.near[1].inject(Stage::Turn);
    let error = crowd.near[1].closed().await;
    assert!(panicked(&error).contains("packets were sent"), "{error}");
    closed_by_peer(&crowd.far(1).closed().await);
    assert_eq!(crowd.ask_all().await.len(), 1);
    assert_eq!(crowd.client.counters()[0].panics, 1);
    assert_eq!(crowd.client.open_connections(), 2);
}

/// Panics in callbacks that the shard calls for a new client.
#[tokio::test]
async fn panic_in_admit_or_observer_factory_refuses_only_that_client() {
    let calls = Arc::new(AtomicUsize::new(0));
    let counted = calls.clone();
    let config = server_config().admit(move |_| {
        assert!(counted.fetch_add(1, Ordering::Relaxed) != 0, "cannot judge");
        clearway::config::Admission::Accept
    });
    let made = AtomicUsize::new(0);
    let server = Endpoint::builder(LOOPBACK)
        .server(config)
        .observe(move |_, _| {
            assert!(made.fetch_add(1, Ordering::Relaxed) != 0, "cannot observe");
            None
        })
        .build()
        .unwrap();
    let serving = server.clone();
    tokio::spawn(async move {
        let application = async |connection: Connection| echo(&connection).await;
        serving.serve(application).await
    });
    let client = client();
    let refused = client.connect(server.local_addr(), "localhost").await;
    assert!(
        matches!(
            &refused,
            Err(ConnectError::Connection(ConnectionError::PeerTransport(error)))
                if error.code.to_string() == "CONNECTION_REFUSED"
        ),
        "{refused:?}"
    );
    // The first flight of the second is lost with the observer: it is sent again.
    let connection = client.connect(server.local_addr(), "localhost").await;
    let connection = connection.unwrap();
    assert_eq!(ask(&connection, b"hello").await.unwrap(), b"hello");
    let counters = server.counters()[0];
    assert_eq!(counters.panics, 2);
    assert_eq!((counters.connections, server.open_connections()), (1, 1));
    assert!(server.failure().is_none());
}

/// An observer factory that panics under a client's `connect` fails that call.
#[tokio::test]
async fn connect_with_an_observer_factory_that_panics_fails() {
    let client = EndpointBuilder::bind(LOOPBACK)
        .client(client_config())
        .observe(|_, _| panic!("cannot observe"))
        .build()
        .unwrap();
    let error = client.connect("127.0.0.1:9".parse().unwrap(), "localhost");
    let error = error.await.unwrap_err().to_string();
    assert!(error.ends_with("cannot observe"), "{error}");
    assert_eq!(client.counters()[0].connections, 0);
    client.wait_idle().await;
}

/// A waker that panics does not wake its task, but all others are woken.
#[tokio::test]
async fn panicking_waker_does_not_stop_other_wakeups() {
    use std::pin::pin;
    use std::task::{Context, Poll, Wake, Waker};
    struct Bad;
    impl Wake for Bad {
        fn wake(self: Arc<Self>) {
            panic!("cannot wake");
        }
    }
    let crowd = Crowd::gather(1).await;
    let near = crowd.near[0].clone();
    let (mut one, mut one_back) = near.open_bi().await.unwrap();
    let (mut two, mut two_back) = near.open_bi().await.unwrap();
    let waker = Waker::from(Arc::new(Bad));
    let mut buffer = [0; 8];
    {
        let mut reading = pin!(one_back.read(&mut buffer));
        let polled = reading.as_mut().poll(&mut Context::from_waker(&waker));
        assert!(matches!(polled, Poll::Pending));
    }
    let other = tokio::spawn(async move { two_back.read_to_end(8).await.unwrap() });
    tokio::task::yield_now().await;
    for send in [&mut one, &mut two] {
        send.write_all(b"hello").await.unwrap();
        send.finish().unwrap();
    }
    assert_eq!(other.await.unwrap(), b"hello");
    assert_eq!(one_back.read_to_end(8).await.unwrap(), b"hello");
    assert!(near.close_reason().is_none());
}

/// A server of HTTP/3 whose clients are one endpoint's connections to addresses of
/// the loopback network.
struct Site {
    server: Server,
    client: Client,
}

impl Site {
    fn open() -> Self {
        let config = ServerConfig::with_identity(IDENTITY.certificate_pem(), IDENTITY.key_pem());
        let config = config.unwrap().backlog(CROWD).transport(patient());
        let server = Server::bind("0.0.0.0:0".parse().unwrap(), config).unwrap();
        let router = Router::new()
            .route("/hello", get(async || vec![b'x'; 3_000]))
            .route(
                "/inject",
                get(async |Extension(connection): Extension<Connection>| {
                    connection.inject(Stage::Http);
                }),
            )
            .route("/panic", get(async || panicking()))
            .route("/body", get(async || Body::new(StreamBody::new(Pieces(3)))))
            .route(
                "/at-once",
                get(async || Body::new(StreamBody::new(Pieces(0)))),
            )
            .route(
                "/slow",
                get(async || {
                    tokio::time::sleep(Duration::from_millis(300)).await;
                    "slow"
                }),
            );
        let serving = server.clone();
        tokio::spawn(async move { serving.serve(router).await });
        let config = ClientConfig::dangerous_accept_any_certificate();
        let client = Client::new(config.transport(patient())).unwrap();
        Self { server, client }
    }

    /// A resource as seen from the `n`th connection.
    fn url(&self, n: usize, path: &str) -> String {
        let port = self.server.local_addr().port();
        format!("https://127.0.{}.{}:{port}/{path}", n / 250, n % 250 + 1)
    }

    async fn get(&self, n: usize, path: &str) -> Result<(u16, usize), http::Error> {
        let mut response = self.client.get(&self.url(n, path)).await?;
        let body = response.body_mut().bytes(1 << 20).await?;
        Ok((response.status().as_u16(), body.len()))
    }
}

fn panicking() -> &'static str {
    panic!("the handler panics")
}

/// A body that panics after this number of pieces.
struct Pieces(usize);

impl futures_core::Stream for Pieces {
    type Item = Result<http_body::Frame<Bytes>, std::convert::Infallible>;

    fn poll_next(
        mut self: std::pin::Pin<&mut Self>,
        _: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Option<Self::Item>> {
        assert!(self.0 > 0, "the body panics");
        self.0 -= 1;
        let data = Bytes::from_static(&[0; 10_000]);
        std::task::Poll::Ready(Some(Ok(http_body::Frame::data(data))))
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn http3_panic_in_one_of_a_thousand_connections_ends_only_that_one() {
    let site = Arc::new(Site::open());
    for n in 0..CROWD {
        assert_eq!(site.get(n, "hello").await.unwrap(), (200, 3_000));
    }
    let endpoint = site.server.endpoint();
    assert_eq!(endpoint.open_connections(), CROWD);
    let victim = 777;
    // Which of the two notices the end of the connection first is random.
    let _ = site.get(victim, "inject").await;
    let mut asking = JoinSet::new();
    for n in (0..CROWD).filter(|n| *n != victim) {
        let site = site.clone();
        asking.spawn(async move { site.get(n, "hello").await });
    }
    while let Some(asked) = asking.join_next().await {
        assert_eq!(asked.unwrap().unwrap(), (200, 3_000));
    }
    assert_eq!(endpoint.counters()[0].panics, 1);
    assert_eq!(endpoint.open_connections(), CROWD - 1);
    assert_eq!(endpoint.counters()[0].endpoint.accepted, CROWD as u64);
    // The next request is served on another connection.
    assert_eq!(site.get(victim, "hello").await.unwrap(), (200, 3_000));
    site.server.shutdown(Duration::from_secs(60)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn handler_panic_returns_500_and_other_requests_continue() {
    let site = Arc::new(Site::open());
    assert_eq!(site.get(0, "hello").await.unwrap(), (200, 3_000));
    let slow = tokio::spawn({
        let site = site.clone();
        async move { site.get(0, "slow").await }
    });
    assert_eq!(site.get(0, "panic").await.unwrap(), (500, 0));
    // A body that panics before its head was sent results in a status too; one that panics
    // later must reset the stream.
    assert_eq!(site.get(0, "at-once").await.unwrap(), (500, 0));
    let error = site.get(0, "body").await.unwrap_err();
    assert!(
        matches!(error, http::Error::Reset(code) if code == http::Code::INTERNAL_ERROR),
        "{error}"
    );
    assert_eq!(slow.await.unwrap().unwrap(), (200, 4));
    assert_eq!(site.get(0, "hello").await.unwrap(), (200, 3_000));
    let counters = site.server.endpoint().counters()[0];
    assert_eq!(counters.endpoint.accepted, 1, "all on one connection");
    assert_eq!(counters.panics, 0, "a handler is not the connection");
}

/// A service that cannot be cloned for one request answers the others.
#[tokio::test]
async fn panic_in_service_clone_returns_500_and_serving_continues() {
    struct Fragile(Arc<AtomicUsize>);
    impl Clone for Fragile {
        fn clone(&self) -> Self {
            // The first clone is the connection's.
            assert!(self.0.fetch_add(1, Ordering::Relaxed) != 1, "cannot clone");
            Self(self.0.clone())
        }
    }
    impl tower_service::Service<::http::Request<http::Incoming>> for Fragile {
        type Response = ::http::Response<Empty<Bytes>>;
        type Error = std::convert::Infallible;
        type Future = std::future::Ready<Result<Self::Response, Self::Error>>;

        fn poll_ready(
            &mut self,
            _: &mut std::task::Context<'_>,
        ) -> std::task::Poll<Result<(), Self::Error>> {
            std::task::Poll::Ready(Ok(()))
        }

        fn call(&mut self, _: ::http::Request<http::Incoming>) -> Self::Future {
            std::future::ready(Ok(::http::Response::default()))
        }
    }
    let config = ServerConfig::with_identity(IDENTITY.certificate_pem(), IDENTITY.key_pem());
    let server = Server::bind(LOOPBACK, config.unwrap()).unwrap();
    let serving = server.clone();
    tokio::spawn(async move { serving.serve(Fragile(Arc::default())).await });
    let config = ClientConfig::with_roots(IDENTITY.certificate_pem()).unwrap();
    let client = Client::new(config).unwrap();
    let url = format!("https://localhost:{}/", server.local_addr().port());
    for expected in [500, 200] {
        let response = client.get(&url).await.unwrap();
        assert_eq!(response.status().as_u16(), expected);
    }
    assert_eq!(server.endpoint().counters()[0].endpoint.accepted, 1);
}
