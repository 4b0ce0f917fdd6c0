//! Frames (RFC 9000 §12.4, §19; RFC 9221; the ACK frequency extension).

pub mod ack;
pub mod close;
pub mod data;
mod decode;
mod encode;
pub mod kind;
#[cfg(test)]
mod tests;

pub use ack::{Ack, EcnCounts};
pub use decode::{Frames, check_not_empty};

use super::PacketKind;
use crate::Role;
use crate::cid::{ConnectionId, ResetToken};
use crate::error::{Code, TransportError};
use crate::stream::{Directionality, StreamId};

/// A Requested Max Ack Delay has to stay below this: 2^14 milliseconds, in
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

/// What holds for frames of a type.
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
    /// The sender gives up the sending part of a stream (§19.4).
    ResetStream {
        /// Which stream.
        id: StreamId,
        /// The application's reason.
        code: u64,
        /// How many bytes the stream had.
        final_size: u64,
    },
    /// The receiver wants no more of a stream (§19.5).
    StopSending {
        /// Which stream.
        id: StreamId,
        /// The application's reason.
        code: u64,
    },
    /// Handshake bytes (§19.6).
    Crypto {
        /// Where they go.
        offset: u64,
        /// The bytes.
        data: &'a [u8],
    },
    /// An address-validation token for a later connection (§19.7).
    NewToken(&'a [u8]),
    /// Stream bytes (§19.8).
    Stream {
        /// Which stream.
        id: StreamId,
        /// Where they go.
        offset: u64,
        /// Whether the stream ends behind them.
        fin: bool,
        /// The bytes.
        data: &'a [u8],
    },
    /// Connection credit in bytes (§19.9).
    MaxData(u64),
    /// Stream credit (§19.10).
    MaxStreamData {
        /// Which stream.
        id: StreamId,
        /// Bytes that may be sent in total.
        limit: u64,
    },
    /// How many streams may be opened in total (§19.11).
    MaxStreams {
        /// Of which kind.
        directionality: Directionality,
        /// At most 2^60.
        limit: u64,
    },
    /// The sender lacks connection credit (§19.12).
    DataBlocked {
        /// The limit it is blocked at.
        limit: u64,
    },
    /// The sender lacks stream credit (§19.13).
    StreamDataBlocked {
        /// Which stream.
        id: StreamId,
        /// The limit it is blocked at.
        limit: u64,
    },
    /// The sender may open no more streams (§19.14).
    StreamsBlocked {
        /// Of which kind.
        directionality: Directionality,
        /// The limit it is blocked at.
        limit: u64,
    },
    /// A connection ID to address the sender with (§19.15).
    NewConnectionId {
        /// Its number.
        sequence: u64,
        /// Older ones are to be retired; at most `sequence`.
        retire_prior_to: u64,
        /// 1 to 20 bytes.
        cid: ConnectionId,
        /// What a stateless reset for it ends in.
        reset_token: ResetToken,
    },
    /// A connection ID of the receiver's is no longer used (§19.16).
    RetireConnectionId {
        /// Its number.
        sequence: u64,
    },
    /// Asks whether the peer is reachable on this path (§19.17).
    PathChallenge([u8; 8]),
    /// Echoes a PATH_CHALLENGE (§19.18).
    PathResponse([u8; 8]),
    /// Closes the connection for a transport reason (§19.19, type 0x1c).
    ConnectionClose {
        /// Why.
        code: Code,
        /// The frame type at fault; 0 if unknown.
        frame_type: u64,
        /// In words, hopefully UTF-8.
        reason: &'a [u8],
    },
    /// Closes the connection for an application's reason (§19.19, type 0x1d).
    ApplicationClose {
        /// The application's code.
        code: u64,
        /// In words, hopefully UTF-8.
        reason: &'a [u8],
    },
    /// The server confirms the handshake (§19.20).
    HandshakeDone,
    /// An unreliable message (RFC 9221 §4).
    Datagram(&'a [u8]),
    /// When to acknowledge (ACK frequency §4).
    AckFrequency {
        /// Only the highest counts.
        sequence: u64,
        /// Ack-eliciting packets that may go without an acknowledgment.
        ack_eliciting_threshold: u64,
        /// The delay asked for, in microseconds, below 2^14 ms. One below the
        /// `min_ack_delay` we sent is for the connection to refuse.
        request_max_ack_delay: u64,
        /// Reordering that is acknowledged at once; 0 for none.
        reordering_threshold: u64,
    },
    /// Asks for an acknowledgment at once (ACK frequency §5).
    ImmediateAck,
}

impl Frame<'_> {
    /// The type that an error about this frame names. Flags that do not change
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

    /// Its row of RFC 9000 §12.4 table 3.
    const fn rules(&self) -> Rules {
        use Packets::{All, AllButZeroRtt, OneRtt, ZeroAndOneRtt};
        let (packets, ack_eliciting, probing) = match self {
            Self::Padding { .. } => (All, false, true),
            Self::Ping => (All, true, false),
            Self::ConnectionClose { .. } => (All, false, false),
            Self::Ack(_) => (AllButZeroRtt, false, false),
            Self::Crypto { .. } => (AllButZeroRtt, true, false),
            Self::ResetStream { .. }
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
            // The table would have RETIRE_CONNECTION_ID in 0-RTT packets; §12.5
            // says that it cannot occur there and may be refused. The ACK
            // frequency frames answer a parameter that is never remembered.
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

    /// Whether a packet with it has to be acknowledged (RFC 9002 §2).
    #[must_use]
    pub const fn is_ack_eliciting(&self) -> bool {
        self.rules().ack_eliciting
    }

    /// Whether a packet of such frames only probes a path and does not migrate
    /// to it (RFC 9000 §9.1).
    #[must_use]
    pub const fn is_probing(&self) -> bool {
        self.rules().probing
    }

    /// Whether such a packet may carry it (RFC 9000 §12.4 table 3, §12.5).
    #[must_use]
    pub const fn allowed_in(&self, packet: PacketKind) -> bool {
        match (self.rules().packets, packet) {
            (Packets::All, _) | (_, PacketKind::OneRtt) => true,
            (Packets::AllButZeroRtt, kind) => !matches!(kind, PacketKind::ZeroRtt),
            (Packets::ZeroAndOneRtt, kind) => matches!(kind, PacketKind::ZeroRtt),
            (Packets::OneRtt, _) => false,
        }
    }

    /// Whether such an end may send it: NEW_TOKEN and HANDSHAKE_DONE are a
    /// server's (RFC 9000 §19.7, §19.20).
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
            "frame only a server may send"
        } else {
            return Ok(());
        };
        Err(TransportError::new(Code::PROTOCOL_VIOLATION, reason).in_frame(self.frame_type()))
    }
}
