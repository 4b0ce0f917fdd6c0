//! Every errno of every system call, once and for good, into the code that runs.
#![cfg(target_os = "linux")]
#![expect(clippy::unwrap_used, reason = "the helpers of tests fail as tests do")]

use std::net::SocketAddr;
use std::time::Duration;

use clearway_udp::testing::{Call, Faults};
use clearway_udp::{DropKind, Options, RecvBatch, RecvError, SendError, Socket, Transmit};

/// Linux's errnos.
const ERRNOS: std::ops::RangeInclusive<i32> = 1..=133;

/// Those that say the descriptor itself is of no use for the call.
const BROKEN_SEND: [i32; 4] = [libc::EBADF, libc::EPIPE, libc::ENOSYS, libc::ENOTSOCK];
const BROKEN_RECV: [i32; 3] = [libc::EBADF, libc::ENOSYS, libc::ENOTSOCK];

/// Longer than an unexplained error may go on.
const LONG: Duration = Duration::from_secs(60);

/// A socket whose calls fail as planned, and one that works.
struct World {
    faults: Faults,
    faulty: Socket,
    sound: Socket,
    batch: RecvBatch,
}

impl World {
    fn new() -> Self {
        let (addr, faults) = (SocketAddr::from(([127, 0, 0, 1], 0)), Faults::new());
        let options = Options::default();
        let faulty = Socket::bind_with_faults(addr, &options, faults.clone()).unwrap();
        let sound = Socket::bind(addr, &options).unwrap();
        let batch = RecvBatch::for_socket(&sound, 32);
        Self {
            faults,
            faulty,
            sound,
            batch,
        }
    }

    /// Sends a train of four datagrams from the faulty socket.
    fn send(&self) -> Result<(), SendError> {
        let train = [7; 4_800];
        let mut transmit = Transmit::new(self.sound.local_addr().unwrap(), &train);
        transmit.segment_size = Some(1_200);
        let sent = self.faulty.send(&mut transmit);
        assert!(sent.is_err() || transmit.contents.is_empty());
        sent
    }

    /// Puts one datagram on its way to the faulty socket.
    fn provide(&self) {
        let to = self.faulty.local_addr().unwrap();
        self.sound
            .send(&mut Transmit::new(to, b"datagram"))
            .unwrap();
    }

    /// Payload bytes that have come to the sound socket.
    fn arrived(&mut self) -> usize {
        let mut bytes = 0;
        while self.sound.recv(&mut self.batch).is_ok() {
            bytes += self.batch.datagrams().map(|(_, d)| d.len()).sum::<usize>();
        }
        bytes
    }
}

#[test]
fn single_send_error_of_any_errno_loses_at_most_its_train() {
    for errno in ERRNOS {
        let mut world = World::new();
        let gso = world.faulty.gso_segments();
        world.faults.next(Call::SendMessage, errno, 1);
        let sent = world.send();
        match errno {
            libc::EAGAIN => assert!(matches!(sent, Err(SendError::WouldBlock)), "{errno}"),
            libc::EPERM
            | libc::ENOMEM
            | libc::ENOBUFS
            | libc::ENETDOWN
            | libc::ENODEV
            | libc::ENXIO
            | libc::EAFNOSUPPORT
            | libc::EADDRNOTAVAIL => {
                assert!(
                    matches!(sent, Err(SendError::Dropped(_))),
                    "{errno}: {sent:?}"
                );
            }
            _ if BROKEN_SEND.contains(&errno) => {
                assert!(
                    matches!(sent, Err(SendError::Broken(_))),
                    "{errno}: {sent:?}"
                );
            }
            // An earlier datagram's, perhaps: offered again, it goes.
            _ => {
                assert!(sent.is_ok(), "{errno}: {sent:?}");
                assert_eq!(world.arrived(), 4_800, "{errno}");
            }
        }
        world.send().unwrap();
        assert_eq!(world.arrived(), 4_800, "{errno}: the next train goes");
        assert_eq!(
            world.faulty.gso_segments(),
            gso,
            "{errno}: offload stays on"
        );
    }
}

#[test]
fn persistent_send_errno_is_loss_and_only_bad_descriptor_is_fatal() {
    for errno in ERRNOS {
        let mut world = World::new();
        world.faults.always(Call::SendMessage, errno);
        for _ in 0..200 {
            let sent = world.send();
            let as_expected = match &sent {
                Err(SendError::WouldBlock) => errno == libc::EAGAIN,
                Err(SendError::TooLarge) => errno == libc::EMSGSIZE,
                Err(SendError::Broken(error)) => {
                    error.raw_os_error() == Some(errno) && BROKEN_SEND.contains(&errno)
                }
                Err(SendError::Dropped(DropKind::Other(code))) => *code == errno,
                Err(SendError::Dropped(_)) => !BROKEN_SEND.contains(&errno),
                Ok(()) => false,
            };
            assert!(as_expected, "{errno}: {sent:?}");
        }
        let calls = world.faulty.counters().send_calls;
        assert!(calls <= 200 * 32, "{errno}: {calls} calls for 200 trains");
        world.faults.stop();
        world.faults.skip(LONG);
        world.send().unwrap();
        assert_eq!(world.arrived(), 4_800, "{errno}: it goes on once it can");
        assert_eq!(
            world.faulty.gso_segments(),
            world.faulty.report().gso_segments,
            "{errno}"
        );
    }
}

