//! Events of a connection's start and end, and its parameters.

use std::net::SocketAddr;

use super::Name;

/// The end that recorded the trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// The end that sent the first Initial.
    Client,
    /// The end that accepted the connection.
    Server,
    /// An observer on the path.
    Network,
}

impl Role {
    /// Its name in qlog's `vantage_point`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Client => "client",
            Self::Server => "server",
            Self::Network => "network",
        }
    }
}

impl From<clearway_quic::Role> for Role {
    fn from(role: clearway_quic::Role) -> Self {
        match role {
            clearway_quic::Role::Client => Self::Client,
            clearway_quic::Role::Server => Self::Server,
        }
    }
}

/// The end that did something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Initiator {
    /// The end that recorded the trace.
    Local,
    /// Its peer.
    Remote,
}

impl Initiator {
    /// Its name in qlog.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Local => "local",
            Self::Remote => "remote",
        }
    }
}

/// `connection_started`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Started {
    /// The end that recorded the trace, for sinks that name files or colour lanes.
    pub role: Option<Role>,
    /// The local address; port 0 if it is not known.
    pub local: Option<SocketAddr>,
    /// The peer's address.
    pub remote: Option<SocketAddr>,
    /// The Destination Connection ID of the client's first Initial, in hex.
    pub original_dcid: Option<String>,
    /// The local end's first source connection ID, in hex.
    pub local_cid: Option<String>,
}

/// `connection_closed`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Closed {
    /// Which end closed.
    pub initiator: Option<Initiator>,
    /// `idle_timeout`, `application`, `error`, `version_mismatch`,
    /// `stateless_reset`, `aborted` or `unspecified`.
    pub trigger: Option<Name>,
    /// The error code sent or received.
    pub code: Option<u64>,
    /// Whether it is an application error code.
    pub application: bool,
    /// The reason phrase.
    pub reason: Option<String>,
}

/// `parameters_set`: one end's transport parameters (RFC 9000 §18.2).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Parameters {
    /// The end that declared them.
    pub initiator: Option<Initiator>,
    /// Milliseconds.
    pub max_idle_timeout: Option<u64>,
    /// Bytes.
    pub max_udp_payload_size: Option<u64>,
    /// Exponent of two.
    pub ack_delay_exponent: Option<u64>,
    /// Milliseconds.
    pub max_ack_delay: Option<u64>,
    /// Connection IDs.
    pub active_connection_id_limit: Option<u64>,
    /// Bytes.
    pub initial_max_data: Option<u64>,
    /// Bytes.
    pub initial_max_stream_data_bidi_local: Option<u64>,
    /// Bytes.
    pub initial_max_stream_data_bidi_remote: Option<u64>,
    /// Bytes.
    pub initial_max_stream_data_uni: Option<u64>,
    /// Streams.
    pub initial_max_streams_bidi: Option<u64>,
    /// Streams.
    pub initial_max_streams_uni: Option<u64>,
    /// Bytes (RFC 9221 §3).
    pub max_datagram_frame_size: Option<u64>,
    /// RFC 9000 §18.2.
    pub disable_active_migration: Option<bool>,
    /// RFC 9287 §3.
    pub grease_quic_bit: Option<bool>,
    /// draft-ietf-quic-reliable-stream-reset.
    pub reset_stream_at: Option<bool>,
}
