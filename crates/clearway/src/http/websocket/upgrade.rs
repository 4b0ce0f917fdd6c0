//! What axum's extractor expects of an HTTP server: hyper's `OnUpgrade`.
//!
//! Only hyper can make one, and only for a connection that it serves. So there is one, in memory
//! and for an instant: it reads a canned HTTP/1.1 request, whose `OnUpgrade` is given to the real
//! request. When the service has accepted that, hyper answers 101, which nobody reads, and passes
//! on its transport, which from then on is the tunnel.

use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body_util::Empty;
use hyper::rt::{Read, ReadBufCursor, Write};
use hyper::server::conn::http1;
use hyper::upgrade::OnUpgrade;
use tokio::io::{AsyncRead as _, AsyncWrite as _, ReadBuf};
use tokio::sync::oneshot;

use super::PROTOCOL;
use super::io::TunnelIo;
use crate::http::error::BoxError;
use crate::http::message::Protocol;

/// The request that hyper reads.
const REQUEST: &[u8] = b"GET / HTTP/1.1\r\nconnection: upgrade\r\nupgrade: websocket\r\n\r\n";

/// The end of its response.
const HEAD_END: [u8; 4] = *b"\r\n\r\n";

/// Most bytes that one read asks the tunnel for.
const MAX_READ: usize = 16 << 10;

type UpgradeConnection = Pin<Box<dyn Future<Output = Result<(), hyper::Error>> + Send>>;

/// An upgrade that a service may accept.
pub(in crate::http) struct Upgrade {
    connection: UpgradeConnection,
    accept: oneshot::Sender<()>,
    tunnel: TunnelSlot,
}

/// Where the tunnel is put before hyper passes its transport on.
type TunnelSlot = Arc<Mutex<Option<TunnelIo>>>;

impl Upgrade {
    /// Adds to a WebSocket request what hyper's requests have; `None` for other requests.
    pub(in crate::http) fn offer<B>(request: &mut Request<B>) -> Option<Self> {
        let protocol = request.extensions().get::<Protocol>()?;
        if protocol.name() != PROTOCOL.as_bytes() {
            return None;
        }
        let (upgrade, on_upgrade) = Self::begin()?;
        let extensions = request.extensions_mut();
        extensions.insert(on_upgrade);
        extensions.insert(hyper::ext::Protocol::from_static(PROTOCOL));
        Some(upgrade)
    }

    fn begin() -> Option<(Self, OnUpgrade)> {
        let (give, mut given) = oneshot::channel();
        let (accept, accepted) = oneshot::channel();
        let parts = Mutex::new(Some((give, accepted)));
        let service = hyper::service::service_fn(move |mut request| {
            let parts = parts.lock().unwrap_or_else(PoisonError::into_inner).take();
            async move {
                // hyper reads one request only.
                let (give, accepted) = parts.ok_or("a second request")?;
                let _ = give.send(hyper::upgrade::on(&mut request));
                accepted.await.map_err(|_| "the upgrade was refused")?;
                Response::builder()
                    .status(StatusCode::SWITCHING_PROTOCOLS)
                    .header("connection", "upgrade")
                    .header("upgrade", PROTOCOL)
                    .body(Empty::<Bytes>::new())
                    .map_err(BoxError::from)
            }
        });
        let tunnel = TunnelSlot::default();
        let transport = Transport {
            state: TransportState::Request(REQUEST),
            tunnel: tunnel.clone(),
        };
        let connection = http1::Builder::new()
            .header_read_timeout(None)
            .serve_connection(transport, service)
            .with_upgrades();
        let mut connection: UpgradeConnection = Box::pin(connection);
        // Everything it reads is there, so that one poll gets as far as the service.
        let polled = connection
            .as_mut()
            .poll(&mut Context::from_waker(Waker::noop()));
        let on_upgrade = given.try_recv().ok()?;
        let upgrade = Self {
            connection,
            accept,
            tunnel,
        };
        polled.is_pending().then_some((upgrade, on_upgrade))
    }

    /// Gives the tunnel to whoever waits for the upgrade.
    pub(in crate::http) async fn complete(self, tunnel: TunnelIo) {
        *self.tunnel.lock().unwrap_or_else(PoisonError::into_inner) = Some(tunnel);
        let _ = self.accept.send(());
        if let Err(error) = self.connection.await {
            tracing::error!(%error, "a WebSocket was not passed on");
        }
    }
}

/// The transport of that connection.
struct Transport {
    state: TransportState,
    tunnel: TunnelSlot,
}

