//! Who talks to whom, under which terms, and how it ended.

use std::net::SocketAddr;

use super::Name;

/// Whose trace it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// The end that sent the first Initial.
    Client,
    /// The end that answered it.
    Server,
    /// Somebody on the way.
    Network,
}

impl Role {
    /// As qlog's `vantage_point` names it.
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

/// Which end did something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Initiator {
    /// The one whose trace it is.
    Local,
    /// Its peer.
    Remote,
}

impl Initiator {
    /// As qlog names it.
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
    /// Which end this is, for sinks that name files or colour lanes.
    pub role: Option<Role>,
    /// The local address; port 0 where it is not known.
    pub local: Option<SocketAddr>,
    /// The peer's address.
    pub remote: Option<SocketAddr>,
    /// The Destination Connection ID of the client's first Initial, in hex.
    pub original_dcid: Option<String>,
    /// What the local end calls itself, in hex.
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
    /// The code sent or received.
    pub code: Option<u64>,
    /// Whether the code is the application's.
    pub application: bool,
    /// In words.
    pub reason: Option<String>,
}

/// `parameters_set`: one end's transport parameters (RFC 9000 §18.2).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Parameters {
    /// Whose.
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
}
