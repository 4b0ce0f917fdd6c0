//! The HTTP/3 client: requests over connections that are kept and shared.

use std::future::poll_fn;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use clearway_http3::Code;
use clearway_quic::crypto::{ServerId, ServerName};
use http::header::CONTENT_LENGTH;
use http::{Method, Request, Response, StatusCode, Uri, request};
use http_body::Body;
use tokio::sync::oneshot;

use super::ALPN;
use super::body::{BodySender, Incoming};
use super::early::{self, EarlyData};
use super::error::{BoxError, Error};
use super::interim::{Interim, OnInterim, expects_continue};
use super::message::{self, Protocol};
use super::pool::{Origin, Pool, PooledConnection};
use super::request_stream::{RequestStream, ResponsePart};

use crate::config::ClientConfig;
use crate::connection::{Connection, Signal};
use crate::endpoint::{Endpoint, EndpointBuilder};
use crate::spans;

/// Most connections on which a request is tried that no server has acted on.
const ATTEMPTS: usize = 3;

/// How long a body announced with `expect: 100-continue` is held back: not every server
/// answers the field (RFC 9110 §10.1.1).
const CONTINUE_TIMEOUT: Duration = Duration::from_secs(1);

/// An HTTP/3 client. It keeps one connection to each server, and sends as many requests at
/// once on it as the server allows. Clones share the connections.
///
/// To servers that allow it and with which there is an earlier session, requests that may be
/// early data ([`EarlyData`]) are sent with the first datagrams of a new connection, before
/// its handshake is complete; those that a server rejects are sent again. Sessions are stored
/// in [`ClientConfig::sessions`], which clones of a configuration share;
/// [`ClientConfig::early_data`] turns early data off.
///
/// Redirects are not followed.
#[derive(Clone, Debug)]
pub struct Client(pub(super) Arc<Pool>);

/// How a request is made, beside its contents.
struct RequestOptions {
    tunnel: bool,
    /// It may be early data.
    early: bool,
    /// The method is idempotent (RFC 9110 §9.2.2).
    repeatable: bool,
    on_interim: Option<OnInterim>,
    /// The body waits for 100 (Continue).
    expects: bool,
}

impl RequestOptions {
    /// Removes our options from the request's extensions.
    fn take_from(parts: &mut request::Parts, whole: bool) -> Self {
        let choice = parts.extensions.remove::<EarlyData>();
        Self {
            tunnel: parts.method == Method::CONNECT,
            early: parts.extensions.get::<Protocol>().is_none()
                && EarlyData::allows(choice, &parts.method, whole),
            repeatable: parts.method.is_idempotent(),
            on_interim: parts.extensions.remove::<OnInterim>(),
            expects: expects_continue(&parts.headers),
        }
    }
}

impl Client {
    /// Creates a client on a socket for IPv6 and IPv4, or for IPv4 on hosts without IPv6.
    ///
    /// # Errors
    /// If no socket can be bound, or there is no tokio runtime.
    pub fn new(config: ClientConfig) -> Result<Self, Error> {
        let any: [IpAddr; 2] = [Ipv6Addr::UNSPECIFIED.into(), Ipv4Addr::UNSPECIFIED.into()];
        let [dual, v4] = any.map(|ip| SocketAddr::new(ip, 0));
        Self::bind(dual, config.clone()).or_else(|_| Self::bind(v4, config))
    }

