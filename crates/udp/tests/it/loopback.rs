//! Sockets against each other on loopback.

#![expect(clippy::unwrap_used, reason = "the helpers of tests fail as tests do")]

use std::io;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::thread::sleep;
use std::time::Duration;

use clearway_udp::{
    DropKind, Ecn, Meta, Options, RecvBatch, RecvError, SendError, Socket, Transmit,
};

const V4: &str = "127.0.0.1:0";
const V6: &str = "[::1]:0";

/// `None` where the host has no such address.
fn bind(addr: &str, options: &Options) -> Option<Socket> {
    match Socket::bind(addr.parse().unwrap(), options) {
        Ok(socket) => Some(socket),
        Err(error) if error.kind() == io::ErrorKind::AddrNotAvailable => None,
        Err(error) if addr.starts_with('[') && error.kind() == io::ErrorKind::Unsupported => None,
        Err(error) => panic!("{addr}: {error}"),
    }
}

fn pair(addr: &str, options: &Options) -> Option<(Socket, Socket)> {
    Some((bind(addr, options)?, bind(addr, options)?))
}

fn v4() -> (Socket, Socket) {
    pair(V4, &Options::default()).expect("127.0.0.1")
}

/// Every datagram until `count` have come.
fn collect(socket: &Socket, count: usize) -> Vec<(Meta, Vec<u8>)> {
    let mut batch = RecvBatch::for_socket(socket, 8);
    let mut all = Vec::new();
    for _ in 0..5000 {
        match socket.recv(&mut batch) {
            Ok(_) => all.extend(
                batch
                    .datagrams()
                    .map(|(meta, bytes)| (*meta, bytes.to_vec())),
            ),
            Err(RecvError::WouldBlock) => {
                if all.len() >= count {
                    return all;
                }
                sleep(Duration::from_millis(1));
            }
            Err(error) => panic!("{error}"),
        }
    }
    panic!("{} of {count} datagrams came", all.len());
}

fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|i| (i * 31 / 7) as u8).collect()
}

#[test]
fn trains_keep_their_boundaries_with_and_without_offload() {
    for (gso, gro) in [(true, true), (true, false), (false, true), (false, false)] {
        let options = Options {
            gso,
            gro,
            ..Options::default()
        };
        for (a, b) in [V4, V6].iter().filter_map(|addr| pair(addr, &options)) {
            // 45 full segments, then one train that ends short, then more than a message holds.
            for len in [45 * 1452, 3 * 1452 + 17, 100 * 1452] {
                let train = pattern(len);
                let mut transmit = Transmit::new(b.local_addr().unwrap(), &train);
                transmit.segment_size = Some(1452);
                a.send(&mut transmit).unwrap();
                assert!(transmit.contents.is_empty());
                let got: Vec<_> = collect(&b, len.div_ceil(1452))
                    .into_iter()
                    .map(|(_, bytes)| bytes)
                    .collect();
                let sent: Vec<_> = train.chunks(1452).map(<[u8]>::to_vec).collect();
                assert_eq!(got, sent, "{len} bytes, gso {gso}, gro {gro}");
            }
            let (sent, got) = (a.counters(), b.counters());
            assert_eq!(sent.sent_datagrams, 45 + 4 + 100);
            assert_eq!(got.received_datagrams, sent.sent_datagrams);
            assert_eq!(got.received_bytes, sent.sent_bytes);
            assert_eq!(sent.gso_refusals, 0);
            if a.report().gso_segments > 1 {
                assert_eq!((sent.send_calls, sent.gso_trains), (5, 5));
                assert_eq!(got.gro_trains > 0, b.report().gro);
            } else {
                assert_eq!(sent.send_calls, sent.sent_datagrams);
            }
        }
    }
}

