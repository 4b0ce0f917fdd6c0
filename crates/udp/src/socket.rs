//! The socket, whatever the platform.

use std::io;
use std::net::{SocketAddr, UdpSocket};

use crate::options::open;
use crate::{Counters, IcmpError, Options, RecvBatch, RecvError, Report, SendError, Transmit};

#[cfg(target_os = "linux")]
use crate::linux::Backend;
#[cfg(not(target_os = "linux"))]
use crate::plain::Backend;

/// A bound UDP socket that never blocks.
///
/// Every method takes `&self`, and the socket is `Send + Sync`; it is meant for one thread,
/// which owns the shard.
#[derive(Debug)]
pub struct Socket {
    backend: Backend,
}

impl Socket {
    /// Binds to `addr`.
    ///
    /// # Errors
    /// The system's, if there is no such address or it is taken. What the platform merely lacks
    /// is no error but shows in [`Socket::report`].
    pub fn bind(addr: SocketAddr, options: &Options) -> io::Result<Self> {
        Self::from_std(open(addr, options, options.reuse_port)?.into(), options)
    }

    /// Takes over a socket bound elsewhere (systemd, a test). `reuse_port` and `only_v6` are
    /// decided by then and not looked at. It should not be connected: about a connected socket
    /// Linux reports ICMP errors whether they are asked for or not, so forged ones can cost
    /// datagrams.
    ///
    /// # Errors
    /// The system's, if it is no socket to work with.
    pub fn from_std(socket: UdpSocket, options: &Options) -> io::Result<Self> {
        #[cfg(target_os = "linux")]
        let backend = Backend::new(socket, options, crate::linux::Kernel::default())?;
        #[cfg(not(target_os = "linux"))]
        let backend = Backend::new(socket, options)?;
        Ok(Self { backend })
    }

    /// Binds to `addr`; system calls fail as `faults` plans, those that set the socket up too.
    ///
    /// # Errors
    /// As [`Socket::bind`]'s, or as planned.
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
    /// The system's.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.backend.std().local_addr()
    }

    /// What the platform granted at bind.
    #[must_use]
    pub fn report(&self) -> &Report {
        self.backend.report()
    }

    /// Totals so far.
    #[must_use]
    pub fn counters(&self) -> Counters {
        self.backend.counters()
    }

    /// Datagrams one send call can carry now: [`Report::gso_segments`] until the kernel refuses.
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

    /// Sends a train, in one system call if the kernel can, and cuts what it took off the front
    /// of `transmit.contents`. `Ok` means all was taken.
    ///
    /// A train the kernel will not segment goes out datagram by datagram instead, now and for a
    /// while ([`Socket::gso_segments`] falls, [`Counters::gso_refusals`] counts): a second at
    /// first, a minute after refusals in a row. It is believed only when the same train was
    /// refused twice and a datagram of it sent at once.
    ///
    /// An error that may be an ICMP message's about another datagram is asked about again, in
    /// the end with the kernel told to report no ICMP, so no forged one fails a send.
    ///
    /// # Errors
    /// See [`SendError`]: only `Broken` is about the socket rather than the train.
    pub fn send(&self, transmit: &mut Transmit<'_>) -> Result<(), SendError> {
        self.backend.send(transmit)
    }

    /// Sends several trains with as few system calls as it can and returns how many were taken
    /// whole; what was taken of the next is cut off its front.
    ///
    /// # Errors
    /// Those of [`Socket::send`] about the first train. Trouble with a later one ends the call
    /// early; calling again with the rest meets it.
    pub fn send_many(&self, transmits: &mut [Transmit<'_>]) -> Result<usize, SendError> {
        self.backend.send_many(transmits)
    }

    /// Has the next [`poll_errors`](Self::poll_errors) look, though no call has met an error.
    ///
    /// For event loops, whenever the descriptor reports an error (`EPOLLERR`) and before they
    /// sleep again. Errors that nobody reads take up the receive buffer, and a full one takes
    /// no datagrams: a socket that only waits for those would wait for ever.
    pub fn expect_errors(&self) {
        self.backend.expect_errors();
    }

    /// The next error the network or this host reported about a datagram sent earlier, until
    /// `None`. Cheap when there is none. Call it after a receive or send, a bounded number of
    /// times: waiting errors take up receive buffer, and a stranger can send any number. Above
    /// a thousand a second they are ignored for a second ([`Counters::icmp_pauses`]).
    ///
    /// # Errors
    /// The system's, if the socket is broken.
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
