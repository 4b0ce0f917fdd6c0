//! Sessions.

use std::convert::Infallible;
use std::future::{Future, poll_fn};
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use clearway_http3::Code;
use clearway_http3::error as protocol;
use clearway_http3::webtransport::{IncomingStream, SessionEnd};
use clearway_quic::connection::ConnectionError;
use clearway_quic::stream::{Directionality, StreamId};

use super::state::wait_in;
use super::stream::{RecvStream, SendStream, StreamGuard};
use crate::connection::{Connection, SendSlot, Signal};
use crate::http::error::Error;
use crate::http::request_stream::RequestStream;
use crate::http::tunnel::{Tunnel, TunnelDatagramError, TunnelDatagrams, TunnelOffer};
use crate::http::view::HttpView;

/// A WebTransport session. Clones are handles of the same session; when the last is dropped, those
/// of its streams included, it is closed with code 0 and no reason.
#[derive(Clone, Debug)]
pub struct WebTransportSession(Arc<Inner>);

#[derive(Debug)]
pub(super) struct Inner {
    stream: RequestStream,
    datagrams: TunnelDatagrams,
    offer: Option<Arc<TunnelOffer>>,
    protocol: Option<String>,
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.close(0, "");
    }
}

/// Why a session cannot be used any more.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SessionError {
    /// The peer closed it with this code and reason; it ended its stream without a close if both are
    /// 0 and empty.
    #[error("the peer closed the session with code {code}: {reason:?}")]
    Closed {
        /// The application's error code.
        code: u32,
        /// The reason.
        reason: String,
    },
    /// This side closed it.
    #[error("the session was closed here")]
    ClosedHere,
    /// The peer reset the session's stream with this code of HTTP/3.
    #[error("the peer reset the session: {0}")]
    Reset(Code),
    /// What the peer sent on the session's stream is malformed.
    #[error("the peer sent a malformed message on the session's stream: {0}")]
    Malformed(protocol::StreamError),
    /// The connection ended, or the request was refused or cancelled.
    #[error(transparent)]
    Ended(Error),
}

impl From<ConnectionError> for SessionError {
    fn from(error: ConnectionError) -> Self {
        Self::Ended(error.into())
    }
}

impl From<SessionEnd> for SessionError {
    fn from(end: SessionEnd) -> Self {
        match end {
            SessionEnd::Local => Self::ClosedHere,
            SessionEnd::Closed(close) => Self::Closed {
                code: close.code,
                reason: close.reason,
            },
            SessionEnd::Reset(code) => Self::Reset(code),
            SessionEnd::Failed(error) => Self::Malformed(error),
            SessionEnd::Refused => Self::Ended(Error::Rejected),
        }
    }
}

impl WebTransportSession {
    pub(super) fn new(
        stream: RequestStream,
        offer: Option<Arc<TunnelOffer>>,
        protocol: Option<String>,
    ) -> Self {
        let datagrams = TunnelDatagrams::new(stream.clone(), None);
        Self(Arc::new(Inner {
            stream,
            datagrams,
            offer,
            protocol,
        }))
    }

    /// Returns the protocol that was chosen of those that the client offered.
    #[must_use]
    pub fn protocol(&self) -> Option<&str> {
        self.0.protocol.as_deref()
    }

    /// Returns the connection, which carries other sessions and requests too.
    #[must_use]
    pub fn connection(&self) -> Connection {
        Connection::new(self.0.stream.connection().clone())
    }

    /// Accepts the next unidirectional stream that the peer opens. Cancel-safe.
    ///
    /// # Errors
    /// Why the session ended.
    pub async fn accept_uni(&self) -> Result<RecvStream, SessionError> {
        let stream = self.accept(Directionality::Unidirectional).await?;
        Ok(RecvStream::new(self.guard(stream.id), stream.buffered))
    }

