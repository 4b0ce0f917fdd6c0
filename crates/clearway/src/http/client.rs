//! Requests, over connections that are kept and shared.

use std::future::poll_fn;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use clearway_http3::Code;
use clearway_quic::crypto::ServerName;
use http::{Method, Request, Response, StatusCode, Uri, request};
use http_body::Body;
use tokio::sync::oneshot;

use super::ALPN;
use super::body::{Incoming, Sender};
use super::early::{self, EarlyData};
use super::error::{BoxError, Error};
use super::interim::{Interim, OnInterim, expects_continue};
use super::message;
use super::pool::{Origin, Pool, Way};
use super::stream::Stream;
use super::view::Heard;
use crate::config::ClientConfig;
use crate::connection::{Connection, Signal};
use crate::endpoint::Endpoint;

/// Connections tried for a request that no server has acted on.
const ATTEMPTS: usize = 3;

/// How long a body that was announced with `Expect: 100-continue` waits for the
/// server's word; not every server has heard of it (RFC 9110 §10.1.1).
const CONTINUE_PATIENCE: Duration = Duration::from_secs(1);

/// An HTTP/3 client. It keeps one connection to each server and sends all
/// requests to it there, as many at once as the server allows. Clones share the
/// connections.
///
/// To servers that allow it and are known from before, requests that may be early
/// ([`EarlyData`]) are sent with the first datagrams of a new connection, before
/// its handshake is complete; what a server refuses of that is sent again. Servers
/// are remembered in [`ClientConfig::sessions`], so that clients of clones of one
/// configuration know the same; [`ClientConfig::early_data`] turns it off.
///
/// Redirects are the caller's to follow.
#[derive(Clone, Debug)]
pub struct Client(Arc<Pool>);

/// How one request is made, beside what is sent.
struct Manner {
    tunnel: bool,
    /// It may be early data.
    early: bool,
    /// Made twice, it does what it does once.
    repeatable: bool,
    on_interim: Option<OnInterim>,
    /// The body waits for 100 (Continue).
    expects: bool,
}

impl Manner {
    /// Takes what is ours out of the request's extensions.
    fn of(parts: &mut request::Parts, whole: bool) -> Self {
        let choice = parts.extensions.remove::<EarlyData>();
        Self {
            tunnel: parts.method == Method::CONNECT,
            early: EarlyData::allows(choice, &parts.method, whole),
            repeatable: parts.method.is_idempotent(),
            on_interim: parts.extensions.remove::<OnInterim>(),
            expects: expects_continue(&parts.headers),
        }
    }
}

impl Client {
    /// A client with these settings, on a socket for IPv6 and IPv4, or for IPv4
    /// on hosts without IPv6.
    ///
    /// # Errors
    /// If no socket can be had or there is no tokio runtime.
    pub fn new(config: ClientConfig) -> Result<Self, Error> {
        let any: [IpAddr; 2] = [Ipv6Addr::UNSPECIFIED.into(), Ipv4Addr::UNSPECIFIED.into()];
        let [dual, v4] = any.map(|ip| SocketAddr::new(ip, 0));
        Self::bind(dual, config.clone()).or_else(|_| Self::bind(v4, config))
    }

