//! Serving a tower service over HTTP/3.

use std::future::Future;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use clearway_http3::{Code, Timeouts};
use clearway_quic::Instant;
use http::{Request, Response, StatusCode};
use http_body::Body;
use tower_service::Service;
use tracing::Instrument as _;

use super::ALPN;
use super::answer::{RequestPermit, RequestTask};
use super::body::Incoming;
use super::error::BoxError;
use super::requests::{ArrivedRequest, ArrivedRequests};
use super::server_state::{ServerCounters, ServerState};
use super::turns::Account;
use crate::config::ServerConfig;
use crate::connection::{Connection, ConnectionRef, Signal};
use crate::endpoint::{Endpoint, EndpointBuilder};
use crate::error::{BuildError, EndpointError};
use crate::panic::catch;
use crate::slice::requeue;
use crate::spans;

/// An HTTP/3 server: [`bind`](Self::bind), then [`serve`](Self::serve) a tower
/// service such as an axum router. Clones are the same server.
#[derive(Clone, Debug)]
pub struct Server {
    endpoint: Endpoint,
    state: Arc<ServerState>,
    on_caller_runtime: bool,
}

/// Requests under way at once, over all connections, unless configured. Most wait for
/// something and hold some kilobytes, so that this is some ten megabytes; one connection
/// has 100 at most by default.
const MAX_REQUESTS: usize = 10_000;

/// Tunnels at once, over all connections, unless configured: half of the requests, so that
/// tunnels, which may stay open for days, leave places for requests that are answered soon.
const MAX_TUNNELS: usize = MAX_REQUESTS / 2;

/// What else a server may be told: [`Server::builder`].
#[derive(Debug)]
#[must_use]
pub struct ServerBuilder {
    endpoint: EndpointBuilder,
    http: clearway_http3::Config,
    max_requests: usize,
    max_tunnels: usize,
    on_caller_runtime: bool,
}

impl Server {
    /// A server on this address with one shard, on whose thread the handlers run.
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
            max_requests: MAX_REQUESTS,
            max_tunnels: MAX_TUNNELS,
            on_caller_runtime: false,
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

    /// What the server counts. What its endpoint counts is with
    /// [`Endpoint::counters`].
    #[must_use]
    pub fn counters(&self) -> ServerCounters {
        self.state.counters()
    }

    /// Answers every request by `service`, each in a task of its own with a clone
    /// of it, until [`shutdown`](Self::shutdown).
    ///
    /// A service that fails or panics is answered for with status 500. A body that fails
    /// or panics resets its stream, so that it never looks whole. A response may come before the
    /// request's body was read: the rest is not transferred, and the client gets the response. A request whose client
    /// gives up, or misses one of the [`Timeouts`](super::Timeouts), is dropped where it
    /// stands. Requests carry their [`Connection`] and
    /// an [`InterimSender`](super::InterimSender) among their extensions, and those that came as early
    /// data (with [`ServerConfig::early_data`]) [`ArrivedEarly`](super::ArrivedEarly).
    ///
    /// # Errors
    /// Why a shard of the endpoint ended, as [`Endpoint::accept`] says. Requests on
    /// other shards are still answered;
    /// [`restart_failed_shards`](Endpoint::restart_failed_shards) makes another call
    /// of this work.
    pub async fn serve<S, B>(&self, service: S) -> Result<(), EndpointError>
    where
        S: Service<Request<Incoming>, Response = Response<B>> + Clone + Send + 'static,
        S::Error: Into<BoxError>,
        S::Future: Send,
        B: Body<Data: Into<Bytes> + Send, Error: Into<BoxError>> + Send + 'static,
    {
        while let Some(connection) = self.endpoint.accept().await? {
            let shard = connection
                .shard_runtime()
                .filter(|_| !self.on_caller_runtime);
            let (runtime, turns) = match shard {
                Some(shard) => (shard.clone(), connection.shard_turns()),
                None => (tokio::runtime::Handle::current(), &self.state.turns),
            };
            let threads = runtime.metrics().num_workers();
            let account = if connection.shared().is_of_busy_source() {
                Account::new(turns.clone(), threads)
            } else {
                Account::favored(turns.clone(), threads)
            };
            let state = self.state.clone();
            let serving = serve_connection(connection, service.clone(), state, account);
            runtime.spawn(serving);
        }
        Ok(())
    }

