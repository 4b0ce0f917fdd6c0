//! Servers: shards, restarts, admission, 0-RTT.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::common::{LOOPBACK, Pair, bind_again, client, client_config, pattern, server_config};
use clearway::config::{Admission, ClientAuth};
use clearway::{
    BuildError, Certificates, ClientConfig, ConnectError, Connection, ConnectionError,
    DevelopmentIdentity, Endpoint, Roots, ServerConfig,
};

async fn echo(connection: Connection) {
    while let Ok((mut send, mut recv)) = connection.accept_bi().await {
        tokio::spawn(async move {
            tokio::io::copy(&mut recv, &mut send).await?;
            send.finish()?;
            Ok::<_, std::io::Error>(())
        });
    }
}

async fn ask(connection: &Connection, content: &[u8]) -> Vec<u8> {
    let (mut send, mut recv) = connection.open_bi().await.unwrap();
    let asking = async {
        send.write_all(content).await.unwrap();
        send.finish().unwrap();
    };
    let (answer, ()) = tokio::join!(recv.read_to_end(content.len()), asking);
    answer.unwrap()
}

/// Forty clients are served by two shards, both accept some of them, and after the handshake
/// connection IDs steer to the shard that owns them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_shards_share_the_clients() {
    let server = Endpoint::builder(LOOPBACK)
        .server(server_config())
        .shards(2)
        .build()
        .unwrap();
    let address = server.local_addr();
    tokio::spawn({
        let server = server.clone();
        async move { server.serve(echo).await }
    });
    let tasks: Vec<_> = (0..40)
        .map(|n| {
            tokio::spawn(async move {
                let client = client();
                let connection = client.connect(address, "localhost").await.unwrap();
                let content = pattern(n, 100_000);
                assert!(ask(&connection, &content).await == content);
                connection.rotate_connection_ids();
                assert!(ask(&connection, &content).await == content);
                connection.close(0, b"");
                client.wait_idle().await;
            })
        })
        .collect();
    for task in tasks {
        task.await.unwrap();
    }
    let counters = server.counters();
    assert_eq!(counters.len(), 2);
    let accepted: Vec<_> = counters
        .iter()
        .map(|shard| shard.endpoint.accepted)
        .collect();
    assert_eq!(accepted.iter().sum::<u64>(), 40);
    assert!(accepted.iter().all(|&n| n > 0), "{accepted:?}");
    assert!(counters.iter().all(|shard| shard.strays_dropped == 0));
}

/// With more handshakes at once than a turn begins, some wait, all succeed, and an open
/// connection is served meanwhile.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn live_connection_is_served_while_many_clients_connect() {
    let server = Endpoint::server(LOOPBACK, server_config()).unwrap();
    let address = server.local_addr();
    tokio::spawn({
        let server = server.clone();
        async move { server.serve(echo).await }
    });
    let client = client();
    let first = client.connect(address, "localhost").await.unwrap();
    let crowd: Vec<_> = (0..150)
        .map(|_| client.connect(address, "localhost"))
        .collect();
    assert_eq!(ask(&first, b"still there?").await, b"still there?");
    for connecting in crowd {
        let connection = connecting.await.unwrap();
        assert_eq!(ask(&connection, b"x").await, b"x");
    }
    assert_eq!(server.counters()[0].endpoint.accepted, 151);
    client.close(0, b"");
    client.wait_idle().await;
}

#[tokio::test]
async fn server_runs_on_the_callers_runtime() {
    let pair = Pair::on_caller_runtime().await;
    tokio::spawn(echo(pair.far.clone()));
    let content = pattern(1, 1 << 20);
    assert!(ask(&pair.near, &content).await == content);
}

#[test]
fn invalid_endpoint_settings_are_rejected() {
    let build = |shards, on_caller: bool| {
        let builder = Endpoint::builder(LOOPBACK)
            .server(server_config())
            .shards(shards);
        if on_caller {
            builder.on_caller_runtime().build()
        } else {
            builder.build()
        }
    };
    for (shards, on_caller, message) in [
        (0, false, "the number of shards must be at least 1"),
        (
            2,
            true,
            "2 shards cannot run on the caller's runtime: use 1 shard, or on_own_threads",
        ),
    ] {
        let error = build(shards, on_caller).unwrap_err();
        assert!(matches!(error, BuildError::Shards(_)), "{error:?}");
        assert_eq!(error.to_string(), message);
    }
    assert!(matches!(build(1, true), Err(BuildError::NoRuntime)));
    let taken = build(1, false).unwrap();
    let again = Endpoint::server(taken.local_addr(), server_config());
    assert!(matches!(again, Err(BuildError::Socket(_))), "{again:?}");
}

