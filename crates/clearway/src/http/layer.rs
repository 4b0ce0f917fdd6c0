//! HTTP/3 on a connection, under the connection's lock.
//!
//! Every event of the transport goes through [`Layer::on_event`]; after each
//! batch of events and after each call of a handle, [`Layer::settle`] wakes
//! whoever has something to do now.

use std::collections::VecDeque;
use std::sync::Arc;
use std::task::Waker;

use clearway_http3::error as protocol;
use clearway_http3::{Code, Config, Event, Request, Response, SendError};
use clearway_quic::Instant;
use clearway_quic::connection::{self as quic, ConnectionError};
use clearway_quic::stream::{StreamEvent, StreamId};

use super::early::Memory;
use super::error::Error;
use super::work::{Arrived, Exchange, Fate, Work};
use crate::connection::{Signal, Wakes};

/// HTTP/3's state of one connection, and who waits for what of it.
#[derive(Debug)]
pub(crate) struct Layer {
    h3: clearway_http3::Connection,
    /// `None` while no request is under way.
    work: Option<Box<Work>>,
    /// How the peer broke the protocol.
    error: Option<Box<protocol::ConnectionError>>,
    /// What is known of the server from earlier connections (client).
    memory: Option<Box<Memory>>,
    /// Early data may be sent under the server's remembered settings (client).
    remembers: bool,
}

impl Layer {
    pub(crate) fn new(
        quic: &quic::Connection,
        mut config: Arc<Config>,
        seed: u64,
        memory: Option<Memory>,
    ) -> Self {
        let remembered = memory.as_ref().filter(|_| quic.has_zero_rtt());
        let remembered = remembered.and_then(Memory::settings);
        if remembered.is_some() {
            Arc::make_mut(&mut config).remembered = remembered;
        }
        Self {
            h3: clearway_http3::Connection::new(quic.role(), config, seed),
            memory: memory.map(Box::new),
            remembers: remembered.is_some(),
            work: None,
            error: None,
        }
    }

    /// Takes an event of the transport.
    pub(crate) fn on_event(&mut self, quic: &mut quic::Connection, event: &quic::Event) {
        if let quic::Event::Stream(StreamEvent::Finished(id) | StreamEvent::Stopped { id, .. }) =
            event
            && let Some(work) = &mut self.work
        {
            work.undelivered.remove(id);
        }
        self.h3.on_quic_event(quic, event);
    }

    fn work(&mut self) -> &mut Work {
        self.work.get_or_insert_default()
    }

    fn exchange(&self, id: StreamId) -> Option<&Exchange> {
        self.work.as_ref()?.exchanges.get(&id)
    }

    fn exchange_mut(&mut self, id: StreamId) -> Option<&mut Exchange> {
        self.work.as_mut()?.exchanges.get_mut(&id)
    }

    /// Wakes whoever can go on, and writes what HTTP/3 itself has to say.
    pub(crate) fn settle(&mut self, now: Instant, quic: &mut quic::Connection, wakes: &mut Wakes) {
        while let Some(event) = self.h3.poll_event() {
            self.on_http_event(event, quic.is_handshaking(), wakes);
        }
        self.h3.flush(now, quic);
        if self.is_idle() {
            wakes.raise(Signal::HttpIdle);
        }
    }

    fn on_http_event(&mut self, event: Event, early: bool, wakes: &mut Wakes) {
        match event {
            Event::Request {
                stream,
                request,
                end,
            } => {
                self.work().arrived.push_back(Arrived {
                    id: stream,
                    head: request,
                    end,
                    early,
                });
                wakes.raise(Signal::Requests);
            }
            Event::Response {
                stream,
                response,
                end,
            } => self.on_exchange(stream, wakes, |exchange| {
                exchange.response = Some((response, end));
            }),
            Event::Informational { stream, response } => {
                self.on_exchange(stream, wakes, |exchange| {
                    exchange.informational.push_back(response);
                });
            }
            Event::Readable(stream) => {
                let exchange = self.exchange_mut(stream);
                wakes.wake(exchange.and_then(|exchange| exchange.reader.take()));
            }
            Event::Writable(stream) => {
                let exchange = self.exchange_mut(stream);
                wakes.wake(exchange.and_then(|exchange| exchange.writer.take()));
            }
            Event::Reset { stream, code } => self.on_exchange(stream, wakes, |exchange| {
                exchange.fate.get_or_insert(Fate::Reset(code));
            }),
            Event::Stopped { stream, code } => self.on_exchange(stream, wakes, |exchange| {
                exchange.stopped.get_or_insert(code);
            }),
            Event::Failed { stream, error } => self.on_exchange(stream, wakes, |exchange| {
                exchange.fate.get_or_insert(Fate::Failed(error));
            }),
            Event::Rejected(stream) => self.on_exchange(stream, wakes, |exchange| {
                exchange.fate.get_or_insert(Fate::Rejected);
            }),
            Event::RequestsAvailable => wakes.raise_first(Signal::RequestRoom),
            Event::GoAway { .. } => wakes.raise(Signal::RequestRoom),
            Event::Closed(error) => self.on_broken(error),
            Event::Settings(settings) => {
                if let Some(memory) = &self.memory {
                    memory.keep(&settings);
                }
            }
            Event::PriorityChanged { .. } | Event::DatagramReceived => {}
        }
    }

