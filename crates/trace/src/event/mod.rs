//! The one schema: what a connection's trace is made of.
//!
//! Names and meanings are those of qlog's quic events
//! (draft-ietf-quic-qlog-quic-events-13), so that a live connection, a file of
//! ours and a file of another stack's are one thing to everything downstream.
//! What a foreign trace does not say is `None`; nothing is guessed here.

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

/// A word of the schema: ours are static, a file's are not.
pub type Name = Cow<'static, str>;

/// Something that happened.
#[derive(Clone, Debug, PartialEq)]
pub struct Event {
    /// When, in nanoseconds since the trace's reference: for live traces the
    /// connection's first event.
    pub time: u64,
    /// What.
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
        /// As qlog names it, for instance `handshake_confirmed`.
        new: Name,
    },
    /// `parameters_set`: transport parameters.
    ParametersSet(Box<Parameters>),
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
        /// Its type, if that could be told.
        kind: Option<PacketType>,
        /// Bytes.
        size: Option<u64>,
        /// Why.
        trigger: Option<Name>,
    },
    /// `packet_lost`.
    PacketLost {
        /// Its type.
        kind: PacketType,
        /// Its number.
        number: u64,
        /// Bytes.
        size: Option<u64>,
        /// Whether it probed the path MTU, which is no sign of congestion.
        mtu_probe: bool,
        /// `reordering_threshold`, `time_threshold`, `pto_expired`; ours also
        /// says `withdrawn`: given up with its path or its keys.
        trigger: Option<Name>,
    },
    /// `stream_data_moved` from the transport to the application.
    StreamDataRead {
        /// The stream, where it is said.
        stream: Option<u64>,
        /// Bytes.
        len: u64,
    },
    /// `connection_data_blocked_updated`.
    DataBlockedUpdated {
        /// The reason for not sending; `None` = unblocked.
        reason: Option<Limit>,
    },
    /// `stream_data_blocked_updated`.
    StreamDataBlockedUpdated {
        /// Which stream.
        stream: u64,
        /// The reason; `None` = unblocked.
        reason: Option<Limit>,
    },
    /// `migration_state_updated`.
    MigrationStateUpdated {
        /// As qlog names it.
        new: Name,
        /// The peer's address on that path.
        remote: Option<SocketAddr>,
    },
    /// `tuple_assigned`: packets go elsewhere now.
    TupleAssigned {
        /// The peer's address.
        remote: Option<SocketAddr>,
    },
    /// `timer_updated`.
    TimerUpdated {
        /// What the timer waits for, where it is said.
        kind: Option<TimerKind>,
        /// What became of it.
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
        /// Where the controller was.
        old: Option<Name>,
        /// Where it is, for instance `slow_start`.
        new: Name,
        /// What brought it there.
        trigger: Option<Name>,
    },
    /// `ecn_state_updated`.
    EcnStateUpdated {
        /// What it was.
        old: Option<Name>,
        /// `testing`, `unknown`, `failed` or `capable`.
        new: Name,
    },
    /// `mtu_updated`.
    MtuUpdated {
        /// The maximum datagram size before.
        old: Option<u64>,
        /// From now on.
        new: u64,
    },
    /// `simulation:scenario`.
    Scenario {
        /// Its name.
        name: Name,
        /// What else is said of it.
        details: Vec<(String, String)>,
    },
    /// `simulation:marker`.
    Marker {
        /// What kind of thing.
        kind: Name,
        /// In words.
        message: Name,
    },
    /// The writer could not keep up: so many events are missing here.
    EventsDropped {
        /// How many.
        count: u64,
    },
    /// An event of a schema that is not ours, or of no use here.
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

/// What became of a timer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TimerChange {
    /// It fires after so many nanoseconds, where that is said.
    Set(Option<u64>),
    /// It fired.
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
