//! A connection that is being made.

use std::future::{Future, IntoFuture};
use std::pin::Pin;

use clearway_quic::connection::ConnectionError;

use crate::connection::Connection;
use crate::error::ConnectError;

/// A connection that is being made: await it, or use it at once with
/// [`into_zero_rtt`](Self::into_zero_rtt). Dropped, it gives up.
#[derive(Debug)]
#[must_use = "awaiting it completes the handshake, dropping it gives up"]
pub struct Connecting {
    connection: Result<Connection, ConnectError>,
}

impl Connecting {
    pub(super) fn new(connection: Result<Connection, ConnectError>) -> Self {
        Self { connection }
    }

    /// The connection, unless it failed to begin.
    pub(super) fn connection(&self) -> Option<&Connection> {
        self.connection.as_ref().ok()
    }

    /// The connection before its handshake is complete, if the server is known
    /// from before and allowed it. What is written then may be **replayed** by
    /// an attacker (RFC 9001 §9.2) and is repeated by us if the server would not
    /// take it, which [`ZeroRttAccepted`] tells.
    ///
    /// # Errors
    /// The same `Connecting` if there is no 0-RTT to be had.
    pub fn into_zero_rtt(self) -> Result<(Connection, ZeroRttAccepted), Self> {
        match self.connection {
            Ok(connection) if connection.has_zero_rtt() => {
                Ok((connection.clone(), ZeroRttAccepted(connection)))
            }
            connection => Err(Self { connection }),
        }
    }
}

impl IntoFuture for Connecting {
    type Output = Result<Connection, ConnectError>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(async move {
            let connection = self.connection?;
            connection.handshake_complete().await?;
            Ok(connection)
        })
    }
}

/// Whether a server takes 0-RTT data: [`wait`](Self::wait).
#[derive(Debug)]
pub struct ZeroRttAccepted(Connection);

impl ZeroRttAccepted {
    /// Waits for the handshake to tell.
    ///
    /// # Errors
    /// Why the connection ended.
    pub async fn wait(self) -> Result<bool, ConnectionError> {
        self.0.handshake_complete().await?;
        Ok(self.0.zero_rtt_accepted().unwrap_or(false))
    }
}
