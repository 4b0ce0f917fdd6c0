//! WebSocket and server-sent events over HTTP/3, with axum's own extractors.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

use std::convert::Infallible;
use std::time::Duration;

use axum::Router;
use axum::extract::ws::{self, WebSocketUpgrade};
use axum::response::sse::{Event, Sse};
use axum::response::{IntoResponse as _, Response as AxumResponse};
use axum::routing::{any, get};
use axum::{Extension, body::Body};
use clearway::http::websocket::{
    self, CloseCode, CloseFrame, Message, OpenWebSocketError, WebSocket, WebSocketConfig,
    WebSocketError,
};
use clearway::http::{Client, OpenTunnelError, Protocol, Server, Tunnel};
use clearway::{ClientConfig, ServerConfig};
use futures_util::stream;
use http::{Request, Response, StatusCode};
use tokio::sync::mpsc;

use crate::common::{IDENTITY, LOOPBACK};

fn serve(router: Router, change: impl FnOnce(Server) -> Server) -> (Server, u16) {
    let config = ServerConfig::with_identity(IDENTITY.certificate_pem(), IDENTITY.key_pem());
    let server = Server::builder(LOOPBACK, config.unwrap()).tunnels().build();
    let server = change(server.unwrap());
    let serving = server.clone();
    tokio::spawn(async move { serving.serve(router).await });
    let port = server.local_addr().port();
    (server, port)
}

fn client() -> Client {
    Client::new(ClientConfig::with_roots(IDENTITY.certificate_pem()).unwrap()).unwrap()
}

/// Sends every message back, and a Close frame of its own upon "leave".
async fn echo(upgrade: WebSocketUpgrade) -> AxumResponse {
    let upgrade = upgrade.read_buffer_size(4 << 10).write_buffer_size(0);
    upgrade
        .protocols(["v2", "v1"])
        .on_upgrade(async |mut socket| {
            while let Some(Ok(message)) = socket.recv().await {
                let answer = match &message {
                    ws::Message::Text(text) if text.as_str() == "leave" => {
                        ws::Message::Close(Some(ws::CloseFrame {
                            code: 4321,
                            reason: "as you wish".into(),
                        }))
                    }
                    ws::Message::Text(_) | ws::Message::Binary(_) => message,
                    ws::Message::Ping(_) | ws::Message::Pong(_) | ws::Message::Close(_) => continue,
                };
                if socket.send(answer).await.is_err() {
                    break;
                }
            }
        })
}

/// A hundred events, which depend on each other.
async fn events() -> impl axum::response::IntoResponse {
    Sse::new(stream::unfold(0_u32, |n| async move {
        let event = Event::default()
            .id(n.to_string())
            .data("x".repeat(n as usize + 1));
        (n < 100).then_some((Ok::<Event, Infallible>(event), n + 1))
    }))
}

fn router() -> Router {
    Router::new()
        .route("/ws", any(echo))
        .route("/events", get(events))
        .route("/plain", any(async || "no socket here"))
}

fn data(seed: usize, length: usize) -> Vec<u8> {
    (0..length).map(|n| (n * 31 + seed * 7) as u8).collect()
}

