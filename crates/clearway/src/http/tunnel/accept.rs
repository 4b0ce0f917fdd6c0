//! A server's request for a tunnel, which it accepts.

use std::future::Future;
use std::sync::Arc;

use clearway_http3::{Code, SendError};
use http::{Response, response};

use super::{TunnelDatagrams, TunnelOffer, TunnelReceiver, TunnelSender};
use crate::http::error::Error;
use crate::http::request_stream::RequestStream;

/// The halves of a tunnel and its datagrams, or why there are none.
type AcceptedTunnel = Result<(TunnelSender, TunnelReceiver, TunnelDatagrams), Error>;

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

impl Tunnel {
    pub(in crate::http) fn of(offer: &Arc<TunnelOffer>) -> Self {
        Self(offer.clone())
    }

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
        self.accept_now(parts).unwrap_or(Err(answered_before()))
    }

    /// Accepts the tunnel with this response. Returns `None` if it was answered before.
    pub(in crate::http) fn accept_now(&self, response: response::Parts) -> Option<AcceptedTunnel> {
        let sent = self.0.accept_stream(response)?;
        let (stream, offer) = (self.0.stream().clone(), Some(self.0.clone()));
        let sender = TunnelSender::new(stream.clone(), Code::CONNECT_ERROR, offer.clone());
        let receiver = TunnelReceiver::new(stream.clone(), Code::NO_ERROR, offer.clone());
        let datagrams = TunnelDatagrams::new(stream, offer);
        Some(sent.map(|_| (sender, receiver, datagrams)))
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
        if self.0.is_early() {
            self.0.stream().handshake_complete().await?;
        }
        Ok(parts)
    }

    /// Completes when the server shuts down ([`Server::shutdown`](crate::http::Server::shutdown)),
    /// which waits for tunnels to end until its patience is over.
    pub fn shutdown_begins(&self) -> impl Future<Output = ()> + Send + 'static {
        let server = self.0.server().clone();
        async move { server.wait_for_closing().await }
    }
}

fn answered_before() -> Error {
    let why = "the request for a tunnel was answered before";
    Error::Unsendable(SendError::OutOfOrder(why))
}
