//! Counters of a connection.

/// Counts since the connection began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Counters {
    /// UDP datagrams sent.
    pub datagrams_sent: u64,
    /// UDP payload bytes sent.
    pub bytes_sent: u64,
    /// QUIC packets sent.
    pub packets_sent: u64,
    /// UDP datagrams received.
    pub datagrams_received: u64,
    /// UDP payload bytes received.
    pub bytes_received: u64,
    /// QUIC packets that authenticated.
    pub packets_received: u64,
    /// QUIC packets dropped without being processed, for any
    /// [reason](crate::event::DropReason).
    pub packets_dropped: u64,
    /// Tokens ignored because they are too long: those in a Retry that would not fit into an
    /// Initial packet (`wire::retry::MAX_TOKEN_LEN`), which is then discarded, and those in a NEW_TOKEN frame
    /// over 512 bytes (`client_sessions::MAX_TOKEN_LEN`).
    pub oversized_tokens: u64,
    /// Packets declared lost, MTU probes not counted.
    pub packets_lost: u64,
    /// Packets declared lost that were acknowledged after all.
    pub spurious_losses: u64,
    /// Probe timeouts (RFC 9002 §6.2).
    pub ptos: u64,
    /// DATAGRAM frames in lost packets.
    pub datagram_frames_lost: u64,
    /// Times the active path changed.
    pub migrations: u64,
    /// Times the maximum datagram size changed.
    pub mtu_changes: u64,
    /// CE marks the peer reported.
    pub ce_marks: u64,
    /// Paths given up to make room, because the peer probed more than are kept.
    pub paths_evicted: u64,
    /// PATH_CHALLENGE frames left unanswered because more arrived than are kept.
    pub unanswered_challenges: u64,
    /// Key updates initiated by either end.
    pub key_updates: u64,
    /// Key updates initiated by the peer.
    pub peer_key_updates: u64,
}
