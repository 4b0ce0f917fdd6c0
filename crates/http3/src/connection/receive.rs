//! Frames on request streams, and the header sections among them.

use bytes::Bytes;
use clearway_quic::Role;
use clearway_quic::stream::StreamId;

use super::Connection;
use crate::error::{Code, ConnectionError, Fault, StreamError};
use crate::event::Event;
use crate::head::{Request, Response, find};
use crate::priority::Priority;
use crate::qpack::{Decoded, Field};
use crate::reader::{Item, Pause};
use crate::request::{Asks, Exchange, Half, Step, Treatment};
use crate::transport::Transport;
use crate::validate;

/// What the peer's half of a stream gave.
#[derive(Debug)]
pub(super) enum Pulled {
    /// A header or trailer section.
    Section(Vec<Field>),
    /// A piece of a body.
    Data(Bytes),
    /// The end.
    End,
    /// Nothing yet.
    Blocked,
    /// The peer reset the stream.
    Reset(Code),
    /// A header or trailer section we do not take.
    TooLarge,
    /// There is no such stream (any more).
    Gone,
}

impl Connection {
    /// The client opened a request stream.
    pub(super) fn on_request_stream<T: Transport>(&mut self, quic: &mut T, id: StreamId) {
        self.next_request = self.next_request.max(id.index() + 1);
        let refused = self.goaway.refuses(self.role, id)
            || self.requests.len() >= self.config.limits.max_requests;
        if refused {
            self.counters.rejected += 1;
            self.abandon(quic, id, Code::REQUEST_REJECTED);
            return;
        }
        self.requests.insert(id, Exchange::new(Asks::Content));
    }

    /// A request stream has something. Before the header section that is ours to
    /// read, after it the application's.
    pub(super) fn on_readable<T: Transport>(&mut self, quic: &mut T, id: StreamId) {
        match self.requests.get(&id).map(|exchange| exchange.receiving) {
            Some(Half::Header) => self.advance(quic, id),
            Some(Half::Body | Half::Tunnel | Half::Trailed) => {
                self.events.push_back(Event::Readable(id));
            }
            Some(Half::Over) | None => {}
        }
    }

    /// Reads until the header section is complete.
    pub(super) fn advance<T: Transport>(&mut self, quic: &mut T, id: StreamId) {
        while self.is_open() && self.awaits_header(id) {
            match self.pull(quic, id) {
                Ok(Pulled::Section(fields)) => {
                    if let Err(fault) = self.on_header(quic, id, fields) {
                        return self.on_fault(quic, id, fault);
                    }
                }
                Ok(Pulled::End) => {
                    let error = incomplete(self.role);
                    return self.on_stream_error(quic, id, error);
                }
                Ok(Pulled::Reset(code)) => return self.on_early_reset(quic, id, code),
                Ok(Pulled::TooLarge) => return self.on_header_too_large(quic, id),
                // No DATA is let through before the header section.
                Ok(Pulled::Blocked | Pulled::Gone | Pulled::Data(_)) => return,
                Err(fault) => return self.on_fault(quic, id, fault),
            }
        }
    }

    fn awaits_header(&self, id: StreamId) -> bool {
        let exchange = self.requests.get(&id);
        exchange.is_some_and(|exchange| exchange.receiving == Half::Header)
    }

