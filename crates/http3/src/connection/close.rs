//! Ends that are not the regular one: resets, stops, GOAWAY.

use clearway_quic::Role;
use clearway_quic::stream::{Directionality, StreamId};

use super::Connection;
use super::inbound::closed_critical_stream;
use crate::error::{Code, ConnectionError, StreamError};
use crate::event::Event;
use crate::frame::{FrameKind, put_varint_frame};
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
        exchange.send(Step::Abort);
        exchange.outlet.clear();
        self.retire(id);
    }

    /// Abandons what the peer sends on a stream. Sending goes on; a server that
    /// needs no more of a request says `NO_ERROR` (RFC 9114 §4.1).
    pub fn stop<T: Transport>(&mut self, quic: &mut T, id: StreamId, code: Code) {
        let Some(exchange) = self.requests.get_mut(&id) else {
            return;
        };
        if exchange.receiving == Half::Over {
            return;
        }
        let _ = quic.stop(id, code.0);
        exchange.receive(Step::Abort);
        self.decoder.cancel(id.as_u64());
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
            self.counters.rejected += 1;
            self.abandon(quic, id, Code::REQUEST_CANCELLED);
            self.events.push_back(Event::Rejected(id));
        }
        Ok(())
    }

    /// A message of the peer can't be used.
    pub(super) fn on_stream_error<T: Transport>(
        &mut self,
        quic: &mut T,
        stream: StreamId,
        error: StreamError,
    ) {
        self.counters.malformed += 1;
        self.abandon(quic, stream, error.code);
        // A request that never was is nobody's but ours.
        if self.role == Role::Client {
            self.events.push_back(Event::Failed { stream, error });
        }
    }

    /// Ends a stream in both directions and forgets it.
    pub(super) fn abandon<T: Transport>(&mut self, quic: &mut T, id: StreamId, code: Code) {
        let _ = quic.reset(id, code.0);
        let _ = quic.stop(id, code.0);
        self.decoder.cancel(id.as_u64());
        self.requests.remove(&id);
    }

    /// The peer reset a stream before its header section.
    pub(super) fn on_early_reset<T: Transport>(
        &mut self,
        quic: &mut T,
        stream: StreamId,
        code: Code,
    ) {
        self.on_peer_reset(stream);
        match self.role {
            // Nobody has seen the request; there is nothing to answer.
            Role::Server => self.abandon(quic, stream, Code::REQUEST_REJECTED),
            Role::Client => self.events.push_back(Event::Reset { stream, code }),
        }
    }

    /// The peer reset a stream: nothing more comes, and what came may stay undecoded.
    pub(super) fn on_peer_reset(&mut self, id: StreamId) {
        self.decoder.cancel(id.as_u64());
        if let Some(exchange) = self.requests.get_mut(&id) {
            exchange.receive(Step::Abort);
        }
        self.note_abandoned(id);
        self.retire(id);
    }

    /// The peer does not want what we send.
    pub(super) fn on_stopped(&mut self, stream: StreamId, code: Code) {
        if self.lane_of(stream).is_some() {
            return self.fail(closed_critical_stream());
        }
        let Some(exchange) = self.requests.get_mut(&stream) else {
            return;
        };
        exchange.send(Step::Abort);
        exchange.outlet.clear();
        self.events.push_back(Event::Stopped { stream, code });
        self.note_abandoned(stream);
        self.retire(stream);
    }

    /// A client that begins requests and abandons them makes work at no cost to
    /// itself; there is a rate of that beyond which it is an attack.
    fn note_abandoned(&mut self, id: StreamId) {
        let Some(exchange) = self.requests.get_mut(&id) else {
            return;
        };
        if self.role == Role::Client || core::mem::replace(&mut exchange.abandoned, true) {
            return;
        }
        self.counters.abandoned += 1;
        if !self.abandoned.take() {
            let reason = "too many requests abandoned in a short time";
            self.fail(ConnectionError::new(Code::EXCESSIVE_LOAD, reason));
        }
    }

    /// Forgets a request both of whose halves are over.
    pub(super) fn retire(&mut self, id: StreamId) {
        let over = self
            .requests
            .get(&id)
            .is_some_and(Exchange::is_over);
        if over
            && let Some(exchange) = self.requests.remove(&id)
            && !exchange.abandoned
        {
            // A request served makes up for one abandoned.
            self.abandoned.give();
        }
    }
}
