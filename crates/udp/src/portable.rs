//! Sockets on platforms other than Linux: one datagram per call, with std alone.

use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::time::Instant;

use crate::counters::AtomicCounters;
use crate::options::size_buffers;
use crate::streak::FailureStreak;
use crate::warnings::WARNINGS;
use crate::{
    Counters, DropKind, IcmpError, Meta, Options, RecvBatch, RecvError, Report, SendError, Transmit,
};

/// How many errors of earlier sends and temporary failures one receive call skips before it
/// returns.
const MAX_PENDING_ERRORS: usize = 64;

/// How often a datagram is sent again after an interruption.
const MAX_INTERRUPTIONS: usize = 16;

#[derive(Debug)]
pub(crate) struct Backend {
    socket: UdpSocket,
    report: Report,
    tally: AtomicCounters,
    send_streak: FailureStreak,
    receive_streak: FailureStreak,
}

impl Backend {
    pub(crate) fn new(socket: UdpSocket, options: &Options) -> io::Result<Self> {
        socket.set_nonblocking(true)?;
        let socket = socket2::Socket::from(socket);
        let (recv_buffer, send_buffer) = size_buffers(&socket, options, &WARNINGS);
        let report = Report {
            recv_buffer,
            send_buffer,
            gso_segments: 1,
            ..Report::default()
        };
        Ok(Self {
            socket: socket.into(),
            report,
            tally: AtomicCounters::default(),
            send_streak: FailureStreak::default(),
            receive_streak: FailureStreak::default(),
        })
    }

    pub(crate) fn std(&self) -> &UdpSocket {
        &self.socket
    }

    pub(crate) fn report(&self) -> &Report {
        &self.report
    }

    pub(crate) fn counters(&self) -> Counters {
        self.tally.snapshot()
    }

    pub(crate) fn gso_segments(&self) -> usize {
        1
    }

    pub(crate) fn recv(&self, batch: &mut RecvBatch) -> Result<usize, RecvError> {
        let mut errors: usize = 0;
        let mut filled: usize = 0;
        let mut slots = batch.slots();
        let mut free = slots.next();
        let mut trouble = None;
        while let Some((meta, slot)) = &mut free {
            self.tally.receive_calls.add(1);
            let error = match self.socket.recv_from(slot) {
                Ok((len, remote)) => {
                    **meta = Meta {
                        remote: canonical(remote),
                        len,
                        stride: len,
                        ..Meta::EMPTY
                    };
                    self.tally.received_datagrams.add(1);
                    self.tally.received_bytes.add(len as u64);
                    filled = filled.saturating_add(1);
                    free = slots.next();
                    continue;
                }
                Err(error) => error,
            };
            match ErrorClass::of(&error) {
                // Windows reports this for a datagram larger than the slot; it is lost.
                ErrorClass::TooLarge => self.tally.truncated.add(1),
                // An ICMP error about an earlier send, or a temporary failure; not about the queue.
                ErrorClass::Again | ErrorClass::Dropped(_) if errors < MAX_PENDING_ERRORS => {
                    errors = errors.saturating_add(1);
                    self.tally.icmp_errors.add(1);
                }
                ErrorClass::Again | ErrorClass::Dropped(_) => {
                    trouble = Some(self.unavailable(error));
                    break;
                }
                ErrorClass::Wait => {
                    self.receive_streak.end();
                    trouble = Some(RecvError::WouldBlock);
                    break;
                }
                ErrorClass::Broken => {
                    trouble = Some(RecvError::Broken(error));
                    break;
                }
            }
        }
        drop(slots);
        batch.fill(filled);
        match trouble {
            Some(trouble) if filled == 0 => Err(trouble),
            Some(_) | None => {
                self.receive_streak.end();
                Ok(filled)
            }
        }
    }

    fn unavailable(&self, error: io::Error) -> RecvError {
        self.tally.unexplained_errors.add(1);
        if self.receive_streak.add(Instant::now()) {
            RecvError::Broken(error)
        } else {
            RecvError::Unavailable(error)
        }
    }

