//! Transparent mode in network namespaces, apart from what [`everything`](super::everything) shows.

use std::collections::BTreeSet;
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::{AsFd as _, OwnedFd};

use clearway_balancer::{BackendSettings, BackendState, Balancer, Settings};
use clearway_udp::testing::{Forger, IcmpMessage};
use clearway_udp::{Options, Socket};

use super::fleet::{Relay, Rotation, quic_lb, write};
use super::world::World;
use super::*;

#[test]
fn transparent_balancer_keeps_the_port_of_a_client() {
    if let Some(world) = World::transparent() {
        keep_the_port_of_a_client(&world);
    }
}

#[test]
fn transparent_balancer_keeps_the_port_of_an_ipv6_client() {
    if let Some(world) = World::transparent_v6() {
        keep_the_port_of_a_client(&world);
    }
}

#[test]
fn transparent_balancer_with_shards_keeps_the_port_of_a_client() {
    if let Some(world) = World::transparent() {
        keep_the_port_of_a_client(&world.with_shards(3));
    }
}

/// A server sees the client's own address and port, and answers to it; the balancer ends its
/// sockets with the flows.
fn keep_the_port_of_a_client(world: &World) {
    let (dir, content) = (TempDir::new(), content());
    write(&dir, "serve.toml", &quic_lb(Rotation::Announced));
    let sites = [world.site(&dir, content.path(), 1)];
    let text = world.balancer_file(&sites, Rotation::Announced);
    write(
        &dir,
        "balance.toml",
        &format!("{text}[limits]\nidle_seconds = 1\n"),
    );
    let file = dir.text("balance.toml");
    let balance = world.balance(&dir, &["--config", &file]);
    let relay = world.run_clients(|| Relay::start(&balance.address, &[]));
    world.run_clients(|| {
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        let runtime = runtime.enable_all().build().unwrap();
        runtime.block_on(async {
            let client = client();
            let (_, _, body) = get(&client, &format!("{}/large", relay.url), &[]).await;
            assert!(body == pattern(LARGE), "{} bytes", body.len());
        });
    });
    let remote = sites[0].logged()["remote"].as_str().unwrap().to_owned();
    assert!(remote.contains(world.seen_client()), "{remote}");
    // The service's sockets stay.
    balance.wait_for(|status| status["flows"] == 0 && status["sockets"] == world.shards());
    balance.stop();
}

const CLIENTS: usize = 40;

/// Sends every datagram back until the test ends.
fn echo(socket: &UdpSocket) {
    let mut buffer = [0; 2_000];
    while let Ok((len, from)) = socket.recv_from(&mut buffer) {
        if len == 0 {
            return;
        }
        // What cannot be sent is missed by the client.
        let _ = socket.send_to(&buffer[..len], from);
    }
}

/// Two sockets that share the service's address, in the order in which they were bound.
fn service_sockets(address: SocketAddr) -> Vec<OwnedFd> {
    let options = Options {
        reuse_port: true,
        ..Options::default()
    };
    let first = Socket::bind(address, &options).unwrap();
    let second = Socket::bind(first.local_addr().unwrap(), &options).unwrap();
    let descriptors = [first, second].map(|socket| socket.as_fd().try_clone_to_owned().unwrap());
    descriptors.into()
}

/// Clients send, and each receives its own datagrams; all are counted. `steered` says whether what
/// they send arrives at the shard that has their port.
fn every_client_is_answered(world: &World, steered: bool) {
    let server = world.run_servers(|| UdpSocket::bind((world.server_ip(), 0)).unwrap());
    let address = server.local_addr().unwrap();
    let balancer = world.run_balancer(|| {
        let mut sockets = service_sockets(SocketAddr::new(world.service_ip(), 0));
        if !steered {
            // The kernel numbers them as they were bound: it always chooses the other one.
            sockets.reverse();
        }
        let mut settings = Settings::new(SocketAddr::new(world.service_ip(), 0));
        settings.keep_client_addresses();
        settings.health = None;
        settings.backends = vec![BackendSettings {
            name: "echo".to_owned(),
            address,
            weight: 1,
            state: BackendState::Active,
            server_ids: Vec::new(),
        }];
        Balancer::adopt(&settings, sockets).unwrap()
    });
    std::thread::scope(|scope| {
        scope.spawn(|| echo(&server));
        world.run_clients(|| exchange(balancer.local_addr()));
        // Ends the echo.
        let other = world.run_servers(|| UdpSocket::bind((world.server_ip(), 0)).unwrap());
        other.send_to(&[], address).unwrap();
    });
    let status = balancer.stop().unwrap();
    let expected = 3 * CLIENTS as u64;
    for traffic in [status.up, status.down] {
        assert!(traffic.is_conserved(), "{status:?}");
        assert_eq!(traffic.received, expected, "{status:?}");
        assert_eq!(traffic.forwarded, expected, "{status:?}");
    }
    assert_eq!(status.flows, CLIENTS);
    assert_eq!(
        status.sockets,
        CLIENTS + 2,
        "one for each port, and the service's"
    );
}

