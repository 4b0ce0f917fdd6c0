//! The server: authentication, resolution, answers.

use std::fmt;
use std::future::Future;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use http::header::{HeaderValue, PROXY_AUTHENTICATE};
use http::{Extensions, Method, Request, Response, StatusCode, request};
use ipnet::IpNet;
use subtle::{Choice, ConstantTimeEq as _};
use tokio::net::UdpSocket;

use super::UdpTunnel;
use super::relay::{RelayEnd, relay};
use super::udp_tunnel::token;
use super::{AddressPolicy, DeniedAddress, InvalidTarget, PROTOCOL, Target};
use crate::http::message::Protocol;
use crate::http::tunnel::Tunnel;

/// How long a name may take to resolve.
const RESOLVE_TIMEOUT: Duration = Duration::from_secs(5);

/// How long a tunnel may be without a packet: two minutes, as long as a NAT must keep a mapping
/// (RFC 4787 §4.3, RFC 9298 §3.1).
const IDLE_TIMEOUT: Duration = Duration::from_secs(120);

/// The shortest token, in bytes.
const MIN_TOKEN: usize = 16;

/// The addresses of a name, when they are there.
pub type Resolution = Pin<Box<dyn Future<Output = io::Result<Vec<SocketAddr>>> + Send>>;

type Resolver = Arc<dyn Fn(Target) -> Resolution + Send + Sync>;

/// A proxy for UDP (RFC 9298). Clones are the same proxy.
#[derive(Clone, Debug)]
pub struct UdpProxy(Arc<Inner>);

struct Inner {
    policy: AddressPolicy,
    tokens: Vec<Vec<u8>>,
    resolver: Resolver,
    idle_timeout: Duration,
    opened: AtomicU64,
    denied: AtomicU64,
    failed: AtomicU64,
}

impl fmt::Debug for Inner {
    /// Without the tokens.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("UdpProxy")
            .field("policy", &self.policy)
            .field("idle_timeout", &self.idle_timeout)
            .finish_non_exhaustive()
    }
}

/// Settings of a [`UdpProxy`].
#[must_use]
pub struct UdpProxyBuilder {
    policy: AddressPolicy,
    tokens: Vec<Vec<u8>>,
    resolver: Resolver,
    idle_timeout: Duration,
}

impl fmt::Debug for UdpProxyBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("UdpProxyBuilder")
            .field("policy", &self.policy)
            .field("idle_timeout", &self.idle_timeout)
            .finish_non_exhaustive()
    }
}

/// What a [`UdpProxy`] has counted since it was created.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct UdpProxyCounters {
    /// Tunnels that were opened.
    pub opened: u64,
    /// Requests that were denied: without a valid token, or to an address that is not allowed.
    pub denied: u64,
    /// Requests that failed: invalid ones, names without an address, sockets without a route.
    pub failed: u64,
}

/// Why a request gets no tunnel.
#[derive(Debug, thiserror::Error)]
enum Refusal {
    #[error("missing or unknown token")]
    Unauthenticated,
    #[error("not a request for a UDP tunnel")]
    NotForUs,
    #[error(transparent)]
    Invalid(InvalidTarget),
    #[error("the target's name was not resolved in time")]
    ResolveTimeout,
    #[error("the target's name has no address")]
    Unresolved,
    #[error("{0}")]
    Denied(DeniedAddress),
    #[error("no socket to the target: {0}")]
    Socket(io::Error),
}

impl UdpProxyBuilder {
    /// Accepts requests with this token (`proxy-authorization: Bearer TOKEN`). At least one is
    /// needed, of 16 bytes or more; a shorter one is never accepted.
    pub fn token(mut self, token: &str) -> Self {
        if token.len() >= MIN_TOKEN {
            self.tokens.push(token.as_bytes().to_vec());
        }
        self
    }

    /// Sets which addresses and ports it sends to.
    pub fn policy(mut self, policy: AddressPolicy) -> Self {
        self.policy = policy;
        self
    }

    /// Allows a network ([`AddressPolicy::allow`]).
    pub fn allow(mut self, network: IpNet) -> Self {
        self.policy = self.policy.allow(network);
        self
    }