    /// Creates a client on a socket bound to this address. With an IPv4 address it reaches
    /// IPv4 servers only, with `[::]:0` it reaches both.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub fn bind(address: SocketAddr, config: ClientConfig) -> Result<Self, Error> {
        Self::with_endpoint(Endpoint::builder(address), config)
    }

    /// Creates a client on an endpoint with further options, such as socket options or traces.
    /// Its address counts as in [`bind`](Self::bind).
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub fn with_endpoint(endpoint: EndpointBuilder, config: ClientConfig) -> Result<Self, Error> {
        let http = clearway_http3::Config {
            // For tunnels; a server sends none for other requests (RFC 9297 §2).
            datagrams: config.accepts_datagrams(),
            // Announced to every server; streams of a session come only if one was asked for.
            webtransport_sessions: u16::from(config.accepts_datagrams()),
            ..clearway_http3::Config::default()
        };
        let endpoint = endpoint
            .client(config.alpn([ALPN]))
            .http(Arc::new(http))
            .build()
            .map_err(|error| Error::Endpoint(Arc::new(error)))?;
        Ok(Self(Arc::new(Pool::new(endpoint))))
    }

    /// Returns a client with connections of its own on the same endpoint, so through the same socket.
    ///
    /// A client keeps one connection to each server, which is what a program needs. One that opens
    /// several on purpose, such as a load generator, needs a client for each.
    #[must_use]
    pub fn with_own_connections(&self) -> Self {
        Self(Arc::new(Pool::new(self.endpoint().clone())))
    }

    /// Returns the underlying endpoint.
    #[must_use]
    pub fn endpoint(&self) -> &Endpoint {
        self.0.endpoint()
    }

    /// Connects to one of these addresses for URLs with this host and port, instead of
    /// resolving the host. The server's certificate has to be valid for `host` all the same.
    /// Open connections are not affected.
    pub fn resolve(&self, host: &str, port: u16, addresses: impl Into<Vec<SocketAddr>>) {
        self.0.resolve(Origin::new(host, port), addresses.into());
    }

    /// Connects to another host and port for URLs with this host and port. The server's
    /// certificate has to be valid for `host`, as with [`resolve`](Self::resolve).
    pub fn connect_to(&self, host: &str, port: u16, other_host: &str, other_port: u16) {
        let origin = Origin::new(host, port);
        self.0
            .connect_to(origin, Origin::new(other_host, other_port));
    }

    /// Sends a GET request for `url`.
    ///
    /// # Errors
    /// As [`request`](Self::request).
    pub async fn get(&self, url: &str) -> Result<Response<Incoming>, Error> {
        let uri: Uri = url
            .parse()
            .map_err(|_| Error::Url(url.to_owned(), "not a valid URI"))?;
        let mut request = Request::new(http_body_util::Empty::<Bytes>::new());
        *request.uri_mut() = uri;
        self.request(request).await
    }

    /// Sends a request, and returns the response as soon as its header section has arrived;
    /// the request's body is sent in the background. Dropping the future, or the response's
    /// body before its end, cancels the request.
    ///
    /// The extensions of the response contain its [`Connection`], and [`Interim`] if there
    /// were interim responses. An [`OnInterim`] among the extensions of the request is called
    /// for each as it arrives.
    ///
    /// A request without a body that no server has acted on is sent again on another
    /// connection; one that was answered with 425 (Too Early), after the handshake (RFC 8470
    /// §5.2). The body of a request with the field `expect: 100-continue` is held back until
    /// the server asks for it, for at most a second, and is not sent after an error status
    /// (4xx, 5xx). An extended CONNECT ([`Protocol`](super::Protocol)) waits for the server's
    /// SETTINGS, which say whether it is supported, and is never early data.
    ///
    /// # Errors
    /// See [`Error`]. A status such as 404 is not an error.
    pub async fn request<B>(&self, request: Request<B>) -> Result<Response<Incoming>, Error>
    where
        B: Body<Data: Into<Bytes> + Send, Error: Into<BoxError>> + Send + 'static,
    {
        let span = spans::client_request(request.method(), request.uri());
        // Not `Instrument`, which would move the future, of some kilobytes.
        let mut answered = pin!(self.request_in_span(request));
        let outcome = poll_fn(|cx| span.in_scope(|| answered.as_mut().poll(cx))).await;
        spans::record_outcome(&span, &outcome);
        outcome
    }

    async fn request_in_span<B>(&self, request: Request<B>) -> Result<Response<Incoming>, Error>
    where
        B: Body<Data: Into<Bytes> + Send, Error: Into<BoxError>> + Send + 'static,
    {
        let (mut parts, body) = request.into_parts();
        let target = self.0.target(&parts.uri)?;
        let mut options = RequestOptions::take_from(&mut parts, body.is_end_stream());
        let mut head = message::request_head(parts)?;
        let announced = |name: &str| head.fields.iter().any(|field| field.name == name);
        if let Some(length @ 1..) = body.size_hint().exact()
            && !options.tunnel
            && !announced("content-length")
        {
            let length = clearway_http3::field("content-length", length.to_string());
            head.fields.push(length);
        }
        let mut body = Some(body);
        let mut attempt = 1;
        loop {
            let pooled = self.0.connection(&target, options.early).await?;
            let result = exchange(&pooled.connection, &head, &mut body, &options).await;
            let error = match result {
                Ok((response, true))
                    if response.status() == StatusCode::TOO_EARLY && body.is_some() =>
                {
                    options.early = false;
                    continue;
                }
                Ok((response, _)) => return Ok(response),
                Err(error) => error,
            };
            // In a place of its own, as a request seldom fails.
            match Box::pin(decide_retry(pooled, error, options.repeatable)).await {
                RetryDecision::Retry(_) if body.is_some() && attempt < ATTEMPTS => {
                    attempt = attempt.saturating_add(1);
                }
                RetryDecision::Retry(error) | RetryDecision::GiveUp(error) => return Err(error),
            }
        }
    }

    /// Establishes the connection that requests for `url` use, unless there is one: so that
    /// the first request does not wait for it, or to wait with a timeout of its own.
    ///
    /// # Errors
    /// If the URL is invalid, the host cannot be resolved, or no connection can be
    /// established.
    pub async fn connect(&self, url: &Uri) -> Result<Connection, Error> {
        Ok(self
            .0
            .connection(&self.0.target(url)?, false)
            .await?
            .connection)
    }

    /// Waits until the next connection to the server of `url` can carry early data: until a
    /// session ticket and the server's SETTINGS are stored. Never completes if the server
    /// sends no tickets.
    ///
    /// # Errors
    /// If the URL is invalid.
    pub async fn ready_for_early_data(&self, url: &Uri) -> Result<(), Error> {
        let origin = Origin::of(url)?;
        let name = ServerName::try_from(origin.host);
        let port = origin.port;
        let name = name.map_err(|_| {
            Error::Url(
                url.to_string(),
                "the host must be a DNS name or an IP address",
            )
        })?;
        let Some(config) = self.endpoint().client_config() else {
            return Ok(());
        };
        let server = ServerId { name, port };
        let sessions = &config.sessions;
        poll_fn(|cx| sessions.poll_stored(&server, cx, early::allows_early_requests)).await;
        Ok(())
    }

    /// Closes every connection, and waits until the servers have been told. Clones and clients with
    /// [their own connections](Self::with_own_connections) on the endpoint cannot be used any more.
    ///
    /// What the application has ended is delivered first: request bodies and tunnels that were
    /// finished, the close of a WebSocket or of a WebTransport session and what was written before
    /// it, resets, and datagrams that wait to be sent. Responses are not waited for, and messages
    /// without an end are cut off, so that they do not look whole (RFC 9114 §5.3, RFC 9000 §10.2).
    ///
    /// A server that acknowledges nothing for three PTOs is waited for no longer, nor is any longer
    /// than ten seconds. To close at once, use [`Endpoint::close`].
    pub async fn close(&self) {
        self.endpoint().close_when_delivered(Code::NO_ERROR.0, b"");
        self.endpoint().wait_idle().await;
    }
}