    /// The peer broke the protocol. One that took early data and then reduced its
    /// settings would do so again.
    fn on_broken(&mut self, error: protocol::ConnectionError) {
        if self.remembers
            && let Some(memory) = &self.memory
        {
            memory.forget();
        }
        self.error = Some(Box::new(error));
    }

    fn on_exchange(
        &mut self,
        stream: StreamId,
        wakes: &mut Wakes,
        change: impl FnOnce(&mut Exchange),
    ) {
        if let Some(exchange) = self.exchange_mut(stream) {
            change(exchange);
            wakes.wake(exchange.reader.take());
            wakes.wake(exchange.writer.take());
        }
    }

    /// The connection is over: everybody who waits hears it.
    pub(crate) fn fail(&mut self, wakes: &mut Wakes) {
        let work = self.work.iter_mut();
        for exchange in work.flat_map(|work| work.exchanges.values_mut()) {
            wakes.wake(exchange.reader.take());
            wakes.wake(exchange.writer.take());
        }
    }

    /// The connection rests: gives back what is held for reuse.
    pub(crate) fn release_memory(&mut self) {
        self.h3.release();
        self.work.take_if(|work| work.is_done());
        if let Some(work) = &mut self.work {
            work.shrink_to_fit();
        }
    }

    /// Bytes of memory held, requests that nobody has taken yet included. Walks the
    /// requests.
    pub(crate) fn memory(&self) -> usize {
        let work = self.work.as_deref().map_or(0, Work::memory);
        self.h3.memory().saturating_add(work)
    }

    /// No request is under way, and the peer has all that was answered.
    pub(crate) fn is_idle(&self) -> bool {
        let waits = |work: &Work| !(work.arrived.is_empty() && work.undelivered.is_empty());
        self.h3.open_requests() == 0 && !self.work.as_deref().is_some_and(waits)
    }

    /// Whether early data may be sent: its server's settings are known.
    pub(crate) fn remembers(&self) -> bool {
        self.remembers
    }

    /// Whether new requests have to go elsewhere.
    pub(crate) fn is_going_away(&self) -> bool {
        self.h3.is_going_away()
    }

    /// The requests that wait to be taken.
    pub(crate) fn take_arrived(&mut self) -> VecDeque<Arrived> {
        let Some(work) = &mut self.work else {
            return VecDeque::new();
        };
        let arrived = std::mem::take(&mut work.arrived);
        let held = arrived
            .iter()
            .map(|request| (request.id, Exchange::default()));
        work.exchanges.extend(held);
        arrived
    }

    /// Somebody holds the exchange no more.
    pub(crate) fn forget(&mut self, id: StreamId) {
        if let Some(work) = &mut self.work {
            work.exchanges.remove(&id);
        }
    }
}

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

    /// Whether the peer has given up on the exchange as a whole; else it wakes
    /// when that happens.
    pub(crate) fn is_cancelled(&mut self, id: StreamId, waker: &Waker) -> bool {
        if self.lost.is_some() {
            return true;
        }
        let Some(exchange) = self.layer.exchange_mut(id) else {
            return true;
        };
        remember(&mut exchange.writer, waker);
        exchange.fate.is_some() || exchange.stopped.is_some()
    }

    /// Sends an interim response.
    pub(crate) fn inform(&mut self, id: StreamId, head: &Response) -> Result<(), Error> {
        let result = self.layer.h3.inform(self.quic, id, head);
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
        self.note_end(id, end && result.is_ok());
        self.sent(result)
    }

    /// Sends a whole response.
    pub(crate) fn respond_with(
        &mut self,
        id: StreamId,
        head: &Response,
        body: bytes::Bytes,
    ) -> Result<(), Error> {
        let result = self.layer.h3.respond_with(self.quic, id, head, body);
        self.note_end(id, result.is_ok());
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
                let exchange = self.layer.exchange(id);
                let stopped = exchange.and_then(|exchange| exchange.stopped);
                Some(Err(stopped.map_or_else(
                    || Error::Unsendable(SendError::Unknown),
                    Error::Stopped,
                )))
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
        let result = self.layer.h3.trailers(self.quic, id, fields);
        self.note_end(id, result.is_ok());
        self.sent(result)
    }

    /// Sends the end.
    pub(crate) fn finish(&mut self, id: StreamId) -> Result<(), Error> {
        let result = self.layer.h3.finish(self.quic, id);
        self.note_end(id, result.is_ok());
        self.sent(result)
    }

    fn note_end(&mut self, id: StreamId, ended: bool) {
        if ended {
            self.layer.work().undelivered.insert(id);
        }
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
