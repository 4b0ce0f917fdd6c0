//! The first of a server's addresses that works (RFC 8305, Happy Eyeballs).

use std::collections::VecDeque;
use std::future::IntoFuture as _;
use std::net::SocketAddr;
use std::time::Duration;

use tokio::task::JoinSet;

use super::Endpoint;
use crate::connection::Connection;
use crate::error::{ConnectAnyError, ConnectError};

/// Head start of one address before the next is tried too (Connection Attempt
/// Delay, RFC 8305 §5).
const ATTEMPT_DELAY: Duration = Duration::from_millis(250);

type Attempt = (SocketAddr, Result<Connection, ConnectError>);

impl Endpoint {
    /// Begins connections to a server's addresses one after the other, a quarter
    /// of a second apart or as soon as one fails, IPv6 and IPv4 in turns
    /// beginning with the first's family, and answers the first whose handshake
    /// completes; the others are given up (RFC 8305). For IPv6 *and* IPv4 the
    /// endpoint has to be bound to an IPv6 address such as `[::]:0`.
    ///
    /// # Errors
    /// What every address failed with; [`ConnectAnyError::NoAddress`] if there
    /// was none. An unreachable server fails by the idle timeout: wrap this in a
    /// timeout of your own if that is too long.
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
    /// The first attempt begins.
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

    /// The connection of the first attempt, its handshake under way.
    pub(crate) fn first(&self) -> Option<&Connection> {
        self.first.as_ref()
    }

    /// The first attempt that succeeds; the others are given up.
    ///
    /// # Errors
    /// As [`Endpoint::connect_any`].
    pub(crate) async fn finish(mut self) -> Result<Connection, ConnectAnyError> {
        loop {
            tokio::select! {
                ended = self.attempts.join_next() => match ended {
                    Some(Ok((_, Ok(connection)))) => return Ok(connection),
                    Some(Ok((address, Err(error)))) => self.failures.push((address, error)),
                    // Only a panic of ours ends a task so; the rest may still do.
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

/// IPv6 and IPv4 in turns, beginning with the first's family, each in its own
/// order (RFC 8305 §4).
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
