//! Connections to servers: established when they are needed, kept and shared.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use clearway_http3::Code;
use http::Uri;
use tokio::sync::{OwnedMutexGuard, watch};

use super::error::Error;
use super::message::MISSING_HOST;
use crate::connection::Connection;
use crate::endpoint::{Endpoint, Race};

/// The default port of `https` URLs (RFC 9110 §4.2.2).
const HTTPS: u16 = 443;

/// Host and port.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Origin {
    pub(super) host: String,
    pub(super) port: u16,
}

impl Origin {
    pub(super) fn new(host: &str, port: u16) -> Self {
        let host = host.trim_matches(['[', ']']).to_ascii_lowercase();
        Self { host, port }
    }

    pub(super) fn of(uri: &Uri) -> Result<Self, Error> {
        let (host, port) = host_and_port(uri)?;
        Ok(Self::new(host, port))
    }

    /// Whether it is what [`Self::new`] makes of this host and port.
    fn is(&self, host: &str, port: u16) -> bool {
        self.port == port
            && self
                .host
                .eq_ignore_ascii_case(host.trim_matches(['[', ']']))
    }
}

fn host_and_port(uri: &Uri) -> Result<(&str, u16), Error> {
    let bad = |why| Error::Url(uri.to_string(), why);
    if uri.scheme_str().is_some_and(|scheme| scheme != "https") {
        return Err(bad("the scheme must be https"));
    }
    let authority = uri.authority().filter(|it| !it.host().is_empty());
    let authority = authority.ok_or_else(|| bad(MISSING_HOST))?;
    let port = port(uri).ok_or_else(|| bad("the port must be between 1 and 65535"))?;
    Ok((authority.host(), port))
}

/// Returns the port of an `https` URL, which is 443 if the URL has none. Returns `None` if its
/// port is not between 1 and 65535, which `Uri::port_u16` does not distinguish from a URL
/// without a port.
#[must_use]
pub fn port(uri: &Uri) -> Option<u16> {
    let Some(authority) = uri.authority() else {
        return Some(HTTPS);
    };
    let text = authority.as_str();
    let text = text.rsplit_once('@').map_or(text, |(_, rest)| rest);
    match text.strip_prefix(authority.host()) {
        None | Some("" | ":") => Some(HTTPS),
        Some(_) => authority.port_u16().filter(|&port| port != 0),
    }
}

/// Where to connect for an origin, instead of resolving its host.
#[derive(Clone, Debug)]
enum Override {
    Addresses(Vec<SocketAddr>),
    Host(Origin),
}

/// The connections of one client, one to each server.
#[derive(Debug)]
pub(super) struct Pool {
    endpoint: Endpoint,
    servers: Mutex<Servers>,
    overrides: Mutex<HashMap<Origin, Override>>,
}

/// The servers that requests were sent to. Those to which there is no connection any more are
/// forgotten, so that the table is at most twice as large as the number of connections, or
/// [`FEW_SERVERS`].
#[derive(Debug)]
struct Servers {
    table: HashMap<Arc<Origin>, Arc<Server>>,
    /// The origin that was asked for last: most clients have one, which is then found without
    /// copying its name.
    latest: Option<(Arc<Origin>, Weak<Server>)>,
    /// The size at which it is looked through next.
    next_sweep: usize,
}

/// The server that a request is for. While it exists, the server is not forgotten.
#[derive(Clone, Debug)]
pub(super) struct Target {
    origin: Arc<Origin>,
    server: Arc<Server>,
}

/// Number of servers that are remembered without looking for connections that have ended.
const FEW_SERVERS: usize = 64;

impl Default for Servers {
    fn default() -> Self {
        Self {
            table: HashMap::new(),
            latest: None,
            next_sweep: FEW_SERVERS,
        }
    }
}

impl Servers {
    /// Returns the server with this host and port, which is added if it is new.
    fn target(&mut self, host: &str, port: u16) -> Target {
        if let Some((origin, server)) = &self.latest
            && origin.is(host, port)
            && let Some(server) = server.upgrade()
        {
            let origin = origin.clone();
            return Target { origin, server };
        }
        let target = self.get(Origin::new(host, port));
        self.latest = Some((target.origin.clone(), Arc::downgrade(&target.server)));
        target
    }

    /// Returns a server, which is added if it is new. Looking through the table takes constant time
    /// for each that is added.
    fn get(&mut self, origin: Origin) -> Target {
        if let Some((origin, server)) = self.table.get_key_value(&origin) {
            let (origin, server) = (origin.clone(), server.clone());
            return Target { origin, server };
        }
        if self.table.len() >= self.next_sweep {
            self.table.retain(|_, server| server.is_used());
            self.table.shrink_to(FEW_SERVERS);
            self.next_sweep = self.table.len().saturating_mul(2).max(FEW_SERVERS);
        }
        let (origin, server) = (Arc::new(origin), Arc::new(Server::default()));
        self.table.insert(origin.clone(), server.clone());
        Target { origin, server }
    }
}

