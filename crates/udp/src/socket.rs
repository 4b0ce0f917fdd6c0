//! The socket, for all platforms.

use std::io;
use std::net::{SocketAddr, UdpSocket};

use crate::options::open;
use crate::{Counters, IcmpError, Options, RecvBatch, RecvError, Report, SendError, Transmit};

#[cfg(target_os = "linux")]
use crate::linux::Backend;
#[cfg(not(target_os = "linux"))]
use crate::portable::Backend;

/// A bound, non-blocking UDP socket.
///
/// Every method takes `&self`, and the socket is `Send + Sync`; it is meant for the one thread that
/// owns the shard.
#[derive(Debug)]
pub struct Socket {
    backend: Backend,
}

impl Socket {
    /// Binds to `addr`.
    ///
    /// # Errors
    /// Returns the system's error if the address does not exist or is in use. Unsupported options
    /// are not an error; see [`Socket::report`].
    pub fn bind(addr: SocketAddr, options: &Options) -> io::Result<Self> {
        Self::from_std(open(addr, options, options.reuse_port)?.into(), options)
    }

    /// Adopts a socket that was bound elsewhere (by systemd, or in a test). `reuse_port` and
    /// `only_v6` are ignored. The socket should not be connected: Linux reports ICMP errors about a
    /// connected socket whether requested or not, so forged ones can cost datagrams.
    ///
    /// # Errors
    /// Returns the system's error if the socket cannot be used.
    pub fn from_std(socket: UdpSocket, options: &Options) -> io::Result<Self> {
        #[cfg(target_os = "linux")]
        let backend = Backend::new(socket, options, crate::linux::Kernel::default())?;
        #[cfg(not(target_os = "linux"))]
        let backend = Backend::new(socket, options)?;
        Ok(Self { backend })
    }

    /// Binds to `addr`, with system calls that fail as planned in `faults`, including those that
    /// set up the socket.
    ///
    /// # Errors
    /// Like [`Socket::bind`], or as planned.
    #[cfg(all(target_os = "linux", any(test, feature = "testing")))]
    pub fn bind_with_faults(
        addr: SocketAddr,
        options: &Options,
        faults: crate::testing::Faults,
    ) -> io::Result<Self> {
        let socket = open(addr, options, options.reuse_port)?;
        let kernel = crate::linux::Kernel {
            faults: Some(faults),
        };
        Ok(Self {
            backend: Backend::new(socket.into(), options, kernel)?,
        })
    }

    /// The address the socket is bound to.
    ///
    /// # Errors
    /// Returns the system's error.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.backend.std().local_addr()
    }

    /// The capabilities that the platform granted at bind.
    #[must_use]
    pub fn report(&self) -> &Report {
        self.backend.report()
    }

    /// The totals so far.
    #[must_use]
    pub fn counters(&self) -> Counters {
        self.backend.counters()
    }

    /// Number of datagrams that one send call can currently carry: [`Report::gso_segments`] until
    /// the kernel rejects a train.
    #[must_use]
    pub fn gso_segments(&self) -> usize {
        self.backend.gso_segments()
    }

    /// Fills `batch` with what is waiting and returns the number of messages.
    ///
    /// `Ok(0)` means that only errors of earlier sends were waiting: call again.
    ///
    /// # Errors
    /// See [`RecvError`]. ICMP errors are never returned here.
    pub fn recv(&self, batch: &mut RecvBatch) -> Result<usize, RecvError> {
        batch.clear();
        self.backend.recv(batch)
    }

    /// Sends a train, in one system call if the kernel supports it, and removes what was sent from
    /// the front of `transmit.contents`. `Ok` means that all of it was sent.
    ///
    /// A train that the kernel does not segment is sent datagram by datagram, now and for a while
    /// ([`Socket::gso_segments`] falls, [`Counters::gso_refusals`] counts): a second at first, up
    /// to a minute after repeated rejections. A rejection is believed only when the same train was
    /// rejected twice and a datagram of it sent at once.
    ///
    /// After an error that may belong to an ICMP message about another datagram, the send is
    /// repeated, in the end with ICMP reports switched off, so that a forged message cannot fail a
    /// send.
    ///
    /// # Errors
    /// See [`SendError`]: only `Broken` is about the socket rather than the train.
    pub fn send(&self, transmit: &mut Transmit<'_>) -> Result<(), SendError> {
        self.backend.send(transmit)
    }

    /// Sends several trains with as few system calls as possible and returns how many were sent
    /// whole; what was sent of the next is removed from its front.
    ///
    /// # Errors
    /// Those of [`Socket::send`] about the first train. An error of a later train ends the call
    /// early; calling again with the rest returns it.
    pub fn send_many(&self, transmits: &mut [Transmit<'_>]) -> Result<usize, SendError> {
        self.backend.send_many(transmits)
    }

    /// Makes the next [`poll_errors`](Self::poll_errors) read the error queue although no call has
    /// failed.
    ///
    /// For event loops, whenever the descriptor reports an error (`EPOLLERR`) and before they sleep
    /// again. Errors that are not read use up the receive buffer, and a full one accepts no
    /// datagrams: a socket that only waits for datagrams would wait forever.
    pub fn expect_errors(&self) {
        self.backend.expect_errors();
    }

    /// The next error that the network or this host reported about a datagram sent earlier; `None`
    /// if there are no more. Cheap when there is none. Call it after a receive or send, a bounded
    /// number of times: pending errors use receive buffer, and an attacker can send any number.
    /// Above a thousand a second they are ignored for a second ([`Counters::icmp_pauses`]).
    ///
    /// # Errors
    /// Returns the system's error if the socket is broken.
    pub fn poll_errors(&self) -> io::Result<Option<IcmpError>> {
        self.backend.poll_errors()
    }

    #[cfg(not(target_os = "linux"))]
    pub(crate) fn backend(&self) -> &Backend {
        &self.backend
    }

    #[cfg(target_os = "linux")]
    pub(crate) fn backend_mut(&mut self) -> &mut Backend {
        &mut self.backend
    }
}

#[cfg(unix)]
mod handles {
    use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};

    impl AsFd for super::Socket {
        fn as_fd(&self) -> BorrowedFd<'_> {
            self.backend.std().as_fd()
        }
    }

    impl AsRawFd for super::Socket {
        fn as_raw_fd(&self) -> RawFd {
            self.backend.std().as_raw_fd()
        }
    }
}

#[cfg(windows)]
mod handles {
    use std::os::windows::io::{AsRawSocket, AsSocket, BorrowedSocket, RawSocket};

    impl AsSocket for super::Socket {
        fn as_socket(&self) -> BorrowedSocket<'_> {
            self.backend.std().as_socket()
        }
    }

    impl AsRawSocket for super::Socket {
        fn as_raw_socket(&self) -> RawSocket {
            self.backend.std().as_raw_socket()
        }
    }
}