enum TransportState {
    /// This is left of the request.
    Request(&'static [u8]),
    /// The response is being written: so many bytes of its end were seen.
    Response(usize),
    Open(TunnelIo),
    /// There is no tunnel.
    Closed,
}

impl Transport {
    /// Drops bytes of the response, up to its end. Returns how many those were.
    fn skip_response(&mut self, data: &[u8]) -> usize {
        let mut seen = match self.state {
            TransportState::Request(_) => 0,
            TransportState::Response(seen) => seen,
            TransportState::Open(_) | TransportState::Closed => return 0,
        };
        for (index, &byte) in data.iter().enumerate() {
            seen = if HEAD_END.get(seen) == Some(&byte) {
                seen.saturating_add(1)
            } else {
                usize::from(byte == b'\r')
            };
            if seen == HEAD_END.len() {
                let tunnel = &mut *self.tunnel.lock().unwrap_or_else(PoisonError::into_inner);
                let tunnel = tunnel.take();
                self.state = tunnel.map_or(TransportState::Closed, TransportState::Open);
                return index.saturating_add(1);
            }
        }
        self.state = TransportState::Response(seen);
        data.len()
    }

    fn open(&mut self) -> io::Result<Pin<&mut TunnelIo>> {
        match &mut self.state {
            TransportState::Open(tunnel) => Ok(Pin::new(tunnel)),
            TransportState::Request(_) | TransportState::Response(_) | TransportState::Closed => {
                Err(io::ErrorKind::NotConnected.into())
            }
        }
    }
}

impl Read for Transport {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        mut buffer: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        match &mut self.state {
            TransportState::Request(left) if !left.is_empty() => {
                let (now, later) = left.split_at(left.len().min(buffer.remaining()));
                buffer.put_slice(now);
                *left = later;
                Poll::Ready(Ok(()))
            }
            // Whoever gets the transport reads again.
            TransportState::Request(_) | TransportState::Response(_) => Poll::Pending,
            TransportState::Open(tunnel) => {
                let mut data = [0; MAX_READ];
                let most = buffer.remaining().min(MAX_READ);
                let mut read = ReadBuf::new(data.get_mut(..most).unwrap_or_default());
                let polled = Pin::new(tunnel).poll_read(cx, &mut read);
                buffer.put_slice(read.filled());
                polled
            }
            TransportState::Closed => Poll::Ready(Ok(())),
        }
    }
}

impl Write for Transport {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        data: &[u8],
    ) -> Poll<io::Result<usize>> {
        match self.skip_response(data) {
            0 => self.open()?.poll_write(cx, data),
            skipped => Poll::Ready(Ok(skipped)),
        }
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.state {
            TransportState::Open(tunnel) => Pin::new(tunnel).poll_flush(cx),
            TransportState::Request(_) | TransportState::Response(_) | TransportState::Closed => {
                Poll::Ready(Ok(()))
            }
        }
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.state {
            TransportState::Open(tunnel) => Pin::new(tunnel).poll_shutdown(cx),
            TransportState::Request(_) | TransportState::Response(_) | TransportState::Closed => {
                Poll::Ready(Ok(()))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_websocket_requests_get_an_upgrade() {
        let mut request = Request::new(());
        assert!(Upgrade::offer(&mut request).is_none());
        request.extensions_mut().insert(Protocol::new("other"));
        assert!(Upgrade::offer(&mut request).is_none());
        request.extensions_mut().insert(Protocol::new("websocket"));
        assert!(Upgrade::offer(&mut request).is_some());
        assert!(request.extensions().get::<OnUpgrade>().is_some());
    }

    #[tokio::test]
    async fn upgrade_that_is_not_completed_fails() {
        let (upgrade, on_upgrade) = Upgrade::begin().unwrap();
        drop(upgrade);
        assert!(on_upgrade.await.is_err());
    }

    #[test]
    fn response_is_skipped_exactly_however_it_is_written() {
        let response = b"HTTP/1.1 101\r\na: b\r\n\r\n";
        for size in 1..=response.len() + 4 {
            let mut transport = Transport {
                state: TransportState::Request(b""),
                tunnel: TunnelSlot::default(),
            };
            let all = [&response[..], b"data"].concat();
            let skipped: usize = all
                .chunks(size)
                .map(|piece| transport.skip_response(piece))
                .sum();
            assert_eq!(skipped, response.len(), "{size}");
            assert!(matches!(transport.state, TransportState::Closed));
        }
    }
}