    pub(crate) fn send(&self, transmit: &mut Transmit<'_>) -> Result<(), SendError> {
        let remote = self.reachable(transmit.remote);
        loop {
            let (bytes, _) = transmit.front(1);
            let (datagram, rest) = transmit
                .contents
                .split_at_checked(bytes)
                .unwrap_or_default();
            self.send_one(datagram, remote)
                .inspect_err(|error| match error {
                    SendError::WouldBlock => self.tally.send_blocked.add(1),
                    SendError::TooLarge => self.tally.send_too_large.add(1),
                    SendError::Dropped(_) => self.tally.send_drops.add(1),
                    SendError::Broken(_) => {}
                })?;
            self.send_streak.end();
            self.tally.sent_datagrams.add(1);
            self.tally.sent_bytes.add(bytes as u64);
            transmit.contents = rest;
            if rest.is_empty() {
                return Ok(());
            }
        }
    }

    fn send_one(&self, datagram: &[u8], remote: SocketAddr) -> Result<(), SendError> {
        let mut second_try = false;
        let mut interruptions: usize = 0;
        loop {
            self.tally.send_calls.add(1);
            let Err(error) = self.socket.send_to(datagram, remote) else {
                return Ok(());
            };
            return Err(match ErrorClass::of(&error) {
                ErrorClass::Again if interruptions < MAX_INTERRUPTIONS => {
                    interruptions = interruptions.saturating_add(1);
                    continue;
                }
                // May be an ICMP error about another datagram: reading it clears it.
                ErrorClass::Dropped(_) | ErrorClass::TooLarge if !second_try => {
                    second_try = true;
                    continue;
                }
                ErrorClass::Again | ErrorClass::Dropped(DropKind::Other(_)) => {
                    self.unexplained(error)
                }
                ErrorClass::Dropped(kind) => SendError::Dropped(kind),
                ErrorClass::TooLarge => SendError::TooLarge,
                ErrorClass::Wait => SendError::WouldBlock,
                ErrorClass::Broken => SendError::Broken(error),
            });
        }
    }

    fn unexplained(&self, error: io::Error) -> SendError {
        self.tally.unexplained_errors.add(1);
        let code = error.raw_os_error().unwrap_or(0);
        if self.send_streak.add(Instant::now()) {
            SendError::Broken(error)
        } else {
            SendError::Dropped(DropKind::Other(code))
        }
    }

    pub(crate) fn send_many(&self, transmits: &mut [Transmit<'_>]) -> Result<usize, SendError> {
        for (taken, transmit) in transmits.iter_mut().enumerate() {
            match self.send(transmit) {
                Ok(()) => {}
                Err(error) if taken == 0 => return Err(error),
                Err(_) => return Ok(taken),
            }
        }
        Ok(transmits.len())
    }

    #[expect(clippy::unused_self, reason = "one signature on every platform")]
    pub(crate) fn expect_errors(&self) {}

    #[expect(
        clippy::unnecessary_wraps,
        clippy::unused_self,
        reason = "one signature on every platform"
    )]
    pub(crate) fn poll_errors(&self) -> io::Result<Option<IcmpError>> {
        Ok(None)
    }

    /// The address in the form of this socket's family.
    fn reachable(&self, remote: SocketAddr) -> SocketAddr {
        match (self.socket.local_addr(), remote) {
            (Ok(SocketAddr::V6(_)), SocketAddr::V4(v4)) => {
                SocketAddr::new(v4.ip().to_ipv6_mapped().into(), v4.port())
            }
            _ => remote,
        }
    }
}

/// The meaning of an error, as far as std's error kinds distinguish. Only an invalid descriptor
/// breaks the socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ErrorClass {
    Again,
    Wait,
    TooLarge,
    Dropped(DropKind),
    Broken,
}

impl ErrorClass {
    fn of(error: &io::Error) -> Self {
        use io::ErrorKind as Kind;
        let code = error.raw_os_error().unwrap_or(0);
        match error.kind() {
            _ if codes::BROKEN.contains(&code) => Self::Broken,
            _ if code == codes::TOO_LARGE => Self::TooLarge,
            _ if code == codes::NO_BUFFERS => Self::Dropped(DropKind::NoBuffers),
            _ if code == codes::NO_FAMILY => Self::Dropped(DropKind::Unreachable),
            Kind::Interrupted => Self::Again,
            Kind::WouldBlock => Self::Wait,
            Kind::OutOfMemory => Self::Dropped(DropKind::NoBuffers),
            Kind::ConnectionRefused | Kind::ConnectionReset => Self::Dropped(DropKind::Refused),
            Kind::HostUnreachable | Kind::NetworkUnreachable | Kind::NetworkDown => {
                Self::Dropped(DropKind::Unreachable)
            }
            Kind::PermissionDenied => Self::Dropped(DropKind::Forbidden),
            Kind::AddrNotAvailable => Self::Dropped(DropKind::NoSuchSource),
            _ => Self::Dropped(DropKind::Other(code)),
        }
    }
}

