//! Summaries of frames, without the data they carry.

use clearway_quic::stream::Directionality;
use smallvec::SmallVec;

use super::Name;

/// Acknowledged packet numbers, both ends included, in no particular order.
pub type AckRanges = SmallVec<[(u64, u64); 2]>;

/// A frame. Sizes, offsets and limits are bytes.
#[derive(Clone, Debug, PartialEq)]
pub enum Frame {
    /// A run of PADDING.
    Padding {
        /// Number of bytes.
        len: u64,
    },
    /// PING.
    Ping,
    /// ACK.
    Ack {
        /// The acknowledgement delay, in nanoseconds.
        delay: Option<u64>,
        /// The packet numbers it acknowledges.
        ranges: AckRanges,
        /// Counts of ECT(0), ECT(1) and CE.
        ecn: Option<[u64; 3]>,
    },
    /// RESET_STREAM.
    ResetStream {
        /// Stream ID.
        stream: u64,
        /// Application error code.
        code: u64,
        /// Final size of the stream.
        final_size: u64,
    },
    /// RESET_STREAM_AT (draft-ietf-quic-reliable-stream-reset).
    ResetStreamAt {
        /// Stream ID.
        stream: u64,
        /// Application error code.
        code: u64,
        /// Final size of the stream.
        final_size: u64,
        /// Bytes from the start of the stream that are delivered all the same.
        reliable_size: u64,
    },
    /// STOP_SENDING.
    StopSending {
        /// Stream ID.
        stream: u64,
        /// Application error code.
        code: u64,
    },
    /// CRYPTO.
    Crypto {
        /// Offset of the first byte.
        offset: u64,
        /// Bytes.
        len: u64,
    },
    /// NEW_TOKEN.
    NewToken {
        /// Bytes.
        len: u64,
    },
    /// STREAM.
    Stream {
        /// Stream ID.
        stream: u64,
        /// Offset of the first byte.
        offset: u64,
        /// Bytes.
        len: u64,
        /// Whether FIN is set.
        fin: bool,
    },
    /// MAX_DATA.
    MaxData {
        /// The limit.
        limit: u64,
    },
    /// MAX_STREAM_DATA.
    MaxStreamData {
        /// Stream ID.
        stream: u64,
        /// The limit.
        limit: u64,
    },
    /// MAX_STREAMS.
    MaxStreams {
        /// The direction of the streams.
        kind: Directionality,
        /// The limit.
        limit: u64,
    },
    /// DATA_BLOCKED.
    DataBlocked {
        /// The limit at which it is blocked.
        limit: u64,
    },
    /// STREAM_DATA_BLOCKED.
    StreamDataBlocked {
        /// Stream ID.
        stream: u64,
        /// The limit at which it is blocked.
        limit: u64,
    },
    /// STREAMS_BLOCKED.
    StreamsBlocked {
        /// The direction of the streams.
        kind: Directionality,
        /// The limit at which it is blocked.
        limit: u64,
    },
    /// NEW_CONNECTION_ID.
    NewConnectionId {
        /// Sequence number.
        sequence: u64,
        /// Retire Prior To: IDs with smaller sequence numbers are retired.
        retire_prior_to: u64,
        /// In hex.
        cid: String,
    },
    /// RETIRE_CONNECTION_ID.
    RetireConnectionId {
        /// Sequence number.
        sequence: u64,
    },
    /// PATH_CHALLENGE.
    PathChallenge,
    /// PATH_RESPONSE.
    PathResponse,
    /// CONNECTION_CLOSE of either kind.
    ConnectionClose {
        /// Whether it is an application error code.
        application: bool,
        /// The error code.
        code: u64,
        /// The reason phrase.
        reason: String,
    },
    /// HANDSHAKE_DONE.
    HandshakeDone,
    /// DATAGRAM.
    Datagram {
        /// Bytes.
        len: u64,
    },
    /// ACK_FREQUENCY.
    AckFrequency {
        /// Sequence number.
        sequence: u64,
        /// Number of ack-eliciting packets that may be received without an acknowledgement, if
        /// recorded.
        threshold: Option<u64>,
        /// The requested maximum acknowledgement delay in nanoseconds, if recorded.
        max_delay: Option<u64>,
        /// Reordering that is acknowledged at once, in packets; 0 for none.
        reordering: Option<u64>,
    },
    /// IMMEDIATE_ACK.
    ImmediateAck,
    /// A frame that this crate does not know.
    Unknown {
        /// As the trace names it.
        name: Name,
    },
}

impl Frame {
    /// An ACK of these ranges, with nothing else known.
    pub fn ack(ranges: impl IntoIterator<Item = (u64, u64)>) -> Self {
        Self::Ack {
            delay: None,
            ranges: ranges.into_iter().collect(),
            ecn: None,
        }
    }

    /// As qlog names it.
    #[must_use]
    pub fn name(&self) -> &str {
        match self {
            Self::Padding { .. } => "padding",
            Self::Ping => "ping",
            Self::Ack { .. } => "ack",
            Self::ResetStream { .. } => "reset_stream",
            Self::ResetStreamAt { .. } => "reset_stream_at",
            Self::StopSending { .. } => "stop_sending",
            Self::Crypto { .. } => "crypto",
            Self::NewToken { .. } => "new_token",
            Self::Stream { .. } => "stream",
            Self::MaxData { .. } => "max_data",
            Self::MaxStreamData { .. } => "max_stream_data",
            Self::MaxStreams { .. } => "max_streams",
            Self::DataBlocked { .. } => "data_blocked",
            Self::StreamDataBlocked { .. } => "stream_data_blocked",
            Self::StreamsBlocked { .. } => "streams_blocked",
            Self::NewConnectionId { .. } => "new_connection_id",
            Self::RetireConnectionId { .. } => "retire_connection_id",
            Self::PathChallenge => "path_challenge",
            Self::PathResponse => "path_response",
            Self::ConnectionClose { .. } => "connection_close",
            Self::HandshakeDone => "handshake_done",
            Self::Datagram { .. } => "datagram",
            Self::AckFrequency { .. } => "ack_frequency",
            Self::ImmediateAck => "immediate_ack",
            Self::Unknown { name } => name,
        }
    }

    /// Whether a packet with it is ack-eliciting (RFC 9002 §2).
    #[must_use]
    pub const fn is_ack_eliciting(&self) -> bool {
        match self {
            Self::Padding { .. } | Self::Ack { .. } | Self::ConnectionClose { .. } => false,
            Self::Ping
            | Self::ResetStream { .. }
            | Self::ResetStreamAt { .. }
            | Self::StopSending { .. }
            | Self::Crypto { .. }
            | Self::NewToken { .. }
            | Self::Stream { .. }
            | Self::MaxData { .. }
            | Self::MaxStreamData { .. }
            | Self::MaxStreams { .. }
            | Self::DataBlocked { .. }
            | Self::StreamDataBlocked { .. }
            | Self::StreamsBlocked { .. }
            | Self::NewConnectionId { .. }
            | Self::RetireConnectionId { .. }
            | Self::PathChallenge
            | Self::PathResponse
            | Self::HandshakeDone
            | Self::Datagram { .. }
            | Self::AckFrequency { .. }
            | Self::ImmediateAck
            | Self::Unknown { .. } => true,
        }
    }
}