#[test]
fn many_trains_are_sent_in_few_calls() {
    let (a, b) = v4();
    let remote = b.local_addr().unwrap();
    let bytes = pattern(70 * 100);
    let mut transmits: Vec<_> = bytes
        .chunks(100)
        .map(|c| Transmit::new(remote, c))
        .collect();
    transmits[40].segment_size = Some(30);
    assert_eq!(a.send_many(&mut transmits).unwrap(), 70);
    assert!(
        transmits
            .iter()
            .all(|transmit| transmit.contents.is_empty())
    );
    let got = collect(&b, 73);
    assert_eq!(
        got.iter()
            .map(|(_, d)| d.as_slice())
            .collect::<Vec<_>>()
            .concat(),
        bytes
    );
    assert_eq!(got.len(), 73);
    assert_eq!(a.send_many(&mut []).unwrap(), 0);
    if cfg!(target_os = "linux") {
        assert_eq!(a.counters().send_calls, 3, "32 + 32 + 6");
    }
}

#[test]
fn error_in_the_middle_of_a_batch_is_reported_in_order() {
    let (a, b) = v4();
    let remote = b.local_addr().unwrap();
    let huge = pattern(65_530);
    let mut transmits: Vec<_> = [&b"one"[..], b"two", &huge, b"three"]
        .iter()
        .map(|contents| Transmit::new(remote, contents))
        .collect();
    assert_eq!(a.send_many(&mut transmits).unwrap(), 2);
    assert!(matches!(
        a.send_many(&mut transmits[2..]),
        Err(SendError::TooLarge)
    ));
    assert_eq!(a.send_many(&mut transmits[3..]).unwrap(), 1);
    let got: Vec<_> = collect(&b, 3).into_iter().map(|(_, bytes)| bytes).collect();
    assert_eq!(got, [&b"one"[..], b"two", b"three"]);
}

#[test]
fn empty_datagrams_are_delivered() {
    let (a, b) = v4();
    a.send(&mut Transmit::new(b.local_addr().unwrap(), b""))
        .unwrap();
    a.send(&mut Transmit::new(b.local_addr().unwrap(), b"x"))
        .unwrap();
    assert_eq!(collect(&b, 1).len(), 1);
    assert_eq!(b.counters().received_datagrams, 2);
}

/// Sends each codepoint from `a` to `to` and looks at it on `b`.
fn check_ecn(a: &Socket, b: &Socket, to: SocketAddr) {
    if !(a.report().ecn && b.report().ecn) {
        return;
    }
    for ecn in [None, Some(Ecn::Ect0), Some(Ecn::Ect1), Some(Ecn::Ce)] {
        let mut transmit = Transmit::new(to, b"marked datagrams");
        transmit.ecn = ecn;
        transmit.segment_size = Some(4);
        a.send(&mut transmit).unwrap();
        let got = collect(b, 4);
        assert_eq!(got.len(), 4);
        for (meta, _) in got {
            assert_eq!(meta.ecn, ecn, "to {to}");
        }
    }
}

#[test]
fn ecn_codepoints_arrive_in_both_directions() {
    for (a, b) in [V4, V6]
        .iter()
        .filter_map(|addr| pair(addr, &Options::default()))
    {
        check_ecn(&a, &b, b.local_addr().unwrap());
        check_ecn(&b, &a, a.local_addr().unwrap());
    }
}

#[test]
fn dual_stack_socket_serves_ipv4_and_ipv6() {
    let Some(both) = bind("[::]:0", &Options::default()) else {
        return;
    };
    let port = both.local_addr().unwrap().port();
    for addr in [V4, V6] {
        let Some(single) = bind(addr, &Options::default()) else {
            continue;
        };
        let here = single.local_addr().unwrap();
        check_ecn(&single, &both, SocketAddr::new(here.ip(), port));
        check_ecn(&both, &single, here);

        single
            .send(&mut Transmit::new(
                SocketAddr::new(here.ip(), port),
                b"ping",
            ))
            .unwrap();
        let (meta, _) = collect(&both, 1)[0];
        assert_eq!(meta.remote, here, "no mapped address is shown");
        if both.report().packet_info {
            assert_eq!(meta.local_ip, Some(here.ip()));
        }
        let mut reply = Transmit::new(meta.remote, b"pong");
        reply.local_ip = meta.local_ip;
        both.send(&mut reply).unwrap();
        assert_eq!(
            collect(&single, 1)[0].0.remote,
            SocketAddr::new(here.ip(), port)
        );
    }

    let options = Options {
        only_v6: true,
        ..Options::default()
    };
    let only = bind("[::]:0", &options).expect("bound a moment ago");
    let (a, _) = v4();
    let to = SocketAddr::new(
        IpAddr::from([127, 0, 0, 1]),
        only.local_addr().unwrap().port(),
    );
    // The port is closed to IPv4; only.recv must find nothing.
    a.send(&mut Transmit::new(to, b"x")).unwrap();
    let error = only.recv(&mut RecvBatch::for_socket(&only, 1)).unwrap_err();
    assert!(matches!(error, RecvError::WouldBlock), "{error}");
}

