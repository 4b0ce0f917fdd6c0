//! Connections to servers: made when they are needed, kept and shared.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use clearway_http3::Code;
use http::Uri;
use tokio::sync::{OwnedMutexGuard, watch};

use super::error::Error;
use crate::connection::Connection;
use crate::endpoint::{Endpoint, Race};

/// The port of `https` URLs that name none (RFC 9110 §4.2.2).
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
        let bad = |why| Error::Url(uri.to_string(), why);
        if uri.scheme_str().is_some_and(|scheme| scheme != "https") {
            return Err(bad("HTTP/3 is for https URLs"));
        }
        let authority = uri.authority().filter(|it| !it.host().is_empty());
        let authority =
            authority.ok_or_else(|| bad("it names no host; write https://HOST/PATH"))?;
        let port = port(uri).ok_or_else(|| bad("a port is a number from 1 to 65535"))?;
        Ok(Self::new(authority.host(), port))
    }
}

/// The port of an https URL, 443 if it names none; `None` if it names one that there
/// is not, which `Uri::port_u16` does not tell from none.
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

/// Where an origin is to be found, if not where the resolver says.
#[derive(Clone, Debug)]
enum Override {
    Addresses(Vec<SocketAddr>),
    Host(Origin),
}

/// The connections of one client, one to each server.
#[derive(Debug)]
pub(super) struct Pool {
    endpoint: Endpoint,
    servers: Mutex<HashMap<Origin, Arc<Server>>>,
    overrides: Mutex<HashMap<Origin, Override>>,
}

/// The connection to one server.
#[derive(Debug, Default)]
struct Server {
    /// Whoever needs one first makes it; the others wait.
    kept: Arc<tokio::sync::Mutex<Option<Connection>>>,
    /// For early requests, while it is being made.
    early: watch::Sender<Option<PooledConnection>>,
}

/// How the attempts to connect ended; `None` before.
type Outcome = Option<Result<Connection, Error>>;

/// A connection to send a request on.
#[derive(Clone, Debug)]
pub(super) struct PooledConnection {
    pub(super) connection: Connection,
    /// Attempts to connect that are still under pooled.
    race: Option<watch::Receiver<Outcome>>,
}

impl PooledConnection {
    fn complete(connection: Connection) -> Self {
        Self {
            connection,
            race: None,
        }
    }

    /// What the attempts to connect led to, if this way was one of them.
    pub(super) async fn outcome(self) -> Outcome {
        let mut race = self.race?;
        let outcome = race.wait_for(Option::is_some).await;
        // Who would tell is gone only if the runtime is.
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

    /// Connections to `origin` go to one of these addresses.
    pub(super) fn resolve(&self, origin: Origin, addresses: Vec<SocketAddr>) {
        lock(&self.overrides).insert(origin, Override::Addresses(addresses));
    }

    /// Connections to `origin` go where those to `other` go.
    pub(super) fn connect_to(&self, origin: Origin, other: Origin) {
        lock(&self.overrides).insert(origin, Override::Host(other));
    }

    /// The connection to a server that is open already, or a new one. With `early`
    /// it may be one whose handshake has only begun, for early data.
    ///
    /// # Errors
    /// If the host has no address or no connection comes about.
    pub(super) async fn connection(
        &self,
        origin: &Origin,
        early: bool,
    ) -> Result<PooledConnection, Error> {
        let server = lock(&self.servers)
            .entry(origin.clone())
            .or_default()
            .clone();
        let mut begun = server.early.subscribe();
        let mut kept = tokio::select! {
            biased;
            Ok(pooled) = begun.wait_for(Option::is_some), if early => {
                if let Some(pooled) = &*pooled {
                    return Ok(pooled.clone());
                }
                // `wait_for` has seen that there is one.
                return Err(Error::Rejected);
            }
            kept = server.kept.clone().lock_owned() => kept,
        };
        if let Some(connection) = &*kept
            && connection.takes_requests()
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
            tokio::spawn(settle(race, origin.clone(), server, kept, tell));
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

    /// Addresses that were given for the origin, or for the one it is like; else
    /// the one to resolve.
    fn override_of(&self, origin: &Origin) -> Override {
        let overrides = lock(&self.overrides);
        match overrides.get(origin) {
            None => Override::Host(origin.clone()),
            Some(Override::Addresses(addresses)) => Override::Addresses(addresses.clone()),
            Some(Override::Host(other)) => match overrides.get(other) {
                Some(Override::Addresses(addresses)) => Override::Addresses(addresses.clone()),
                // One step is enough: two that are like each other are nowhere.
                Some(Override::Host(_)) | None => Override::Host(other.clone()),
            },
        }
    }
}

/// Waits for the attempts to connect while early requests are under way on the
/// first of them.
async fn settle(
    race: Race,
    origin: Origin,
    server: Arc<Server>,
    mut kept: OwnedMutexGuard<Option<Connection>>,
    tell: watch::Sender<Outcome>,
) {
    let first = race.first().cloned();
    let result = race.finish().await.map_err(|cause| failed(&origin, cause));
    let winner = result.as_ref().ok();
    if let Some(first) = first
        && winner.is_none_or(|winner| winner.id() != first.id())
    {
        // Its early requests go elsewhere.
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
            // What the parser refuses already is no worry.
            let Ok(uri) = url.parse() else {
                assert_eq!(port, None, "{url}");
                continue;
            };
            let origin = Origin::of(&uri).map(|origin| origin.port);
            assert_eq!(origin.ok(), port, "{url}");
        }
    }
}
