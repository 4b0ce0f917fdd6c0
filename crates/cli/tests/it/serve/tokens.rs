//! Address tokens, by which a server trusts a returning client's address at once.
//!
//! How much it does is seen from outside: to an address without a valid token it sends at most
//! three times what it received (RFC 9000 §8.1), and its certificate chain here is longer.

use std::fs;
use std::io::ErrorKind;
use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::time::Duration;

use clearway::{ClientConfig, ClientSessions, DevelopmentIdentity, Endpoint, ServerId};

use crate::web::{Site, TempDir};
use clearway_quic::wire::Version;

fn server_id(address: SocketAddr) -> ServerId {
    ServerId {
        name: "localhost".try_into().unwrap(),
        port: address.port(),
    }
}

fn client(sessions: Arc<ClientSessions>) -> Endpoint {
    let config = ClientConfig::dangerous_accept_any_certificate()
        .alpn(["h3"])
        .sessions(sessions);
    Endpoint::client("127.0.0.1:0".parse().unwrap(), config).unwrap()
}

/// Connects to the server, and returns a token that it issues (NEW_TOKEN).
async fn token_from(server: SocketAddr) -> Vec<u8> {
    let sessions = Arc::new(ClientSessions::default());
    let client = client(sessions.clone());
    let connection = client.connect(server, "localhost").await.unwrap();
    let id = server_id(server);
    std::future::poll_fn(|cx| sessions.poll_stored(&id, cx, |stored| stored.tokens > 0)).await;
    connection.close(0x100, b"");
    client.wait_idle().await;
    sessions.take_token(&id, Version::V1).unwrap()
}

/// The ClientHello of a client, in as many datagrams as it takes with a post-quantum key share.
type ClientHello = [Vec<u8>; 2];

/// Returns the ClientHello of a client that has this token, and has sent it to nobody.
async fn client_hello(token: Option<Vec<u8>>) -> ClientHello {
    let recorder = UdpSocket::bind("127.0.0.1:0").unwrap();
    let address = recorder.local_addr().unwrap();
    let sessions = Arc::new(ClientSessions::default());
    if let Some(token) = token {
        assert!(sessions.put_token(&server_id(address), Version::V1, token));
    }
    let client = client(sessions);
    let connecting = tokio::spawn(client.connect(address, "localhost").into_future());
    let datagrams = tokio::task::spawn_blocking(move || {
        [(); 2].map(|()| {
            let mut datagram = vec![0; 2_000];
            let length = recorder.recv(&mut datagram).unwrap();
            datagram.truncate(length);
            datagram
        })
    });
    let datagrams = datagrams.await.unwrap();
    connecting.abort();
    datagrams
}

/// Whether the server sends more than three times the size of this ClientHello in answer to it alone.
fn sends_without_limit(server: SocketAddr, hello: &ClientHello) -> bool {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    for datagram in hello {
        socket.send_to(datagram, server).unwrap();
    }
    let mut answer = vec![0; 1 << 16];
    let (mut received, limit) = (0, 3 * hello.concat().len());
    while received <= limit {
        // Silence counts only after an answer, which has a minute.
        let patience = if received == 0 { 60_000 } else { 1_500 };
        socket
            .set_read_timeout(Some(Duration::from_millis(patience)))
            .unwrap();
        match socket.recv(&mut answer) {
            Ok(length) => received += length,
            Err(error) if error.kind() == ErrorKind::WouldBlock && received > 0 => return false,
            Err(error) => panic!("the server does not answer: {error}"),
        }
    }
    true
}

/// Returns a ClientHello with a token that the server took as proof of the address. Those of the
/// second in which it started are none.
async fn trusted_hello(server: SocketAddr) -> ClientHello {
    for _ in 0..60 {
        let hello = client_hello(Some(token_from(server).await)).await;
        if sends_without_limit(server, &hello) {
            return hello;
        }
    }
    panic!("the server trusts none of its own tokens");
}

#[tokio::test]
async fn token_offered_after_a_restart_with_the_same_secret_is_no_proof_of_the_address() {
    let (dir, files) = (TempDir::new(), TempDir::new());
    let identity = DevelopmentIdentity::generate(["localhost"]).unwrap();
    let [chain, key, secret] = ["chain", "key", "secret"].map(|name| files.text(name));
    // Longer than the first window, which is longer than what may be sent to an unknown address.
    let certificate = identity.certificate_pem();
    let copies = 6 * 3_600 / certificate.len() * 4 / 3;
    fs::write(&chain, certificate.repeat(copies)).unwrap();
    fs::write(&key, identity.key_pem()).unwrap();
    let options = ["--secret", &secret, "--cert", &chain, "--key", &key];
    let mut site = Site::start(dir.path(), &options);
    let server = site.address();

    assert!(!sends_without_limit(server, &client_hello(None).await));
    let used = trusted_hello(server).await;
    let kept = client_hello(Some(token_from(server).await)).await;
    site.child.kill().unwrap();
    site.child.wait().unwrap();
    let site = Site::start_at(&server.to_string(), dir.path(), &options);
    // The server cannot know which tokens were used before.
    assert!(!sends_without_limit(server, &used));
    assert!(!sends_without_limit(server, &kept));
    trusted_hello(server).await;
    assert!(site.stop().success());
}