    /// A client on a socket bound to this address. An IPv4 address reaches IPv4
    /// servers only, `[::]:0` reaches both.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub fn bind(address: SocketAddr, config: ClientConfig) -> Result<Self, Error> {
        let endpoint = Endpoint::builder(address)
            .client(config.alpn([ALPN]))
            .http(Arc::default())
            .build()
            .map_err(|error| Error::Endpoint(Arc::new(error)))?;
        Ok(Self(Arc::new(Pool::new(endpoint))))
    }

    /// The endpoint below.
    #[must_use]
    pub fn endpoint(&self) -> &Endpoint {
        self.0.endpoint()
    }

    /// Has connections for URLs with this host and port go to one of these
    /// addresses, whatever the resolver says. The name that the server's
    /// certificate has to be for, and that it is told, stays `host`. Connections
    /// that are open already stay.
    pub fn resolve(&self, host: &str, port: u16, addresses: impl Into<Vec<SocketAddr>>) {
        self.0.resolve(Origin::new(host, port), addresses.into());
    }

    /// Has connections for URLs with this host and port go to another host and
    /// port, whose own name plays no part, as in [`resolve`](Self::resolve).
    pub fn connect_to(&self, host: &str, port: u16, other_host: &str, other_port: u16) {
        let origin = Origin::new(host, port);
        self.0
            .connect_to(origin, Origin::new(other_host, other_port));
    }

    /// Fetches what is at `url`.
    ///
    /// # Errors
    /// As [`request`](Self::request).
    pub async fn get(&self, url: &str) -> Result<Response<Incoming>, Error> {
        let uri: Uri = url
            .parse()
            .map_err(|_| Error::Url(url.to_owned(), "it is no URL"))?;
        let mut request = Request::new(http_body_util::Empty::<Bytes>::new());
        *request.uri_mut() = uri;
        self.request(request).await
    }

    /// Sends a request and answers the response as soon as its header section is
    /// there; an upload goes on meanwhile. Dropping the future, or the response's
    /// body before its end, cancels the request. Responses carry their
    /// [`Connection`] among their extensions, and [`Interim`] if there were interim
    /// responses, which [`OnInterim`] among the request's hears as they arrive.
    ///
    /// A request that no server has acted on is sent again on another connection
    /// if it has no body; one that a server found too early (425), after the
    /// handshake (RFC 8470 §5.2). The body of a request with the field
    /// `expect: 100-continue` is held back until the server wants it, or for a
    /// second; it is not sent after a response that says no (4xx, 5xx).
    ///
    /// # Errors
    /// What went wrong. A status such as 404 is no error.
    pub async fn request<B>(&self, request: Request<B>) -> Result<Response<Incoming>, Error>
    where
        B: Body<Data: Into<Bytes> + Send, Error: Into<BoxError>> + Send + 'static,
    {
        let (mut parts, body) = request.into_parts();
        let origin = Origin::of(&parts.uri)?;
        let mut manner = Manner::of(&mut parts, body.is_end_stream());
        let mut head = message::request_head(parts)?;
        let announced = |name: &str| head.fields.iter().any(|field| field.name == name);
        if let Some(length @ 1..) = body.size_hint().exact()
            && !manner.tunnel
            && !announced("content-length")
        {
            let length = clearway_http3::field("content-length", length.to_string());
            head.fields.push(length);
        }
        let mut body = Some(body);
        let mut attempt = 1;
        loop {
            let way = self.0.way(&origin, manner.early).await?;
            let result = exchange(&way.connection, &head, &mut body, &manner).await;
            let error = match result {
                Ok((response, true))
                    if response.status() == StatusCode::TOO_EARLY && body.is_some() =>
                {
                    manner.early = false;
                    continue;
                }
                Ok((response, _)) => return Ok(response),
                Err(error) => error,
            };
            match resort(way, error, manner.repeatable).await {
                Resort::Again(_) if body.is_some() && attempt < ATTEMPTS => {
                    attempt = attempt.saturating_add(1);
                }
                Resort::Again(error) | Resort::Over(error) => return Err(error),
            }
        }
    }

    /// Makes the connection that requests for `url` use, unless it is there
    /// already: so that the first request does not wait for it, or to wait no
    /// longer than one likes.
    ///
    /// # Errors
    /// If the URL is none, the host has no address or no connection comes about.
    pub async fn connect(&self, url: &Uri) -> Result<Connection, Error> {
        Ok(self.0.way(&Origin::of(url)?, false).await?.connection)
    }

    /// Waits until the next connection to the server of `url` can carry early
    /// requests: until a ticket of its and its SETTINGS are remembered. Servers
    /// that send no tickets keep one waiting for ever.
    ///
    /// # Errors
    /// If the URL is none.
    pub async fn remembered(&self, url: &Uri) -> Result<(), Error> {
        let origin = Origin::of(url)?;
        let name = ServerName::try_from(origin.host);
        let name = name.map_err(|_| Error::Url(url.to_string(), "its host is no name"))?;
        let Some(config) = self.endpoint().client_config() else {
            return Ok(());
        };
        let sessions = &config.sessions;
        poll_fn(|cx| sessions.poll_stored(&name, cx, early::is_enough)).await;
        Ok(())
    }

    /// Closes every connection, whatever is under way, and waits until the
    /// servers have been told.
    pub async fn close(&self) {
        self.endpoint().close(Code::NO_ERROR.0, b"");
        self.endpoint().wait_idle().await;
    }
}

/// What is left of a request that failed, and why it did.
enum Resort {
    /// It may be sent again.
    Again(Error),
    Over(Error),
}

