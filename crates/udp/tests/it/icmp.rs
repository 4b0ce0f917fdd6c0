//! ICMP, real and forged, against sockets on loopback.
#![cfg(target_os = "linux")]
#![expect(clippy::unwrap_used, reason = "the helpers of tests fail as tests do")]

use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::thread::sleep;
use std::time::Duration;

use clearway_udp::{IcmpError, IcmpKind, IcmpSource, Options, RecvBatch, Socket, Transmit};
use socket2::{Domain, Protocol, Type};

fn bind(addr: &str) -> Option<Socket> {
    Socket::bind(addr.parse().unwrap(), &Options::default()).ok()
}

fn closed_port(addr: &str) -> SocketAddr {
    UdpSocket::bind(addr).unwrap().local_addr().unwrap()
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
fn a_closed_port_is_reported_and_does_not_end_the_socket() {
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
fn a_mapped_remote_is_reported_as_ipv4() {
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

/// The Internet checksum (RFC 1071 §1).
fn checksum(bytes: &[u8]) -> [u8; 2] {
    let mut sum: u32 = bytes
        .chunks(2)
        .map(|pair| u32::from(pair[0]) << 8 | pair.get(1).copied().map_or(0, u32::from))
        .sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    (!(sum as u16)).to_be_bytes()
}

/// "Fragmentation needed" (RFC 1191 §4) about a datagram from `local` to `remote`.
fn too_big(local: SocketAddr, remote: SocketAddr, mtu: u16, payload: &[u8]) -> Vec<u8> {
    let mut icmp = vec![3, 4, 0, 0, 0, 0];
    icmp.extend(mtu.to_be_bytes());
    let mut ip = vec![
        0x45,
        0,
        0,
        (28 + payload.len()) as u8,
        0,
        0,
        0x40,
        0,
        64,
        17,
        0,
        0,
    ];
    for addr in [local, remote] {
        let SocketAddr::V4(v4) = addr else {
            panic!("IPv4 only")
        };
        ip.extend(v4.ip().octets());
    }
    let sum = checksum(&ip);
    ip[10..12].copy_from_slice(&sum);
    icmp.extend(ip);
    icmp.extend(local.port().to_be_bytes());
    icmp.extend(remote.port().to_be_bytes());
    icmp.extend([0, (8 + payload.len()) as u8, 0, 0]);
    icmp.extend(payload);
    let sum = checksum(&icmp);
    icmp[2..4].copy_from_slice(&sum);
    icmp
}

#[test]
fn too_big_comes_with_its_mtu_and_fails_no_other_send() {
    // Forging ICMP takes a privilege the tests may not have.
    let Ok(raw) = socket2::Socket::new(Domain::IPV4, Type::RAW, Some(Protocol::ICMPV4)) else {
        return;
    };
    let (a, b) = (bind("127.0.0.1:0").unwrap(), bind("127.0.0.1:0").unwrap());
    let (local, remote) = (a.local_addr().unwrap(), b.local_addr().unwrap());
    let gso = a.gso_segments();
    let elsewhere: SocketAddr = (Ipv4Addr::LOCALHOST, 9).into();
    let message = too_big(local, elsewhere, 1280, b"quoted payload");
    for _ in 0..3 {
        raw.send_to(&message, &SocketAddr::from((Ipv4Addr::LOCALHOST, 0)).into())
            .unwrap();
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