/// What to do about a request that failed.
pub(super) enum RetryDecision {
    /// It may be sent again on another connection.
    Retry(Error),
    GiveUp(Error),
}

pub(super) async fn decide_retry(
    pooled: PooledConnection,
    error: Error,
    repeatable: bool,
) -> RetryDecision {
    if error.is_safe_to_retry() {
        return RetryDecision::Retry(error);
    }
    if !matches!(error, Error::ConnectionLost(_)) {
        return RetryDecision::GiveUp(error);
    }
    let tried = pooled.connection.id();
    match pooled.outcome().await {
        // It was early data to one address, and another address answered first.
        Some(Ok(other)) if other.id() != tried && repeatable => RetryDecision::Retry(error),
        Some(Ok(_)) | None => RetryDecision::GiveUp(error),
        Some(Err(cause)) => RetryDecision::GiveUp(cause),
    }
}

/// Sends a request and waits for its response. Returns also whether the request was early
/// data. The body is taken once the header section was sent.
async fn exchange<B>(
    connection: &Connection,
    head: &clearway_http3::Request,
    body: &mut Option<B>,
    options: &RequestOptions,
) -> Result<(Response<Incoming>, bool), Error>
where
    B: Body<Data: Into<Bytes> + Send, Error: Into<BoxError>> + Send + 'static,
{
    let shared = connection.shared();
    let end = !options.tunnel && body.as_ref().is_none_or(Body::is_end_stream);
    let extended = !head.protocol.is_empty();
    let mut refused = false;
    let begin = shared.http_when(Signal::RequestRoom, |view| {
        // SETTINGS say whether extended CONNECT is supported (RFC 9220 §3). The first attempt has
        // checked everything else.
        if extended && view.awaits_settings() || refused && view.is_stream_limited() {
            return None;
        }
        let begun = view.request(head, end);
        refused = begun.is_none();
        begun
    });
    let (id, early) = begin.await?;
    shared.pass_on(Signal::RequestRoom, 1);
    let stream = RequestStream::new(shared.clone(), id);
    let mut cancel = CancelOnDrop(Some(stream.clone()));
    let (invite, invited) = options.expects.then(oneshot::channel).unzip();
    if !end && let Some(body) = body.take() {
        let sender = BodySender::new(stream.clone(), Code::REQUEST_CANCELLED);
        tokio::spawn(upload(sender, body, invited));
    }
    let response = await_response(&stream, options.on_interim.as_ref(), invite);
    let (head, ended, interim) = response.await?;
    cancel.0 = None;
    let (mut parts, ()) = message::response(head, ())
        .map_err(|why| Error::Malformed(clearway_http3::StreamError::malformed(why)))?
        .into_parts();
    if options.tunnel && parts.status.is_success() {
        // It would say nothing about the tunnel (RFC 9110 §9.3.6).
        parts.headers.remove(CONTENT_LENGTH);
    }
    if !interim.is_empty() {
        parts.extensions.insert(Interim(interim.into()));
    }
    let incoming = (!ended).then_some(stream);
    let incoming = Incoming::new(incoming, &parts.headers, Code::REQUEST_CANCELLED);
    parts.extensions.insert(connection.clone());
    Ok((Response::from_parts(parts, incoming), early))
}