async fn resort(way: Way, error: Error, repeatable: bool) -> Resort {
    if error.is_safe_to_retry() {
        return Resort::Again(error);
    }
    if !matches!(error, Error::ConnectionLost(_)) {
        return Resort::Over(error);
    }
    let tried = way.connection.id();
    match way.outcome().await {
        // It was early data to an address that another was faster than.
        Some(Ok(other)) if other.id() != tried && repeatable => Resort::Again(error),
        Some(Ok(_)) | None => Resort::Over(error),
        Some(Err(cause)) => Resort::Over(cause),
    }
}

/// One request and its response, and whether the request was early data. The body
/// is taken once the request is on its way.
async fn exchange<B>(
    connection: &Connection,
    head: &clearway_http3::Request,
    body: &mut Option<B>,
    manner: &Manner,
) -> Result<(Response<Incoming>, bool), Error>
where
    B: Body<Data: Into<Bytes> + Send, Error: Into<BoxError>> + Send + 'static,
{
    let shared = connection.counted();
    let end = !manner.tunnel && body.as_ref().is_none_or(Body::is_end_stream);
    let mut refused = false;
    let begin = shared.wait_for(Signal::RequestRoom, |state| {
        let mut view = state.http_view()?;
        // It was checked when it was first tried.
        if refused && view.waits_for_room() {
            return None;
        }
        let begun = view.request(head, end);
        refused = begun.is_none();
        begun
    });
    let (id, early) = begin.await?;
    // What was put under the lock is sent, and what it caused is told.
    shared.http(|_| ());
    shared.pass_on(Signal::RequestRoom, 1);
    let stream = Stream::new(shared.clone(), id);
    let mut cancel = Cancel(Some(stream.clone()));
    let (invite, invited) = oneshot::channel();
    if !end && let Some(body) = body.take() {
        let sender = Sender::new(stream.clone(), Code::REQUEST_CANCELLED);
        let invited = manner.expects.then_some(invited);
        tokio::spawn(upload(sender, body, invited));
    }
    let response = await_response(&stream, manner.on_interim.as_ref(), invite);
    let (head, ended, interim) = response.await?;
    cancel.0 = None;
    let (mut parts, ()) = message::response(head, ())
        .map_err(|why| Error::Malformed(clearway_http3::StreamError::malformed(why)))?
        .into_parts();
    if !interim.is_empty() {
        parts.extensions.insert(Interim(interim.into()));
    }
    let incoming = (!ended).then_some(stream);
    let incoming = Incoming::new(incoming, &parts.headers, Code::REQUEST_CANCELLED);
    parts.extensions.insert(connection.clone());
    Ok((Response::from_parts(parts, incoming), early))
}

/// Sends a body, once it is invited if it has to be.
async fn upload<B>(sender: Sender, body: B, invited: Option<oneshot::Receiver<()>>)
where
    B: Body<Data: Into<Bytes> + Send, Error: Into<BoxError>> + Send + 'static,
{
    if let Some(invited) = invited {
        match tokio::time::timeout(CONTINUE_PATIENCE, invited).await {
            Ok(Ok(())) | Err(_) => {}
            // The server has said no, or nobody waits for its answer.
            Ok(Err(_)) => return,
        }
    }
    // Who reads the response hears of the failure there.
    if let Err(error) = sender.send(body).await {
        tracing::debug!(%error, "a request was not sent to its end");
    }
}

/// The final response, whether it has no body, and the interim ones before it.
/// Tells a body that waits whether it is wanted.
async fn await_response(
    stream: &Stream,
    on_interim: Option<&OnInterim>,
    invite: oneshot::Sender<()>,
) -> Result<(clearway_http3::Response, bool, Vec<Response<()>>), Error> {
    let mut invite = Some(invite);
    let mut go = || {
        if let Some(invite) = invite.take() {
            // Mostly nobody waits.
            let _ = invite.send(());
        }
    };
    let mut interims = Vec::new();
    loop {
        match stream.hear().await? {
            Heard::Final(head, ended) => {
                if head.status < 400 {
                    go();
                }
                return Ok((head, ended, interims));
            }
            Heard::Interim(head) => {
                if head.status == StatusCode::CONTINUE.as_u16() {
                    go();
                }
                // One that the `http` crate cannot hold is nothing to wait for.
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

/// Cancels the request unless its response has come.
struct Cancel(Option<Stream>);

impl Drop for Cancel {
    fn drop(&mut self) {
        if let Some(stream) = &self.0 {
            stream.cancel();
        }
    }
}
