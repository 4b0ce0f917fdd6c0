//! Events of the transport in, writes out, the end.

use bytes::{Buf, BytesMut};
use clearway_quic::connection::Event as QuicEvent;
use clearway_quic::stream::{Directionality, StreamEvent, StreamId, WriteError};
use clearway_quic::{Instant, Role};

use super::{Connection, Lane, Life};
use crate::count::Count;
use crate::error::{Code, ConnectionError, Fault};
use crate::event::Event;
use crate::frame::{FrameHeader, FrameKind, put_varint};
use crate::stream_kind::{StreamKind, reserved};
use crate::transport::Transport;

impl Connection {
    /// Opens our control and QPACK streams and sends SETTINGS. Done as soon as the
    /// transport can take data: when it is `Connected`, or before with the first
    /// request that is sent or arrives as early data. What the peer's stream limit
    /// does not allow yet is opened later.
    pub fn start<T: Transport>(&mut self, quic: &mut T) {
        for kind in [
            StreamKind::Control,
            StreamKind::QpackEncoder,
            StreamKind::QpackDecoder,
        ] {
            let Some(lane) = self.lane(kind) else { return };
            if lane.id.is_some() {
                continue;
            }
            let Some(id) = quic.open(Directionality::Unidirectional) else {
                return;
            };
            lane.id = Some(id);
            // What was said before there was a stream to say it on.
            let held = lane.outlet.take_waiting();
            let mut first = Vec::new();
            put_varint(&mut first, kind.as_u64());
            if kind == StreamKind::Control {
                self.put_settings(&mut first);
            }
            quic.set_priority(id, FIRST);
            self.write_lane(quic, kind, &first);
            for bytes in held {
                self.write_lane(quic, kind, &bytes);
            }
        }
        self.send_grease(quic);
    }

    /// Starts if that was not done: SETTINGS go before everything else, also before
    /// the handshake is complete.
    pub(super) fn start_early<T: Transport>(&mut self, quic: &mut T) {
        if self.outbound.control.id.is_none() {
            self.start(quic);
        }
    }

