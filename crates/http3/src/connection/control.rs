//! Frames on the peer's control stream (RFC 9114 §7.2, RFC 9218 §7.2).

use clearway_quic::Role;
use clearway_quic::stream::StreamId;

use super::Connection;
use super::inbound::closed_critical_stream;
use crate::count::Count;
use crate::error::{Code, ConnectionError};
use crate::event::Event;
use crate::frame::{FrameHeader, FrameKind, only_varint};
use crate::priority::{Priority, read_update};
use crate::reader::{Item, Pause};
use crate::request::Half;
use crate::settings::Settings;
use crate::transport::Transport;

/// Payload of a frame that carries one integer, bytes at most.
const ONE_INTEGER: u64 = 8;

impl Connection {
    /// Reads the control stream as far as it has arrived.
    pub(super) fn on_control_stream<T: Transport>(
        &mut self,
        quic: &mut T,
        id: StreamId,
    ) -> Result<(), ConnectionError> {
        loop {
            let reader = self.inbound.reader();
            let item = reader.next(|max| quic.read_chunk(id, max));
            self.counters.skipped.count(reader.take_skipped());
            match item {
                Ok(Item::Header(header)) => self.on_control_header(header)?,
                Ok(Item::Payload(kind, payload)) => self.on_control_frame(quic, kind, &payload)?,
                // Nothing on this stream is passed on in pieces.
                Ok(Item::Content) | Err(Pause::Blocked) => return Ok(()),
                Err(Pause::End | Pause::Truncated | Pause::Reset(_) | Pause::Gone) => {
                    return Err(closed_critical_stream());
                }
            }
        }
    }

    /// Whether the frame has a place here, and how large it may be.
    fn on_control_header(&mut self, header: FrameHeader) -> Result<(), ConnectionError> {
        let FrameHeader { kind, len } = header;
        if self.peer.is_none() && kind != FrameKind::Settings {
            return Err(ConnectionError::new(
                Code::MISSING_SETTINGS,
                format!("the control stream begins with {}", kind.name()),
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
            FrameKind::Unknown(_) => return self.note_idle_work(),
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
                    format!("{} on the control stream", kind.name()),
                ));
            }
        };
        if self.inbound.reader().gather(kind, limit) {
            return Ok(());
        }
        let reason = format!("{} of {len} bytes", kind.name());
        Err(ConnectionError::new(code, reason))
    }

    fn on_control_frame<T: Transport>(
        &mut self,
        quic: &mut T,
        kind: FrameKind,
        payload: &[u8],
    ) -> Result<(), ConnectionError> {
        if kind != FrameKind::Settings {
            self.note_idle_work()?;
        }
        match kind {
            FrameKind::Settings => self.on_settings(quic, payload),
            FrameKind::Goaway => self.on_goaway(quic, only_varint(kind, payload)?),
            FrameKind::CancelPush => self.on_cancel_push(only_varint(kind, payload)?),
            FrameKind::MaxPushId => self.on_max_push_id(only_varint(kind, payload)?),
            FrameKind::PriorityUpdateRequest => {
                let (id, priority) = read_update(payload)?;
                self.on_priority_update(quic, id, priority);
                Ok(())
            }
            FrameKind::PriorityUpdatePush => Err(ConnectionError::new(
                Code::ID_ERROR,
                "PRIORITY_UPDATE for a push that was not promised",
            )),
            // `on_control_header` lets none of these through.
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
        if let Some(remembered) = &self.config.remembered
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
        Ok(())
    }

    /// No push was ever allowed or promised, so any identifier is wrong
    /// (RFC 9114 §7.2.3).
    fn on_cancel_push(&mut self, _id: u64) -> Result<(), ConnectionError> {
        Err(ConnectionError::new(
            Code::ID_ERROR,
            match self.role {
                Role::Client => "CANCEL_PUSH, and pushes were not allowed",
                Role::Server => "CANCEL_PUSH for a push that was not promised",
            },
        ))
    }

    /// We never push, but the limit must not shrink (RFC 9114 §7.2.7).
    fn on_max_push_id(&mut self, id: u64) -> Result<(), ConnectionError> {
        if self.max_push_id.is_some_and(|earlier| id < earlier) {
            let reason = "MAX_PUSH_ID was reduced";
            return Err(ConnectionError::new(Code::ID_ERROR, reason));
        }
        self.max_push_id = Some(id);
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
            if exchange.receiving.half == Half::Header {
                // The application has not heard of the request.
                return;
            }
            quic.set_priority(stream, priority.into());
            let changed = Event::PriorityChanged { stream, priority };
            return self.events.push_back(changed);
        }
        if stream.index() < self.next_request {
            return;
        }
        if let Some((_, early)) = self.early.iter_mut().find(|(id, _)| *id == stream) {
            *early = priority;
        } else if self.early.len() < self.config.limits.max_early_priorities {
            self.early.push((stream, priority));
        } else {
            self.counters.priorities_dropped.count_one();
        }
    }

    /// What PRIORITY_UPDATE said of a request that arrives only now.
    pub(super) fn take_early_priority(&mut self, id: StreamId) -> Option<Priority> {
        let at = self.early.iter().position(|(early, _)| *early == id)?;
        Some(self.early.swap_remove(at).1)
    }
}
