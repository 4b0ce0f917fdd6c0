//! Connections that are being established.

use std::future::{Future, IntoFuture};
use std::pin::Pin;

use clearway_quic::connection::ConnectionError;

use crate::connection::Connection;
use crate::error::ConnectError;

/// A connection that is being established. Await it to complete the handshake, or use it at
/// once with [`into_zero_rtt`](Self::into_zero_rtt). Dropping it abandons the attempt.
#[derive(Debug)]
#[must_use = "await it to complete the handshake; dropping it abandons the attempt"]
pub struct Connecting {
    connection: Result<Connection, ConnectError>,
}

impl Connecting {
    pub(super) fn new(connection: Result<Connection, ConnectError>) -> Self {
        Self { connection }
    }

    /// Returns the connection, unless it failed to begin.
    pub(super) fn connection(&self) -> Option<&Connection> {
        self.connection.as_ref().ok()
    }

    /// Returns the connection before its handshake is complete, if an earlier session with
    /// the server allows 0-RTT. Data written before the handshake is complete may be
    /// **replayed** by an attacker (RFC 9001 §9.2). If the server rejects it, which
    /// [`ZeroRttAccepted`] reports, it is sent again after the handshake.
    ///
    /// # Errors
    /// The same `Connecting` if 0-RTT is not possible.
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

/// The answer to come whether the server accepts 0-RTT data: see [`wait`](Self::wait).
#[derive(Debug)]
pub struct ZeroRttAccepted(Connection);

impl ZeroRttAccepted {
    /// Waits for the handshake, and returns whether the server accepted 0-RTT data.
    ///
    /// # Errors
    /// The reason why the connection ended.
    pub async fn wait(self) -> Result<bool, ConnectionError> {
        self.0.handshake_complete().await?;
        Ok(self.0.zero_rtt_accepted().unwrap_or(false))
    }
}
