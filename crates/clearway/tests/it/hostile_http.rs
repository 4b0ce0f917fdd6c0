//! Hostile clients of [`clearway::http::Server`], over sockets: they stall, send slowly or
//! cancel, and other clients are served.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

use std::convert::Infallible;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Poll;
use std::time::Duration;

use axum::Router;
use axum::extract::Request;
use axum::routing::{get, post};
use bytes::Bytes;
use clearway::http::{Client, Code, Deadline, Error, Server, ServerBuilder, Timeouts};
use clearway::{
    ClientConfig, Connection, ConnectionError, Endpoint, ReadError, RecvStream, SendStream,
    ServerConfig, TransportConfig,
};
use http::Response;
use http_body::{Body, Frame};
use http_body_util::{BodyExt as _, Full};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use crate::common::{IDENTITY, LOOPBACK};

/// Long enough for a test on a machine that is busy with something else.
const PATIENCE: Duration = Duration::from_secs(60);

/// GET https://h/ as a HEADERS frame of static entries and one literal.
const GET: &[u8] = &[0x01, 0x08, 0x00, 0x00, 0xd1, 0xd7, 0xc1, 0x50, 0x01, b'h'];

/// POST https://h/ in the same way.
const POST: &[u8] = &[0x01, 0x08, 0x00, 0x00, 0xd4, 0xd7, 0xc1, 0x50, 0x01, b'h'];

/// Deadlines of a second.
fn short() -> Timeouts {
    let second = Some(Duration::from_secs(1));
    Timeouts {
        request_headers: second,
        request_body: second,
        response: second,
        ..Timeouts::default()
    }
}

fn builder() -> ServerBuilder {
    let config =
        ServerConfig::with_identity(IDENTITY.certificate_pem(), IDENTITY.key_pem()).unwrap();
    Server::builder(LOOPBACK, config)
}

/// A server of `router`.
fn serve(builder: ServerBuilder, router: Router) -> Server {
    let server = builder.build().unwrap();
    let serving = server.clone();
    tokio::spawn(async move { serving.serve(router).await });
    server
}

/// Checks that a well-behaved client is served.
async fn ask(server: &Server, path: &str) -> Result<String, Error> {
    let config = ClientConfig::with_roots(IDENTITY.certificate_pem()).unwrap();
    let client = Client::new(config)?;
    let url = format!("https://localhost:{}{path}", server.local_addr().port());
    let mut response = client.get(&url).await?;
    response.body_mut().text(1 << 20).await
}

async fn assert_serves(server: &Server) {
    let answer = tokio::time::timeout(PATIENCE, ask(server, "/small")).await;
    assert_eq!(answer.expect("an answer").unwrap(), "small");
}

fn small() -> Router {
    Router::new().route("/small", get(async || "small"))
}

