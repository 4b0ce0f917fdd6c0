//! One request of a server: what the service makes of it, and sending that.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;

use bytes::Bytes;
use clearway_http3::Code;
use http::header::{CONTENT_LENGTH, HeaderValue};
use http::{Request, Response, StatusCode};
use http_body::Body;
use tower_service::Service;
use tracing::Span;

use super::body::{BodySender, Incoming, poll_frame};
use super::early::ArrivedEarly;
use super::error::{BoxError, Error};
use super::interim::{InterimSender, expects_continue};
use super::message;
use super::request_stream::RequestStream;
use super::requests::ArrivedRequest;
use super::server_state::{Permit, TunnelPermit};
use super::tunnel::{Tunnel, TunnelOffer};
#[cfg(feature = "websocket")]
use super::websocket::{TunnelIo, Upgrade};
use crate::connection::{Connection, ConnectionRef};
use crate::panic::catch;
use crate::spans;

/// A request and what is needed to answer it.
pub(super) struct RequestTask {
    request: Result<Request<Incoming>, &'static str>,
    sender: BodySender,
    method: ResponseTo,
    hold: Hold,
}

/// The permits for a request.
#[derive(Debug)]
pub(super) enum RequestPermit {
    Request(Permit),
    Tunnel(Permit, TunnelPermit),
}

/// What a request holds until it is answered.
enum Hold {
    Request {
        _permit: Permit,
    },
    /// A tunnel keeps its permits for as long as it is open.
    Tunnel(Arc<TunnelOffer>),
}

impl Hold {
    fn tunnel(&self) -> Option<&Arc<TunnelOffer>> {
        match self {
            Self::Request { .. } => None,
            Self::Tunnel(offer) => Some(offer),
        }
    }

    /// Whether the handler has accepted a tunnel.
    fn is_accepted(&self) -> bool {
        self.tunnel().is_some_and(|offer| offer.is_accepted())
    }
}

/// The request's method, as far as the response depends on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ResponseTo {
    /// The response has no body, whatever the service says.
    Head,
    /// A successful response opens a tunnel: it has no length, and its body is what is sent through
    /// the tunnel (RFC 9110 §9.3.6).
    Connect,
    Other,
}

impl ResponseTo {
    fn of(method: &[u8]) -> Self {
        match method {
            b"HEAD" => Self::Head,
            b"CONNECT" => Self::Connect,
            _ => Self::Other,
        }
    }

    fn opens_tunnel(self, status: StatusCode) -> bool {
        self == Self::Connect && status.is_success()
    }
}

impl RequestTask {
    pub(super) fn new(
        shared: &ConnectionRef,
        connection: &Connection,
        arrived: ArrivedRequest,
        permit: RequestPermit,
    ) -> Self {
        let ArrivedRequest {
            id,
            head,
            end,
            early,
        } = arrived;
        let stream = RequestStream::new(shared.clone(), id);
        let method = ResponseTo::of(&head.method);
        let sender = BodySender::new(stream.clone(), Code::INTERNAL_ERROR);
        let hold = match permit {
            RequestPermit::Request(permit) => Hold::Request { _permit: permit },
            RequestPermit::Tunnel(request, tunnel) => {
                Hold::Tunnel(TunnelOffer::new(stream.clone(), early, tunnel, request))
            }
        };
        let request = message::request(head, ()).map(|request| {
            let (mut parts, ()) = request.into_parts();
            parts.extensions.insert(connection.clone());
            if let Some(offer) = hold.tunnel() {
                // What follows is a tunnel, which has no length (RFC 9110 §9.3.6).
                parts.headers.remove(CONTENT_LENGTH);
                parts.extensions.insert(Tunnel::of(offer));
            }
            parts
                .extensions
                .insert(InterimSender::new(stream.downgrade()));
            if early {
                parts.extensions.insert(ArrivedEarly);
            }
            let body = (!end).then_some(stream);
            // A server that answers without reading all is no error.
            let body = Incoming::new(body, &parts.headers, Code::NO_ERROR)
                .with_continue(!end && expects_continue(&parts.headers))
                .with_tunnel(hold.tunnel().cloned());
            Request::from_parts(parts, body)
        });
        Self {
            request,
            sender,
            method,
            hold,
        }
    }

