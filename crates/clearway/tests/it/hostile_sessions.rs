//! Clients that attack with WebTransport sessions over raw streams: what an endpoint may hold then,
//! and the codes that they get.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

use std::future::{IntoFuture as _, pending};
use std::time::Duration;

use axum::Router;
use axum::extract::Request;
use axum::response::{IntoResponse as _, Response};
use axum::routing::any;
use clearway::http::webtransport::{AllowedOrigins, SessionRequest};
use clearway::http::{Client, Code, Server};
use clearway::{
    ClientConfig, Connection, Endpoint, ReadError, RecvStream, SendStream, ServerConfig,
    TransportConfig,
};
use http::StatusCode;

use crate::common::{IDENTITY, LOOPBACK};

const MIB: usize = 1 << 20;

/// What the server may hold for all of its clients, as its configuration says.
const BUDGET: usize = 16 * MIB;

/// Long enough for a test on a machine that is busy with something else.
const PATIENCE: Duration = Duration::from_secs(60);

/// WT_FLOW_CONTROL_ERROR (draft-ietf-webtrans-http3-16 §9.5).
const FLOW_CONTROL_ERROR: Code = Code(0x045d_4487);

/// Holds each session and reads nothing.
async fn hold(request: Request) -> Response {
    match SessionRequest::of(&request, &AllowedOrigins::SameHost) {
        Ok(asked) => {
            let held = asked.accept().await;
            pending::<()>().await;
            drop(held);
            StatusCode::OK.into_response()
        }
        Err(refused) => refused.into_response(),
    }
}

fn serve() -> Server {
    let config = ServerConfig::with_identity(IDENTITY.certificate_pem(), IDENTITY.key_pem());
    let config = config.unwrap().memory_budget(BUDGET);
    let server = Server::builder(LOOPBACK, config).webtransport(4);
    let server = server.build().unwrap();
    let router = Router::new()
        .route("/small", axum::routing::get(async || "small"))
        .fallback(any(hold));
    let serving = server.clone();
    tokio::spawn(async move { serving.serve(router).await });
    server
}

async fn assert_serves(server: &Server) {
    let config = ClientConfig::with_roots(IDENTITY.certificate_pem()).unwrap();
    let client = Client::new(config).unwrap();
    let url = format!("https://localhost:{}/small", server.local_addr().port());
    let asking = async {
        let mut response = client.get(&url).await.unwrap();
        response.body_mut().text(100).await.unwrap()
    };
    let answer = tokio::time::timeout(PATIENCE, asking).await;
    assert_eq!(answer.expect("an answer"), "small");
}

/// The encoding of an integer in eight bytes.
fn long(value: u64) -> [u8; 8] {
    (value | 0xc0 << 56).to_be_bytes()
}

/// A DATA frame.
fn data(payload: &[u8]) -> Vec<u8> {
    let mut frame = vec![0];
    frame.extend_from_slice(&long(payload.len() as u64));
    frame.extend_from_slice(payload);
    frame
}

/// A capsule with this length and as much of its value, in a DATA frame.
fn capsule(kind: u64, len: u64, value: &[u8]) -> Vec<u8> {
    data(&[&long(kind)[..], &long(len), value].concat())
}

/// A HEADERS frame that asks for a session of `https://localhost/`, without the dynamic table.
fn session_request() -> Vec<u8> {
    let mut section = vec![0, 0, 0xcf, 0xd7, 0xc1];
    section.extend_from_slice(b"\x50\x09localhost");
    section.extend_from_slice(b"\x27\x02:protocol\x0cwebtransport");
    let mut frame = vec![1, u8::try_from(section.len()).unwrap()];
    frame.extend_from_slice(&section);
    frame
}

/// A client that writes raw bytes on its streams.
struct Attacker {
    connection: Connection,
    _control: SendStream,
    _endpoint: Endpoint,
}

impl Attacker {
    async fn new(server: &Server) -> Self {
        let mut transport = TransportConfig::default();
        transport.keep_alive = Some(Duration::from_millis(200));
        transport.datagram_buffer = 1 << 20;
        let config = ClientConfig::with_roots(IDENTITY.certificate_pem()).unwrap();
        let config = config.alpn(["h3"]).transport(transport);
        let endpoint = Endpoint::client(LOOPBACK, config).unwrap();
        let connecting = endpoint.connect(server.local_addr(), "localhost");
        let connection = tokio::time::timeout(PATIENCE, connecting.into_future()).await;
        let connection = connection.expect("a connection").unwrap();
        let mut control = connection.open_uni().await.unwrap();
        // H3_DATAGRAM, and 1,000 bytes and 10 streams of each kind for every session.
        let settings = b"\x33\x01\x6b\x61\x43\xe8\x6b\x64\x0a\x6b\x65\x0a";
        let mut bytes = vec![0, 4, u8::try_from(settings.len()).unwrap()];
        bytes.extend_from_slice(settings);
        control.write_all(&bytes).await.unwrap();
        Self {
            connection,
            _control: control,
            _endpoint: endpoint,
        }
    }

