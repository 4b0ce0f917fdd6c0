//! WebTransport: sessions, streams, datagrams, ends.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

use std::future::pending;
use std::time::Duration;

use axum::Router;
use axum::extract::Request;
use axum::response::{IntoResponse as _, Response};
use axum::routing::any;
use bytes::Bytes;
use clearway::http::webtransport::{
    AllowedOrigins, SessionError, SessionRequest, StreamError, WebTransportSession,
};
use clearway::http::{Client, Error, OpenTunnelError, Server, ServerBuilder};
use clearway::{ClientConfig, ServerConfig};
use http::StatusCode;
use tokio::io::{AsyncReadExt, AsyncWriteExt as _};

use crate::common::{IDENTITY, LOOPBACK, pattern};

/// Most attempts to see something that another thread does.
const ATTEMPTS: usize = 2_000;

struct World {
    server: Server,
    client: Client,
}

impl World {
    /// A server that hands each session to `serve`, and a client.
    fn new<F, T>(serve: F) -> Self
    where
        F: Fn(WebTransportSession) -> T + Clone + Send + Sync + 'static,
        T: Future<Output = ()> + Send + 'static,
    {
        Self::with(serve, AllowedOrigins::SameHost, |it| it)
    }

    fn with<F, T>(
        serve: F,
        origins: AllowedOrigins,
        change: impl FnOnce(ServerBuilder) -> ServerBuilder,
    ) -> Self
    where
        F: Fn(WebTransportSession) -> T + Clone + Send + Sync + 'static,
        T: Future<Output = ()> + Send + 'static,
    {
        let handle = async move |request: Request| -> Response {
            let asked = match SessionRequest::of(&request, &origins) {
                Ok(asked) => asked,
                Err(refused) => return refused.into_response(),
            };
            let known = asked.protocols().iter().find(|it| *it == "chat").cloned();
            let session = match known {
                Some(known) => asked.accept_protocol(&known).await,
                None => asked.accept().await,
            };
            if let Ok(session) = session {
                serve(session).await;
            }
            StatusCode::IM_A_TEAPOT.into_response()
        };
        let router = Router::new().route("/session", any(handle));
        let config = ServerConfig::with_identity(IDENTITY.certificate_pem(), IDENTITY.key_pem());
        let server = Server::builder(LOOPBACK, config.unwrap()).webtransport(8);
        let server = change(server).build().unwrap();
        let serving = server.clone();
        tokio::spawn(async move { serving.serve(router).await });
        let config = ClientConfig::with_roots(IDENTITY.certificate_pem()).unwrap();
        let client = Client::new(config).unwrap();
        Self { server, client }
    }

    fn request(&self) -> http::Request<()> {
        let port = self.server.local_addr().port();
        let request = http::Request::get(format!("https://localhost:{port}/session"));
        request.body(()).unwrap()
    }

    async fn open(&self) -> Result<WebTransportSession, OpenTunnelError> {
        Ok(self.client.webtransport(self.request()).await?.0)
    }