#[test]
fn unexplained_send_errno_without_any_success_becomes_fatal() {
    for errno in ERRNOS {
        let world = World::new();
        world.faults.always(Call::SendMessage, errno);
        for _ in 0..100 {
            world.send().unwrap_err();
        }
        world.faults.skip(LONG);
        let sent = world.send().unwrap_err();
        let known = matches!(
            errno,
            libc::EAGAIN
                | libc::EINVAL
                | libc::EMSGSIZE
                | libc::EPERM
                | libc::EACCES
                | libc::ENOMEM
                | libc::ENOBUFS
                | libc::ENETDOWN
                | libc::ENODEV
                | libc::ENXIO
                | libc::EAFNOSUPPORT
                | libc::EADDRNOTAVAIL
                | libc::ENETUNREACH
                | libc::EHOSTUNREACH
                | libc::ENOPROTOOPT
                | libc::EOPNOTSUPP
                | libc::EHOSTDOWN
                | libc::ENONET
                | libc::EPROTO
                | libc::ECONNREFUSED
        );
        assert_eq!(
            !matches!(sent, SendError::Broken(_)),
            known,
            "{errno}: {sent:?}"
        );
    }
}

#[test]
fn sendmmsg_error_of_any_errno_falls_back_to_sendmsg() {
    for errno in ERRNOS {
        for times in [1, usize::MAX] {
            let mut world = World::new();
            world.faults.next(Call::SendMessages, errno, times);
            let remote = world.sound.local_addr().unwrap();
            let mut transmits: Vec<_> = (0..40).map(|_| Transmit::new(remote, &[1; 100])).collect();
            assert_eq!(
                world.faulty.send_many(&mut transmits).unwrap(),
                40,
                "{errno}"
            );
            assert_eq!(world.arrived(), 4_000, "{errno}");
            assert!(world.faults.injected(Call::SendMessages) > 0);
        }
    }
}

#[test]
fn single_receive_error_of_any_errno_loses_no_datagram() {
    for errno in ERRNOS {
        let mut world = World::new();
        world.provide();
        world.faults.next(Call::ReceiveMessages, errno, 1);
        let received = world.faulty.recv(&mut world.batch);
        match received {
            Err(RecvError::WouldBlock) => assert_eq!(errno, libc::EAGAIN),
            Err(RecvError::Broken(_)) => assert!(BROKEN_RECV.contains(&errno), "{errno}"),
            Err(RecvError::Unavailable(error)) => panic!("{errno}: {error}"),
            Ok(messages) => assert_eq!(messages, 1, "{errno}"),
        }
        if received.is_err() {
            assert_eq!(world.faulty.recv(&mut world.batch).unwrap(), 1, "{errno}");
        }
    }
}

#[test]
fn persistent_receive_errno_is_bounded_and_eventually_fatal() {
    for errno in ERRNOS {
        let mut world = World::new();
        world.provide();
        world.faults.always(Call::ReceiveMessages, errno);
        for _ in 0..100 {
            match world.faulty.recv(&mut world.batch) {
                Err(RecvError::WouldBlock) => assert_eq!(errno, libc::EAGAIN),
                Err(RecvError::Broken(_)) => assert!(BROKEN_RECV.contains(&errno), "{errno}"),
                Err(RecvError::Unavailable(error)) => {
                    assert_eq!(error.raw_os_error(), Some(errno));
                    assert!(!BROKEN_RECV.contains(&errno), "{errno}");
                }
                Ok(_) => panic!("{errno}"),
            }
        }
        let calls = world.faulty.counters().receive_calls;
        assert!(calls <= 100 * 16, "{errno}: {calls} calls for 100 receives");
        world.faults.skip(LONG);
        let last = world.faulty.recv(&mut world.batch).unwrap_err();
        let expected = matches!(last, RecvError::Broken(_)) == (errno != libc::EAGAIN);
        assert!(expected, "{errno}: {last:?}");

        // One success, and it is as if nothing had been.
        world.faults.stop();
        assert_eq!(world.faulty.recv(&mut world.batch).unwrap(), 1, "{errno}");
    }
}

