//! The datagrams of a tunnel (RFC 9297 §2).

use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use clearway_http3::{DatagramError, SendError};
use clearway_quic::connection::ConnectionError;
use clearway_quic::datagram::SendDatagramError;
use clearway_quic::stream::StreamId;

use super::TunnelOffer;
use crate::connection::Signal;
use crate::http::error::Error;
use crate::http::request_stream::RequestStream;
use crate::http::view::HttpView;

/// The datagrams of a [`Tunnel`](super::Tunnel): messages that may be lost or arrive in another
/// order, in QUIC DATAGRAM frames.
///
/// Up to 512 received datagrams, or 256 KiB of them, wait to be read; a connection's tunnels
/// together keep 1 MiB. Beyond that the oldest are dropped and counted.
#[derive(Debug)]
pub struct TunnelDatagrams {
    stream: RequestStream,
    _offer: Option<Arc<TunnelOffer>>,
}

/// The error of sending a datagram through a tunnel.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TunnelDatagramError {
    /// HTTP datagrams are not enabled at both ends: DATAGRAM capsules can be sent instead
    /// ([`TunnelSender::send_capsule`](super::TunnelSender::send_capsule)).
    #[error("HTTP datagrams are not enabled at both ends (SETTINGS_H3_DATAGRAM)")]
    Unsupported,
    /// The datagram does not fit into a packet on this path.
    #[error("datagram too large: at most {max} bytes fit into a packet now")]
    TooLarge {
        /// The largest datagram that could be sent now, in bytes.
        max: usize,
    },
    /// The queue of outgoing datagrams is full. [`TunnelDatagrams::send_wait`] waits for room.
    #[error("the queue of outgoing datagrams is full")]
    Blocked,
    /// The tunnel has ended.
    #[error("the tunnel has ended: {0}")]
    Ended(Error),
}

impl From<ConnectionError> for TunnelDatagramError {
    fn from(error: ConnectionError) -> Self {
        Self::Ended(error.into())
    }
}

impl TunnelDatagrams {
    pub(in crate::http) fn new(stream: RequestStream, offer: Option<Arc<TunnelOffer>>) -> Self {
        Self {
            stream,
            _offer: offer,
        }
    }

    /// Queues a datagram to be sent.
    ///
    /// # Errors
    /// See [`TunnelDatagramError`].
    pub fn send(&self, payload: &[u8]) -> Result<(), TunnelDatagramError> {
        self.stream.call(|view, id| send(view, id, payload))
    }

    /// Queues a datagram to be sent, waiting while the queue is full. Cancel-safe.
    ///
    /// # Errors
    /// See [`TunnelDatagramError`], except `Blocked`.
    pub async fn send_wait(&self, payload: &[u8]) -> Result<(), TunnelDatagramError> {
        let attempt = |view: &mut HttpView<'_>, id| match send(view, id, payload) {
            Err(TunnelDatagramError::Blocked) => None,
            result => Some(result),
        };
        self.stream.call_when(Signal::DatagramRoom, attempt).await
    }

    /// Returns the next datagram, or `None` when the peer has ended its half of the tunnel.
    /// Cancel-safe.
    ///
    /// # Errors
    /// If the peer has reset the tunnel, or the connection has ended.
    pub async fn recv(&mut self) -> Result<Option<Bytes>, Error> {
        poll_fn(|cx| self.poll_recv(cx)).await
    }

    /// Returns the size of the largest datagram that could be sent now, in bytes; `None` if
    /// datagrams are not enabled at both ends. It changes with the path.
    #[must_use]
    pub fn max_size(&self) -> Option<usize> {
        let max = (self.stream).look(|view, id| Ok(view.layer.h3.max_datagram_size(view.quic, id)));
        let max: Result<Option<usize>, Error> = max;
        max.ok()?
    }

    /// Returns how many received datagrams were dropped because they were not read in time.
    #[must_use]
    pub fn dropped(&self) -> u64 {
        let dropped: Result<u64, Error> = self.stream.look(|view, id| {
            let queue = view.layer.exchange(id).and_then(|it| it.datagrams.as_ref());
            Ok(queue.map_or(0, |queue| queue.dropped()))
        });
        dropped.unwrap_or(0)
    }

    pub(in crate::http) fn poll_recv(
        &self,
        cx: &Context<'_>,
    ) -> Poll<Result<Option<Bytes>, Error>> {
        let received = self
            .stream
            .look(|view, id| view.poll_datagram(id, cx.waker()));
        match received {
            Ok(received) => received.map(Ok),
            Err(error) => Poll::Ready(Err(error)),
        }
    }
}

fn send(view: &mut HttpView<'_>, id: StreamId, payload: &[u8]) -> Result<(), TunnelDatagramError> {
    if let Some(cause) = view.cause() {
        return Err(TunnelDatagramError::Ended(cause));
    }
    let sent = view.layer.h3.send_datagram(view.quic, id, payload);
    sent.map_err(|error| match error {
        DatagramError::Unsupported | DatagramError::Transport(SendDatagramError::Unsupported) => {
            TunnelDatagramError::Unsupported
        }
        DatagramError::Unknown => {
            let wanted = view.check_response_wanted(id).err();
            let ended = Error::Unsendable(SendError::Unknown);
            TunnelDatagramError::Ended(wanted.unwrap_or(ended))
        }
        DatagramError::Transport(SendDatagramError::TooLarge { .. }) => {
            let max = view.layer.h3.max_datagram_size(view.quic, id);
            TunnelDatagramError::TooLarge {
                max: max.unwrap_or(0),
            }
        }
        DatagramError::Transport(SendDatagramError::Full) => TunnelDatagramError::Blocked,
    })
}
