//! How a connection ends (RFC 9000 §10).

use core::time::Duration;

use clearway_recovery::Space;

use super::life::{Close, Closing, ConnectionError, Handshake, Life};
use super::packet::{Permit, Shape};
use super::transmit::in_memory;
use super::{Connection, EndpointEvent, Event, Transmit};
use crate::Instant;
use crate::error::TransportError;
use crate::event::{ConnectionState, TraceEvent};
use crate::wire::cursor::VARINT_MAX;
use crate::wire::{PacketKind, Writer, frame};

impl Connection {
    /// Closes with the application's `code` and `reason` (RFC 9000 §10.2). A code over
    /// 2^62 - 1, which has no encoding, counts as that.
    /// Streams end where they are; what was not sent is not sent any more.
    /// Does nothing on a connection that has ended already.
    pub fn close(&mut self, now: Instant, code: u64, reason: &[u8]) {
        let close = Close::Application {
            code: code.min(VARINT_MAX),
            reason: reason.to_vec(),
        };
        self.start_closing(now, close);
    }

    /// Closes with a transport error of the caller's, as `close` does with an
    /// application's, and lets go at once of all that the connection holds: streams
    /// and what they buffer, DATAGRAMs, packets in flight, TLS. What is left is what
    /// it takes to say CONNECTION_CLOSE until the closing state ends (RFC 9000 §10.2).
    /// Reads and writes then fail as on a connection without streams.
    ///
    /// For a connection that can't be kept: memory is short, or serving it failed.
    /// On a connection that has ended already it only lets go of what is held.
    pub fn abort(&mut self, now: Instant, error: TransportError) {
        self.fail(now, error);
        self.let_go();
    }

    /// The peer broke the protocol, or we did.
    pub(crate) fn fail(&mut self, now: Instant, error: TransportError) {
        self.start_closing(now, Close::Transport(error));
    }

    fn start_closing(&mut self, now: Instant, close: Close) {
        if !self.life.is_open() {
            return;
        }
        self.end(now, close.as_error());
        let until = now + self.drain_period();
        self.life.advance(Life::Closing(Closing::new(close, until)));
        self.trace(now, || TraceEvent::StateChanged(ConnectionState::Closing));
    }

    /// CONNECTION_CLOSE arrived: answer nothing more (RFC 9000 §10.2.2).
    pub(crate) fn on_peer_close(&mut self, now: Instant, error: ConnectionError) {
        self.end(now, error);
        let until = now + self.drain_period();
        self.life.advance(Life::Draining { until });
        self.trace(now, || TraceEvent::StateChanged(ConnectionState::Draining));
    }

    pub(crate) fn on_stateless_reset(&mut self, now: Instant) {
        self.on_peer_close(now, ConnectionError::StatelessReset);
    }

    /// Ends without a word: nobody is there, or nobody would understand.
    pub(crate) fn end_silently(&mut self, now: Instant, error: ConnectionError) {
        self.end(now, error);
        self.on_drained(now);
    }

    pub(crate) fn on_drained(&mut self, now: Instant) {
        if self.life.advance(Life::Drained) {
            self.endpoint_events.push_back(EndpointEvent::Drained);
            self.trace(now, || TraceEvent::StateChanged(ConnectionState::Closed));
        }
    }

    /// Three PTOs (RFC 9000 §10.2).
    fn drain_period(&self) -> Duration {
        self.pto_of(self.paths.active_id()).saturating_mul(3)
    }

    /// The application hears why, once.
    fn end(&mut self, now: Instant, error: ConnectionError) {
        if self.error.is_none() {
            self.error = Some(Box::new(error.clone()));
            self.events.push_back(Event::Closed(error));
            self.trace_end(now);
        }
    }

    /// While closing, a packet may be the peer's own CONNECTION_CLOSE; any
    /// other is answered with ours at a limited rate.
    pub(crate) fn receive_while_closing(&mut self) {
        if let Life::Closing(closing) = &mut self.life {
            closing.on_packet();
        }
    }

    /// Writes one datagram with CONNECTION_CLOSE in every space whose keys the
    /// peer may have (RFC 9000 §10.2.3).
    pub(crate) fn transmit_close(&mut self, now: Instant, buffer: &mut [u8]) -> Option<Transmit> {
        let Life::Closing(closing) = &mut self.life else {
            return None;
        };
        if !core::mem::take(&mut closing.due) {
            return None;
        }
        let id = self.paths.active_id();
        self.paths.active_mut().begin_train();
        let path = self.paths.active();
        let size = usize::from(path.mtu.current()).min(buffer.len());
        let credit = in_memory(path.amplification.available());
        let mut permit = Permit::Closed;
        let slot = buffer.get_mut(..size.min(credit))?;
        let len = self.write_datagram(now, id, slot, &mut permit, Shape::Close);
        self.finish_train(id, len, None)
    }

    /// Whether CONNECTION_CLOSE goes into `space`: before the handshake is
    /// confirmed the peer may lack the newest keys (RFC 9000 §10.2.3).
    pub(crate) fn closes_in(&self, space: Space) -> bool {
        let has = |space| self.keys.sending_kind(space, self.is_client());
        match has(space) {
            None | Some(PacketKind::ZeroRtt) => false,
            Some(PacketKind::OneRtt) => true,
            Some(PacketKind::Initial | PacketKind::Handshake) => {
                self.handshake != Handshake::Confirmed
            }
        }
    }

    pub(crate) fn fill_close(&self, kind: PacketKind, w: &mut Writer<'_>) {
        let Life::Closing(closing) = &self.life else {
            return;
        };
        // A frame that finds no room is left out: the peer will hear the next
        // one, or time out.
        let _ = match (kind, &closing.close) {
            (PacketKind::OneRtt, Close::Application { code, reason }) => {
                frame::close::encode_application(w, *code, reason)
            }
            (PacketKind::OneRtt, Close::Transport(error)) => {
                frame::close::encode_transport(w, error)
            }
            (PacketKind::Initial | PacketKind::Handshake | PacketKind::ZeroRtt, close) => {
                frame::close::encode_transport(w, &close.without_application())
            }
        };
    }
}
