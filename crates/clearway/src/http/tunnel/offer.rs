//! A server's request for a tunnel, and whether it was accepted.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use clearway_http3::{Code, SendError};
use http::header::CONTENT_LENGTH;
use http::{Response, response};

use super::{TunnelDatagrams, TunnelReceiver, TunnelSender};
use crate::http::error::Error;
use crate::http::message;
use crate::http::request_stream::RequestStream;
use crate::http::server_state::{Permit, TunnelPermit};

/// A tunnel that a client asks for with CONNECT: an extension of such requests on a server.
///
/// [`accept`](Self::accept) answers the request and returns the tunnel. What the handler returns
/// afterwards is ignored. If the tunnel is not accepted, the handler's response is sent as for any
/// other request; a 2xx response with a body opens a tunnel too, in which the two bodies are the
/// halves.
///
/// The tunnel lives as long as its halves, also after the handler has returned. Until it is
/// accepted, a handler is dropped when its client gives up; afterwards the halves return errors.
///
/// ```
/// use axum::Extension;
/// use clearway::http::Tunnel;
/// use http::{Response, StatusCode};
///
/// async fn echo(Extension(tunnel): Extension<Tunnel>) -> StatusCode {
///     let Ok((mut tx, mut rx, _datagrams)) = tunnel.accept(Response::new(())).await else {
///         return StatusCode::BAD_REQUEST;
///     };
///     while let Ok(Some(data)) = rx.chunk().await {
///         if tx.send(data).await.is_err() {
///             break;
///         }
///     }
///     let _ = tx.finish();
///     StatusCode::OK
/// }
/// # let _: axum::Router = axum::Router::new().route("/echo", axum::routing::any(echo));
/// ```
#[derive(Clone, Debug)]
pub struct Tunnel(Arc<TunnelOffer>);

/// What handlers, halves and the request's body share.
#[derive(Debug)]
pub(in crate::http) struct TunnelOffer {
    stream: RequestStream,
    stage: AtomicU8,
    /// The request came as early data.
    early: bool,
    /// Returned when the last handle is dropped.
    permit: TunnelPermit,
    _request: Permit,
}

/// Nothing was answered yet.
const OFFERED: u8 = 0;
/// The tunnel was accepted.
const ACCEPTED: u8 = 1;
/// The handler's response is sent.
const ANSWERED: u8 = 2;

impl TunnelOffer {
    pub(in crate::http) fn new(
        stream: RequestStream,
        early: bool,
        permit: TunnelPermit,
        request: Permit,
    ) -> Arc<Self> {
        Arc::new(Self {
            stream,
            stage: AtomicU8::new(OFFERED),
            early,
            permit,
            _request: request,
        })
    }

    pub(in crate::http) fn tunnel(self: &Arc<Self>) -> Tunnel {
        Tunnel(self.clone())
    }

    pub(in crate::http) fn is_accepted(&self) -> bool {
        self.stage.load(Ordering::Acquire) == ACCEPTED
    }

    /// The handler's response is about to be sent. Returns false if the tunnel was accepted.
    pub(in crate::http) fn answer(&self) -> bool {
        self.advance(ANSWERED)
    }

    /// Accepts the tunnel with this response, and returns its stream. Returns `None` if it was
    /// answered before.
    pub(in crate::http) fn accept_stream(
        &self,
        mut response: response::Parts,
    ) -> Option<Result<RequestStream, Error>> {
        if !self.advance(ACCEPTED) {
            return None;
        }
        // A tunnel has no length (RFC 9110 §9.3.6).
        response.headers.remove(CONTENT_LENGTH);
        let sent = (self.stream).respond(&message::response_head(response), false);
        Some(sent.map(|()| self.stream.clone()))
    }

    /// Accepts the tunnel with this response. Returns `None` if it was answered before.
    pub(in crate::http) fn accept(
        self: &Arc<Self>,
        response: response::Parts,
    ) -> Option<Result<(TunnelSender, TunnelReceiver, TunnelDatagrams), Error>> {
        let sent = self.accept_stream(response)?;
        let (stream, offer) = (self.stream.clone(), Some(self.clone()));
        let sender = TunnelSender::new(stream.clone(), Code::CONNECT_ERROR, offer.clone());
        let receiver = TunnelReceiver::new(stream.clone(), Code::NO_ERROR, offer.clone());
        let datagrams = TunnelDatagrams::new(stream, offer);
        Some(sent.map(|_| (sender, receiver, datagrams)))
    }

    fn advance(&self, stage: u8) -> bool {
        let advanced =
            self.stage
                .compare_exchange(OFFERED, stage, Ordering::AcqRel, Ordering::Acquire);
        advanced.is_ok()
    }
}

impl Drop for TunnelOffer {
    fn drop(&mut self) {
        // The receiving half of an accepted tunnel does this itself.
        if !self.is_accepted() {
            self.stream.stop(Code::NO_ERROR);
        }
    }
}

impl Tunnel {
    /// Accepts the tunnel with this response, whose status has to be 2xx. Returns the two halves
    /// of its stream, and its datagrams. A request that came as early data is accepted when the
    /// handshake is complete, so that it is no replay (RFC 8470 §2).
    ///
    /// # Errors
    /// [`Error::Unsendable`] if the status is not 2xx, or the request was answered before; the
    /// others if the client has given up or the connection has ended.
    pub async fn accept(
        self,
        response: Response<()>,
    ) -> Result<(TunnelSender, TunnelReceiver, TunnelDatagrams), Error> {
        let parts = self.ready(response).await?;
        self.0.accept(parts).unwrap_or(Err(answered_before()))
    }

    /// Does the same, and returns the stream with what keeps the tunnel's place.
    pub(in crate::http) async fn accept_stream(
        self,
        response: Response<()>,
    ) -> Result<(RequestStream, Arc<TunnelOffer>), Error> {
        let parts = self.ready(response).await?;
        let accepted = self.0.accept_stream(parts);
        let stream = accepted.unwrap_or(Err(answered_before()))?;
        Ok((stream, self.0))
    }

    /// Waits until the tunnel can be accepted with this response.
    async fn ready(&self, response: Response<()>) -> Result<response::Parts, Error> {
        let (parts, ()) = response.into_parts();
        if !parts.status.is_success() {
            let why = "a tunnel is accepted with a status from 200 to 299";
            return Err(Error::Unsendable(SendError::OutOfOrder(why)));
        }
        if self.0.early {
            self.0.stream.handshake_complete().await?;
        }
        Ok(parts)
    }

    /// Completes when the server shuts down ([`Server::shutdown`](crate::http::Server::shutdown)),
    /// which waits for tunnels to end until its patience is over.
    pub fn shutdown_begins(&self) -> impl Future<Output = ()> + Send + 'static {
        let server = self.0.permit.server().clone();
        async move { server.wait_for_closing().await }
    }
}

fn answered_before() -> Error {
    let why = "the request for a tunnel was answered before";
    Error::Unsendable(SendError::OutOfOrder(why))
}
