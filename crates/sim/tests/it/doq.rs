//! DNS over QUIC over networks that lose packets, in virtual time.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use clearway::doq::{self, Answer, Client, Code, Query, QueryError, Server};
use clearway::{ClientConfig, ConnectionError, Endpoint, ServerConfig};
use clearway_sim::{Net, Simulation, identity};

const NAME: &str = "dns.example";

fn address(last: u8, port: u16) -> SocketAddr {
    SocketAddr::from(([10, 0, 0, last], port))
}

/// A query for the address of `n`.example, with `n` as its ID.
fn query(n: u16) -> Vec<u8> {
    let mut query = n.to_be_bytes().to_vec();
    query.extend_from_slice(&[1, 0, 0, 1, 0, 0, 0, 0, 0, 0]);
    let label = n.to_string();
    query.push(label.len() as u8);
    query.extend_from_slice(label.as_bytes());
    query.extend_from_slice(b"\x07example\x00\x00\x01\x00\x01");
    query
}

/// Answers with the question and an address made of it.
async fn answer(query: Query) -> Answer {
    assert_eq!(doq::id(query.message()), Some(0));
    assert_eq!(query.message().len() % 128, 0, "padded");
    let mut answer = doq::error_response(query.message(), 0);
    let sum = answer[12..]
        .iter()
        .fold(0_u8, |sum, byte| sum.wrapping_add(*byte));
    answer[7] = 1;
    answer.extend_from_slice(&[0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 60, 0, 4, 192, 0, 2, sum]);
    Answer::from(answer)
}

fn is_answer_of(query: &[u8], answer: &[u8]) -> bool {
    let sum = query[12..]
        .iter()
        .fold(0_u8, |sum, byte| sum.wrapping_add(*byte));
    answer[..2] == query[..2]
        && answer[12..query.len()] == query[12..]
        && answer.ends_with(&[192, 0, 2, sum])
        && answer.len() == query.len() + 16
}

fn serve<R: doq::Resolver>(net: &Net, resolver: R) -> (Endpoint, String) {
    let (certificate, key) = identity([NAME]);
    let at = address(1, 853);
    let config = ServerConfig::with_identity(&certificate, &key).expect("settings");
    let config = config.alpn([doq::ALPN]).early_data(true);
    let server = net.attach(Endpoint::builder(at), at).server(config).build();
    let server = server.expect("a server");
    let serving = server.clone();
    tokio::spawn(async move { serving.serve(Server::new(resolver)).await });
    (server, certificate)
}

fn endpoint(net: &Net, certificate: &str, last: u8) -> Endpoint {
    let local = address(last, 0);
    let config = ClientConfig::with_roots(certificate).expect("settings");
    let endpoint = net.attach(Endpoint::builder(local), local);
    let endpoint = endpoint.client(config.alpn([doq::ALPN])).build();
    endpoint.expect("a client")
}

fn client(net: &Net, certificate: &str) -> Client {
    Client::new(endpoint(net, certificate, 2), address(1, 853), NAME)
}

#[test]
fn ten_thousand_queries_are_answered_with_five_percent_loss() {
    let link = "rate=50M delay=15ms queue=1000 loss=5%";
    let simulation = Simulation::new(link, 11).expect("a valid link");
    let took = simulation.run(async |net| {
        let (_server, certificate) = serve(&net, answer);
        let client = client(&net, &certificate);
        let mut tasks = tokio::task::JoinSet::new();
        for worker in 0..50_u16 {
            let client = client.clone();
            tasks.spawn(async move {
                for n in 0..200 {
                    let query = query(worker * 200 + n);
                    let answer = client.query(&query).await.expect("an answer");
                    assert!(is_answer_of(&query, &answer), "{answer:?}");
                }
            });
        }
        while let Some(done) = tasks.join_next().await {
            done.expect("all answers");
        }
        net.now()
    });
    // 200 after each other take 6 s without loss.
    assert!(took < Duration::from_secs(40), "{took:?}");
}

