//! Ends that are not the regular one: resets, stops, GOAWAY.

use clearway_quic::Role;
use clearway_quic::stream::{Directionality, StreamId};

use super::Connection;
use super::inbound::closed_critical_stream;
use crate::count::Count;
use crate::error::{Code, ConnectionError, StreamError};
use crate::event::Event;
use crate::frame::{FrameKind, put_varint_frame};
use crate::receiving::Ending;
use crate::request::{Exchange, Half, Step};
use crate::stream_kind::StreamKind;
use crate::transport::Transport;

impl Connection {
    /// Abandons what we send on a stream. Reading goes on.
    pub fn reset<T: Transport>(&mut self, quic: &mut T, id: StreamId, code: Code) {
        let Some(exchange) = self.requests.get_mut(&id) else {
            return;
        };
        if exchange.sending == Half::Over && exchange.outlet.is_empty() {
            return;
        }
        // A stream the transport does not know any more needs no reset.
        let _ = quic.reset(id, code.0);
        exchange.abort_sending();
        self.retire(id);
    }

    /// Gives up a request in both directions (RFC 9114 §4.1.1), as client or as
    /// server.
    pub fn cancel<T: Transport>(&mut self, quic: &mut T, id: StreamId) {
        if self.requests.contains_key(&id) {
            self.abandon(quic, id, Code::REQUEST_CANCELLED);
        }
    }

    /// Says that the connection is on its way out (RFC 9114 §5.2). Requests that
    /// have arrived are served.
    ///
    /// A server calls it twice: first it says only that the end is near; a round
    /// trip later it says which requests it takes, and rejects others. A client
    /// makes no further requests. When [`open_requests`](Self::open_requests) is 0,
    /// the transport can be closed with `NO_ERROR`.
    pub fn shutdown<T: Transport>(&mut self, quic: &mut T) {
        let client = Role::Client;
        let next = StreamId::new(client, Directionality::Bidirectional, self.next_request);
        if let Some(id) = self.goaway.next(self.role, next) {
            let mut frame = Vec::new();
            put_varint_frame(&mut frame, FrameKind::Goaway, id);
            self.write_lane(quic, StreamKind::Control, &frame);
        }
    }

    /// Whether either end said that it is on its way out.
    #[must_use]
    pub fn is_going_away(&self) -> bool {
        self.goaway.is_going()
    }

    /// GOAWAY arrived.
    pub(super) fn on_goaway<T: Transport>(
        &mut self,
        quic: &mut T,
        id: u64,
    ) -> Result<(), ConnectionError> {
        self.goaway.on_received(self.role, id)?;
        self.events.push_back(Event::GoAway { id });
        if self.role == Role::Server {
            return Ok(());
        }
        let goaway = self.goaway;
        let refused = |id: &StreamId| goaway.refuses(Role::Client, *id);
        let mut lost: Vec<StreamId> = self.requests.keys().copied().filter(refused).collect();
        lost.sort_unstable();
        for id in lost {
            self.counters.rejected.count_one();
            self.abandon(quic, id, Code::REQUEST_CANCELLED);
            self.events.push_back(Event::Rejected(id));
        }
        Ok(())
    }

    /// Says that a request is not taken, of which the application has seen no more than
    /// [`Event::Request`]: it can be sent again (server; RFC 9114 §4.1.1).
    pub fn reject<T: Transport>(&mut self, quic: &mut T, id: StreamId) {
        if self.requests.contains_key(&id) {
            self.counters.rejected.count_one();
            self.abandon(quic, id, Code::REQUEST_REJECTED);
        }
    }

    /// A message of the peer can't be used.
    pub(super) fn on_stream_error<T: Transport>(
        &mut self,
        quic: &mut T,
        stream: StreamId,
        error: StreamError,
    ) {
        self.counters.malformed.count_one();
        self.abandon(quic, stream, error.code);
        self.charge();
        // A request that never was is nobody's but ours.
        if self.role == Role::Client {
            self.events.push_back(Event::Failed { stream, error });
        }
    }

    /// Ends a stream in both directions and forgets it.
    pub(super) fn abandon<T: Transport>(&mut self, quic: &mut T, id: StreamId, code: Code) {
        let _ = quic.reset(id, code.0);
        let _ = quic.stop(id, code.0);
        self.cancel_sections(id);
        self.forget_discarded(id);
        self.take_delivery(id);
        self.take_request(id);
    }