    /// Takes an event of the transport.
    pub fn on_quic_event<T: Transport>(&mut self, quic: &mut T, event: &QuicEvent) {
        if !self.is_open() {
            return;
        }
        match event {
            QuicEvent::Connected => self.start(quic),
            QuicEvent::Stream(event) => self.on_stream_event(quic, *event),
            QuicEvent::DatagramReceived => self.events.push_back(Event::DatagramReceived),
            QuicEvent::Closed(_) => self.end(),
            // Written again by the transport, under the settings of a first
            // connection (RFC 9114 §7.2.4.2).
            QuicEvent::ZeroRttRejected => self.remembers = false,
            // Paths and the handshake's confirmation are the transport's own.
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
                    self.inbound.on_opened(id);
                }
            }
            StreamEvent::Readable(id) => match id.directionality() {
                Directionality::Bidirectional => self.on_readable(quic, id),
                Directionality::Unidirectional => self.on_inbound(quic, id),
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

    /// Writes what the last calls left for the peer: instructions for the
    /// compression tables, and the end of a failed connection. To be called after
    /// each batch of events and calls, before the transport's `transmit`.
    pub fn flush<T: Transport>(&mut self, now: Instant, quic: &mut T) {
        self.allowances.refill(now, &self.config.limits);
        self.set_clock(now);
        if self.is_open() {
            self.flush_instructions(quic);
        }
        if let Life::Failed(error) = &self.life {
            quic.close(now, error.code.0, error.reason.as_bytes());
            self.end();
        }
    }

    /// The connection breaks a rule: nothing but saying so is left to do.
    pub(super) fn fail(&mut self, error: ConnectionError) {
        if self.is_open() {
            self.events.push_back(Event::Closed(error.clone()));
            self.life = Life::Failed(Box::new(error));
        }
    }

    /// Takes what went wrong with one stream or with the connection.
    pub(super) fn on_fault<T: Transport>(&mut self, quic: &mut T, id: StreamId, fault: Fault) {
        match fault {
            Fault::Stream(error) => self.on_stream_error(quic, id, error),
            Fault::Connection(error) => self.fail(error),
        }
    }

    /// Counts work that is of no use to us, and fails when there is too much.
    pub(super) fn note_idle_work(&mut self) -> Result<(), ConnectionError> {
        self.counters.idle_work.count_one();
        if self.allowances.idle_work.take() {
            return Ok(());
        }
        Err(useless())
    }

    /// Counts changes of the dynamic table, and fails when there are too many for the
    /// sections that use it.
    pub(super) fn note_table_updates(&mut self) -> Result<(), ConnectionError> {
        let updates = self.decoder.take_updates();
        if self.allowances.table_updates.take_many(updates) {
            return Ok(());
        }
        Err(ConnectionError::new(
            Code::EXCESSIVE_LOAD,
            "too many changes of the dynamic table for the sections that use it",
        ))
    }

    /// Counts cancelled streams, which cost nothing to send and are mostly unknown.
    pub(super) fn note_cancellations(&mut self) -> Result<(), ConnectionError> {
        let cancelled = self.encoder.take_cancellations();
        self.counters.idle_work.count(cancelled);
        if self.allowances.idle_work.take_many(cancelled) {
            return Ok(());
        }
        Err(useless())
    }

    pub(super) fn end(&mut self) {
        self.life = Life::Closed;
        // The requests stay: what had arrived can still be read.
        self.early.clear();
        self.lingering = None;
    }

    fn put_settings(&self, out: &mut Vec<u8>) {
        let grease = self.config.grease.then_some(self.grease);
        let settings = self.config.settings(self.role);
        settings.encode(grease, out);
        if let Some(seed) = grease {
            let kind = FrameKind::Unknown(reserved(seed >> 16 & 0xff));
            FrameHeader { kind, len: 0 }.encode(out);
        }
    }

    /// Once, a stream without meaning (RFC 9114 §6.2.3).
    fn send_grease<T: Transport>(&mut self, quic: &mut T) {
        if !self.config.grease || self.outbound.greased.is_some() {
            return;
        }
        let Some(id) = quic.open(Directionality::Unidirectional) else {
            return;
        };
        self.outbound.greased = Some(id);
        let mut bytes = Vec::new();
        put_varint(&mut bytes, reserved(self.grease >> 24 & 0xff));
        // If the peer refuses it, it has seen it, which is all there is to it.
        let _ = quic.write(id, &bytes);
        let _ = quic.finish(id);
    }

    fn lane(&mut self, kind: StreamKind) -> Option<&mut Lane> {
        match kind {
            StreamKind::Control => Some(&mut self.outbound.control),
            StreamKind::QpackEncoder => Some(&mut self.outbound.encoder),
            StreamKind::QpackDecoder => Some(&mut self.outbound.decoder),
            StreamKind::Push | StreamKind::Unknown(_) => None,
        }
    }

    /// Which of our three a stream is.
    pub(super) fn lane_of(&self, id: StreamId) -> Option<StreamKind> {
        let out = &self.outbound;
        [
            (&out.control, StreamKind::Control),
            (&out.encoder, StreamKind::QpackEncoder),
            (&out.decoder, StreamKind::QpackDecoder),
        ]
        .into_iter()
        .find_map(|(lane, kind)| (lane.id == Some(id)).then_some(kind))
    }

    /// Writes on one of our three streams, now or once it is open.
    pub(super) fn write_lane<T: Transport>(
        &mut self,
        quic: &mut T,
        kind: StreamKind,
        bytes: &[u8],
    ) {
        let Some(lane) = self.lane(kind) else { return };
        let written = match lane.id {
            Some(id) => lane.outlet.write(quic, id, bytes),
            None => {
                lane.outlet.hold(bytes);
                Ok(())
            }
        };
        self.check_lane(written);
    }

    pub(super) fn flush_lane<T: Transport>(&mut self, quic: &mut T, kind: StreamKind) {
        let Some(lane) = self.lane(kind) else { return };
        let written = match lane.id {
            Some(id) => lane.outlet.flush(quic, id),
            None => Ok(()),
        };
        self.check_lane(written);
    }

    /// The peer must not refuse our critical streams (RFC 9114 §6.2.1).
    fn check_lane(&mut self, written: Result<(), WriteError>) {
        match written {
            Err(WriteError::Stopped(_)) => self.fail(ConnectionError::new(
                Code::CLOSED_CRITICAL_STREAM,
                "a critical stream of ours was refused",
            )),
            // A transport that has ended says so with an event of its own.
            Ok(()) | Err(WriteError::Blocked | WriteError::Unknown | WriteError::Finished) => {}
        }
    }

    /// Takes from the tables' instructions what the streams accept; the rest stays
    /// with the tables, which bound it.
    fn flush_instructions<T: Transport>(&mut self, quic: &mut T) {
        let lane = &mut self.outbound.encoder;
        let encoder = lane.drain(quic, self.encoder.instructions());
        let lane = &mut self.outbound.decoder;
        let decoder = lane.drain(quic, self.decoder.instructions());
        self.check_lane(encoder.and(decoder));
    }

    fn on_writable<T: Transport>(&mut self, quic: &mut T, id: StreamId) {
        if let Some(kind) = self.lane_of(id) {
            return self.flush_lane(quic, kind);
        }
        let Some(exchange) = self.requests.get_mut(&id) else {
            return;
        };
        // A stream that was stopped or reset is dealt with where that is told.
        let _ = exchange.outlet.flush(quic, id);
        if exchange.outlet.take_writable() {
            self.events.push_back(Event::Writable(id));
        }
        self.retire(id);
    }

    fn accept_requests<T: Transport>(&mut self, quic: &mut T) {
        while let Some(id) = quic.accept(Directionality::Bidirectional) {
            match self.role {
                Role::Server => self.on_request_stream(quic, id),
                Role::Client => {
                    return self.fail(ConnectionError::new(
                        Code::STREAM_CREATION_ERROR,
                        "a bidirectional stream opened by the server",
                    ));
                }
            }
        }
    }
}

impl Lane {
    /// Writes the front of `bytes`, as far as the stream takes it.
    fn drain<T: Transport>(
        &mut self,
        quic: &mut T,
        bytes: &mut BytesMut,
    ) -> Result<(), WriteError> {
        let Some(id) = self.id else { return Ok(()) };
        while !bytes.is_empty() && self.outlet.is_empty() {
            let taken = quic.write(id, bytes)?;
            bytes.advance(taken);
        }
        Ok(())
    }
}

fn useless() -> ConnectionError {
    ConnectionError::new(
        Code::EXCESSIVE_LOAD,
        "too many frames, streams or instructions without use",
    )
}

/// For the streams that all requests depend on.
const FIRST: clearway_quic::stream::Priority = clearway_quic::stream::Priority {
    urgency: 0,
    incremental: false,
};
