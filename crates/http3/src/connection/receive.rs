//! Receiving on request streams: frames, up to field sections and content.

use clearway_quic::Role;
use clearway_quic::stream::{ReadError, StreamId};
use rustc_hash::FxHashMap;

use super::{Connection, Lingering};
use crate::count::Count;
use crate::defects::{Quirk, harmless_section};
use crate::error::{Code, ConnectionError, ReceiveError, StreamError};
use crate::event::Event;
use crate::exchange::{Exchange, RequestKind};
use crate::frame::{FrameHeader, FrameKind};
use crate::frame_reader::{FrameItem, FrameReadError};
use crate::message_state::{FrameAction, MessageState};
use crate::qpack::Field;
use crate::receive_half::{Ending, ReceiveHalf};
use crate::transport::Transport;
use crate::webtransport;

/// The next item on a request stream.
#[derive(Debug)]
pub(super) enum StreamItem {
    /// A header or trailer section.
    Section(Vec<Field>),
    /// Content, which is not read yet.
    Content,
    /// The end of the stream.
    End,
    /// Nothing more has arrived.
    Blocked,
    /// The peer reset the stream.
    Reset(Code),
    /// A header or trailer section that exceeds our limits.
    TooLarge,
    /// The stream belongs to the WebTransport session with this stream ID.
    SessionStream(u64),
    /// The stream does not exist, or no longer does.
    UnknownStream,
}

impl Connection {
    /// Handles a request stream that the client opened.
    pub(super) fn on_request_stream<T: Transport>(&mut self, quic: &mut T, id: StreamId) {
        self.next_request = self.next_request.max(id.index().saturating_add(1));
        // Taken out even if the request is rejected, because it takes the place of another.
        let early = self.take_early_priority(id);
        // It may be a stream of a session, which GOAWAY does not concern.
        if self.goaway.rejects(self.role, id) && self.webtransport.is_none() {
            self.counters.rejected.count_one();
            return self.abandon(quic, id, Code::REQUEST_REJECTED);
        }
        if self.requests.len() >= self.config.limits.max_requests {
            self.counters.rejected.count_one();
            self.abandon(quic, id, Code::REQUEST_REJECTED);
            return self.charge();
        }
        let mut exchange = Exchange::new(RequestKind::Other);
        if let Some(priority) = early {
            exchange.reprioritize(priority);
        }
        self.requests.insert(id, exchange);
    }

    /// Handles data on a request stream: reads the header section, and looks at what follows up to
    /// what the application has to read first.
    pub(super) fn on_readable<T: Transport>(&mut self, quic: &mut T, id: StreamId) {
        match self
            .requests
            .get(&id)
            .map(|exchange| exchange.receiving.state)
        {
            Some(MessageState::Header) => self.read_header_section(quic, id),
            Some(MessageState::Body | MessageState::Tunnel | MessageState::AfterTrailers) => {
                self.on_body_data(quic, id);
            }
            Some(MessageState::Done) | None => self.discard(quic, id),
        }
    }

    /// Handles data of a message whose header section was already decoded.
    pub(super) fn on_body_data<T: Transport>(&mut self, quic: &mut T, id: StreamId) {
        match self.look_ahead(quic, id) {
            Ok(true) => self.notify_readable(quic, id),
            Ok(false) => {}
            Err(error) => self.fail(error),
        }
    }

    /// Tells the application that it can read, or that the stream was reset.
    fn notify_readable<T: Transport>(&mut self, quic: &mut T, stream: StreamId) {
        let Some(exchange) = self.requests.get_mut(&stream) else {
            return;
        };
        exchange.receiving.wanted = false;
        if self.reads_capsules(stream) {
            return self.read_capsules(quic, stream);
        }
        let Some(exchange) = self.requests.get(&stream) else {
            return;
        };
        if let Some(Ending::Reset(_)) = exchange.receiving.ending
            && self.is_held_session(stream)
        {
            // The application has not seen the request.
            return self.abandon(quic, stream, Code::REQUEST_REJECTED);
        }
        self.events.push_back(match exchange.receiving.ending {
            Some(Ending::Reset(code)) => Event::Reset { stream, code },
            Some(Ending::End | Ending::Failed(_) | Ending::Gone) | None => Event::Readable(stream),
        });
        self.retire(stream);
    }

    /// Reads until the header section is complete.
    pub(super) fn read_header_section<T: Transport>(&mut self, quic: &mut T, id: StreamId) {
        while self.is_open() && self.awaits_header(id) {
            match self.next_item(quic, id) {
                Ok(StreamItem::Section(fields)) => {
                    if let Err(error) = self.on_header(quic, id, fields) {
                        return self.on_receive_error(quic, id, error);
                    }
                }
                Ok(StreamItem::End) => {
                    let error = incomplete(self.role);
                    return self.on_stream_error(quic, id, error);
                }
                Ok(StreamItem::Reset(code)) => return self.on_early_reset(quic, id, code),
                Ok(StreamItem::TooLarge) => return self.on_header_too_large(quic, id),
                Ok(StreamItem::SessionStream(session)) => {
                    return self.on_session_bidi_stream(quic, id, session);
                }
                // No content is allowed before the header section.
                Ok(StreamItem::Blocked | StreamItem::UnknownStream | StreamItem::Content) => return,
                Err(error) => return self.on_receive_error(quic, id, error),
            }
        }
    }

