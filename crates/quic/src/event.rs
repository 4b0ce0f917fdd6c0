//! What happened inside a connection: one schema for traces, metrics, tests.
//!
//! The names follow qlog's quic events. An [`Observer`] is called in order, with
//! the time of the event; without one, nothing is built.

use core::fmt::Debug;
use std::net::SocketAddr;

use clearway_recovery::limit::Limit;

use crate::Instant;
use crate::wire::PacketKind;

/// Why a received packet was not processed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum DropReason {
    /// Not a QUIC packet, or cut off.
    Malformed,
    /// Keys for it don't exist yet.
    KeysUnavailable,
    /// Keys for it are gone.
    KeysDiscarded,
    /// It didn't authenticate.
    DecryptionFailed,
    /// Seen before.
    Duplicate,
    /// Its connection ID, version or token is not ours.
    Unexpected,
    /// The connection is closed.
    Closed,
    /// A bound was reached.
    Overload,
}

/// Why a packet was declared lost (RFC 9002 §6.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LossTrigger {
    /// Packet threshold.
    Reordering,
    /// Time threshold.
    Time,
}

/// One thing that happened.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum TraceEvent {
    /// A packet was sealed into a train.
    PacketSent {
        /// Its type.
        kind: PacketKind,
        /// Its number.
        number: u64,
        /// Its size in bytes, header and tag included.
        size: u16,
        /// Whether it asks for an acknowledgement.
        ack_eliciting: bool,
    },
    /// A packet authenticated.
    PacketReceived {
        /// Its type.
        kind: PacketKind,
        /// Its number.
        number: u64,
        /// Its size in bytes.
        size: u16,
    },
    /// A packet was not processed.
    PacketDropped {
        /// Its type, if that could be told.
        kind: Option<PacketKind>,
        /// Why.
        reason: DropReason,
    },
    /// A packet was declared lost.
    PacketLost {
        /// Its type's packet number space.
        kind: PacketKind,
        /// Its number.
        number: u64,
        /// Its size in bytes.
        size: u16,
        /// What said so.
        trigger: LossTrigger,
    },
    /// The probe timer fired (RFC 9002 §6.2).
    Pto {
        /// How often in a row.
        count: u32,
    },
    /// Recovery figures after a change.
    Metrics {
        /// Congestion window in bytes.
        window: u64,
        /// Bytes in flight.
        in_flight: u64,
        /// Slow start threshold in bytes.
        ssthresh: Option<u64>,
        /// Smoothed RTT in nanoseconds.
        smoothed_rtt: u64,
        /// Minimum RTT in nanoseconds.
        min_rtt: u64,
        /// Pacing rate in bytes per second.
        pacing_rate: u64,
    },
    /// The reason for not sending changed (`connection_data_blocked_updated`).
    Limit(Limit),
    /// A key phase began.
    KeyUpdated {
        /// Its count since the handshake.
        phase: u64,
        /// Whether the peer began it.
        remote: bool,
    },
    /// Packets now go to this address.
    PathChanged {
        /// The peer's address.
        remote: SocketAddr,
    },
    /// The maximum datagram size changed.
    MtuChanged {
        /// Bytes of UDP payload.
        size: u16,
    },
    /// Keys of a packet number space were dropped.
    KeysDiscarded {
        /// The packet type they protected.
        kind: PacketKind,
    },
}

/// Takes a connection's events in order.
pub trait Observer: Send + Debug {
    /// `event` happened at `now`.
    fn on_event(&mut self, now: Instant, event: &TraceEvent);
}