/// The connection to one server.
#[derive(Debug, Default)]
struct Server {
    /// The first request establishes the connection under this lock; the others wait.
    kept: Arc<tokio::sync::Mutex<Option<Connection>>>,
    /// For early requests, while the connection is being established.
    early: watch::Sender<Option<PooledConnection>>,
}

impl Server {
    /// Whether there is a connection, or somebody who waits for one.
    fn is_used(self: &Arc<Self>) -> bool {
        if Arc::strong_count(self) > 1 {
            return true;
        }
        match self.kept.try_lock() {
            Ok(kept) => kept.as_ref().is_some_and(Connection::takes_requests),
            Err(_) => true,
        }
    }
}

/// The result of the attempts to connect; `None` while they are in progress.
type Outcome = Option<Result<Connection, Error>>;

/// A connection to send a request on.
#[derive(Clone, Debug)]
pub(super) struct PooledConnection {
    pub(super) connection: Connection,
    /// Attempts to connect that are still under way.
    race: Option<watch::Receiver<Outcome>>,
}

impl PooledConnection {
    fn complete(connection: Connection) -> Self {
        Self {
            connection,
            race: None,
        }
    }

    /// Waits for the result of the attempts to connect, if this way was one of them.
    pub(super) async fn outcome(self) -> Outcome {
        let mut race = self.race?;
        let outcome = race.wait_for(Option::is_some).await;
        // The sender is dropped only if the runtime shuts down.
        outcome.ok()?.clone()
    }
}

impl Pool {
    pub(super) fn new(endpoint: Endpoint) -> Self {
        Self {
            endpoint,
            servers: Mutex::default(),
            overrides: Mutex::default(),
        }
    }

    pub(super) fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }

    /// Connects to one of these addresses for `origin`.
    pub(super) fn resolve(&self, origin: Origin, addresses: Vec<SocketAddr>) {
        lock(&self.overrides).insert(origin, Override::Addresses(addresses));
    }

    /// Connects to `other` for `origin`.
    pub(super) fn connect_to(&self, origin: Origin, other: Origin) {
        lock(&self.overrides).insert(origin, Override::Host(other));
    }

    /// Returns the server of a URL.
    ///
    /// # Errors
    /// If the URL has no host, or none that can be connected to.
    pub(super) fn target(&self, uri: &Uri) -> Result<Target, Error> {
        let (host, port) = host_and_port(uri)?;
        Ok(lock(&self.servers).target(host, port))
    }

    /// Returns the open connection to a server, or a new one. With `early` its handshake may
    /// be incomplete, for early data.
    ///
    /// # Errors
    /// If the host cannot be resolved or no connection can be established.
    pub(super) async fn connection(
        &self,
        target: &Target,
        early: bool,
    ) -> Result<PooledConnection, Error> {
        // Almost always: there is one, and nobody is establishing another.
        if let Ok(kept) = target.server.kept.try_lock()
            && let Some(connection) = &*kept
            && self.is_usable(connection)
        {
            return Ok(PooledConnection::complete(connection.clone()));
        }
        // In a place of its own, so that each request does not have room for it.
        Box::pin(self.connect(target, early)).await
    }

    fn is_usable(&self, kept: &Connection) -> bool {
        kept.takes_requests() && !self.endpoint.is_closed()
    }

    /// Returns the connection that is being established, or establishes one.
    async fn connect(&self, target: &Target, early: bool) -> Result<PooledConnection, Error> {
        let Target { origin, server } = target;
        let mut begun = server.early.subscribe();
        let mut kept = tokio::select! {
            biased;
            Ok(pooled) = begun.wait_for(Option::is_some), if early => {
                if let Some(pooled) = &*pooled {
                    return Ok(pooled.clone());
                }
                // Never reached: `wait_for` has seen one.
                return Err(Error::Rejected);
            }
            kept = server.kept.clone().lock_owned() => kept,
        };
        if let Some(connection) = &*kept
            && self.is_usable(connection)
        {
            return Ok(PooledConnection::complete(connection.clone()));
        }
        let addresses = self.addresses(origin).await?;
        let race = Race::begin(&self.endpoint, addresses, &origin.host);
        let first = race.first().filter(|first| first.takes_early_requests());
        if early && let Some(connection) = first.cloned() {
            let (tell, hear) = watch::channel(None);
            let pooled = PooledConnection {
                connection,
                race: Some(hear),
            };
            server.early.send_replace(Some(pooled.clone()));
            tokio::spawn(settle(race, target.clone(), kept, tell));
            return Ok(pooled);
        }
        let connection = race.finish().await.map_err(|cause| failed(origin, cause))?;
        *kept = Some(connection.clone());
        Ok(PooledConnection::complete(connection))
    }

    async fn addresses(&self, origin: &Origin) -> Result<Vec<SocketAddr>, Error> {
        let Origin { host, port } = match self.override_of(origin) {
            Override::Addresses(addresses) => return Ok(addresses),
            Override::Host(origin) => origin,
        };
        if let Ok(ip) = host.parse::<IpAddr>() {
            return Ok(vec![SocketAddr::new(ip, port)]);
        }
        match tokio::net::lookup_host((host.as_str(), port)).await {
            Ok(found) => Ok(found.collect()),
            Err(cause) => Err(Error::Resolve {
                cause: Arc::new(cause),
                host: host.clone(),
            }),
        }
    }

    /// Returns the addresses set for the origin, or for the one that replaces it; else the
    /// origin to resolve.
    fn override_of(&self, origin: &Origin) -> Override {
        let overrides = lock(&self.overrides);
        match overrides.get(origin) {
            None => Override::Host(origin.clone()),
            Some(Override::Addresses(addresses)) => Override::Addresses(addresses.clone()),
            Some(Override::Host(other)) => match overrides.get(other) {
                Some(Override::Addresses(addresses)) => Override::Addresses(addresses.clone()),
                // One step only, because two origins may replace each other.
                Some(Override::Host(_)) | None => Override::Host(other.clone()),
            },
        }
    }
}

