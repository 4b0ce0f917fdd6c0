//! Transport events in, writes out, the end of the connection.

use clearway_quic::connection::Event as QuicEvent;
use clearway_quic::stream::{Directionality, StreamEvent, StreamId, WriteError};
use clearway_quic::{Instant, Role};

use super::{Connection, ConnectionState, CriticalStream};
use crate::count::Count;
use crate::defects::Quirk;
use crate::error::{Code, ConnectionError, ReceiveError};
use crate::event::Event;
use crate::frame::{FrameHeader, FrameKind, put_varint};
use crate::stream_kind::{StreamKind, reserved};
use crate::transport::Transport;

impl Connection {
    /// Opens our control and QPACK streams and sends SETTINGS. Called as soon as the transport can
    /// send data: when it is `Connected`, or earlier with the first request that is sent or arrives
    /// in 0-RTT. Streams that the peer's limit does not allow yet are opened later.
    pub fn start<T: Transport>(&mut self, quic: &mut T) {
        for kind in [
            StreamKind::Control,
            StreamKind::QpackEncoder,
            StreamKind::QpackDecoder,
        ] {
            let Some(stream) = self.critical_stream(kind) else {
                return;
            };
            if stream.id.is_some() {
                continue;
            }
            let Some(id) = quic.open(Directionality::Unidirectional) else {
                return;
            };
            stream.id = Some(id);
            // Data that was written before the stream could be opened.
            let held = stream.send_buffer.take_pending();
            let mut first = Vec::new();
            put_varint(&mut first, kind.as_u64());
            if kind == StreamKind::Control {
                self.put_settings(&mut first);
            }
            quic.set_priority(id, HIGHEST_PRIORITY);
            self.write_critical(quic, kind, &first);
            for bytes in held {
                self.write_critical(quic, kind, &bytes);
            }
        }
        self.send_grease(quic);
    }

    /// Opens our streams unless that was done: SETTINGS go before everything else, even before the
    /// handshake is complete.
    pub(super) fn start_early<T: Transport>(&mut self, quic: &mut T) {
        if self.local_streams.control.id.is_none() {
            self.start(quic);
        }
    }

    /// Processes an event of the transport.
    pub fn on_quic_event<T: Transport>(&mut self, quic: &mut T, event: &QuicEvent) {
        if !self.is_open() {
            return;
        }
        match event {
            QuicEvent::Connected => self.start(quic),
            QuicEvent::Stream(event) => self.on_stream_event(quic, *event),
            QuicEvent::DatagramReceived => self.events.push_back(Event::DatagramReceived),
            QuicEvent::Closed(_) => {
                self.read_last_capsules(quic);
                self.end();
            }
            // The transport sends the data again, under the initial settings (RFC 9114 §7.2.4.2).
            QuicEvent::ZeroRttRejected => self.use_remembered = false,
            // Paths and the confirmation of the handshake concern only the transport.
            QuicEvent::Confirmed | QuicEvent::PathChanged { .. } => {}
        }
    }

    fn on_stream_event<T: Transport>(&mut self, quic: &mut T, event: StreamEvent) {
        match event {
            StreamEvent::Opened(Directionality::Bidirectional) => {
                self.start_early(quic);
                self.accept_requests(quic);
            }
            StreamEvent::Opened(Directionality::Unidirectional) => {
                while let Some(id) = quic.accept(Directionality::Unidirectional) {
                    self.peer_streams.on_opened(id);
                }
            }
            StreamEvent::Readable(id) if self.awaits_session(id) => {
                self.read_session_header(quic, id);
            }
            StreamEvent::Readable(id) => match id.directionality() {
                Directionality::Bidirectional => self.on_readable(quic, id),
                Directionality::Unidirectional => self.on_peer_stream(quic, id),
            },
            StreamEvent::Writable(id) => self.on_writable(quic, id),
            StreamEvent::Stopped { id, code } => self.on_stopped(id, Code(code)),
            StreamEvent::StreamsAvailable(Directionality::Bidirectional) => {
                self.events.push_back(Event::RequestsAvailable);
            }
            StreamEvent::StreamsAvailable(Directionality::Unidirectional) => self.start(quic),
            StreamEvent::Finished(id) => self.on_finished(id),
        }
    }