    /// Sets what resolves names, instead of the system. It is called once for each tunnel.
    pub fn resolver(
        mut self,
        resolver: impl Fn(Target) -> Resolution + Send + Sync + 'static,
    ) -> Self {
        self.resolver = Arc::new(resolver);
        self
    }

    /// Sets after how long without a packet a tunnel ends, instead of two minutes.
    pub fn idle_timeout(mut self, timeout: Duration) -> Self {
        self.idle_timeout = timeout;
        self
    }

    /// Creates the proxy.
    #[must_use]
    pub fn build(self) -> UdpProxy {
        UdpProxy(Arc::new(Inner {
            policy: self.policy,
            tokens: self.tokens,
            resolver: self.resolver,
            idle_timeout: self.idle_timeout,
            opened: AtomicU64::new(0),
            denied: AtomicU64::new(0),
            failed: AtomicU64::new(0),
        }))
    }
}

impl UdpProxy {
    /// Returns settings without a token, with which every request is denied.
    pub fn builder() -> UdpProxyBuilder {
        UdpProxyBuilder {
            policy: AddressPolicy::default(),
            tokens: Vec::new(),
            resolver: Arc::new(resolve_with_system),
            idle_timeout: IDLE_TIMEOUT,
        }
    }

    /// Whether a request asks for a UDP tunnel.
    #[must_use]
    pub fn is_for<B>(request: &Request<B>) -> bool {
        is_for(request.method(), request.extensions())
    }

    /// Answers a request: opens the tunnel and passes packets on until it ends, or returns the
    /// response that refuses it. The response after a tunnel is ignored.
    pub async fn serve<B>(&self, request: Request<B>) -> Response<()> {
        let Self(inner) = self;
        // The tunnel has what would be its body.
        let (parts, body) = request.into_parts();
        drop(body);
        let (socket, tunnel) = match inner.open(&parts).await {
            Ok(open) => open,
            Err(refusal) => return inner.refuse(&refusal),
        };
        match UdpTunnel::accept(tunnel).await {
            Ok(mut tunnel) => {
                inner.opened.fetch_add(1, Ordering::Relaxed);
                let end = relay(&mut tunnel, &socket, inner.idle_timeout).await;
                tracing::debug!(%end, counters = ?tunnel.counters(), "a UDP tunnel has ended");
                match end {
                    RelayEnd::Finished | RelayEnd::Idle => tunnel.finish(),
                    RelayEnd::Tunnel(_) | RelayEnd::Socket(_) => {}
                }
            }
            Err(error) => tracing::debug!(%error, "a UDP tunnel was not accepted"),
        }
        Response::new(())
    }

    /// Returns what it has counted.
    #[must_use]
    pub fn counters(&self) -> UdpProxyCounters {
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        UdpProxyCounters {
            opened: get(&self.0.opened),
            denied: get(&self.0.denied),
            failed: get(&self.0.failed),
        }
    }
}

impl Inner {
    async fn open(&self, request: &request::Parts) -> Result<(UdpSocket, Tunnel), Refusal> {
        let tunnel = request.extensions.get::<Tunnel>().cloned();
        let tunnel = tunnel.filter(|_| is_for(&request.method, &request.extensions));
        let tunnel = tunnel.ok_or(Refusal::NotForUs)?;
        // Before anything is told or done for a stranger.
        if !self.is_authenticated(request) {
            return Err(Refusal::Unauthenticated);
        }
        let target = Target::of_path(request.uri.path()).map_err(Refusal::Invalid)?;
        let addresses = self.resolve(target).await?;
        let socket = self.dial(&addresses).await?;
        Ok((socket, tunnel))
    }

    /// Compares with every token in a time that does not depend on which one fits, or where not.
    fn is_authenticated(&self, request: &request::Parts) -> bool {
        let Some(token) = token(&request.headers) else {
            return false;
        };
        let known = self.tokens.iter();
        let found = known.fold(Choice::from(0), |found, known| found | known.ct_eq(token));
        found.into()
    }

