//! The kernel's idea of a shard against ours.

#![expect(clippy::unwrap_used, reason = "the helpers of tests fail as tests do")]

use std::io;
use std::net::SocketAddr;

use clearway_udp::steering::{shard_of, shard_of_port, steer_by_port};
use clearway_udp::{Options, RecvBatch, Socket, SteeringKey, Transmit, bind_shards};

const KEY: SteeringKey = SteeringKey {
    k0: 0x6a09_e667,
    k1: 0xbb67_ae85,
};

fn group(shards: usize, addr: &str) -> Option<Vec<Socket>> {
    let options = Options {
        gro: false,
        recv_buffer: 1 << 20,
        ..Options::default()
    };
    let sockets = bind_shards(addr.parse().unwrap(), shards, &options, KEY, 8).ok()?;
    assert_eq!(sockets.len(), shards);
    sockets[0].report().steered.then_some(sockets)
}

/// xorshift64: any bytes will do.
fn random(state: &mut u64) -> u64 {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    *state
}

fn check(sockets: &[Socket], sender: &Socket, to: SocketAddr, datagrams: &[Vec<u8>]) {
    for datagram in datagrams {
        sender.send(&mut Transmit::new(to, datagram)).unwrap();
    }
    let mut came = 0;
    for (shard, socket) in sockets.iter().enumerate() {
        let mut batch = RecvBatch::for_socket(socket, 32);
        while socket.recv(&mut batch).is_ok() {
            came += batch.len();
            for (_, datagram) in batch.datagrams() {
                let ours = shard_of(datagram, KEY, sockets.len());
                assert_eq!(ours, shard, "{datagram:02x?} of {} shards", sockets.len());
            }
        }
    }
    assert_eq!(came, datagrams.len());
}

fn datagrams() -> Vec<Vec<u8>> {
    let mut state = 0x0123_4567_89ab_cdef;
    let mut all = Vec::new();
    for n in 0..200u64 {
        let cid = random(&mut state).to_be_bytes();
        let tail = [n as u8; 20];
        // Every pattern of flags a first byte can have, long and short.
        let first = random(&mut state) as u8;
        all.push([&[first | 0x80][..], &[0, 0, 0, 1, 8], &cid, &tail].concat());
        all.push([&[first & 0x7f][..], &cid, &tail].concat());
    }
    // All lengths around the end of the ID, both forms, down to nothing.
    for first in [0xc0, 0x40] {
        all.extend((0..=16).map(|len| [&[first][..], &[0xa5; 16][..len]].concat()));
    }
    all.push(Vec::new());
    all
}

#[test]
fn kernel_steering_matches_the_userspace_rule() {
    for (addr, client) in [
        ("127.0.0.1:0", "127.0.0.1:0"),
        ("[::1]:0", "[::1]:0"),
        ("[::]:0", "127.0.0.1:0"),
    ] {
        for shards in [2, 3, 5] {
            let Some(sockets) = group(shards, addr) else {
                continue;
            };
            let sender = Socket::bind(client.parse().unwrap(), &Options::default()).unwrap();
            let port = sockets[0].local_addr().unwrap().port();
            let to = SocketAddr::new(sender.local_addr().unwrap().ip(), port);
            check(&sockets, &sender, to, &datagrams());
            assert!(
                sockets
                    .iter()
                    .all(|socket| socket.counters().received_datagrams > 50)
            );
        }
    }
}

#[cfg(target_os = "linux")]
#[test]
fn kernel_supports_steering() {
    assert!(group(3, "127.0.0.1:0").is_some());
}

#[test]
fn single_shard_has_one_socket_and_groups_do_not_share_ports() {
    let options = Options::default();
    for shards in [1, 3] {
        let sockets =
            bind_shards("127.0.0.1:0".parse().unwrap(), shards, &options, KEY, 20).unwrap();
        let addr = sockets[0].local_addr().unwrap();
        assert!(
            sockets
                .iter()
                .all(|socket| socket.local_addr().unwrap() == addr)
        );
        assert_eq!(
            sockets[0].report().steered,
            shards > 1 && cfg!(target_os = "linux")
        );
        let error = bind_shards(addr, 2, &options, KEY, 20).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::AddrInUse);
    }
}

/// Connections of the measurement below, and their datagrams before and after they migrate.
const MIGRATIONS: usize = 1_000;
const EACH: usize = 5;