    /// Accepts the next bidirectional stream that the peer opens. Cancel-safe.
    ///
    /// # Errors
    /// Why the session ended.
    pub async fn accept_bi(&self) -> Result<(SendStream, RecvStream), SessionError> {
        let stream = self.accept(Directionality::Bidirectional).await?;
        let guard = self.guard(stream.id);
        let send = SendStream::of_peer(guard.clone());
        Ok((send, RecvStream::new(guard, stream.buffered)))
    }

    /// Opens a unidirectional stream, waiting while the peer's limit on streams is reached.
    ///
    /// # Errors
    /// Why the session ended.
    pub async fn open_uni(&self) -> Result<SendStream, SessionError> {
        let (id, header) = self.open(Directionality::Unidirectional).await?;
        Ok(SendStream::opened(self.guard(id), header))
    }

    /// Opens a bidirectional stream, waiting while the peer's limit on streams is reached.
    ///
    /// # Errors
    /// Why the session ended.
    pub async fn open_bi(&self) -> Result<(SendStream, RecvStream), SessionError> {
        let (id, header) = self.open(Directionality::Bidirectional).await?;
        let guard = self.guard(id);
        let send = SendStream::opened(guard.clone(), header);
        Ok((send, RecvStream::new(guard, Bytes::new())))
    }

    /// Queues a datagram to be sent: it may be lost, and may overtake others.
    ///
    /// # Errors
    /// See [`TunnelDatagramError`].
    pub fn send_datagram(&self, payload: &[u8]) -> Result<(), TunnelDatagramError> {
        self.0.datagrams.send(payload)
    }

    /// Queues a datagram to be sent, waiting while the queue is full. Cancel-safe.
    ///
    /// # Errors
    /// See [`TunnelDatagramError`], except `Blocked`.
    pub async fn send_datagram_wait(&self, payload: &[u8]) -> Result<(), TunnelDatagramError> {
        self.0.datagrams.send_wait(payload).await
    }

    /// Returns the next datagram. Cancel-safe; one task at a time can wait for it. Up to 512
    /// received datagrams, or 256 KiB of them, wait to be read; beyond that the oldest are dropped
    /// and [counted](Self::dropped_datagrams).
    ///
    /// # Errors
    /// Why the session ended.
    pub async fn recv_datagram(&self) -> Result<Bytes, SessionError> {
        let received = poll_fn(|cx| self.0.datagrams.poll_recv(cx)).await;
        match received {
            Ok(Some(datagram)) => Ok(datagram),
            Ok(None) => Err(self.closed().await),
            Err(error) => Err(self.end().unwrap_or(SessionError::Ended(error))),
        }
    }

    /// Returns the size of the largest datagram that could be sent now, in bytes; `None` if
    /// datagrams are not enabled at both ends.
    #[must_use]
    pub fn max_datagram_size(&self) -> Option<usize> {
        self.0.datagrams.max_size()
    }

    /// Returns how many received datagrams were dropped because they were not read in time.
    #[must_use]
    pub fn dropped_datagrams(&self) -> u64 {
        self.0.datagrams.dropped()
    }

    /// Closes the session with an error code and a reason of at most 1,024 bytes. Its streams are
    /// reset in both directions: data that was not delivered is lost. Does nothing if it is closed.
    pub fn close(&self, code: u32, reason: &str) {
        self.0.close(code, reason);
    }

    /// Waits until the session ends, and returns why.
    pub async fn closed(&self) -> SessionError {
        let stream = &self.0.stream;
        let ended: Result<Infallible, SessionError> = poll_fn(|cx| {
            stream.call(|view, id| match end(view, id) {
                Some(error) => Poll::Ready(Err(error)),
                None => watch(view, id, cx),
            })
        })
        .await;
        match ended {
            Err(error) => error,
        }
    }

    /// Asks the peer to end the session soon. Nothing else changes.
    pub fn drain(&self) {
        (self.0.stream).call(|view, id| view.layer.h3.drain_session(view.quic, id));
    }

