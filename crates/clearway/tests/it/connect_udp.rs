//! CONNECT-UDP: what a proxy forwards, and what it refuses.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use axum::body::Body;
use axum::extract::{Request, State};
use axum::response::Response;
use axum::{Extension, Router};
use bytes::Bytes;
use clearway::http::connect_udp::{
    AddressPolicy, Resolution, Target, UdpProxy, UdpProxyBuilder, UdpTunnel, UdpTunnelMode,
};
use clearway::http::{Client, Error, OpenTunnelError, Server, Tunnel};
use clearway::{ClientConfig, ServerConfig};
use http::{StatusCode, Uri};
use tokio::net::UdpSocket;

use crate::common::{IDENTITY, LOOPBACK};

const TOKEN: &str = "a token of 24 characters";

struct World {
    server: Server,
    proxy: UdpProxy,
    client: Client,
    uri: Uri,
}

async fn serve(State(proxy): State<UdpProxy>, request: Request) -> Response {
    proxy.serve(request).await.map(|()| Body::empty())
}

impl World {
    /// A proxy that may be told the address of its own server.
    fn with(change: impl FnOnce(UdpProxyBuilder, SocketAddr) -> UdpProxyBuilder) -> Self {
        let config = ServerConfig::with_identity(IDENTITY.certificate_pem(), IDENTITY.key_pem());
        let server = Server::builder(LOOPBACK, config.unwrap()).tunnels().build();
        let server = server.unwrap();
        let address = server.local_addr();
        let proxy = change(UdpProxy::builder().token(TOKEN), address).build();
        let router = Router::new().fallback(serve).with_state(proxy.clone());
        let serving = server.clone();
        tokio::spawn(async move { serving.serve(router).await });
        let config = ClientConfig::with_roots(IDENTITY.certificate_pem()).unwrap();
        let uri = format!("https://localhost:{}", address.port());
        Self {
            server,
            proxy,
            client: Client::new(config).unwrap(),
            uri: uri.parse().unwrap(),
        }
    }

    /// A proxy that forwards to every port of loopback.
    fn for_loopback() -> Self {
        Self::with(|proxy, _| proxy.policy(loopback()))
    }

    async fn open(&self, target: &Target) -> Result<UdpTunnel, OpenTunnelError> {
        self.open_with(target, Some(TOKEN), UdpTunnelMode::Datagrams)
            .await
    }

    async fn open_with(
        &self,
        target: &Target,
        token: Option<&str>,
        mode: UdpTunnelMode,
    ) -> Result<UdpTunnel, OpenTunnelError> {
        UdpTunnel::connect(&self.client, &self.uri, target, token, mode).await
    }

    /// The status and the `proxy-status` of a refusal.
    async fn refusal(&self, target: &Target) -> (StatusCode, String) {
        refusal(self.open(target).await.unwrap_err())
    }
}

fn refusal(error: OpenTunnelError) -> (StatusCode, String) {
    let OpenTunnelError::Refused(response) = error else {
        panic!("{error}");
    };
    let proxy_status = response.headers()["proxy-status"].to_str().unwrap();
    (response.status(), proxy_status.to_owned())
}

fn loopback() -> AddressPolicy {
    let policy = AddressPolicy::default().ports([]);
    policy.allow("127.0.0.0/8".parse().unwrap())
}

fn target(address: SocketAddr) -> Target {
    Target::new(&address.ip().to_string(), address.port()).unwrap()
}

fn named(host: &str) -> Target {
    Target::new(host, 443).unwrap()
}

/// A socket that sends every packet back.
async fn echo() -> SocketAddr {
    let socket = UdpSocket::bind(LOOPBACK).await.unwrap();
    let address = socket.local_addr().unwrap();
    tokio::spawn(async move {
        let mut buffer = [0; 65_536];
        while let Ok((len, from)) = socket.recv_from(&mut buffer).await {
            let _ = socket.send_to(&buffer[..len], from).await;
        }
    });
    address
}

