//! The event schema of traces.
//!
//! Names and meanings are those of qlog's quic events (draft-ietf-quic-qlog-quic-events-13), so
//! that a live connection, our own files and those of other stacks look the same to all consumers.
//! What a foreign trace does not record is `None`; nothing is guessed here.

mod connection;
mod frame;
mod metrics;
mod packet;

use std::borrow::Cow;
use std::net::SocketAddr;

use clearway_recovery::limit::Limit;

pub use self::connection::{Closed, Initiator, Parameters, Role, Started};
pub use self::frame::{AckRanges, Frame};
pub use self::metrics::{Metrics, RecoveryParameters};
pub(crate) use self::packet::BySpace;
pub use self::packet::{Packet, PacketType, Space};

/// A name: static in our own events, owned in those read from a file.
pub type Name = Cow<'static, str>;

/// An event.
#[derive(Clone, Debug, PartialEq)]
pub struct Event {
    /// The time, in nanoseconds since the trace's reference time: for live traces that of the
    /// connection's first event.
    pub time: u64,
    /// What happened.
    pub data: EventData,
}

/// What happened. Sizes are bytes, times nanoseconds, rates bits per second.
#[derive(Clone, Debug, PartialEq)]
pub enum EventData {
    /// `connection_started`.
    ConnectionStarted(Box<Started>),
    /// `connection_closed`.
    ConnectionClosed(Box<Closed>),
    /// `connection_state_updated`.
    ConnectionStateUpdated {
        /// The state as qlog names it, for instance `handshake_confirmed`.
        new: Name,
    },
    /// `parameters_set`: transport parameters.
    ParametersSet(Box<Parameters>),
    /// `version_information`.
    VersionInformation {
        /// The version of the connection, as a number.
        chosen: u32,
    },
    /// `alpn_information`.
    AlpnInformation {
        /// The protocol chosen.
        chosen: Name,
    },
    /// `packet_sent`.
    PacketSent(Packet),
    /// `packet_received`.
    PacketReceived(Packet),
    /// `packet_dropped`.
    PacketDropped {
        /// Its type, if known.
        kind: Option<PacketType>,
        /// Bytes.
        size: Option<u64>,
        /// The reason.
        trigger: Option<Name>,
    },
    /// `packet_lost`.
    PacketLost {
        /// Its type.
        kind: PacketType,
        /// Its packet number.
        number: u64,
        /// Bytes.
        size: Option<u64>,
        /// Whether it was an MTU probe, whose loss is not a sign of congestion.
        mtu_probe: bool,
        /// `reordering_threshold`, `time_threshold`, `pto_expired`; ours also records `withdrawn`:
        /// discarded with its path or its keys.
        trigger: Option<Name>,
    },
    /// `stream_data_moved` from the transport to the application.
    StreamDataRead {
        /// The stream, if recorded.
        stream: Option<u64>,
        /// Bytes.
        len: u64,
    },
    /// `connection_data_blocked_updated`.
    DataBlockedUpdated {
        /// The limit; `None` means unblocked.
        reason: Option<Limit>,
    },
    /// `stream_data_blocked_updated`.
    StreamDataBlockedUpdated {
        /// Stream ID.
        stream: u64,
        /// The reason; `None` means unblocked.
        reason: Option<Limit>,
    },
    /// `migration_state_updated`.
    MigrationStateUpdated {
        /// The state as qlog names it.
        new: Name,
        /// The peer's address on that path.
        remote: Option<SocketAddr>,
    },
    /// `tuple_assigned`: packets are sent on another path now.
    TupleAssigned {
        /// The peer's address.
        remote: Option<SocketAddr>,
    },
    /// `timer_updated`.
    TimerUpdated {
        /// What the timer waits for, if recorded.
        kind: Option<TimerKind>,
        /// What happened to it.
        change: TimerChange,
    },
    /// `key_updated`.
    KeyUpdated {
        /// The packets the keys protect.
        kind: PacketType,
        /// The 1-RTT key phase.
        phase: Option<u64>,
        /// `tls`, `remote_update` or `local_update`.
        trigger: Option<Name>,
    },
    /// `key_discarded`.
    KeyDiscarded {
        /// The packets the keys protected.
        kind: PacketType,
    },
    /// `recovery_parameters_set`.
    RecoveryParametersSet(Box<RecoveryParameters>),
    /// `recovery_metrics_updated`.
    RecoveryMetricsUpdated(Box<Metrics>),
    /// `congestion_state_updated`.
    CongestionStateUpdated {
        /// The state before.
        old: Option<Name>,
        /// The new state, for instance `slow_start`.
        new: Name,
        /// What caused the change.
        trigger: Option<Name>,
    },
    /// `ecn_state_updated`.
    EcnStateUpdated {
        /// The state before.
        old: Option<Name>,
        /// `testing`, `unknown`, `failed` or `capable`.
        new: Name,
    },
    /// `mtu_updated`.
    MtuUpdated {
        /// The maximum datagram size before.
        old: Option<u64>,
        /// The new maximum datagram size.
        new: u64,
    },
    /// `simulation:scenario`.
    Scenario {
        /// Its name.
        name: Name,
        /// Further details.
        details: Vec<(String, String)>,
    },
    /// `simulation:marker`.
    Marker {
        /// The kind of the marker.
        kind: Name,
        /// A description.
        message: Name,
    },
    /// The writer could not keep up: events are missing here.
    EventsDropped {
        /// The number of missing events.
        count: u64,
    },
    /// An event of another schema, or one that is not used.
    Other {
        /// Its name.
        name: Name,
    },
}

