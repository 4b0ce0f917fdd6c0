//! Tunnels of a client.

use std::error::Error as StdError;
use std::fmt;

use clearway_http3::{Code, SendError, StreamError};
use http::header::CONTENT_LENGTH;
use http::{Method, Request, Response, StatusCode};

use super::{TunnelDatagrams, TunnelReceiver, TunnelSender};
use crate::connection::{Connection, Signal};
use crate::http::body::Incoming;
use crate::http::client::{Client, RetryDecision, await_response, decide_retry};
use crate::http::error::Error;
use crate::http::message;
use crate::http::request_stream::RequestStream;

/// A tunnel that a client has opened with [`Client::tunnel`].
#[derive(Debug)]
#[non_exhaustive]
pub struct OpenTunnel {
    /// The server's response. Its extensions contain the [`Connection`].
    pub response: Response<()>,
    /// The sending half of the stream.
    pub sender: TunnelSender,
    /// The receiving half of the stream.
    pub receiver: TunnelReceiver,
    /// The datagrams of the tunnel.
    pub datagrams: TunnelDatagrams,
}

impl OpenTunnel {
    /// Returns the halves and the datagrams, as [`Tunnel::accept`](super::Tunnel::accept) does.
    #[must_use]
    pub fn into_parts(self) -> (TunnelSender, TunnelReceiver, TunnelDatagrams) {
        (self.sender, self.receiver, self.datagrams)
    }
}

/// The stream of a tunnel that a client has opened.
#[derive(Debug)]
pub(in crate::http) struct OpenedStream {
    pub(in crate::http) response: Response<()>,
    pub(in crate::http) stream: RequestStream,
    /// The server's half has ended.
    ended: bool,
}

impl OpenedStream {
    fn into_tunnel(self) -> OpenTunnel {
        let Self {
            response,
            stream,
            ended,
        } = self;
        let mut receiver = TunnelReceiver::new(stream.clone(), Code::REQUEST_CANCELLED, None);
        if ended {
            receiver.set_ended();
        }
        OpenTunnel {
            response,
            sender: TunnelSender::new(stream.clone(), Code::REQUEST_CANCELLED, None),
            receiver,
            datagrams: TunnelDatagrams::new(stream, None),
        }
    }
}

/// Why a tunnel could not be opened.
#[derive(Debug)]
#[non_exhaustive]
pub enum OpenTunnelError {
    /// The server answered with this response, whose status is not 2xx.
    Refused(Box<Response<Incoming>>),
    /// There was no answer.
    Failed(Error),
}

impl OpenTunnelError {
    /// Returns the status with which the server refused the tunnel.
    #[must_use]
    pub fn status(&self) -> Option<StatusCode> {
        match self {
            Self::Refused(response) => Some(response.status()),
            Self::Failed(_) => None,
        }
    }
}

impl fmt::Display for OpenTunnelError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refused(response) => {
                write!(f, "the server refused the tunnel: {}", response.status())
            }
            Self::Failed(error) => error.fmt(f),
        }
    }
}

impl StdError for OpenTunnelError {}

impl From<Error> for OpenTunnelError {
    fn from(error: Error) -> Self {
        Self::Failed(error)
    }
}

/// Most connections on which a tunnel is tried that no server has acted on.
const ATTEMPTS: usize = 3;

impl Client {
    /// Opens a tunnel with CONNECT: an extended one, if the request has a
    /// [`Protocol`](crate::http::Protocol) among its extensions (RFC 9220). The method is set, and
    /// an extended CONNECT waits for the server's SETTINGS.
    ///
    /// # Errors
    /// [`OpenTunnelError::Refused`] if the server's status is not 2xx. Otherwise as
    /// [`request`](Self::request), and [`Error::Unsendable`] if the server does not support
    /// extended CONNECT.
    pub async fn tunnel(&self, request: Request<()>) -> Result<OpenTunnel, OpenTunnelError> {
        Ok(self.open_tunnel(request).await?.into_tunnel())
    }

    /// Opens a tunnel, and returns its stream.
    pub(in crate::http) async fn open_tunnel(
        &self,
        request: Request<()>,
    ) -> Result<OpenedStream, OpenTunnelError> {
        let (mut parts, ()) = request.into_parts();
        parts.method = Method::CONNECT;
        let target = self.0.target(&parts.uri)?;
        let head = message::request_head(parts)?;
        let mut attempt = 1;
        loop {
            let pooled = self.0.connection(&target, false).await?;
            let error = match open(&pooled.connection, &head).await {
                Ok(result) => return result,
                Err(error) => error,
            };
            match decide_retry(pooled, error, false).await {
                RetryDecision::Retry(_) if attempt < ATTEMPTS => {
                    attempt = attempt.saturating_add(1);
                }
                RetryDecision::Retry(error) | RetryDecision::GiveUp(error) => {
                    return Err(error.into());
                }
            }
        }
    }
}

/// Cancels the request on drop, unless it was answered.
struct CancelOnDrop(Option<RequestStream>);

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        if let Some(stream) = &self.0 {
            stream.cancel();
        }
    }
}

/// Opens a tunnel on this connection.
///
/// # Errors
/// If there is no final response.
async fn open(
    connection: &Connection,
    head: &clearway_http3::Request,
) -> Result<Result<OpenedStream, OpenTunnelError>, Error> {
    let shared = connection.shared();
    let extended = !head.protocol.is_empty();
    let mut refused = false;
    let begin = shared.http_when(Signal::RequestRoom, |view| {
        if extended && view.awaits_settings() || refused && view.is_stream_limited() {
            return None;
        }
        let begun = view.request(head, false);
        refused = begun.is_none();
        begun
    });
    let (id, _) = begin.await?;
    shared.pass_on(Signal::RequestRoom, 1);
    let stream = RequestStream::new(shared.clone(), id);
    let mut cancel = CancelOnDrop(Some(stream.clone()));
    let (head, ended, _) = await_response(&stream, None, None).await?;
    cancel.0 = None;
    let response = message::response(head, ());
    let response = response.map_err(|why| {
        stream.cancel();
        Error::Malformed(StreamError::malformed(why))
    })?;
    let (mut parts, ()) = response.into_parts();
    parts.extensions.insert(connection.clone());
    if !parts.status.is_success() {
        // Nothing was sent that the server could miss. It may have stopped reading already.
        match stream.finish() {
            Ok(()) | Err(Error::Stopped(_) | Error::Unsendable(SendError::Unknown)) => {}
            Err(error) => return Err(error),
        }
        let body = (!ended).then_some(stream);
        let body = Incoming::new(body, &parts.headers, Code::REQUEST_CANCELLED);
        let refused = Box::new(Response::from_parts(parts, body));
        return Ok(Err(OpenTunnelError::Refused(refused)));
    }
    parts.headers.remove(CONTENT_LENGTH);
    Ok(Ok(OpenedStream {
        response: Response::from_parts(parts, ()),
        stream,
        ended,
    }))
}