    /// Writes what the last calls produced: QPACK instructions, and the close of a failed
    /// connection. Call it after each batch of events and calls, before the transport's `transmit`.
    pub fn flush<T: Transport>(&mut self, now: Instant, quic: &mut T) {
        self.rate_limits.refill(now, &self.config.limits);
        self.flush_sessions(quic);
        self.set_timers(now);
        if self.is_open() {
            self.flush_instructions(now, quic);
        }
        if let ConnectionState::Failed(error) = &self.state {
            quic.close(now, error.code.0, error.reason.as_bytes());
            self.end();
        }
    }

    /// Returns whether there is an event to poll, or whether [`flush`](Self::flush) has something to
    /// write or a timer to set.
    #[must_use]
    pub fn is_flush_due(&self) -> bool {
        !self.events.is_empty()
            || matches!(self.state, ConnectionState::Failed(_))
            || self.webtransport.is_some()
            || self.has_new_instructions()
            || self.role == Role::Server && self.timers.are_outdated()
    }

    /// Fails the connection; the next flush closes it.
    pub(super) fn fail(&mut self, error: ConnectionError) {
        let Err(error) = self.config.forgive(error) else {
            return;
        };
        if self.is_open() {
            self.events.push_back(Event::Closed(error.clone()));
            self.state = ConnectionState::Failed(Box::new(error));
        }
    }

    /// Handles an error of a stream or of the connection.
    pub(super) fn on_receive_error<T: Transport>(
        &mut self,
        quic: &mut T,
        id: StreamId,
        error: ReceiveError,
    ) {
        match error {
            ReceiveError::Stream(error) => self.on_stream_error(quic, id, error),
            ReceiveError::Connection(error) => self.fail(error),
        }
    }

    /// Counts a frame or stream without effect. Fails if there are too many.
    pub(super) fn count_useless(&mut self) -> Result<(), ConnectionError> {
        self.counters.useless_frames.count_one();
        if self.rate_limits.useless_frames.take() {
            return Ok(());
        }
        Err(too_many_useless())
    }

    /// Counts updates of the dynamic table. Fails if there are too many for the field
    /// sections that use it.
    pub(super) fn count_table_updates(&mut self) -> Result<(), ConnectionError> {
        let updates = self.decoder.take_table_updates();
        if self.rate_limits.table_updates.take_many(updates) {
            return Ok(());
        }
        Err(ConnectionError::new(
            Code::EXCESSIVE_LOAD,
            "too many dynamic table updates for the field sections that use them",
        ))
    }

    /// Counts stream cancellations, which cost little to send and mostly have no effect.
    pub(super) fn count_cancellations(&mut self) -> Result<(), ConnectionError> {
        let cancelled = self.encoder.take_cancellations();
        (self.config).refuse_when(Quirk::RefusesCancellations, || cancelled > 0)?;
        self.counters.useless_frames.count(cancelled);
        if self.rate_limits.useless_frames.take_many(cancelled) {
            return Ok(());
        }
        Err(too_many_useless())
    }

    pub(super) fn end(&mut self) {
        self.state = ConnectionState::Closed;
        // The requests are kept: what has arrived can still be read.
        self.lingering = None;
    }

    fn put_settings(&self, out: &mut Vec<u8>) {
        let grease = self.config.grease.then_some(self.grease_seed);
        let settings = self.config.settings(self.role);
        settings.encode(grease, out);
        if let Some(seed) = grease {
            let kind = FrameKind::Unknown(reserved(seed >> 16 & 0xff));
            FrameHeader { kind, len: 0 }.encode(out);
        }
    }

    /// Opens a stream of a reserved type, once (RFC 9114 §6.2.3).
    fn send_grease<T: Transport>(&mut self, quic: &mut T) {
        if !self.config.grease || self.local_streams.reserved.is_some() {
            return;
        }
        let Some(id) = quic.open(Directionality::Unidirectional) else {
            return;
        };
        self.local_streams.reserved = Some(id);
        let mut bytes = Vec::new();
        put_varint(&mut bytes, reserved(self.grease_seed >> 24 & 0xff));
        // The peer may reject it; then it has seen it, which is all that matters.
        let _ = quic.write(id, &bytes);
        let _ = quic.finish(id);
    }