/// Waits until a condition holds.
async fn until(what: &str, mut so: impl FnMut() -> bool) {
    let waiting = async {
        while !so() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    let waited = tokio::time::timeout(PATIENCE, waiting).await;
    waited.unwrap_or_else(|_| panic!("not within {PATIENCE:?}: {what}"));
}

/// The same for what a future answers.
async fn within<T>(what: &str, future: impl Future<Output = T>) -> T {
    let answer = tokio::time::timeout(PATIENCE, future).await;
    answer.unwrap_or_else(|_| panic!("not within {PATIENCE:?}: {what}"))
}

/// A client that writes raw bytes on its streams, and keeps its connection alive.
struct Forger {
    connection: Connection,
    _control: SendStream,
    _endpoint: Endpoint,
}

impl Forger {
    async fn new(server: &Server) -> Self {
        Self::with(server, |_| {}).await
    }

    async fn with(server: &Server, change: impl FnOnce(&mut TransportConfig)) -> Self {
        let mut transport = TransportConfig::default();
        transport.keep_alive = Some(Duration::from_millis(200));
        change(&mut transport);
        let config = ClientConfig::with_roots(IDENTITY.certificate_pem()).unwrap();
        let config = config.alpn(["h3"]).transport(transport);
        let endpoint = Endpoint::client(LOOPBACK, config).unwrap();
        let connection = endpoint.connect(server.local_addr(), "localhost");
        let connection = within("a connection", connection.into_future())
            .await
            .unwrap();
        let mut control = connection.open_uni().await.unwrap();
        // The type, and empty SETTINGS.
        control.write_all(&[0, 4, 0]).await.unwrap();
        Self {
            connection,
            _control: control,
            _endpoint: endpoint,
        }
    }

    /// Opens a stream and writes these bytes.
    async fn open(&self, bytes: &[u8]) -> (SendStream, RecvStream) {
        let (mut send, recv) = self.connection.open_bi().await.unwrap();
        send.write_all(bytes).await.unwrap();
        (send, recv)
    }

    /// Opens a stream, writes these bytes and finishes it.
    async fn whole(&self, bytes: &[u8]) -> (SendStream, RecvStream) {
        let (mut send, recv) = self.open(bytes).await;
        send.finish().unwrap();
        (send, recv)
    }
}

/// Returns the code with which the server reset its stream.
async fn reset_code(recv: &mut RecvStream) -> Code {
    let reading = async {
        loop {
            match recv.read_chunk(1 << 16).await {
                Ok(Some(_)) => {}
                Err(ReadError::Reset(code)) => return Code(code),
                other => panic!("no reset: {other:?}"),
            }
        }
    };
    within("a reset", reading).await
}

async fn close_code(forger: &Forger) -> Code {
    match within("the end", forger.connection.closed()).await {
        ConnectionError::PeerApplication { code, .. } => Code(code),
        other => panic!("closed otherwise: {other}"),
    }
}

/// Counts its instances.
#[derive(Clone, Default)]
struct Alive(Arc<AtomicUsize>);

impl Alive {
    fn one(&self) -> Guard {
        self.0.fetch_add(1, Ordering::SeqCst);
        Guard(self.0.clone())
    }

    fn count(&self) -> usize {
        self.0.load(Ordering::SeqCst)
    }
}

struct Guard(Arc<AtomicUsize>);

impl Drop for Guard {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

/// A body of a megabyte, in pieces, that holds a resource such as an open file.
struct Large {
    left: usize,
    _held: Guard,
}

impl Body for Large {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut std::task::Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        const PIECE: usize = 64 << 10;
        Poll::Ready(self.left.checked_sub(PIECE).map(|left| {
            self.left = left;
            Ok(Frame::data(Bytes::from_static(&[7; PIECE])))
        }))
    }
}

fn large(alive: &Alive) -> Router {
    let alive = alive.clone();
    small().route(
        "/",
        get(async move || {
            Response::new(axum::body::Body::new(Large {
                left: 1 << 20,
                _held: alive.one(),
            }))
        }),
    )
}

/// Connections without flow-control credit request a megabyte each, and stay alive with PINGs.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clients_that_do_not_read_are_closed_and_release_everything() {
    let alive = Alive::default();
    let server = serve(builder().timeouts(short()), large(&alive));
    let mut forgers = Vec::new();
    for credit in [(0, 1 << 20), (1 << 20, 0), (0, 0), (1_000, 1_000)] {
        let forger = Forger::with(&server, |transport| {
            transport.streams.connection_window = credit.0;
            transport.streams.stream_window = credit.1;
        });
        let forger = forger.await;
        let mut streams = Vec::new();
        for _ in 0..50 {
            streams.push(forger.whole(GET).await);
        }
        forgers.push((forger, streams));
    }
    until("200 responses under way", || alive.count() == 200).await;
    assert_serves(&server).await;
    until("none of them", || alive.count() == 0).await;
    until("no request", || server.counters().requests == 0).await;
    for (forger, streams) in &mut forgers {
        for (_, recv) in streams {
            assert_eq!(reset_code(recv).await, Code::REQUEST_CANCELLED);
        }
        assert_eq!(forger.connection.close_reason(), None);
    }
    assert_serves(&server).await;
}

/// The responses fit into the transport's buffers.
#[tokio::test]
async fn small_responses_that_are_never_read_time_out() {
    let server = serve(
        builder().timeouts(short()),
        small().route("/", get(async || "x")),
    );
    let forger = Forger::with(&server, |transport| {
        transport.streams.connection_window = 0;
    });
    let forger = forger.await;
    let mut streams = Vec::new();
    for _ in 0..50 {
        streams.push(forger.whole(GET).await);
    }
    for (_, recv) in &mut streams {
        assert_eq!(reset_code(recv).await, Code::REQUEST_CANCELLED);
    }
    assert_serves(&server).await;
}

