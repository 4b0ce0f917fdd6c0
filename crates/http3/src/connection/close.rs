//! Ending streams early: resets, stops, GOAWAY.

use clearway_quic::Role;
use clearway_quic::stream::{Directionality, StreamId};

use super::Connection;
use super::peer_streams::closed_critical_stream;
use crate::count::Count;
use crate::error::{Code, ConnectionError, StreamError};
use crate::event::Event;
use crate::exchange::Exchange;
use crate::frame::{FrameKind, put_varint_frame};
use crate::message_state::{MessageEvent, MessageState};
use crate::receive_half::Ending;
use crate::stream_kind::StreamKind;
use crate::transport::Transport;

impl Connection {
    /// Resets the sending side of a stream. Reading can go on.
    pub fn reset<T: Transport>(&mut self, quic: &mut T, id: StreamId, code: Code) {
        let Some(exchange) = self.requests.get_mut(&id) else {
            return;
        };
        if exchange.sending == MessageState::Done && exchange.send_buffer.is_empty() {
            return;
        }
        // A stream that the transport no longer knows needs no reset.
        let _ = quic.reset(id, code.0);
        exchange.abort_sending();
        self.retire(id);
    }

    /// Cancels a request in both directions (RFC 9114 §4.1.1), as client or as server.
    pub fn cancel<T: Transport>(&mut self, quic: &mut T, id: StreamId) {
        if self.requests.contains_key(&id) {
            self.abandon(quic, id, Code::REQUEST_CANCELLED);
        }
    }

    /// Starts or continues a graceful shutdown by sending GOAWAY (RFC 9114 §5.2). Requests that
    /// have arrived are processed.
    ///
    /// A server calls this twice: first to announce the shutdown, and a round trip later to
    /// announce the last request that it processes, and reject later ones. A client makes no
    /// further requests. When [`open_requests`](Self::open_requests) is 0, the transport can be
    /// closed with `NO_ERROR`.
    pub fn shutdown<T: Transport>(&mut self, quic: &mut T) {
        let client = Role::Client;
        let next = StreamId::new(client, Directionality::Bidirectional, self.next_request);
        if let Some(id) = self.goaway.next_to_send(self.role, next) {
            let mut frame = Vec::new();
            put_varint_frame(&mut frame, FrameKind::Goaway, id);
            self.write_critical(quic, StreamKind::Control, &frame);
        }
    }

    /// Returns whether either endpoint has announced a shutdown.
    #[must_use]
    pub fn is_going_away(&self) -> bool {
        self.goaway.is_active()
    }