#[test]
fn second_connection_resumes_and_asks_in_zero_rtt() {
    let simulation = Simulation::new("rate=50M delay=50ms queue=100", 3).expect("a valid link");
    simulation.run(async |net| {
        let (_server, certificate) = serve(&net, answer);
        let client = client(&net, &certificate);
        client.query(&query(1)).await.expect("an answer");
        tokio::time::sleep(Duration::from_secs(1)).await;
        client.close().await;
        let begin = net.now();
        let asked = query(2);
        let answer = client.query(&asked).await.expect("an answer");
        assert!(is_answer_of(&asked, &answer));
        let took = net.now() - begin;
        assert!(
            took < Duration::from_millis(150),
            "one round trip: {took:?}"
        );
        let connection = client.current_connection().await.expect("a connection");
        connection.handshake_complete().await.expect("complete");
        assert!(connection.resumed());
        assert_eq!(connection.zero_rtt_accepted(), Some(true));
        // A message that must not be replayed waits for the handshake: two round trips.
        client.close().await;
        tokio::time::sleep(Duration::from_secs(1)).await;
        let mut update = query(3);
        update[2] = 5 << 3;
        let begin = net.now();
        client.query(&update).await.expect("an answer");
        let took = net.now() - begin;
        assert!(
            took >= Duration::from_millis(200),
            "two round trips: {took:?}"
        );
    });
}

#[test]
fn connection_that_was_closed_is_replaced() {
    let simulation = Simulation::new("rate=50M delay=5ms queue=100", 3).expect("a valid link");
    simulation.run(async |net| {
        let (server, certificate) = serve(&net, answer);
        let client = client(&net, &certificate);
        for n in 0..5 {
            let asked = query(n);
            let answer = client.query(&asked).await.expect("an answer");
            assert!(is_answer_of(&asked, &answer));
            for _ in 0..server.open_connections() {
                let connection = client.current_connection().await.expect("a connection");
                connection.close(0, b"");
            }
        }
    });
}

/// Counts when it is dropped.
struct CountDrop(Arc<AtomicUsize>);