    /// Waits until the server has no session left.
    async fn wait_for_no_session(&self) {
        for _ in 0..ATTEMPTS {
            if self.server.counters().tunnels == 0 && self.server.counters().requests == 0 {
                return;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        panic!("{:?}", self.server.counters());
    }
}

/// Sends streams and datagrams back: a unidirectional stream on one of its own.
async fn echo(session: WebTransportSession) {
    loop {
        tokio::select! {
            stream = session.accept_bi() => {
                let Ok((mut send, mut recv)) = stream else { return };
                tokio::spawn(async move {
                    tokio::io::copy(&mut recv, &mut send).await.unwrap();
                    send.finish().unwrap();
                });
            }
            stream = session.accept_uni() => {
                let Ok(mut recv) = stream else { return };
                let session = session.clone();
                tokio::spawn(async move {
                    let data = recv.read_to_end(1 << 20).await.unwrap();
                    let mut send = session.open_uni().await.unwrap();
                    send.write_all(&data).await.unwrap();
                    send.finish().unwrap();
                    let _ = send.finished().await;
                });
            }
            datagram = session.recv_datagram() => {
                let Ok(datagram) = datagram else { return };
                session.send_datagram_wait(&datagram).await.unwrap();
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn streams_and_datagrams_pass_in_both_directions() {
    let world = World::new(echo);
    let session = world.open().await.unwrap();
    assert_eq!(world.server.counters().tunnels, 1);
    for round in 0..10 {
        let data = pattern(round, 100_000);
        let (mut send, mut recv) = session.open_bi().await.unwrap();
        let sending = {
            let data = data.clone();
            tokio::spawn(async move {
                send.write_all(&data).await.unwrap();
                send.shutdown().await.unwrap();
                send.finished().await.unwrap();
            })
        };
        let mut received = Vec::new();
        recv.read_to_end(1 << 20)
            .await
            .map(|all| received = all)
            .unwrap();
        assert!(received == data, "round {round}");
        sending.await.unwrap();
        let mut send = session.open_uni().await.unwrap();
        send.write_chunk(Bytes::from(data.clone())).await.unwrap();
        send.finish().unwrap();
        let mut recv = session.accept_uni().await.unwrap();
        let mut received = Vec::new();
        AsyncReadExt::read_to_end(&mut recv, &mut received)
            .await
            .unwrap();
        assert!(received == data, "round {round}");
        let largest = session.max_datagram_size().unwrap();
        session.send_datagram(&data[..largest]).unwrap();
        assert!(session.recv_datagram().await.unwrap() == data[..largest]);
    }
    drop(session);
    world.wait_for_no_session().await;
}

#[tokio::test]
async fn server_opens_streams_of_both_kinds() {
    let world = World::new(async |session: WebTransportSession| {
        let (mut send, mut recv) = session.open_bi().await.unwrap();
        send.write_all(b"question").await.unwrap();
        send.finish().unwrap();
        assert_eq!(recv.read_to_end(100).await.unwrap(), b"answer");
        let mut send = session.open_uni().await.unwrap();
        send.write_all(b"bye").await.unwrap();
        send.finish().unwrap();
        session.closed().await;
    });
    let session = world.open().await.unwrap();
    let (mut send, mut recv) = session.accept_bi().await.unwrap();
    assert_eq!(recv.read_to_end(100).await.unwrap(), b"question");
    send.write_all(b"answer").await.unwrap();
    send.finish().unwrap();
    let mut recv = session.accept_uni().await.unwrap();
    assert_eq!(recv.read_to_end(100).await.unwrap(), b"bye");
    session.close(0, "");
    assert!(matches!(session.closed().await, SessionError::ClosedHere));
    world.wait_for_no_session().await;
}

#[tokio::test]
async fn close_has_a_code_and_a_reason_and_ends_streams() {
    let world = World::new(async |session: WebTransportSession| {
        let (send, mut recv) = session.accept_bi().await.unwrap();
        assert_eq!(recv.read_chunk(10).await.unwrap().unwrap(), "x");
        session.close(4_711, "enough");
        let read = recv.read_chunk(10).await;
        assert!(matches!(read, Err(StreamError::SessionEnded)), "{read:?}");
        let stopped = send.stopped().await;
        assert!(matches!(stopped, Some(StreamError::SessionEnded)));
        let refused = session.open_uni().await;
        assert!(matches!(refused, Err(SessionError::ClosedHere)));
    });
    let session = world.open().await.unwrap();
    let (mut send, mut recv) = session.open_bi().await.unwrap();
    send.write_all(b"x").await.unwrap();
    let waiting = tokio::spawn({
        let session = session.clone();
        async move { session.accept_uni().await.map(|_| ()) }
    });
    let read = recv.read_chunk(10).await;
    assert!(matches!(read, Err(StreamError::SessionEnded)), "{read:?}");
    for closed in [session.closed().await, waiting.await.unwrap().unwrap_err()] {
        match closed {
            SessionError::Closed { code, reason } => {
                assert_eq!((code, reason.as_str()), (4_711, "enough"));
            }
            other => panic!("{other:?}"),
        }
    }
    let written = send.write_all(b"more").await;
    assert!(matches!(written, Err(StreamError::SessionEnded)));
    let read = session.recv_datagram().await;
    assert!(matches!(read, Err(SessionError::Closed { .. })), "{read:?}");
    world.wait_for_no_session().await;
}

#[tokio::test]
async fn codes_of_streams_are_the_applications() {
    let world = World::new(async |session: WebTransportSession| {
        let (mut send, mut recv) = session.accept_bi().await.unwrap();
        assert_eq!(recv.read_chunk(10).await.unwrap().unwrap(), "x");
        recv.stop(77);
        send.reset(u32::MAX);
        session.closed().await;
    });
    let session = world.open().await.unwrap();
    let (mut send, mut recv) = session.open_bi().await.unwrap();
    send.write_all(b"x").await.unwrap();
    assert!(matches!(
        send.stopped().await,
        Some(StreamError::Stopped(77))
    ));
    let read = recv.read_chunk(10).await;
    assert!(
        matches!(read, Err(StreamError::Reset(u32::MAX))),
        "{read:?}"
    );
    let written = send.write_all(b"y").await;
    assert!(
        matches!(written, Err(StreamError::Stopped(77))),
        "{written:?}"
    );
}

#[tokio::test]
async fn stream_that_is_reset_at_once_arrives_with_its_code() {
    const STREAMS: u32 = 50;
    let (tell, mut told) = tokio::sync::mpsc::unbounded_channel();
    let world = World::new(move |session: WebTransportSession| {
        let tell = tell.clone();
        async move {
            while let Ok(mut recv) = session.accept_uni().await {
                tell.send(recv.read_chunk(10).await).unwrap();
            }
        }
    });
    let session = world.open().await.unwrap();
    let mut streams = Vec::new();
    for code in 0..STREAMS {
        let mut send = session.open_uni().await.unwrap();
        send.reset(code);
        streams.push(send);
    }
    let mut codes = Vec::new();
    while codes.len() < STREAMS as usize {
        match told.recv().await.unwrap() {
            Err(StreamError::Reset(code)) => codes.push(code),
            other => panic!("{other:?}"),
        }
    }
    codes.sort_unstable();
    assert_eq!(codes, (0..STREAMS).collect::<Vec<u32>>());
}

#[tokio::test]
async fn dropping_the_last_handle_closes_the_session_without_an_error() {
    let (tell, mut told) = tokio::sync::mpsc::unbounded_channel();
    let world = World::new(move |session: WebTransportSession| {
        let tell = tell.clone();
        async move { tell.send(session.closed().await).unwrap() }
    });
    let session = world.open().await.unwrap();
    let stream = session.open_bi().await.unwrap();
    drop(session);
    tokio::time::sleep(Duration::from_millis(20)).await;
    assert!(told.try_recv().is_err(), "a stream keeps it");
    drop(stream);
    match told.recv().await.unwrap() {
        SessionError::Closed { code: 0, reason } => assert_eq!(reason, ""),
        other => panic!("{other:?}"),
    }
    world.wait_for_no_session().await;
}

#[tokio::test]
async fn protocol_is_chosen_among_those_offered() {
    let world = World::new(async |session: WebTransportSession| {
        let _ = session.closed().await;
    });
    let offer = async |protocols: &[&str]| {
        let opened = world
            .client
            .webtransport_with_protocols(world.request(), protocols);
        opened.await.unwrap().0.protocol().map(str::to_owned)
    };
    assert_eq!(offer(&[]).await, None);
    assert_eq!(offer(&["video"]).await, None);
    assert_eq!(offer(&["video", "chat"]).await.as_deref(), Some("chat"));
}

#[tokio::test]
async fn page_of_another_origin_is_refused() {
    let world = World::new(async |session: WebTransportSession| {
        let _ = session.closed().await;
    });
    let port = world.server.local_addr().port();
    for (origin, refused) in [
        (format!("https://localhost:{port}"), false),
        ("https://evil.example".to_owned(), true),
    ] {
        let mut request = world.request();
        let value = origin.parse().unwrap();
        request.headers_mut().insert("origin", value);
        match world.client.webtransport(request).await {
            Ok(_) => assert!(!refused),
            Err(error) => assert_eq!(
                error.status(),
                refused.then_some(StatusCode::FORBIDDEN),
                "{error}"
            ),
        }
    }
}

#[tokio::test]
async fn plain_request_is_no_session() {
    let world = World::new(async |_: WebTransportSession| panic!("no session"));
    let port = world.server.local_addr().port();
    let url = format!("https://localhost:{port}/session");
    let response = world.client.get(&url).await.unwrap();
    assert_eq!(response.status(), StatusCode::BAD_REQUEST);
}

#[tokio::test]
async fn server_without_webtransport_is_unsupported() {
    let serve = async |_: WebTransportSession| {};
    let world = World::with(serve, AllowedOrigins::Any, |it| it.webtransport(0));
    match world.open().await.unwrap_err() {
        OpenTunnelError::Failed(Error::Unsendable(error)) => {
            assert!(error.to_string().contains("WebTransport"), "{error}");
        }
        other => panic!("{other}"),
    }
}

#[tokio::test]
async fn sessions_beyond_the_limit_of_a_connection_are_rejected() {
    let world = World::new(async |session: WebTransportSession| {
        let _ = session.closed().await;
    });
    let mut sessions = Vec::new();
    for _ in 0..8 {
        sessions.push(world.open().await.unwrap());
    }
    assert_eq!(world.server.counters().tunnels, 8);
    let refused = world.open().await.unwrap_err();
    assert!(matches!(refused, OpenTunnelError::Failed(_)), "{refused}");
    let closed = sessions.pop().unwrap();
    closed.close(0, "");
    drop(closed);
    for _ in 0..ATTEMPTS {
        if let Ok(session) = world.open().await {
            return drop(session);
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    panic!("no place was free after a close");
}

#[tokio::test]
async fn drain_is_told_and_the_session_goes_on() {
    let world = World::new(async |session: WebTransportSession| {
        session.drain();
        let (mut send, _recv) = session.accept_bi().await.unwrap();
        send.write_all(b"still here").await.unwrap();
        send.finish().unwrap();
        session.closed().await;
    });
    let session = world.open().await.unwrap();
    session.draining().await.unwrap();
    let (mut send, mut recv) = session.open_bi().await.unwrap();
    send.write_all(b"x").await.unwrap();
    assert_eq!(recv.read_to_end(100).await.unwrap(), b"still here");
}

#[tokio::test]
async fn shutdown_drains_sessions_and_waits_for_them() {
    let world = World::new(async |session: WebTransportSession| {
        session.shutdown_begins().await;
        session.close(9, "maintenance");
        session.closed().await;
    });
    let session = world.open().await.unwrap();
    let stopping = world.server.clone();
    let shutdown = tokio::spawn(async move { stopping.shutdown(Duration::from_secs(60)).await });
    match session.closed().await {
        SessionError::Closed { code: 9, reason } => assert_eq!(reason, "maintenance"),
        other => panic!("{other:?}"),
    }
    drop(session);
    shutdown.await.unwrap();
}

#[tokio::test]
async fn end_of_the_connection_ends_sessions_and_streams() {
    let world = World::new(async |session: WebTransportSession| {
        let _stream = session.accept_bi().await.unwrap();
        session.connection().close(5, b"gone");
        pending::<()>().await;
    });
    let session = world.open().await.unwrap();
    let (mut send, mut recv) = session.open_bi().await.unwrap();
    send.write_all(b"x").await.unwrap();
    let read = recv.read_chunk(10).await;
    assert!(
        matches!(read, Err(StreamError::ConnectionLost(_))),
        "{read:?}"
    );
    assert!(matches!(session.closed().await, SessionError::Ended(_)));
    assert!(session.accept_uni().await.is_err());
    assert!(session.draining().await.is_err());
}

/// The server reads no stream, and the client cannot make it hold more than the windows.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn slow_consumer_holds_the_sender_back() {
    let world = World::new(async |session: WebTransportSession| {
        let _ = session.closed().await;
    });
    let session = world.open().await.unwrap();
    let before = world.server.endpoint().memory_used();
    let mut senders = Vec::new();
    for _ in 0..8 {
        let mut send = session.open_uni().await.unwrap();
        senders.push(tokio::spawn(async move {
            let mut sent = 0_usize;
            while send.write_all(&[0; 10_000]).await.is_ok() {
                sent += 10_000;
                if sent > 64 << 20 {
                    break;
                }
            }
            sent
        }));
    }
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert!(senders.iter().all(|it| !it.is_finished()), "held back");
    let used = world.server.endpoint().memory_used();
    assert!(used < before + (32 << 20), "{before}, then {used} bytes");
    session.close(0, "");
    for sender in senders {
        assert!(sender.await.unwrap() < 64 << 20);
    }
    world.wait_for_no_session().await;
}

/// Eight times what a session may send at first, and three times as many streams.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn limits_of_a_session_rise_as_its_streams_are_read() {
    let world = World::new(echo);
    let session = world.open().await.unwrap();
    let bytes = pattern(3, 4 << 20);
    let (mut send, mut recv) = session.open_bi().await.unwrap();
    let writing = async {
        send.write_all(&bytes).await.unwrap();
        send.finish().unwrap();
    };
    let (received, ()) = tokio::join!(recv.read_to_end(8 << 20), writing);
    assert!(received.unwrap() == bytes);
    drop((send, recv));
    for n in 0..300_u32 {
        let (mut send, mut recv) = session.open_bi().await.unwrap();
        send.write_all(&n.to_be_bytes()).await.unwrap();
        send.finish().unwrap();
        assert_eq!(recv.read_to_end(10).await.unwrap(), n.to_be_bytes());
    }
}
