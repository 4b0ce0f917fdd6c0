//! What a packet carried, kept in the ledger until it is acknowledged or lost.

use smallvec::SmallVec;

use crate::stream::StreamContent;

/// One frame of a sent packet that matters after it has left. Frames that are
/// never sent again and tell nobody anything (PADDING, PING, PATH_CHALLENGE,
/// PATH_RESPONSE, CONNECTION_CLOSE) leave no record (RFC 9000 §13.3).
#[derive(Clone, Copy, Debug)]
pub(crate) enum SentFrame {
    /// Anything of a stream or of flow control.
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
    /// ACK up to this packet number: once acknowledged, older received packets
    /// need no longer be reported (RFC 9000 §13.2.4).
    Ack(u64),
    /// DATAGRAM: never sent again, counted when lost (RFC 9221 §5.2).
    Datagram,
}

/// The frames of one packet; two fit without an allocation, which covers bulk
/// data with an ACK.
pub(crate) type SentFrames = SmallVec<[SentFrame; 2]>;