/// One endpoint may be client and server.
#[tokio::test]
async fn one_endpoint_accepts_and_connects() {
    let both = || {
        Endpoint::builder(LOOPBACK)
            .server(server_config())
            .client(client_config())
            .build()
            .unwrap()
    };
    let pair = Pair::of(both(), both()).await;
    assert_eq!(pair.far.remote_address(), pair.client.local_addr());
    tokio::spawn(echo(pair.near.clone()));
    assert_eq!(ask(&pair.far, b"the other way").await, b"the other way");
}

/// A server that lost its state but not its secret resets the connections of its clients.
#[test]
fn restarted_server_with_the_same_secret_resets_old_connections() {
    let config = || server_config().secret([7; 32]);
    let runtime = || tokio::runtime::Runtime::new().unwrap();
    let (here, there) = (runtime(), runtime());
    let first = Endpoint::builder(LOOPBACK)
        .server(config())
        .on_caller_runtime();
    let first = there.block_on(async { first.build().unwrap() });
    let address = first.local_addr();
    let (client, near, far) = here.block_on(async {
        let pair = Pair::of(first, client()).await;
        (pair.client, pair.near, pair.far)
    });
    // The event loop ends with its runtime, without a close.
    drop(there);
    here.block_on(async {
        let error = far.closed().await;
        assert!(matches!(error, ConnectionError::Transport(_)), "{error}");
        let second = Endpoint::server(address, config()).unwrap();
        near.ping();
        assert_eq!(near.closed().await, ConnectionError::StatelessReset);
        assert!(second.counters()[0].endpoint.resets > 0);
        // The clients can connect again.
        Pair::of(second, client).await;
    });
}

#[tokio::test]
async fn always_retry_validates_every_client_address() {
    let server = Endpoint::server(LOOPBACK, server_config().always_retry(true)).unwrap();
    let pair = Pair::of(server, client()).await;
    tokio::spawn(echo(pair.far.clone()));
    assert_eq!(ask(&pair.near, b"hello").await, b"hello");
    let counters = pair.server.counters()[0].endpoint;
    // A ClientHello of two datagrams calls the callback twice.
    assert!((1..=2).contains(&counters.retries), "{counters:?}");
    assert_eq!(counters.accepted, 1);
}

#[tokio::test]
async fn admit_callback_refuses_clients() {
    let open = Arc::new(AtomicBool::new(false));
    let config = server_config().admit({
        let open = open.clone();
        move |client| {
            assert!(client.ip().is_loopback());
            if open.load(Ordering::Relaxed) {
                Admission::Accept
            } else {
                Admission::Refuse
            }
        }
    });
    let server = Endpoint::server(LOOPBACK, config).unwrap();
    let client = client();
    let error = client
        .connect(server.local_addr(), "localhost")
        .await
        .unwrap_err();
    assert!(error.to_string().contains("CONNECTION_REFUSED"), "{error}");
    assert!(server.counters()[0].endpoint.refused > 0);
    open.store(true, Ordering::Relaxed);
    Pair::of(server, client).await;
}

#[tokio::test]
async fn full_accept_backlog_refuses_new_clients() {
    let server = Endpoint::server(LOOPBACK, server_config().backlog(1)).unwrap();
    let client = client();
    let first = client.connect(server.local_addr(), "localhost").await;
    let error = loop {
        // The first is queued when its handshake is complete at the server.
        let next = client.connect(server.local_addr(), "localhost").await;
        if let Err(error) = next {
            break error;
        }
    };
    assert!(
        matches!(
            error,
            ConnectError::Connection(ConnectionError::PeerTransport(_))
        ),
        "{error}"
    );
    assert!(server.accept().await.unwrap().is_some());
    first.unwrap();
}

#[tokio::test]
async fn zero_rtt_data_is_accepted_with_a_ticket() {
    let server = Endpoint::server(LOOPBACK, server_config().early_data(true)).unwrap();
    let address = server.local_addr();
    tokio::spawn({
        let server = server.clone();
        async move { server.serve(echo).await }
    });
    let client = client();
    let connecting = client.connect(address, "localhost");
    let first = connecting
        .into_zero_rtt()
        .expect_err("nothing is known of the server yet")
        .await
        .unwrap();
    assert_eq!(first.zero_rtt_accepted(), None);
    // The ticket comes with or before the answer.
    assert_eq!(ask(&first, b"first").await, b"first");
    first.close(0, b"");

    let (second, accepted) = client
        .connect(address, "localhost")
        .into_zero_rtt()
        .expect("a ticket was kept");
    assert_eq!(ask(&second, b"early").await, b"early");
    assert_eq!(accepted.wait().await, Ok(true));
    assert_eq!(second.zero_rtt_accepted(), Some(true));
}

