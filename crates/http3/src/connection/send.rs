//! What the application writes.
//!
//! Whatever is one frame is taken whole or refused with `Blocked`; then
//! `Writable` follows. Nothing is copied but small pieces.

use bytes::Bytes;
use clearway_quic::Role;
use clearway_quic::stream::{Directionality, StreamId, WriteError};

use super::Connection;
use crate::count::Count;
use crate::error::{Code, SendError, StreamError};
use crate::frame::{FrameHeader, FrameKind, HEADER_GAP, close_gap};
use crate::head::{Request, Response, lines, section_size};
use crate::priority::{Priority, put_update};
use crate::qpack::{Field, FieldRef};
use crate::request::{Asks, Exchange, Half, Step};
use crate::stream_kind::StreamKind;
use crate::transport::Transport;
use crate::validate;

/// Pieces of a body up to this size are put together with what stands before them,
/// bytes: one call of the transport, which copies such pieces anyway.
const SMALL: usize = 4 << 10;

/// Largest field section we send, bytes, whatever the peer takes.
const MAX_SECTION: u64 = 1 << 24;

impl Connection {
    /// Sends a request (client). `end`: it has neither body nor trailers.
    ///
    /// # Errors
    /// See [`SendError`]; no stream was used then.
    pub fn request<T: Transport>(
        &mut self,
        quic: &mut T,
        request: &Request,
        end: bool,
    ) -> Result<StreamId, SendError> {
        self.check_request(request)?;
        let length = validate::content_length(&request.fields).map_err(malformed)?;
        if end && length.is_some_and(|length| length > 0) {
            return Err(SendError::WrongLength);
        }
        self.start_early(quic);
        let id = quic.open(Directionality::Bidirectional);
        let id = id.ok_or(SendError::TooManyRequests)?;
        self.next_request = id.index().saturating_add(1);
        self.counters.requests.count_one();
        let asks = Asks::of(request);
        let mut exchange = Exchange::new(asks);
        let tunnel = asks == Asks::Tunnel;
        exchange.promise(if tunnel { None } else { length });
        exchange.send(if tunnel { Step::Connect } else { Step::Header });
        self.requests.insert(id, exchange);
        self.send_section(quic, id, request.section(), None, end)?;
        Ok(id)
    }

    /// Sends the final response to a request (server). `end`: it has neither body
    /// nor trailers.
    ///
    /// # Errors
    /// See [`SendError`].
    pub fn respond<T: Transport>(
        &mut self,
        quic: &mut T,
        id: StreamId,
        response: &Response,
        end: bool,
    ) -> Result<(), SendError> {
        self.begin_response(id, response, end.then_some(0))?;
        let mut digits = [0; 3];
        self.send_section(quic, id, response.section(&mut digits), None, end)
    }

    /// Sends a whole response (server): header section, body and end in one write
    /// if they are small.
    ///
    /// # Errors
    /// See [`SendError`].
    pub fn respond_with<T: Transport>(
        &mut self,
        quic: &mut T,
        id: StreamId,
        response: &Response,
        body: Bytes,
    ) -> Result<(), SendError> {
        self.begin_response(id, response, Some(body.len() as u64))?;
        let mut digits = [0; 3];
        let section = response.section(&mut digits);
        self.send_section(quic, id, section, Some(body), true)
    }

    /// Sends an interim response (server; RFC 9110 §15.2): 1xx without 101.
    ///
    /// # Errors
    /// See [`SendError`].
    pub fn inform<T: Transport>(
        &mut self,
        quic: &mut T,
        id: StreamId,
        response: &Response,
    ) -> Result<(), SendError> {
        if !response.is_informational() {
            return Err(SendError::Malformed("not an interim status"));
        }
        validate::check_response(response).map_err(malformed)?;
        self.check_size(section_size(response.section(&mut [0; 3])))?;
        if !self.sending(id)?.outlet.admit() {
            return Err(SendError::Blocked);
        }
        self.step(id, Step::Interim, "an interim response after the final one")?;
        let mut digits = [0; 3];
        self.send_section(quic, id, response.section(&mut digits), None, false)
    }

