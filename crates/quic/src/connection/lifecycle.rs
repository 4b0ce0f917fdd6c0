//! The lifecycle of a connection: handshake, open, closing, draining, and the reason of the
//! end (RFC 9000 §10, RFC 9001 §4.1).

use super::events::{EndpointEvent, Event};
use super::reports::Reports;
use super::state::{CloseReason, Closing, HandshakeState, LifecycleState};
use crate::Instant;
use crate::error::ConnectionError;
use crate::event::{ConnectionState, TraceEvent};
use crate::wire::{PacketKind, Writer, frame};

/// The lifecycle of a connection.
#[derive(Debug)]
pub(crate) struct Lifecycle {
    pub(super) handshake: HandshakeState,
    pub(super) state: LifecycleState,
    /// Why the connection ended.
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

    /// Returns whether packets are sent and received.
    #[inline]
    pub(super) fn is_open(&self) -> bool {
        self.state.is_open()
    }

    /// Enters the closing state until `until` (RFC 9000 §10.2.1).
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

    /// Enters the draining state until `until`, because the peer closed or reset the
    /// connection (RFC 9000 §10.2.2).
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

    /// Ends the connection without CONNECTION_CLOSE, when the peer is gone or would not
    /// understand it.
    pub(super) fn end_silently(
        &mut self,
        now: Instant,
        error: ConnectionError,
        reports: &mut Reports,
    ) {
        self.end(now, error, reports);
        self.on_drained(now, reports);
    }

    /// Ends the closing or draining state.
    pub(super) fn on_drained(&mut self, now: Instant, reports: &mut Reports) {
        if self.state.advance(LifecycleState::Drained) {
            reports.endpoint_events.push_back(EndpointEvent::Drained);
            reports.state_changed(now, ConnectionState::Closed);
        }
    }

    /// Reports the reason of the end to the application, once.
    fn end(&mut self, now: Instant, error: ConnectionError, reports: &mut Reports) {
        if self.error.is_none() {
            let error = self.error.insert(Box::new(error));
            reports
                .events
                .push_back(Event::Closed(ConnectionError::clone(error)));
            reports.trace(now, || TraceEvent::Closed(error));
        }
    }

    /// Handles a datagram in the closing state, which is answered with CONNECTION_CLOSE at
    /// a limited rate.
    pub(super) fn on_datagram_while_closing(&mut self) {
        if let LifecycleState::Closing(closing) = &mut self.state {
            closing.on_packet();
        }
    }

    /// Returns whether CONNECTION_CLOSE is due, and records it as sent.
    pub(super) fn take_close_due(&mut self) -> bool {
        match &mut self.state {
            LifecycleState::Closing(closing) => core::mem::take(&mut closing.due),
            LifecycleState::Open | LifecycleState::Draining { .. } | LifecycleState::Drained => {
                false
            }
        }
    }

    /// Returns whether CONNECTION_CLOSE is sent in packets of this type. Before the
    /// handshake is confirmed, the peer may lack the newest keys (RFC 9000 §10.2.3).
    pub(super) fn sends_close_in(&self, kind: PacketKind) -> bool {
        match kind {
            PacketKind::ZeroRtt => false,
            PacketKind::OneRtt => true,
            PacketKind::Initial | PacketKind::Handshake => {
                self.handshake != HandshakeState::Confirmed
            }
        }
    }

    /// Writes CONNECTION_CLOSE. A frame that does not fit is omitted; the peer gets the
    /// next one, or times out.
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
