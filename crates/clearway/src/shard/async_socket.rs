//! A socket with its readiness, from the runtime or from itself.

use std::io;
use std::sync::Arc;

use clearway_udp::{DatagramSocket, Events, Readiness, ReadinessSource};
use std::future::poll_fn;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use super::{SocketFd, watch};

/// A socket, and how the event loop learns that it is ready.
pub(super) struct AsyncSocket {
    socket: Arc<dyn DatagramSocket>,
    source: Source,
}

enum Source {
    Descriptor(AsyncFd<SocketFd>),
    Flags(Arc<Readiness>),
}

impl AsyncSocket {
    /// Registers the socket with the tokio runtime, if it has a descriptor.
    pub(super) fn new(socket: Arc<dyn DatagramSocket>) -> io::Result<Self> {
        let source = match socket.readiness() {
            ReadinessSource::Flags(readiness, _) => Source::Flags(readiness),
            ReadinessSource::Descriptor(descriptor) => {
                let descriptor = SocketFd::new(descriptor, socket.clone());
                let interest = Interest::READABLE | Interest::WRITABLE | Interest::ERROR;
                Source::Descriptor(watch(descriptor, interest)?)
            }
        };
        Ok(Self { socket, source })
    }

    /// Returns another handle of the socket, which keeps it open.
    pub(super) fn handle(&self) -> Arc<dyn DatagramSocket> {
        self.socket.clone()
    }

    pub(super) fn get_ref(&self) -> &dyn DatagramSocket {
        &*self.socket
    }

    /// Calls `act` if the socket is ready for `interest`, and forgets that it is if `act` would
    /// block, as `AsyncFd::try_io` does.
    ///
    /// # Errors
    /// `WouldBlock` if it is not ready; otherwise the error of `act`.
    pub(super) fn try_io<R>(
        &self,
        interest: Interest,
        act: impl FnOnce(&dyn DatagramSocket) -> io::Result<R>,
    ) -> io::Result<R> {
        let readiness = match &self.source {
            Source::Descriptor(descriptor) => {
                return descriptor.try_io(interest, |_| act(&*self.socket));
            }
            Source::Flags(readiness) => readiness,
        };
        let observed = readiness.get();
        if !observed.ready.intersects(events(interest)) {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        let done = act(&*self.socket);
        if matches!(&done, Err(error) if error.kind() == io::ErrorKind::WouldBlock) {
            readiness.clear(events(interest), observed);
        }
        done
    }

    /// Waits for readiness.
    pub(super) async fn ready(&self, interest: Interest) -> io::Result<()> {
        match &self.source {
            Source::Descriptor(descriptor) => descriptor.ready(interest).await.map(|_| ()),
            Source::Flags(readiness) => {
                poll_fn(|cx| readiness.poll_ready(cx, events(interest))).await;
                Ok(())
            }
        }
    }
}

fn events(interest: Interest) -> Events {
    Events {
        readable: interest.is_readable(),
        writable: interest.is_writable(),
        error: interest.is_error(),
    }
}
