//! Frames (RFC 9000 §12.4, §19; RFC 9221; the extensions for ACK frequency and
//! reliable resets).

pub(crate) mod ack;
pub(crate) mod close;
pub(crate) mod data;
mod decode;
mod encode;
pub mod kind;
#[cfg(test)]
mod tests;

pub use ack::{Ack, EcnCounts, Ranges};
pub use decode::Frames;
pub(crate) use decode::check_not_empty;

use super::PacketKind;
use crate::Role;
use crate::cid::{ConnectionId, ResetToken};
use crate::error::{Code, TransportError};
use crate::wire::stream_id::{Directionality, StreamId};

/// Upper limit (exclusive) of a Requested Max Ack Delay: 2^14 milliseconds, in
/// microseconds (RFC 9000 §18.2, ACK frequency §4).
pub const MAX_ACK_DELAY_LIMIT_MICROS: u64 = (1 << 14) * 1000;

/// Packets that may carry a frame ("Pkts" in RFC 9000 §12.4 table 3).
#[derive(Clone, Copy)]
enum Packets {
    /// IH01.
    All,
    /// IH_1.
    AllButZeroRtt,
    /// __01.
    ZeroAndOneRtt,
    /// ___1.
    OneRtt,
}

/// The rules for a frame type.
struct Rules {
    packets: Packets,
    ack_eliciting: bool,
    probing: bool,
}