/// A server whose handler reports how reading the body ended.
fn reading(told: UnboundedSender<Result<usize, String>>) -> Router {
    let read = async move |request: Request| {
        let read = request.into_body().collect().await;
        let read = read.map(|body| body.to_bytes().len());
        told.send(read.map_err(|error| whole_text(&error))).unwrap();
    };
    small().route("/", post(read))
}

fn whole_text(error: &dyn std::error::Error) -> String {
    let source = error.source().map(whole_text).unwrap_or_default();
    format!("{error}: {source}")
}

#[tokio::test]
async fn stalled_upload_fails_the_read_with_timed_out() {
    let (told, mut hears) = unbounded_channel();
    let server = serve(builder().timeouts(short()), reading(told));
    let forger = Forger::new(&server).await;
    let mut streams = Vec::new();
    for _ in 0..20 {
        // Five bytes of a hundred.
        let begun = [POST, &[0x00, 0x40, 100], b"begun"].concat();
        streams.push(forger.open(&begun).await);
    }
    for _ in 0..20 {
        let heard = within("a read that fails", hears.recv()).await.unwrap();
        let error = heard.expect_err("a whole body");
        assert!(
            error.contains(&Deadline::RequestBody.to_string()),
            "{error}"
        );
    }
    for (_, recv) in &mut streams {
        assert_eq!(reset_code(recv).await, Code::REQUEST_INCOMPLETE);
    }
    until("no request", || server.counters().requests == 0).await;
    assert_serves(&server).await;
}

#[tokio::test]
async fn stalled_header_section_is_rejected() {
    let server = serve(builder().timeouts(short()), small());
    let forger = Forger::new(&server).await;
    let mut streams = Vec::new();
    for len in 1..GET.len() {
        streams.push(forger.open(&GET[..len]).await);
    }
    for (_, recv) in &mut streams {
        assert_eq!(reset_code(recv).await, Code::REQUEST_REJECTED);
    }
    assert_serves(&server).await;
}

#[tokio::test]
async fn idle_connection_is_closed_despite_pings() {
    let timeouts = Timeouts {
        idle: Some(Duration::from_secs(1)),
        ..Timeouts::default()
    };
    let server = serve(builder().timeouts(timeouts), small());
    let forger = Forger::new(&server).await;
    assert_eq!(close_code(&forger).await, Code::NO_ERROR);
    until("no connection", || {
        server.endpoint().open_connections() == 0
    })
    .await;
    assert_serves(&server).await;
}

/// Handlers that report when they begin, and never end by themselves.
fn endless(alive: &Alive, begun: UnboundedSender<()>) -> Router {
    let alive = alive.clone();
    let handler = async move |request: Request| {
        let _guard = alive.one();
        begun.send(()).unwrap();
        // A POST keeps its body, unread.
        let _body = (request.method() == http::Method::POST).then_some(request);
        poll_fn::<(), _>(|_| Poll::Pending).await;
    };
    small().route("/", get(handler.clone()).post(handler))
}

async fn hear(hears: &mut UnboundedReceiver<()>, count: usize) {
    for _ in 0..count {
        within("a handler to begin", hears.recv()).await.unwrap();
    }
}

/// A reset without STOP_SENDING drops the handler, even behind unread data.
#[tokio::test]
async fn reset_requests_drop_their_handlers() {
    let (begun, mut hears) = unbounded_channel();
    let alive = Alive::default();
    let server = serve(builder(), endless(&alive, begun));
    let forger = Forger::new(&server).await;
    let mut streams = Vec::new();
    for bytes in [GET, &[POST, &[0x00, 0x05], b"hello"].concat()[..], POST] {
        streams.push(forger.open(bytes).await);
    }
    hear(&mut hears, 3).await;
    assert_eq!(alive.count(), 3);
    for (send, _) in &mut streams {
        send.reset(Code::REQUEST_CANCELLED.0).unwrap();
    }
    until("no handler", || alive.count() == 0).await;
    for (_, recv) in &mut streams {
        assert_eq!(reset_code(recv).await, Code::REQUEST_CANCELLED);
    }
    assert_serves(&server).await;
}

