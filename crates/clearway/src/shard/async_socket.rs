//! A socket with its readiness, from the runtime or from itself.

use std::future::poll_fn;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use clearway_quic::Instant;
use clearway_udp::{DatagramSocket, Events, Readiness, ReadinessSource};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use super::{SocketFd, watch};

/// A socket, and how the event loop learns that it is ready.
pub(super) struct AsyncSocket {
    socket: Arc<dyn DatagramSocket>,
    source: Source,
}

enum Source {
    /// Its descriptor, and whether it is writable while that is of interest.
    Descriptor(AsyncFd<SocketFd>, Option<WritableWatch>),
    Flags(Arc<Readiness>),
}

/// A duplicate of the socket's descriptor that is registered for writing alone.
///
/// Registered for both, the socket would wake the runtime each time that the network has taken what
/// was sent: about as often as datagrams arrive.
struct WritableWatch {
    descriptor: AsyncFd<OwnedFd>,
    /// When the socket was last full.
    needed_at: Instant,
}

/// How long a watch is kept after the socket was full: a socket that is full often would otherwise
/// cost some system calls each time.
const WATCH_TIME: Duration = Duration::from_secs(1);

impl AsyncSocket {
    /// Registers the socket with the tokio runtime, if it has a descriptor.
    pub(super) fn new(socket: Arc<dyn DatagramSocket>) -> io::Result<Self> {
        let source = match socket.readiness() {
            ReadinessSource::Flags(readiness, _) => Source::Flags(readiness),
            ReadinessSource::Descriptor(descriptor) => {
                let descriptor = SocketFd::new(descriptor, socket.clone());
                Source::Descriptor(
                    watch(descriptor, Interest::READABLE | Interest::ERROR)?,
                    None,
                )
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
            Source::Descriptor(_, writable) if interest.is_writable() => {
                let Some(writable) = writable else {
                    return Err(io::ErrorKind::WouldBlock.into());
                };
                let watched = &writable.descriptor;
                return watched.try_io(Interest::WRITABLE, |_| act(&*self.socket));
            }
            Source::Descriptor(descriptor, _) => {
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

    /// Begins to watch whether the socket is writable if it `is_full`, and ends it some time after
    /// that.
    pub(super) fn watch_writable(&mut self, is_full: bool, now: Instant) {
        let Source::Descriptor(_, writable) = &mut self.source else {
            return;
        };
        match writable {
            Some(watched) if is_full => watched.needed_at = now,
            Some(watched) if now.saturating_since(watched.needed_at) > WATCH_TIME => {
                *writable = None;
            }
            None if is_full => {
                // Without it, for want of descriptors, blocked trains are tried again by time.
                let duplicate = match self.socket.readiness() {
                    ReadinessSource::Descriptor(fd) => fd.try_clone_to_owned(),
                    ReadinessSource::Flags(..) => return,
                };
                let watched = duplicate.and_then(|fd| watch(fd, Interest::WRITABLE));
                *writable = watched.ok().map(|descriptor| WritableWatch {
                    descriptor,
                    needed_at: now,
                });
            }
            Some(_) | None => {}
        }
    }

    /// Waits for readiness. That a socket with a descriptor is writable is noticed only after
    /// [`watch_writable`](Self::watch_writable).
    ///
    /// # Errors
    /// If the runtime has shut down.
    pub(super) async fn ready(&self, interest: Interest) -> io::Result<()> {
        match &self.source {
            Source::Descriptor(descriptor, Some(writable)) if interest.is_writable() => {
                // The readable side has its errors too.
                tokio::select! {
                    ready = descriptor.ready(Interest::READABLE | Interest::ERROR) => ready.map(drop),
                    ready = writable.descriptor.ready(Interest::WRITABLE) => ready.map(drop),
                }
            }
            Source::Descriptor(descriptor, _) => {
                let interest = interest
                    .remove(Interest::WRITABLE)
                    .unwrap_or(Interest::READABLE);
                descriptor.ready(interest).await.map(drop)
            }
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;

    use clearway_udp::{Options, Socket};
    use tokio::time::timeout;

    const NOW: Instant = Instant::from_nanos(1_000_000_000);

    fn writes(socket: &AsyncSocket) -> bool {
        socket.try_io(Interest::WRITABLE, |_| Ok(())).is_ok()
    }

    #[tokio::test]
    async fn writable_socket_is_noticed_only_while_it_is_watched() {
        let address = (Ipv4Addr::LOCALHOST, 0).into();
        let socket = Socket::bind(address, &Options::default()).unwrap();
        let mut socket = AsyncSocket::new(Arc::new(socket)).unwrap();
        let both = Interest::READABLE | Interest::WRITABLE;
        let ready = timeout(Duration::from_millis(20), socket.ready(both));
        assert!(ready.await.is_err());
        assert!(!writes(&socket));

        socket.watch_writable(true, NOW);
        socket.ready(both).await.unwrap();
        assert!(writes(&socket));
        // It may soon be full again.
        socket.watch_writable(false, NOW + WATCH_TIME);
        assert!(writes(&socket));
        socket.watch_writable(false, NOW + WATCH_TIME * 2);
        assert!(!writes(&socket));
    }
}