/// Waits for the attempts to connect while early requests are sent on the first of them.
async fn settle(
    race: Race,
    Target { origin, server }: Target,
    mut kept: OwnedMutexGuard<Option<Connection>>,
    tell: watch::Sender<Outcome>,
) {
    let first = race.first().cloned();
    let result = race.finish().await.map_err(|cause| failed(&origin, cause));
    let winner = result.as_ref().ok();
    if let Some(first) = first
        && winner.is_none_or(|winner| winner.id() != first.id())
    {
        // Its early requests are sent again on the other connection.
        first.close(Code::NO_ERROR.0, b"");
    }
    *kept = winner.cloned();
    server.early.send_replace(None);
    tell.send_replace(Some(result));
}

fn failed(origin: &Origin, cause: crate::error::ConnectAnyError) -> Error {
    let Origin { host, port } = origin;
    Error::Connect {
        authority: format!("{host}:{port}"),
        cause,
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_without_a_connection_are_forgotten() {
        let mut servers = Servers::default();
        let origin = |n: usize| Origin::new(&format!("host-{n}.example.org"), 443);
        let used: Vec<_> = (0..10).map(|n| servers.get(origin(n))).collect();
        for n in 10..10_000 {
            drop(servers.get(origin(n)));
            assert!(
                servers.table.len() <= FEW_SERVERS,
                "{}",
                servers.table.len()
            );
        }
        for (n, target) in used.iter().enumerate() {
            let again = servers.get(origin(n));
            assert!(Arc::ptr_eq(&target.server, &again.server), "{n} is in use");
        }
        // More that are used, and as many again.
        let used: Vec<_> = (20_000..20_500).map(|n| servers.get(origin(n))).collect();
        for n in 30_000..40_000 {
            drop(servers.get(origin(n)));
        }
        let most = 2 * (used.len() + 10 + FEW_SERVERS);
        assert!(servers.table.len() <= most, "{}", servers.table.len());
    }

    #[test]
    fn server_that_was_asked_for_last_is_the_one_in_the_table() {
        let mut servers = Servers::default();
        let first = servers.target("Example.org", 443);
        for (host, port, same) in [
            ("example.ORG", 443, true),
            ("example.org", 8443, false),
            ("example.com", 443, false),
            ("example.org", 443, true),
        ] {
            let again = servers.target(host, port);
            let in_table = servers.get(Origin::new(host, port));
            assert!(
                Arc::ptr_eq(&again.server, &in_table.server),
                "{host}:{port}"
            );
            assert_eq!(
                Arc::ptr_eq(&again.server, &first.server),
                same,
                "{host}:{port}"
            );
        }
        let v6 = servers.target("[::1]", 443);
        assert!(Arc::ptr_eq(
            &v6.server,
            &servers.target("[::1]", 443).server
        ));
        assert_eq!(v6.origin.host, "::1");
    }

    #[test]
    fn port_out_of_range_is_rejected_and_not_replaced_by_443() {
        for (url, port) in [
            ("https://a", Some(443)),
            ("https://a:/", Some(443)),
            ("https://[::1]:8443/", Some(8_443)),
            ("https://u:1@a:65535/", Some(65_535)),
            ("https://a:65536/", None),
            ("https://a:abc/", None),
            ("https://a:-1/", None),
            ("https://a:0/", None),
        ] {
            // The parser may reject it already.
            let Ok(uri) = url.parse() else {
                assert_eq!(port, None, "{url}");
                continue;
            };
            let origin = Origin::of(&uri).map(|origin| origin.port);
            assert_eq!(origin.ok(), port, "{url}");
        }
    }
}
