//! Connecting to the first of a server's addresses that answers (Happy Eyeballs, RFC 8305).

use std::collections::VecDeque;
use std::future::IntoFuture as _;
use std::net::SocketAddr;
use std::time::Duration;

use tokio::task::JoinSet;

use super::Endpoint;
use crate::connection::Connection;
use crate::error::{ConnectAnyError, ConnectError};

/// Time before the next address is tried too (Connection Attempt Delay, RFC 8305 §5).
const ATTEMPT_DELAY: Duration = Duration::from_millis(250);

type Attempt = (SocketAddr, Result<Connection, ConnectError>);

impl Endpoint {
    /// Connects to the first of a server's addresses whose handshake completes (RFC 8305).
    ///
    /// Attempts begin 250 ms apart, or as soon as the one before fails. IPv6 and IPv4
    /// alternate, beginning with the family of the first address. The other attempts are
    /// abandoned. To use IPv6 *and* IPv4, the endpoint has to be bound to an IPv6 address
    /// such as `[::]:0`.
    ///
    /// # Errors
    /// The error of each address; [`ConnectAnyError::NoAddress`] if there was none. An
    /// unreachable server fails with the idle timeout: wrap this in a timeout if that is too
    /// long.
    pub async fn connect_any(
        &self,
        addresses: impl IntoIterator<Item = SocketAddr>,
        server_name: &str,
    ) -> Result<Connection, ConnectAnyError> {
        Race::begin(self, addresses, server_name).finish().await
    }
}

/// Attempts to connect to a server at one address after the other.
#[derive(Debug)]
pub(crate) struct Race {
    endpoint: Endpoint,
    server_name: String,
    waiting: VecDeque<SocketAddr>,
    attempts: JoinSet<Attempt>,
    failures: Vec<(SocketAddr, ConnectError)>,
    first: Option<Connection>,
}

impl Race {
    /// Begins the first attempt.
    pub(crate) fn begin(
        endpoint: &Endpoint,
        addresses: impl IntoIterator<Item = SocketAddr>,
        server_name: &str,
    ) -> Self {
        let mut race = Self {
            endpoint: endpoint.clone(),
            server_name: server_name.to_owned(),
            waiting: interleave_families(addresses),
            attempts: JoinSet::new(),
            failures: Vec::new(),
            first: None,
        };
        race.first = race.attempt();
        race
    }

    /// Returns the connection of the first attempt, whose handshake may be incomplete.
    pub(crate) fn first(&self) -> Option<&Connection> {
        self.first.as_ref()
    }

    /// Waits for the first attempt that succeeds, and abandons the others.
    ///
    /// # Errors
    /// As [`Endpoint::connect_any`].
    pub(crate) async fn finish(mut self) -> Result<Connection, ConnectAnyError> {
        loop {
            tokio::select! {
                ended = self.attempts.join_next() => match ended {
                    Some(Ok((_, Ok(connection)))) => return Ok(connection),
                    Some(Ok((address, Err(error)))) => self.failures.push((address, error)),
                    // Only a panic of ours ends a task like this; others may still succeed.
                    Some(Err(_)) => {}
                    None if self.failures.is_empty() => return Err(ConnectAnyError::NoAddress),
                    None => return Err(ConnectAnyError::Failed(self.failures)),
                },
                () = tokio::time::sleep(ATTEMPT_DELAY), if !self.waiting.is_empty() => {}
            }
            self.attempt();
        }
    }

    /// Begins the next attempt, if an address is left.
    fn attempt(&mut self) -> Option<Connection> {
        let address = self.waiting.pop_front()?;
        let connecting = self.endpoint.connect(address, &self.server_name);
        let connection = connecting.connection().cloned();
        let connecting = connecting.into_future();
        self.attempts
            .spawn(async move { (address, connecting.await) });
        connection
    }
}

/// Alternates IPv6 and IPv4, beginning with the family of the first address and keeping the
/// order within each family (RFC 8305 §4).
fn interleave_families(addresses: impl IntoIterator<Item = SocketAddr>) -> VecDeque<SocketAddr> {
    let mut addresses = addresses.into_iter().peekable();
    let six_first = addresses.peek().is_some_and(SocketAddr::is_ipv6);
    let (first, second): (Vec<_>, Vec<_>) =
        addresses.partition(|address| address.is_ipv6() == six_first);
    let mut turns = VecDeque::with_capacity(first.len().saturating_add(second.len()));
    let (mut first, mut second) = (first.into_iter(), second.into_iter());
    loop {
        let pair = [first.next(), second.next()];
        if pair == [None, None] {
            return turns;
        }
        turns.extend(pair.into_iter().flatten());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn address_families_alternate_in_the_given_order() {
        let parse = |text: &str| -> Vec<SocketAddr> {
            text.split_whitespace()
                .map(|address| address.parse().unwrap())
                .collect()
        };
        for (given, expected) in [
            ("", ""),
            ("1.1.1.1:1 2.2.2.2:1", "1.1.1.1:1 2.2.2.2:1"),
            ("[::1]:1 [::2]:1 1.1.1.1:1", "[::1]:1 1.1.1.1:1 [::2]:1"),
            ("1.1.1.1:1 2.2.2.2:1 [::1]:1", "1.1.1.1:1 [::1]:1 2.2.2.2:1"),
        ] {
            assert_eq!(
                interleave_families(parse(given)),
                parse(expected),
                "{given}"
            );
        }
    }
}
