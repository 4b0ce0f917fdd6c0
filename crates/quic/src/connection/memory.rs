//! How much memory a connection uses, and for what.

use super::state::{CloseReason, LifecycleState};
use super::{Connection, EndpointEvent, Event};
use crate::error::ConnectionError;
use crate::memory;

/// The memory of a connection in bytes, by use. Everything that a peer or the application
/// can make grow is counted: what is allocated, not only what is in use.
///
/// Not counted is what neither of them can make grow: keys (a few hundred bytes each), the
/// connection-ID generator, the observer; nor TLS, since its library does not report it.
/// During a handshake TLS holds some 20 KiB, and at most 64 KiB more of an unfinished
/// message; a server frees all of it once the handshake is confirmed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct MemoryUsage {
    /// The `Connection` value itself.
    pub fixed: usize,
    /// Streams: send and receive buffers, state, scheduling, events not polled yet.
    pub streams: usize,
    /// Received DATAGRAMs that the application has not read.
    pub datagrams_in: usize,
    /// DATAGRAMs queued to be sent.
    pub datagrams_out: usize,
    /// Packets sent and not yet acknowledged or lost, remembered losses, congestion
    /// controllers.
    pub ledger: usize,
    /// Ranges of packet numbers received.
    pub received: usize,
    /// CRYPTO data sent and not acknowledged, or received out of order.
    pub crypto: usize,
    /// Received packets kept until their keys exist.
    pub undecryptable: usize,
    /// Connection IDs of both ends.
    pub cids: usize,
    /// Paths.
    pub paths: usize,
    /// What the handshake agreed on: transport parameters, certificates, tokens.
    pub handshake: usize,
    /// Events not polled yet, the reason of a close, scratch memory.
    pub events: usize,
}

impl MemoryUsage {
    /// Returns the sum of all fields.
    #[must_use]
    #[expect(
        clippy::arithmetic_side_effects,
        reason = "the parts are in memory at the same time, so their sizes add up"
    )]
    pub const fn total(&self) -> usize {
        let Self {
            fixed,
            streams,
            datagrams_in,
            datagrams_out,
            ledger,
            received,
            crypto,
            undecryptable,
            cids,
            paths,
            handshake,
            events,
        } = *self;
        fixed
            + streams
            + datagrams_in
            + datagrams_out
            + ledger
            + received
            + crypto
            + undecryptable
            + cids
            + paths
            + handshake
            + events
    }
}

impl Connection {
    /// Returns the bytes of memory that this connection uses ([`MemoryUsage::total`]).
    /// Walks the packets in flight, so do not call it for every packet.
    #[must_use]
    pub fn memory(&self) -> usize {
        self.memory_usage().total()
    }

    /// Returns the memory that this connection uses, by use. As costly as
    /// [`memory`](Self::memory).
    #[must_use]
    pub fn memory_usage(&self) -> MemoryUsage {
        let spaces = self.frames.spaces.iter();
        MemoryUsage {
            fixed: size_of::<Self>(),
            streams: self.frames.streams.memory(),
            datagrams_in: self.frames.datagrams_in.memory(),
            datagrams_out: self.frames.datagrams_out.memory(),
            ledger: self.network.recovery.memory(memory::small_vec),
            received: spaces.clone().map(|space| space.received.memory()).sum(),
            crypto: spaces.map(|space| space.crypto.memory()).sum(),
            undecryptable: self.undecryptable.memory(),
            cids: self
                .frames
                .local_cids
                .memory()
                .saturating_add(self.frames.remote_cids.memory()),
            paths: self.network.paths.memory(),
            handshake: self
                .tls
                .memory()
                .saturating_add(self.frames.control.memory()),
            events: self.events_memory(),
        }
    }

    /// Returns the memory of events not polled yet, of the reason of a close, and of
    /// scratch space.
    #[expect(
        clippy::arithmetic_side_effects,
        reason = "the parts are in memory at the same time, so their sizes add up"
    )]
    fn events_memory(&self) -> usize {
        let closing = match &self.lifecycle.state {
            LifecycleState::Closing(closing) => match &closing.close {
                CloseReason::Transport(error) => error.reason.len(),
                CloseReason::Application { reason, .. } => reason.capacity(),
            },
            LifecycleState::Open | LifecycleState::Draining { .. } | LifecycleState::Drained => 0,
        };
        let events: usize = self.reports.events.iter().map(event).sum();
        let endpoint: usize = self
            .reports
            .endpoint_events
            .iter()
            .map(endpoint_event)
            .sum();
        memory::vec_deque(&self.reports.events)
            + memory::vec_deque(&self.reports.endpoint_events)
            + events
            + endpoint
            + closing
            + self.lifecycle.error.as_deref().map_or(0, reason_len)
            + self
                .outcome
                .get()
                .map_or(0, |outcome| size_of_val(outcome) + outcome.memory())
    }
}

fn event(event: &Event) -> usize {
    match event {
        Event::Closed(error) => reason_len(error),
        Event::Connected
        | Event::Confirmed
        | Event::Stream(_)
        | Event::DatagramReceived
        | Event::PathChanged { .. }
        | Event::ZeroRttRejected => 0,
    }
}

fn endpoint_event(event: &EndpointEvent) -> usize {
    match event {
        EndpointEvent::ResetTokens(tokens) => memory::vec(tokens),
        EndpointEvent::AddCid(_)
        | EndpointEvent::RemoveCid(_)
        | EndpointEvent::HandshakeDone
        | EndpointEvent::Drained => 0,
    }
}

fn reason_len(error: &ConnectionError) -> usize {
    match error {
        ConnectionError::Transport(error) | ConnectionError::PeerTransport(error) => {
            error.reason.len()
        }
        ConnectionError::PeerApplication { reason, .. } => reason.capacity(),
        ConnectionError::LocalApplication { .. }
        | ConnectionError::StatelessReset
        | ConnectionError::IdleTimeout
        | ConnectionError::HandshakeTimeout
        | ConnectionError::VersionMismatch
        | ConnectionError::Refused => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn total_is_the_sum_of_all_fields() {
        let parts = MemoryUsage {
            fixed: 1,
            streams: 1 << 1,
            datagrams_in: 1 << 2,
            datagrams_out: 1 << 3,
            ledger: 1 << 4,
            received: 1 << 5,
            crypto: 1 << 6,
            undecryptable: 1 << 7,
            cids: 1 << 8,
            paths: 1 << 9,
            handshake: 1 << 10,
            events: 1 << 11,
        };
        assert_eq!(parts.total(), (1 << 12) - 1);
    }

    /// The reason of a peer's close is kept until the application has polled the event.
    #[test]
    fn reason_of_a_close_is_counted() {
        let error = ConnectionError::PeerApplication {
            code: 7,
            reason: vec![b'a'; 300],
        };
        assert_eq!(event(&Event::Closed(error)), 300);
        assert_eq!(event(&Event::Closed(ConnectionError::IdleTimeout)), 0);
        assert_eq!(event(&Event::Connected), 0);
    }
}