/// Error numbers that have no `io::ErrorKind`.
#[cfg(unix)]
mod codes {
    pub(super) const TOO_LARGE: i32 = libc::EMSGSIZE;
    pub(super) const NO_BUFFERS: i32 = libc::ENOBUFS;
    pub(super) const NO_FAMILY: i32 = libc::EAFNOSUPPORT;
    pub(super) const BROKEN: [i32; 3] = [libc::EBADF, libc::ENOTSOCK, libc::EPIPE];
}

/// Error numbers that have no `io::ErrorKind` (Windows Sockets error codes).
#[cfg(windows)]
mod codes {
    pub(super) const TOO_LARGE: i32 = 10_040;
    pub(super) const NO_BUFFERS: i32 = 10_055;
    pub(super) const NO_FAMILY: i32 = 10_047;
    /// WSAEBADF, WSAENOTSOCK, WSAESHUTDOWN.
    pub(super) const BROKEN: [i32; 3] = [10_009, 10_038, 10_058];
}

fn canonical(addr: SocketAddr) -> SocketAddr {
    match addr.ip().to_canonical() {
        ip if ip.is_ipv4() => SocketAddr::new(ip, addr.port()),
        _ => addr,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;

    fn backend() -> Backend {
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        Backend::new(socket, &Options::default()).unwrap()
    }

    #[test]
    fn train_arrives_as_single_datagrams() {
        let (a, b) = (backend(), backend());
        let train: Vec<u8> = (0..3000u32).map(|i| i as u8).collect();
        let mut transmit = Transmit::new(b.std().local_addr().unwrap(), &train);
        transmit.segment_size = Some(1200);
        a.send_many(&mut [transmit]).unwrap();

        let mut batch = RecvBatch::new(8, 1500);
        assert_eq!(b.recv(&mut batch).unwrap(), 3);
        let got: Vec<Vec<u8>> = batch.datagrams().map(|(_, d)| d.to_vec()).collect();
        let sent: Vec<Vec<u8>> = train.chunks(1200).map(<[u8]>::to_vec).collect();
        assert_eq!(got, sent);
        assert!(matches!(b.recv(&mut batch), Err(RecvError::WouldBlock)));
        assert_eq!(a.counters().sent_datagrams, 3);
        assert_eq!(b.counters().received_bytes, 3000);
    }

    #[test]
    fn closed_port_does_not_break_the_socket() {
        let (a, b) = (backend(), backend());
        let closed = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))
            .unwrap()
            .local_addr()
            .unwrap();
        a.send(&mut Transmit::new(closed, b"x")).unwrap();
        b.send(&mut Transmit::new(a.std().local_addr().unwrap(), b"y"))
            .unwrap();
        let mut batch = RecvBatch::new(1, 100);
        assert_eq!(a.recv(&mut batch).unwrap(), 1);
    }

    #[test]
    fn too_large_datagram_has_its_own_error() {
        let (a, b) = (backend(), backend());
        let huge = vec![0; 65_530];
        let mut transmit = Transmit::new(b.std().local_addr().unwrap(), &huge);
        assert!(matches!(a.send(&mut transmit), Err(SendError::TooLarge)));
        assert_eq!(a.counters().send_too_large, 1);
    }

    #[test]
    fn report_claims_no_platform_specific_features() {
        let backend = backend();
        let report = backend.report();
        assert_eq!((report.gso_segments, backend.gso_segments()), (1, 1));
        backend.expect_errors();
        assert!(backend.poll_errors().unwrap().is_none());
        assert!(!(report.gro || report.ecn || report.dont_fragment || report.icmp));
    }
}