/// Each client sends three datagrams, and waits for what comes back.
fn exchange(to: SocketAddr) {
    let any = match to {
        SocketAddr::V4(_) => "0.0.0.0:0",
        SocketAddr::V6(_) => "[::]:0",
    };
    let clients: Vec<UdpSocket> = (0..CLIENTS)
        .map(|_| UdpSocket::bind(any).unwrap())
        .collect();
    let ports: BTreeSet<u16> = clients
        .iter()
        .map(|client| client.local_addr().unwrap().port())
        .collect();
    assert_eq!(ports.len(), CLIENTS);
    for round in 0..3 {
        for (number, client) in (0..).zip(&clients) {
            client.send_to(&[0x40, number, round], to).unwrap();
        }
        for (number, client) in (0..).zip(&clients) {
            client.set_read_timeout(Some(PATIENCE)).unwrap();
            let mut buffer = [0; 10];
            let (len, from) = client.recv_from(&mut buffer).unwrap();
            assert_eq!((&buffer[..len], from), (&[0x40, number, round][..], to));
        }
    }
}

#[test]
fn transparent_shards_answer_every_client() {
    let worlds = [World::transparent(), World::transparent_v6()];
    for world in worlds.iter().flatten() {
        every_client_is_answered(world, true);
    }
}

/// As where the kernel does not steer: the shards hand the datagrams over.
#[test]
fn transparent_shards_answer_every_client_without_steering() {
    let worlds = [World::transparent(), World::transparent_v6()];
    for world in worlds.iter().flatten() {
        every_client_is_answered(world, false);
    }
}

/// Every ICMP error about what the balancer has sent, from the side of the servers in the name of the
/// server, and from the side of the clients: the flow goes on with the client's address.
fn icmp_errors_change_nothing(world: &World) {
    let bind = |address: SocketAddr| {
        let socket = UdpSocket::bind(address).unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        socket
    };
    let at = |ip: &str| SocketAddr::new(ip.parse().unwrap(), 0);
    let server = world.run_servers(|| bind(at(world.server_ip())));
    let client = world.run_clients(|| bind(at(world.seen_client())));
    let (server_at, client_at) = (server.local_addr().unwrap(), client.local_addr().unwrap());
    let balancer = world.run_balancer(|| {
        let mut settings = Settings::new(SocketAddr::new(world.service_ip(), 0));
        settings.keep_client_addresses();
        settings.health = None;
        settings.backends = vec![BackendSettings {
            name: "server".to_owned(),
            address: server_at,
            weight: 1,
            state: BackendState::Active,
            server_ids: Vec::new(),
        }];
        Balancer::start(&settings).unwrap()
    });
    let service = balancer.local_addr();
    let exchange = |server: &UdpSocket| {
        let mut buffer = [0; 100];
        client.send_to(b"\x40 ping", service).unwrap();
        let (len, from) = server.recv_from(&mut buffer).unwrap();
        assert_eq!((&buffer[..len], from), (&b"\x40 ping"[..], client_at));
        server.send_to(b"\x40 pong", from).unwrap();
        let (len, from) = client.recv_from(&mut buffer).unwrap();
        assert_eq!((&buffer[..len], from), (&b"\x40 pong"[..], service));
    };
    exchange(&server);
    let forged = world.run_servers(|| Forger::new(client_at, server_at).unwrap());
    let also_forged = world.run_clients(|| Forger::new(service, client_at).unwrap());
    for message in IcmpMessage::all(service.ip()) {
        for forger in [&forged, &also_forged] {
            forger.send(message, &[0x40; 64]).unwrap();
            exchange(&server);
        }
    }
    // A real one, of a port that is closed for a moment.
    drop(server);
    for _ in 0..3 {
        client.send_to(b"\x40 ping", service).unwrap();
    }
    balancer_has_sent(&balancer, 2 * forged_count(service) + 1 + 3);
    exchange(&world.run_servers(|| bind(server_at)));
    assert!(balancer.is_running());
    let status = balancer.stop().unwrap();
    for traffic in [status.up, status.down] {
        assert!(traffic.is_conserved(), "{status:?}");
        assert_eq!(traffic.dropped(), 0, "{status:?}");
    }
    assert_eq!((status.flows, status.sockets), (1, 2), "{status:?}");
}

fn forged_count(service: SocketAddr) -> u64 {
    IcmpMessage::all(service.ip()).len() as u64
}

/// Waits until so many datagrams have been forwarded to servers.
fn balancer_has_sent(balancer: &Balancer, count: u64) {
    let begin = std::time::Instant::now();
    while balancer.status().up.forwarded < count {
        assert!(begin.elapsed() < PATIENCE, "{:?}", balancer.status());
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn icmp_errors_change_nothing_for_transparent_clients() {
    let worlds = [World::transparent(), World::transparent_v6()];
    for world in worlds.iter().flatten() {
        icmp_errors_change_nothing(world);
    }
}
