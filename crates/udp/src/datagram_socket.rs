//! What an event loop needs of a socket.

use std::fmt;
use std::io;
use std::net::SocketAddr;

use crate::{Counters, IcmpError, RecvBatch, RecvError, Report, SendError, Socket, Transmit};

/// A UDP socket, or what stands for one: the seam between an event loop and the system.
///
/// [`Socket`] is the one that sends. A caller may put another in its place: one that counts,
/// fails on purpose, or carries datagrams over something else. The loop trusts it to keep four
/// promises:
/// - No call blocks.
/// - After `WouldBlock` the descriptor turns readable, or writable, once calling again is of
///   use, and reports an error when there is one to read. A loop that waits for an edge hears
///   of it no other way.
/// - [`RecvError::Broken`] and [`SendError::Broken`] are for a socket that will not work again:
///   the loop ends on either.
/// - Nothing that a stranger sends makes it say so.
pub trait DatagramSocket: fmt::Debug + Send + Sync {
    /// The address the socket is bound to.
    ///
    /// # Errors
    /// The system's.
    fn local_addr(&self) -> io::Result<SocketAddr>;

    /// What the socket can do, fixed when it was bound.
    fn report(&self) -> &Report;

    /// Totals so far.
    fn counters(&self) -> Counters;

    /// Datagrams one send call can carry now, at least 1.
    fn gso_segments(&self) -> usize;

    /// Fills `batch` with what is waiting and returns the number of messages; see
    /// [`Socket::recv`].
    ///
    /// # Errors
    /// See [`RecvError`].
    fn recv(&self, batch: &mut RecvBatch) -> Result<usize, RecvError>;

    /// Sends a train and cuts what was taken off the front of `transmit.contents`; see
    /// [`Socket::send`].
    ///
    /// # Errors
    /// See [`SendError`].
    fn send(&self, transmit: &mut Transmit<'_>) -> Result<(), SendError>;

    /// The descriptor has an error to report (`EPOLLERR`), so that
    /// [`poll_errors`](Self::poll_errors) has to look; see [`Socket::expect_errors`].
    fn expect_errors(&self);

    /// The next error reported about a datagram sent earlier; see [`Socket::poll_errors`].
    ///
    /// # Errors
    /// The system's, if the socket is broken.
    fn poll_errors(&self) -> io::Result<Option<IcmpError>>;

    /// The descriptor whose readiness tells when to call again; the same for as long as the
    /// socket lives.
    #[cfg(unix)]
    fn descriptor(&self) -> std::os::fd::BorrowedFd<'_>;
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

    fn expect_errors(&self) {
        self.expect_errors();
    }

    fn poll_errors(&self) -> io::Result<Option<IcmpError>> {
        self.poll_errors()
    }

    #[cfg(unix)]
    fn descriptor(&self) -> std::os::fd::BorrowedFd<'_> {
        std::os::fd::AsFd::as_fd(self)
    }
}