    /// The next thing on the stream.
    pub(super) fn pull<T: Transport>(
        &mut self,
        quic: &mut T,
        id: StreamId,
    ) -> Result<Pulled, Fault> {
        loop {
            let Some(exchange) = self.requests.get_mut(&id) else {
                return Ok(Pulled::Gone);
            };
            if exchange.waits_for_table {
                return self.resume_section(id);
            }
            let item = exchange.reader.next(|max| quic.read_chunk(id, max));
            self.counters.skipped += exchange.reader.take_skipped();
            match item {
                Ok(Item::Header(header)) => {
                    match exchange.receiving.admit(self.role, header.kind)? {
                        Treatment::Skip => self.note_idle_work()?,
                        Treatment::Body => {
                            exchange.on_data(header.len)?;
                            exchange.reader.pass();
                            if header.len == 0 {
                                self.note_idle_work()?;
                            }
                        }
                        Treatment::Section => {
                            let limit = self.config.limits.max_field_section;
                            if !exchange.reader.gather(header.kind, limit) {
                                return Ok(Pulled::TooLarge);
                            }
                        }
                    }
                }
                Ok(Item::Data(data)) => return Ok(Pulled::Data(data)),
                Ok(Item::Payload(_, section)) => return self.decode_section(id, section),
                Err(Pause::Blocked) => return Ok(Pulled::Blocked),
                Err(Pause::End) => return Ok(Pulled::End),
                Err(Pause::Reset(code)) => return Ok(Pulled::Reset(Code(code))),
                Err(Pause::Gone) => return Ok(Pulled::Gone),
                Err(Pause::Truncated) => return Err(truncated().into()),
            }
        }
    }

    fn decode_section(&mut self, id: StreamId, section: Bytes) -> Result<Pulled, Fault> {
        let limit = self.config.limits.max_field_section;
        let decoded = self.decoder.decode(id.as_u64(), section, limit);
        let decoded = decoded.map_err(ConnectionError::from)?;
        if decoded == Decoded::Blocked {
            self.counters.blocked_sections += 1;
        }
        Ok(self.on_decoded(id, decoded))
    }

    /// A section waited for the dynamic table; perhaps it does not any more.
    fn resume_section(&mut self, id: StreamId) -> Result<Pulled, Fault> {
        let resumed = self.decoder.resume(id.as_u64());
        match resumed.map_err(ConnectionError::from)? {
            Some(decoded) => Ok(self.on_decoded(id, decoded)),
            None => Ok(Pulled::Blocked),
        }
    }

    fn on_decoded(&mut self, id: StreamId, decoded: Decoded) -> Pulled {
        if let Some(exchange) = self.requests.get_mut(&id) {
            exchange.waits_for_table = decoded == Decoded::Blocked;
        }
        match decoded {
            Decoded::Fields(fields) => Pulled::Section(fields),
            Decoded::Blocked => Pulled::Blocked,
            Decoded::TooLarge => Pulled::TooLarge,
        }
    }

    fn on_header<T: Transport>(
        &mut self,
        quic: &mut T,
        id: StreamId,
        fields: Vec<Field>,
    ) -> Result<(), Fault> {
        match self.role {
            Role::Server => self.on_request(quic, id, validate::request(fields)?),
            Role::Client => self.on_response(quic, id, validate::response(fields)?),
        }
    }

    fn on_request<T: Transport>(
        &mut self,
        quic: &mut T,
        stream: StreamId,
        request: Request,
    ) -> Result<(), Fault> {
        if !request.protocol.is_empty() && !self.config.extended_connect {
            return Err(StreamError::malformed(":protocol, which was not offered").into());
        }
        let length = validate::content_length(&request.fields)?;
        let priority = self.take_priority(stream, &request);
        let Some(exchange) = self.requests.get_mut(&stream) else {
            return Ok(());
        };
        exchange.asks = Asks::of(&request);
        exchange.priority = priority;
        quic.set_priority(stream, priority.into());
        if exchange.asks == Asks::Tunnel {
            exchange.receive(Step::Connect);
        } else {
            exchange.receive(Step::Header);
            exchange.expect(length);
        }
        let end = self.finish_if_ended(quic, stream)?;
        self.counters.requests += 1;
        self.events.push_back(Event::Request {
            stream,
            request,
            end: end == Ended::Yes,
        });
        self.after_header(stream, end);
        Ok(())
    }