/// Data that the server rejects as 0-RTT is sent again after the handshake.
#[tokio::test]
async fn rejected_zero_rtt_data_is_sent_again() {
    let config = || server_config().early_data(true);
    let old = Endpoint::server(LOOPBACK, config()).unwrap();
    let client = client();
    let first = Pair::of(old.clone(), client.clone()).await;
    tokio::spawn(echo(first.far.clone()));
    assert_eq!(ask(&first.near, b"first").await, b"first");

    // Another server at the same address does not know the ticket.
    let address = old.local_addr();
    old.close(0, b"");
    drop((first, old));
    let new = bind_again(address, |address| Endpoint::server(address, config())).await;
    tokio::spawn({
        let new = new.clone();
        async move { new.serve(echo).await }
    });
    let (second, accepted) = client
        .connect(new.local_addr(), "localhost")
        .into_zero_rtt()
        .expect("a ticket was kept");
    assert_eq!(ask(&second, b"early").await, b"early");
    assert_eq!(accepted.wait().await, Ok(false));
}

#[tokio::test]
async fn required_client_certificate_is_checked() {
    let identity = DevelopmentIdentity::generate(["a client"]).unwrap();
    let roots = Roots::from_pem(identity.certificate_pem().as_bytes()).unwrap();
    let config = server_config().client_auth(ClientAuth::Required(roots));
    let server = Endpoint::server(LOOPBACK, config).unwrap();
    let known: ClientConfig = client_config()
        .identity(identity.certificate_pem(), identity.key_pem())
        .unwrap();
    let pair = Pair::of(server.clone(), Endpoint::client(LOOPBACK, known).unwrap()).await;
    let shown = pair.far.peer_certificates().unwrap();
    assert_eq!(clearway::Fingerprint::of(&shown[0]), identity.fingerprint());

    // A client without a certificate is refused, which it may learn after its handshake.
    let unknown = client();
    let error = match unknown.connect(server.local_addr(), "localhost").await {
        Ok(connection) => connection.closed().await.to_string(),
        Err(error) => error.to_string(),
    };
    assert!(error.contains("TLS alert"), "{error}");
}

/// A certificate replaced while the server runs: new clients see the new one,
/// the connection made with the old one goes on.
#[tokio::test]
async fn replaced_certificate_is_used_for_new_handshakes() {
    let [old, new] = [(), ()].map(|()| DevelopmentIdentity::generate(["localhost"]).unwrap());
    let certificates = Certificates::new(old.certificate_pem(), old.key_pem()).unwrap();
    let config = ServerConfig::with_certificates(&certificates).alpn(["test"]);
    let server = Endpoint::server(LOOPBACK, config).unwrap();
    let address = server.local_addr();
    tokio::spawn(async move { server.serve(echo).await });
    let client = async |identity: &DevelopmentIdentity| {
        let config = ClientConfig::with_roots(identity.certificate_pem()).unwrap();
        let endpoint = Endpoint::client(LOOPBACK, config.alpn(["test"])).unwrap();
        endpoint.connect(address, "localhost").await
    };
    let before = client(&old).await.unwrap();
    certificates
        .replace(new.certificate_pem(), new.key_pem())
        .unwrap();
    assert!(client(&old).await.is_err(), "the old one is not served");
    let after = client(&new).await.unwrap();
    for connection in [&before, &after] {
        assert_eq!(ask(connection, b"still here").await, b"still here");
    }
}

/// Clones of client settings share their tickets, whatever endpoints use them.
#[tokio::test]
async fn cloned_client_configs_share_sessions() {
    let server = Endpoint::server(LOOPBACK, server_config()).unwrap();
    let address = server.local_addr();
    tokio::spawn(async move { server.serve(echo).await });
    let config = ClientConfig::with_roots(crate::common::IDENTITY.certificate_pem()).unwrap();
    let mut resumed = Vec::new();
    for _ in 0..2 {
        let config = config.clone().alpn(["test"]);
        let endpoint = Endpoint::client(LOOPBACK, config).unwrap();
        let connection = endpoint.connect(address, "localhost").await.unwrap();
        // The ticket comes with or before the answer.
        assert_eq!(ask(&connection, b"hello").await, b"hello");
        resumed.push(connection.resumed());
    }
    assert_eq!(resumed, [false, true]);
}