async fn exchange(socket: &mut WebSocket, message: Message) {
    socket.send(message.clone()).await.unwrap();
    assert_eq!(socket.recv().await.unwrap().unwrap(), message);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn websocket_and_events_come_from_one_axum_router() {
    let (server, port) = serve(router(), |server| server);
    let client = client();
    let mut socket = client
        .websocket(&format!("https://localhost:{port}/ws"))
        .await
        .unwrap();
    for (seed, length) in [0, 1, 125, 126, 65_535, 65_536, 1 << 20]
        .into_iter()
        .enumerate()
    {
        exchange(&mut socket, Message::binary(data(seed, length))).await;
    }
    exchange(&mut socket, Message::text("größer")).await;
    let mut response = client
        .get(&format!("https://localhost:{port}/events"))
        .await
        .unwrap();
    assert_eq!(response.headers()["content-type"], "text/event-stream");
    let expected: String = (0..100)
        .map(|n| format!("id: {n}\ndata: {}\n\n", "x".repeat(n + 1)))
        .collect();
    assert_eq!(response.body_mut().text(100_000).await.unwrap(), expected);
    // The socket is open beside it.
    exchange(&mut socket, Message::text("still here")).await;
    assert_eq!(server.counters().tunnels, 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ping_is_answered_and_close_codes_pass_in_both_directions() {
    let (closed, mut reports) = mpsc::channel(1);
    let report = async move |upgrade: WebSocketUpgrade| {
        upgrade.on_upgrade(async move |mut socket| {
            while let Some(Ok(message)) = socket.recv().await {
                if let ws::Message::Close(frame) = message {
                    closed.send(frame).await.unwrap();
                }
            }
        })
    };
    let (server, port) = serve(router().route("/report", any(report)), |server| server);
    let client = client();
    let mut socket = client
        .websocket(&format!("https://localhost:{port}/ws"))
        .await
        .unwrap();
    socket
        .send(Message::Ping("are you there".into()))
        .await
        .unwrap();
    let pong = socket.recv().await.unwrap().unwrap();
    assert_eq!(pong, Message::Pong("are you there".into()));
    // The server closes.
    socket.send(Message::text("leave")).await.unwrap();
    let Message::Close(Some(frame)) = socket.recv().await.unwrap().unwrap() else {
        panic!("no Close frame");
    };
    assert_eq!(
        (u16::from(frame.code), frame.reason.as_str()),
        (4321, "as you wish")
    );
    assert!(socket.recv().await.is_none());
    // The client closes.
    let mut socket = client
        .websocket(&format!("https://localhost:{port}/report"))
        .await
        .unwrap();
    let frame = CloseFrame {
        code: CloseCode::Away,
        reason: "good night".into(),
    };
    socket.close(Some(frame.clone())).await.unwrap();
    let received = reports.recv().await.unwrap().unwrap();
    assert_eq!(
        (received.code, received.reason.as_str()),
        (1001, "good night")
    );
    let answer = socket.recv().await.unwrap().unwrap();
    assert_eq!(answer, Message::Close(Some(frame)));
    assert!(socket.recv().await.is_none());
    drop(socket);
    for _ in 0..2_000 {
        if server.counters().tunnels == 0 {
            return;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    panic!("{:?}", server.counters());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn thousand_sockets_are_open_at_once() {
    const CONNECTIONS: usize = 10;
    const SOCKETS: usize = 100;
    let (server, port) = serve(router(), |server| server);
    let url = format!("https://localhost:{port}/ws");
    let clients: Vec<Client> = (0..CONNECTIONS).map(|_| client()).collect();
    let mut sockets = Vec::new();
    for client in &clients {
        for _ in 0..SOCKETS {
            sockets.push(client.websocket(&url).await.unwrap());
        }
    }
    assert_eq!(server.counters().tunnels, CONNECTIONS * SOCKETS);
    // All send before any is read, and each gets its own back.
    for (n, socket) in sockets.iter_mut().enumerate() {
        let message = Message::binary(data(n, 1_000 + n));
        socket.send(message).await.unwrap();
    }
    for (n, socket) in sockets.iter_mut().enumerate() {
        let message = socket.recv().await.unwrap().unwrap();
        assert_eq!(message, Message::binary(data(n, 1_000 + n)));
    }
    for socket in &mut sockets {
        socket.close(None).await.unwrap();
        assert!(socket.recv().await.unwrap().unwrap().is_close());
    }
    drop(sockets);
    for _ in 0..2_000 {
        if server.counters().tunnels == 0 {
            return;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    panic!("{:?}", server.counters());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn subprotocol_is_negotiated() {
    let choose = async |Extension(tunnel): Extension<Tunnel>| {
        let response = Response::builder().header("sec-websocket-protocol", "unasked");
        let response = response.body(()).unwrap();
        let _ = websocket::accept(tunnel, response, None).await;
    };
    let (_server, port) = serve(router().route("/choose", any(choose)), |server| server);
    let client = client();
    let open = async |path: &str, offered: &str| {
        let request = Request::builder()
            .uri(format!("https://localhost:{port}{path}"))
            .header("sec-websocket-protocol", offered)
            .body(())
            .unwrap();
        client
            .websocket_with(request, WebSocketConfig::default())
            .await
    };
    let socket = open("/ws", "v0, v1").await.unwrap();
    assert_eq!(socket.protocol().unwrap(), "v1");
    let socket = open("/ws", "v0").await.unwrap();
    assert_eq!(socket.protocol(), None);
    match open("/choose", "v1").await {
        Err(OpenWebSocketError::Subprotocol(chosen)) => assert_eq!(chosen, "unasked"),
        other => panic!("{other:?}"),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn route_that_is_no_websocket_answers_as_usual() {
    let (_server, port) = serve(router(), |server| server);
    let client = client();
    let status = |path: &str| {
        let url = format!("https://localhost:{port}{path}");
        let client = client.clone();
        async move {
            match client.websocket(&url).await {
                Err(OpenWebSocketError::Tunnel(OpenTunnelError::Refused(response))) => {
                    response.status()
                }
                other => panic!("{other:?}"),
            }
        }
    };
    assert_eq!(status("/missing").await, StatusCode::NOT_FOUND);
    assert_eq!(status("/events").await, StatusCode::METHOD_NOT_ALLOWED);
    // axum removes the body of a successful response to CONNECT: the tunnel opens and ends.
    let mut request = Request::new(());
    *request.uri_mut() = format!("https://localhost:{port}/plain").parse().unwrap();
    request.extensions_mut().insert(Protocol::new("websocket"));
    let mut tunnel = client.tunnel(request).await.unwrap();
    assert_eq!(tunnel.receiver.chunk().await.unwrap(), None);
}

/// A Close frame never arrived.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn socket_that_is_dropped_without_close_ends_with_an_error() {
    let leave = async |upgrade: WebSocketUpgrade| upgrade.on_upgrade(async |_| {});
    let (_server, port) = serve(router().route("/leave", any(leave)), |server| server);
    let client = client();
    let mut socket = client
        .websocket(&format!("https://localhost:{port}/leave"))
        .await
        .unwrap();
    let error = socket.recv().await.unwrap().unwrap_err();
    assert!(matches!(error, WebSocketError::Protocol(_)), "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn message_beyond_the_limit_ends_the_socket() {
    let large = async |Extension(tunnel): Extension<Tunnel>| -> AxumResponse {
        let mut socket = websocket::accept(tunnel, Response::new(()), None)
            .await
            .unwrap();
        let error = socket.recv().await.unwrap().unwrap_err();
        assert!(matches!(error, WebSocketError::Capacity(_)), "{error}");
        let too_large = CloseFrame {
            code: CloseCode::Size,
            reason: "".into(),
        };
        socket.close(Some(too_large)).await.unwrap();
        StatusCode::OK.into_response().map(|_: Body| Body::empty())
    };
    let (_server, port) = serve(router().route("/large", any(large)), |server| server);
    let client = client();
    let mut socket = client
        .websocket(&format!("https://localhost:{port}/large"))
        .await
        .unwrap();
    let too_long = Message::binary(vec![0; (1 << 20) + 1]);
    // The server may close before it has all of it.
    let _ = socket.send(too_long).await;
    let closed = socket.recv().await.unwrap().unwrap();
    let Message::Close(Some(frame)) = closed else {
        panic!("{closed:?}");
    };
    assert_eq!(frame.code, CloseCode::Size);
}
