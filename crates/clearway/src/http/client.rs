//! Requests, over connections that are kept and shared.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use clearway_http3::Code;
use http::uri::Authority;
use http::{Method, Request, Response, Uri};
use http_body::Body;

use super::ALPN;
use super::body::{Incoming, Sender};
use super::error::{BoxError, Error};
use super::message;
use super::stream::Stream;
use crate::config::ClientConfig;
use crate::connection::{Connection, Signal};
use crate::endpoint::Endpoint;

/// The port of `https` URLs that name none (RFC 9110 §4.2.2).
const HTTPS: u16 = 443;

/// Connections tried for a request that no server has acted on.
const ATTEMPTS: usize = 3;

/// An HTTP/3 client. It keeps one connection to each server and sends all
/// requests to it there, as many at once as the server allows. Clones share the
/// connections.
///
/// Redirects are the caller's to follow.
#[derive(Clone, Debug)]
pub struct Client(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    endpoint: Endpoint,
    servers: Mutex<HashMap<Origin, Arc<Server>>>,
}

/// The interim responses (1xx, such as 103 Early Hints) that came before a
/// response, among its extensions if there were any.
#[derive(Clone, Debug)]
pub struct Interim(Arc<[Response<()>]>);

impl Interim {
    /// In the order in which they came.
    #[must_use]
    pub fn responses(&self) -> &[Response<()>] {
        &self.0
    }
}

/// Host and port.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Origin {
    host: String,
    port: u16,
}

/// The connection to one server; whoever needs one first makes it, the others
/// wait.
type Server = tokio::sync::Mutex<Option<Connection>>;

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
        Ok(Self(Arc::new(Inner {
            endpoint,
            servers: Mutex::default(),
        })))
    }

    /// The endpoint below.
    #[must_use]
    pub fn endpoint(&self) -> &Endpoint {
        &self.0.endpoint
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
    /// [`Connection`] among their extensions.
    ///
    /// A request that no server has acted on is sent again on another connection
    /// if it has no body.
    ///
    /// # Errors
    /// What went wrong. A status such as 404 is no error.
    pub async fn request<B>(&self, request: Request<B>) -> Result<Response<Incoming>, Error>
    where
        B: Body<Data: Into<Bytes> + Send, Error: Into<BoxError>> + Send + 'static,
    {
        let (parts, body) = request.into_parts();
        let origin = Origin::of(&parts.uri)?;
        let tunnel = parts.method == Method::CONNECT;
        let mut head = message::request_head(parts)?;
        let announced = |name: &str| head.fields.iter().any(|field| field.name == name);
        if let Some(length @ 1..) = body.size_hint().exact()
            && !tunnel
            && !announced("content-length")
        {
            let length = clearway_http3::field("content-length", length.to_string());
            head.fields.push(length);
        }
        let mut body = Some(body);
        let mut attempt = 1;
        loop {
            let connection = self.connection(&origin).await?;
            let result = exchange(&connection, &head, &mut body, tunnel).await;
            match result {
                Err(error) if error.is_safe_to_retry() && body.is_some() && attempt < ATTEMPTS => {
                    attempt += 1;
                }
                result => return result,
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
        self.connection(&Origin::of(url)?).await
    }

    /// The connection to a server that is open already, or a new one.
    ///
    /// # Errors
    /// If the host has no address or no connection comes about.
    async fn connection(&self, origin: &Origin) -> Result<Connection, Error> {
        let server = {
            let servers = &self.0.servers;
            let mut servers = servers.lock().unwrap_or_else(PoisonError::into_inner);
            servers.entry(origin.clone()).or_default().clone()
        };
        let mut kept = server.lock().await;
        if let Some(connection) = &*kept
            && connection.takes_requests()
        {
            return Ok(connection.clone());
        }
        let connection = self.reach(origin).await?;
        *kept = Some(connection.clone());
        Ok(connection)
    }

    async fn reach(&self, origin: &Origin) -> Result<Connection, Error> {
        let Origin { host, port } = origin;
        let addresses: Vec<SocketAddr> = match host.parse::<IpAddr>() {
            Ok(ip) => vec![SocketAddr::new(ip, *port)],
            Err(_) => tokio::net::lookup_host((host.as_str(), *port))
                .await
                .map_err(|cause| Error::Resolve {
                    host: host.clone(),
                    cause: Arc::new(cause),
                })?
                .collect(),
        };
        let connecting = self.0.endpoint.connect_any(addresses, host);
        connecting.await.map_err(|cause| Error::Connect {
            authority: format!("{host}:{port}"),
            cause,
        })
    }

    /// Closes every connection, whatever is under way, and waits until the
    /// servers have been told.
    pub async fn close(&self) {
        self.0.endpoint.close(Code::NO_ERROR.0, b"");
        self.0.endpoint.wait_idle().await;
    }
}

impl Origin {
    fn of(uri: &Uri) -> Result<Self, Error> {
        let bad = |why| Error::Url(uri.to_string(), why);
        if uri.scheme_str().is_some_and(|scheme| scheme != "https") {
            return Err(bad("HTTP/3 is for https URLs"));
        }
        let host = uri.authority().map(Authority::host);
        let host = host.filter(|host| !host.is_empty());
        let host = host.ok_or_else(|| bad("it names no host; write https://HOST/PATH"))?;
        Ok(Self {
            host: host.trim_matches(['[', ']']).to_ascii_lowercase(),
            port: uri.port_u16().unwrap_or(HTTPS),
        })
    }
}

/// One request and its response. The body is taken once the request is on its
/// way.
async fn exchange<B>(
    connection: &Connection,
    head: &clearway_http3::Request,
    body: &mut Option<B>,
    tunnel: bool,
) -> Result<Response<Incoming>, Error>
where
    B: Body<Data: Into<Bytes> + Send, Error: Into<BoxError>> + Send + 'static,
{
    let shared = connection.counted();
    let end = !tunnel && body.as_ref().is_none_or(Body::is_end_stream);
    let begin = shared.wait_for(Signal::RequestRoom, |state| {
        state.http_view()?.request(head, end)
    });
    let id = begin.await?;
    // What was put under the lock is sent, and what it caused is told.
    shared.http(|_| ());
    shared.pass_on(Signal::RequestRoom);
    let stream = Stream::new(shared.clone(), id);
    let mut cancel = Cancel(Some(stream.clone()));
    if !end && let Some(body) = body.take() {
        let sender = Sender::new(stream.clone(), Code::REQUEST_CANCELLED);
        tokio::spawn(async move {
            // Who reads the response hears of the failure there.
            if let Err(error) = sender.send(body).await {
                tracing::debug!(%error, "a request was not sent to its end");
            }
        });
    }
    let (response, ended) = stream.response().await?;
    cancel.0 = None;
    let malformed = |why| Error::Malformed(clearway_http3::StreamError::malformed(why));
    let (mut parts, ()) = message::response(response, ())
        .map_err(malformed)?
        .into_parts();
    let interim: Vec<_> = std::iter::from_fn(|| stream.informational())
        .filter_map(|head| message::response(head, ()).ok())
        .collect();
    if !interim.is_empty() {
        parts.extensions.insert(Interim(interim.into()));
    }
    let incoming = (!ended).then_some(stream);
    let incoming = Incoming::new(incoming, &parts.headers, Code::REQUEST_CANCELLED);
    parts.extensions.insert(connection.clone());
    Ok(Response::from_parts(parts, incoming))
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
