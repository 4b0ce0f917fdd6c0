//! What a connection reports: events for the application and the endpoint, counters, and
//! traces.

use std::collections::VecDeque;

use super::counters::Counters;
use super::events::{EndpointEvent, Event};
use super::trace::Trace;
use crate::Instant;
use crate::count::Count;
use crate::event::{ConnectionState, DropReason, TraceEvent};
use crate::wire::PacketKind;

/// A dropped packet: its type, if known, and the reason. Not an error of the connection.
pub(crate) type DroppedPacket = (Option<PacketKind>, DropReason);

/// What a connection reports.
#[derive(Debug, Default)]
pub(crate) struct Reports {
    /// Events for the application.
    pub(super) events: VecDeque<Event>,
    /// Events for the endpoint.
    pub(super) endpoint_events: VecDeque<EndpointEvent>,
    pub(super) counters: Counters,
    pub(super) trace: Trace,
}

impl Reports {
    /// Passes an event to the observer. The event is built only if there is one.
    #[inline]
    pub(super) fn trace<'e>(&mut self, now: Instant, event: impl FnOnce() -> TraceEvent<'e>) {
        self.trace.emit(now, event);
    }

    pub(super) fn state_changed(&mut self, now: Instant, state: ConnectionState) {
        self.trace(now, || TraceEvent::StateChanged(state));
    }

    pub(super) fn packet_dropped(&mut self, now: Instant, (kind, reason): DroppedPacket) {
        self.counters.packets_dropped.count_one();
        self.trace(now, || TraceEvent::PacketDropped { kind, reason });
    }

    /// Records a key update, initiated by the peer if `remote`.
    pub(super) fn key_updated(&mut self, now: Instant, remote: bool) {
        self.counters.key_updates.count_one();
        self.counters.peer_key_updates.count(u64::from(remote));
        let phase = self.counters.key_updates;
        self.trace(now, || TraceEvent::KeyUpdated { phase, remote });
    }
}
