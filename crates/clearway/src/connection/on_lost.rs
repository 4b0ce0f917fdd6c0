//! What calls on a connection that has ended return.

use std::task::Poll;

use clearway_quic::connection::ConnectionError;

use crate::http;
use crate::http::requests::ArrivedRequests;

/// A return value of calls on a connection that has ended.
pub(crate) trait OnLost {
    /// Returns the value, given why the connection ended.
    fn on_lost(error: ConnectionError) -> Self;
}

/// A call without a result does nothing.
impl OnLost for () {
    fn on_lost(_: ConnectionError) -> Self {}
}

impl OnLost for ConnectionError {
    fn on_lost(error: ConnectionError) -> Self {
        error
    }
}

impl<T, E: From<ConnectionError>> OnLost for Result<T, E> {
    fn on_lost(error: ConnectionError) -> Self {
        Err(error.into())
    }
}

impl<T, E: From<ConnectionError>> OnLost for Option<Result<T, E>> {
    fn on_lost(error: ConnectionError) -> Self {
        Some(Err(error.into()))
    }
}

/// A wait for an end is over.
impl OnLost for Poll<()> {
    fn on_lost(_: ConnectionError) -> Self {
        Self::Ready(())
    }
}

impl<T, E: From<ConnectionError>> OnLost for Poll<Result<T, E>> {
    fn on_lost(error: ConnectionError) -> Self {
        Self::Ready(Err(error.into()))
    }
}

/// No more requests will arrive.
impl OnLost for Option<ArrivedRequests> {
    fn on_lost(_: ConnectionError) -> Self {
        None
    }
}

impl From<ConnectionError> for http::Error {
    fn from(error: ConnectionError) -> Self {
        Self::ConnectionLost(error)
    }
}
