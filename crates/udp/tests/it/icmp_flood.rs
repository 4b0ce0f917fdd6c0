//! Floods of forged ICMP errors: no datagram is lost to them, no socket breaks, nothing is
//! switched off.
#![cfg(target_os = "linux")]
#![expect(clippy::unwrap_used, reason = "the helpers of tests fail as tests do")]

use std::net::SocketAddr;

use clearway_udp::testing::{Forger, IcmpMessage};
use clearway_udp::{Options, RecvBatch, RecvError, Socket, Transmit};

use crate::icmp::{elsewhere, forger};

/// Bytes of one train: four datagrams.
const TRAIN: usize = 4 * 1_200;

fn bind(addr: &str) -> Option<Socket> {
    Socket::bind(addr.parse().unwrap(), &Options::default()).ok()
}

/// Two sockets, and a forger whose errors are about what `a` sends to a third party.
fn world(addr: &str) -> Option<(Socket, Socket, Forger)> {
    let (a, b) = (bind(addr)?, bind(addr)?);
    let local = a.local_addr().unwrap();
    let forger = forger(local, elsewhere(local))?;
    Some((a, b, forger))
}

fn send_train(from: &Socket, to: SocketAddr) {
    let train = [7; TRAIN];
    let mut transmit = Transmit::new(to, &train);
    transmit.segment_size = Some(1_200);
    from.send(&mut transmit)
        .unwrap_or_else(|error| panic!("a forged ICMP error failed a send: {error:?}"));
    assert!(transmit.contents.is_empty());
}

/// Payload bytes that wait on `socket`.
fn receive(socket: &Socket, batch: &mut RecvBatch) -> usize {
    let mut bytes = 0;
    loop {
        match socket.recv(batch) {
            Ok(_) => bytes += batch.datagrams().map(|(_, d)| d.len()).sum::<usize>(),
            Err(RecvError::WouldBlock) => return bytes,
            Err(error) => panic!("a forged ICMP error failed a receive: {error:?}"),
        }
    }
}

#[test]
fn repeated_icmp_errors_fail_neither_send_nor_receive() {
    for addr in ["127.0.0.1:0", "[::1]:0"] {
        let Some((a, b, forger)) = world(addr) else {
            continue;
        };
        let gso = a.gso_segments();
        let mut batch = RecvBatch::for_socket(&b, 32);
        for kind in IcmpMessage::all(a.local_addr().unwrap().ip()) {
            for _ in 0..3 {
                forger.send(kind, b"quoted").unwrap();
            }
            send_train(&a, b.local_addr().unwrap());
            forger.send(kind, b"quoted").unwrap();
            assert_eq!(receive(&b, &mut batch), TRAIN, "{kind:?}");
            send_train(&b, a.local_addr().unwrap());
            forger.send(kind, b"quoted").unwrap();
            assert_eq!(receive(&a, &mut batch), TRAIN, "{kind:?}");
            while a.poll_errors().unwrap().is_some() {}
        }
        assert_eq!(a.gso_segments(), gso, "segmentation offload stays on");
        assert_eq!(a.counters().gso_refusals, 0);
    }
}

#[test]
fn forged_path_mtu_does_not_reduce_datagram_size() {
    // An address of its own: the host believes the lie, and its other sockets with it.
    let (Some(a), Some(b)) = (bind("127.0.0.1:0"), bind("127.9.9.7:0")) else {
        return;
    };
    let (local, remote) = (a.local_addr().unwrap(), b.local_addr().unwrap());
    let Some(forger) = forger(local, remote) else {
        return;
    };
    let gso = a.gso_segments();
    let too_big = IcmpMessage {
        kind: 3,
        code: 4,
        word: 600,
    };
    let mut batch = RecvBatch::for_socket(&b, 32);
    for _ in 0..3 {
        for _ in 0..5 {
            forger.send(too_big, b"quoted").unwrap();
        }
        send_train(&a, remote);
        a.send(&mut Transmit::new(remote, &[1; 8_000])).unwrap();
        assert_eq!(receive(&b, &mut batch), TRAIN + 8_000);
    }
    assert_eq!((a.gso_segments(), a.counters().gso_refusals), (gso, 0));
}

#[test]
fn flood_of_icmp_errors_with_rare_errnos_does_not_break_the_socket() {
    // ENOPROTOOPT, EMSGSIZE, EOPNOTSUPP, EHOSTDOWN, ENONET, EPROTO: those that no route or
    // filter of this host gives rise to.
    for (kind, code, word) in [
        (3, 2, 0),
        (3, 4, 1_280),
        (3, 5, 0),
        (3, 7, 0),
        (3, 8, 0),
        (12, 0, 0),
    ] {
        let message = IcmpMessage { kind, code, word };
        let Some((a, b, forger)) = world("127.0.0.1:0") else {
            return;
        };
        let gso = a.gso_segments();
        let mut batch = RecvBatch::for_socket(&b, 32);
        let flood = forger.flood(vec![message]);
        while flood.sent() < 100 {
            std::thread::yield_now();
        }
        for _ in 0..5_000 {
            send_train(&a, b.local_addr().unwrap());
            assert_eq!(receive(&b, &mut batch), TRAIN, "{message:?}");
        }
        assert_eq!(a.gso_segments(), gso, "segmentation offload stays on");
        assert_eq!(a.counters().gso_refusals, 0);
    }
}

#[test]
fn flood_of_icmp_errors_loses_no_datagram_and_keeps_offload() {
    for addr in ["127.0.0.1:0", "[::1]:0"] {
        let Some((a, b, forger)) = world(addr) else {
            continue;
        };
        let gso = a.gso_segments();
        let mut batch = RecvBatch::for_socket(&b, 32);
        let flood = forger.flood(IcmpMessage::all(a.local_addr().unwrap().ip()));
        while flood.sent() < 1_000 {
            std::thread::yield_now();
        }
        for _ in 0..20_000 {
            send_train(&a, b.local_addr().unwrap());
            assert_eq!(receive(&b, &mut batch), TRAIN);
            send_train(&b, a.local_addr().unwrap());
            assert_eq!(receive(&a, &mut batch), TRAIN);
            while a.poll_errors().unwrap().is_some() {}
        }
        assert!(a.counters().icmp_errors > 0, "the flood reached the socket");
        assert_eq!(a.gso_segments(), gso, "segmentation offload stays on");
        assert_eq!(a.counters().gso_refusals, 0);
    }
}
