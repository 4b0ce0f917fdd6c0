//! What an application leaves unread: a server that has no use for the rest of a
//! request passes over it, so that what has no place in it is still found. A client
//! that is sending a body is told to stop.

use core::time::Duration;

use clearway_quic::Role;
use clearway_quic::stream::StreamId;

use super::Connection;
use super::receive::{Found, truncated};
use super::section::too_large;
use crate::count::Count;
use crate::error::{Code, Fault, StreamError};
use crate::event::Event;
use crate::reader::Pause;
use crate::receiving::{Ending, Receiving};
use crate::request::Half;
use crate::transport::Transport;

/// Bytes passed over before the client is told to stop.
const MAX_BYTES: u64 = 64 << 10;

/// How long the client has for the rest, as `lingering_timeout` of nginx.
pub(super) const PATIENCE: Duration = Duration::from_secs(5);

/// The rest of a request.
#[derive(Debug)]
pub(super) struct Discarded {
    pub(super) receiving: Receiving,
    /// Bytes still passed over.
    left: u64,
}

impl Discarded {
    pub(super) fn memory(&self) -> usize {
        self.receiving.memory()
    }
}

/// What passing over it came to.
enum Passed {
    /// More may come.
    Blocked,
    /// It was passed over to its end.
    End,
    /// The client gave it up.
    Reset(Code),
    /// The client is to stop: more of a body is to come, or too much was passed over.
    Enough,
}

impl Connection {
    /// The application abandons what the peer sends on a stream. Sending goes on; a
    /// server that needs no more of a request says `NO_ERROR` (RFC 9114 §4.1): then the
    /// client is told to stop a body that it sends, while a rest without one is passed
    /// over for some seconds.
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
            return self.on_malformed_rest(quic, id, error);
        }
        match receiving.half {
            Half::Over => return self.retire(id),
            Half::Body | Half::Trailed
                if self.role == Role::Server
                    && code == Code::NO_ERROR
                    && discarding < self.config.limits.max_requests => {}
            Half::Header | Half::Body | Half::Tunnel | Half::Trailed => {
                return self.stop_now(quic, id, code);
            }
        }
        let mut receiving = core::mem::replace(receiving, Receiving::left());
        receiving.ending = None;
        let rest = Discarded {
            receiving,
            left: MAX_BYTES,
        };
        self.lingering().discarding.insert(id, rest);
        self.retire(id);
        self.discard(quic, id);
    }

    /// Abandons what the peer sends, whatever comes.
    pub(super) fn stop_now<T: Transport>(&mut self, quic: &mut T, id: StreamId, code: Code) {
        let _ = quic.stop(id, code.0);
        self.cancel_sections(id);
        self.forget_discarded(id);
        if let Some(exchange) = self.requests.get_mut(&id) {
            let gathered = exchange.receiving.gathered;
            exchange.receiving = Receiving::left();
            self.lingering().forget_gathered(gathered);
        }
        self.retire(id);
    }

    /// Passes over what has arrived of a rest that nobody wants.
    pub(super) fn discard<T: Transport>(&mut self, quic: &mut T, id: StreamId) {
        let lingering = self.lingering.as_deref();
        if !lingering.is_some_and(|it| it.discarding.contains_key(&id)) {
            return;
        }
        match self.pass_over(quic, id) {
            Ok(Passed::Blocked) => {}
            Ok(Passed::End) => self.forget_discarded(id),
            Ok(Passed::Enough) => self.stop_now(quic, id, Code::NO_ERROR),
            Ok(Passed::Reset(code)) => {
                self.decoder.cancel(id.as_u64());
                self.forget_discarded(id);
                self.on_rest_reset(id, code);
            }
            Err(Fault::Stream(error)) => self.on_malformed_rest(quic, id, error),
            Err(Fault::Connection(error)) => self.fail(error),
        }
    }

    fn pass_over<T: Transport>(&mut self, quic: &mut T, id: StreamId) -> Result<Passed, Fault> {
        loop {
            let before = self.counters.skipped;
            let found = self.find(quic, id)?;
            let mut passed = self.counters.skipped.saturating_sub(before);
            let lingering = self.lingering.as_deref_mut();
            let Some(rest) = lingering.and_then(|it| it.discarding.get_mut(&id)) else {
                return Ok(Passed::Blocked);
            };
            match found {
                Found::Content => {
                    match rest
                        .receiving
                        .reader
                        .content(|max| quic.read_chunk(id, max))
                    {
                        Ok(piece) => passed = passed.saturating_add(piece.len() as u64),
                        // It sends a body.
                        Err(Pause::Blocked) => return Ok(Passed::Enough),
                        Err(Pause::Reset(code)) => return Ok(Passed::Reset(Code(code))),
                        Err(Pause::Gone) => return Ok(Passed::Enough),
                        Err(Pause::End | Pause::Truncated) => return Err(truncated().into()),
                    }
                }
                Found::Section(fields) => rest.receiving.on_trailers(&fields)?,
                Found::End => return Ok(rest.receiving.on_end().map(|()| Passed::End)?),
                Found::Reset(code) => return Ok(Passed::Reset(code)),
                Found::Blocked if rest.receiving.has_body => return Ok(Passed::Enough),
                Found::Blocked if passed == 0 => return Ok(Passed::Blocked),
                Found::Blocked => {}
                Found::TooLarge => return Err(too_large().into()),
                Found::Gone => return Ok(Passed::Enough),
            }
            match rest.left.checked_sub(passed) {
                Some(left) => rest.left = left,
                None => return Ok(Passed::Enough),
            }
        }
    }

    pub(super) fn forget_discarded(&mut self, id: StreamId) {
        if let Some(lingering) = &mut self.lingering
            && let Some(rest) = lingering.discarding.remove(&id)
        {
            lingering.forget_gathered(rest.receiving.gathered);
        }
    }

    /// The client reset a request whose rest nobody reads. While no answer has begun
    /// there is still work that can be spared.
    fn on_rest_reset(&mut self, stream: StreamId, code: Code) {
        let answered = |half| half != Half::Header;
        let exchange = self.requests.get(&stream);
        if exchange.is_some_and(|exchange| !answered(exchange.sending)) {
            self.note_abandoned(stream);
            self.events.push_back(Event::Reset { stream, code });
        }
    }

    /// The rest of a request, which the application did not read, is malformed: so is
    /// the request, if its answer is not complete (RFC 9114 §4.1.2).
    fn on_malformed_rest<T: Transport>(
        &mut self,
        quic: &mut T,
        stream: StreamId,
        error: StreamError,
    ) {
        let exchange = self.requests.get(&stream);
        if exchange.is_some_and(|exchange| exchange.sending != Half::Over) {
            self.on_stream_error(quic, stream, error);
            return self.events.push_back(Event::Failed { stream, error });
        }
        self.counters.malformed.count_one();
        self.stop_now(quic, stream, error.code);
        self.charge();
    }
}
