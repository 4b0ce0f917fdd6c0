//! Request streams: frames as they come, up to what a message is made of.

use clearway_quic::Role;
use clearway_quic::stream::{ReadError, StreamId};
use rustc_hash::FxHashMap;

use super::{Connection, Lingering};
use crate::count::Count;
use crate::error::{Code, ConnectionError, Fault, StreamError};
use crate::event::Event;
use crate::qpack::Field;
use crate::reader::{Item, Pause};
use crate::receiving::{Ending, Receiving};
use crate::request::{Asks, Exchange, Half, Treatment};
use crate::transport::Transport;

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
        // Whatever becomes of the request: its place is another's from now on.
        let early = self.take_early_priority(id);
        if self.goaway.refuses(self.role, id) {
            self.counters.rejected.count_one();
            return self.abandon(quic, id, Code::REQUEST_REJECTED);
        }
        if self.requests.len() >= self.config.limits.max_requests {
            self.counters.rejected.count_one();
            self.abandon(quic, id, Code::REQUEST_REJECTED);
            return self.charge();
        }
        let mut exchange = Exchange::new(Asks::Content);
        if let Some(priority) = early {
            exchange.reprioritize(priority);
        }
        self.requests.insert(id, exchange);
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
            self.counters.skipped.count(skipped);
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
