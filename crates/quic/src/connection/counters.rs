//! What a connection counts.

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
    /// QUIC packets not processed, for whatever reason.
    pub packets_dropped: u64,
    /// Tokens not used because they are too long: in a Retry over
    /// [`retry::MAX_TOKEN_LEN`](crate::wire::retry::MAX_TOKEN_LEN), which was
    /// discarded, or in a NEW_TOKEN frame over
    /// [`client_sessions::MAX_TOKEN_LEN`](crate::crypto::client_sessions::MAX_TOKEN_LEN).
    pub oversized_tokens: u64,
    /// Packets declared lost (MTU probes aside).
    pub packets_lost: u64,
    /// Of those, acknowledged after all.
    pub spurious_losses: u64,
    /// Probe timeouts.
    pub ptos: u64,
    /// DATAGRAM frames in lost packets.
    pub datagram_frames_lost: u64,
    /// Times the active path changed.
    pub migrations: u64,
    /// Times the maximum datagram size changed.
    pub mtu_changes: u64,
    /// CE marks the peer reported.
    pub ce_marks: u64,
    /// Paths given up because more were probed than are kept.
    pub paths_evicted: u64,
    /// PATH_CHALLENGE frames that went without an answer because more came than
    /// are kept.
    pub unanswered_challenges: u64,
    /// Key updates, either side's.
    pub key_updates: u64,
    /// Of those, the peer's.
    pub peer_key_updates: u64,
}