    /// Answers with a status alone.
    pub(super) fn refuse(self, status: StatusCode) {
        if let Err(error) = refuse(self.sender, status) {
            tracing::debug!(%error, "a response was not sent to its end");
        }
    }

    /// Answers, unless the client gives up first. `span` is that of the request.
    pub(super) async fn run<S, B>(self, service: S, span: Span)
    where
        S: Service<Request<Incoming>, Response = Response<B>>,
        S::Error: Into<BoxError>,
        B: Body<Data: Into<Bytes>, Error: Into<BoxError>>,
    {
        let Self {
            request,
            sender,
            method,
            hold,
        } = self;
        let request = match request {
            Ok(request) => request,
            Err(why) => {
                tracing::debug!(why, "a request that the http crate cannot hold");
                sender.stream().stop(Code::NO_ERROR);
                let _ = refuse(sender, StatusCode::BAD_REQUEST);
                return;
            }
        };
        // One that was given up before it began never reaches the service.
        if sender.stream().is_cancelled() {
            return sender.cancelled();
        }
        #[cfg(feature = "websocket")]
        let (request, upgrade) = {
            let mut request = request;
            let upgrade = Upgrade::offer(&mut request);
            (request, upgrade)
        };
        let response = {
            let stream = sender.stream().clone();
            let mut answering = pin!(answer(service, request));
            let response = poll_fn(|cx| match catch(|| answering.as_mut().poll(cx)) {
                Ok(Poll::Ready(response)) => Poll::Ready(Some(response)),
                // The halves of its tunnel tell the handler what becomes of it.
                Ok(Poll::Pending) if hold.is_accepted() => Poll::Pending,
                Ok(Poll::Pending) => stream.poll_cancelled(cx).map(|()| None),
                // The service is not asked again, and its client has an answer.
                Err(panic) => Poll::Ready(Some(Err(panic.into()))),
            });
            response.await
        };
        #[cfg(feature = "websocket")]
        let response = match (response, upgrade) {
            (Some(Ok(response)), Some(upgrade)) => {
                match open_websocket(&hold, upgrade, response).await {
                    Some(response) => Some(Ok(response)),
                    None => return sender.done(),
                }
            }
            (response, _) => response,
        };
        if hold.tunnel().is_some_and(|offer| !offer.answer()) {
            // Its halves are all that is left to do.
            return sender.done();
        }
        let sent = match response {
            None => return sender.cancelled(),
            Some(Ok(response)) => {
                spans::record_status(&span, &response);
                respond(sender, response, method).await
            }
            Some(Err(error)) => {
                tracing::error!(%error, "the service failed");
                spans::record_error(&span, &error);
                refuse(sender, StatusCode::INTERNAL_SERVER_ERROR)
            }
        };
        if let Err(error) = sent {
            tracing::debug!(%error, "a response was not sent to its end");
            spans::record_error(&span, &error);
        }
    }
}

async fn answer<S, B>(mut service: S, request: Request<Incoming>) -> Result<Response<B>, BoxError>
where
    S: Service<Request<Incoming>, Response = Response<B>>,
    S::Error: Into<BoxError>,
{
    poll_fn(|cx| service.poll_ready(cx))
        .await
        .map_err(Into::into)?;
    service.call(request).await.map_err(Into::into)
}

