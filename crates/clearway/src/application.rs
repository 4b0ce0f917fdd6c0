//! A protocol served on an endpoint.

use std::future::Future;

use crate::Connection;

/// Any protocol over QUIC: what to do with each connection.
///
/// [`Endpoint::serve`](crate::Endpoint::serve) calls it in a task of its own for
/// every client. The connection ends when the last handle of it is gone, so
/// returning is enough. An async closure is an application:
///
/// ```
/// fn application<A: clearway::Application>(_: A) {}
/// application(async |connection: clearway::Connection| {
///     connection.close(0, b"nobody home");
/// });
/// ```
pub trait Application: Send + Sync + 'static {
    /// Serves one client.
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
