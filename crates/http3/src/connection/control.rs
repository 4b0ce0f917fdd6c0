//! Frames on the peer's control stream (RFC 9114 §7.2, RFC 9218 §7.2).

use clearway_quic::Role;
use clearway_quic::stream::{Directionality, StreamId};

use super::Connection;
use super::peer_streams::closed_critical_stream;
use crate::count::Count;
use crate::defects::Quirk;
use crate::error::{Code, ConnectionError};
use crate::event::Event;
use crate::frame::{FrameHeader, FrameKind, decode_single_varint};
use crate::frame_reader::{FrameItem, FrameReadError};
use crate::message_state::MessageState;
use crate::priority::{Priority, decode_priority_update};
use crate::settings::Settings;
use crate::transport::Transport;

/// Maximum payload of a frame that carries one integer, in bytes.
const ONE_INTEGER: u64 = 8;

impl Connection {
    /// Reads what has arrived on the control stream.
    pub(super) fn on_control_stream<T: Transport>(
        &mut self,
        quic: &mut T,
        id: StreamId,
    ) -> Result<(), ConnectionError> {
        loop {
            let reader = self.peer_streams.reader();
            let item = reader.next(|max| quic.read_chunk(id, max));
            self.counters.skipped.count(reader.take_skipped());
            match item {
                Ok(FrameItem::Header(header)) => {
                    let checked = self.on_control_header(header);
                    checked.or_else(|error| self.config.forgive(error))?;
                }
                Ok(FrameItem::Payload(kind, payload)) => {
                    let handled = self.on_control_frame(quic, kind, &payload);
                    handled.or_else(|error| self.config.forgive(error))?;
                }
                // No payload on this stream is read in pieces.
                Ok(FrameItem::Content) | Err(FrameReadError::Blocked) => return Ok(()),
                Err(
                    FrameReadError::End
                    | FrameReadError::Truncated
                    | FrameReadError::Reset(_)
                    | FrameReadError::UnknownStream,
                ) => {
                    return Err(closed_critical_stream());
                }
            }
        }
    }

    /// Checks whether the frame is allowed on the control stream, and its length.
    fn on_control_header(&mut self, header: FrameHeader) -> Result<(), ConnectionError> {
        let FrameHeader { kind, len } = header;
        if self.peer.is_none() && kind != FrameKind::Settings {
            return Err(ConnectionError::new(
                Code::MISSING_SETTINGS,
                format!(
                    "control stream must begin with SETTINGS, found {}",
                    kind.name()
                ),
            ));
        }
        let limits = &self.config.limits;
        let (limit, code) = match kind {
            FrameKind::Settings if self.peer.is_none() => {
                (limits.max_settings, Code::EXCESSIVE_LOAD)
            }
            FrameKind::CancelPush | FrameKind::Goaway => (ONE_INTEGER, Code::FRAME_ERROR),
            FrameKind::MaxPushId if self.role == Role::Server => (ONE_INTEGER, Code::FRAME_ERROR),
            FrameKind::PriorityUpdateRequest | FrameKind::PriorityUpdatePush
                if self.role == Role::Server =>
            {
                (limits.max_priority_update, Code::EXCESSIVE_LOAD)
            }
            FrameKind::Unknown(_) => {
                self.config.refuse_if(Quirk::RefusesUnknownFrames)?;
                return self.count_useless();
            }
            FrameKind::Data
            | FrameKind::Headers
            | FrameKind::Settings
            | FrameKind::PushPromise
            | FrameKind::MaxPushId
            | FrameKind::PriorityUpdateRequest
            | FrameKind::PriorityUpdatePush
            | FrameKind::Http2(_) => {
                return Err(ConnectionError::new(
                    Code::FRAME_UNEXPECTED,
                    format!("unexpected {} on the control stream", kind.name()),
                ));
            }
        };
        if self.peer_streams.reader().buffer_payload(kind, limit) {
            return Ok(());
        }
        let name = kind.name();
        let reason = format!("{name} payload of {len} bytes exceeds the limit of {limit} bytes");
        Err(ConnectionError::new(code, reason))
    }

