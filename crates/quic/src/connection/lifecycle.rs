//! How far the handshake is, whether packets flow, and why they no longer do
//! (RFC 9000 §10, RFC 9001 §4.1).

use super::events::{EndpointEvent, Event};
use super::reports::Reports;
use super::state::{CloseReason, Closing, ConnectionError, HandshakeState, LifecycleState};
use crate::Instant;
use crate::event::{ConnectionState, TraceEvent};
use crate::wire::{PacketKind, Writer, frame};

/// A connection's way from the first packet to the last.
#[derive(Debug)]
pub(crate) struct Lifecycle {
    pub(super) handshake: HandshakeState,
    pub(super) state: LifecycleState,
    /// Why it ended.
    pub(super) error: Option<Box<ConnectionError>>,
}

impl Lifecycle {
    pub(super) fn new() -> Self {
        Self {
            handshake: HandshakeState::Running,
            state: LifecycleState::Open,
            error: None,
        }
    }

    /// Whether packets flow.
    #[inline]
    pub(super) fn is_open(&self) -> bool {
        self.state.is_open()
    }

    /// Says CONNECTION_CLOSE until `until` (RFC 9000 §10.2.1).
    pub(super) fn close(
        &mut self,
        now: Instant,
        close: CloseReason,
        until: Instant,
        reports: &mut Reports,
    ) {
        self.end(now, close.as_error(), reports);
        self.state
            .advance(LifecycleState::Closing(Closing::new(close, until)));
        reports.state_changed(now, ConnectionState::Closing);
    }

    /// The peer closed or reset: says nothing more, and is over at `until`
    /// (RFC 9000 §10.2.2).
    pub(super) fn drain(
        &mut self,
        now: Instant,
        error: ConnectionError,
        until: Instant,
        reports: &mut Reports,
    ) {
        self.end(now, error, reports);
        self.state.advance(LifecycleState::Draining { until });
        reports.state_changed(now, ConnectionState::Draining);
    }

    /// Ends without a word: nobody is there, or nobody would understand.
    pub(super) fn end_silently(
        &mut self,
        now: Instant,
        error: ConnectionError,
        reports: &mut Reports,
    ) {
        self.end(now, error, reports);
        self.on_drained(now, reports);
    }

    /// Nothing of it is on its way any more.
    pub(super) fn on_drained(&mut self, now: Instant, reports: &mut Reports) {
        if self.state.advance(LifecycleState::Drained) {
            reports.endpoint_events.push_back(EndpointEvent::Drained);
            reports.state_changed(now, ConnectionState::Closed);
        }
    }

    /// The application hears why, once.
    fn end(&mut self, now: Instant, error: ConnectionError, reports: &mut Reports) {
        if self.error.is_none() {
            let error = self.error.insert(Box::new(error));
            reports
                .events
                .push_back(Event::Closed(ConnectionError::clone(error)));
            reports.trace(now, || TraceEvent::Closed(error));
        }
    }

    /// While closing, a packet may be the peer's own CONNECTION_CLOSE; any other is
    /// answered with ours at a limited rate.
    pub(super) fn on_datagram_while_closing(&mut self) {
        if let LifecycleState::Closing(closing) = &mut self.state {
            closing.on_packet();
        }
    }

    /// Whether CONNECTION_CLOSE is due, taken as sent.
    pub(super) fn take_close_due(&mut self) -> bool {
        match &mut self.state {
            LifecycleState::Closing(closing) => core::mem::take(&mut closing.due),
            LifecycleState::Open | LifecycleState::Draining { .. } | LifecycleState::Drained => {
                false
            }
        }
    }

    /// Whether CONNECTION_CLOSE goes into a packet of this type: before the handshake is
    /// confirmed the peer may lack the newest keys (RFC 9000 §10.2.3).
    pub(super) fn sends_close_in(&self, kind: PacketKind) -> bool {
        match kind {
            PacketKind::ZeroRtt => false,
            PacketKind::OneRtt => true,
            PacketKind::Initial | PacketKind::Handshake => {
                self.handshake != HandshakeState::Confirmed
            }
        }
    }

    /// Writes CONNECTION_CLOSE. A frame that finds no room is left out: the peer will
    /// hear the next one, or time out.
    pub(super) fn fill_close(&self, kind: PacketKind, w: &mut Writer<'_>) {
        let LifecycleState::Closing(closing) = &self.state else {
            return;
        };
        let _ = match (kind, &closing.close) {
            (PacketKind::OneRtt, CloseReason::Application { code, reason }) => {
                frame::close::encode_application(w, *code, reason)
            }
            (PacketKind::OneRtt, CloseReason::Transport(error)) => {
                frame::close::encode_transport(w, error)
            }
            (PacketKind::Initial | PacketKind::Handshake | PacketKind::ZeroRtt, close) => {
                frame::close::encode_transport(w, &close.without_application())
            }
        };
    }
}
