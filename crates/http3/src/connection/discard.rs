//! Request bodies that the application does not read. A server reads and discards the rest of the
//! request, so that frames that are not allowed in it are still detected. A client that is still
//! sending a body is asked to stop.

use core::time::Duration;

use clearway_quic::Role;
use clearway_quic::stream::StreamId;

use super::Connection;
use super::receive::{StreamItem, truncated};
use super::section::too_large;
use crate::count::Count;
use crate::error::{Code, ReceiveError, StreamError};
use crate::event::Event;
use crate::frame_reader::FrameReadError;
use crate::message_state::MessageState;
use crate::receive_half::{Ending, ReceiveHalf};
use crate::transport::Transport;

/// How many bytes are discarded before the client is asked to stop.
const MAX_BYTES: u64 = 64 << 10;

/// How long the client has to send the rest, like `lingering_timeout` of nginx.
pub(super) const DISCARD_TIMEOUT: Duration = Duration::from_secs(5);

/// A request whose remaining data is discarded.
#[derive(Debug)]
pub(super) struct DiscardedRequest {
    pub(super) receiving: ReceiveHalf,
    /// How many more bytes are discarded.
    left: u64,
}

impl DiscardedRequest {
    pub(super) fn memory(&self) -> usize {
        self.receiving.memory()
    }
}

/// The result of discarding what has arrived.
enum DiscardOutcome {
    /// More may arrive.
    Blocked,
    /// The end of the request was reached.
    End,
    /// The client reset the stream.
    Reset(Code),
    /// The client has to be asked to stop: it is sending a body, or too much was discarded.
    StopSending,
}

impl Connection {
    /// Stops reading a stream. Sending can go on. A server that needs no more of a request passes
    /// `NO_ERROR` (RFC 9114 §4.1): then a client that is sending a body is asked to stop, while a
    /// rest without a body is read and discarded for some seconds.
    pub fn stop<T: Transport>(&mut self, quic: &mut T, id: StreamId, code: Code) {
        let lingering = self.lingering.as_deref();
        let discarding = lingering.map_or(0, |it| it.discarding.len());
        let Some(exchange) = self.requests.get_mut(&id) else {
            return;
        };
        let receiving = &mut exchange.receiving;
        receiving.trailers = None;
        if let Some(Ending::Failed(error)) = receiving.ending.replace(Ending::Gone)
            && self.role == Role::Server
        {
            return self.on_unread_malformed(quic, id, error);
        }
        match receiving.state {
            MessageState::Done => return self.retire(id),
            MessageState::Body | MessageState::AfterTrailers
                if self.role == Role::Server
                    && code == Code::NO_ERROR
                    && discarding < self.config.limits.max_requests => {}
            MessageState::Header
            | MessageState::Body
            | MessageState::Tunnel
            | MessageState::AfterTrailers => {
                return self.stop_immediately(quic, id, code);
            }
        }
        self.discard_rest(quic, id);
    }

    /// Reads and discards the rest of a request, for some seconds.
    pub(super) fn discard_rest<T: Transport>(&mut self, quic: &mut T, id: StreamId) {
        let Some(exchange) = self.requests.get_mut(&id) else {
            return;
        };
        let receiving = &mut exchange.receiving;
        let mut receiving = core::mem::replace(receiving, ReceiveHalf::abandoned());
        receiving.ending = None;
        let request = DiscardedRequest {
            receiving,
            left: MAX_BYTES,
        };
        self.lingering().discarding.insert(id, request);
        self.retire(id);
        self.discard(quic, id);
    }

    /// Asks the peer to stop sending, and ignores whatever arrives.
    pub(super) fn stop_immediately<T: Transport>(
        &mut self,
        quic: &mut T,
        id: StreamId,
        code: Code,
    ) {
        let _ = quic.stop(id, code.0);
        self.cancel_sections(id);
        self.forget_discarded(id);
        if let Some(exchange) = self.requests.get_mut(&id) {
            let buffered = exchange.receiving.incomplete_section;
            exchange.receiving = ReceiveHalf::abandoned();
            self.lingering().release_incomplete(buffered);
        }
        self.retire(id);
    }

