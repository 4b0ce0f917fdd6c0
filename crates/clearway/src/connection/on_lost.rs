//! What a call on a connection that has ended answers.

use std::task::Poll;

use clearway_quic::connection::ConnectionError;

use crate::http;
use crate::http::requests::ArrivedRequests;

/// What a call answers when there is no connection to make it on any more.
pub(crate) trait OnLost {
    /// The answer, given why the connection ended.
    fn on_lost(error: ConnectionError) -> Self;
}

/// Nothing to be done is done.
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

/// Whoever waits for an end has it.
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

/// No requests follow.
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