impl Drop for CountDrop {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

#[test]
fn dropped_query_is_cancelled_at_the_server() {
    let simulation = Simulation::new("rate=50M delay=5ms queue=100", 3).expect("a valid link");
    simulation.run(async |net| {
        let (begun, ended) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let counts = (begun.clone(), ended.clone());
        let (_server, certificate) = serve(&net, move |_: Query| {
            counts.0.fetch_add(1, Ordering::Relaxed);
            let counted = CountDrop(counts.1.clone());
            async move {
                let _counted = counted;
                std::future::pending().await
            }
        });
        let client = client(&net, &certificate);
        let asked = query(1);
        let waiting = tokio::time::timeout(Duration::from_millis(500), client.query(&asked));
        assert!(waiting.await.is_err());
        tokio::time::sleep(Duration::from_millis(500)).await;
        let count = |of: &Arc<AtomicUsize>| of.load(Ordering::Relaxed);
        assert_eq!((count(&begun), count(&ended)), (1, 1));
    });
}

#[test]
fn violations_close_the_connection_with_doq_protocol_error() {
    let mut wrong_id = query(0);
    wrong_id[1] = 1;
    let framed = |message: &[u8]| {
        let mut framed = (message.len() as u16).to_be_bytes().to_vec();
        framed.extend_from_slice(message);
        framed
    };
    let mut keepalive = query(0);
    keepalive[11] = 1;
    keepalive.extend_from_slice(&[0, 0, 41, 4, 0, 0, 0, 0, 0, 0, 4, 0, 11, 0, 0]);
    let two = [framed(&query(0)), framed(&query(0))].concat();
    let cut = framed(&query(0))[..20].to_vec();
    for (what, bytes) in [
        ("a message ID", framed(&wrong_id)),
        ("two queries", two),
        ("a query that is cut off", cut),
        ("an empty stream", Vec::new()),
        ("a short query", framed(&[0; 4])),
        ("edns-tcp-keepalive", framed(&keepalive)),
    ] {
        assert_eq!(close_code(Some(bytes)), Code::PROTOCOL_ERROR, "{what}");
    }
    assert_eq!(
        close_code(None),
        Code::PROTOCOL_ERROR,
        "a unidirectional stream"
    );
}

/// Sends bytes on a stream, or opens a unidirectional one. Returns the code with which the server
/// closes.
fn close_code(bytes: Option<Vec<u8>>) -> Code {
    let simulation = Simulation::new("rate=50M delay=5ms queue=100", 3).expect("a valid link");
    simulation.run(async |net| {
        let unpadded = async |query: Query| Answer::from(doq::error_response(query.message(), 0));
        let (_server, certificate) = serve(&net, unpadded);
        let endpoint = endpoint(&net, &certificate, 2);
        let connection = endpoint
            .connect(address(1, 853), NAME)
            .await
            .expect("connects");
        let _recv = match bytes {
            Some(bytes) => {
                let (mut send, recv) = connection.open_bi().await.expect("a stream");
                send.write_all(&bytes).await.expect("writes");
                send.finish().expect("finishes");
                Some(recv)
            }
            None => {
                let mut send = connection.open_uni().await.expect("a stream");
                send.write_all(b"x").await.expect("writes");
                send.finish().expect("finishes");
                None
            }
        };
        match connection.closed().await {
            ConnectionError::PeerApplication { code, .. } => Code(code),
            other => panic!("{other}"),
        }
    })
}

#[test]
fn answer_with_a_message_id_none_or_two_are_violations_of_the_server() {
    // A server of the wrong kind: it writes bytes as they are.
    let two = [[0, 12, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]; 2].concat();
    for bytes in [
        &[0, 12, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0][..],
        &[0, 9, 0],
        &[],
        &two,
    ] {
        let bytes = bytes.to_vec();
        let simulation = Simulation::new("rate=50M delay=5ms queue=100", 3).expect("a valid link");
        simulation.run(async |net| {
            let (certificate, key) = identity([NAME]);
            let at = address(1, 853);
            let config = ServerConfig::with_identity(&certificate, &key).expect("settings");
            let config = config.alpn([doq::ALPN]);
            let server = net.attach(Endpoint::builder(at), at).server(config).build();
            let server = server.expect("a server");
            tokio::spawn(async move {
                let connection = server.accept().await.unwrap().unwrap();
                let (mut send, _recv) = connection.accept_bi().await.unwrap();
                send.write_all(&bytes).await.unwrap();
                send.finish().unwrap();
                connection.closed().await;
            });
            let client = client(&net, &certificate);
            let error = client.query(&query(7)).await.expect_err("a violation");
            assert!(matches!(error, QueryError::Protocol(_)), "{error}");
        });
    }
}

#[test]
fn refusals_and_invalid_queries_are_told_apart() {
    let simulation = Simulation::new("rate=50M delay=5ms queue=100", 3).expect("a valid link");
    simulation.run(async |net| {
        let busy = async |_: Query| Answer::Reset(Code::EXCESSIVE_LOAD);
        let (_server, certificate) = serve(&net, busy);
        let client = client(&net, &certificate);
        let error = client.query(&query(1)).await.expect_err("refused");
        assert!(
            matches!(error, QueryError::Reset(Code::EXCESSIVE_LOAD)),
            "{error}"
        );
        let short = client.query(&[0; 11]).await.expect_err("too short");
        assert!(matches!(short, QueryError::Length(11)));
        let mut transfer = query(2);
        let at = transfer.len() - 3;
        transfer[at] = 252;
        let error = client.query(&transfer).await.expect_err("a transfer");
        assert!(matches!(error, QueryError::Transfer));
    });
}