    fn on_control_frame<T: Transport>(
        &mut self,
        quic: &mut T,
        kind: FrameKind,
        payload: &[u8],
    ) -> Result<(), ConnectionError> {
        if kind != FrameKind::Settings {
            self.count_useless()?;
        }
        match kind {
            FrameKind::Settings => self.on_settings(quic, payload),
            FrameKind::Goaway => self.on_goaway(quic, decode_single_varint(kind, payload)?),
            FrameKind::CancelPush => self.on_cancel_push(decode_single_varint(kind, payload)?),
            FrameKind::MaxPushId => self.on_max_push_id(decode_single_varint(kind, payload)?),
            FrameKind::PriorityUpdateRequest => {
                let (id, priority) = decode_priority_update(payload)?;
                self.check_request_id(quic, id)?;
                self.on_priority_update(quic, id, priority);
                Ok(())
            }
            FrameKind::PriorityUpdatePush => Err(ConnectionError::new(
                Code::ID_ERROR,
                "PRIORITY_UPDATE for a push ID that was not promised",
            )),
            // `on_control_header` has rejected or skipped these.
            FrameKind::Data
            | FrameKind::Headers
            | FrameKind::PushPromise
            | FrameKind::Http2(_)
            | FrameKind::Unknown(_) => Ok(()),
        }
    }

    fn on_settings<T: Transport>(
        &mut self,
        quic: &mut T,
        payload: &[u8],
    ) -> Result<(), ConnectionError> {
        let settings = Settings::decode(payload)?;
        let unknown = || Settings::has_unknown(payload);
        (self.config).refuse_when(Quirk::RefusesUnknownSettings, unknown)?;
        if let Some(remembered) = &self.config.remembered_settings
            && self.role == Role::Client
            && quic.zero_rtt_accepted() == Some(true)
        {
            settings.check_compatible(remembered)?;
        }
        self.encoder.set_peer_limits(
            settings.qpack_max_table_capacity,
            settings.qpack_blocked_streams,
        )?;
        self.peer = Some(settings);
        self.events.push_back(Event::Settings(settings));
        self.release_held_sessions(quic);
        Ok(())
    }

    /// No push was ever allowed or promised, so any push ID is an error (RFC 9114 §7.2.3).
    fn on_cancel_push(&mut self, _id: u64) -> Result<(), ConnectionError> {
        Err(ConnectionError::new(
            Code::ID_ERROR,
            match self.role {
                Role::Client => "CANCEL_PUSH without MAX_PUSH_ID: server push is not allowed",
                Role::Server => "CANCEL_PUSH for a push ID that was not promised",
            },
        ))
    }

    /// Checks that a client may open this request stream, now or later (RFC 9218 §7.2, RFC 9297
    /// §2.1).
    pub(super) fn check_request_id<T: Transport>(
        &self,
        quic: &T,
        id: StreamId,
    ) -> Result<(), ConnectionError> {
        let limit = quic.peer_stream_limit(Directionality::Bidirectional);
        if self.role == Role::Client || id.index() < limit {
            return Ok(());
        }
        Err(ConnectionError::new(
            Code::ID_ERROR,
            format!("request stream {id} is beyond the limit of {limit} streams"),
        ))
    }

    /// We never push, but the limit must not decrease (RFC 9114 §7.2.7).
    fn on_max_push_id(&mut self, id: u64) -> Result<(), ConnectionError> {
        if id < self.max_push_id {
            let reason = "MAX_PUSH_ID is lower than in an earlier frame";
            return Err(ConnectionError::new(Code::ID_ERROR, reason));
        }
        self.max_push_id = id;
        Ok(())
    }

    fn on_priority_update<T: Transport>(
        &mut self,
        quic: &mut T,
        stream: StreamId,
        priority: Priority,
    ) {
        if let Some(exchange) = self.requests.get_mut(&stream) {
            exchange.reprioritize(priority);
            if exchange.receiving.state == MessageState::Header {
                // The application has not seen the request yet.
                return;
            }
            quic.set_priority(stream, priority.into());
            let changed = Event::PriorityChanged { stream, priority };
            return self.events.push_back(changed);
        }
        if stream.index() < self.next_request {
            return;
        }
        let lingering = self.lingering.get_or_insert_default();
        let early = &mut lingering.early_priorities;
        if let Some((_, known)) = early.iter_mut().find(|(id, _)| *id == stream) {
            *known = priority;
        } else if early.len() < self.config.limits.max_early_priorities {
            early.push((stream, priority));
        } else {
            self.counters.priorities_dropped.count_one();
        }
    }

    /// Takes the priority from a PRIORITY_UPDATE frame that arrived before its request.
    pub(super) fn take_early_priority(&mut self, id: StreamId) -> Option<Priority> {
        let early = &mut self.lingering.as_deref_mut()?.early_priorities;
        let at = early.iter().position(|(stream, _)| *stream == id)?;
        Some(early.swap_remove(at).1)
    }
}
