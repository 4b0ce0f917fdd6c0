//! HTTP/3 on a connection, under the connection's lock.
//!
//! Every event of the transport goes through [`Layer::on_event`]; after each
//! batch of events and after each call of a handle, [`Layer::settle`] wakes
//! whoever has something to do now.

use std::collections::VecDeque;
use std::sync::Arc;

use clearway_http3::error as protocol;
use clearway_http3::{Config, Event};
use clearway_quic::Instant;
use clearway_quic::connection as quic;
use clearway_quic::stream::StreamId;

use super::early::Memory;
pub(crate) use super::view::View;
use super::work::{Arrived, Exchange, Fate, Work};
use crate::connection::{Signal, Wakes};

/// HTTP/3's state of one connection, and who waits for what of it.
#[derive(Debug)]
pub(crate) struct Layer {
    pub(super) h3: clearway_http3::Connection,
    /// `None` while no request is under way.
    work: Option<Box<Work>>,
    /// How the peer broke the protocol.
    pub(super) error: Option<Box<protocol::ConnectionError>>,
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
            Arc::make_mut(&mut config).remembered_settings = remembered;
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
        self.h3.on_quic_event(quic, event);
    }

    /// When [`Self::handle_timeout`] has to be called next.
    pub(crate) fn next_timeout(&self) -> Option<Instant> {
        self.h3.next_timeout()
    }

    /// Does what is due by the server's deadlines; [`Self::settle`] tells of it.
    pub(crate) fn handle_timeout(&mut self, now: Instant, quic: &mut quic::Connection) {
        self.h3.handle_timeout(now, quic);
    }

    pub(super) fn work(&mut self) -> &mut Work {
        self.work.get_or_insert_default()
    }

    pub(super) fn exchange(&self, id: StreamId) -> Option<&Exchange> {
        self.work.as_ref()?.exchanges.get(&id)
    }

    pub(super) fn exchange_mut(&mut self, id: StreamId) -> Option<&mut Exchange> {
        self.work.as_mut()?.exchanges.get_mut(&id)
    }

    /// Wakes whoever can go on, and writes what HTTP/3 itself has to say.
    pub(crate) fn settle(&mut self, now: Instant, quic: &mut quic::Connection, wakes: &mut Wakes) {
        while let Some(event) = self.h3.poll_event() {
            self.on_http_event(quic, event, wakes);
        }
        self.h3.flush(now, quic);
        if self.is_idle() {
            wakes.raise(Signal::HttpIdle);
        }
    }

    fn on_http_event(&mut self, quic: &mut quic::Connection, event: Event, wakes: &mut Wakes) {
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
                    early: quic.is_handshaking(),
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
            Event::Reset { stream, code } => self.on_end(quic, stream, Fate::Reset(code), wakes),
            Event::Failed { stream, error } => {
                self.on_end(quic, stream, Fate::Failed(error), wakes);
            }
            Event::TimedOut { stream, deadline } => {
                self.on_end(quic, stream, Fate::TimedOut(deadline), wakes);
            }
            Event::Stopped { stream, code } => {
                self.drop_arrived(quic, stream);
                self.on_exchange(stream, wakes, |exchange| {
                    exchange.stopped.get_or_insert(code);
                });
            }
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

    /// An exchange ends before its time.
    fn on_end(
        &mut self,
        quic: &mut quic::Connection,
        stream: StreamId,
        fate: Fate,
        wakes: &mut Wakes,
    ) {
        self.drop_arrived(quic, stream);
        self.on_exchange(stream, wakes, |exchange| {
            exchange.fate.get_or_insert(fate);
        });
    }

    /// A request that its client gave up before anybody took it never reaches a handler.
    fn drop_arrived(&mut self, quic: &mut quic::Connection, stream: StreamId) {
        let Some(work) = &mut self.work else { return };
        let before = work.arrived.len();
        work.arrived.retain(|arrived| arrived.id != stream);
        if work.arrived.len() < before {
            self.h3.reject(quic, stream);
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
        let waits = |work: &Work| !work.arrived.is_empty();
        self.h3.open_requests() == 0
            && self.h3.unacknowledged_messages() == 0
            && !self.work.as_deref().is_some_and(waits)
    }

    /// Whether early data may be sent: its server's settings are known.
    pub(crate) fn remembers(&self) -> bool {
        self.remembers
    }

    /// Whether new requests have to go elsewhere.
    pub(crate) fn is_going_away(&self) -> bool {
        self.h3.is_going_away()
    }

    /// The requests that have waited longest to be taken, at most so many.
    pub(crate) fn take_arrived(&mut self, most: usize) -> VecDeque<Arrived> {
        let Some(work) = &mut self.work else {
            return VecDeque::new();
        };
        let later = work.arrived.split_off(most.min(work.arrived.len()));
        let arrived = std::mem::replace(&mut work.arrived, later);
        let held = arrived
            .iter()
            .map(|request| (request.id, Exchange::default()));
        work.exchanges.extend(held);
        arrived
    }

    /// Whether requests wait to be taken.
    pub(crate) fn has_arrived(&self) -> bool {
        self.work
            .as_ref()
            .is_some_and(|work| !work.arrived.is_empty())
    }

    /// Requests that somebody holds.
    pub(crate) fn held(&self) -> usize {
        self.work.as_ref().map_or(0, |work| work.exchanges.len())
    }

    /// Somebody holds the exchange no more.
    pub(crate) fn forget(&mut self, id: StreamId) {
        if let Some(work) = &mut self.work {
            work.exchanges.remove(&id);
        }
    }
}