#[cfg(target_os = "linux")]
#[test]
fn local_address_is_reported_and_selectable() {
    // All of 127.0.0.0/8 is this host.
    let any = bind("0.0.0.0:0", &Options::default()).unwrap();
    let (a, _) = v4();
    assert!(any.report().packet_info);
    let to: IpAddr = [127, 3, 2, 1].into();
    a.send(&mut Transmit::new(
        SocketAddr::new(to, any.local_addr().unwrap().port()),
        b"x",
    ))
    .unwrap();
    let (meta, _) = collect(&any, 1)[0];
    assert_eq!(meta.local_ip, Some(to));

    let mut reply = Transmit::new(a.local_addr().unwrap(), b"y");
    reply.local_ip = Some([127, 9, 9, 9].into());
    any.send(&mut reply).unwrap();
    assert_eq!(
        collect(&a, 1)[0].0.remote.ip(),
        IpAddr::from([127, 9, 9, 9])
    );

    reply = Transmit::new(a.local_addr().unwrap(), b"z");
    reply.local_ip = Some([192, 0, 2, 1].into());
    let error = any.send(&mut reply).unwrap_err();
    assert!(matches!(error, SendError::Dropped(_)), "{error}");
}

#[test]
fn receive_buffer_overflow_is_counted() {
    let (a, _) = v4();
    let options = Options {
        recv_buffer: 4096,
        ..Options::default()
    };
    let b = bind(V4, &options).unwrap();
    if !b.report().drop_counter {
        return;
    }
    let to = b.local_addr().unwrap();
    for _ in 0..200 {
        a.send(&mut Transmit::new(to, &[0; 1200])).unwrap();
    }
    let kept = collect(&b, 1).len();
    assert!(kept < 200);
    a.send(&mut Transmit::new(to, b"news")).unwrap();
    let (meta, _) = collect(&b, 1)[0];
    assert_eq!(meta.drops as usize, 200 - kept);
    assert_eq!(b.counters().receive_drops as usize, 200 - kept);
}

#[test]
fn oversized_train_is_truncated_to_whole_datagrams_and_counted() {
    let (a, b) = v4();
    let train = pattern(10 * 100);
    let mut transmit = Transmit::new(b.local_addr().unwrap(), &train);
    transmit.segment_size = Some(100);
    a.send(&mut transmit).unwrap();
    let mut batch = RecvBatch::new(1, 250);
    b.recv(&mut batch).unwrap();
    let sizes: Vec<_> = batch
        .datagrams()
        .map(|(_, datagram)| datagram.len())
        .collect();
    if b.report().gro && a.report().gso_segments > 1 {
        assert_eq!(sizes, [100, 100]);
        assert_eq!(b.counters().truncated, 1);
    }
    a.send(&mut Transmit::new(b.local_addr().unwrap(), &train))
        .unwrap();
    let mut datagrams = 0;
    while b.recv(&mut batch).is_ok() {
        datagrams += batch
            .datagrams()
            .filter(|(_, datagram)| datagram.len() != 100)
            .count();
    }
    assert!(datagrams <= 1, "{datagrams} pieces of one datagram");
}