/// A pending response body is dropped when the client stops reading.
#[tokio::test]
async fn pending_response_body_is_dropped_when_the_client_stops_reading() {
    struct Waiting(#[expect(dead_code, reason = "it is held")] Guard);

    impl Body for Waiting {
        type Data = Bytes;
        type Error = Infallible;

        fn poll_frame(
            self: Pin<&mut Self>,
            _: &mut std::task::Context<'_>,
        ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
            Poll::Pending
        }
    }

    let alive = Alive::default();
    let held = alive.clone();
    let events = async move || Response::new(axum::body::Body::new(Waiting(held.one())));
    let server = serve(builder(), small().route("/", get(events)));
    let forger = Forger::new(&server).await;
    let (_send, mut recv) = forger.whole(GET).await;
    assert!(
        within("headers", recv.read_chunk(100))
            .await
            .unwrap()
            .is_some()
    );
    assert_eq!(alive.count(), 1);
    recv.stop(Code::REQUEST_CANCELLED.0);
    until("no body", || alive.count() == 0).await;
    assert_serves(&server).await;
}

/// A thousand GETs, each reset at once, are not handled, and the connection is closed with
/// H3_EXCESSIVE_LOAD.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rapid_resets_close_the_connection_and_leave_no_handlers() {
    let (begun, _hears) = unbounded_channel();
    let alive = Alive::default();
    let server = serve(builder(), endless(&alive, begun));
    let forger = Forger::new(&server).await;
    let flood = async {
        for _ in 0..5_000 {
            let Ok((mut send, mut recv)) = forger.connection.open_bi().await else {
                return;
            };
            if send.write_all(GET).await.is_err() {
                return;
            }
            let _ = send.reset(Code::REQUEST_CANCELLED.0);
            recv.stop(Code::REQUEST_CANCELLED.0);
        }
    };
    within("the flood", flood).await;
    assert_eq!(close_code(&forger).await, Code::EXCESSIVE_LOAD);
    until("no handler", || alive.count() == 0).await;
    assert_serves(&server).await;
}

/// Malformed requests, which the server has to reset.
#[tokio::test]
async fn endless_malformed_requests_close_the_connection() {
    let server = serve(builder(), small());
    let forger = Forger::new(&server).await;
    let flood = async {
        for _ in 0..5_000 {
            let Ok((mut send, _recv)) = forger.connection.open_bi().await else {
                return;
            };
            // HEADERS without a pseudo-header field.
            if send.write_all(&[0x01, 0x02, 0x00, 0x00]).await.is_err() {
                return;
            }
            let _ = send.finish();
        }
    };
    within("the flood", flood).await;
    assert_eq!(close_code(&forger).await, Code::EXCESSIVE_LOAD);
    assert_serves(&server).await;
}

/// When one connection holds all permits it can get, another is served, and rejected requests
/// are safe to send again.
#[tokio::test]
async fn concurrent_requests_are_limited_and_shared_among_connections() {
    let (begun, mut hears) = unbounded_channel();
    let alive = Alive::default();
    let server = serve(builder().max_requests(20), endless(&alive, begun));
    let forger = Forger::new(&server).await;
    let mut streams = Vec::new();
    for _ in 0..50 {
        streams.push(forger.whole(GET).await);
    }
    hear(&mut hears, 10).await;
    until("the rest to be rejected", || {
        server.counters().rejected == 40
    })
    .await;
    assert_eq!(server.counters().requests, 10);
    let mut rejected = 0;
    for (_, mut recv) in streams.drain(10..) {
        rejected += usize::from(reset_code(&mut recv).await == Code::REQUEST_REJECTED);
    }
    assert_eq!(rejected, 40);
    assert_serves(&server).await;
    // Permits are returned.
    forger.connection.close(0, b"");
    until("no request", || server.counters().requests == 0).await;
    assert_eq!(alive.count(), 0);
}

/// An unexpected frame after a request that is answered without reading it.
#[tokio::test]
async fn unexpected_frame_after_a_request_closes_the_connection() {
    let server = serve(builder(), small().route("/", get(async || "fine")));
    for (what, frame) in [
        ("HTTP/2's PRIORITY", [0x02, 0x00]),
        ("SETTINGS", [0x04, 0x00]),
    ] {
        let forger = Forger::new(&server).await;
        let _stream = forger.open(&[GET, &frame].concat()).await;
        assert_eq!(close_code(&forger).await, Code::FRAME_UNEXPECTED, "{what}");
        // Also after the response.
        let forger = Forger::new(&server).await;
        let (mut send, mut recv) = forger.open(GET).await;
        while within("the answer", recv.read_chunk(100))
            .await
            .unwrap()
            .is_some()
        {}
        send.write_all(&frame).await.unwrap();
        assert_eq!(close_code(&forger).await, Code::FRAME_UNEXPECTED, "{what}");
    }
    assert_serves(&server).await;
}

