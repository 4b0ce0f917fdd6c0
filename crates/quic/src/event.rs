//! Events inside a connection: one schema for traces, metrics and tests.
//!
//! The names follow qlog's QUIC events. An [`Observer`] receives the events in order, each
//! with its time; without an observer, no event is built. Events borrow their contents (a
//! packet's frames stay bytes), so an observer that only counts does not pay for what it
//! does not read.

use core::fmt::Debug;
use core::time::Duration;
use std::net::{IpAddr, SocketAddr};

use clearway_recovery::controller::{State, WindowPolicy};
use clearway_recovery::limit::Limit;

use crate::ack::ReceivedEcn;
use crate::cid::ConnectionId;
use crate::error::ConnectionError;
use crate::path::ecn::{EcnState, Mark};
use crate::wire::{PacketKind, TransportParameters, Version};
use crate::{Instant, Role};

/// The reason why a received packet was dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum DropReason {
    /// It is not a QUIC packet, or is truncated.
    Malformed,
    /// Its keys are not available yet.
    KeysUnavailable,
    /// Its keys have been discarded.
    KeysDiscarded,
    /// It is not authentic.
    DecryptionFailed,
    /// It was received before.
    Duplicate,
    /// It was not expected: wrong connection ID, version, token or address.
    Unexpected,
    /// The connection is closed.
    Closed,
    /// A limit on memory or work was reached.
    Overload,
}

/// The reason why a packet was declared lost (RFC 9002 §6.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LossTrigger {
    /// Packet threshold.
    Reordering,
    /// Time threshold.
    Time,
    /// It was given up with its path, after a Retry, or with rejected 0-RTT. Not a sign of
    /// congestion.
    Withdrawn,
}

/// The state of the connection (qlog's `connection_state_updated`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ConnectionState {
    /// The first Initial was sent or received.
    Attempted,
    /// TLS has finished here (RFC 9001 §4.1.1).
    HandshakeComplete,
    /// The handshake is confirmed (RFC 9001 §4.1.2).
    HandshakeConfirmed,
    /// This end sent CONNECTION_CLOSE.
    Closing,
    /// The peer sent CONNECTION_CLOSE or a stateless reset.
    Draining,
    /// The connection is over.
    Closed,
}

/// The state of a migration (qlog's `migration_state_updated`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum MigrationState {
    /// A path is being validated.
    ProbingStarted,
    /// Validation failed: the path did not answer.
    ProbingAbandoned,
    /// The path is validated. It is not necessarily used.
    ProbingSuccessful,
    /// Data is sent on the path from now on.
    MigrationStarted,
    /// The active path is validated, and the path before it is given up.
    MigrationComplete,
}

/// What the recovery timer waits for (RFC 9002 §A.8).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TimerKind {
    /// The time threshold of a packet (RFC 9002 §6.1.2).
    Loss,
    /// A probe timeout (RFC 9002 §6.2).
    Pto,
}

/// A change of the recovery timer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TimerChange {
    /// It will fire after this time.
    Set(Duration),
    /// It fired.
    Expired,
    /// It was cancelled, because there is nothing to wait for.
    Cancelled,
}

/// The initial parameters of recovery and congestion control (qlog's
/// `recovery_parameters_set`). Sizes are in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecoveryParameters {
    /// The controller's name.
    pub controller: &'static str,
    /// How the controller determines its window.
    pub window_policy: WindowPolicy,
    /// RTT assumed before the first sample.
    pub initial_rtt: Duration,
    /// Reordering threshold in packets.
    pub packet_threshold: u64,
    /// Reordering threshold in eighths of an RTT.
    pub time_threshold_eighths: u32,
    /// PTOs that losses must span to count as persistent congestion (RFC 9002 §7.6).
    pub persistent_congestion_threshold: u32,
    /// Maximum datagram size.
    pub max_datagram_size: u64,
    /// Initial congestion window.
    pub initial_window: u64,
    /// Smallest congestion window.
    pub min_window: u64,
}

/// Metrics of recovery and congestion control after a change. Sizes are in bytes, times in
/// nanoseconds, rates in bytes per second.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Metrics<'a> {
    /// Congestion window.
    pub window: u64,
    /// Bytes in flight.
    pub in_flight: u64,
    /// Packets in flight.
    pub packets_in_flight: u64,
    /// Slow start threshold; `None` until it is set.
    pub ssthresh: Option<u64>,
    /// Smoothed RTT; the assumed RTT before the first sample.
    pub smoothed_rtt: u64,
    /// Minimum RTT, once measured.
    pub min_rtt: Option<u64>,
    /// Latest RTT, once measured.
    pub latest_rtt: Option<u64>,
    /// Variation of the RTT.
    pub rtt_variance: u64,
    /// Probe timeouts in a row.
    pub pto_count: u32,
    /// Pacing rate.
    pub pacing_rate: u64,
    /// The latest delivery-rate sample, if there is one.
    pub delivery_rate: Option<u64>,
    /// Whether the application limited that sample.
    pub app_limited: bool,
    /// Bytes delivered on the path so far.
    pub delivered: u64,
    /// Bytes lost on the path so far, spurious losses included.
    pub lost: u64,
    /// Times the controller reduced its window.
    pub congestion_events: u64,
    /// Reductions that were undone because the losses were spurious.
    pub spurious_events: u64,
    /// Times persistent congestion collapsed the window.
    pub persistent_events: u64,
    /// Internal values of the controller
    /// ([`Controller::internals`](clearway_recovery::controller::Controller::internals)).
    pub internals: &'a [(&'static str, u64)],
}

