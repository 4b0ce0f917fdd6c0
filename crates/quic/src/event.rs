//! What happened inside a connection: one schema for traces, metrics, tests.
//!
//! The names follow qlog's quic events. An [`Observer`] is called in order, with
//! the time of the event; without one, nothing is built. Events borrow what they
//! show (a packet's frames stay bytes), so an observer that counts pays for
//! nothing it does not read.

use core::fmt::Debug;
use core::time::Duration;
use std::net::{IpAddr, SocketAddr};

use clearway_recovery::controller::{State, WindowPolicy};
use clearway_recovery::limit::Limit;

use crate::ack::ReceivedEcn;
use crate::cid::ConnectionId;
use crate::connection::ConnectionError;
use crate::path::ecn::{EcnState, Mark};
use crate::wire::{PacketKind, TransportParameters};
use crate::{Instant, Role};

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
    /// Given up with its path, its Retry or its 0-RTT: no sign of congestion.
    Withdrawn,
}

/// How far the connection is (qlog's `connection_state_updated`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ConnectionState {
    /// The first Initial was sent or received.
    Attempted,
    /// TLS has finished here (RFC 9001 §4.1.1).
    HandshakeComplete,
    /// RFC 9001 §4.1.2.
    HandshakeConfirmed,
    /// We said CONNECTION_CLOSE.
    Closing,
    /// The peer did, or lost its state.
    Draining,
    /// Nothing is left of it.
    Closed,
}

/// How far a change of path is (qlog's `migration_state_updated`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum MigrationState {
    /// A path is being validated.
    ProbingStarted,
    /// It did not answer.
    ProbingAbandoned,
    /// It did; whether it is used is another question.
    ProbingSuccessful,
    /// Data go there from now on.
    MigrationStarted,
    /// The path in use is validated, the one before is given up.
    MigrationComplete,
}

/// The recovery timer (RFC 9002 A.8): what it waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TimerKind {
    /// The time threshold of a packet (RFC 9002 §6.1.2).
    Loss,
    /// A probe (RFC 9002 §6.2).
    Pto,
}

/// What became of the recovery timer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TimerChange {
    /// It will fire after so long.
    Set(Duration),
    /// It fired.
    Expired,
    /// There is nothing to wait for.
    Cancelled,
}

/// What recovery and the controller start from (qlog's
/// `recovery_parameters_set`). Sizes are bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecoveryParameters {
    /// The controller's name.
    pub controller: &'static str,
    /// How it decides on its window.
    pub window_policy: WindowPolicy,
    /// RTT assumed before the first sample.
    pub initial_rtt: Duration,
    /// Reordering threshold in packets.
    pub packet_threshold: u64,
    /// Reordering threshold in eighths of an RTT.
    pub time_threshold_eighths: u32,
    /// PTOs that losses have to span.
    pub persistent_congestion_threshold: u32,
    /// Maximum datagram size.
    pub max_datagram_size: u64,
    /// The window at the start.
    pub initial_window: u64,
    /// The smallest window.
    pub min_window: u64,
}

/// Recovery figures after a change. Sizes are bytes, times nanoseconds, rates
/// bytes per second.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Metrics<'a> {
    /// Congestion window.
    pub window: u64,
    /// Bytes in flight.
    pub in_flight: u64,
    /// Packets in flight.
    pub packets_in_flight: u64,
    /// Slow start threshold; `None` = not yet set.
    pub ssthresh: Option<u64>,
    /// Smoothed RTT; before the first sample the assumed one.
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
    /// The latest delivery-rate sample, if there was one.
    pub delivery_rate: Option<u64>,
    /// Whether that sample was limited by the application.
    pub app_limited: bool,
    /// Bytes delivered on the path so far.
    pub delivered: u64,
    /// Bytes lost on the path so far, spurious losses included.
    pub lost: u64,
    /// Times the controller brought its window down.
    pub congestion_events: u64,
    /// Of those, undone as spurious.
    pub spurious_events: u64,
    /// Times persistent congestion collapsed the window.
    pub persistent_events: u64,
    /// What else the controller shows of itself
    /// ([`Controller::internals`](clearway_recovery::controller::Controller::internals)).
    pub internals: &'a [(&'static str, u64)],
}

/// One thing that happened.
///
/// Whoever matches on it should do so without a catch-all arm: a kind that is added
/// then asks for its place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TraceEvent<'a> {
    /// The first event an observer sees: which connection this is.
    Started {
        /// Which end we are.
        role: Role,
        /// The local address, where the platform tells.
        local: Option<IpAddr>,
        /// The peer's address.
        remote: SocketAddr,
        /// The Destination Connection ID of the client's first Initial.
        original_dcid: ConnectionId,
        /// What we call ourselves.
        local_cid: ConnectionId,
        /// What recovery starts from.
        recovery: RecoveryParameters,
    },
    /// Transport parameters are known (RFC 9000 §7.4).
    ParametersSet {
        /// Whether the peer's.
        remote: bool,
        /// Them.
        parameters: &'a TransportParameters,
    },
    /// The connection got further.
    StateChanged(ConnectionState),
    /// TLS chose this application protocol.
    AlpnChosen(&'a [u8]),
    /// The connection ended, for this reason.
    Closed(&'a ConnectionError),
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
        /// Whether it counts in flight (RFC 9002 §2).
        in_flight: bool,
        /// Whether it probes the path MTU.
        mtu_probe: bool,
        /// Its datagram's ECN mark.
        ecn: Mark,
        /// Its frames, encoded.
        payload: &'a [u8],
    },
    /// A packet authenticated.
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
        /// Whether it probed the path MTU.
        mtu_probe: bool,
        /// What said so.
        trigger: LossTrigger,
    },
    /// The probe timer fired (RFC 9002 §6.2).
    Pto {
        /// How often in a row.
        count: u32,
    },
    /// Recovery figures after a change.
    Metrics(Metrics<'a>),
    /// The controller is somewhere else.
    CongestionState {
        /// Where it was; `None` at the start and on a new path.
        old: Option<State>,
        /// Where it is.
        new: State,
        /// What brought it there, where one thing can be told:
        /// `persistent_congestion`, `spurious`, `ecn` or `loss`.
        trigger: Option<&'static str>,
    },
    /// The recovery timer changed. Told after ACKs and expiries, not for each
    /// packet sent, although each restarts the probe timer.
    Timer {
        /// What it waits for.
        kind: TimerKind,
        /// What became of it.
        change: TimerChange,
    },
    /// The reason for not sending changed (`connection_data_blocked_updated`).
    Limit(Limit),
    /// Keys of this type came from TLS.
    KeysInstalled {
        /// The packet type they protect.
        kind: PacketKind,
    },
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
    /// A change of path got further.
    Migration {
        /// How far.
        state: MigrationState,
        /// The peer's address on that path.
        remote: SocketAddr,
    },
    /// What is known of ECN on the active path changed (RFC 9000 §A.4).
    EcnState {
        /// What it was; `None` at the start and on a new path.
        old: Option<EcnState>,
        /// What it is.
        new: EcnState,
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
    /// The application took so many bytes off a stream (`stream_data_moved`).
    StreamRead {
        /// Which stream.
        id: u64,
        /// Bytes.
        len: u64,
    },
}

/// Takes a connection's events in order.
pub trait Observer: Send + Debug {
    /// `event` happened at `now`.
    fn on_event(&mut self, now: Instant, event: &TraceEvent<'_>);
}