    /// Discards what has arrived of a request that is not read any more.
    pub(super) fn discard<T: Transport>(&mut self, quic: &mut T, id: StreamId) {
        let lingering = self.lingering.as_deref();
        if !lingering.is_some_and(|it| it.discarding.contains_key(&id)) {
            return;
        }
        match self.discard_available(quic, id) {
            Ok(DiscardOutcome::Blocked) => {}
            Ok(DiscardOutcome::End) => self.forget_discarded(id),
            Ok(DiscardOutcome::StopSending) => self.stop_immediately(quic, id, Code::NO_ERROR),
            Ok(DiscardOutcome::Reset(code)) => {
                self.decoder.cancel(id.as_u64());
                self.forget_discarded(id);
                self.on_unread_reset(id, code);
            }
            Err(ReceiveError::Stream(error)) => self.on_unread_malformed(quic, id, error),
            Err(ReceiveError::Connection(error)) => self.fail(error),
        }
    }

    fn discard_available<T: Transport>(
        &mut self,
        quic: &mut T,
        id: StreamId,
    ) -> Result<DiscardOutcome, ReceiveError> {
        loop {
            let before = self.counters.skipped;
            let found = self.next_item(quic, id)?;
            let mut passed = self.counters.skipped.saturating_sub(before);
            let lingering = self.lingering.as_deref_mut();
            let Some(request) = lingering.and_then(|it| it.discarding.get_mut(&id)) else {
                return Ok(DiscardOutcome::Blocked);
            };
            match found {
                StreamItem::Content => {
                    match request
                        .receiving
                        .reader
                        .content(|max| quic.read_chunk(id, max))
                    {
                        Ok(piece) => passed = passed.saturating_add(piece.len() as u64),
                        // The client is sending a body.
                        Err(FrameReadError::Blocked) => return Ok(DiscardOutcome::StopSending),
                        Err(FrameReadError::Reset(code)) => {
                            return Ok(DiscardOutcome::Reset(Code(code)));
                        }
                        Err(FrameReadError::UnknownStream) => {
                            return Ok(DiscardOutcome::StopSending);
                        }
                        Err(FrameReadError::End | FrameReadError::Truncated) => {
                            return Err(truncated().into());
                        }
                    }
                }
                StreamItem::Section(fields) => request.receiving.on_trailers(&fields)?,
                StreamItem::End => {
                    return Ok(request.receiving.on_end().map(|()| DiscardOutcome::End)?);
                }
                StreamItem::Reset(code) => return Ok(DiscardOutcome::Reset(code)),
                StreamItem::Blocked if request.receiving.has_body => {
                    return Ok(DiscardOutcome::StopSending);
                }
                StreamItem::Blocked if passed == 0 => return Ok(DiscardOutcome::Blocked),
                StreamItem::Blocked => {}
                StreamItem::TooLarge => return Err(too_large().into()),
                StreamItem::SessionStream(_) | StreamItem::UnknownStream => {
                    return Ok(DiscardOutcome::StopSending);
                }
            }
            match request.left.checked_sub(passed) {
                Some(left) => request.left = left,
                None => return Ok(DiscardOutcome::StopSending),
            }
        }
    }

    pub(super) fn forget_discarded(&mut self, id: StreamId) {
        if let Some(lingering) = &mut self.lingering
            && let Some(request) = lingering.discarding.remove(&id)
        {
            lingering.release_incomplete(request.receiving.incomplete_section);
        }
    }

    /// Handles a reset of a request whose rest is discarded. The application is told only while no
    /// response has begun, because only then work can be saved.
    fn on_unread_reset(&mut self, stream: StreamId, code: Code) {
        let responding = |state| state != MessageState::Header;
        let exchange = self.requests.get(&stream);
        if exchange.is_some_and(|exchange| !responding(exchange.sending)) {
            self.count_abandoned(stream);
            self.events.push_back(Event::Reset { stream, code });
        }
    }

    /// Handles a malformed rest of a request that the application did not read: the request is
    /// malformed if its response is not complete (RFC 9114 §4.1.2).
    fn on_unread_malformed<T: Transport>(
        &mut self,
        quic: &mut T,
        stream: StreamId,
        error: StreamError,
    ) {
        let exchange = self.requests.get(&stream);
        if exchange.is_some_and(|exchange| exchange.sending != MessageState::Done) {
            self.on_stream_error(quic, stream, error);
            return self.events.push_back(Event::Failed { stream, error });
        }
        self.counters.malformed.count_one();
        self.stop_immediately(quic, stream, error.code);
        self.charge();
    }
}
