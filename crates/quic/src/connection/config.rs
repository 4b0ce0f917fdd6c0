//! How a connection behaves.

use core::time::Duration;

use clearway_recovery::congestion::Algorithm;

use crate::ack::DEFAULT_ACK_THRESHOLD;
use crate::stream;

/// Transport settings of a connection. Every default is meant to be left alone.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Config {
    /// Stream counts, windows and memory budgets.
    pub streams: stream::Config,
    /// Congestion controller.
    pub controller: Algorithm,
    /// Close after this long without a packet from the peer; zero = never
    /// (RFC 9000 §10.1). The smaller of both ends' values holds.
    pub idle_timeout: Duration,
    /// Send a PING after this long without one from the peer, so that the idle
    /// timeout never strikes (RFC 9000 §10.1.2).
    pub keep_alive: Option<Duration>,
    /// RTT assumed before the first sample (RFC 9002 §6.2.2).
    pub initial_rtt: Duration,
    /// Longest delay of our acknowledgements (RFC 9000 §13.2.1).
    pub max_ack_delay: Duration,
    /// Offer and use the ACK frequency extension (draft-ietf-quic-ack-frequency).
    pub ack_frequency: bool,
    /// Ack-eliciting packets that make an acknowledgement due until the peer
    /// asks for another number; at least 1 (RFC 9000 §13.2.2).
    pub ack_threshold: u64,
    /// Largest UDP payload to search for, in bytes (RFC 9000 §14.3).
    pub max_mtu: u16,
    /// Search for a larger MTU than 1,200 bytes.
    pub mtu_discovery: bool,
    /// Largest UDP payload we take, in bytes.
    pub max_udp_payload: u16,
    /// Mark packets ECT(0) and act on CE marks (RFC 9000 §13.4).
    pub ecn: bool,
    /// DATAGRAM frames: bytes queued at most each way; 0 = not offered.
    pub datagram_buffer: usize,
    /// Connection IDs of the peer that we keep (RFC 9000 §5.1.1).
    pub active_connection_id_limit: u64,
    /// Whether the peer may migrate (RFC 9000 §9.1).
    pub allow_migration: bool,
    /// Reserved versions, transport parameters and the QUIC bit, to keep the
    /// extension points open (RFC 9287, RFC 9000 §18.1).
    pub grease: bool,
    /// Start a key update after this many packets in one phase; the limits of
    /// RFC 9001 §6.6 hold in any case.
    pub key_update_after: Option<u64>,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            streams: stream::Config::default(),
            controller: Algorithm::default(),
            idle_timeout: Duration::from_secs(30),
            keep_alive: None,
            initial_rtt: Duration::from_millis(333),
            max_ack_delay: Duration::from_millis(25),
            ack_frequency: true,
            ack_threshold: DEFAULT_ACK_THRESHOLD,
            max_mtu: 1452,
            mtu_discovery: true,
            max_udp_payload: 65_527,
            ecn: true,
            datagram_buffer: 1 << 20,
            active_connection_id_limit: 8,
            allow_migration: true,
            grease: true,
            key_update_after: None,
        }
    }
}
