//! Sending messages.
//!
//! Each frame is either accepted whole or refused with `Blocked`, after which `Writable` follows.
//! Only small pieces are copied.

use bytes::Bytes;
use clearway_quic::Role;
use clearway_quic::stream::{Directionality, StreamId, WriteError};

use super::Connection;
use crate::count::Count;
use crate::error::{Code, SendError, StreamError};
use crate::exchange::{Exchange, RequestKind};
use crate::frame::{FrameHeader, FrameKind, HEADER_ROOM, write_header_before};
use crate::head::{Request, Response, field_refs, section_size};
use crate::message_state::{MessageEvent, MessageState};
use crate::priority::{Priority, encode_priority_update};
use crate::qpack::{Field, FieldRef};
use crate::stream_kind::StreamKind;
use crate::transport::Transport;
use crate::validate;
use crate::webtransport;

/// Pieces of a body up to this size, in bytes, are copied behind the frames before them: that saves
/// a call of the transport, which copies such pieces anyway.
const MAX_COPIED: usize = 4 << 10;

/// Maximum size of a field section that we send, in bytes, whatever the peer accepts.
const MAX_SENT_SECTION: u64 = 1 << 24;

impl Connection {
    /// Sends a request (client). `end` means that it has neither body nor trailers.
    ///
    /// # Errors
    /// See [`SendError`]. No stream was opened then.
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
        let kind = RequestKind::of(request);
        let mut exchange = Exchange::new(kind);
        let tunnel = kind.is_connect();
        exchange.expect_to_send(if tunnel { None } else { length });
        exchange.advance_sending(if tunnel {
            MessageEvent::Connect
        } else {
            MessageEvent::Header
        });
        self.requests.insert(id, exchange);
        self.ask_for_session(id, request);
        self.send_section(quic, id, request.section(), None, end)?;
        Ok(id)
    }

    /// Sends the final response to a request (server). `end` means that it has neither body nor
    /// trailers.
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
        self.begin_response(quic, id, response, end.then_some(0))?;
        let mut digits = [0; 3];
        self.send_section(quic, id, response.section(&mut digits), None, end)
    }

    /// Sends a complete response (server): header section, body and end, in one write if they are
    /// small.
    ///
    /// # Errors
    /// See [`SendError`].
    pub fn respond_with_body<T: Transport>(
        &mut self,
        quic: &mut T,
        id: StreamId,
        response: &Response,
        body: Bytes,
    ) -> Result<(), SendError> {
        self.begin_response(quic, id, response, Some(body.len() as u64))?;
        let mut digits = [0; 3];
        let section = response.section(&mut digits);
        self.send_section(quic, id, section, Some(body), true)
    }

    /// Sends an interim response (server; RFC 9110 §15.2): any 1xx status except 101.
    ///
    /// # Errors
    /// See [`SendError`].
    pub fn send_informational<T: Transport>(
        &mut self,
        quic: &mut T,
        id: StreamId,
        response: &Response,
    ) -> Result<(), SendError> {
        if !response.is_informational() {
            let reason = "an interim response needs a status from 100 to 199";
            return Err(SendError::Malformed(reason));
        }
        validate::check_response(response).map_err(malformed)?;
        self.check_size(section_size(response.section(&mut [0; 3])))?;
        if !self.sending(id)?.send_buffer.can_accept() {
            return Err(SendError::Blocked);
        }
        let misuse = "an interim response must come before the final response";
        self.advance_sending(id, MessageEvent::Interim, misuse)?;
        let mut digits = [0; 3];
        self.send_section(quic, id, response.section(&mut digits), None, false)
    }

    /// Sends a piece of a body: either all of `data`, which is empty afterwards, or nothing.
    ///
    /// # Errors
    /// `Blocked` while the previous piece waits for flow control. See [`SendError`].
    pub fn write_body<T: Transport>(
        &mut self,
        quic: &mut T,
        id: StreamId,
        data: &mut Bytes,
    ) -> Result<(), SendError> {
        let len = data.len() as u64;
        let exchange = self.sending(id)?;
        if exchange.sending.after(MessageEvent::Data).is_none() {
            return Err(SendError::OutOfOrder(
                "send the header section before the body",
            ));
        }
        if !exchange.may_send(len) {
            return Err(SendError::WrongLength);
        }
        if len == 0 {
            return Ok(());
        }
        if !exchange.send_buffer.can_accept() {
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
    pub fn send_trailers<T: Transport>(
        &mut self,
        quic: &mut T,
        id: StreamId,
        trailers: &[Field],
    ) -> Result<(), SendError> {
        validate::check_trailers(trailers).map_err(malformed)?;
        self.check_size(section_size(field_refs(trailers)))?;
        if !self.sending(id)?.is_content_sent() {
            return Err(SendError::WrongLength);
        }
        let misuse = "send the header section before trailers; a tunnel has none";
        self.advance_sending(id, MessageEvent::Trailers, misuse)?;
        self.send_section(quic, id, field_refs(trailers), None, true)
    }

    /// Ends the message.
    ///
    /// # Errors
    /// `WrongLength` if less was sent than announced: then the stream can only be
    /// [`reset`](Self::reset). See [`SendError`].
    pub fn finish<T: Transport>(&mut self, quic: &mut T, id: StreamId) -> Result<(), SendError> {
        if !self.sending(id)?.is_content_sent() {
            return Err(SendError::WrongLength);
        }
        let misuse = "send the header section before the end of the message";
        self.advance_sending(id, MessageEvent::End, misuse)?;
        let Some(exchange) = self.requests.get_mut(&id) else {
            return Err(SendError::Unknown);
        };
        let written = exchange.send_buffer.finish(quic, id);
        self.sent(id, written)
    }

    /// Changes the priority of a request: a client tells the server (PRIORITY_UPDATE, RFC 9218 §7),
    /// a server schedules the response accordingly.
    ///
    /// # Errors
    /// `Unknown` if the request is complete; `Malformed` if the urgency is above 7.
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
            return Err(SendError::Malformed("priority urgency must be from 0 to 7"));
        }
        exchange.priority = priority;
        match self.role {
            Role::Server => quic.set_priority(id, priority.into()),
            Role::Client => {
                let mut frame = Vec::new();
                encode_priority_update(&mut frame, id, priority);
                self.write_critical(quic, StreamKind::Control, &frame);
            }
        }
        Ok(())
    }

    /// Returns the priority of a request.
    #[must_use]
    pub fn priority(&self, id: StreamId) -> Option<Priority> {
        Some(self.requests.get(&id)?.priority)
    }

    fn check_request(&self, request: &Request) -> Result<(), SendError> {
        if !self.is_open() {
            return Err(SendError::Closed);
        }
        if self.role == Role::Server {
            return Err(SendError::OutOfOrder("a server cannot send requests"));
        }
        if self.goaway.is_active() {
            return Err(SendError::GoingAway);
        }
        validate::check_request(request).map_err(malformed)?;
        if !request.protocol.is_empty() && !self.allowed().enable_connect_protocol {
            return Err(SendError::Unsupported("extended CONNECT"));
        }
        if webtransport::is_session(request) && self.allowed().webtransport_sessions == 0 {
            return Err(SendError::Unsupported("WebTransport"));
        }
        self.check_size(section_size(request.section()))
    }

    /// Checks that the peer accepts a field section of `size` bytes.
    fn check_size(&self, size: u64) -> Result<(), SendError> {
        let peer = self.allowed().max_field_section_size;
        let limit = peer.unwrap_or(MAX_SENT_SECTION).min(MAX_SENT_SECTION);
        if size > limit {
            return Err(SendError::TooLarge { size, limit });
        }
        Ok(())
    }

    /// Checks a final response and starts it. `whole` is the length of the body if nothing else
    /// follows.
    fn begin_response<T: Transport>(
        &mut self,
        quic: &mut T,
        id: StreamId,
        response: &Response,
        whole: Option<u64>,
    ) -> Result<(), SendError> {
        if response.is_informational() {
            return Err(SendError::Malformed(
                "a final response needs a status of 200 or more",
            ));
        }
        validate::check_response(response).map_err(malformed)?;
        let length = validate::content_length(&response.fields).map_err(malformed)?;
        self.check_size(section_size(response.section(&mut [0; 3])))?;
        let exchange = self.sending(id)?;
        let kind = exchange.request_kind;
        let content = kind.content_len(response, length);
        let wrong = match (content, whole) {
            (Some(content), Some(whole)) => content != whole,
            (Some(_) | None, Some(_) | None) => false,
        };
        if wrong {
            return Err(SendError::WrongLength);
        }
        exchange.expect_to_send(content);
        let misuse = "the final response was already sent";
        self.advance_sending(id, kind.response_event(response), misuse)?;
        self.on_session_answer(quic, id, response.status);
        Ok(())
    }

    /// Returns the stream if its sending side is open.
    fn sending(&mut self, id: StreamId) -> Result<&mut Exchange, SendError> {
        if !self.is_open() {
            return Err(SendError::Closed);
        }
        let exchange = self.requests.get_mut(&id).ok_or(SendError::Unknown)?;
        match exchange.sending {
            MessageState::Done => Err(SendError::Unknown),
            MessageState::Header
            | MessageState::Body
            | MessageState::Tunnel
            | MessageState::AfterTrailers => Ok(exchange),
        }
    }

    fn advance_sending(
        &mut self,
        id: StreamId,
        event: MessageEvent,
        misuse: &'static str,
    ) -> Result<(), SendError> {
        if self.sending(id)?.advance_sending(event) {
            Ok(())
        } else {
            Err(SendError::OutOfOrder(misuse))
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
        self.scratch.resize(HEADER_ROOM, 0);
        self.encoder.encode(id.as_u64(), fields, &mut self.scratch);
        let start = write_header_before(&mut self.scratch, HEADER_ROOM, FrameKind::Headers);
        let Some(start) = start else {
            return Err(SendError::TooLarge {
                size: self.scratch.len() as u64,
                limit: MAX_SENT_SECTION,
            });
        };
        let body = body.unwrap_or_default();
        let mut written = self.put_body(quic, id, body, start);
        if end && written.is_ok() {
            written = match self.requests.get_mut(&id) {
                Some(exchange) => {
                    // Allowed after trailers and after a header section.
                    exchange.advance_sending(MessageEvent::End);
                    exchange.send_buffer.finish(quic, id)
                }
                None => Err(WriteError::Unknown),
            };
        }
        self.sent(id, written)
    }

    /// Writes `scratch` from `start` on, and then a DATA frame with `body`.
    pub(super) fn put_body<T: Transport>(
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
        if body.len() <= MAX_COPIED {
            self.scratch.extend_from_slice(&body);
        }
        let frames = self.scratch.get(start..).unwrap_or_default();
        exchange.send_buffer.write(quic, id, frames)?;
        if body.len() > MAX_COPIED {
            exchange.send_buffer.write_chunk(quic, id, body)?;
        }
        Ok(())
    }

    /// Converts the result of a write, and ends the sending side if it failed.
    fn sent(&mut self, id: StreamId, written: Result<(), WriteError>) -> Result<(), SendError> {
        let Err(error) = written else {
            self.has_written = true;
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
