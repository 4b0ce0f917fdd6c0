use core::net::SocketAddr;
use core::time::Duration;
use std::collections::BTreeSet;
use std::io::ErrorKind;
use std::net::UdpSocket;

use clearway_links::{LinkConfig, Probability, Window};

use super::{Config, Relay, RelayStats};

/// Long enough for a datagram over loopback on a busy machine; only a failing
/// test waits for it.
const PATIENCE: Duration = Duration::from_secs(20);

fn socket() -> UdpSocket {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    socket
}

fn config(server: &UdpSocket) -> Config {
    Config::new("127.0.0.1:0".parse().unwrap(), server.local_addr().unwrap())
}

fn receive(socket: &UdpSocket) -> (Vec<u8>, SocketAddr) {
    let mut buffer = [0; 2048];
    loop {
        match socket.recv_from(&mut buffer) {
            // Any signal does this to a socket with a timeout (signal(7)).
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            arrived => {
                let (len, from) = arrived.expect("a datagram arrives");
                return (buffer[..len].to_vec(), from);
            }
        }
    }
}

/// One datagram there and one back.
fn ask(client: &UdpSocket, relay: &Relay, server: &UdpSocket, text: &[u8]) -> SocketAddr {
    client.send_to(text, relay.local_addr()).unwrap();
    let (arrived, from) = receive(server);
    assert_eq!(arrived, text);
    server.send_to(&arrived, from).unwrap();
    assert_eq!(receive(client), (arrived, relay.local_addr()));
    from
}

/// Asks for the totals until they are as wanted.
fn eventually(relay: &mut Relay, wanted: impl Fn(&RelayStats) -> bool) -> RelayStats {
    loop {
        let stats = relay.stats().unwrap();
        if wanted(&stats) {
            return stats;
        }
        std::thread::yield_now();
    }
}

#[test]
fn each_client_keeps_its_own_upstream_port() {
    let (server, one, two) = (socket(), socket(), socket());
    let mut relay = Relay::start(config(&server)).unwrap();
    let port_one = ask(&one, &relay, &server, b"one");
    let port_two = ask(&two, &relay, &server, b"two");
    assert_ne!(port_one, port_two);
    assert_eq!(ask(&one, &relay, &server, b"again"), port_one);
    let live = relay.stats().unwrap();
    assert_eq!((live.flows, live.live_flows), (2, 2));
    let stats = relay.stop().unwrap();
    assert_eq!((stats.up.delivered, stats.down.delivered), (3, 3));
    assert_eq!(stats.own_losses.total(), 0);
}

#[test]
fn rebind_changes_the_port_and_drops_replies_to_the_old_one() {
    let (server, client) = (socket(), socket());
    let config = Config {
        rebind: vec![Duration::from_millis(1)],
        ..config(&server)
    };
    let mut relay = Relay::start(config).unwrap();
    client.send_to(b"first", relay.local_addr()).unwrap();
    let (_, old) = receive(&server);
    eventually(&mut relay, |stats| stats.rebinds == 1);
    let new = ask(&client, &relay, &server, b"second");
    assert_ne!(old, new);
    server.send_to(b"too late", old).unwrap();
    let stats = eventually(&mut relay, |stats| stats.stale == 1);
    assert_eq!(stats.down.sent, 1);
}

#[test]
fn loss_windows_start_at_each_clients_first_datagram() {
    let (server, one, two) = (socket(), socket(), socket());
    let hour = Window::new(Duration::ZERO, Duration::from_secs(3600));
    let config = Config {
        down: LinkConfig {
            loss: clearway_links::LossWindows::during(Probability::ALWAYS, hour),
            ..config(&server).down
        },
        ..config(&server)
    };
    let mut relay = Relay::start(config).unwrap();
    for (client, lost) in [(&one, 1), (&two, 2)] {
        client.send_to(b"hello", relay.local_addr()).unwrap();
        let (_, from) = receive(&server);
        server.send_to(b"lost", from).unwrap();
        eventually(&mut relay, |stats| stats.down.dropped_loss == lost);
    }
}

