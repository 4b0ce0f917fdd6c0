//! HTTP/3 on a connection, for the duration of a call under the connection's lock.

use std::task::{Poll, Waker};

use bytes::Bytes;
use clearway_http3::{Request, SendError};
use clearway_quic::connection::{self as quic, ConnectionError};
use clearway_quic::stream::{Directionality, StreamId};
use rustc_hash::FxHashMap;

use super::error::Error;
use super::layer::HttpLayer;
use super::requests::ExchangeState;
use crate::connection::SendSlot;

/// The HTTP layer together with the transport below it. What concerns one exchange is in
/// [`RequestStream`](super::request_stream::RequestStream).
pub(crate) struct HttpView<'a> {
    pub(crate) layer: &'a mut HttpLayer,
    pub(crate) quic: &'a mut quic::Connection,
    /// Why the connection ended, if it has.
    pub(crate) lost: Option<&'a ConnectionError>,
    /// The sending halves of streams that the application has itself (WebTransport).
    pub(crate) sends: &'a mut FxHashMap<StreamId, SendSlot>,
}

impl HttpView<'_> {
    /// Why the connection cannot be used any more: the peer's violation of HTTP/3
    /// rather than the close that followed from it.
    pub(crate) fn cause(&self) -> Option<Error> {
        let broken = self.layer.error.as_deref().cloned().map(Error::Protocol);
        broken.or_else(|| self.lost.cloned().map(Error::ConnectionLost))
    }

    pub(super) fn closed(&self) -> Error {
        self.cause().unwrap_or(Error::Unsendable(SendError::Closed))
    }

    pub(super) fn send_result<T>(&self, result: Result<T, SendError>) -> Result<T, Error> {
        result.map_err(|error| match error {
            SendError::Closed => self.closed(),
            SendError::Stopped(code) => Error::Stopped(code),
            other => Error::Unsendable(other),
        })
    }

    /// Begins a request. Returns its stream and whether it is early data, or `None` while
    /// the peer's limit on requests is reached.
    pub(crate) fn request(
        &mut self,
        head: &Request,
        end: bool,
    ) -> Option<Result<(StreamId, bool), Error>> {
        if let Some(cause) = self.cause() {
            return Some(Err(cause));
        }
        match self.layer.h3.request(self.quic, head, end) {
            Ok(id) => {
                let exchanges = &mut self.layer.requests().exchanges;
                exchanges.insert(id, ExchangeState::default());
                Some(Ok((id, self.quic.is_handshaking())))
            }
            Err(SendError::TooManyRequests) => None,
            Err(error) => Some(self.send_result(Err(error))),
        }
    }

    /// Whether only the peer's limit on streams keeps a request from being made. If so,
    /// an event follows when it is raised.
    pub(crate) fn is_stream_limited(&mut self) -> bool {
        let open = self.cause().is_none() && !self.layer.is_going_away();
        open && self.quic.openable(Directionality::Bidirectional) == 0
            && self.quic.open(Directionality::Bidirectional).is_none()
    }

    /// Whether the peer's SETTINGS, which say what it supports, have not arrived.
    pub(super) fn awaits_settings(&self) -> bool {
        self.cause().is_none() && self.layer.h3.peer_settings().is_none()
    }

    /// Takes the next datagram of a tunnel; `None` after the end of the peer's half. While there is
    /// none, `waker` is stored.
    ///
    /// # Errors
    /// Why there will be none.
    pub(super) fn poll_datagram(
        &mut self,
        id: StreamId,
        waker: &Waker,
    ) -> Result<Poll<Option<Bytes>>, Error> {
        let cause = self.cause();
        let is_receiving = self.layer.h3.is_receiving(id);
        let requests = self.layer.requests();
        let Some(exchange) = requests.exchanges.get_mut(&id) else {
            return Err(cause.unwrap_or(Error::Unsendable(SendError::Unknown)));
        };
        let queue = exchange.datagrams.get_or_insert_default();
        if let Some(datagram) = queue.take(&mut requests.datagram_bytes) {
            return Ok(Poll::Ready(Some(datagram)));
        }
        if let Some(failure) = exchange.failure {
            return Err(failure.into());
        }
        if let Some(cause) = cause {
            return Err(cause);
        }
        if !is_receiving {
            return Ok(Poll::Ready(None));
        }
        store(&mut queue.reader, waker);
        Ok(Poll::Pending)
    }

    /// Whether the peer still wants the exchange as a whole.
    ///
    /// # Errors
    /// Why not.
    pub(super) fn check_wanted(&self, id: StreamId) -> Result<(), Error> {
        if let Some(cause) = self.cause() {
            return Err(cause);
        }
        let exchange = self.layer.exchange(id);
        let exchange = exchange.ok_or(Error::Unsendable(SendError::Unknown))?;
        match (exchange.stopped, exchange.failure) {
            (Some(code), _) => Err(Error::Stopped(code)),
            (None, Some(failure)) => Err(failure.into()),
            (None, None) => Ok(()),
        }
    }

    /// Whether the peer still wants what we send: it may, though it has reset what it sent.
    ///
    /// # Errors
    /// Why not.
    pub(super) fn check_response_wanted(&self, id: StreamId) -> Result<(), Error> {
        match self.check_wanted(id) {
            Ok(()) | Err(Error::Reset(_)) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Stores the waker of whoever sends on an exchange.
    pub(super) fn store_writer(&mut self, id: StreamId, waker: &Waker) {
        if let Some(exchange) = self.layer.exchange_mut(id) {
            store(&mut exchange.writer, waker);
        }
    }

    /// Rejects a request that has arrived.
    pub(crate) fn reject(&mut self, id: StreamId) {
        self.layer.h3.reject(self.quic, id);
        self.layer.forget(id);
    }

    /// Sends GOAWAY: the first time that the server will close, then which requests it
    /// still answers.
    pub(crate) fn shutdown(&mut self) {
        self.layer.h3.shutdown(self.quic);
    }
}

/// Stores a waker, without a clone if it would wake the same task.
pub(super) fn store(slot: &mut Option<Waker>, waker: &Waker) {
    match slot {
        Some(old) => old.clone_from(waker),
        None => *slot = Some(waker.clone()),
    }
}
