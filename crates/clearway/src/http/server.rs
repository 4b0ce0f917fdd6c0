//! Serving a tower service over HTTP/3.

use std::collections::VecDeque;
use std::future::{Future, poll_fn};
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Poll;
use std::time::Duration;

use bytes::Bytes;
use clearway_http3::Code;
use http::header::{CONTENT_LENGTH, HeaderValue};
use http::{Request, Response, StatusCode};
use http_body::Body;
use tokio::sync::Notify;
use tower_service::Service;

use super::ALPN;
use super::body::{Incoming, Sender, poll_frame};
use super::early::ArrivedEarly;
use super::error::{BoxError, Error};
use super::interim::{InterimSender, expects_continue};
use super::message;
use super::stream::Stream;
use super::work::Arrived;
use crate::config::ServerConfig;
use crate::connection::{Connection, Counted, Signal};
use crate::endpoint::{Endpoint, EndpointBuilder};
use crate::error::{BuildError, EndpointError};
use crate::panic::catch;

/// An HTTP/3 server: [`bind`](Self::bind), then [`serve`](Self::serve) a tower
/// service such as an axum router. Clones are the same server.
#[derive(Clone, Debug)]
pub struct Server {
    endpoint: Endpoint,
    closing: Arc<Closing>,
    on_shards: bool,
}

/// Whether to wind up. Every connection waits for it for as long as it lives, so
/// what waits has to be small.
#[derive(Debug, Default)]
struct Closing {
    asked: AtomicBool,
    news: Notify,
}

impl Closing {
    fn ask(&self) {
        self.asked.store(true, Ordering::Release);
        self.news.notify_waiters();
    }

    fn was_asked(&self) -> bool {
        self.asked.load(Ordering::Acquire)
    }
}

/// What else a server may be told: [`Server::builder`].
#[derive(Debug)]
#[must_use]
pub struct ServerBuilder {
    endpoint: EndpointBuilder,
    http: clearway_http3::Config,
    on_shards: bool,
}

impl Server {
    /// A server on this address, with one shard and handlers on the caller's
    /// runtime.
    ///
    /// # Errors
    /// If the address is taken, or the certificate does not fit its key.
    pub fn bind(address: SocketAddr, config: ServerConfig) -> Result<Self, BuildError> {
        Self::builder(address, config).build()
    }

    /// More to choose: shards, where handlers run, limits.
    pub fn builder(address: SocketAddr, config: ServerConfig) -> ServerBuilder {
        ServerBuilder {
            endpoint: Endpoint::builder(address).server(config.alpn([ALPN])),
            http: clearway_http3::Config::default(),
            on_shards: false,
        }
    }

    /// The endpoint below: its address, its counters.
    #[must_use]
    pub fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }

    /// The address the socket is bound to.
    #[must_use]
    pub fn local_addr(&self) -> SocketAddr {
        self.endpoint.local_addr()
    }

    /// Answers every request by `service`, each in a task of its own with a clone
    /// of it, until [`shutdown`](Self::shutdown).
    ///
    /// A service that fails or panics is answered for with status 500. A body that fails
    /// or panics resets its stream, so that it never looks whole. A request whose client
    /// gives up is dropped where it stands. Requests carry their [`Connection`] and
    /// an [`InterimSender`] among their extensions, and those that came as early
    /// data (with [`ServerConfig::early_data`]) [`ArrivedEarly`].
    ///
    /// # Errors
    /// Why a shard of the endpoint ended, as [`Endpoint::accept`] says. Requests on
    /// other shards are still answered;
    /// [`restart_failed_shards`](Endpoint::restart_failed_shards) makes another call
    /// of this work.
    pub async fn serve<S, B>(&self, service: S) -> Result<(), EndpointError>
    where
        S: Service<Request<Incoming>, Response = Response<B>> + Clone + Send + Sync + 'static,
        S::Error: Into<BoxError>,
        S::Future: Send,
        B: Body<Data: Into<Bytes> + Send, Error: Into<BoxError>> + Send + 'static,
    {
        while let Some(connection) = self.endpoint.accept().await? {
            let runtime = match connection.shard_runtime() {
                Some(shard) if self.on_shards => shard.clone(),
                _ => tokio::runtime::Handle::current(),
            };
            let closing = self.closing.clone();
            runtime.spawn(serve_connection(connection, service.clone(), closing));
        }
        Ok(())
    }

    /// Winds up: no new connections or requests, those begun are answered, then
    /// [`serve`](Self::serve) returns. What is not done after `patience` is cut
    /// off.
    pub async fn shutdown(&self, patience: Duration) {
        self.closing.ask();
        self.endpoint.stop_accepting();
        let drained = self.endpoint.wait_idle();
        if tokio::time::timeout(patience, drained).await.is_err() {
            self.endpoint
                .close(Code::NO_ERROR.0, b"the server is going away");
            self.endpoint.wait_idle().await;
        }
        self.endpoint.close(Code::NO_ERROR.0, b"");
    }
}

