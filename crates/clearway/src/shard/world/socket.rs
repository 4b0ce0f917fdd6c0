//! A socket in memory that is full, fails and becomes writable on command.

use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard};

use clearway_udp::{
    Counters, DatagramSocket, DropKind, IcmpError, Meta, Readiness, ReadinessSource, RecvBatch,
    RecvError, Report, SendError, Transmit,
};

/// How the next call fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Fault {
    /// The datagram is dropped.
    Dropped,
    /// The datagram exceeds the MTU of the first link.
    TooLarge,
    /// Sending fails permanently.
    SendBroken,
    /// Receiving fails temporarily.
    Unavailable,
    /// Receiving fails permanently.
    ReceiveBroken,
}

impl Fault {
    fn is_of_send(self) -> bool {
        match self {
            Self::Dropped | Self::TooLarge | Self::SendBroken => true,
            Self::Unavailable | Self::ReceiveBroken => false,
        }
    }
}

#[derive(Debug, Default)]
pub(super) struct Queues {
    /// Datagrams to be received, with their source.
    pub(super) arrived: VecDeque<(SocketAddr, Vec<u8>)>,
    /// Datagrams sent, with their destination.
    pub(super) sent: VecDeque<(SocketAddr, Vec<u8>)>,
    pub(super) full: bool,
    pub(super) fault: Option<Fault>,
}

#[derive(Debug)]
pub(super) struct MemorySocket {
    queues: Mutex<Queues>,
    report: Report,
    pub(super) readiness: Arc<Readiness>,
}

impl MemorySocket {
    pub(super) fn new() -> Self {
        Self {
            queues: Mutex::default(),
            report: Report::default(),
            readiness: Arc::default(),
        }
    }

    pub(super) fn queues(&self) -> MutexGuard<'_, Queues> {
        self.queues.lock().expect("no panic under this lock")
    }
}

impl DatagramSocket for MemorySocket {
    fn local_addr(&self) -> io::Result<SocketAddr> {
        Ok(SocketAddr::from(([10, 0, 0, 2], 443)))
    }

    fn report(&self) -> &Report {
        &self.report
    }

    fn counters(&self) -> Counters {
        Counters::default()
    }

    fn gso_segments(&self) -> usize {
        1
    }

    fn recv(&self, batch: &mut RecvBatch) -> Result<usize, RecvError> {
        batch.clear();
        let mut queues = self.queues();
        match queues.fault.take_if(|fault| !fault.is_of_send()) {
            Some(Fault::ReceiveBroken) => {
                return Err(RecvError::Broken(io::Error::other("broken on purpose")));
            }
            Some(_) => return Err(RecvError::Unavailable(io::Error::other("for now"))),
            None => {}
        }
        while !batch.is_full()
            && let Some((from, datagram)) = queues.arrived.pop_front()
        {
            assert!(batch.push(Meta::new(from), &datagram));
        }
        if batch.is_empty() {
            Err(RecvError::WouldBlock)
        } else {
            Ok(batch.len())
        }
    }

    fn send(&self, transmit: &mut Transmit<'_>) -> Result<(), SendError> {
        let mut queues = self.queues();
        match queues.fault.take_if(|fault| fault.is_of_send()) {
            Some(Fault::Dropped) => return Err(SendError::Dropped(DropKind::Unreachable)),
            Some(Fault::TooLarge) => return Err(SendError::TooLarge),
            Some(_) => return Err(SendError::Broken(io::Error::other("broken on purpose"))),
            None => {}
        }
        if queues.full {
            return Err(SendError::WouldBlock);
        }
        let datagram = transmit.contents.to_vec();
        queues.sent.push_back((transmit.remote, datagram));
        Ok(())
    }

    fn expect_errors(&self) {}

    fn poll_errors(&self) -> io::Result<Option<IcmpError>> {
        Ok(None)
    }

    fn readiness(&self) -> ReadinessSource<'_> {
        ReadinessSource::flags(self.readiness.clone())
    }
}