#[test]
fn error_queue_of_any_errno_is_bounded_and_affects_no_datagram() {
    for errno in ERRNOS {
        for times in [1, usize::MAX] {
            let mut world = World::new();
            // Something to read, without which nobody looks.
            world.faults.next(Call::SendMessage, libc::ECONNREFUSED, 1);
            world.send().unwrap();
            world.faults.next(Call::ReadErrors, errno, times);
            match world.faulty.poll_errors() {
                Ok(None) => {}
                Ok(Some(error)) => panic!("{errno}: {error:?}"),
                Err(_) => assert!([libc::EBADF, libc::ENOTSOCK].contains(&errno), "{errno}"),
            }
            assert!(world.faults.injected(Call::ReadErrors) <= 16, "{errno}");
            world.send().unwrap();
            world.provide();
            assert_eq!(world.faulty.recv(&mut world.batch).unwrap(), 1, "{errno}");
            assert_eq!(world.arrived(), 9_600, "{errno}");
        }
    }
}

#[test]
fn rejected_options_leave_a_working_socket() {
    for errno in ERRNOS {
        let faults = Faults::new();
        faults.always(Call::SetOption, errno);
        let addr = SocketAddr::from(([127, 0, 0, 1], 0));
        let bound = Socket::bind_with_faults(addr, &Options::default(), faults);
        if [libc::EBADF, libc::ENOTSOCK].contains(&errno) {
            assert_eq!(bound.unwrap_err().raw_os_error(), Some(errno));
            continue;
        }
        let plain = bound.unwrap();
        let report = plain.report();
        assert_eq!((report.gso_segments, report.gro), (1, false), "{errno}");
        assert!(!(report.ecn || report.icmp || report.dont_fragment || report.packet_info));
        let sound = Socket::bind(addr, &Options::default()).unwrap();
        let train = [3; 3_000];
        let mut transmit = Transmit::new(sound.local_addr().unwrap(), &train);
        transmit.segment_size = Some(1_200);
        plain.send(&mut transmit).unwrap();
        let mut batch = RecvBatch::for_socket(&sound, 8);
        assert_eq!(sound.recv(&mut batch).unwrap(), 3, "{errno}");
    }
}

#[test]
fn train_is_sent_even_if_icmp_errors_cannot_be_disabled() {
    let mut world = World::new();
    world.faults.always(Call::SetOption, libc::EPERM);
    for errno in [libc::ECONNREFUSED, libc::EMSGSIZE, libc::EPROTO] {
        world.faults.next(Call::SendMessage, errno, 3);
        world.send().unwrap();
        assert_eq!(world.arrived(), 4_800);
    }
}

#[test]
fn rejected_offload_is_retried_later() {
    for errno in [libc::EIO, libc::EINVAL, libc::EMSGSIZE] {
        let mut world = World::new();
        let gso = world.faulty.gso_segments();
        // Both offers of the train (four of what may be ICMP's), then its datagrams pass.
        let offers = if errno == libc::EMSGSIZE { 4 } else { 2 };
        world.faults.next(Call::SendMessage, errno, offers);
        world.send().unwrap();
        assert_eq!(world.arrived(), 4_800, "{errno}: no byte lost or repeated");
        assert_eq!(world.faulty.gso_segments(), 1, "{errno}: proven");
        assert_eq!(world.faulty.counters().gso_refusals, 1);
        world.faults.skip(Duration::from_secs(1));
        assert_eq!(
            world.faulty.gso_segments(),
            gso,
            "{errno}: worth another try"
        );
        world.send().unwrap();
        assert_eq!(world.faulty.counters().gso_trains, 1, "{errno}");
        assert_eq!(world.faulty.gso_segments(), gso);
    }
}

#[test]
fn icmp_errnos_do_not_disable_offload() {
    for errno in [
        libc::EMSGSIZE,
        libc::ENOPROTOOPT,
        libc::EOPNOTSUPP,
        libc::EPROTO,
    ] {
        for times in 1..20 {
            let mut world = World::new();
            let gso = world.faulty.gso_segments();
            world.faults.next(Call::SendMessage, errno, times);
            // With the kernel told to report no ICMP there are no more than these.
            while world.send().is_err() {}
            assert!(world.arrived() >= 4_800);
            if errno != libc::EMSGSIZE || times < 4 {
                assert_eq!(world.faulty.gso_segments(), gso, "{errno}, {times} times");
            }
        }
    }
}

#[test]
fn icmp_errors_are_reported_again_after_a_pause() {
    let world = World::new();
    let closed = {
        let socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        socket.local_addr().unwrap()
    };
    let meet = || {
        world.faulty.send(&mut Transmit::new(closed, b"x")).ok();
        let mut batch = RecvBatch::for_socket(&world.faulty, 1);
        world.faulty.recv(&mut batch).ok();
        world.faulty.poll_errors().unwrap()
    };
    assert!(meet().is_some(), "it listens");
    // Twice in a row is one too often to say whose error it is.
    world.faults.next(Call::SendMessage, libc::EPROTO, 2);
    world.send().unwrap();
    assert_eq!(world.faulty.counters().icmp_pauses, 1);
    assert!(meet().is_none(), "it does not listen");
    world.faults.skip(Duration::from_secs(1));
    let mut batch = RecvBatch::for_socket(&world.faulty, 1);
    world.faulty.recv(&mut batch).ok();
    assert!(meet().is_some(), "it listens again");
}