    /// Handles a received GOAWAY.
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
        let is_rejected = |id: &StreamId| goaway.rejects(Role::Client, *id);
        let requests = self.requests.keys().copied();
        let mut rejected: Vec<StreamId> = requests.filter(is_rejected).collect();
        rejected.sort_unstable();
        for id in rejected {
            self.counters.rejected.count_one();
            self.abandon(quic, id, Code::REQUEST_CANCELLED);
            self.events.push_back(Event::Rejected(id));
        }
        Ok(())
    }

    /// Rejects a request, of which the application must have processed nothing: the client can send
    /// it again (server; RFC 9114 §4.1.1).
    pub fn reject<T: Transport>(&mut self, quic: &mut T, id: StreamId) {
        if self.requests.contains_key(&id) {
            self.counters.rejected.count_one();
            self.abandon(quic, id, Code::REQUEST_REJECTED);
        }
    }

    /// Handles a malformed message of the peer.
    pub(super) fn on_stream_error<T: Transport>(
        &mut self,
        quic: &mut T,
        stream: StreamId,
        error: StreamError,
    ) {
        let Err(error) = self.config.forgive(error) else {
            return;
        };
        self.counters.malformed.count_one();
        self.abandon(quic, stream, error.code);
        self.charge();
        // A server's application has not seen the request.
        if self.role == Role::Client {
            self.events.push_back(Event::Failed { stream, error });
        }
    }

    /// Resets and stops a stream, and removes its state.
    pub(super) fn abandon<T: Transport>(&mut self, quic: &mut T, id: StreamId, code: Code) {
        let _ = quic.reset(id, code.0);
        let _ = quic.stop(id, code.0);
        self.cancel_sections(id);
        self.forget_discarded(id);
        self.remove_unacknowledged(id);
        self.take_request(id);
    }

    /// Handles a reset that arrived before the header section.
    pub(super) fn on_early_reset<T: Transport>(
        &mut self,
        quic: &mut T,
        stream: StreamId,
        code: Code,
    ) {
        match self.role {
            // The application has not seen the request; there is nothing to respond to.
            Role::Server => {
                self.count_abandoned(stream);
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

    /// Handles a reset: no more data arrives, and field sections that have arrived may stay
    /// undecoded. The caller tells the application, and then [retires](Self::retire) the stream.
    pub(super) fn on_peer_reset(&mut self, id: StreamId) {
        self.decoder.cancel(id.as_u64());
        if let Some(exchange) = self.requests.get_mut(&id) {
            let receiving = &mut exchange.receiving;
            receiving.step(MessageEvent::Abort);
            receiving.trailers = None;
            receiving.waits_for_table = false;
        }
        self.count_abandoned(id);
    }

    /// Handles STOP_SENDING.
    pub(super) fn on_stopped(&mut self, stream: StreamId, code: Code) {
        if self.critical_kind(stream).is_some() {
            return self.fail(closed_critical_stream());
        }
        if let Some(exchange) = self.requests.get_mut(&stream) {
            exchange.abort_sending();
            self.events.push_back(Event::Stopped { stream, code });
            self.count_abandoned(stream);
            return self.retire(stream);
        }
        // The application was done with the stream, but the client was not.
        if self.remove_unacknowledged(stream) {
            self.timers.on_activity();
            self.counters
                .abandoned
                .count((self.role == Role::Server).into());
            self.charge();
        }
    }

    /// Handles the acknowledgment of everything that we sent on a stream, including its end.
    pub(super) fn on_finished(&mut self, id: StreamId) {
        let answered = match self.requests.get_mut(&id) {
            Some(exchange) => {
                exchange.acknowledged = true;
                !exchange.abandoned
            }
            None => self.remove_unacknowledged(id),
        };
        if answered {
            self.timers.on_activity();
            // A completed request makes up for an abandoned one.
            let burst = self.config.limits.abandoned_burst;
            self.rate_limits.abandoned.refund(1, burst);
        }
    }

    /// Counts an abandoned request. A client that begins requests and abandons them causes work at
    /// no cost to itself, so the rate is limited.
    pub(super) fn count_abandoned(&mut self, id: StreamId) {
        let Some(exchange) = self.requests.get_mut(&id) else {
            return;
        };
        if self.role == Role::Client || core::mem::replace(&mut exchange.abandoned, true) {
            return;
        }
        self.counters.abandoned.count_one();
        self.charge();
    }

    /// Charges the client for a request that ended early because of it: it reset the request, or
    /// did something for which we had to.
    pub(super) fn charge(&mut self) {
        if self.role == Role::Server && !self.rate_limits.abandoned.take() {
            self.fail(ConnectionError::new(
                Code::EXCESSIVE_LOAD,
                "too many requests were reset, malformed or rejected in a short time",
            ));
        }
    }

    /// Removes a request if both directions are done.
    pub(super) fn retire(&mut self, id: StreamId) {
        if self.requests.get(&id).is_some_and(Exchange::is_over)
            && let Some(exchange) = self.take_request(id)
            && exchange.is_unacknowledged()
        {
            let lingering = self.lingering();
            lingering.unacknowledged.insert(id, exchange.progress);
        }
    }

    fn take_request(&mut self, id: StreamId) -> Option<Exchange> {
        let exchange = self.requests.remove(&id)?;
        self.lose_session(id, &exchange.receiving);
        if exchange.receiving.state != MessageState::Header {
            self.timers.on_activity();
        }
        if let Some(lingering) = &mut self.lingering {
            lingering.release_incomplete(exchange.receiving.incomplete_section);
        }
        Some(exchange)
    }

    /// Removes a stream that only waited for its acknowledgment. Returns whether there was one.
    fn remove_unacknowledged(&mut self, id: StreamId) -> bool {
        let lingering = self.lingering.as_deref_mut();
        lingering.is_some_and(|it| it.unacknowledged.remove(&id).is_some())
    }
}
