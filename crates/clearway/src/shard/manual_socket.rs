//! A socket whose readiness is set by a test, as an event of the kernel would.

use std::future::pending;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use clearway_udp::DatagramSocket;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use super::SocketFd;

/// Takes the place of `AsyncFd` in tests.
pub(super) enum AsyncSocket {
    Runtime(AsyncFd<SocketFd>),
    Manual(SocketFd, Readiness),
}

/// Readiness that the runtime would have been notified of, and that is not used up yet.
#[derive(Clone, Debug, Default)]
pub(super) struct Readiness {
    pub(super) readable: Arc<AtomicBool>,
    pub(super) writable: Arc<AtomicBool>,
    pub(super) error: Arc<AtomicBool>,
}

impl Readiness {
    /// Whether any of `interest` is ready.
    fn has(&self, interest: Interest) -> bool {
        let readable = interest.is_readable() && self.readable.load(Ordering::Acquire);
        let writable = interest.is_writable() && self.writable.load(Ordering::Acquire);
        let error = interest.is_error() && self.error.load(Ordering::Acquire);
        readable || writable || error
    }

    fn clear(&self, interest: Interest) {
        if interest.is_readable() {
            self.readable.store(false, Ordering::Release);
        }
        if interest.is_writable() {
            self.writable.store(false, Ordering::Release);
        }
        if interest.is_error() {
            self.error.store(false, Ordering::Release);
        }
    }
}

impl AsyncSocket {
    pub(super) fn manual(socket: Arc<dyn DatagramSocket>, readiness: Readiness) -> Self {
        Self::Manual(SocketFd(socket), readiness)
    }

    pub(super) fn get_ref(&self) -> &SocketFd {
        match self {
            Self::Runtime(socket) => socket.get_ref(),
            Self::Manual(socket, _) => socket,
        }
    }

    /// Works as `AsyncFd::try_io`: needs readiness, which is used up if `act` would block.
    pub(super) fn try_io<R>(
        &self,
        interest: Interest,
        act: impl FnOnce(&SocketFd) -> io::Result<R>,
    ) -> io::Result<R> {
        let (socket, readiness) = match self {
            Self::Runtime(socket) => return socket.try_io(interest, act),
            Self::Manual(socket, readiness) => (socket, readiness),
        };
        if !readiness.has(interest) {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        let done = act(socket);
        if matches!(&done, Err(error) if error.kind() == io::ErrorKind::WouldBlock) {
            readiness.clear(interest);
        }
        done
    }

    /// Waits for readiness. A test that sets it polls again.
    pub(super) async fn ready(&self, interest: Interest) -> io::Result<()> {
        match self {
            Self::Runtime(socket) => socket.ready(interest).await.map(|_| ()),
            Self::Manual(_, readiness) if readiness.has(interest) => Ok(()),
            Self::Manual(..) => pending().await,
        }
    }
}