/// Sends a body, after 100 (Continue) if it has to wait for that.
async fn upload<B>(sender: BodySender, body: B, invited: Option<oneshot::Receiver<()>>)
where
    B: Body<Data: Into<Bytes> + Send, Error: Into<BoxError>> + Send + 'static,
{
    if let Some(invited) = invited {
        match tokio::time::timeout(CONTINUE_TIMEOUT, invited).await {
            Ok(Ok(())) | Err(_) => {}
            // The server has refused the body, or nobody waits for the response.
            Ok(Err(_)) => return,
        }
    }
    // Whoever reads the response gets the error there.
    if let Err(error) = sender.send(body).await {
        tracing::debug!(%error, "sending a request body failed");
    }
}

/// Waits for the final response. Returns it, whether it has no body, and the interim
/// responses before it. Releases a body that waits for 100 (Continue).
pub(super) async fn await_response(
    stream: &RequestStream,
    on_interim: Option<&OnInterim>,
    mut invite: Option<oneshot::Sender<()>>,
) -> Result<(clearway_http3::Response, bool, Vec<Response<()>>), Error> {
    let mut go = || {
        if let Some(invite) = invite.take() {
            // It fails if no body waits.
            let _ = invite.send(());
        }
    };
    let mut interims = Vec::new();
    loop {
        match stream.next_response().await? {
            ResponsePart::Final(head, ended) => {
                if head.status < 400 {
                    go();
                }
                return Ok((head, ended, interims));
            }
            ResponsePart::Interim(head) => {
                if head.status == StatusCode::CONTINUE.as_u16() {
                    go();
                }
                // One that the `http` crate cannot represent is ignored.
                let Ok(interim) = message::response(head, ()) else {
                    continue;
                };
                if let Some(hook) = on_interim {
                    hook.call(&interim);
                }
                interims.push(interim);
            }
        }
    }
}

/// Cancels the request on drop, unless its response has arrived.
struct CancelOnDrop(Option<RequestStream>);

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        if let Some(stream) = &self.0 {
            stream.cancel();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::DevelopmentIdentity;

    /// A client with a thousand requests in progress has a thousand of these in memory.
    #[tokio::test]
    async fn request_in_progress_fits_its_size_budget() {
        let identity = DevelopmentIdentity::generate(["localhost"]).unwrap();
        let config = ClientConfig::with_roots(identity.certificate_pem()).unwrap();
        let client = Client::bind(SocketAddr::from(([127, 0, 0, 1], 0)), config).unwrap();
        let body = http_body_util::Empty::<Bytes>::new();
        let request = size_of_val(&client.request(Request::new(body)));
        assert!(request <= 1_792, "{request} bytes");
    }
}
