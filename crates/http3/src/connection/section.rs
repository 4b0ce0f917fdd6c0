//! Header and trailer sections: buffering, decoding, and their limits.

use bytes::Bytes;
use clearway_quic::Role;
use clearway_quic::stream::StreamId;

use super::Connection;
use super::receive::StreamItem;
use crate::count::Count;
use crate::error::{Code, ConnectionError, ReceiveError, StreamError};
use crate::head::Response;
use crate::message_state::MessageState;
use crate::qpack::Decoded;
use crate::transport::Transport;

impl Connection {
    /// Counts the bytes buffered for an incomplete section.
    pub(super) fn count_incomplete(&mut self, id: StreamId) -> Result<(), StreamError> {
        let Some(receiving) = self.receiving(id) else {
            return Ok(());
        };
        let now = receiving.reader.buffered_payload();
        if now == receiving.incomplete_section {
            return Ok(());
        }
        let before = core::mem::replace(&mut receiving.incomplete_section, now);
        let state = receiving.state;
        let lingering = self.lingering.get_or_insert_default();
        lingering.release_incomplete(before);
        lingering.incomplete_sections = lingering.incomplete_sections.saturating_add(now);
        if now <= before
            || lingering.incomplete_sections <= self.config.limits.max_incomplete_sections
        {
            return Ok(());
        }
        self.counters.rejected.count_one();
        let code = match (self.role, state) {
            // The application has not seen the request.
            (Role::Server, MessageState::Header) => Code::REQUEST_REJECTED,
            (Role::Server | Role::Client, _) => Code::EXCESSIVE_LOAD,
        };
        Err(StreamError::new(
            code,
            "incomplete field sections exceed Limits::max_incomplete_sections",
        ))
    }

    pub(super) fn decode_section(
        &mut self,
        id: StreamId,
        section: Bytes,
    ) -> Result<StreamItem, ReceiveError> {
        if self
            .lingering
            .as_ref()
            .is_some_and(|it| it.incomplete_sections > 0)
            && let Some(receiving) = self.receiving(id)
        {
            let buffered = core::mem::take(&mut receiving.incomplete_section);
            self.lingering().release_incomplete(buffered);
        }
        let limit = self.config.section_limit();
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

    /// Decodes a section that was blocked on the dynamic table, if it no longer is.
    pub(super) fn resume_section(&mut self, id: StreamId) -> Result<StreamItem, ReceiveError> {
        let resumed = self.decoder.resume(id.as_u64());
        match resumed.map_err(ConnectionError::from)? {
            Some(decoded) => {
                if let Some(receiving) = self.receiving(id) {
                    receiving.waits_for_table = false;
                }
                Ok(self.on_decoded(decoded))
            }
            None => Ok(StreamItem::Blocked),
        }
    }

    /// Tells the peer's encoder that no more of a stream will be read, unless it was read to its
    /// end or the encoder was told before (RFC 9204 §2.2.2.2).
    pub(super) fn cancel_sections(&mut self, id: StreamId) {
        let lingering = self.lingering.as_ref();
        let discarded = lingering.and_then(|it| it.discarding.get(&id));
        let state = match discarded {
            Some(request) => Some(request.receiving.state),
            None => self.requests.get(&id).map(|it| it.receiving.state),
        };
        if state != Some(MessageState::Done) {
            self.decoder.cancel(id.as_u64());
        }
    }

    fn on_decoded(&mut self, decoded: Decoded) -> StreamItem {
        match decoded {
            Decoded::Fields(fields) if fields.len() > self.config.limits.max_fields => {
                StreamItem::TooLarge
            }
            Decoded::Fields(fields) => {
                let burst = self.config.limits.table_updates_burst;
                self.rate_limits
                    .table_updates
                    .refund(UPDATES_PER_SECTION, burst);
                StreamItem::Section(fields)
            }
            Decoded::Blocked => StreamItem::Blocked,
            Decoded::TooLarge => StreamItem::TooLarge,
        }
    }

    /// Handles a header section that exceeds our limits: a server responds with 431 (RFC 9114
    /// §4.2.2), a client cannot use the response (§10.5.1).
    pub(super) fn on_header_too_large<T: Transport>(&mut self, quic: &mut T, id: StreamId) {
        self.counters.too_large.count_one();
        match self.role {
            Role::Client => self.on_stream_error(quic, id, too_large()),
            Role::Server => {
                match self.respond(quic, id, &Response::new(431), true) {
                    // The rest is not read. The peer's encoder has to know about a section that was
                    // not decoded.
                    Ok(()) => self.stop_immediately(quic, id, Code::NO_ERROR),
                    // The client accepts no field section itself, or reads no response.
                    Err(_) => self.abandon(quic, id, Code::MESSAGE_ERROR),
                }
                self.charge();
            }
        }
    }
}

/// How many dynamic table updates a decoded field section makes up for.
const UPDATES_PER_SECTION: u32 = 16;

pub(super) const fn too_large() -> StreamError {
    StreamError::malformed("field section exceeds SETTINGS_MAX_FIELD_SECTION_SIZE")
}

#[cfg(feature = "testing")]
impl Connection {
    /// Returns how many streams have a field section that is blocked on the dynamic table: as the
    /// streams count it, and as the decoder does. Both are equal after each event.
    #[must_use]
    pub fn blocked_sections(&self) -> (usize, u64) {
        let requests = self.requests.values().map(|exchange| &exchange.receiving);
        let lingering = self.lingering.iter();
        let discarded = lingering.flat_map(|it| it.discarding.values().map(|it| &it.receiving));
        let blocked = requests.chain(discarded).filter(|it| it.waits_for_table);
        (blocked.count(), self.decoder.blocked_streams())
    }
}