impl ServerBuilder {
    /// How many shards: sockets on one address, each with a thread, an event loop
    /// and connections of its own.
    pub fn shards(mut self, shards: usize) -> Self {
        self.endpoint = self.endpoint.shards(shards);
        self
    }

    /// Run handlers on their connection's shard rather than on the caller's
    /// runtime. It saves a change of thread for each request; a handler that
    /// computes for long holds up every connection of its shard.
    pub fn handlers_on_shards(mut self) -> Self {
        self.on_shards = true;
        self
    }

    /// Bounds on what a client may cost, sizes of the compression tables.
    pub fn http(mut self, config: clearway_http3::Config) -> Self {
        self.http = config;
        self
    }

    /// What the endpoint below should be like, its address and its server
    /// settings aside.
    pub fn endpoint(mut self, change: impl FnOnce(EndpointBuilder) -> EndpointBuilder) -> Self {
        self.endpoint = change(self.endpoint);
        self
    }

    /// Binds.
    ///
    /// # Errors
    /// As [`Server::bind`].
    pub fn build(self) -> Result<Server, BuildError> {
        Ok(Server {
            endpoint: self.endpoint.http(Arc::new(self.http)).build()?,
            closing: Arc::default(),
            on_shards: self.on_shards,
        })
    }
}

/// Serves one client until it leaves or we wind up.
async fn serve_connection<S, B>(connection: Connection, service: S, closing: Arc<Closing>)
where
    S: Service<Request<Incoming>, Response = Response<B>> + Clone + Send + 'static,
    S::Error: Into<BoxError>,
    S::Future: Send,
    B: Body<Data: Into<Bytes> + Send, Error: Into<BoxError>> + Send + 'static,
{
    {
        // Whoever asks after this line wakes it.
        let mut asked = pin!(closing.news.notified());
        while !closing.was_asked() {
            let arrived = tokio::select! {
                arrived = next_requests(connection.counted()) => arrived,
                () = &mut asked => break,
            };
            let Some(arrived) = arrived else { return };
            begin(&connection, &service, arrived);
        }
    }
    // In a place of its own: a connection takes that room when it ends, not for
    // as long as it waits.
    Box::pin(wind_up(connection, service)).await;
}

/// Answers what still comes, until everything is answered and delivered.
async fn wind_up<S, B>(connection: Connection, service: S)
where
    S: Service<Request<Incoming>, Response = Response<B>> + Clone + Send + 'static,
    S::Error: Into<BoxError>,
    S::Future: Send,
    B: Body<Data: Into<Bytes> + Send, Error: Into<BoxError>> + Send + 'static,
{
    let mut draining = pin!(drain(&connection));
    loop {
        let arrived = tokio::select! {
            arrived = next_requests(connection.counted()) => arrived,
            () = &mut draining => return,
        };
        let Some(arrived) = arrived else { return };
        begin(&connection, &service, arrived);
    }
}

/// Answers each request in a task of its own.
fn begin<S, B>(connection: &Connection, service: &S, arrived: VecDeque<Arrived>)
where
    S: Service<Request<Incoming>, Response = Response<B>> + Clone + Send + 'static,
    S::Error: Into<BoxError>,
    S::Future: Send,
    B: Body<Data: Into<Bytes> + Send, Error: Into<BoxError>> + Send + 'static,
{
    for request in arrived {
        let exchange = Exchange::new(connection.counted(), connection, request);
        match catch(|| service.clone()) {
            Ok(service) => {
                tokio::spawn(exchange.run(service));
            }
            Err(panic) => {
                tracing::error!(%panic, "the service could not be cloned");
                let _ = refuse(exchange.sender, StatusCode::INTERNAL_SERVER_ERROR);
            }
        }
    }
}

/// Waits until everything begun is answered and delivered, and closes.
#[expect(
    clippy::redundant_closure_for_method_calls,
    reason = "a path is not general over the lifetime of the view"
)]
async fn drain(connection: &Connection) {
    let shared = connection.counted();
    // Requests on their way arrive within a round trip (RFC 9114 §5.2).
    shared.http(|view| view.shutdown());
    tokio::time::sleep(connection.stats().smoothed_rtt).await;
    shared.http(|view| view.shutdown());
    shared
        .wait_for(Signal::HttpIdle, |state| {
            let idle = state.http_is_idle() || state.error.is_some();
            idle.then_some(())
        })
        .await;
    connection.close(Code::NO_ERROR.0, b"the server is going away");
}

/// The requests that have arrived, at least one; `None` after the last.
fn next_requests(shared: &Counted) -> impl Future<Output = Option<VecDeque<Arrived>>> + Send {
    shared.wait_for(Signal::Requests, |state| {
        let arrived = state.take_requests();
        match state.error.as_deref() {
            _ if !arrived.is_empty() => Some(Some(arrived)),
            Some(_) => Some(None),
            None => None,
        }
    })
}

