//! ICMP, real and forged, against sockets on loopback.
#![cfg(target_os = "linux")]
#![expect(clippy::unwrap_used, reason = "the helpers of tests fail as tests do")]

use std::net::{SocketAddr, UdpSocket};
use std::thread::sleep;
use std::time::Duration;

use clearway_udp::testing::{Forger, IcmpMessage};
use clearway_udp::{IcmpError, IcmpKind, IcmpSource, Options, RecvBatch, Socket, Transmit};

fn bind(addr: &str) -> Option<Socket> {
    Socket::bind(addr.parse().unwrap(), &Options::default()).ok()
}

fn closed_port(addr: &str) -> SocketAddr {
    UdpSocket::bind(addr).unwrap().local_addr().unwrap()
}

/// A third party to tell lies about. The host remembers a path MTU for each address it hears of,
/// for ten minutes and for everybody: so not one that others use.
pub(crate) fn elsewhere(local: SocketAddr) -> SocketAddr {
    if local.is_ipv4() {
        SocketAddr::from(([127, 9, 9, 9], 9))
    } else {
        "[2001:db8::9]:9".parse().unwrap()
    }
}

/// `None`, with a word on stderr, where the tests may not open raw sockets.
pub(crate) fn forger(local: SocketAddr, remote: SocketAddr) -> Option<Forger> {
    match Forger::new(local, remote) {
        Ok(forger) => Some(forger),
        Err(error) => {
            eprintln!("skipped: forging ICMP needs a raw socket (CAP_NET_RAW): {error}");
            None
        }
    }
}

/// Lets the socket meet what waits on it, then drains its error queue.
fn errors(socket: &Socket, count: usize) -> Vec<IcmpError> {
    let mut all = Vec::new();
    for _ in 0..5000 {
        socket.recv(&mut RecvBatch::for_socket(socket, 1)).ok();
        while let Some(error) = socket.poll_errors().unwrap() {
            all.push(error);
        }
        if all.len() >= count {
            return all;
        }
        sleep(Duration::from_millis(1));
    }
    panic!("{} of {count} errors came", all.len());
}

#[test]
fn closed_port_is_reported_and_does_not_break_the_socket() {
    for addr in ["127.0.0.1:0", "[::1]:0"] {
        let (Some(a), Some(b)) = (bind(addr), bind(addr)) else {
            continue;
        };
        let closed = closed_port(addr);
        // The second send meets the first one's error and must go out all the same.
        a.send(&mut Transmit::new(closed, b"anybody")).unwrap();
        a.send(&mut Transmit::new(b.local_addr().unwrap(), b"home"))
            .unwrap();
        let mut batch = RecvBatch::for_socket(&b, 4);
        assert_eq!(b.recv(&mut batch).unwrap(), 1);

        let [error] = errors(&a, 1)[..] else {
            panic!("one error for one datagram")
        };
        assert_eq!(error.remote, closed);
        assert_eq!(error.kind, IcmpKind::PortUnreachable);
        assert_eq!(error.source, IcmpSource::Network);
        assert_eq!(error.reporter, Some(closed.ip()));
        assert_eq!(error.quoted(), b"anybody");
        assert!(a.counters().icmp_errors >= 1);

        // Nor may an error stand before what was received.
        a.send(&mut Transmit::new(closed, b"again")).unwrap();
        b.send(&mut Transmit::new(a.local_addr().unwrap(), b"here"))
            .unwrap();
        let mut batch = RecvBatch::for_socket(&a, 4);
        assert_eq!(a.recv(&mut batch).unwrap(), 1);
    }
}

#[test]
fn ipv4_mapped_remote_is_reported_as_ipv4() {
    let Some(a) = bind("[::]:0") else { return };
    let closed = closed_port("127.0.0.1:0");
    a.send(&mut Transmit::new(closed, b"x")).unwrap();
    assert_eq!(errors(&a, 1)[0].remote, closed);
    assert_eq!(errors_kind(&a, closed), IcmpKind::PortUnreachable);
}

fn errors_kind(socket: &Socket, closed: SocketAddr) -> IcmpKind {
    socket.send(&mut Transmit::new(closed, b"x")).unwrap();
    errors(socket, 1)[0].kind
}

#[test]
fn packet_too_big_reports_mtu_and_fails_no_other_send() {
    let (a, b) = (bind("127.0.0.1:0").unwrap(), bind("127.0.0.1:0").unwrap());
    let (local, remote) = (a.local_addr().unwrap(), b.local_addr().unwrap());
    let gso = a.gso_segments();
    let elsewhere = elsewhere(local);
    let Some(forger) = forger(local, elsewhere) else {
        return;
    };
    let message = IcmpMessage {
        kind: 3,
        code: 4,
        word: 1_280,
    };
    for _ in 0..3 {
        forger.send(message, b"quoted payload").unwrap();
        // The train meets EMSGSIZE for another's sake: it must go, whole, and as a train.
        let train = [1; 5000];
        let mut transmit = Transmit::new(remote, &train);
        transmit.segment_size = Some(1452);
        a.send(&mut transmit).unwrap();
        assert_eq!(a.gso_segments(), gso);
    }
    let errors = errors(&a, 3);
    assert_eq!(errors.len(), 3);
    for error in errors {
        assert_eq!(error.kind, IcmpKind::TooBig { mtu: 1280 });
        assert_eq!(
            (error.remote, error.source),
            (elsewhere, IcmpSource::Network)
        );
        assert_eq!(error.quoted(), b"quoted payload");
    }
    let mut batch = RecvBatch::for_socket(&b, 32);
    let mut bytes = 0;
    while b.recv(&mut batch).is_ok() {
        bytes += batch
            .datagrams()
            .map(|(_, datagram)| datagram.len())
            .sum::<usize>();
    }
    assert_eq!(bytes, 3 * 5000);
    assert_eq!(a.counters().gso_refusals, 0);
}