/// What the recovery timer waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TimerKind {
    /// The time threshold (RFC 9002 §6.1.2); qlog's `ack`.
    Loss,
    /// A probe (RFC 9002 §6.2); qlog's `pto`.
    Pto,
}

/// What happened to a timer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TimerChange {
    /// It was set to expire after this many nanoseconds, if recorded.
    Set(Option<u64>),
    /// It expired.
    Expired,
    /// It was cancelled.
    Cancelled,
}

impl EventData {
    /// The name in the newest draft.
    #[must_use]
    pub fn name(&self) -> &str {
        match self {
            Self::ConnectionStarted(_) => "quic:connection_started",
            Self::ConnectionClosed(_) => "quic:connection_closed",
            Self::ConnectionStateUpdated { .. } => "quic:connection_state_updated",
            Self::ParametersSet(_) => "quic:parameters_set",
            Self::VersionInformation { .. } => "quic:version_information",
            Self::AlpnInformation { .. } => "quic:alpn_information",
            Self::PacketSent(_) => "quic:packet_sent",
            Self::PacketReceived(_) => "quic:packet_received",
            Self::PacketDropped { .. } => "quic:packet_dropped",
            Self::PacketLost { .. } => "quic:packet_lost",
            Self::StreamDataRead { .. } => "quic:stream_data_moved",
            Self::DataBlockedUpdated { .. } => "quic:connection_data_blocked_updated",
            Self::StreamDataBlockedUpdated { .. } => "quic:stream_data_blocked_updated",
            Self::MigrationStateUpdated { .. } => "quic:migration_state_updated",
            Self::TupleAssigned { .. } => "quic:tuple_assigned",
            Self::TimerUpdated { .. } => "quic:timer_updated",
            Self::KeyUpdated { .. } => "quic:key_updated",
            Self::KeyDiscarded { .. } => "quic:key_discarded",
            Self::RecoveryParametersSet(_) => "quic:recovery_parameters_set",
            Self::RecoveryMetricsUpdated(_) => "quic:recovery_metrics_updated",
            Self::CongestionStateUpdated { .. } => "quic:congestion_state_updated",
            Self::EcnStateUpdated { .. } => "quic:ecn_state_updated",
            Self::MtuUpdated { .. } => "quic:mtu_updated",
            Self::Scenario { .. } => "simulation:scenario",
            Self::Marker { .. } => "simulation:marker",
            Self::EventsDropped { .. } => "loglevel:warning",
            Self::Other { name } => name,
        }
    }
}
