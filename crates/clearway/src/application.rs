//! Protocols served on an endpoint.

use std::future::Future;

use crate::Connection;

/// A protocol over QUIC: serves each connection.
///
/// [`Endpoint::serve`](crate::Endpoint::serve) calls it for every client, each time in a new
/// task. The connection is closed when its last handle is dropped, so returning is enough
/// to end it. An async closure is an application:
///
/// ```
/// fn application<A: clearway::Application>(_: A) {}
/// application(async |connection: clearway::Connection| {
///     connection.close(0, b"not served here");
/// });
/// ```
pub trait Application: Send + Sync + 'static {
    /// Serves one connection, until the future completes.
    fn on_connection(&self, connection: Connection) -> impl Future<Output = ()> + Send;
}

impl<F, T> Application for F
where
    F: Fn(Connection) -> T + Send + Sync + 'static,
    T: Future<Output = ()> + Send,
{
    fn on_connection(&self, connection: Connection) -> impl Future<Output = ()> + Send {
        self(connection)
    }
}