/// An event inside a connection.
///
/// Match on it without a catch-all arm, so that a new kind of event is a compile error.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TraceEvent<'a> {
    /// The first event of a trace, which identifies the connection.
    Started {
        /// Which end we are.
        role: Role,
        /// The local address, if the platform reports it.
        local: Option<IpAddr>,
        /// The peer's address.
        remote: SocketAddr,
        /// The Destination Connection ID of the client's first Initial.
        original_dcid: ConnectionId,
        /// The connection ID that this end chose.
        local_cid: ConnectionId,
        /// The initial parameters of recovery.
        recovery: RecoveryParameters,
    },
    /// Transport parameters are known (RFC 9000 §7.4).
    ParametersSet {
        /// Whether they are the peer's.
        remote: bool,
        /// The transport parameters.
        parameters: &'a TransportParameters,
    },
    /// The version of the connection, at the beginning and after each change (RFC 9368).
    VersionChosen {
        /// The version of the client's first flight.
        original: Version,
        /// The version of the packets that are sent from now on.
        current: Version,
    },
    /// The state of the connection changed.
    StateChanged(ConnectionState),
    /// TLS chose this application protocol.
    AlpnChosen(&'a [u8]),
    /// The connection ended for this reason.
    Closed(&'a ConnectionError),
    /// A packet was sealed and is about to be sent.
    PacketSent {
        /// Its type.
        kind: PacketKind,
        /// Its number.
        number: u64,
        /// Its size in bytes, header and tag included.
        size: u16,
        /// Whether it asks for an acknowledgement.
        ack_eliciting: bool,
        /// Whether it counts in flight (RFC 9002 §2).
        in_flight: bool,
        /// Whether it probes the path MTU.
        mtu_probe: bool,
        /// Its datagram's ECN mark.
        ecn: Mark,
        /// Its frames, encoded.
        payload: &'a [u8],
    },
    /// A packet was received and is authentic.
    PacketReceived {
        /// Its type.
        kind: PacketKind,
        /// Its number.
        number: u64,
        /// Its size in bytes.
        size: u16,
        /// Its datagram's ECN mark.
        ecn: ReceivedEcn,
        /// Its frames, encoded and not checked yet.
        payload: &'a [u8],
    },
    /// A packet was dropped.
    PacketDropped {
        /// Its type, if known.
        kind: Option<PacketKind>,
        /// The reason.
        reason: DropReason,
    },
    /// A packet was declared lost.
    PacketLost {
        /// A packet type of its packet number space.
        kind: PacketKind,
        /// Its number.
        number: u64,
        /// Its size in bytes.
        size: u16,
        /// Whether it probed the path MTU.
        mtu_probe: bool,
        /// The reason.
        trigger: LossTrigger,
    },
    /// The probe timer fired (RFC 9002 §6.2).
    Pto {
        /// Number of consecutive probe timeouts.
        count: u32,
    },
    /// Recovery figures after a change.
    Metrics(Metrics<'a>),
    /// The state of the congestion controller changed.
    CongestionState {
        /// The previous state; `None` at the start and on a new path.
        old: Option<State>,
        /// The new state.
        new: State,
        /// The cause, if there is a single one: `persistent_congestion`, `spurious`, `ecn`
        /// or `loss`.
        trigger: Option<&'static str>,
    },
    /// The recovery timer changed. Reported after ACKs and expiries, but not for each
    /// packet sent, although each restarts the probe timer.
    Timer {
        /// What the timer waits for.
        kind: TimerKind,
        /// The change.
        change: TimerChange,
    },
    /// The reason for not sending changed (`connection_data_blocked_updated`).
    Limit(Limit),
    /// TLS provided keys.
    KeysInstalled {
        /// The packet type they protect.
        kind: PacketKind,
    },
    /// A key update took place.
    KeyUpdated {
        /// The number of key updates since the handshake.
        phase: u64,
        /// Whether the peer initiated it.
        remote: bool,
    },
    /// The active path changed.
    PathChanged {
        /// The peer's address.
        remote: SocketAddr,
    },
    /// The state of a migration changed.
    Migration {
        /// The new state.
        state: MigrationState,
        /// The peer's address on that path.
        remote: SocketAddr,
    },
    /// The state of ECN validation on the active path changed (RFC 9000 §A.4).
    EcnState {
        /// The previous state; `None` at the start and on a new path.
        old: Option<EcnState>,
        /// The new state.
        new: EcnState,
    },
    /// The maximum datagram size of a path changed.
    MtuChanged {
        /// The new size, in bytes of UDP payload.
        size: u16,
    },
    /// Keys were discarded.
    KeysDiscarded {
        /// The packet type they protected.
        kind: PacketKind,
    },
    /// The application read from a stream (qlog's `stream_data_moved`).
    StreamRead {
        /// The stream ID.
        id: u64,
        /// The number of bytes.
        len: u64,
    },
}

/// Receives the events of a connection, in order.
pub trait Observer: Send + Debug {
    /// Handles `event`, which happened at `now`.
    fn on_event(&mut self, now: Instant, event: &TraceEvent<'_>);
}