/// Returns the shard that each connection's datagrams arrived at, before and after its client has
/// moved to another address.
fn migrate(sockets: &[Socket]) -> Vec<(Vec<usize>, Vec<usize>)> {
    let to = sockets[0].local_addr().unwrap();
    let mut state = 0x0123_4567_89ab_cdef;
    let any = "127.0.0.1:0".parse().unwrap();
    let mut arrivals = vec![(Vec::new(), Vec::new()); MIGRATIONS];
    for (connection, (before, after)) in arrivals.iter_mut().enumerate() {
        let cid = random(&mut state).to_be_bytes();
        let datagram = [&[0x40][..], &cid, &connection.to_be_bytes()].concat();
        for arrived in [before, after] {
            // Each address is a port of its own.
            let client = Socket::bind(any, &Options::default()).unwrap();
            for _ in 0..EACH {
                client.send(&mut Transmit::new(to, &datagram)).unwrap();
            }
            for (shard, socket) in sockets.iter().enumerate() {
                let mut batch = RecvBatch::for_socket(socket, 32);
                while socket.recv(&mut batch).is_ok() {
                    arrived.extend(batch.messages().map(|_| shard));
                }
            }
            assert_eq!(arrived.len(), EACH);
        }
    }
    arrivals
}

/// Returns how many datagrams after a migration arrived at another shard than those before.
fn strays(sockets: &[Socket]) -> usize {
    let strays = migrate(sockets).into_iter().map(|(before, after)| {
        let owner = before[0];
        assert!(before.iter().all(|shard| *shard == owner));
        after.iter().filter(|shard| **shard != owner).count()
    });
    strays.sum()
}

#[cfg(target_os = "linux")]
#[test]
fn steering_by_connection_id_follows_migrations_and_plain_reuseport_does_not() {
    const SHARDS: usize = 4;
    let steered = strays(&group(SHARDS, "127.0.0.1:0").unwrap());
    let options = Options {
        reuse_port: true,
        gro: false,
        ..Options::default()
    };
    let mut plain = vec![Socket::bind("127.0.0.1:0".parse().unwrap(), &options).unwrap()];
    let to = plain[0].local_addr().unwrap();
    plain.extend((1..SHARDS).map(|_| Socket::bind(to, &options).unwrap()));
    let plain = strays(&plain);
    let sent = MIGRATIONS * EACH;
    println!(
        "{MIGRATIONS} migrations, {SHARDS} shards: of {sent} datagrams after them, {plain} arrived \
         at the wrong shard by address, {steered} by connection ID"
    );
    assert_eq!(steered, 0);
    // Three of four by chance, with a deviation of 70 datagrams.
    assert!((3_200..=4_300).contains(&plain), "{plain}");
}

#[cfg(target_os = "linux")]
#[test]
fn kernel_steers_by_remote_port() {
    for (addr, client) in [
        ("127.0.0.1:0", "127.0.0.1:0"),
        ("[::1]:0", "[::1]:0"),
        ("[::]:0", "127.0.0.1:0"),
        ("[::]:0", "[::1]:0"),
    ] {
        for shards in [2, 3] {
            let options = Options {
                reuse_port: true,
                ..Options::default()
            };
            let mut sockets = vec![Socket::bind(addr.parse().unwrap(), &options).unwrap()];
            let local = sockets[0].local_addr().unwrap();
            sockets.extend((1..shards).map(|_| Socket::bind(local, &options).unwrap()));
            steer_by_port(&sockets).unwrap();
            let bind = |_| Socket::bind(client.parse().unwrap(), &Options::default()).unwrap();
            let senders: Vec<_> = (0..40).map(bind).collect();
            for sender in &senders {
                let to = SocketAddr::new(sender.local_addr().unwrap().ip(), local.port());
                sender.send(&mut Transmit::new(to, b"datagram")).unwrap();
                // A train is steered as a whole.
                let mut train = Transmit::new(to, &[0x40; 300]);
                train.segment_size = Some(100);
                sender.send(&mut train).unwrap();
            }
            let mut came = 0;
            for (shard, socket) in sockets.iter().enumerate() {
                let mut batch = RecvBatch::for_socket(socket, 32);
                while socket.recv(&mut batch).is_ok() {
                    for (meta, _) in batch.datagrams() {
                        came += 1;
                        assert_eq!(shard_of_port(meta.remote.port(), shards), shard, "{addr}");
                    }
                }
            }
            assert_eq!(came, 4 * senders.len());
        }
    }
}
