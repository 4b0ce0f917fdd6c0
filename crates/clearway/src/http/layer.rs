//! HTTP/3 on a connection, under the connection's lock.
//!
//! Every event of the transport goes through [`HttpLayer::on_event`]. After each batch of
//! events [`HttpLayer::settle`] wakes the tasks that have something to do. A call of a handle that
//! leaves something to settle has the shard give the connection a turn, in which that happens.

use std::collections::VecDeque;
use std::sync::Arc;

use clearway_http3::error as protocol;
use clearway_http3::webtransport::SessionEnd;
use clearway_http3::{Config, Event};
use clearway_quic::Instant;
use clearway_quic::connection as quic;
use clearway_quic::stream::{Directionality, StreamId};

use super::early::RememberedSettings;
use super::requests::{ArrivedRequest, ExchangeFailure, ExchangeState, Requests};
pub(crate) use super::view::HttpView;
use super::webtransport::SessionState;
use crate::connection::wakeups::{Signal, Wakeups};

/// HTTP/3's state of one connection, and the tasks that wait for it.
#[derive(Debug)]
pub(crate) struct HttpLayer {
    pub(super) h3: clearway_http3::Connection,
    /// `None` while no request is in progress.
    requests: Option<Box<Requests>>,
    /// How the peer violated HTTP/3, if it has.
    pub(super) error: Option<Box<protocol::ConnectionError>>,
    /// The store of the server's settings (client).
    memory: Option<Box<RememberedSettings>>,
    /// Early data may be sent with the server's remembered settings (client).
    has_remembered_settings: bool,
    /// HTTP datagrams are enabled at this end.
    has_datagrams: bool,
}

impl HttpLayer {
    pub(crate) fn new(
        quic: &quic::Connection,
        mut config: Arc<Config>,
        seed: u64,
        memory: Option<RememberedSettings>,
    ) -> Self {
        let remembered = memory.as_ref().filter(|_| quic.has_zero_rtt());
        let remembered = remembered.and_then(RememberedSettings::settings);
        if remembered.is_some() {
            Arc::make_mut(&mut config).remembered_settings = remembered;
        }
        Self {
            has_datagrams: config.datagrams,
            h3: clearway_http3::Connection::new(quic.role(), config, seed),
            memory: memory.map(Box::new),
            has_remembered_settings: remembered.is_some(),
            requests: None,
            error: None,
        }
    }

    /// Handles an event of the transport.
    pub(crate) fn on_event(&mut self, quic: &mut quic::Connection, event: &quic::Event) {
        self.h3.on_quic_event(quic, event);
    }

    /// When [`Self::handle_timeout`] has to be called next.
    pub(crate) fn next_timeout(&self) -> Option<Instant> {
        self.h3.next_timeout()
    }

    /// Handles the server's deadlines that are due; [`Self::settle`] has to follow.
    pub(crate) fn handle_timeout(&mut self, now: Instant, quic: &mut quic::Connection) {
        self.h3.handle_timeout(now, quic);
    }

    pub(super) fn requests(&mut self) -> &mut Requests {
        self.requests.get_or_insert_default()
    }

    pub(super) fn exchange(&self, id: StreamId) -> Option<&ExchangeState> {
        self.requests.as_ref()?.exchanges.get(&id)
    }

    pub(super) fn exchange_mut(&mut self, id: StreamId) -> Option<&mut ExchangeState> {
        self.requests.as_mut()?.exchanges.get_mut(&id)
    }

    /// Wakes tasks that can go on, and writes frames of HTTP/3 itself.
    pub(crate) fn settle(
        &mut self,
        now: Instant,
        quic: &mut quic::Connection,
        wakeups: &mut Wakeups,
    ) {
        self.dispatch(quic, wakeups);
        self.h3.flush(now, quic);
        // Sessions may have ended in it.
        self.dispatch(quic, wakeups);
        if self.is_idle() {
            wakeups.raise(Signal::HttpIdle);
        }
    }

    /// Whether [`Self::settle`] has nothing to do but to report that HTTP/3 is idle.
    pub(crate) fn is_settled(&self) -> bool {
        !self.h3.is_flush_due()
    }

    fn dispatch(&mut self, quic: &mut quic::Connection, wakeups: &mut Wakeups) {
        while let Some(event) = self.h3.poll_event() {
            self.on_http_event(quic, event, wakeups);
        }
    }

