//! Frames on request streams, and the header sections among them.

use bytes::Bytes;
use clearway_quic::Role;
use clearway_quic::stream::{ReadError, StreamId};
use rustc_hash::FxHashMap;

use super::{Connection, Lingering};
use crate::error::{Code, ConnectionError, Fault, StreamError};
use crate::event::Event;
use crate::head::{Request, Response, find};
use crate::priority::Priority;
use crate::progress::Progress;
use crate::qpack::{Decoded, Field};
use crate::reader::{Item, Pause};
use crate::receiving::{Ending, Receiving};
use crate::request::{Asks, Exchange, Half, Step, Treatment, has_body};
use crate::transport::Transport;
use crate::validate;

/// What comes next on a stream.
#[derive(Debug)]
pub(super) enum Found {
    /// A header or trailer section.
    Section(Vec<Field>),
    /// Content, which stays where it is.
    Content,
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
        self.next_request = self.next_request.max(id.index().saturating_add(1));
        if self.goaway.refuses(self.role, id) {
            self.counters.rejected += 1;
            return self.abandon(quic, id, Code::REQUEST_REJECTED);
        }
        if self.requests.len() >= self.config.limits.max_requests {
            self.counters.rejected += 1;
            self.abandon(quic, id, Code::REQUEST_REJECTED);
            return self.charge();
        }
        self.requests.insert(id, Exchange::new(Asks::Content));
    }

    /// A request stream has something. The header section is ours to read; of what
    /// follows we look at what the application has not to read before it.
    pub(super) fn on_readable<T: Transport>(&mut self, quic: &mut T, id: StreamId) {
        match self
            .requests
            .get(&id)
            .map(|exchange| exchange.receiving.half)
        {
            Some(Half::Header) => self.advance(quic, id),
            Some(Half::Body | Half::Tunnel | Half::Trailed) => self.on_more(quic, id),
            Some(Half::Over) | None => self.discard(quic, id),
        }
    }

    /// More may have arrived of a message whose header section the application has.
    pub(super) fn on_more<T: Transport>(&mut self, quic: &mut T, id: StreamId) {
        match self.look_ahead(quic, id) {
            Ok(true) => self.tell_readable(id),
            Ok(false) => {}
            Err(error) => self.fail(error),
        }
    }

    /// The application can read, or has to hear of a reset.
    fn tell_readable(&mut self, stream: StreamId) {
        let Some(exchange) = self.requests.get_mut(&stream) else {
            return;
        };
        exchange.receiving.wanted = false;
        self.events.push_back(match exchange.receiving.ending {
            Some(Ending::Reset(code)) => Event::Reset { stream, code },
            Some(Ending::End | Ending::Failed(_) | Ending::Gone) | None => Event::Readable(stream),
        });
        self.retire(stream);
    }

    /// Reads until the header section is complete.
    pub(super) fn advance<T: Transport>(&mut self, quic: &mut T, id: StreamId) {
        while self.is_open() && self.awaits_header(id) {
            match self.find(quic, id) {
                Ok(Found::Section(fields)) => {
                    if let Err(fault) = self.on_header(quic, id, fields) {
                        return self.on_fault(quic, id, fault);
                    }
                }
                Ok(Found::End) => {
                    let error = incomplete(self.role);
                    return self.on_stream_error(quic, id, error);
                }
                Ok(Found::Reset(code)) => return self.on_early_reset(quic, id, code),
                Ok(Found::TooLarge) => return self.on_header_too_large(quic, id),
                // No DATA is let through before the header section.
                Ok(Found::Blocked | Found::Gone | Found::Content) => return,
                Err(fault) => return self.on_fault(quic, id, fault),
            }
        }
    }

    fn awaits_header(&self, id: StreamId) -> bool {
        let exchange = self.requests.get(&id);
        exchange.is_some_and(|exchange| exchange.receiving.half == Half::Header)
    }

    /// The receiving half of a stream: the application's, or what it left.
    pub(super) fn receiving(&mut self, id: StreamId) -> Option<&mut Receiving> {
        receiving(&mut self.requests, &mut self.lingering, id)
    }

    /// The next thing on the stream. Frames that mean nothing are passed over; content
    /// is not touched.
    pub(super) fn find<T: Transport>(
        &mut self,
        quic: &mut T,
        id: StreamId,
    ) -> Result<Found, Fault> {
        loop {
            let receiving = receiving(&mut self.requests, &mut self.lingering, id);
            let Some(receiving) = receiving else {
                return Ok(Found::Gone);
            };
            if receiving.waits_for_table {
                // What is reset will not be decoded, and waits for nothing any more
                // (RFC 9204 §2.2.2.2).
                if let Err(ReadError::Reset(code)) = quic.read_chunk(id, 0) {
                    return Ok(Found::Reset(Code(code)));
                }
                return self.resume_section(id);
            }
            let item = receiving.reader.next(|max| quic.read_chunk(id, max));
            let skipped = receiving.reader.take_skipped();
            self.counters.skipped = self.counters.skipped.saturating_add(skipped);
            match item {
                Ok(Item::Header(header)) => match receiving.half.admit(self.role, header.kind)? {
                    Treatment::Skip => self.note_idle_work()?,
                    Treatment::Body => {
                        receiving.on_data(header.len)?;
                        receiving.reader.pass();
                        if header.len == 0 {
                            self.note_idle_work()?;
                        }
                    }
                    Treatment::Section => {
                        let limit = self.config.limits.max_field_section;
                        if !receiving.reader.gather(header.kind, limit) {
                            return Ok(Found::TooLarge);
                        }
                    }
                },
                Ok(Item::Content) => return Ok(Found::Content),
                Ok(Item::Payload(_, section)) => return self.decode_section(id, section),
                Err(Pause::Blocked) => {
                    self.count_gathered(id)?;
                    return Ok(Found::Blocked);
                }
                Err(Pause::End) => return Ok(Found::End),
                Err(Pause::Reset(code)) => return Ok(Found::Reset(Code(code))),
                Err(Pause::Gone) => return Ok(Found::Gone),
                Err(Pause::Truncated) => return Err(truncated().into()),
            }
        }
    }

    /// Looks at what comes next of a message whose header section the application has,
    /// up to content that it has not read: frames that have no place there, an end
    /// within a frame and wrong compression end the connection whether or not anybody
    /// reads on (RFC 9114 §4.1). What belongs to the application is kept for it; what
    /// is malformed is told when it reads. Answers whether there is something for it.
    ///
    /// # Errors
    /// What ends the connection.
    pub(super) fn look_ahead<T: Transport>(
        &mut self,
        quic: &mut T,
        id: StreamId,
    ) -> Result<bool, ConnectionError> {
        while let Some(receiving) = self.receiving(id) {
            if receiving.ending.is_some() && receiving.half == Half::Over {
                return Ok(true);
            }
            let found = if receiving.ending.is_some() || receiving.reader.is_passing() {
                // A reset overtakes content, and what is wrong with it.
                match quic.read_chunk(id, 0) {
                    Err(ReadError::Reset(code)) => Ok(Found::Reset(Code(code))),
                    _ if receiving.ending.is_some() => return Ok(true),
                    _ => match receiving
                        .reader
                        .await_content(|max| quic.read_chunk(id, max))
                    {
                        Ok(()) => return Ok(true),
                        Err(Pause::Blocked) => Ok(Found::Blocked),
                        Err(Pause::Reset(code)) => Ok(Found::Reset(Code(code))),
                        Err(Pause::Gone) => Ok(Found::Gone),
                        Err(Pause::End | Pause::Truncated) => Err(truncated().into()),
                    },
                }
            } else {
                self.find(quic, id)
            };
            let found = match found {
                Ok(found) => found,
                Err(Fault::Connection(error)) => return Err(error),
                Err(Fault::Stream(error)) => return Ok(self.keep(id, Err(error))),
            };
            match found {
                Found::Section(fields) => {
                    if let Some(receiving) = self.receiving(id) {
                        match receiving.on_trailers(&fields) {
                            Ok(()) => receiving.trailers = Some(fields),
                            Err(error) => return Ok(self.keep(id, Err(error))),
                        }
                    }
                }
                Found::End => return Ok(self.keep(id, Ok(Ending::End))),
                Found::Reset(code) => return Ok(self.keep(id, Ok(Ending::Reset(code)))),
                Found::TooLarge => {
                    self.counters.too_large += 1;
                    return Ok(self.keep(id, Err(too_large())));
                }
                // Whether any of it is there is seen next.
                Found::Content => {}
                Found::Gone => return Ok(self.keep(id, Ok(Ending::Gone))),
                Found::Blocked => {
                    let receiving = self.receiving(id);
                    return Ok(receiving.is_some_and(|it| it.trailers.is_some()));
                }
            }
        }
        Ok(false)
    }

    /// Keeps for the application how a message ended.
    fn keep(&mut self, id: StreamId, ending: Result<Ending, StreamError>) -> bool {
        let Some(receiving) = self.receiving(id) else {
            return false;
        };
        let ending = ending.and_then(|ending| match ending {
            Ending::End => receiving.on_end().map(|()| ending),
            Ending::Reset(_) | Ending::Failed(_) | Ending::Gone => Ok(ending),
        });
        let ending = ending.unwrap_or_else(Ending::Failed);
        receiving.ending = Some(ending);
        match ending {
            Ending::Reset(_) => self.on_peer_reset(id),
            Ending::End | Ending::Failed(_) | Ending::Gone => {}
        }
        true
    }

    /// Counts what is held of a section that is not complete.
    fn count_gathered(&mut self, id: StreamId) -> Result<(), StreamError> {
        let Some(receiving) = self.receiving(id) else {
            return Ok(());
        };
        let now = receiving.reader.gathered();
        if now == receiving.gathered {
            return Ok(());
        }
        let before = core::mem::replace(&mut receiving.gathered, now);
        let half = receiving.half;
        let lingering = self.lingering.get_or_insert_default();
        lingering.forget_gathered(before);
        lingering.gathered = lingering.gathered.saturating_add(now);
        if now <= before || lingering.gathered <= self.config.limits.max_gathered {
            return Ok(());
        }
        self.counters.rejected += 1;
        let code = match (self.role, half) {
            // Nobody has seen it.
            (Role::Server, Half::Header) => Code::REQUEST_REJECTED,
            (Role::Server | Role::Client, _) => Code::EXCESSIVE_LOAD,
        };
        Err(StreamError::new(
            code,
            "more bytes of unfinished field sections than Limits::max_gathered",
        ))
    }

    fn decode_section(&mut self, id: StreamId, section: Bytes) -> Result<Found, Fault> {
        if self.lingering.as_ref().is_some_and(|it| it.gathered > 0)
            && let Some(receiving) = self.receiving(id)
        {
            let gathered = core::mem::take(&mut receiving.gathered);
            self.lingering().forget_gathered(gathered);
        }
        let limit = self.config.limits.max_field_section;
        let decoded = self.decoder.decode(id.as_u64(), section, limit);
        let decoded = decoded.map_err(ConnectionError::from)?;
        if decoded == Decoded::Blocked {
            self.counters.blocked_sections += 1;
            if let Some(receiving) = self.receiving(id) {
                receiving.waits_for_table = true;
            }
        }
        Ok(self.on_decoded(decoded))
    }

    /// A section waited for the dynamic table; perhaps it does not any more.
    fn resume_section(&mut self, id: StreamId) -> Result<Found, Fault> {
        let resumed = self.decoder.resume(id.as_u64());
        match resumed.map_err(ConnectionError::from)? {
            Some(decoded) => {
                if let Some(receiving) = self.receiving(id) {
                    receiving.waits_for_table = false;
                }
                Ok(self.on_decoded(decoded))
            }
            None => Ok(Found::Blocked),
        }
    }

    fn on_decoded(&mut self, decoded: Decoded) -> Found {
        match decoded {
            Decoded::Fields(fields) if fields.len() > self.config.limits.max_fields => {
                Found::TooLarge
            }
            Decoded::Fields(fields) => {
                let burst = self.config.limits.table_updates_burst;
                self.allowances
                    .table_updates
                    .give(UPDATES_PER_SECTION, burst);
                Found::Section(fields)
            }
            Decoded::Blocked => Found::Blocked,
            Decoded::TooLarge => Found::TooLarge,
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
        let receiving = &mut exchange.receiving;
        receiving.progress = Progress::default();
        if exchange.asks == Asks::Tunnel {
            receiving.step(Step::Connect);
        } else {
            receiving.step(Step::Header);
            receiving.expect(length);
            receiving.has_body = has_body(&request, length);
        }
        self.look_ahead(quic, stream)?;
        let ending = self.take_ending(stream)?;
        if let Some(Ending::Reset(_)) = ending {
            // Nobody has seen the request; there is nothing to answer.
            self.abandon(quic, stream, Code::REQUEST_REJECTED);
            return Ok(());
        }
        self.counters.requests += 1;
        self.clock.touch();
        self.events.push_back(Event::Request {
            stream,
            request,
            end: ending == Some(Ending::End),
        });
        self.retire(stream);
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
            exchange.receiving.step(Step::Interim);
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
        let receiving = &mut exchange.receiving;
        if step != Step::Connect {
            let length = validate::content_length(&response.fields)?;
            receiving.expect(asks.content(&response, length));
        }
        receiving.step(step);
        self.look_ahead(quic, stream)?;
        let ending = self.take_ending(stream)?;
        self.events.push_back(Event::Response {
            stream,
            response,
            end: ending == Some(Ending::End),
        });
        if let Some(Ending::Reset(code)) = ending {
            self.events.push_back(Event::Reset { stream, code });
        }
        self.retire(stream);
        Ok(())
    }

    /// How a message ended that was a header section and no more; the application need
    /// not ask for the end then.
    ///
    /// # Errors
    /// If it lacks the content it announced. What else is wrong with it is told when
    /// the application reads.
    fn take_ending(&mut self, id: StreamId) -> Result<Option<Ending>, StreamError> {
        let Some(exchange) = self.requests.get_mut(&id) else {
            return Ok(None);
        };
        let receiving = &mut exchange.receiving;
        if receiving.half != Half::Over || receiving.trailers.is_some() {
            return Ok(None);
        }
        match receiving.ending {
            Some(Ending::Failed(error)) => Err(error),
            Some(Ending::End) => Ok(receiving.ending.take()),
            Some(Ending::Reset(_) | Ending::Gone) | None => Ok(receiving.ending),
        }
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

    /// A header section larger than we take: a server says so (RFC 9114 §4.2.2), a
    /// client can't use the response (§10.5.1).
    fn on_header_too_large<T: Transport>(&mut self, quic: &mut T, id: StreamId) {
        self.counters.too_large += 1;
        match self.role {
            Role::Client => self.on_stream_error(quic, id, too_large()),
            Role::Server => {
                match self.respond(quic, id, &Response::new(431), true) {
                    // The rest is not read: of a section that was not decoded, the
                    // table must not hear.
                    Ok(()) => self.stop_now(quic, id, Code::NO_ERROR),
                    // It takes no field section itself, or reads no response.
                    Err(_) => self.abandon(quic, id, Code::MESSAGE_ERROR),
                }
                self.charge();
            }
        }
    }
}

fn receiving<'a>(
    requests: &'a mut FxHashMap<StreamId, Exchange>,
    lingering: &'a mut Option<Box<Lingering>>,
    id: StreamId,
) -> Option<&'a mut Receiving> {
    match requests.get_mut(&id) {
        Some(exchange) if exchange.receiving.half != Half::Over => Some(&mut exchange.receiving),
        Some(_) | None => {
            let discarding = &mut lingering.as_deref_mut()?.discarding;
            Some(&mut discarding.get_mut(&id)?.receiving)
        }
    }
}

/// Changes of the dynamic table that go with a field section of use.
const UPDATES_PER_SECTION: u32 = 16;

pub(super) const fn too_large() -> StreamError {
    StreamError::malformed("a field section larger than SETTINGS_MAX_FIELD_SECTION_SIZE")
}

/// RFC 9114 §7.1.
pub(super) fn truncated() -> ConnectionError {
    ConnectionError::new(Code::FRAME_ERROR, "a stream ended within a frame")
}

/// RFC 9114 §4.1: the end came before the message.
const fn incomplete(role: Role) -> StreamError {
    match role {
        Role::Server => StreamError::new(Code::REQUEST_INCOMPLETE, "no whole request"),
        Role::Client => StreamError::malformed("no final response"),
    }
}