    /// Sends a piece of a body: all of `data`, which is empty then, or none.
    ///
    /// # Errors
    /// `Blocked` while the piece before it waits for credit. See [`SendError`].
    pub fn write_body<T: Transport>(
        &mut self,
        quic: &mut T,
        id: StreamId,
        data: &mut Bytes,
    ) -> Result<(), SendError> {
        let len = data.len() as u64;
        let exchange = self.sending(id)?;
        if exchange.sending.after(Step::Data).is_none() {
            return Err(SendError::OutOfOrder("a body without a header section"));
        }
        if !exchange.may_send(len) {
            return Err(SendError::WrongLength);
        }
        if len == 0 {
            return Ok(());
        }
        if !exchange.outlet.admit() {
            return Err(SendError::Blocked);
        }
        exchange.on_sent(len);
        self.scratch.clear();
        let written = self.put_body(quic, id, core::mem::take(data), 0);
        self.sent(id, written)
    }

    /// Sends the trailer section and ends the message.
    ///
    /// # Errors
    /// See [`SendError`].
    pub fn trailers<T: Transport>(
        &mut self,
        quic: &mut T,
        id: StreamId,
        trailers: &[Field],
    ) -> Result<(), SendError> {
        validate::check_trailers(trailers).map_err(malformed)?;
        self.check_size(section_size(lines(trailers)))?;
        if !self.sending(id)?.is_content_sent() {
            return Err(SendError::WrongLength);
        }
        self.step(id, Step::Trailers, "trailers without a body before them")?;
        self.send_section(quic, id, lines(trailers), None, true)
    }

    /// Ends the message.
    ///
    /// # Errors
    /// `WrongLength` if less was sent than announced: then
    /// [`reset`](Self::reset) is what is left. See [`SendError`].
    pub fn finish<T: Transport>(&mut self, quic: &mut T, id: StreamId) -> Result<(), SendError> {
        if !self.sending(id)?.is_content_sent() {
            return Err(SendError::WrongLength);
        }
        self.step(id, Step::End, "an end without a header section")?;
        let Some(exchange) = self.requests.get_mut(&id) else {
            return Err(SendError::Unknown);
        };
        let written = exchange.outlet.finish(quic, id);
        self.sent(id, written)
    }

    /// Changes the priority of a request: a client tells the server
    /// (PRIORITY_UPDATE, RFC 9218 §7), a server serves it so.
    ///
    /// # Errors
    /// `Unknown` if the request is over.
    pub fn set_priority<T: Transport>(
        &mut self,
        quic: &mut T,
        id: StreamId,
        priority: Priority,
    ) -> Result<(), SendError> {
        if !self.is_open() {
            return Err(SendError::Closed);
        }
        let exchange = self.requests.get_mut(&id).ok_or(SendError::Unknown)?;
        if priority.urgency > 7 {
            return Err(SendError::Malformed("an urgency beyond 7"));
        }
        exchange.priority = priority;
        match self.role {
            Role::Server => quic.set_priority(id, priority.into()),
            Role::Client => {
                let mut frame = Vec::new();
                put_update(&mut frame, id, priority);
                self.write_lane(quic, StreamKind::Control, &frame);
            }
        }
        Ok(())
    }

    /// The priority a request has now.
    #[must_use]
    pub fn priority(&self, id: StreamId) -> Option<Priority> {
        Some(self.requests.get(&id)?.priority)
    }

    fn check_request(&self, request: &Request) -> Result<(), SendError> {
        if !self.is_open() {
            return Err(SendError::Closed);
        }
        if self.role == Role::Server {
            return Err(SendError::OutOfOrder("a request of a server"));
        }
        if self.goaway.is_going() {
            return Err(SendError::GoingAway);
        }
        validate::check_request(request).map_err(malformed)?;
        if !request.protocol.is_empty() && !self.allowed().enable_connect_protocol {
            return Err(SendError::Unsupported("extended CONNECT"));
        }
        self.check_size(section_size(request.section()))
    }

    /// Whether the peer takes a field section of `size` bytes.
    fn check_size(&self, size: u64) -> Result<(), SendError> {
        let peer = self.allowed().max_field_section_size;
        let limit = peer.unwrap_or(MAX_SECTION).min(MAX_SECTION);
        if size > limit {
            return Err(SendError::TooLarge { size, limit });
        }
        Ok(())
    }