#[test]
fn clients_beyond_the_limit_are_rejected_and_counted() {
    let (server, one, two) = (socket(), socket(), socket());
    let config = Config {
        max_flows: 1,
        ..config(&server)
    };
    let mut relay = Relay::start(config).unwrap();
    ask(&one, &relay, &server, b"one");
    two.send_to(b"two", relay.local_addr()).unwrap();
    eventually(&mut relay, |stats| stats.own_losses.refused == 1);
    ask(&one, &relay, &server, b"still");
}

#[test]
fn idle_clients_are_removed_and_their_counters_kept() {
    let (server, client) = (socket(), socket());
    let config = Config {
        idle: Duration::from_millis(1),
        max_flows: 1,
        ..config(&server)
    };
    let mut relay = Relay::start(config).unwrap();
    client.send_to(b"one", relay.local_addr()).unwrap();
    receive(&server);
    eventually(&mut relay, |stats| stats.live_flows == 0);
    socket().send_to(b"two", relay.local_addr()).unwrap();
    receive(&server);
    let stats = relay.stop().unwrap();
    assert_eq!((stats.flows, stats.up.delivered), (2, 2));
}

#[test]
fn datagrams_not_from_the_server_are_dropped() {
    let (server, client, stranger) = (socket(), socket(), socket());
    let mut relay = Relay::start(config(&server)).unwrap();
    let port = ask(&client, &relay, &server, b"hello").port();
    stranger
        .send_to(b"psst", SocketAddr::from(([127, 0, 0, 1], port)))
        .unwrap();
    let stats = eventually(&mut relay, |stats| stats.strays == 1);
    assert_eq!(stats.down.sent, 1);
}

#[test]
fn ecn_is_forwarded_and_queue_marks_ce() {
    use clearway_udp::{Ecn, Options, RecvBatch, Socket, Transmit};
    let any = "127.0.0.1:0".parse().unwrap();
    let client = Socket::bind(any, &Options::default()).unwrap();
    let server = Socket::bind(any, &Options::default()).unwrap();
    let mut config = Config::new(any, server.local_addr().unwrap());
    // A datagram takes 8 ms, so all but the first find one waiting.
    config.up.apply("rate=1M mark=1p").unwrap();
    let relay = Relay::start(config).unwrap();
    let data = [7; 972];
    for _ in 0..4 {
        let mut transmit = Transmit::new(relay.local_addr(), &data);
        transmit.ecn = Some(Ecn::Ect0);
        client.send(&mut transmit).unwrap();
    }
    let mut seen = Vec::new();
    let mut batch = RecvBatch::for_socket(&server, 8);
    while seen.len() < 4 {
        if server.recv(&mut batch).is_ok() {
            seen.extend(batch.datagrams().map(|(meta, _)| meta.ecn));
        }
        std::thread::yield_now();
    }
    let marked = seen.iter().filter(|&&ecn| ecn == Some(Ecn::Ce)).count();
    assert_eq!(seen[0], Some(Ecn::Ect0));
    let stats = relay.stop().unwrap();
    assert_eq!(marked as u64, stats.up.ce_marked);
    assert!(seen.iter().all(Option::is_some));
}

#[test]
fn same_seed_loses_the_same_datagrams() {
    let survivors = |seed| {
        let (server, client) = (socket(), socket());
        let mut config = Config {
            seed,
            ..config(&server)
        };
        config.up.apply("loss=50%").unwrap();
        let mut relay = Relay::start(config).unwrap();
        for number in 0..64u8 {
            client.send_to(&[number], relay.local_addr()).unwrap();
        }
        let stats = eventually(&mut relay, |stats| {
            stats.up.delivered + stats.up.dropped_loss == 64
        });
        (0..stats.up.delivered)
            .map(|_| receive(&server).0[0])
            .collect::<BTreeSet<_>>()
    };
    assert_eq!(survivors(1), survivors(1));
    assert_ne!(survivors(1), survivors(2));
}