    /// Asks for a session, and waits for an answer.
    async fn session(&self) -> (SendStream, RecvStream, Result<(), ReadError>) {
        let (mut send, mut recv) = self.connection.open_bi().await.unwrap();
        send.write_all(&session_request()).await.unwrap();
        let answer = tokio::time::timeout(PATIENCE, recv.read_chunk(1)).await;
        let answer = answer.expect("an answer").map(|_| ());
        (send, recv, answer)
    }

    /// Does everything at once that costs the server memory, until it is told to stop.
    async fn attack(self) {
        let mut held = Vec::new();
        for _ in 0..6 {
            let (mut send, recv, _) = self.session().await;
            // A capsule of nearly 2^62 bytes, of which some come.
            let _ = send
                .write_all(&capsule(0x1234, (1 << 62) - 1, &[0; 60_000]))
                .await;
            held.push((send, recv));
        }
        let sessions: Vec<u64> = held.iter().map(|(send, _)| send.id().as_u64()).collect();
        let flood = async {
            loop {
                for session in &sessions {
                    // For a session, and for a request that never comes.
                    for quarter in [session / 4, 90] {
                        let mut datagram = vec![0x40, u8::try_from(quarter).unwrap()];
                        datagram.resize(1_000, 7);
                        if self.connection.send_datagram(datagram.into()).is_err() {
                            tokio::time::sleep(Duration::from_millis(1)).await;
                        }
                    }
                }
                tokio::task::yield_now().await;
            }
        };
        let streams = async {
            let mut streams = Vec::new();
            for n in 0..90_usize {
                let Ok(mut stream) = self.connection.open_uni().await else {
                    break;
                };
                let session = sessions.get(n % sessions.len()).unwrap();
                // Every third has half of a header.
                let mut bytes = vec![0x40, 0x54];
                if n % 3 > 0 {
                    bytes.extend_from_slice(&long(*session));
                    bytes.resize(20_000, 1);
                }
                let write =
                    tokio::time::timeout(Duration::from_millis(200), stream.write_all(&bytes));
                let _ = write.await;
                streams.push(stream);
            }
            pending::<()>().await;
        };
        tokio::join!(flood, streams);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn memory_stays_within_the_budget_under_every_attack_on_sessions_at_once() {
    const ATTACKERS: usize = 14;
    let server = serve();
    let mut attacks = tokio::task::JoinSet::new();
    for _ in 0..ATTACKERS {
        let server = server.clone();
        attacks.spawn(async move { Attacker::new(&server).await.attack().await });
    }
    let mut most = 0;
    for _ in 0..800 {
        tokio::time::sleep(Duration::from_millis(5)).await;
        most = most.max(server.endpoint().memory_used());
    }
    assert_serves(&server).await;
    most = most.max(server.endpoint().memory_used());
    // What a turn brings comes first, and then connections are closed.
    assert!(most <= BUDGET + MIB, "{most} of {BUDGET} bytes");
    // Or nothing was attacked.
    assert!(most > 2 * MIB, "only {most} bytes");
    attacks.abort_all();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn session_beyond_the_limit_is_rejected_and_may_be_tried_again() {
    let server = serve();
    let attacker = Attacker::new(&server).await;
    let mut sessions = Vec::new();
    for _ in 0..4 {
        let (send, recv, answer) = attacker.session().await;
        answer.unwrap();
        sessions.push((send, recv));
    }
    let (_, _, answer) = attacker.session().await;
    let Err(ReadError::Reset(code)) = answer else {
        panic!("{answer:?}");
    };
    assert_eq!(Code(code), Code::REQUEST_REJECTED);
    drop(sessions);
    assert_serves(&server).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn capsules_of_a_session_end_it_with_the_code_of_their_rule() {
    let server = serve();
    let attacker = Attacker::new(&server).await;
    for (what, bytes, code) in [
        (
            "an endless close",
            capsule(0x2843, (1 << 62) - 1, &[0; 8]),
            Code::MESSAGE_ERROR,
        ),
        (
            "no integer",
            capsule(0x190b_4d3d, 0, &[]),
            Code::MESSAGE_ERROR,
        ),
        (
            "less data",
            capsule(0x190b_4d3d, 1, &[1]),
            FLOW_CONTROL_ERROR,
        ),
        (
            "fewer streams",
            capsule(0x190b_4d3f, 1, &[9]),
            FLOW_CONTROL_ERROR,
        ),
        (
            "too many streams",
            capsule(0x190b_4d40, 8, &long(1 << 61)),
            FLOW_CONTROL_ERROR,
        ),
        (
            "a capsule of HTTP/2",
            capsule(0x190b_4d3e, 1, &[9]),
            Code::MESSAGE_ERROR,
        ),
    ] {
        let (mut send, mut recv, answer) = attacker.session().await;
        answer.unwrap();
        send.write_all(&bytes).await.unwrap();
        let ended = tokio::time::timeout(PATIENCE, async {
            loop {
                match recv.read_chunk(1_000).await {
                    Ok(Some(_)) => {}
                    Ok(None) => return None,
                    Err(ReadError::Reset(code)) => return Some(Code(code)),
                    Err(other) => panic!("{what}: {other}"),
                }
            }
        });
        assert_eq!(ended.await.expect("an end"), Some(code), "{what}");
    }
    assert_serves(&server).await;
}