#[test]
fn too_large_datagram_has_its_own_error() {
    for (a, b) in [V4, V6]
        .iter()
        .filter_map(|addr| pair(addr, &Options::default()))
    {
        let huge = pattern(65_530);
        let mut transmit = Transmit::new(b.local_addr().unwrap(), &huge);
        let error = a.send(&mut transmit).unwrap_err();
        assert!(matches!(error, SendError::TooLarge), "{error}");
        assert_eq!(transmit.contents.len(), huge.len());
        assert_eq!(a.counters().send_too_large, 1);
        // What the local stack leaves on the error queue must not get in the next one's way.
        a.send(&mut Transmit::new(b.local_addr().unwrap(), b"x"))
            .unwrap();
        while a.poll_errors().unwrap().is_some() {}
        a.send(&mut Transmit::new(b.local_addr().unwrap(), b"y"))
            .unwrap();
        assert_eq!(collect(&b, 2).len(), 2);
    }
}

#[test]
fn full_send_buffer_blocks_and_the_rest_can_be_sent_later() {
    let options = Options {
        gso: false,
        send_buffer: 4096,
        ..Options::default()
    };
    let a = bind(V4, &options).unwrap();
    let b = bind(
        V4,
        &Options {
            recv_buffer: 1,
            ..Options::default()
        },
    )
    .unwrap();
    let train = pattern(1000 * 1000);
    let mut transmit = Transmit::new(b.local_addr().unwrap(), &train);
    transmit.segment_size = Some(1000);
    // Loopback delivers or drops at once and rarely blocks; whichever it does, the count of
    // what was taken and what is left must be that of the train.
    loop {
        match a.send(&mut transmit) {
            Ok(()) => break,
            Err(SendError::WouldBlock) => {
                let taken = train.len() - transmit.contents.len();
                assert_eq!(a.counters().sent_bytes as usize, taken);
                b.recv(&mut RecvBatch::for_socket(&b, 32))
                    .map(drop)
                    .unwrap_or_default();
            }
            Err(error) => panic!("{error}"),
        }
    }
    assert_eq!(a.counters().sent_datagrams, 1000);
}

#[test]
fn address_of_other_family_is_unreachable_not_fatal() {
    let (a, b) = v4();
    let remote = "[2001:db8::1]:443".parse().unwrap();
    let error = a.send(&mut Transmit::new(remote, b"x")).unwrap_err();
    assert!(
        matches!(error, SendError::Dropped(DropKind::Unreachable)),
        "{error}"
    );
    let mut mixed = [
        Transmit::new(b.local_addr().unwrap(), b"x"),
        Transmit::new(remote, b"y"),
    ];
    assert_eq!(a.send_many(&mut mixed).unwrap(), 1);
    assert_eq!(a.counters().send_drops, 2);
    assert_eq!(collect(&b, 1).len(), 1);
}

#[test]
fn clamped_buffer_is_reported() {
    let options = Options {
        recv_buffer: 1 << 30,
        send_buffer: 65_536,
        ..Options::default()
    };
    let socket = bind(V4, &options).unwrap();
    let report = socket.report();
    assert_eq!(report.recv_buffer.asked, 1 << 30);
    if cfg!(target_os = "linux") {
        // No system lets an ordinary socket have a gigabyte.
        assert!(report.recv_buffer.clamped(), "{report:?}");
        assert_eq!(report.send_buffer.granted, 65_536);
        assert!(!report.send_buffer.clamped());
    }
}

#[test]
fn socket_bound_elsewhere_is_adopted() {
    let std = UdpSocket::bind(V4).unwrap();
    let to = std.local_addr().unwrap();
    let socket = Socket::from_std(std, &Options::default()).unwrap();
    let error = socket
        .recv(&mut RecvBatch::for_socket(&socket, 1))
        .unwrap_err();
    assert!(
        matches!(error, RecvError::WouldBlock),
        "it is made non-blocking"
    );
    v4().0.send(&mut Transmit::new(to, b"x")).unwrap();
    assert_eq!(collect(&socket, 1).len(), 1);
}

#[test]
fn port_is_not_shared_unless_requested() {
    let a = bind(V4, &Options::default()).unwrap();
    let addr = a.local_addr().unwrap();
    let error = Socket::bind(addr, &Options::default()).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::AddrInUse);
}