    fn awaits_header(&self, id: StreamId) -> bool {
        let exchange = self.requests.get(&id);
        exchange.is_some_and(|exchange| exchange.receiving.state == MessageState::Header)
    }

    /// Returns the receiving side of a stream: of an open request, or of one that is discarded.
    pub(super) fn receiving(&mut self, id: StreamId) -> Option<&mut ReceiveHalf> {
        receiving_of(&mut self.requests, &mut self.lingering, id)
    }

    /// Returns the next item on the stream. Unknown frames are skipped; content is not read.
    pub(super) fn next_item<T: Transport>(
        &mut self,
        quic: &mut T,
        id: StreamId,
    ) -> Result<StreamItem, ReceiveError> {
        loop {
            let receiving = receiving_of(&mut self.requests, &mut self.lingering, id);
            let Some(receiving) = receiving else {
                return Ok(StreamItem::UnknownStream);
            };
            if receiving.waits_for_table {
                // A field section of a stream that was reset is not decoded (RFC 9204 §2.2.2.2).
                if let Err(ReadError::Reset(code)) = quic.read_chunk(id, 0) {
                    return Ok(StreamItem::Reset(Code(code)));
                }
                return self.resume_section(id);
            }
            let is_first = !receiving.reader.has_begun();
            let item = receiving.reader.next(|max| quic.read_chunk(id, max));
            let skipped = receiving.reader.take_skipped();
            self.counters.skipped.count(skipped);
            match item {
                Ok(FrameItem::Header(FrameHeader {
                    kind: FrameKind::Unknown(webtransport::BIDI_STREAM),
                    len: session,
                })) if self.config.webtransport_sessions > 0 => {
                    if !is_first || self.role == Role::Client {
                        return Err(misplaced_session_stream().into());
                    }
                    return Ok(StreamItem::SessionStream(session));
                }
                Ok(FrameItem::Header(header)) => {
                    let checked = receiving.state.check_frame(self.role, header.kind);
                    let skip = |error| self.config.forgive(error).map(|()| FrameAction::Skip);
                    match checked.or_else(skip)? {
                        FrameAction::Skip => {
                            self.config.refuse_if(Quirk::RefusesUnknownFrames)?;
                            self.count_useless()?;
                        }
                        FrameAction::Body => {
                            if let Err(error) = receiving.on_data(header.len) {
                                self.config.forgive(error)?;
                                receiving.expect(None);
                            }
                            receiving.reader.stream_payload();
                            if header.len == 0 {
                                self.count_useless()?;
                            }
                        }
                        FrameAction::Section => {
                            let limit = self.config.section_limit();
                            if !receiving.reader.buffer_payload(header.kind, limit) {
                                return Ok(StreamItem::TooLarge);
                            }
                        }
                    }
                }
                Ok(FrameItem::Content) => return Ok(StreamItem::Content),
                Ok(FrameItem::Payload(_, section)) => {
                    return self.decode_section(id, section).or_else(|error| {
                        self.config.forgive(error)?;
                        Ok(StreamItem::Section(harmless_section()))
                    });
                }
                Err(FrameReadError::Blocked) => {
                    self.count_incomplete(id)?;
                    return Ok(StreamItem::Blocked);
                }
                Err(FrameReadError::End) => return Ok(StreamItem::End),
                Err(FrameReadError::Reset(code)) => return Ok(StreamItem::Reset(Code(code))),
                Err(FrameReadError::UnknownStream) => return Ok(StreamItem::UnknownStream),
                Err(FrameReadError::Truncated) => {
                    self.config.forgive(truncated())?;
                    return Ok(StreamItem::End);
                }
            }
        }
    }
}

/// Returns the receiving side of a stream, and borrows only the maps that it may be in.
pub(super) fn receiving_of<'a>(
    requests: &'a mut FxHashMap<StreamId, Exchange>,
    lingering: &'a mut Option<Box<Lingering>>,
    id: StreamId,
) -> Option<&'a mut ReceiveHalf> {
    match requests.get_mut(&id) {
        Some(exchange) if exchange.receiving.state != MessageState::Done => {
            Some(&mut exchange.receiving)
        }
        Some(_) | None => {
            let discarding = &mut lingering.as_deref_mut()?.discarding;
            Some(&mut discarding.get_mut(&id)?.receiving)
        }
    }
}

/// The error for the type of a session's stream that is not at the beginning of a stream
/// (draft-ietf-webtrans-http3 §4.3).
fn misplaced_session_stream() -> ConnectionError {
    ConnectionError::new(
        Code::FRAME_ERROR,
        "WT_STREAM must be the first frame of a stream that the client opened",
    )
}

/// The error for a stream that ended within a frame (RFC 9114 §7.1).
pub(super) fn truncated() -> ConnectionError {
    ConnectionError::new(Code::FRAME_ERROR, "the stream ended within a frame")
}

/// The error for a stream that ended before its message was complete (RFC 9114 §4.1).
const fn incomplete(role: Role) -> StreamError {
    match role {
        Role::Server => {
            let reason = "the stream ended before the request was complete";
            StreamError::new(Code::REQUEST_INCOMPLETE, reason)
        }
        Role::Client => StreamError::malformed("the stream ended without a final response"),
    }
}
