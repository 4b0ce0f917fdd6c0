//! The socket that an event loop needs, as a trait.

use std::fmt;
use std::io;
use std::net::SocketAddr;

use crate::{
    Counters, IcmpError, ReadinessSource, RecvBatch, RecvError, Report, SendError, Socket, Transmit,
};

/// A UDP socket or a replacement for one: the boundary between an event loop and the system.
///
/// [`Socket`] is the real one. A caller may use another that counts, injects failures, or
/// transports datagrams in another way. The event loop relies on four properties:
/// - No call blocks.
/// - After `WouldBlock` its [readiness](Self::readiness) becomes readable, or writable, once calling
///   again is of use, and reports an error when one can be read. A loop that waits for edges has no
///   other notification.
/// - [`RecvError::Broken`] and [`SendError::Broken`] mean that the socket will not work again: the
///   loop ends on either.
/// - Nothing that arrives from the network causes these two errors.
pub trait DatagramSocket: fmt::Debug + Send + Sync {
    /// The address the socket is bound to.
    ///
    /// # Errors
    /// Returns the system's error.
    fn local_addr(&self) -> io::Result<SocketAddr>;

    /// The capabilities of the socket, fixed when it was bound.
    fn report(&self) -> &Report;

    /// The totals so far.
    fn counters(&self) -> Counters;

    /// Number of datagrams that one send call can currently carry, at least 1.
    fn gso_segments(&self) -> usize;

    /// Fills `batch` with what is waiting and returns the number of messages; see
    /// [`Socket::recv`].
    ///
    /// # Errors
    /// See [`RecvError`].
    fn recv(&self, batch: &mut RecvBatch) -> Result<usize, RecvError>;

    /// Sends a train and removes what was sent from the front of `transmit.contents`; see
    /// [`Socket::send`].
    ///
    /// # Errors
    /// See [`SendError`].
    fn send(&self, transmit: &mut Transmit<'_>) -> Result<(), SendError>;

    /// Sends several trains with as few system calls as possible and returns how many were sent
    /// whole; what was sent of the next is removed from its front. See [`Socket::send_many`].
    ///
    /// # Errors
    /// Those of [`send`](Self::send) about the first train. An error of a later train ends the
    /// call early; calling again with the rest returns it.
    fn send_many(&self, transmits: &mut [Transmit<'_>]) -> Result<usize, SendError> {
        let mut sent = 0_usize;
        for transmit in transmits {
            match self.send(transmit) {
                Ok(()) => sent = sent.saturating_add(1),
                Err(error) if sent == 0 => return Err(error),
                Err(_) => break,
            }
        }
        Ok(sent)
    }

    /// Tells the socket that its descriptor reported an error (`EPOLLERR`), so that
    /// [`poll_errors`](Self::poll_errors) reads it; see [`Socket::expect_errors`].
    fn expect_errors(&self);

    /// The next error reported about a datagram sent earlier; see [`Socket::poll_errors`].
    ///
    /// # Errors
    /// Returns the system's error if the socket is broken.
    fn poll_errors(&self) -> io::Result<Option<IcmpError>>;

    /// Where to learn when to call again; it stays the same for the socket's lifetime.
    fn readiness(&self) -> ReadinessSource<'_>;
}

impl DatagramSocket for Socket {
    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.local_addr()
    }

    fn report(&self) -> &Report {
        self.report()
    }

    fn counters(&self) -> Counters {
        self.counters()
    }

    fn gso_segments(&self) -> usize {
        self.gso_segments()
    }

    fn recv(&self, batch: &mut RecvBatch) -> Result<usize, RecvError> {
        self.recv(batch)
    }

    fn send(&self, transmit: &mut Transmit<'_>) -> Result<(), SendError> {
        self.send(transmit)
    }

    fn send_many(&self, transmits: &mut [Transmit<'_>]) -> Result<usize, SendError> {
        self.send_many(transmits)
    }

    fn expect_errors(&self) {
        self.expect_errors();
    }

    fn poll_errors(&self) -> io::Result<Option<IcmpError>> {
        self.poll_errors()
    }

    fn readiness(&self) -> ReadinessSource<'_> {
        ReadinessSource::Descriptor(std::os::fd::AsFd::as_fd(self))
    }
}
