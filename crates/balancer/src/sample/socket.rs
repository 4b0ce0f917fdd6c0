//! A socket whose datagrams are sampled.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use clearway_udp::{
    Counters, DatagramSocket, IcmpError, ReadinessSource, RecvBatch, RecvError, Report, SendError,
    Socket, Transmit,
};

use super::{SampleDirection, SampleLog};

/// Where a socket's datagrams are counted.
#[derive(Clone, Debug)]
struct Tap {
    log: Arc<SampleLog>,
    hop: &'static str,
    /// Which way those go that it receives.
    received: SampleDirection,
}

/// A socket that counts the datagrams of sampled connections as it receives and sends them; or
/// one that does not.
#[derive(Debug)]
pub struct SampledSocket {
    socket: Socket,
    tap: Option<Tap>,
}

impl From<Socket> for SampledSocket {
    /// Without samples.
    fn from(socket: Socket) -> Self {
        Self { socket, tap: None }
    }
}

impl SampledSocket {
    /// Counts in `log` what the socket of `hop` receives, which goes this way, and what it sends,
    /// which goes the other way.
    #[must_use]
    pub fn new(
        socket: Socket,
        log: Arc<SampleLog>,
        hop: &'static str,
        received: SampleDirection,
    ) -> Self {
        let tap = Some(Tap { log, hop, received });
        Self { socket, tap }
    }
}

impl Tap {
    fn count_received(&self, batch: &mut RecvBatch) {
        for (_, datagram) in batch.datagrams() {
            self.log.count(self.hop, self.received, datagram);
        }
    }

    /// Counts what is missing at the front of a train that began with `before`.
    fn count_sent(&self, before: &[u8], transmit: &Transmit<'_>) {
        let sent = before.len().saturating_sub(transmit.contents.len());
        let sent = before.get(..sent).unwrap_or_default();
        let size = transmit.segment_size.unwrap_or(sent.len()).max(1);
        for datagram in sent.chunks(size) {
            self.log.count(self.hop, self.received.opposite(), datagram);
        }
    }
}

impl DatagramSocket for SampledSocket {
    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.socket.local_addr()
    }

    fn report(&self) -> &Report {
        self.socket.report()
    }

    fn counters(&self) -> Counters {
        self.socket.counters()
    }

    fn gso_segments(&self) -> usize {
        self.socket.gso_segments()
    }

    fn recv(&self, batch: &mut RecvBatch) -> Result<usize, RecvError> {
        let received = self.socket.recv(batch)?;
        if let Some(tap) = &self.tap {
            tap.count_received(batch);
        }
        Ok(received)
    }

    fn send(&self, transmit: &mut Transmit<'_>) -> Result<(), SendError> {
        let before = transmit.contents;
        let result = self.socket.send(transmit);
        if let Some(tap) = &self.tap {
            tap.count_sent(before, transmit);
        }
        result
    }

    fn send_many(&self, transmits: &mut [Transmit<'_>]) -> Result<usize, SendError> {
        let Some(tap) = &self.tap else {
            return self.socket.send_many(transmits);
        };
        let before: Vec<&[u8]> = transmits.iter().map(|transmit| transmit.contents).collect();
        let result = self.socket.send_many(transmits);
        for (before, transmit) in before.into_iter().zip(&*transmits) {
            tap.count_sent(before, transmit);
        }
        result
    }

    fn expect_errors(&self) {
        self.socket.expect_errors();
    }

    fn poll_errors(&self) -> io::Result<Option<IcmpError>> {
        self.socket.poll_errors()
    }

    fn readiness(&self) -> ReadinessSource<'_> {
        ReadinessSource::Descriptor(self.socket.as_fd())
    }
}

impl AsFd for SampledSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use clearway_udp::Options;

    use super::*;

    fn bind(log: &Arc<SampleLog>, hop: &'static str, received: SampleDirection) -> SampledSocket {
        let socket = Socket::bind("127.0.0.1:0".parse().unwrap(), &Options::default()).unwrap();
        SampledSocket::new(socket, log.clone(), hop, received)
    }

    #[test]
    fn trains_are_counted_by_datagram_at_both_ends() {
        let log = Arc::new(SampleLog::new(1));
        let client = bind(&log, "client", SampleDirection::Down);
        let server = bind(&log, "server", SampleDirection::Up);
        let to = server.local_addr().unwrap();
        let train = [[0x40; 50], [0x41; 50], [0x40; 50]].concat();
        let mut trains = [Transmit::new(to, &train), Transmit::new(to, &train[..50])];
        trains[0].segment_size = Some(50);
        let (last, others) = trains.split_last_mut().unwrap();
        assert_eq!(client.send_many(others).unwrap(), 1);
        client.send(last).unwrap();
        let mut batch = RecvBatch::for_socket(&server, 8);
        let mut received = 0;
        for _ in 0..100 {
            if server.recv(&mut batch).is_ok() {
                received += batch.datagrams().count();
            }
            if received == 4 {
                break;
            }
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
        let lines = log.take_before(u64::MAX);
        for hop in ["client", "server"] {
            let lines = lines.iter().filter(|line| line.hop == hop);
            let mut packets = std::collections::BTreeMap::<u64, (u64, u64)>::new();
            for line in lines {
                assert_eq!(line.direction, SampleDirection::Up);
                let entry = packets.entry(line.connection).or_default();
                *entry = (entry.0 + line.packets, entry.1 + line.bytes);
            }
            let mut counts: Vec<_> = packets.into_values().collect();
            counts.sort_unstable();
            assert_eq!(counts, [(1, 50), (3, 150)], "{hop}");
        }
    }

    #[test]
    fn what_cannot_be_sent_is_not_counted() {
        let log = Arc::new(SampleLog::new(1));
        let client = bind(&log, "client", SampleDirection::Down);
        let contents = vec![0x40; 65_536];
        let mut transmit = Transmit::new("127.0.0.1:9".parse().unwrap(), &contents);
        transmit.segment_size = Some(65_536);
        assert!(client.send(&mut transmit).is_err());
        assert!(log.take_before(u64::MAX).is_empty());
    }
}
