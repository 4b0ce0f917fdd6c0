//! The record of a sent packet's frames, kept in the ledger until it is acknowledged or
//! lost.

use smallvec::SmallVec;

use crate::stream::StreamContent;

/// A frame of a sent packet whose fate matters. Frames that are never retransmitted and
/// whose acknowledgement has no effect (PADDING, PING, PATH_CHALLENGE, PATH_RESPONSE,
/// CONNECTION_CLOSE) are not recorded (RFC 9000 §13.3).
#[derive(Clone, Copy, Debug)]
pub(crate) enum SentFrame {
    /// A frame of a stream or of flow control.
    Stream(StreamContent),
    /// CRYPTO bytes of the packet's own space.
    Crypto {
        /// First byte.
        offset: u64,
        /// Bytes.
        len: u16,
    },
    /// HANDSHAKE_DONE.
    HandshakeDone,
    /// NEW_TOKEN.
    NewToken,
    /// NEW_CONNECTION_ID with this sequence number.
    NewConnectionId(u64),
    /// RETIRE_CONNECTION_ID with this sequence number.
    RetireConnectionId(u64),
    /// ACK_FREQUENCY with this sequence number.
    AckFrequency(u64),
    /// ACK up to this packet number. Once acknowledged, older received packets need no
    /// longer be reported (RFC 9000 §13.2.4).
    Ack(u64),
    /// DATAGRAM: never retransmitted, but counted when lost (RFC 9221 §5.2).
    Datagram,
}

/// The frames of a packet. Two fit without an allocation, which covers bulk data with an
/// ACK.
pub(crate) type SentFrames = SmallVec<[SentFrame; 2]>;