    /// Checks a final response and moves to it. `whole` is the size of its body if
    /// nothing else follows.
    fn begin_response(
        &mut self,
        id: StreamId,
        response: &Response,
        whole: Option<u64>,
    ) -> Result<(), SendError> {
        if response.is_informational() {
            return Err(SendError::Malformed(
                "a final response with an interim status",
            ));
        }
        validate::check_response(response).map_err(malformed)?;
        let length = validate::content_length(&response.fields).map_err(malformed)?;
        self.check_size(section_size(response.section(&mut [0; 3])))?;
        let exchange = self.sending(id)?;
        let asks = exchange.asks;
        let content = asks.content(response, length);
        let wrong = match (content, whole) {
            (Some(content), Some(whole)) => content != whole,
            (Some(_) | None, Some(_) | None) => false,
        };
        if wrong {
            return Err(SendError::WrongLength);
        }
        exchange.promise(content);
        self.step(id, asks.step(response), "a second final response")
    }

    /// The sending side of a stream that is not over.
    fn sending(&mut self, id: StreamId) -> Result<&mut Exchange, SendError> {
        if !self.is_open() {
            return Err(SendError::Closed);
        }
        let exchange = self.requests.get_mut(&id).ok_or(SendError::Unknown)?;
        match exchange.sending {
            Half::Over => Err(SendError::Unknown),
            Half::Header | Half::Body | Half::Tunnel | Half::Trailed => Ok(exchange),
        }
    }

    fn step(&mut self, id: StreamId, step: Step, wrong: &'static str) -> Result<(), SendError> {
        if self.sending(id)?.send(step) {
            Ok(())
        } else {
            Err(SendError::OutOfOrder(wrong))
        }
    }

    /// Writes a HEADERS frame, what follows it, and the end.
    fn send_section<'a, T: Transport>(
        &mut self,
        quic: &mut T,
        id: StreamId,
        fields: impl Iterator<Item = FieldRef<'a>>,
        body: Option<Bytes>,
        end: bool,
    ) -> Result<(), SendError> {
        self.scratch.clear();
        self.scratch.resize(HEADER_GAP, 0);
        self.encoder.encode(id.as_u64(), fields, &mut self.scratch);
        let start = close_gap(&mut self.scratch, HEADER_GAP, FrameKind::Headers);
        let Some(start) = start else {
            return Err(SendError::TooLarge {
                size: self.scratch.len() as u64,
                limit: MAX_SECTION,
            });
        };
        let body = body.unwrap_or_default();
        let mut written = self.put_body(quic, id, body, start);
        if end && written.is_ok() {
            written = match self.requests.get_mut(&id) {
                Some(exchange) => {
                    // After trailers as after a header section.
                    exchange.send(Step::End);
                    exchange.outlet.finish(quic, id)
                }
                None => Err(WriteError::Unknown),
            };
        }
        self.sent(id, written)
    }

    /// Writes what is in `scratch` from `start` on, and a DATA frame of `body`.
    fn put_body<T: Transport>(
        &mut self,
        quic: &mut T,
        id: StreamId,
        body: Bytes,
        start: usize,
    ) -> Result<(), WriteError> {
        let exchange = self.requests.get_mut(&id).ok_or(WriteError::Unknown)?;
        if !body.is_empty() {
            let len = body.len() as u64;
            let kind = FrameKind::Data;
            FrameHeader { kind, len }.encode(&mut self.scratch);
        }
        if body.len() <= SMALL {
            self.scratch.extend_from_slice(&body);
        }
        let frames = self.scratch.get(start..).unwrap_or_default();
        exchange.outlet.write(quic, id, frames)?;
        if body.len() > SMALL {
            exchange.outlet.write_chunk(quic, id, body)?;
        }
        Ok(())
    }

    /// What became of a write.
    fn sent(&mut self, id: StreamId, written: Result<(), WriteError>) -> Result<(), SendError> {
        let Err(error) = written else {
            self.retire(id);
            return Ok(());
        };
        if let Some(exchange) = self.requests.get_mut(&id) {
            exchange.abort_sending();
        }
        self.retire(id);
        Err(match error {
            WriteError::Stopped(code) => SendError::Stopped(Code(code)),
            WriteError::Blocked => SendError::Blocked,
            WriteError::Unknown | WriteError::Finished => SendError::Unknown,
        })
    }
}

fn malformed(error: StreamError) -> SendError {
    SendError::Malformed(error.reason)
}