/// A client that goes on sending a body that is not read is asked to stop.
#[tokio::test]
async fn unwanted_request_body_is_stopped() {
    let server = serve(builder(), small().route("/", post(async || "no, thanks")));
    let forger = Forger::new(&server).await;
    let (send, mut recv) = forger.open(POST).await;
    while within("the answer", recv.read_chunk(100))
        .await
        .unwrap()
        .is_some()
    {}
    let stopped = within("STOP_SENDING", send.stopped()).await.unwrap();
    assert_eq!(stopped.map(Code), Some(Code::NO_ERROR));
    assert_serves(&server).await;
}

/// Slow clients that make progress do not miss deadlines: an upload and a download that take
/// several times as long as each deadline.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn slow_but_steady_clients_do_not_time_out() {
    let timeouts = Timeouts {
        min_rate: 0,
        ..short()
    };
    let echo = async |request: Request| Response::new(request.into_body());
    let server = serve(builder().timeouts(timeouts), small().route("/", post(echo)));
    let config = ClientConfig::with_roots(IDENTITY.certificate_pem()).unwrap();
    let client = Client::new(config).unwrap();
    let (sender, receiver) = tokio::sync::mpsc::channel::<Bytes>(1);
    tokio::spawn(async move {
        for _ in 0..30 {
            tokio::time::sleep(Duration::from_millis(100)).await;
            if sender.send(Bytes::from_static(&[7; 100])).await.is_err() {
                return;
            }
        }
    });
    let body = Channel(receiver);
    let url = format!("https://localhost:{}/", server.local_addr().port());
    let request = http::Request::post(&url).body(body).unwrap();
    let mut response = client.request(request).await.unwrap();
    let echoed = response.body_mut().bytes(1 << 20).await.unwrap();
    assert_eq!(echoed.len(), 3_000);
    // An unrelated request with a body at hand.
    let request = http::Request::post(&url)
        .body(Full::<Bytes>::from("abc"))
        .unwrap();
    let mut response = client.request(request).await.unwrap();
    assert_eq!(response.body_mut().text(10).await.unwrap(), "abc");
}

/// A body from a channel.
struct Channel(tokio::sync::mpsc::Receiver<Bytes>);

impl Body for Channel {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut std::task::Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        self.0
            .poll_recv(cx)
            .map(|piece| piece.map(Frame::data).map(Ok))
    }
}

/// Waits until everything that was sent is acknowledged.
async fn until_delivered(connection: &Connection) {
    tokio::time::sleep(Duration::from_millis(20)).await;
    until("everything acknowledged", || {
        connection.stats().in_flight == 0
    })
    .await;
}

/// Requests that arrive and are cancelled before the server's task runs, because its runtime
/// is blocked meanwhile.
#[test]
fn request_cancelled_before_dispatch_never_reaches_a_handler() {
    let here = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .unwrap();
    let there = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let (begun, mut hears) = unbounded_channel();
    let alive = Alive::default();
    let builder = builder().handlers_on_caller_runtime();
    let server = there.block_on(async { serve(builder, endless(&alive, begun)) });
    let forger = here.block_on(async {
        let forger = Forger::new(&server).await;
        let first = forger.whole(GET).await;
        (forger, first)
    });
    let (forger, _first) = forger;
    // The connection's task is waiting.
    there.block_on(hear(&mut hears, 1));
    let mut streams = here.block_on(async {
        let mut streams = Vec::new();
        for bytes in [GET, POST, GET] {
            streams.push(forger.open(bytes).await);
        }
        until_delivered(&forger.connection).await;
        for (index, (send, recv)) in streams.iter_mut().enumerate() {
            match index {
                2 => recv.stop(Code::REQUEST_CANCELLED.0),
                _ => send.reset(Code::REQUEST_CANCELLED.0).unwrap(),
            }
        }
        until_delivered(&forger.connection).await;
        streams
    });
    there.block_on(async {
        for (_, recv) in &mut streams[..2] {
            assert_eq!(reset_code(recv).await, Code::REQUEST_REJECTED);
        }
        assert_serves(&server).await;
    });
    assert!(hears.try_recv().is_err(), "a handler began");
    assert_eq!((alive.count(), server.counters().requests), (1, 1));
}