    async fn resolve(&self, target: Target) -> Result<Vec<SocketAddr>, Refusal> {
        if let Ok(ip) = target.host().parse() {
            return Ok(vec![SocketAddr::new(ip, target.port())]);
        }
        let resolving = (self.resolver)(target);
        match tokio::time::timeout(RESOLVE_TIMEOUT, resolving).await {
            Ok(Ok(addresses)) if !addresses.is_empty() => Ok(addresses),
            Ok(Ok(_) | Err(_)) => Err(Refusal::Unresolved),
            Err(_) => Err(Refusal::ResolveTimeout),
        }
    }

    /// Connects a socket to the first address that is allowed and reachable. The address that was
    /// checked is used, and no name, so that another answer of the DNS cannot change it.
    async fn dial(&self, addresses: &[SocketAddr]) -> Result<UdpSocket, Refusal> {
        let mut refusal = Refusal::Unresolved;
        for &address in addresses {
            refusal = match self.policy.check(address) {
                Err(denied) => Refusal::Denied(denied),
                Ok(()) => match self.connect(address).await {
                    Ok(socket) => return Ok(socket),
                    Err(refusal) => refusal,
                },
            };
        }
        Err(refusal)
    }

    async fn connect(&self, address: SocketAddr) -> Result<UdpSocket, Refusal> {
        let any: IpAddr = match address {
            SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
            SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
        };
        let socket = UdpSocket::bind(SocketAddr::new(any, 0)).await;
        let socket = socket.map_err(Refusal::Socket)?;
        // Sends nothing, but chooses the route and with it the source address.
        socket.connect(address).await.map_err(Refusal::Socket)?;
        let source = socket.local_addr().map_err(Refusal::Socket)?;
        let checked = self.policy.check_own(address, Some(source.ip()));
        checked.map_err(Refusal::Denied)?;
        Ok(socket)
    }

    /// The response, with the reason for the client (RFC 9209 §2.3).
    fn refuse(&self, refusal: &Refusal) -> Response<()> {
        let denied = matches!(refusal, Refusal::Unauthenticated | Refusal::Denied(_));
        let counter = if denied { &self.denied } else { &self.failed };
        counter.fetch_add(1, Ordering::Relaxed);
        tracing::debug!(%refusal, "a UDP tunnel was refused");
        let (status, error) = match refusal {
            Refusal::Unauthenticated => (
                StatusCode::PROXY_AUTHENTICATION_REQUIRED,
                "http_request_denied",
            ),
            Refusal::NotForUs | Refusal::Invalid(_) => {
                (StatusCode::BAD_REQUEST, "http_request_error")
            }
            Refusal::ResolveTimeout => (StatusCode::GATEWAY_TIMEOUT, "dns_timeout"),
            Refusal::Unresolved => (StatusCode::BAD_GATEWAY, "dns_error"),
            Refusal::Denied(DeniedAddress::Port) => (StatusCode::FORBIDDEN, "http_request_denied"),
            Refusal::Denied(_) => (StatusCode::FORBIDDEN, "destination_ip_prohibited"),
            Refusal::Socket(error) => match error.kind() {
                io::ErrorKind::NetworkUnreachable | io::ErrorKind::HostUnreachable => {
                    (StatusCode::BAD_GATEWAY, "destination_ip_unroutable")
                }
                _ => (StatusCode::SERVICE_UNAVAILABLE, "proxy_internal_error"),
            },
        };
        let mut response = Response::new(());
        *response.status_mut() = status;
        if let Ok(value) = HeaderValue::try_from(format!("clearway; error={error}")) {
            response.headers_mut().insert("proxy-status", value);
        }
        if status == StatusCode::PROXY_AUTHENTICATION_REQUIRED {
            let bearer = HeaderValue::from_static("Bearer");
            response.headers_mut().insert(PROXY_AUTHENTICATE, bearer);
        }
        response
    }
}

fn is_for(method: &Method, extensions: &Extensions) -> bool {
    let protocol = extensions.get::<Protocol>();
    method == Method::CONNECT
        && protocol.is_some_and(|protocol| protocol.name() == PROTOCOL.as_bytes())
}

fn resolve_with_system(target: Target) -> Resolution {
    Box::pin(async move {
        let addresses = tokio::net::lookup_host((target.host(), target.port())).await?;
        Ok(addresses.collect())
    })
}