/// A request and what is needed to answer it.
struct Exchange {
    request: Result<Request<Incoming>, &'static str>,
    sender: Sender,
    /// Answer without a body, whatever the service says.
    bodiless: bool,
}

impl Exchange {
    fn new(shared: &Counted, connection: &Connection, arrived: Arrived) -> Self {
        let Arrived {
            id,
            head,
            end,
            early,
        } = arrived;
        let stream = Stream::new(shared.clone(), id);
        let bodiless = head.method == "HEAD";
        let sender = Sender::new(stream.clone(), Code::INTERNAL_ERROR);
        let request = message::request(head, ()).map(|request| {
            let (mut parts, ()) = request.into_parts();
            parts.extensions.insert(connection.clone());
            parts
                .extensions
                .insert(InterimSender::new(stream.downgrade()));
            if early {
                parts.extensions.insert(ArrivedEarly);
            }
            let body = (!end).then_some(stream);
            // A server that answers without reading all is no error.
            let body = Incoming::new(body, &parts.headers, Code::NO_ERROR)
                .inviting(!end && expects_continue(&parts.headers));
            Request::from_parts(parts, body)
        });
        Self {
            request,
            sender,
            bodiless,
        }
    }

    /// Answers, unless the client gives up first.
    async fn run<S, B>(self, service: S)
    where
        S: Service<Request<Incoming>, Response = Response<B>>,
        S::Error: Into<BoxError>,
        B: Body<Data: Into<Bytes>, Error: Into<BoxError>>,
    {
        let Self {
            request,
            sender,
            bodiless,
        } = self;
        let request = match request {
            Ok(request) => request,
            Err(why) => {
                tracing::debug!(why, "a request that the http crate cannot hold");
                let _ = refuse(sender, StatusCode::BAD_REQUEST);
                return;
            }
        };
        let response = {
            let stream = sender.stream().clone();
            let mut answering = pin!(answer(service, request));
            let response = poll_fn(|cx| match catch(|| answering.as_mut().poll(cx)) {
                Ok(Poll::Ready(response)) => Poll::Ready(Some(response)),
                Ok(Poll::Pending) => stream.poll_cancelled(cx).map(|()| None),
                // The service is not asked again, and its client has an answer.
                Err(panic) => Poll::Ready(Some(Err(panic.into()))),
            });
            response.await
        };
        let sent = match response {
            // Dropping the sender tells the client, if it still listens.
            None => Ok(()),
            Some(Ok(response)) => respond(sender, response, bodiless).await,
            Some(Err(error)) => {
                tracing::error!(%error, "the service failed");
                refuse(sender, StatusCode::INTERNAL_SERVER_ERROR)
            }
        };
        if let Err(error) = sent {
            tracing::debug!(%error, "a response was not sent to its end");
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

/// Answers with a status alone.
fn refuse(sender: Sender, status: StatusCode) -> Result<(), Error> {
    let mut head = clearway_http3::Response::new(status.as_u16());
    head.fields
        .push(clearway_http3::field("content-length", "0"));
    sender.stream().respond(&head, true)?;
    sender.done();
    Ok(())
}

/// Sends a response: in one piece if its body is at hand.
async fn respond<B>(sender: Sender, response: Response<B>, bodiless: bool) -> Result<(), Error>
where
    B: Body<Data: Into<Bytes>, Error: Into<BoxError>>,
{
    let (mut parts, body) = response.into_parts();
    let bodiless = bodiless
        || parts.status == StatusCode::NO_CONTENT
        || parts.status == StatusCode::NOT_MODIFIED;
    let exact = body.size_hint().exact();
    if let Some(length) = exact
        && !parts.status.is_informational()
        && parts.status != StatusCode::NO_CONTENT
        && parts.status != StatusCode::NOT_MODIFIED
        && !(bodiless && length == 0)
    {
        let length = || HeaderValue::from(length);
        parts.headers.entry(CONTENT_LENGTH).or_insert_with(length);
    }
    let head = message::response_head(parts);
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::connection::Shared;
    use crate::http::layer::Layer;

    fn size_of_future<A, B, C, F>(_: fn(A, B, C) -> F) -> usize {
        size_of::<F>()
    }

    /// A server has far more connections that wait than connections that work.
    #[test]
    fn a_connection_that_waits_is_small() {
        let task = size_of_future(serve_connection::<axum::Router, axum::body::Body>);
        // With some 100 bytes of the runtime, in steps of 128: 384.
        assert!(task <= 264, "the task: {task} bytes");
        let shared = size_of::<Shared>();
        assert!(shared <= 4_272, "the connection: {shared} bytes");
        let layer = size_of::<Layer>();
        assert!(layer <= 1_224, "HTTP/3: {layer} bytes");
    }
}