/// Opens a WebSocket if the service has accepted it: with success, and nothing to send before
/// its frames. Returns the response otherwise.
#[cfg(feature = "websocket")]
async fn open_websocket<B: Body>(
    hold: &Hold,
    upgrade: Upgrade,
    response: Response<B>,
) -> Option<Response<B>> {
    let accepts = response.status().is_success() && response.body().is_end_stream();
    let Some(offer) = hold.tunnel().filter(|_| accepts) else {
        return Some(response);
    };
    let (parts, body) = response.into_parts();
    match Tunnel::of(offer).accept_now(parts.clone()) {
        // The service has accepted the tunnel itself.
        None => return Some(Response::from_parts(parts, body)),
        Some(Ok((sender, receiver, _))) => {
            upgrade.complete(TunnelIo::new(sender, receiver)).await;
        }
        Some(Err(error)) => tracing::debug!(%error, "a WebSocket was not opened"),
    }
    None
}

/// Answers with a status alone.
fn refuse(sender: BodySender, status: StatusCode) -> Result<(), Error> {
    let mut head = clearway_http3::Response::new(status.as_u16());
    head.fields
        .push(clearway_http3::field("content-length", "0"));
    sender.stream().respond(&head, true)?;
    sender.done();
    Ok(())
}

/// Sends a response: in one piece if its body is at hand.
async fn respond<B>(
    sender: BodySender,
    response: Response<B>,
    method: ResponseTo,
) -> Result<(), Error>
where
    B: Body<Data: Into<Bytes>, Error: Into<BoxError>>,
{
    let (mut parts, body) = response.into_parts();
    let tunnel = method.opens_tunnel(parts.status);
    let bodiless = !tunnel
        && (method == ResponseTo::Head
            || parts.status == StatusCode::NO_CONTENT
            || parts.status == StatusCode::NOT_MODIFIED);
    let exact = body.size_hint().exact().filter(|_| !tunnel);
    if tunnel {
        parts.headers.remove(CONTENT_LENGTH);
    }
    if let Some(length) = exact
        && !parts.status.is_informational()
        && parts.status != StatusCode::NO_CONTENT
        && parts.status != StatusCode::NOT_MODIFIED
        && !(bodiless && length == 0)
        && !parts.headers.contains_key(CONTENT_LENGTH)
    {
        let length = HeaderValue::from(length);
        // A map that is full stays without: the length tells no more than the end.
        let _ = parts.headers.try_insert(CONTENT_LENGTH, length);
    }
    let head = message::response_head(parts);
    // What ends the body ends this half of a tunnel, too.
    if bodiless || body.is_end_stream() {
        sender.stream().respond(&head, true)?;
        sender.done();
        return Ok(());
    }
    let mut body = pin!(body);
    // What is there already leaves together with the head.
    let first = poll_fn(|cx| {
        Poll::Ready(match catch(|| poll_frame(body.as_mut(), cx)) {
            Ok(Poll::Ready(frame)) => Ok(Some(frame)),
            Ok(Poll::Pending) => Ok(None),
            Err(panic) => Err(panic),
        })
    });
    let first = match first.await {
        Ok(first) => first,
        Err(panic) => {
            tracing::error!(%panic, "the body of a response failed");
            return refuse(sender, StatusCode::INTERNAL_SERVER_ERROR);
        }
    };
    match first {
        Some(Some(frame)) => match frame?.into_data() {
            Ok(data) if body.is_end_stream() => {
                sender.stream().respond_with(&head, data.into())?;
                sender.done();
                return Ok(());
            }
            Ok(data) => {
                sender.stream().respond(&head, false)?;
                sender.stream().write(data.into()).await?;
            }
            Err(frame) => {
                sender.stream().respond(&head, false)?;
                if let Ok(trailers) = frame.into_trailers() {
                    sender.stream().trailers(&message::fields(trailers))?;
                    sender.done();
                    return Ok(());
                }
            }
        },
        Some(None) => {
            sender.stream().respond(&head, true)?;
            sender.done();
            return Ok(());
        }
        None => sender.stream().respond(&head, false)?,
    }
    sender.send(body).await
}