    fn on_http_event(&mut self, quic: &mut quic::Connection, event: Event, wakeups: &mut Wakeups) {
        match event {
            Event::Request {
                stream,
                request,
                end,
            } => {
                if !request.protocol.is_empty() {
                    // Its datagrams may come before a task takes it.
                    self.requests().exchanges.entry(stream).or_default();
                }
                self.requests().arrived.push_back(ArrivedRequest {
                    id: stream,
                    head: request,
                    end,
                    early: quic.is_handshaking(),
                });
                wakeups.raise(Signal::Requests);
            }
            Event::Response {
                stream,
                response,
                end,
            } => self.on_exchange(stream, wakeups, |exchange| {
                exchange.response = Some((response, end));
            }),
            Event::Informational { stream, response } => {
                self.on_exchange(stream, wakeups, |exchange| {
                    exchange.informational.push_back(response);
                });
            }
            Event::Readable(stream) => {
                if let Some(exchange) = self.exchange_mut(stream) {
                    wakeups.wake(exchange.reader.take());
                    // It may be the end of the tunnel.
                    exchange.wake_datagram_reader(wakeups);
                }
            }
            Event::Writable(stream) => {
                let exchange = self.exchange_mut(stream);
                wakeups.wake(exchange.and_then(|exchange| exchange.writer.take()));
            }
            Event::Reset { stream, code } => {
                self.on_end(quic, stream, ExchangeFailure::Reset(code), wakeups);
            }
            Event::Failed { stream, error } => {
                self.on_end(quic, stream, ExchangeFailure::Failed(error), wakeups);
            }
            Event::TimedOut { stream, deadline } => {
                self.on_end(quic, stream, ExchangeFailure::TimedOut(deadline), wakeups);
            }
            Event::Stopped { stream, code } => {
                self.drop_arrived(quic, stream);
                self.on_exchange(stream, wakeups, |exchange| {
                    exchange.stopped.get_or_insert(code);
                });
            }
            Event::Rejected(stream) => self.on_exchange(stream, wakeups, |exchange| {
                exchange.failure.get_or_insert(ExchangeFailure::Rejected);
            }),
            Event::RequestsAvailable => wakeups.raise_for_one(Signal::RequestRoom),
            Event::GoAway { .. } => {
                wakeups.raise(Signal::RequestRoom);
                self.wake_sessions(wakeups);
            }
            Event::Closed(error) => self.on_broken(error),
            Event::Settings(settings) => {
                if let Some(memory) = &self.memory {
                    memory.keep(&settings);
                }
                // Tunnels wait for them.
                wakeups.raise(Signal::RequestRoom);
            }
            // HTTP/3 has told the transport, which sends the response accordingly.
            Event::PriorityChanged { .. } => {}
            Event::DatagramReceived => self.receive_datagrams(quic, wakeups),
            Event::SessionStream {
                session,
                directionality,
            } => {
                if let Some(state) = self.session_mut(session) {
                    wakeups.wake_all(state.acceptors(directionality));
                }
            }
            Event::SessionStreamsAvailable(kind) => wakeups.raise(match kind {
                Directionality::Bidirectional => Signal::AvailableBi,
                Directionality::Unidirectional => Signal::AvailableUni,
            }),
            Event::SessionDraining(session) => {
                if let Some(state) = self.session_mut(session) {
                    state.draining = true;
                    wakeups.wake_all(&mut state.watchers);
                }
            }
            Event::SessionEnded {
                session,
                end,
                streams,
            } => self.on_session_ended(session, end, streams, wakeups),
        }
    }

    /// Moves datagrams to the queues of their tunnels. Without HTTP datagrams they wait in the
    /// transport's queue for `Connection::read_datagram`.
    fn receive_datagrams(&mut self, quic: &mut quic::Connection, wakeups: &mut Wakeups) {
        if !self.has_datagrams {
            return;
        }
        while let Some((id, datagram)) = self.h3.recv_datagram(quic) {
            let requests = self.requests();
            if let Some(exchange) = requests.exchanges.get_mut(&id) {
                let queue = exchange.datagrams.get_or_insert_default();
                queue.push(datagram, &mut requests.datagram_bytes);
                wakeups.wake(queue.reader.take());
            }
        }
    }

    /// Returns the bytes of received datagrams that nobody has read.
    pub(crate) fn datagram_bytes(&self) -> usize {
        (self.requests.as_deref()).map_or(0, |requests| requests.datagram_bytes)
    }

    fn on_session_ended(
        &mut self,
        session: StreamId,
        end: SessionEnd,
        streams: Vec<StreamId>,
        wakeups: &mut Wakeups,
    ) {
        self.requests().ended_streams.extend(streams);
        if let Some(state) = self.session_mut(session) {
            state.end.get_or_insert(end);
        }
        if let Some(exchange) = self.exchange_mut(session) {
            exchange.wake(wakeups);
        }
        // Whoever waits to open a stream.
        wakeups.raise(Signal::AvailableBi);
        wakeups.raise(Signal::AvailableUni);
    }

    /// Whether a WebTransport session is open.
    pub(crate) fn has_sessions(&self) -> bool {
        self.h3.has_open_sessions()
    }

    /// Takes the streams of sessions that have ended.
    pub(crate) fn take_ended_streams(&mut self) -> Vec<StreamId> {
        let requests = self.requests.as_deref_mut();
        requests.map_or_else(Vec::new, |it| std::mem::take(&mut it.ended_streams))
    }