    /// Waits until the peer asks to end the session soon, or shuts the connection down.
    ///
    /// # Errors
    /// Why the session ended.
    pub async fn draining(&self) -> Result<(), SessionError> {
        let stream = &self.0.stream;
        poll_fn(|cx| {
            stream.call(|view, id| {
                if let Some(error) = end(view, id) {
                    return Poll::Ready(Err(error));
                }
                let draining = view.layer.session_mut(id).is_some_and(|it| it.draining);
                if draining || view.layer.h3.is_going_away() {
                    return Poll::Ready(Ok(()));
                }
                watch(view, id, cx)
            })
        })
        .await
    }

    /// Completes when this side's server shuts down
    /// ([`Server::shutdown`](crate::http::Server::shutdown)), which waits for sessions to end until
    /// its patience is over. Never completes on a client.
    pub fn shutdown_begins(&self) -> impl Future<Output = ()> + Send + 'static {
        let tunnel = self.0.offer.as_ref().map(Tunnel::of);
        async move {
            match tunnel {
                Some(tunnel) => {
                    let begins = tunnel.shutdown_begins();
                    drop(tunnel);
                    begins.await;
                }
                None => std::future::pending().await,
            }
        }
    }

    fn guard(&self, id: StreamId) -> Arc<StreamGuard> {
        Arc::new(StreamGuard::new(self.clone(), id))
    }

    pub(super) fn stream(&self) -> &RequestStream {
        &self.0.stream
    }

    /// Returns why the session ended, if it has.
    fn end(&self) -> Option<SessionError> {
        let ended = self.0.stream.look(|view, id| Ok(end(view, id)));
        let ended: Result<Option<SessionError>, SessionError> = ended;
        ended.unwrap_or_else(Some)
    }

    async fn accept(&self, kind: Directionality) -> Result<IncomingStream, SessionError> {
        let stream = &self.0.stream;
        poll_fn(|cx| {
            stream.call(|view, id| {
                if let Some(accepted) = view.layer.h3.accept_session_stream(id, kind) {
                    if kind == Directionality::Bidirectional {
                        view.sends.insert(accepted.id, SendSlot::default());
                    }
                    return Poll::Ready(Ok(accepted));
                }
                if let Some(error) = end(view, id) {
                    return Poll::Ready(Err(error));
                }
                if let Some(session) = view.layer.session_mut(id) {
                    wait_in(session.acceptors(kind), cx);
                }
                Poll::Pending
            })
        })
        .await
    }

    async fn open(&self, kind: Directionality) -> Result<(StreamId, Bytes), SessionError> {
        let signal = match kind {
            Directionality::Bidirectional => Signal::AvailableBi,
            Directionality::Unidirectional => Signal::AvailableUni,
        };
        let open = |view: &mut HttpView<'_>, session| {
            if let Some(error) = end(view, session) {
                return Some(Err(error));
            }
            let (id, header) = (view.layer.h3).open_session_stream(view.quic, session, kind)?;
            view.sends.insert(id, SendSlot::default());
            Some(Ok((id, header)))
        };
        self.0.stream.call_when(signal, open).await
    }
}

impl Inner {
    fn close(&self, code: u32, reason: &str) {
        (self.stream).call(|view, id| view.layer.h3.close_session(view.quic, id, code, reason));
    }
}

/// Returns why a session ended, if it has.
fn end(view: &mut HttpView<'_>, id: StreamId) -> Option<SessionError> {
    let session = view.layer.session_mut(id);
    if let Some(end) = session.and_then(|session| session.end.clone()) {
        return Some(end.into());
    }
    view.cause().map(SessionError::Ended)
}

/// Waits for the end of a session, or that it comes soon.
fn watch<T>(view: &mut HttpView<'_>, id: StreamId, cx: &Context<'_>) -> Poll<T> {
    if let Some(session) = view.layer.session_mut(id) {
        wait_in(&mut session.watchers, cx);
    }
    Poll::Pending
}