    /// Winds up: no new connections or requests, those begun are answered, then
    /// [`serve`](Self::serve) returns. What is not done after `patience` is cut
    /// off.
    pub async fn shutdown(&self, patience: Duration) {
        self.state.close();
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

    /// Runs handlers on the runtime that calls [`serve`](Server::serve) rather than on the
    /// thread of their connection's shard.
    ///
    /// On the shard, a request needs no change of thread, which doubles the rate of short
    /// requests. But a handler that computes for long (more than some 100 µs) then delays every
    /// connection of its shard, and `tokio::task::block_in_place` panics there. Handlers like
    /// that belong on a runtime with several threads, or use `tokio::task::spawn_blocking`.
    pub fn handlers_on_caller_runtime(mut self) -> Self {
        self.on_caller_runtime = true;
        self
    }

    /// Bounds on what a client may cost, deadlines, sizes of the compression tables.
    pub fn http(mut self, config: clearway_http3::Config) -> Self {
        self.http = config;
        self
    }

    /// How long a client may keep the server waiting; part of [`http`](Self::http).
    pub fn timeouts(mut self, timeouts: Timeouts) -> Self {
        self.http.timeouts = timeouts;
        self
    }

    /// Requests under way at once, over all connections; 10,000 by default. As places
    /// become few, each connection gets fewer of them. Requests beyond it are rejected
    /// with `H3_REQUEST_REJECTED`: they were not acted on and can be sent again.
    pub fn max_requests(mut self, requests: usize) -> Self {
        self.max_requests = requests;
        self
    }

    /// Accepts extended CONNECT (RFC 9220) and HTTP datagrams (RFC 9297), which are off by default
    /// because a service has to handle them: by [`Tunnel`](super::Tunnel), or as WebSockets. Part
    /// of [`http`](Self::http), which has to be called before.
    pub fn tunnels(mut self) -> Self {
        self.http.extended_connect = true;
        self.http.datagrams = true;
        self
    }

    /// Accepts WebTransport ([`webtransport`](super::webtransport)), and
    /// [`tunnels`](Self::tunnels) with it: up to `sessions` sessions at once on a connection. Those
    /// beyond it are rejected with `H3_REQUEST_REJECTED`.
    pub fn webtransport(mut self, sessions: u16) -> Self {
        self.http.webtransport_sessions = sessions;
        self.tunnels()
    }

    /// Tunnels (CONNECT) at once, over all connections; 5,000 by default. Each is one of the
    /// [`max_requests`](Self::max_requests) too. As places become few, each connection gets fewer
    /// of them. Those beyond it are rejected with `H3_REQUEST_REJECTED`.
    pub fn max_tunnels(mut self, tunnels: usize) -> Self {
        self.max_tunnels = tunnels;
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
            state: Arc::new(ServerState::new(self.max_requests, self.max_tunnels)),
            on_caller_runtime: self.on_caller_runtime,
        })
    }
}

/// Serves one client until it leaves or we wind up.
async fn serve_connection<S, B>(
    connection: Connection,
    service: S,
    state: Arc<ServerState>,
    account: Arc<Account>,
) where
    S: Service<Request<Incoming>, Response = Response<B>> + Clone + Send + 'static,
    S::Error: Into<BoxError>,
    S::Future: Send,
    B: Body<Data: Into<Bytes> + Send, Error: Into<BoxError>> + Send + 'static,
{
    {
        // Whoever asks after this line wakes it.
        let mut asked = pin!(state.news.notified());
        while !state.is_closing() {
            account.turn().await;
            let arrived = tokio::select! {
                arrived = next_requests(connection.shared()) => arrived,
                () = &mut asked => break,
            };
            let Some(arrived) = arrived else { return };
            let more = arrived.more;
            account.work(|begun| {
                begin(&state, &connection, &service, (&account, begun), arrived);
            });
            if more {
                requeue().await;
            }
        }
    }
    // In a place of its own: a connection takes that room when it ends, not for
    // as long as it waits.
    Box::pin(wind_up(connection, service, state, account)).await;
}