    /// The peer reset a stream before its header section.
    pub(super) fn on_early_reset<T: Transport>(
        &mut self,
        quic: &mut T,
        stream: StreamId,
        code: Code,
    ) {
        match self.role {
            // Nobody has seen the request; there is nothing to answer.
            Role::Server => {
                self.note_abandoned(stream);
                self.abandon(quic, stream, Code::REQUEST_REJECTED);
            }
            Role::Client => {
                self.on_peer_reset(stream);
                if let Some(exchange) = self.requests.get_mut(&stream) {
                    exchange.receiving.ending = Some(Ending::Reset(code));
                }
                self.events.push_back(Event::Reset { stream, code });
                self.retire(stream);
            }
        }
    }

    /// The peer reset a stream: nothing more comes, and what came may stay undecoded.
    /// Whoever calls this tells the application, then [retires](Self::retire) it.
    pub(super) fn on_peer_reset(&mut self, id: StreamId) {
        self.decoder.cancel(id.as_u64());
        if let Some(exchange) = self.requests.get_mut(&id) {
            let receiving = &mut exchange.receiving;
            receiving.step(Step::Abort);
            receiving.trailers = None;
            receiving.waits_for_table = false;
        }
        self.note_abandoned(id);
    }

    /// The peer does not want what we send.
    pub(super) fn on_stopped(&mut self, stream: StreamId, code: Code) {
        if self.lane_of(stream).is_some() {
            return self.fail(closed_critical_stream());
        }
        if let Some(exchange) = self.requests.get_mut(&stream) {
            exchange.abort_sending();
            self.events.push_back(Event::Stopped { stream, code });
            self.note_abandoned(stream);
            return self.retire(stream);
        }
        // The application is done with it, the client was not.
        if self.take_delivery(stream) {
            self.clock.touch();
            self.counters
                .abandoned
                .count((self.role == Role::Server).into());
            self.charge();
        }
    }

    /// The peer has all that we sent on a stream, its end included.
    pub(super) fn on_finished(&mut self, id: StreamId) {
        let answered = match self.requests.get_mut(&id) {
            Some(exchange) => {
                exchange.delivered = true;
                !exchange.abandoned
            }
            None => self.take_delivery(id),
        };
        if answered {
            self.clock.touch();
            // A request answered to its end makes up for one abandoned.
            let burst = self.config.limits.abandoned_burst;
            self.allowances.abandoned.give(1, burst);
        }
    }

    /// A client that begins requests and abandons them makes work at no cost to
    /// itself; there is a rate of that beyond which it is an attack.
    pub(super) fn note_abandoned(&mut self, id: StreamId) {
        let Some(exchange) = self.requests.get_mut(&id) else {
            return;
        };
        if self.role == Role::Client || core::mem::replace(&mut exchange.abandoned, true) {
            return;
        }
        self.counters.abandoned.count_one();
        self.charge();
    }

    /// A request ended before its answer had arrived, by the client's doing: it reset
    /// it, or did something for which we had to.
    pub(super) fn charge(&mut self) {
        if self.role == Role::Server && !self.allowances.abandoned.take() {
            self.fail(ConnectionError::new(
                Code::EXCESSIVE_LOAD,
                "too many requests abandoned, malformed or refused in a short time",
            ));
        }
    }

    /// Forgets a request both of whose halves are over.
    pub(super) fn retire(&mut self, id: StreamId) {
        if self.requests.get(&id).is_some_and(Exchange::is_over)
            && let Some(exchange) = self.take_request(id)
            && exchange.is_on_its_way()
        {
            self.lingering().delivering.insert(id, exchange.progress);
        }
    }

    fn take_request(&mut self, id: StreamId) -> Option<Exchange> {
        let exchange = self.requests.remove(&id)?;
        if exchange.receiving.half != Half::Header {
            self.clock.touch();
        }
        if let Some(lingering) = &mut self.lingering {
            lingering.forget_gathered(exchange.receiving.gathered);
        }
        Some(exchange)
    }

    /// Whether a stream waited for nothing but acknowledgments; it does no more.
    fn take_delivery(&mut self, id: StreamId) -> bool {
        let lingering = self.lingering.as_deref_mut();
        lingering.is_some_and(|it| it.delivering.remove(&id).is_some())
    }
}