/// One frame of a packet's payload, borrowing from it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Frame<'a> {
    /// A run of PADDING frames (§19.1).
    Padding {
        /// How many of them, one byte each.
        len: usize,
    },
    /// Asks for an acknowledgment (§19.2).
    Ping,
    /// Acknowledges packets (§19.3).
    Ack(Ack<'a>),
    /// The sender resets its sending part of a stream (§19.4).
    ResetStream {
        /// Which stream.
        id: StreamId,
        /// The application error code.
        code: u64,
        /// The final size of the stream in bytes.
        final_size: u64,
    },
    /// The sender resets its sending part of a stream, except for the data before an offset
    /// (draft-ietf-quic-reliable-stream-reset §4).
    ResetStreamAt {
        /// Which stream.
        id: StreamId,
        /// The application error code.
        code: u64,
        /// The final size of the stream in bytes.
        final_size: u64,
        /// Bytes that are delivered nevertheless; at most `final_size`.
        reliable_size: u64,
    },
    /// Asks the peer to stop sending on a stream (§19.5).
    StopSending {
        /// Which stream.
        id: StreamId,
        /// The application error code.
        code: u64,
    },
    /// TLS handshake data (§19.6).
    Crypto {
        /// The offset of the first byte.
        offset: u64,
        /// The bytes.
        data: &'a [u8],
    },
    /// An address-validation token for a later connection (§19.7).
    NewToken(&'a [u8]),
    /// Stream data (§19.8).
    Stream {
        /// Which stream.
        id: StreamId,
        /// The offset of the first byte.
        offset: u64,
        /// Whether this is the end of the stream.
        fin: bool,
        /// The bytes.
        data: &'a [u8],
    },
    /// The flow control limit of the connection in bytes (§19.9).
    MaxData(u64),
    /// The flow control limit of a stream (§19.10).
    MaxStreamData {
        /// Which stream.
        id: StreamId,
        /// Bytes that may be sent in total.
        limit: u64,
    },
    /// The number of streams that may be opened in total (§19.11).
    MaxStreams {
        /// The directionality of the streams.
        directionality: Directionality,
        /// At most 2^60.
        limit: u64,
    },
    /// The sender is blocked by the limit of the connection (§19.12).
    DataBlocked {
        /// The limit it is blocked at.
        limit: u64,
    },
    /// The sender is blocked by the limit of a stream (§19.13).
    StreamDataBlocked {
        /// Which stream.
        id: StreamId,
        /// The limit it is blocked at.
        limit: u64,
    },
    /// The sender is blocked by the stream limit (§19.14).
    StreamsBlocked {
        /// The directionality of the streams.
        directionality: Directionality,
        /// The limit it is blocked at.
        limit: u64,
    },
    /// A new connection ID of the sender (§19.15).
    NewConnectionId {
        /// Its sequence number.
        sequence: u64,
        /// Connection IDs with lower sequence numbers have to be retired; at most `sequence`.
        retire_prior_to: u64,
        /// 1 to 20 bytes.
        cid: ConnectionId,
        /// Its stateless reset token.
        reset_token: ResetToken,
    },
    /// The sender no longer uses this connection ID of the receiver (§19.16).
    RetireConnectionId {
        /// Its sequence number.
        sequence: u64,
    },
    /// Asks whether the peer is reachable on this path (§19.17).
    PathChallenge([u8; 8]),
    /// Echoes a PATH_CHALLENGE (§19.18).
    PathResponse([u8; 8]),
    /// Closes the connection with a transport error (§19.19, type 0x1c).
    ConnectionClose {
        /// The error code.
        code: Code,
        /// The frame type at fault; 0 if unknown.
        frame_type: u64,
        /// The reason phrase, which should be UTF-8.
        reason: &'a [u8],
    },
    /// Closes the connection with an application error (§19.19, type 0x1d).
    ApplicationClose {
        /// The application error code.
        code: u64,
        /// The reason phrase, which should be UTF-8.
        reason: &'a [u8],
    },
    /// The server confirms the handshake (§19.20).
    HandshakeDone,
    /// An unreliable message (RFC 9221 §4).
    Datagram(&'a [u8]),
    /// When to acknowledge (ACK frequency §4).
    AckFrequency {
        /// Sequence number of the frame: only the highest is valid.
        sequence: u64,
        /// Number of ack-eliciting packets that may be received without an acknowledgment.
        ack_eliciting_threshold: u64,
        /// The requested delay in microseconds, below 2^14 ms. The connection rejects a value below
        /// the `min_ack_delay` that we sent.
        request_max_ack_delay: u64,
        /// Reordering that has to be acknowledged at once; 0 for none.
        reordering_threshold: u64,
    },
    /// Asks for an acknowledgment at once (ACK frequency §5).
    ImmediateAck,
}

impl Frame<'_> {
    /// Returns the type that an error about this frame names. Flags that do not change
    /// the frame's meaning (those of STREAM and DATAGRAM, which say how it was
    /// written) are left out, except FIN.
    #[must_use]
    pub const fn frame_type(&self) -> u64 {
        match self {
            Self::Padding { .. } => kind::PADDING,
            Self::Ping => kind::PING,
            Self::Ack(ack) if ack.ecn.is_some() => kind::ACK_ECN,
            Self::Ack(_) => kind::ACK,
            Self::ResetStream { .. } => kind::RESET_STREAM,
            Self::ResetStreamAt { .. } => kind::RESET_STREAM_AT,
            Self::StopSending { .. } => kind::STOP_SENDING,
            Self::Crypto { .. } => kind::CRYPTO,
            Self::NewToken(_) => kind::NEW_TOKEN,
            Self::Stream { fin: true, .. } => kind::STREAM | kind::STREAM_FIN,
            Self::Stream { fin: false, .. } => kind::STREAM,
            Self::MaxData(_) => kind::MAX_DATA,
            Self::MaxStreamData { .. } => kind::MAX_STREAM_DATA,
            Self::MaxStreams { directionality, .. } => match directionality {
                Directionality::Bidirectional => kind::MAX_STREAMS_BIDI,
                Directionality::Unidirectional => kind::MAX_STREAMS_UNI,
            },
            Self::DataBlocked { .. } => kind::DATA_BLOCKED,
            Self::StreamDataBlocked { .. } => kind::STREAM_DATA_BLOCKED,
            Self::StreamsBlocked { directionality, .. } => match directionality {
                Directionality::Bidirectional => kind::STREAMS_BLOCKED_BIDI,
                Directionality::Unidirectional => kind::STREAMS_BLOCKED_UNI,
            },
            Self::NewConnectionId { .. } => kind::NEW_CONNECTION_ID,
            Self::RetireConnectionId { .. } => kind::RETIRE_CONNECTION_ID,
            Self::PathChallenge(_) => kind::PATH_CHALLENGE,
            Self::PathResponse(_) => kind::PATH_RESPONSE,
            Self::ConnectionClose { .. } => kind::CONNECTION_CLOSE,
            Self::ApplicationClose { .. } => kind::APPLICATION_CLOSE,
            Self::HandshakeDone => kind::HANDSHAKE_DONE,
            Self::Datagram(_) => kind::DATAGRAM,
            Self::AckFrequency { .. } => kind::ACK_FREQUENCY,
            Self::ImmediateAck => kind::IMMEDIATE_ACK,
        }
    }

    /// Returns the rules for the frame: its row of RFC 9000 §12.4 table 3.
    const fn rules(&self) -> Rules {
        use Packets::{All, AllButZeroRtt, OneRtt, ZeroAndOneRtt};
        let (packets, ack_eliciting, probing) = match self {
            Self::Padding { .. } => (All, false, true),
            Self::Ping => (All, true, false),
            Self::ConnectionClose { .. } => (All, false, false),
            Self::Ack(_) => (AllButZeroRtt, false, false),
            Self::Crypto { .. } => (AllButZeroRtt, true, false),
            Self::ResetStream { .. }
            | Self::ResetStreamAt { .. }
            | Self::StopSending { .. }
            | Self::Stream { .. }
            | Self::MaxData(_)
            | Self::MaxStreamData { .. }
            | Self::MaxStreams { .. }
            | Self::DataBlocked { .. }
            | Self::StreamDataBlocked { .. }
            | Self::StreamsBlocked { .. }
            | Self::Datagram(_) => (ZeroAndOneRtt, true, false),
            Self::NewConnectionId { .. } | Self::PathChallenge(_) => (ZeroAndOneRtt, true, true),
            Self::ApplicationClose { .. } => (ZeroAndOneRtt, false, false),
            Self::PathResponse(_) => (OneRtt, true, true),
            // The table allows RETIRE_CONNECTION_ID in 0-RTT packets, but §12.5 says that it
            // cannot occur there and may be treated as an error. The ACK frequency frames need a
            // parameter that is not remembered for 0-RTT.
            Self::NewToken(_)
            | Self::RetireConnectionId { .. }
            | Self::HandshakeDone
            | Self::AckFrequency { .. }
            | Self::ImmediateAck => (OneRtt, true, false),
        };
        Rules {
            packets,
            ack_eliciting,
            probing,
        }
    }

    /// Returns whether a packet with this frame has to be acknowledged (RFC 9002 §2).
    #[must_use]
    pub const fn is_ack_eliciting(&self) -> bool {
        self.rules().ack_eliciting
    }

    /// Returns whether this is a probing frame: packets with only such frames do not cause a migration
    /// (RFC 9000 §9.1).
    #[must_use]
    pub const fn is_probing(&self) -> bool {
        self.rules().probing
    }

    /// Returns whether packets of this type may carry the frame (RFC 9000 §12.4 table 3, §12.5).
    #[must_use]
    pub const fn allowed_in(&self, packet: PacketKind) -> bool {
        match (self.rules().packets, packet) {
            (Packets::All, _) | (_, PacketKind::OneRtt) => true,
            (Packets::AllButZeroRtt, kind) => !matches!(kind, PacketKind::ZeroRtt),
            (Packets::ZeroAndOneRtt, kind) => matches!(kind, PacketKind::ZeroRtt),
            (Packets::OneRtt, _) => false,
        }
    }

    /// Returns whether `sender` may send the frame. Only servers send NEW_TOKEN and HANDSHAKE_DONE
    /// (RFC 9000 §19.7, §19.20).
    #[must_use]
    pub const fn allowed_from(&self, sender: Role) -> bool {
        match (self, sender) {
            (Self::NewToken(_) | Self::HandshakeDone, Role::Client) => false,
            (_, Role::Client | Role::Server) => true,
        }
    }

    /// Checks [`Frame::allowed_in`] and [`Frame::allowed_from`].
    ///
    /// # Errors
    /// PROTOCOL_VIOLATION (RFC 9000 §12.4).
    pub fn check_allowed(&self, packet: PacketKind, sender: Role) -> Result<(), TransportError> {
        let reason = if !self.allowed_in(packet) {
            "frame not allowed in this packet type"
        } else if !self.allowed_from(sender) {
            "frame that only a server may send"
        } else {
            return Ok(());
        };
        Err(TransportError::new(Code::PROTOCOL_VIOLATION, reason).in_frame(self.frame_type()))
    }
}