/// Answers what still comes, until everything is answered and delivered.
async fn wind_up<S, B>(
    connection: Connection,
    service: S,
    state: Arc<ServerState>,
    account: Arc<Account>,
) where
    S: Service<Request<Incoming>, Response = Response<B>> + Clone + Send + 'static,
    S::Error: Into<BoxError>,
    S::Future: Send,
    B: Body<Data: Into<Bytes> + Send, Error: Into<BoxError>> + Send + 'static,
{
    let mut draining = pin!(drain(&connection));
    loop {
        account.turn().await;
        let arrived = tokio::select! {
            arrived = next_requests(connection.shared()) => arrived,
            () = &mut draining => return,
        };
        let Some(arrived) = arrived else { return };
        let more = arrived.more;
        account.work(|begun| {
            begin(&state, &connection, &service, (&account, begun), arrived);
        });
        if more {
            requeue().await;
        }
    }
}

/// Answers each request in a task of its own, as far as there are places. `begun` is when this work
/// began.
fn begin<S, B>(
    state: &Arc<ServerState>,
    connection: &Connection,
    service: &S,
    (account, begun): (&Arc<Account>, Instant),
    arrived: ArrivedRequests,
) where
    S: Service<Request<Incoming>, Response = Response<B>> + Clone + Send + 'static,
    S::Error: Into<BoxError>,
    S::Future: Send,
    B: Body<Data: Into<Bytes> + Send, Error: Into<BoxError>> + Send + 'static,
{
    let shared = connection.shared();
    let ArrivedRequests {
        requests, mut held, ..
    } = arrived;
    let parent = spans::parent(shared);
    let mut starter = account.starter(begun);
    for request in requests {
        let Some(permit) = admit(state, &request, held) else {
            shared.http(|view| view.reject(request.id));
            continue;
        };
        held = held.saturating_add(1);
        let span = spans::server_request(parent.clone(), &request.head);
        let task = RequestTask::new(shared, connection, request, permit);
        match catch(|| service.clone()) {
            Ok(service) => {
                starter.start(task.run(service, span.clone()).instrument(span));
            }
            Err(panic) => {
                tracing::error!(%panic, "the service could not be cloned");
                task.refuse(StatusCode::INTERNAL_SERVER_ERROR);
            }
        }
    }
}

/// Returns the permits for a request of a connection that has `held` others in progress.
fn admit(state: &Arc<ServerState>, request: &ArrivedRequest, held: usize) -> Option<RequestPermit> {
    let permit = state.admit(held)?;
    if request.head.method == "CONNECT" {
        let tunnel = state.admit_tunnel(held)?;
        return Some(RequestPermit::Tunnel(permit, tunnel));
    }
    Some(RequestPermit::Request(permit))
}

/// Waits until everything begun is answered and delivered, and closes.
#[expect(
    clippy::redundant_closure_for_method_calls,
    reason = "a path is not general over the lifetime of the view"
)]
async fn drain(connection: &Connection) {
    let shared = connection.shared();
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
fn next_requests(shared: &ConnectionRef) -> impl Future<Output = Option<ArrivedRequests>> + Send {
    let busy = shared.link.busy.get();
    shared.wait_for(Signal::Requests, move |state| {
        let requests = state.take_requests(busy);
        if !requests.is_empty() {
            let (all, more) = state.http_view().map_or((0, false), |view| {
                (view.layer.held(), view.layer.has_arrived())
            });
            let held = all.saturating_sub(requests.len());
            return Some(Some(ArrivedRequests {
                requests,
                held,
                more,
            }));
        }
        state.error.is_some().then_some(None)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::connection::ConnectionShared;
    use crate::http::layer::HttpLayer;

    fn size_of_future<A, B, C, D, F>(_: fn(A, B, C, D) -> F) -> usize {
        size_of::<F>()
    }

    /// A server has far more connections that wait than connections that work.
    #[test]
    fn idle_connection_fits_its_size_budget() {
        let task = size_of_future(serve_connection::<axum::Router, axum::body::Body>);
        // With some 100 bytes of the runtime, in steps of 128: 384.
        assert!(task <= 272, "the task: {task} bytes");
        let shared = size_of::<ConnectionShared>();
        assert!(shared <= 4_304, "the connection: {shared} bytes");
        let layer = size_of::<HttpLayer>();
        assert!(layer <= 1_248, "HTTP/3: {layer} bytes");
    }
}
