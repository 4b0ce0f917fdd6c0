//! Header and trailer sections: gathered, decoded, refused.

use bytes::Bytes;
use clearway_quic::Role;
use clearway_quic::stream::StreamId;

use super::Connection;
use super::receive::Found;
use crate::count::Count;
use crate::error::{Code, ConnectionError, Fault, StreamError};
use crate::head::Response;
use crate::qpack::Decoded;
use crate::request::Half;
use crate::transport::Transport;

impl Connection {
    /// Counts what is held of a section that is not complete.
    pub(super) fn count_gathered(&mut self, id: StreamId) -> Result<(), StreamError> {
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
        self.counters.rejected.count_one();
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

    pub(super) fn decode_section(&mut self, id: StreamId, section: Bytes) -> Result<Found, Fault> {
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
            self.counters.blocked_sections.count_one();
            if let Some(receiving) = self.receiving(id) {
                receiving.waits_for_table = true;
            }
        }
        Ok(self.on_decoded(decoded))
    }

    /// A section waited for the dynamic table; perhaps it does not any more.
    pub(super) fn resume_section(&mut self, id: StreamId) -> Result<Found, Fault> {
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

    /// Nothing more of a stream will be read: the peer's encoder has to know, unless it
    /// was read to its end or the encoder was told before (RFC 9204 §2.2.2.2).
    pub(super) fn cancel_sections(&mut self, id: StreamId) {
        let lingering = self.lingering.as_ref();
        let rest = lingering.and_then(|it| it.discarding.get(&id));
        let half = match rest {
            Some(rest) => Some(rest.receiving.half),
            None => self.requests.get(&id).map(|it| it.receiving.half),
        };
        if half != Some(Half::Over) {
            self.decoder.cancel(id.as_u64());
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

    /// A header section larger than we take: a server says so (RFC 9114 §4.2.2), a
    /// client can't use the response (§10.5.1).
    pub(super) fn on_header_too_large<T: Transport>(&mut self, quic: &mut T, id: StreamId) {
        self.counters.too_large.count_one();
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

/// Changes of the dynamic table that go with a field section of use.
const UPDATES_PER_SECTION: u32 = 16;

pub(super) const fn too_large() -> StreamError {
    StreamError::malformed("a field section larger than SETTINGS_MAX_FIELD_SECTION_SIZE")
}

#[cfg(feature = "testing")]
impl Connection {
    /// Streams of which a field section waits for the dynamic table: by what each stream
    /// has of it, and by what the decoder has. Both are the same after each event.
    #[must_use]
    pub fn waiting_sections(&self) -> (usize, u64) {
        let requests = self.requests.values().map(|exchange| &exchange.receiving);
        let lingering = self.lingering.iter();
        let rests = lingering.flat_map(|it| it.discarding.values().map(|rest| &rest.receiving));
        let waiting = requests.chain(rests).filter(|it| it.waits_for_table);
        (waiting.count(), self.decoder.blocked_streams())
    }
}