    fn critical_stream(&mut self, kind: StreamKind) -> Option<&mut CriticalStream> {
        match kind {
            StreamKind::Control => Some(&mut self.local_streams.control),
            StreamKind::QpackEncoder => Some(&mut self.local_streams.encoder),
            StreamKind::QpackDecoder => Some(&mut self.local_streams.decoder),
            StreamKind::Push | StreamKind::WebTransport | StreamKind::Unknown(_) => None,
        }
    }

    /// Returns the type of a stream, if it is one of our critical streams.
    pub(super) fn critical_kind(&self, id: StreamId) -> Option<StreamKind> {
        let out = &self.local_streams;
        [
            (&out.control, StreamKind::Control),
            (&out.encoder, StreamKind::QpackEncoder),
            (&out.decoder, StreamKind::QpackDecoder),
        ]
        .into_iter()
        .find_map(|(stream, kind)| (stream.id == Some(id)).then_some(kind))
    }

    /// Writes on one of our critical streams, now or once it is open.
    pub(super) fn write_critical<T: Transport>(
        &mut self,
        quic: &mut T,
        kind: StreamKind,
        bytes: &[u8],
    ) {
        self.has_written = true;
        let Some(stream) = self.critical_stream(kind) else {
            return;
        };
        let written = match stream.id {
            Some(id) => stream.send_buffer.write(quic, id, bytes),
            None => {
                stream.send_buffer.push(bytes);
                Ok(())
            }
        };
        self.check_critical_write(written);
    }

    pub(super) fn flush_critical<T: Transport>(&mut self, quic: &mut T, kind: StreamKind) {
        let Some(stream) = self.critical_stream(kind) else {
            return;
        };
        let written = match stream.id {
            Some(id) => stream.send_buffer.flush(quic, id),
            None => Ok(()),
        };
        self.check_critical_write(written);
    }

    /// The peer must not ask us to stop sending on a critical stream (RFC 9114 §6.2.1).
    pub(super) fn check_critical_write(&mut self, written: Result<(), WriteError>) {
        match written {
            Err(WriteError::Stopped(_)) => self.fail(ConnectionError::new(
                Code::CLOSED_CRITICAL_STREAM,
                "the peer sent STOP_SENDING for a critical stream",
            )),
            // A closed transport has its own event.
            Ok(()) | Err(WriteError::Blocked | WriteError::Unknown | WriteError::Finished) => {}
        }
    }

    fn on_writable<T: Transport>(&mut self, quic: &mut T, id: StreamId) {
        if let Some(kind) = self.critical_kind(id) {
            return self.flush_critical(quic, kind);
        }
        let Some(exchange) = self.requests.get_mut(&id) else {
            return;
        };
        // There are events for a stream that was stopped or reset.
        let _ = exchange.send_buffer.flush(quic, id);
        if exchange.send_buffer.take_writable() {
            self.events.push_back(Event::Writable(id));
        }
        self.check_session_flow(id);
        self.retire(id);
    }

    fn accept_requests<T: Transport>(&mut self, quic: &mut T) {
        while let Some(id) = quic.accept(Directionality::Bidirectional) {
            match self.role {
                Role::Server => self.on_request_stream(quic, id),
                Role::Client if self.webtransport.is_some() => self.on_session_stream(id),
                Role::Client => {
                    return self.fail(ConnectionError::new(
                        Code::STREAM_CREATION_ERROR,
                        "the server opened a bidirectional stream",
                    ));
                }
            }
        }
    }
}

fn too_many_useless() -> ConnectionError {
    ConnectionError::new(
        Code::EXCESSIVE_LOAD,
        "too many frames, streams or instructions without effect",
    )
}

/// The priority of the streams that all requests depend on.
const HIGHEST_PRIORITY: clearway_quic::stream::Priority = clearway_quic::stream::Priority {
    urgency: 0,
    incremental: false,
};