    /// Returns the state of a session, whose handle or request exists.
    pub(super) fn session_mut(&mut self, id: StreamId) -> Option<&mut SessionState> {
        let exchange = self.exchange_mut(id)?;
        Some(exchange.session.get_or_insert_default())
    }

    fn wake_sessions(&mut self, wakeups: &mut Wakeups) {
        let exchanges = self
            .requests
            .iter_mut()
            .flat_map(|it| it.exchanges.values_mut());
        for session in exchanges.filter_map(|exchange| exchange.session.as_deref_mut()) {
            wakeups.wake_all(&mut session.watchers);
        }
    }

    /// Ends an exchange with a failure.
    fn on_end(
        &mut self,
        quic: &mut quic::Connection,
        stream: StreamId,
        failure: ExchangeFailure,
        wakeups: &mut Wakeups,
    ) {
        self.drop_arrived(quic, stream);
        self.on_exchange(stream, wakeups, |exchange| {
            exchange.failure.get_or_insert(failure);
        });
    }

    /// Drops a request that its client cancelled before a task took it.
    fn drop_arrived(&mut self, quic: &mut quic::Connection, stream: StreamId) {
        let Some(requests) = &mut self.requests else {
            return;
        };
        let before = requests.arrived.len();
        requests.arrived.retain(|arrived| arrived.id != stream);
        if requests.arrived.len() < before {
            requests.remove(stream);
            self.h3.reject(quic, stream);
        }
    }

    /// The peer violated HTTP/3. Its settings are forgotten, because a server that accepted early
    /// data and then reduced its settings would do so again.
    fn on_broken(&mut self, error: protocol::ConnectionError) {
        if self.has_remembered_settings
            && let Some(memory) = &self.memory
        {
            memory.forget();
        }
        self.error = Some(Box::new(error));
    }

    fn on_exchange(
        &mut self,
        stream: StreamId,
        wakeups: &mut Wakeups,
        change: impl FnOnce(&mut ExchangeState),
    ) {
        if let Some(exchange) = self.exchange_mut(stream) {
            change(exchange);
            exchange.wake(wakeups);
        }
    }

    /// Wakes all tasks, because the connection has ended.
    pub(crate) fn fail(&mut self, wakeups: &mut Wakeups) {
        let requests = self.requests.iter_mut();
        for exchange in requests.flat_map(|requests| requests.exchanges.values_mut()) {
            exchange.wake(wakeups);
        }
    }

    /// Releases memory kept for reuse, because the connection is idle.
    pub(crate) fn release_memory(&mut self) {
        self.h3.release();
        self.requests.take_if(|requests| requests.is_done());
        if let Some(requests) = &mut self.requests {
            requests.shrink_to_fit();
        }
    }

    /// Returns the memory it holds, in bytes, including requests that no task has taken yet.
    /// Takes time proportional to their number.
    pub(crate) fn memory(&self) -> usize {
        let requests = self.requests.as_deref().map_or(0, Requests::memory);
        self.h3.memory().saturating_add(requests)
    }

    /// Whether no request is in progress and all responses are delivered.
    pub(crate) fn is_idle(&self) -> bool {
        let waits = |requests: &Requests| !requests.arrived.is_empty();
        self.h3.open_requests() == 0
            && self.h3.unacknowledged_messages() == 0
            && !self.requests.as_deref().is_some_and(waits)
    }

    /// Whether a message that was ended waits for the transport to take it.
    pub(crate) fn has_unsent_messages(&self) -> bool {
        self.h3.has_unsent_messages()
    }

    /// Whether early data may be sent, because the server's settings are remembered.
    pub(crate) fn has_remembered_settings(&self) -> bool {
        self.has_remembered_settings
    }

    /// Whether new requests need another connection.
    pub(crate) fn is_going_away(&self) -> bool {
        self.h3.is_going_away()
    }

    /// Takes the requests that have waited longest, at most `most`.
    pub(crate) fn take_arrived(&mut self, most: usize) -> VecDeque<ArrivedRequest> {
        let Some(requests) = &mut self.requests else {
            return VecDeque::new();
        };
        let later = requests.arrived.split_off(most.min(requests.arrived.len()));
        let arrived = std::mem::replace(&mut requests.arrived, later);
        for request in &arrived {
            requests.exchanges.entry(request.id).or_default();
        }
        arrived
    }

    /// Whether requests wait for a task to take them.
    pub(crate) fn has_arrived(&self) -> bool {
        self.requests
            .as_ref()
            .is_some_and(|requests| !requests.arrived.is_empty())
    }

    /// Returns the number of exchanges that have a handle.
    pub(crate) fn held(&self) -> usize {
        self.requests
            .as_ref()
            .map_or(0, |requests| requests.exchanges.len())
    }

    /// Removes the state of an exchange whose last handle was dropped.
    pub(crate) fn forget(&mut self, id: StreamId) {
        if let Some(requests) = &mut self.requests {
            requests.remove(id);
        }
    }
}
