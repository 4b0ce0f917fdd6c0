//! HTTP/3 on a connection, for the duration of a call under the connection's lock.

use std::task::Waker;

use clearway_http3::{Code, Request, Response, SendError};
use clearway_quic::connection::{self as quic, ConnectionError};
use clearway_quic::stream::{Directionality, StreamId};

use super::error::Error;
use super::layer::Layer;
use super::work::Exchange;

/// The layer together with the transport below it, for the duration of a call.
pub(crate) struct View<'a> {
    pub(crate) layer: &'a mut Layer,
    pub(crate) quic: &'a mut quic::Connection,
    /// Why the connection ended.
    pub(crate) lost: Option<&'a ConnectionError>,
}

/// What a client hears of a request it made.
pub(crate) enum Heard {
    Interim(Response),
    /// And whether it has no body.
    Final(Response, bool),
}

/// What reading gave.
pub(crate) enum Piece {
    Data(bytes::Bytes),
    Trailers(Vec<clearway_http3::Field>),
    End,
}

impl View<'_> {
    /// Why the connection is of no use any more: the peer's violation of HTTP/3
    /// rather than the close that followed from it.
    pub(crate) fn cause(&self) -> Option<Error> {
        let broken = self.layer.error.as_deref().cloned().map(Error::Protocol);
        broken.or_else(|| self.lost.cloned().map(Error::ConnectionLost))
    }

    fn closed(&self) -> Error {
        self.cause().unwrap_or(Error::Unsendable(SendError::Closed))
    }

    fn sent<T>(&self, result: Result<T, SendError>) -> Result<T, Error> {
        result.map_err(|error| match error {
            SendError::Closed => self.closed(),
            SendError::Stopped(code) => Error::Stopped(code),
            other => Error::Unsendable(other),
        })
    }

    /// Begins a request, and says whether it is early data; `None` while the peer
    /// allows none.
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
                let exchanges = &mut self.layer.work().exchanges;
                exchanges.insert(id, Exchange::default());
                Some(Ok((id, self.quic.is_handshaking())))
            }
            Err(SendError::TooManyRequests) => None,
            Err(error) => Some(self.sent(Err(error))),
        }
    }

    /// Whether all that keeps a request from being made is the peer's limit on streams.
    /// Asks to be told when that is raised.
    pub(crate) fn waits_for_room(&mut self) -> bool {
        let open = self.cause().is_none() && !self.layer.is_going_away();
        open && self.quic.openable(Directionality::Bidirectional) == 0
            && self.quic.open(Directionality::Bidirectional).is_none()
    }

    /// The next interim response, or the final one; `None` before it has arrived.
    pub(crate) fn hear(&mut self, id: StreamId, waker: &Waker) -> Option<Result<Heard, Error>> {
        let cause = self.cause();
        let Some(exchange) = self.layer.exchange_mut(id) else {
            return Some(Err(self.closed()));
        };
        if let Some(response) = exchange.informational.pop_front() {
            return Some(Ok(Heard::Interim(response)));
        }
        if let Some((response, end)) = exchange.response.take() {
            return Some(Ok(Heard::Final(response, end)));
        }
        if let Some(fate) = exchange.fate {
            return Some(Err(fate.into()));
        }
        if let Some(cause) = cause {
            return Some(Err(cause));
        }
        remember(&mut exchange.reader, waker);
        None
    }

    /// The next piece of the peer's body; `None` before it has arrived.
    pub(crate) fn read(&mut self, id: StreamId, waker: &Waker) -> Option<Result<Piece, Error>> {
        use clearway_http3::{Body, BodyError};
        match self.layer.h3.read_body(self.quic, id) {
            Ok(Body::Data(data)) => Some(Ok(Piece::Data(data))),
            Ok(Body::Trailers(fields)) => Some(Ok(Piece::Trailers(fields))),
            Ok(Body::End) => Some(Ok(Piece::End)),
            Ok(Body::Blocked) => {
                if let Some(cause) = self.cause() {
                    return Some(Err(cause));
                }
                let exchange = self.layer.work().exchanges.entry(id).or_default();
                remember(&mut exchange.reader, waker);
                None
            }
            Err(BodyError::Reset(code)) => Some(Err(Error::Reset(code))),
            Err(BodyError::Failed(error)) => Some(Err(Error::Malformed(error))),
            Err(BodyError::Unknown | BodyError::Closed) => {
                let exchange = self.layer.exchange(id);
                let fate = exchange.and_then(|exchange| exchange.fate);
                Some(Err(fate.map_or_else(|| self.closed(), Error::from)))
            }
        }
    }

    /// Whether the peer still wants the exchange as a whole.
    ///
    /// # Errors
    /// Why not.
    pub(crate) fn check_wanted(&self, id: StreamId) -> Result<(), Error> {
        if let Some(cause) = self.cause() {
            return Err(cause);
        }
        let exchange = self.layer.exchange(id);
        let exchange = exchange.ok_or(Error::Unsendable(SendError::Unknown))?;
        match (exchange.stopped, exchange.fate) {
            (Some(code), _) => Err(Error::Stopped(code)),
            (None, Some(fate)) => Err(fate.into()),
            (None, None) => Ok(()),
        }
    }

    /// The same; `waker` is woken when that changes.
    pub(crate) fn poll_cancelled(&mut self, id: StreamId, waker: &Waker) -> Result<(), Error> {
        self.check_wanted(id)?;
        if let Some(exchange) = self.layer.exchange_mut(id) {
            remember(&mut exchange.writer, waker);
        }
        Ok(())
    }

    /// Whether somebody still wants what we send; `waker` is woken when that changes. A
    /// peer that reset what it was sending may still read.
    ///
    /// # Errors
    /// Why not.
    pub(crate) fn poll_unwanted(&mut self, id: StreamId, waker: &Waker) -> Result<(), Error> {
        match self.check_wanted(id) {
            Ok(()) | Err(Error::Reset(_)) => {}
            Err(error) => return Err(error),
        }
        if let Some(exchange) = self.layer.exchange_mut(id) {
            remember(&mut exchange.writer, waker);
        }
        Ok(())
    }

    /// Does not take a request that has arrived.
    pub(crate) fn reject(&mut self, id: StreamId) {
        self.layer.h3.reject(self.quic, id);
        self.layer.forget(id);
    }

    /// Sends an interim response.
    pub(crate) fn inform(&mut self, id: StreamId, head: &Response) -> Result<(), Error> {
        let result = self.layer.h3.send_informational(self.quic, id, head);
        self.sent(result)
    }

    /// Begins a response.
    pub(crate) fn respond(
        &mut self,
        id: StreamId,
        head: &Response,
        end: bool,
    ) -> Result<(), Error> {
        let result = self.layer.h3.respond(self.quic, id, head, end);
        self.sent(result)
    }

    /// Sends a whole response.
    pub(crate) fn respond_with(
        &mut self,
        id: StreamId,
        head: &Response,
        body: bytes::Bytes,
    ) -> Result<(), Error> {
        let result = self.layer.h3.respond_with_body(self.quic, id, head, body);
        self.sent(result)
    }

    /// Sends a piece of a body; `None` while the one before it waits.
    pub(crate) fn write(
        &mut self,
        id: StreamId,
        data: &mut bytes::Bytes,
        waker: &Waker,
    ) -> Option<Result<(), Error>> {
        if let Some(cause) = self.cause() {
            return Some(Err(cause));
        }
        match self.layer.h3.write_body(self.quic, id, data) {
            Err(SendError::Blocked) => {
                let exchange = self.layer.work().exchanges.entry(id).or_default();
                remember(&mut exchange.writer, waker);
                None
            }
            Err(SendError::Unknown) => {
                let gone = Error::Unsendable(SendError::Unknown);
                Some(Err(self.poll_unwanted(id, waker).err().unwrap_or(gone)))
            }
            result => Some(self.sent(result)),
        }
    }

    /// Sends trailers and the end.
    pub(crate) fn trailers(
        &mut self,
        id: StreamId,
        fields: &[clearway_http3::Field],
    ) -> Result<(), Error> {
        let result = self.layer.h3.send_trailers(self.quic, id, fields);
        self.sent(result)
    }

    /// Sends the end.
    pub(crate) fn finish(&mut self, id: StreamId) -> Result<(), Error> {
        let result = self.layer.h3.finish(self.quic, id);
        self.sent(result)
    }

    /// Abandons what we send.
    pub(crate) fn reset(&mut self, id: StreamId, code: Code) {
        self.layer.h3.reset(self.quic, id, code);
    }

    /// Abandons what the peer sends.
    pub(crate) fn stop(&mut self, id: StreamId, code: Code) {
        self.layer.h3.stop(self.quic, id, code);
    }

    /// Abandons both.
    pub(crate) fn cancel(&mut self, id: StreamId) {
        self.layer.h3.cancel(self.quic, id);
    }

    /// Announces the end: once that it is near, then what is still served.
    pub(crate) fn shutdown(&mut self) {
        self.layer.h3.shutdown(self.quic);
    }
}

fn remember(slot: &mut Option<Waker>, waker: &Waker) {
    match slot {
        Some(old) => old.clone_from(waker),
        None => *slot = Some(waker.clone()),
    }
}