/// Sends a payload until it comes back, because UDP may lose it. A slower answer to an earlier
/// attempt has the same contents.
async fn exchange(tunnel: &mut UdpTunnel, payload: &[u8]) {
    for _ in 0..50 {
        tunnel.send(payload).unwrap();
        let wait = tokio::time::timeout(Duration::from_millis(500), tunnel.recv());
        if let Ok(received) = wait.await {
            assert_eq!(received.unwrap().unwrap(), payload);
            return;
        }
    }
    panic!("nothing came back: {:?}", tunnel.counters());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn payloads_pass_in_both_modes() {
    let world = World::for_loopback();
    let echo = echo().await;
    for mode in [UdpTunnelMode::Datagrams, UdpTunnelMode::Capsules] {
        let tunnel = world.open_with(&target(echo), Some(TOKEN), mode).await;
        let mut tunnel = tunnel.unwrap();
        for len in [0, 1, 100, 1_000] {
            let payload: Vec<u8> = (0..len).map(|n| (n * 7) as u8).collect();
            // Each length comes back before the next is sent, unless it was repeated.
            tunnel.send(&payload).unwrap();
            let received = tunnel.recv().await.unwrap().unwrap();
            assert_eq!(received, payload, "{mode:?}");
        }
        tunnel.finish();
        assert_eq!(tunnel.recv().await.unwrap(), None);
    }
    assert_eq!(world.proxy.counters().opened, 2);
    assert_eq!(world.proxy.counters().denied, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn proxy_answers_in_the_form_that_the_client_uses() {
    let world = World::for_loopback();
    let mode = UdpTunnelMode::Capsules;
    let echo = target(echo().await);
    let tunnel = world.open_with(&echo, Some(TOKEN), mode).await;
    let mut tunnel = tunnel.unwrap();
    // Too large for a datagram, which is how it would be lost on its way back.
    exchange(&mut tunnel, &[7; 5_000]).await;
    exchange(&mut tunnel, b"small").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn payload_that_fits_no_datagram_is_dropped_and_counted() {
    let world = World::for_loopback();
    let mut tunnel = world.open(&target(echo().await)).await.unwrap();
    tunnel.send(&vec![0; 60_000]).unwrap();
    assert_eq!(
        (tunnel.counters().sent, tunnel.counters().too_large),
        (0, 1)
    );
    exchange(&mut tunnel, b"small").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn addresses_of_every_special_class_are_refused() {
    let world = World::with(|proxy, _| proxy.policy(AddressPolicy::default()));
    for address in [
        "127.0.0.1",
        "::1",
        "10.1.2.3",
        "172.16.0.1",
        "192.168.0.1",
        "169.254.169.254",
        "fe80::1",
        "100.64.0.1",
        "fd00::1",
        "224.0.0.251",
        "255.255.255.255",
        "ff02::fb",
        "0.0.0.0",
        "::",
        "64:ff9b::7f00:1",
        "64:ff9b:1::1",
        "::ffff:127.0.0.1",
        "::ffff:8.8.8.8",
        "2002:7f00:1::",
        "192.0.2.1",
        "2001:db8::1",
    ] {
        let (status, reason) = world.refusal(&named(address)).await;
        assert_eq!(status, StatusCode::FORBIDDEN, "{address}");
        assert_eq!(
            reason, "clearway; error=destination_ip_prohibited",
            "{address}"
        );
    }
    assert_eq!(world.proxy.counters().opened, 0);
    assert_eq!(world.proxy.counters().denied, 21);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn port_that_is_not_listed_is_refused() {
    let policy = AddressPolicy::default().allow("127.0.0.0/8".parse().unwrap());
    let world = World::with(|proxy, _| proxy.policy(policy));
    for port in [22, 25, 80, 8443] {
        let target = Target::new("127.0.0.1", port).unwrap();
        let (status, reason) = world.refusal(&target).await;
        assert_eq!(status, StatusCode::FORBIDDEN);
        assert_eq!(reason, "clearway; error=http_request_denied");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn own_listener_is_refused_although_its_network_is_allowed() {
    for any in [false, true] {
        let world = World::with(|proxy, own| {
            let own = match any {
                true => SocketAddr::from(([0, 0, 0, 0], own.port())),
                false => own,
            };
            proxy.policy(loopback().own_listener(own))
        });
        let own = world.server.local_addr();
        let (status, _) = world.refusal(&target(own)).await;
        assert_eq!(status, StatusCode::FORBIDDEN);
        // Every address of the host reaches it.
        let other = SocketAddr::from(([127, 0, 0, 2], own.port()));
        let opened = world.open(&target(other)).await;
        assert_eq!(opened.is_err(), any);
    }
}

fn resolution(addresses: &[SocketAddr]) -> Resolution {
    let addresses = addresses.to_vec();
    Box::pin(async move { Ok(addresses) })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn name_is_refused_if_all_of_its_addresses_are() {
    let world = World::with(|proxy, _| {
        proxy.resolver(|target| match target.host() {
            "inside.example" => resolution(&[
                ([10, 0, 0, 1], 443).into(),
                ([127, 0, 0, 1], 443).into(),
                "[::ffff:10.0.0.1]:443".parse().unwrap(),
            ]),
            "none.example" => resolution(&[]),
            _ => Box::pin(async { Err(std::io::Error::other("no such name")) }),
        })
    });
    let (status, reason) = world.refusal(&named("inside.example")).await;
    assert_eq!(status, StatusCode::FORBIDDEN);
    assert_eq!(reason, "clearway; error=destination_ip_prohibited");
    for name in ["none.example", "other.example"] {
        let (status, reason) = world.refusal(&named(name)).await;
        assert_eq!(status, StatusCode::BAD_GATEWAY);
        assert_eq!(reason, "clearway; error=dns_error");
    }
    // The system's resolver knows names of this host.
    let world = World::with(|proxy, _| proxy);
    let (status, _) = world.refusal(&named("localhost")).await;
    assert_eq!(status, StatusCode::FORBIDDEN);
}

/// The first answer of the DNS is allowed, and every later one is not.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn address_that_was_checked_is_the_one_that_is_dialled() {
    let (allowed, forbidden) = (echo().await, echo().await);
    let asked = Arc::new(AtomicUsize::new(0));
    let counted = asked.clone();
    let world = World::with(move |proxy, _| {
        let only = AddressPolicy::default().ports([allowed.port()]);
        let only = only.allow("127.0.0.0/8".parse().unwrap());
        proxy
            .policy(only)
            .resolver(move |_| match counted.fetch_add(1, Ordering::Relaxed) {
                0 => resolution(&[forbidden, allowed]),
                _ => resolution(&[forbidden]),
            })
    });
    let mut tunnel = world.open(&named("rebind.example")).await.unwrap();
    assert_eq!(asked.load(Ordering::Relaxed), 1);
    exchange(&mut tunnel, b"checked").await;
    assert_eq!(asked.load(Ordering::Relaxed), 1);
    let (status, _) = world.refusal(&named("rebind.example")).await;
    assert_eq!(status, StatusCode::FORBIDDEN);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn request_without_a_valid_token_is_refused_before_anything_else() {
    let asked = Arc::new(AtomicUsize::new(0));
    let counted = asked.clone();
    let world = World::with(move |proxy, _| {
        proxy.token("short").token("").resolver(move |_| {
            counted.fetch_add(1, Ordering::Relaxed);
            resolution(&[])
        })
    });
    let longer = format!("{TOKEN}x");
    for token in [
        None,
        Some("short"),
        Some("another token, as long"),
        Some(&longer),
    ] {
        let opened = world
            .open_with(&named("a.example"), token, UdpTunnelMode::Datagrams)
            .await;
        let OpenTunnelError::Refused(response) = opened.unwrap_err() else {
            panic!("{token:?}");
        };
        assert_eq!(response.status(), StatusCode::PROXY_AUTHENTICATION_REQUIRED);
        assert_eq!(response.headers()["proxy-authenticate"], "Bearer");
    }
    assert_eq!(asked.load(Ordering::Relaxed), 0);
    assert_eq!(world.proxy.counters().denied, 4);
    // And without any token in its settings.
    let world = World::with(|_, _| UdpProxy::builder().token("short"));
    let (status, _) = world.refusal(&named("a.example")).await;
    assert_eq!(status, StatusCode::PROXY_AUTHENTICATION_REQUIRED);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn path_outside_of_the_template_is_a_bad_request() {
    let world = World::for_loopback();
    let port = world.server.local_addr().port();
    for path in [
        "/",
        "/.well-known/masque/udp/a/0/",
        "/.well-known/masque/udp/a%2Fb/1/",
    ] {
        let mut request = http::Request::new(());
        *request.uri_mut() = format!("https://localhost:{port}{path}").parse().unwrap();
        let protocol = clearway::http::Protocol::new("connect-udp");
        request.extensions_mut().insert(protocol);
        let bearer = format!("bearer {TOKEN}").parse().unwrap();
        request.headers_mut().insert("authorization", bearer);
        let (status, reason) = refusal(world.client.tunnel(request).await.unwrap_err());
        assert_eq!(status, StatusCode::BAD_REQUEST, "{path}");
        assert_eq!(reason, "clearway; error=http_request_error");
    }
    assert_eq!(world.proxy.counters().failed, 3);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn idle_tunnel_ends() {
    let world = World::with(|proxy, _| {
        let proxy = proxy.policy(loopback());
        proxy.idle_timeout(Duration::from_millis(100))
    });
    let mut tunnel = world.open(&target(echo().await)).await.unwrap();
    assert_eq!(tunnel.recv().await.unwrap(), None);
    for _ in 0..2_000 {
        if world.server.counters().tunnels == 0 {
            return;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    panic!("{:?}", world.server.counters());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unreachable_target_does_not_end_the_tunnel() {
    let world = World::for_loopback();
    let closed = UdpSocket::bind(LOOPBACK).await.unwrap();
    let address = closed.local_addr().unwrap();
    drop(closed);
    let mut tunnel = world.open(&target(address)).await.unwrap();
    // Each is answered with an ICMP error.
    for _ in 0..20 {
        tunnel.send(b"anybody there?").unwrap();
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let late = UdpSocket::bind(address).await.unwrap();
    tokio::spawn(async move {
        let mut buffer = [0; 2_000];
        while let Ok((len, from)) = late.recv_from(&mut buffer).await {
            let _ = late.send_to(&buffer[..len], from).await;
        }
    });
    exchange(&mut tunnel, b"anybody there?").await;
}

/// Datagrams of a context that nobody registered, and none.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn datagrams_of_unknown_contexts_are_dropped() {
    let world = World::for_loopback();
    let mut request = http::Request::new(());
    let path = target(echo().await).path();
    let port = world.server.local_addr().port();
    *request.uri_mut() = format!("https://localhost:{port}{path}").parse().unwrap();
    let protocol = clearway::http::Protocol::new("connect-udp");
    request.extensions_mut().insert(protocol);
    let bearer = format!("Bearer {TOKEN}").parse().unwrap();
    request.headers_mut().insert("proxy-authorization", bearer);
    let tunnel = world.client.tunnel(request).await.unwrap();
    assert_eq!(tunnel.response.headers()["capsule-protocol"], "?1");
    let (mut tx, rx, mut datagrams) = tunnel.into_parts();
    for datagram in [&b"\x02other"[..], b"", b"\x40", b"\x40\x01two bytes"] {
        datagrams.send(datagram).unwrap();
        let value = Bytes::copy_from_slice(datagram);
        tx.send_capsule(0, value).await.unwrap();
    }
    // The context 0 in two bytes is still 0.
    let payload = Bytes::from_static(b"\x40\x00payload");
    tx.send_capsule(0, payload).await.unwrap();
    // The answer comes in the form that the proxy has seen last.
    let mut capsules = rx.into_capsules(2_000);
    let answer = tokio::select! {
        datagram = datagrams.recv() => datagram.unwrap().unwrap(),
        capsule = capsules.next(|kind| kind == 0) => capsule.unwrap().unwrap().value,
    };
    assert_eq!(answer, "\0payload");
}

/// What was sent before the end arrives, although the end is seen before it is read.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn payloads_before_the_end_of_the_tunnel_are_received() {
    const PAYLOADS: u64 = 50;
    let config = ServerConfig::with_identity(IDENTITY.certificate_pem(), IDENTITY.key_pem());
    let server = Server::builder(LOOPBACK, config.unwrap()).tunnels().build();
    let server = server.unwrap();
    let (results, mut received) = tokio::sync::mpsc::unbounded_channel();
    let count = move |Extension(tunnel): Extension<Tunnel>| {
        let results = results.clone();
        async move {
            let mut tunnel = UdpTunnel::accept(tunnel).await.unwrap();
            // The first, and then nothing until all of them and the end have come.
            let first = tunnel.recv().await.unwrap();
            tokio::time::sleep(Duration::from_millis(200)).await;
            let mut count = u64::from(first.is_some());
            while let Some(_payload) = tunnel.recv().await.unwrap() {
                count += 1;
            }
            results.send(count).unwrap();
        }
    };
    let serving = server.clone();
    let router = Router::new().fallback(count);
    tokio::spawn(async move { serving.serve(router).await });
    let client = Client::new(ClientConfig::with_roots(IDENTITY.certificate_pem()).unwrap());
    let client = client.unwrap();
    for capsules in [false, true] {
        let mut request = http::Request::new(());
        let port = server.local_addr().port();
        *request.uri_mut() = format!("https://localhost:{port}/").parse().unwrap();
        let protocol = clearway::http::Protocol::new("connect-udp");
        request.extensions_mut().insert(protocol);
        let (mut tx, _rx, datagrams) = client.tunnel(request).await.unwrap().into_parts();
        if capsules {
            // All in one piece.
            let payload = b"\x00\x02\x00x".repeat(PAYLOADS as usize);
            tx.send(payload.into()).await.unwrap();
        } else {
            for _ in 0..PAYLOADS {
                datagrams.send_wait(b"\0x").await.unwrap();
            }
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
        tx.finish().unwrap();
        assert_eq!(
            received.recv().await,
            Some(PAYLOADS),
            "capsules: {capsules}"
        );
    }
}

/// The proxy's client gives up: the socket is closed, and packets for it are refused.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tunnel_of_a_client_that_leaves_is_closed() {
    let world = World::for_loopback();
    let mut tunnels = Vec::new();
    for _ in 0..20 {
        tunnels.push(world.open(&target(echo().await)).await.unwrap());
    }
    assert_eq!(world.server.counters().tunnels, 20);
    let last = tunnels.pop();
    tunnels.clear();
    world.client.close().await;
    let error = last.unwrap().recv().await.unwrap_err();
    assert!(matches!(error, Error::ConnectionLost(_)), "{error}");
    for _ in 0..2_000 {
        if world.server.counters().tunnels == 0 {
            return;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    panic!("{:?}", world.server.counters());
}