    fn on_response<T: Transport>(
        &mut self,
        quic: &mut T,
        stream: StreamId,
        response: Response,
    ) -> Result<(), Fault> {
        let Some(exchange) = self.requests.get_mut(&stream) else {
            return Ok(());
        };
        if response.is_informational() {
            exchange.receive(Step::Interim);
            exchange.informational = exchange.informational.saturating_add(1);
            self.counters.informational += 1;
            if exchange.informational > self.config.limits.max_informational {
                let reason = "too many interim responses";
                return Err(StreamError::new(Code::EXCESSIVE_LOAD, reason).into());
            }
            let event = Event::Informational { stream, response };
            self.events.push_back(event);
            return Ok(());
        }
        let asks = exchange.asks;
        let step = asks.step(&response);
        if step != Step::Connect {
            let length = validate::content_length(&response.fields)?;
            exchange.expect(asks.content(&response, length));
        }
        exchange.receive(step);
        let end = self.finish_if_ended(quic, stream)?;
        self.events.push_back(Event::Response {
            stream,
            response,
            end: end == Ended::Yes,
        });
        self.after_header(stream, end);
        Ok(())
    }

    /// What PRIORITY_UPDATE said before, else what the request says
    /// (RFC 9218 §7).
    fn take_priority(&mut self, id: StreamId, request: &Request) -> Priority {
        match self.early.iter().position(|(early, _)| *early == id) {
            Some(at) => self.early.swap_remove(at).1,
            None => find(&request.fields, b"priority")
                .map(|value| Priority::parse(value))
                .unwrap_or_default(),
        }
    }

    /// Whether a header section was all there is, so that the application need not
    /// ask.
    fn finish_if_ended<T: Transport>(
        &mut self,
        quic: &mut T,
        id: StreamId,
    ) -> Result<Ended, Fault> {
        let Some(exchange) = self.requests.get_mut(&id) else {
            return Ok(Ended::No);
        };
        match exchange.reader.is_at_end(|max| quic.read_chunk(id, max)) {
            Ok(true) => {
                exchange.on_content_end()?;
                exchange.receive(Step::End);
                Ok(Ended::Yes)
            }
            Ok(false) => Ok(Ended::No),
            Err(Pause::Reset(code)) => Ok(Ended::Reset(Code(code))),
            Err(Pause::Truncated) => Err(truncated().into()),
            Err(Pause::Blocked | Pause::End | Pause::Gone) => Ok(Ended::No),
        }
    }

    fn after_header(&mut self, stream: StreamId, end: Ended) {
        match end {
            Ended::Yes => self.retire(stream),
            Ended::No => {}
            Ended::Reset(code) => {
                self.events.push_back(Event::Reset { stream, code });
                self.on_peer_reset(stream);
            }
        }
    }

    /// A header section larger than we take: a server says so (RFC 9114 §4.2.2), a
    /// client can't use the response (§10.5.1).
    fn on_header_too_large<T: Transport>(&mut self, quic: &mut T, id: StreamId) {
        self.counters.too_large += 1;
        match self.role {
            Role::Client => self.on_stream_error(quic, id, too_large()),
            Role::Server => {
                match self.respond(quic, id, &Response::new(431), true) {
                    Ok(()) => self.stop(quic, id, Code::NO_ERROR),
                    // It takes no field section itself, or reads no response.
                    Err(_) => self.abandon(quic, id, Code::MESSAGE_ERROR),
                }
            }
        }
    }
}

/// What follows a header section.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ended {
    Yes,
    No,
    Reset(Code),
}

pub(super) const fn too_large() -> StreamError {
    StreamError::malformed("a field section larger than SETTINGS_MAX_FIELD_SECTION_SIZE")
}

/// RFC 9114 §7.1.
fn truncated() -> ConnectionError {
    ConnectionError::new(Code::FRAME_ERROR, "a stream ended within a frame")
}

/// RFC 9114 §4.1: the end came before the message.
const fn incomplete(role: Role) -> StreamError {
    match role {
        Role::Server => StreamError::new(Code::REQUEST_INCOMPLETE, "no whole request"),
        Role::Client => StreamError::malformed("no final response"),
    }
}
